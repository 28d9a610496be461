use super::*;
use crate::pcp::testing::{assert_all_there, fill, let_keep, memory, pcp, pretend, tiers};
use crate::pcp::{Front, OwnedPcpLists, Tier};
use crate::tune::{PcpLimits, Pressure};
use crate::{FrameNo, MigrateType, Order, PcpConfig, PcpError};
use std::thread;

const LIMITS: PcpLimits = PcpLimits { batch: 63, high_min: 252, high_max: 8192 };
/// For lists of very many CPUs: a thread has lists on any of them.
const SMALL: PcpLimits = PcpLimits { high_max: 1024, ..LIMITS };
const MOVABLE: MigrateType = MigrateType::Movable;
const NEVER_IDLE: Pace = Pace { idle_after: 0, max_deferrals: 8 };

/// Lists in which CPU 3 has so many frames, and may keep them: behind locks.
fn filled(frames: usize) -> PcpLists<'static> {
    let pcp = pcp(32 << 10, &PcpConfig { tier: Tier::Locked, limits: Some(LIMITS), ..PcpConfig::new(8) });
    pretend(3);
    let_keep(&pcp, 3, LIMITS.high_max);
    fill(&pcp, frames);
    assert_eq!(pcp.cached(3), frames as u64);
    pcp
}

#[test]
fn a_turn_gives_back_what_the_kernels_formula_says() {
    let pcp = filled(8000);
    let mut naive = Tuner::new(LIMITS);
    while naive.refill(Order::FRAME, 0, Pressure::NONE) < 2016 || naive.high() < LIMITS.high_max {}
    assert_eq!(naive.high(), LIMITS.high_max);
    let mut turns = 0;
    loop {
        let before = pcp.cached(3);
        let expected = naive.decay(u32::try_from(before).unwrap());
        let decayed = pcp.decay(3, &NEVER_IDLE);
        assert_eq!(decayed.drained, u64::from(expected.drain), "turn {turns}, {before} waited");
        assert_eq!(pcp.cached(3), before - decayed.drained);
        assert_eq!(u64::from(decayed.chunks), decayed.drained.div_ceil(63), "chunks of a batch");
        assert_eq!((decayed.again, decayed.left, decayed.missed), (expected.again, 0, false));
        assert_all_there(&pcp, 0);
        turns += 1;
        if !decayed.again {
            break;
        }
    }
    assert_eq!(pcp.cached(3), 252);
    assert!(!pcp.needs_decay(3, &NEVER_IDLE) && pcp.needs_decay(3, &Pace::default()));
    assert!(turns > 20, "{turns}");
}

#[test]
fn a_set_that_has_shrunk_does_not_grow_again_unasked() {
    let pcp = filled(8000);
    while pcp.decay(3, &NEVER_IDLE).again {}
    assert_eq!(pcp.cached(3), 252);
    // Had its lists kept their old limits, nobody would have looked at what it may keep before all of these were in.
    fill(&pcp, 4000);
    assert!(pcp.cached(3) < 2500, "{}", pcp.cached(3));
    assert_all_there(&pcp, 0);
}

#[test]
fn the_coldest_go_first_from_a_set_of_any_cpu() {
    for tier in tiers() {
        let pcp = pcp(32 << 10, &PcpConfig { tier, limits: Some(SMALL), ..PcpConfig::new(1024) });
        pretend(7);
        // With restartable sequences the thread may be moved meanwhile: repeat until it was not.
        let mut outcome = None;
        for _ in 0..100 {
            pcp.drain_all();
            let frames = fill(&pcp, 252);
            let cpu = (0..pcp.cpus()).find(|&cpu| pcp.cached(cpu) == 252);
            let Some(cpu) = cpu else { continue };
            let_keep(&pcp, cpu, 288);
            fill(&pcp, 36);
            if pcp.cached(cpu) != 288 {
                continue;
            }
            let_keep(&pcp, cpu, 288);
            outcome = Some((pcp.decay(cpu, &NEVER_IDLE), frames));
            break;
        }
        let (decayed, frames) = outcome.expect("a hundred times the thread was moved meanwhile");
        assert_eq!((decayed.drained, decayed.chunks), (36, 1), "{tier:?}");
        for (n, &frame) in frames.iter().enumerate() {
            let is_free = matches!(pcp.zone().state(frame), crate::FrameState::Free(_) | crate::FrameState::Inside);
            assert_eq!(is_free, n < 36, "{tier:?}: number {n}");
        }
        assert_all_there(&pcp, 0);
    }
}

