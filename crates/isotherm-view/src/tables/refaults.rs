//! What would come back: refaults for each age at which idle memory could leave, from a recording alone.
//!
//! If every page left once it is known to be idle for an age, each access that a recording has found to a page that had been idle for
//! longer would have been a refault. So the rate of such accesses is the price of that age, and the memory that is idle for longer is
//! its gain. Far memory at warehouse scale chooses the lowest age at which no more than 0.2% of the working set come back in a
//! minute (Lagar-Cavilla et al., ASPLOS 2019).
//!
//! An access to an idle huge page brings back one page at least, if it is split when it leaves, and 512 at most. The higher figure
//! is compared with the limit.

use super::cost::CostSummary;
use super::target::title;
use crate::human;
use crate::math;
use crate::text::{Column, Table, TextStyle, write_wrapped};
use isotherm_heat::{Granularity, Interval, Snapshot, TargetHeat, TargetId};
use isotherm_units::{Bytes, PAGES_PER_PMD};
use serde::Serialize;
use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::io::{self, Write};

const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
/// The ages that are shown.
pub const REFAULT_AGES_NS: [u64; 9] =
    [10 * SECOND, 20 * SECOND, 30 * SECOND, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 30 * MINUTE, 60 * MINUTE];
/// An age is shown if refaults could be seen for this long at least.
const MIN_EVIDENCE_NS: u64 = 5 * SECOND;
/// Pages accessed at least this often are the working set.
const WORKING_SET_NS: u64 = MINUTE;

/// What the report shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RefaultOptions {
    /// Refaults a minute that are acceptable, in percent of the working set.
    pub max_pct: f64,
}

impl Default for RefaultOptions {
    fn default() -> RefaultOptions {
        RefaultOptions { max_pct: 0.2 }
    }
}

/// Gain and price of an age.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RefaultAge {
    /// The age.
    pub age_ns: u64,
    /// Memory that is idle for longer at the end.
    pub idle_bytes: Bytes,
    /// The part of it on huge pages.
    pub idle_huge_bytes: Bytes,
    /// Pages a minute that would have come back: each access to an idle huge page brings one page.
    pub min_refaults_per_min: f64,
    /// The same, and it brings 512.
    pub refaults_per_min: f64,
    /// The latter in percent of the working set.
    pub pct_of_working_set_per_min: f64,
}

/// The ages of one process, or of all.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RefaultTarget {
    /// Process id; none for all.
    pub pid: Option<u32>,
    /// Command name; empty for all.
    pub comm: String,
    /// For how long it was watched.
    pub watched_ns: u64,
    /// Resident memory at the end.
    pub resident_bytes: Bytes,
    /// Memory accessed at least once a minute, at the end.
    pub working_set_bytes: Bytes,
    /// Ages by which memory could have left and come back, within the time watched.
    pub ages: Vec<RefaultAge>,
    /// The shortest age at which no more than the accepted part would come back, if anything would leave. Ages that were watched for
    /// twice as long at least.
    pub acceptable_age_ns: Option<u64>,
}

/// The report of a series of snapshots.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RefaultReport {
    /// Accepted refaults a minute, in percent of the working set.
    pub max_pct: f64,
    /// Processes of the last snapshot, by pid.
    pub targets: Vec<RefaultTarget>,
    /// All of them together.
    pub total: RefaultTarget,
    /// Processes without figures: they are sampled, or recorded before accesses were counted by idle time.
    pub not_counted: Vec<u32>,
    /// The cost of monitoring.
    pub cost: CostSummary,
}

/// Pages of a target: idle at the end, and accessed in all snapshots, for each age.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    watched_ns: u64,
    resident: u64,
    working_set: u64,
    /// Small pages, and pages on huge pages.
    idle: [[u64; 2]; REFAULT_AGES_NS.len()],
    accessed: [[u64; 2]; REFAULT_AGES_NS.len()],
}

