//! Heat from reports of accesses as they happen: samples of memory accesses, page faults, NUMA-hint faults.
//!
//! Fed by sources that report (`isotherm-sources`), read by snapshots: alone ([`ReportedTarget::summarize`]), or
//! together with accessed bits ([`summarize_fused`]). A report names a page, a time, and how many events it stands for.
//! `store` keeps count by page, `density` finds stretches of equal heat, `fused` joins both sources.
//!
//! Everything here costs what there are reports, and mappings: not pages, of which a target of 100 GB has 26 million
//! and of which samples ever see a few in a hundred; and not regions, which are made anew for each snapshot. A list of
//! all regions that is walked once a window, as in the kernel proposal for such reports, takes 2.6 s for regions of a
//! page.
//!
//! **Forgetting.** Reports of long ago count less: by exp(-t / 60 s). As does the time listened, so that what was
//! reported over what was listened is the rate, from the first second on, and through pauses. A minute is as long as
//! memory may be untouched until it is called idle by default; at the usual 1,000 to 4,000 samples a second a minute of
//! them tells spans of half a MiB apart in 10 GiB of hot memory, and half a minute would tell half as many. What stops
//! being accessed need not fade for minutes: if reports came so often that their staying away since is no chance
//! ([`QUIET`]), the time since the last is what counts, as with accessed bits. Forgetting goes in steps of four
//! seconds, which the rate does not notice since both sides take the same ones.
//!
//! **Too many pages.** Samples of a TB that is used evenly are of as many pages as there are samples. Above
//! [`MOST_PAGES`] one in two is kept, or in four, and so on, drawn by lot, each of which stands for as many more events:
//! what it would be if the event had been sampled at a longer period from the start. So rates stay right in the mean,
//! and what is hot stays hot, having samples enough. Of what is known already, pages are drawn by lot as well: see
//! [`Counters::thin`]. Time listened is not touched.
//!
//! **Silence.** What it means that nothing was reported of a page depends on the event: see [`Silence`].

mod density;
mod fused;
mod sort;
mod store;

pub use fused::{raise_rates, summarize_fused};
pub use store::{Access, Count, Counters};

use crate::block::{LEAST_IDLE, Ns};
use crate::regions::{Heat, RegionBuilder, carry_ages};
use crate::view::Summary;
use crate::{Interval, Region, Rng};
use density::{Stretch, share_out, stretches};
use isotherm_units::{AddrRange, PAGE_SHIFT, PageNo};
use std::collections::VecDeque;
use std::ops::Range;

/// Time constant of forgetting.
const TAU: Ns = 60_000_000_000;
/// How often something is forgotten.
const STEP: Ns = TAU / 16;
/// With more pages known than this, samples are thinned out. 48 MiB while they are merged, 64 MiB with reports that are
/// not yet.
const MOST_PAGES: usize = 1 << 20;
/// So many are left then: enough less that it does not happen every few seconds.
const PAGES_LEFT: usize = MOST_PAGES / 4 * 3;
/// With fewer than this, one sample in half as many is drawn again: room for twice as many, and no cut soon after.
const FEW_PAGES: usize = MOST_PAGES / 4;
/// No more than one sample in 2^20 is drawn: a billion a second would be a thousand.
const MOST_HALVINGS: u32 = 20;
/// No report is of a time as long before the target was known: one that says so has a broken time, and would stretch
/// the time listened.
const LONGEST_BEFORE: Ns = 10_000_000_000;
/// So many reports would have been expected since the last, on average, for it to be no chance: once in ten thousand.
const QUIET: f64 = 9.2;
/// And at least so long has to be listened since: accesses come in bursts, which Poisson knows nothing of.
const LEAST_QUIET_S: f64 = 4.0;
/// How often it is noted how much was listened until then.
const MARK: Ns = 1_000_000_000;

/// Resident memory of a mapping as the source tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resident {
    /// Its addresses.
    pub range: AddrRange,
    /// Pages present in it.
    pub pages: u64,
    /// Pages of those on huge pages.
    pub huge_pages: u64,
}

/// What it means that nothing was reported of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// It was accessed less often than could be seen: samples of memory accesses.
    Cold,
    /// The same if nothing ever was; but what was reported is not told again before the kernel has looked once more, which may be in a
    /// minute or not at all: hint faults.
    Scanned,
    /// Nothing: page faults without NUMA hinting come once, at the first touch.
    Unknown,
}

/// The heat of one process known from reports.
#[derive(Clone, Debug)]
pub struct ReportedTarget {
    silence: Silence,
    counters: Counters,
    /// With memory in them, in address order.
    resident: Vec<Resident>,
    /// Listened until then.
    until: Ns,
    forgot_at: Ns,
    /// Seconds listened, those of long ago counting less, as reports do.
    exposure_s: f64,
    /// Time listened in all.
    listened_ns: f64,
    /// The same at times before, about [`MARK`] apart.
    marks: VecDeque<(Ns, f64)>,
    samples: u64,
    /// One report in 2^this is kept.
    halvings: u32,
    /// What a report stood for on average, when there last was one.
    weight: Option<f64>,
}

