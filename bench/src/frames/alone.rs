//! No allocator: the loops of the bench alone, on a counter of the thread's own.
//!
//! Its times are what the others' contain of the bench itself. Two threads of it share nothing, so what two take longer than
//! one is the machine's doing: a host that runs the CPUs of a guest in turn shows here, where no lock can be meant.

use super::{Frames, Peer};
use std::hint::black_box;

/// The row.
pub struct Alone;

/// The last number handed out.
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
        // Or a loop of these is found to do nothing but its last.
        self.0 = black_box(block) - (1 << order);
    }
}
