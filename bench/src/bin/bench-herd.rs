//! Periodic drains of many CPUs at one zone lock, under the schedules of kernels and of `isotherm-frames`: which code
//! waits for the lock, and for how long.
//!
//! The machines are modelled ([`isotherm_sim::cpus`]), because no machine here has 72 CPUs. Two parts are real: the
//! schedules, which are the allocator's own code, and in two of the four settings the hold times of the lock, which are
//! measured first. RESULT uses the measured hold times, neither assumed nor slowed down: it shows the effect of the
//! schedule on this allocator.

#[path = "../herd/mod.rs"]
mod herd;

use anyhow::Result;
use clap::Parser;
use herd::table::{self, Setting};
use herd::{sensitivity, timed};
use isotherm_bench::Log;
use isotherm_sim::cpus::Holds;

/// Hold time for 63 frames at 150 ns a frame: assumed for kernels, not measured.
const ASSUMED_NS: u32 = 63 * 150;
/// Assumed slow-down of frees with KASAN.
const SLOWER: f64 = 8.0;

const HEADER: &str = "\
modelled: the CPUs, one minute of them; the lock, first come first served; what else is assumed: half of the runs drain, 1
  to 8 chunks of 63 frames; 200 bursts of a chunk a second in the foreground; a run starts 100 us after it is due, in the
  mean, and 1% up to 3 ms later; the shepherd runs at whole seconds, kicks a share of CPUs drawn anew each time, and a
  kicked CPU does no run of its own in that second (reasons: docs/design/periodic-drain.md)
measured: the holds of isotherm-frames' lock, in the settings that say so, on one thread of this machine; nothing else
not known: how many CPUs are kicked on any machine; how long kernels hold the lock
published for the proposal, one machine of 72 CPUs, as its author corrected it (contentions, total wait, max wait):
  with KASAN 872 to 117, 199 to 81 ms, 35.8 to 4.19 ms: 7.45x, 2.47x, 8.5x
  without    240 to 133, 34.0 to 24.6 ms, 1.35 to 0.965 ms: 1.80x, 1.38x, 1.40x
waited: acquisitions that found the lock taken; of fg: of the foreground; mean us: of those that waited; holds: the longest
  wait in median holds; defers: tries that found it taken and came back later, which is not a wait; due s, start s: the
  longest interval of any CPU's own runs, between the instants of the schedule, and from start to start
deferral: a run that finds the lock taken goes on 7.8 ms and a latency later, up to 8 times, then it waits for each chunk
kernel today: what round_jiffies gives, three ticks of 1 ms from CPU to CPU; timer wheel: and what becomes of it in the
  kernel's timers, which keep such timers at multiples of 64 ticks: it is not in the figures, which it would raise
ours: as in isotherm-frames: spread phases, a shepherd that keeps to phases, deferral; 20% kicked unless stated otherwise
medians over seeds; figures are ratios of sums over all seeds (max_wait_holds: the median): contentions and total wait of
  the kernel with 20% kicked over ours; ours' longest wait; how far any interval of ours is off; ours with odd CPUs offline
  over ours, not per CPU; ours over the floor; the kernel with 50% kicked over ours with 50%";

/// Options of the command line.
#[derive(Parser)]
struct Options {
    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How many seeds, from that on
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
}

fn main() -> Result<()> {
    let Options { seed, seeds } = Options::parse();
    let mut log = Log::new("bench-herd");
    log.line(format!("seeds {seed} to {}", seed + seeds - 1));
    log.line(HEADER);
    let measured = timed::holds(&mut log, seed)?;
    let assumed = Holds::constant(ASSUMED_NS);
    let settings = [
        ("holds as measured".to_owned(), measured.clone(), true),
        (format!("measured holds times {SLOWER} (assumed for KASAN)"), measured.scaled(SLOWER)?, false),
        ("holds of 9.45 us (150 ns a frame: assumed of kernels)".to_owned(), assumed.clone(), false),
        (format!("holds of 9.45 us times {SLOWER} (assumed of kernels with KASAN)"), assumed.scaled(SLOWER)?, false),
    ];
    let seeds = seed..seed + seeds;
    for (name, holds, is_result) in settings {
        table::print(&mut log, &Setting { name, holds, is_result }, &seeds)?;
    }
    sensitivity::print(&mut log, &measured, &seeds)?;
    log.finish()
}
