//! The three tiers of pcp lists under one suite: against a naive model, from several threads, and with forced conflicts.

mod support;

use isotherm_frames::percpu::Rseq;
use isotherm_frames::tune::PcpLimits;
use isotherm_frames::{
    AllocError, Colouring, FrameNo, FrameState, Front, Metadata, MigrateType, Offline, Order, OwnedPcpLists, PcpConfig,
    PcpError, PcpLists, Tier, Watermarks, WrongFree, Zone, ZoneConfig, Zones,
};
use isotherm_rng::Rng;
use std::collections::HashSet;
use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use support::{Naive, below, cpus, frames, metadata, seeds};

const MOVABLE: MigrateType = MigrateType::Movable;

/// Memory that outlives every test: a zone of it can be shared with threads without ceremony.
fn leak(bytes: usize) -> Metadata<'static> {
    Metadata::zeroed(Box::leak(vec![0; bytes].into_boxed_slice()))
}

fn zone(config: &ZoneConfig) -> Zone<'static> {
    let zone = Zone::new(config, leak(config.metadata_bytes().unwrap())).unwrap();
    zone.add(config.span, MOVABLE).unwrap();
    zone
}

fn pcp(config: &ZoneConfig, tier: Tier) -> PcpLists<'static> {
    let zone = zone(config);
    let config = PcpConfig { tier, ..PcpConfig::new(cpus()) };
    let memory = leak(config.metadata_bytes(&zone));
    PcpLists::new(zone, &config, memory).unwrap()
}

/// The tiers that there are here.
fn tiers() -> Vec<Tier> {
    match Rseq::check() {
        Ok(_) => vec![Tier::Restartable, Tier::Locked],
        Err(why) => {
            let _ = std::io::stderr().write_all(format!("skipped: needs restartable sequences: {why}\n").as_bytes());
            vec![Tier::Locked]
        }
    }
}

fn owned<'z>(zone: &'z Zone<'static>) -> OwnedPcpLists<'z, 'static> {
    let limits = PcpLimits::for_zone(zone.stats().present, 0, 1, None);
    OwnedPcpLists::new(zone, limits, leak(OwnedPcpLists::metadata_bytes(limits))).unwrap()
}

/// Random calls beside a naive model. What waits in a set is neither free nor handed out, so only what was handed out is compared,
/// and that an allocation fails only when nothing is left.
fn model(front: &mut impl Front, zone: &Zone<'_>, seed: u64, steps: u32) {
    let mut rng = Rng::new(seed);
    let mut naive = Naive::default();
    naive.add(zone.span());
    for step in 0..steps {
        let filling = step / 700 % 2 == 0;
        if (rng.below(10) < 7) == filling {
            let order = Order::new([0, 0, 0, 0, 1, 2, 3, 4, 9, 10][below(&mut rng, 10)]).unwrap();
            let migrate = MigrateType::ALL[below(&mut rng, 3)];
            match front.alloc(order, migrate) {
                Ok(frame) => naive.allocate(frame, order, migrate),
                Err(AllocError::Exhausted { .. }) => {
                    assert!(!naive.has_free(order), "seed {seed}, step {step}: {order:?}")
                }
                Err(other) => panic!("seed {seed}, step {step}: {other}"),
            }
        } else if let Some((first, order)) = naive.any_allocated(&mut rng) {
            let wrong = Order::new((order.get() + 3) % 11).unwrap();
            assert_eq!(front.free(FrameNo(first), wrong).unwrap_err().why, WrongFree::OtherOrder(order));
            front.free(FrameNo(first), order).unwrap_or_else(|e| panic!("seed {seed}, step {step}: {e}"));
            naive.release(first);
            let again = front.free(FrameNo(first), order).unwrap_err().why;
            assert!(matches!(again, WrongFree::AlreadyFree | WrongFree::InsideBlock), "seed {seed}: {again}");
        }
        if step % 500 == 0 {
            zone.validate().unwrap_or_else(|e| panic!("seed {seed}, step {step}: {e}"));
        }
    }
    while let Some((first, order)) = naive.any_allocated(&mut rng) {
        front.free(FrameNo(first), order).unwrap();
        naive.release(first);
    }
    front.drain();
    zone.validate().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    assert_eq!(zone.stats().free, zone.stats().present, "seed {seed}: everything is back");
    assert_eq!(zone.stats().events.wrong_state, 0);
}