impl Counts {
    /// Adds the accesses of a window.
    fn add_accesses(&mut self, target: &TargetHeat) {
        for step in target.idle_by_mapping.iter().flat_map(|m| &m.steps) {
            add_from(&mut self.accessed, step.idle, [step.accessed_pages, step.accessed_huge_pages]);
        }
    }

    /// Sets what is true at the end.
    fn set_end(&mut self, target: &TargetHeat) {
        self.resident = target.temperature.resident();
        self.working_set = target.temperature.within_ns(WORKING_SET_NS);
        for step in target.idle_by_mapping.iter().flat_map(|m| &m.steps) {
            add_from(&mut self.idle, step.idle, [step.pages, step.huge_pages]);
        }
    }

    /// The same without pages that are counted for another target as well, each figure in proportion.
    fn counted_once(mut self, target: &TargetHeat) -> Counts {
        let whole = self.resident;
        let kept = whole.saturating_sub(target.counted_elsewhere_pages);
        let pages = self.idle.iter_mut().chain(&mut self.accessed).flatten();
        for part in pages.chain([&mut self.working_set]) {
            *part = math::scale(*part, kept, whole);
        }
        Counts { resident: kept, ..self }
    }

    fn ages(&self) -> Vec<RefaultAge> {
        let known = |at: &usize| self.watched_ns >= REFAULT_AGES_NS[*at] + MIN_EVIDENCE_NS;
        (0..REFAULT_AGES_NS.len()).filter(known).map(|at| self.age(at)).collect()
    }

    fn age(&self, at: usize) -> RefaultAge {
        let age_ns = REFAULT_AGES_NS[at];
        let ([idle, idle_huge], [small, huge]) = (self.idle[at], self.accessed[at]);
        // Before that nothing could be known to be idle for so long.
        let minutes = (self.watched_ns - age_ns) as f64 / MINUTE as f64;
        let refaults_per_min = small.saturating_add(huge) as f64 / minutes;
        RefaultAge {
            age_ns,
            idle_bytes: Bytes::of_pages(idle.saturating_add(idle_huge)),
            idle_huge_bytes: Bytes::of_pages(idle_huge),
            min_refaults_per_min: small.saturating_add(huge / PAGES_PER_PMD as u64) as f64 / minutes,
            refaults_per_min,
            pct_of_working_set_per_min: 100.0 * refaults_per_min / self.working_set.max(1) as f64,
        }
    }

    fn report(&self, pid: Option<u32>, comm: &str) -> RefaultTarget {
        RefaultTarget {
            pid,
            comm: comm.to_owned(),
            watched_ns: self.watched_ns,
            resident_bytes: Bytes::of_pages(self.resident),
            working_set_bytes: Bytes::of_pages(self.working_set),
            ages: self.ages(),
            acceptable_age_ns: None,
        }
    }
}

impl RefaultTarget {
    /// All of them together. Rates add up, since each was watched for a time of its own.
    fn sum(of: &[RefaultTarget]) -> RefaultTarget {
        let mut total = Counts::default().report(None, "");
        let mut ages: BTreeMap<u64, RefaultAge> = BTreeMap::new();
        for target in of {
            total.watched_ns = total.watched_ns.max(target.watched_ns);
            total.resident_bytes.0 = total.resident_bytes.0.saturating_add(target.resident_bytes.0);
            total.working_set_bytes.0 = total.working_set_bytes.0.saturating_add(target.working_set_bytes.0);
            for age in &target.ages {
                ages.entry(age.age_ns).and_modify(|sum| sum.add(age)).or_insert(*age);
            }
        }
        let working_set = total.working_set_bytes.pages().max(1) as f64;
        total.ages = ages.into_values().collect();
        for age in &mut total.ages {
            age.pct_of_working_set_per_min = 100.0 * age.refaults_per_min / working_set;
        }
        total
    }

