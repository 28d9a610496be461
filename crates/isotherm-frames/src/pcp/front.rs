//! The interface that all tiers share.

use crate::{AllocError, FrameNo, FreeError, MigrateType, Order};

/// An allocator in front of a zone. Owned lists implement it for `&mut self`, shared ones for `&mut &self`.
pub trait Front {
    /// Allocates a block; returns its first frame.
    fn alloc(&mut self, order: Order, migrate: MigrateType) -> Result<FrameNo, AllocError>;

    /// Frees a block. On an error nothing has changed.
    fn free(&mut self, frame: FrameNo, order: Order) -> Result<(), FreeError>;

    /// As `free`, for a caller who alone can free this block: see [`PcpLists::free_unique`](super::PcpLists::free_unique).
    fn free_unique(&mut self, frame: FrameNo, order: Order) -> Result<(), FreeError> {
        self.free(frame, order)
    }

    /// Returns everything that is cached to the zone; returns how many frames.
    fn drain(&mut self) -> u64;
}
