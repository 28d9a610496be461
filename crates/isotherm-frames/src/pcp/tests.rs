//! Lists that another thread holds, or has died in.

use super::testing::{assert_all_there, fill, pcp, pcp_of, pretend, tiers};
use super::*;
use crate::pcp::lists::order_of;
use crate::tune::PcpLimits;
use crate::{FrameNo, FrameRange, MigrateType, Order, Watermarks, ZoneConfig};
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;
use std::thread;

const LIMITS: PcpLimits = PcpLimits { batch: 63, high_min: 252, high_max: 1024 };

/// Keeps everyone out of a CPU's set while `act` runs.
fn while_had<T>(pcp: &PcpLists<'_>, cpu: u32, act: impl FnOnce() -> T) -> T {
    let _held = pcp.lists.hold(cpu).unwrap();
    act()
}

/// The CPU in whose set all of these wait; `None` if the thread was moved meanwhile.
fn fill_one(pcp: &PcpLists<'_>, frames: usize) -> Option<u32> {
    pretend(3);
    fill(pcp, frames);
    (0..pcp.cpus()).find(|&cpu| pcp.cached(cpu) == frames as u64)
}

/// The same, again until it is not.
fn filled(pcp: &PcpLists<'_>, frames: usize) -> u32 {
    let cpu = (0..50).find_map(|_| {
        pcp.drain_all();
        fill_one(pcp, frames)
    });
    cpu.expect("fifty times the thread was moved meanwhile")
}

#[test]
#[cfg_attr(miri, ignore = "thousands of calls on a zone take minutes when interpreted")]
fn the_last_frames_are_had_once_whoever_has_their_set_is_done() {
    // With and without frames that are kept for urgent requests.
    for (tier, kept) in tiers().into_iter().flat_map(|tier| [(tier, 0), (tier, 2)]) {
        let watermarks = Watermarks { min: kept, low: kept, high: kept };
        let span = ZoneConfig { watermarks, ..ZoneConfig::new(FrameRange::new(FrameNo(0), FrameNo(4096))) };
        let pcp = pcp_of(span, &PcpConfig { tier, limits: Some(LIMITS), ..PcpConfig::new(1024) });
        let taken = 4090 - usize::try_from(kept).unwrap();
        let mut frames = vec![FrameNo(0); taken];
        assert_eq!(pcp.zone().alloc_bulk(Order::FRAME, MigrateType::Movable, &mut frames), taken);
        // A machine that is busy may keep the holder from letting go in time: until it did not.
        let has_waited = (0..50).any(|_| {
            let Some(cpu) = fill_one(&pcp, 6) else {
                pcp.drain_all();
                return false;
            };
            let failed = || pcp.zone().stats().events.failed;
            let (before, is_over) = (failed(), AtomicBool::new(false));
            let got = thread::scope(|s| {
                let asks = || {
                    pretend(5);
                    let got = pcp.alloc_slow(Order::FRAME, MigrateType::Movable);
                    is_over.store(true, Relaxed);
                    got
                };
                let asking = while_had(&pcp, cpu, || {
                    let asking = s.spawn(asks);
                    // Before and after draining, and once more: whoever gives up then is over.
                    while failed() < before + 3 && !is_over.load(Relaxed) {
                        thread::yield_now();
                    }
                    asking
                });
                asking.join().unwrap()
            });
            pcp.drain_all();
            got.is_ok_and(|frame| pcp.zone().free(frame, Order::FRAME).is_ok())
        });
        assert!(has_waited, "{tier:?}, {kept} kept");
        pcp.drain_all();
        assert_all_there(&pcp, taken as u64);
    }
}

/// Else a thread that finds the lists empty, and the zone as well, would fail while the last frames are on their way.
#[test]
#[cfg_attr(miri, ignore = "thousands of calls on a zone take minutes when interpreted")]
fn blocks_stay_on_their_lists_until_they_are_in_the_zone() {
    for tier in tiers() {
        let pcp = pcp(4096, &PcpConfig { tier, limits: Some(LIMITS), ..PcpConfig::new(1024) });
        let cpu = filled(&pcp, 200);
        let mut left = Vec::new();
        let had = pcp.lists.take_all(cpu, |list, blocks| {
            left.push((pcp.lists.count(cpu, list) as usize, blocks.len()));
            pcp.zone().give_back(blocks, order_of(list));
        });
        assert!(had && !left.is_empty(), "{tier:?}");
        assert!(left.iter().all(|(count, given)| count >= given), "{tier:?}: {left:?}");
        assert_eq!(pcp.cached(cpu), 0);
        assert_all_there(&pcp, 0);
    }
}

/// Else whoever takes a CPU offline, and all who come or go meanwhile, would wait for a dead thread for minutes.
#[test]
#[cfg_attr(miri, ignore = "spins for long")]
fn draining_for_good_gives_up_at_the_first_list_that_cannot_be_had() {
    for tier in tiers() {
        let pcp = pcp(4096, &PcpConfig { tier, limits: Some(LIMITS), ..PcpConfig::new(1024) });
        let cpu = filled(&pcp, 6);
        while_had(&pcp, cpu, || {
            let drained = pcp.drain_if_free(cpu);
            assert_eq!((drained.frames, drained.missed), (0, true), "{tier:?}");
            assert_eq!(pcp.drain_offline(cpu), 0, "{tier:?}");
        });
        assert_eq!(pcp.drain_offline(cpu), 6, "{tier:?}");
        assert!(!pcp.drain_if_free(cpu).missed);
        assert_all_there(&pcp, 0);
    }
}

/// Threads that died in a set, with its lock, its tuner's, or with the CPU stopped.
#[test]
#[cfg_attr(miri, ignore = "thousands of calls on a zone take minutes when interpreted")]
fn sets_that_someone_died_in_are_passed_over() {
    let (frames, cpus) = (4096, 256);
    for tier in [Tier::Locked, Tier::Best] {
        let pcp = pcp(frames, &PcpConfig { tier, ..PcpConfig::new(cpus) });
        for cpu in 0..pcp.cpus() {
            core::mem::forget(pcp.states.of(cpu).and_then(|state| state.lock.try_lock()));
            core::mem::forget(pcp.lists.hold(cpu));
        }
        let all: Vec<FrameNo> = (0..frames).map(|_| pcp.alloc(Order::FRAME, MigrateType::Movable).unwrap()).collect();
        assert!(pcp.alloc(Order::FRAME, MigrateType::Movable).is_err());
        all.into_iter().for_each(|frame| pcp.free(frame, Order::FRAME).unwrap());
        assert_eq!(pcp.drain_all(), 0);
        pcp.zone().validate().unwrap();
        assert_eq!(pcp.zone().stats().free, frames, "{tier:?}");
    }
}
