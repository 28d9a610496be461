//! When runs start: on each CPU, and on CPUs together.
//!
//! The phase of a run is the position of its start in the interval. If ticks are known, phase 0 is the tick at which
//! the kernel rounds to whole seconds, so that phases can be compared with the kernel's schedule: `round_jiffies` puts
//! the timer of CPU c at 3c ticks *before* it. The timer wheel then moves a timer that is due in 63 ticks or more up to
//! the next multiple of 8 ticks, and one that is due in 504 or more up to a multiple of 64. So at 1,000 ticks a second,
//! the timers of 21 or 22 neighbouring CPUs expire on the same tick.

use crate::observed::{Cause, Run};
use serde::Serialize;
use std::collections::HashMap;
use std::f64::consts::TAU;

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1000 * MS;

/// Runs that start within this time are counted as together. A CPU returns at most 32 times 63 pages in a run. At 150
/// ns a page, that holds a zone's lock for about 0.3 ms. So runs more than a millisecond apart do not contend, except
/// on slow debug kernels.
pub const TOGETHER_NS: u64 = MS;
/// Contention needs at least this many CPUs: of two CPUs only one can wait.
pub(crate) const MIN_CPUS: u64 = 3;
/// A run is off phase if the time since the CPU's previous run differs from the interval by more than the interval
/// divided by this. The timer wheel alone moves runs by up to 64 ticks of 1,000, or 8 of 100: less than a tenth.
const OFF_SHARE: u64 = 10;

/// One run, as the picture shows it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Mark {
    /// The CPU.
    pub cpu: u32,
    /// When it began, from the start of the observation.
    pub start_ns: u64,
    /// How long it took.
    pub took_ns: u64,
    /// The position of its start in the interval.
    pub phase_ns: u64,
    /// Why it ran.
    pub cause: Cause,
    /// It did not start one interval after its CPU's previous run. Always false for a CPU's first run.
    pub off_phase: bool,
}

/// Time between the runs of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Spacing {
    /// The median.
    pub median_ns: u64,
    /// The shortest.
    pub least_ns: u64,
    /// The longest.
    pub most_ns: u64,
}

/// The runs of one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CpuPhase {
    /// The CPU.
    pub cpu: u32,
    /// Number of runs.
    pub runs: u64,
    /// Runs that the shepherd started.
    pub kicked_runs: u64,
    /// Runs that are off phase.
    pub off_phase_runs: u64,
    /// Time between one run and the next; `None` if there is only one run.
    pub spacing: Option<Spacing>,
    /// The mean phase of the runs that its own timer started, or of all runs if there are none; `None` if the phases
    /// cancel out.
    pub phase_ns: Option<u64>,
    /// Their spread about the mean: a circular standard deviation, at most the interval.
    pub phase_spread_ns: u64,
}

/// Runs of all CPUs together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Together {
    /// The highest number of runs in progress at one instant.
    pub most_overlapping: u64,
    /// The highest number of CPUs that started within a tick; `None` without ticks.
    pub most_in_a_tick: Option<u64>,
    /// The highest number of CPUs that started within a millisecond.
    pub most_in_a_ms: u64,
    /// The number of CPUs that random phases would bring together in one of a hundred such observations.
    pub most_by_chance: u64,
    /// Runs that started within a millisecond of a run on another CPU, percent.
    pub in_company_pct: f64,
    /// The same with random phases.
    pub in_company_by_chance_pct: f64,
    /// Runs that started in a millisecond with three CPUs or more, and with more CPUs than random phases bring
    /// together, percent.
    pub in_herd_pct: f64,
    /// Runs that the shepherd started, percent of the runs in the millisecond with the most CPUs.
    pub most_kicked_pct: f64,
}

/// The kernel's own schedule.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Schedule {
    /// The timer wheel moves timers that are due in the interval to multiples of this many ticks.
    pub wheel_ticks: u64,
    /// Online CPUs that this puts on one tick, although their timers are 3 ticks apart.
    pub cpus_on_a_tick: u64,
    /// Runs started by timers.
    pub timer_runs: u64,
    /// Timer runs that came at their CPU's place in the schedule, or later by no more than the wheel explains, percent.
    pub on_schedule_pct: Option<f64>,
}