#[test]
fn a_taken_lock_puts_the_rest_off_until_there_is_no_end_to_it() {
    let pcp = filled(8000);
    let pace = Pace { max_deferrals: 2, ..NEVER_IDLE };
    let metadata = pcp.zone().metadata.lock();
    let first = pcp.decay(3, &pace);
    // An eighth of 8192: down to 7168.
    assert_eq!((first.drained, first.chunks, first.contended, first.left), (0, 0, 1, 8000 - 7168));
    assert!(first.again && first.is_deferred());
    assert_eq!(pcp.decay_rest(3, &pace).left, 8000 - 7168, "no further eighth");
    assert_eq!(pcp.cached(3), 8000);
    thread::scope(|s| {
        let third = s.spawn(|| pcp.decay_rest(3, &pace));
        while pcp.zone().metadata.raw().contended() == 0 {
            thread::yield_now();
        }
        drop(metadata);
        let third = third.join().unwrap();
        assert_eq!((third.drained, third.left), (8000 - 7168, 0));
        assert!(third.contended >= 1);
    });
    assert_eq!(pcp.cached(3), 7168);
    // In a row means in a row.
    let metadata = pcp.zone().metadata.lock();
    assert!(pcp.decay(3, &pace).is_deferred());
    drop(metadata);
    assert_all_there(&pcp, 0);
}

#[test]
fn what_was_put_off_is_less_by_what_was_used_since() {
    let pcp = filled(8000);
    let metadata = pcp.zone().metadata.lock();
    assert_eq!(pcp.decay(3, &NEVER_IDLE).left, 832);
    drop(metadata);
    let taken: Vec<FrameNo> = (0..800).map(|_| pcp.alloc(Order::FRAME, MOVABLE).unwrap()).collect();
    assert_eq!(pcp.decay_rest(3, &NEVER_IDLE).drained, 32);
    assert_eq!(pcp.decay_rest(3, &NEVER_IDLE).drained, 0);
    assert_all_there(&pcp, taken.len() as u64);
}

#[test]
fn a_rest_is_not_more_for_what_came_since() {
    let pcp = filled(7300);
    let metadata = pcp.zone().metadata.lock();
    assert_eq!(pcp.decay(3, &NEVER_IDLE).left, 7300 - 7168);
    drop(metadata);
    // The owner frees more before the rest comes, and may keep it.
    let_keep(&pcp, 3, LIMITS.high_max);
    fill(&pcp, 700);
    let cached = pcp.cached(3);
    assert!(cached > 7300, "{cached}");
    assert_eq!((pcp.decay_rest(3, &NEVER_IDLE).drained, pcp.cached(3)), (132, cached - 132));
    assert_eq!(pcp.decay_rest(3, &NEVER_IDLE).drained, 0, "it was done");
    assert_all_there(&pcp, 0);
}

#[test]
fn a_set_whose_turn_was_not_put_off_has_no_rest_and_keeps_its_traces() {
    let pcp = filled(200);
    let pace = Pace { idle_after: 2, ..Pace::default() };
    assert_eq!(pcp.decay(3, &pace).drained, 0);
    for _ in 0..4 {
        // Used between every two turns, and a rest, of another zone's set, comes in between.
        fill(&pcp, 10);
        let rest = pcp.decay_rest(3, &pace);
        assert_eq!((rest.drained, rest.left, rest.missed), (0, 0, false));
        assert_eq!(pcp.decay(3, &pace).drained, 0, "taken for idle");
    }
    assert_all_there(&pcp, 0);
}

