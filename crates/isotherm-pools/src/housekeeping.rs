//! A thread that keeps house for a pool: what its per-CPU sets keep too much, and what idle CPUs left in theirs, goes back to the zone
//! once an interval.
//!
//! The schedule and the turns are [`isotherm_frames::housekeep`]'s; here is the thread, and when it ends. It holds what it works on, so
//! its owner is not the pool's memory but a handle beside it: dropping that ends the thread and waits for it. The program's signals are
//! not for it ([`AllBlocked`]).

use crate::error::Error;
use crate::memory::ForkMark;
use crate::signals::AllBlocked;
use isotherm_frames::housekeep::{End, Slot, Spread};
use isotherm_frames::{Housekeeper, HousekeeperConfig, Interval, Pace, Sets};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::{fmt, mem, slice};

/// How the thread of a pool works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Housekeeping {
    /// From one turn over a CPU's set to the next; at least [`Housekeeping::MIN_INTERVAL`].
    pub interval: Interval,
    /// After how many turns an unused set is emptied, and how many in a row leave the rest for later because someone has the zone's
    /// lock.
    pub pace: Pace,
}

impl Housekeeping {
    /// The shortest interval: 100 µs. With a few microseconds, which a turn itself may take, the thread would never sleep.
    pub const MIN_INTERVAL: Interval = Interval::from_ns(100_000).unwrap();

    pub(crate) fn check(self) -> Result<(), Error> {
        let (interval, least) = (self.interval, Housekeeping::MIN_INTERVAL);
        if interval < least { Err(Error::Interval { interval, least }) } else { Ok(()) }
    }
}

impl Default for Housekeeping {
    /// Once a second, as in kernels; a set is idle after 3 turns, and 8 are deferred.
    fn default() -> Housekeeping {
        Housekeeping { interval: Interval::SECOND, pace: Pace::default() }
    }
}

/// A thread that keeps house for a pool. Dropping it ends the thread, and waits for that.
///
/// A child after a fork has no such thread: dropping its copy does nothing, and the copy of the pool stays mapped until the child ends.
pub struct HousekeepingThread {
    end: End,
    thread: Option<JoinHandle<()>>,
    mark: ForkMark,
}

impl fmt::Debug for HousekeepingThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // In a child there is no thread, and its bell is not touched, as in `drop`.
        let is_over = !self.mark.is_here() || self.end.has_come();
        f.debug_struct("HousekeepingThread").field("is_over", &is_over).finish_non_exhaustive()
    }
}

impl HousekeepingThread {
    /// For the sets of all CPUs, which live as long as the thread. The settings were checked.
    pub(crate) fn start<O>(owner: Arc<O>, settings: Housekeeping) -> Result<HousekeepingThread, Error>
    where
        O: AsRef<Sets<'static>> + Send + Sync + 'static,
    {
        let mark = ForkMark::new().map_err(|e| Error::system("mark a page to be wiped in children (Linux 4.14)", e))?;
        let end = End::new();
        let blocked = AllBlocked::new().map_err(|e| Error::system("block signals while a thread is made", e))?;
        let thread = Builder::new().name("isotherm-pool".into()).spawn({
            let end = end.clone();
            move || keep_house((*owner).as_ref(), settings, &end)
        });
        drop(blocked);
        let thread = thread.map_err(|e| Error::system("start the thread that keeps house for a pool", e))?;
        Ok(HousekeepingThread { end, thread: Some(thread), mark })
    }
}

/// Until the end comes. All CPUs that have sets count as online: one that is not has nothing in them, and is never due.
fn keep_house(sets: &Sets<'static>, settings: Housekeeping, end: &End) {
    let mut slots: Vec<Slot> = (0..sets.cpus()).map(|_| Slot::default()).collect();
    // One zone, so all CPUs meet at its lock, whatever their nodes.
    let config = HousekeeperConfig { pace: settings.pace, ..HousekeeperConfig::new(settings.interval) };
    let keeper = Housekeeper::new(slice::from_ref(sets), &mut slots, Spread, &config);
    for cpu in 0..sets.cpus() {
        keeper.online(cpu);
    }
    keeper.run(end);
}

impl Drop for HousekeepingThread {
    fn drop(&mut self) {
        if !self.mark.is_here() {
            // The thread is the parent's. It may have been at the bell when this process was forked, so that is not rung, and what
            // the C library knows of it is not touched either.
            mem::forget(self.thread.take());
            return;
        }
        self.end.come();
        if let Some(thread) = self.thread.take() {
            // If it has panicked it has said so on stderr; the sets are in order all the same.
            let _ = thread.join();
        }
    }
}
