//! The planner on worked numbers, next to a naive model, and a fleet of hosts with a store that fails.

use super::*;
use isotherm_rng::Rng;
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;
const HOUR: u64 = 3600 * SECOND;

fn settings(spread_s: u64) -> Settings {
    Settings {
        spread: Duration::from_secs(spread_s),
        concurrency: 2,
        backoff: Duration::from_secs(1),
        max_backoff: Duration::from_secs(60),
    }
}

fn at(mono_s: u64, wall_s: u64) -> Moment {
    Moment { mono_ns: mono_s * SECOND, wall_ns: wall_s * SECOND }
}

/// Quarters of the range of a hash.
fn quarters(n: u64) -> u64 {
    n << 62
}

#[test]
fn an_object_is_due_at_the_next_time_that_has_the_phase() {
    // An interval of 10 minutes, and a host at a quarter of it: 02:30, 12:30 and so on after each hour.
    let mut planner = Planner::new(settings(600), quarters(1));
    planner.add("hour", 0, at(1000, 7 * 3600));
    assert_eq!(planner.wake_ns(), Some(1150 * SECOND));
    planner.remove(&"hour");
    planner.add("late", 0, at(1000, 7 * 3600 + 151));
    assert_eq!(planner.wake_ns(), Some(1599 * SECOND), "one interval later, less one second");
    planner.remove(&"late");
    // Half of the sixteenth part of 10 minutes is 18.75 s.
    planner.add("offset", quarters(2), at(1000, 7 * 3600));
    assert_eq!(planner.wake_ns(), Some(1168 * SECOND + SECOND * 3 / 4));
}

#[test]
fn no_more_than_the_limit_at_a_time_and_oldest_first() {
    let mut planner = Planner::new(settings(0), quarters(3));
    for object in ["c", "a", "b"] {
        planner.add(object, 5, at(1, 1));
    }
    planner.add("later", 5, at(2, 2));
    assert_eq!(planner.take(SECOND), ["a", "b"]);
    assert_eq!((planner.take(9 * SECOND), planner.wake_ns()), (vec![], None), "two are being sent");
    planner.done(&"a");
    assert_eq!(planner.take(SECOND), ["c"]);
    planner.done(&"b");
    planner.done(&"c");
    assert_eq!((planner.take(SECOND), planner.wake_ns()), (vec![], Some(2 * SECOND)));
    assert_eq!(planner.take(2 * SECOND), ["later"]);
    planner.done(&"later");
    assert!(planner.is_idle());
}

#[test]
fn waits_double_up_to_their_limit_and_end_with_a_success() {
    let mut planner = Planner::new(Settings { concurrency: 1, ..settings(0) }, 0);
    planner.add("a", 0, at(0, 0));
    planner.add("b", 0, at(0, 0));
    let mut now = 0;
    let mut limits = Vec::new();
    for _ in 0..8 {
        let object = planner.take(now)[0];
        // The whole of the limit, less one: full jitter draws from all of it.
        planner.failed(&object, now, |limit| {
            limits.push(limit / SECOND);
            limit - 1
        });
        assert_eq!(planner.take(now), Vec::<&str>::new(), "the gate is closed");
        now = planner.wake_ns().unwrap();
    }
    let gates: Vec<u64> = limits.iter().step_by(2).copied().collect();
    assert_eq!(gates, [1, 2, 4, 8, 16, 32, 60, 60]);
    let mut sent = planner.take(now);
    assert_eq!(sent.len(), 1, "one try until one succeeds");
    planner.done(&sent.pop().unwrap());
    assert_eq!(planner.failures(), 0);
}

#[test]
fn one_that_is_refused_for_good_holds_up_nobody() {
    let mut planner = Planner::new(settings(0), 0);
    let mut random = Rng::new(3);
    (0..100).for_each(|n| planner.add(n, 0, at(0, 0)));
    let (mut now, mut sent) = (0, 0);
    while sent < 99 {
        now = now.max(planner.wake_ns().unwrap());
        for object in planner.take(now) {
            if object == 0 {
                planner.failed(&object, now, |limit| random.below(limit));
            } else {
                planner.done(&object);
                sent += 1;
            }
        }
    }
    assert!(now <= SECOND, "the only wait is that for the first failure, and not {now} ns");
}

