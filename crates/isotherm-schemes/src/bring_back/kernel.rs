//! Reads pages from swap into the swap cache with `MADV_WILLNEED`.
//!
//! The kernel returns success whatever it has read, and page tables do not change. So cached swap of the machine (`SwapCached`) is read
//! before and after; the kernel adds up its count of each CPU now and then, and a difference is exact to a hundred pages or so.

use crate::action::{Failure, Performed};
use crate::machine::{DryRun, Live, Machine, advise_all, failure_of_advice, ranges_of, timed};
use crate::outcome::Refusal;
use crate::page_out::pages_that;
use isotherm_heat::{Mask, TargetId};
use isotherm_sys::free;
use isotherm_sys::pagemap::PageEntry;
use isotherm_units::{Bytes, PmdNo};

/// The result of reading pages in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadIn {
    /// How it went. Nothing has left.
    pub performed: Performed,
    /// By how much cached swap of the machine has grown meanwhile.
    pub read: Bytes,
}

/// What bringing back needs of a machine.
pub trait BringBackMachine: Machine {
    /// The pages of a huge range of an admitted process that are in swap, or why none can be read in.
    fn swapped_pages(&mut self, process: TargetId, pmd: PmdNo) -> Result<Mask, Refusal>;
    /// Reads in these pages, which [`BringBackMachine::swapped_pages`] has named right before.
    fn read_in(&mut self, process: TargetId, pmd: PmdNo, pages: Mask) -> ReadIn;
}

impl<M: BringBackMachine + ?Sized> BringBackMachine for Box<M> {
    fn swapped_pages(&mut self, process: TargetId, pmd: PmdNo) -> Result<Mask, Refusal> {
        (**self).swapped_pages(process, pmd)
    }

    fn read_in(&mut self, process: TargetId, pmd: PmdNo, pages: Mask) -> ReadIn {
        (**self).read_in(process, pmd, pages)
    }
}

impl BringBackMachine for Live {
    fn swapped_pages(&mut self, process: TargetId, pmd: PmdNo) -> Result<Mask, Refusal> {
        self.check(process)?;
        Ok(pages_that(&self.entries(process, pmd)?, PageEntry::is_swapped))
    }

    fn read_in(&mut self, process: TargetId, pmd: PmdNo, pages: Mask) -> ReadIn {
        let before = free::swap_cached(self.proc.root());
        let performed = timed(|| {
            let member = self.member(process).map_err(Failure::Refused)?;
            advise_all(&ranges_of(pmd, pages), |ranges| member.pidfd.will_need(ranges))
                .map_err(|error| failure_of_advice(&error))?;
            Ok(0)
        });
        let after = free::swap_cached(self.proc.root());
        let read = before.zip(after).map_or(Bytes(0), |(before, after)| Bytes(after.0.saturating_sub(before.0)));
        ReadIn { performed, read }
    }
}

impl BringBackMachine for DryRun {
    fn swapped_pages(&mut self, process: TargetId, pmd: PmdNo) -> Result<Mask, Refusal> {
        self.live.swapped_pages(process, pmd)
    }

    fn read_in(&mut self, _: TargetId, _: PmdNo, _: Mask) -> ReadIn {
        ReadIn { performed: Performed { result: Ok(()), pages: 0, took_ns: 0, cpu_ns: 0 }, read: Bytes(0) }
    }
}
