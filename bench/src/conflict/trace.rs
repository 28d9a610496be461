//! Single accesses. They check the formula, and they cover dependent accesses, for which the formula does not hold.

use anyhow::{Context, Result};
use isotherm_frames::FrameNo;
use isotherm_placement::direct_mapped::{DirectMapped, DirectMappedCache};
use isotherm_rng::Rng;

/// Mean number of counted accesses to each frame. Half as many come first, to fill the cache.
const ACCESSES: usize = 16;

/// The share of random accesses that miss. All frames are equally likely, whatever was accessed before.
pub fn random(cache: DirectMapped, frames: &[FrameNo], seed: u64) -> Result<f64> {
    let mut cache = DirectMappedCache::new(cache).context("a cache with contents")?;
    let mut rng = Rng::new(seed);
    let mut misses = 0;
    let (warm, counted) = (frames.len() * ACCESSES / 2, frames.len() * ACCESSES);
    for access in 0..warm + counted {
        let frame = frames[usize::try_from(rng.below(frames.len() as u64))?];
        let hit = cache.access(frame);
        misses += usize::from(access >= warm && !hit);
    }
    Ok(misses as f64 / counted.max(1) as f64)
}

/// The share of accesses that miss while two programs sweep over their frames repeatedly, at the same speed. The sweeps
/// that fill the cache are not counted.
pub fn sweeps(cache: DirectMapped, first: &[FrameNo], second: &[FrameNo]) -> Result<f64> {
    let mut cache = DirectMappedCache::new(cache).context("a cache with contents")?;
    let mut misses = 0;
    let sweeps = 3;
    for sweep in 0..=sweeps {
        for (a, b) in first.iter().zip(second) {
            for frame in [a, b] {
                let hit = cache.access(*frame);
                misses += usize::from(sweep > 0 && !hit);
            }
        }
    }
    Ok(misses as f64 / (2 * sweeps * first.len()).max(1) as f64)
}
