use super::super::schedule::{Aligned, Proposed, Skewed};
#[cfg(feature = "std")]
use super::super::thread::{End, now_ns};
use super::*;
use crate::pcp::testing::{assert_all_there, fill, let_keep, pcp, pretend, tiers};
use crate::tune::PcpLimits;
use crate::{FrameNo, MigrateType, Order, PcpConfig, Tier};
use isotherm_rng::Rng;
use std::collections::BTreeMap;
use std::io::Write;
use std::thread;

const SECOND: u64 = 1_000_000_000;
const LIMITS: PcpLimits = PcpLimits { batch: 63, high_min: 252, high_max: 8192 };
/// For lists of very many CPUs.
const SMALL: PcpLimits = PcpLimits { high_max: 1024, ..LIMITS };
const FRAMES: u64 = 64 << 10;

fn slots(cpus: usize) -> Vec<Slot> {
    (0..cpus).map(|_| Slot::default()).collect()
}

fn locked(cpus: u32) -> PcpLists<'static> {
    let limits = if cpus > 16 { SMALL } else { LIMITS };
    pcp(FRAMES, &PcpConfig { tier: Tier::Locked, limits: Some(limits), ..PcpConfig::new(cpus) })
}

/// So many frames in the set of that CPU.
fn put(pcp: &PcpLists<'_>, cpu: u32, frames: usize) {
    pretend(cpu);
    fill(pcp, frames);
}

/// The same, above what it may keep.
fn put_too_many(pcp: &PcpLists<'_>, cpu: u32, frames: usize) {
    let_keep(pcp, cpu, LIMITS.high_max);
    put(pcp, cpu, frames);
    let_keep(pcp, cpu, LIMITS.high_min);
    assert_eq!(pcp.cached(cpu), frames as u64);
}

fn every(ns: u64) -> HousekeeperConfig<'static> {
    HousekeeperConfig::new(Interval::from_ns(ns).unwrap())
}

fn phase(cpu: u32, interval: u64) -> u64 {
    Spread::phase_ns(cpu, Interval::from_ns(interval).unwrap())
}

/// Turns at the times that it says itself, and the shepherd once a second, for so long; when each CPU had its turns.
fn live<S: Schedule>(keeper: &Housekeeper<'_, '_, S>, from_ns: u64, to_ns: u64) -> BTreeMap<u32, Vec<u64>> {
    let mut runs: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    let (mut now, mut look) = (from_ns, from_ns);
    while now < to_ns {
        if now >= look {
            keeper.shepherd(now);
            look += keeper.interval().ns();
        }
        for cpu in 0..keeper.cpus() {
            let tick = keeper.tick(cpu, now);
            assert!(tick.next_due_ns.is_none_or(|next| next > now));
            if tick.run == Run::Decay {
                runs.entry(cpu).or_default().push(now);
            }
        }
        now = keeper.next_due_ns().map_or(look, |due| due.min(look));
    }
    runs
}

#[test]
fn one_cpu_has_one_turn_an_interval_until_nothing_is_left() {
    let pcp = locked(1);
    put(&pcp, 0, 200);
    let mut slots = slots(1);
    let keeper = Housekeeper::new(std::slice::from_ref(&pcp), &mut slots, Spread, &every(SECOND));
    assert_eq!(keeper.tick(0, 5).run, Run::Offline);
    assert!(keeper.online(0) && !keeper.online(0) && !keeper.online(1));
    let runs = live(&keeper, 10, 20 * SECOND);
    // Found in use, then three without use.
    assert_eq!(runs[&0], [SECOND, 2 * SECOND, 3 * SECOND, 4 * SECOND]);
    assert_eq!((pcp.cached(0), keeper.due_ns(0), keeper.next_due_ns()), (0, None, None));
    assert_eq!(
        keeper.stats(),
        HousekeepingStats { runs: 4, drained: 200, chunks: 4, kicked: 1, ..HousekeepingStats::default() }
    );
    // It wakes no more until there is something: then at its own phase.
    put(&pcp, 0, 10);
    assert_eq!(keeper.tick(0, 21 * SECOND), Tick::nothing(Run::NotDue, None));
    assert_eq!(keeper.shepherd(21 * SECOND + 7), 1);
    assert_eq!((keeper.due_ns(0), keeper.shepherd(21 * SECOND + 8)), (Some(22 * SECOND), 0));
    // A lone CPU that is late has its turn all the same: whom would it meet?
    assert_eq!(keeper.tick(0, 29 * SECOND).run, Run::Decay);
    assert_eq!(keeper.due_ns(0), Some(30 * SECOND));
    assert_eq!((keeper.stats().late, keeper.stats().skipped), (1, 0));
    assert_all_there(&pcp, 0);
}

