//! `buddy_system_allocator`: a set of free blocks (a `BTreeSet`) for each order, behind its own spin lock.
//!
//! A freed frame is joined with its buddy as far up as there are free buddies. In a pool in which nothing else is in
//! use, that is the whole pool, which the next allocation splits again: 18 steps each way, the worst case for the shape
//! `pair`. So there are two rows. *In use*: one frame of the pool is always in use. A pair then takes and frees its
//! buddy without any step: the best case. *Whole*: nothing is in use.

use super::{Frames, POOL, Peer};
use buddy_system_allocator::LockedFrameAllocator;

/// Blocks up to the whole pool, the default of the crate.
type Buddies = LockedFrameAllocator<33>;

fn whole() -> Buddies {
    let buddies = Buddies::new();
    buddies.lock().insert(0..POOL);
    buddies
}

/// The row with one frame in use.
pub struct InUse(Buddies);

impl Peer for InUse {
    const NAME: &'static str = "buddy_system, in use";
    const MANY: bool = true;
    type Handle<'a> = Buddy<'a>;

    fn new() -> InUse {
        let buddies = whole();
        buddies.lock().alloc(1).expect("a free frame");
        InUse(buddies)
    }

    fn handle(&self) -> Buddy<'_> {
        Buddy(&self.0)
    }
}

/// The row with nothing in use.
pub struct Whole(Buddies);

impl Peer for Whole {
    const NAME: &'static str = "buddy_system, whole";
    const MANY: bool = true;
    type Handle<'a> = Buddy<'a>;

    fn new() -> Whole {
        Whole(whole())
    }

    fn handle(&self) -> Buddy<'_> {
        Buddy(&self.0)
    }
}

/// A thread's handle.
pub struct Buddy<'a>(&'a Buddies);

impl Frames for Buddy<'_> {
    #[inline]
    fn get(&mut self, order: u32) -> usize {
        self.0.lock().alloc(1 << order).expect("a free block")
    }

    #[inline]
    unsafe fn put(&mut self, block: usize, order: u32) {
        self.0.lock().dealloc(block, 1 << order);
    }

    fn get_many(&mut self, blocks: &mut [usize]) {
        let mut buddies = self.0.lock();
        blocks.iter_mut().for_each(|block| *block = buddies.alloc(1).expect("a free frame"));
    }

    unsafe fn put_many(&mut self, blocks: &[usize]) {
        let mut buddies = self.0.lock();
        blocks.iter().for_each(|&block| buddies.dealloc(block, 1));
    }
}
