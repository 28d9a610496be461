//! Accessed bits and samples together: bits find cold or changing memory, samples rank hot memory.
//!
//! Bits cover every page, but not how often within 20 ms it is accessed, and hot huge ranges are checked seldom. Samples
//! show rates of a thousand a second and more, for pages or neighbourhoods that have enough of them. Both are lower
//! bounds: neither shows an access that did not happen. But bits count a burst as one access, and the event may not
//! happen on each access (a load served by the cache, a page prefetched by the processor). So the higher of a page's
//! two rates is used:
//!
//! - A page with [`OWN`] samples or more has its own rate, even if it is cold by its bits: it became hot between two
//!   checks.
//! - Pages that bits cannot distinguish (at the floor of 20 ms, or unclearable) share the samples of their huge range, or of
//!   up to [`AROUND`] such huge ranges in a row, if these are at least [`ENOUGH`]. One of them has its own rate only if it
//!   stands out: in a huge range with three samples a page, a page with six is no hotter. A page without samples in a dense
//!   huge range is one that the event misses. It keeps its bits.
//! - All other pages keep their bits.

use super::density::OWN;
use super::store::{Entry, gallop};
use super::{Count, ReportedTarget};
use crate::behind_huge::{BehindHuge, EstimatedSum};
use crate::idle::IdleSum;
use crate::pmd::Ns;
use crate::regions::{Heat, RegionBuilder};
use crate::view::{Since, Summary};
use crate::{Interval, Region, Run, Target, View};
use isotherm_units::{AddrRange, PageNo, PmdNo};
use std::ops::Range;

/// Pages with this interval or a shorter one may be accessed much more often: the first read of a check is at 10 ms.
const FLOOR: Ns = 20_000_000;
/// Samples needed in a neighbourhood.
const ENOUGH: f64 = 8.0;
/// Maximum number of its huge ranges.
const AROUND: usize = 8;
/// A page with this many samples has its own rate anywhere: it is known to within a quarter.
const PLENTY: f64 = 16.0;
/// If this many samples are expected on a page, having none is not chance (it happens once in a thousand).
const MISSED: f64 = 7.0;

/// The heat of the page-table source, with rates from samples where they show more.
///
/// At most `max_regions`, with ages carried on from the last report. Cost: that of [`summarize`](crate::summarize),
/// plus time proportional to the number of samples.
pub fn summarize_fused(
    target: &Target,
    reported: &mut ReportedTarget,
    now: Ns,
    max_regions: usize,
    last: Since<'_>,
) -> Summary {
    reported.counters.settle();
    reported.note_weight();
    let mut fusion = Fusion {
        reported,
        now,
        floor: Interval::from_ns(FLOOR),
        waiting: Vec::new(),
        shared: Pool::default(),
        runs: Vec::new(),
        sum: Summary::default(),
        estimated: EstimatedSum::default(),
        builder: RegionBuilder::new(max_regions),
    };
    let mut idle = IdleSum::new(last.mappings);
    let mut at = 0;
    target.for_each_pmd(now, |pmd, view| {
        let list = fusion.reported.counters.list();
        at += gallop(&list[at..], |e| e.page < pmd.page(0).0);
        let entries = at..at + gallop(&list[at..], |e| e.page < pmd.next().page(0).0);
        at = entries.end;
        idle.add(pmd, view.runs);
        fusion.pmd(pmd, view, entries);
    });
    fusion.flush();
    let mut sum = fusion.sum;
    fusion.estimated.finish(&mut sum);
    sum.regions = fusion.builder.finish();
    sum.idle_by_mapping = idle.finish();
    last.carry_ages(&mut sum.regions);
    sum
}

/// Raises the rates of regions known from checks of some of their huge ranges, where samples show more than checks can.
/// `regions` are sorted.
///
/// Their intervals, and how much of the memory is how hot, stay as the checks found them. Those are for single pages,
/// and a rate is a mean.
pub fn raise_rates(regions: &mut [Region], reported: &mut ReportedTarget) {
    let exposure_s = reported.exposure_s;
    if exposure_s <= 0.0 {
        return;
    }
    let ranges: Vec<AddrRange> = regions.iter().map(|r| r.range).collect();
    reported.counters.by_region(&ranges, |at, _, count| {
        let region = &mut regions[at];
        let rate_hz = count.weight / (exposure_s * region.resident_pages.max(1) as f64);
        if count.samples >= ENOUGH && rate_hz > f64::from(region.rate_hz) {
            #[expect(clippy::cast_possible_truncation, reason = "rounded")]
            let rounded = rate_hz as f32;
            region.rate_hz = rounded;
            region.sampled_pages = region.measured_pages;
        }
    });
}

/// Pages that share their samples.
#[derive(Clone, Copy, Debug, Default)]
struct Pool {
    pages: u64,
    count: Count,
}

/// A huge range whose neighbourhood is not known yet.
struct Waiting {
    pmd: PmdNo,
    runs: Vec<Run>,
    unclearable: bool,
    behind: Option<BehindHuge>,
    entries: Range<usize>,
    /// Mean number of samples on each of its pages at the floor.
    mean: f64,
}

impl Waiting {
    /// Whether a page stands out, so that it does not share. Happens by chance for one in 100,000 pages.
    fn stands_out(&self, samples: f64) -> bool {
        samples >= OWN && (samples >= PLENTY || samples > self.mean + 5.0 * self.mean.sqrt() + 2.0)
    }
}

