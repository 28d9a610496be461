//! The part of the state that says which schemes are in force, and for which targets.

use super::State;
use super::quota::carried_over;
use crate::page_out::IdlePages;
use crate::scheme::{Actions, Scheme};
use isotherm_heat::TargetId;

impl State {
    /// The same with these schemes, and the idle pages that the worker pages out.
    pub fn with_schemes(self, schemes: Vec<Scheme>, idle: IdlePages) -> State {
        State { schemes, idle, ..self }
    }

    /// Sets the cgroup of a target, by which schemes may choose it.
    pub fn set_cgroup(&mut self, id: TargetId, comm: &str, cgroup: &str) {
        let before = self.actions.insert(id, Actions::of(&self.schemes, comm, cgroup));
        if before.is_none() {
            self.retry.retry_quotas(id);
        }
    }

    /// Applies other schemes, from the next window on.
    pub fn set_schemes(&mut self, schemes: Vec<Scheme>) {
        self.quotas = carried_over(std::mem::take(&mut self.quotas), &self.schemes, &schemes);
        self.schemes = schemes;
        self.actions.clear();
        self.reclaims.forget_schemes();
    }
}
