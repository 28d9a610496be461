//! The part of the state that moves pages between memory tiers: which processes, when to search, and what becomes a hint.
//!
//! The caller watches; this decides. In each window, for each process: [`State::search_movable`] says what to look for, if it is time, and
//! [`State::hint_movable`] hints what was found.

use super::State;
use crate::budgets::Wait;
use crate::migrate::mover::{Mover, SEARCH};
use crate::migrate::{self, Limits, MIGRATE, Wanted};
use crate::outcome::{Outcome, Refusal};
use crate::page_out::keeper::Stays;
use crate::queue::Hint;
use crate::scheme::Charge;
use isotherm_heat::{Ns, TargetId};
use isotherm_units::PmdNo;
use std::cmp::Reverse;

/// How long a huge range gets no hint to move after one, so that each search hints it anew: what is hot changes.
pub(super) fn rest_after(outcome: Outcome) -> Ns {
    match outcome {
        Outcome::Done { .. } | Outcome::Refused(Refusal::InPlace | Refusal::Unmeasured) => SEARCH / 2,
        Outcome::Refused(Refusal::NoFastMemory) => 0,
        Outcome::Refused(_) => super::REST,
    }
}

impl State {
    /// What to look for in a process of which pages move between tiers, given its working set of a minute and why none may go down, if so.
    /// `None` if no pages of it move, or if it is not time.
    pub fn search_movable(&mut self, process: TargetId, found: (u64, Option<Stays>), now: Ns) -> Option<Limits> {
        self.take_in_moved(now);
        let limits = self.actions.get(&process)?.migrates;
        self.targets.get(&process).filter(|target| target.refused.is_none())?;
        if limits.is_none() {
            // No scheme moves it any more. What was moved stays counted.
            self.of_ended.moved_bytes += self.totals_of(process).moved_bytes;
            self.movable.forget(process);
        }
        let target = self.targets.get_mut(&process)?;
        let Some(limits) = limits else {
            target.mover = None;
            return None;
        };
        let mover = target.mover.get_or_insert_with(|| Mover::new(limits, now));
        // The settings may have been read again.
        mover.set_limits(limits, now);
        mover.note(found.0, found.1, now);
        if mover.stays().is_some() {
            self.movable.stop_idle(process);
        }
        // What it says of room is about the time before the search.
        target.was_full = mover.is_full();
        mover.search(now)
    }

    /// Takes in what the worker has moved.
    pub(super) fn take_in_moved(&mut self, now: Ns) {
        for (process, pmd, moves) in self.movable.take_moved() {
            self.spend(process, pmd, Charge::Promote, u64::from(moves.promote.count()));
            self.spend(process, pmd, Charge::Demote, u64::from(moves.demote.count()));
            if let Some(mover) = self.targets.get_mut(&process).and_then(|target| target.mover.as_mut()) {
                mover.moved(pmd, moves, now);
            }
        }
    }

    /// Takes in what a handled hint means for moving.
    pub(super) fn migrate_handled(&mut self, process: TargetId, outcome: Outcome) {
        let mover = self.targets.get_mut(&process).and_then(|target| target.mover.as_mut());
        if let Some(mover) = mover.filter(|_| outcome == Outcome::Refused(Refusal::NoFastMemory)) {
            mover.full();
        }
    }

    /// Hints what a search has found.
    pub fn hint_movable(&mut self, process: TargetId, wanted: &[Wanted], keep_free_pct: f64, now: Ns) {
        self.resting_moves.sweep(now);
        self.movable.replace(process, wanted.iter().copied(), keep_free_pct, now);
        let is_full = self.targets.get(&process).is_some_and(|target| target.was_full);
        let mut hints = migrate::hints(process, wanted, is_full, now);
        // The highest levels get the room first.
        hints.sort_by_key(|hint| Reverse(hint.level));
        let mut left = [Charge::Promote, Charge::Demote].map(|charge| self.left_of(process, charge));
        for hint in hints {
            self.wait_no_more(&hint, &mut left);
            self.retry.relevel(&hint);
            self.add(hint);
        }
    }

    /// Drops the wait for a quota if there is room for any of the pages that should move now: the wait may be for the other direction, and last a
    /// day. `left` is the room in pages. A hint that finds none comes back with its group.
    fn wait_no_more(&mut self, hint: &Hint, left: &mut [u64; 2]) {
        let waits = self.retry.waits_for(hint.process, hint.pmd, MIGRATE) == Some(Wait::Quota);
        let Some(wanted) = self.movable.wanted(hint.process, hint.pmd).filter(|_| waits) else { return };
        let pages = [wanted.hot, wanted.idle].map(|pages| u64::from(pages.count()));
        if pages.iter().zip(left.iter()).any(|(pages, left)| (*pages).min(*left) > 0) {
            left.iter_mut().zip(pages).for_each(|(left, pages)| *left = left.saturating_sub(pages));
            self.retry.drop_deferred(hint.process, hint.pmd, MIGRATE);
        }
    }

