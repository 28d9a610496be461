//! A shipper with rows that are numbers: a batch for each snapshot.

use super::*;
use crate::plan::Settings;
use isotherm_stream::HostRow;
use std::time::Duration;

const MINUTE: u64 = 60_000_000_000;
/// The hour in which tests begin, in hours since the epoch.
const HOUR: u64 = 500_000;
/// A batch that cannot be read.
const WRONG: [u8; 1] = [66];

#[derive(Debug, Default)]
struct Numbers {
    open: Vec<u8>,
}

fn header(hour: u64) -> Header {
    Header { host: "h".into(), boot: "b".into(), hour }
}

impl Roll for Numbers {
    fn push(&mut self, snapshot: Snapshot) -> Result<Vec<Batch>, String> {
        let end = snapshot.host.end_unix_ns;
        let hour = (end - 1) / HOUR_NS;
        self.open = vec![9];
        let bytes = if snapshot.host.hostname == "wrong" { WRONG.to_vec() } else { vec![1] };
        let batch = Batch { header: header(hour), ends_hour: end == (hour + 1) * HOUR_NS, end_unix_ns: end, bytes };
        Ok(vec![batch])
    }
    fn lost(&mut self, _: u64) {}
    fn closed(&mut self, _: u64) -> Result<Vec<Batch>, String> {
        Ok(Vec::new())
    }
    fn finish(&mut self) -> Result<Vec<Batch>, String> {
        let bytes = std::mem::take(&mut self.open);
        Ok(vec![Batch { header: header(HOUR), ends_hour: false, end_unix_ns: 7, bytes }])
    }
    fn check(batch: &[u8]) -> Result<(), String> {
        if batch == WRONG { Err("a wrong batch".into()) } else { Ok(()) }
    }
    fn objects(sequence: u64, header: &Header, batches: Vec<Vec<u8>>) -> Result<Vec<Made>, Failed> {
        if batches.len() == 13 {
            return Err(Failed::Batches("thirteen".into()));
        }
        if batches.iter().any(|batch| *batch == WRONG) {
            return Err(Failed::Batches("a wrong one".into()));
        }
        let path = |table| format!("v1/{table}/{}/{sequence}.parquet", header.hour);
        Ok([("a", batches.concat()), ("b", vec![0; 10])].map(|(table, bytes)| Made { path: path(table), bytes }).into())
    }
}

struct Bench {
    shipper: Shipper<Numbers>,
    now: Moment,
    dir: tempfile::TempDir,
}

impl Bench {
    fn new(spread: Duration, limit_bytes: u64) -> Bench {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let spool = Spool::open(dir.path(), limit_bytes).unwrap();
        let settings =
            Settings { spread, concurrency: 2, backoff: Duration::from_secs(2), max_backoff: Duration::from_secs(60) };
        let now = Moment { mono_ns: 5 * MINUTE, wall_ns: HOUR * HOUR_NS };
        // The phase is half of the interval.
        Bench { shipper: Shipper::new(Numbers::default(), spool, Planner::new(settings, 1 << 63), 1, now), now, dir }
    }

    /// Lines for people, since the last call.
    fn notes(&mut self) -> Vec<String> {
        self.shipper.notes().into_iter().map(|(_, note)| note).collect()
    }

    fn pass(&mut self, minutes: u64) {
        self.now.mono_ns += minutes * MINUTE;
        self.now.wall_ns += minutes * MINUTE;
        self.shipper.tick(self.now);
    }

    /// Snapshots of five minutes each.
    fn snapshots(&mut self, count: u64) {
        (0..count).for_each(|_| self.snapshot(""));
    }

    fn snapshot(&mut self, hostname: &str) {
        self.pass(5);
        let host = HostRow { end_unix_ns: self.now.wall_ns, hostname: hostname.into(), ..HostRow::default() };
        self.shipper.snapshot(Snapshot { host, ..Snapshot::default() }, self.now);
    }

    fn sent(&mut self) -> Vec<String> {
        self.shipper.to_send(self.now).into_iter().map(|(id, _)| id.path).collect()
    }
}

