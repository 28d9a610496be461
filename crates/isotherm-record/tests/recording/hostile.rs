//! Files that were cut off, changed, swapped, or are not ours: data or an error, never a panic, never wrong data from what is
//! still whole.

use crate::{names, place, record, samples};
use isotherm_record::{Error, Recording, Writer};
use std::fs;
use std::path::Path;

/// Offsets to cut a file of `len` at: many everywhere, and all close to the end, where the footer is.
fn offsets(len: usize) -> impl Iterator<Item = usize> {
    (0..len).filter(move |at| at % 61 == 0 || *at < 8 || len - at <= 12)
}

#[test]
fn a_truncated_segment_is_skipped_and_the_rest_is_read() {
    let (_parent, path) = place();
    drop(record(&path, 6));
    let all = samples::snapshots(6);
    for name in names(&path).iter().filter(|n| n.contains("000003")) {
        let file = path.join(name);
        let whole = fs::read(&file).unwrap();
        for cut in offsets(whole.len()) {
            fs::write(&file, &whole[..cut]).unwrap();
            let recording = Recording::open(&path).unwrap();
            let left = recording.read_all().unwrap();
            assert_eq!(left.len(), 4, "{name} at {cut}");
            assert_eq!((&left[..2], left[3].start_unix_ns), (&all[..2], all[5].start_unix_ns), "{name} at {cut}");
            let notes = recording.notes().join("\n");
            for part in ["segment 3", name, "did not finish", "snapshots 2 to 3 are missing"] {
                assert!(notes.contains(part), "{name} at {cut}: {notes}");
            }
        }
        fs::write(&file, &whole).unwrap();
    }
    assert_eq!(Recording::open(&path).unwrap().read_all().unwrap(), all);
}

#[test]
fn what_is_damaged_is_left_out_and_the_rest_is_read() {
    let (_parent, path) = place();
    drop(record(&path, 6));
    let damage = |name: &str| {
        let file = path.join(name);
        let mut bytes = fs::read(&file).unwrap();
        // The header of its first page.
        bytes[4..24].fill(0xff);
        fs::write(&file, bytes).unwrap();
    };
    // The first segment is empty.
    damage("regions-000003.parquet");
    let recording = Recording::open(&path).unwrap();
    assert!(recording.notes().iter().all(|note| !note.contains("segment 3")), "{:?}", recording.notes());
    assert!(matches!(recording.read_all(), Err(Error::Damaged { .. })));
    let mut skipped = Vec::new();
    let left: Vec<_> =
        recording.snapshots_to_keep().undamaged(|error| skipped.push(error.to_string())).map(Result::unwrap).collect();
    assert_eq!((left.len(), skipped.len()), (4, 1), "{skipped:?}");
    assert!(skipped[0].contains("regions-000003.parquet"), "{skipped:?}");
    let starts = |of: &[isotherm_heat::Snapshot]| of.iter().map(|one| one.start_unix_ns).collect::<Vec<_>>();
    let all = samples::snapshots(6);
    assert_eq!(starts(&left), [starts(&all[..2]), starts(&all[4..])].concat());
    // Where nothing else is there, it is an error.
    (2..=4).for_each(|n| damage(&format!("regions-{n:06}.parquet")));
    let nothing: Vec<_> = Recording::open(&path).unwrap().snapshots().undamaged(|_| {}).collect();
    assert!(matches!(nothing[..], [Err(Error::Damaged { .. })]), "{nothing:?}");
}

#[test]
fn mappings_of_a_lost_segment_are_left_out_until_they_change() {
    let (_parent, path) = place();
    drop(record(&path, 6));
    fs::remove_file(path.join("heat-000002.parquet")).unwrap();
    let left = Recording::open(&path).unwrap().read_all().unwrap();
    let known: Vec<bool> = left.iter().map(|s| !s.targets[0].mappings.is_empty()).collect();
    // Those of target 100 were written with snapshots 0 and 3.
    assert_eq!(known, [false, true, true, true]);
    assert_eq!(left[1..], samples::snapshots(6)[3..]);
}

