//! What one huge range shows of those around it: where one has cooled down or was found accessed, most probably they have been, too.
//!
//! The background scan comes to some range of any 64 MiB soon (`moments::scan_turn`). Once it has found one that was idle and is not, the ranges
//! around it are read at once, and those around them if they were accessed as well. So a span of any size is found in a part of the time that a
//! scan takes. Where accesses are at random, ranges are found all the time, and those around them are not: such reads are limited to a part
//! of those of the scan.

use super::{Entry, MANY, Target};
use crate::moment::SOONEST;
use crate::pmd::{Flags, Ns};
use isotherm_units::PmdNo;
use std::ops::Range;

/// Huge ranges on each side: 64 MiB.
const AROUND: u64 = 32;
/// But each is checked only so often: memory that is in use in turns cools down all the time.
const BETWEEN_COOLED: Ns = 4_000_000_000;
/// Reads of the background scan for each read before its turn.
const SCANNED_FOR_EACH: u32 = 4;
/// Reads before their turn that can be saved up: of 512 MiB.
const MAX_AHEAD: u32 = 256;
const MAX_SCANNED: u32 = MAX_AHEAD * SCANNED_FOR_EACH;

/// How many huge ranges may be read before the background scan comes to them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ahead {
    scanned: u32,
}

impl Ahead {
    pub fn new() -> Ahead {
        Ahead { scanned: MAX_SCANNED }
    }

    /// Takes in a read by the background scan.
    pub fn earn(&mut self) {
        self.scanned = (self.scanned + 1).min(MAX_SCANNED);
    }

    fn left(self) -> usize {
        (self.scanned / SCANNED_FOR_EACH) as usize
    }

    fn spend(&mut self) {
        self.scanned = self.scanned.saturating_sub(SCANNED_FOR_EACH);
    }
}

fn around(pmd: PmdNo) -> Range<PmdNo> {
    PmdNo(pmd.0.saturating_sub(AROUND))..PmdNo(pmd.0 + AROUND + 1)
}

impl Target {
    /// `pmd` was idle and is not. What the background scan does not come to soon around it is read at once.
    pub(super) fn read_around(&mut self, now: Ns, pmd: PmdNo) {
        // What is about to be read is not worth a pass.
        let soon = now + self.scan_period_ns / 16;
        // Nor is what has nothing cleared: it was found accessed already.
        let is_late = |(_, entry): &(PmdNo, &Entry)| entry.timing.next_read() > soon && entry.heat.has_cleared();
        let late = self.pmds.range(around(pmd)).filter(is_late).map(|(pmd, _)| pmd);
        let late: Vec<PmdNo> = late.take(self.ahead.left()).collect();
        for pmd in late {
            let Some(entry) = self.pmds.get_mut(pmd) else { continue };
            self.ahead.spend();
            self.reads.push(entry.timing.plan_read(now.max(SOONEST)), pmd);
        }
    }

    /// Much of `pmd` has cooled down. What is hot around it is checked at once.
    pub(super) fn check_around_cooled(&mut self, now: Ns, pmd: PmdNo) {
        let is_hot = |(of, entry): &(PmdNo, &Entry)| {
            let t = &entry.timing;
            let waits = t.rank().is_some() || t.is(Flags::URGENT | Flags::UNCLEARABLE | Flags::STUCK);
            // What is not cleared of `pmd` itself was accessed since its clear.
            *of != pmd && !waits && entry.heat.has_uncleared() && entry.heat.hot() >= MANY
        };
        let hot: Vec<PmdNo> = self.pmds.range(around(pmd)).filter(is_hot).map(|(pmd, _)| pmd).collect();
        hot.into_iter().for_each(|pmd| self.check_after_cooling(now, pmd));
    }

