//! `isotherm record` of all processes of a cgroup, and of the machine.

use crate::support::{Stage, skip, until, workload};
use crate::until_seen;
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// A cgroup of our own, removed when dropped.
struct Cgroup {
    dir: std::path::PathBuf,
    name: String,
}

impl Cgroup {
    fn make(name: &str) -> Option<Cgroup> {
        let name = format!("isotherm-test-{name}-{}", std::process::id());
        let roots = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
        let root = roots.into_iter().find(|r| Path::new(r).join("cgroup.procs").exists())?;
        let dir = Path::new(root).join(&name);
        fs::create_dir(&dir).ok()?;
        Some(Cgroup { dir, name })
    }

    fn add(&self, pid: u32) {
        let mut file = fs::OpenOptions::new().write(true).open(self.dir.join("cgroup.procs")).unwrap();
        file.write_all(pid.to_string().as_bytes()).unwrap();
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Empty only when its processes are reaped.
        until(Duration::from_secs(5), || fs::remove_dir(&self.dir).is_ok());
    }
}

#[test]
fn a_cgroup_that_is_not_there_is_an_error_that_says_where_it_was_looked_for() {
    let stage = Stage::new();
    for path in ["/no/such/group", "no-such-group", "/sys/fs/cgroup/no-such-group"] {
        stage.isotherm(&format!("record -d 1s --cgroup {path}")).ended(1).says(path).says("looked in");
    }
    stage.isotherm("record -d 1s --cgroup ../../../etc").ended(1);
    assert!(!stage.path("heat.isotherm").exists());
}

#[test]
fn a_cgroup_is_watched_by_any_of_its_names_and_those_who_join_later_too() {
    let Some(cgroup) = Cgroup::make("join") else { return skip("to be allowed to make a cgroup") };
    let stage = Stage::new();
    let (early, late) = (workload(16), workload(16));
    cgroup.add(early.pid());
    let name = &cgroup.name;
    for (i, path) in [cgroup.dir.display().to_string(), name.clone(), format!("/{name}")].iter().enumerate() {
        stage.isotherm(&format!("record -o by{i} -d 1s --cgroup {path}")).ended(0);
        let json = stage.json(&format!("report cgroups by{i} --json"));
        let rows = json["report"]["cgroups"].as_array().unwrap();
        let row = rows.iter().find(|r| r["path"].as_str().unwrap().ends_with(name)).expect("a row for the cgroup");
        assert_eq!(row["processes"], 1, "{json}");
    }
    let mut recorder = stage.start_isotherm(&format!("record -w 500ms -d 1h --cgroup {name}"));
    recorder.until_it_says("into");
    until_seen(&stage, "heat.isotherm", &[early.pid()]);
    cgroup.add(late.pid());
    until_seen(&stage, "heat.isotherm", &[late.pid()]);
    recorder.signal("INT");
    recorder.end().ended(0);
    let processes = stage.json("report processes --json")["report"]["processes"].clone();
    assert_eq!(processes.as_array().unwrap().len(), 2, "{processes}");
}

#[test]
fn an_empty_cgroup_makes_an_empty_recording() {
    let Some(cgroup) = Cgroup::make("empty") else { return skip("to be allowed to make a cgroup") };
    let stage = Stage::new();
    stage.isotherm(&format!("record -d 1s --cgroup {}", cgroup.name)).ended(0);
    stage.isotherm("report wss").ended(1).says("nothing was watched");
}

#[test]
fn all_processes_are_watched_but_the_watcher() {
    let stage = Stage::new();
    let child = workload(16);
    let recorder = stage.start_isotherm("record --all -d 3s");
    let watcher = recorder.pid();
    recorder.end().ended(0);
    let json = stage.json("report processes --json");
    let pids: Vec<&Value> = json["report"]["processes"].as_array().unwrap().iter().map(|p| &p["pid"]).collect();
    assert!(pids.iter().any(|p| **p == child.pid()), "{pids:?} lacks {}", child.pid());
    assert!(pids.iter().all(|p| **p != watcher), "{pids:?} has the watcher {watcher}");
}
