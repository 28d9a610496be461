//! The parts of bench-conflict: zones that place in different ways, a machine that ages, and the cases in which they
//! are compared.
//!
//! | module | job |
//! |---|---|
//! | [`placing`] | a zone for each kind of placement, and an owner's frames in it |
//! | [`ageing`] | the other owners of a machine, and what they do before our program starts |
//! | [`table`] | footprints and sizes of memory |
//! | [`contrived`] | two nodes that alias |
//! | [`heap`] | a heap of three caches, accessed unevenly |
//! | [`costs`] | what shuffling and colouring cost in time |
//! | [`trace`] | single accesses, to check the formula |

pub mod ageing;
pub mod contrived;
pub mod costs;
pub mod heap;
pub mod placing;
pub mod table;
#[cfg(test)]
mod tests;
pub mod trace;

use anyhow::Result;
use clap::Parser;
use isotherm_placement::direct_mapped::DirectMapped;
use isotherm_units::Bytes;

/// Frames of the modelled cache: 1 GiB.
pub const CACHE_FRAMES: u64 = 1 << 18;

/// The cache itself.
pub fn cache() -> Result<DirectMapped> {
    Ok(DirectMapped::new(Bytes::of_pages(CACHE_FRAMES))?)
}

/// Options of the command line. The bandwidths are the published ones of Xeon Phi: MCDRAM in front of DDR4.
#[derive(Clone, Copy, Debug, Parser)]
pub struct Options {
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Operations that age a machine
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub operations: u64,
    /// Bandwidth of near memory, the cache
    #[arg(long, value_name = "GB/S", default_value_t = 400.0, value_parser = gbps)]
    pub near_gbps: f64,
    /// Bandwidth of the memory behind it
    #[arg(long, value_name = "GB/S", default_value_t = 90.0, value_parser = gbps)]
    pub far_gbps: f64,
}

fn gbps(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|gbps| *gbps > 0.0).ok_or_else(|| "give a number above 0".to_owned())
}

/// A rate as percent, right-aligned.
pub fn percent(rate: f64) -> String {
    format!("{:.1}%", rate * 100.0)
}
