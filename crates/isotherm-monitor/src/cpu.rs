//! The monitor's own CPU time: what may be spent, what it is spent on, and the measured cost of each step.
//!
//! Time and CPU time are arguments: the caller reads the clock. These are the rules:
//!
//! - Everything is charged to one bucket of `--max-cpu`. An overdraft is paid back before more is done.
//! - Clears may use a fifth of it even when the rest has used up all of it, so that a target that is expensive to list
//!   (tens of thousands of mappings) is still checked.
//! - The cost of opening the source beyond the first credit is paid back with half of the budget. Opening may take ten
//!   times as long with cold caches, and that must not delay the first picture.

use isotherm_heat::track::{CLEAR_BATCH, ClearQuota};
use isotherm_heat::{Bucket, Ns};

/// Seconds' worth of CPU that may be used at once at the start.
const CREDIT_S: f64 = 10.0;
/// The part of it that opening the source may use up, and the share of the budget that pays back what it took beyond.
const OPENING_CREDIT_S: f64 = 5.0;
const OPENING_PAY_BACK: f64 = 0.5;
/// The share of the budget that clears may always use, and the seconds' worth of it that may be saved up: enough for a
/// batch.
const MIN_FOR_CLEARS: f64 = 0.2;
const MIN_CREDIT_S: f64 = 2.5;
/// The share of the budget for background scans, once everything was checked; and the share until then.
const SCAN_SHARE: f64 = 0.3;
const SCAN_SHARE_AT_FIRST: f64 = 0.15;
/// Everything counts as checked if at most one huge range in this many is unchecked.
const UNCHECKED_THRESHOLD: usize = 20;
const MIN_SCAN_PERIOD: Ns = 1_000_000_000;
const MAX_SCAN_PERIOD: Ns = 60_000_000_000;
/// The time over which the cost of listing and snapshots is averaged.
const BOOKED_LATELY: Ns = 10_000_000_000;
/// The assumed cost of reading a huge range and of clearing one, before they were measured.
const FIRST_READ_NS: f64 = 1_500.0;
const FIRST_CLEAR_NS: f64 = 35_000.0;
/// A read of at least this many huge ranges measures the cost of one.
const MIN_SAMPLE: u64 = 64;
/// What the first check of a huge range costs: a clear and the reads that follow.
const FIRST_CHECK_NS: f64 = 50_000.0;

/// The budget, and what was spent.
#[derive(Debug)]
pub(crate) struct CpuBudget {
    all: Bucket,
    /// What clears may use, whatever else was spent.
    for_clears: Bucket,
    seen: Ns,
    /// CPU time of the thread before anything was done here.
    from: Ns,
    /// The part of the opening cost that is not paid back yet, and when a part was last paid.
    opening_debt_ns: f64,
    paid_at: Ns,
    bookkeeping_ns: Ns,
    booked_since: Ns,
    read_ns_per_pmd: f64,
    clear_ns_per_pmd: f64,
}

