//! The cost of the periodic drain of per-CPU lists, and whether CPUs that drain contend for the zone's lock.
//!
//! *Contention*: two threads, each on its own CPU, fill their lists in every interval of 2 ms. Each then runs its CPU's
//! drain at the time that the schedule sets: both at the same instant, or each at its phase. An interval begins when
//! both threads run, on a clock that stands still until then. Schedules alternate within one run. The bench counts the
//! holds of the zone's lock by a drain, and how often it found the lock taken. The lists are filled in a part of the
//! interval without drains, so all contention is between drains. Intervals in which a thread was late, or was
//! preempted, say nothing about schedules: they are omitted, and counted.
//!
//! *The drain*: one run over a list of frames taken at random from a zone of which a random half is in use, and over a
//! list of neighbouring frames. The time is that of the whole run, including stopping the CPU and moving the rest.
//!
//! There are only two CPUs here. The effect of more CPUs on each other is left to a model, which can use the times of
//! the drain.

use anyhow::{Context, Result, ensure};
use isotherm_bench::own_thread::{allowed_cpus, involuntary_switches, pin};
use isotherm_bench::{Log, median, spread, take_no_options};
use isotherm_frames::housekeep::schedule::{Aligned, Schedule};
use isotherm_frames::housekeep::{Housekeeper, HousekeeperConfig, Interval, Run, Slot, Spread};
use isotherm_frames::tune::PcpLimits;
use isotherm_frames::{
    FrameNo, FrameRange, Metadata, MigrateType, Order, Pace, PcpConfig, PcpLists, Tier, Zone, ZoneConfig,
};
use isotherm_rng::Rng;
use std::hint;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const MOVABLE: MigrateType = MigrateType::Movable;
/// A list may hold 4096 frames and has 4095. A run drains an eighth of the former, so 511 frames: eight chunks of 63,
/// and 7.
const LIMITS: PcpLimits = PcpLimits { batch: 63, high_min: 252, high_max: 4096 };
const FILL: usize = 4095;
const GOES: u64 = 511;
/// 1 GiB.
const FRAMES: u64 = 1 << 18;

const INTERVAL_NS: u64 = 2_000_000;
/// Time in an interval by which the lists have to be filled. The phases of two CPUs are 0 and 0.618.
const FILL_UNTIL_NS: u64 = INTERVAL_NS / 10 * 6;
/// A run that begins this much later than it is due does not follow the schedule. A drain takes about as long.
const LATE_NS: u64 = 10_000;
const BLOCK_INTERVALS: usize = 100;
/// Number of valid intervals of each schedule that is enough, and the time after which no more are measured, even if
/// there are fewer.
const ENOUGH: u64 = 1000;
const LONG: Duration = Duration::from_secs(60);

const DRAINS: usize = 2000;

/// No CPU is idle here.
const WAITS: Pace = Pace { idle_after: 0, max_deferrals: 0 };
const DEFERS: Pace = Pace { idle_after: 0, max_deferrals: 8 };

fn main() -> Result<()> {
    take_no_options();
    let mut log = Log::new("bench-drain");
    let cpus = allowed_cpus().context("ask for the CPUs of this process")?;
    log.line(format!(
        "lists of {FILL} frames, of which a run drains {GOES}, in chunks of {}; 1 GiB of frames",
        LIMITS.batch
    ));
    match cpus[..] {
        [one, other, ..] => herd(&mut log, [one, other])?,
        _ => log.line("Only one CPU: zone-lock contention was not measured."),
    }
    drain(&mut log, cpus[0])?;
    log.finish()
}

/// A zone of [`FRAMES`] and lists for the CPUs below `cpus`, in memory that lasts as long as the program.
fn pcp(tier: Tier, cpus: u32) -> Result<PcpLists<'static>> {
    let leak = |bytes: usize| Metadata::zeroed(Box::leak(vec![0; bytes].into_boxed_slice()));
    let range = FrameRange::new(FrameNo(0), FrameNo(FRAMES));
    let config = ZoneConfig::new(range);
    let zone = Zone::new(&config, leak(config.metadata_bytes()?))?;
    zone.add(range, MOVABLE)?;
    let config = PcpConfig { tier, limits: Some(LIMITS), ..PcpConfig::new(cpus) };
    let memory = leak(config.metadata_bytes(&zone));
    Ok(PcpLists::new(zone, &config, memory)?)
}

