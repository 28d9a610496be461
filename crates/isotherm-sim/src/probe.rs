//! Questions about single pages, as DAMON asks them: a bit is cleared when a sample begins and looked at when it ends.
//!
//! Nothing is kept here: whoever samples remembers which page it was and when it was prepared, as DAMON's regions do. So two
//! askers of one page do not take each other's bits away, which on a real host they would.

use crate::clock::ModelClock;
use crate::costs::Work;
use crate::host::Host;
use crate::physical::Physical;
use isotherm_heat::Clock;
use isotherm_heat::Ns;
use isotherm_units::PageNo;
use std::sync::Arc;

/// Asks about single pages and charges what the kernel's DAMON would pay.
#[derive(Clone, Debug)]
pub struct PageProbe {
    host: Arc<Host>,
    clock: ModelClock,
}

impl PageProbe {
    /// A probe into `host` whose work is charged to `clock`.
    pub fn new(host: Arc<Host>, clock: ModelClock) -> PageProbe {
        PageProbe { host, clock }
    }

    /// Clears the bit of one page, whichever (an address where nothing is costs the same). Returns when, for [`PageProbe::check`].
    pub fn prepare(&self) -> Ns {
        self.clock.work(Work::PreparePage, 1);
        self.clock.now()
    }

    /// Whether the page was accessed since it was prepared. Pages that are not there are not.
    pub fn check(&self, pid: u32, page: PageNo, prepared_at: Ns) -> bool {
        self.clock.work(Work::CheckPage, 1);
        self.host.accessed(pid, page, prepared_at, self.clock.now())
    }

    /// The same for the page in a frame of physical memory. Frames that no process uses are not accessed.
    pub fn check_frame(&self, physical: &Physical, frame: u64, prepared_at: Ns) -> bool {
        self.clock.work(Work::CheckPage, 1);
        let now = self.clock.now();
        physical.page_of(frame).is_some_and(|(pid, page)| self.host.accessed(pid, page, prepared_at, now))
    }
}
