//! Worked numbers, rules, and two comparisons: with a model that goes nanosecond by nanosecond ([`naive`]), and with a
//! table that another simulation gave ([`table`]).

mod naive;
mod table;

use super::*;
use isotherm_frames::housekeep::schedule::{Aligned, Even, Proposed, Skewed};
use isotherm_frames::housekeep::{CpuPosition, Interval, Schedule, Spread};
use proptest::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const SECOND: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
const HOLD: u32 = 10_000;

/// Nothing by chance: every run drains `chunks`, when it is due.
fn exact(cpus: u32, chunks: u32, intervals: u64) -> DrainModel {
    DrainModel {
        duration_ns: intervals * SECOND,
        work: Work { share: 1.0, least: chunks, most: chunks },
        foreground: Foreground::NONE,
        latency: Latency::NONE,
        ..DrainModel::new(cpus)
    }
}

fn run(model: &DrainModel, schedule: &dyn Schedule) -> Outcome {
    model.run(schedule, &Holds::constant(HOLD), 1).unwrap()
}

/// A phase for each CPU, as a test wants them.
#[derive(Clone, Debug)]
struct Phases(Vec<u64>);

impl Schedule for Phases {
    fn next_due(&self, position: CpuPosition, interval: Interval, now_ns: u64) -> u64 {
        let phase_ns = self.0[position.cpu as usize];
        if now_ns < phase_ns { phase_ns } else { phase_ns + ((now_ns - phase_ns) / interval.ns() + 1) * interval.ns() }
    }
}

#[test]
fn a_herd_of_single_chunks_waits_as_worked_out() {
    let hold = u64::from(HOLD);
    for k in [1, 2, 3, 8, 72, 1024] {
        let waits = run(&exact(k, 1, 1), &Aligned).all();
        let k = u64::from(k);
        assert_eq!((waits.acquisitions, waits.contended), (k, k - 1));
        assert_eq!((waits.wait_ns, waits.max_wait_ns), (k * (k - 1) / 2 * hold, (k - 1) * hold));
    }
}

#[test]
fn a_herd_of_several_chunks_waits_for_nearly_each() {
    // Everyone queues behind everyone else: all but the first wait, the first round 0 to k-1 holds, all others k-1.
    let (k, m, hold) = (8, 5, u64::from(HOLD));
    let waits = run(&exact(8, 5, 1), &Aligned).all();
    assert_eq!((waits.acquisitions, waits.contended), (k * m, k * m - 1));
    assert_eq!(
        (waits.wait_ns, waits.max_wait_ns),
        (k * (k - 1) / 2 * hold + k * (m - 1) * (k - 1) * hold, (k - 1) * hold)
    );
    assert_eq!(waits.mean_wait_ns(), waits.wait_ns as f64 / (k * m - 1) as f64);
}

#[test]
fn runs_that_are_apart_never_wait() {
    for cpus in [2, 8, 72, 192] {
        let model = exact(cpus, 8, 20);
        let outcome = run(&model, &Spread);
        assert_eq!((outcome.all().contended, outcome.all().max_wait_ns), (0, 0));
        assert_eq!(outcome.due_intervals, Some(Extent { shortest_ns: SECOND, longest_ns: SECOND }));
        assert_eq!(outcome.start_intervals, outcome.due_intervals);
        assert_eq!(outcome.runs, 20 * u64::from(cpus));
    }
}

#[test]
fn nodes_do_not_wait_for_each_other() {
    // Two herds of four, each as of four CPUs alone.
    let one = run(&exact(4, 3, 5), &Aligned).all();
    let two = run(&DrainModel { nodes: 2, ..exact(8, 3, 5) }, &Aligned).all();
    assert_eq!((two.contended, two.wait_ns, two.max_wait_ns), (2 * one.contended, 2 * one.wait_ns, one.max_wait_ns));
    // Seven CPUs on three nodes: each node has its places from 0, and so two CPUs may have one phase.
    let model = DrainModel { nodes: 3, ..exact(7, 1, 5) };
    assert_eq!([0, 1, 2, 3, 4, 5, 6].map(|cpu| model.node_of(cpu)), [0, 0, 0, 1, 1, 2, 2]);
    assert_eq!(run(&model, &Spread).all().contended, 0);
}

