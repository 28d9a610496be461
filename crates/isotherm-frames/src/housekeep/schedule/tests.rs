use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

const SECOND: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;

fn position(cpu: u32, cpus: u32) -> CpuPosition {
    CpuPosition::of_one_node(cpu, cpus)
}

/// The closest two of phases, in nanoseconds of a circle of `interval`.
fn least_gap(phases: &BTreeSet<u64>, interval: u64) -> u64 {
    let next = phases.iter().skip(1).copied().chain(phases.first().map(|first| first + interval));
    phases.iter().zip(next).map(|(one, next)| next - one).min().unwrap()
}

#[test]
fn an_interval_of_zero_is_none() {
    assert_eq!(Interval::from_ns(0), None);
    assert_eq!(Interval::from_ns(1).unwrap().ns(), 1);
}

#[test]
fn aligned_is_at_whole_intervals() {
    for (now, due) in [(0, SECOND), (1, SECOND), (SECOND - 1, SECOND), (SECOND, 2 * SECOND)] {
        assert_eq!(Aligned.next_due(position(7, 8), Interval::SECOND, now), due, "{now}");
    }
}

#[test]
fn the_kernels_rounding_is_three_ticks_apart() {
    // At 1000 Hz, CPU 5 is due 15 ms before whole seconds, from wherever it begins; less than a quarter over rounds down.
    let skewed = Skewed { hz: 1000 };
    for (now, due) in [(985, 1985), (1000, 1985), (1234, 1985), (1235, 2985), (1984, 2985)] {
        assert_eq!(skewed.next_due(position(5, 72), Interval::SECOND, now * MS), due * MS, "{now}");
    }
    // At 250 Hz a tick is 4 ms.
    let phases = [0, 1, 2].map(|cpu| Skewed { hz: 250 }.next_due(position(cpu, 8), Interval::SECOND, 10 * SECOND));
    assert_eq!(phases, [11 * SECOND, 11 * SECOND - 12 * MS, 11 * SECOND - 24 * MS]);
    // What rounds to the past is not rounded.
    let tenth = Interval::from_ns(100 * MS).unwrap();
    assert_eq!(skewed.next_due(position(0, 8), tenth, 1050 * MS), 1150 * MS);
}

#[test]
fn the_first_proposal_has_a_period_for_each_cpu() {
    let periods =
        [0, 36, 71].map(|cpu| Proposed.next_due(position(cpu, 72), Interval::SECOND, 5 * SECOND) - 5 * SECOND);
    assert_eq!(periods, [SECOND, SECOND + SECOND / 2, SECOND + SECOND * 71 / 72]);
}

#[test]
fn numbers_modulo_the_count_collide_when_odd_ones_are_offline_and_golden_phases_do_not() {
    let online: Vec<u32> = (0..72).step_by(2).collect();
    let phases = |schedule: &dyn Schedule| -> BTreeSet<u64> {
        online.iter().map(|cpu| schedule.next_due(position(*cpu, 36), Interval::SECOND, 0) % SECOND).collect()
    };
    assert_eq!(phases(&Even).len(), 18, "each has another's phase");
    assert_eq!(phases(&Spread).len(), 36);
    // 27.8 ms would be even.
    assert!(least_gap(&phases(&Spread), SECOND) > 10 * MS);
}

#[test]
fn the_shepherd_wakes_at_once_in_kernels_and_at_the_phase_here() {
    let now = 5 * SECOND + 1;
    let kicked = |schedule: &dyn Schedule| schedule.kicked_due(position(3, 8), Interval::SECOND, now);
    assert_eq!(kicked(&Skewed { hz: 250 }), now);
    assert_eq!(kicked(&Proposed), now);
    assert_eq!(kicked(&Spread), Spread.next_due(position(3, 8), Interval::SECOND, now));
}

#[test]
fn golden_phases_of_1024_cpus_are_distinct_in_every_stride() {
    for stride in 1..1024 {
        let phases: BTreeSet<u64> =
            (0..1024).step_by(stride).map(|cpu| Spread::phase_ns(cpu, Interval::SECOND)).collect();
        assert_eq!(phases.len(), 1024_usize.div_ceil(stride));
        assert!(phases.len() < 2 || least_gap(&phases, SECOND) > SECOND * 38 / 100 / 1024, "every {stride}th");
    }
}

