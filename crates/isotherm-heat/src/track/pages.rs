//! Every page: reads what is due, and clears as the budgets allow. Now and then it clears the whole process, for pages
//! that nothing else reaches.

use super::empty::Empty;
use super::freed::{Freed, READ_AT_ONCE};
use super::process_clears::{ProcessClears, is_worth_a_stall};
use super::sampled::SampledTracker;
use super::tracker::{Allotment, ClearQuota, Extent, Room, Tracker, Tracking, Turn};
use crate::idle;
use crate::source::{Cleared, ClearedProcess, Layout, SourceResult};
use crate::view::Since;
use crate::{
    Granularity, Mask, Ns, PmdBits, RETOUCH_NS, ReportedTarget, Summary, Tally, Target, Watch, summarize_after,
    summarize_fused,
};
use isotherm_units::PmdNo;

/// A target is known after this time, once all but this part of it had its first check.
pub(super) const KNOWN_AFTER: Ns = 30_000_000_000;
const BEGUN_SHARE: usize = 20;
/// How old the number of resident pages may be.
const RESIDENT_FOR: Ns = 10_000_000_000;
/// The background-scan period until the monitor sets one.
const FIRST_SCAN_PERIOD: Ns = 1_000_000_000;

/// A target monitored as a whole.
#[derive(Debug)]
pub(super) struct PageTracker {
    target: Target,
    /// Accesses that are reported, in addition to what is checked.
    beside: Option<Box<ReportedTarget>>,
    tracking: Tracking,
    process_clears: ProcessClears,
    freed: Freed,
    empty: Empty,
    resident: Resident,
    began: Ns,
}

/// Resident pages, as they were some seconds ago at most: to count them takes 0.2 ms for 10 GiB, and how many are stuck is asked every second.
#[derive(Debug, Default)]
struct Resident {
    pages: u64,
    until: Ns,
}

impl Resident {
    fn at(&mut self, now: Ns, count: impl FnOnce() -> u64) -> u64 {
        if now >= self.until {
            *self = Resident { pages: count(), until: now + RESIDENT_FOR };
        }
        self.pages
    }
}

impl PageTracker {
    pub fn new(now: Ns, tracking: Tracking, beside: Option<Box<ReportedTarget>>) -> PageTracker {
        let watch = Watch { max_slowdown_pct: tracking.sampling.max_slowdown_pct, scan_period_ns: FIRST_SCAN_PERIOD };
        PageTracker {
            target: Target::new(now, watch, tracking.seed),
            beside,
            tracking,
            process_clears: ProcessClears::new(now),
            freed: Freed::new(),
            empty: Empty::default(),
            resident: Resident::default(),
            began: now,
        }
    }

    /// Reads `pmds`. Returns how many were answered, from the front.
    fn read(&mut self, pmds: &[PmdNo], turn: &mut Turn<'_>) -> SourceResult<usize> {
        self.read_each(pmds, turn, |_, _| {})
    }

    /// The same, and reports which ones could be read, and what was found.
    fn read_each(
        &mut self,
        pmds: &[PmdNo],
        turn: &mut Turn<'_>,
        mut is_read: impl FnMut(PmdNo, PmdBits),
    ) -> SourceResult<usize> {
        let target = &mut self.target;
        turn.read(pmds, &mut |at, pmd, bits| {
            if let Some(bits) = bits {
                is_read(pmd, bits);
            }
            match bits {
                Some(PmdBits::Gone) => target.gone(pmd),
                Some(bits) => target.read(at, pmd, bits),
                None => target.postpone(at, pmd),
            }
        })
    }

