//! Accessed bits and samples together: bits find what is cold or changing, samples rank what is hot.
//!
//! Bits know every page, but not how often within 20 ms it is accessed, and hot blocks are looked at seldom. Samples
//! know rates of a thousand a second and more, of pages or neighbourhoods that have enough of them. Both are bounds
//! from below: neither tells of an access that was not, but bits take a burst for one access, and the event may not
//! happen on each (a load that the cache answers, a page that the processor fetched ahead of use). So of the two rates
//! of a page the higher one holds:
//!
//! - a page with [`OWN`] samples or more has a rate of its own, be it cold by its bits: it became hot between two
//!   looks;
//! - pages that bits cannot tell apart (at the floor of 20 ms, or unclearable) share the samples of their block, or of
//!   up to [`AROUND`] such blocks in a row, if these are [`ENOUGH`]. One of them has a rate of its own only if it
//!   stands out: in a block with three samples a page, a page with six is no hotter. A page without any where samples
//!   are dense is one that the event misses, and keeps its bits;
//! - everything else keeps its bits.

use super::density::OWN;
use super::store::{Entry, gallop};
use super::{Count, ReportedTarget};
use crate::block::Ns;
use crate::regions::{Heat, RegionBuilder};
use crate::view::{Since, Summary};
use crate::{Interval, Region, Run, Target, View};
use isotherm_units::{AddrRange, BlockNo, PageNo};
use std::ops::Range;

/// Pages with this interval or a shorter one may be accessed much more often: the first read of a look is at 10 ms.
const FLOOR: Ns = 20_000_000;
/// Samples that a neighbourhood needs.
const ENOUGH: f64 = 8.0;
/// Blocks that it may have.
const AROUND: usize = 8;
/// A page with so many samples has a rate of its own, wherever: it is known to a quarter.
const PLENTY: f64 = 16.0;
/// Where as many would be expected on a page, none is no chance (once in a thousand).
const MISSED: f64 = 7.0;

/// The page-table source's heat, with rates from samples where they know better.
///
/// At most `max_regions`, with ages carried on from the last time. Cost: [`summarize`](crate::summarize),
/// and what there are samples.
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
        told: Vec::new(),
        sum: Summary::default(),
        builder: RegionBuilder::new(),
    };
    let mut at = 0;
    target.for_each_block(now, |block, view| {
        let list = fusion.reported.counters.list();
        at += gallop(&list[at..], |e| e.page < block.page(0).0);
        let entries = at..at + gallop(&list[at..], |e| e.page < block.next().page(0).0);
        at = entries.end;
        fusion.block(block, view, entries);
    });
    fusion.flush();
    let mut sum = fusion.sum;
    sum.regions = fusion.builder.finish(max_regions);
    last.carry_ages(&mut sum.regions);
    sum
}

/// Raises the rates of regions that are known by looks at some of their blocks, where samples saw more than looks can tell. `regions` are sorted.
///
/// Their intervals and how much of the memory is how hot stay what looks found: those are of single pages, and a rate is a mean.
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

/// A block whose neighbourhood is not known yet.
struct Waiting {
    block: BlockNo,
    runs: Vec<Run>,
    unclearable: bool,
    entries: Range<usize>,
    /// Samples on each of its pages at the floor, in the mean.
    mean: f64,
}

impl Waiting {
    /// Whether a page stands out so that it does not share: once in 100,000 pages by chance.
    fn stands_out(&self, samples: f64) -> bool {
        samples >= OWN && (samples >= PLENTY || samples > self.mean + 5.0 * self.mean.sqrt() + 2.0)
    }
}

struct Fusion<'a> {
    reported: &'a ReportedTarget,
    now: Ns,
    floor: Interval,
    waiting: Vec<Waiting>,
    /// Of all that wait.
    shared: Pool,
    told: Vec<(Run, Heat)>,
    sum: Summary,
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

    fn block(&mut self, block: BlockNo, view: View<'_>, entries: Range<usize>) {
        let mut new = Waiting { block, runs: view.runs.to_vec(), unclearable: view.unclearable, entries, mean: 0.0 };
        let pool = self.pool(&mut new);
        let alone = pool.pages == 0 || pool.count.samples >= ENOUGH;
        if alone || self.waiting.last().is_some_and(|last| last.block.next() != block) {
            self.flush();
        }
        self.shared.pages += pool.pages;
        self.shared.count.add(pool.count);
        self.waiting.push(new);
        if alone || self.shared.count.samples >= ENOUGH || self.waiting.len() >= AROUND {
            self.flush();
        }
    }

    /// The pages of a block that share samples, and these.
    fn pool(&self, of: &mut Waiting) -> Pool {
        let entries = self.entries(&of.entries);
        let sharing = || of.runs.iter().filter(|run| self.shares(run, of.unclearable));
        let pages: u64 = sharing().map(|run| u64::from(run.pages)).sum();
        let on_them = || sharing().flat_map(|run| within(entries, of.block, run));
        let samples: f64 = on_them().map(Entry::samples).sum();
        let reported = on_them().count() as u64;
        let mean = samples / pages.max(1) as f64;
        let unseen = if mean >= MISSED { pages - reported } else { 0 };
        let mut pool = Pool { pages: pages - unseen, count: Count::default() };
        let judged = Waiting { mean, runs: Vec::new(), entries: 0..0, ..*of };
        for entry in on_them() {
            match judged.stands_out(entry.samples()) {
                true => pool.pages -= 1,
                false => pool.count.add(self.reported.counters.count_of(entry)),
            }
        }
        of.mean = mean;
        pool
    }

    /// Tells the blocks that wait, with what they share.
    fn flush(&mut self) {
        let shared = std::mem::take(&mut self.shared);
        let shared = (shared.count.samples >= ENOUGH && shared.pages > 0)
            .then(|| self.reported.heat(self.now, &shared.count, shared.pages));
        for of in std::mem::take(&mut self.waiting) {
            self.told.clear();
            for run in &of.runs {
                self.tell(&of, run, shared.filter(|_| self.shares(run, of.unclearable)));
            }
            for (run, _) in &self.told {
                let pages = u64::from(run.pages);
                self.sum.temperature.add(run.interval, pages);
                self.sum.idle.add(run.idle, pages);
                self.sum.unclearable_pages += if of.unclearable { pages } else { 0 };
            }
            self.builder.heats(of.block, self.told.iter().copied());
        }
    }

    /// Tells one run, page by page where samples know more of some than of others.
    fn tell(&mut self, of: &Waiting, run: &Run, shared: Option<Heat>) {
        let others = shared.filter(|_| of.mean < MISSED);
        let mut next = run.first;
        for entry in within(self.entries(&of.entries), of.block, run) {
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

    /// Appends pages of a run with what samples say of them, if that is more than bits do.
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
        match self.told.last_mut() {
            Some((last, of)) if *of == heat && last.idle == part.idle && last.first + last.pages == part.first => {
                last.pages += part.pages;
            }
            _ => self.told.push((part, heat)),
        }
    }
}

/// The entries on the pages of a run.
fn within<'a>(entries: &'a [Entry], block: BlockNo, run: &Run) -> &'a [Entry] {
    let pages = run.indices();
    let from = entries.partition_point(|e| e.page < block.page(pages.start).0);
    let len = entries[from..].partition_point(|e| e.page < block.page(pages.end).0);
    &entries[from..from + len]
}

#[expect(clippy::cast_possible_truncation, reason = "below 512")]
fn index(entry: &Entry) -> u16 {
    PageNo(entry.page).index_in_block() as u16
}
