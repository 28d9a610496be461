//! Reports thread starts while a thread's events are opened, one CPU after the other. It is an event that never
//! happens, bound to that thread, which reports every thread that it starts on any CPU.
//!
//! It is one event for all CPUs, which costs the same on every machine. The kernel then requires it to have a ring of
//! its own, the smallest possible. The alternative is one event per CPU that writes to that CPU's ring. It would need
//! no ring, but twice as many events to open where one is sampled, and its reports could be lost among samples.

use crate::perf::attr::{self, Attr, Of};
use crate::perf::error;
use crate::perf::mapping::{Mapping, page_size};
use crate::perf::record::Raw;
use crate::perf::sampling;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Records thread starts until dropped. Fields are dropped in order: first the memory, then its owner.
#[derive(Debug)]
pub(super) struct SidebandEvents {
    ring: Mapping,
    _event: OwnedFd,
}

impl SidebandEvents {
    /// Records the starts by a thread.
    pub(super) fn of(tid: u32) -> io::Result<SidebandEvents> {
        SidebandEvents::open(Of::Thread(tid))
    }

    /// The same for the calling thread. It takes as much memory as any other.
    pub(super) fn own() -> io::Result<SidebandEvents> {
        SidebandEvents::open(Of::Own)
    }

    fn open(of: Of<'_>) -> io::Result<SidebandEvents> {
        let dummy = sampling::dummy();
        let attr = Attr { flags: dummy.flags & !attr::DISABLED | attr::TASK, ..dummy };
        let event = error::with_room(|| attr::open(attr, of, None, None))?;
        Ok(SidebandEvents { ring: Mapping::new(event.as_fd(), page_size())?, _event: event })
    }

    /// Passes on what it has recorded.
    pub(super) fn drain(mut self, each: impl FnMut(Raw<'_>)) {
        self.ring.drain(&mut Vec::new(), each);
    }
}
