//! One thread that keeps house for all CPUs.
//!
//! It sleeps until the first of them is due, or until it is time for the shepherd's look, which has a phase of its own: one more place in
//! the [`Spread`] of the CPUs. So with nothing to do it wakes once an interval, and no CPU is woken for its housekeeping but the one that this
//! thread runs on; sets of others are held while it works on them, which interrupts a CPU that runs this process, and no idle one.
//!
//! Its clock is [`now_ns`], one for the whole process: due times are kept in the housekeeper, where others find them, also the next thread.

use super::keeper::Housekeeper;
use super::schedule::{Schedule, Seat, Spread};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// What [`now_ns`] counts from.
static EPOCH: OnceLock<Instant> = OnceLock::new();

/// The time by which threads keep house: nanoseconds since this was first asked in this process, by a clock that nobody sets. Whoever
/// calls [`Housekeeper::tick`] or [`Housekeeper::shepherd`] beside a thread has to use it, since due times of two clocks have nothing to do
/// with each other.
///
/// A fork while another thread is in the first call leaves a child whose own calls wait for ever: whoever lets a child keep house calls this
/// once before anyone can fork, as pools do when they are built.
pub fn now_ns() -> u64 {
    u64::try_from(EPOCH.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// What a [`Housekeeper::run`] ends at. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct End(Arc<Bell>);

#[derive(Debug, Default)]
struct Bell {
    is_over: Mutex<bool>,
    rung: Condvar,
}

impl End {
    /// One that has not come.
    pub fn new() -> End {
        End::default()
    }

    /// It has come: whoever sleeps wakes up at once, whoever works finishes the CPU at hand.
    pub fn come(&self) {
        *self.0.is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.rung.notify_all();
    }

    /// Whether it has.
    pub fn has_come(&self) -> bool {
        *self.0.is_over.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, most: Duration) {
        let guard = self.0.is_over.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = self.0.rung.wait_timeout_while(guard, most, |is_over| !*is_over);
    }
}

/// A thread that keeps house. Dropping it ends the thread, and waits for that.
#[derive(Debug)]
pub struct HousekeeperThread<'scope> {
    end: End,
    thread: Option<ScopedJoinHandle<'scope, ()>>,
}

impl Drop for HousekeeperThread<'_> {
    fn drop(&mut self) {
        self.end.come();
        if let Some(thread) = self.thread.take() {
            // It has panicked: the scope tells.
            let _ = thread.join();
        }
    }
}

impl<S: Schedule> Housekeeper<'_, '_, S> {
    /// Keeps house for all CPUs until the end comes; for a thread that is made for it. CPUs may come and go meanwhile. How often it
    /// woke for that: once for each turn and once an interval, less those that fell together.
    ///
    /// One thread is enough. With two, each CPU still has one turn an interval, by whichever comes first; so too with callers of
    /// [`Housekeeper::tick`] beside it, by the same clock: [`now_ns`].
    ///
    /// Does not wake up for a time that someone else sets while it sleeps, which is until its next look at the most: whoever makes a turn
    /// by [`Housekeeper::tick`] also goes on with it at the time that this said.
    pub fn run(&self, end: &End) -> u64 {
        let mut wakes = 0;
        let mut look_ns = self.next_look_ns(now_ns());
        while !end.has_come() {
            if now_ns() >= look_ns {
                self.shepherd(now_ns());
                look_ns = self.next_look_ns(now_ns());
            }
            let wake_ns = self.tick_all(end).map_or(look_ns, |due| due.min(look_ns));
            if let Some(sleep_ns) = wake_ns.checked_sub(now_ns()).filter(|&ns| ns > 0) {
                end.wait(Duration::from_nanos(sleep_ns));
                wakes += 1;
            }
        }
        wakes
    }

    /// The same in a thread of `scope`, that ends when the result is dropped.
    pub fn start_in<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) -> HousekeeperThread<'scope> {
        let end = End::new();
        let thread = scope.spawn({
            let end = end.clone();
            move || {
                self.run(&end);
            }
        });
        HousekeeperThread { end, thread: Some(thread) }
    }

    /// Whoever is due; when to come again. Not from what is told of each CPU: one that another thread is at stays due until that is done.
    fn tick_all(&self, end: &End) -> Option<u64> {
        let next_due = |cpu| {
            let (due, now) = (self.due_ns(cpu)?, now_ns());
            if due > now || end.has_come() { Some(due) } else { self.tick(cpu, now).next_due_ns }
        };
        (0..self.cpus()).filter_map(next_due).min()
    }

    /// At the place after the last CPU's.
    fn next_look_ns(&self, now_ns: u64) -> u64 {
        Spread.next_due(Seat::of_one_node(self.cpus(), 1), self.interval(), now_ns)
    }
}