#[test]
#[cfg_attr(miri, ignore = "thousands of calls on a zone take minutes when interpreted")]
fn three_of_1024_cpus_and_numbers_with_gaps() {
    let pcp = locked(1024);
    for (cpu, frames) in [(0, 300), (511, 250), (1023, 100), (7, 40)] {
        put(&pcp, cpu, frames);
    }
    let mut slots = slots(1024);
    let keeper = Housekeeper::new(std::slice::from_ref(&pcp), &mut slots, Spread, &every(SECOND));
    for cpu in [0, 511, 1023] {
        keeper.online(cpu);
        assert_eq!(keeper.position(cpu).unwrap().place, cpu);
    }
    assert_eq!(keeper.position(511), Some(CpuPosition { cpu: 511, place: 511, cpus: 3 }));
    assert_eq!(
        (keeper.position(1024), keeper.tick(1024, 0).run, keeper.tick(7, 0).run),
        (None, Run::Offline, Run::Offline)
    );
    let runs = live(&keeper, 0, 30 * SECOND);
    assert_eq!(runs.keys().copied().collect::<Vec<_>>(), [0, 511, 1023]);
    for (cpu, runs) in &runs {
        assert!(runs.iter().all(|turn| turn % SECOND == phase(*cpu, SECOND)), "CPU {cpu}: {runs:?}");
    }
    assert_eq!([0, 7, 511, 1023].map(|cpu| pcp.cached(cpu)), [0, 40, 0, 0]);
    // One that was never online, or no longer is, can be emptied.
    assert_eq!((keeper.offline(7), keeper.offline(2000)), (40, 0));
    assert_all_there(&pcp, 0);
}

#[test]
fn places_are_counted_within_a_node() {
    let pcp = locked(6);
    let mut slots = slots(6);
    let config = HousekeeperConfig { nodes: &[0, 1, 0, 1, 1], ..every(SECOND) };
    let keeper = Housekeeper::new(std::slice::from_ref(&pcp), &mut slots, Spread, &config);
    (0..6).for_each(|cpu| assert!(keeper.online(cpu)));
    let positions: Vec<_> =
        (0..6).map(|cpu| keeper.position(cpu).unwrap()).map(|position| (position.place, position.cpus)).collect();
    // The last is not named: of node 0.
    assert_eq!(positions, [(0, 3), (0, 3), (1, 3), (1, 3), (2, 3), (2, 3)]);
    keeper.offline(1);
    let positions: Vec<_> =
        (0..6).map(|cpu| keeper.position(cpu).unwrap()).map(|position| (position.place, position.cpus)).collect();
    assert_eq!(positions, [(0, 3), (0, 2), (1, 3), (1, 2), (2, 2), (2, 3)], "no place moves");
}

/// Each CPU comes to both zones, so those of two nodes must not come together either.
#[test]
fn with_several_zones_no_two_cpus_of_any_node_share_a_phase() {
    let zones = [locked(6), locked(6)];
    let mut slots = slots(6);
    let config = HousekeeperConfig { nodes: &[0, 1, 0, 1, 0, 1], ..every(SECOND) };
    let keeper = Housekeeper::new(&zones, &mut slots, Spread, &config);
    (0..6).for_each(|cpu| assert!(keeper.online(cpu)));
    (0..6).for_each(|cpu| zones.iter().for_each(|pcp| put(pcp, cpu, 100)));
    let runs = live(&keeper, 0, 5 * SECOND);
    let mut instants: Vec<u64> = runs.values().flatten().copied().collect();
    let all = instants.len();
    instants.sort_unstable();
    instants.dedup();
    assert_eq!((runs.len(), instants.len()), (6, all), "two at the same instant: {runs:?}");
    assert!((0..6).all(|cpu| keeper.position(cpu) == Some(CpuPosition::of_one_node(cpu, 6))));
}