#[test]
fn waits_are_told_by_who_waits() {
    // A thousand bursts a second into two CPUs that hold the lock all the time: nearly every burst waits.
    let foreground = Foreground { rate: Rate::Machine(1000.0), burst: 2 };
    let model = DrainModel { foreground, ..exact(2, 45_000, 1) };
    let outcome = run(&DrainModel { duration_ns: 2 * SECOND, ..model.clone() }, &Aligned);
    assert_eq!(outcome.housekeeping.acquisitions, outcome.chunks_drained);
    assert!(outcome.foreground.acquisitions > 2 * 1800, "{outcome:?}");
    assert!(outcome.foreground.contended * 10 > outcome.foreground.acquisitions * 4, "{outcome:?}");
    assert_eq!(outcome.all().contended, outcome.foreground.contended + outcome.housekeeping.contended);
    // Nobody else: bursts only meet bursts.
    let floor = run(&DrainModel { work: Work::NONE, ..model }, &Aligned);
    assert_eq!((floor.housekeeping, floor.chunks_found), (Waits::default(), 0));
    assert!(floor.foreground.contended > 0 && floor.foreground.contended * 10 < floor.foreground.acquisitions);
}

#[test]
fn a_rate_for_each_cpu_grows_with_them() {
    let bursts = |rate, cpus| {
        let model = DrainModel { foreground: Foreground { rate, burst: 1 }, work: Work::NONE, ..DrainModel::new(cpus) };
        run(&model, &Spread).foreground.acquisitions
    };
    // 6,000 and 24,000 expected; 4 standard deviations.
    assert!(bursts(Rate::EachCpu(10.0), 10).abs_diff(6_000) < 310);
    assert!(bursts(Rate::EachCpu(10.0), 40).abs_diff(24_000) < 620);
    assert!(bursts(Rate::Machine(100.0), 40).abs_diff(6_000) < 310);
}

#[test]
fn latencies_are_as_told() {
    let latency = Latency { mean_ns: 100_000, late_share: 0.0, late_most_ns: 0 };
    let model = DrainModel { latency, work: Work::NONE, foreground: Foreground::NONE, ..DrainModel::new(1) };
    let outcome = run(&model, &Spread);
    let (due, start) = (outcome.due_intervals.unwrap(), outcome.start_intervals.unwrap());
    assert_eq!(due.worst_error(SECOND), 0.0);
    assert!(start.longest_ns > SECOND + 100_000 && start.longest_ns < SECOND + 2 * MS, "{start:?}");
    let late = DrainModel { latency: Latency { mean_ns: 0, late_share: 1.0, late_most_ns: 3 * MS }, ..model };
    let start = run(&late, &Spread).start_intervals.unwrap();
    assert!(start.worst_error(SECOND) > 0.001 && start.worst_error(SECOND) <= 0.003, "{start:?}");
}

#[test]
fn the_first_proposal_has_longer_intervals_and_ours_has_not() {
    let of = |schedule: &dyn Schedule| run(&exact(72, 1, 60), schedule).due_intervals.unwrap();
    let proposed = of(&Proposed);
    assert_eq!(proposed.shortest_ns / MS, 1000);
    assert_eq!(proposed.longest_ns / MS, 1986);
    assert_eq!(of(&Skewed { hz: 1000 }).worst_error(SECOND), 0.0);
    assert_eq!(of(&Spread).worst_error(SECOND), 0.0);
    assert_eq!(Extent { shortest_ns: 900, longest_ns: 1300 }.worst_error(1000), 0.3);
}

#[test]
fn a_kick_is_at_once_in_kernels_and_changes_nothing_at_phases() {
    // All are kicked at whole seconds: aligned. Nobody runs more often for it.
    let kicked = DrainModel { shepherd: Some(Shepherd::kicking(1.0)), ..exact(72, 1, 10) };
    let (kernels, aligned) = (run(&kicked, &Skewed { hz: 1000 }), run(&exact(72, 1, 10), &Aligned));
    assert_eq!(kernels.kicks, kernels.kicked_runs);
    assert_eq!(kernels.kicks, 72 * 10);
    assert_eq!((kernels.runs, kernels.all().contended), (720, 71 * 10));
    assert_eq!(aligned.all().contended, 71 * 10);
    let ours = run(&kicked, &Spread);
    assert!(ours.kicks > 700 && ours.kicked_runs == 0, "{ours:?}");
    assert_eq!(Outcome { kicks: 0, ..ours }, run(&exact(72, 1, 10), &Spread));
}

