//! What a zone promises, rule by rule, with worked examples.

mod support;

use isotherm_frames::zone::MAX_FRAMES;
use isotherm_frames::{
    AddError, AllocError, Colouring, ConfigError, FrameNo, FrameRange, FrameState, Metadata, MigrateType, Offline,
    OfflineError, Order, Request, Urgency, Watermarks, WrongFree, Zone, ZoneConfig,
};
use isotherm_rng::Rng;
use support::{Naive, frames, metadata, order, seeds};

const UNMOVABLE: MigrateType = MigrateType::Unmovable;
const MOVABLE: MigrateType = MigrateType::Movable;
const RECLAIMABLE: MigrateType = MigrateType::Reclaimable;

/// A zone over `count` frames from 0 on, all of them there and movable.
fn with_zone<T>(config: ZoneConfig, count: u64, act: impl FnOnce(&Zone<'_>) -> T) -> T {
    let mut bytes = metadata(&config);
    let zone = Zone::new(&config, Metadata::zeroed(&mut bytes)).unwrap();
    zone.add(frames(0, count), MOVABLE).unwrap();
    let result = act(&zone);
    zone.validate().unwrap();
    result
}

fn kept(min: u64) -> ZoneConfig {
    ZoneConfig { watermarks: Watermarks { min, low: min, high: min }, ..ZoneConfig::new(frames(0, 1024)) }
}

#[test]
fn a_watermark_above_any_memory_keeps_everything() {
    with_zone(kept(u64::MAX), 1024, |zone| {
        let refused = AllocError::Kept { order: Order::FRAME, free: 1024, kept: u64::MAX };
        assert_eq!(zone.alloc(Order::FRAME, MOVABLE), Err(refused));
        let said = refused.to_string();
        assert!(
            said.starts_with("allocate order 0: 1024 frames are free, and the last 18446744073709551615 are"),
            "{said}"
        );
        let high = Request { urgency: Urgency::High, ..Request::new(Order::MAX, MOVABLE) };
        assert!(matches!(zone.request(high), Err(AllocError::Kept { .. })));
        assert!(zone.request(Request { urgency: Urgency::Critical, ..high }).is_ok());
        assert!(zone.is_low());
    });
    assert_eq!(Watermarks::like_the_kernel(u64::MAX).min, 64 << 10);
}

#[test]
fn bulk_leaves_what_is_kept_and_naming_a_frame_does_not() {
    with_zone(kept(100), 1024, |zone| {
        let mut into = [FrameNo(0); 2000];
        assert_eq!(zone.alloc_bulk(Order::FRAME, MOVABLE, &mut into), 924);
        assert_eq!((zone.free_frames(), zone.stats().events.failed), (100, 1));
        assert_eq!(zone.alloc_bulk(Order::FRAME, MOVABLE, &mut into[..10]), 0);
        let left = (0..1024).map(FrameNo).find(|f| !into[..924].contains(f)).unwrap();
        zone.alloc_at(left, Order::FRAME, MOVABLE).unwrap();
        assert_eq!(zone.free_frames(), 99);
    });
    // 1,024 - 100 frames are 57 blocks of 16 and some.
    with_zone(kept(100), 1024, |zone| {
        assert_eq!(zone.alloc_bulk(order(4), MOVABLE, &mut [FrameNo(0); 64]), 57);
    });
}

#[test]
fn each_urgency_stops_at_its_own_mark() {
    with_zone(kept(7), 1024, |zone| {
        for (urgency, left) in [(Urgency::Normal, 7), (Urgency::High, 4), (Urgency::Critical, 0)] {
            let request = Request { urgency, ..Request::new(Order::FRAME, MOVABLE) };
            while zone.request(request).is_ok() {}
            assert_eq!(zone.free_frames(), left, "{urgency:?}");
        }
    });
    // A larger block has to leave as much: 512 of 1,024 would leave 512.
    for (min, fits) in [(512, true), (513, false)] {
        with_zone(kept(min), 1024, |zone| assert_eq!(zone.alloc(Order::HUGE, MOVABLE).is_ok(), fits));
    }
}

#[test]
fn nothing_is_added_beside_what_is_leaving() {
    let config = ZoneConfig::new(frames(0, 2048));
    let mut bytes = metadata(&config);
    let zone = Zone::new(&config, Metadata::zeroed(&mut bytes)).unwrap();
    zone.add(frames(0, 500), MOVABLE).unwrap();
    let used = zone.alloc(Order::FRAME, MOVABLE).unwrap();
    assert_eq!(zone.offline(frames(0, 512)), Ok(Offline::Pending { in_use: 1, in_lists: 0 }));
    for range in [frames(500, 12), frames(512, 512), frames(1000, 1048)] {
        let refused = AddError::NextToLeaving { range, frame: FrameNo(0) };
        assert_eq!(zone.add(range, MOVABLE), Err(refused));
    }
    zone.add(frames(1024, 1024), MOVABLE).unwrap();
    zone.keep(frames(0, 512)).unwrap();
    zone.add(frames(512, 512), MOVABLE).unwrap();
    zone.add(frames(500, 12), MOVABLE).unwrap();
    zone.free(used, Order::FRAME).unwrap();
    assert_eq!(zone.stats().free_blocks[10], 2);
    zone.validate().unwrap();
}

/// A zone of one page block of type `home`, of which the frames in `used` are handed out as the type given with them.
fn with_page_block(home: MigrateType, used: &[(u64, u32, MigrateType)], act: impl FnOnce(&Zone<'_>)) {
    let config = ZoneConfig::new(frames(0, 1024));
    let mut bytes = metadata(&config);
    let zone = Zone::new(&config, Metadata::zeroed(&mut bytes)).unwrap();
    zone.add(frames(0, 512), home).unwrap();
    for &(frame, block, migrate) in used {
        zone.alloc_at(FrameNo(frame), order(block), migrate).unwrap();
    }
    act(&zone);
    zone.validate().unwrap();
}

/// Which types have free blocks.
fn types(zone: &Zone<'_>) -> Vec<MigrateType> {
    let by_type = zone.stats().free_by_type;
    MigrateType::ALL.into_iter().filter(|&m| by_type.iter().any(|order| order[m as usize] > 0)).collect()
}

#[test]
fn other_types_are_taken_from_in_the_kernels_order() {
    let kinds = [UNMOVABLE, MOVABLE, RECLAIMABLE];
    for (migrate, then) in [
        (UNMOVABLE, [UNMOVABLE, RECLAIMABLE, MOVABLE]),
        (MOVABLE, [MOVABLE, RECLAIMABLE, UNMOVABLE]),
        (RECLAIMABLE, [RECLAIMABLE, UNMOVABLE, MOVABLE]),
    ] {
        let config = ZoneConfig::new(frames(0, 3 << 10));
        let mut bytes = metadata(&config);
        let zone = Zone::new(&config, Metadata::zeroed(&mut bytes)).unwrap();
        for (n, kind) in (0..).zip(kinds) {
            zone.add(frames(n << 10, 1 << 10), kind).unwrap();
        }
        let got = [(); 3].map(|()| kinds[usize::try_from(zone.alloc(Order::MAX, migrate).unwrap().0 >> 10).unwrap()]);
        assert_eq!(got, then, "{migrate}");
        assert_eq!((zone.stats().events.claimed, zone.stats().events.stolen), (2, 0));
    }
}

#[test]
fn a_free_page_block_changes_its_type_and_the_next_of_that_type_follows() {
    with_zone(ZoneConfig::new(frames(0, 1024)), 1024, |zone| {
        assert_eq!(zone.alloc(Order::FRAME, UNMOVABLE), Ok(FrameNo(0)));
        // All 1,024 frames are unmovable now: from one free block of order 10, its halves from order 9 down.
        assert_eq!((types(zone), zone.stats().events.claimed), (vec![UNMOVABLE], 1));
        assert_eq!(zone.stats().free_blocks, [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0]);
        assert_eq!(zone.alloc(Order::FRAME, UNMOVABLE), Ok(FrameNo(1)));
        // The largest free block is the second page block: that is claimed back, not the rest of the first.
        assert_eq!(zone.alloc(Order::FRAME, MOVABLE), Ok(FrameNo(512)));
        assert_eq!((types(zone), zone.stats().events.claimed), (vec![UNMOVABLE, MOVABLE], 2));
        // Freed, both merge across types, as whole page blocks do.
        for frame in [0, 1, 512] {
            zone.free(FrameNo(frame), Order::FRAME).unwrap();
        }
        assert_eq!((types(zone), zone.stats().free_blocks[10]), (vec![MOVABLE], 1));
    });
}

#[test]
fn a_page_block_is_claimed_if_half_of_it_is_free_or_alike() {
    // The first `count` frames are used, `unmovable` of them as such, the others as movable.
    let used = |count: u64, unmovable: u64| -> Vec<(u64, u32, MigrateType)> {
        (0..count).map(|f| (f, 0, if f < unmovable { UNMOVABLE } else { MOVABLE })).collect()
    };
    for (home, used, asks, claimed) in [
        (MOVABLE, used(256, 0), UNMOVABLE, true),
        (MOVABLE, used(257, 0), UNMOVABLE, false),
        (MOVABLE, used(257, 1), UNMOVABLE, true),
        (MOVABLE, used(400, 143), RECLAIMABLE, false),
        (MOVABLE, used(400, 144), RECLAIMABLE, true),
        // In a block that is not movable, what cannot be moved may be of either type: nothing is alike.
        (UNMOVABLE, used(257, 257), RECLAIMABLE, false),
        (UNMOVABLE, used(256, 256), RECLAIMABLE, true),
        // To what can be moved, what can be moved is alike.
        (UNMOVABLE, used(400, 256), MOVABLE, true),
        (UNMOVABLE, used(400, 257), MOVABLE, false),
    ] {
        let text = format!("{} used in {home}, {asks} asks", used.len());
        with_page_block(home, &used, |zone| {
            let first = zone.alloc(Order::FRAME, asks).unwrap();
            assert_eq!(zone.state(first), FrameState::Allocated(Order::FRAME, asks));
            let events = zone.stats().events;
            assert_eq!((events.claimed, events.stolen), (u64::from(claimed), u64::from(!claimed)), "{text}");
            assert_eq!(types(zone), [if claimed { asks } else { home }], "{text}");
            // A stolen one goes back to where it came from.
            zone.free(first, Order::FRAME).unwrap();
            assert_eq!(types(zone), [if claimed { asks } else { home }], "{text}");
        });
    }
}

#[test]
fn what_can_be_moved_claims_nothing_for_small_blocks_and_the_others_do() {
    // Half of the page block is free, in blocks of 8 or of 16 frames: order 4 is half a page block's.
    let every_other = |order: u32| -> Vec<(u64, u32, MigrateType)> {
        (0..256 >> order).map(|n| ((2 * n + 1) << order, order, UNMOVABLE)).collect()
    };
    for (order, asks, claimed) in
        [(3, MOVABLE, 0), (4, MOVABLE, 1), (3, RECLAIMABLE, 1), (0, RECLAIMABLE, 1), (0, MOVABLE, 0)]
    {
        with_page_block(UNMOVABLE, &every_other(order), |zone| {
            zone.alloc(Order::FRAME, asks).unwrap();
            assert_eq!(zone.stats().events.claimed, claimed, "{asks}, blocks of order {order}");
        });
    }
}

#[test]
fn a_stolen_block_is_the_smallest_and_a_claimed_one_the_largest() {
    // Page block 0: 1 frame, 2, 4, .. 128 frames free, 257 used. A second one, with only 64 frames free, is not worth claiming.
    let config = ZoneConfig::new(frames(0, 1024));
    with_zone(config, 1024, |zone| {
        zone.alloc_at(FrameNo(512), order(8), MOVABLE).unwrap();
        zone.alloc_at(FrameNo(768), order(7), MOVABLE).unwrap();
        zone.alloc_at(FrameNo(896), order(6), MOVABLE).unwrap();
        zone.alloc_at(FrameNo(0), order(8), MOVABLE).unwrap();
        zone.alloc_at(FrameNo(256), order(0), MOVABLE).unwrap();
        assert_eq!(zone.alloc(order(1), UNMOVABLE), Ok(FrameNo(258)), "order 1 is the smallest that serves");
        assert_eq!(zone.alloc(order(0), UNMOVABLE), Ok(FrameNo(257)));
        assert_eq!((zone.stats().events.stolen, zone.stats().events.claimed), (2, 0));
        // With a second page block that is mostly free, the largest block decides which is claimed: order 8 in the second.
        zone.free(FrameNo(512), order(8)).unwrap();
        assert_eq!(zone.alloc(order(0), UNMOVABLE), Ok(FrameNo(960)), "the smallest of the claimed page block");
        assert_eq!((zone.stats().events.stolen, zone.stats().events.claimed), (2, 1));
    });
}

#[test]
fn what_was_freed_last_is_taken_first_unless_it_soon_merges() {
    with_zone(ZoneConfig::new(frames(0, 1024)), 1024, |zone| {
        let mut all = [FrameNo(0); 1024];
        assert_eq!(zone.alloc_bulk(Order::FRAME, MOVABLE, &mut all), 1024);
        let free = |frame: u64| zone.free(FrameNo(frame), Order::FRAME).unwrap();
        let next = || zone.alloc(Order::FRAME, MOVABLE).unwrap().0;
        [8, 20, 40].into_iter().for_each(free);
        assert_eq!([next(), next(), next()], [40, 20, 8]);
        // 2 and 3 are free as one: once 1 is freed as well, 0 to 3 are. So 0 waits at the tail.
        [2, 3, 8, 0].into_iter().for_each(free);
        assert_eq!([next(), next()], [8, 0]);
        assert_eq!(zone.alloc(order(1), MOVABLE), Ok(FrameNo(2)));
    });
}

#[test]
fn a_block_is_split_from_below_and_its_rest_taken_next() {
    with_zone(ZoneConfig::new(frames(0, 2048)), 2048, |zone| {
        let next = || zone.alloc(Order::FRAME, MOVABLE).unwrap().0;
        assert_eq!([next(), next(), next(), next(), next()], [0, 1, 2, 3, 4]);
        assert_eq!(zone.alloc(order(3), MOVABLE), Ok(FrameNo(8)));
        // In bulk they follow each other: 5, 6 to 7, 16 to 31, 32 to 41.
        let mut into = [FrameNo(0); 29];
        assert_eq!(zone.alloc_bulk(Order::FRAME, MOVABLE, &mut into), 29);
        assert_eq!(into.map(|f| f.0)[..3], [5, 6, 7]);
        // What is left of a block goes before what is there: 45 before 1,025.
        zone.alloc_at(FrameNo(1024), Order::FRAME, MOVABLE).unwrap();
        zone.alloc_at(FrameNo(44), Order::FRAME, MOVABLE).unwrap();
        assert_eq!([next(), next()], [45, 1025]);
        assert_eq!(into.map(|f| f.0)[3..], std::array::from_fn::<u64, 26, _>(|n| 16 + n as u64));
    });
}

#[test]
fn any_block_is_had_by_name_exactly_if_it_is_free() {
    let start = (1 << 52) - 2048;
    let config = ZoneConfig::new(frames(start, 2048));
    for seed in seeds() {
        let mut bytes = metadata(&config);
        let zone = Zone::new(&config, Metadata::zeroed(&mut bytes)).unwrap();
        let mut naive = Naive::default();
        for range in [frames(start + 3, 1000), frames(start + 1100, 900)] {
            zone.add(range, MOVABLE).unwrap();
            naive.add(range);
        }
        let mut rng = Rng::new(seed);
        for _ in 0..120 {
            let order = order(u32::try_from(rng.below(5)).unwrap());
            let Ok(frame) = zone.alloc(order, MOVABLE) else { continue };
            naive.allocate(frame, order, MOVABLE);
            if rng.below(2) == 0 {
                let (first, order) = naive.any_allocated(&mut rng).unwrap();
                zone.free(FrameNo(first), order).unwrap();
                naive.release(first);
            }
        }
        let before = zone.stats();
        let step = if cfg!(miri) { 61 } else { 1 };
        for frame in (start - 3..start + 2051).step_by(step) {
            for order in Order::all() {
                let free = frame.is_multiple_of(u64::from(order.frames())) && naive.is_free(frame, order);
                let state = zone.state(FrameNo(frame));
                match zone.alloc_at(FrameNo(frame), order, UNMOVABLE) {
                    Ok(()) => {
                        assert!(free, "seed {seed}: {frame} {order:?}");
                        assert_eq!(zone.state(FrameNo(frame)), FrameState::Allocated(order, UNMOVABLE));
                        zone.free(FrameNo(frame), order).unwrap();
                    }
                    Err(why) => {
                        assert!(!free, "seed {seed}: {why}");
                        assert_eq!(why, AllocError::Taken { frame: FrameNo(frame), order, state });
                    }
                }
            }
        }
        zone.validate().unwrap();
        assert_eq!(zone.stats(), before, "seed {seed}");
    }
}

#[test]
fn errors_say_what_was_attempted_and_why_not() {
    with_zone(ZoneConfig::new(frames(0, 1024)), 516, |zone| {
        let block = zone.alloc(Order::HUGE, MOVABLE).unwrap();
        let said = zone.alloc(order(4), MOVABLE).unwrap_err().to_string();
        assert_eq!(said, "allocate order 4: no free block; free blocks by order: [0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]");
        let said = zone.alloc_at(FrameNo(8), order(3), MOVABLE).unwrap_err().to_string();
        assert_eq!(said, "allocate order 3 at F0x8: not free, but Inside");
        let wrong = |frame: u64, block: Order| zone.free(FrameNo(frame), block).unwrap_err().why;
        assert_eq!(wrong(0, Order::FRAME), WrongFree::OtherOrder(Order::HUGE));
        assert_eq!(wrong(7, Order::FRAME), WrongFree::InsideBlock);
        assert_eq!(wrong(512, order(2)), WrongFree::AlreadyFree);
        assert_eq!(wrong(600, Order::FRAME), WrongFree::Hole);
        assert_eq!(wrong(1024, Order::FRAME), WrongFree::Foreign);
        assert_eq!(wrong(u64::MAX, Order::MAX), WrongFree::Foreign);
        assert_eq!(zone.stats().events.refused, 6);
        let said = zone.free(FrameNo(1), Order::FRAME).unwrap_err().to_string();
        assert!(said.starts_with("free F0x1, order 0: it is not the first frame"), "{said}");
        let bulk = [FrameNo(3), block, block, FrameNo(9)];
        assert_eq!(zone.free_bulk(&bulk, Order::HUGE).unwrap_err().frame, FrameNo(3));
        assert_eq!(zone.free_frames(), 516, "what could be freed was");
    });
}

#[test]
fn zones_that_cannot_be_are_refused() {
    let error = |start: u64, end: u64| {
        ZoneConfig::new(FrameRange { start: FrameNo(start), end: FrameNo(end) }).metadata_bytes().unwrap_err()
    };
    assert!(matches!(error(0, 0), ConfigError::EmptySpan(_)));
    assert!(matches!(error(9, 3), ConfigError::EmptySpan(_)));
    assert!(matches!(error(u64::MAX, 0), ConfigError::EmptySpan(_)));
    assert!(matches!(error(0, MAX_FRAMES + 1), ConfigError::SpanTooLarge(_)));
    assert!(matches!(error(1023, MAX_FRAMES + 1023), ConfigError::SpanTooLarge(_)));
    assert!(matches!(error(u64::MAX - 1, u64::MAX), ConfigError::SpanTooLarge(_)));
    assert!(matches!(error(0, u64::MAX), ConfigError::SpanTooLarge(_)));
    assert!(ZoneConfig::new(frames(1 << 60, MAX_FRAMES)).metadata_bytes().is_ok());

    let config = ZoneConfig::new(frames(0, 4096));
    let needed = config.metadata_bytes().unwrap();
    for given in [0, 1, 4096, needed - 64] {
        let mut bytes = vec![0; given];
        let error = Zone::new(&config, Metadata::zeroed(&mut bytes)).unwrap_err();
        assert_eq!(error, ConfigError::MetadataTooSmall { given, needed });
    }
}

/// What is said to suffice does, and no more is touched, wherever the memory begins.
#[test]
fn metadata_may_lie_anywhere() {
    let colourings =
        [None, Some(Colouring::exact(3072)), Some(Colouring { granule: Order::MAX, ..Colouring::exact(1024) })];
    let count = if cfg!(miri) { 1024 } else { 8192 };
    for colouring in colourings {
        let config = ZoneConfig { colouring, ..ZoneConfig::new(frames(1024, count)) };
        let needed = config.metadata_bytes().unwrap();
        for offset in (0..9).step_by(if cfg!(miri) { 3 } else { 1 }) {
            let mut bytes = vec![0xa5; offset + needed + 8];
            let zone = Zone::new(&config, Metadata::cleared(&mut bytes[offset..offset + needed])).unwrap();
            zone.add(frames(1024, count), MOVABLE).unwrap();
            let mut all = vec![FrameNo(0); usize::try_from(count).unwrap()];
            assert_eq!(zone.alloc_bulk(Order::FRAME, MOVABLE, &mut all), all.len());
            zone.free_bulk(&all, Order::FRAME).unwrap();
            zone.validate().unwrap();
            assert!(bytes[..offset].iter().chain(&bytes[offset + needed..]).all(|&b| b == 0xa5));
        }
    }
}

#[test]
fn ranges_that_do_not_fit_are_refused_and_nothing_changes() {
    let start = u64::MAX - 6 * 1024 + 1;
    let config = ZoneConfig::new(FrameRange { start: FrameNo(start), end: FrameNo(u64::MAX - 1023) });
    let mut bytes = metadata(&config);
    let zone = Zone::new(&config, Metadata::zeroed(&mut bytes)).unwrap();
    let range = |from: u64, to: u64| FrameRange { start: FrameNo(from), end: FrameNo(to) };
    assert_eq!(zone.span(), range(start, start + 5 * 1024));
    for empty in [range(start, start), range(start + 9, start), range(u64::MAX, 0)] {
        assert_eq!(zone.add(empty, MOVABLE), Err(AddError::Empty(empty)));
        assert!(matches!(zone.offline(empty), Err(OfflineError::Absent(_))));
        assert!(matches!(zone.keep(empty), Err(OfflineError::Absent(_))));
    }
    for outside in [range(0, u64::MAX), range(start - 1, start + 1), range(start, u64::MAX), range(0, 1 << 32)] {
        assert_eq!(zone.add(outside, MOVABLE), Err(AddError::OutsideSpan { range: outside, span: zone.span() }));
    }
    assert_eq!(zone.stats().present, 0);
    let whole = range(start + 100, start + 5 * 1024);
    zone.add(whole, MOVABLE).unwrap();
    for (again, first) in [(whole, 100), (range(start, start + 101), 100), (range(start + 5119, start + 5120), 5119)] {
        let frame = FrameNo(start + first);
        assert_eq!(zone.add(again, MOVABLE), Err(AddError::Overlaps { range: again, frame }));
    }
    let part = range(start + 100, start + 1023);
    let beside = OfflineError::Unaligned { range: part, frame: FrameNo(start + 1023) };
    assert_eq!(zone.offline(part), Err(beside));
    assert_eq!(zone.keep(part), Err(beside));
    assert_eq!(zone.free_frames(), 5020);
    zone.validate().unwrap();
    // A range beyond both ends is what lies between.
    assert_eq!(zone.offline(range(0, u64::MAX)), Ok(Offline::Done));
    assert!(matches!(zone.offline(whole), Err(OfflineError::Absent(_))));
    assert_eq!((zone.stats().present, zone.stats().free), (0, 0));
    zone.add(range(start, start + 5120), RECLAIMABLE).unwrap();
    zone.validate().unwrap();
}
