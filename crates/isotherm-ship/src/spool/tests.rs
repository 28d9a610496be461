//! The spool in a real folder: against a model of what it holds, and with what each step of a crash leaves behind.

use super::*;
use proptest::prelude::*;

const ROOMY: u64 = 1 << 30;

/// In memory where there is such a folder: a disk takes milliseconds for each sync.
fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn header(hour: u64) -> Header {
    Header { host: "00112233aabbccdd".into(), boot: "boot".into(), hour }
}

/// One object of all batches, and one with their number.
fn make(sequence: u64, header: &Header, batches: Vec<Vec<u8>>) -> std::result::Result<Vec<Made>, Error> {
    let path = |table: &str| format!("v1/{table}/date=2026-11-24/hour={}/{sequence}.parquet", header.hour);
    let count = vec![u8::try_from(batches.len()).unwrap()];
    Ok(vec![Made { path: path("all"), bytes: batches.concat() }, Made { path: path("count"), bytes: count }])
}

fn files_below(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(std::result::Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            found.extend(files_below(&entry.path()));
        } else {
            found.push(entry.path().to_str().unwrap().to_owned());
        }
    }
    found.sort();
    found
}

#[test]
fn an_hour_whose_end_could_not_be_noted_is_made_anew_with_what_has_come_since() {
    let dir = scratch();
    let root = dir.path().join("spool");
    let mut spool = Spool::open(&root, ROOMY).unwrap();
    spool.append(&header(7), 0, b"one").unwrap();
    // What a try leaves whose objects are in place, and whose log could not be removed: a full disk, say.
    let left = root.join(READY).join(names::of_sequence(0));
    fs::create_dir(&left).unwrap();
    fs::write(left.join("half"), "of that try").unwrap();
    spool.append(&header(7), 0, b"two").unwrap();
    let ids = spool.close_hour(0, make).unwrap().objects;
    assert_eq!(spool.lend(&ids[0]).unwrap(), b"onetwo");
    assert!(!left.join("half").exists());
}

#[test]
fn batches_of_an_hour_become_objects_that_are_sent() {
    let dir = scratch();
    let root = dir.path().join("spool");
    let mut spool = Spool::open(&root, ROOMY).unwrap();
    for (hour, batch) in [(7, b"one"), (7, b"two"), (8, b"six")] {
        assert_eq!(spool.append(&header(hour), 0, batch).unwrap(), Appended::default());
    }
    let hours: Vec<_> =
        spool.open_hours().map(|(sequence, header, batches)| (sequence, header.hour, batches)).collect();
    assert_eq!(hours, [(0, 7, 2), (1, 8, 1)]);
    let ids = spool.close_hour(0, make).unwrap().objects;
    assert_eq!(ids[0].path, "v1/all/date=2026-11-24/hour=7/0.parquet");
    assert_eq!(spool.lend(&ids[0]).unwrap(), b"onetwo");
    assert_eq!(spool.lend(&ids[1]).unwrap(), [2]);
    spool.settle(&ids[0], Fate::Sent { already: false }).unwrap();
    spool.settle(&ids[1], Fate::Sent { already: true }).unwrap();
    let counts = spool.counts();
    assert_eq!((counts.sent_objects, counts.sent_bytes, counts.already_there_objects), (2, 7, 1));
    assert_eq!(fs::read_dir(root.join(READY)).unwrap().count(), 0, "no folder is left");
    // Rows for an hour that has become objects: a number of its own.
    spool.append(&header(7), 0, b"late").unwrap();
    assert_eq!(spool.open_hours().map(|(sequence, ..)| sequence).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn only_its_owner_can_read_it_and_there_is_one_owner() {
    let dir = scratch();
    let root = dir.path().join("spool");
    fs::create_dir(&root).unwrap();
    fs::set_permissions(&root, Permissions::from_mode(0o755)).unwrap();
    let mut spool = Spool::open(&root, ROOMY).unwrap();
    spool.append(&header(1), 0, b"x").unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&root), mode(&root.join(OPEN)), mode(&spool.log_path(0))), (0o700, 0o700, 0o600));
    let error = Spool::open(&root, ROOMY).unwrap_err();
    assert!(matches!(error, Error::InUse { .. }), "{error}");
    drop(spool);
    Spool::open(&root, ROOMY).unwrap();
}

