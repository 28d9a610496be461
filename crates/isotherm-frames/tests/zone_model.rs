//! Random calls on a zone and on a naive one, with everything recomputed in between.

mod support;

use isotherm_frames::{
    AllocError, Choice, Colouring, FrameNo, FrameRange, Metadata, MigrateType, Offline, Order, Shuffling, WrongFree,
    Zone, ZoneConfig,
};
use isotherm_rng::Rng;
use support::{Naive, below, frames, metadata, seeds};

struct Pair<'m> {
    zone: Zone<'m>,
    naive: Naive,
    rng: Rng,
    seed: u64,
}

impl Pair<'_> {
    fn order(&mut self) -> Order {
        // Mostly single frames, as in life.
        let order = if self.rng.below(3) > 0 { 0 } else { self.rng.below(11) };
        Order::new(u32::try_from(order).unwrap()).unwrap()
    }

    fn migrate(&mut self) -> MigrateType {
        MigrateType::ALL[below(&mut self.rng, 3)]
    }

    fn alloc(&mut self) {
        let (order, migrate) = (self.order(), self.migrate());
        match self.zone.alloc(order, migrate) {
            Ok(frame) => self.naive.allocate(frame, order, migrate),
            Err(AllocError::Exhausted { free_blocks, .. }) => {
                assert!(!self.naive.has_free(order), "seed {}: {order:?} is free: {free_blocks:?}", self.seed);
            }
            Err(other) => panic!("seed {}: {other}", self.seed),
        }
    }

    fn bulk(&mut self) {
        let (order, migrate) = (Order::new(u32::try_from(self.rng.below(3)).unwrap()).unwrap(), self.migrate());
        let mut into = vec![FrameNo(0); below(&mut self.rng, 200)];
        let got = self.zone.alloc_bulk(order, migrate, &mut into);
        for &frame in &into[..got] {
            self.naive.allocate(frame, order, migrate);
        }
        assert!(got == into.len() || !self.naive.has_free(order), "seed {}", self.seed);
        if self.rng.below(2) == 0 {
            self.zone.free_bulk(&into[..got], order).unwrap();
            for frame in &into[..got] {
                self.naive.release(frame.0);
            }
        }
    }

    fn at(&mut self, span: FrameRange) {
        let (order, migrate) = (self.order(), self.migrate());
        let frame = FrameNo(span.start.0 + self.rng.below(span.len()));
        let possible = frame.is_aligned(order.get()) && self.naive.is_free(frame.0, order);
        match self.zone.alloc_at(frame, order, migrate) {
            Ok(()) => self.naive.allocate(frame, order, migrate),
            Err(why) => assert!(!possible, "seed {}: {why}", self.seed),
        }
    }

    fn free(&mut self) {
        let Some((first, order)) = self.naive.any_allocated(&mut self.rng) else { return };
        let wrong = Order::new((order.get() + 1) % 11).unwrap();
        assert_eq!(self.zone.free(FrameNo(first), wrong).unwrap_err().why, WrongFree::OtherOrder(order));
        self.zone.free(FrameNo(first), order).unwrap();
        self.naive.release(first);
        assert!(self.zone.free(FrameNo(first), order).is_err(), "seed {}: freed twice", self.seed);
    }

    fn check(&self, span: FrameRange) {
        self.zone.validate().unwrap_or_else(|e| panic!("seed {}: {e}", self.seed));
        let stats = self.zone.stats();
        assert_eq!(stats.present, self.naive.present.len() as u64);
        assert_eq!(stats.free, self.naive.free_frames(), "seed {}", self.seed);
        let by_order: u64 =
            Order::all().zip(stats.free_blocks).map(|(o, n)| u64::from(o.frames()) * u64::from(n)).sum();
        assert_eq!(by_order, stats.free);
        // A frame that is not there, or in a block, is not freed.
        for frame in (span.start.0..span.end.0).filter(|f| f % 97 == 0 && !self.naive.allocated.contains_key(f)) {
            assert!(self.zone.free(FrameNo(frame), Order::FRAME).is_err());
        }
    }
}