#[test]
fn a_kicked_cpu_is_back_at_its_own_instants() {
    #[derive(Debug)]
    struct First(AtomicBool);
    impl Schedule for First {
        fn next_due(&self, _: CpuPosition, interval: Interval, now_ns: u64) -> u64 {
            (now_ns / interval.ns() + 1) * interval.ns()
        }
        /// Once between two instants, and from then on at them.
        fn kicked_due(&self, position: CpuPosition, interval: Interval, now_ns: u64) -> u64 {
            if self.0.swap(false, Relaxed) { now_ns + 1 } else { self.next_due(position, interval, now_ns) }
        }
    }
    let shepherd = Some(Shepherd { share: 1.0, phase_ns: 400 * MS });
    let outcome = run(&DrainModel { shepherd, ..exact(1, 1, 10) }, &First(true.into()));
    // At 0.4 s for that at 1 s; then 2 s to 10 s.
    assert_eq!((outcome.runs, outcome.kicked_runs), (10, 1));
    assert_eq!(outcome.due_intervals.unwrap().worst_error(SECOND), 0.0);
}

#[test]
fn a_deferred_run_comes_back_and_waits_in_the_end() {
    // Two CPUs, three chunks of 10 us each. The second is deferred by 4 us seven times, and then has the lock.
    let model = exact(2, 3, 1);
    let patient = DrainModel { deferral: Some(Deferral { back_off_ns: 4_000, most: 100 }), ..model.clone() };
    let outcome = run(&patient, &Aligned);
    assert_eq!((outcome.defers, outcome.all().contended), (8, 0));
    // After three, it waits from 12 us to 20. The first is deferred at 20, and waits from 32 to 40. The second has had
    // its deferrals, and waits for its last chunk, from 40 to 50.
    let hasty = DrainModel { deferral: Some(Deferral { back_off_ns: 4_000, most: 3 }), ..model.clone() };
    let outcome = run(&hasty, &Aligned);
    let waits = Waits { acquisitions: 6, contended: 3, wait_ns: 26_000, max_wait_ns: 10_000 };
    assert_eq!((outcome.defers, outcome.all()), (6, waits));
    let never = DrainModel { deferral: Some(Deferral { back_off_ns: 4_000, most: 0 }), ..model.clone() };
    assert_eq!(run(&never, &Aligned), run(&model, &Aligned));
}

#[test]
fn who_takes_a_cpu_offline_drains_what_it_leaves() {
    // CPU 1 is due at 0.5 s and goes after the third of its eight chunks has begun.
    let schedule = Phases(vec![100 * MS, 500 * MS]);
    let gone = Plug { at_ns: 500 * MS + 25_000, cpu: 1, online: false };
    let model = DrainModel { hotplug: vec![gone], ..exact(2, 8, 3) };
    let outcome = run(&model, &schedule);
    assert_eq!((outcome.chunks_found, outcome.chunks_drained, outcome.chunks_left_behind), (8 * 3 + 8, 32, 5));
    // It has deferred its first chunk: the lock is CPU 0's. All eight are left behind, and are waited for.
    let together = Phases(vec![500 * MS, 500 * MS]);
    let deferral = Some(Deferral { back_off_ns: 50 * MS, most: 8 });
    let outcome = run(&DrainModel { deferral, ..model.clone() }, &together);
    assert_eq!((outcome.defers, outcome.chunks_left_behind), (1 + 1, 8), "{outcome:?}");
    assert!(outcome.all().contended > 0, "{outcome:?}");
    // It comes back, and has its phase again.
    let back = Plug { at_ns: 800 * MS, cpu: 1, online: true };
    let outcome = run(&DrainModel { hotplug: vec![back, gone], ..model }, &schedule);
    assert_eq!((outcome.runs, outcome.chunks_drained), (6, 48));
}

