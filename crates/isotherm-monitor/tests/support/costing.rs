//! A virtual clock on which calls take CPU time.

use isotherm_heat::{Clock, Ns, VirtualClock};
use std::cell::Cell;
use std::rc::Rc;

/// CPU time is what calls took, the opening of the source included.
#[derive(Clone, Debug, Default)]
pub struct Costing {
    pub time: VirtualClock,
    pub cpu: Rc<Cell<Ns>>,
    /// What going to sleep and waking up takes.
    pub wake: Ns,
}

impl Costing {
    /// A call takes so long.
    pub fn spend(&self, ns: Ns) {
        self.cpu.set(self.cpu.get() + ns);
        self.time.sleep_until(self.time.now() + ns);
    }
}

impl Clock for Costing {
    fn now(&self) -> Ns {
        self.time.now()
    }

    fn cpu(&self) -> Ns {
        self.cpu.get()
    }

    fn sleep_until(&self, at: Ns) {
        self.time.sleep_until(at);
        self.spend(self.wake);
    }
}
