//! One thread that drains the lists of all CPUs.
//!
//! It sleeps until the first CPU is due or the shepherd is. The shepherd has its own phase: the place after the last
//! CPU in the [`Spread`]. With nothing to do, the thread wakes once per interval. The only CPU that is woken is the one
//! this thread runs on. While the thread works on the lists of another CPU it holds them, which interrupts that CPU if
//! it runs this process, but never an idle CPU.
//!
//! Its clock is [`now_ns`], which is the same for the whole process. Due times stay in the housekeeper, so that other
//! callers and later threads can use them.

use super::keeper::Housekeeper;
use super::schedule::{CpuPosition, Schedule, Spread};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// The zero of [`now_ns`].
static EPOCH: OnceLock<Instant> = OnceLock::new();

/// The clock of drain threads: monotonic, in nanoseconds since its first call in this process. A caller of
/// [`Housekeeper::tick`] or [`Housekeeper::shepherd`] must use it too if there is such a thread, because due times of
/// two clocks cannot be compared.
///
/// If a process forks while another thread is in the very first call, calls in the child wait forever. A program that
/// drains in a child therefore calls this once before any fork is possible, as pools do when they are built.
pub fn now_ns() -> u64 {
    u64::try_from(EPOCH.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Ends a [`Housekeeper::run`]. All clones are the same end.
#[derive(Clone, Debug, Default)]
pub struct End(Arc<EndSignal>);

#[derive(Debug, Default)]
struct EndSignal {
    is_over: Mutex<bool>,
    rung: Condvar,
}

impl End {
    /// An end that has not come yet.
    pub fn new() -> End {
        End::default()
    }

    /// Ends the run: a sleeping thread wakes at once, a working one finishes its current CPU.
    pub fn come(&self) {
        *self.0.is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.rung.notify_all();
    }

    /// Whether the end has come.
    pub fn has_come(&self) -> bool {
        *self.0.is_over.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, most: Duration) {
        let guard = self.0.is_over.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = self.0.rung.wait_timeout_while(guard, most, |is_over| !*is_over);
    }
}

/// A drain thread. Dropping it ends the thread and waits for it.
#[derive(Debug)]
pub struct HousekeeperThread<'scope> {
    end: End,
    thread: Option<ScopedJoinHandle<'scope, ()>>,
}

impl Drop for HousekeeperThread<'_> {
    fn drop(&mut self) {
        self.end.come();
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, the scope reports it.
            let _ = thread.join();
        }
    }
}

impl<S: Schedule> Housekeeper<'_, '_, S> {
    /// Drains the lists of all CPUs until the end comes. Meant for a dedicated thread. CPUs may come and go meanwhile.
    /// Returns how many times it woke: once for each run and once per interval, less those that coincided.
    ///
    /// One thread is enough. With two, each CPU still has one run per interval, done by the first to come. The same
    /// holds for callers of [`Housekeeper::tick`], if they use the same clock, [`now_ns`].
    ///
    /// While it sleeps, at most until the shepherd is due, the thread does not notice due times that others set. So a
    /// caller of [`Housekeeper::tick`] must also call again at the time that `tick` returned.
    pub fn run(&self, end: &End) -> u64 {
        let mut wakes = 0;
        let mut shepherd_ns = self.next_shepherd_ns(now_ns());
        while !end.has_come() {
            if now_ns() >= shepherd_ns {
                self.shepherd(now_ns());
                shepherd_ns = self.next_shepherd_ns(now_ns());
            }
            let wake_ns = self.tick_all(end).map_or(shepherd_ns, |due| due.min(shepherd_ns));
            if let Some(sleep_ns) = wake_ns.checked_sub(now_ns()).filter(|&ns| ns > 0) {
                end.wait(Duration::from_nanos(sleep_ns));
                wakes += 1;
            }
        }
        wakes
    }

    /// [`Housekeeper::run`] in a thread of `scope` that ends when the result is dropped.
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

    /// Ticks every CPU that is due; returns when to come again. Uses the result of each tick and not the published due
    /// time: a CPU that another thread works on stays due until that thread is done.
    fn tick_all(&self, end: &End) -> Option<u64> {
        let next_due = |cpu| {
            let (due, now) = (self.due_ns(cpu)?, now_ns());
            if due > now || end.has_come() { Some(due) } else { self.tick(cpu, now).next_due_ns }
        };
        (0..self.cpus()).filter_map(next_due).min()
    }

    /// When the shepherd is due next: at the place after the last CPU's.
    fn next_shepherd_ns(&self, now_ns: u64) -> u64 {
        Spread.next_due(CpuPosition::of_one_node(self.cpus(), 1), self.interval(), now_ns)
    }
}