    /// Chooses the age. One needs as much evidence as it is long.
    fn with_choice(mut self, max_pct: f64) -> RefaultTarget {
        let is_good = |a: &&RefaultAge| {
            let is_known = self.watched_ns >= a.age_ns.saturating_mul(2);
            is_known && a.pct_of_working_set_per_min <= max_pct && a.idle_bytes.0 > 0
        };
        self.acceptable_age_ns = self.ages.iter().find(is_good).map(|a| a.age_ns);
        self
    }
}

impl RefaultAge {
    fn add(&mut self, other: &RefaultAge) {
        self.idle_bytes.0 = self.idle_bytes.0.saturating_add(other.idle_bytes.0);
        self.idle_huge_bytes.0 = self.idle_huge_bytes.0.saturating_add(other.idle_huge_bytes.0);
        self.min_refaults_per_min += other.min_refaults_per_min;
        self.refaults_per_min += other.refaults_per_min;
    }
}

/// Adds pages to all ages up to their idle time.
fn add_from(ages: &mut [[u64; 2]; REFAULT_AGES_NS.len()], idle: Interval, pages: [u64; 2]) {
    for (age_ns, sum) in REFAULT_AGES_NS.into_iter().zip(ages) {
        if idle >= Interval::from_ns(age_ns) {
            *sum = [sum[0].saturating_add(pages[0]), sum[1].saturating_add(pages[1])];
        }
    }
}

/// Accesses by idle time of each target whose pages were counted one by one, and for how long.
fn counted<S: Borrow<Snapshot>>(snapshots: &[S]) -> BTreeMap<TargetId, Counts> {
    let targets = |s: &'_ S| s.borrow().targets.iter().any(|t| !t.idle_by_mapping.is_empty());
    let mut all: BTreeMap<TargetId, Counts> = BTreeMap::new();
    if !snapshots.iter().any(targets) {
        return all;
    }
    for snapshot in snapshots.iter().map(Borrow::borrow) {
        let length = snapshot.end_unix_ns.saturating_sub(snapshot.start_unix_ns);
        for target in snapshot.targets.iter().filter(|t| t.granularity == Granularity::Page) {
            let counts = all.entry(target.id).or_default();
            counts.watched_ns = counts.watched_ns.saturating_add(length);
            counts.add_accesses(target);
        }
    }
    all
}

impl RefaultReport {
    /// Builds the report from snapshots in order of time, for the processes that are alive in the last one that has any.
    pub fn build<S: Borrow<Snapshot>>(snapshots: &[S], options: RefaultOptions) -> RefaultReport {
        let all = counted(snapshots);
        let has_any = |snapshot: &&Snapshot| snapshot.alive().next().is_some();
        let last = snapshots.iter().rev().map(Borrow::borrow).find(has_any);
        let last = last.or(snapshots.last().map(Borrow::borrow));
        let (mut targets, mut once, mut not_counted) = (Vec::new(), Vec::new(), Vec::new());
        for target in last.into_iter().flat_map(Snapshot::alive) {
            let Some(mut counts) = all.get(&target.id).copied() else {
                not_counted.push(target.id.pid);
                continue;
            };
            counts.set_end(target);
            once.push(counts.counted_once(target).report(None, ""));
            targets.push(counts.report(Some(target.id.pid), &target.comm).with_choice(options.max_pct));
        }
        let total = RefaultTarget::sum(&once).with_choice(options.max_pct);
        let cost = last.map(|s| CostSummary::of(&s.cost)).unwrap_or_default();
        RefaultReport { max_pct: options.max_pct, targets, total, not_counted, cost }
    }

    /// Writes the report as text.
    pub fn write_text(&self, out: &mut dyn Write, style: TextStyle) -> io::Result<()> {
        let head = "if memory left once it has been idle for an age: how much that is now, and which pages would have come back in a minute";
        write_wrapped(out, head, style)?;
        for target in self.targets.iter().chain((self.targets.len() > 1).then_some(&self.total)) {
            writeln!(out)?;
            target.write_text(self.max_pct, out, style)?;
        }
        if !self.not_counted.is_empty() {
            let pids: Vec<String> = self.not_counted.iter().map(u32::to_string).collect();
            let line = format!(
                "no figures of {}: sampled, or recorded before accesses were counted by idle time",
                pids.join(", ")
            );
            writeln!(out)?;
            write_wrapped(out, &line, style)?;
        }
        writeln!(out)?;
        self.cost.write_text(out, style)
    }
}

