//! Time as the monitor sees it: the machine's, or that of a replay, which passes as fast as it is computed.

use isotherm_heat::Ns;
use isotherm_sys::clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A clock that can be waited on.
pub trait Clock: std::fmt::Debug {
    /// Nanoseconds since some fixed moment.
    fn now(&self) -> Ns;
    /// CPU time spent on watching so far.
    fn cpu(&self) -> Ns;
    /// Returns at `at` or soon after; at once if that has passed.
    fn sleep_until(&self, at: Ns);
}

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

impl Clock for Box<dyn Clock> {
    fn now(&self) -> Ns {
        (**self).now()
    }

    fn cpu(&self) -> Ns {
        (**self).cpu()
    }

    fn sleep_until(&self, at: Ns) {
        (**self).sleep_until(at);
    }
}

/// A clock that jumps to whatever is waited for. Clones share the time.
#[derive(Clone, Debug, Default)]
pub struct VirtualClock(Arc<AtomicU64>);

impl Clock for VirtualClock {
    fn now(&self) -> Ns {
        self.0.load(Ordering::Relaxed)
    }

    fn cpu(&self) -> Ns {
        0
    }

    fn sleep_until(&self, at: Ns) {
        self.0.fetch_max(at, Ordering::Relaxed);
    }
}
