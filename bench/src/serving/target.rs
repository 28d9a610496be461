//! A process that measures how long its own work takes, watched or not.
//!
//! A batch writes to [`TOUCHED`] random pages, and returns a page to the system and faults it in again, as a program does that allocates
//! while it works. A monitor can delay both: pages whose accessed bit was cleared have it set again, and a page fault waits for a
//! writer of the address space.
//!
//! Each batch has two times. *Wall* is all of it. *Held* is without the time in which it waited for a CPU (`schedstat`), which depends
//! on what else the machine does more than on who watches.
//!
//! Batches are due at a fixed interval, twice what one takes, as requests of clients come whether or not the last one was answered. The
//! *latency* of a batch is the time from when it was due to its end, so a pause of 100 ms delays all that were due meanwhile. If the
//! next batch only began when the last one had ended, as in a loop without times, that pause would count as one slow batch of two million
//! (coordinated omission). Latencies are on the held clock: it stands still while the process waits for a CPU.

use crate::workload_command;
use anyhow::{Context, Result, ensure};
use isotherm_heat::Rng;
use isotherm_sys::clock;
use isotherm_sys::memory::{Memory, PageSize};
use isotherm_units::PAGE_SIZE;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::FileExt as _;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) const TARGET: &str = "--target";
const TOUCHED: usize = 256;
/// Batches of which the times are kept in a phase: several minutes of them.
const MAX_BATCHES: usize = 8 << 20;
/// Pages that are returned in turn.
const SCRATCH_PAGES: usize = 16;
const SEED: u64 = 20;
/// Batches by which the interval is chosen.
const CALIBRATED: usize = 4096;
/// The count of phases that says that there are no more.
const OVER: u64 = u64::MAX;

/// Times of batches, microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Times {
    pub median_us: f64,
    pub p999_us: f64,
    pub worst_us: f64,
}

impl Times {
    fn of(ns: &mut [u32]) -> Times {
        ns.sort_unstable();
        let [median_us, p999_us, worst_us] =
            [0.5, 0.999, 1.0].map(|share| super::quantile(ns, share).map_or(f64::NAN, |ns| f64::from(ns) / 1000.0));
        Times { median_us, p999_us, worst_us }
    }
}

/// What happened in a phase.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Phase {
    pub batches: usize,
    pub wall: Times,
    /// Without the time in which it waited for a CPU.
    pub held: Times,
    /// From when a batch was due to its end, without the time in which the process waited for a CPU.
    pub latency: Times,
}

/// The parent's side. The process ends with this value, and also when the parent is killed.
#[derive(Debug)]
pub(super) struct Target {
    process: Child,
    orders: ChildStdin,
    reports: BufReader<ChildStdout>,
}