/// Raises the limit of this CPU's list to its maximum and leaves the list empty. Each visit to the zone raises the
/// limit by a batch.
fn let_keep_all(pcp: &PcpLists<'_>, cpu: u32) -> Result<()> {
    for _ in 0..LIMITS.high_max.div_ceil(LIMITS.batch) {
        let frame = pcp.alloc(Order::FRAME, MOVABLE)?;
        pcp.free(frame, Order::FRAME)?;
        pcp.drain(cpu);
    }
    Ok(())
}

/// Fills the list of this CPU with neighbouring frames, as many as `buffer` has places.
fn fill_with_neighbours(pcp: &PcpLists<'_>, cpu: u32, buffer: &mut [FrameNo]) -> Result<()> {
    pcp.drain(cpu);
    // The limit lost an eighth, or twice that if a run came too late. 18 batches are more than that.
    for _ in 0..18 {
        let frame = pcp.alloc(Order::FRAME, MOVABLE)?;
        pcp.free(frame, Order::FRAME)?;
        pcp.drain(cpu);
    }
    ensure!(pcp.alloc_bulk(Order::FRAME, MOVABLE, buffer) == buffer.len(), "the zone has too few frames");
    buffer.iter().try_for_each(|&frame| pcp.free(frame, Order::FRAME))?;
    Ok(())
}

/// A schedule and what a run does if the lock is taken.
struct Way {
    name: &'static str,
    schedule: &'static dyn Schedule,
    pace: Pace,
}

const WAYS: [Way; 3] = [
    Way { name: "aligned", schedule: &Aligned, pace: WAITS },
    Way { name: "spread", schedule: &Spread, pace: WAITS },
    Way { name: "aligned, trylock, rest deferred", schedule: &Aligned, pace: DEFERS },
];

/// One CPU's run in one interval.
#[derive(Clone, Copy, Default)]
struct Turn {
    chunks: u64,
    contended: u64,
    took_ns: f64,
    is_disturbed: bool,
}

/// The counts for one way, over the valid intervals.
#[derive(Default)]
struct Count {
    intervals: u64,
    disturbed: u64,
    chunks: u64,
    contended: u64,
    took_us: Vec<f64>,
}

impl Count {
    fn add(&mut self, turns: [Turn; 2]) {
        if turns.iter().any(|turn| turn.is_disturbed) {
            self.disturbed += 1;
            return;
        }
        self.intervals += 1;
        self.chunks += turns.iter().map(|turn| turn.chunks).sum::<u64>();
        self.contended += turns.iter().map(|turn| turn.contended).sum::<u64>();
        self.took_us.extend(turns.iter().map(|turn| turn.took_ns / 1e3));
    }

    fn contended_pct(&self) -> f64 {
        // Counts are in the thousands.
        100.0 * self.contended as f64 / (self.chunks.max(1) as f64)
    }
}

fn herd(log: &mut Log, cpus: [u32; 2]) -> Result<()> {
    let most = cpus[0].max(cpus[1]) + 1;
    let pcp = pcp(Tier::Best, most)?;
    let mut counts = WAYS.map(|_| Count::default());
    let began = Instant::now();
    while began.elapsed() < LONG && counts.iter().any(|count| count.intervals < ENOUGH) {
        for (way, count) in WAYS.iter().zip(&mut counts) {
            block(&pcp, way, cpus)?.into_iter().for_each(|turns| count.add(turns));
        }
    }
    log.line(format!(
        "\nTwo CPUs, one run each in every {} ms, {:?} lists. Contended: holds of the lock that found it taken. Run: median us",
        INTERVAL_NS / 1_000_000,
        pcp.tier()
    ));
    log.line("| schedule | intervals | omitted | holds | contended | % | run |");
    log.line("|---|---|---|---|---|---|---|");
    for (way, count) in WAYS.iter().zip(&counts) {
        log.line(format!(
            "| {} | {} | {} | {} | {} | {:.2} | {} |",
            way.name,
            count.intervals,
            count.disturbed,
            count.chunks,
            count.contended,
            count.contended_pct(),
            spread(&count.took_us)
        ));
    }
    ensure!(
        counts.iter().all(|count| count.intervals > 0),
        "all intervals were disturbed: this machine is too busy to measure two CPUs at the same time"
    );
    log.result("contended_aligned_pct", counts[0].contended_pct());
    log.result("contended_spread_pct", counts[1].contended_pct());
    Ok(())
}

