//! The monitor's own CPU time: what may be spent, what it is spent on, and the measured cost of each step.
//!
//! Time and CPU time are arguments: the caller reads the clock. These are the rules:
//!
//! - Everything is charged to one budget of `--max-cpu`: opening the source, listing, reads, clears, snapshots, what a command does with
//!   these, and waking up. What was overspent is paid back before more is done.
//! - Clears of each class (unexpected accesses, first checks, routine checks) have a share of it even then, so that none
//!   of them starves because of the others. It is a share of what bookkeeping leaves: all that is no check and no scan.
//! - Background scans and listings are stretched until they take no more than their share. On a busy machine everything
//!   takes more CPU time, and less is done.
//! - The first credit is paid back between 12 and 55 s, with three to six tenths of the budget. Checks and scans are planned with the rest, first
//!   checks with seven tenths at least. After an expensive opening it takes as much longer as that is paid back. With a whole budget checks and scans
//!   would take what bookkeeping leaves, and nothing would be paid back. Before that the first picture counts: where
//!   clears take twice as long as usual, 4 GiB have half of their first checks to come when the credit is used up.
//! - The cost of opening the source beyond a part of the first credit is paid back with half of the budget. Opening may
//!   take ten times as long with cold caches, and that must not delay the first picture.

use isotherm_heat::track::ClearQuota;
use isotherm_heat::{Class, Ns, Shares};

/// Seconds' worth of CPU that may be used at once at the start.
const CREDIT_S: f64 = 12.0;
/// The part of it that opening the source may use up, and the share of the budget that pays back what it took beyond.
const OPENING_CREDIT_S: f64 = 6.0;
const OPENING_PAY_BACK: f64 = 0.5;
/// The shares of the budget that unexpected accesses, first checks and routine checks have in any case.
const SHARES: [f64; 3] = [0.15, 0.3, 0.05];
/// Seconds' worth of the budget that are saved up before a batch of clears.
const SAVED_UP_S: f64 = 0.8;
/// The share of the budget that random checks of regions may take where the interval between them is tuned. Boundaries
/// between regions need as many checks again.
const RANDOM_SHARE: f64 = 0.5;
/// Reads that follow a clear. Their cost is a part of a check, and is charged to its class in advance.
const READS_OF_A_CHECK: f64 = 8.0;
/// Bookkeeping lessens what checks and reads have by this part at most, whatever it takes; and by this one while the credit is paid back. With
/// three quarters then, too, 3% too much was spent in the first minute where snapshots take six tenths of the budget.
const MAX_WITHHELD: f64 = 0.75;
const MAX_WITHHELD_IN_DEBT: f64 = 0.85;
/// The share for listing processes and mappings, and in the first minute while much waits for its first check. A listing of 14 GiB takes 1 ms,
/// so one a second was a tenth of what these checks had. New memory is found after 2.5 s there then.
const LISTING_SHARE: f64 = 0.15;
const LISTING_SHARE_AT_FIRST: f64 = 0.04;
const AT_FIRST: Ns = 60_000_000_000;
/// The longest time between two listings: new processes and memory are found within it.
pub(crate) const MAX_LISTING_PERIOD: Ns = 12_000_000_000;
/// The share of the budget for background scans, once everything was checked and little is checked for the first time; and the share until
/// then. With those above, it is more than an overspent budget earns: then scans are stretched.
const SCAN_SHARE: f64 = 0.4;
const SCAN_SHARE_AT_FIRST: f64 = 0.1;
/// Scans are stretched by so many times the debt, in credits. A debt that grows on takes all of the scans: with 1, a third of them was left
/// when the first minute was over, and 4% too much was spent.
const STRETCH: f64 = 4.0;
/// Everything counts as checked if at most one huge range in this many is unchecked.
const UNCHECKED_THRESHOLD: usize = 20;
/// Of 64 MiB that turn hot, a quarter of this shows it. With 1 s, reads took a fourteenth of what a busy server of 2 GiB has for checks.
const MIN_SCAN_PERIOD: Ns = 2_000_000_000;
const MAX_SCAN_PERIOD: Ns = 60_000_000_000;
/// The time over which the cost of bookkeeping is averaged.
const BOOKED_LATELY: Ns = 10_000_000_000;
/// The assumed cost of reading a huge range and of clearing one, before they were measured.
const FIRST_READ_NS: f64 = 1_500.0;
const FIRST_CLEAR_NS: f64 = 35_000.0;
/// A read of at least this many huge ranges measures the cost of one.
const MIN_SAMPLE: u64 = 64;
/// Starting a read costs as much as reading so many huge ranges. Of a scan it is a small part, and of the reads of a check a third.
const STARTING_PMDS: f64 = 40.0;
/// A read of so many huge ranges counts half of what was known of the cost of a scan before.
const HALF_KNOWN_PMDS: f64 = 4096.0;
/// One read counts with so many times the known cost at most: the machine may have stood still meanwhile.
const MAX_COST_RATIO: f64 = 2.0;
/// What the first check of a huge range costs: a clear and the reads that follow.
const FIRST_CHECK_NS: f64 = 50_000.0;

