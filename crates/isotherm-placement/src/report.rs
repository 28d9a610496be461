//! The report: rates, colours and a picture of the colours, as data.
//!
//! [`crate::compute`] fills it in, `isotherm-view` draws it as text, and it is printed as JSON as it is: field names
//! are the JSON keys and do not change. A cache serves the memory of its own node, so there is a section for each node,
//! in addition to rates over all of them. Rates are percentages: of the accesses to a node, or for the total, of the
//! accesses to all memory behind a cache.

use isotherm_units::Bytes;
use serde::Serialize;

/// The cache in front of a node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlacementCache {
    /// Its size. For an extended-linear cache this is the size of near memory.
    pub size_bytes: Bytes,
    /// Number of colours: one for each frame that it holds. Two frames compete if the distance between them is a
    /// multiple of this number.
    pub colours: u64,
    /// Whether it is only assumed: the machine may have none, or a different one.
    pub modelled: bool,
    /// Where its size comes from: a few words.
    pub source: String,
    /// Whether it counts as memory too, in addition to the memory that it is in front of (Flat Memory Mode).
    pub extended_linear: bool,
    /// Reasons why the cache may differ from the description, a few words each; empty if there are none.
    pub doubts: Vec<String>,
}

/// One process whose frames were read.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlacementTarget {
    /// Process id.
    pub pid: u32,
    /// Command name.
    pub comm: String,
    /// Pages that have a frame, without the pages of zeros.
    pub resident_pages: u64,
    /// Pages that were read and never written to. They share one frame of zeros, small or huge, which is in no figure.
    pub zero_pages: u64,
    /// Pages that are swapped out (or being migrated), and so have no frame.
    pub swapped_pages: u64,
    /// Pages of its mappings that were never touched, or that were freed.
    pub absent_pages: u64,
    /// Resident pages without known heat, counted as never accessed; `None` if heat was not requested.
    pub unknown_heat_pages: Option<u64>,
}

/// A process that was requested and skipped. None of its pages are in the figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SkippedProcess {
    /// Process id.
    pub pid: u32,
    /// The reason.
    pub why: String,
}

/// A rate over several draws.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DrawnRate {
    /// Mean over the draws.
    pub mean_pct: f64,
    /// The lowest draw.
    pub min_pct: f64,
    /// The highest draw.
    pub max_pct: f64,
    /// Number of draws.
    pub draws: u32,
}

/// Shares of accesses that miss, in each placement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PlacementRates {
    /// As placed.
    pub placed_pct: f64,
    /// With their 4 MiB blocks at random places.
    pub shuffled: DrawnRate,
    /// The share of those draws that miss less than the frames as placed.
    pub shuffled_below_placed_pct: f64,
    /// Spread evenly over the colours, without regard to heat.
    pub coloured: DrawnRate,
    /// Spread evenly, the hottest next to the coldest.
    pub coloured_by_heat_pct: f64,
    /// Unavoidable in any placement, because the footprint exceeds the cache.
    pub unavoidable_pct: f64,
    /// Accesses to colours that hold more than one frame, as placed.
    pub crowded_pct: f64,
}

/// Number of colours that hold a given number of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ColoursByFrames {
    /// The number of frames. The last entry also counts colours with more.
    pub frames: u64,
    /// The number of colours.
    pub colours: u64,
}

/// One of the most loaded colours.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LoadedColour {
    /// The colour.
    pub colour: u64,
    /// Frames on it.
    pub frames: u64,
    /// Its share of the accesses to its node; `None` if there are none.
    pub accesses_pct: Option<f64>,
}

/// A range of neighbouring colours.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ColourCell {
    /// The first of them.
    pub first_colour: u64,
    /// Number of colours.
    pub colours: u64,
    /// Frames on them.
    pub frames: u64,
    /// Their share of the accesses to their node; `None` if there are none.
    pub accesses_pct: Option<f64>,
}

/// The frames that lie on one node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlacementNode {
    /// Its number.
    pub node: u32,
    /// The memory in which shuffled blocks were placed.
    pub memory_bytes: Bytes,
    /// The cache in front of it; `None` if none is known.
    pub cache: Option<PlacementCache>,
    /// A cache in front of it for which misses could not be computed, and why; `None` if there is none.
    pub unclear: Option<String>,
    /// Frames, each once.
    pub frames: u64,
    /// Their size in bytes.
    pub footprint_bytes: Bytes,
    /// 4 MiB blocks with a frame in use.
    pub blocks: u64,
    /// Their share of all accesses; `None` if there are none.
    pub accesses_pct: Option<f64>,
    /// Miss rates; `None` if nothing is accessed, or there is no cache.
    pub rates: Option<PlacementRates>,
    /// Colours with at least one frame.
    pub colours_used: u64,
    /// Those by number of frames, from 1 on.
    pub colours_by_frames: Vec<ColoursByFrames>,
    /// Those with the most competing accesses, the most first.
    pub most_loaded: Vec<LoadedColour>,
    /// The picture, from colour 0 on; empty without a cache.
    pub picture: Vec<ColourCell>,
}

/// The placement of the frames of some processes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlacementReport {
    /// Where heat comes from; `None` if all resident pages have the same weight.
    pub heat: Option<String>,
    /// Whose frames these are, by pid.
    pub targets: Vec<PlacementTarget>,
    /// Processes that were skipped.
    pub left_out: Vec<SkippedProcess>,
    /// Frames, each once, on all nodes and on unknown nodes.
    pub frames: u64,
    /// Their size in bytes.
    pub footprint_bytes: Bytes,
    /// 4 MiB blocks with a frame in use.
    pub blocks: u64,
    /// Pages that share a frame with a page already counted.
    pub shared_pages: u64,
    /// By node: all nodes with memory, and other nodes with a frame.
    pub nodes: Vec<PlacementNode>,
    /// Frames whose node is unknown. They are in no rate.
    pub unknown_node_frames: u64,
    /// The share of all accesses that goes to memory behind a cache; `None` if there are none.
    pub behind_cache_pct: Option<f64>,
    /// Miss rates of the accesses to all memory behind a cache; `None` if nothing there is accessed.
    pub rates: Option<PlacementRates>,
    /// Whether the kernel shuffles its free lists; `None` if that is unknown.
    pub shuffle_on: Option<bool>,
    /// The seed of the draws.
    pub seed: u64,
    /// Colours in a row of the picture are folded into this many cells.
    pub picture_columns: usize,
}