struct Fusion<'a> {
    reported: &'a ReportedTarget,
    now: Ns,
    floor: Interval,
    waiting: Vec<Waiting>,
    /// The pool of all waiting huge ranges.
    shared: Pool,
    runs: Vec<(Run, Heat)>,
    sum: Summary,
    estimated: EstimatedSum,
    builder: RegionBuilder,
}

impl<'a> Fusion<'a> {
    fn entries(&self, of: &Range<usize>) -> &'a [Entry] {
        let reported: &'a ReportedTarget = self.reported;
        &reported.counters.list()[of.clone()]
    }

    fn shares(&self, run: &Run, unclearable: bool) -> bool {
        unclearable || run.interval.is_measured() && run.interval <= self.floor
    }

    fn pmd(&mut self, pmd: PmdNo, view: View<'_>, entries: Range<usize>) {
        let View { unclearable, runs, behind, .. } = view;
        let mut new = Waiting { pmd, runs: runs.to_vec(), unclearable, behind: behind.cloned(), entries, mean: 0.0 };
        let pool = self.pool(&mut new);
        let alone = pool.pages == 0 || pool.count.samples >= ENOUGH;
        if alone || self.waiting.last().is_some_and(|last| last.pmd.next() != pmd) {
            self.flush();
        }
        self.shared.pages += pool.pages;
        self.shared.count.add(pool.count);
        self.waiting.push(new);
        if alone || self.shared.count.samples >= ENOUGH || self.waiting.len() >= AROUND {
            self.flush();
        }
    }

    /// The pages of a huge range that share samples, and those samples.
    fn pool(&self, of: &mut Waiting) -> Pool {
        let entries = self.entries(&of.entries);
        let sharing = || of.runs.iter().filter(|run| self.shares(run, of.unclearable));
        let pages: u64 = sharing().map(|run| u64::from(run.pages)).sum();
        let on_them = || sharing().flat_map(|run| within(entries, of.pmd, run));
        let samples: f64 = on_them().map(Entry::samples).sum();
        let reported = on_them().count() as u64;
        let mean = samples / pages.max(1) as f64;
        let unseen = if mean >= MISSED { pages - reported } else { 0 };
        let mut pool = Pool { pages: pages - unseen, count: Count::default() };
        let judged = Waiting { mean, runs: Vec::new(), entries: 0..0, behind: None, ..*of };
        for entry in on_them() {
            match judged.stands_out(entry.samples()) {
                true => pool.pages -= 1,
                false => pool.count.add(self.reported.counters.count_of(entry)),
            }
        }
        of.mean = mean;
        pool
    }

    /// Reports the waiting huge ranges, with what they share.
    fn flush(&mut self) {
        let shared = std::mem::take(&mut self.shared);
        let shared = (shared.count.samples >= ENOUGH && shared.pages > 0)
            .then(|| self.reported.heat(self.now, &shared.count, shared.pages));
        for of in std::mem::take(&mut self.waiting) {
            self.runs.clear();
            for run in &of.runs {
                self.tell(&of, run, shared.filter(|_| self.shares(run, of.unclearable)));
            }
            for (run, _) in &self.runs {
                let pages = u64::from(run.pages);
                self.sum.temperature.add(run.interval, pages);
                self.sum.idle.add(run.idle, pages);
                self.sum.unclearable_pages += if of.unclearable { pages } else { 0 };
            }
            self.estimated.add(of.behind.as_ref(), self.runs.iter().map(|(run, _)| run), self.now);
            self.builder.heats(of.pmd, self.runs.iter().copied());
        }
    }

    /// Reports one run, page by page where samples show more for some pages than for others.
    fn tell(&mut self, of: &Waiting, run: &Run, shared: Option<Heat>) {
        let others = shared.filter(|_| of.mean < MISSED);
        let mut next = run.first;
        for entry in within(self.entries(&of.entries), of.pmd, run) {
            let own = match self.shares(run, of.unclearable) {
                true => of.stands_out(entry.samples()),
                false => entry.samples() >= OWN,
            };
            let heat = if own {
                Some(self.reported.heat(self.now, &self.reported.counters.count_of(entry), 1))
            } else {
                shared
            };
            let page = index(entry);
            self.push(*run, next..page, others);
            self.push(*run, page..page + 1, heat);
            next = page + 1;
        }
        self.push(*run, next..run.first + run.pages, others);
    }

    /// Appends pages of a run, with the heat from samples if that is hotter than the heat from bits.
    fn push(&mut self, run: Run, pages: Range<u16>, sampled: Option<Heat>) {
        if pages.is_empty() {
            return;
        }
        let bits = Heat::of_interval(run.interval, run.idle);
        let mut part = Run { first: pages.start, pages: pages.end - pages.start, ..run };
        let mut heat = bits;
        if let Some(sampled) = sampled.filter(|s| s.is_hotter_than(&bits)) {
            heat = sampled;
            part.interval = heat.interval();
            part.idle = heat.idle().max(part.interval);
        }
        match self.runs.last_mut() {
            Some((last, of)) if *of == heat && last.idle == part.idle && last.first + last.pages == part.first => {
                last.pages += part.pages;
            }
            _ => self.runs.push((part, heat)),
        }
    }
}

/// The entries on the pages of a run.
fn within<'a>(entries: &'a [Entry], pmd: PmdNo, run: &Run) -> &'a [Entry] {
    let pages = run.indices();
    let from = entries.partition_point(|e| e.page < pmd.page(pages.start).0);
    let len = entries[from..].partition_point(|e| e.page < pmd.page(pages.end).0);
    &entries[from..from + len]
}

#[expect(clippy::cast_possible_truncation, reason = "below 512")]
fn index(entry: &Entry) -> u16 {
    PageNo(entry.page).index_in_pmd() as u16
}