#[test]
fn a_folder_of_others_is_no_spool_and_stays_as_it_is() {
    let dir = scratch();
    fs::write(dir.path().join("theirs"), "").unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let error = Spool::open(dir.path(), ROOMY).unwrap_err();
    assert!(matches!(error, Error::NoSpool { .. }), "{error}");
    assert_eq!(fs::metadata(dir.path()).unwrap().permissions().mode() & 0o777, 0o755);
    // A new file system, and what a start that was cut short leaves.
    fs::remove_file(dir.path().join("theirs")).unwrap();
    fs::create_dir(dir.path().join("lost+found")).unwrap();
    fs::write(dir.path().join(LOCK), "").unwrap();
    Spool::open(dir.path(), ROOMY).unwrap();
}

#[test]
fn the_oldest_objects_make_room_and_busy_ones_stay() {
    let dir = scratch();
    let mut spool = Spool::open(dir.path(), 1000).unwrap();
    let mut ids = Vec::new();
    for hour in 0..3 {
        spool.append(&header(hour), 0, &[7; 200]).unwrap();
        ids.extend(spool.close_hour(hour, make).unwrap().objects);
    }
    // 3 times 201 bytes wait; the first object is being sent.
    spool.lend(&ids[0]).unwrap();
    let appended = spool.append(&header(9), 0, &[8; 450]).unwrap();
    assert_eq!(appended, Appended { dropped: ids[1..3].to_vec(), is_lost: false }, "one byte and 200 bytes");
    assert_eq!((spool.counts().dropped_objects, spool.counts().dropped_bytes), (2, 201));
    // What does not fit at all.
    let appended = spool.append(&header(9), 0, &[8; 900]).unwrap();
    assert!(appended.is_lost && spool.counts().dropped_batches == 1, "{appended:?}");
    assert_eq!(spool.ready().map(|(id, _)| id.clone()).collect::<Vec<_>>(), [ids[0].clone()]);
    spool.release(&ids[0]);
    assert!(spool.bytes() <= 1000);
    drop(spool);
    let spool = Spool::open(dir.path(), 100).unwrap();
    assert_eq!(spool.ready().count(), 0, "a lower limit holds at the next start");
}

#[test]
fn a_torn_batch_is_cut_off_and_the_next_follows_the_last_whole_one() {
    let dir = scratch();
    let mut spool = Spool::open(dir.path(), ROOMY).unwrap();
    spool.append(&header(1), 0, b"whole").unwrap();
    let path = spool.log_path(0);
    drop(spool);
    let torn = &record::encode(b"torn").unwrap()[..9];
    OpenOptions::new().append(true).open(&path).unwrap().write_all(torn).unwrap();
    // And a file whose header is torn.
    fs::write(dir.path().join(OPEN).join("00000000000000000001.log"), &record::MAGIC[..7]).unwrap();
    let mut spool = Spool::open(dir.path(), ROOMY).unwrap();
    assert_eq!(spool.counts().torn_bytes, 9 + 7);
    spool.append(&header(1), 0, b"next").unwrap();
    let ids = spool.close_hour(0, make).unwrap().objects;
    assert_eq!(spool.lend(&ids[0]).unwrap(), b"wholenext");
}

#[test]
fn a_damaged_batch_is_lost_alone_and_counted() {
    let dir = scratch();
    let mut spool = Spool::open(dir.path(), ROOMY).unwrap();
    let batches = [&b"one"[..], b"two", b"three", b"four"];
    batches.iter().for_each(|batch| drop(spool.append(&header(1), 0, batch).unwrap()));
    let path = spool.log_path(0);
    let damage = |batch: &[u8]| {
        let mut bytes = fs::read(&path).unwrap();
        let at = bytes.windows(batch.len()).position(|bytes| bytes == batch).unwrap();
        bytes[at] ^= 1;
        fs::write(&path, bytes).unwrap();
    };
    // One before a start, which must not cut off what follows, and one after it.
    damage(b"two");
    drop(spool);
    let mut spool = Spool::open(dir.path(), ROOMY).unwrap();
    assert_eq!((spool.counts().torn_bytes, spool.open_hours().map(|(.., batches)| batches).sum::<u64>()), (0, 4));
    damage(b"four");
    let closed = spool.close_hour(0, make).unwrap();
    assert_eq!(spool.lend(&closed.objects[0]).unwrap(), b"onethree");
    assert_eq!((closed.damaged, spool.counts().dropped_batches), (2, 2));
}

