//! The part of the state that brings memory back: when much of a huge range has come back, the rest of it is hinted.

use super::{State, Target};
use crate::bring_back::{self, BringBackStatus, BroughtBack};
use crate::page_out::PAGE_OUT;
use crate::page_out::keeper::Keeper;
use isotherm_heat::{Ns, TargetId};

impl State {
    /// The same with the counts of what the worker brings back.
    pub fn with_brought_back(self, brought_back: BroughtBack) -> State {
        State { brought_back, ..self }
    }

    /// Hints what is likely to come back next, if a scheme says so.
    pub(super) fn hint_following(&mut self, process: TargetId, now: Ns) {
        let following = self.keeper(process).map(Keeper::take_following).unwrap_or_default();
        if !self.brings_back(process) {
            return;
        }
        for pmd in following {
            // What has begun to come back does not leave.
            self.withdraw(process, pmd, PAGE_OUT);
            self.no_longer_hinted(process, pmd);
            self.add(bring_back::hint(process, pmd, now));
        }
    }

    pub(super) fn brings_back(&self, process: TargetId) -> bool {
        let admitted = |target: &Target| target.refused.is_none();
        let is_asked = self.actions.get(&process).is_some_and(|actions| actions.brings_back);
        is_asked && self.targets.get(&process).is_some_and(admitted)
    }

    /// What was brought back of a process, if a scheme says so.
    pub(super) fn bring_back_status(&self, process: TargetId) -> Option<BringBackStatus> {
        let is_asked = self.actions.get(&process).is_some_and(|actions| actions.brings_back);
        is_asked.then(|| self.brought_back.of(process))
    }
}
