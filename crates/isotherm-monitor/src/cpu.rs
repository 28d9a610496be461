//! The monitor's own CPU time: what may be spent, what it goes into, and what steps have been found to cost.
//!
//! Time and CPU time are arguments: the clock is read by whoever holds the budget. The rules are the module's own:
//!
//! - Everything is taken out of one bucket of `--max-cpu`; what was spent beyond is paid back before more is done.
//! - Clears may use a fifth of it even when the rest has used up all of it, so that a target that is expensive to list (tens of thousands
//!   of mappings) is checked all the same.
//! - What opening the source took beyond the first credit is paid back with half of the budget: it may take ten times as much when nothing is
//!   in the caches yet, and that must not keep the first picture waiting.

use isotherm_heat::track::{CLEAR_BATCH, ClearQuota};
use isotherm_heat::{Bucket, Ns};

/// Seconds' worth of CPU that may be used at once at the start.
const CREDIT_S: f64 = 10.0;
/// Of that, what the opening of the source may use up, and the share of the budget that what it took beyond is paid back with.
const OPENING_CREDIT_S: f64 = 5.0;
const OPENING_PAY_BACK: f64 = 0.5;
/// The share of the budget that clears may always use, and the seconds' worth of it which may be saved up: enough for a batch.
const MIN_FOR_CLEARS: f64 = 0.2;
const MIN_CREDIT_S: f64 = 2.5;
/// The share of the budget that goes into patrol reads, once everything was checked; and the share until then.
const PATROL_SHARE: f64 = 0.3;
const PATROL_SHARE_AT_FIRST: f64 = 0.15;
/// Everything but a few newcomers (one in so many) counts as everything.
const FEW_UNCHECKED: usize = 20;
const MIN_PATROL: Ns = 1_000_000_000;
const MAX_PATROL: Ns = 60_000_000_000;
/// Over how long the cost of listing and snapshots is averaged.
const BOOKED_LATELY: Ns = 10_000_000_000;
/// What reading a block and clearing one are taken to cost before they were measured.
const FIRST_READ_NS: f64 = 1_500.0;
const FIRST_CLEAR_NS: f64 = 35_000.0;
/// A read of so many blocks tells what one costs.
const MIN_SAMPLE: u64 = 64;
/// What the first check of a block costs: a clear and the reads that follow.
const FIRST_CHECK_NS: f64 = 50_000.0;

/// What may be spent, and what was.
#[derive(Debug)]
pub(crate) struct CpuBudget {
    all: Bucket,
    /// What clears may use whatever else was spent.
    for_clears: Bucket,
    seen: Ns,
    /// CPU time of the thread before anything was done here.
    from: Ns,
    /// What opening the source took and is not paid back yet, and when a part of it was paid last.
    opening_debt_ns: f64,
    paid_at: Ns,
    bookkeeping_ns: Ns,
    booked_since: Ns,
    read_ns_per_block: f64,
    clear_ns_per_block: f64,
}

impl CpuBudget {
    /// A budget of so many percent of a core, of which everything that the thread has used since `from` is taken: `cpu` is what it has used
    /// by `now`.
    pub fn new(max_cpu_pct: f64, (from, cpu): (Ns, Ns), now: Ns) -> CpuBudget {
        let mut all = Bucket::new(max_cpu_pct, CREDIT_S, now);
        let opening = cpu.saturating_sub(from) as f64;
        let at_once = opening.min(all.share() * OPENING_CREDIT_S * 1e9);
        all.spend(at_once);
        CpuBudget {
            all,
            for_clears: Bucket::new(max_cpu_pct * MIN_FOR_CLEARS, MIN_CREDIT_S, now),
            seen: cpu,
            from,
            opening_debt_ns: opening - at_once,
            paid_at: now,
            bookkeeping_ns: 0,
            booked_since: now,
            read_ns_per_block: FIRST_READ_NS,
            clear_ns_per_block: FIRST_CLEAR_NS,
        }
    }

    /// The same of a thread that had done other things by `from`.
    pub fn counting_from(&self, max_cpu_pct: f64, from: Ns, now: Ns) -> CpuBudget {
        CpuBudget::new(max_cpu_pct, (from, self.seen), now)
    }

    /// CPU time used, by what the thread has used.
    pub fn used(&self, cpu: Ns) -> Ns {
        cpu.saturating_sub(self.from)
    }

    /// Takes CPU time used since the last call out of the budget. Returns the CPU time so far.
    pub fn charge(&mut self, cpu: Ns) -> Ns {
        self.all.spend(cpu.saturating_sub(self.seen) as f64);
        self.seen = cpu;
        cpu
    }

    /// Takes CPU time of listing and snapshots out of the budget, and notes it as such.
    pub fn charge_bookkeeping(&mut self, cpu: Ns, now: Ns) {
        let before = self.seen;
        self.bookkeeping_ns += self.charge(cpu).saturating_sub(before);
        // Only what was lately counts: the older half is forgotten again and again.
        let lately = now.saturating_sub(self.booked_since);
        if lately > BOOKED_LATELY {
            self.bookkeeping_ns /= 2;
            self.booked_since += lately / 2;
        }
    }