#[test]
fn no_sets_are_never_due() {
    let mut slots = slots(4);
    let keeper = Housekeeper::new(&[], &mut slots, Spread, &HousekeeperConfig::default());
    (0..4).for_each(|cpu| assert!(keeper.online(cpu)));
    assert_eq!((keeper.shepherd(5), keeper.next_due_ns(), keeper.offline(2)), (0, None, 0));
    assert_eq!(keeper.tick(0, 10), Tick::nothing(Run::NotDue, None));
    assert_eq!(keeper.stats(), HousekeepingStats::default());
    let keeper = Housekeeper::new(&[], &mut [], Spread, &HousekeeperConfig::default());
    assert_eq!((keeper.cpus(), keeper.shepherd(5), keeper.stats()), (0, 0, HousekeepingStats::default()));
}

#[test]
fn sets_without_frames_and_of_fewer_cpus() {
    let (empty, few) = (pcp(1024, &PcpConfig::new(2)), locked(2));
    put(&few, 1, 100);
    let both = [empty, few];
    let mut slots = slots(8);
    let keeper = Housekeeper::new(&both, &mut slots, Spread, &every(SECOND));
    (0..8).for_each(|cpu| assert!(keeper.online(cpu)));
    assert_eq!(live(&keeper, 0, 10 * SECOND).into_keys().collect::<Vec<_>>(), [1]);
    assert_eq!((both[1].cached(1), keeper.stats().drained), (0, 100));
}

/// A machine that sleeps, or a clock that is set forward: whatever was missed, nobody makes two turns, and not all at once.
#[test]
fn seconds_late_is_one_turn_each_and_no_herd() {
    let pcp = locked(16);
    (0..16).for_each(|cpu| put_too_many(&pcp, cpu, 400));
    let mut slots = slots(16);
    let keeper = Housekeeper::new(std::slice::from_ref(&pcp), &mut slots, Spread, &every(SECOND));
    (0..16).for_each(|cpu| assert!(keeper.online(cpu)));
    assert_eq!(keeper.shepherd(1), 16);
    let now = 1000 * SECOND + 500;
    let runs: Vec<Tick> = (0..16).map(|cpu| keeper.tick(cpu, now)).collect();
    assert!(runs.iter().all(|tick| tick.run == Run::Skipped), "{runs:?}");
    for (cpu, tick) in (0..).zip(&runs) {
        let due = tick.next_due_ns.unwrap();
        assert_eq!((due % SECOND, due - now <= SECOND), (phase(cpu, SECOND), true));
        assert_eq!(keeper.tick(cpu, now).run, Run::NotDue, "no second one");
    }
    // Late again: now they do run, once, and on time from there.
    let later = now + 50 * SECOND;
    let runs: Vec<Tick> = (0..16).map(|cpu| keeper.tick(cpu, later)).collect();
    assert!(runs.iter().all(|tick| tick.run == Run::Decay && tick.decayed.drained == 400 - 252), "{runs:?}");
    assert!((0..16).all(|cpu| keeper.tick(cpu, later).run == Run::NotDue));
    let stats = keeper.stats();
    assert_eq!((stats.runs, stats.late, stats.skipped), (16, 32, 16));
    // A little late is not late: an eighth of its share.
    let due = keeper.due_ns(3).unwrap();
    assert_eq!(keeper.tick(3, due + SECOND / 16 / 8).run, Run::Decay);
    // By more than its share: put off for once.
    let due = keeper.due_ns(3).unwrap();
    assert_eq!(keeper.tick(3, due + SECOND / 16 + 1).run, Run::Skipped);
    assert_all_there(&pcp, 0);
}

