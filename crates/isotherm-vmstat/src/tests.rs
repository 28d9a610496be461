//! Worked numbers, made-up machines, and the quick counts against naive ones.

use crate::phases::{self, MS, SECOND, Spacing, naive};
use crate::verdict::VerdictKind;
use crate::{Cause, Observed, Run, Runs, SeenWaiters, VmstatReport, Wait, Waits};
use isotherm_rng::Rng;
use std::time::{SystemTime, UNIX_EPOCH};

/// A run of 20 us at a tick and some microseconds, at `hz` ticks a second; time begins with tick 0.
fn run(cpu: u32, hz: u64, jiffies: u64, us: u64, cause: Cause) -> Run {
    let start_ns = jiffies * SECOND / hz + us * 1000;
    Run { cpu, queued_ns: None, start_ns, end_ns: start_ns + 20_000, jiffies, cause }
}

fn seen(cpus: u32, seconds: u64, runs: Vec<Run>) -> Observed {
    Observed {
        from_ns: 100 * SECOND,
        to_ns: (100 + seconds) * SECOND,
        online: (0..cpus).collect(),
        isolated: Vec::new(),
        interval_s: 1,
        runs: Runs {
            updates: runs,
            shepherds: (0..seconds).map(|second| run(0, 1000, second * 1000, 0, Cause::Unknown)).collect(),
        },
        lost_runs: 0,
        waits: Ok(Waits { by_place: Vec::new(), spins: 5, lost: 0, seen: SeenWaiters::NotTheFirst }),
    }
}

/// As a stock kernel does it: 3 ticks before a whole second for each CPU, rounded up by the timer wheel.
fn stock(cpus: u32, hz: u64, seconds: u64) -> Vec<Run> {
    let grain = phases::wheel_ticks(hz);
    let mut runs = Vec::new();
    for second in 101..=100 + seconds {
        for cpu in 0..cpus {
            let due = second * hz - 3 * u64::from(cpu);
            runs.push(run(cpu, hz, due.div_ceil(grain) * grain, 30 + u64::from(cpu % 7), Cause::Timer));
        }
    }
    runs
}

/// Every CPU as far from the next as there is room.
fn spread(cpus: u32, hz: u64, seconds: u64) -> Vec<Run> {
    let at = |second: u64, cpu: u32| second * hz + hz * u64::from(cpu) / u64::from(cpus);
    (100..100 + seconds)
        .flat_map(|second| (0..cpus).map(move |cpu| run(cpu, hz, at(second, cpu), 40, Cause::Timer)))
        .collect()
}

#[test]
fn the_timer_wheel_is_as_coarse_as_the_kernels() {
    // Levels begin at 63, 504, 4032 ticks.
    for (ticks, grain) in [(1, 1), (62, 1), (63, 8), (100, 8), (250, 8), (503, 8), (504, 64), (1000, 64), (4032, 512)] {
        assert_eq!(phases::wheel_ticks(ticks), grain, "{ticks}");
    }
}

#[test]
fn one_cpu_alone_keeps_its_phase() {
    let ticks = [25_000, 25_250, 25_500, 25_750, 26_000];
    let runs: Vec<Run> = ticks.into_iter().map(|t| run(0, 250, t, 50, Cause::Timer)).collect();
    let report = VmstatReport::of(&seen(1, 5, runs));
    assert_eq!(report.hz, Some(250));
    let cpu = report.cpus[0];
    assert_eq!((cpu.runs, cpu.kicked_runs, cpu.off_phase_runs), (5, 0, 0));
    assert_eq!(cpu.spacing, Some(Spacing { median_ns: SECOND, least_ns: SECOND, most_ns: SECOND }));
    assert_eq!((cpu.phase_ns, cpu.phase_spread_ns), (Some(0), 0));
    assert_eq!(report.verdict.kind, VerdictKind::NoHerd);
    assert!(report.verdict.reasons[0].contains("1 CPU online"), "{:?}", report.verdict);
}

