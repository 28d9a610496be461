//! The action that collapses probes again, where they have shown that splitting does not pay.
//!
//! It is no collapse of [`crate::collapse`]: the process gets back what it had. So pages that the kernel gave back may be missing, and what it grows
//! by is not charged to its growth, which is for collapses by heat.

use crate::action::{Action, Guard, Performed, Price};
use crate::budgets::Budgets;
use crate::collapse::{Collapse, CollapseMachine, price, unfit};
use crate::machine::Process;
use crate::outcome::Refusal;
use crate::queue::{ActionId, Hint, Level, Origin};
use isotherm_heat::{Ns, TargetId};
use isotherm_units::PmdNo;

/// The id by which hints name it.
pub const REJOIN: ActionId = ActionId(5);
/// What counters call probes that were collapsed again.
pub const REJOINED: &str = "collapsed_again";

/// A probe costs the target TLB misses until it is huge again.
const LEVEL: u8 = 28;

/// The hint to collapse a probe again.
pub fn hint(process: TargetId, pmd: PmdNo, now: Ns) -> Hint {
    Hint { process, pmd, action: REJOIN, level: Level::new(LEVEL), origin: Origin::Heat, since: now }
}

/// The action.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rejoin(Collapse);

impl<M: CollapseMachine> Action<M> for Rejoin {
    fn id(&self) -> ActionId {
        REJOIN
    }

    fn done(&self) -> &'static str {
        REJOINED
    }

    fn guards(&self) -> &'static [Guard] {
        Action::<M>::guards(&self.0)
    }

    fn refuses(&self, process: &Process) -> Option<Refusal> {
        Action::<M>::refuses(&self.0, process)
    }

    fn check(&mut self, machine: &mut M, hint: &Hint, _: &Budgets) -> Result<Price, Refusal> {
        let check = machine.check_pmd(hint.process, hint.pmd, self.0.files)?;
        unfit(&check, 0).map_or(Ok(Price { grows: 0, ..price(&check) }), Err)
    }

    fn perform(&mut self, machine: &mut M, hint: &Hint) -> Performed {
        self.0.perform(machine, hint)
    }
}
