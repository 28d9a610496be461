//! Blocks that own their memory.

use crate::handle::Handle;
use isotherm_frames::{FrameNo, Order};
use isotherm_units::PAGE_SIZE;
use std::{fmt, slice};

/// How a block holds its pool.
enum Holder<'p> {
    Borrowed(&'p Handle),
    Owned(Handle),
}

impl Holder<'_> {
    fn pool(&self) -> &Handle {
        match self {
            Holder::Borrowed(pool) => pool,
            Holder::Owned(pool) => pool,
        }
    }
}

/// Size of a block in bytes.
#[expect(clippy::cast_possible_truncation, reason = "4 MiB at the most")]
const fn bytes_of(order: Order) -> usize {
    (PAGE_SIZE as usize) << order.get()
}

/// 2^order frames with memory: has one owner, and is freed when dropped. Aligned to its size.
///
/// Borrows its pool; [`Block::into_owned`] holds it instead. Can be sent to other threads and dropped there.
pub struct Block<'p> {
    holder: Holder<'p>,
    frame: FrameNo,
    order: Order,
    /// Its ownership was passed on; do not free it.
    is_released: bool,
}

impl fmt::Debug for Block<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block").field("frame", &self.frame).field("order", &self.order).finish_non_exhaustive()
    }
}

impl<'p> Block<'p> {
    /// For a block of `pool` that the caller owns. The pool has memory.
    pub(crate) fn new(pool: &'p Handle, frame: FrameNo, order: Order) -> Block<'p> {
        Block { holder: Holder::Borrowed(pool), frame, order, is_released: false }
    }

    /// Its first frame.
    pub fn frame(&self) -> FrameNo {
        self.frame
    }

    /// Its order.
    pub fn order(&self) -> Order {
        self.order
    }

    /// Its memory.
    pub fn as_slice(&self) -> &[u8] {
        let start = self.holder.pool().memory_of(self.frame);
        #[expect(unsafe_code, reason = "a block owns its memory")]
        // SAFETY: the frames of this block are backed from there on, and initialised by the kernel or an earlier owner.
        // Nothing else uses them until this block is freed, and it is borrowed for as long as the slice.
        unsafe {
            slice::from_raw_parts(start.as_ptr(), bytes_of(self.order))
        }
    }

    /// Its memory, writable.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        let start = self.holder.pool().memory_of(self.frame);
        #[expect(unsafe_code, reason = "a block owns its memory")]
        // SAFETY: as above, and the block is borrowed mutably.
        unsafe {
            slice::from_raw_parts_mut(start.as_ptr(), bytes_of(self.order))
        }
    }

    /// The same block, but holding the pool itself, for blocks that outlive the borrow. Costs one reference count.
    pub fn into_owned(self) -> Block<'static> {
        let holder = Holder::Owned(self.holder.pool().clone());
        let (frame, order) = self.into_raw();
        Block { holder, frame, order, is_released: false }
    }

    /// Its frame and order, for callers that store these elsewhere. The block is not freed.
    /// [`Pool::block`](crate::Pool::block) is the inverse.
    pub fn into_raw(mut self) -> (FrameNo, Order) {
        self.is_released = true;
        (self.frame, self.order)
    }
}

impl Drop for Block<'_> {
    fn drop(&mut self) {
        if !self.is_released {
            // Only refused in a child, where the parent owns the block.
            let _ = self.holder.pool().give_back_owned(self.frame, self.order);
        }
    }
}

/// Several blocks of one order that were allocated together and are freed together.
pub struct Blocks<'p> {
    pool: &'p Handle,
    frames: Vec<FrameNo>,
    order: Order,
}

impl fmt::Debug for Blocks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blocks").field("frames", &self.frames).field("order", &self.order).finish_non_exhaustive()
    }
}

impl<'p> Blocks<'p> {
    /// For blocks of `pool` that the caller owns. The pool has memory.
    pub(crate) fn new(pool: &'p Handle, frames: Vec<FrameNo>, order: Order) -> Blocks<'p> {
        Blocks { pool, frames, order }
    }

    /// Number of blocks.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// The order of each.
    pub fn order(&self) -> Order {
        self.order
    }

    /// Their first frames.
    pub fn frames(&self) -> &[FrameNo] {
        &self.frames
    }

    /// Takes the last block out.
    pub fn pop(&mut self) -> Option<Block<'p>> {
        self.frames.pop().map(|frame| Block::new(self.pool, frame, self.order))
    }
}

impl<'p> Iterator for Blocks<'p> {
    type Item = Block<'p>;

    /// Same as [`Blocks::pop`]. Blocks that are not taken are freed with the rest.
    fn next(&mut self) -> Option<Block<'p>> {
        self.pop()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.len(), Some(self.len()))
    }
}

impl ExactSizeIterator for Blocks<'_> {}

impl Drop for Blocks<'_> {
    fn drop(&mut self) {
        // Only refused in a child, where the parent owns the blocks.
        let _ = self.pool.give_back(&self.frames, self.order);
    }
}
