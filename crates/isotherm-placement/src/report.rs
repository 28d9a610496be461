//! The report: rates, colours and a picture of the colours, as data.
//!
//! Filled in by [`crate::compute`], drawn as text by `isotherm-view`, printed as JSON as it is: names of fields are the keys, and stay as
//! they are. A cache serves the memory of its own node, so there is a section for each node, and rates over all of them beside. Rates are
//! shares in percent: of a node's of the accesses to it, of the total's of the accesses to all memory behind a cache.

use isotherm_units::Bytes;
use serde::Serialize;

/// The cache that the frames of a node are held against.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlacementCache {
    /// Its size; of an extended-linear one that of near memory.
    pub size_bytes: Bytes,
    /// How many colours it has: one a frame that it holds. Frames compete that are a multiple of so many apart.
    pub colours: u64,
    /// Whether it is only assumed: the machine may have none, or another.
    pub modelled: bool,
    /// Where its size comes from: a few words.
    pub source: String,
    /// Whether it counts as memory too, next to what it is in front of (Flat Memory Mode).
    pub extended_linear: bool,
    /// What speaks against it being as it is told: a few words each; empty if nothing does.
    pub doubts: Vec<String>,
}

/// One process whose frames were read.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlacementTarget {
    /// Process id.
    pub pid: u32,
    /// Command name.
    pub comm: String,
    /// Pages that have a frame, those of zeros left out.
    pub resident_pages: u64,
    /// Pages that were read and never written to: they share one frame of zeros, small or huge, which is in no figure.
    pub zero_pages: u64,
    /// Pages that are swapped out (or just being moved), which have none.
    pub swapped_pages: u64,
    /// Pages of its mappings that were never touched, or given back.
    pub absent_pages: u64,
    /// Resident pages of which no heat is known, counted as never accessed; `None` if heat was not asked for.
    pub unknown_heat_pages: Option<u64>,
}

/// A process that was asked for and is not in the figures, with nothing of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LeftOut {
    /// Process id.
    pub pid: u32,
    /// The reason.
    pub why: String,
}

/// A rate that was drawn several times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DrawnRate {
    /// Mean over the draws.
    pub mean_pct: f64,
    /// The lowest draw.
    pub min_pct: f64,
    /// The highest draw.
    pub max_pct: f64,
    /// How many draws.
    pub draws: u32,
}

/// Shares of accesses that miss, in each placement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PlacementRates {
    /// Where the frames lie.
    pub placed_pct: f64,
    /// With their blocks of 4 MiB at random places.
    pub shuffled: DrawnRate,
    /// The share of those draws that miss less than where the frames lie.
    pub shuffled_below_placed_pct: f64,
    /// Spread evenly over the colours.
    pub coloured: DrawnRate,
    /// Spread evenly, the hottest beside the coldest.
    pub coloured_by_heat_pct: f64,
    /// Footprint beyond the cache: in any placement.
    pub unavoidable_pct: f64,
    /// Accesses to colours that hold more than one frame, where the frames lie.
    pub crowded_pct: f64,
}

/// How many colours hold so many frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ColoursByFrames {
    /// So many frames, or more if it is the last.
    pub frames: u64,
    /// So many colours.
    pub colours: u64,
}

/// A colour with much on it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LoadedColour {
    /// Which.
    pub colour: u64,
    /// Frames on it.
    pub frames: u64,
    /// Its share of the accesses to its node; `None` if there are none.
    pub accesses_pct: Option<f64>,
}

/// A run of neighbouring colours.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ColourCell {
    /// The first of them.
    pub first_colour: u64,
    /// How many.
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
    /// Its memory, in which shuffled blocks were placed.
    pub memory_bytes: Bytes,
    /// The cache in front of it; `None` if there is none as far as is known.
    pub cache: Option<PlacementCache>,
    /// A cache that it has and that frames could not be held against, or nothing.
    pub unclear: Option<String>,
    /// Frames, each once.
    pub frames: u64,
    /// Their bytes.
    pub footprint_bytes: Bytes,
    /// Blocks of 4 MiB that they lie in.
    pub blocks: u64,
    /// Their share of all accesses; `None` if there are none.
    pub accesses_pct: Option<f64>,
    /// Miss rates; `None` if nothing is accessed, or there is no cache.
    pub rates: Option<PlacementRates>,
    /// Colours with a frame on them.
    pub colours_used: u64,
    /// Those by how many; none for 0.
    pub colours_by_frames: Vec<ColoursByFrames>,
    /// Those with most accesses beside each other, most first.
    pub most_loaded: Vec<LoadedColour>,
    /// The picture, from colour 0 on; empty without a cache.
    pub picture: Vec<ColourCell>,
}

/// What is known of where frames lie.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlacementReport {
    /// Where heat comes from; `None` if every resident page weighs the same.
    pub heat: Option<String>,
    /// Whose frames these are, by pid.
    pub targets: Vec<PlacementTarget>,
    /// Who was left out.
    pub left_out: Vec<LeftOut>,
    /// Frames, each once, of all nodes and of none.
    pub frames: u64,
    /// Their bytes.
    pub footprint_bytes: Bytes,
    /// Blocks of 4 MiB that they lie in.
    pub blocks: u64,
    /// Pages that share a frame with a page counted already.
    pub shared_pages: u64,
    /// By node: all with memory, and those besides on which a frame lies.
    pub nodes: Vec<PlacementNode>,
    /// Frames of which it is not known on which node they lie; they are in no rate.
    pub unknown_node_frames: u64,
    /// The share of all accesses that goes to memory behind a cache; `None` if there are none.
    pub behind_cache_pct: Option<f64>,
    /// Miss rates of the accesses to all memory behind a cache; `None` if nothing there is accessed.
    pub rates: Option<PlacementRates>,
    /// Whether the kernel shuffles its free lists; `None` if that is unknown.
    pub shuffle_on: Option<bool>,
    /// What draws began with.
    pub seed: u64,
    /// Colours in a row of a picture are so many cells.
    pub picture_columns: usize,
}
