//! The parts of bench-frames: allocators behind one small trait, the shapes they are run in, threads to run them on,
//! and the results.
//!
//! Dispatch is static from a shape's loop down to the allocator, so that each loop is compiled for each allocator as in
//! a program that uses it: small functions are inlined, a C library is called. It is dynamic once per batch, which
//! takes milliseconds.
//!
//! This part contains unsafe code, because it calls allocators written in C.

pub mod alone;
pub mod bitmap;
pub mod buddy;
pub mod crew;
pub mod glibc;
pub mod jemalloc;
pub mod list;
pub mod mimalloc;
pub mod ours;
pub mod shape;
pub mod table;

use shape::{Batch, Sample, Shape};
use std::sync::Arc;

/// Bytes of a frame.
pub const FRAME_SIZE: usize = 4096;
/// Frames of a pool: 1 GiB of pages of 4 KiB.
pub const POOL: usize = 1 << 18;

/// A thread's handle of an allocator.
pub trait Frames {
    /// Takes a block of 2^`order` frames, aligned to its size: the number of its first frame, or its address.
    ///
    /// # Panics
    ///
    /// If there is none. A bench avoids that.
    fn get(&mut self, order: u32) -> usize;

    /// Frees a block.
    ///
    /// # Safety
    ///
    /// `block` was returned by `get` or `get_many` of the same allocator, with the same order (`get_many`: 0), and it
    /// is freed once.
    unsafe fn put(&mut self, block: usize, order: u32);

    /// Takes a frame for each place of `blocks`, in one call if the allocator has one.
    fn get_many(&mut self, blocks: &mut [usize]) {
        blocks.iter_mut().for_each(|block| *block = self.get(0));
    }

    /// Frees frames, in one call if the allocator has one.
    ///
    /// # Safety
    ///
    /// As with [`Frames::put`], for each of them.
    unsafe fn put_many(&mut self, blocks: &[usize]) {
        for &block in blocks {
            // SAFETY: the caller guarantees it for each of them.
            unsafe { self.put(block, 0) };
        }
    }
}

/// An allocator, from which each thread creates its handle.
pub trait Peer: Send + Sync + 'static {
    /// The name of its rows.
    const NAME: &'static str;
    /// Whether it can allocate blocks of more than one frame.
    const ORDERS: bool = true;
    /// Whether it can allocate many frames in one call.
    const MANY: bool = false;
    /// A thread's handle.
    type Handle<'a>: Frames;

    /// Creates one with [`POOL`] frames, all of them free. For allocators that use the process's memory, another
    /// instance of the same one.
    fn new() -> Self;

    /// A handle for the calling thread.
    fn handle(&self) -> Self::Handle<'_>;
}

/// A row of the tables.
pub trait Row: Send + Sync {
    /// Its name.
    fn name(&self) -> &'static str;
    /// Whether the allocator can be run in this shape.
    fn has(&self, shape: Shape) -> bool;
    /// Runs a batch on the calling thread.
    fn batch(&self, batch: &Batch, own: &mut shape::Own) -> Sample;
}

/// One allocator per shape, so that none inherits the order in which another left the frames.
struct Pools<P>(Vec<P>);

impl<P: Peer> Row for Pools<P> {
    fn name(&self) -> &'static str {
        P::NAME
    }

    fn has(&self, shape: Shape) -> bool {
        match shape {
            Shape::HugePair => P::ORDERS,
            Shape::BulkCall => P::MANY,
            _ => true,
        }
    }

    fn batch(&self, batch: &Batch, own: &mut shape::Own) -> Sample {
        shape::run(&mut self.0[batch.shape as usize].handle(), batch, own)
    }
}

/// The row of an allocator.
pub fn row<P: Peer>() -> Arc<dyn Row> {
    Arc::new(Pools::<P>(Shape::ALL.iter().map(|_| P::new()).collect()))
}
