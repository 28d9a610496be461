//! Whether watching evicts: refaults of a store whose cgroup may hold a third more than its working set, watched and not.
//!
//! Clearing accessed bits takes from the kernel what it chooses by. Where memory is short, pages in use could leave sooner for it. All memory
//! is cleared in the first seconds, and then what is due, so both are counted.

use super::scene::{Load, Scene};
use super::{set, wait};
use anyhow::{Result, ensure};
use isotherm_bench::daemon::isotherm;
use std::fs;
use std::process::{Child, Stdio};

/// Until counts say how large the working set is.
const COUNTED_S: f64 = 15.0;
/// What has left by the limit has come back where it is wanted.
const SETTLED_S: f64 = 20.0;
/// In the first time all memory is checked once, and its checks are confirmed. Then the rest of the time is as any other.
const FIRST_S: u64 = 40;
const THEN_S: u64 = 80;
const RECORDING: &str = "/tmp/evict.isotherm";
/// The limit, in working sets.
const ROOM: f64 = 1.3;

/// Refaults of a store under a limit.
#[derive(Clone, Copy, Debug)]
pub struct Refaults {
    /// Since watching has begun.
    pub first: u64,
    /// After that.
    pub then: u64,
}

impl Refaults {
    /// Of a store of its own.
    pub fn measure(seed: u64, is_watched: bool) -> Result<Refaults> {
        let mut scene = Scene::start(seed, Load { heaps: 0, ..Load::USUAL })?;
        scene.truth();
        wait(COUNTED_S);
        let pages = scene.truth().hot_pages() as f64 * ROOM;
        set(scene.cgroup.file("memory.max"), format!("{:.0}", pages * 4096.0))?;
        wait(SETTLED_S);
        let before = scene.refaults()?;
        let watching = is_watched.then(|| watch(scene.store.child.pid())).transpose()?;
        wait(FIRST_S as f64);
        let between = scene.refaults()?;
        wait(THEN_S as f64);
        let after = scene.refaults()?;
        if let Some(status) = watching.map(|mut child| child.wait()).transpose()? {
            ensure!(status.success(), "isotherm record: {status}");
        }
        Ok(Refaults { first: between - before, then: after - between })
    }

    /// All of them, the first, and those after that.
    pub fn parts(self) -> [u64; 3] {
        [self.first + self.then, self.first, self.then]
    }
}

fn watch(pid: u32) -> Result<Child> {
    let _ = fs::remove_dir_all(RECORDING);
    let duration = format!("{}s", FIRST_S + THEN_S);
    let mut record = isotherm();
    record.args(["record", "-d", &duration, "-o", RECORDING, "-p"]).arg(pid.to_string());
    Ok(record.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?)
}
