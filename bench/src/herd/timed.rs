//! How long the lock is held for a chunk: a zone of `isotherm-frames`, and a list for each of 72 CPUs that returns 63
//! frames to it, one list after another on one thread.
//!
//! The timed operation is [`OwnedPcpLists::drain`] of a list with 63 frames. It is one hold of the zone's lock. Before it,
//! the frames are taken out of the list, which costs little and counts as held. The frames are random ones of those in
//! use, so that each has a different place in the metadata. The zone has aged, so that some freed frames find free
//! buddies. Between filling and draining the lists, other memory is read, since frames that a list has held for a
//! second are no longer in a cache of the processor.
//!
//! Holds during which the thread was preempted are omitted, and so are those longer than 20 times the median. These are
//! interrupts, and a host that takes the CPU away. They affect one hold in some thousands here and none in a kernel,
//! which holds the zone lock with interrupts disabled. The number of omitted holds and the longest are reported.

use anyhow::{Result, ensure};
use isotherm_bench::Log;
use isotherm_bench::own_thread::involuntary_switches;
use isotherm_frames::tune::PcpLimits;
use isotherm_frames::{FrameNo, FrameRange, Front, Metadata, MigrateType, Order, OwnedPcpLists, Zone, ZoneConfig};
use isotherm_rng::Rng;
use isotherm_sim::cpus::Holds;
use std::hint::black_box;
use std::time::Instant;

/// 8 GiB, with 19 MB of metadata.
const FRAMES: u64 = 2 << 20;
/// A batch.
const CHUNK: usize = 63;
const CPUS: usize = 72;
const ROUNDS: usize = 80;
/// Words read between filling and draining: 64 MiB.
const OTHER_MEMORY: usize = 8 << 20;
/// Multiple of the median from which a hold counts as interrupted.
const INTERRUPTED: u32 = 20;

/// The measured hold times.
struct Samples {
    ns: Vec<u32>,
    /// Number of holds that are omitted because the thread was preempted.
    switched: usize,
}

fn elapsed_ns(since: Instant) -> u32 {
    u32::try_from(since.elapsed().as_nanos()).unwrap_or(u32::MAX)
}

/// The time that timing itself takes: the median of many.
fn timer_ns() -> u32 {
    let mut ns: Vec<u32> = (0..10_001).map(|_| elapsed_ns(Instant::now())).collect();
    ns.sort_unstable();
    ns[ns.len() / 2]
}

/// Removes a random frame from the list.
fn take_any(frames: &mut Vec<FrameNo>, rng: &mut Rng) -> FrameNo {
    let at = usize::try_from(rng.below(frames.len() as u64)).unwrap_or(0);
    frames.swap_remove(at)
}

/// Takes single frames until seven eighths of the zone are in use, and frees three eighths at random. The free memory
/// is then in blocks of all sizes, mostly small ones.
fn age(zone: &Zone<'_>, rng: &mut Rng) -> Result<Vec<FrameNo>> {
    let mut used = vec![FrameNo(0); usize::try_from(FRAMES / 8 * 7)?];
    ensure!(zone.alloc_bulk(Order::FRAME, MigrateType::Movable, &mut used) == used.len(), "a new zone has its frames");
    for _ in 0..FRAMES / 8 * 3 {
        zone.free(take_any(&mut used, rng), Order::FRAME)?;
    }
    Ok(used)
}

fn samples(seed: u64, cold: bool) -> Result<Samples> {
    let config = ZoneConfig { seed, ..ZoneConfig::new(FrameRange::new(FrameNo(0), FrameNo(FRAMES))) };
    let mut books = vec![0; config.metadata_bytes()?];
    let zone = Zone::new(&config, Metadata::zeroed(&mut books))?;
    zone.add(config.span, MigrateType::Movable)?;
    let mut rng = Rng::new(seed);
    let mut used = age(&zone, &mut rng)?;
    let limits = PcpLimits::for_zone(FRAMES, 0, u32::try_from(CPUS)?, None);
    let mut memory = vec![vec![0; OwnedPcpLists::metadata_bytes(limits)]; CPUS];
    let pcp: Result<Vec<OwnedPcpLists<'_, '_>>, _> =
        memory.iter_mut().map(|memory| OwnedPcpLists::new(&zone, limits, Metadata::zeroed(memory))).collect();
    let mut pcp = pcp?;
    let other = vec![1_u64; OTHER_MEMORY];
    let (timer_ns, mut ns, mut switched) = (timer_ns(), Vec::new(), 0);
    let mut again = vec![FrameNo(0); CPUS * CHUNK];
    for _ in 0..ROUNDS {
        for set in &mut pcp {
            for _ in 0..CHUNK {
                set.free(take_any(&mut used, &mut rng), Order::FRAME)?;
            }
        }
        if cold {
            black_box(other.iter().copied().fold(0_u64, u64::wrapping_add));
        }
        for set in &mut pcp {
            let switches = involuntary_switches();
            let began = Instant::now();
            let drained = set.drain();
            let took_ns = elapsed_ns(began).saturating_sub(timer_ns);
            ensure!(drained == CHUNK as u64, "a list had {drained} frames, and {CHUNK} were put into it");
            if involuntary_switches() == switches {
                ns.push(took_ns);
            } else {
                switched += 1;
            }
        }
        let got = zone.alloc_bulk(Order::FRAME, MigrateType::Movable, &mut again);
        used.extend_from_slice(&again[..got]);
    }
    Ok(Samples { ns, switched })
}

/// Measures hold times, and prints a summary.
pub fn holds(log: &mut Log, seed: u64) -> Result<Holds> {
    let warm = Holds::samples(samples(seed, false)?.ns)?;
    let Samples { mut ns, switched } = samples(seed, true)?;
    let all = Holds::samples(ns.clone())?;
    let most = u32::try_from(all.median_ns())?.saturating_mul(INTERRUPTED);
    let before = ns.len();
    ns.retain(|&ns| ns <= most);
    let interrupted = before - ns.len();
    let holds = Holds::samples(ns)?;
    log.line(format!(
        "measured holds: {CHUNK} frames returned to an aged zone of {} GiB by {CPUS} lists in turn, other memory read in \
         between",
        FRAMES >> 18
    ));
    log.line(format!(
        "  median {} ns, mean {:.0}, p99 {}, longest {}, of {before}; with nothing read in between {} ns (not used below)",
        holds.median_ns(),
        holds.mean_ns(),
        holds.percentile_ns(99),
        holds.percentile_ns(100),
        warm.median_ns(),
    ));
    log.line(format!(
        "  omitted: {switched} with a context switch, {interrupted} longer than {INTERRUPTED} medians (the longest {} ns)",
        all.percentile_ns(100)
    ));
    Ok(holds)
}
