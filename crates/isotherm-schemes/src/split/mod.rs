//! The action `split`: small pages in place of a huge page of which little is in use.
//!
//! A huge page has one accessed bit for 2 MiB, and its pages leave together or not at all. Split, each has its own, and the kernel gives
//! those back that hold nothing but zeros (from 6.12 on). [`kernel`] splits, and reads back whether that has happened; [`probe`] says
//! what a few split huge pages show about the others, [`probes`] finds that out for one mapping, and [`splitter`] keeps at it for a process. [`rejoin`]
//! collapses probes again.
//!
//! The pages of a huge page are split by `MADV_COLD` over one of them, which the kernel can only do to a small page. Its contents do not
//! change, and nothing is copied.

mod kernel;
pub mod probe;
pub mod probes;
pub mod rejoin;
pub mod splitter;

pub use kernel::{SplitMachine, given_back_in};

use crate::action::{Action, Guard, Performed, Price};
use crate::budgets::Budgets;
use crate::machine::Process;
use crate::outcome::Refusal;
use crate::queue::{ActionId, Hint, Level, Origin};
use isotherm_heat::{Ns, TargetId};
use isotherm_units::PmdNo;
use std::sync::{Arc, Mutex, PoisonError};

/// The id by which hints name it.
pub const SPLIT: ActionId = ActionId(2);
/// What counters call huge pages that were split.
pub const SPLIT_APART: &str = "split";

/// A split takes page tables, and no memory beyond. A copy of the process shares the huge page, which the kernel leaves as it is then.
const GUARDS: &[Guard] = &[Guard::Pressure, Guard::Fork];

/// After what is hinted for heat or for memory that leaves: there is no hurry.
const LEVEL: u8 = 0;

/// The hint to split the huge page there.
pub fn hint(process: TargetId, pmd: PmdNo, now: Ns) -> Hint {
    Hint { process, pmd, action: SPLIT, level: Level::new(LEVEL), origin: Origin::Heat, since: now }
}

/// What the kernel has given back with each split, shared by the action and who has hinted it: process, huge range, and pages that held nothing
/// but zeros.
#[derive(Clone, Debug, Default)]
pub struct Splits(Arc<Mutex<Vec<(TargetId, PmdNo, u16)>>>);

impl Splits {
    /// Takes what was split since the last call.
    pub fn take(&self) -> Vec<(TargetId, PmdNo, u16)> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn note(&self, process: TargetId, pmd: PmdNo, pages: u16) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((process, pmd, pages));
    }
}

/// The action.
#[derive(Clone, Debug, Default)]
pub struct Split {
    splits: Option<Splits>,
    /// It goes on for hours: what holds for a process when it is admitted says little.
    is_kept_at: bool,
}

impl Split {
    /// An action that notes there what was given back. That has to be taken now and then.
    pub fn noting(splits: Splits) -> Split {
        Split { splits: Some(splits), is_kept_at: false }
    }

    /// The same for a worker that runs on: whether a process's memory has to stay is looked up before each huge page, and not when
    /// the process is admitted.
    pub fn kept_at(splits: Splits) -> Split {
        Split { is_kept_at: true, ..Split::noting(splits) }
    }
}

impl<M: SplitMachine> Action<M> for Split {
    fn id(&self) -> ActionId {
        SPLIT
    }

    fn done(&self) -> &'static str {
        SPLIT_APART
    }

    fn guards(&self) -> &'static [Guard] {
        GUARDS
    }

    fn refuses(&self, process: &Process) -> Option<Refusal> {
        process.must_stay.filter(|_| !self.is_kept_at)
    }

    fn check(&mut self, machine: &mut M, hint: &Hint, _: &Budgets) -> Result<Price, Refusal> {
        machine.check_split(hint.process, hint.pmd).map(|()| Price::default())
    }

    fn perform(&mut self, machine: &mut M, hint: &Hint) -> Performed {
        let performed = machine.split(hint.process, hint.pmd);
        if let Some(splits) = self.splits.as_ref().filter(|_| performed.result.is_ok()) {
            splits.note(hint.process, hint.pmd, performed.pages);
        }
        // Zeros that are given back are not memory that has left: they take no swap.
        Performed { pages: 0, ..performed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Live;
    use isotherm_units::Bytes;

    #[test]
    fn a_worker_that_runs_on_does_not_keep_what_held_when_a_process_was_admitted() {
        let traced = Process { resident: Bytes(1), takes_huge_pages: true, must_stay: Some(Refusal::Traced) };
        let refuses = |split: Split| Action::<Live>::refuses(&split, &traced);
        assert_eq!(refuses(Split::default()), Some(Refusal::Traced));
        assert_eq!(refuses(Split::kept_at(Splits::default())), None, "it is looked up before each huge page");
    }
}