/// Ticks per second: the nearest usual value, or the measured one if none is near. `None` if the runs span less than
/// half a second.
pub(crate) fn ticks_a_second(runs: &[Run]) -> Option<u32> {
    const USUAL: [u32; 8] = [100, 128, 200, 250, 256, 300, 1000, 1024];
    let (first, last) = (runs.first()?, runs.last()?);
    let ns = last.start_ns.checked_sub(first.start_ns).filter(|ns| *ns >= SECOND / 2)?;
    let ticks = last.jiffies.checked_sub(first.jiffies)?;
    let hz = ticks as f64 * SECOND as f64 / ns as f64;
    let off = |usual: &u32| (hz / f64::from(*usual) - 1.0).abs();
    let usual = USUAL.into_iter().min_by(|a, b| off(a).total_cmp(&off(b)))?;
    let exact = u32::try_from(nearest(hz)).ok()?;
    Some(if off(&usual) < 0.015 { usual } else { exact }).filter(|hz| *hz > 0)
}

/// The nearest whole number; 0 for anything negative or not a number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates, which is what is wanted"
)]
fn nearest(value: f64) -> u64 {
    value.round().max(0.0) as u64
}

/// Converts times to phases.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// An instant of phase 0. It may be before all runs or after them.
    zero_ns: i128,
    interval_ns: u64,
}

impl Clock {
    pub(crate) fn new(runs: &[Run], hz: Option<u32>, interval_ns: u64) -> Clock {
        // A run starts after its tick, never before it. The run with the shortest delay gives the best estimate.
        let of_tick_zero = |hz: u32| {
            let at =
                |run: &Run| i128::from(run.start_ns) - i128::from(run.jiffies) * i128::from(SECOND) / i128::from(hz);
            runs.iter().map(at).min()
        };
        Clock { zero_ns: hz.and_then(of_tick_zero).unwrap_or(0), interval_ns }
    }

    fn phase(&self, ns: u64) -> u64 {
        let phase = (i128::from(ns) - self.zero_ns).rem_euclid(i128::from(self.interval_ns));
        u64::try_from(phase).unwrap_or(0)
    }
}

/// The runs as the picture shows them. `runs` are sorted by their start.
pub(crate) fn marks(runs: &[Run], clock: &Clock, from_ns: u64) -> Vec<Mark> {
    let mut before: HashMap<u32, u64> = HashMap::new();
    let mark = |run: &Run| {
        let since = before.insert(run.cpu, run.start_ns).map(|before| run.start_ns - before);
        Mark {
            cpu: run.cpu,
            start_ns: run.start_ns.saturating_sub(from_ns),
            took_ns: run.end_ns.saturating_sub(run.start_ns),
            phase_ns: clock.phase(run.start_ns),
            cause: run.cause,
            off_phase: since.is_some_and(|ns| ns.abs_diff(clock.interval_ns) > clock.interval_ns / OFF_SHARE),
        }
    };
    runs.iter().map(mark).collect()
}

/// The runs of each CPU, by CPU number. `marks` are sorted by their start.
pub(crate) fn by_cpu(marks: &[Mark], interval_ns: u64) -> Vec<CpuPhase> {
    let mut of_cpu: HashMap<u32, Vec<&Mark>> = HashMap::new();
    for mark in marks {
        of_cpu.entry(mark.cpu).or_default().push(mark);
    }
    let mut cpus: Vec<CpuPhase> = of_cpu.into_iter().map(|(cpu, marks)| one_cpu(cpu, &marks, interval_ns)).collect();
    cpus.sort_unstable_by_key(|c| c.cpu);
    cpus
}