impl Target {
    /// Starts it, and waits until its memory is populated.
    pub fn start(pages: usize) -> Result<Target> {
        let mut command = workload_command(TARGET)?;
        command.arg(pages.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().context("start a process to be watched")?;
        let orders = process.stdin.take().context("its input is piped")?;
        let reports = BufReader::new(process.stdout.take().context("its output is piped")?);
        let mut target = Target { process, orders, reports };
        let line = target.line()?;
        ensure!(line == "ready", "the process to be watched did not start: it printed {line:?}");
        Ok(target)
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// What happened since it was last called.
    pub fn phase(&mut self) -> Result<Phase> {
        writeln!(self.orders, "phase")?;
        let line = self.line()?;
        serde_json::from_str(&line).with_context(|| format!("read what the process to be watched printed: {line:?}"))
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.reports.read_line(&mut line).context("read what the process to be watched prints")?;
        Ok(line.trim().to_owned())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // Nothing of it is needed any more.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs as such a process until standard input is closed.
pub(crate) fn run(mut args: impl Iterator<Item = String>) -> Result<()> {
    let pages: u64 = args.next().context("no number of pages")?.parse()?;
    let memory = Memory::anonymous(pages * PAGE_SIZE, PageSize::Small)?;
    let scratch = Memory::anonymous(SCRATCH_PAGES as u64 * PAGE_SIZE, PageSize::Small)?;
    memory.populate();
    let phases = Arc::new(AtomicU64::new(0));
    let ordered = Arc::clone(&phases);
    std::thread::spawn(move || listen(&ordered));
    println!("ready");
    work(&memory, &scratch, &phases)
}

fn listen(phases: &AtomicU64) {
    for _ in std::io::stdin().lock().lines().map_while(Result::ok) {
        phases.fetch_add(1, Ordering::Relaxed);
    }
    phases.store(OVER, Ordering::Relaxed);
}

fn work(memory: &Memory, scratch: &Memory, phases: &AtomicU64) -> Result<()> {
    let mut rng = Rng::new(SEED);
    let clock = HeldClock::open()?;
    let interval_ns = interval(memory, scratch, &mut rng);
    // Populated: a list that grows would itself be late.
    let (mut wall, mut held, mut latency) =
        (vec![0_u32; MAX_BATCHES], vec![0_u32; MAX_BATCHES], vec![0_u32; MAX_BATCHES]);
    let (mut batches, mut seen) = (0, 0);
    let mut due = clock.now()?.held_ns;
    loop {
        due += interval_ns;
        let began = clock.wait_until(due)?;
        batch(memory, scratch, &mut rng, batches % SCRATCH_PAGES);
        let ended = clock.now()?;
        if batches < MAX_BATCHES {
            wall[batches] = short(ended.wall_ns - began.wall_ns);
            held[batches] = short(ended.held_ns.saturating_sub(began.held_ns));
            latency[batches] = short(ended.held_ns.saturating_sub(due));
            batches += 1;
        }
        let asked = phases.load(Ordering::Relaxed);
        if asked == OVER {
            return Ok(());
        }
        if asked > seen {
            let of = |ns: &mut [u32]| Times::of(&mut ns[..batches]);
            let phase = Phase { batches, wall: of(&mut wall), held: of(&mut held), latency: of(&mut latency) };
            println!("{}", serde_json::to_string(&phase)?);
            (batches, seen) = (0, asked);
            due = clock.now()?.held_ns;
        }
    }
}

/// The time between two batches: twice what one takes while nobody watches.
fn interval(memory: &Memory, scratch: &Memory, rng: &mut Rng) -> u64 {
    let took = (0..CALIBRATED).map(|n| {
        let began = clock::monotonic_ns();
        batch(memory, scratch, rng, n % SCRATCH_PAGES);
        short(clock::monotonic_ns() - began)
    });
    let mut took: Vec<u32> = took.collect();
    took.sort_unstable();
    2 * u64::from(took[CALIBRATED / 2])
}

fn batch(memory: &Memory, scratch: &Memory, rng: &mut Rng, returned: usize) {
    let pages = memory.pages() as u64;
    for _ in 0..TOUCHED {
        // A usize has 64 bits on every machine with page tables that Isotherm reads.
        memory.write(usize::try_from(rng.below(pages)).unwrap_or_default());
    }
    scratch.discard(returned, 1);
    scratch.write(returned);
}

fn short(ns: u64) -> u32 {
    u32::try_from(ns).unwrap_or(u32::MAX)
}

/// A moment on two clocks.
#[derive(Clone, Copy, Debug)]
struct Moment {
    wall_ns: u64,
    /// It stands still while this thread is ready to run without a CPU.
    held_ns: u64,
}

/// Reads both clocks, of this thread.
#[derive(Debug)]
struct HeldClock(File);

impl HeldClock {
    fn open() -> Result<HeldClock> {
        let path = "/proc/thread-self/schedstat";
        let doing = || format!("open {path}: the kernel has to count the time that threads wait (CONFIG_SCHED_INFO)");
        Ok(HeldClock(File::open(path).with_context(doing)?))
    }

    fn now(&self) -> Result<Moment> {
        let mut bytes = [0; 64];
        let length = self.0.read_at(&mut bytes, 0).context("read schedstat")?;
        let waited_ns = waited_ns(&bytes[..length]).context("read schedstat: it has no second number")?;
        let wall_ns = clock::monotonic_ns();
        Ok(Moment { wall_ns, held_ns: wall_ns.saturating_sub(waited_ns) })
    }

    /// Spins, since a sleep may last longer than a batch does.
    fn wait_until(&self, held_ns: u64) -> Result<Moment> {
        loop {
            let now = self.now()?;
            if now.held_ns >= held_ns {
                return Ok(now);
            }
            let until = now.wall_ns + (held_ns - now.held_ns);
            while clock::monotonic_ns() < until {
                std::hint::spin_loop();
            }
        }
    }
}

/// The second number: nanoseconds on a run queue. The first are those on a CPU.
fn waited_ns(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_for_a_cpu_is_the_second_number() {
        assert_eq!(waited_ns(b"209003 124433 2\n"), Some(124_433));
        assert_eq!((waited_ns(b"209003\n"), waited_ns(b"a b c\n")), (None, None));
    }

    #[test]
    fn a_wait_ends_at_its_time_on_the_held_clock() {
        let clock = HeldClock::open().unwrap();
        let before = clock.now().unwrap();
        let after = clock.wait_until(before.held_ns + 1_000_000).unwrap();
        assert!(after.held_ns >= before.held_ns + 1_000_000 && after.wall_ns >= before.wall_ns + 1_000_000);
        assert!(clock.wait_until(before.held_ns).unwrap().wall_ns >= after.wall_ns, "what is past is not waited for");
    }

    #[test]
    fn times_are_the_median_one_in_a_thousand_and_the_worst() {
        let mut ns: Vec<u32> = (1..=10_000).rev().map(|n| n * 1000).collect();
        assert_eq!(Times::of(&mut ns), Times { median_us: 5000.0, p999_us: 9990.0, worst_us: 10_000.0 });
    }
}