#[test]
fn phases_around_the_end_of_the_interval_have_their_mean_there() {
    // 10 ms before and 10 ms after phase 0: not in the middle of the interval.
    let at = [(24_999, 0), (25_251, 0), (25_499, 0), (25_751, 0)];
    let mut runs: Vec<Run> = at.into_iter().map(|(t, us)| run(0, 100, t, us, Cause::Timer)).collect();
    // Another CPU, so that phase 0 is a tick of a whole second.
    runs.push(run(1, 100, 25_300, 0, Cause::Timer));
    let report = VmstatReport::of(&seen(2, 5, runs));
    let phase = report.cpus[0].phase_ns.unwrap();
    // Ticks of 10 ms: 24,999 is 0.99 of a second, 25,251 is 0.51, 25,499 is 0.99, 25,751 is 0.51.
    assert!(phase.abs_diff(750 * MS) < MS, "{phase}");
    let near =
        VmstatReport::of(&seen(1, 5, [24_999, 25_101, 25_199, 25_301].map(|t| run(0, 100, t, 0, Cause::Timer)).into()));
    let phase = near.cpus[0].phase_ns.unwrap();
    assert!(!(MS..999 * MS).contains(&phase), "{phase}");
    assert!(near.cpus[0].phase_spread_ns.abs_diff(10 * MS) < MS, "{:?}", near.cpus[0]);
}

#[test]
fn runs_off_their_phase_are_told_from_those_on_it() {
    let ticks = [(100_000, Cause::Timer), (101_064, Cause::Timer), (101_500, Cause::Shepherd), (102_500, Cause::Timer)];
    let runs: Vec<Run> = ticks.map(|(t, cause)| run(7, 1000, t, 0, cause)).into();
    let report = VmstatReport::of(&seen(8, 5, runs));
    let off: Vec<bool> = report.marks.iter().map(|m| m.off_phase).collect();
    // 64 ticks late is the timer wheel; 436 after the one before is a kick; and the one after it is a whole interval later.
    assert_eq!(off, [false, false, true, false]);
    assert_eq!((report.kicked_runs, report.off_phase_runs), (1, 1));
    assert_eq!(report.verdict.kind, VerdictKind::NotEnoughRuns);
}

#[test]
fn cpus_that_ran_are_online_whatever_the_list_says() {
    let listed = VmstatReport::of(&seen(72, 10, stock(72, 1000, 10)));
    // It cannot be read, or is that of a container.
    for online in [vec![], vec![0, 1]] {
        let report = VmstatReport::of(&Observed { online, ..seen(72, 10, stock(72, 1000, 10)) });
        assert_eq!((report.cpus_online, report.verdict.kind), (72, listed.verdict.kind));
    }
}

#[test]
fn a_stock_kernel_of_72_cpus_at_1000_ticks_is_a_herd_of_its_timer_wheel() {
    let report = VmstatReport::of(&seen(72, 10, stock(72, 1000, 10)));
    assert_eq!((report.hz, report.runs), (Some(1000), 720));
    // 216 ticks of skew fall into slots of 64: 21 or 22 CPUs each.
    assert!([21, 22].contains(&report.together.most_in_a_ms), "{:?}", report.together);
    let schedule = report.schedule.unwrap();
    assert_eq!((schedule.wheel_ticks, schedule.cpus_on_a_tick, schedule.on_schedule_pct), (64, 22, Some(100.0)));
    assert_eq!(report.verdict.kind, VerdictKind::Herd);
    assert!(report.verdict.summary.starts_with("zone-lock contention: 2"), "{:?}", report.verdict);
    assert!(report.verdict.reasons.iter().any(|r| r.contains("multiples of 64 ticks")), "{:?}", report.verdict);
}

#[test]
fn phases_apart_are_no_herd_with_any_number_of_cpus() {
    for cpus in [2, 8, 72, 250] {
        let report = VmstatReport::of(&seen(cpus, 10, spread(cpus, 1000, 10)));
        assert_eq!(report.verdict.kind, VerdictKind::NoHerd, "{cpus}: {:?}", report.verdict);
        assert_eq!(report.together.most_overlapping, 1);
        assert!(report.verdict.advice.is_empty());
    }
}

#[test]
fn random_phases_are_no_herd_and_chance_is_counted_right() {
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |d| d.subsec_nanos().into());
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    let (mut company, mut by_chance, mut beyond) = (0.0, 0.0, 0);
    for _ in 0..100 {
        let mut runs = Vec::new();
        for cpu in 0..72 {
            let phase = rng.below(SECOND);
            for second in 100..110 {
                let start_ns = second * SECOND + phase;
                let jiffies = start_ns / MS;
                runs.push(Run {
                    cpu,
                    queued_ns: None,
                    start_ns,
                    end_ns: start_ns + 20_000,
                    jiffies,
                    cause: Cause::Timer,
                });
            }
        }
        let report = VmstatReport::of(&seen(72, 10, runs));
        company += report.together.in_company_pct;
        by_chance += report.together.in_company_by_chance_pct;
        beyond += u32::from(report.together.most_in_a_ms > report.together.most_by_chance);
        assert_eq!(report.verdict.kind, VerdictKind::NoHerd, "{:?}", report.verdict);
    }
    // 13.2% by the formula; the mean of 100 observations of 72 phases is within two and a half points.
    assert!((company - by_chance).abs() / 100.0 < 2.5, "{company} {by_chance}");
    assert!(beyond <= 8, "{beyond} of 100 observations");
}