#[test]
fn shared_sets_are_what_the_model_says() {
    for tier in tiers() {
        for seed in seeds() {
            let pcp = pcp(&ZoneConfig { seed, ..ZoneConfig::new(frames(0, 16 << 10)) }, tier);
            model(&mut &pcp, pcp.zone(), seed, 4000);
        }
    }
}

#[test]
fn owned_sets_are_what_the_model_says() {
    for seed in seeds() {
        let zone = zone(&ZoneConfig { seed, ..ZoneConfig::new(frames(1 << 30, 16 << 10)) });
        model(&mut owned(&zone), &zone, seed, 4000);
    }
}

#[test]
fn coloured_sets_are_what_the_model_says() {
    for tier in tiers() {
        let config = ZoneConfig { colouring: Some(Colouring::exact(4096)), ..ZoneConfig::new(frames(0, 16 << 10)) };
        let pcp = pcp(&config, tier);
        model(&mut &pcp, pcp.zone(), 3, 3000);
    }
}

/// Several threads that never pin themselves: nobody gets what another has, and all of it comes back.
#[test]
fn threads_never_share_a_block() {
    for tier in tiers() {
        for unique in [false, true] {
            let span = frames(0, 32 << 10);
            let zone = zone(&ZoneConfig::new(span));
            let config = PcpConfig { tier, ..PcpConfig::new(cpus()) };
            let memory = leak(config.metadata_bytes(&zone));
            let pcp = PcpLists::new(zone, &config, memory).unwrap();
            // For each frame, whose it is.
            let owners: Vec<AtomicU64> = (0..span.len()).map(|_| AtomicU64::new(0)).collect();
            let done = AtomicBool::new(false);
            thread::scope(|s| {
                let workers: Vec<_> = (1..=4)
                    .map(|id| {
                        s.spawn({
                            let (pcp, owners) = (&pcp, &owners);
                            move || work(pcp, owners, id, unique)
                        })
                    })
                    .collect();
                // Someone drains all the time.
                s.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        pcp.drain_all();
                        thread::yield_now();
                    }
                });
                let ends: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
                done.store(true, Ordering::Relaxed);
                ends.into_iter().for_each(|end| end.unwrap());
            });
            pcp.drain_all();
            pcp.zone().validate().unwrap();
            let stats = pcp.zone().stats();
            assert_eq!((stats.free, stats.events.wrong_state), (stats.present, 0), "{tier:?}");
        }
    }
}

fn work(pcp: &PcpLists<'_>, owners: &[AtomicU64], id: u64, unique: bool) {
    let free = |frame, order| if unique { pcp.free_unique(frame, order) } else { pcp.free(frame, order) };
    let mut rng = Rng::new(id);
    let mut mine: Vec<(FrameNo, Order)> = Vec::new();
    let claim = |frame: FrameNo, order: Order, from: u64, to: u64| {
        for f in frame.0..frame.0 + u64::from(order.frames()) {
            let was = owners[usize::try_from(f).unwrap()].swap(to, Ordering::Relaxed);
            assert_eq!(was, from, "frame {f} was {was}'s when {id} took or gave it");
        }
    };
    for _ in 0..60_000 {
        if mine.len() < 600 && rng.below(2) == 0 {
            let order = Order::new([0, 0, 0, 0, 0, 0, 1, 3][below(&mut rng, 8)]).unwrap();
            if let Ok(frame) = pcp.alloc(order, MigrateType::ALL[below(&mut rng, 3)]) {
                claim(frame, order, 0, id);
                mine.push((frame, order));
            }
        } else if !mine.is_empty() {
            let at = below(&mut rng, mine.len());
            let (frame, order) = mine.swap_remove(at);
            claim(frame, order, id, 0);
            free(frame, order).unwrap();
        }
    }
    for (frame, order) in mine {
        claim(frame, order, id, 0);
        free(frame, order).unwrap();
    }
}