#[test]
fn an_hour_becomes_objects_with_its_last_batch_and_is_sent_at_the_phase() {
    let mut bench = Bench::new(Duration::from_secs(600), 1 << 20);
    bench.snapshots(11);
    assert!(bench.shipper.is_idle(), "nothing is ready within the hour");
    bench.snapshots(1);
    assert!(!bench.shipper.is_idle() && bench.sent().is_empty(), "ready, and not due");
    // Half of ten minutes; its offset is below a sixteenth of them.
    let wait = bench.shipper.wait_ns(bench.now);
    assert_eq!(wait, MINUTE, "it looks at the clocks before that");
    bench.pass(4);
    assert!(bench.sent().is_empty());
    bench.pass(2);
    let sent = bench.shipper.to_send(bench.now);
    let paths: Vec<&str> = sent.iter().map(|(id, _)| id.path.as_str()).collect();
    let mut sorted = paths.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, ["v1/a/500000/0.parquet", "v1/b/500000/0.parquet"]);
    for (id, bytes) in &sent {
        let expected = if id.path.contains("/a/") { vec![1; 12] } else { vec![0; 10] };
        assert_eq!(*bytes, expected, "all twelve batches are in it");
        bench.shipper.put(id, Ok(Put::New), bench.now);
    }
    assert!(bench.shipper.is_idle());
    assert_eq!(bench.shipper.counts().sent_objects, 2);
}

#[test]
fn an_hour_without_its_last_batch_is_closed_by_the_clock() {
    let mut bench = Bench::new(Duration::ZERO, 1 << 20);
    bench.snapshots(9);
    bench.pass(15);
    assert!(bench.shipper.is_idle() == bench.sent().is_empty());
    let mut bench = Bench::new(Duration::ZERO, 1 << 20);
    // The monitor was away until shortly before the hour ended.
    bench.snapshots(10);
    bench.pass(15);
    assert!(bench.sent().is_empty(), "its last batch may still come");
    bench.pass(1);
    assert_eq!(bench.sent().len(), 2, "six minutes after its end");
}

#[test]
fn an_hour_of_a_clock_that_was_years_ahead_is_closed_by_the_first_rows_of_the_present() {
    let years = 3 * 365 * 24 * 60;
    let mut bench = Bench::new(Duration::ZERO, 1 << 20);
    bench.now.wall_ns += years * MINUTE;
    bench.snapshots(3);
    bench.now.wall_ns -= years * MINUTE;
    bench.pass(10);
    assert!(bench.sent().is_empty(), "by this clock the hour is not over");
    bench.snapshots(1);
    let sent = bench.sent();
    assert_eq!(sent.len(), 2);
    assert!(sent.iter().all(|path| path.contains(&format!("/{}/", HOUR + years / 60))), "{sent:?}");
}

#[test]
fn an_hour_that_cannot_be_closed_is_tried_again_minutes_later() {
    let mut bench = Bench::new(Duration::ZERO, 1 << 20);
    bench.snapshots(11);
    // As on a full disk: the folder in which objects are made is not there.
    let making = bench.dir.path().join("making");
    std::fs::remove_dir(&making).unwrap();
    std::fs::write(&making, "").unwrap();
    bench.pass(11);
    for _ in 0..300 {
        bench.now.mono_ns += MINUTE / 60;
        bench.now.wall_ns += MINUTE / 60;
        bench.shipper.tick(bench.now);
    }
    let notes = bench.notes();
    assert_eq!(notes.iter().filter(|note| note.contains("closed later")).count(), 1, "in five minutes: {notes:?}");
    std::fs::remove_file(&making).unwrap();
    std::fs::create_dir(&making).unwrap();
    bench.pass(6);
    assert_eq!(bench.sent().len(), 2, "nothing is lost");
}

#[test]
fn a_store_that_fails_is_tried_again_and_named_once() {
    let mut bench = Bench::new(Duration::ZERO, 1 << 20);
    bench.snapshots(12);
    let error = || store::Error::Put { path: "v1/a".into(), what: "503".into() };
    let sent = bench.shipper.to_send(bench.now);
    assert_eq!(sent.len(), 2);
    for (id, _) in &sent {
        bench.shipper.put(id, Err(error()), bench.now);
    }
    assert_eq!(bench.notes(), ["put v1/a: 503; it is kept and tried again"]);
    assert_eq!((bench.shipper.failures(), bench.shipper.counts().sent_objects), (2, 0));
    bench.pass(2);
    let again = bench.shipper.to_send(bench.now);
    assert_eq!(again.len(), 1, "one until one succeeds");
    bench.shipper.put(&again[0].0, Ok(Put::AlreadyThere), bench.now);
    assert_eq!(bench.notes(), ["the store takes objects again"]);
    let rest = bench.shipper.to_send(bench.now);
    bench.shipper.put(&rest[0].0, Ok(Put::New), bench.now);
    assert!(bench.shipper.is_idle());
    assert_eq!((bench.shipper.counts().sent_objects, bench.shipper.counts().already_there_objects), (2, 1));
    let status = bench.shipper.status(bench.now).clone();
    assert_eq!((status.failed_puts, status.failures_in_a_row), (2, 0));
    assert_eq!(status.last_error.unwrap().what, "put v1/a: 503");
}

