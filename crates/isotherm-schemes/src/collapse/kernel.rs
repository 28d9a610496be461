//! Collapses huge ranges: how a huge range is checked, `MADV_COLLAPSE`, and what its refusals mean.
//!
//! Every huge range is checked anew (one read of 4 KiB of `pagemap`, a hundredth of the cost of a collapse). The kernel has
//! few errnos and many reasons. So the meaning of a refusal is found out after it, and remembered for the whole mapping
//! if it applies to that.

use super::rules::unfit_mapping;
use crate::action::{Failure, Performed};
use crate::facts::is_anonymous;
use crate::journal::Act;
use crate::machine::{DryRun, Live, Machine};
use crate::outcome::Refusal;
use isotherm_heat::{Mapping, Ns, TargetId};
use isotherm_sys::clock;
use isotherm_sys::madvise::CollapseError;
use isotherm_units::{PAGES_PER_PMD, PmdNo};

/// How long a refusal of a whole mapping is remembered: programs seldom change their advice.
const VERDICT_TTL: Ns = 60_000_000_000;

/// The state of a huge range at this moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PmdCheck {
    /// Pages present, of 512.
    pub present: u16,
    /// Pages of those that no other process maps.
    pub exclusive: u16,
    /// Why it cannot be collapsed, if that is known without a try.
    pub refusal: Option<Refusal>,
}

/// What collapsing needs of a machine.
pub trait CollapseMachine: Machine {
    /// Checks a huge range of an admitted process. With `files`, file-backed and shared memory may be tried as well.
    fn check_pmd(&mut self, process: TargetId, pmd: PmdNo, files: bool) -> Result<PmdCheck, Refusal>;
    /// Collapses a huge range.
    fn collapse(&mut self, process: TargetId, pmd: PmdNo) -> Performed;
}

impl<M: CollapseMachine + ?Sized> CollapseMachine for Box<M> {
    fn check_pmd(&mut self, process: TargetId, pmd: PmdNo, files: bool) -> Result<PmdCheck, Refusal> {
        (**self).check_pmd(process, pmd, files)
    }

    fn collapse(&mut self, process: TargetId, pmd: PmdNo) -> Performed {
        (**self).collapse(process, pmd)
    }
}

impl CollapseMachine for Live {
    fn check_pmd(&mut self, process: TargetId, pmd: PmdNo, files: bool) -> Result<PmdCheck, Refusal> {
        self.check(process)?;
        let now = clock::monotonic_ns();
        self.refresh_mappings(process, now)?;
        let refusing = self.verdict(process, pmd, now).flatten();
        let member = self.member(process)?;
        let guest = member.runs_guest.then_some(Refusal::Guest);
        if let Some(refusal) = guest.or(refusing).or_else(|| unfit_mapping(&member.mappings, pmd, files)) {
            return Ok(PmdCheck { refusal: Some(refusal), ..PmdCheck::default() });
        }
        let pages = member.pagemap.pmd(pmd).map_err(|_| Refusal::Gone)?;
        let huge = member.pagemap.is_huge(pmd).unwrap_or(None) == Some(true);
        let refusal = if huge {
            Some(Refusal::AlreadyHuge)
        } else {
            // One such page is enough for the kernel to refuse, and the kernel would not say why.
            (pages.userfault_wp > 0).then_some(Refusal::UserfaultWp)
        };
        Ok(PmdCheck { present: pages.present, exclusive: pages.exclusive, refusal })
    }

    fn collapse(&mut self, process: TargetId, pmd: PmdNo) -> Performed {
        // This includes the time to find out why it was refused: the target may have waited for that as well.
        self.act(process, (pmd, Act::Collapse), |live| live.try_collapse(process, pmd).map(|()| 0))
    }
}

impl CollapseMachine for DryRun {
    fn check_pmd(&mut self, process: TargetId, pmd: PmdNo, files: bool) -> Result<PmdCheck, Refusal> {
        if self.done.contains(&(process, pmd)) {
            return Ok(PmdCheck { refusal: Some(Refusal::AlreadyHuge), ..PmdCheck::default() });
        }
        if self.ended.contains(&process) {
            let present = self.recorded.get(&(process, pmd)).copied().unwrap_or_default();
            return Ok(PmdCheck { present, exclusive: present, refusal: None });
        }
        let check = self.live.check_pmd(process, pmd, files)?;
        // A real run finds this out by trying.
        let refusal = check.refusal.or_else(|| self.live.why_its_mapping_refuses(process, pmd));
        Ok(PmdCheck { refusal, ..check })
    }

    fn collapse(&mut self, process: TargetId, pmd: PmdNo) -> Performed {
        self.done.insert((process, pmd));
        Performed { result: Ok(()), pages: 0, took_ns: 0, cpu_ns: 0 }
    }
}

