//! Whether watching evicts: refaults of a store whose cgroup may hold a third more than its working set, watched and not.
//!
//! Clearing accessed bits takes from the kernel what it chooses by. Where memory is short, pages in use could leave sooner for it.
//!
//! Refaults near a limit come in bursts, and those of two stores with the same keys differ by half. So one store is watched by turns, in
//! the order that a trend does not favour: not, watched, watched, not. Each turn that is watched begins anew, which is the worst of
//! watching: all memory is cleared in its first seconds. What the end of a turn leaves behind is waited for and not counted.

use super::scene::{Load, Scene};
use super::{set, wait};
use anyhow::{Result, ensure};
use isotherm_bench::daemon::isotherm;
use std::fmt;
use std::fs;
use std::process::Stdio;

/// Until counts say how large the working set is.
const COUNTED_S: f64 = 15.0;
/// What has left by the limit has come back where it is wanted.
const SETTLED_S: f64 = 20.0;
/// All memory is checked once in its first 40 s. The rest is as any other time.
const TURN_S: u64 = 90;
const BETWEEN_S: f64 = 15.0;
/// Which turns are watched.
const ORDER: [bool; 8] = [false, true, true, false, false, true, true, false];
const RECORDING: &str = "/tmp/evict.isotherm";
/// The limit, in working sets.
const ROOM: f64 = 1.3;

/// Refaults of one store under a limit, by turns.
#[derive(Clone, Copy, Debug)]
pub struct Turns([u64; ORDER.len()]);

impl Turns {
    /// Of a store of its own.
    pub fn measure(seed: u64) -> Result<Turns> {
        let mut scene = Scene::start(seed, Load { heaps: 0, ..Load::USUAL })?;
        scene.truth();
        wait(COUNTED_S);
        let pages = scene.truth().hot_pages() as f64 * ROOM;
        set(scene.cgroup.file("memory.max"), format!("{:.0}", pages * 4096.0))?;
        let mut turns = [0; ORDER.len()];
        wait(SETTLED_S - BETWEEN_S);
        for (refaults, is_watched) in turns.iter_mut().zip(ORDER) {
            wait(BETWEEN_S);
            let before = scene.refaults()?;
            if is_watched {
                watch(scene.store.child.pid())?
            } else {
                wait(TURN_S as f64)
            }
            *refaults = scene.refaults()? - before;
        }
        Ok(Turns(turns))
    }

    /// Watched over unwatched, in all.
    pub fn ratio(&self) -> f64 {
        ratio(&ORDER, &self.0)
    }

    /// The same of each two turns, one after the other.
    pub fn ratios(&self) -> impl Iterator<Item = f64> {
        ORDER.chunks(2).zip(self.0.chunks(2)).map(|(order, turns)| ratio(order, turns))
    }
}

impl fmt::Display for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (refaults, is_watched) in self.0.iter().zip(ORDER) {
            write!(f, "{refaults} {}, ", if is_watched { "watched" } else { "not" })?;
        }
        write!(f, "{:.2} times as many where watched", self.ratio())
    }
}

fn ratio(order: &[bool], turns: &[u64]) -> f64 {
    let sum = |is_watched| order.iter().zip(turns).filter(|(o, _)| **o == is_watched).map(|(_, n)| *n).sum::<u64>();
    (sum(true) + 1) as f64 / (sum(false) + 1) as f64
}

/// Watches for a turn.
fn watch(pid: u32) -> Result<()> {
    let _ = fs::remove_dir_all(RECORDING);
    let mut record = isotherm();
    record.args(["record", "-d", &format!("{TURN_S}s"), "-o", RECORDING, "-p"]).arg(pid.to_string());
    let status = record.stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    ensure!(status.success(), "isotherm record: {status}");
    Ok(())
}
