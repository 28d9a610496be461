//! The action that brings memory back from swap before the process waits for it: the rest of huge ranges whose pages have begun to come
//! back.
//!
//! [`crate::page_out`] counts refaults. Where enough pages of a huge range have come back, the others are likely to follow, since what was
//! accessed together is accessed together again. [`kernel`] asks the kernel to read them into the swap cache (`MADV_WILLNEED`). The next
//! access then finds the page in memory: a minor fault in place of a major one, without a wait for the swap device. Page tables still say
//! that it is in swap, so `pagemap` cannot show what was read; the machine's count of cached swap can ([`BroughtBack`]).
//!
//! Nothing of the target's memory is read by Isotherm. A huge range that is hot as a whole comes back by a collapse, which does map its
//! pages: that is [`crate::collapse`].

mod kernel;

pub use kernel::{BringBackMachine, ReadIn};

use crate::action::{Action, Guard, Performed, Price};
use crate::budgets::Budgets;
use crate::machine::Process;
use crate::outcome::Refusal;
use crate::queue::{ActionId, Hint, Level, Origin};
use isotherm_heat::{Mask, Ns, TargetId};
use isotherm_units::{Bytes, PmdNo};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The id by which hints name it.
pub const BRING_BACK: ActionId = ActionId(4);
/// What counters call huge ranges of which pages were asked back.
pub const BROUGHT_BACK: &str = "brought_back";

/// It takes memory, of the host and of the cgroup. Where that is short, the kernel would page out something else for it.
const GUARDS: &[Guard] = &[Guard::Pressure, Guard::Io, Guard::Headroom, Guard::Cgroup];

/// Before anything else that is hinted for memory that is out: it is worth something only before the next access.
const LEVEL: u8 = 29;

/// A hint that is older is dropped: what was likely to follow has followed by then, or is not wanted.
const IN_TIME: Ns = 10_000_000_000;

/// Whether a hint to bring something back is still worth something at `now`.
pub(crate) fn is_in_time(hint: &Hint, now: Ns) -> bool {
    now.saturating_sub(hint.since) <= IN_TIME
}

/// The hint to bring back what is out of a huge range.
pub fn hint(process: TargetId, pmd: PmdNo, now: Ns) -> Hint {
    Hint { process, pmd, action: BRING_BACK, level: Level::new(LEVEL), origin: Origin::Heat, since: now }
}

/// What was brought back of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BringBackStatus {
    /// Memory that the kernel was asked to read from swap.
    pub asked_bytes: u64,
    /// By how much cached swap of the machine has grown in these calls. Reads for other processes at the same time count too, and what
    /// was cached before does not.
    pub read_bytes: u64,
}

/// What was brought back of each process, shared by the action and the status.
#[derive(Clone, Debug, Default)]
pub struct BroughtBack(Arc<Mutex<HashMap<TargetId, BringBackStatus>>>);

impl BroughtBack {
    /// What was brought back of a process.
    pub fn of(&self, process: TargetId) -> BringBackStatus {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&process).copied().unwrap_or_default()
    }

    /// Forgets a process.
    pub fn forget(&self, process: TargetId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&process);
    }

    fn note(&self, process: TargetId, asked: Mask, read: Bytes) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of = all.entry(process).or_default();
        of.asked_bytes += Bytes::of_pages(u64::from(asked.count())).0;
        of.read_bytes += read.0;
    }
}

/// The action.
#[derive(Clone, Debug)]
pub struct BringBack {
    brought_back: BroughtBack,
    /// The pages of the last huge range that was checked, which is the next to be brought back.
    checked: Mask,
}

impl BringBack {
    /// An action that counts there.
    pub fn new(brought_back: BroughtBack) -> BringBack {
        BringBack { brought_back, checked: Mask::NONE }
    }
}

impl<M: BringBackMachine> Action<M> for BringBack {
    fn id(&self) -> ActionId {
        BRING_BACK
    }