#[test]
fn an_idle_set_goes_back_as_a_whole_and_one_in_use_stays() {
    let pcp = filled(200);
    let pace = Pace::default();
    // The first turn sees that it is new; three without use follow.
    for decay_run in 0..3 {
        let decayed = pcp.decay(3, &pace);
        assert_eq!((decayed.drained, decayed.again), (0, true), "turn {decay_run}");
    }
    // Used by half: two that come and one that goes.
    let one = pcp.alloc(Order::FRAME, MOVABLE).unwrap();
    for _ in 0..3 {
        assert_eq!(pcp.decay(3, &pace).drained, 0);
    }
    let last = pcp.decay(3, &pace);
    assert_eq!((last.drained, last.again, pcp.cached(3)), (199, false, 0));
    assert!(!pcp.needs_decay(3, &pace), "and what it may keep is at the low mark");
    pcp.free(one, Order::FRAME).unwrap();
    assert!(pcp.needs_decay(3, &pace));
    assert_all_there(&pcp, 0);
}

#[test]
fn an_idle_set_that_was_put_off_and_is_used_again_stays() {
    let pcp = filled(200);
    (0..3).for_each(|_| assert_eq!(pcp.decay(3, &Pace::default()).drained, 0));
    let metadata = pcp.zone().metadata.lock();
    assert_eq!(pcp.decay(3, &Pace::default()).left, 200);
    drop(metadata);
    let one = pcp.alloc(Order::FRAME, MOVABLE).unwrap();
    assert_eq!(pcp.decay_rest(3, &Pace::default()).drained, 0);
    pcp.free(one, Order::FRAME).unwrap();
    assert_all_there(&pcp, 0);
}

#[test]
fn a_block_larger_than_what_is_to_go_goes_when_nothing_smaller_waits() {
    let pcp = filled(0);
    let huge = pcp.zone().alloc(Order::HUGE, MOVABLE).unwrap();
    pcp.free(huge, Order::HUGE).unwrap();
    let small = fill(&pcp, 100);
    let_keep(&pcp, 3, LIMITS.high_min);
    // 612 wait, 252 may: 100 single ones first, then the huge one for the 260 that are left.
    let decayed = pcp.decay(3, &NEVER_IDLE);
    assert_eq!((decayed.drained, decayed.again), (612, true));
    assert!(small.iter().all(|&frame| !matches!(pcp.zone().state(frame), crate::FrameState::Cached(_))));
    assert!(!pcp.decay(3, &NEVER_IDLE).again);
    assert_all_there(&pcp, 0);
}

#[test]
fn lists_give_in_turn() {
    let pcp = filled(0);
    let two = Order::new(1).unwrap();
    for order in [Order::FRAME, two] {
        let got: Vec<FrameNo> = (0..400).map(|_| pcp.zone().alloc(order, MOVABLE).unwrap()).collect();
        got.into_iter().for_each(|frame| pcp.free(frame, order).unwrap());
    }
    let_keep(&pcp, 3, 1152);
    // 1200 wait, 1008 may: 63 single ones, 31 twos, 63 single ones, and two twos.
    let decayed = pcp.decay(3, &NEVER_IDLE);
    let movable = |order| crate::pcp::lists::list_of(order, MOVABLE).unwrap();
    assert_eq!((decayed.drained, decayed.chunks), (192, 4));
    assert_eq!((pcp.lists.count(3, movable(Order::FRAME)), pcp.lists.count(3, movable(two))), (400 - 126, 400 - 33));
    assert_all_there(&pcp, 0);
}

