//! The thread of a pool that drains per-CPU lists periodically: once per interval, frames from lists that are too large
//! or idle go back to the zone.
//!
//! The schedule and the runs are in [`isotherm_frames::housekeep`]; this module starts and ends the thread. The thread
//! holds the pool's memory. So its owner cannot be that memory; it is a separate handle, and dropping it ends the
//! thread and waits for it. The thread blocks all signals of the program ([`AllBlocked`]).

use crate::error::Error;
use crate::memory::ForkDetector;
use crate::signals::AllBlocked;
use isotherm_frames::housekeep::{End, Slot, Spread};
use isotherm_frames::{Housekeeper, HousekeeperConfig, Interval, Pace, PcpLists};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::{fmt, mem, slice};

/// Settings of a pool's drain thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Housekeeping {
    /// Time from one run over a CPU's lists to the next; at least [`Housekeeping::MIN_INTERVAL`].
    pub interval: Interval,
    /// After how many runs unused lists are emptied, and how many runs in a row defer the rest because the zone lock is taken.
    pub pace: Pace,
}

impl Housekeeping {
    /// The shortest interval: 100 µs. A run itself may take a few microseconds; with such an interval the thread would
    /// never sleep.
    pub const MIN_INTERVAL: Interval = Interval::from_ns(100_000).unwrap();

    pub(crate) fn check(self) -> Result<(), Error> {
        let (interval, least) = (self.interval, Housekeeping::MIN_INTERVAL);
        if interval < least { Err(Error::Interval { interval, least }) } else { Ok(()) }
    }
}

impl Default for Housekeeping {
    /// Once per second, as in the kernel. Lists are idle after 3 runs, and at most 8 runs in a row are deferred.
    fn default() -> Housekeeping {
        Housekeeping { interval: Interval::SECOND, pace: Pace::default() }
    }
}

/// A drain thread of a pool. Dropping it ends the thread and waits for it.
///
/// After a fork the child has no such thread. Dropping its copy does nothing, and its copy of the pool stays mapped
/// until the child ends.
pub struct HousekeepingThread {
    end: End,
    thread: Option<JoinHandle<()>>,
    mark: ForkDetector,
}

impl fmt::Debug for HousekeepingThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A child has no thread, and does not touch the bell, as in `drop`.
        let is_over = !self.mark.is_here() || self.end.has_come();
        f.debug_struct("HousekeepingThread").field("is_over", &is_over).finish_non_exhaustive()
    }
}

impl HousekeepingThread {
    /// For the lists of all CPUs, which live as long as the thread. The caller has checked the settings.
    pub(crate) fn start<O>(owner: Arc<O>, settings: Housekeeping) -> Result<HousekeepingThread, Error>
    where
        O: AsRef<PcpLists<'static>> + Send + Sync + 'static,
    {
        let mark =
            ForkDetector::new().map_err(|e| Error::system("mark a page to be wiped in children (Linux 4.14)", e))?;
        let end = End::new();
        let blocked = AllBlocked::new().map_err(|e| Error::system("block signals while a thread is created", e))?;
        let thread = Builder::new().name("isotherm-pool".into()).spawn({
            let end = end.clone();
            move || drain_periodically((*owner).as_ref(), settings, &end)
        });
        drop(blocked);
        let thread = thread.map_err(|e| Error::system("start the drain thread of a pool", e))?;
        Ok(HousekeepingThread { end, thread: Some(thread), mark })
    }
}

/// Drains until the end comes. All CPUs that have lists count as online. The lists of a CPU that is not are empty, so
/// it is never due.
fn drain_periodically(pcp: &PcpLists<'static>, settings: Housekeeping, end: &End) {
    let mut slots: Vec<Slot> = (0..pcp.cpus()).map(|_| Slot::default()).collect();
    // There is one zone, so all CPUs share its lock, whatever their nodes.
    let config = HousekeeperConfig { pace: settings.pace, ..HousekeeperConfig::new(settings.interval) };
    let keeper = Housekeeper::new(slice::from_ref(pcp), &mut slots, Spread, &config);
    for cpu in 0..pcp.cpus() {
        keeper.online(cpu);
    }
    keeper.run(end);
}

impl Drop for HousekeepingThread {
    fn drop(&mut self) {
        if !self.mark.is_here() {
            // The thread is the parent's. It may have held the bell's lock at the fork, so do not ring it. Do not touch
            // what the C library knows of the thread either.
            mem::forget(self.thread.take());
            return;
        }
        self.end.come();
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, it has reported that on stderr. The lists are intact all the same.
            let _ = thread.join();
        }
    }
}
