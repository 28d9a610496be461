//! The input of the computation: whose frames they are, and the node of each frame.
//!
//! Plain data. [`crate::read`] makes it from the machine; tests and other callers make it by hand.

use crate::direct_mapped::{DirectMapped, Footprint};
use crate::report::{PlacementCache, PlacementTarget, SkippedProcess};
use isotherm_units::{Bytes, FrameNo};
use std::collections::BTreeMap;

/// The processes whose frames were read, and what was skipped.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FrameOwners {
    /// What the weights of frames come from, in words; `None` if all have the same weight.
    pub weighed_by: Option<String>,
    /// Pages with a frame. Every mapping of a frame counts.
    pub pages: u64,
    /// The processes, by pid.
    pub targets: Vec<PlacementTarget>,
    /// Processes that were skipped.
    pub left_out: Vec<SkippedProcess>,
}

/// A node, and what is in front of its memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// Its number.
    pub id: u32,
    /// `None` if the kernel does not report it.
    pub memory: Option<Bytes>,
    /// The cache in front of it, for which misses are computed, and how the report shows it.
    pub cache: Option<(DirectMapped, PlacementCache)>,
    /// A cache in front of it for which misses cannot be computed, and why.
    pub unclear: Option<String>,
}

impl Node {
    /// A node without a cache.
    pub fn bare(id: u32, memory: Option<Bytes>) -> Node {
        Node { id, memory, ..Node::default() }
    }
}

/// Frames and the nodes that they are on.
#[derive(Clone, Debug, Default)]
pub struct Placed {
    /// Frames by node, in order of number, with all nodes that were listed.
    pub nodes: Vec<(Node, Footprint)>,
    /// Frames in no zone, or in zones of several nodes.
    pub unknown: Footprint,
    /// All of them together.
    pub all: Extent,
    /// Whether the kernel shuffles its free lists; `None` if that is unknown.
    pub shuffle_on: Option<bool>,
}

/// The size of a footprint.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Extent {
    /// Frames, each once.
    pub frames: u64,
    /// 4 MiB blocks with a frame in use.
    pub blocks: u64,
    /// Their total weight.
    pub weight: f64,
}

impl Extent {
    /// The extent of `footprint`.
    pub fn of(footprint: &Footprint) -> Extent {
        Extent { frames: footprint.frames(), blocks: footprint.blocks(), weight: footprint.weight_of_all() }
    }
}

impl Placed {
    /// All frames on one node.
    pub fn on_one(node: Node, footprint: Footprint) -> Placed {
        let all = Extent::of(&footprint);
        Placed { nodes: vec![(node, footprint)], all, ..Placed::default() }
    }

    /// Splits frames by the node that `node_of` returns. A node that was not listed is added, without a cache.
    pub fn on_several(nodes: Vec<Node>, footprint: Footprint, node_of: impl Fn(FrameNo) -> Option<u32>) -> Placed {
        let all = Extent::of(&footprint);
        let mut parts = footprint.split(node_of);
        let unknown = parts.remove(&None).unwrap_or_default();
        let mut by_node: BTreeMap<u32, (Node, Footprint)> =
            nodes.into_iter().map(|node| (node.id, (node, Footprint::default()))).collect();
        for (id, part) in parts.into_iter().filter_map(|(id, part)| Some((id?, part))) {
            by_node.entry(id).or_insert_with(|| (Node::bare(id, None), Footprint::default())).1 = part;
        }
        Placed { nodes: by_node.into_values().collect(), unknown, all, ..Placed::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_frame_is_on_one_node_or_on_none_and_unlisted_nodes_are_added() {
        let footprint = Footprint::uniform([1, 2, 5000, 9000].map(FrameNo));
        let node_of = |frame: FrameNo| (frame.0 < 9000).then_some(if frame.0 < 5000 { 0 } else { 7 });
        let placed = Placed::on_several(vec![Node::bare(0, None), Node::bare(1, None)], footprint, node_of);
        let frames: Vec<_> = placed.nodes.iter().map(|(node, part)| (node.id, part.frames())).collect();
        assert_eq!((frames, placed.unknown.frames()), (vec![(0, 2), (1, 0), (7, 1)], 1));
        assert_eq!(placed.all, Extent { frames: 4, blocks: 3, weight: 4.0 });
    }
}
