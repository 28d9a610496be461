//! Measures the gain: reads work and TLB misses from a thread of its own.

use super::acting::POLL_INTERVAL;
use crate::gain::Probe;
use crate::output;
use crate::work::runner::Runner;
use isotherm_schemes::state::{Shared, lock};
use isotherm_sys::clock;
use std::sync::mpsc::{Receiver, RecvTimeoutError};

/// Between two readings of work and TLB misses.
const READING_NS: u64 = 10_000_000_000;

/// An order to the measuring thread: what to measure from now on.
pub struct Measure {
    pub pids: Vec<u32>,
    /// There is a shell command that prints the amount of work done so far.
    pub has_work: bool,
}

/// Reads work and TLB misses once every [`READING_NS`]. This takes a separate thread, because the user's command may be slow.
pub fn measure((orders, mut runner): (Receiver<Measure>, Option<Runner>), shared: &Shared, is_over: impl Fn() -> bool) {
    let mut measured: Option<(Measure, Probe)> = None;
    let mut next = 0;
    while !is_over() {
        match orders.recv_timeout(POLL_INTERVAL) {
            Ok(order) => {
                // The settings may have been read again.
                if let Some(Err(error)) = runner.as_mut().map(Runner::reload) {
                    output::warn(format_args!("{error:#}"));
                }
                lock(shared).forget_readings();
                let probe = Probe::start(order.pids.iter().copied());
                (measured, next) = (Some((order, probe)), 0);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let Some((order, probe)) = measured.as_mut().filter(|_| clock::monotonic_ns() >= next) else { continue };
        next = clock::monotonic_ns() + READING_NS;
        match probe.reading(runner.as_mut().filter(|_| order.has_work), &is_over) {
            // This reading may lack the work, so it must not become the last one.
            Ok(_) if is_over() => return,
            Ok(reading) => {
                let mut state = lock(shared);
                state.note_misses(probe.misses_note());
                state.read(reading);
            }
            Err(error) => {
                // A failing work command is no reason to stop. It is reported once, and not run again.
                output::warn(format_args!("CPU per unit of work is no longer measured: {error:#}"));
                order.has_work = false;
            }
        }
    }
}