#[test]
fn batches_of_nobody_are_counted() {
    let dir = scratch();
    let mut spool = Spool::open(dir.path(), ROOMY).unwrap();
    spool.append(&header(1), 0, b"one").unwrap();
    let path = spool.log_path(0);
    drop(spool);
    let mut bytes = fs::read(&path).unwrap();
    // In the header.
    bytes[record::MAGIC.len() + 8] ^= 1;
    fs::write(&path, bytes).unwrap();
    let spool = Spool::open(dir.path(), ROOMY).unwrap();
    assert_eq!((spool.open_hours().count(), spool.counts().dropped_batches), (0, 1));
}

#[test]
fn a_crash_between_the_steps_of_an_hour_leaves_its_batches_or_its_objects() {
    let dir = scratch();
    let mut spool = Spool::open(dir.path(), ROOMY).unwrap();
    spool.append(&header(1), 0, b"x").unwrap();
    let log = fs::read(spool.log_path(0)).unwrap();
    // While objects are written.
    let making = dir.path().join(MAKING).join(names::of_sequence(0));
    fs::create_dir(&making).unwrap();
    fs::write(making.join("v1,all,x.parquet"), "half").unwrap();
    drop(spool);
    let mut spool = Spool::open(dir.path(), ROOMY).unwrap();
    assert_eq!((spool.ready().count(), spool.open_hours().count()), (0, 1));
    assert!(!making.exists());
    // After the objects are there, before the batches are gone.
    spool.close_hour(0, make).unwrap();
    drop(spool);
    fs::write(dir.path().join(OPEN).join("00000000000000000000.log"), log).unwrap();
    let spool = Spool::open(dir.path(), ROOMY).unwrap();
    assert_eq!((spool.ready().count(), spool.open_hours().count()), (2, 0));
}

#[test]
fn an_object_that_was_counted_is_not_counted_again() {
    let dir = scratch();
    let mut spool = Spool::open(dir.path(), ROOMY).unwrap();
    spool.append(&header(1), 0, b"x").unwrap();
    let ids = spool.close_hour(0, make).unwrap().objects;
    let path = spool.object_path(&ids[0]).unwrap();
    spool.settle(&ids[0], Fate::Sent { already: false }).unwrap();
    drop(spool);
    // As if it had been killed before the file was removed.
    fs::write(&path, "x").unwrap();
    let spool = Spool::open(dir.path(), ROOMY).unwrap();
    assert!(!path.exists());
    assert_eq!((spool.counts().sent_objects, spool.ready().count()), (1, 1));
}

#[test]
fn batches_that_make_no_objects_are_lost_aloud() {
    let dir = scratch();
    let mut spool = Spool::open(dir.path(), ROOMY).unwrap();
    spool.append(&header(1), 0, b"x").unwrap();
    spool.append(&header(1), 0, b"y").unwrap();
    let failed = spool.close_hour(0, |sequence, _, _| Err(Error::Path { path: sequence.to_string() }));
    assert!(matches!(failed, Err(Error::Path { .. })));
    assert_eq!(spool.open_hours().count(), 1, "they are still there");
    spool.discard_hour(0).unwrap();
    assert_eq!((spool.open_hours().count(), spool.counts().dropped_batches), (0, 2));
    // No objects from batches is no error: there were no rows.
    spool.append(&header(1), 0, b"x").unwrap();
    let none: std::result::Result<_, Error> = spool.close_hour(1, |_, _, _| Ok(Vec::new()));
    assert_eq!(none.unwrap(), Closed::default());
    assert_eq!(files_below(dir.path()).len(), 2, "the lock and the counts: {:?}", files_below(dir.path()));
}

