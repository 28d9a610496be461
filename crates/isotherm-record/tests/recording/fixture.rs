//! Recordings of each version of the format as they were written when it was made. They stay as they are: if this test fails, the
//! reader no longer reads what users have.

use crate::{record, samples};
use isotherm_heat::{Cost, RunInfo, Snapshot, TargetFacts};
use isotherm_record::{Error, Recording, schema};
use std::fs;
use std::path::PathBuf;

fn fixtures(version: u32) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/v{version}"))
}

/// Snapshots as they were before columns were added to the format: those read as 0 or unknown.
fn without_what_came_later(mut snapshots: Vec<Snapshot>) -> Vec<Snapshot> {
    for snapshot in &mut snapshots {
        snapshot.cost = Cost { samples: 0, samples_lost: 0, events: 0, ..snapshot.cost };
        for region in snapshot.targets.iter_mut().flat_map(|t| &mut t.regions) {
            region.sampled_pages = 0;
            region.estimated_pages = 0;
            region.hot_pages = None;
        }
        for target in &mut snapshot.targets {
            target.facts = TargetFacts::default();
            target.behind_huge = None;
            target.idle_by_mapping = Vec::new();
        }
    }
    snapshots
}

/// The fixtures of version 2 are older than some columns that it has by now.
fn without_swap_limits_and_actions(mut snapshots: Vec<Snapshot>) -> Vec<Snapshot> {
    for target in snapshots.iter_mut().flat_map(|snapshot| &mut snapshot.targets) {
        (target.facts.swapped, target.facts.cgroup_limit, target.facts.acted) = (None, None, None);
    }
    snapshots
}

#[test]
fn version_1_finished() {
    let recording = Recording::open(fixtures(1).join("finished")).unwrap();
    // The settings of intervals were recorded later.
    let run = RunInfo { sample_interval_ns: 0, intervals_goal: None, ..samples::run() };
    assert_eq!((recording.run(), recording.len()), (&run, 6));
    assert!(recording.notes().is_empty());
    let all = recording.read_all().unwrap();
    assert_eq!(all, without_what_came_later(samples::snapshots(6)));
    // Written out, in case the samples change along with a bug.
    let target = &all[4].targets[1];
    assert_eq!((target.id.pid, target.id.start_ticks, target.comm.as_str()), (7, 1 << 40, "worker"));
    assert_eq!(target.mappings[1].range.start.0, 0xffff_ffff_ff60_0000);
    assert_eq!(all[3].targets[0].mappings[0].name, "/lib/1.so");
    assert_eq!(all[3].cost.read_errors, 1);
}

#[test]
fn version_1_killed() {
    let recording = Recording::open(fixtures(1).join("killed")).unwrap();
    assert_eq!(recording.read_all().unwrap(), without_what_came_later(samples::snapshots(4)));
    assert_eq!(recording.notes().len(), 1);
}

#[test]
fn version_2() {
    let finished = Recording::open(fixtures(2).join("finished")).unwrap();
    assert_eq!(
        (finished.run(), finished.read_all().unwrap()),
        (&samples::run(), without_swap_limits_and_actions(samples::snapshots(6)))
    );
    let killed = Recording::open(fixtures(2).join("killed")).unwrap();
    assert_eq!(
        (killed.read_all().unwrap(), killed.notes().len()),
        (without_swap_limits_and_actions(samples::snapshots(4)), 1)
    );
    // Written out, in case the samples change along with a bug.
    let idle = &killed.read_all().unwrap()[2].targets[1].idle_by_mapping[1];
    assert_eq!((idle.start.map(|start| start.0), idle.steps.len()), (Some(0x7f00_0000_0000), 2));
    assert_eq!((idle.steps[0].pages, idle.steps[0].huge_pages, idle.steps[0].accessed_pages), (20, 1536, 54));
}

/// The files of `killed` with another version in their metadata.
fn with_version(version: &str) -> (tempfile::TempDir, Error) {
    let dir = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(fixtures(1).join("killed")).unwrap() {
        let entry = entry.unwrap();
        let mut bytes = fs::read(entry.path()).unwrap();
        // The key, then a byte for the type of the next field and one for the length of its text.
        let key = b"isotherm.version";
        let at = bytes.windows(key.len()).position(|w| w == key).unwrap() + key.len() + 2;
        assert_eq!(bytes[at], b'1');
        bytes[at] = version.as_bytes()[0];
        fs::write(dir.path().join(entry.file_name()), bytes).unwrap();
    }
    let error = Recording::open(dir.path()).unwrap_err();
    (dir, error)
}

#[test]
fn a_newer_version_is_refused_by_name() {
    assert_eq!(schema::VERSION, 2);
    let (_dir, error) = with_version("3");
    assert!(matches!(error, Error::NewerVersion { .. }), "{error}");
    assert!(error.to_string().contains("version 3"), "{error}");
    assert!(error.to_string().contains("up to version 2"), "{error}");
    // One table more was added in version 2, so what calls itself that and lacks it is damaged.
    let (_dir, error) = with_version("2");
    assert!(matches!(error, Error::NothingLeft { .. }) && error.to_string().contains("idle-"), "{error}");
    let (_dir, error) = with_version("x");
    assert!(matches!(error, Error::NothingLeft { .. }), "{error}");
}

#[test]
#[ignore = "wrote the fixtures, once; a new version gets a directory of its own"]
fn write_fixtures() {
    let fixtures = fixtures(schema::VERSION);
    fs::create_dir_all(&fixtures).unwrap();
    record(&fixtures.join("finished"), 6).finish().unwrap();
    drop(record(&fixtures.join("killed"), 4));
}