impl ReportedTarget {
    /// A target of which nothing is known, listened to from `now` on.
    pub fn new(now: Ns, silence: Silence) -> ReportedTarget {
        ReportedTarget {
            silence,
            counters: Counters::counting_from(now),
            resident: Vec::new(),
            until: now,
            forgot_at: now,
            exposure_s: 0.0,
            listened_ns: 0.0,
            marks: VecDeque::new(),
            samples: 0,
            halvings: 0,
            weight: None,
        }
    }

    /// Takes in what is mapped now, sorted. What was reported is kept.
    pub fn refit(&mut self, mut resident: Vec<Resident>) {
        resident.retain(|r| r.pages > 0 && !r.range.is_empty());
        self.resident = resident;
    }

    /// Takes in a report, in any order of time. O(1).
    ///
    /// Those that come before the first call of [`ReportedTarget::listened`] may be from before the target was known:
    /// the event was listened to already. Time listened then begins with the earliest.
    #[inline]
    pub fn report(&mut self, access: Access) {
        self.samples += 1;
        if self.marks.is_empty() && access.at < self.until {
            self.begin_at(access.at);
        }
        if let Some(drawn) = draw(access, self.halvings) {
            self.counters.report(drawn);
        }
    }

    #[cold]
    fn begin_at(&mut self, at: Ns) {
        // Nothing was forgotten yet: this is still when the target became known.
        if at + LONGEST_BEFORE >= self.forgot_at {
            self.until = at;
        }
    }

    /// Says what a report will stand for, if that is known before the first comes: only then silence tells anything.
    pub fn expect_weight(&mut self, weight: u32) {
        self.weight.get_or_insert(f64::from(weight));
    }

    /// Tells that the event was listened to until `now`, all reports until then having been taken in. Time during which
    /// it was off does not count: `share`, 0 to 1, says how much of the time since the last call was
    /// listened.
    ///
    /// O(1), and once in four seconds, and when there are too many, O(pages known).
    pub fn listened(&mut self, now: Ns, share: f64) {
        let listened = now.saturating_sub(self.until) as f64 * share.clamp(0.0, 1.0);
        self.until = self.until.max(now);
        self.exposure_s += listened / 1e9;
        self.listened_ns += listened;
        if self.marks.back().is_none_or(|(at, _)| self.until - at >= MARK) {
            self.marks.push_back((self.until, self.listened_ns));
        }
        let passed = self.until.saturating_sub(self.forgot_at);
        if passed >= STEP {
            self.forget((-(passed as f64) / TAU as f64).exp());
            self.forgot_at = self.until;
            if self.counters.len() < FEW_PAGES {
                self.halvings = self.halvings.saturating_sub(1);
            }
        }
        if self.counters.len() > MOST_PAGES {
            // Another lot than that of reports of this very time, which is decided.
            let more = self.counters.thin(PAGES_LEFT, !self.until);
            self.halvings = (self.halvings + more).min(MOST_HALVINGS);
        }
    }

    fn forget(&mut self, keep: f64) {
        self.counters.forget(keep);
        self.exposure_s *= keep;
        // Of what came before these nothing is left.
        while self.marks.front().is_some_and(|(at, _)| at + 6 * TAU < self.until) {
            self.marks.pop_front();
        }
    }

    /// For how many seconds was listened since `at`; a second less, maybe.
    fn listened_since_s(&self, at: Ns) -> f64 {
        let later = self.marks.partition_point(|mark| mark.0 < at);
        self.marks.get(later).map_or(0.0, |mark| self.listened_ns - mark.1) / 1e9
    }

    /// Reports so far, also of what is not mapped.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// What is kept of them.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Pages present.
    pub fn resident(&self) -> u64 {
        self.resident.iter().map(|r| r.pages).sum()
    }

    /// Sums it up in at most `max_regions` (at least 1), with ages carried on from the regions `elapsed` ago.
    ///
    /// Which pages of a mapping are resident is not known, so they are taken to be spread evenly, but for those that
    /// were reported. O(mappings + pages known, times the logarithm of the latter).
    pub fn summarize(&mut self, now: Ns, max_regions: usize, before: &[Region], elapsed: Ns) -> Summary {
        self.counters.settle();
        self.note_weight();
        let mappings: Vec<Range<u64>> = self.resident.iter().map(|r| pages_of(r.range)).collect();
        let found = stretches(self.counters.list(), &mappings, max_regions.max(1));
        let mut sum = Summary::default();
        let mut builder = RegionBuilder::new();
        for of_mapping in found.chunk_by(|a, b| a.mapping == b.mapping) {
            self.tell(now, of_mapping, &mut sum, &mut builder);
        }
        sum.regions = builder.finish(max_regions);
        carry_ages(&mut sum.regions, before, elapsed);
        sum
    }