#[test]
fn what_batches_cover_is_remembered_when_they_are_gone() {
    let dir = scratch();
    let reopened = || Spool::open(dir.path(), ROOMY).unwrap();
    let mut spool = reopened();
    assert_eq!(spool.covered_until_unix_ns(), 0);
    spool.append(&header(1), 500, b"x").unwrap();
    spool.append(&header(1), 300, b"y").unwrap();
    drop(spool);
    let mut spool = reopened();
    assert_eq!((spool.covered_until_unix_ns(), spool.counts().covered_until_unix_ns), (500, 0), "by the batches");
    spool.close_hour(0, make).unwrap();
    drop(spool);
    assert_eq!(reopened().covered_until_unix_ns(), 500, "by the counts");
}

#[test]
fn what_a_clock_that_was_years_ahead_has_covered_is_forgotten() {
    const YEARS: u64 = 100_000_000_000_000_000;
    let dir = scratch();
    let reopened = || Spool::open(dir.path(), ROOMY).unwrap();
    let mut spool = reopened();
    spool.append(&header(9), YEARS, b"x").unwrap();
    spool.close_hour(0, make).unwrap();
    spool.append(&header(10), YEARS + 7, b"y").unwrap();
    assert_eq!(spool.covered_until_unix_ns(), YEARS + 7);
    spool.append(&header(1), 500, b"z").unwrap();
    assert_eq!(spool.covered_until_unix_ns(), 500);
    spool.close_hour(1, make).unwrap();
    spool.close_hour(2, make).unwrap();
    drop(spool);
    assert_eq!(reopened().covered_until_unix_ns(), 500);
}

#[test]
fn a_full_disk_keeps_no_spool_from_being_opened() {
    let dir = scratch();
    let mut spool = Spool::open(dir.path(), ROOMY).unwrap();
    spool.append(&header(1), 500, b"x").unwrap();
    spool.close_hour(0, make).unwrap();
    drop(spool);
    full_disk(dir.path());
    let spool = Spool::open(dir.path(), ROOMY).unwrap();
    assert_eq!(spool.ready().count(), 2, "what waits can be sent");
}

/// A folder where the counts are written before they get their name, so that nothing can be written there. Until it is removed.
fn full_disk(root: &Path) -> PathBuf {
    let path = root.join(COUNTS).with_extension("new");
    fs::create_dir(&path).unwrap();
    path
}

#[test]
fn objects_beside_their_log_on_a_full_disk_are_sent() {
    let dir = scratch();
    let mut spool = Spool::open(dir.path(), ROOMY).unwrap();
    spool.append(&header(1), 500, b"x").unwrap();
    drop(spool);
    // As an hour leaves it that was killed between the two.
    let ready = dir.path().join(READY).join(names::of_sequence(0));
    fs::create_dir(&ready).unwrap();
    fs::write(ready.join("v1,0.parquet"), "objects").unwrap();
    full_disk(dir.path());
    let spool = Spool::open(dir.path(), ROOMY).unwrap();
    assert_eq!((spool.ready().count(), spool.open_hours().count()), (1, 0), "what waits can be sent");
    assert_eq!(files_below(&dir.path().join(OPEN)), [""; 0], "and not made once more");
}

#[test]
fn what_comes_after_an_hour_that_could_not_be_closed_is_not_lost_in_a_crash() {
    let dir = scratch();
    let mut spool = Spool::open(dir.path(), ROOMY).unwrap();
    spool.append(&header(7), 0, b"one").unwrap();
    let full = full_disk(dir.path());
    assert!(spool.close_hour(0, make).is_err());
    fs::remove_dir(full).unwrap();
    spool.append(&header(7), 0, b"two").unwrap();
    drop(spool);
    let mut spool = Spool::open(dir.path(), ROOMY).unwrap();
    let ids = spool.close_hour(0, make).unwrap().objects;
    assert_eq!(spool.lend(&ids[0]).unwrap(), b"onetwo");
}

