//! Splits huge pages, and reads back what has become of them.
//!
//! `MADV_COLD` of another process returns success whatever it has done: for a huge page that several processes map, or that is locked
//! for a moment, it does nothing. So `pagemap` is asked before and after. Pages that the kernel gave back, because they held nothing but
//! zeros, are mapped to the zero page then: present, of no file, and nobody's own.

use crate::action::{Failure, Performed};
use crate::facts::is_anonymous;
use crate::journal::Act;
use crate::machine::{DryRun, Live, Machine, failure_of_advice};
use crate::outcome::Refusal;
use isotherm_heat::TargetId;
use isotherm_sys::clock;
use isotherm_sys::pagemap::Pagemap;
use isotherm_units::{AddrRange, PmdNo};

/// What splitting needs of a machine.
pub trait SplitMachine: Machine {
    /// Why the huge range of an admitted process cannot be split, if so.
    fn check_split(&mut self, process: TargetId, pmd: PmdNo) -> Result<(), Refusal>;
    /// Splits the huge page there. `pages` of the answer counts those that the kernel gave back.
    fn split(&mut self, process: TargetId, pmd: PmdNo) -> Performed;
    /// Pages of a split huge range that hold nothing but zeros and are given back, at this moment.
    fn given_back(&mut self, process: TargetId, pmd: PmdNo) -> u16;
}

impl<M: SplitMachine + ?Sized> SplitMachine for Box<M> {
    fn check_split(&mut self, process: TargetId, pmd: PmdNo) -> Result<(), Refusal> {
        (**self).check_split(process, pmd)
    }

    fn split(&mut self, process: TargetId, pmd: PmdNo) -> Performed {
        (**self).split(process, pmd)
    }

    fn given_back(&mut self, process: TargetId, pmd: PmdNo) -> u16 {
        (**self).given_back(process, pmd)
    }
}

/// Pages of a split huge range that hold nothing but zeros and are given back, at this moment; 0 if it cannot be read.
pub fn given_back_in(pagemap: &Pagemap, pmd: PmdNo) -> u16 {
    pagemap.pmd(pmd).map_or(0, |pages| pages.present.saturating_sub(pages.exclusive))
}

impl Live {
    /// Whether the huge range is one huge page of an admitted process. Not every kernel can tell.
    fn is_huge(&self, process: TargetId, pmd: PmdNo) -> Result<bool, Refusal> {
        let member = self.members.get(&process).ok_or(Refusal::NotNamed)?;
        member.pagemap.is_huge(pmd).map_err(|_| Refusal::Gone)?.ok_or(Refusal::CannotTell)
    }

    fn try_split(&mut self, process: TargetId, pmd: PmdNo) -> Result<u16, Failure> {
        let member = self.members.get(&process).ok_or(Failure::Refused(Refusal::NotNamed))?;
        let one = AddrRange::new(pmd.addr(), pmd.page(1).addr());
        member.pidfd.advise_cold(&[one]).map_err(|error| failure_of_advice(&error))?;
        if self.is_huge(process, pmd).map_err(Failure::Refused)? {
            // Locked for a moment, or something holds a reference to it.
            return Err(Failure::Busy);
        }
        Ok(self.given_back(process, pmd))
    }
}

impl SplitMachine for Live {
    fn check_split(&mut self, process: TargetId, pmd: PmdNo) -> Result<(), Refusal> {
        self.check(process)?;
        self.check_must_stay(process, clock::monotonic_ns())?;
        match self.mapping_of(process, pmd) {
            None => return Err(Refusal::Unmapped),
            Some(mapping) if !is_anonymous(mapping) => return Err(Refusal::File),
            Some(_) => {}
        }
        if !self.is_huge(process, pmd)? {
            return Err(Refusal::NotHuge);
        }
        let pages = self.member(process)?.pagemap.pmd(pmd).map_err(|_| Refusal::Gone)?;
        if pages.exclusive == 0 { Err(Refusal::Shared) } else { Ok(()) }
    }

    fn split(&mut self, process: TargetId, pmd: PmdNo) -> Performed {
        self.act(process, (pmd, Act::Split), |live| live.try_split(process, pmd))
    }

    fn given_back(&mut self, process: TargetId, pmd: PmdNo) -> u16 {
        self.members.get(&process).map_or(0, |member| given_back_in(&member.pagemap, pmd))
    }
}

/// Nothing is split, so no probe shows anything.
impl SplitMachine for DryRun {
    fn check_split(&mut self, process: TargetId, pmd: PmdNo) -> Result<(), Refusal> {
        self.live.check_split(process, pmd)
    }

    fn split(&mut self, _: TargetId, _: PmdNo) -> Performed {
        Performed { result: Ok(()), pages: 0, took_ns: 0, cpu_ns: 0 }
    }

    fn given_back(&mut self, _: TargetId, _: PmdNo) -> u16 {
        0
    }
}