fn one_cpu(cpu: u32, marks: &[&Mark], interval_ns: u64) -> CpuPhase {
    let mut between: Vec<u64> = marks.windows(2).map(|pair| pair[1].start_ns - pair[0].start_ns).collect();
    between.sort_unstable();
    let of_timer: Vec<u64> = marks.iter().filter(|m| m.cause == Cause::Timer).map(|m| m.phase_ns).collect();
    let phases = if of_timer.is_empty() { marks.iter().map(|m| m.phase_ns).collect() } else { of_timer };
    let (phase_ns, phase_spread_ns) = circular(&phases, interval_ns);
    CpuPhase {
        cpu,
        runs: marks.len() as u64,
        kicked_runs: marks.iter().filter(|m| m.cause == Cause::Shepherd).count() as u64,
        off_phase_runs: marks.iter().filter(|m| m.off_phase).count() as u64,
        spacing: between.first().zip(between.last()).map(|(least, most)| Spacing {
            median_ns: between[between.len() / 2],
            least_ns: *least,
            most_ns: *most,
        }),
        phase_ns,
        phase_spread_ns,
    }
}

/// The mean of phases on a circle as long as the interval, and their spread about it. Phases that cancel out have no
/// mean.
fn circular(phases: &[u64], interval_ns: u64) -> (Option<u64>, u64) {
    let (mut x, mut y) = (0.0, 0.0);
    for phase in phases {
        let (sin, cos) = (*phase as f64 / interval_ns as f64 * TAU).sin_cos();
        x += cos;
        y += sin;
    }
    let length = x.hypot(y) / phases.len().max(1) as f64;
    if length < 1e-6 {
        return (None, interval_ns);
    }
    let to_ns = |angle: f64| nearest(angle / TAU * interval_ns as f64);
    let spread = to_ns((-2.0 * length.min(1.0).ln()).max(0.0).sqrt()).min(interval_ns);
    (Some(to_ns(y.atan2(x).rem_euclid(TAU)) % interval_ns), spread)
}

/// Statistics of all CPUs together. `runs` are sorted by their start.
pub(crate) fn together(runs: &[Run], period_ns: u64, hz: Option<u32>) -> Together {
    let company = company(runs, TOGETHER_NS);
    let in_company = company.iter().filter(|c| **c).count();
    let peak = peak(runs, TOGETHER_NS);
    let most_by_chance = most_by_chance(runs.len(), period_ns);
    let in_herd = in_groups(runs, TOGETHER_NS, MIN_CPUS.max(most_by_chance + 1));
    let kicked = peak.iter().filter(|r| r.cause == Cause::Shepherd).count();
    let pct = |part: usize, whole: usize| if whole == 0 { 0.0 } else { part as f64 / whole as f64 * 100.0 };
    Together {
        most_overlapping: most_overlapping(runs),
        most_in_a_tick: hz.map(|hz| most_within(runs, SECOND / u64::from(hz))),
        most_in_a_ms: most_within(runs, TOGETHER_NS),
        most_by_chance,
        in_company_pct: pct(in_company, runs.len()),
        in_company_by_chance_pct: company_by_chance(runs, period_ns) * 100.0,
        in_herd_pct: pct(in_herd, runs.len()),
        most_kicked_pct: pct(kicked, peak.len()),
    }
}

/// The highest number of runs in progress at one instant. A run that ends when another begins does not overlap it.
/// Every run overlaps itself.
fn most_overlapping(runs: &[Run]) -> u64 {
    let mut ends: Vec<u64> = runs.iter().map(|r| r.end_ns.max(r.start_ns + 1)).collect();
    ends.sort_unstable();
    let (mut ended, mut most) = (0, 0);
    for (begun, run) in runs.iter().enumerate() {
        while ends.get(ended).is_some_and(|end| *end <= run.start_ns) {
            ended += 1;
        }
        most = most.max(begun + 1 - ended);
    }
    most as u64
}

/// For each run, in order of time: the number of different CPUs that started at most `window_ns` before it, both ends
/// and itself included.
pub fn cpus_within(starts: &[(u32, u64)], window_ns: u64) -> Vec<u64> {
    let mut of_cpu: HashMap<u32, u32> = HashMap::new();
    let mut first = 0;
    let count = |(cpu, start): &(u32, u64)| {
        *of_cpu.entry(*cpu).or_default() += 1;
        while start - starts[first].1 > window_ns {
            let gone = starts[first].0;
            if let Some(count) = of_cpu.get_mut(&gone) {
                *count -= 1;
                if *count == 0 {
                    of_cpu.remove(&gone);
                }
            }
            first += 1;
        }
        of_cpu.len() as u64
    };
    starts.iter().map(count).collect()
}