/// Two threads free the same block at the same instant, over and over, one of them now and then straight to the zone: one is told, and
/// the books stay right.
#[test]
fn of_two_frees_at_once_one_is_refused() {
    const ROUNDS: u64 = 20_000;
    for tier in tiers() {
        let pcp = pcp(&ZoneConfig::new(frames(0, 4096)), tier);
        // The round whose frame is to be freed, and how often it was.
        let (round, frame) = (AtomicU64::new(0), AtomicU64::new(0));
        let ends: [AtomicU64; 2] = Default::default();
        let freed = AtomicU64::new(0);
        let frees = |who: usize| {
            for number in 1..=ROUNDS {
                while round.load(Ordering::Acquire) < number {
                    thread::yield_now();
                }
                let mine = FrameNo(frame.load(Ordering::Relaxed));
                let result = match number % 3 {
                    0 if who == 0 => pcp.free_bulk(&[mine], Order::FRAME),
                    1 if who == 0 => pcp.zone().free(mine, Order::FRAME),
                    _ => pcp.free(mine, Order::FRAME),
                };
                freed.fetch_add(u64::from(result.is_ok()), Ordering::Relaxed);
                ends[who].store(number, Ordering::Release);
            }
        };
        thread::scope(|s| {
            s.spawn(|| frees(0));
            s.spawn(|| frees(1));
            for number in 1..=ROUNDS {
                frame.store(pcp.alloc(Order::FRAME, MOVABLE).unwrap().0, Ordering::Relaxed);
                round.store(number, Ordering::Release);
                while ends.iter().any(|end| end.load(Ordering::Acquire) < number) {
                    thread::yield_now();
                }
            }
        });
        assert_eq!(freed.into_inner(), ROUNDS, "{tier:?}: of each two one");
        pcp.drain_all();
        pcp.zone().validate().unwrap();
        let stats = pcp.zone().stats();
        assert_eq!((stats.free, stats.events.refused, stats.events.wrong_state), (4096, ROUNDS, 0), "{tier:?}");
    }
}

#[test]
fn the_last_frame_is_found_in_whatever_set_it_waits() {
    for tier in tiers() {
        let pcp = pcp(&ZoneConfig::new(frames(0, 1024)), tier);
        let all: Mutex<Vec<FrameNo>> = Mutex::default();
        // Threads that come and go leave frames on the lists of the CPUs they were on.
        thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    let frame = pcp.alloc(Order::FRAME, MOVABLE).unwrap();
                    all.lock().unwrap().push(frame);
                });
            }
        });
        let mut all = all.into_inner().unwrap();
        while let Ok(frame) = pcp.alloc(Order::FRAME, MOVABLE) {
            all.push(frame);
        }
        let distinct: HashSet<_> = all.iter().collect();
        assert_eq!((all.len(), distinct.len()), (1024, 1024));
        for frame in all {
            pcp.free(frame, Order::FRAME).unwrap();
        }
        // Single frames on lists keep the one large block split until it is requested.
        assert!(pcp.alloc(Order::MAX, MOVABLE).is_ok());
    }
}

/// A frame that is named may wait in a list inside a larger block.
#[test]
fn a_frame_that_is_named_is_found_inside_a_cached_block() {
    for tier in tiers() {
        let pcp = pcp(&ZoneConfig::new(frames(0, 1024)), tier);
        for cached in [1, 3, 9] {
            let cached = Order::new(cached).unwrap();
            let block = pcp.alloc(cached, MOVABLE).unwrap();
            pcp.free(block, cached).unwrap();
            assert_eq!(pcp.zone().state(block), FrameState::Cached(cached));
            let last = FrameNo(block.0 + u64::from(cached.frames()) - 1);
            pcp.alloc_at(last, Order::FRAME, MOVABLE).unwrap_or_else(|e| panic!("{tier:?}, {cached:?}: {e}"));
            assert!(matches!(pcp.alloc_at(last, Order::FRAME, MOVABLE), Err(AllocError::Taken { .. })));
            pcp.free(last, Order::FRAME).unwrap();
        }
    }
}

#[test]
fn a_cpu_that_appears_later_goes_to_the_zone() {
    for tier in tiers() {
        let zone = zone(&ZoneConfig::new(frames(0, 8192)));
        // Sets for one CPU, on a machine with more.
        let config = PcpConfig { tier, ..PcpConfig::new(1) };
        let memory = leak(config.metadata_bytes(&zone));
        let pcp = PcpLists::new(zone, &config, memory).unwrap();
        let owners: Vec<AtomicU64> = (0..8192).map(|_| AtomicU64::new(0)).collect();
        thread::scope(|s| {
            for id in 1..=3 {
                s.spawn({
                    let (pcp, owners) = (&pcp, &owners);
                    move || work(pcp, owners, id, false)
                });
            }
        });
        pcp.drain_all();
        pcp.zone().validate().unwrap();
        assert_eq!(pcp.zone().stats().free, 8192);
    }
}

