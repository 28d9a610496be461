//! Reading and clearing: reads when they are due, and batches of clears in between, as far as the budgets allow.

use crate::watched::TargetMonitor;
use crate::{CLEAR_TICK, Monitor};
use isotherm_heat::{Clock, Ns};
use isotherm_units::PmdNo;

/// Between two batches of clears, reads that are due within this time are done. A full batch of one class takes as long, 64
/// huge ranges at 35 us, and reads may be 4 ms early. Due reads are checked at most this often.
const READ_AHEAD: Ns = 2_000_000;

impl<C: Clock> Monitor<C> {
    pub(crate) fn read_due(&mut self) {
        let began = self.charge_cpu();
        let pmds = self.spent.pmds_read;
        for pid in self.alive() {
            let now = self.clock.now();
            self.step(pid, now, TargetMonitor::read_due);
        }
        let read = self.spent.pmds_read - pmds;
        let took = self.charge_cpu().saturating_sub(began);
        self.cpu.read(read, took);
    }

    /// Reads huge ranges of one process now, sorted by address. A caller that acts on idle pages does so right before, since the last
    /// background read may be a minute old. Costs about 1 us a huge range. Returns those that were read, sorted: the target's map may
    /// be busy, and the process may have ended.
    pub fn read_now(&mut self, pid: u32, pmds: &[PmdNo]) -> Vec<PmdNo> {
        let now = self.clock.now();
        let mut read = Vec::new();
        self.step(pid, now, |watched, turn| {
            read = watched.tracker.read_now(pmds, turn)?;
            Ok(())
        });
        self.charge_cpu();
        read
    }

    /// Clears what is due, as far as the budgets allow. Targets take turns, a batch each. Costs O(targets), at most
    /// once more per [`READ_AHEAD`], and the clears and reads themselves. Ends after [`CLEAR_TICK`]; the rest is cleared in the next round. A large budget
    /// lasts for many seconds, in which the caller would not be asked whether to stop, and no new process would be found.
    pub(crate) fn clear_due(&mut self) {
        let mut targets = self.alive();
        targets.retain(|pid| self.watched[pid].tracker.is_cleared());
        let regions_each = self.regions_each();
        self.cpu.begin_clears(self.clock.now());
        // After the one that was served first last time. It may have used up a small budget: to begin at the next place with each tick would
        // serve the same one again and again, in proportion to how many idle ones are before it.
        let first = targets.partition_point(|pid| *pid <= self.served_first);
        targets.rotate_left(first);
        let until = self.clock.now() + CLEAR_TICK;
        let (mut is_first, mut served_last) = (true, self.served_first);
        // Kept here: to ask all targets after each of them would take quadratic time.
        let (mut next_read, mut read_at) = (self.next_read(), self.clock.now());
        while !targets.is_empty() {
            let mut busy = Vec::new();
            for pid in targets {
                if self.clock.now() >= until {
                    self.served_first = served_last;
                    return;
                }
                served_last = pid;
                let (cleared, has_more) = self.clear_turn(pid, regions_each);
                if has_more {
                    busy.push(pid);
                }
                if cleared > 0 && std::mem::take(&mut is_first) {
                    self.served_first = pid;
                }
                // Reads that fall due during many clears must not wait for the last of them.
                let of_target = self.watched.get(&pid).filter(|w| !w.exited).and_then(TargetMonitor::next_read);
                next_read = next_read.min(of_target.unwrap_or(Ns::MAX));
                let now = self.clock.now();
                if next_read.saturating_sub(READ_AHEAD).max(read_at + READ_AHEAD) <= now {
                    self.read_due();
                    (next_read, read_at) = (self.next_read(), now);
                }
            }
            targets = busy;
        }
    }

    /// One target's turn to clear. Returns how many huge ranges were, and whether it may have more to clear at once.
    fn clear_turn(&mut self, pid: u32, regions_each: f64) -> (usize, bool) {
        let now = self.clock.now();
        if self.cpu.is_overspent(now) && self.watched.get(&pid).is_some_and(|w| w.tracker.waits_for_budget(now)) {
            return (0, false);
        }
        let quota = self.cpu.quota(now);
        if quota.has_planned() {
            // It reads all of the process, and may clear millions of pages: no part of what clearing a huge range costs.
            self.step(pid, now, |w, turn| w.tracker.clear_process(turn));
        }
        let began = self.charge_cpu();
        let before = self.spent.by_class;
        let mut cleared = 0;
        self.step(pid, now, |w, turn| {
            let dealt = quota.dealt(w.share_of_checks(regions_each));
            cleared = w.tracker.clear_due(dealt, turn)?;
            Ok(())
        });
        let took = self.charge_cpu().saturating_sub(began);
        let by_class = std::array::from_fn(|class| self.spent.by_class[class] - before[class]);
        self.cpu.cleared(by_class, took);
        (cleared, cleared > 1 && quota.has_planned())
    }

    /// The average number of regions per sampled target.
    fn regions_each(&self) -> f64 {
        let alive = self.watched.values().filter(|w| !w.exited);
        let sampled = alive.filter_map(|w| w.extent().sampled);
        let (all, count) = sampled.fold((0, 0), |(all, count), extent| (all + extent.regions, count + 1));
        all as f64 / f64::from(count.max(1))
    }
}