#[test]
fn sequence_numbers_go_on_without_their_counts() {
    let dir = scratch();
    let mut spool = Spool::open(dir.path(), ROOMY).unwrap();
    spool.append(&header(1), 0, b"x").unwrap();
    drop(spool);
    fs::remove_file(dir.path().join(COUNTS)).unwrap();
    let spool = Spool::open(dir.path(), ROOMY).unwrap();
    assert!(spool.counts().next_sequence > 1, "{:?}", spool.counts());
}

/// What happens to a spool.
#[derive(Clone, Debug)]
enum Step {
    Append { hour: u64, bytes: u8 },
    Close,
    Send,
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..4_u64, 1..200_u8).prop_map(|(hour, bytes)| Step::Append { hour, bytes }),
        2 => Just(Step::Close),
        2 => Just(Step::Send),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 0..40)
}

/// The model: batches are numbered, and each is in an open hour, in an object, sent, or lost.
#[derive(Default)]
struct Model {
    open: BTreeMap<u64, Vec<u8>>,
    ready: BTreeMap<ObjectId, Vec<u8>>,
    sent: Vec<ObjectId>,
}

impl Model {
    fn step(&mut self, spool: &mut Spool, step: &Step, number: u8) {
        match step {
            Step::Append { hour, bytes } => {
                let batch = vec![number; usize::from(*bytes)];
                let appended = spool.append(&header(*hour), 0, &batch).unwrap();
                let oldest: Vec<ObjectId> = self.ready.keys().take(appended.dropped.len()).cloned().collect();
                assert_eq!(appended.dropped, oldest, "the oldest are dropped");
                oldest.iter().for_each(|id| drop(self.ready.remove(id)));
                if appended.is_lost {
                    assert!(self.ready.is_empty(), "a batch is lost only if nothing else could go");
                } else {
                    self.open.entry(*hour).or_default().extend(batch);
                }
            }
            Step::Close => {
                let Some((sequence, hour)) =
                    spool.open_hours().next().map(|(sequence, header, _)| (sequence, header.hour))
                else {
                    return;
                };
                let batches = self.open.remove(&hour).unwrap_or_default();
                let all = |_: u64, _: &Header, batches: Vec<Vec<u8>>| -> std::result::Result<Vec<Made>, Error> {
                    Ok(vec![Made { path: format!("v1/{sequence}.parquet"), bytes: batches.concat() }])
                };
                for id in spool.close_hour(sequence, all).unwrap().objects {
                    assert!(!self.sent.contains(&id), "a name is never used twice");
                    self.ready.insert(id, batches.clone());
                }
            }
            Step::Send => {
                let Some((id, bytes)) = self.ready.pop_first() else { return };
                assert_eq!(spool.lend(&id).unwrap(), bytes);
                spool.settle(&id, Fate::Sent { already: false }).unwrap();
                self.sent.push(id);
            }
            Step::Reopen => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn it_holds_what_the_model_holds(steps in steps()) {
        let dir = scratch();
        let mut model = Model::default();
        let mut spool = Some(Spool::open(dir.path(), 1500).unwrap());
        for (number, step) in steps.iter().enumerate() {
            if matches!(step, Step::Reopen) {
                drop(spool.take());
            }
            let mut open = spool.take().unwrap_or_else(|| Spool::open(dir.path(), 1500).unwrap());
            model.step(&mut open, step, u8::try_from(number + 1).unwrap());
            prop_assert!(open.bytes() <= 1500);
            prop_assert_eq!(open.ready().map(|(id, _)| id.clone()).collect::<Vec<_>>(), model.ready.keys().cloned().collect::<Vec<_>>());
            prop_assert_eq!(open.counts().sent_objects, model.sent.len() as u64);
            spool = Some(open);
        }
        // What is still open is complete and in order.
        let mut spool = spool.unwrap();
        let open: Vec<(u64, u64)> = spool.open_hours().map(|(sequence, header, _)| (sequence, header.hour)).collect();
        for (sequence, hour) in open {
            let mut found = Vec::new();
            let none: std::result::Result<_, Error> = spool.close_hour(sequence, |_, _, batches| { found = batches.concat(); Ok(Vec::new()) });
            prop_assert!(none.is_ok());
            prop_assert_eq!(&found, &model.open.remove(&hour).unwrap_or_default());
        }
        prop_assert!(model.open.is_empty());
    }
}