    fn done(&self) -> &'static str {
        BROUGHT_BACK
    }

    fn guards(&self) -> &'static [Guard] {
        GUARDS
    }

    fn refuses(&self, _: &Process) -> Option<Refusal> {
        None
    }

    fn check(&mut self, machine: &mut M, hint: &Hint, _: &Budgets) -> Result<Price, Refusal> {
        self.checked = machine.swapped_pages(hint.process, hint.pmd)?;
        if self.checked.is_empty() {
            return Err(Refusal::NotSwapped);
        }
        // The process does not grow beyond what it had.
        Ok(Price { grows: 0, charge: Bytes::of_pages(u64::from(self.checked.count())) })
    }

    fn perform(&mut self, machine: &mut M, hint: &Hint) -> Performed {
        let pages = std::mem::replace(&mut self.checked, Mask::NONE);
        let ReadIn { performed, read } = machine.read_in(hint.process, hint.pmd, pages);
        if performed.result.is_ok() {
            self.brought_back.note(hint.process, pages, read);
        }
        performed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::Failure;
    use crate::machine::{CgroupState, HostState, Machine, Unfit};
    use crate::outcome::Outcome;
    use crate::queue::HintQueue;
    use crate::retry::{RetryScheduler, Step};
    use crate::worker::Worker;

    const A: TargetId = TargetId { pid: 1, start_ticks: 10 };

    /// Huge range 1 has these pages in swap, of which half are cached.
    #[derive(Debug)]
    struct Fake {
        swapped: Mask,
        available: Bytes,
        result: Result<(), Failure>,
    }

    impl Machine for Fake {
        fn admit(&mut self, _: TargetId, _: &Unfit<'_>) -> Result<Process, Refusal> {
            Ok(Process { resident: Bytes(1 << 30), takes_huge_pages: true, must_stay: Some(Refusal::Traced) })
        }

        fn dismiss(&mut self, _: TargetId) {}

        fn fork_of(&mut self, _: TargetId) -> Option<u32> {
            None
        }

        fn host(&mut self) -> HostState {
            HostState { available: Some(self.available), memory: Some(Bytes(1000)), ..HostState::default() }
        }

        fn cgroup(&mut self, _: TargetId) -> Option<CgroupState> {
            None
        }

        fn cpu_ns(&mut self) -> Ns {
            0
        }
    }

    impl BringBackMachine for Fake {
        fn swapped_pages(&mut self, _: TargetId, pmd: PmdNo) -> Result<Mask, Refusal> {
            Ok(if pmd.0 == 1 { self.swapped } else { Mask::NONE })
        }

        fn read_in(&mut self, _: TargetId, _: PmdNo, pages: Mask) -> ReadIn {
            let read = Bytes::of_pages(u64::from(pages.count() / 2));
            ReadIn { performed: Performed { result: self.result, pages: 0, took_ns: 1, cpu_ns: 1 }, read }
        }
    }

    fn served(fake: Fake, pmd: u64) -> (Step, BringBackStatus, u64) {
        let brought_back = BroughtBack::default();
        let action: Vec<Box<dyn Action<Fake> + Send>> = vec![Box::new(BringBack::new(brought_back.clone()))];
        let mut worker = Worker::new(fake, action, Budgets::default(), 1_000_000_000);
        worker.admit(A, 1_000_000_000).unwrap();
        let mut queue = HintQueue::new(10);
        queue.add(hint(A, PmdNo(pmd), 0));
        let step = RetryScheduler::new(10).step(2_000_000_000, &mut queue, &mut worker);
        (step, brought_back.of(A), worker.counters().left_pages)
    }

    #[test]
    fn what_is_in_swap_is_asked_back_and_counted() {
        let fake = || Fake { swapped: (0..100).collect(), available: Bytes(500), result: Ok(()) };
        let (step, status, left) = served(fake(), 1);
        assert!(matches!(step, Step::Did(_, Outcome::Done { grown: 0 })), "{step:?}");
        assert_eq!((status, left), (BringBackStatus { asked_bytes: 100 << 12, read_bytes: 50 << 12 }, 0));
        let (step, status, _) = served(fake(), 2);
        assert!(matches!(step, Step::Did(_, Outcome::Refused(Refusal::NotSwapped))), "{step:?}");
        assert_eq!(status, BringBackStatus::default());
        let (_, status, _) = served(Fake { result: Err(Failure::Refused(Refusal::Gone)), ..fake() }, 1);
        assert_eq!(status, BringBackStatus::default(), "nothing was done");
    }

    #[test]
    fn where_memory_is_short_it_waits() {
        let (step, ..) = served(Fake { swapped: Mask::ALL, available: Bytes(10), result: Ok(()) }, 1);
        assert!(matches!(step, Step::Wait(..)), "{step:?}");
    }
}
