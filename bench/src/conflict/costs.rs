//! The cost of placement: shuffling 64 GiB, and refilling per-CPU lists from a zone with colouring compared with one
//! without.
//!
//! Times are those of this thread: wall-clock time for shuffling, CPU time for refilling. A run or a step during which
//! the thread was preempted (by `getrusage`) is omitted, unless fewer than 7 would be left. A host that takes the CPU
//! away does not report it, so of many maxima the median and the minimum are given. All metadata of 64 GiB is written
//! to before anything is timed. Refilling an aged zone follows links all over its metadata. That time is memory
//! latency, and changes with the load of other programs on memory.

use super::ageing::{Left, Others};
use super::placing::{Placing, books, frames_from_zero, zone};
use super::{CACHE_FRAMES, Options};
use anyhow::{Result, ensure};
use isotherm_bench::own_thread::involuntary_switches;
use isotherm_bench::{Log, median, spread};
use isotherm_frames::{FrameNo, Metadata, MigrateType, Order, PcpConfig, PcpLists, Shuffling, Zone, ZoneConfig};
use isotherm_sys::clock;
use std::thread;
use std::time::Instant;

const FRAMES_64G: u64 = 16 << 20;
const RUNS: usize = 21;
/// Frames taken through the lists at a time.
const TAKEN: usize = 32_768;
const ROUNDS: usize = 41;
const MEMORY: u64 = 4 * CACHE_FRAMES;

/// Microseconds that `act` took, and whether it was undisturbed.
fn timed<T>(act: impl FnOnce() -> T) -> (f64, bool, T) {
    let switches = involuntary_switches();
    let began = Instant::now();
    let done = act();
    let us = began.elapsed().as_secs_f64() * 1e6;
    (us, involuntary_switches() == switches, done)
}

/// The same with the CPU time of this thread, for long operations, which are seldom undisturbed.
fn timed_cpu<T>(act: impl FnOnce() -> T) -> (f64, bool, T) {
    let began = clock::thread_cpu_ns();
    let (_, quiet, done) = timed(act);
    ((clock::thread_cpu_ns() - began) as f64 / 1e3, quiet, done)
}

/// Number of undisturbed runs that is enough to ignore the others.
const ENOUGH: usize = 7;

/// The undisturbed runs, or all runs if there are too few.
#[derive(Default)]
struct Times {
    quiet: Vec<f64>,
    all: Vec<f64>,
}

impl Times {
    fn add(&mut self, time: f64, quiet: bool) {
        self.all.push(time);
        if quiet {
            self.quiet.push(time);
        }
    }

    fn get(&self) -> &[f64] {
        if self.quiet.len() < ENOUGH { &self.all } else { &self.quiet }
    }

    fn median(&self) -> f64 {
        median(self.get())
    }

    fn line(&self) -> String {
        format!("{}; {} of {} runs left alone", spread(self.get()), self.quiet.len(), self.all.len())
    }
}

/// Fills a zone of 64 GiB, with and without a shuffle, and shuffles it again many times.
pub fn shuffling(log: &mut Log, options: &Options) -> Result<()> {
    let range = frames_from_zero(FRAMES_64G);
    let off = ZoneConfig { seed: options.seed, ..ZoneConfig::new(range) };
    let on = ZoneConfig { shuffle: Shuffling::from_option(Some(true)), ..off };
    let mut memory = books(&on)?;
    // Written to, so that the time does not include page faults.
    memory.fill(1);
    let fills = fill([off, on], &mut memory)?;
    let shuffled = shuffle_again(&on, &mut memory)?;
    log.line("\n64 GiB, 16,384 blocks of order 10: median (least to most)");
    log.line(format!("filled, ms                 {}", fills[0].line()));
    log.line(format!("filled and shuffled, ms    {}", fills[1].line()));
    shuffled.log(log);
    log.result("fill_ms_64g", fills[0].median());
    log.result("fill_shuffled_ms_64g", fills[1].median());
    shuffled.results(log);
    Ok(())
}

/// Milliseconds to fill a zone with each of these configurations, in alternation.
fn fill(configs: [ZoneConfig; 2], memory: &mut [u8]) -> Result<[Times; 2]> {
    let mut fills: [Times; 2] = Default::default();
    for _ in 0..9 {
        for (config, fill) in configs.iter().zip(&mut fills) {
            let zone = Zone::new(config, Metadata::cleared(memory))?;
            let (us, quiet, added) = timed(|| zone.add(config.span, MigrateType::Movable));
            added?;
            fill.add(us / 1e3, quiet);
        }
    }
    Ok(fills)
}

/// Shuffles of a zone, in total and per hold of its lock.
#[derive(Default)]
struct Shuffles {
    whole_ms: Times,
    /// The longest hold of each shuffle.
    longest_us: Times,
    holds_us: Vec<f64>,
    interrupted: u32,
}