#[test]
fn a_thread_that_is_always_late_does_every_other_turn() {
    let pcp = locked(8);
    put(&pcp, 2, 252);
    let mut slots = slots(8);
    let config = HousekeeperConfig { pace: Pace { idle_after: 1000, ..Pace::default() }, ..every(SECOND) };
    let keeper = Housekeeper::new(std::slice::from_ref(&pcp), &mut slots, Spread, &config);
    (0..8).for_each(|cpu| assert!(keeper.online(cpu)));
    keeper.shepherd(0);
    let mut runs = Vec::new();
    for _ in 0..10 {
        let due = keeper.due_ns(2).unwrap();
        runs.push(keeper.tick(2, due + SECOND * 3 / 10).run);
    }
    assert_eq!(runs, [Run::Skipped, Run::Decay].repeat(5));
}

#[test]
fn a_clock_set_back_moves_one_turn() {
    fn check<S: Schedule>(schedule: S) {
        let pcp = locked(4);
        put(&pcp, 3, 252);
        let mut slots = slots(4);
        let config = HousekeeperConfig { pace: Pace { idle_after: 1000, ..Pace::default() }, ..every(SECOND) };
        let keeper = Housekeeper::new(std::slice::from_ref(&pcp), &mut slots, &schedule, &config);
        (0..4).for_each(|cpu| assert!(keeper.online(cpu)));
        keeper.shepherd(500 * SECOND);
        // By a tick, or, where nobody ticks that has no due time near, by the shepherd.
        let tick = keeper.tick(3, 20 * SECOND + 1);
        let position = keeper.position(3).unwrap();
        assert_eq!(tick.run, Run::NotDue, "{schedule:?}");
        assert_eq!(
            tick.next_due_ns,
            Some(schedule.next_due(position, Interval::SECOND, 20 * SECOND + 1)),
            "{schedule:?}"
        );
        assert_eq!(keeper.shepherd(10 * SECOND), 0);
        let due = schedule.next_due(position, Interval::SECOND, 10 * SECOND);
        assert_eq!(keeper.due_ns(3), Some(due), "{schedule:?}");
        assert_eq!(keeper.tick(3, due).run, Run::Decay, "{schedule:?}");
        // Asked again and again on the way, it does not move: no schedule's time is further than it should be.
        let due = keeper.due_ns(3).unwrap();
        (1..10).for_each(|n| assert_eq!(keeper.tick(3, due - SECOND / 11 * n).next_due_ns, Some(due), "{schedule:?}"));
        assert_all_there(&pcp, 0);
    }
    check(Spread);
    check(Aligned);
    check(Skewed { hz: 250 });
    check(Proposed);
}

#[test]
fn an_interval_of_a_day_and_of_a_nanosecond() {
    let day = 86_400 * SECOND;
    let pcp = locked(4);
    put(&pcp, 1, 400);
    let mut slots = slots(4);
    let keeper = Housekeeper::new(std::slice::from_ref(&pcp), &mut slots, Spread, &every(day));
    (0..4).for_each(|cpu| assert!(keeper.online(cpu)));
    let runs = live(&keeper, 0, 30 * day);
    assert_eq!(runs[&1][0], phase(1, day));
    assert!(runs[&1].windows(2).all(|pair| pair[1] - pair[0] == day));
    assert_eq!(pcp.cached(1), 0);

    put(&pcp, 1, 400);
    let keeper = Housekeeper::new(std::slice::from_ref(&pcp), &mut slots, Spread, &every(1));
    keeper.online(1);
    live(&keeper, 0, 200);
    assert_eq!(pcp.cached(1), 0);
    assert_all_there(&pcp, 0);
}

