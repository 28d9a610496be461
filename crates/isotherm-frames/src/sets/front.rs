//! What all tiers are to their callers.

use crate::{AllocError, FrameNo, FreeError, MigrateType, Order};

/// What stands in front of a zone and hands out its frames: an owned set by `&mut self`, shared ones by `&mut &self`.
pub trait Front {
    /// Hands out a block: its first frame.
    fn alloc(&mut self, order: Order, migrate: MigrateType) -> Result<FrameNo, AllocError>;

    /// Takes a block back. On an error nothing has changed.
    fn free(&mut self, frame: FrameNo, order: Order) -> Result<(), FreeError>;

    /// The same by a caller who alone can free this block: see [`Sets::free_unique`](super::Sets::free_unique).
    fn free_unique(&mut self, frame: FrameNo, order: Order) -> Result<(), FreeError> {
        self.free(frame, order)
    }

    /// Gives everything that waits back to the zone; how many frames.
    fn drain(&mut self) -> u64;
}