impl CpuBudget {
    /// A budget of `max_cpu_pct` percent of a core. All that the thread has used since `from` is charged to it; `cpu`
    /// is what it has used by `now`.
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
            read_ns_per_pmd: FIRST_READ_NS,
            clear_ns_per_pmd: FIRST_CLEAR_NS,
        }
    }

    /// The same for a thread that did other things before `from`.
    pub fn counting_from(&self, max_cpu_pct: f64, from: Ns, now: Ns) -> CpuBudget {
        CpuBudget::new(max_cpu_pct, (from, self.seen), now)
    }

    /// CPU time used so far, from the CPU time of the thread.
    pub fn used(&self, cpu: Ns) -> Ns {
        cpu.saturating_sub(self.from)
    }

    /// Charges the CPU time used since the last call to the budget. Returns the CPU time so far.
    pub fn charge(&mut self, cpu: Ns) -> Ns {
        self.all.spend(cpu.saturating_sub(self.seen) as f64);
        self.seen = cpu;
        cpu
    }

    /// Charges CPU time of listing and snapshots to the budget, and records it as such.
    pub fn charge_bookkeeping(&mut self, cpu: Ns, now: Ns) {
        let before = self.seen;
        self.bookkeeping_ns += self.charge(cpu).saturating_sub(before);
        // Only recent time counts: the older half is dropped again and again.
        let lately = now.saturating_sub(self.booked_since);
        if lately > BOOKED_LATELY {
            self.bookkeeping_ns /= 2;
            self.booked_since += lately / 2;
        }
    }

    /// The recent share of the budget that went into listing mappings and making snapshots.
    pub fn bookkeeping_share(&self, now: Ns) -> f64 {
        let granted = now.saturating_sub(self.booked_since).max(BOOKED_LATELY / 4) as f64 * self.all.share();
        self.bookkeeping_ns as f64 / granted
    }

    /// Charges a part of the opening cost to the budget, as much as the time since the last call allows.
    pub fn pay_back_opening(&mut self, now: Ns) {
        let passed = now.saturating_sub(std::mem::replace(&mut self.paid_at, now)) as f64;
        let part = (passed * self.all.share() * OPENING_PAY_BACK).min(self.opening_debt_ns);
        self.opening_debt_ns -= part;
        self.all.spend(part);
    }

    /// How many huge ranges can be cleared now.
    ///
    /// Every batch is read back seven times within about a second, and each of these passes costs as much as reading
    /// forty huge ranges. So a small budget is saved up for whole batches.
    pub fn quota(&mut self, now: Ns) -> ClearQuota {
        let tokens = self.all.available_ns(now).max(self.for_clears.available_ns(now));
        let pmds = tokens / self.clear_ns_per_pmd;
        let batch = (self.all.capacity_ns() / self.clear_ns_per_pmd / 4.0).min(CLEAR_BATCH as f64);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive and bounded")]
        if pmds < batch.max(1.0) { ClearQuota::Urgent } else { ClearQuota::Pmds(pmds.min(1e6) as usize) }
    }

    /// Records that clearing `pmds` took this long.
    pub fn cleared(&mut self, pmds: u64, took: Ns) {
        self.for_clears.spend(took as f64);
        if pmds > 0 {
            learn(&mut self.clear_ns_per_pmd, took, pmds);
        }
    }

    /// Records that reading `pmds` took this long.
    pub fn read(&mut self, pmds: u64, took: Ns) {
        if pmds >= MIN_SAMPLE {
            learn(&mut self.read_ns_per_pmd, took, pmds);
        }
    }

    /// The time in which all `pmds` can be read once, of which `unchecked` were not checked yet.
    pub fn scan_period_ns(&self, pmds: usize, unchecked: usize, now: Ns) -> Ns {
        let for_reads = if unchecked * UNCHECKED_THRESHOLD > pmds { SCAN_SHARE_AT_FIRST } else { SCAN_SHARE };
        // CPU time for listing and snapshots is not available for reads.
        let share = self.all.share() * for_reads * (1.0 - self.bookkeeping_share(now).min(0.75));
        let ns = pmds as f64 * self.read_ns_per_pmd / share.max(1e-6);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to a minute")]
        let scan_period = ns.clamp(MIN_SCAN_PERIOD as f64, MAX_SCAN_PERIOD as f64) as Ns;
        scan_period
    }

    /// How many huge ranges can be checked once in `time`.
    pub fn first_checks_in(&self, time: Ns) -> usize {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 300 s / 50 us")]
        let pmds = (time as f64 * self.all.share().min(1.0) / FIRST_CHECK_NS) as usize;
        pmds
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
        assert!(matches!(budget.quota(0), ClearQuota::Pmds(pmds) if pmds > 2000), "100 ms at 35 us");
        budget.charge(S);
        // 0.2% of 2.5 s are 5 ms: 142 huge ranges.
        assert_eq!(budget.quota(0), ClearQuota::Pmds(142));
        budget.cleared(142, 142 * 35_000);
        assert_eq!(budget.quota(0), ClearQuota::Urgent);
    }

    #[test]
    fn patrols_are_stretched_by_what_bookkeeping_takes() {
        let mut budget = CpuBudget::new(1.0, (0, 0), 0);
        // 10,000 huge ranges of 1.5 us at 0.3% of a core.
        assert_eq!(budget.scan_period_ns(10_000, 0, 0), 5 * S);
        assert_eq!(budget.scan_period_ns(10_000, 1000, 0), 10 * S, "many were not checked yet");
        assert_eq!(budget.scan_period_ns(10, 0, 0), MIN_SCAN_PERIOD);
        budget.charge_bookkeeping(12_500_000, 2500 * MS);
        assert_eq!(budget.bookkeeping_share(2500 * MS), 0.5);
        assert_eq!(budget.scan_period_ns(10_000, 0, 2500 * MS), 10 * S);
        assert_eq!(budget.first_checks_in(300 * S), 60_000);
    }
}
