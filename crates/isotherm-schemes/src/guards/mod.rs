//! What holds actions up for now: the state of the host here, memory cgroups in [`cgroups`].
//!
//! Which guards hold for an action is said by the action ([`crate::action::Guard`]); that a process was named, and for how long it may
//! be held up, is kept by the worker with what it knows of the process.

pub(crate) mod cgroups;

use crate::action::Guard;
use crate::budgets::{Budgets, Wait};
use crate::machine::HostState;
use isotherm_heat::Ns;

/// How often a paused process, or a host short of memory, is looked at again.
pub(crate) const LOOK_AGAIN: Ns = 500_000_000;

/// What the host had to spare when it was last looked at.
#[derive(Debug, Default)]
pub(crate) struct HostGuard {
    state: HostState,
    until: Ns,
}

impl HostGuard {
    /// Whether it has to be looked at again.
    pub fn is_due(&self, now: Ns) -> bool {
        now >= self.until
    }

    /// Notes its state.
    pub fn note(&mut self, state: HostState, now: Ns) {
        (self.state, self.until) = (state, now + LOOK_AGAIN);
    }

    /// What the first of these guards waits for that speaks against doing anything now, and until when.
    pub fn wait(&self, guards: &[Guard], budgets: &Budgets) -> Option<(Ns, Wait)> {
        let why = guards.iter().find_map(|guard| guard.of_host(&self.state, budgets))?;
        Some((self.until, why))
    }
}
