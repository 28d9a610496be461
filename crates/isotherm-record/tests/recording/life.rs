//! A recording from its creation to its end, and around it.

use crate::{names, place, record, samples, two_each};
use isotherm_record::{Error, Options, Recording, Writer};
use std::fs;
use std::time::Duration;

#[test]
fn a_finished_recording_is_one_file_for_each_table() {
    let (_parent, path) = place();
    let summary = record(&path, 7).finish().unwrap();
    assert_eq!((summary.snapshots, summary.note), (7, None));
    let tables = ["heat", "idle", "mappings", "regions", "snapshots", "targets"];
    assert_eq!(names(&path), tables.map(|t| format!("{t}-000006.parquet")));
    let size: u64 = names(&path).iter().map(|n| fs::metadata(path.join(n)).unwrap().len()).sum();
    assert_eq!(summary.bytes, size);
    let recording = Recording::open(&path).unwrap();
    assert_eq!((recording.len(), recording.run(), recording.notes().len()), (7, &samples::run(), 0));
    assert_eq!(recording.read_all().unwrap(), samples::snapshots(7));
}

#[test]
fn a_recording_can_be_read_while_it_is_written() {
    let (_parent, path) = place();
    let writer = record(&path, 5);
    assert_eq!(writer.kept(), 4);
    let recording = Recording::open(&path).unwrap();
    assert_eq!(recording.read_all().unwrap(), samples::snapshots(4));
    assert_eq!(recording.notes().len(), 1);
    assert!(recording.notes()[0].contains("2 complete segments with 4 snapshots"), "{:?}", recording.notes());
    drop(writer);
    assert_eq!(Recording::open(&path).unwrap().len(), 4, "a dropped writer writes nothing more");
}

/// As of many minutes. Without joining there were six files for each snapshot.
#[test]
fn a_long_recording_has_few_files_and_who_has_opened_it_reads_on() {
    let (_parent, path) = place();
    let at_once = Options { flush_interval: Duration::ZERO, ..Options::default() };
    let mut writer = Writer::create(&path, &samples::run(), at_once).unwrap();
    let push = |writer: &mut Writer, i| writer.push(&samples::snapshot(i)).unwrap();
    (0..150).for_each(|i| push(&mut writer, i));
    // One reads on at once, one has read a part of it, and one begins much later.
    let opened = Recording::open(&path).unwrap();
    let mut begun = opened.snapshots();
    let part: Vec<_> = begun.by_ref().take(70).map(Result::unwrap).collect();
    let there = names(&path);
    (150..165).for_each(|i| push(&mut writer, i));
    assert!(Recording::open(&path).unwrap().read_all().unwrap() == samples::snapshots(165));
    assert!(there.iter().any(|name| !names(&path).contains(name)), "nothing was joined: {there:?}");
    assert!(opened.read_all().unwrap() == samples::snapshots(150));
    (165..414).for_each(|i| push(&mut writer, i));
    let rest: Vec<_> = begun.map(Result::unwrap).collect();
    assert!([part, rest].concat() == samples::snapshots(150), "what came later is not in it");
    assert!(opened.read_all().unwrap() == samples::snapshots(150));
    assert!(names(&path).len() < 6 * 100, "{} files", names(&path).len());
    assert!(Recording::open(&path).unwrap().read_all().unwrap() == samples::snapshots(414));
    writer.finish().unwrap();
    assert_eq!(names(&path).len(), 6);
    assert!(Recording::open(&path).unwrap().read_all().unwrap() == samples::snapshots(414));
}

#[test]
fn a_recording_without_snapshots_opens() {
    let (_parent, path) = place();
    let writer = record(&path, 0);
    let recording = Recording::open(&path).unwrap();
    assert!(recording.is_empty() && recording.notes().len() == 1);
    writer.finish().unwrap();
    let recording = Recording::open(&path).unwrap();
    assert!(recording.is_empty() && recording.notes().is_empty() && recording.read_all().unwrap().is_empty());
}

#[test]
fn segments_follow_time_rows_and_a_clock_that_jumps_back() {
    let kept_after = |options, snapshots: &[u64]| {
        let (_parent, path) = place();
        let mut writer = Writer::create(&path, &samples::run(), options).unwrap();
        snapshots.iter().for_each(|i| writer.push(&samples::snapshot(*i)).unwrap());
        writer.kept()
    };
    let seconds = |s| Options { flush_interval: Duration::from_secs(s), ..Options::default() };
    assert_eq!(kept_after(seconds(3), &[0, 1]), 0);
    assert_eq!(kept_after(seconds(3), &[0, 1, 2]), 3);
    assert_eq!(kept_after(seconds(3), &[0, 1, 2, 3]), 3);
    assert_eq!(kept_after(seconds(0), &[0, 1]), 2);
    assert_eq!(kept_after(seconds(60), &[500, 10]), 2);
    assert_eq!(kept_after(Options { max_rows: 40, ..seconds(1000) }, &[0, 1, 2, 3]), 3);
    assert_eq!(kept_after(Options { max_rows: 1000, ..seconds(1000) }, &[0, 1, 2, 3]), 0);
}