/// The number of runs in windows with `cpus` or more different CPUs.
fn in_groups(runs: &[Run], window_ns: u64, cpus: u64) -> usize {
    let starts: Vec<(u32, u64)> = runs.iter().map(|r| (r.cpu, r.start_ns)).collect();
    let (mut counted, mut groups) = (0, 0);
    for (last, count) in cpus_within(&starts, window_ns).into_iter().enumerate() {
        if count >= cpus {
            let first = runs.partition_point(|r| runs[last].start_ns.saturating_sub(r.start_ns) > window_ns);
            groups += last + 1 - first.max(counted);
            counted = last + 1;
        }
    }
    groups
}

/// The runs of the first window with the highest number of different CPUs.
fn peak(runs: &[Run], window_ns: u64) -> &[Run] {
    let starts: Vec<(u32, u64)> = runs.iter().map(|r| (r.cpu, r.start_ns)).collect();
    let counts = cpus_within(&starts, window_ns);
    let Some(last) = (0..runs.len()).rev().max_by_key(|i| counts[*i]) else { return &[] };
    let first = runs.partition_point(|r| runs[last].start_ns.saturating_sub(r.start_ns) > window_ns);
    &runs[first..=last]
}

/// The highest number of different CPUs whose runs start within `window_ns`.
fn most_within(runs: &[Run], window_ns: u64) -> u64 {
    let starts: Vec<(u32, u64)> = runs.iter().map(|r| (r.cpu, r.start_ns)).collect();
    cpus_within(&starts, window_ns).into_iter().max().unwrap_or(0)
}

/// Whether each run starts within `window_ns` of a run of another CPU.
fn company(runs: &[Run], window_ns: u64) -> Vec<bool> {
    // Searches for the nearest run of another CPU, before and after. Runs of one CPU are an interval apart, so it is
    // mostly the next run.
    let other = |run: &Run, near: &mut dyn Iterator<Item = &Run>| {
        near.take_while(|r| r.start_ns.abs_diff(run.start_ns) <= window_ns).any(|r| r.cpu != run.cpu)
    };
    let has = |index: usize| {
        let run = &runs[index];
        other(run, &mut runs[..index].iter().rev()) || other(run, &mut runs[index + 1..].iter())
    };
    (0..runs.len()).map(has).collect()
}

/// The expected share of runs within a millisecond of another CPU's, if each CPU had the same number of runs at random
/// times.
fn company_by_chance(runs: &[Run], period_ns: u64) -> f64 {
    if period_ns == 0 || runs.is_empty() {
        return 0.0;
    }
    let mut of_cpu: HashMap<u32, u32> = HashMap::new();
    for run in runs {
        *of_cpu.entry(run.cpu).or_default() += 1;
    }
    // ln of the probability that a CPU with `count` runs has none within the window on either side of a given instant.
    let alone = |count: u32| {
        let covered = 2.0 * TOGETHER_NS as f64 * f64::from(count) / period_ns as f64;
        (1.0 - covered.min(0.999_999)).ln()
    };
    let all: f64 = of_cpu.values().map(|count| alone(*count)).sum();
    let shares: f64 = of_cpu.values().map(|count| f64::from(*count) * (1.0 - (all - alone(*count)).exp())).sum();
    shares / runs.len() as f64
}

/// The number of runs within a millisecond that random times reach in 1 of 100 observations: the lowest k for which
/// fewer than 0.01 of the windows that begin with a run are expected to hold more than k. Runs with fixed phases repeat
/// and are fewer draws than runs, so the result is too high rather than too low.
fn most_by_chance(runs: usize, period_ns: u64) -> u64 {
    if period_ns == 0 || runs == 0 {
        return 0;
    }
    let expected = runs as f64 * TOGETHER_NS as f64 / period_ns as f64;
    // The probability that exactly `others` more runs start in the window, and that more than those do.
    let mut exactly = (-expected).exp();
    let mut more = 1.0 - exactly;
    let mut others = 0_u64;
    while runs as f64 * more >= 0.01 && others < runs as u64 {
        others += 1;
        exactly *= expected / others as f64;
        more = (more - exactly).max(0.0);
    }
    others + 1
}

