//! Whole files: ours and back, damo's own, and those that nobody should have written.

use super::read::read_up_to;
use super::*;
use crate::{Error, samples};
use flate2::Compression;
use flate2::write::ZlibEncoder;
use isotherm_heat::{Granularity, Histogram, Interval, Region, RunInfo, Snapshot, TargetHeat, TargetId};
use isotherm_units::{Addr, AddrRange, Bytes, PAGE_SIZE};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

const SECOND: u64 = 1_000_000_000;
/// Wall time of made-up snapshots.
const NOW: u64 = 1_795_000_000 * SECOND;

/// A directory, and a file in it.
struct Desk(TempDir);

impl Desk {
    fn new() -> Desk {
        Desk(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn put(&self, bytes: &[u8]) -> PathBuf {
        let path = self.path("damon.data");
        fs::write(&path, bytes).unwrap();
        path
    }

    fn put_json(&self, json: &Value) -> PathBuf {
        self.put(&compressed(json.to_string().as_bytes()))
    }
}

fn compressed(text: &[u8]) -> Vec<u8> {
    let mut out = ZlibEncoder::new(Vec::new(), Compression::fast());
    out.write_all(text).unwrap();
    out.finish().unwrap()
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/damo").join(name)
}

fn read_json(json: &Value) -> DamoRecording {
    read(Desk::new().put_json(json)).unwrap()
}

/// What is said of a file that is refused.
fn refused(bytes: &[u8]) -> String {
    read(Desk::new().put(bytes)).unwrap_err().to_string()
}

fn refused_json(json: &Value) -> String {
    refused(&compressed(json.to_string().as_bytes()))
}

/// A file of one target, as the kernel's defaults make it, with these regions: start and end in pages, count, age.
fn kernel(regions: &[(u64, u64, i64, i64)]) -> Value {
    let region = |(start, end, samples, age): &(u64, u64, i64, i64)| {
        json!({
            "start": (start * PAGE_SIZE).to_string(), "end": (end * PAGE_SIZE).to_string(),
            "nr_accesses": {"samples": samples, "percent": null}, "age": {"usec": null, "aggr_intervals": age.to_string()},
        })
    };
    let regions: Vec<Value> = regions.iter().map(region).collect();
    let (start, end) = (NOW, NOW + SECOND / 10);
    json!([{
        "kdamond_idx": 0, "context_idx": 0, "scheme_idx": 0, "target_id": 0,
        "intervals": {"sample_us": "5000", "aggr_us": "100000", "ops_update_us": "1000000"}, "scheme_filters": [],
        "snapshots": [{"start_time": start, "end_time": end, "regions": regions, "total_bytes": null}],
    }])
}

/// A file of the kernel with one thing changed.
fn changed(pointer: &str, value: Value) -> Value {
    let mut json = kernel(&[(1, 3, 4, 5), (8, 9, 0, 7)]);
    *json.pointer_mut(pointer).unwrap_or_else(|| panic!("no {pointer}")) = value;
    json
}

fn target(pid: u32, regions: Vec<Region>) -> TargetHeat {
    TargetHeat {
        id: TargetId { pid, start_ticks: 77 },
        comm: "worker".into(),
        cgroup: "/a".into(),
        exited: false,
        granularity: Granularity::Page,
        regions,
        mappings: [].into(),
        temperature: Histogram::default(),
        idle: Histogram::default(),
        counted_elsewhere_pages: 0,
        maybe_shared_pages: 0,
        unclearable_pages: 0,
        behind_huge: None,
        idle_by_mapping: Vec::new(),
        facts: Default::default(),
    }
}

fn region(start: u64, pages: u64, rate_hz: f32) -> Region {
    let range = AddrRange::new(Addr(start * PAGE_SIZE), Addr((start + pages) * PAGE_SIZE));
    let interval = Interval::from_octaves((1000.0 / f64::from(rate_hz)).log2());
    Region {
        range,
        resident_pages: pages,
        measured_pages: pages,
        huge_pages: 0,
        interval,
        rate_hz,
        age_ns: 5 * SECOND,
        idle_ns: SECOND,
        sampled_pages: 0,
        estimated_pages: 0,
        hot_pages: None,
    }
}

/// Snapshots of two seconds.
fn snapshots(targets: impl Fn(u64) -> Vec<TargetHeat>, n: u64) -> Vec<Snapshot> {
    let at = |i| NOW + 2 * i * SECOND;
    let snapshot = |i| Snapshot {
        start_unix_ns: at(i),
        end_unix_ns: at(i + 1),
        targets: targets(i),
        cost: isotherm_heat::Cost::default(),
    };
    (0..n).map(snapshot).collect()
}

/// Written and read again.
fn there_and_back(run: &RunInfo, snapshots: &[Snapshot], options: &ExportOptions) -> (Exported, DamoRecording) {
    let desk = Desk::new();
    let exported = write(desk.path("out"), run, snapshots, options).unwrap();
    (exported, read(desk.path("out")).unwrap())
}

// --- Ours and back

#[test]
fn what_damo_has_a_place_for_comes_back() {
    let regions = vec![region(0x5000, 16, 62.5), region(0x7000, 8, 1.0), region(0x9000, 4, 0.125)];
    let mut sparse = region(0xa000, 512, 10.0);
    (sparse.resident_pages, sparse.measured_pages) = (100, 90);
    let ours = snapshots(|_| vec![target(812, [regions.clone(), vec![sparse]].concat()), target(9, vec![])], 3);
    let (exported, back) =
        there_and_back(&RunInfo { window_ns: 2 * SECOND, ..samples::run() }, &ours, &ExportOptions::default());
    assert_eq!((exported.targets, exported.snapshots, exported.aggregation), (2, 3, Duration::from_secs(2)));
    // 0.125 Hz is a quarter of an access in two seconds.
    assert_eq!((exported.below_one.pages(), exported.saturated.pages(), exported.unmeasured.pages()), (4, 0, 0));
    assert_eq!(back.notes, [""; 0]);
    assert_eq!((back.run.kernel.as_str(), back.run.window_ns), ("6.8.0", 2 * SECOND));
    let times = |s: &[Snapshot]| s.iter().map(|s| (s.start_unix_ns, s.end_unix_ns)).collect::<Vec<_>>();
    assert_eq!(times(&back.snapshots), times(&ours));
    let [nine, worker] = back.snapshots[2].targets.as_slice() else { panic!("{back:?}") };
    assert_eq!(
        (nine.id.pid, worker.id, worker.comm.as_str(), worker.cgroup.as_str()),
        (9, ours[0].targets[0].id, "worker", "/a")
    );
    let told: Vec<_> =
        worker.regions.iter().map(|r| (r.range, r.rate_hz, r.age_ns / SECOND, r.resident_pages)).collect();
    for (back, was) in told.iter().zip(&regions[..2]) {
        assert_eq!(*back, (was.range, was.rate_hz, 5, was.resident_pages));
    }
    // Idle for two seconds at least, as an aggregation interval without an access says.
    assert_eq!((told[2].2, worker.regions[2].idle_ns), (0, 2 * SECOND));
    assert_eq!((told[3].1, told[3].3), (10.0, 100));
    // Histograms are those of regions.
    assert_eq!((worker.temperature.resident(), worker.temperature.within_ns(SECOND)), (128, 124));
}

#[test]
fn a_longer_aggregation_interval_tells_colder_memory_apart_and_makes_fewer_snapshots() {
    let ours = snapshots(|_| vec![target(1, vec![region(1, 1, 0.125)])], 12);
    let options = ExportOptions { aggregation: Some(Duration::from_secs(8)), ..ExportOptions::default() };
    let (exported, back) = there_and_back(&samples::run(), &ours, &options);
    assert_eq!((exported.snapshots, exported.below_one.0), (3, 0));
    let lengths: Vec<u64> = back.snapshots.iter().map(|s| (s.end_unix_ns - s.start_unix_ns) / SECOND).collect();
    assert_eq!(lengths, [8, 8, 8]);
    assert_eq!(back.snapshots[0].targets[0].regions[0].rate_hz, 0.125);
    // Longer than the recording: all of it is one.
    let options = ExportOptions { aggregation: Some(Duration::from_secs(3600)), ..options };
    assert_eq!(there_and_back(&samples::run(), &ours, &options).0.snapshots, 1);
    // Shorter than a snapshot: its end.
    let options = ExportOptions { aggregation: Some(Duration::from_millis(100)), ..options };
    let (exported, back) = there_and_back(&samples::run(), &ours, &options);
    assert_eq!((exported.snapshots, back.snapshots[0].start_unix_ns), (12, NOW + 2 * SECOND - SECOND / 10));
}

#[test]
fn the_ended_and_the_unmeasured_are_left_out() {
    let mut ended = target(2, vec![region(1, 1, 1.0)]);
    ended.exited = true;
    let unknown = Region { measured_pages: 0, interval: Interval::UNMEASURED, ..region(4, 7, 1.0) };
    let ours = snapshots(|_| vec![target(1, vec![region(1, 1, 1.0), unknown]), ended.clone()], 1);
    let (exported, back) = there_and_back(&samples::run(), &ours, &ExportOptions::default());
    assert_eq!((exported.targets, exported.unmeasured.pages()), (1, 7));
    assert_eq!((back.snapshots[0].targets.len(), back.snapshots[0].targets[0].regions.len()), (1, 1));
}

#[test]
fn a_pid_that_was_used_twice_is_two_targets() {
    let mut second = target(5, vec![]);
    second.id.start_ticks = 99;
    let ours = snapshots(|i| vec![if i == 0 { target(5, vec![]) } else { second.clone() }], 2);
    let (_, back) = there_and_back(&samples::run(), &ours, &ExportOptions::default());
    let ids: Vec<u64> = back.snapshots.iter().flat_map(|s| &s.targets).map(|t| t.id.start_ticks).collect();
    assert_eq!(ids, [77, 99]);
}

#[test]
fn a_file_that_is_there_stays_unless_asked_and_none_is_left_half_written() {
    let desk = Desk::new();
    let path = desk.put(b"mine");
    let error = write(&path, &samples::run(), &[], &ExportOptions::default()).unwrap_err().to_string();
    assert!(error.contains("already") && error.contains("overwrite"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"mine");
    write(&path, &samples::run(), &[], &ExportOptions { overwrite: true, ..ExportOptions::default() }).unwrap();
    assert_eq!(read(&path).unwrap().snapshots, []);
    let error = write(desk.path("no/such/place"), &samples::run(), &[], &ExportOptions::default()).unwrap_err();
    assert!(error.to_string().contains("no/such/place"), "{error}");
    let taken =
        write(desk.0.path(), &samples::run(), &[], &ExportOptions { overwrite: true, ..ExportOptions::default() });
    assert!(taken.is_err(), "a directory");
    let backwards = ExportOptions { aggregation: Some(Duration::from_millis(1)), ..ExportOptions::default() };
    assert!(write(desk.path("x"), &samples::run(), &[], &backwards).unwrap_err().to_string().contains("interval"));
    assert_eq!(fs::read_dir(desk.0.path()).unwrap().count(), 1);
}

/// Windows are stretched on a busy machine, and what damo reads has no holes.
#[test]
fn the_interval_is_that_of_the_snapshots_where_these_took_longer_than_was_asked_for() {
    let ours = snapshots(|_| vec![target(3, vec![region(16, 4, 1.0)])], 3);
    for (asked_ns, seconds) in [(SECOND / 8, 2), (2 * SECOND - 1, 2), (5 * SECOND, 5)] {
        let run = RunInfo { window_ns: asked_ns, ..samples::run() };
        let (exported, _) = there_and_back(&run, &ours, &ExportOptions::default());
        assert_eq!(exported.aggregation.as_secs_f64().round(), f64::from(seconds), "{asked_ns}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn rates_come_back_within_the_resolution_of_counts(
        regions in prop::collection::vec((1..64_u64, 0..9_u64, 0.0_f32..300.0, 0..1_u64 << 45), 0..40),
        window in 1..30_u64, sample_us in 500..50_000_u64,
    ) {
        let mut at = 16;
        let mut made = Vec::new();
        for (pages, gap, rate, age_ns) in regions {
            made.push(Region { age_ns, ..region(at, pages, rate) });
            at += pages + gap;
        }
        let run = RunInfo { window_ns: window * SECOND, ..samples::run() };
        let ours = snapshots(|_| vec![target(3, made.clone())], 1);
        let options = ExportOptions { sample: Duration::from_micros(sample_us), ..ExportOptions::default() };
        let (_, back) = there_and_back(&run, &ours, &options);
        let back = &back.snapshots[0].targets[0].regions;
        prop_assert_eq!(back.len(), made.len());
        for (was, is) in made.iter().zip(back) {
            prop_assert_eq!((was.range, was.resident_pages), (is.range, is.resident_pages));
            let counts = window * 1_000_000 / sample_us;
            let told = f64::from(was.rate_hz).min(counts as f64 / window as f64);
            prop_assert!((f64::from(is.rate_hz) - told).abs() <= 0.5001 / window as f64 + 1e-4, "{was:?} {is:?}");
        }
    }

    #[test]
    fn no_file_makes_us_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), form in 0..3) {
        let bytes = match form {
            0 => bytes,
            1 => compressed(&bytes),
            _ => [b"x 1.5: damon:damon_aggregated: target_id=1 nr_regions=2 ", bytes.as_slice()].concat(),
        };
        let _ = read(Desk::new().put(&bytes));
    }
}

// --- What damo wrote

#[test]
fn files_that_damo_wrote_are_read() {
    let wanted = read(fixture("demo.json_compressed")).unwrap();
    assert_eq!((wanted.snapshots.len(), wanted.notes.as_slice()), (6, [].as_slice()));
    let target = &wanted.snapshots[5].targets[0];
    assert_eq!((target.id.pid, target.comm.as_str()), (812, "target"));
    let told: Vec<(u64, u64, f32)> =
        target.regions.iter().map(|r| (r.range.start.0 / PAGE_SIZE, r.resident_pages, r.rate_hz)).collect();
    assert_eq!(told[..2], [(0x5_5555_5000, 256, 62.5), (0x5_5555_6000, 1024, 1.0)]);
    assert_eq!(target.regions[2].interval, Interval::from_ns(102 * SECOND).extrapolated(), "idle for 100 s and 2 s");
    for form in ["json", "perf_script"] {
        let other = read(fixture(&format!("demo.{form}"))).unwrap();
        let rates = |r: &DamoRecording| {
            let regions = r.snapshots.iter().flat_map(|s| &s.targets[0].regions);
            regions.map(|r| (r.range, r.rate_hz)).collect::<Vec<_>>()
        };
        assert_eq!(rates(&other).len(), rates(&wanted).len());
        for (a, b) in rates(&other).iter().zip(rates(&wanted)) {
            assert!(a.0 == b.0 && (a.1 - b.1).abs() < 0.01, "{form}: {a:?} {b:?}");
        }
    }
}

#[test]
fn text_of_perf_is_read_as_the_kernel_traces_it() {
    let text = "# a comment of perf
kdamond.0  4452 [000] 100.000000: damon:damon_aggregated: target_id=0 nr_regions=2 4096-8192: 2 3
kdamond.0  4452 [000] 100.000000: damon:damon_aggregated: target_id=0 nr_regions=2 8192-20480: 0 9
 my thread  4452 [000] 100.100000: sched:sched_switch: whatever
kdamond.0  4452 [000] 100.100000: damon:damon_aggregated: target_id=0 nr_regions=1 4096-20480: 1 0
kdamond.0  4452 [000] 100.200000: damon:damon_aggregated: target_id=0 nr_regions=2 4096-8192: 1 0
";
    let read = read(Desk::new().put(text.as_bytes())).unwrap();
    let times: Vec<_> = read.snapshots.iter().map(|s| (s.start_unix_ns, s.end_unix_ns)).collect();
    assert_eq!(times, [(99_900_000_000, 100_000_000_000), (100_000_000_000, 100_100_000_000)]);
    let first = &read.snapshots[0].targets[0];
    assert_eq!(
        (first.comm.as_str(), first.regions[0].rate_hz, first.regions[0].age_ns),
        ("paddr", 20.0, SECOND / 10 * 3)
    );
    let notes = read.notes.join("\n");
    assert!(
        notes.contains("no intervals given") && notes.contains("1 region of it") && notes.contains("tracer's clock"),
        "{notes}"
    );

    let one = "x 1 [0] 5.5: damon:damon_aggregated: target_id=0 nr_regions=1 0-4096: 1 0\n";
    assert!(refused(one.as_bytes()).contains("rates cannot be computed"));
    let earlier = format!("{one}{}", one.replace("5.5", "4.5"));
    assert!(refused(earlier.as_bytes()).contains("line 2: it is of an earlier time"));
    assert!(refused(one.replace("0-4096", "here").as_bytes()).contains("line 1: not as DAMON writes it"));
}

#[test]
fn text_of_perf_takes_no_more_memory_than_it_may() {
    // A snapshot of a target of its own in each line.
    let line = |n: u64| format!("x 1 [0] 5.{n:06}: damon:damon_aggregated: target_id={n} nr_regions=1 0-4096: 1 0\n");
    let text: String = (0..2_000).map(line).collect();
    let desk = Desk::new();
    let path = desk.put(text.as_bytes());
    let error = read_within(&path, Some(Bytes(256 << 10))).unwrap_err();
    assert!(matches!(error, Error::TooMuchMemory { .. }), "{error}");
    // With what a file of this size may take it is read to its end. Its targets have a single snapshot each, of no known length.
    assert!(refused(text.as_bytes()).contains("rates cannot be computed"));
}

#[test]
fn numbers_may_be_text_with_commas_and_units() {
    let mut json = kernel(&[(0x10, 0x20, 4, 5)]);
    json[0]["intervals"] = json!({"sample_us": "5 ms", "aggr_us": "100 ms", "ops_update_us": "1 s"});
    json[0]["snapshots"][0]["start_time"] = "20,775 d".into();
    json[0]["snapshots"][0]["end_time"] = "20,775 d 100 ms".into();
    json[0]["snapshots"][0]["regions"][0]["start"] = "65,536".into();
    json[0]["snapshots"][0]["regions"][0]["end"] = "128 KiB".into();
    json[0]["snapshots"][0]["regions"][0]["age"] = json!({"usec": "500 ms", "aggr_intervals": null});
    let read = read_json(&json);
    assert_eq!(read.snapshots[0].end_unix_ns - read.snapshots[0].start_unix_ns, SECOND / 10);
    let region = read.snapshots[0].targets[0].regions[0];
    assert_eq!((region.range.start, region.range.end), (Addr(0x10000), Addr(0x20000)));
    assert_eq!((region.rate_hz, region.age_ns), (40.0, SECOND / 2));
}

#[test]
fn physical_memory_is_a_process_of_that_name() {
    for id in [json!(null), json!(0)] {
        let read = read_json(&changed("/0/target_id", id));
        let target = &read.snapshots[0].targets[0];
        assert_eq!((target.id.pid, target.comm.as_str()), (0, "paddr"));
    }
    // A stack is where no physical memory is.
    let stack = 0x7_ffff_ff00_u64;
    assert_eq!(read_json(&kernel(&[(1, 2, 3, 4), (stack, stack + 1, 0, 0)])).snapshots[0].targets[0].comm, "target");
}

#[test]
fn targets_are_told_apart_by_context_and_by_number() {
    let one = kernel(&[(1, 3, 4, 5)])[0].clone();
    let with = |changes: &[(&str, Value)]| {
        let mut record = one.clone();
        changes.iter().for_each(|(key, value)| record[*key] = value.clone());
        record
    };
    let pointer = json!(18_446_623_435_582_458_880_u64);
    let read = read_json(&json!([
        one,
        with(&[("target_id", json!(1))]),
        with(&[("context_idx", json!(1))]),
        with(&[("scheme_idx", json!(1))]),
        with(&[("target_id", pointer), ("kdamond_idx", json!(3))]),
    ]));
    let ids: Vec<(u32, u64)> = read.snapshots[0].targets.iter().map(|t| (t.id.pid, t.id.start_ticks)).collect();
    assert_eq!((read.snapshots.len(), ids), (1, vec![(0, 0), (0, 1), (1, 0), (1, 2)]));
    let notes = read.notes.join("\n");
    assert!(notes.contains("several schemes") && notes.contains("addresses in the kernel"), "{notes}");
}

#[test]
fn intervals_that_were_tuned_are_those_of_each_snapshot() {
    let mut json = kernel(&[(1, 3, 4, 5)]);
    json[0]["snapshots"][0]["sample_interval_us"] = "50,000".into();
    assert_eq!(read_json(&json).snapshots[0].targets[0].regions[0].rate_hz, 4.0, "4 in a second, of 20 looks still");
}

#[test]
fn without_intervals_a_snapshot_is_taken_for_one() {
    let read = read_json(&changed("/0/intervals", Value::Null));
    assert_eq!(read.snapshots[0].targets[0].regions[0].rate_hz, 40.0);
    assert!(read.notes[0].contains("no intervals given"), "{:?}", read.notes);
    let mut timeless = changed("/0/intervals", Value::Null);
    timeless[0]["snapshots"][0]["end_time"] = timeless[0]["snapshots"][0]["start_time"].clone();
    assert!(refused_json(&timeless).contains("rates cannot be computed"));
}

#[test]
fn fields_of_a_later_version_are_skipped_and_named() {
    let mut json = kernel(&[(1, 3, 4, 5)]);
    json[0]["weather"] = json!({"sunny": [true]});
    json[0]["snapshots"][0]["regions"][0]["writes"] = json!(5);
    json[0]["snapshots"][0]["damos_stats"] = json!({"nr_tried": "5"});
    let read = read_json(&json);
    assert_eq!(read.notes, ["fields that this version does not know were skipped: weather, writes"]);
}

#[test]
fn regions_may_be_in_any_order_and_empty_ones_are_none() {
    let read = read_json(&kernel(&[(8, 9, 0, 7), (5, 5, 2, 0), (1, 3, 4, 5)]));
    let starts: Vec<u64> = read.snapshots[0].targets[0].regions.iter().map(|r| r.range.start.0 / PAGE_SIZE).collect();
    assert_eq!(starts, [1, 8]);
    assert_eq!(read_json(&changed("/0/snapshots/0/regions", json!([]))).snapshots[0].targets[0].regions, []);
    assert_eq!(read_json(&changed("/0/snapshots", json!([]))).snapshots, []);
    assert_eq!(read_json(&json!([])).snapshots, []);
}

#[test]
fn a_count_beyond_the_maximum_is_the_maximum_and_said() {
    let read = read_json(&kernel(&[(1, 3, 400, 5)]));
    assert_eq!(read.snapshots[0].targets[0].regions[0].rate_hz, 200.0);
    assert!(read.notes[0].contains("1 region with more accesses than checks"), "{:?}", read.notes);
}

// --- What nobody should have written

#[test]
fn what_is_not_a_recording_of_damo_is_said_to_be_none() {
    for (bytes, told) in [
        (b"".as_slice(), "empty"),
        (b"\n \n", "empty"),
        (b"PAR1 and more", "neither zlib nor JSON"),
        (b"PERFILE2........", "convert_record_format"),
        (b"\x1f\x8b\x08\x00", "neither zlib nor JSON"),
        (b"{\"damo_record_ver\": 1}", "later than 3.4"),
        (b"[1, 2]", "does not have the structure"),
        (b"[{\"target_id\": 1}]", "missing field `snapshots`"),
        (b"[{]", "damaged"),
        (b"[] []", "damaged"),
        (b"[", "cut off"),
    ] {
        let error = refused(bytes);
        assert!(error.contains(told) && error.contains("damon.data"), "{error}");
    }
    let error = read("/no/such/damon.data").unwrap_err().to_string();
    assert!(error.contains("/no/such/damon.data") && error.contains("check the name"), "{error}");
}

#[test]
fn a_file_that_is_cut_off_or_changed_is_refused() {
    let whole = compressed(kernel(&[(1, 3, 4, 5), (8, 9, 0, 7)]).to_string().as_bytes());
    for length in 2..whole.len() {
        let error = refused(&whole[..length]);
        assert!(error.contains("cut off") || error.contains("damaged"), "{length}: {error}");
    }
    let wanted = read_json(&kernel(&[(1, 3, 4, 5), (8, 9, 0, 7)]));
    for byte in 2..whole.len() {
        let mut changed = whole.clone();
        changed[byte] ^= 0x10;
        // A bit may say nothing, such as those that fill the last byte before the checksum.
        match read(Desk::new().put(&changed)) {
            Ok(read) => assert_eq!(read, wanted, "byte {byte}"),
            Err(error) => assert!(error.to_string().contains("damo"), "{error}"),
        }
    }
}

#[test]
fn what_makes_no_sense_is_refused_with_its_place() {
    let region = "/0/snapshots/0/regions/0";
    for (pointer, value, told) in [
        ("/0/snapshots/0/end_time", json!(NOW - 1), "target 0, snapshot 0: it ends"),
        ("/0/snapshots/0/start_time", json!(-5), "negative"),
        ("/0/snapshots/0/start_time", json!(null), "a time such as"),
        ("/0/intervals/sample_us", json!("0"), "intervals make no sense"),
        ("/0/intervals/aggr_us", json!("10"), "intervals make no sense"),
        ("/0/intervals/aggr_us", json!("long"), "\"long\""),
        (&format!("{region}/end"), json!(4095), "ends at 0xfff, before it starts at 0x1000"),
        (&format!("{region}/end"), json!("9 pages"), "9 pages"),
        (&format!("{region}/end"), json!(PAGE_SIZE * 9), "overlap"),
        (&format!("{region}/start"), json!(-4096), "negative"),
        (&format!("{region}/nr_accesses/samples"), json!(-1), "negative count (-1)"),
        (&format!("{region}/nr_accesses/percent"), json!("-3 %"), "negative percentage"),
        (&format!("{region}/age/aggr_intervals"), json!("-7"), "negative count (-7)"),
        (region, json!("a region"), "does not have the structure"),
    ] {
        let error = refused_json(&changed(pointer, value));
        assert!(error.contains(told), "{pointer}: {error}");
    }
}

#[test]
fn a_few_bytes_that_stand_for_much_text_are_not_unpacked_to_the_end() {
    let desk = Desk::new();
    let bomb = compressed(&[b"[".as_slice(), &vec![b' '; 4 << 20]].concat());
    assert!(bomb.len() < 64 << 10);
    let path = desk.put(&bomb);
    let error = read_up_to(&path, 1 << 20, None).unwrap_err().to_string();
    assert!(error.contains("longer than 1.0 MiB") && error.contains("damo adjust"), "{error}");
    // As long as is allowed is allowed.
    let text = kernel(&[(1, 3, 4, 5)]).to_string();
    let path = desk.put(&compressed(text.as_bytes()));
    assert!(read_up_to(&path, text.len() as u64, None).is_ok());
    assert!(read_up_to(&path, text.len() as u64 - 1, None).is_err());
    let path = desk.put(&[b'['; 1 << 20]);
    assert!(read(&path).is_err(), "nested deeper than a parser goes");
}
