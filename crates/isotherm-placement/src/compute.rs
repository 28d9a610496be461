//! From frames where they lie to the report, node by node.
//!
//! Pure: the seed of what is drawn is an argument, and so is who may end it.

use crate::colours::{Most, Picture, by_frames};
use crate::direct_mapped::Footprint;
use crate::placed::{Node, Placed, Whose};
use crate::progress::{Progress, Stopped};
use crate::rates::{Behind, Draws, Total};
use crate::report::{PlacementNode, PlacementReport};
use isotherm_rng::Rng;
use isotherm_units::Bytes;

/// How what is drawn is drawn: placements at random, and pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drawing {
    /// What draws begin with.
    pub seed: u64,
    /// Columns of a picture: colours in a row are so many cells.
    pub columns: usize,
    /// Rows of a picture at the most.
    pub rows: usize,
}

/// Computes all that is told.
pub fn report(
    whose: Whose,
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

/// What the sections of the nodes have in common, and what they add up to.
struct NodeByNode<'a> {
    /// What all frames on all nodes weigh.
    all_weight: f64,
    by_heat: bool,
    drawing: Drawing,
    draws: Draws<'a>,
    total: Total,
}

impl NodeByNode<'_> {
    /// What is told of one node, of which the total is told as well.
    fn section(&mut self, node: Node, footprint: &Footprint) -> Result<PlacementNode, Stopped> {
        let memory = node.memory.unwrap_or(Bytes::of_pages(footprint.blocks() * 1024));
        let mut told = self.without_cache(&node, footprint, memory);
        let Some((cache, told_cache)) = node.cache else { return Ok(told) };
        let mut picture = Picture::new(cache.frames(), self.drawing.columns * self.drawing.rows);
        let mut most = Most::new(self.by_heat);
        let placed = footprint.conflict(cache).visit(|colour, load| {
            picture.add(colour, load);
            most.add(colour, load);
        });
        if let Some(rates) = self.draws.rates(Behind { footprint, cache, memory }, &placed)? {
            self.total.add(placed.weight, &rates);
            told.rates = rates.told();
        }
        told.cache = Some(told_cache);
        told.colours_used = placed.colours_used;
        told.colours_by_frames = by_frames(&placed);
        told.most_loaded = most.told(placed.weight);
        told.picture = picture.cells(placed.weight);
        Ok(told)
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
        let whose = || Whose { pages: 2, ..Whose::default() };
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
