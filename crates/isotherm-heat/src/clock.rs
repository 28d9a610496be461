//! Time for the code that drives the engine: the machine's time, or that of a replay, which passes as fast as it is
//! computed.
//!
//! The engine itself reads no clock: times are arguments to it. The trait is here because the monitor and every source
//! that plays a history have to share one clock. The machine's own clock is in `isotherm-sources`.

use crate::Ns;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A clock that can be waited on.
pub trait Clock: std::fmt::Debug {
    /// Nanoseconds since some fixed moment.
    fn now(&self) -> Ns;
    /// CPU time spent on monitoring so far.
    fn cpu(&self) -> Ns;
    /// Returns at `at` or soon after. Returns at once if that has passed.
    fn sleep_until(&self, at: Ns);
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

/// A clock without the CPU time of what is done on the monitor's thread beside monitoring, such as comparing what was found
/// with the truth. Clones share that time.
#[derive(Clone, Debug, Default)]
pub struct Beside<C> {
    clock: C,
    beside_ns: Arc<AtomicU64>,
}

impl<C: Clock> Beside<C> {
    /// Runs `f` without counting it as the monitor's work.
    pub fn beside<T>(&self, f: impl FnOnce() -> T) -> T {
        let began = self.clock.cpu();
        let result = f();
        self.beside_ns.fetch_add(self.clock.cpu().saturating_sub(began), Ordering::Relaxed);
        result
    }

    /// The CPU time that was not counted so far.
    pub fn beside_ns(&self) -> Ns {
        self.beside_ns.load(Ordering::Relaxed)
    }
}

impl<C: Clock> Clock for Beside<C> {
    fn now(&self) -> Ns {
        self.clock.now()
    }

    fn cpu(&self) -> Ns {
        self.clock.cpu().saturating_sub(self.beside_ns())
    }

    fn sleep_until(&self, at: Ns) {
        self.clock.sleep_until(at);
    }
}

/// A clock that jumps to the time that is waited for. Clones share the time.
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
