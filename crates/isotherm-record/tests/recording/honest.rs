//! Recordings that hardly change pack well: what bounds the memory of hostile files must not refuse them.

use crate::{place, samples};
use isotherm_heat::{Mapping, Region, Snapshot};
use isotherm_record::damo::{self, ExportOptions};
use isotherm_record::{Error, Options, Recording, Writer};
use isotherm_units::{Addr, AddrRange, Bytes, Perms};
use std::fs;
use std::time::Duration;

/// Snapshots of one process of `regions` and `mappings` that does the same all the time.
fn stable(i: u64, regions: u64, mappings: u64) -> Snapshot {
    let mut snapshot = samples::snapshot(0);
    snapshot.targets.truncate(1);
    (snapshot.start_unix_ns, snapshot.end_unix_ns) = (i * 1_000_000_000, (i + 1) * 1_000_000_000);
    let target = &mut snapshot.targets[0];
    let range = |n: u64, pages: u64| AddrRange::new(Addr(n << 20), Addr((n << 20) + pages * 4096));
    let region = target.regions[0];
    let region = |n| Region { range: range(n, 128), age_ns: i * 1_000_000_000, idle_ns: i * 900_000_000 + n, ..region };
    target.regions = (0..regions).map(region).collect();
    let name = |n| format!("/usr/lib/x86_64-linux-gnu/libsomething-{n}.so.1.2.3");
    target.mappings = (0..mappings)
        .map(|n| Mapping { range: range(n, 200), name: name(n / 4), perms: Perms::READ.union(Perms::EXEC) })
        .collect();
    snapshot
}

#[test]
fn a_long_recording_of_a_process_that_hardly_changes_opens() {
    for (snapshots, regions, mappings) in
        [(2000, 40, 200), (2000, 3, 40), (400, 40, 400), (400, 40, 2000), (100, 3, 60_000)]
    {
        let (parent, path) = place();
        // As few segments as the writer makes: they are joined in the end.
        let options = Options { flush_interval: Duration::from_secs(600), ..Options::default() };
        let mut writer = Writer::create(&path, &samples::run(), options).unwrap();
        (0..snapshots).for_each(|i| writer.push(&stable(i, regions, mappings)).unwrap());
        let size = writer.finish().unwrap().bytes;
        let recording = Recording::open(&path).unwrap();
        let all = recording.read_all().unwrap();
        assert_eq!((all.len() as u64, &all[7]), (snapshots, &stable(7, regions, mappings)));
        // How near that was.
        let fits = |mib| recording_fits(&path, mib);
        let needed = (0..12).map(|n| 1_u64 << n).find(|mib| fits(*mib)).unwrap();
        eprintln!("{snapshots} x ({regions} regions, {mappings} mappings): {size} bytes, up to {needed} MiB");
        // The same by way of damo.
        let file = parent.path().join("damon.data");
        damo::write(&file, &samples::run(), &all, &ExportOptions::default()).unwrap();
        let back = damo::read(&file).unwrap();
        assert_eq!(back.snapshots.len() as u64, snapshots);
        let size = fs::metadata(&file).unwrap().len();
        let fits = |mib: &u64| damo::read_within(&file, Some(Bytes(mib << 20))).is_ok();
        let needed = (0..12).map(|n| 1_u64 << n).find(fits).unwrap();
        eprintln!("for damo: {size} bytes, up to {needed} MiB");
    }
}

fn recording_fits(path: &std::path::Path, mib: u64) -> bool {
    match Recording::open(path).unwrap().with_max_memory(Some(Bytes(mib << 20))).read_all() {
        Ok(_) => true,
        Err(Error::TooMuchMemory { .. }) => false,
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn snapshots_one_at_a_time_take_the_memory_of_one() {
    let (_parent, path) = place();
    let mut writer = Writer::create(&path, &samples::run(), Options::default()).unwrap();
    (0..600).for_each(|i| writer.push(&stable(i, 40, 500)).unwrap());
    writer.finish().unwrap();
    let max = Some(Bytes(8 << 20));
    let recording = Recording::open(&path).unwrap().with_max_memory(max);
    assert_eq!(recording.snapshots().map(Result::unwrap).count(), 600);
    let error = recording.read_all().unwrap_err();
    assert!(matches!(error, Error::TooMuchMemory { .. }) && error.to_string().contains("8.0 MiB"), "{error}");
}
