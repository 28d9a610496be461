//! What `isotherm run --stream` and `isotherm serve` send, read as the server reads it.

mod support;

use isotherm_stream::{MappingRow, Message, PlanRow, Reader, RegionRow, Snapshot};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};
use support::{Stage, is_root, sees_pages, until, workload};

const MIB: u64 = 1 << 20;

fn listen(path: &Path) -> Reader<UnixStream> {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    Reader::new(stream)
}

fn next(reader: &mut Reader<UnixStream>) -> Snapshot {
    loop {
        match reader.next().unwrap().expect("the stream goes on") {
            Message::Snapshot(snapshot) => return *snapshot,
            Message::Lost(_) => {}
        }
    }
}

/// Its hot memory would be collapsed, where it lies.
fn its_hot_memory_is_planned(known: &Snapshot, reader: &mut Reader<UnixStream>) {
    let is_hot = |row: &&PlanRow| row.action == "collapse" && row.why_not.is_empty();
    let row = (0..60).find_map(|_| next(reader).plan.iter().find(is_hot).cloned()).expect("within a minute");
    let starts_there = |of: &&MappingRow| Some(of.mapping.range.start.0) == row.mapping_start_addr;
    let mapping = known.mappings.iter().find(starts_there).expect("of a mapping that is listed");
    assert!(mapping.mapping.range.len().0 >= 32 * MIB && (1..=16).contains(&row.huge_ranges), "{row:?} in {mapping:?}");
    assert_eq!((row.id(), row.bytes), (known.processes[0].id(), row.huge_ranges * 2 * MIB));
}

#[test]
fn run_sends_the_heat_of_its_targets_to_those_who_connect() {
    need!(sees_pages(), "the page-table source");
    let (child, stage) = (workload(32), Stage::new());
    let path = stage.path("heat.stream");
    let watch = format!("--max-cpu 200 --max-slowdown 200 -p {}", child.pid());
    let mut run = stage.start_isotherm(&format!("run --dry-run --socket s.sock --stream {} {watch}", path.display()));
    run.until_it_says("status at");
    assert_eq!(fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let (mut first, mut second) = (listen(&path), listen(&path));
    let began = Instant::now();
    // Whether all of it is known: a tenth of 32 MiB is hot. For less than 1 MiB that other processes map the process is not cleared.
    let is_known = |snapshot: &Snapshot| {
        let heat = &snapshot.processes[0].heat;
        let hot = heat.within_ns(1_000_000_000) * 4096;
        let known = heat.measured() + 255 >= heat.resident() && heat.resident() * 4096 >= 32 * MIB;
        known && (3 * MIB..=5 * MIB).contains(&hot)
    };
    let known = loop {
        let snapshot = next(&mut first);
        next(&mut second);
        if is_known(&snapshot) {
            break snapshot;
        }
        assert!(began.elapsed() < Duration::from_secs(180), "{:?}, and it said {}", snapshot.processes, run.err());
    };
    let process = &known.processes[0];
    assert_eq!((process.pid, process.exited, process.sampled), (child.pid(), false, false));
    assert_eq!(process.heat_huge.resident(), 0, "it has small pages");
    let in_regions: u64 = known.regions.iter().map(|row| row.region.resident_pages).sum();
    assert_eq!(in_regions, process.heat.resident(), "regions have all of it");
    // What was unmapped a moment ago may have regions without a mapping.
    let is_mapped =
        |row: &&RegionRow| known.mappings.iter().any(|of| of.mapping.range.intersect(row.region.range).is_some());
    let mapped: u64 = known.regions.iter().filter(is_mapped).map(|row| row.region.resident_pages).sum();
    assert!(mapped * 100 >= in_regions * 99, "{mapped} of {in_regions} pages have a mapping");
    let host = &known.host;
    assert!(host.memory_bytes > 0 && !host.hostname.is_empty() && host.source.starts_with("page-table"), "{host:?}");
    assert!(known.actions.iter().any(|row| row.action == "collapse" && row.result == "would"), "{:?}", known.actions);
    its_hot_memory_is_planned(&known, &mut first);
    // The other one has it too.
    assert_eq!(next(&mut second).processes[0].pid, child.pid());
    drop(child);
    let said = until(Duration::from_secs(30), || {
        next(&mut second).events.iter().any(|event| event.text.contains("has ended"))
    });
    assert!(said, "that it has ended");
    run.end().ended(0);
    assert!(!path.exists(), "its socket is gone with it");
}

/// A group that root is not in. Root gives the socket to it: without CAP_CHOWN only a member could.
#[test]
fn the_socket_is_given_to_a_group_that_we_are_not_in() {
    need!(is_root(), "root");
    need!(sees_pages(), "the page-table source");
    let groups = fs::read_to_string("/proc/self/status").unwrap();
    let ours = groups.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap().to_owned();
    let other = (1..).find(|gid: &u32| !ours.split_whitespace().any(|of| of == gid.to_string())).unwrap();
    let (child, stage) = (workload(4), Stage::new());
    let path = stage.path("heat.stream");
    let run =
        format!("run --dry-run --socket s.sock -p {} --stream {} --stream-group {other}", child.pid(), path.display());
    let mut run = stage.start_isotherm(&run);
    run.until_it_says("status at");
    let there = fs::metadata(&path).unwrap();
    assert_eq!((there.gid(), there.uid(), there.permissions().mode() & 0o777), (other, 0, 0o660));
    run.signal("TERM");
    run.end().ended(0);
}

#[test]
fn nobody_else_may_connect_and_wrong_uses_are_refused() {
    let stage = Stage::new();
    let path = stage.path("no-folder/heat.stream");
    let run = format!("run --dry-run --socket s.sock -p {} -d 2s", std::process::id());
    stage.isotherm(&format!("{run} --stream {}", path.display())).ended(1).says("heat.stream");
    stage.isotherm(&format!("{run} --stream s.stream --stream-group no-such-group")).ended(1).says("no-such-group");
    stage.isotherm("serve --connect a --input b").ended(2).says("cannot be used with");
    stage.isotherm("serve --connect a -p 1").ended(2).says("leave out");
    stage.isotherm("serve --replay a").ended(2).says("--input");
    stage.isotherm(&format!("serve --connect {}", stage.path("none").display())).ended(1).says("--stream");
    if !is_root() {
        stage.isotherm(&format!("serve -p {} --user nobody", std::process::id())).ended(2).says("only root");
    }
}