/// Some intervals of one way. Returns the runs of both CPUs in each.
fn block(pcp: &PcpLists<'static>, way: &Way, cpus: [u32; 2]) -> Result<Vec<[Turn; 2]>> {
    let most = cpus[0].max(cpus[1]) + 1;
    // All other CPUs are on another node, so that these two have the places 0 and 1, whatever their numbers are.
    let nodes: Vec<u32> = (0..most).map(|cpu| u32::from(!cpus.contains(&cpu))).collect();
    let mut slots: Vec<Slot> = (0..most).map(|_| Slot::default()).collect();
    let interval = Interval::from_ns(INTERVAL_NS).context("an interval")?;
    let config = HousekeeperConfig { interval, pace: way.pace, nodes: &nodes };
    let keeper = Housekeeper::new(std::slice::from_ref(pcp), &mut slots, way.schedule, &config);
    cpus.iter().for_each(|&cpu| assert!(keeper.online(cpu)));
    let gate = Gate { clock: Instant::now(), start: Mutex::new((0, 0)), came: AtomicUsize::new(0) };
    let lane = |cpu| Lane { pcp, keeper: &keeper, cpu, gate: &gate }.run();
    let (one, other) = thread::scope(|s| {
        let other = s.spawn(move || lane(cpus[1]));
        let one = s.spawn(move || lane(cpus[0]));
        (one.join(), other.join())
    });
    let (one, other) = (one.expect("a thread of the bench")?, other.expect("a thread of the bench")?);
    Ok(one.into_iter().zip(other).map(|(one, other)| [one, other]).collect())
}

/// Where two threads wait for each other before each interval, and the clock that starts there.
struct Gate {
    clock: Instant,
    /// Real time at the start of the interval, and the threads' clock at that moment: a multiple of the interval.
    start: Mutex<(u64, u64)>,
    came: AtomicUsize,
}

impl Gate {
    fn real_ns(&self) -> u64 {
        u64::try_from(self.clock.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn start(&self) -> (u64, u64) {
        *self.start.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the other thread without leaving the CPU. The last to arrive starts the next interval.
    fn arrive(&self, meeting: usize) {
        if self.came.fetch_add(1, Ordering::AcqRel) % 2 == 1 {
            let (real, said) = self.start();
            let now = self.real_ns();
            let next = (said + (now - real)) / INTERVAL_NS + 1;
            *self.start.lock().unwrap_or_else(PoisonError::into_inner) = (now, next * INTERVAL_NS);
            self.came.fetch_add(2, Ordering::AcqRel);
        }
        // At each meeting two threads arrive and two are added.
        while self.came.load(Ordering::Acquire) < 4 * meeting {
            hint::spin_loop();
        }
    }
}

/// A thread on its CPU.
struct Lane<'a> {
    pcp: &'a PcpLists<'static>,
    keeper: &'a Housekeeper<'a, 'static, &'static dyn Schedule>,
    cpu: u32,
    gate: &'a Gate,
}

impl Lane<'_> {
    fn run(&self) -> Result<Vec<Turn>> {
        let mut buffer = vec![FrameNo(0); FILL];
        let mut prepare = || {
            pin(self.cpu)?;
            let_keep_all(self.pcp, self.cpu)?;
            fill_with_neighbours(self.pcp, self.cpu, &mut buffer)
        };
        let prepared = prepare();
        // A thread that fails must not leave the other waiting.
        let turns = (1..=BLOCK_INTERVALS).map(|meeting| {
            self.gate.arrive(meeting);
            if prepared.is_ok() { self.interval(&mut buffer) } else { Ok(Turn::default()) }
        });
        let turns: Vec<Result<Turn>> = turns.collect();
        prepared?;
        turns.into_iter().collect()
    }

    /// Runs the current interval: fills the list, and drains when that is due.
    fn interval(&self, buffer: &mut [FrameNo]) -> Result<Turn> {
        let (began_ns, start_ns) = self.gate.start();
        let now_ns = || start_ns + (self.gate.real_ns() - began_ns);
        let switches = involuntary_switches();
        // First, runs that were deferred or could not start when due, because the clock stood still. In the first
        // interval, also the first scan.
        self.keeper.shepherd(now_ns());
        while self.keeper.due_ns(self.cpu).is_some_and(|due| due < start_ns + INTERVAL_NS / 10) {
            self.keeper.tick(self.cpu, now_ns());
        }
        fill_with_neighbours(self.pcp, self.cpu, buffer)?;
        let is_filled = now_ns() < start_ns + FILL_UNTIL_NS;
        let Some(due_ns) = self.keeper.due_ns(self.cpu) else {
            return Ok(Turn { is_disturbed: true, ..Turn::default() });
        };
        while now_ns() < due_ns {
            hint::spin_loop();
        }
        let (real, now_ns) = (Instant::now(), now_ns());
        let tick = self.keeper.tick(self.cpu, now_ns);
        let took_ns = real.elapsed().as_nanos() as f64;
        let is_as_wanted = tick.run == Run::Decay && tick.decayed.drained + u64::from(tick.decayed.left) == GOES;
        let is_on_time = is_filled && now_ns - due_ns <= LATE_NS;
        let is_disturbed = !(is_as_wanted && is_on_time) || involuntary_switches() != switches;
        let contended = u64::from(tick.decayed.contended);
        // An attempt that found the lock taken counts as well.
        let chunks = u64::from(tick.decayed.chunks) + u64::from(tick.decayed.is_deferred());
        Ok(Turn { chunks, contended, took_ns, is_disturbed })
    }
}

fn drain(log: &mut Log, cpu: u32) -> Result<()> {
    pin(cpu).with_context(|| format!("pin the thread to CPU {cpu}"))?;
    log.line(
        "\nA run, ns per drained frame: median (min to max); runs during which the thread was preempted are omitted",
    );
    log.line("| lists | frames | ns a frame | us a run | omitted |");
    log.line("|---|---|---|---|---|");
    let mut tiers = vec![pcp(Tier::Locked, cpu + 1)?];
    tiers.extend(pcp(Tier::Restartable, cpu + 1));
    let mut aged = f64::NAN;
    for pcp in &tiers {
        let_keep_all(pcp, cpu)?;
        let neighbours = Drains::of_neighbours(pcp, cpu)?;
        let at_random = Drains::at_random(pcp, cpu)?;
        neighbours.print(log, pcp.tier(), "neighbours");
        at_random.print(log, pcp.tier(), "aged, at random");
        // The last tier is the one that programs use.
        aged = median(&at_random.per_frame_ns);
    }
    log.result("drain_ns_per_page", aged);
    Ok(())
}

#[derive(Default)]
struct Drains {
    per_frame_ns: Vec<f64>,
    left_out: u64,
}

impl Drains {
    fn of_neighbours(pcp: &PcpLists<'_>, cpu: u32) -> Result<Drains> {
        let mut buffer = vec![FrameNo(0); FILL];
        let mut drains = Drains::default();
        for _ in 0..DRAINS {
            fill_with_neighbours(pcp, cpu, &mut buffer)?;
            drains.one(pcp, cpu)?;
        }
        pcp.drain(cpu);
        Ok(drains)
    }

