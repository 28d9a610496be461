//! The part of the state that keeps the hints: what is queued, at which level, and whose turn it is.

use super::State;
use crate::TargetWindow;
use crate::bring_back::{self, BRING_BACK};
use crate::budgets::Wait;
use crate::collapse::COLLAPSE;
use crate::plan::{self, Planner};
use crate::queue::{Added, Hint, Level, Origin};
use crate::retry::Handled;
use crate::split::SPLIT;
use isotherm_heat::{Ns, TargetId};
use isotherm_units::{AddrRange, PMD_SIZE, PmdNo};

/// Most hints that are passed over while the lock is held.
const MAX_PASSED_OVER: usize = 256;
/// Most huge ranges that one external hint may name.
const MAX_PMDS: u64 = 1 << 19;

impl State {
    /// Moves the hint of a huge range down that has cooled since, and both ways if it waits. Less than an octave of benefit is no cause to lose its
    /// place. A hint from outside stays one, and is never lowered.
    pub(super) fn as_queued(&mut self, hint: Hint) -> Hint {
        self.retry.relevel(&hint);
        match self.queue.get(hint.process, hint.pmd) {
            Some(queued) if queued.origin == Origin::External => Hint { origin: Origin::External, ..hint },
            Some(queued) if queued.action == hint.action && queued.level.get() > hint.level.get() + 1 => {
                self.queue.remove(hint.process, hint.pmd);
                self.queue.add(Hint { since: queued.since, ..hint });
                hint
            }
            _ => hint,
        }
    }

    /// Whether a huge range neither rests from the action nor waits or is worked on. One that is tried again waits at the level that it has. One that
    /// waits for the quota of another action waits no more.
    fn may_be_hinted(&mut self, hint: &Hint) -> bool {
        // What another program has asked for gives way to no other action.
        let queued = self.queue.get(hint.process, hint.pmd);
        let is_of_others = queued.is_some_and(|q| q.origin == Origin::External && q.action != hint.action);
        if is_of_others && hint.origin != Origin::External {
            return false;
        }
        let key = (hint.process, hint.pmd);
        let is_resting = self.resting_of(hint.action).is_some_and(|resting| resting.contains(hint.process, hint.pmd));
        // What waits has nothing set aside. Not for one that would have to wait as well.
        if !is_resting
            && self.has_quota_left(hint)
            && self.retry.give_way(hint)
            && let Some(keeper) = self.keeper(hint.process)
        {
            keeper.handled(hint.pmd);
        }
        let is_tried_again = hint.origin != Origin::External
            && self.retry.was_tried(hint.process, hint.pmd)
            && self.queue.contains(hint.process, hint.pmd).is_some();
        let waits = is_tried_again || self.retry.is_deferred(hint.process, hint.pmd);
        !is_resting && !waits && self.in_hand != Some(key)
    }

    pub(super) fn add(&mut self, hint: Hint) -> bool {
        if !self.may_be_hinted(&hint) {
            return false;
        }
        let added = self.queue.add(hint);
        if let Added::NewInsteadOf(evicted) = added {
            self.no_longer_hinted(evicted.process, evicted.pmd);
        }
        matches!(added, Added::New | Added::Raised | Added::NewInsteadOf(_))
    }

    /// If nothing hot is left, and none of the last ones of this process: hints for the next huge ranges by address, as many as one second allows.
    pub(super) fn add_round_robin(&mut self, window: &TargetWindow<'_>, now: Ns) {
        let planned = plan::round_robin(&self.rules, window, now);
        let cursor = self.targets.get(&window.id).map_or(PmdNo(0), |t| t.cursor);
        let (before, after): (Vec<Hint>, Vec<Hint>) = planned.hints.into_iter().partition(|h| h.pmd < cursor);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a handful")]
        let some = self.budgets.per_second.clamp(1.0, 10_000.0) as usize;
        let mut last = cursor;
        for hint in after.into_iter().chain(before).take(some) {
            last = hint.pmd.next();
            if self.may_collapse(hint.process, hint.pmd, now) {
                self.add(hint);
            }
        }
        if let Some(target) = self.targets.get_mut(&window.id) {
            target.cursor = last;
        }
    }

    /// Adds a hint from outside. Returns how many of its huge ranges were new, or why it is refused.
    pub fn hint(&mut self, pid: u32, range: AddrRange, level: Level, now: Ns) -> Result<usize, String> {
        let Some((&process, target)) = self.targets.iter().find(|(id, _)| id.pid == pid) else {
            return Err(format!("process {pid} is not among the targets"));
        };
        if let Some(why) = target.refused {
            return Err(format!("process {pid} is left alone: {}", why.text()));
        }
        let pmds = range.pmds();
        if range.is_empty() || range.len().0 / PMD_SIZE > MAX_PMDS {
            return Err(format!("the range {range:?} is empty or too long"));
        }
        let action = self.rules.action();
        let hint = |pmd| Hint { process, pmd, action, level, origin: Origin::External, since: now };
        Ok(pmds.filter(|pmd| self.add(hint(*pmd)) || self.retry.relevel(&hint(*pmd))).count())
    }

    /// For the worker: the next hint, and how many times it was tried. Call [`State::settle`] afterwards. `None` also if there may be more.
    pub fn take(&mut self, now: Ns) -> Option<(Hint, u8)> {
        // The lock is held only briefly.
        for _ in 0..MAX_PASSED_OVER {
            let (hint, tries) = self.retry.take(&mut self.queue)?;
            if !self.is_asked_for(&hint, now) {
                self.retry.dropped(&hint);
                self.no_longer_hinted(hint.process, hint.pmd);
            } else if let Err(until) = self.charge(&hint, now) {
                self.retry.settle(hint, tries, Handled::Later(until, Wait::Quota));
            } else {
                self.in_hand = Some((hint.process, hint.pmd));
                return Some((hint, tries));
            }
        }
        None
    }

    /// Whether a hint still stands: the scheme that has asked for it may be gone, the huge range may have cooled while it waited, a round that
    /// has ended splits nothing more, and what was to follow soon has had its time.
    fn is_asked_for(&self, hint: &Hint, now: Ns) -> bool {
        match hint.action {
            _ if hint.origin == Origin::External => true,
            SPLIT => self.asks_to_split(hint),
            BRING_BACK => bring_back::is_in_time(hint, now) && self.brings_back(hint.process),
            // Until the next window it is not known what new schemes say.
            COLLAPSE => {
                let is_asked = self.actions.get(&hint.process).is_none_or(|actions| actions.collapses);
                is_asked && (hint.origin == Origin::RoundRobin || self.is_worth_collapsing(hint.process, hint.pmd))
            }
            _ => true,
        }
    }

    /// Whether a huge range was worth a collapse in the last window.
    pub(super) fn is_worth_collapsing(&self, process: TargetId, pmd: PmdNo) -> bool {
        self.targets.get(&process).is_some_and(|target| target.worth_collapsing.binary_search(&pmd).is_ok())
    }
}