fn run(config: ZoneConfig, ranges: &[FrameRange], steps: u32) {
    // Interpreted, every step takes a thousand times as long, and what it looks for is seen in few.
    let steps = if cfg!(miri) { 40 } else { steps };
    for seed in seeds() {
        let config = ZoneConfig { seed, ..config };
        let mut bytes = metadata(&config);
        let zone = Zone::new(&config, Metadata::zeroed(&mut bytes)).unwrap();
        let mut pair = Pair { zone, naive: Naive::default(), rng: Rng::new(seed), seed };
        for &range in ranges {
            let migrate = pair.migrate();
            pair.zone.add(range, migrate).unwrap();
            pair.naive.add(range);
            pair.zone.validate().unwrap_or_else(|e| panic!("seed {seed}: after adding {range:?}: {e}"));
        }
        for step in 0..steps {
            // Alternately filling and emptying, so that both ends are seen.
            let filling = step / if cfg!(miri) { 50 } else { 300 } % 2 == 0;
            match pair.rng.below(16) {
                0 => pair.bulk(),
                1 => pair.at(config.span),
                n if (n < 11) == filling => pair.alloc(),
                _ => pair.free(),
            }
            if step % 100 == 0 {
                pair.check(config.span);
            }
        }
        while let Some((first, order)) = pair.naive.any_allocated(&mut pair.rng) {
            pair.zone.free(FrameNo(first), order).unwrap();
            pair.naive.release(first);
        }
        pair.check(config.span);
        // All of it is back: the blocks are as large as the ranges allow.
        assert_eq!(pair.naive.has_free(Order::MAX), pair.zone.stats().free_blocks[10] > 0);
    }
}

#[test]
#[cfg_attr(miri, ignore = "would be interpreted for minutes")]
fn one_range() {
    run(ZoneConfig::new(frames(0, 8192)), &[frames(0, 8192)], 3000);
}

#[test]
#[cfg_attr(miri, ignore = "would be interpreted for minutes")]
fn ranges_with_holes_and_odd_ends() {
    let ranges = [frames(1, 1030), frames(1500, 1), frames(3000, 2600), frames(6000, 1500), frames(5600, 400)];
    run(ZoneConfig::new(frames(0, 8000)), &ranges, 3000);
}

#[test]
#[cfg_attr(miri, ignore = "would be interpreted for minutes")]
fn far_up_in_physical_memory() {
    let start = (1 << 40) + 512;
    run(ZoneConfig::new(frames(start, 5000)), &[frames(start, 3000), frames(start + 3000, 2000)], 1500);
}

#[test]
#[cfg_attr(miri, ignore = "would be interpreted for minutes")]
fn shuffled() {
    let shuffle = Shuffling { from: Order::HUGE, ..Shuffling::from_option(Some(true)) };
    let config = ZoneConfig { shuffle, ..ZoneConfig::new(frames(0, 16 << 10)) };
    run(config, &[frames(0, 9 << 10), frames(10 << 10, 6 << 10)], 2000);
}

#[test]
#[cfg_attr(miri, ignore = "would be interpreted for minutes")]
fn coloured_by_frames() {
    let config = ZoneConfig { colouring: Some(Colouring::exact(2048)), ..ZoneConfig::new(frames(1024, 9000)) };
    run(config, &[frames(1030, 2000), frames(4096, 5000)], 2000);
}

#[test]
#[cfg_attr(miri, ignore = "would be interpreted for minutes")]
fn coloured_by_huge_pages() {
    let colouring = Colouring { cache_frames: 3072, granule: Order::HUGE, choice: Choice::Exact };
    let config = ZoneConfig { colouring: Some(colouring), ..ZoneConfig::new(frames(0, 12 << 10)) };
    run(config, &[frames(512, 4096), frames(6144, 4096)], 2000);
}

#[test]
#[cfg_attr(miri, ignore = "would be interpreted for minutes")]
fn coloured_by_larger_granules_than_most_requests() {
    let colouring = Colouring { cache_frames: 2048, granule: Order::new(4).unwrap(), choice: Choice::Exact };
    let config = ZoneConfig { colouring: Some(colouring), ..ZoneConfig::new(frames(0, 12 << 10)) };
    run(config, &[frames(16, 4096), frames(6144, 4096)], 2000);
}