#[test]
fn ranks_follow_who_is_online_and_numbers_do_not() {
    let odd = || Plug::stride(0, 1, 2, 72, false).collect::<Vec<_>>();
    let model = DrainModel { hotplug: odd(), ..exact(72, 1, 10) };
    let contended =
        |placing, schedule: &dyn Schedule| run(&DrainModel { placing, ..model.clone() }, schedule).all().contended;
    // 36 CPUs in 18 pairs, 10 times.
    assert_eq!(contended(Placing::Numbers, &Even), 180);
    assert_eq!(contended(Placing::Ranks, &Even), 0);
    assert_eq!(contended(Placing::Numbers, &Spread), 0);
    assert_eq!(Plug::stride(5, 1, 4, 10, true).map(|plug| plug.cpu).collect::<Vec<_>>(), [1, 5, 9]);
}

#[test]
fn a_few_of_many_cpus_are_apart_at_whatever_numbers() {
    for online in [vec![0, 511, 1023], vec![1, 2, 3], vec![7]] {
        let model = DrainModel {
            hotplug: (0..1024).map(|cpu| Plug { at_ns: 0, cpu, online: online.contains(&cpu) }).collect(),
            ..exact(1024, 8, 5)
        };
        let outcome = run(&model, &Spread);
        assert_eq!((outcome.runs, outcome.all().contended), (5 * online.len() as u64, 0));
        assert_eq!(outcome.due_intervals.unwrap().worst_error(SECOND), 0.0);
    }
}

#[test]
fn a_run_longer_than_the_interval_leaves_intervals_out() {
    // Eight holds of 10 us, once in 50 us: each second instant is missed, and nothing piles up.
    let interval = Interval::from_ns(50_000).unwrap();
    let outcome = run(&DrainModel { interval, duration_ns: MS, ..exact(1, 8, 1) }, &Aligned);
    assert_eq!(outcome.due_intervals, Some(Extent { shortest_ns: 100_000, longest_ns: 100_000 }));
    assert_eq!((outcome.runs, outcome.all().contended), (10, 0));
}

#[test]
fn nobody_online_is_nothing_to_do() {
    let model = DrainModel { hotplug: Plug::stride(0, 0, 1, 4, false).collect(), ..DrainModel::new(4) };
    assert_eq!(run(&model, &Spread), Outcome { hold_ns: 10_000, ..Outcome::default() });
}

#[test]
fn a_seed_gives_the_same_outcome_and_another_a_different_one() {
    let model = DrainModel {
        shepherd: Some(Shepherd::kicking(0.3)),
        deferral: Some(Deferral::default()),
        hotplug: (1..20).flat_map(|s| Plug::stride(s * SECOND, 1, 3, 72, s % 2 == 0)).collect(),
        nodes: 2,
        ..DrainModel::new(72)
    };
    let holds = Holds::samples((1..500).map(|ns| ns * 50).collect()).unwrap();
    let outcome = |seed| model.run(&Proposed, &holds, seed).unwrap();
    assert_eq!(outcome(7), outcome(7));
    assert_ne!(outcome(7), outcome(8));
}

#[test]
fn the_foreground_is_the_same_under_every_schedule() {
    let bursts = |schedule: &dyn Schedule| run(&DrainModel::new(72), schedule).foreground.acquisitions;
    assert_eq!(bursts(&Aligned), bursts(&Spread));
}

#[test]
fn holds_are_drawn_from_the_samples() {
    let holds = Holds::samples(vec![30, 10, 20, 1000]).unwrap();
    assert_eq!((holds.median_ns(), holds.percentile_ns(100), holds.mean_ns()), (30, 1000, 265.0));
    assert_eq!(holds.scaled(0.5).unwrap().percentile_ns(0), 5);
    // Alone, a CPU's run takes as long as its holds: all four lengths, and nothing else.
    let mut rng = isotherm_rng::Rng::new(1);
    let mut counts = std::collections::BTreeMap::new();
    (0..4000).for_each(|_| *counts.entry(holds.draw(&mut rng)).or_insert(0) += 1);
    assert_eq!(counts.keys().copied().collect::<Vec<_>>(), [10, 20, 30, 1000]);
    assert!(counts.values().all(|count| (850..1150).contains(count)), "{counts:?}");
}

