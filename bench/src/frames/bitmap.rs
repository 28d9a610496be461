//! `bitmap-allocator` (rCore): a tree of 16-bit bitmaps, behind a lock since it has none itself.
//!
//! It has no orders: a block of 512 frames is a search for that many consecutive free bits, bit by bit.

use super::{Frames, POOL, Peer};
use bitmap_allocator::{BitAlloc, BitAlloc1M};
use std::sync::{Mutex, MutexGuard};

/// The row.
pub struct Bitmap(Mutex<Box<BitAlloc1M>>);

impl Bitmap {
    fn lock(&self) -> MutexGuard<'_, Box<BitAlloc1M>> {
        self.0.lock().expect("no holder panics")
    }
}

impl Peer for Bitmap {
    const NAME: &'static str = "Mutex<bitmap-allocator>";
    const MANY: bool = true;
    type Handle<'a> = &'a Bitmap;

    fn new() -> Bitmap {
        let mut bits = Box::<BitAlloc1M>::default();
        bits.insert(0..POOL);
        Bitmap(Mutex::new(bits))
    }

    fn handle(&self) -> &Bitmap {
        self
    }
}

impl Frames for &Bitmap {
    #[inline]
    fn get(&mut self, order: u32) -> usize {
        let mut bits = self.lock();
        let block = match order {
            0 => bits.alloc(),
            _ => bits.alloc_contiguous(None, 1 << order, order as usize),
        };
        block.expect("a free block")
    }

    #[inline]
    unsafe fn put(&mut self, block: usize, order: u32) {
        let mut bits = self.lock();
        let was_taken = match order {
            0 => bits.dealloc(block),
            _ => bits.dealloc_contiguous(block, 1 << order),
        };
        debug_assert!(was_taken, "block {block} of order {order} was free");
    }

    fn get_many(&mut self, blocks: &mut [usize]) {
        let mut bits = self.lock();
        blocks.iter_mut().for_each(|block| *block = bits.alloc().expect("a free frame"));
    }

    unsafe fn put_many(&mut self, blocks: &[usize]) {
        let mut bits = self.lock();
        for &block in blocks {
            bits.dealloc(block);
        }
    }
}