#[test]
fn ranges_go_once_their_sets_are_drained() {
    for tier in tiers() {
        let pcp = pcp(&ZoneConfig::new(frames(0, 8192)), tier);
        let all: Vec<FrameNo> = (0..8192).map(|_| pcp.alloc(Order::FRAME, MOVABLE).unwrap()).collect();
        for &frame in &all {
            pcp.free(frame, Order::FRAME).unwrap();
        }
        let range = frames(4096, 4096);
        let Offline::Pending { in_use, in_lists } = pcp.zone().offline(range).unwrap() else {
            panic!("frames of it are cached on lists");
        };
        assert!(in_use == 0 && in_lists > 0);
        pcp.drain_all();
        assert_eq!(pcp.zone().offline(range).unwrap(), Offline::Done);
        pcp.zone().validate().unwrap();
        let stats = pcp.zone().stats();
        assert_eq!((stats.present, stats.free), (4096, 4096));
        assert_eq!(pcp.free(FrameNo(5000), Order::FRAME).unwrap_err().why, WrongFree::Hole);
        // And it comes back.
        pcp.zone().add(range, MOVABLE).unwrap();
        assert_eq!(pcp.zone().stats().free, 8192);
    }
}

/// A block of a range on its way out is not put into a set, where it would be handed out again.
#[test]
fn frees_into_a_leaving_range_pass_by_the_sets() {
    for tier in tiers() {
        let pcp = pcp(&ZoneConfig::new(frames(0, 8192)), tier);
        let all: Vec<FrameNo> = (0..8192).map(|_| pcp.alloc(Order::FRAME, MOVABLE).unwrap()).collect();
        let range = frames(0, 1024);
        assert_eq!(pcp.zone().offline(range).unwrap(), Offline::Pending { in_use: 1024, in_lists: 0 });
        for frame in all.iter().filter(|f| range.contains(**f)) {
            pcp.free(*frame, Order::FRAME).unwrap();
        }
        assert_eq!(pcp.zone().offline(range).unwrap(), Offline::Done);
        pcp.zone().validate().unwrap();
    }
}

#[test]
fn watermarks_hold_for_sets_too() {
    for tier in tiers() {
        let watermarks = Watermarks { min: 1000, low: 1200, high: 1500 };
        let pcp = pcp(&ZoneConfig { watermarks, ..ZoneConfig::new(frames(0, 8192)) }, tier);
        let mut got = 0;
        while pcp.alloc(Order::FRAME, MOVABLE).is_ok() {
            got += 1;
        }
        assert!(pcp.zone().stats().free >= 1000, "{tier:?}: {} left", pcp.zone().stats().free);
        assert_eq!(got, 8192 - 1000, "{tier:?}: nothing is left on lists");
    }
}

#[test]
fn zones_serve_in_order_of_preference_and_take_their_own_back() {
    let watermarks = Watermarks { min: 64, low: 512, high: 768 };
    let zones =
        [0, 1 << 20].map(|start| pcp(&ZoneConfig { watermarks, ..ZoneConfig::new(frames(start, 2048)) }, Tier::Best));
    let list = Zones::new(&zones);
    let mut served = Vec::new();
    let mut all = Vec::new();
    while let Ok((frame, zone)) = list.alloc(Order::FRAME, MOVABLE) {
        assert!(zones[zone].zone().contains(frame));
        served.push(zone);
        all.push(frame);
    }
    assert_eq!(all.len(), 2 * (2048 - 64));
    let second = served.iter().position(|&z| z == 1).unwrap();
    assert!((1024..=2048 - 512).contains(&second), "the first serves down to its low watermark: {second}");
    assert_eq!(served.last(), Some(&1), "and both down to their minimum");
    for frame in all {
        list.free(frame, Order::FRAME).unwrap();
    }
    assert_eq!(list.free(FrameNo(1 << 30), Order::FRAME).unwrap_err().why, WrongFree::Foreign);
    for pcp in &zones {
        pcp.drain_all();
        assert_eq!(pcp.zone().stats().free, 2048);
    }
}

