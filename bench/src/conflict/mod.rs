//! What bench-conflict is made of: zones that place in different ways, a machine that ages, and the cases they are
//! compared in.
//!
//! | module | job |
//! |---|---|
//! | [`placing`] | a zone for each way of placing, and an owner's frames in it |
//! | [`ageing`] | the other owners of a machine, and what they do before ours comes |
//! | [`table`] | footprints against sizes of memory |
//! | [`contrived`] | two nodes that alias |
//! | [`heap`] | a heap of three caches, accessed unevenly |
//! | [`costs`] | what shuffling and colouring cost in time |
//! | [`trace`] | accesses one by one, which the formula is checked against |

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

/// What can be told on the command line.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// `--seed`: of everything random.
    pub seed: u64,
    /// `--operations`: how many make an aged machine.
    pub operations: u64,
    /// `--near-gbps`: bandwidth of near memory, the cache.
    pub near_gbps: f64,
    /// `--far-gbps`: bandwidth of the memory behind it.
    pub far_gbps: f64,
}

impl Options {
    /// From the command line; what is not told there is as published of Xeon Phi (MCDRAM before DDR4), a million
    /// operations, seed 1.
    pub fn from_args() -> Result<Options> {
        let options = Options {
            seed: told("--seed", 1)?,
            operations: told("--operations", 1_000_000)?,
            near_gbps: told("--near-gbps", 400.0)?,
            far_gbps: told("--far-gbps", 90.0)?,
        };
        let bandwidths = [options.near_gbps, options.far_gbps];
        ensure!(bandwidths.iter().all(|gbps| *gbps > 0.0), "bandwidths of {bandwidths:?} GB/s: give some above 0");
        Ok(options)
    }
}

/// What follows `name` on the command line.
fn told<T: FromStr>(name: &str, otherwise: T) -> Result<T>
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
