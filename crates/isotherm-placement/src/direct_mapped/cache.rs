//! The cache itself, simulated access by access. Tests check the formula of [`super::Conflict`] against it, and it can
//! run a trace.

use super::geometry::DirectMapped;
use isotherm_units::FrameNo;

/// No frame has this number: the highest physical address has 52 bits.
const EMPTY: u64 = u64::MAX;

/// A direct-mapped cache with its contents. Takes eight bytes for each frame that it holds.
#[derive(Clone, Debug)]
pub struct DirectMappedCache {
    cache: DirectMapped,
    tags: Vec<u64>,
}

impl DirectMappedCache {
    /// An empty cache. Fails only if its tags do not fit into the address space of a 32-bit machine.
    pub fn new(cache: DirectMapped) -> Option<DirectMappedCache> {
        let frames = usize::try_from(cache.frames()).ok()?;
        Some(DirectMappedCache { cache, tags: vec![EMPTY; frames] })
    }

    /// Accesses a frame, which is in the cache from then on. Returns whether it was in the cache before.
    pub fn access(&mut self, frame: FrameNo) -> bool {
        // No colour is as large as the number of tags, which is a usize.
        let Ok(colour) = usize::try_from(self.cache.colour_of(frame)) else { return false };
        std::mem::replace(&mut self.tags[colour], frame.0) == frame.0
    }
}
