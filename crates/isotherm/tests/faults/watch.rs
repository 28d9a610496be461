//! A recorder that watches while a fault is played, and what is checked of it afterwards.

use crate::support::{Running, Stage, read, until, wait, workload};
use isotherm_record::Recording;
use isotherm_workload::Child;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

pub const WINDOW_NS: u64 = 500_000_000;
/// After the start of a recorder, until it has found its processes and checked them.
const SETTLED: Duration = Duration::from_millis(1500);
const SOON: Duration = Duration::from_secs(5);

/// What was lost, over one or more faults.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub times: u32,
    pub lost_snapshots: u64,
    pub leaked_fds: u64,
    pub rss_growth_kib: u64,
}

impl Tally {
    pub fn and(self, other: Tally) -> Tally {
        Tally {
            times: self.times + other.times,
            lost_snapshots: self.lost_snapshots + other.lost_snapshots,
            leaked_fds: self.leaked_fds + other.leaked_fds,
            rss_growth_kib: self.rss_growth_kib.max(other.rss_growth_kib),
        }
    }

    /// Held once, with nothing to count.
    pub fn once() -> Tally {
        Tally { times: 1, ..Tally::default() }
    }
}

/// A recorder of a process that nothing happens to, and of others.
pub struct Watch {
    pub stage: Stage,
    pub recorder: Running,
    anchor: Child,
    rss_kib: u64,
}

impl Watch {
    /// Begins to record these processes too.
    pub fn of(pids: &[u32]) -> Watch {
        Watch::with(Stage::new(), pids, "$isotherm")
    }

    /// The same, where the program is started by this line of shell.
    pub fn with(stage: Stage, pids: &[u32], program: &str) -> Watch {
        let anchor = workload(16);
        let pids: Vec<String> = pids.iter().chain([&anchor.pid()]).map(u32::to_string).collect();
        let line = format!("exec {program} record -o r -w 500ms -p {}", pids.join(","));
        let mut recorder = stage.start_shell(&line);
        recorder.until_it_says("into r/");
        wait(SETTLED);
        let rss_kib = rss_kib(recorder.pid());
        Watch { stage, recorder, anchor, rss_kib }
    }

    /// The process that nothing happens to.
    pub fn anchor(&self) -> u32 {
        self.anchor.pid()
    }

    /// Ends the recorder, once all processes but the one that nothing happened to have ended. It must end in order, with all snapshots.
    pub fn end(self) -> Tally {
        let pid = self.recorder.pid();
        let idle = idle_descriptors();
        until(SOON, || descriptors(pid) <= idle);
        let leaked_fds = descriptors(pid).saturating_sub(idle);
        self.end_while_others_live().and(Tally { leaked_fds, ..Tally::default() })
    }

    /// The same, while other processes live.
    pub fn end_while_others_live(self) -> Tally {
        let rss_growth_kib = rss_kib(self.recorder.pid()).saturating_sub(self.rss_kib);
        self.recorder.signal("TERM");
        self.recorder.end_within(Duration::from_secs(20)).ended(0);
        let lost_snapshots = lost_snapshots(&self.stage.path("r"), self.anchor.pid());
        Tally { times: 1, lost_snapshots, leaked_fds: 0, rss_growth_kib }
    }
}

/// How many snapshots of a process are missing between the first and the last of a recording.
pub fn lost_snapshots(recording: &Path, pid: u32) -> u64 {
    // One by one: a thousand processes take hundreds of MiB at a time.
    let snapshots = Recording::open(recording).unwrap();
    let snapshots = snapshots.snapshots().map(Result::unwrap);
    let times: Vec<u64> =
        snapshots.filter(|s| s.targets.iter().any(|t| t.id.pid == pid && !t.exited)).map(|s| s.end_unix_ns).collect();
    assert!(times.len() >= 2, "{} snapshots of {pid}", times.len());
    // A window that is late by half is not a lost one.
    times.windows(2).map(|pair| ((pair[1] - pair[0] + WINDOW_NS / 2) / WINDOW_NS).saturating_sub(1)).sum()
}

pub fn descriptors(pid: u32) -> u64 {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, |dir| dir.count() as u64)
}

fn rss_kib(pid: u32) -> u64 {
    let status = read(&Path::new("/proc").join(pid.to_string()).join("status"));
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0 kB");
    line.trim().trim_end_matches(" kB").parse().unwrap_or(0)
}

/// Descriptors of a recorder that watches one process that nothing happens to.
fn idle_descriptors() -> u64 {
    static COUNT: OnceLock<u64> = OnceLock::new();
    *COUNT.get_or_init(|| {
        let watch = Watch::of(&[]);
        let count = descriptors(watch.recorder.pid());
        watch.recorder.signal("TERM");
        watch.recorder.end().ended(0);
        count
    })
}
