//! Which huge ranges to clear next: the three queues, and what the budgets allow of each.
//!
//! An entry of a queue is not removed when the plan changes. It is skipped when its turn comes.

use super::{STUCK_RETRY, Target};
use crate::budget::{Class, RETOUCH_NS};
use crate::pmd::{Flags, Ns};
use crate::survey::Rank;
use crate::track::ClearQuota;
use isotherm_units::PmdNo;

/// Why a huge range was in a queue of clears.
#[derive(Clone, Copy, Debug)]
enum Plan {
    Urgent(Ns),
    First(Rank),
    Routine(Ns),
}

impl Target {
    /// Huge ranges to clear now, in address order, as `quota` and the slow-down budget allow: those with unexpected accesses,
    /// then first checks, then the others by due time.
    ///
    /// The caller reads each of them (so that no access until now is lost), clears it, and reports it to
    /// [`Target::cleared`].
    pub fn due_clears(&mut self, now: Ns, quota: ClearQuota) -> Vec<PmdNo> {
        let mut chosen = Vec::new();
        // Retouches that are expected and not found yet, those of the ranges chosen so far included.
        let mut reserved = self.reserved as f64;
        for class in Class::ALL {
            let mut most = quota.most(class);
            let mut allowed = self.slowdown.available_ns(class, now, reserved * RETOUCH_NS) / RETOUCH_NS;
            while most > 0 && allowed > 0.0 {
                let Some((plan, pmd)) = self.pop_clear(now, class) else { break };
                let Some(expected) = self.expected(pmd) else { continue };
                if expected as f64 > allowed && !chosen.is_empty() {
                    self.push_back(plan, pmd);
                    break;
                }
                allowed -= expected as f64;
                reserved += expected as f64;
                self.slowdown.plan(class, expected as f64 * RETOUCH_NS);
                most -= 1;
                chosen.push(pmd);
            }
        }
        chosen.sort_unstable();
        debug_assert!(chosen.is_sorted_by(|a, b| a < b), "a huge range is cleared once: {chosen:?}");
        chosen
    }

    /// The class of a huge range that [`Target::due_clears`] has chosen, until it is cleared.
    pub(crate) fn class_of(&self, pmd: PmdNo) -> Class {
        match self.pmds.get(pmd).map(|entry| entry.timing) {
            Some(timing) if timing.is(Flags::URGENT) => Class::Urgent,
            Some(timing) if timing.is_unchecked() => Class::First,
            _ => Class::Routine,
        }
    }

    /// The next huge range of a class to clear, and its plan, which is taken.
    fn pop_clear(&mut self, now: Ns, class: Class) -> Option<(Plan, PmdNo)> {
        match class {
            Class::Urgent => self.pop_due(now, true).map(|(at, pmd)| (Plan::Urgent(at), pmd)),
            Class::First => self.pop_first(now).map(|(rank, pmd)| (Plan::First(rank), pmd)),
            Class::Routine => self.pop_due(now, false).map(|(at, pmd)| (Plan::Routine(at), pmd)),
        }
    }

    fn pop_first(&mut self, now: Ns) -> Option<(Rank, PmdNo)> {
        while let Some((rank, pmd)) = self.first.peek() {
            if self.survey.defers(now, rank) {
                return None;
            }
            self.first.pop();
            let Some(entry) = self.pmds.get_mut(pmd) else { continue };
            // As below. A range whose pages are all gone waits for others.
            if entry.timing.rank() == Some(rank) {
                entry.timing.set_rank(None);
                if entry.timing.is(Flags::CHECKED) {
                    // It may be queued for a routine check as well, and is cleared once.
                    entry.timing.plan_clear(0, false);
                }
                if entry.heat.has_uncleared() {
                    self.survey.begin(now, rank, self.unchecked);
                    return Some((rank, pmd));
                }
            }
        }
        None
    }

    fn pop_due(&mut self, now: Ns, urgent: bool) -> Option<(Ns, PmdNo)> {
        loop {
            let queue = if urgent { &mut self.urgent } else { &mut self.routine };
            let &(at, pmd) = queue.peek()?;
            if at > now {
                return None;
            }
            // It may be there twice: the turn of a hot range is at the same moment whenever it is planned.
            while queue.pop_if(|entry| *entry == (at, pmd)).is_some() {}
            let Some(entry) = self.pmds.get_mut(pmd) else { continue };
            // An entry that is not the huge range's current plan is left over from an older one.
            let t = &mut entry.timing;
            if t.next_clear() != at || t.is(Flags::URGENT) != urgent || t.is(Flags::UNCLEARABLE) {
                continue;
            }
            if entry.heat.has_uncleared() {
                return Some((at, pmd));
            }
            // A clear of the whole process reached pages here that a clear of the huge range did not. Clears of the huge range
            // are still retried.
            let again = if t.is(Flags::STUCK) { now + STUCK_RETRY } else { 0 };
            let again = t.plan_clear(again, again > 0);
            t.flags.remove(Flags::URGENT);
            if again > 0 {
                self.routine.push((again, pmd));
            }
        }
    }

    fn push_back(&mut self, plan: Plan, pmd: PmdNo) {
        match plan {
            Plan::Urgent(at) => self.urgent.push((at, pmd)),
            Plan::First(rank) => self.check_first(pmd, rank),
            Plan::Routine(at) => self.routine.push((at, pmd)),
        }
    }

    /// Pages that a clear of `pmd` is expected to make the target touch again. `None` if it is not known any more.
    pub(super) fn expected(&self, pmd: PmdNo) -> Option<u64> {
        let (known, unknown) = self.pmds.get(pmd)?.heat.expected();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 512 pages")]
        let guess = (f64::from(unknown) * self.prior()).ceil() as u64;
        Some(u64::from(known) + guess)
    }
}
