//! Guards that make actions wait: the state of the host here, memory cgroups in [`cgroups`].
//!
//! Each action says which guards apply to it ([`crate::action::Guard`]). Whether a process was named, and for how long
//! it may be stalled, is checked by the worker.

pub(crate) mod cgroups;

use crate::action::Guard;
use crate::budgets::{Budgets, Wait};
use crate::machine::HostState;
use isotherm_heat::Ns;

/// How often a paused process, or a host short of memory, is checked again.
pub(crate) const RECHECK_INTERVAL: Ns = 500_000_000;

/// What the host had to spare at the last check.
#[derive(Debug, Default)]
pub(crate) struct HostGuard {
    state: HostState,
    until: Ns,
}

impl HostGuard {
    /// Whether it is time to check again.
    pub fn is_due(&self, now: Ns) -> bool {
        now >= self.until
    }

    /// Records the state of the host.
    pub fn note(&mut self, state: HostState, now: Ns) {
        (self.state, self.until) = (state, now + RECHECK_INTERVAL);
    }

    /// An action with these guards has succeeded. Between two checks there may be hundreds, each of which takes a free block.
    pub fn acted(&mut self, guards: &[Guard]) {
        if guards.contains(&Guard::FreeBlocks) {
            self.state.free_blocks = self.state.free_blocks.map(|blocks| blocks.saturating_sub(1));
        }
    }

    /// The first of these guards that forbids acting now: what it waits for, and until when.
    pub fn wait(&self, guards: &[Guard], budgets: &Budgets) -> Option<(Ns, Wait)> {
        let why = guards.iter().find_map(|guard| guard.of_host(&self.state, budgets))?;
        Some((self.until, why))
    }
}