    /// Reads some of what no read comes to soon, if RSS has fallen.
    fn read_freed(&mut self, turn: &mut Turn<'_>) -> SourceResult<()> {
        let Some(from) = self.freed.next() else { return Ok(()) };
        let unread = self.target.not_cleared_from(from, READ_AT_ONCE);
        let target = &mut self.target;
        let answered = turn.read(&unread, &mut |at, pmd, bits| {
            bits.into_iter().for_each(|bits| target.read_present(at, pmd, bits));
        })?;
        match unread[..answered].last() {
            Some(last) => self.freed.came_to(Some(*last)),
            None if unread.is_empty() => self.freed.came_to(None),
            // The map is busy.
            None => {}
        }
        Ok(())
    }

    /// Clears `pmds`. Huge ranges that were not cleared because of an error are due again shortly: the error may pass.
    fn clear(&mut self, pmds: &[PmdNo], turn: &mut Turn<'_>) -> SourceResult<usize> {
        let (target, pid, now) = (&mut self.target, turn.pid, turn.now);
        let mut cleared = 0;
        let done = turn.pages()?.clear(pid, pmds, &mut |at, pmd, outcome| {
            cleared += 1;
            match outcome {
                Cleared::Except(stuck) => target.cleared(at, pmd, stuck),
                Cleared::Refused => target.refused(at, pmd),
            }
        });
        turn.spent.pmds_cleared += cleared as u64;
        match done {
            Ok(progress) => turn.spent.add(0, progress),
            Err(error) => {
                // In the order of the list, so the missing huge ranges are at its end.
                pmds[cleared..].iter().for_each(|pmd| target.clear_later(now, *pmd));
                return Err(error);
            }
        }
        Ok(pmds.len())
    }

    /// Takes in a clear of the whole process, and sets when the next one may come.
    fn process_cleared(&mut self, cleared: &ClearedProcess) {
        let clear = cleared.clear;
        // Everything that was cleared is touched again, not only the stuck pages.
        let partly = cleared.partly.iter().map(|(pmd, _)| *pmd);
        let reached: Vec<PmdNo> = cleared.pmds.iter().copied().chain(partly).collect();
        let walks = self.target.walks_in(&reached);
        cleared.pmds.iter().for_each(|pmd| self.target.process_cleared(clear.at, *pmd, Mask::ALL));
        cleared.partly.iter().for_each(|(pmd, pages)| self.target.process_cleared(clear.at, *pmd, *pages));
        let cost_ns = walks as f64 * RETOUCH_NS;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds to minutes")]
        let for_budget = (cost_ns * 100.0 / self.tracking.sampling.max_slowdown_pct) as Ns;
        self.process_clears.cleared(cleared, for_budget);
    }
}

impl Tracker for PageTracker {
    fn granularity(&self) -> Granularity {
        Granularity::Page
    }

    fn refit(&mut self, layout: Layout, turn: &mut Turn<'_>) -> SourceResult<()> {
        let fresh = self.target.refit(&layout.pmds);
        let (fresh, mut found_empty) = (self.empty.choose(&fresh), Vec::new());
        let read = self.read_each(&fresh, turn, |pmd, bits| {
            found_empty.extend((bits == PmdBits::Gone).then_some(pmd));
        });
        self.empty.note(found_empty);
        read?;
        if let Some(rss) = layout.rss {
            self.freed.note(rss);
        }
        self.read_freed(turn)
    }

    fn outgrown(&mut self, pmds: usize, room: Room, now: Ns) -> Option<Box<dyn Tracker>> {
        let (all, unchecked) = (self.target.len(), self.target.unchecked());
        let is_known = now.saturating_sub(self.began) >= KNOWN_AFTER && unchecked * BEGUN_SHARE <= all;
        let most = match all {
            0 => room.new,
            _ if is_known => room.grown,
            _ => room.begun,
        };
        (pmds > most).then(|| {
            let sampled = SampledTracker::new(now, self.tracking, self.beside.take());
            Box::new(sampled) as Box<dyn Tracker>
        })
    }

    fn read_due(&mut self, turn: &mut Turn<'_>) -> SourceResult<()> {
        let due = self.target.due_reads(turn.now);
        let target = &mut self.target;
        let read = turn.read(&due, &mut |at, pmd, bits| match bits {
            Some(bits) => target.read_due(at, pmd, bits),
            None => target.postpone(at, pmd),
        });
        read.map(drop)
    }

