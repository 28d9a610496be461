//! Processes that are not watched, why, and for how long that is believed.
//!
//! A process that cannot be watched is not tried at each listing. But what was in the way may pass (another monitor ends, a privilege is
//! given), and the process may end and its id go to another: so an id that is not listed any more is forgotten, and the others are tried
//! again after a while. Reasons are kept for the end of the run.

use isotherm_heat::Ns;
use std::collections::BTreeMap;

/// How soon a process that was declined is tried again.
const TRY_AGAIN: Ns = 30_000_000_000;
/// Reasons that are kept.
const MAX_REASONS: usize = 1000;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Declined {
    until: BTreeMap<u32, Ns>,
    reasons: BTreeMap<u32, String>,
}

impl Declined {
    /// Whether `pid` is not to be tried at `now`.
    pub fn holds(&self, pid: u32, now: Ns) -> bool {
        self.until.get(&pid).is_some_and(|until| now < *until)
    }

    /// Notes that it cannot be watched; without a reason, if that is nothing to tell people.
    pub fn note(&mut self, pid: u32, now: Ns, reason: Option<String>) {
        self.until.insert(pid, now + TRY_AGAIN);
        if let Some(reason) = reason.filter(|_| self.reasons.len() < MAX_REASONS) {
            self.reasons.insert(pid, reason);
        }
    }

    /// Takes in which processes there are (sorted): ids of others mean nobody.
    pub fn keep_listed(&mut self, pids: &[u32]) {
        self.until.retain(|pid, _| pids.binary_search(pid).is_ok());
    }

    /// Notes that it is watched after all.
    pub fn forget(&mut self, pid: u32) {
        self.until.remove(&pid);
        self.reasons.remove(&pid);
    }

    /// Reasons so far, by pid.
    pub fn reasons(&self) -> &BTreeMap<u32, String> {
        &self.reasons
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_tried_again_after_a_while_and_a_later_one_of_its_id_at_once() {
        let mut declined = Declined::default();
        declined.note(5, 0, Some("no".into()));
        declined.note(6, 0, None);
        assert!(declined.holds(5, TRY_AGAIN - 1) && declined.holds(6, 0) && !declined.holds(7, 0));
        assert!(!declined.holds(5, TRY_AGAIN));
        declined.keep_listed(&[6]);
        assert!(!declined.holds(5, 0) && declined.holds(6, 0), "5 has ended: who has its id now was not tried");
        assert_eq!(declined.reasons().len(), 1, "told at the end all the same");
        declined.note(5, 0, None);
        declined.forget(5);
        assert!(!declined.holds(5, 0) && declined.reasons().is_empty());
    }
}