/// The budget, and what was spent.
#[derive(Debug)]
pub(crate) struct CpuBudget {
    shares: Shares,
    /// Many huge ranges wait for their first check.
    first_wait: bool,
    /// The classes that have saved up enough for a batch, in their order.
    saved_up: [bool; 3],
    seen: Ns,
    /// CPU time of the thread before anything was done here.
    from: Ns,
    /// When the budget began.
    began: Ns,
    /// The part of the opening cost that is not paid back yet, and when a part was last paid.
    opening_debt_ns: f64,
    paid_at: Ns,
    bookkeeping_ns: Ns,
    waking_ns: Ns,
    booked_since: Ns,
    /// In a read of a check, which is short.
    read_ns_per_pmd: f64,
    /// In a background scan.
    scan_ns_per_pmd: f64,
    clear_ns_per_pmd: f64,
}

impl CpuBudget {
    /// A budget of `max_cpu_pct` percent of a core. All that the thread has used since `from` is charged to it; `cpu`
    /// is what it has used by `now`.
    pub fn new(max_cpu_pct: f64, (from, cpu): (Ns, Ns), now: Ns) -> CpuBudget {
        let shares = Shares::new(max_cpu_pct, CREDIT_S, SHARES, now);
        let opening = cpu.saturating_sub(from) as f64;
        let at_once = opening.min(shares.share() * OPENING_CREDIT_S * 1e9);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive; a cast saturates")]
        let pays_opening_for = ((opening - at_once) / (shares.share() * OPENING_PAY_BACK)) as Ns;
        let mut shares = shares.paying_back_together(pays_opening_for);
        shares.spend(at_once);
        CpuBudget {
            shares,
            first_wait: true,
            saved_up: [false; 3],
            seen: cpu,
            from,
            began: now,
            opening_debt_ns: opening - at_once,
            paid_at: now,
            bookkeeping_ns: 0,
            waking_ns: 0,
            booked_since: now,
            read_ns_per_pmd: FIRST_READ_NS,
            scan_ns_per_pmd: FIRST_READ_NS,
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
        self.shares.spend(cpu.saturating_sub(self.seen) as f64);
        self.seen = cpu;
        cpu
    }

    /// Charges CPU time of listing, and of snapshots and what is done with them, to the budget, and records it as such.
    pub fn charge_bookkeeping(&mut self, cpu: Ns, now: Ns) {
        let before = self.seen;
        let took = self.charge(cpu).saturating_sub(before);
        self.bookkeeping_ns += took;
        self.withhold(took, now);
    }

    /// The same of waiting and waking up.
    pub fn charge_waking(&mut self, cpu: Ns, now: Ns) {
        let before = self.seen;
        let took = self.charge(cpu).saturating_sub(before);
        self.waking_ns += took;
        self.withhold(took, now);
    }

    /// Takes the parts of the classes from their shares: these are of what is left.
    fn withhold(&mut self, took: Ns, now: Ns) {
        // Otherwise shares, scans and snapshots could be more than the whole.
        let counted = took as f64 * (max_withheld(self.shares.rate(now)) / self.withheld_share(now)).min(1.0);
        for (class, share) in Class::ALL.into_iter().zip(SHARES) {
            self.shares.plan(class, counted * share);
        }
        // Only recent time counts: the older half is dropped again and again.
        let lately = now.saturating_sub(self.booked_since);
        if lately > BOOKED_LATELY {
            self.bookkeeping_ns /= 2;
            self.waking_ns /= 2;
            self.booked_since += lately / 2;
        }
    }

    /// The recent share of the budget that went into listing mappings, and into snapshots and what is done with them.
    pub fn bookkeeping_share(&self, now: Ns) -> f64 {
        self.share_of(self.bookkeeping_ns, now)
    }

    /// The recent share of the budget that went into neither checks nor scans.
    fn withheld_share(&self, now: Ns) -> f64 {
        self.share_of(self.bookkeeping_ns + self.waking_ns, now)
    }

    fn share_of(&self, spent: Ns, now: Ns) -> f64 {
        let granted = now.saturating_sub(self.booked_since).max(BOOKED_LATELY / 4) as f64 * self.shares.share();
        spent as f64 / granted
    }

    /// The part of a core that is left for checks and scans: what bookkeeping leaves of the rate at which the budget fills.
    fn left(&mut self, now: Ns) -> f64 {
        let rate = self.shares.rate(now);
        self.shares.share() * (rate - self.withheld_share(now).min(max_withheld(rate)))
    }

    /// Charges a part of the opening cost to the budget, as much as the time since the last call allows.
    pub fn pay_back_opening(&mut self, now: Ns) {
        let passed = now.saturating_sub(std::mem::replace(&mut self.paid_at, now)) as f64;
        let part = (passed * self.shares.share() * OPENING_PAY_BACK).min(self.opening_debt_ns);
        self.opening_debt_ns -= part;
        self.shares.spend(part);
    }

    /// How many huge ranges can be cleared now.
    ///
    /// Every batch is read back eight times within about a second, and each of these passes costs as much as reading
    /// forty huge ranges. So a budget is saved up for [`SAVED_UP_S`], and for unexpected accesses only their share of it.
    pub fn quota(&mut self, now: Ns) -> ClearQuota {
        let [urgent, first, routine] = Class::ALL.map(|class| {
            let tokens = match self.saved_up[class as usize] {
                true if self.has_own_only(class) => self.shares.own_ns(class, now),
                true => self.shares.available_ns(class, now, 0.0),
                false => 0.0,
            };
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive and bounded")]
            let quota = (tokens / self.clear_ns_per_pmd).min(1e6) as usize;
            // One at least, with any of the budget left: a huge range may cost more than can be saved up, or seem to.
            if tokens > 0.0 { quota.max(1) } else { quota }
        });
        ClearQuota { urgent, first, routine }
    }

    /// Finds out for which classes enough was saved up at `now`. They may use up what there is.
    pub fn begin_clears(&mut self, now: Ns) {
        self.saved_up = Class::ALL.map(|class| self.has_saved_up(class, now));
    }

    /// As long as many huge ranges were never checked, no more than its share is spent on checking others again.
    fn has_own_only(&self, class: Class) -> bool {
        class == Class::Routine && self.first_wait
    }

    /// Notes that `unchecked` of all `pmds` were not checked yet.
    pub fn note_unchecked(&mut self, pmds: usize, unchecked: usize) {
        self.first_wait = unchecked * UNCHECKED_THRESHOLD > pmds;
    }

    fn has_saved_up(&mut self, class: Class, now: Ns) -> bool {
        let share = if class == Class::Urgent { SHARES[0] } else { 1.0 };
        let saved_up = self.shares.share() * share * SAVED_UP_S * 1e9;
        let (whole, own) = (self.shares.whole_ns(now), self.shares.own_ns(class, now));
        let own_capacity = self.shares.own_capacity_ns(class);
        // While the budget is overspent, a class waits for half of what it can save up of its share.
        if whole < 0.0 || self.has_own_only(class) {
            own >= own_capacity / 2.0
        } else {
            // Or for all of that. Where unexpected accesses take what comes in, the whole is never saved up.
            whole >= saved_up || own >= own_capacity
        }
    }

    /// Records that clearing took this long, of so many huge ranges of each class.
    pub fn cleared(&mut self, by_class: [u64; 3], took: Ns) {
        let pmds: u64 = by_class.iter().sum();
        if pmds == 0 {
            return;
        }
        learn(&mut self.clear_ns_per_pmd, took, pmds);
        let each = took as f64 / pmds as f64 + self.reads_of_a_check_ns();
        for (class, pmds_of_class) in Class::ALL.into_iter().zip(by_class) {
            self.shares.plan(class, pmds_of_class as f64 * each);
        }
    }

    fn reads_of_a_check_ns(&self) -> f64 {
        READS_OF_A_CHECK * self.read_ns_per_pmd
    }

    /// The shortest interval in which one huge range of each of `regions` can be checked, if that may take [`RANDOM_SHARE`] of
    /// what bookkeeping leaves.
    pub fn affordable_interval_ns(&mut self, regions: usize, now: Ns) -> Ns {
        let share = self.left(now) * RANDOM_SHARE;
        let ns = regions as f64 * (self.clear_ns_per_pmd + self.reads_of_a_check_ns()) / share.max(1e-6);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive; a cast saturates")]
        let interval = ns as Ns;
        interval
    }

    /// Records that reading `pmds` took this long.
    pub fn read(&mut self, pmds: u64, took: Ns) {
        if pmds >= MIN_SAMPLE {
            learn(&mut self.read_ns_per_pmd, took, pmds);
        }
        // By size: there are many more reads of checks, of hot memory mostly, which is dearer to take in.
        let count = pmds as f64;
        let each = (took as f64 / (count + STARTING_PMDS)).min(MAX_COST_RATIO * self.scan_ns_per_pmd);
        self.scan_ns_per_pmd += (each - self.scan_ns_per_pmd) * count / (count + HALF_KNOWN_PMDS);
    }

    /// The time in which all `pmds` can be read once.
    pub fn scan_period_ns(&mut self, pmds: usize, now: Ns) -> Ns {
        let for_reads = if self.first_wait { SCAN_SHARE_AT_FIRST } else { SCAN_SHARE };
        let share = self.left(now) * for_reads;
        let ns = pmds as f64 * self.scan_ns_per_pmd / share.max(1e-6) * (1.0 + STRETCH * self.shares.overdraft(now));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to a minute")]
        let scan_period = ns.clamp(MIN_SCAN_PERIOD as f64, MAX_SCAN_PERIOD as f64) as Ns;
        scan_period
    }

    /// Whether more was spent than there was.
    pub fn is_overspent(&mut self, now: Ns) -> bool {
        self.shares.whole_ns(now) < 0.0
    }

    /// Whether more than the whole credit was overspent.
    pub fn is_deep_in_debt(&mut self, now: Ns) -> bool {
        self.shares.overdraft(now) > 1.0
    }

    /// When to list again after a listing that took so much CPU time, at the earliest after `tick`.
    pub fn listing_period_ns(&self, took: Ns, tick: Ns, now: Ns) -> Ns {
        let at_first = self.first_wait && now.saturating_sub(self.began) < AT_FIRST;
        self.period_ns(took, if at_first { LISTING_SHARE_AT_FIRST } else { LISTING_SHARE }, tick)
    }

    /// The same of listings that come at once, as a process executes another program.
    pub fn hurried_listing_period_ns(&self, took: Ns, tick: Ns) -> Ns {
        self.period_ns(took, LISTING_SHARE, tick)
    }

    /// The time in which this share of the budget pays for what took so long, or `tick` if that is longer.
    fn period_ns(&self, took: Ns, share: f64, tick: Ns) -> Ns {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
        let period = (took as f64 / (self.shares.share().min(1.0) * share)).min(MAX_LISTING_PERIOD as f64) as Ns;
        period.max(tick)
    }

    /// How many huge ranges can be checked once in `time`.
    pub fn first_checks_in(&self, time: Ns) -> usize {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 300 s / 50 us")]
        let pmds = (time as f64 * self.shares.share().min(1.0) / FIRST_CHECK_NS) as usize;
        pmds
    }
}

/// The part of the budget by which bookkeeping lessens what checks and reads have at most, where it fills at this part of its rate.
fn max_withheld(rate: f64) -> f64 {
    rate * if rate < 1.0 { MAX_WITHHELD_IN_DEBT } else { MAX_WITHHELD }
}

fn learn(estimate: &mut f64, took: Ns, count: u64) {
    *estimate = *estimate * 0.8 + (took as f64 / count as f64) * 0.2;
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Ns = 1_000_000;
    const S: Ns = 1000 * MS;

    /// At the beginning of a round of clears.
    fn quota(budget: &mut CpuBudget, now: Ns) -> ClearQuota {
        budget.begin_clears(now);
        budget.quota(now)
    }

    #[test]
    fn what_opening_took_beyond_its_credit_is_paid_back_with_half_of_the_budget() {
        // 1% of a core for 12 s are 120 ms, of which opening may use 60; it took 70 of the 80 on the clock.
        let mut budget = CpuBudget::new(1.0, (10 * MS, 80 * MS), 0);
        assert_eq!((budget.used(80 * MS), budget.opening_debt_ns), (70 * MS, 10e6));
        budget.pay_back_opening(S);
        assert_eq!(budget.opening_debt_ns, 5e6, "1% of a second, halved");
        budget.pay_back_opening(60 * S);
        assert_eq!(budget.opening_debt_ns, 0.0);
    }

    #[test]
    fn each_class_of_clears_has_its_share_whatever_the_rest_has_used() {
        let mut budget = CpuBudget::new(1.0, (0, 0), 0);
        assert_eq!(quota(&mut budget, 0), ClearQuota { routine: 0, ..ClearQuota::each(3428) }, "120 ms at 35 us");
        budget.note_unchecked(100, 5);
        assert_eq!(quota(&mut budget, 0), ClearQuota::each(3428), "nearly all was checked");
        budget.charge(S);
        assert_eq!(quota(&mut budget, 0), ClearQuota::default(), "nothing is left, and nothing was earned yet");
        // Of 10 ms a second: 1.5, 3 and 0.5 ms, at 35 us. Half of what 2.5 s make is waited for.
        assert_eq!(quota(&mut budget, S), ClearQuota::default());
        assert_eq!(quota(&mut budget, 2 * S), ClearQuota { urgent: 85, first: 171, routine: 28 });
        // Each with eight reads of 1.5 us: the check costs 47.
        budget.cleared([0, 30, 0], 30 * 35_000);
        assert_eq!(budget.quota(2 * S), ClearQuota { urgent: 85, first: 131, routine: 28 });
        budget.cleared([0, 142, 0], 142 * 35_000);
        assert_eq!(quota(&mut budget, 2 * S), ClearQuota { urgent: 85, first: 0, routine: 28 });
    }

    #[test]
    fn shares_are_of_what_bookkeeping_leaves() {
        let mut budget = CpuBudget::new(1.0, (0, 0), 0);
        budget.note_unchecked(1, 0);
        budget.charge(S);
        // Of 40 ms in four seconds, snapshots and waking up take half. Not 107, 214 and 35.
        budget.charge_bookkeeping(S + 14 * MS, 4 * S);
        budget.charge_waking(S + 20 * MS, 4 * S);
        assert_eq!(quota(&mut budget, 4 * S), ClearQuota { urgent: 85, first: 171, routine: 28 });
        assert_eq!(budget.bookkeeping_share(4 * S), 0.35, "which only fewer snapshots would lessen");
        // However much they take, some is left: nothing would be checked again otherwise.
        let mut cpu = S + 20 * MS;
        for second in 5..40 {
            cpu += 30 * MS;
            budget.charge_bookkeeping(cpu, second * S);
        }
        let left = quota(&mut budget, 40 * S);
        assert!(left.urgent > 0 && left.first > 0 && left.routine > 0, "{left:?}");
    }

    #[test]
    fn all_checks_are_saved_up_and_urgent_ones_only_for_their_share() {
        let mut budget = CpuBudget::new(1.0, (0, 0), 0);
        budget.note_unchecked(1, 0);
        // Of the 120 ms, 5 are left, and nothing was saved up of a share.
        budget.charge(115 * MS);
        assert_eq!(quota(&mut budget, 0), ClearQuota { urgent: 142, first: 0, routine: 0 });
        // At 10 ms a second: what was spent beyond that is paid back later.
        assert_eq!(quota(&mut budget, S / 2), ClearQuota::each(285));
    }

    /// Twenty GiB of idle memory are accessed at a rate that takes all that comes in.
    #[test]
    fn what_was_not_used_of_a_share_is_there_although_the_whole_is_never_saved_up() {
        let mut budget = CpuBudget::new(1.0, (0, 0), 0);
        budget.note_unchecked(1, 0);
        quota(&mut budget, 10 * S);
        // Of the 120 ms, 5 are left. First checks have 7.5 ms of their share, or 214 times 35 us. That of routine checks is full, too.
        budget.charge(115 * MS);
        assert_eq!(quota(&mut budget, 10 * S), ClearQuota { urgent: 142, first: 214, routine: 142 });
    }

    #[test]
    fn one_is_cleared_of_what_is_there_however_dear_it_is() {
        let mut budget = CpuBudget::new(0.1, (0, 0), 0);
        budget.note_unchecked(1, 0);
        // 15 ms each, and 12 ms are all that can be saved up.
        (0..100).for_each(|_| budget.cleared([0, 3, 0], 3 * 15 * MS));
        assert_eq!(quota(&mut budget, 100 * S).first, 1);
        budget.charge(15 * MS);
        budget.cleared([0, 1, 0], 15 * MS);
        assert_eq!(quota(&mut budget, 100 * S).first, 0, "in debt");
    }

    #[test]
    fn the_affordable_interval_is_that_at_which_random_checks_take_half_of_what_bookkeeping_leaves() {
        let mut budget = CpuBudget::new(1.0, (0, 0), 0);
        // A check: 35 us, and eight reads of 1.5. 100 of them take 4.7 ms, half of what there is for 940 ms.
        assert_eq!([100, 1].map(|regions| budget.affordable_interval_ns(regions, 0)), [940 * MS, 9_400_000]);
        // Half of the budget for 2.5 s.
        budget.charge_bookkeeping(12_500_000, 2500 * MS);
        assert_eq!(budget.affordable_interval_ns(100, 2500 * MS), 1880 * MS);
        let mut unlimited = CpuBudget::new(1000.0, (0, 0), 0);
        assert!(unlimited.affordable_interval_ns(1000, 0) < 10 * MS);
    }

    #[test]
    fn clears_that_have_become_dear_are_fewer_and_go_on() {
        let mut budget = CpuBudget::new(1.0, (0, 0), 0);
        budget.charge(S);
        (0..40).for_each(|_| budget.cleared([0, 1, 0], 1_000_000));
        assert_eq!(quota(&mut budget, 10 * S), ClearQuota { urgent: 3, first: 7, routine: 1 }, "about 1 ms each");
    }

    #[test]
    fn listing_takes_its_share_at_most() {
        let mut budget = CpuBudget::new(1.0, (0, 0), 0);
        let periods =
            |budget: &CpuBudget, now| [0, 1_500_000, 15_000_000, S].map(|took| budget.listing_period_ns(took, S, now));
        // 1.5 ms a second, and 0.4 in the first minute while much was not checked yet.
        budget.note_unchecked(100, 5);
        assert_eq!(periods(&budget, S), [S, S, 10 * S, 12 * S]);
        budget.note_unchecked(100, 6);
        assert_eq!(periods(&budget, S), [S, 3750 * MS, 12 * S, 12 * S]);
        assert_eq!(budget.hurried_listing_period_ns(1_500_000, S / 2), S);
        // Where new memory comes all the time, something always waits.
        assert_eq!(periods(&budget, 61 * S), [S, S, 10 * S, 12 * S]);
    }

    #[test]
    fn background_scans_are_stretched_by_what_bookkeeping_takes_and_by_debts() {
        let mut budget = CpuBudget::new(1.0, (0, 0), 0);
        budget.note_unchecked(10_000, 0);
        // 10,000 huge ranges of 1.5 us at 0.4% of a core.
        assert_eq!(budget.scan_period_ns(10_000, 0), 3750 * MS);
        budget.note_unchecked(10_000, 1000);
        assert_eq!(budget.scan_period_ns(10_000, 0), 15 * S, "many were not checked yet");
        budget.note_unchecked(10_000, 500);
        assert_eq!(budget.scan_period_ns(10, 0), MIN_SCAN_PERIOD);
        budget.charge_bookkeeping(12_500_000, 2500 * MS);
        assert_eq!(budget.bookkeeping_share(2500 * MS), 0.5);
        assert_eq!(budget.scan_period_ns(10_000, 2500 * MS), 7500 * MS);
        // 150 ms more, of the 120 that there are at most.
        budget.charge(162_500_000);
        assert_eq!(budget.scan_period_ns(10_000, 2500 * MS), 15 * S, "and by a debt of a quarter of the credit");
        assert_eq!(budget.first_checks_in(300 * S), 60_000);
    }

    /// In 14 GiB with a tenth of it hot, reads of checks took 2 to 5 us a huge range and scans about one. Scans were stretched to 12 to 18 s.
    #[test]
    fn reads_of_checks_do_not_stretch_scans() {
        let mut budget = CpuBudget::new(1.0, (0, 0), 0);
        budget.note_unchecked(7168, 0);
        for _ in 0..20 {
            (0..10).for_each(|_| budget.read(80, 80 * 4_000));
            budget.read(7168, 7208 * 1_000);
        }
        let checks = budget.reads_of_a_check_ns() / READS_OF_A_CHECK;
        assert!((1_500.0..4_000.0).contains(&checks), "{checks}");
        let scan = budget.scan_period_ns(7168, 0);
        assert!((1_790 * MS..2_500 * MS).contains(&scan), "{scan}: 7.2 ms at 0.4% of a core");
        budget.read(7168, 100 * MS);
        assert!(budget.scan_period_ns(7168, 0) < 2 * scan, "one that was held up");
        (0..8).for_each(|_| budget.read(7168, 100 * MS));
        assert!(budget.scan_period_ns(7168, 0) > 20 * S, "the machine has become slow");
    }
}