    /// A random half of the zone stays in use, so that freed frames find a free buddy half of the time.
    fn at_random(pcp: &PcpLists<'_>, cpu: u32) -> Result<Drains> {
        let mut rng = Rng::new(1);
        let mut held = vec![FrameNo(0); usize::try_from(FRAMES)?];
        let got = pcp.alloc_bulk(Order::FRAME, MOVABLE, &mut held);
        held.truncate(got);
        (1..got).rev().try_for_each(|last| below(&mut rng, last + 1).map(|other| held.swap(last, other)))?;
        pcp.free_bulk(&held.split_off(got / 2), Order::FRAME)?;
        let mut drains = Drains::default();
        let mut buffer = vec![FrameNo(0); FILL];
        for _ in 0..DRAINS {
            // Raises the limit of the list and leaves the list empty. Then adds frames from random places.
            fill_with_neighbours(pcp, cpu, &mut [])?;
            for _ in 0..FILL {
                let at = below(&mut rng, held.len())?;
                pcp.free(held.swap_remove(at), Order::FRAME)?;
            }
            drains.one(pcp, cpu)?;
            pcp.drain(cpu);
            let got = pcp.alloc_bulk(Order::FRAME, MOVABLE, &mut buffer);
            held.extend(&buffer[..got]);
        }
        pcp.free_bulk(&held, Order::FRAME)?;
        Ok(drains)
    }

    fn one(&mut self, pcp: &PcpLists<'_>, cpu: u32) -> Result<()> {
        let switches = involuntary_switches();
        let began = Instant::now();
        let decayed = pcp.decay(cpu, &WAITS);
        let took = began.elapsed();
        ensure!(decayed.drained == GOES, "a run drained {} frames and should have drained {GOES}", decayed.drained);
        if involuntary_switches() == switches {
            self.per_frame_ns.push(took.as_nanos() as f64 / GOES as f64);
        } else {
            self.left_out += 1;
        }
        Ok(())
    }

    fn print(&self, log: &mut Log, tier: Tier, what: &str) {
        log.line(format!(
            "| {tier:?} | {what} | {} | {:.1} | {} |",
            spread(&self.per_frame_ns),
            median(&self.per_frame_ns) * GOES as f64 / 1e3,
            self.left_out
        ));
    }
}

fn below(rng: &mut Rng, n: usize) -> Result<usize> {
    Ok(usize::try_from(rng.below(n as u64))?)
}
