//! A zone as a reader of its documentation would write it down: a map of what is handed out, a set of what is free.

#![allow(dead_code, reason = "each test binary uses its own part")]

use isotherm_frames::{FrameNo, FrameRange, MigrateType, Order, ZoneConfig};
use isotherm_rng::Rng;
use std::collections::{BTreeMap, BTreeSet};

/// Frames from `start` on.
pub fn frames(start: u64, count: u64) -> FrameRange {
    FrameRange::new(FrameNo(start), FrameNo(start + count))
}

/// Metadata for a zone.
pub fn metadata(config: &ZoneConfig) -> Vec<u8> {
    vec![0; config.metadata_bytes().unwrap()]
}

/// The order with this number.
pub fn order(order: u32) -> Order {
    Order::new(order).unwrap()
}

/// A number below `n`, as an index.
pub fn below(rng: &mut Rng, n: usize) -> usize {
    usize::try_from(rng.below(n as u64)).unwrap()
}

/// The highest CPU number that this machine may have, plus one.
pub fn cpus() -> u32 {
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_else(|_| "0-63".into());
    possible.trim().rsplit(['-', ',']).next().and_then(|n| n.parse::<u32>().ok()).map_or(64, |last| last + 1)
}

/// Seeds of random tests: one that is always run, and one of the day, which `SEED` in the environment overrides.
pub fn seeds() -> Vec<u64> {
    let day = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs() / 86_400);
    match std::env::var("SEED").ok().and_then(|s| s.parse().ok()) {
        Some(seed) => vec![seed],
        None if cfg!(miri) => vec![1],
        None => vec![1, day],
    }
}

/// What a zone should be.
#[derive(Default)]
pub struct Naive {
    pub present: BTreeSet<u64>,
    pub isolated: BTreeSet<u64>,
    pub allocated: BTreeMap<u64, (Order, MigrateType)>,
    pub free: BTreeSet<u64>,
}

impl Naive {
    pub fn add(&mut self, range: FrameRange) {
        for frame in range.start.0..range.end.0 {
            assert!(self.present.insert(frame));
            self.free.insert(frame);
        }
    }

    /// Whether a block could be handed out: all its frames are free and stay.
    pub fn is_free(&self, first: u64, order: Order) -> bool {
        (first..first + u64::from(order.frames())).all(|f| self.free.contains(&f) && !self.isolated.contains(&f))
    }

    pub fn has_free(&self, order: Order) -> bool {
        let size = u64::from(order.frames());
        self.free.iter().filter(|&&f| f % size == 0).any(|&f| self.is_free(f, order))
    }

    pub fn allocate(&mut self, first: FrameNo, order: Order, migrate: MigrateType) {
        assert!(first.is_aligned(order.get()), "{first:?} is no start of a block of {order:?}");
        assert!(self.is_free(first.0, order), "{first:?} {order:?} was not free");
        for frame in first.0..first.0 + u64::from(order.frames()) {
            self.free.remove(&frame);
        }
        self.allocated.insert(first.0, (order, migrate));
    }

    pub fn release(&mut self, first: u64) -> Order {
        let (order, _) = self.allocated.remove(&first).unwrap();
        self.free.extend(first..first + u64::from(order.frames()));
        order
    }

    /// Any block that is handed out.
    pub fn any_allocated(&self, rng: &mut Rng) -> Option<(u64, Order)> {
        let at = below(rng, self.allocated.len().max(1));
        self.allocated.iter().nth(at).map(|(&first, &(order, _))| (first, order))
    }

    pub fn free_frames(&self) -> u64 {
        self.free.difference(&self.isolated).count() as u64
    }
}
