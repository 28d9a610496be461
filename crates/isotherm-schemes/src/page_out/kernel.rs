//! Pages out, and reads back what has left.
//!
//! `MADV_PAGEOUT` of another process returns the full length whatever it has moved: without swap, for pages that are locked or
//! being written, for pages that others map. So the entries of `pagemap` before and after are compared, and only pages that are
//! in swap now count as moved.

use crate::action::{Failure, Performed};
use crate::machine::{DryRun, Live, Machine, advise_all, failure_of_advice, ranges_of, timed};
use crate::outcome::Refusal;
use isotherm_heat::{Mask, Ns, TargetId};
use isotherm_sys::clock;
use isotherm_sys::pagemap::PageEntry;
use isotherm_units::{PageNo, PmdNo};

/// What of the idle pages of a huge range could leave now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PagesToLeave {
    /// Idle pages that are present.
    pub present: u32,
    /// Those of them that no other process maps and that belong to no file.
    pub private: Mask,
}

/// The result of paging out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagedOut {
    /// How it went. Its `pages` count those that have left, or would.
    pub performed: Performed,
    /// The pages that have left: none in a dry run.
    pub left: Mask,
}

/// What paging out needs of a machine.
pub trait PageOutMachine: Machine {
    /// The time (monotonic), by which what was read is fresh.
    fn now_ns(&self) -> Ns;
    /// What of the idle pages of an admitted process could leave now, or why none of the huge range can.
    fn pages_to_leave(&mut self, process: TargetId, pmd: PmdNo, idle: Mask) -> Result<PagesToLeave, Refusal>;
    /// Pages out these pages, which [`PageOutMachine::pages_to_leave`] has named right before.
    fn page_out(&mut self, process: TargetId, pmd: PmdNo, pages: Mask) -> PagedOut;
}

impl<M: PageOutMachine + ?Sized> PageOutMachine for Box<M> {
    fn now_ns(&self) -> Ns {
        (**self).now_ns()
    }

    fn pages_to_leave(&mut self, process: TargetId, pmd: PmdNo, idle: Mask) -> Result<PagesToLeave, Refusal> {
        (**self).pages_to_leave(process, pmd, idle)
    }

    fn page_out(&mut self, process: TargetId, pmd: PmdNo, pages: Mask) -> PagedOut {
        (**self).page_out(process, pmd, pages)
    }
}

impl Live {
    /// The `pagemap` entries of a huge range.
    pub(crate) fn entries(&self, process: TargetId, pmd: PmdNo) -> Result<Vec<(PageNo, PageEntry)>, Refusal> {
        let member = self.members.get(&process).ok_or(Refusal::NotNamed)?;
        member.pagemap.read(pmd.range()).map_err(|_| Refusal::Gone)
    }

    /// Pages these out, and returns which of them are in swap then.
    fn leave(&mut self, process: TargetId, pmd: PmdNo, pages: Mask) -> Result<Mask, Failure> {
        let member = self.members.get(&process).ok_or(Failure::Refused(Refusal::NotNamed))?;
        let asked = advise_all(&ranges_of(pmd, pages), |ranges| member.pidfd.page_out(ranges));
        let after = self.entries(process, pmd).map_err(Failure::Refused)?;
        let left = pages & pages_that(&after, PageEntry::is_swapped);
        match asked {
            Err(error) if left.is_empty() => Err(failure_of_advice(&error)),
            _ => Ok(left),
        }
    }
}

/// Which pages of a huge range have such entries.
pub(crate) fn pages_that(entries: &[(PageNo, PageEntry)], is_so: impl Fn(PageEntry) -> bool) -> Mask {
    entries.iter().filter(|(_, entry)| is_so(*entry)).map(|(page, _)| page.index_in_pmd()).collect()
}

/// A present page that no other process maps and that belongs to no file.
fn is_private(entry: PageEntry) -> bool {
    entry.is_present() && entry.is_exclusive() && !entry.is_file()
}

impl PageOutMachine for Live {
    fn now_ns(&self) -> Ns {
        clock::monotonic_ns()
    }

    fn pages_to_leave(&mut self, process: TargetId, pmd: PmdNo, idle: Mask) -> Result<PagesToLeave, Refusal> {
        self.check(process)?;
        self.check_must_stay(process, clock::monotonic_ns())?;
        let is_huge = self.member(process)?.pagemap.is_huge(pmd).unwrap_or(None) == Some(true);
        if is_huge && idle != Mask::ALL {
            // It has become one since its pages were read, and to page out a part would split it.
            return Err(Refusal::AlreadyHuge);
        }
        let entries = self.entries(process, pmd)?;
        if !(idle & pages_that(&entries, PageEntry::is_userfault_wp)).is_empty() {
            return Err(Refusal::UserfaultWp);
        }
        let present = (idle & pages_that(&entries, PageEntry::is_present)).count();
        Ok(PagesToLeave { present, private: idle & pages_that(&entries, is_private) })
    }

    fn page_out(&mut self, process: TargetId, pmd: PmdNo, pages: Mask) -> PagedOut {
        let mut left = Mask::NONE;
        let performed = timed(|| {
            left = self.leave(process, pmd, pages)?;
            Ok(count(left))
        });
        PagedOut { performed, left }
    }
}

impl PageOutMachine for DryRun {
    fn now_ns(&self) -> Ns {
        self.live.now_ns()
    }

    fn pages_to_leave(&mut self, process: TargetId, pmd: PmdNo, idle: Mask) -> Result<PagesToLeave, Refusal> {
        if self.done.contains(&(process, pmd)) {
            // It would be out.
            return Err(Refusal::Unmapped);
        }
        self.live.pages_to_leave(process, pmd, idle)
    }

    fn page_out(&mut self, process: TargetId, pmd: PmdNo, pages: Mask) -> PagedOut {
        self.done.insert((process, pmd));
        let performed = Performed { result: Ok(()), pages: count(pages), took_ns: 0, cpu_ns: 0 };
        PagedOut { performed, left: Mask::NONE }
    }
}

fn count(pages: Mask) -> u16 {
    u16::try_from(pages.count()).unwrap_or(u16::MAX)
}