#[test]
fn batches_of_which_no_objects_can_be_made_end_nothing_else() {
    let mut bench = Bench::new(Duration::ZERO, 1 << 20);
    bench.snapshots(11);
    // The thirteenth batch of the hour comes with the end of the program, so the hour ends by the clock.
    bench.shipper.finish(bench.now);
    let early = HostRow { end_unix_ns: bench.now.wall_ns - 1, ..HostRow::default() };
    bench.shipper.snapshot(Snapshot { host: early, ..Snapshot::default() }, bench.now);
    bench.pass(11);
    assert!(bench.shipper.is_idle());
    assert_eq!(bench.shipper.counts().dropped_batches, 13);
    assert!(bench.notes().concat().contains("thirteen"));
    bench.now.wall_ns = (HOUR + 1) * HOUR_NS;
    bench.snapshots(12);
    assert_eq!(bench.sent().len(), 2);
}

#[test]
fn the_batches_of_an_hour_that_can_be_read_are_sent_without_the_others() {
    let mut bench = Bench::new(Duration::ZERO, 1 << 20);
    bench.snapshots(4);
    bench.snapshot("wrong");
    bench.snapshot("wrong");
    bench.snapshots(6);
    let sent = bench.shipper.to_send(bench.now);
    let of_a = sent.iter().find(|(id, _)| id.path.contains("/a/"));
    assert_eq!(of_a.map(|(_, bytes)| &**bytes), Some(&[1; 10][..]));
    assert_eq!(bench.shipper.counts().dropped_batches, 2);
    let notes = bench.notes().concat();
    assert!(notes.contains("a wrong batch; the rows of 2 batches are lost"), "{notes}");
    (0..12).for_each(|_| bench.snapshot("wrong"));
    assert_eq!(bench.shipper.counts().dropped_batches, 14, "an hour of which none can be read");
    assert!(bench.notes().concat().contains("its rows are lost"));
}

#[test]
fn what_is_dropped_is_neither_sent_nor_forgotten() {
    // The batches of an hour take 52 bytes and 17 for each, its two objects 22.
    let mut bench = Bench::new(Duration::from_secs(3600), 260);
    bench.snapshots(12);
    bench.snapshots(11);
    let (notes, counts) = (bench.shipper.notes(), bench.shipper.counts().clone());
    let is_loss =
        |(priority, note): &(Priority, String)| *priority == Priority::Warning && note.contains("the spool is full: ");
    assert!(notes.iter().any(is_loss), "{notes:?}");
    assert_eq!((counts.dropped_objects, counts.dropped_bytes, counts.dropped_batches), (1, 12, 0));
    // The second hour is closed by the clock, and then due within an hour.
    bench.pass(60);
    bench.pass(60);
    let mut sent = bench.sent();
    while let Some(path) = sent.pop() {
        assert_ne!(path, "v1/a/500000/0.parquet", "the one that was dropped");
        let id = ObjectId { sequence: if path.contains("500000") { 0 } else { 1 }, path };
        bench.shipper.put(&id, Ok(Put::New), bench.now);
        sent.extend(bench.sent());
    }
    assert_eq!(bench.shipper.counts().sent_objects, 3, "all others");
    let status = bench.shipper.status(bench.now).clone();
    assert!(status.last_error.is_some());
}

#[test]
fn a_step_of_the_wall_clock_is_noted() {
    let mut bench = Bench::new(Duration::ZERO, 1 << 20);
    bench.now.wall_ns += 90 * MINUTE;
    bench.shipper.tick(bench.now);
    assert_eq!(bench.notes(), ["the wall clock was set by 5400.0 s; rows since then have its time"]);
    assert_eq!(bench.shipper.status(bench.now).clock.steps, 1);
    bench.now.wall_ns -= 10 * MINUTE;
    bench.shipper.tick(bench.now);
    assert_eq!(bench.notes(), ["the wall clock was set by -600.0 s; there are no rows until it has caught up"]);
}

#[test]
fn trouble_with_the_monitor_is_noted_when_it_begins_and_ends() {
    let mut bench = Bench::new(Duration::ZERO, 1 << 20);
    for event in [None, Some("gone"), Some("still gone"), None, None] {
        bench.shipper.monitor(event.map(str::to_owned), bench.now);
    }
    assert_eq!(bench.notes(), ["gone; trying again", "a monitor sends again"]);
}
