//! The threads of `run` that act: the worker that serves hints, and what ends all of them.
//!
//! They wait for a flag that the thread that watches sets when it is done. If one of them panics, the others would wait for ever, or go on acting with what
//! was seen last. [`Ends::on_panic`] ends them. A thread that watches can also hang: a target that holds its mmap lock blocks all that read its
//! mappings. Nothing is acted on then ([`turn`]) until a window has ended again.

use super::Serving;
use crate::stop::Stop;
use isotherm_heat::Ns;
use isotherm_schemes::state::Shared;
use isotherm_sys::clock;
use isotherm_systemd::Pulse;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The worker's longest sleep: a new hint waits no longer than this.
pub const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// When the threads of the command end.
#[derive(Clone, Copy)]
pub struct Ends<'a> {
    /// Nothing is watched any more.
    pub over: &'a AtomicBool,
    pub stop: &'a Stop,
}

impl<'a> Ends<'a> {
    /// Whether nothing is to be done any more. What was asked to stop acts on nothing more, however long the last snapshot takes.
    pub fn is_near(self) -> bool {
        self.over.load(Ordering::Relaxed) || self.stop.is_set()
    }

    /// For a thread that acts, or that feeds those: if it panics, all threads of the command end, and so does the command.
    pub fn on_panic(self) -> OnPanic<'a> {
        OnPanic(self)
    }
}

/// Ends all of them if it is dropped by a panic.
pub struct OnPanic<'a>(Ends<'a>);

impl Drop for OnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.over.store(true, Ordering::Relaxed);
            self.0.stop.set();
        }
    }
}

/// Serves hints.
pub fn work(worker: &mut Serving, shared: &Shared, pulse: &Pulse, is_over: impl Fn() -> bool) {
    while !is_over() {
        let now = clock::monotonic_ns();
        if let Some(until) = turn(pulse, now, || worker.turn(shared, now)) {
            std::thread::sleep(Duration::from_nanos(until.saturating_sub(now)).min(POLL_INTERVAL));
        }
    }
}

/// Acts, unless windows have ceased to end. Returns when to come again; `None`: at once.
pub fn turn(pulse: &Pulse, now: Ns, act: impl FnOnce() -> Option<Ns>) -> Option<Ns> {
    if pulse.is_late(now) { Some(Ns::MAX) } else { act() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_acted_on_while_windows_do_not_end() {
        let pulse = Pulse::with_grace(10);
        pulse.next_due(100);
        let acts = |now| turn(&pulse, now, || None).is_none();
        assert_eq!((acts(110), acts(111)), (true, false));
        pulse.next_due(200);
        assert!(acts(111), "a window has ended");
    }

    #[test]
    fn a_panic_of_one_thread_ends_the_others_and_the_command() {
        let (over, stop, ended) = (AtomicBool::new(false), Stop::never(), AtomicBool::new(false));
        let began = clock::monotonic_ns();
        let waits = || {
            while !over.load(Ordering::Relaxed) {
                if clock::monotonic_ns() - began > 20_000_000_000 {
                    return;
                }
                std::thread::sleep(POLL_INTERVAL);
            }
            ended.store(true, Ordering::Relaxed);
        };
        let panics = || {
            std::thread::scope(|scope| {
                let _on_panic = Ends { over: &over, stop: &stop }.on_panic();
                scope.spawn(waits);
                panic!("as if by a bug");
            });
        };
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
        assert!(ended.load(Ordering::Relaxed) && stop.is_set());
    }
}
