//! The contrived case that the kernel's shuffle was proposed with: two programs that alias.
//!
//! What is published: memory is split into emulated nodes, each as large as near memory; two instances of a bandwidth
//! benchmark run, each on a node of its own. On one node they would fit together and not conflict. On two, each node
//! hands out its frames in order, so the instances lie in the same colours, leave the rest of the cache empty, and
//! throw each other out. Shuffled: 3 times as fast. Not published: how large the instances were, and what exactly was
//! timed.
//!
//! So the size is a column here, up to half a cache each, the largest that fits together. What shuffling is worth
//! follows from it: aliased, every frame has a rival; in nodes shuffled apart, the frame of the other node that has its
//! colour is in use with a probability that is the instance's size in caches. So shuffling takes the misses to that
//! part and no further. As long as a miss costs the same however many there are, no ratio of bandwidths or latencies
//! makes it worth more than one divided by the size: twice for half a cache, 3 times for a third.
//!
//! The benchmark is taken to sweep over its frames, both instances at the same speed: each frame is accessed once a
//! sweep, so one with a rival always misses ([`trace::sweeps`]); under independent accesses it would miss half of the
//! time. Time, per byte read:
//!
//! - *bandwidth*: what the busier of the two memories needs. Every byte is read from near memory, where its tag is; one
//!   that misses is also read from far memory and written to near memory. Nothing is written by the program.
//! - *latency*: one access after the other, 1 for a hit, and for a miss as many times more as near memory is faster.
//!
//! Two nodes coloured each on its own alias like two in order: neither knows what the other has handed out. Colouring
//! is therefore shown for one zone over both nodes, and that this is what it takes is shown next to it.

use super::placing::{Placing, books, grow, zone};
use super::{CACHE_FRAMES, Options, cache, percent, trace};
use anyhow::Result;
use isotherm_bench::Log;
use isotherm_frames::{FrameNo, FrameRange};
use isotherm_rng::Rng;

/// How the two instances get their frames.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nodes {
    /// Each from a zone of its own.
    Apart(Placing),
    /// Both from one zone over both nodes.
    Together(Placing),
}

const ROWS: [(&str, Nodes, u32); 4] = [
    ("in order", Nodes::Apart(Placing::InOrder), 1),
    ("shuffled", Nodes::Apart(Placing::Shuffled), 24),
    ("coloured, one zone", Nodes::Together(Placing::Coloured), 1),
    ("coloured, a zone a node", Nodes::Apart(Placing::Coloured), 1),
];
const SHUFFLED: usize = 1;
const COLOURED: usize = 2;

/// Size of an instance: one over this many caches, and the keys of shuffled and coloured.
const SIZES: [(u64, &str, &str); 4] = [
    (2, "contrived_speedup", "contrived_coloured_speedup"),
    (3, "contrived_speedup_third", "contrived_coloured_speedup_third"),
    (4, "contrived_speedup_quarter", "contrived_coloured_speedup_quarter"),
    (8, "contrived_speedup_eighth", "contrived_coloured_speedup_eighth"),
];

/// Prints the table.
pub fn print(log: &mut Log, options: &Options) -> Result<()> {
    log.line(format!(
        "\ntwo instances on two nodes as large as the cache; near memory {} GB/s, far {} GB/s; misses, and how many times \
         as fast as in order",
        options.near_gbps, options.far_gbps
    ));
    log.line(format!(
        "{:<18} {:<26} {:>7} {:>12} {:>10}",
        "each in caches", "frames", "misses", "bandwidth", "latency"
    ));
    let mut rng = Rng::new(options.seed);
    for (part, shuffled_key, coloured_key) in SIZES {
        let mut aliased = 0.0;
        for (at, (name, nodes, draws)) in ROWS.into_iter().enumerate() {
            let mut misses = 0.0;
            for _ in 0..draws {
                misses += missed(nodes, CACHE_FRAMES / part, rng.next_u64())? / f64::from(draws);
            }
            if at == 0 {
                aliased = misses;
            }
            let speedups = [by_bandwidth, by_latency].map(|time| time(aliased, options) / time(misses, options));
            log.line(format!(
                "{:<18} {name:<26} {:>7} {:>12.2} {:>10.2}",
                format!("1/{part}"),
                percent(misses),
                speedups[0],
                speedups[1]
            ));
            match at {
                SHUFFLED => log.result(shuffled_key, speedups[0]),
                COLOURED => log.result(coloured_key, speedups[0]),
                _ => {}
            }
        }
    }
    Ok(())
}

/// What two instances of so many frames miss.
fn missed(nodes: Nodes, frames: u64, seed: u64) -> Result<f64> {
    let node = |number: u64| FrameRange::new(FrameNo(number * CACHE_FRAMES), FrameNo((number + 1) * CACHE_FRAMES));
    let (mut first, mut second) = (Vec::new(), Vec::new());
    match nodes {
        Nodes::Apart(placing) => {
            for (owned, number) in [&mut first, &mut second].into_iter().zip(0..) {
                let config = placing.config(node(number), seed ^ number);
                let mut books = books(&config)?;
                grow(&zone(&config, &mut books)?, owned, frames)?;
            }
        }
        Nodes::Together(placing) => {
            let config = placing.config(FrameRange::new(node(0).start, node(1).end), seed);
            let mut books = books(&config)?;
            let zone = zone(&config, &mut books)?;
            grow(&zone, &mut first, frames)?;
            grow(&zone, &mut second, frames)?;
        }
    }
    trace::sweeps(cache()?, &first, &second)
}

/// ns per byte where bandwidth is what is waited for.
fn by_bandwidth(misses: f64, options: &Options) -> f64 {
    ((1.0 + misses) / options.near_gbps).max(misses / options.far_gbps)
}

/// Accesses' worth of hits where each is waited for.
fn by_latency(misses: f64, options: &Options) -> f64 {
    1.0 + misses * (options.near_gbps / options.far_gbps - 1.0)
}