fn shuffle_again(config: &ZoneConfig, memory: &mut [u8]) -> Result<Shuffles> {
    // Uses the first type that is shuffled. The blocks are then recorded when the shuffler is created, which needs no
    // lock, and each step is exactly one hold of the lock.
    let zone = Zone::new(config, Metadata::cleared(memory))?;
    zone.add(config.span, MigrateType::ALL[0])?;
    let mut shuffles = Shuffles::default();
    for _ in 0..RUNS {
        let (us, quiet, ()) = timed(|| zone.shuffle());
        shuffles.whole_ms.add(us / 1e3, quiet);
        let mut shuffler = zone.shuffler();
        let mut most: f64 = 0.0;
        loop {
            let (us, quiet, more) = timed(|| shuffler.step());
            if !more {
                break;
            }
            if quiet {
                most = most.max(us);
                shuffles.holds_us.push(us);
            } else {
                shuffles.interrupted += 1;
            }
        }
        shuffles.longest_us.add(most, true);
    }
    Ok(shuffles)
}

impl Shuffles {
    fn log(&self, log: &mut Log) {
        log.line(format!("shuffled again, ms         {}", self.whole_ms.line()));
        log.line(format!("longest hold of a run, us  {}", self.longest_us.line()));
        log.line(format!(
            "any hold, us               {} of {} holds, {} interrupted ones omitted",
            spread(&self.holds_us),
            self.holds_us.len(),
            self.interrupted
        ));
    }

    fn results(&self, log: &mut Log) {
        log.result("shuffle_ms_64g", self.whole_ms.median());
        log.result("shuffle_max_hold_us", self.longest_us.median());
        let least = self.longest_us.get().iter().copied().fold(f64::INFINITY, f64::min);
        log.result("shuffle_least_max_hold_us", least);
    }
}

/// ns per frame: allocated, and allocated and freed.
#[derive(Default)]
struct Refills {
    taken: Times,
    both: Times,
}

impl Refills {
    /// One round. The lists are empty before and after it.
    fn round(&mut self, pcp: &PcpLists<'_>, frames: &mut [FrameNo]) -> Result<()> {
        let per_frame = 1e3 / frames.len() as f64;
        let (taking, quiet, got) = timed_cpu(|| -> Result<()> {
            for frame in frames.iter_mut() {
                *frame = pcp.alloc(Order::FRAME, MigrateType::Movable)?;
            }
            Ok(())
        });
        got?;
        let (giving, quiet_too, given) = timed_cpu(|| -> Result<()> {
            for frame in frames.iter() {
                pcp.free(*frame, Order::FRAME)?;
            }
            pcp.drain_all();
            Ok(())
        });
        given?;
        self.taken.add(taking * per_frame, quiet);
        self.both.add((taking + giving) * per_frame, quiet && quiet_too);
        Ok(())
    }
}

/// Frames taken through per-CPU lists from a zone with colouring and from one without, in alternation. Both are aged in
/// the same way, but they allocate different frames meanwhile and end up with free blocks of different sizes. So the
/// ratio of the aged zones also includes what ageing leaves.
pub fn refilling(log: &mut Log, options: &Options) -> Result<()> {
    log.line(format!(
        "\n{TAKEN} frames through per-CPU pcp, memory of 4 caches, ns a frame, {ROUNDS} rounds of both in \
         turn: median (least to most)"
    ));
    for (name, operations, keys) in [
        ("fresh", None, ["colour_refill_ratio", "colour_giveback_ratio"]),
        ("aged", Some(options.operations), ["colour_refill_aged_ratio", "colour_giveback_aged_ratio"]),
    ] {
        let [plain, coloured] = in_turn(operations, options.seed)?;
        for (what, key, plain, coloured) in [
            ("taken", keys[0], &plain.taken, &coloured.taken),
            ("allocated and freed", keys[1], &plain.both, &coloured.both),
        ] {
            let ratio = coloured.median() / plain.median();
            log.line(format!("{name}, {what:<22} plain    {}", plain.line()));
            log.line(format!("{name}, {what:<22} coloured {}   {ratio:.2} times", coloured.line()));
            log.result(key, ratio);
        }
    }
    Ok(())
}

/// Without and with colouring; first aged by this many operations, if any.
fn in_turn(operations: Option<u64>, seed: u64) -> Result<[Refills; 2]> {
    let configs = [Placing::InOrder, Placing::Coloured].map(|placing| placing.config(frames_from_zero(MEMORY), seed));
    let cpus = u32::try_from(thread::available_parallelism()?.get())?;
    let mut memory = [books(&configs[0])?, books(&configs[1])?];
    let mut set_memory = [Vec::new(), Vec::new()];
    let mut pcp = Vec::new();
    for ((config, memory), set_memory) in configs.iter().zip(&mut memory).zip(&mut set_memory) {
        let zone = zone(config, memory)?;
        if let Some(operations) = operations {
            Others::new(MEMORY, seed).age(&zone, operations, Left::Eighth)?;
        }
        let config = PcpConfig::new(cpus);
        *set_memory = vec![0; config.metadata_bytes(&zone)];
        pcp.push(PcpLists::new(zone, &config, Metadata::zeroed(set_memory))?);
    }
    ensure!(pcp.len() == 2, "two zones");
    let mut frames = vec![FrameNo(0); TAKEN];
    let mut refills: [Refills; 2] = Default::default();
    // The first round warms up.
    for round in 0..=ROUNDS {
        for (pcp, refills) in pcp.iter().zip(&mut refills) {
            refills.round(pcp, &mut frames)?;
        }
        if round == 0 {
            refills = Default::default();
        }
    }
    Ok(refills)
}