/// Spans overlap where the memory of two nodes is interleaved, and are rounded outwards: the frame decides whose it is.
#[test]
fn frames_of_interleaved_zones_go_back_to_their_own() {
    let zones = [0, 1].map(|node| {
        let config = ZoneConfig::new(frames(0, 8192));
        let zone = Zone::new(&config, leak(config.metadata_bytes().unwrap())).unwrap();
        zone.add(frames(node * 1024, 1024), MOVABLE).unwrap();
        zone.add(frames(4096 + node * 1500, 1500), MOVABLE).unwrap();
        let config = PcpConfig::new(cpus());
        let memory = leak(config.metadata_bytes(&zone));
        PcpLists::new(zone, &config, memory).unwrap()
    });
    let list = Zones::new(&zones);
    let mut all = Vec::new();
    while let Ok((frame, _)) = list.alloc(Order::FRAME, MOVABLE) {
        all.push(frame);
    }
    assert_eq!(all.len(), 2 * 2524);
    for frame in all {
        list.free(frame, Order::FRAME).unwrap();
    }
    for pcp in &zones {
        pcp.drain_all();
        pcp.zone().validate().unwrap();
        assert_eq!(pcp.zone().stats().free, 2524);
    }
}

/// The lists of a set together stay within what its marks allow, and a batch for each list; with one thread on one CPU's set at a time.
#[test]
fn a_set_is_bounded_whatever_list_is_used() {
    for tier in tiers() {
        let zone = zone(&ZoneConfig::new(frames(0, 32 << 10)));
        let limits = PcpLimits { batch: 15, high_min: 60, high_max: 512 };
        let config = PcpConfig { tier, limits: Some(limits), ..PcpConfig::new(cpus()) };
        let memory = leak(config.metadata_bytes(&zone));
        let pcp = PcpLists::new(zone, &config, memory).unwrap();
        for round in 0..6 {
            for order in [0, 1, 2, 3].map(|n| Order::new(n).unwrap()) {
                for migrate in MigrateType::ALL {
                    let some: Vec<FrameNo> =
                        (0..1024 >> order.get()).map(|_| pcp.alloc(order, migrate).unwrap()).collect();
                    some.into_iter().for_each(|frame| pcp.free(frame, order).unwrap());
                    let cached: Vec<u64> = (0..pcp.cpus()).map(|cpu| pcp.cached(cpu)).collect();
                    // Each list may have grown by a batch since the tuner was last asked; blocks of order 3 count eight.
                    let most = u64::from(limits.high_max) + 14 * (15 + 8);
                    assert!(cached.iter().all(|&w| w <= most), "{tier:?}, round {round}, {order:?}: {cached:?}");
                }
            }
        }
    }
}

#[test]
fn frames_of_nobody_are_refused_by_every_front() {
    fn refused(front: &mut impl Front) {
        assert_eq!(front.free(FrameNo(1 << 40), Order::FRAME).unwrap_err().why, WrongFree::Foreign);
        assert_eq!(front.free_unique(FrameNo(9000), Order::FRAME).unwrap_err().why, WrongFree::Foreign);
        assert_eq!(front.free(FrameNo(8), Order::FRAME).unwrap_err().why, WrongFree::InsideBlock);
    }
    for tier in tiers() {
        let pcp = pcp(&ZoneConfig::new(frames(0, 8192)), tier);
        refused(&mut &pcp);
        assert_eq!(pcp.zone().stats().events.refused, 3);
    }
    let zone = zone(&ZoneConfig::new(frames(0, 8192)));
    refused(&mut owned(&zone));
}

#[test]
fn exhaustion_says_what_is_left_of_each_order() {
    for tier in tiers() {
        let pcp = pcp(&ZoneConfig::new(frames(0, 1024)), tier);
        let all: Vec<FrameNo> = (0..1024).map(|_| pcp.alloc(Order::FRAME, MOVABLE).unwrap()).collect();
        // Every other frame comes back: half is free, and no two of it are next to each other.
        all.iter().filter(|f| f.0 % 2 == 0).for_each(|&f| pcp.free(f, Order::FRAME).unwrap());
        let error = pcp.alloc(Order::new(1).unwrap(), MOVABLE).unwrap_err();
        let AllocError::Exhausted { free_blocks, .. } = error else { panic!("{error}") };
        assert_eq!(free_blocks, [512, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], "{tier:?}");
    }
}

