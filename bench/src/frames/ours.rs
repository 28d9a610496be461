//! `isotherm-frames`: its rows, and what they add to the RESULT line.
//!
//! Five rows: a private handle of a thread; per-CPU lists by restartable sequences, with frees that only the owner may
//! do (as the guards of pools do) and frees by any thread; per-CPU lists by try-lock; and the zone without per-CPU
//! lists, which is asked for many frames per call.

use super::shape::Shape;
use super::table::{Measure, Tables};
use super::{Frames, POOL, Peer, Row, jemalloc, mimalloc, row};
use isotherm_bench::Log;
use isotherm_frames::tune::PcpLimits;
use isotherm_frames::{
    FrameNo, FrameRange, Front, Metadata, MigrateType, Order, OwnedPcpLists, PcpConfig, PcpLists, Tier, Zone,
    ZoneConfig,
};
use std::sync::Arc;

const OWNED: &str = "isotherm, own handle";
const RSEQ: &str = "isotherm, rseq";
const ANYONE: &str = "isotherm, rseq, any free";
const TRYLOCK: &str = "isotherm, try-lock";
const ZONE: &str = "isotherm, zone alone";
/// CPUs of the lists: the bench pins two threads to the first two that it may use.
const CPUS: u32 = 64;

/// Times that are results themselves.
const TIMES: [(&str, &str, Measure); 10] = [
    ("pair_ns", RSEQ, (Shape::Pair, 0)),
    ("pair_owned_ns", OWNED, (Shape::Pair, 0)),
    ("pair_any_free_ns", ANYONE, (Shape::Pair, 0)),
    ("pair_trylock_ns", TRYLOCK, (Shape::Pair, 0)),
    ("bulk_get_ns", RSEQ, (Shape::Bulk, 0)),
    ("bulk_put_ns", RSEQ, (Shape::Bulk, 1)),
    ("bulk_put_random_ns", RSEQ, (Shape::BulkRandom, 1)),
    ("bulk_call_get_ns", ZONE, (Shape::BulkCall, 0)),
    ("burst_ns", RSEQ, (Shape::Burst, 0)),
    ("order9_pair_ns", RSEQ, (Shape::HugePair, 0)),
];

/// The time of a peer divided by ours.
const RATIOS: [(&str, &str, Measure); 3] = [
    ("pair_vs_jemalloc", jemalloc::Jemalloc::NAME, (Shape::Pair, 0)),
    ("pair_vs_mimalloc", mimalloc::Mimalloc::NAME, (Shape::Pair, 0)),
    ("bulk_vs_mimalloc", mimalloc::Mimalloc::NAME, (Shape::Bulk, 0)),
];

/// Memory for metadata, for as long as the bench runs.
fn memory(bytes: usize) -> Metadata<'static> {
    Metadata::zeroed(Box::leak(vec![0; bytes].into_boxed_slice()))
}

fn zone() -> Zone<'static> {
    let config = ZoneConfig::new(FrameRange::new(FrameNo(0), FrameNo(POOL as u64)));
    let zone = Zone::new(&config, memory(config.metadata_bytes().expect("a span"))).expect("enough memory");
    zone.add(config.span, MigrateType::Movable).expect("an empty zone");
    zone
}

/// Bytes of metadata for each frame of a pool, including the lists of two CPUs.
fn metadata_bytes_per_frame() -> f64 {
    let zone = zone();
    let config = ZoneConfig::new(zone.span());
    let bytes = config.metadata_bytes().expect("a span") + PcpConfig::new(2).metadata_bytes(&zone);
    bytes as f64 / POOL as f64
}

/// A thread's handle of a front end, with frees that only the owner may do, or by any thread.
struct Way<F, const ANYONE: bool>(F);

fn order_of(order: u32) -> Order {
    Order::new(order).expect("an order of the allocator's")
}

impl<F: Front, const ANYONE: bool> Frames for Way<F, ANYONE> {
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "a number of the pool's")]
    fn get(&mut self, order: u32) -> usize {
        self.0.alloc(order_of(order), MigrateType::Movable).expect("a free block").0 as usize
    }

    #[inline]
    unsafe fn put(&mut self, block: usize, order: u32) {
        let (frame, order) = (FrameNo(block as u64), order_of(order));
        let freed = if ANYONE { self.0.free(frame, order) } else { self.0.free_unique(frame, order) };
        freed.expect("a block that was handed out");
    }
}

