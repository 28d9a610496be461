//! The action `split`: small pages in place of a huge page of which little is in use.
//!
//! A huge page has one accessed bit for 2 MiB, and its pages leave together or not at all. Split, each has its own, and the kernel gives
//! those back that hold nothing but zeros (from 6.12 on). [`kernel`] splits, and reads back whether that has happened; [`probe`] says
//! what a few split huge pages show about the others.
//!
//! The pages of a huge page are split by `MADV_COLD` over one of them, which the kernel can only do to a small page. Its contents do not
//! change, and nothing is copied.

mod kernel;
pub mod probe;

pub use kernel::SplitMachine;

use crate::action::{Action, Guard, Performed, Price};
use crate::budgets::Budgets;
use crate::machine::Process;
use crate::outcome::Refusal;
use crate::queue::{ActionId, Hint};

/// The id by which hints name it.
pub const SPLIT: ActionId = ActionId(2);
/// What counters call huge pages that were split.
pub const SPLIT_APART: &str = "split";

/// A split takes page tables, and no memory beyond. A copy of the process shares the huge page, which the kernel leaves as it is then.
const GUARDS: &[Guard] = &[Guard::Pressure, Guard::Fork];

/// The action.
#[derive(Clone, Copy, Debug, Default)]
pub struct Split;

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
        process.must_stay
    }

    fn check(&mut self, machine: &mut M, hint: &Hint, _: &Budgets) -> Result<Price, Refusal> {
        machine.check_split(hint.process, hint.pmd).map(|()| Price::default())
    }

    fn perform(&mut self, machine: &mut M, hint: &Hint) -> Performed {
        machine.split(hint.process, hint.pmd)
    }
}
