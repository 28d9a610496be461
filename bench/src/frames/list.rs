//! A free list behind a lock: a stack of frame numbers, the simplest possible allocator of single frames.

use super::{Frames, POOL, Peer};
use std::sync::{Mutex, MutexGuard};

/// The row.
pub struct List(Mutex<Vec<u32>>);

impl List {
    fn lock(&self) -> MutexGuard<'_, Vec<u32>> {
        self.0.lock().expect("no holder panics")
    }
}

fn number(block: usize) -> u32 {
    u32::try_from(block).expect("a number of the pool's")
}

impl Peer for List {
    const NAME: &'static str = "Mutex<Vec<u32>>";
    const ORDERS: bool = false;
    const MANY: bool = true;
    type Handle<'a> = &'a List;

    fn new() -> List {
        // The lowest number is on top.
        List(Mutex::new((0..number(POOL)).rev().collect()))
    }

    fn handle(&self) -> &List {
        self
    }
}

impl Frames for &List {
    #[inline]
    fn get(&mut self, _: u32) -> usize {
        self.lock().pop().expect("a free frame") as usize
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "it was widened by get; a check would be timed")]
    unsafe fn put(&mut self, block: usize, _: u32) {
        self.lock().push(block as u32);
    }

    fn get_many(&mut self, blocks: &mut [usize]) {
        let mut list = self.lock();
        let left = list.len().checked_sub(blocks.len()).expect("free frames");
        blocks.iter_mut().zip(list.drain(left..)).for_each(|(block, frame)| *block = frame as usize);
    }

    #[expect(clippy::cast_possible_truncation, reason = "they were widened by get; a check would be timed")]
    unsafe fn put_many(&mut self, blocks: &[usize]) {
        self.lock().extend(blocks.iter().map(|&block| block as u32));
    }
}
