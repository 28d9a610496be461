//! Computes the report from frames and their places, node by node.
//!
//! Pure: the seed of the random draws is an argument, and so is the [`Progress`] that can stop the computation.

use crate::colours::{MostLoaded, Picture, by_frames};
use crate::direct_mapped::Footprint;
use crate::placed::{FrameOwners, Node, Placed};
use crate::progress::{Progress, Stopped};
use crate::rates::{Draws, NodeFrames, Total};
use crate::report::{PlacementNode, PlacementReport};
use isotherm_rng::Rng;
use isotherm_units::Bytes;

/// How random placements and pictures are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drawing {
    /// Seed of the random draws.
    pub seed: u64,
    /// Columns of a picture: cells in a row.
    pub columns: usize,
    /// Maximum number of rows of a picture.
    pub rows: usize,
}

/// Computes the whole report.
pub fn report(
    whose: FrameOwners,
    placed: Placed,
    drawing: Drawing,
    progress: &mut dyn Progress,
) -> Result<PlacementReport, Stopped> {
    let Placed { nodes, unknown, all, shuffle_on } = placed;
    let mut nodewise = NodeByNode {
        all_weight: all.weight,
        by_heat: whose.weighed_by.is_some(),
        drawing,
        draws: Draws { rng: Rng::new(drawing.seed), progress },
        total: Total::default(),
    };
    let mut sections = Vec::new();
    for (node, footprint) in nodes {
        sections.push(nodewise.section(node, &footprint)?);
    }
    let total = nodewise.total;
    Ok(PlacementReport {
        heat: whose.weighed_by,
        frames: all.frames,
        footprint_bytes: Bytes::of_pages(all.frames),
        blocks: all.blocks,
        shared_pages: whose.pages - all.frames,
        targets: whose.targets,
        left_out: whose.left_out,
        nodes: sections,
        unknown_node_frames: unknown.frames(),
        behind_cache_pct: (all.weight > 0.0).then(|| total.weight / all.weight * 100.0),
        rates: total.rates(),
        shuffle_on,
        seed: drawing.seed,
        picture_columns: drawing.columns,
    })
}

/// State that all nodes share, and the totals over them.
struct NodeByNode<'a> {
    /// Total weight of all frames on all nodes.
    all_weight: f64,
    by_heat: bool,
    drawing: Drawing,
    draws: Draws<'a>,
    total: Total,
}

impl NodeByNode<'_> {
    /// The report's section of one node. Also adds the node to the total.
    fn section(&mut self, node: Node, footprint: &Footprint) -> Result<PlacementNode, Stopped> {
        let memory = node.memory.unwrap_or(Bytes::of_pages(footprint.blocks() * 1024));
        let mut section = self.without_cache(&node, footprint, memory);
        let Some((cache, reported_cache)) = node.cache else { return Ok(section) };
        let mut picture = Picture::new(cache.frames(), self.drawing.columns * self.drawing.rows);
        let mut most = MostLoaded::new(self.by_heat);
        let placed = footprint.conflict(cache).visit(|colour, load| {
            picture.add(colour, load);
            most.add(colour, load);
        });
        if let Some(rates) = self.draws.rates(NodeFrames { footprint, cache, memory }, &placed)? {
            self.total.add(placed.weight, &rates);
            section.rates = rates.to_report();
        }
        section.cache = Some(reported_cache);
        section.colours_used = placed.colours_used;
        section.colours_by_frames = by_frames(&placed);
        section.most_loaded = most.into_report(placed.weight);
        section.picture = picture.cells(placed.weight);
        Ok(section)
    }

    fn without_cache(&self, node: &Node, footprint: &Footprint, memory: Bytes) -> PlacementNode {
        PlacementNode {
            node: node.id,
            memory_bytes: memory,
            cache: None,
            unclear: node.unclear.clone(),
            frames: footprint.frames(),
            footprint_bytes: Bytes::of_pages(footprint.frames()),
            blocks: footprint.blocks(),
            accesses_pct: (self.all_weight > 0.0).then(|| footprint.weight_of_all() / self.all_weight * 100.0),
            rates: None,
            colours_used: 0,
            colours_by_frames: Vec::new(),
            most_loaded: Vec::new(),
            picture: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_units::FrameNo;

    /// Stops from the start.
    struct Never;

    impl Progress for Never {
        fn begin(&mut self, _: u64) {}
        fn step(&mut self) {
            panic!("stopped before the first step");
        }
        fn end(&mut self) {}
        fn is_stopped(&self) -> bool {
            true
        }
    }

    #[test]
    fn it_ends_when_asked_to_and_without_a_cache_there_is_nothing_to_end() {
        use crate::direct_mapped::DirectMapped;
        use crate::report::PlacementCache;
        let footprint = || Footprint::uniform([FrameNo(1), FrameNo(3)]);
        let whose = || FrameOwners { pages: 2, ..FrameOwners::default() };
        let drawing = Drawing { seed: 1, columns: 10, rows: 4 };
        let bare = Placed::on_one(Node::bare(0, None), footprint());
        assert_eq!(report(whose(), bare, drawing, &mut Never).unwrap().rates, None);
        let cache = PlacementCache {
            size_bytes: Bytes(8192),
            colours: 2,
            modelled: true,
            source: String::new(),
            extended_linear: false,
            doubts: Vec::new(),
        };
        let cache = Some((DirectMapped::new(Bytes(8192)).unwrap(), cache));
        let behind = Placed::on_one(Node { cache, ..Node::default() }, footprint());
        assert_eq!(report(whose(), behind, drawing, &mut Never), Err(Stopped));
    }
}