#[test]
#[cfg_attr(miri, ignore = "would be interpreted for minutes")]
fn best_of_a_few() {
    let colouring = Colouring { cache_frames: 2048, granule: Order::FRAME, choice: Choice::BestOf(4) };
    let config = ZoneConfig { colouring: Some(colouring), ..ZoneConfig::new(frames(0, 8 << 10)) };
    run(config, &[frames(0, 8 << 10)], 2000);
}

/// For an interpreter: the other tests' calls on as little memory as shows them.
#[test]
fn small_zones() {
    let colouring = Colouring { cache_frames: 1024, granule: Order::new(4).unwrap(), choice: Choice::Exact };
    let shuffle = Shuffling { from: Order::HUGE, ..Shuffling::from_option(Some(true)) };
    for colouring in [None, Some(colouring), Some(Colouring { choice: Choice::BestOf(2), ..colouring })] {
        let config = ZoneConfig { shuffle, colouring, ..ZoneConfig::new(frames(1024, 1024)) };
        run(config, &[frames(1040, 304), frames(1536, 512)], 300);
    }
}

/// Ranges come and go while blocks are in use.
fn hotplug(config: ZoneConfig) {
    for seed in seeds() {
        let config = ZoneConfig { seed, ..config };
        let mut bytes = metadata(&config);
        let zone = Zone::new(&config, Metadata::zeroed(&mut bytes)).unwrap();
        let mut pair = Pair { zone, naive: Naive::default(), rng: Rng::new(seed), seed };
        let slots: Vec<FrameRange> = (0..6).map(|n| frames(n * 2048, 2048)).collect();
        let mut leaving = [false; 6];
        for step in 0..if cfg!(miri) { 100 } else { 1200 } {
            let slot = below(&mut pair.rng, slots.len());
            let range = slots[slot];
            let there = pair.naive.present.contains(&range.start.0);
            match pair.rng.below(40) {
                0 if !there => {
                    let migrate = pair.migrate();
                    pair.zone.add(range, migrate).unwrap();
                    pair.naive.add(range);
                    assert!(pair.zone.add(range, migrate).is_err());
                }
                1 if there => go(&mut pair, range, &mut leaving[slot]),
                2 if leaving[slot] => {
                    pair.zone.keep(range).unwrap();
                    leaving[slot] = false;
                    pair.naive.isolated.retain(|&f| !range.contains(FrameNo(f)));
                }
                n if n < 20 => pair.alloc(),
                _ => pair.free(),
            }
            if step % 50 == 0 {
                pair.check(config.span);
            }
        }
    }
}

fn go(pair: &mut Pair<'_>, range: FrameRange, leaving: &mut bool) {
    let used: u64 =
        pair.naive.allocated.range(range.start.0..range.end.0).map(|(_, (order, _))| u64::from(order.frames())).sum();
    match pair.zone.offline(range).unwrap() {
        Offline::Done => {
            assert_eq!(used, 0);
            *leaving = false;
            for frame in range.start.0..range.end.0 {
                pair.naive.present.remove(&frame);
                pair.naive.free.remove(&frame);
                pair.naive.isolated.remove(&frame);
            }
        }
        Offline::Pending { in_use, in_lists } => {
            assert_eq!((in_use, in_lists), (used, 0), "seed {}", pair.seed);
            *leaving = true;
            pair.naive.isolated.extend(range.start.0..range.end.0);
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "would be interpreted for minutes")]
fn ranges_come_and_go() {
    hotplug(ZoneConfig::new(frames(0, 12 << 10)));
}

#[test]
#[cfg_attr(miri, ignore = "would be interpreted for minutes")]
fn shuffled_ranges_come_and_go() {
    let shuffle = Shuffling::from_option(Some(true));
    hotplug(ZoneConfig { shuffle, ..ZoneConfig::new(frames(0, 12 << 10)) });
}

#[test]
#[cfg_attr(miri, ignore = "would be interpreted for minutes")]
fn coloured_ranges_come_and_go() {
    for granule in [0, 4, 9, 10] {
        let granule = Order::new(granule).unwrap();
        let colouring = Colouring { cache_frames: 3072, granule, choice: Choice::Exact };
        hotplug(ZoneConfig { colouring: Some(colouring), ..ZoneConfig::new(frames(0, 12 << 10)) });
    }
}
