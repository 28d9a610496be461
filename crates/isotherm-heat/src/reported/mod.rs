//! Heat from reports of accesses as they happen: samples of memory accesses, page faults, NUMA hint faults.
//!
//! Fed by sources that report (`isotherm-sources`) and read by snapshots: alone ([`ReportedTarget::summarize`]), or
//! together with accessed bits ([`summarize_fused`]). A report names a page, a time, and how many events it stands for.
//! `store` counts by page, `density` finds stretches of equal heat, `fused` joins both sources.
//!
//! All costs here follow the number of reports and mappings. They do not follow pages: a target of 100 GB has 26
//! million, of which samples see a few percent. Nor do they follow regions, which are made anew for each snapshot. The
//! kernel proposal for such reports walks a list of all regions once a window. That takes 2.6 s for regions of one
//! page.
//!
//! **Forgetting.** Old reports count less: by exp(-t / 60 s). The same holds for the time listened, so reports divided
//! by time listened is the rate, from the first second on and through pauses. By default, memory that was not touched
//! for a minute is called idle. At the usual 1,000 to 4,000 samples a second, one minute of samples separates spans of
//! half a MiB in 10 GiB of hot memory. Half a minute would separate half as many. Memory that stops being accessed need
//! not fade for minutes: if reports came so often that their absence since then is not chance ([`QUIET`]), the time
//! since the last one counts, as with accessed bits. Forgetting is done in steps of four seconds. The rate does not
//! change by that, since reports and time are scaled alike.
//!
//! **Too many pages.** In an evenly used TB, nearly every sample is of another page. Above [`MAX_PAGES`], one sample in
//! two is kept, then one in four, and so on. The choice is random, and each kept sample stands for as many more events,
//! as if the event had been sampled at a longer period from the start. So rates stay right in the mean, and hot memory
//! stays hot, because it has samples enough. Known pages are thinned at random as well: see [`Counters::thin`]. Time
//! listened does not change.
//!
//! **Silence.** What the absence of reports about a page means depends on the event: see [`Silence`].

mod density;
mod fused;
mod sort;
mod store;

pub use fused::{raise_rates, summarize_fused};
pub use store::{Access, Count, Counters};

use crate::pmd::{MIN_IDLE, Ns};
use crate::regions::{Heat, PastRegion, RegionBuilder, carry_ages};
use crate::view::Summary;
use crate::{Interval, Rng};
use density::{Stretch, share_out, stretches};
use isotherm_units::{AddrRange, PAGE_SHIFT, PageNo};
use std::collections::VecDeque;
use std::ops::Range;

/// Time constant of forgetting.
const TAU: Ns = 60_000_000_000;
/// How often old reports are scaled down.
const STEP: Ns = TAU / 16;
/// With more known pages than this, samples are thinned out. Takes 48 MiB while the lists are merged, 64 MiB with
/// pending reports.
const MAX_PAGES: usize = 1 << 20;
/// Pages left after that: so few that it does not happen again every few seconds.
const PAGES_LEFT: usize = MAX_PAGES / 4 * 3;
/// With fewer pages than this, twice as many samples are drawn again. There is room for twice as many pages without
/// another thinning soon.
const SMALL_TABLE_PAGES: usize = MAX_PAGES / 4;
/// At least one sample in 2^20 is drawn: of a billion a second, a thousand.
const MAX_HALVINGS: u32 = 20;
/// No report is older than this when the target becomes known. An earlier time is wrong, and would stretch the time
/// listened.
const MAX_BEFORE: Ns = 10_000_000_000;
/// If this many reports were expected on average since the last one, their absence is not chance: that happens once in
/// ten thousand.
const QUIET: f64 = 9.2;
/// And at least this long has to be listened since then: accesses come in bursts, which a Poisson model does not cover.
const MIN_QUIET_S: f64 = 4.0;
/// How often the time listened until then is noted.
const MARK: Ns = 1_000_000_000;