#[test]
fn what_is_not_a_recording_is_left_alone() {
    let (parent, path) = place();
    fs::create_dir(&path).unwrap();
    fs::write(path.join("thesis.txt"), "years of work").unwrap();
    for overwrite in [false, true] {
        let error = Writer::create(&path, &samples::run(), Options { overwrite, ..two_each() }).unwrap_err();
        assert!(matches!(error, Error::Occupied { .. }), "{error}");
        assert!(error.to_string().contains("nothing there was touched"), "{error}");
        let file = path.join("thesis.txt");
        let error = Writer::create(&file, &samples::run(), Options { overwrite, ..two_each() }).unwrap_err();
        assert!(matches!(error, Error::Occupied { .. }), "{error}");
    }
    assert_eq!(names(&path), ["thesis.txt"]);
    let nowhere = parent.path().join("no/such/place");
    assert!(matches!(Writer::create(nowhere, &samples::run(), two_each()), Err(Error::Create { .. })));
}

#[test]
fn an_empty_directory_is_taken() {
    let (_parent, path) = place();
    fs::create_dir(&path).unwrap();
    record(&path, 1).finish().unwrap();
    assert_eq!(Recording::open(&path).unwrap().len(), 1);
}

#[test]
fn what_was_abandoned_leaves_a_directory_as_it_was() {
    let (_parent, path) = place();
    let create = || Writer::create(&path, &samples::run(), two_each()).unwrap();
    create().discard().unwrap();
    assert!(!path.exists(), "it was made for the recording");
    fs::create_dir(&path).unwrap();
    create().discard().unwrap();
    assert_eq!(names(&path), [""; 0]);
}

/// It would take the segments of the other for its own, join them and remove them.
#[test]
fn no_second_recorder_comes_into_a_directory_while_one_is_there() {
    let (_parent, path) = place();
    let mut first = record(&path, 7);
    let over = Options { overwrite: true, ..two_each() };
    let error = Writer::create(&path, &samples::run(), over).unwrap_err();
    assert!(error.to_string().contains("another program is recording into it"), "{error}");
    first.push(&samples::snapshot(7)).unwrap();
    first.finish().unwrap();
    assert_eq!(Recording::open(&path).unwrap().read_all().unwrap(), samples::snapshots(8));
    Writer::create(&path, &samples::run(), over).unwrap().finish().unwrap();
}

#[test]
fn a_recording_is_replaced_only_on_demand_and_foreign_files_stay() {
    let (_parent, path) = place();
    record(&path, 7).finish().unwrap();
    fs::write(path.join("notes.txt"), "mine").unwrap();
    fs::write(path.join(".regions-000009.parquet.tmp"), "stale").unwrap();
    let error = Writer::create(&path, &samples::run(), two_each()).unwrap_err();
    assert!(matches!(error, Error::Exists { .. }), "{error}");
    assert_eq!(Recording::open(&path).unwrap().len(), 7);

    let mut writer = Writer::create(&path, &samples::run(), Options { overwrite: true, ..two_each() }).unwrap();
    assert!(Recording::open(&path).unwrap().is_empty());
    writer.push(&samples::snapshot(0)).unwrap();
    writer.finish().unwrap();
    assert_eq!(Recording::open(&path).unwrap().read_all().unwrap(), samples::snapshots(1));
    assert_eq!(names(&path).len(), 7);
    assert_eq!(fs::read_to_string(path.join("notes.txt")).unwrap(), "mine");
}

#[test]
fn a_process_listed_twice_is_refused_and_the_recording_goes_on() {
    let (_parent, path) = place();
    let mut writer = record(&path, 1);
    let mut twice = samples::snapshot(1);
    twice.targets.push(twice.targets[0].clone());
    assert!(matches!(writer.push(&twice), Err(Error::DuplicateTarget { snapshot: 1, pid: 100, .. })));
    writer.push(&samples::snapshot(1)).unwrap();
    writer.finish().unwrap();
    assert_eq!(Recording::open(&path).unwrap().read_all().unwrap(), samples::snapshots(2));
}

#[test]
fn a_run_that_cannot_be_stored_is_refused_at_the_start() {
    let (_parent, path) = place();
    let mut run = samples::run();
    run.max_cpu_pct = f64::NAN;
    assert!(matches!(Writer::create(&path, &run, two_each()), Err(Error::RunInfo { .. })));
    assert!(!path.exists());
}

#[test]
fn a_directory_that_goes_away_is_named_in_the_error() {
    let (_parent, path) = place();
    let mut writer = record(&path, 1);
    fs::remove_dir_all(&path).unwrap();
    let error = writer.push(&samples::snapshot(1)).unwrap_err().to_string();
    assert!(error.contains(&path.display().to_string()) && error.contains("removed or unmounted"), "{error}");
}