impl Live {
    fn try_collapse(&mut self, process: TargetId, pmd: PmdNo) -> Result<(), Failure> {
        let member = self.members.get(&process).ok_or(Failure::Refused(Refusal::NotNamed))?;
        let tried = member.pidfd.collapse(pmd);
        // The kernel also reports success if it has done nothing, for example for a huge range in which a mapping ends.
        let still_small = tried.is_ok() && member.pagemap.is_huge(pmd).unwrap_or(None) == Some(false);
        match tried {
            Ok(()) if still_small => Err(Failure::Refused(Refusal::Ineligible)),
            Ok(()) => Ok(()),
            Err(error) => Err(self.failure(process, pmd, error)),
        }
    }
}

// The meaning of a refusal.
impl Live {
    /// What an earlier refusal showed about the whole mapping of a huge range.
    fn verdict(&self, process: TargetId, pmd: PmdNo, now: Ns) -> Option<Option<Refusal>> {
        let start = self.mapping_of(process, pmd)?.range.start;
        let (verdict, at) = self.members.get(&process)?.verdicts.get(&start)?;
        (now.saturating_sub(*at) < VERDICT_TTL).then_some(*verdict)
    }

    fn failure(&mut self, process: TargetId, pmd: PmdNo, error: CollapseError) -> Failure {
        match error {
            CollapseError::Busy => Failure::Busy,
            CollapseError::NoCharge if self.is_for_userfaultfd(process, pmd) => {
                Failure::Refused(Refusal::UserfaultMissing)
            }
            CollapseError::NoCharge => Failure::NoCharge,
            CollapseError::NoHugePage => Failure::NoHugePage,
            CollapseError::Gone => Failure::Refused(Refusal::Gone),
            CollapseError::Denied => Failure::Refused(Refusal::Denied),
            CollapseError::Refused => self.reason(process, pmd),
            _ => Failure::Refused(Refusal::Error),
        }
    }

    /// The kernel has one errno (EBUSY) for a refused charge and for missing pages whose faults userfaultfd serves. It
    /// is the second if pages are missing and no limit was hit.
    fn is_for_userfaultfd(&self, process: TargetId, pmd: PmdNo) -> bool {
        let Some(member) = self.members.get(&process) else { return false };
        // The zero page counts as missing, and is never exclusive.
        let missing = member.pagemap.pmd(pmd).is_ok_and(|pages| usize::from(pages.exclusive) < PAGES_PER_PMD);
        missing && member.cgroup.no_charge_was_refused()
    }

    /// After a refusal without a reason: finds out whether it concerns the process, the mapping, or only this huge range.
    ///
    /// The flags of a mapping are only in `smaps`. Reading it walks the page tables of the whole process under its mmap
    /// lock: 35 ms with 3 GiB resident, during which a target that maps memory waits. So the kernel is asked about one
    /// page of the mapping instead.
    fn reason(&mut self, process: TargetId, pmd: PmdNo) -> Failure {
        if self.proc.status(process.pid).is_ok_and(|s| s.thp_enabled == Some(false)) {
            return Failure::Refused(Refusal::Disabled);
        }
        // Other huge ranges of the mapping may work, and this one may later.
        self.why_its_mapping_refuses(process, pmd).map_or(Failure::Unexplained, Failure::Refused)
    }

    /// Why the whole mapping of a huge range refuses, if it does. Nothing is done to its memory.
    fn why_its_mapping_refuses(&mut self, process: TargetId, pmd: PmdNo) -> Option<Refusal> {
        let now = clock::monotonic_ns();
        self.verdict(process, pmd, now).unwrap_or_else(|| self.ask_of_mapping(process, pmd, now))
    }

    /// Asks the kernel, and remembers the answer.
    fn ask_of_mapping(&mut self, process: TargetId, pmd: PmdNo, now: Ns) -> Option<Refusal> {
        let mapping = self.mapping_of(process, pmd)?;
        let (start, refusal) = (mapping.range.start, why_a_mapping_refuses(mapping));
        let member = self.members.get_mut(&process)?;
        let refused = member.pidfd.takes_huge_pages(pmd) == Err(CollapseError::Refused);
        member.verdicts.retain(|_, (_, at)| now.saturating_sub(*at) < VERDICT_TTL);
        member.verdicts.insert(start, (refused.then_some(refusal), now));
        refused.then_some(refusal)
    }
}

/// Why a mapping refuses huge pages if nothing else is known. For private memory without a file, the only reason left
/// is the program's advice, once it has present pages and the process allows huge pages.
fn why_a_mapping_refuses(mapping: &Mapping) -> Refusal {
    let is_device = mapping.name.starts_with("/dev/") && !mapping.name.starts_with("/dev/shm/");
    if is_anonymous(mapping) {
        Refusal::NoHugeAdvice
    } else if is_device || mapping.name.starts_with("/anon_hugepage") {
        Refusal::Special
    } else {
        Refusal::Ineligible
    }
}
