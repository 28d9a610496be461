//! No allocator: the loops of the bench alone, on a counter of each thread.
//!
//! Its times are the part of the others' times that belongs to the bench itself. Its two threads share nothing, so if
//! two take longer than one, the machine is the cause. A host that runs the CPUs of a guest in alternation is visible
//! here, because no lock is involved.

use super::{Frames, Peer};
use std::hint::black_box;

/// The row.
pub struct Alone;

/// The last number returned.
pub struct Counter(usize);

impl Peer for Alone {
    const NAME: &'static str = "(the loop alone)";
    type Handle<'a> = Counter;

    fn new() -> Alone {
        Alone
    }

    fn handle(&self) -> Counter {
        Counter(0)
    }
}

impl Frames for Counter {
    #[inline]
    fn get(&mut self, order: u32) -> usize {
        self.0 += 1 << order;
        self.0
    }

    #[inline]
    unsafe fn put(&mut self, block: usize, order: u32) {
        // Otherwise the compiler would remove all steps of the loop but the last.
        self.0 = black_box(block) - (1 << order);
    }
}
