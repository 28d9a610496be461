//! Whether watching evicts: refaults of a store whose cgroup may hold a third more than its working set, watched and not.
//!
//! Clearing accessed bits takes from the kernel what it chooses by. Where memory is short, pages in use could leave sooner for it.

use super::scene::{Load, Scene};
use super::{set, wait};
use anyhow::{Result, ensure};
use isotherm_bench::daemon::isotherm;
use std::fs;
use std::process::Stdio;

/// Until counts say how large the working set is.
const COUNTED_S: f64 = 15.0;
/// What has left by the limit has come back where it is wanted.
const SETTLED_S: f64 = 20.0;
/// Refaults are counted for so long.
const MEASURED_S: u64 = 40;
const RECORDING: &str = "/tmp/evict.isotherm";
/// The limit, in working sets.
const ROOM: f64 = 1.3;

/// Refaults of a store under a limit.
pub fn refaults(seed: u64, is_watched: bool) -> Result<u64> {
    let mut scene = Scene::start(seed, Load { heaps: 0, ..Load::USUAL })?;
    scene.truth();
    wait(COUNTED_S);
    let pages = scene.truth().hot_pages() as f64 * ROOM;
    set(scene.cgroup.file("memory.max"), format!("{:.0}", pages * 4096.0))?;
    wait(SETTLED_S);
    let before = scene.refaults()?;
    if is_watched {
        let _ = fs::remove_dir_all(RECORDING);
        let status = isotherm()
            .args(["record", "-d", &format!("{MEASURED_S}s"), "-o", RECORDING, "-p"])
            .arg(scene.store.child.pid().to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        ensure!(status.success(), "isotherm record: {status}");
    } else {
        wait(MEASURED_S as f64);
    }
    Ok(scene.refaults()? - before)
}