/// Resident memory of a mapping as its source reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resident {
    /// Its addresses.
    pub range: AddrRange,
    /// Pages present in it.
    pub pages: u64,
    /// Those of them on huge pages.
    pub huge_pages: u64,
}

/// What it means that nothing was reported of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// It was accessed less often than can be seen: samples of memory accesses.
    Cold,
    /// The same if nothing was ever reported. But after a report, the next one comes only when the kernel has scanned
    /// the page again, maybe in a minute or never: NUMA hint faults.
    Scanned,
    /// Nothing. Page faults without NUMA hinting come once, at the first touch.
    Unknown,
}

/// The heat of one process known from reports.
#[derive(Clone, Debug)]
pub struct ReportedTarget {
    silence: Silence,
    counters: Counters,
    /// Mappings with memory in them, in address order.
    resident: Vec<Resident>,
    /// Listened until then.
    until: Ns,
    forgot_at: Ns,
    /// Seconds listened. Old seconds count less, as reports do.
    exposure_s: f64,
    /// Total time listened.
    listened_ns: f64,
    /// The same at earlier times, about [`MARK`] apart.
    marks: VecDeque<(Ns, f64)>,
    samples: u64,
    /// One report in 2^this is kept.
    halvings: u32,
    /// Mean number of events for each report, when there last was one.
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

    /// Takes in what is mapped now, sorted. Reports are kept.
    pub fn refit(&mut self, mut resident: Vec<Resident>) {
        resident.retain(|r| r.pages > 0 && !r.range.is_empty());
        self.resident = resident;
    }

