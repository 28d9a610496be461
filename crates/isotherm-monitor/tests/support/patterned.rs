//! A source whose pages are accessed by a rule, and on whose clock reads and clears take as much CPU time as on a machine.

use crate::costing::Costing;
use crate::support::nothing_cleared;
use isotherm_heat::source::{BitsSink, Cleared, ClearedProcess, ClearedSink, PageSource, Progress, SourceResult};
use isotherm_heat::{Clock, Mask, Ns, PmdBits};
use isotherm_units::PmdNo;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// What reads and clears take in quiet: to start one, and each huge range.
const START_READ: Ns = 25_000;
const READ: Ns = 700;
const CLEAR: Ns = 35_000;

/// Pages of a huge range that were accessed between two moments: of a process, a huge range, after the first, until the second.
pub type Accessed = Box<dyn Fn(u32, PmdNo, Ns, Ns) -> Mask>;

/// What was done with a huge range.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    /// Clears so far.
    pub clears: u32,
    /// When it was cleared last.
    pub cleared: Ns,
    /// When it was read last.
    pub read: Ns,
    /// The longest time between two reads, from the first clear on.
    pub longest_unread: Ns,
}

/// By process and huge range.
pub type Log = Rc<RefCell<BTreeMap<(u32, PmdNo), Done>>>;

/// The source.
pub struct Patterned {
    pub clock: Costing,
    pub accessed: Accessed,
    /// From when on a huge range is one huge page.
    pub huge_from: Box<dyn Fn(PmdNo) -> Ns>,
    /// What was done, for the test to see.
    pub log: Log,
}

impl Patterned {
    /// Of small pages.
    pub fn of(clock: &Costing, accessed: Accessed) -> Patterned {
        Patterned { clock: clock.clone(), accessed, huge_from: Box::new(|_| Ns::MAX), log: Log::default() }
    }
}

/// All pages of the huge range, where it is accessed at moments that are so far apart and begin with `phase`.
pub fn at_intervals(every: Ns, phase: Ns, since: Ns, now: Ns) -> Mask {
    let accesses = |until: Ns| (until + phase) / every;
    if accesses(now) > accesses(since) { Mask::ALL } else { Mask::NONE }
}

impl PageSource for Patterned {
    fn read(&mut self, pid: u32, pmds: &[PmdNo], sink: &mut BitsSink<'_>) -> SourceResult<Progress> {
        self.clock.spend(START_READ);
        for pmd in pmds {
            self.clock.spend(READ);
            let now = self.clock.now();
            let mut log = self.log.borrow_mut();
            let done = log.entry((pid, *pmd)).or_default();
            if done.clears > 0 {
                done.longest_unread = done.longest_unread.max(now - done.read);
            }
            done.read = now;
            let huge_from = (self.huge_from)(*pmd);
            // A collapse sets the bit of the huge page.
            let is_new = done.clears == 0 || huge_from <= now && done.cleared < huge_from;
            let young = if is_new { Mask::ALL } else { (self.accessed)(pid, *pmd, done.cleared, now) };
            drop(log);
            let bits = match huge_from <= now {
                true => PmdBits::Huge { young: !young.is_empty() },
                false => PmdBits::Pages { young, present: Mask::ALL },
            };
            sink(now, *pmd, Some(bits));
        }
        Ok(Progress { answered: pmds.len(), ..Progress::default() })
    }

    fn clear(&mut self, pid: u32, pmds: &[PmdNo], sink: &mut ClearedSink<'_>) -> SourceResult<Progress> {
        for pmd in pmds {
            self.clock.spend(CLEAR);
            let now = self.clock.now();
            let mut log = self.log.borrow_mut();
            let done = log.entry((pid, *pmd)).or_default();
            (done.clears, done.cleared) = (done.clears + 1, now);
            drop(log);
            sink(now, *pmd, Cleared::Except(Mask::NONE));
        }
        Ok(Progress { answered: pmds.len(), ..Progress::default() })
    }

    fn clear_process(&mut self, _: u32, _: &[PmdNo], _: &[PmdNo]) -> SourceResult<ClearedProcess> {
        Ok(nothing_cleared(self.clock.now()))
    }
}
