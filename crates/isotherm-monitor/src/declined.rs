//! Processes that are not watched, the reasons, and how long they are valid.
//!
//! A process that cannot be watched is not tried at each listing. But the obstacle may go away (another monitor ends, a
//! privilege is granted), and the process may end and its id be reused. So an id that is no longer listed, or that
//! means another process by now, is forgotten. The others are tried again after a delay, which doubles each time:
//! thousands of kernel threads never have memory. Reasons are kept for the end of the run.

use isotherm_heat::Ns;
use std::collections::BTreeMap;

/// The first delay before a declined process is tried again, and the longest.
const FIRST_WAIT: Ns = 30_000_000_000;
const LONGEST_WAIT: Ns = 3_600_000_000_000;
/// The maximum number of reasons that are kept.
const MAX_REASONS: usize = 1000;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Declined {
    waits: BTreeMap<u32, Waiting>,
    reasons: BTreeMap<u32, String>,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    until: Ns,
    wait: Ns,
    /// Start time of the process that was meant, if the caller knows it.
    meant: Option<u64>,
}

impl Declined {
    /// Whether `pid` is not to be tried at `now`. `meant` is the start time of the process that it means.
    pub fn holds(&self, pid: u32, meant: Option<u64>, now: Ns) -> bool {
        self.waits.get(&pid).is_some_and(|waiting| waiting.meant == meant && now < waiting.until)
    }

    /// Notes that it cannot be watched; without a reason if users need not know.
    pub fn note(&mut self, pid: u32, meant: Option<u64>, now: Ns, reason: Option<String>) {
        let before = self.waits.get(&pid).filter(|waiting| waiting.meant == meant);
        let wait = before.map_or(FIRST_WAIT, |waiting| (waiting.wait * 2).min(LONGEST_WAIT));
        self.waits.insert(pid, Waiting { until: now + wait, wait, meant });
        if let Some(reason) = reason.filter(|_| self.reasons.len() < MAX_REASONS) {
            self.reasons.insert(pid, reason);
        }
    }

    /// Updates from the processes that exist (sorted): other ids mean no process and are forgotten.
    pub fn keep_listed(&mut self, pids: &[u32]) {
        self.waits.retain(|pid, _| pids.binary_search(pid).is_ok());
    }

    /// Notes that it is watched after all.
    pub fn forget(&mut self, pid: u32) {
        self.waits.remove(&pid);
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
    fn a_process_is_tried_again_later_and_later_and_a_later_one_of_its_id_at_once() {
        let mut declined = Declined::default();
        declined.note(5, Some(1), 0, Some("no".into()));
        declined.note(6, None, 0, None);
        let holds = |declined: &Declined, pid, meant, now| declined.holds(pid, meant, now);
        assert!(holds(&declined, 5, Some(1), FIRST_WAIT - 1) && holds(&declined, 6, None, 0));
        assert!(!holds(&declined, 7, None, 0) && !holds(&declined, 5, Some(1), FIRST_WAIT));
        assert!(!holds(&declined, 5, Some(2), 0), "another process has its id");
        declined.note(6, None, FIRST_WAIT, None);
        assert!(holds(&declined, 6, None, 3 * FIRST_WAIT - 1) && !holds(&declined, 6, None, 3 * FIRST_WAIT));
        declined.keep_listed(&[6]);
        assert!(!holds(&declined, 5, Some(1), 0), "5 has ended: the process that has its id now was not tried");
        assert_eq!(declined.reasons().len(), 1, "reported at the end all the same");
        declined.note(5, None, 0, None);
        declined.forget(5);
        assert!(!holds(&declined, 5, None, 0) && declined.reasons().is_empty());
        (0..20).for_each(|n| declined.note(9, None, n, None));
        assert!(!holds(&declined, 9, None, 19 + LONGEST_WAIT));
    }
}
