//! How long a target stands still because it is watched.

use crate::support::{Stage, wait, workload};
use std::time::Duration;

const RUNS: usize = 3;
const TIME: Duration = Duration::from_secs(10);

/// The worst time that 1,024 accesses of a target took while it was watched, beyond the worst while it was not, in ms: the median of
/// three runs.
pub fn worst_ms() -> f64 {
    let mut beyond: Vec<f64> = (0..RUNS).map(|_| one_run()).collect();
    beyond.sort_by(f64::total_cmp);
    println!("stall of a target beyond what it shows unwatched, ms: {beyond:.3?}");
    beyond[RUNS / 2]
}

fn one_run() -> f64 {
    let (stage, child) = (Stage::new(), workload(256));
    wait(TIME);
    let watched_from = child.progress().last().map_or(0, |p| p.at);
    let recorder = stage.start_isotherm(&format!("record -o r -d {}s -p {}", TIME.as_secs(), child.pid()));
    recorder.end().ended(0);
    let worst = |is_wanted: &dyn Fn(u64) -> bool| {
        child.progress().iter().filter(|p| is_wanted(p.at)).map(|p| p.slowest_ns).max().unwrap_or(0) as f64 / 1e6
    };
    // The first second fills caches and page tables.
    let begin = child.progress().first().map_or(0, |p| p.at) + 1_000_000_000;
    (worst(&|at| at > watched_from) - worst(&|at| at > begin && at <= watched_from)).max(0.0)
}
