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

use anyhow::{Context, Result, ensure};
use isotherm_placement::direct_mapped::DirectMapped;
use isotherm_units::Bytes;
use std::str::FromStr;

/// Frames of the modelled cache: 1 GiB.
pub const CACHE_FRAMES: u64 = 1 << 18;

/// The cache itself.
pub fn cache() -> Result<DirectMapped> {
    Ok(DirectMapped::new(Bytes::of_pages(CACHE_FRAMES))?)
}

/// Options of the command line.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// `--seed`: seed of everything random.
    pub seed: u64,
    /// `--operations`: number of operations that age a machine.
    pub operations: u64,
    /// `--near-gbps`: bandwidth of near memory, the cache.
    pub near_gbps: f64,
    /// `--far-gbps`: bandwidth of the memory behind it.
    pub far_gbps: f64,
}

impl Options {
    /// Reads the command line. Defaults: the published bandwidths of Xeon Phi (MCDRAM in front of DDR4), a million
    /// operations, seed 1.
    pub fn from_args() -> Result<Options> {
        let options = Options {
            seed: option("--seed", 1)?,
            operations: option("--operations", 1_000_000)?,
            near_gbps: option("--near-gbps", 400.0)?,
            far_gbps: option("--far-gbps", 90.0)?,
        };
        let bandwidths = [options.near_gbps, options.far_gbps];
        ensure!(bandwidths.iter().all(|gbps| *gbps > 0.0), "bandwidths of {bandwidths:?} GB/s: give some above 0");
        Ok(options)
    }
}

/// The value after `name` on the command line.
fn option<T: FromStr>(name: &str, otherwise: T) -> Result<T>
where
    T::Err: std::error::Error + Send + Sync + 'static,
{
    let mut args = std::env::args().skip_while(|arg| arg != name);
    if args.next().is_none() {
        return Ok(otherwise);
    }
    let value = args.next().with_context(|| format!("{name}: give a number after it"))?;
    value.parse().with_context(|| format!("{name} {value}: give a number"))
}

/// A rate as percent, right-aligned.
pub fn percent(rate: f64) -> String {
    format!("{:.1}%", rate * 100.0)
}