    fn read_now(&mut self, pmds: &[PmdNo], turn: &mut Turn<'_>) -> SourceResult<Vec<PmdNo>> {
        // Also those without cleared pages, and those of which nothing was present: pages come back that had left.
        let mut read = Vec::new();
        self.read_each(pmds, turn, |pmd, _| read.push(pmd))?;
        read.sort_unstable();
        Ok(read)
    }

    fn next_read(&self) -> Option<Ns> {
        self.target.next_read()
    }

    fn is_cleared(&self) -> bool {
        true
    }

    fn clear_process(&mut self, turn: &mut Turn<'_>) -> SourceResult<()> {
        if !self.process_clears.is_due(turn.now) {
            return Ok(());
        }
        let (stuck, pages) = self.target.stuck();
        // Once more where it may be: the process may have grown since they were counted.
        let is_worth = is_worth_a_stall(pages, || self.resident.at(turn.now, || self.target.resident()))
            && is_worth_a_stall(pages, || self.target.resident());
        if !is_worth {
            return Ok(());
        }
        // Reads everything, not only the stuck huge ranges: accesses that were not read are lost with the bits.
        let all = self.target.all_pmds();
        if self.read(&all, turn)? < all.len() {
            return Ok(());
        }
        let pid = turn.pid;
        let cleared = turn.pages()?.clear_process(pid, &stuck, &all)?;
        turn.spent.held(cleared.clear.stall_ns);
        self.process_cleared(&cleared);
        Ok(())
    }

    fn clear_due(&mut self, quota: ClearQuota, turn: &mut Turn<'_>) -> SourceResult<usize> {
        let now = turn.now;
        let due = self.target.due_clears(now, quota);
        for pmd in &due {
            turn.spent.by_class[self.target.class_of(*pmd) as usize] += 1;
        }
        // Accesses until now would be lost with the bits. A huge range without cleared pages has nothing to lose.
        let (cleared, mut ready): (Vec<_>, Vec<_>) = due.iter().partition(|b| self.target.has_cleared(**b));
        let answered = match self.read(&cleared, turn) {
            Ok(answered) => answered,
            Err(error) => {
                due.iter().for_each(|pmd| self.target.clear_later(now, *pmd));
                return Err(error);
            }
        };
        for pmd in &cleared[answered..] {
            self.target.clear_later(now, *pmd);
        }
        ready.extend(&cleared[..answered]);
        ready.sort_unstable();
        self.clear(&ready, turn)
    }

    fn take_reports(&mut self, turn: &mut Turn<'_>) -> SourceResult<f64> {
        self.beside.as_mut().map_or(Ok(0.0), |target| turn.take_reports(target))
    }

    fn has_reports(&self) -> bool {
        self.beside.is_some()
    }

    fn extent(&self) -> Extent {
        Extent { whole_pmds: self.target.len(), sampled: None }
    }

    fn unchecked(&self) -> usize {
        self.target.unchecked()
    }

    fn allot(&mut self, allotment: Allotment) {
        self.target.set_scan_period(allotment.scan_period_ns);
    }

    fn tally(&self) -> Tally {
        self.target.tally()
    }

    fn summarize(&mut self, now: Ns, max_regions: usize, last: Since<'_>) -> Summary {
        let accessed = self.target.take_accessed();
        let mut sum = match &mut self.beside {
            Some(reported) => summarize_fused(&self.target, reported, now, max_regions, last),
            None => summarize_after(&self.target, now, max_regions, last),
        };
        accessed.add_to(&mut sum.idle_by_mapping, last.mappings);
        idle::limit(&mut sum.idle_by_mapping, max_regions);
        sum
    }

    fn pages(&self) -> Option<&Target> {
        Some(&self.target)
    }
}