/// The phases of many hosts: how many begin in each fiftieth of the interval.
#[test]
fn hosts_are_spread_over_the_interval() {
    let mut begun = [0_u32; 50];
    for host in 0..5000_u64 {
        let hash = crate::hash(format!("{host:016x}").as_bytes());
        let mut planner = Planner::new(settings(600), hash);
        planner.add(0, 0, at(0, HOUR / SECOND));
        begun[usize::try_from(planner.wake_ns().unwrap() / (12 * SECOND)).unwrap()] += 1;
    }
    // 100 in each on average, with a standard deviation of 10.
    assert!(begun.iter().all(|n| (60..140).contains(n)), "{begun:?}");
}

/// Hosts whose store is away for two hours: tries in the minute in which it is back, and when all has arrived.
#[test]
fn a_fleet_comes_back_spread() {
    let seed = 11;
    println!("seed {seed}");
    let (hosts, away) = (300_u64, 2 * HOUR);
    let mut random = Rng::new(seed);
    let mut arrived = Vec::new();
    let mut tries_while_away = 0;
    for host in 0..hosts {
        let mut planner = Planner::new(
            Settings { max_backoff: Duration::from_secs(600), ..settings(600) },
            crate::hash(&host.to_le_bytes()),
        );
        (0..14).for_each(|object| planner.add(object, crate::hash(&[object]), at(0, 0)));
        let mut now = 0;
        while !planner.is_idle() {
            now = now.max(planner.wake_ns().unwrap());
            for object in planner.take(now) {
                if now < away {
                    tries_while_away += 1;
                    planner.failed(&object, now, |limit| random.below(limit));
                } else {
                    planner.done(&object);
                }
            }
        }
        arrived.push(now - away);
    }
    let in_first_minute = arrived.iter().filter(|ns| **ns < 60 * SECOND).count();
    assert!(in_first_minute < 100, "{in_first_minute} of {hosts} in the first minute of ten");
    assert!(arrived.iter().all(|ns| *ns <= 2 * 600 * SECOND), "{arrived:?}");
    // About 10 doublings, then one in 5 minutes on average.
    assert!(tries_while_away / hosts < 60, "{} tries for each host in two hours", tries_while_away / hosts);
}

/// What happens to a planner.
#[derive(Clone, Debug)]
enum Step {
    Add(u8),
    Remove(u8),
    Pass(u64),
    Done,
    Fail,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..20_u8).prop_map(Step::Add),
        (0..20_u8).prop_map(Step::Remove),
        (0..90_u64).prop_map(Step::Pass),
        Just(Step::Done),
        Just(Step::Fail),
    ];
    prop::collection::vec(step, 0..200)
}

proptest! {
    #[test]
    fn nothing_is_lost_or_sent_twice_at_a_time(steps in steps(), host in any::<u64>(), seed in any::<u64>()) {
        let mut planner = Planner::new(settings(60), host);
        let mut random = Rng::new(seed);
        let mut now = 0;
        // The model: which wait, and which are being sent.
        let (mut waiting, mut flying) = (BTreeSet::new(), Vec::new());
        for step in steps {
            match step {
                Step::Add(object) => {
                    if !flying.contains(&object) { waiting.insert(object); }
                    planner.add(object, u64::from(object) << 56, Moment { mono_ns: now, wall_ns: now });
                }
                Step::Remove(object) => {
                    waiting.remove(&object);
                    planner.remove(&object);
                }
                Step::Pass(seconds) => now += seconds * SECOND,
                Step::Done => if let Some(object) = flying.pop() { planner.done(&object) },
                Step::Fail => if let Some(object) = flying.pop() {
                    planner.failed(&object, now, |limit| random.below(limit));
                    waiting.insert(object);
                },
            }
            let wake = planner.wake_ns();
            let taken = planner.take(now);
            prop_assert_eq!(wake.is_some_and(|at| at <= now), !taken.is_empty(), "it wakes when there is something to send");
            for object in taken {
                prop_assert!(waiting.remove(&object), "only what waits is sent");
                flying.push(object);
            }
            prop_assert!(flying.len() <= 2);
            prop_assert_eq!(planner.is_idle(), waiting.is_empty() && flying.is_empty());
        }
        // All of it is sent in the end: within an interval and the longest wait.
        flying.iter().for_each(|object| planner.done(object));
        now += 121 * SECOND;
        let mut rest = BTreeSet::new();
        loop {
            let taken = planner.take(now);
            if taken.is_empty() { break }
            taken.iter().for_each(|object| planner.done(object));
            rest.extend(taken);
        }
        prop_assert_eq!(rest, waiting);
    }
}