/// The granularity, in ticks, at which the timer wheel holds a timer that is due in `ticks`. Each level has 64 slots
/// and is 8 times as coarse as the one below. A timer moves up to the coarser level one slot early.
pub(crate) fn wheel_ticks(ticks: u64) -> u64 {
    let mut grain = 1;
    while ticks >= 63 * grain && grain < 8_u64.pow(8) {
        grain *= 8;
    }
    grain
}

/// A run may begin this many ticks after the wheel's: the tick itself, and one until a worker gets a CPU.
const SLACK_TICKS: u64 = 2;

pub(crate) fn schedule(runs: &[Run], hz: u32, interval_ns: u64, online: usize) -> Schedule {
    let hz = u64::from(hz);
    let wheel = wheel_ticks(hz * (interval_ns / SECOND));
    let of_timers = runs.iter().filter(|r| r.cause == Cause::Timer);
    let (mut timer_runs, mut on_schedule) = (0_u64, 0_u64);
    for run in of_timers {
        timer_runs += 1;
        let late = (run.jiffies + 3 * u64::from(run.cpu)) % hz;
        on_schedule += u64::from(late <= wheel + SLACK_TICKS);
    }
    Schedule {
        wheel_ticks: wheel,
        cpus_on_a_tick: wheel.div_ceil(3).min(online as u64),
        timer_runs,
        on_schedule_pct: (timer_runs > 0).then(|| on_schedule as f64 / timer_runs as f64 * 100.0),
    }
}

#[cfg(test)]
pub(crate) mod naive {
    //! What the quick ways above have to agree with.

    use super::*;

    pub fn most_overlapping(runs: &[Run]) -> u64 {
        let with = |run: &Run| {
            let at = run.start_ns;
            runs.iter().filter(|r| r.start_ns <= at && at < r.end_ns.max(r.start_ns + 1)).count()
        };
        runs.iter().map(with).max().unwrap_or(0) as u64
    }

    pub fn most_within(runs: &[Run], window_ns: u64) -> u64 {
        let with = |run: &Run| {
            let cpus = runs.iter().filter(|r| r.start_ns >= run.start_ns && r.start_ns - run.start_ns <= window_ns);
            cpus.map(|r| r.cpu).collect::<std::collections::HashSet<_>>().len()
        };
        runs.iter().map(with).max().unwrap_or(0) as u64
    }

    pub fn company(runs: &[Run], window_ns: u64) -> Vec<bool> {
        let near = |a: &Run, b: &Run| a.cpu != b.cpu && a.start_ns.abs_diff(b.start_ns) <= window_ns;
        runs.iter().map(|run| runs.iter().any(|other| near(run, other))).collect()
    }

    pub fn in_groups(runs: &[Run], window_ns: u64, cpus: u64) -> usize {
        let from = |first: &Run| {
            let window: Vec<&Run> = runs
                .iter()
                .filter(|r| r.start_ns >= first.start_ns && r.start_ns - first.start_ns <= window_ns)
                .collect();
            let different = window.iter().map(|r| r.cpu).collect::<std::collections::HashSet<_>>().len() as u64;
            if different >= cpus { window } else { Vec::new() }
        };
        let marked: Vec<&Run> = runs.iter().flat_map(from).collect();
        runs.iter().filter(|run| marked.iter().any(|m| std::ptr::eq(*m, *run))).count()
    }

    pub fn agrees(runs: &[Run], window_ns: u64) {
        assert_eq!(super::most_overlapping(runs), most_overlapping(runs), "{runs:?}");
        assert_eq!(super::most_within(runs, window_ns), most_within(runs, window_ns), "{runs:?}");
        for cpus in 1..5 {
            assert_eq!(super::in_groups(runs, window_ns, cpus), in_groups(runs, window_ns, cpus), "{cpus} {runs:?}");
        }
        assert_eq!(super::company(runs, window_ns), company(runs, window_ns), "{runs:?}");
    }
}
