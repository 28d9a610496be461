//! For tests: per-CPU lists, and threads that pretend to run on a CPU.

use super::{PcpConfig, PcpLists, Tier};
use crate::memory::Metadata;
use crate::percpu::Rseq;
use crate::{FrameNo, FrameRange, MigrateType, Order, Zone, ZoneConfig};
use std::cell::Cell;
use std::io::Write;
use std::sync::atomic::Ordering::Relaxed;

thread_local! {
    static PRETENDED: Cell<Option<u32>> = const { Cell::new(None) };
}

/// The CPU that locked lists take this thread to be on.
pub(super) fn pretended_cpu() -> Option<u32> {
    PRETENDED.get()
}

/// From now on, locked lists take this thread to be on that CPU.
pub(crate) fn pretend(cpu: u32) {
    PRETENDED.set(Some(cpu));
}

/// Memory that outlives every test.
pub(crate) fn memory(bytes: usize) -> Metadata<'static> {
    Metadata::zeroed(Box::leak(vec![0; bytes].into_boxed_slice()))
}

/// Per-CPU lists in front of a zone of `frames` frames.
pub(crate) fn pcp(frames: u64, config: &PcpConfig) -> PcpLists<'static> {
    pcp_of(ZoneConfig::new(FrameRange::new(FrameNo(0), FrameNo(frames))), config)
}

/// The same with a zone of another kind.
pub(crate) fn pcp_of(span: ZoneConfig, config: &PcpConfig) -> PcpLists<'static> {
    let zone = Zone::new(&span, memory(span.metadata_bytes().unwrap())).unwrap();
    zone.add(span.span, MigrateType::Movable).unwrap();
    let bytes = config.metadata_bytes(&zone);
    PcpLists::new(zone, config, memory(bytes)).unwrap()
}

/// Frees `frames` single frames to the lists of the CPU that this thread runs on or pretends to run on. They are the
/// lowest free frames. The lowest is freed first, so it is the coldest.
pub(crate) fn fill(pcp: &PcpLists<'_>, frames: usize) -> Vec<FrameNo> {
    let mut got = vec![FrameNo(0); frames];
    assert_eq!(pcp.zone().alloc_bulk(Order::FRAME, MigrateType::Movable, &mut got), frames);
    got.iter().for_each(|&frame| pcp.free(frame, Order::FRAME).unwrap());
    got
}

/// Sets the `high` of a CPU.
pub(crate) fn let_keep(pcp: &PcpLists<'_>, cpu: u32, high: u32) {
    pcp.states.of(cpu).unwrap().tuner[0].store(high, Relaxed);
}

/// The shared tiers that are available here.
pub(crate) fn tiers() -> Vec<Tier> {
    match Rseq::check() {
        Ok(_) => vec![Tier::Restartable, Tier::Locked],
        Err(why) => {
            let _ = std::io::stderr().write_all(format!("skipped: needs restartable sequences: {why}\n").as_bytes());
            vec![Tier::Locked]
        }
    }
}

/// Checks that everything that is not allocated is in the zone or cached, and that the zone's metadata is right.
pub(crate) fn assert_all_there(pcp: &PcpLists<'_>, handed_out: u64) {
    pcp.zone().validate().unwrap();
    let cached: u64 = (0..pcp.cpus()).map(|cpu| pcp.cached(cpu)).sum();
    let stats = pcp.zone().stats();
    assert_eq!(stats.free + cached + handed_out, stats.present, "lost or there twice: {cached} wait");
    assert_eq!(stats.events.wrong_state, 0);
}
