//! How often the pages of a process are accessed: by page where that is known, by region otherwise.
//!
//! The measured interval of a page gives its rate. A page that was never found accessed counts as never accessed. Its
//! extrapolated rate of one access every few minutes is a guess, and the guesses for all cold pages of a process would
//! outweigh what was measured.

use isotherm_heat::{Region, Run, Snapshot, Target, TargetHeat};
use isotherm_units::PageNo;

/// A process whose frames are read, and its heat as far as it is known.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// When it started; `None` if that is not known.
    pub start_ticks: Option<u64>,
    /// Its name.
    pub comm: String,
    /// Whether the user named it, so that it must not be skipped.
    pub named: bool,
    /// `None` if heat was not requested.
    pub rates: Option<PageRates>,
}

impl Process {
    /// A process without a known name, start time or heat.
    pub fn of(pid: u32) -> Process {
        Process { pid, start_ticks: None, comm: String::new(), named: false, rates: None }
    }

    /// A process that was monitored or recorded, with these rates.
    pub fn watched(target: &TargetHeat, rates: PageRates, named: bool) -> Process {
        let start_ticks = Some(target.id.start_ticks);
        Process { pid: target.id.pid, start_ticks, comm: target.comm.clone(), named, rates: Some(rates) }
    }
}

/// Finds the last snapshot in which one of `pids` was alive (or any process, if `pids` is empty). Returns those
/// processes and the end of the snapshot (ns since 1970). `None` if there is no such snapshot.
pub fn last_alive(snapshots: &[Snapshot], pids: &[u32]) -> Option<(Vec<Process>, u64)> {
    let wanted = |t: &&TargetHeat| !t.exited && (pids.is_empty() || pids.contains(&t.id.pid));
    let last = snapshots.iter().rev().find(|s| s.targets.iter().any(|t| wanted(&t)))?;
    // Other processes may have ended since, as long as one is left.
    let only_one = last.targets.iter().filter(wanted).count() == 1;
    let process = |target: &TargetHeat| {
        let named = only_one || pids.contains(&target.id.pid);
        let mut process = Process::watched(target, PageRates::of_regions(&target.regions), named);
        // Recordings of damo do not contain start times of processes.
        process.start_ticks = process.start_ticks.filter(|ticks| *ticks > 0);
        process
    };
    Some((last.targets.iter().filter(wanted).map(process).collect(), last.end_unix_ns))
}

/// Pages with one rate.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Span {
    first: u64,
    end: u64,
    rate_hz: f32,
}

/// Accesses per second of the pages of a process whose heat is known.
#[derive(Clone, Debug, Default)]
pub struct PageRates {
    /// In order, disjoint.
    spans: Vec<Span>,
}

impl PageRates {
    fn push(&mut self, first: u64, end: u64, rate_hz: f32) {
        match self.spans.last_mut() {
            Some(last) if last.end == first && last.rate_hz.to_bits() == rate_hz.to_bits() => last.end = end,
            _ if first < end => self.spans.push(Span { first, end, rate_hz }),
            _ => {}
        }
    }

    /// By page, at `now`.
    pub fn of_pages(target: &Target, now: u64) -> PageRates {
        let mut heat = PageRates::default();
        target.for_each_pmd(now, |pmd, view| {
            for run in view.runs {
                if let Some(rate) = rate_of(run) {
                    let first = pmd.page(usize::from(run.first)).0;
                    heat.push(first, first + u64::from(run.pages), rate);
                }
            }
        });
        heat
    }

    /// By region: each page gets the mean of the measured pages.
    pub fn of_regions(regions: &[Region]) -> PageRates {
        let mut heat = PageRates::default();
        for region in regions.iter().filter(|r| r.measured_pages > 0) {
            let rate = if region.is_extrapolated() { 0.0 } else { region.rate_hz };
            heat.push(region.range.start.page().0, region.range.end.page().0, rate);
        }
        heat
    }

    /// Accesses per second of a page; `None` if unknown. Ask for pages in ascending order: `at` is the position of the
    /// previous one.
    pub fn rate_at(&self, page: PageNo, at: &mut usize) -> Option<f32> {
        while self.spans.get(*at).is_some_and(|span| span.end <= page.0) {
            *at += 1;
        }
        self.spans.get(*at).filter(|span| span.first <= page.0).map(|span| span.rate_hz)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a rate needs no more digits")]
fn rate_of(run: &Run) -> Option<f32> {
    if !run.interval.is_measured() {
        return None;
    }
    Some(if run.is_extrapolated() { 0.0 } else { run.interval.rate_hz() as f32 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_heat::{Cost, Granularity, Histogram, TargetFacts, TargetId};

    #[test]
    fn rates_are_looked_up_in_order() {
        let mut heat = PageRates::default();
        for (first, end, rate) in [(10, 12, 1.0), (12, 14, 1.0), (14, 14, 9.0), (20, 21, 0.0), (30, 40, 5.0)] {
            heat.push(first, end, rate);
        }
        assert_eq!(heat.spans.len(), 3, "alike neighbours are one: {heat:?}");
        let mut at = 0;
        let rates: Vec<Option<f32>> =
            [9, 10, 13, 14, 20, 25, 35, 39, 40].map(|page| heat.rate_at(PageNo(page), &mut at)).into();
        assert_eq!(rates, [None, Some(1.0), Some(1.0), None, Some(0.0), None, Some(5.0), Some(5.0), None]);
    }

    #[test]
    fn of_a_recording_the_last_snapshot_with_one_of_the_named_alive_counts() {
        let target = |pid: u32, exited: bool| TargetHeat {
            id: TargetId { pid, start_ticks: 0 },
            comm: String::new(),
            cgroup: String::new(),
            exited,
            granularity: Granularity::Page,
            regions: Vec::new(),
            mappings: [].into(),
            temperature: Histogram::default(),
            idle: Histogram::default(),
            counted_elsewhere_pages: 0,
            maybe_shared_pages: 0,
            unclearable_pages: 0,
            behind_huge: None,
            idle_by_mapping: Vec::new(),
            facts: TargetFacts::default(),
        };
        let snapshot =
            |end_unix_ns, targets| Snapshot { start_unix_ns: 0, end_unix_ns, targets, cost: Cost::default() };
        let all = [
            snapshot(1, vec![target(1, false), target(2, false), target(3, false)]),
            snapshot(2, vec![target(1, true), target(2, false), target(3, false)]),
            snapshot(3, vec![target(2, true), target(3, true)]),
        ];
        let found = |pids: &[u32]| {
            let (processes, end) = last_alive(&all, pids)?;
            Some((processes.iter().map(|p| (p.pid, p.named)).collect::<Vec<_>>(), end))
        };
        assert_eq!(found(&[]), Some((vec![(2, false), (3, false)], 2)));
        assert_eq!(found(&[1, 3]), Some((vec![(3, true)], 2)));
        assert_eq!(found(&[1]), Some((vec![(1, true)], 1)));
        assert_eq!(found(&[4]), None);
        assert!(last_alive(&all, &[]).unwrap().0.iter().all(|p| p.start_ticks.is_none()), "0 is not known");
    }
}