    /// Takes in a report, in any order of time. O(1).
    ///
    /// Reports that come before the first call of [`ReportedTarget::listened`] may be older than the target: the event
    /// was already enabled. Time listened then begins with the earliest of them.
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
        // Nothing was forgotten yet, so `forgot_at` is still the time when the target became known.
        if at + MAX_BEFORE >= self.forgot_at {
            self.until = at;
        }
    }

    /// Sets what a report will stand for, if that is known before the first one. Only then can silence be interpreted.
    pub fn expect_weight(&mut self, weight: u32) {
        self.weight.get_or_insert(f64::from(weight));
    }

    /// Notes that the event was listened to until `now`. All reports until then must have been taken in. Time during
    /// which the event was off does not count: `share`, 0 to 1, is the part of the time since the last call in which it
    /// was on.
    ///
    /// O(1). Every four seconds, and when there are too many pages, O(pages known).
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
            if self.counters.len() < SMALL_TABLE_PAGES {
                self.halvings = self.halvings.saturating_sub(1);
            }
        }
        if self.counters.len() > MAX_PAGES {
            // The salt differs from that of reports of this very time, which were drawn already.
            let more = self.counters.thin(PAGES_LEFT, !self.until);
            self.halvings = (self.halvings + more).min(MAX_HALVINGS);
        }
    }

    fn forget(&mut self, keep: f64) {
        self.counters.forget(keep);
        self.exposure_s *= keep;
        // Nothing is left of reports that came before these marks.
        while self.marks.front().is_some_and(|(at, _)| at + 6 * TAU < self.until) {
            self.marks.pop_front();
        }
    }

    /// Seconds listened since `at`. May be a second too low.
    fn listened_since_s(&self, at: Ns) -> f64 {
        let later = self.marks.partition_point(|mark| mark.0 < at);
        self.marks.get(later).map_or(0.0, |mark| self.listened_ns - mark.1) / 1e9
    }

    /// Reports so far, including reports of unmapped pages.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// The counters of these reports.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Pages present.
    pub fn resident(&self) -> u64 {
        self.resident.iter().map(|r| r.pages).sum()
    }

    /// Sums up in at most `max_regions` (at least 1), with ages carried on from the regions `elapsed` ago.
    ///
    /// Which pages of a mapping are resident is not known. Except for the reported ones, they are assumed to be spread
    /// evenly. O(mappings + pages known, times the logarithm of the latter).
    pub fn summarize(&mut self, now: Ns, max_regions: usize, before: &[PastRegion], elapsed: Ns) -> Summary {
        self.counters.settle();
        self.note_weight();
        let mappings: Vec<Range<u64>> = self.resident.iter().map(|r| pages_of(r.range)).collect();
        let found = stretches(self.counters.list(), &mappings, max_regions.max(1));
        let mut sum = Summary::default();
        let mut builder = RegionBuilder::new(max_regions);
        for of_mapping in found.chunk_by(|a, b| a.mapping == b.mapping) {
            self.tell(now, of_mapping, &mut sum, &mut builder);
        }
        sum.regions = builder.finish();
        carry_ages(&mut sum.regions, before, elapsed);
        sum
    }

    /// Updates the mean weight of the reports kept. Periods change all the time if the kernel is asked for a frequency.
    fn note_weight(&mut self) {
        let mut all = Count::default();
        self.counters.list().iter().for_each(|entry| all.add(self.counters.count_of(entry)));
        if all.samples > 0.0 {
            self.weight = Some(all.weight / all.samples);
        }
    }

    /// Reports the stretches of one mapping.
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
            // Its pages were last accessed about an interval ago on average, even if the last access of all was just
            // now.
            let idle =
                heat.interval().max(if heat.interval().is_measured() { heat.idle() } else { Interval::UNMEASURED });
            sum.idle.add(idle, pages);
            builder.of_heat(whole_pages(stretch, mapping.range), pages, huge, heat);
        }
    }

    /// The heat of each of `pages` pages, from their reports together.
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
        // Less than one report is left. No less than one can be reported.
        let least = if self.silence == Silence::Unknown { 0.0 } else { weight };
        let mut rate_hz = count.weight.max(least) / (self.exposure_s * pages);
        let listened_s = self.listened_since_s(count.last);
        let may_be_quiet = self.silence == Silence::Cold && listened_s >= MIN_QUIET_S;
        if may_be_quiet && count.samples / self.exposure_s * listened_s > QUIET {
            // Silent for longer than chance allows at that rate, so use that less than one report has come since.
            rate_hz = rate_hz.min(weight / (listened_s * pages));
        }
        Heat::of_rate(rate_hz.max(f64::MIN_POSITIVE), idle_ns)
    }

    /// Nothing was reported: less than one report in all the time, for all the pages.
    fn silent(&self, pages: f64) -> Heat {
        let Some(weight) = self.weight.filter(|w| *w > 0.0 && self.silence != Silence::Unknown) else {
            return Heat::default();
        };
        let rate_hz = weight / (self.exposure_s * pages);
        if rate_hz * MIN_IDLE as f64 / 1e9 > 1.0 {
            return Heat::default();
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "time since the start")]
        Heat::of_rate(rate_hz, self.listened_ns as Ns)
    }
}

/// Keeps one report in 2^`halvings`, with that many times its weight.
#[inline]
fn draw(access: Access, halvings: u32) -> Option<Access> {
    // A report that stands for thousands of millions of events is kept unchanged. That is right in the mean as well.
    let Some(weight) = access.weight.checked_mul(1 << halvings).filter(|_| halvings > 0) else { return Some(access) };
    // The draw depends on the report and not on how many came before. So the order of reports does not matter.
    (lot(access.page.0, access.at) >> (64 - halvings) == 0).then_some(Access { weight, ..access })
}

/// A pseudo-random number that depends on both arguments.
fn lot(page: u64, salt: u64) -> u64 {
    // Without the multiplication, neighbouring pages at neighbouring times would have the same sums.
    Rng::new(page.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt).next_u64()
}

/// The pages that a range overlaps.
fn pages_of(range: AddrRange) -> Range<u64> {
    range.start.page().0..(range.end.0.saturating_sub(1) >> PAGE_SHIFT) + 1
}

fn whole_pages(stretch: &Stretch, within: AddrRange) -> AddrRange {
    let (start, end) = (PageNo(stretch.start).addr(), PageNo(stretch.end).addr());
    AddrRange::new(start.max(within.start), end.min(within.end))
}

#[cfg(test)]
mod tests;