    /// Which share of the budget lately went into listing mappings and making snapshots.
    pub fn bookkeeping_share(&self, now: Ns) -> f64 {
        let granted = now.saturating_sub(self.booked_since).max(BOOKED_LATELY / 4) as f64 * self.all.share();
        self.bookkeeping_ns as f64 / granted
    }

    /// Takes a part of what opening the source took out of the budget, as much as the time since the last call allows.
    pub fn pay_back_opening(&mut self, now: Ns) {
        let passed = now.saturating_sub(std::mem::replace(&mut self.paid_at, now)) as f64;
        let part = (passed * self.all.share() * OPENING_PAY_BACK).min(self.opening_debt_ns);
        self.opening_debt_ns -= part;
        self.all.spend(part);
    }

    /// How many blocks can be cleared now.
    ///
    /// Every batch is read back seven times within a second or so, and each of these passes has a cost of its own, as much as
    /// reading forty blocks: so a small budget is saved up for whole batches.
    pub fn quota(&mut self, now: Ns) -> ClearQuota {
        let tokens = self.all.available_ns(now).max(self.for_clears.available_ns(now));
        let blocks = tokens / self.clear_ns_per_block;
        let batch = (self.all.capacity_ns() / self.clear_ns_per_block / 4.0).min(CLEAR_BATCH as f64);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive and bounded")]
        if blocks < batch.max(1.0) { ClearQuota::Urgent } else { ClearQuota::Blocks(blocks.min(1e6) as usize) }
    }

    /// Notes that clearing so many blocks took so long.
    pub fn cleared(&mut self, blocks: u64, took: Ns) {
        self.for_clears.spend(took as f64);
        if blocks > 0 {
            learn(&mut self.clear_ns_per_block, took, blocks);
        }
    }

    /// Notes that reading so many blocks took so long.
    pub fn read(&mut self, blocks: u64, took: Ns) {
        if blocks >= MIN_SAMPLE {
            learn(&mut self.read_ns_per_block, took, blocks);
        }
    }

    /// The time in which all of so many blocks can be read once, of which some were not checked yet.
    pub fn patrol_ns(&self, blocks: usize, unchecked: usize, now: Ns) -> Ns {
        let for_reads = if unchecked * FEW_UNCHECKED > blocks { PATROL_SHARE_AT_FIRST } else { PATROL_SHARE };
        // What listing and snapshots take is not there for reads.
        let share = self.all.share() * for_reads * (1.0 - self.bookkeeping_share(now).min(0.75));
        let ns = blocks as f64 * self.read_ns_per_block / share.max(1e-6);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to a minute")]
        let patrol = ns.clamp(MIN_PATROL as f64, MAX_PATROL as f64) as Ns;
        patrol
    }

    /// How many blocks can be checked once in `time`.
    pub fn first_checks_in(&self, time: Ns) -> usize {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 300 s / 50 us")]
        let blocks = (time as f64 * self.all.share().min(1.0) / FIRST_CHECK_NS) as usize;
        blocks
    }
}

fn learn(estimate: &mut f64, took: Ns, count: u64) {
    *estimate = *estimate * 0.8 + (took as f64 / count as f64) * 0.2;
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Ns = 1_000_000;
    const S: Ns = 1000 * MS;

    #[test]
    fn what_opening_took_beyond_its_credit_is_paid_back_with_half_of_the_budget() {
        // 1% of a core for 10 s are 100 ms, of which opening may use 50; it took 60 of the 70 on the clock.
        let mut budget = CpuBudget::new(1.0, (10 * MS, 70 * MS), 0);
        assert_eq!((budget.used(70 * MS), budget.opening_debt_ns), (60 * MS, 10e6));
        budget.pay_back_opening(S);
        assert_eq!(budget.opening_debt_ns, 5e6, "1% of a second, halved");
        budget.pay_back_opening(60 * S);
        assert_eq!(budget.opening_debt_ns, 0.0);
    }

    #[test]
    fn clears_have_a_fifth_whatever_the_rest_has_used() {
        let mut budget = CpuBudget::new(1.0, (0, 0), 0);
        assert!(matches!(budget.quota(0), ClearQuota::Blocks(blocks) if blocks > 2000), "100 ms at 35 us");
        budget.charge(S);
        // 0.2% of 2.5 s are 5 ms: 142 blocks.
        assert_eq!(budget.quota(0), ClearQuota::Blocks(142));
        budget.cleared(142, 142 * 35_000);
        assert_eq!(budget.quota(0), ClearQuota::Urgent);
    }

    #[test]
    fn patrols_are_stretched_by_what_bookkeeping_takes() {
        let mut budget = CpuBudget::new(1.0, (0, 0), 0);
        // 10,000 blocks of 1.5 us at 0.3% of a core.
        assert_eq!(budget.patrol_ns(10_000, 0, 0), 5 * S);
        assert_eq!(budget.patrol_ns(10_000, 1000, 0), 10 * S, "many were not checked yet");
        assert_eq!(budget.patrol_ns(10, 0, 0), MIN_PATROL);
        budget.charge_bookkeeping(12_500_000, 2500 * MS);
        assert_eq!(budget.bookkeeping_share(2500 * MS), 0.5);
        assert_eq!(budget.patrol_ns(10_000, 0, 2500 * MS), 10 * S);
        assert_eq!(budget.first_checks_in(300 * S), 60_000);
    }
}