impl RefaultTarget {
    fn write_text(&self, max_pct: f64, out: &mut dyn Write, style: TextStyle) -> io::Result<()> {
        let line = format!(
            "{}: resident {}, working set {} (accessed at least once a minute), watched for {}",
            title(self.pid, &self.comm, false),
            self.resident_bytes,
            self.working_set_bytes,
            human::duration(self.watched_ns),
        );
        write_wrapped(out, &line, style)?;
        let columns = Column::numbers(&[("AGE", 0), ("LEAVES", 0), ("SHARE %", 2), ("PAGES BACK", 1), ("% OF WSS", 0)]);
        Table::of(&columns, self.ages.iter().map(|age| self.cells(age))).write(out, style)?;
        write_wrapped(out, &self.advice(max_pct), style)
    }

    fn cells(&self, age: &RefaultAge) -> Vec<String> {
        let back = match (rounded(age.min_refaults_per_min), rounded(age.refaults_per_min)) {
            (min, max) if min == max => max,
            (min, max) => format!("{min} to {max}"),
        };
        let share = math::share(age.idle_bytes.0, self.resident_bytes.0) * 100.0;
        vec![
            human::duration(age.age_ns),
            age.idle_bytes.to_string(),
            human::percent(share),
            back,
            human::percent(age.pct_of_working_set_per_min),
        ]
    }

    fn advice(&self, max_pct: f64) -> String {
        let chosen = self.acceptable_age_ns.and_then(|age_ns| self.ages.iter().find(|a| a.age_ns == age_ns));
        match chosen {
            Some(age) => format!(
                "at {}, {} would leave, and {}% of the working set would come back in a minute (accepted: {}%)",
                human::duration(age.age_ns),
                age.idle_bytes,
                human::percent(age.pct_of_working_set_per_min),
                human::percent(max_pct),
            ),
            None if self.watched_ns < 2 * REFAULT_AGES_NS[0] => "watch for 20 s or longer to choose an age".to_owned(),
            None => format!(
                "at none of these ages that were watched for twice as long would memory leave for {}% or less",
                human::percent(max_pct)
            ),
        }
    }
}

