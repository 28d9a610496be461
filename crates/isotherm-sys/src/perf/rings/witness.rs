//! Who listens while a thread's events are opened, one processor after the other: an event that never happens, of that
//! thread alone, which tells on whatever processor it starts another.
//!
//! It is one event on all processors, which costs the same on every machine; the kernel then wants it to have a ring of
//! its own, the smallest there is. The other way would be one on each processor that writes to that processor's ring:
//! no ring, but twice as many events to open where one is sampled, and what it tells could be lost among samples.

use crate::perf::attr::{self, Attr, Of};
use crate::perf::error;
use crate::perf::mapping::{Mapping, page_size};
use crate::perf::record::Raw;
use crate::perf::sampling;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// It listens until dropped. Fields are dropped in order: first the memory, then whose it is.
#[derive(Debug)]
pub(super) struct Witness {
    ring: Mapping,
    _event: OwnedFd,
}

impl Witness {
    /// Listens to a thread.
    pub(super) fn of(tid: u32) -> io::Result<Witness> {
        Witness::open(Of::Thread(tid))
    }

    /// Listens to the thread that asks: takes as much room as any other.
    pub(super) fn own() -> io::Result<Witness> {
        Witness::open(Of::Own)
    }

    fn open(of: Of<'_>) -> io::Result<Witness> {
        let dummy = sampling::dummy();
        let attr = Attr { flags: dummy.flags & !attr::DISABLED | attr::TASK, ..dummy };
        let event = error::with_room(|| attr::open(attr, of, None, None))?;
        Ok(Witness { ring: Mapping::new(event.as_fd(), page_size())?, _event: event })
    }

    /// What it has heard.
    pub(super) fn tell(mut self, each: impl FnMut(Raw<'_>)) {
        self.ring.drain(&mut Vec::new(), each);
    }
}