#[test]
fn kicks_that_bring_cpus_together_are_named() {
    let mut runs = spread(8, 250, 10);
    for run in runs.iter_mut().filter(|r| r.cpu >= 3) {
        // All with the shepherd, at the middle of each second.
        let second = run.jiffies / 250;
        let at = second * 250 + 125;
        (run.jiffies, run.start_ns, run.cause) =
            (at, at * 4 * MS + 50_000 + u64::from(run.cpu) * 1000, Cause::Shepherd);
        run.end_ns = run.start_ns + 20_000;
    }
    let mut observed = seen(8, 10, runs);
    let wait = |updating, count| Wait {
        node: 0,
        zone: "Normal".to_owned(),
        functions: vec!["free_pcppages_bulk".to_owned()],
        updating,
        beside: true,
        count,
        total_ns: count * 10_000,
        max_ns: 15_000,
    };
    if let Ok(waits) = &mut observed.waits {
        waits.by_place = vec![wait(true, 12), wait(false, 4)];
    }
    let report = VmstatReport::of(&observed);
    assert_eq!(report.verdict.kind, VerdictKind::Herd, "{:?}", report.verdict);
    assert_eq!((report.verdict.cpus_at_once, report.together.most_overlapping), (5, 5));
    assert_eq!(
        report.verdict.summary,
        "zone-lock contention: 5 of 8 CPUs drained at once; vmstat_update waited 12 times for a zone's lock, 120 us in all, 15 us at most"
    );
    assert!(report.verdict.reasons.iter().any(|r| r.contains("started by vmstat_shepherd")), "{:?}", report.verdict);
    assert!(report.verdict.reasons.iter().any(|r| r.starts_with("75% of the waits")), "{:?}", report.verdict);
}

#[test]
fn one_meeting_in_the_period_is_no_herd() {
    let mut runs = spread(8, 250, 30);
    for run in runs.iter_mut().filter(|r| r.jiffies / 250 == 110 && r.cpu < 4) {
        run.start_ns = 110 * SECOND + u64::from(run.cpu) * 100;
        (run.end_ns, run.jiffies) = (run.start_ns + 20_000, 110 * 250);
    }
    let report = VmstatReport::of(&seen(8, 30, runs));
    assert_eq!((report.together.most_in_a_ms, report.together.most_by_chance), (4, 2));
    assert_eq!(report.verdict.kind, VerdictKind::NoHerd, "{:?}", report.verdict);
}

#[test]
fn nothing_at_all_is_told_as_such() {
    let report = VmstatReport::of(&seen(8, 10, Vec::new()));
    assert_eq!((report.verdict.kind, report.runs, report.hz), (VerdictKind::NotEnoughRuns, 0, None));
    let two = VmstatReport::of(&seen(2, 10, Vec::new()));
    assert_eq!(two.verdict.kind, VerdictKind::NoHerd);
    let cut_short = VmstatReport::of(&seen(2, 1, Vec::new()));
    assert_eq!(cut_short.verdict.kind, VerdictKind::NotEnoughRuns);
    assert!(cut_short.verdict.reasons[0].contains("it takes 6 in 2 intervals"), "{:?}", cut_short.verdict);
}

#[test]
fn quick_counts_agree_with_naive_ones() {
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |d| d.subsec_nanos().into());
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    for _ in 0..400 {
        let (cpus, times) = (1 + rng.below(6), 1 + rng.below(60));
        let mut runs: Vec<Run> = (0..rng.below(40))
            .map(|_| {
                let start_ns = 1000 + rng.below(times);
                let cpu = u32::try_from(rng.below(cpus)).unwrap();
                Run {
                    cpu,
                    queued_ns: None,
                    start_ns,
                    end_ns: start_ns + rng.below(9),
                    jiffies: 0,
                    cause: Cause::Unknown,
                }
            })
            .collect();
        runs.sort_unstable_by_key(|r| (r.start_ns, r.cpu));
        naive::agrees(&runs, rng.below(12));
    }
}