#[test]
fn what_was_put_off_is_gone_on_with_soon_and_no_phase_moves() {
    let pcp = locked(2);
    put_too_many(&pcp, 1, 1000);
    let mut slots = slots(2);
    let keeper = Housekeeper::new(std::slice::from_ref(&pcp), &mut slots, Spread, &every(SECOND));
    (0..2).for_each(|cpu| assert!(keeper.online(cpu)));
    keeper.shepherd(0);
    let due = keeper.due_ns(1).unwrap();
    let metadata = pcp.zone().metadata.lock();
    let mut tick = keeper.tick(1, due);
    assert_eq!((tick.run, tick.decayed.left), (Run::Decay, 1000 - 252));
    for _ in 0..3 {
        let soon = tick.next_due_ns.unwrap();
        assert!(soon < due + SECOND / 16, "{soon}");
        tick = keeper.tick(1, soon);
        assert_eq!((tick.run, tick.decayed.left), (Run::Rest, 1000 - 252));
    }
    drop(metadata);
    tick = keeper.tick(1, tick.next_due_ns.unwrap());
    assert_eq!((tick.run, tick.decayed.drained, tick.next_due_ns), (Run::Rest, 1000 - 252, Some(due + SECOND)));
    let stats = keeper.stats_of(1).unwrap();
    assert_eq!((stats.runs, stats.rests, stats.deferred, stats.contended), (1, 4, 4, 4));
    assert_all_there(&pcp, 0);
}

#[test]
fn a_cpu_that_another_thread_is_at_is_asked_for_later() {
    let pcp = locked(2);
    put(&pcp, 1, 200);
    let mut slots = slots(2);
    let keeper = Housekeeper::new(std::slice::from_ref(&pcp), &mut slots, Spread, &every(SECOND));
    assert!(keeper.online(1));
    assert_eq!(keeper.shepherd(0), 1);
    let due = keeper.due_ns(1).unwrap();
    let pending = keeper.slots[1].pending.lock();
    let tick = keeper.tick(1, due + 5);
    assert_eq!((tick.run, tick.next_due_ns), (Run::Elsewhere, Some(due + 5 + SECOND / REST_DIVISOR)));
    drop(pending);
    assert_eq!(keeper.tick(1, due + 5).run, Run::Decay);
}

/// One that looks again at once never sleeps.
#[test]
#[cfg(feature = "std")]
fn a_thread_sleeps_while_another_is_at_a_cpu_that_is_due() {
    let pcp = locked(1);
    put(&pcp, 0, 200);
    let mut slots = slots(1);
    let keeper = Housekeeper::new(std::slice::from_ref(&pcp), &mut slots, Aligned, &every(SECOND));
    assert!(keeper.online(0));
    assert_eq!(keeper.shepherd(now_ns()), 1, "and that is due at once");
    let end = End::new();
    let wakes = thread::scope(|s| {
        let _desk = keeper.slots[0].pending.lock();
        let running = s.spawn(|| keeper.run(&end));
        thread::sleep(std::time::Duration::from_millis(500));
        end.come();
        running.join().unwrap()
    });
    assert!(wakes > 0, "it was busy all the time");
    assert_eq!(keeper.stats().runs, 0);
}

#[test]
#[cfg(feature = "std")]
fn threads_one_after_the_other_go_by_the_same_clock() {
    let pcp = locked(1);
    put(&pcp, 0, 252);
    let mut slots = slots(1);
    let config = HousekeeperConfig { pace: Pace { idle_after: 1_000_000, ..Pace::default() }, ..every(SECOND / 250) };
    let keeper = Housekeeper::new(std::slice::from_ref(&pcp), &mut slots, Spread, &config);
    assert!(keeper.online(0));
    now_ns();
    // Longer than what follows takes, or a clock that begins anew would not be noticed.
    thread::sleep(std::time::Duration::from_millis(300));
    for thread in 1..=2 {
        let (before, runs) = (now_ns(), keeper.stats().runs);
        assert_eq!(keeper.shepherd(before), u32::from(thread == 1));
        thread::scope(|s| {
            let _thread = keeper.start_in(s);
            while keeper.stats().runs == runs {
                thread::yield_now();
            }
        });
        let due = keeper.due_ns(0).unwrap();
        assert!(due > before, "thread {thread}: due at {due}, which was over at {before}");
    }
    assert_all_there(&pcp, 0);
}