    /// Checks a hot range of which a neighbour has cooled down.
    fn check_after_cooling(&mut self, now: Ns, pmd: PmdNo) {
        let Some(entry) = self.pmds.get_mut(pmd) else { return };
        let (t, at) = (&mut entry.timing, entry.heat.cleared_at() + BETWEEN_COOLED);
        if at <= now {
            t.flags.insert(Flags::URGENT);
            self.urgent.push((t.plan_clear(now.max(SOONEST), true), pmd));
        } else if t.next_clear() == 0 || t.next_clear() > at {
            self.routine.push((t.plan_clear(at, true), pmd));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mask, PmdBits, Watch};

    const S: Ns = 1_000_000_000;
    const PERIOD: Ns = 16 * S;

    /// All of it idle, and known to be.
    fn idle_target(pmds: u64) -> Target {
        let mut target = Target::new(0, Watch { max_slowdown_pct: 1000.0, scan_period_ns: PERIOD }, 7);
        for pmd in target.refit(&(0..pmds).map(PmdNo).collect::<Vec<_>>()) {
            target.read(0, pmd, PmdBits::Pages { young: Mask::ALL, present: Mask::ALL });
            target.cleared(0, pmd, Mask::NONE);
        }
        read_for(&mut target, 0..4 * PERIOD, |_| Mask::NONE);
        target
    }

    /// Reads what is due each 10 ms. Returns each read and its time.
    fn read_for(target: &mut Target, time: Range<Ns>, young: impl Fn(PmdNo) -> Mask) -> Vec<(Ns, PmdNo)> {
        let mut reads = Vec::new();
        for now in time.step_by(10_000_000) {
            for pmd in target.due_reads(now) {
                target.read(now, pmd, PmdBits::Pages { young: young(pmd), present: Mask::ALL });
                reads.push((now, pmd));
            }
        }
        reads
    }

    #[test]
    fn idle_memory_is_read_once_a_period_and_neighbours_at_different_times() {
        let mut target = idle_target(4096);
        let from = 4 * PERIOD;
        let reads = read_for(&mut target, from..from + 4 * PERIOD, |_| Mask::NONE);
        let each = reads.len() as f64 / 4096.0;
        assert!((3.9..=4.1).contains(&each), "{each} reads of each in four periods");
        for first in (0..4096).step_by(32) {
            let mut at: Vec<Ns> =
                reads.iter().filter(|(_, pmd)| (first..first + 32).contains(&pmd.0)).map(|(at, _)| *at).collect();
            at.push(from + 4 * PERIOD);
            let gap = at.windows(2).map(|two| two[1] - two[0]).max();
            assert!(gap <= Some(PERIOD / 4), "64 MiB from {first} on are not read for {gap:?}");
        }
    }

    #[test]
    fn a_span_of_any_size_that_turns_hot_is_found_in_a_part_of_a_scan() {
        for (hot, turns) in [(640..672, 0), (640..672, 3 * S), (1000..1256, 7 * S), (17..49, 13 * S)] {
            let mut target = idle_target(4096);
            let from = 4 * PERIOD + turns;
            read_for(&mut target, 4 * PERIOD..from, |_| Mask::NONE);
            let is_hot = |pmd: PmdNo| if hot.contains(&pmd.0) { Mask::ALL } else { Mask::NONE };
            let reads = read_for(&mut target, from..from + PERIOD * 3 / 10, is_hot);
            let found = hot.clone().filter(|pmd| reads.iter().any(|(_, read)| read.0 == *pmd)).count() as u64;
            assert_eq!(found, hot.end - hot.start, "{hot:?}");
        }
    }

    #[test]
    fn random_accesses_all_over_add_a_quarter_to_the_reads() {
        let mut target = idle_target(4096);
        let from = 4 * PERIOD;
        // Some pages of each range are accessed all the time, and it is cleared again when it should be.
        let (mut scanned, mut cleared) = (0, 0);
        for second in 0..64 {
            let now = from + second * S;
            let young = |pmd: PmdNo| if pmd.0 % 16 == second % 16 { (0..16).collect() } else { Mask::NONE };
            scanned += read_for(&mut target, now..now + S, young).len();
            let due = target.due_clears(now + S, crate::track::ClearQuota::each(64));
            cleared += due.len();
            due.into_iter().for_each(|pmd| target.cleared(now + S, pmd, Mask::NONE));
        }
        // Ten reads follow a clear until it is the scan's turn again.
        let by_scan = scanned.saturating_sub(10 * cleared) as f64 / 4096.0;
        assert!(by_scan <= 5.5, "{by_scan} reads of each in four periods, {cleared} clears");
    }
}
