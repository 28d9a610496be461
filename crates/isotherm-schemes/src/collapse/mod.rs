//! The action `collapse`: one huge page for the 512 pages of a hot huge range.
//!
//! - [`benefit`]: the benefit of collapsing a huge range, from its heat.
//! - [`rules`]: which huge ranges are worth it and which cannot be huge, for the planner.
//! - [`kernel`]: the system calls, and what their refusals mean.
//!
//! This module has what the worker needs: the guards that apply, the final check of a huge range, and the try.

pub mod benefit;
pub mod kernel;
pub mod rules;

pub use kernel::{CollapseMachine, PmdCheck};
pub use rules::{HeatOnHuge, Rules};

use crate::action::{Action, Guard, Performed, Price};
use crate::budgets::Budgets;
use crate::machine::Process;
use crate::outcome::Refusal;
use crate::queue::{ActionId, Hint};
use isotherm_units::{Bytes, PAGES_PER_PMD, PMD_SIZE};

/// The id by which hints name it.
pub const COLLAPSE: ActionId = ActionId(0);
/// What counters and status call collapsed huge ranges.
pub const COLLAPSED: &str = "collapsed";

/// A collapse needs a free huge page, a charge for it, and copies, so the guards of all three apply. Pressure comes before the
/// shortages that it may cause, because the first one is reported.
const GUARDS: &[Guard] = &[Guard::Pressure, Guard::Headroom, Guard::FreeBlocks, Guard::Fork, Guard::Cgroup];

/// The action.
#[derive(Clone, Copy, Debug, Default)]
pub struct Collapse {
    /// Also file-backed and shared memory, where the kernel may refuse.
    pub files: bool,
}

impl<M: CollapseMachine> Action<M> for Collapse {
    fn id(&self) -> ActionId {
        COLLAPSE
    }

    fn done(&self) -> &'static str {
        COLLAPSED
    }

    fn guards(&self) -> &'static [Guard] {
        GUARDS
    }

    fn refuses(&self, process: &Process) -> Option<Refusal> {
        (!process.takes_huge_pages).then_some(Refusal::Disabled)
    }

    fn check(&mut self, machine: &mut M, hint: &Hint, budgets: &Budgets) -> Result<Price, Refusal> {
        let check = machine.check_pmd(hint.process, hint.pmd, self.files)?;
        match unfit(&check, budgets.min_present) {
            Some(refusal) => Err(refusal),
            None => Ok(price(&check)),
        }
    }

    fn perform(&mut self, machine: &mut M, hint: &Hint) -> Performed {
        machine.collapse(hint.process, hint.pmd)
    }
}

/// What forbids collapsing a huge range in this state.
pub(crate) fn unfit(check: &PmdCheck, min_present: u16) -> Option<Refusal> {
    if check.refusal.is_some() {
        check.refusal
    } else if check.present == 0 {
        Some(Refusal::Unmapped)
    } else if check.present < min_present {
        Some(Refusal::Sparse)
    } else {
        (check.exclusive < min_present).then_some(Refusal::Shared)
    }
}

/// The process grows by the missing pages, and by those that are copied because other processes map them too. The whole
/// huge page is charged while the pages that it replaces are still charged.
pub(crate) fn price(check: &PmdCheck) -> Price {
    let pages = u16::try_from(PAGES_PER_PMD).unwrap_or(u16::MAX);
    let grows = pages.saturating_sub(check.exclusive);
    Price { grows, charge: Bytes(PMD_SIZE + Bytes::of_pages(u64::from(grows)).0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_or_shared_is_added_and_a_whole_page_is_charged() {
        let check = |present, exclusive| PmdCheck { present, exclusive, refusal: None };
        assert_eq!(price(&check(512, 512)), Price { grows: 0, charge: Bytes(2 << 20) });
        assert_eq!(price(&check(510, 500)), Price { grows: 12, charge: Bytes((2 << 20) + 12 * 4096) });
        assert_eq!(unfit(&check(510, 500), 460), None);
        assert_eq!(unfit(&check(510, 459), 460), Some(Refusal::Shared));
        assert_eq!(unfit(&check(459, 459), 460), Some(Refusal::Sparse));
        assert_eq!(unfit(&check(0, 0), 0), Some(Refusal::Unmapped));
    }
}