#[test]
fn the_end_of_the_clock_is_the_end() {
    for schedule in [&Aligned as &dyn Schedule, &Skewed { hz: 1000 }, &Proposed, &Even, &Spread] {
        let due = schedule.next_due(position(1, 2), Interval::from_ns(u64::MAX).unwrap(), u64::MAX - 1);
        assert!(due >= u64::MAX - MS, "{schedule:?}: {due}");
    }
    // Nobody online, and no ticks: somebody's mistake, but no crash.
    for schedule in [&Proposed as &dyn Schedule, &Even, &Skewed { hz: 0 }] {
        assert!(schedule.next_due(position(1, 0), Interval::SECOND, 7) > 7);
    }
}

proptest! {
    #[test]
    fn due_is_always_later(cpu in 0_u32..4096, cpus in 0_u32..4096, interval in 1_u64..1 << 50, now in 0_u64..1 << 60, hz in 1_u32..2000) {
        let interval = Interval::from_ns(interval).unwrap();
        for schedule in [&Aligned as &dyn Schedule, &Proposed, &Even, &Spread] {
            prop_assert!(schedule.next_due(position(cpu, cpus), interval, now) > now, "{:?}", schedule);
            prop_assert!(schedule.kicked_due(position(cpu, cpus), interval, now) >= now, "{:?}", schedule);
        }
        // Ticks are what it can see.
        let tick = (SECOND / u64::from(hz)).max(1);
        let skewed = Skewed { hz };
        prop_assert!(skewed.next_due(position(cpu, cpus), interval, now) / tick > now / tick);
    }

    /// From one run to the next is one interval exactly, whatever the others do, however late each run is, and wherever it began.
    #[test]
    fn intervals_are_equal_and_phases_stay(
        cpu in 0_u32..1024,
        interval in 1_000_u64..100_000_000_000,
        begin in 0_u64..1 << 50,
        counts in prop::collection::vec(1_u32..1024, 2..20),
        late in 0_u64..1000,
    ) {
        let interval = Interval::from_ns(interval).unwrap();
        let mut due = Spread.next_due(position(cpu, counts[0]), interval, begin);
        prop_assert!(due - begin <= interval.ns());
        for cpus in counts {
            let ran = due + interval.ns() * late / 1000;
            let next = Spread.next_due(position(cpu, cpus), interval, ran);
            prop_assert_eq!(next - due, interval.ns());
            prop_assert_eq!(Spread.kicked_due(position(cpu, cpus), interval, ran), next);
            due = next;
        }
    }

    /// Whoever is online after any comings and goings, phases are as far apart as was promised.
    #[test]
    fn phases_stay_apart_in_any_sequence_of_hotplug(
        changes in prop::collection::vec(0_u32..192, 1..300),
        interval in 1_000_000_u64..100_000_000_000,
    ) {
        let interval = Interval::from_ns(interval).unwrap();
        let mut online = BTreeSet::from([0_u32]);
        for cpu in changes {
            if !online.remove(&cpu) || online.is_empty() {
                online.insert(cpu);
            }
            let phases: BTreeSet<u64> = online.iter().map(|cpu| Spread::phase_ns(*cpu, interval)).collect();
            prop_assert_eq!(phases.len(), online.len());
            let places = u64::from(*online.last().unwrap()) + 1;
            prop_assert!(phases.len() == 1 || least_gap(&phases, interval.ns()) >= interval.ns() / places * 38 / 100);
        }
    }

    /// CPUs of as many places as there are leave no gap that is much wider than an even one.
    #[test]
    fn there_are_no_wide_gaps(cpus in 1_u32..1024) {
        let phases: BTreeSet<u64> = (0..cpus).map(|cpu| Spread::phase_ns(cpu, Interval::SECOND)).collect();
        let mut sorted: Vec<u64> = phases.iter().copied().collect();
        sorted.push(sorted[0] + SECOND);
        let widest = sorted.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
        prop_assert!(widest <= SECOND / u64::from(cpus) * 2 + SECOND / 100, "{}", widest);
    }
}
