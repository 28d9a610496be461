//! Schemes whose cgroups another program names while `run` goes on: nothing happens to a process before its cgroup is assigned, and nothing to others.

mod support;

use isotherm_workload::{Child, Index};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use support::{ISOTHERM, Stage, alone, can_collapse, huge_bytes, is_root, own_cgroup, skip, until};

const LONG: Duration = Duration::from_secs(80);
/// Some windows, in which hints would come.
const SOME: Duration = Duration::from_secs(6);

/// A cgroup named as that of a pod, below one of the test's own. Removed when dropped, after the processes in it.
struct PodCgroup {
    dir: PathBuf,
    name: String,
}

impl PodCgroup {
    fn new() -> Option<PodCgroup> {
        let name = format!("pod0f1c2d3e-4a5b-6c7d-8e9f-{:012x}", std::process::id());
        let dir = own_cgroup("pods")?.join(&name);
        fs::create_dir(&dir).ok()?;
        Some(PodCgroup { dir, name })
    }

    fn workload(&self) -> Child {
        let mut command = Command::new("sh");
        let script = format!("echo $$ > {}/cgroup.procs && exec {ISOTHERM} \"$@\"", self.dir.display());
        command.args(["-c", &script, "sh"]);
        index_by(command)
    }
}

impl Drop for PodCgroup {
    fn drop(&mut self) {
        until(Duration::from_secs(5), || fs::remove_dir(&self.dir).is_ok());
        let _ = self.dir.parent().map(fs::remove_dir);
    }
}

/// An index of 64 MiB, most of whose reads go to the middle. Its memory has small pages and may have huge ones.
fn index_by(mut command: Command) -> Child {
    command.arg("demo-workload");
    Child::start(command, &Index { pages: 16_384, centre: 0.5, deviation: 0.04, stride: 1, seed: 5 }).unwrap()
}

/// As `isotherm-kube` writes it.
fn put(path: &Path, lines: &[String]) {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    fs::write(path.with_extension("new"), format!("isotherm-assignments 1\n{text}")).unwrap();
    fs::rename(path.with_extension("new"), path).unwrap();
}

#[test]
fn a_scheme_is_for_the_cgroups_that_are_assigned_to_it_and_for_no_process_before() {
    let _turn = alone();
    need!(can_collapse(), "the page-table source, and transparent huge pages not set to `always`");
    need!(is_root(), "root, to make a cgroup");
    let Some(pod) = PodCgroup::new() else { return skip("a cgroup of its own") };
    let stage = Stage::new();
    let (inside, outside) = (pod.workload(), index_by(Command::new(ISOTHERM)));
    let file = stage.path("assignments");
    let settings = format!(
        "assignments = {file:?}\n[targets]\npids = [{}, {}]\n[budgets]\nstall_pct = 200.0\n\
         [[scheme]]\naction = \"collapse\"\nname = \"huge\"\nassigned = true\n",
        inside.pid(),
        outside.pid()
    );
    fs::write(stage.path("c.toml"), settings).unwrap();
    let mut daemon = stage.start_isotherm("run -c c.toml --socket s.sock");
    daemon.until_it_says("0 cgroups are assigned to schemes (it is not there)");
    let collapsed = || stage.json("status --json --socket s.sock")["collapsed"].as_u64().unwrap();
    assert!(!until(SOME, || collapsed() > 0), "nothing is assigned");

    put(&file, &["huge ../../etc".to_owned()]);
    daemon.until_it_says("line 2 is not the name of a scheme");
    put(&file, &[format!("other {}", pod.name), format!("huge {}", pod.name)]);
    daemon.until_it_says("2 cgroups are assigned");
    assert!(until(LONG, || collapsed() > 2), "{:#}\n{}", stage.json("status --json --socket s.sock"), daemon.err());
    assert!(huge_bytes(inside.pid()) > 0);
    assert_eq!(huge_bytes(outside.pid()), 0, "as hot, and in no such cgroup");
    // Settings that are read again keep what is assigned.
    daemon.signal("HUP");
    daemon.until_it_says("settings read again");
    put(&file, &[]);
    daemon.until_it_says(": 0 cgroups are assigned to schemes\n");
    daemon.signal("TERM");
    daemon.end().ended(0);
    drop(inside);
}
