//! A machine that changes nothing, for `--dry-run`.

use super::{CgroupState, HostState, Live, Machine, Process, Unfit};
use crate::outcome::Refusal;
use isotherm_heat::{Ns, TargetId};
use isotherm_units::{Bytes, PmdNo};
use std::collections::{BTreeMap, BTreeSet};

/// A machine that does nothing: shows what a real run would do, by the same rules and on the same facts.
///
/// Live processes are checked. For those that have ended (a recording may be older), the recorded values are used.
#[derive(Debug)]
pub struct DryRun {
    pub(crate) live: Live,
    /// Pages present in each huge range at the time of the recording.
    pub(crate) recorded: BTreeMap<(TargetId, PmdNo), u16>,
    /// Processes that have ended.
    pub(crate) ended: BTreeSet<TargetId>,
    /// Huge ranges on which an action would have been performed.
    pub(crate) done: BTreeSet<(TargetId, PmdNo)>,
    /// Huge ranges of which pages would have moved between memory tiers.
    pub(crate) moved: BTreeSet<(TargetId, PmdNo)>,
}

impl DryRun {
    /// `recorded` has the pages present in each huge range.
    pub fn new(recorded: BTreeMap<(TargetId, PmdNo), u16>) -> DryRun {
        DryRun { live: Live::new(), recorded, ended: BTreeSet::new(), done: BTreeSet::new(), moved: BTreeSet::new() }
    }
}

impl Machine for DryRun {
    fn admit(&mut self, process: TargetId, unfit: &Unfit<'_>) -> Result<Process, Refusal> {
        match self.live.admit(process, unfit) {
            Err(Refusal::Gone) if self.recorded.keys().any(|(id, _)| *id == process) => {
                self.ended.insert(process);
                let pages = self.recorded.iter().filter(|((id, _), _)| *id == process).map(|(_, p)| u64::from(*p));
                Ok(Process { resident: Bytes::of_pages(pages.sum()), takes_huge_pages: true, must_stay: None })
            }
            other => other,
        }
    }

    fn dismiss(&mut self, process: TargetId) {
        self.live.dismiss(process);
        for handled in [&mut self.done, &mut self.moved] {
            handled.retain(|(of, _)| *of != process);
        }
    }

    fn fork_of(&mut self, process: TargetId) -> Option<u32> {
        self.live.fork_of(process)
    }

    fn host(&mut self) -> HostState {
        // It shows what would leave if there were swap.
        HostState { swap: None, ..self.live.host() }
    }

    fn cgroup(&mut self, process: TargetId) -> Option<CgroupState> {
        self.live.cgroup(process)
    }

    fn cpu_ns(&mut self) -> Ns {
        self.live.cpu_ns()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_kept_of_a_process_that_is_dismissed() {
        let mut machine = DryRun::new(BTreeMap::new());
        let [gone, other] = [1, 2].map(|pid| TargetId { pid, start_ticks: 1 });
        for process in [gone, other] {
            machine.done.insert((process, PmdNo(1)));
            machine.moved.insert((process, PmdNo(2)));
        }
        machine.dismiss(gone);
        assert_eq!((machine.done, machine.moved), ([(other, PmdNo(1))].into(), [(other, PmdNo(2))].into()));
    }
}