/// CPUs come and go while others tick for them.
#[test]
#[cfg_attr(miri, ignore = "thousands of calls on a zone take minutes when interpreted")]
fn cpus_go_offline_in_mid_drain() {
    for tier in tiers() {
        let pcp = pcp(FRAMES, &PcpConfig { tier, limits: Some(SMALL), ..PcpConfig::new(1024) });
        let mut slots = slots(8);
        let keeper = Housekeeper::new(std::slice::from_ref(&pcp), &mut slots, Spread, &every(1000));
        (0..8).for_each(|cpu| assert!(keeper.online(cpu)));
        let left = std::sync::atomic::AtomicU32::new(2);
        thread::scope(|s| {
            for id in 0..2 {
                let (pcp, keeper, left) = (&pcp, &keeper, &left);
                s.spawn(move || {
                    for round in 0..150 {
                        put(pcp, (id + round) % 8, 900);
                        let cpu = round % 8;
                        keeper.offline(cpu);
                        keeper.online(cpu);
                    }
                    left.fetch_sub(1, Relaxed);
                });
            }
            s.spawn(|| {
                let mut now = 0;
                while left.load(Relaxed) > 0 {
                    now += 700;
                    keeper.shepherd(now);
                    for cpu in 0..8 {
                        let tick = keeper.tick(cpu, now);
                        assert!(tick.next_due_ns.is_none_or(|next| next > now), "{tick:?}");
                    }
                    thread::yield_now();
                }
            });
        });
        assert_all_there(&pcp, 0);
        for cpu in 0..8 {
            let cached = pcp.cached(cpu);
            assert_eq!(keeper.offline(cpu), cached);
        }
        assert_eq!(keeper.next_due_ns(), None);
        // Threads of the restartable tier were on CPUs of their own choice.
        pcp.drain_all();
        assert_eq!(pcp.zone().stats().free, FRAMES, "{tier:?}");
    }
}

fn seeds() -> Vec<u64> {
    let day = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs() / 86_400);
    let seeds = match std::env::var("SEED").ok().and_then(|s| s.parse().ok()) {
        Some(seed) => vec![seed],
        None if cfg!(miri) => vec![1],
        None => vec![1, 2, 3, day],
    };
    writeln!(std::io::stderr(), "housekeeping: SEED={seeds:?}").unwrap();
    seeds
}

/// Random calls on several CPUs, turns in between that are up to 1% of the interval late, CPUs that come and go.
struct Chaos<'a> {
    pcp: &'a PcpLists<'static>,
    keeper: Housekeeper<'a, 'static, Spread>,
    rng: Rng,
    held: Vec<(FrameNo, Order)>,
    /// The last turn of each CPU that has one to come.
    last: Vec<Option<u64>>,
    runs: u64,
}

const CPUS: u32 = 12;

