//! The machine's clock.

use isotherm_heat::{Clock, Ns};
use isotherm_sys::clock;
use std::time::Duration;

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealClock;

impl Clock for RealClock {
    fn now(&self) -> Ns {
        clock::monotonic_ns()
    }

    fn cpu(&self) -> Ns {
        clock::thread_cpu_ns()
    }

    fn sleep_until(&self, at: Ns) {
        let wait = at.saturating_sub(clock::monotonic_ns());
        if wait > 0 {
            std::thread::sleep(Duration::from_nanos(wait));
        }
    }
}