    /// Forgets what was moved of a process where nothing is mapped any more.
    pub fn keep_mapped(&mut self, process: TargetId, is_mapped: impl Fn(PmdNo) -> bool, now: Ns) {
        if let Some(mover) = self.targets.get_mut(&process).and_then(|target| target.mover.as_mut()) {
            mover.keep_mapped(is_mapped, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collapse::Rules;
    use crate::migrate::{Movable, Moves};
    use crate::retry::Handled;
    use crate::scheme::Scheme;
    use crate::state::Report;
    use crate::{Budgets, Counters, TargetWindow};
    use isotherm_heat::Mask;
    use isotherm_units::Bytes;

    const S: Ns = 1_000_000_000;
    const A: TargetId = TargetId { pid: 1, start_ticks: 10 };

    fn scheme(text: &str) -> Scheme {
        Scheme::new(toml::from_str(text).unwrap()).unwrap()
    }

    fn window(state: &mut State, now: Ns) {
        let window = TargetWindow {
            id: A,
            comm: "db".into(),
            mappings: Vec::new().into(),
            facts: Vec::new(),
            generations: Vec::new(),
        };
        state.feed(&window, Bytes(1 << 30), now);
    }

    #[test]
    fn what_is_found_is_hinted_and_what_moves_is_reported() {
        let movable = Movable::default();
        let state = State::new(Rules::default(), Budgets::default()).with_movable(movable.clone());
        let schemes = ["action = \"promote\"", "action = \"demote\"\nmin_idle = \"1m\""].map(scheme);
        let mut state = state.with_schemes(schemes.to_vec(), crate::page_out::IdlePages::default());
        window(&mut state, S);
        let limits = state.search_movable(A, (100_000, None), S).unwrap();
        assert_eq!((limits.hot_ns, limits.idle_ns), (Some(2 * S), Some(60 * S)));
        assert_eq!(state.search_movable(A, (100_000, None), 2 * S), None, "not yet");
        let wanted = Wanted { pmd: PmdNo(5), hot: Mask::ALL, idle: Mask::NONE, hz: 9.0 };
        state.hint_movable(A, &[wanted], limits.keep_free_pct, 2 * S);
        let (hint, tries) = state.take(2 * S).unwrap();
        assert_eq!((hint.action, hint.pmd), (MIGRATE, PmdNo(5)));
        movable.note(A, PmdNo(5), Moves { promote: Mask::ALL, demote: Mask::NONE });
        let handled = Handled::Done(Outcome::Done { grown: 0 });
        let report = Report { handled, counters: Counters::default(), paused_for: None, cgroup_wait: None };
        state.settle(hint, tries, report, 3 * S);
        // It rests until the next search, which hints it again.
        state.hint_movable(A, &[wanted], limits.keep_free_pct, 4 * S);
        assert!(state.take(4 * S).is_none());
        state.hint_movable(A, &[wanted], limits.keep_free_pct, 6 * S);
        assert!(state.take(6 * S).is_some());
        assert!(state.search_movable(A, (100_000, None), 9 * S).is_some());
        let status = state.status().targets[0].migrate.clone().unwrap();
        assert_eq!((status.promoted_bytes, status.demoted_bytes, status.min_idle_ns), (2 << 20, 0, Some(60 * S)));
        // What was moved of a process counts on when its scheme is gone, and when it has ended.
        assert_eq!(state.status().totals.moved_bytes, 2 << 20);
        let mut ended = state;
        ended.set_schemes(vec![Scheme::collapse_all()]);
        window(&mut ended, 15 * S);
        assert_eq!(ended.search_movable(A, (100_000, None), 15 * S), None);
        assert_eq!((&ended.status().targets[0].migrate, ended.status().totals.moved_bytes), (&None, 2 << 20));
        ended.keep(&[]);
        assert_eq!((ended.status().targets.len(), ended.status().totals.moved_bytes), (0, 2 << 20));
        let mut state = ended;
        // Without a scheme nothing is looked for, and nothing reported.
        state.set_schemes(vec![Scheme::collapse_all()]);
        window(&mut state, 20 * S);
        assert_eq!(
            (state.search_movable(A, (100_000, None), 20 * S), state.status().targets[0].migrate.is_none()),
            (None, true)
        );
    }
}
