//! `buddy_system_allocator`: a set of free blocks (a `BTreeSet`) for each order, behind a spin lock of its own.
//!
//! A frame put is joined with its buddy as far up as free buddies go. In a pool in which nothing else is taken that is the whole
//! pool, which the next get splits again: 18 steps each way, the worst that the shape `pair` can find. So there are two
//! rows. *In use*: one frame of the pool is out all the time, whose buddy is then the frame that a pair takes and puts
//! without any step: the best it can find. *Whole*: nothing is out.

use super::{Frames, POOL, Peer};
use buddy_system_allocator::LockedFrameAllocator;

/// Blocks up to the whole pool, as the crate has it unless told otherwise.
type Buddies = LockedFrameAllocator<33>;

fn whole() -> Buddies {
    let buddies = Buddies::new();
    buddies.lock().insert(0..POOL);
    buddies
}

/// The row with a frame out.
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

/// The row with nothing out.
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

/// The way in.
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