/// Two threads hold everything quiet over and over beside two that work: nobody waits for ever, and nothing is lost.
#[test]
fn quiet_moments_follow_each_other() {
    for tier in tiers() {
        let pcp = pcp(&ZoneConfig::new(frames(0, 16 << 10)), tier);
        let owners: Vec<AtomicU64> = (0..16 << 10).map(|_| AtomicU64::new(0)).collect();
        let quiet = AtomicU64::new(0);
        thread::scope(|s| {
            for id in 1..=2 {
                s.spawn({
                    let (pcp, owners) = (&pcp, &owners);
                    move || work(pcp, owners, id, false)
                });
                s.spawn(|| {
                    for _ in 0..200 {
                        pcp.while_quiet(|| {
                            assert_eq!(quiet.fetch_add(1, Ordering::Relaxed), 0, "two at once");
                            quiet.fetch_sub(1, Ordering::Relaxed);
                        });
                        pcp.drain_all();
                    }
                });
            }
        });
        pcp.drain_all();
        pcp.zone().validate().unwrap();
        assert_eq!(pcp.zone().stats().free, 16 << 10, "{tier:?}");
    }
}

#[test]
fn an_owned_set_gives_everything_back_in_a_panic() {
    let zone = zone(&ZoneConfig::new(frames(0, 8192)));
    let result = thread::scope(|s| {
        let mut set = owned(&zone);
        s.spawn(move || {
            let frame = set.alloc(Order::FRAME, MOVABLE).unwrap();
            set.free(frame, Order::FRAME).unwrap();
            assert_eq!(set.cached(), 0, "there is some");
        })
        .join()
    });
    assert!(result.is_err());
    zone.validate().unwrap();
    assert_eq!(zone.stats().free, 8192);
}

/// In a process of which the C library registers no thread.
#[test]
#[ignore = "run by the next one, in a process of its own"]
fn without_restartable_sequences() {
    let zone = || zone(&ZoneConfig::new(frames(0, 4096)));
    let config = PcpConfig::new(4);
    let memory = |zone: &Zone<'_>| leak(config.metadata_bytes(zone));
    let best = zone();
    let pcp = PcpLists::new(best, &config, memory(&zone())).unwrap();
    assert_eq!(pcp.tier(), Tier::Locked);
    let frame = pcp.alloc(Order::FRAME, MOVABLE).unwrap();
    pcp.free(frame, Order::FRAME).unwrap();
    let asked = PcpConfig { tier: Tier::Restartable, ..config };
    let error = PcpLists::new(zone(), &asked, memory(&zone())).unwrap_err();
    assert!(error.to_string().contains("glibc.pthread.rseq=0"), "{error}");
}

#[test]
fn where_sequences_are_switched_off_locks_do() {
    if tiers().len() < 2 {
        return;
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "without_restartable_sequences"])
        .env("GLIBC_TUNABLES", "glibc.pthread.rseq=0")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn what_cannot_be_is_said() {
    let zone_of = || zone(&ZoneConfig::new(frames(0, 4096)));
    let none = PcpConfig::new(0);
    assert_eq!(PcpLists::new(zone_of(), &none, leak(1 << 16)).unwrap_err(), PcpError::NoCpus);
    let config = PcpConfig::new(4);
    let zone = zone_of();
    let needed = config.metadata_bytes(&zone);
    assert_eq!(
        PcpLists::new(zone, &config, leak(needed - 1)).unwrap_err(),
        PcpError::MetadataTooSmall { given: needed - 1, needed }
    );
    let limits = PcpLimits::for_zone(4096, 0, 1, None);
    let zone = zone_of();
    assert!(OwnedPcpLists::new(&zone, limits, leak(8)).is_err());
    let few = ZoneConfig::new(frames(0, 4096));
    let mut bytes = metadata(&few);
    assert!(Zone::new(&few, Metadata::cleared(&mut bytes[..1000])).is_err());
}

/// As many frames as one holds come back when a thread's own set is dropped, wherever that happens.
#[test]
fn an_owned_set_can_be_sent_and_gives_everything_back() {
    let zone = zone(&ZoneConfig::new(frames(0, 8192)));
    thread::scope(|s| {
        for _ in 0..3 {
            let mut set = owned(&zone);
            s.spawn(move || {
                let some: Vec<FrameNo> = (0..500).map(|_| set.alloc(Order::FRAME, MOVABLE).unwrap()).collect();
                for frame in some {
                    set.free(frame, Order::FRAME).unwrap();
                }
                assert!(set.cached() > 0);
            });
        }
    });
    zone.validate().unwrap();
    assert_eq!(zone.stats().free, 8192);
}