#[test]
fn what_makes_no_herd_is_told() {
    let tell = |model: DrainModel| model.run(&Spread, &Holds::constant(1), 1).unwrap_err().to_string();
    assert_eq!(tell(DrainModel::new(0)), "0 CPUs: give 1 to 1024");
    assert_eq!(tell(DrainModel::new(1025)), "1025 CPUs: give 1 to 1024");
    let nodes = DrainModel { nodes: 9, ..DrainModel::new(8) };
    assert_eq!(tell(nodes), "9 nodes for 8 CPUs: give at least one node, and no more than CPUs");
    let share = DrainModel { shepherd: Some(Shepherd::kicking(1.5)), ..DrainModel::new(8) };
    assert_eq!(tell(share), "CPUs that are kicked: 1.5 is not a share; give 0 to 1");
    let share = DrainModel { work: Work { share: f64::NAN, ..Work::default() }, ..DrainModel::new(8) };
    assert!(tell(share).starts_with("runs that drain: NaN"));
    let foreground = Foreground { rate: Rate::EachCpu(-1.0), burst: 1 };
    assert!(tell(DrainModel { foreground, ..DrainModel::new(8) }).starts_with("foreground: -1"));
    let work = Work { share: 1.0, least: 2, most: 1 };
    assert!(tell(DrainModel { work, ..DrainModel::new(8) }).starts_with("work: 2 to 1"));
    let hotplug = vec![Plug { at_ns: 1, cpu: 8, online: true }];
    assert_eq!(
        tell(DrainModel { hotplug, ..DrainModel::new(8) }),
        "hotplug of CPU 8: the machine has 8 CPUs; give a number below that"
    );
    assert_eq!(Holds::samples(Vec::new()).unwrap_err(), DrainModelError::NoHolds);
    for factor in [0.0, -1.0, f64::NAN, 1e9] {
        assert!(matches!(Holds::constant(100).scaled(factor), Err(DrainModelError::Factor(_))), "{factor}");
    }
}

proptest! {
    /// Whatever the schedule, whoever comes and goes, defers or is kicked: what was found is drained.
    #[test]
    fn every_chunk_that_is_found_is_drained(
        cpus in 1_u32..40,
        nodes in 1_u32..4,
        which in 0_usize..5,
        ranks: bool,
        share in 0.0..1.0_f64,
        deferral in prop::option::of((0_u64..5 * MS, 0_u32..5)),
        plugs in prop::collection::vec((0_u64..4_000, 0_u32..40, any::<bool>()), 0..60),
        seed: u64,
    ) {
        let schedules: [&dyn Schedule; 5] = [&Aligned, &Skewed { hz: 250 }, &Proposed, &Even, &Spread];
        let model = DrainModel {
            nodes: nodes.min(cpus),
            duration_ns: 4 * SECOND,
            placing: if ranks { Placing::Ranks } else { Placing::Numbers },
            shepherd: Some(Shepherd::kicking(share)),
            deferral: deferral.map(|(back_off_ns, most)| Deferral { back_off_ns, most }),
            hotplug: plugs.iter().filter(|(_, cpu, _)| *cpu < cpus)
                .map(|&(ms, cpu, online)| Plug { at_ns: ms * MS, cpu, online }).collect(),
            ..DrainModel::new(cpus)
        };
        // Slow frees: CPUs go in the middle of their drains.
        let outcome = model.run(schedules[which], &Holds::constant(500_000), seed).unwrap();
        prop_assert_eq!(outcome.chunks_drained, outcome.chunks_found);
        prop_assert_eq!(outcome.housekeeping.acquisitions, outcome.chunks_found);
        prop_assert!(outcome.chunks_left_behind <= outcome.chunks_drained);
        // Twice in an interval at the most: a kick, and its own before the shepherd came.
        prop_assert!(outcome.runs <= u64::from(cpus) * 2 * 5 + 2 * plugs.len() as u64, "{:?}", outcome);
    }
}