#[test]
fn a_set_that_cannot_be_had_is_missed() {
    for tier in tiers() {
        let pcp = pcp(4096, &PcpConfig { tier, limits: Some(SMALL), ..PcpConfig::new(1024) });
        pretend(0);
        fill(&pcp, 100);
        let cpu = (0..1024).find(|&cpu| pcp.cached(cpu) > 0).unwrap();
        let cached = pcp.cached(cpu);
        (0..3).for_each(|_| assert_eq!(pcp.decay(cpu, &Pace::default()).drained, 0));
        let missed = {
            let _held = pcp.lists.hold(cpu).unwrap();
            pcp.decay(cpu, &Pace::default())
        };
        assert_eq!((missed.missed, missed.drained, missed.again), (true, 0, true), "{tier:?}");
        assert_eq!(pcp.decay(cpu, &Pace::default()).drained, cached);
        let _tuner = pcp.states.of(cpu).unwrap().lock.try_lock().unwrap();
        assert!(pcp.decay(cpu, &Pace::default()).missed);
        assert_eq!(pcp.decay(5000, &Pace::default()), Decayed::default());
        assert!(!pcp.needs_decay(5000, &Pace::default()));
        assert_all_there(&pcp, 0);
    }
}

/// Several threads drain one CPU's lists while another fills and empties it.
#[test]
#[cfg_attr(miri, ignore = "thousands of calls on a zone take minutes when interpreted")]
fn nothing_is_lost_between_those_who_tidy_and_those_who_drain() {
    for tier in tiers() {
        let pcp = pcp(32 << 10, &PcpConfig { tier, limits: Some(SMALL), ..PcpConfig::new(1024) });
        thread::scope(|s| {
            for cpu in 0..4 {
                let pcp = &pcp;
                s.spawn(move || {
                    pretend(cpu % 2);
                    for round in 0..60 {
                        fill(pcp, 700);
                        for cpu in 0..4 {
                            let pace = Pace { idle_after: 1, max_deferrals: round % 3 };
                            pcp.decay(cpu, &pace);
                            pcp.decay_rest(cpu, &pace);
                            if round % 5 == 0 {
                                pcp.drain(cpu);
                            }
                        }
                    }
                });
            }
        });
        assert_all_there(&pcp, 0);
        pcp.drain_all();
        assert_eq!(pcp.zone().stats().free, 32 << 10, "{tier:?}");
    }
}

#[test]
fn an_owner_tidies_his_set() -> Result<(), PcpError> {
    let pcp = pcp(32 << 10, &PcpConfig { tier: Tier::Locked, limits: Some(LIMITS), ..PcpConfig::new(1) });
    let zone = pcp.zone();
    let mut set = OwnedPcpLists::new(zone, LIMITS, memory(OwnedPcpLists::metadata_bytes(LIMITS)))?;
    let mut frames = vec![FrameNo(0); 4000];
    assert_eq!(zone.alloc_bulk(Order::FRAME, MOVABLE, &mut frames), 4000);
    frames.into_iter().for_each(|frame| set.free(frame, Order::FRAME).unwrap());
    let mut naive = set.tuner.clone();
    let before = set.cached();
    assert!(before > 252);
    let metadata = zone.metadata.lock();
    let expected = naive.decay(u32::try_from(before).unwrap());
    assert_eq!(set.decay(&Pace::default()).left, expected.drain);
    drop(metadata);
    assert_eq!(set.decay_rest(&Pace::default()).drained, u64::from(expected.drain));
    assert_eq!(set.cached(), before - u64::from(expected.drain));
    let mut turns = 0;
    while set.decay(&Pace::default()).again {
        turns += 1;
        assert!(turns < 100);
        zone.validate().unwrap();
    }
    assert_eq!((set.cached(), set.tuner.high(), zone.stats().free), (0, 252, 32 << 10));
    let frame = Front::alloc(&mut set, Order::FRAME, MOVABLE).unwrap();
    Front::free(&mut set, frame, Order::FRAME).unwrap();
    drop(set);
    assert_eq!(zone.stats().free, 32 << 10);
    Ok(())
}
