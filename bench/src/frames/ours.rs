//! `isotherm-frames`: its rows, and what they add to the RESULT line.
//!
//! The crate's front ends become rows here as they are built: an adapter is a [`super::Peer`] whose handle is what a thread has of
//! the front end, with frames taken and given back as movable. Four rows have their names already: an own handle of a
//! thread, per-CPU sets by restartable sequences, per-CPU sets by try-lock, and the zone without any set, which is asked
//! for many frames in a call. What is derived from a row appears in the RESULT line when the row is there.

use super::shape::Shape;
use super::table::{Measure, Tables};
use super::{Peer, Row, jemalloc, mimalloc};
use isotherm_bench::Log;
use std::sync::Arc;

const OWNED: &str = "isotherm, own handle";
const RSEQ: &str = "isotherm, rseq";
const TRYLOCK: &str = "isotherm, try-lock";
const ZONE: &str = "isotherm, zone alone";

/// Times that are results by themselves.
const TIMES: [(&str, &str, Measure); 9] = [
    ("pair_ns", RSEQ, (Shape::Pair, 0)),
    ("pair_owned_ns", OWNED, (Shape::Pair, 0)),
    ("pair_trylock_ns", TRYLOCK, (Shape::Pair, 0)),
    ("bulk_get_ns", RSEQ, (Shape::Bulk, 0)),
    ("bulk_put_ns", RSEQ, (Shape::Bulk, 1)),
    ("bulk_put_random_ns", RSEQ, (Shape::BulkRandom, 1)),
    ("bulk_call_get_ns", ZONE, (Shape::BulkCall, 0)),
    ("burst_ns", RSEQ, (Shape::Burst, 0)),
    ("order9_pair_ns", RSEQ, (Shape::HugePair, 0)),
];

/// How often ours fits into the time of a peer.
const RATIOS: [(&str, &str, Measure); 3] = [
    ("pair_vs_jemalloc", jemalloc::Jemalloc::NAME, (Shape::Pair, 0)),
    ("pair_vs_mimalloc", mimalloc::Mimalloc::NAME, (Shape::Pair, 0)),
    ("bulk_vs_mimalloc", mimalloc::Mimalloc::NAME, (Shape::Bulk, 0)),
];

/// The rows there are.
pub fn rows() -> Vec<Arc<dyn Row>> {
    Vec::new()
}

/// What follows from the rows that were measured.
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
}
