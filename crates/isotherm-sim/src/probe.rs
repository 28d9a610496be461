//! Access checks of single pages, as DAMON does them: a bit is cleared when a sample begins and read when it ends.
//!
//! Nothing is stored here. The caller remembers the page and when it was prepared, as DAMON's regions do. So two
//! callers that check the same page do not clear each other's bits, which would happen on a real host.

use crate::clock::ModelClock;
use crate::costs::Work;
use crate::host::Host;
use crate::physical::Physical;
use isotherm_heat::Clock;
use isotherm_heat::Ns;
use isotherm_units::PageNo;
use std::sync::Arc;

/// Checks single pages and charges what the kernel's DAMON would pay.
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

    /// Clears the bit of one page. The page does not matter: an unmapped address costs the same. Returns the time, for
    /// [`PageProbe::check`].
    pub fn prepare(&self) -> Ns {
        self.clock.work(Work::PreparePage, 1);
        self.clock.now()
    }

    /// Whether the page was accessed since it was prepared. False for pages that do not exist.
    pub fn check(&self, pid: u32, page: PageNo, prepared_at: Ns) -> bool {
        self.clock.work(Work::CheckPage, 1);
        self.host.accessed(pid, page, prepared_at, self.clock.now())
    }

    /// The same for the page in a physical frame. False for frames that no process uses.
    pub fn check_frame(&self, physical: &Physical, frame: u64, prepared_at: Ns) -> bool {
        self.clock.work(Work::CheckPage, 1);
        let now = self.clock.now();
        physical.page_of(frame).is_some_and(|(pid, page)| self.host.accessed(pid, page, prepared_at, now))
    }
}