/// A private handle of a thread.
struct Owned(Zone<'static>);

impl Peer for Owned {
    const NAME: &'static str = OWNED;
    type Handle<'a> = Way<OwnedPcpLists<'a, 'static>, false>;

    fn new() -> Owned {
        Owned(zone())
    }

    fn handle(&self) -> Self::Handle<'_> {
        let limits = PcpLimits::for_zone(POOL as u64, 0, 2, None);
        Way(OwnedPcpLists::new(&self.0, limits, memory(OwnedPcpLists::metadata_bytes(limits))).expect("enough memory"))
    }
}

/// Per-CPU lists by restartable sequences or by try-lock, with frees that only the owner may do or by any thread.
struct Shared<const LOCKED: bool, const ANYONE: bool>(PcpLists<'static>);

impl<const LOCKED: bool, const ANY: bool> Peer for Shared<LOCKED, ANY> {
    const NAME: &'static str = if LOCKED { TRYLOCK } else { [RSEQ, ANYONE][ANY as usize] };
    type Handle<'a> = Way<&'a PcpLists<'static>, ANY>;

    fn new() -> Self {
        let zone = zone();
        let tier = if LOCKED { Tier::Locked } else { Tier::Restartable };
        // Marks for two CPUs, as the bench uses; room for any numbers that those two may have.
        let limits = Some(PcpLimits::for_zone(POOL as u64, 0, 2, None));
        let config = PcpConfig { tier, limits, ..PcpConfig::new(CPUS) };
        let memory = memory(config.metadata_bytes(&zone));
        Shared(PcpLists::new(zone, &config, memory).expect("restartable sequences: glibc 2.35 or later"))
    }

    fn handle(&self) -> Self::Handle<'_> {
        Way(&self.0)
    }
}

/// The zone without per-CPU lists.
struct Alone(Zone<'static>);

impl Peer for Alone {
    const NAME: &'static str = ZONE;
    const MANY: bool = true;
    type Handle<'a> = &'a Zone<'static>;

    fn new() -> Alone {
        Alone(zone())
    }

    fn handle(&self) -> &Zone<'static> {
        &self.0
    }
}

impl Frames for &Zone<'static> {
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "a number of the pool's")]
    fn get(&mut self, order: u32) -> usize {
        self.alloc(order_of(order), MigrateType::Movable).expect("a free block").0 as usize
    }

    #[inline]
    unsafe fn put(&mut self, block: usize, order: u32) {
        self.free(FrameNo(block as u64), order_of(order)).expect("a block that was handed out");
    }

    #[expect(clippy::cast_possible_truncation, reason = "numbers of the pool's")]
    fn get_many(&mut self, blocks: &mut [usize]) {
        let mut frames = [FrameNo(0); 256];
        for some in blocks.chunks_mut(frames.len()) {
            let got = self.alloc_bulk(Order::FRAME, MigrateType::Movable, &mut frames[..some.len()]);
            assert_eq!(got, some.len(), "free frames");
            some.iter_mut().zip(frames).for_each(|(block, frame)| *block = frame.0 as usize);
        }
    }

    unsafe fn put_many(&mut self, blocks: &[usize]) {
        let mut frames = [FrameNo(0); 256];
        for some in blocks.chunks(frames.len()) {
            frames.iter_mut().zip(some).for_each(|(frame, &block)| *frame = FrameNo(block as u64));
            self.free_bulk(&frames[..some.len()], Order::FRAME).expect("blocks that were handed out");
        }
    }
}

/// All rows.
pub fn rows() -> Vec<Arc<dyn Row>> {
    vec![
        row::<Owned>(),
        row::<Shared<false, false>>(),
        row::<Shared<false, true>>(),
        row::<Shared<true, false>>(),
        row::<Alone>(),
    ]
}

/// The results computed from the measured rows.
pub fn results(tables: &Tables, log: &mut Log) {
    for (key, name, measure) in TIMES {
        tables.result(log, key, name, measure);
    }
    for (key, peer, measure) in RATIOS {
        if let (Some(peer), Some(ours)) = (tables.ns(peer, measure), tables.ns(RSEQ, measure)) {
            log.result(key, peer / ours);
        }
    }
    if let Some(ratio) = tables.ratio(RSEQ, (Shape::Pair, 0)) {
        log.result("two_thread_ratio", ratio);
    }
    log.result("metadata_bytes_per_frame", metadata_bytes_per_frame());
}