    /// The mean weight of what is kept. Periods change: where the kernel is asked for a frequency, all the time.
    fn note_weight(&mut self) {
        let mut all = Count::default();
        self.counters.list().iter().for_each(|entry| all.add(self.counters.count_of(entry)));
        if all.samples > 0.0 {
            self.weight = Some(all.weight / all.samples);
        }
    }

    /// Tells the stretches of one mapping.
    fn tell(&self, now: Ns, stretches: &[Stretch], sum: &mut Summary, builder: &mut RegionBuilder) {
        let mapping = self.resident[stretches[0].mapping];
        let room: Vec<(u64, u64)> = stretches.iter().map(|s| ((s.to - s.from) as u64, s.end - s.start)).collect();
        let pages = share_out(mapping.pages, &room);
        let huge = share_out(mapping.huge_pages.min(mapping.pages), &pages.iter().map(|p| (0, *p)).collect::<Vec<_>>());
        for (stretch, (pages, huge)) in stretches.iter().zip(pages.into_iter().zip(huge)) {
            if pages == 0 {
                continue;
            }
            let mut count = Count::default();
            self.counters.list()[stretch.from..stretch.to]
                .iter()
                .for_each(|entry| count.add(self.counters.count_of(entry)));
            let heat = self.heat(now, &count, pages);
            sum.temperature.add(heat.interval(), pages);
            // Its pages had their last access about an interval ago, even if the last of all was just now.
            let idle =
                heat.interval().max(if heat.interval().is_measured() { heat.idle() } else { Interval::UNMEASURED });
            sum.idle.add(idle, pages);
            builder.of_heat(whole_pages(stretch, mapping.range), pages, huge, heat);
        }
    }

    /// The heat of each of `pages` pages that were reported like this together.
    fn heat(&self, now: Ns, count: &Count, pages: u64) -> Heat {
        let pages = pages as f64;
        if self.exposure_s <= 0.0 {
            return Heat::default();
        }
        if count.samples == 0.0 {
            return self.silent(pages);
        }
        let idle_ns = now.saturating_sub(count.last);
        let weight = self.weight.unwrap_or(count.weight / count.samples);
        // Less than one report is left: no less than one can be told.
        let least = if self.silence == Silence::Unknown { 0.0 } else { weight };
        let mut rate_hz = count.weight.max(least) / (self.exposure_s * pages);
        let heard_s = self.listened_since_s(count.last);
        let may_be_quiet = self.silence == Silence::Cold && heard_s >= LEAST_QUIET_S;
        if may_be_quiet && count.samples / self.exposure_s * heard_s > QUIET {
            // Longer than chance leaves it at that rate: what counts is that less than one report has come since.
            rate_hz = rate_hz.min(weight / (heard_s * pages));
        }
        Heat::of_rate(rate_hz.max(f64::MIN_POSITIVE), idle_ns)
    }

    /// Nothing was reported: less than one report in all the time and of all the pages.
    fn silent(&self, pages: f64) -> Heat {
        let Some(weight) = self.weight.filter(|w| *w > 0.0 && self.silence != Silence::Unknown) else {
            return Heat::default();
        };
        let rate_hz = weight / (self.exposure_s * pages);
        if rate_hz * LEAST_IDLE as f64 / 1e9 > 1.0 {
            return Heat::default();
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "time since the start")]
        Heat::of_rate(rate_hz, self.listened_ns as Ns)
    }
}

/// One report in 2^`halvings`, with as many times its weight.
#[inline]
fn draw(access: Access, halvings: u32) -> Option<Access> {
    // One that stands for thousands of millions of events is kept as it is, which is as right.
    let Some(weight) = access.weight.checked_mul(1 << halvings).filter(|_| halvings > 0) else { return Some(access) };
    // By what it says and not by how many came before: nothing depends on the order in which reports come.
    (lot(access.page.0, access.at) >> (64 - halvings) == 0).then_some(Access { weight, ..access })
}

/// A number that depends on both and looks like chance.
fn lot(page: u64, salt: u64) -> u64 {
    // Neighbouring pages at neighbouring times would else have the same sums.
    Rng::new(page.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt).next_u64()
}

/// The pages that a range touches.
fn pages_of(range: AddrRange) -> Range<u64> {
    range.start.page().0..(range.end.0.saturating_sub(1) >> PAGE_SHIFT) + 1
}

fn whole_pages(stretch: &Stretch, within: AddrRange) -> AddrRange {
    let (start, end) = (PageNo(stretch.start).addr(), PageNo(stretch.end).addr());
    AddrRange::new(start.max(within.start), end.min(within.end))
}

#[cfg(test)]
mod tests;
