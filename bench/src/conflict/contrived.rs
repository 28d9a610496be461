//! The contrived case that was used to propose the kernel's shuffle: two programs that alias.
//!
//! What is published: memory is split into emulated nodes, each as large as near memory. Two instances of a bandwidth
//! benchmark run, each on its own node. On one node they would fit together without conflicts. On two, each node
//! allocates its frames in order, so both instances have the same colours, leave the rest of the cache empty, and evict
//! each other. With shuffling it is 3 times as fast. The size of the instances is not published, nor what exactly was
//! timed.
//!
//! So the size is a column here, up to half a cache each, which is the largest that fits together. The gain from
//! shuffling follows from it. With aliasing, every frame has a rival. In nodes that are shuffled separately, the frame
//! of the other node with the same colour is in use with a probability equal to the instance's size in caches. So
//! shuffling reduces the misses to that share and no further. As long as the cost of a miss does not depend on their
//! number, no ratio of bandwidths or latencies makes the gain larger than one divided by the size: twice for half a
//! cache, 3 times for a third.
//!
//! The benchmark is assumed to sweep over its frames, with both instances at the same speed. Each frame is accessed
//! once a sweep, so a frame with a rival always misses ([`trace::sweeps`]). With independent accesses it would miss
//! half of the time. Time, per byte read:
//!
//! - *bandwidth*: the time of the busier of the two memories. Every byte is read from near memory, where its tag is. A
//!   byte that misses is also read from far memory and written to near memory. The program writes nothing.
//! - *latency*: one access after another. A hit costs 1. A miss costs as many times more as near memory is faster.
//!
//! Two nodes that are coloured separately alias in the same way as two in order: neither knows what the other has
//! allocated. So colouring is shown for one zone over both nodes, and a row next to it shows that this is needed.

use super::placing::{Placing, books, grow, zone};
use super::{CACHE_FRAMES, Options, cache, percent, trace};
use anyhow::Result;
use isotherm_bench::Log;
use isotherm_frames::{FrameNo, FrameRange};
use isotherm_rng::Rng;

/// How the two instances get their frames.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nodes {
    /// Each from its own zone.
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

/// The misses of two instances of this many frames.
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

/// ns per byte if bandwidth is the limit.
fn by_bandwidth(misses: f64, options: &Options) -> f64 {
    ((1.0 + misses) / options.near_gbps).max(misses / options.far_gbps)
}

/// Time per access, in hits, if each access waits for the one before.
fn by_latency(misses: f64, options: &Options) -> f64 {
    1.0 + misses * (options.near_gbps / options.far_gbps - 1.0)
}
