//! Which memory-side caches are direct-mapped, so that frames compete in them, for the allocator and
//! `isotherm placement`.
//!
//! `cache` reads what the firmware reports and keeps its doubts. Here only a known size and a known indexing count.
//! Caches that are neither clearly direct-mapped nor clearly not are returned separately, for `isotherm doctor` to
//! name.

use crate::cache::{Doubt, MemorySideCache};
use crate::facts::HostFacts;
use crate::memory::NumaNode;
use isotherm_sys::files::Tree;
use std::path::Path;

/// A direct-mapped memory-side cache, as an allocator needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacementCache {
    /// The node whose memory it is in front of.
    pub node: u32,
    /// Its level; 1 is next to the memory.
    pub level: u32,
    /// Its size in frames of 4 KiB; never zero. Two different frames of the node compete if their numbers are equal
    /// modulo this. Controllers may hash addresses, so [`crate::cache_probe`] is more reliable.
    pub frames: u64,
    /// Whether its own memory counts as memory of the node: there are frames in both halves.
    pub extended_linear: bool,
    /// Reasons to doubt it; empty if the firmware's report is consistent.
    pub doubts: Vec<Doubt>,
}

impl PlacementCache {
    /// Whether there is no reason to doubt it. It is still only the firmware's report.
    pub fn is_sure(&self) -> bool {
        self.doubts.is_empty()
    }
}

/// The caches of a machine in which frames compete, as reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlacementCaches {
    /// Direct-mapped ones of known size, by node and level.
    pub direct: Vec<PlacementCache>,
    /// Those that may be direct-mapped, or of any size, as far as is known; with their nodes.
    pub unclear: Vec<(u32, MemorySideCache)>,
}

/// The same for callers that need no other fact of the machine: reads the nodes below `sys` (`/sys`).
pub fn placement_caches_below(sys: &Path) -> Option<PlacementCaches> {
    let nodes = NumaNode::read_all(&Tree::at(sys));
    placement_caches(&HostFacts { nodes, ..HostFacts::default() })
}

/// The direct-mapped memory-side caches that the machine reports. `None` if the kernel lists no nodes, so that nothing
/// is known. Empty if it reports that there are none, as virtual machines mostly do on any host.
pub fn placement_caches(facts: &HostFacts) -> Option<PlacementCaches> {
    let mut found = PlacementCaches::default();
    for node in facts.nodes.as_ref()? {
        for cache in &node.caches {
            match cache.conflict_distance() {
                Some(frames) => found.direct.push(PlacementCache {
                    node: node.id,
                    level: cache.level,
                    frames,
                    extended_linear: cache.extended_linear == Some(true),
                    doubts: cache.doubts_about_placement().cloned().collect(),
                }),
                None if cache.is_unclear() => found.unclear.push((node.id, cache.clone())),
                None => {}
            }
        }
    }
    Some(found)
}