#[test]
fn a_recording_of_which_nothing_is_left_is_an_error() {
    let (_parent, path) = place();
    record(&path, 3).finish().unwrap();
    for name in names(&path) {
        let file = path.join(&name);
        let whole = fs::read(&file).unwrap();
        for cut in offsets(whole.len()) {
            fs::write(&file, &whole[..cut]).unwrap();
            let error = Recording::open(&path).unwrap_err();
            assert!(matches!(error, Error::NothingLeft { .. }), "{error}");
            assert!(error.to_string().contains(&name), "{error}");
        }
        fs::remove_file(&file).unwrap();
        assert!(matches!(Recording::open(&path), Err(Error::NothingLeft { .. })), "without {name}");
        fs::write(&file, &whole).unwrap();
    }
    Recording::open(&path).unwrap();
}

#[test]
fn changed_bytes_give_data_or_an_error() {
    let (_parent, path) = place();
    record(&path, 4).finish().unwrap();
    let (mut errors, mut cases) = (0, 0);
    for name in names(&path) {
        let file = path.join(name);
        let whole = fs::read(&file).unwrap();
        for at in 0..whole.len() {
            for mask in [0x01, 0x80, 0xff] {
                if !(at + mask as usize).is_multiple_of(7) {
                    continue;
                }
                let mut changed = whole.clone();
                changed[at] ^= mask;
                fs::write(&file, changed).unwrap();
                cases += 1;
                errors += usize::from(Recording::open(&path).and_then(|r| r.read_all()).is_err());
            }
        }
        fs::write(&file, &whole).unwrap();
    }
    assert!(errors * 3 > cases && cases > 1000, "{errors} errors in {cases} cases");
}

#[test]
fn files_of_another_place_do_not_mix() {
    let (_parent, path) = place();
    let (_other_parent, other) = place();
    drop(record(&path, 4));
    let swap = |from: &str, to: &str| {
        let to = path.join(to);
        let whole = fs::read(&to).unwrap();
        fs::copy(path.join(from), &to).unwrap();
        let notes = Recording::open(&path).unwrap().notes().join("\n");
        fs::write(&to, whole).unwrap();
        notes
    };
    assert!(swap("heat-000002.parquet", "heat-000003.parquet").contains("from a different segment"));
    assert!(swap("heat-000002.parquet", "regions-000002.parquet").contains("does not hold the table regions"));

    let mut run = samples::run();
    run.kernel = "another".into();
    let mut writer = Writer::create(&other, &run, crate::two_each()).unwrap();
    samples::snapshots(2).iter().for_each(|s| writer.push(s).unwrap());
    for name in names(&other) {
        fs::copy(other.join(&name), path.join(&name)).unwrap();
    }
    let recording = Recording::open(&path).unwrap();
    assert!(recording.notes().join("\n").contains("from a different run"), "{:?}", recording.notes());
    assert_eq!((recording.len(), recording.run()), (2, &samples::run()));
}

#[test]
fn stale_files_of_a_killed_recorder_are_ignored() {
    let (_parent, path) = place();
    record(&path, 3).finish().unwrap();
    fs::write(path.join(".snapshots-000009.parquet.tmp"), "half").unwrap();
    fs::write(path.join("regions-000009.parquet"), "half").unwrap();
    let recording = Recording::open(&path).unwrap();
    assert_eq!((recording.len(), recording.notes().len()), (3, 0));
}

fn refusal(path: &Path) -> String {
    let error = Recording::open(path).unwrap_err();
    assert!(matches!(error, Error::NotARecording { .. }), "{error}");
    error.to_string()
}

#[test]
fn what_is_not_a_recording_is_called_that() {
    let (parent, path) = place();
    assert!(matches!(Recording::open(&path), Err(Error::Open { .. })));
    fs::create_dir(&path).unwrap();
    assert!(refusal(&path).contains("not an Isotherm recording"));
    fs::write(path.join("data.parquet"), "PAR1").unwrap();
    assert!(refusal(&path).contains(&path.display().to_string()));
    assert!(refusal(&path.join("data.parquet")).contains("not a directory"));
    fs::create_dir(path.join("snapshots-000001.parquet")).unwrap();
    assert!(matches!(Recording::open(&path), Err(Error::NothingLeft { .. })));
    drop(parent);
}