impl Chaos<'_> {
    fn below(&mut self, n: u32) -> u32 {
        u32::try_from(self.rng.below(u64::from(n))).unwrap()
    }

    fn use_frames(&mut self) {
        pretend(self.below(CPUS));
        let (calls, gives) = (self.below(200), self.below(4));
        for _ in 0..calls {
            if self.below(4) < gives {
                let at = self.rng.below(self.held.len().max(1) as u64);
                if !self.held.is_empty() {
                    let (frame, order) = self.held.swap_remove(usize::try_from(at).unwrap());
                    self.pcp.free(frame, order).unwrap();
                }
            } else if self.held.len() < 12_000 {
                let order = Order::new([0, 0, 0, 0, 0, 0, 1, 2, 3, 5][self.below(10) as usize]).unwrap();
                let migrate = MigrateType::ALL[self.below(3) as usize];
                if let Ok(frame) = self.pcp.alloc_without_draining(order, migrate) {
                    self.held.push((frame, order));
                }
            }
        }
    }

    fn hotplug(&mut self) {
        let cpu = self.below(CPUS);
        if self.keeper.is_online(cpu) {
            let cached = self.pcp.cached(cpu);
            assert_eq!(self.keeper.offline(cpu), cached);
            assert_eq!(self.pcp.cached(cpu), 0);
            self.last[cpu as usize] = None;
        } else {
            assert!(self.keeper.online(cpu));
        }
    }

    /// Whoever is due, in any order.
    fn runs(&mut self, now: u64, interval: u64) {
        let first = self.below(CPUS);
        for cpu in (0..CPUS).map(|n| (first + n) % CPUS) {
            let before = self.pcp.cached(cpu);
            let tick = self.keeper.tick(cpu, now);
            let after = self.pcp.cached(cpu);
            assert_eq!(before - after, tick.decayed.drained);
            let last = &mut self.last[cpu as usize];
            match tick.run {
                Run::Decay => {
                    if let Some(last) = *last {
                        let since = now - last;
                        assert!(since.abs_diff(interval) <= interval / 100, "CPU {cpu}: {since} ns after the last");
                    }
                    // An idle set goes as a whole; any other not below its mark, but for a part of a block.
                    let kept = after + 7 >= u64::from(LIMITS.high_min).min(before);
                    assert!(kept || after == 0, "CPU {cpu}: {before}, {tick:?}");
                    assert!(tick.decayed.drained <= 2016 + 7, "{tick:?}");
                    self.runs += 1;
                    *last = tick.next_due_ns.map(|_| now);
                }
                Run::NotDue | Run::Offline => assert_eq!(tick.decayed, Decayed::default()),
                other => panic!("CPU {cpu}: {other:?}"),
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "thousands of calls on a zone take minutes when interpreted")]
fn nothing_is_lost_and_every_cpu_with_work_has_its_turn_once_an_interval() {
    for seed in seeds() {
        let interval = SECOND;
        let pcp = locked(CPUS);
        let mut slots = slots(CPUS as usize);
        let config = HousekeeperConfig { nodes: &[0, 0, 1, 0, 1, 1], ..every(interval) };
        let keeper = Housekeeper::new(std::slice::from_ref(&pcp), &mut slots, Spread, &config);
        let mut rng = Rng::new(seed);
        let (mut now, mut look) = (rng.below(1 << 40), 0);
        let last = vec![None; CPUS as usize];
        let mut chaos = Chaos { pcp: &pcp, keeper, rng, held: Vec::new(), last, runs: 0 };
        (0..CPUS / 2).for_each(|cpu| assert!(chaos.keeper.online(2 * cpu)));
        for step in 0..4000 {
            if now >= look {
                chaos.keeper.shepherd(now);
                look = now + interval;
            }
            chaos.runs(now, interval);
            match chaos.below(40) {
                0 => chaos.hotplug(),
                1..12 => chaos.use_frames(),
                _ => {}
            }
            if step % 500 == 0 {
                let handed_out = chaos.held.iter().map(|(_, order)| u64::from(order.frames())).sum();
                assert_all_there(&pcp, handed_out);
            }
            // Up to a two-hundredth late.
            let next = chaos.keeper.next_due_ns().map_or(look, |due| due.min(look)).max(now);
            now = next + chaos.rng.below(interval / 200);
        }
        assert!(chaos.runs > 1000, "seed {seed}: {} turns", chaos.runs);
        chaos.held.drain(..).for_each(|(frame, order)| pcp.free(frame, order).unwrap());
        // Nobody uses anything any more: ticks alone bring all of it back.
        for cpu in 0..CPUS {
            chaos.keeper.online(cpu);
        }
        for _ in 0..100 * CPUS {
            chaos.keeper.shepherd(now);
            (0..CPUS).for_each(|cpu| assert_ne!(chaos.keeper.tick(cpu, now).run, Run::Offline));
            now = chaos.keeper.next_due_ns().unwrap_or(now);
        }
        assert_eq!(chaos.keeper.next_due_ns(), None, "seed {seed}: somebody is still due");
        assert_all_there(&pcp, 0);
        assert_eq!(pcp.zone().stats().free, FRAMES, "seed {seed}: idle lists keep something");
    }
}