/// Pages a minute: whole from ten on.
fn rounded(pages: f64) -> String {
    match pages {
        pages if pages >= 10.0 => format!("{pages:.0}"),
        pages if pages > 0.0 => format!("{pages:.1}"),
        _ => "0".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{MIB, region, snapshot, target};
    use isotherm_heat::{IdleStep, MappingIdle};

    const S: u64 = SECOND;

    /// 8 MiB in use, and these accesses to memory that had been idle.
    fn window(second: u64, length_s: u64, accessed: &[(u64, u64, u64)]) -> Snapshot {
        let step = |&(idle_s, accessed_pages, accessed_huge_pages): &(u64, u64, u64)| IdleStep {
            idle: Interval::from_ns(idle_s * S),
            pages: 100,
            huge_pages: 512,
            accessed_pages,
            accessed_huge_pages,
        };
        let idle_by_mapping = vec![MappingIdle { start: None, steps: accessed.iter().map(step).collect() }];
        let used = target(1, "t", "", vec![], vec![region(0, 8 * MIB, S)]);
        let snapshot = snapshot(second, vec![TargetHeat { idle_by_mapping, ..used }]);
        Snapshot { start_unix_ns: snapshot.end_unix_ns - length_s * S, ..snapshot }
    }

    #[test]
    fn the_price_of_an_age_is_what_was_accessed_after_it_in_the_time_in_which_that_could_be() {
        let windows = [
            window(40, 40, &[(11, 60, 0)]),
            window(70, 30, &[(11, 20, 0), (35, 4, 512)]),
            window(130, 60, &[(5, 9, 0)]),
        ];
        let report = RefaultReport::build(&windows, RefaultOptions { max_pct: 30.0 });
        let ages = &report.targets[0].ages;
        let of = |at: usize| (ages[at].age_ns / S, ages[at].min_refaults_per_min, ages[at].refaults_per_min);
        // Watched for 130 s: for 120 of them something could be known to be idle for 10.
        assert_eq!(of(0), (10, 42.5, 298.0));
        // 5 pages and 516, in 100 s.
        let (age_s, min, max) = of(2);
        assert!(age_s == 30 && (min - 3.0).abs() < 1e-9 && (max - 309.6).abs() < 1e-9, "{min} {max}");
        assert_eq!(ages.iter().map(|a| a.age_ns / S).collect::<Vec<_>>(), [10, 20, 30, 60, 120]);
        assert_eq!(ages[0].pct_of_working_set_per_min, 100.0 * 298.0 / 2048.0);
        assert_eq!(ages[3].refaults_per_min, 0.0);
        assert_eq!(report.targets[0].acceptable_age_ns, None, "the last snapshot has nothing that is idle for 10 s");
    }

    #[test]
    fn the_shortest_acceptable_age_is_chosen() {
        let windows = [window(60, 60, &[(15, 100, 0), (45, 1, 0)]), window(120, 60, &[(15, 0, 0), (90, 0, 0)])];
        let chosen = |max_pct| RefaultReport::build(&windows, RefaultOptions { max_pct }).targets[0].acceptable_age_ns;
        assert_eq!([chosen(10.0), chosen(0.2), chosen(0.01)], [Some(10 * S), Some(20 * S), Some(60 * S)]);
        let mut text = Vec::new();
        RefaultReport::build(&windows, RefaultOptions::default()).write_text(&mut text, TextStyle::default()).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("at 20 s, 2.4 MiB would leave"), "{text}");
    }

    #[test]
    fn rates_of_processes_watched_for_different_times_add_up() {
        let mut windows = [window(60, 60, &[]), window(120, 60, &[(15, 110, 0)])];
        let mut late = windows[1].targets[0].clone();
        late.id.pid = 2;
        windows[1].targets.push(late);
        let report = RefaultReport::build(&windows, RefaultOptions::default());
        let rate = |t: &RefaultTarget| t.ages[0].refaults_per_min.round();
        // 110 pages in 110 s, and in 50 s.
        assert_eq!((rate(&report.targets[0]), rate(&report.targets[1]), rate(&report.total)), (60.0, 132.0, 192.0));
        assert_eq!(report.targets[1].ages.last().map(|a| a.age_ns / S), Some(30), "60 s show nothing of a minute");
        assert_eq!(report.targets[0].acceptable_age_ns, None, "all that is idle was for 15 s");
    }

    #[test]
    fn shared_pages_count_once_in_the_total() {
        let mut windows = [window(60, 60, &[(15, 120, 0)])];
        let mut same = windows[0].targets[0].clone();
        same.id.pid = 2;
        same.counted_elsewhere_pages = 2048;
        windows[0].targets.push(same);
        let report = RefaultReport::build(&windows, RefaultOptions::default());
        assert_eq!(report.targets[0].ages[0].idle_bytes, report.total.ages[0].idle_bytes);
        assert_eq!((report.total.resident_bytes, report.targets.len()), (Bytes(8 * MIB), 2));
    }

    #[test]
    fn what_was_not_counted_is_named() {
        let sampled = target(7, "t", "", vec![], vec![region(0, 8 * MIB, S)]);
        let report = RefaultReport::build(&[snapshot(1, vec![sampled])], RefaultOptions::default());
        assert_eq!((report.targets.len(), report.not_counted), (0, vec![7]));
    }
}
