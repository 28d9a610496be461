//! From pages to regions: neighbouring pages of like heat, at most `max_regions` of them.
//!
//! Fed page by page in address order, so that no list of pages is ever stored. Runs of like pages become regions. A
//! huge range whose runs are too short to report separately (scattered hot pages) becomes one region with the mean of its
//! pages. Then neighbours are merged until the number fits and no further, those first that lose least. The loss grows
//! with the square of the octaves between two parts and with the pages of the smaller one (Ward's criterion, 1963: the
//! increase of the sum of squares about the means). So small parts merge before large ones, and similar parts before
//! different ones. DAMON splits regions to find out whether one hides a difference. That is not needed here: every
//! snapshot starts from pages.
//!
//! Rates are reported in addition to intervals: samples can show rates above 1,000 a second, where the scale of
//! intervals ends.

use crate::merge::{NEVER, merge_down_to};
use crate::{Interval, Region, Run, STEPS_PER_OCTAVE};
use isotherm_units::{Addr, AddrRange, PAGE_SIZE, PmdNo};

/// Pages within this many octaves of a run's mean belong to the run.
const LIKE_OCTAVES: f64 = 1.5;
/// The difference between measured and unmeasured pages, in octaves.
const UNMEASURED_OCTAVES: f64 = 2.0;
/// From here on, an interval is nearer to the step after [`Interval::HOT`] on the scale: half a step.
const BEYOND_HOT_OCTAVES: f64 = 10.0 + 0.5 / STEPS_PER_OCTAVE as f64;
/// A huge range with more runs than this is reported as one mixed region.
const MAX_RUNS: usize = 32;

/// Sums over the pages of a region under construction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Part {
    start: u64,
    end: u64,
    resident: u64,
    measured: u64,
    huge: u64,
    octaves: f64,
    rate: f64,
    idle_ns: f64,
    sampled: u64,
    estimated: u64,
    hot: u64,
}

impl Part {
    fn mean_octaves(&self) -> Option<f64> {
        (self.measured > 0).then(|| self.octaves / self.measured as f64)
    }

    /// Whether pages of this heat belong to it. Of scattered pages this is asked for each: without a division.
    fn takes(&self, octaves: Option<f64>) -> bool {
        let measured = self.measured as f64;
        match octaves {
            Some(octaves) => self.measured > 0 && (self.octaves - octaves * measured).abs() <= LIKE_OCTAVES * measured,
            None => self.measured == 0,
        }
    }

    fn add(&mut self, end: u64, of: Like, pages: u64) {
        self.end = end;
        self.resident += pages;
        self.huge += if of.huge { pages } else { 0 };
        if let Some(octaves) = of.heat.octaves {
            let pages_f = pages as f64;
            self.measured += pages;
            self.octaves += octaves * pages_f;
            self.rate += of.heat.rate_hz * pages_f;
            self.idle_ns += of.heat.idle_ns * pages_f;
            self.sampled += if of.heat.sampled { pages } else { 0 };
            self.estimated += if of.estimated { pages } else { 0 };
            self.hot += if octaves < BEYOND_HOT_OCTAVES { pages } else { 0 };
        }
    }

    fn join(&mut self, next: &Part) {
        self.end = next.end;
        self.resident += next.resident;
        self.measured += next.measured;
        self.huge += next.huge;
        self.octaves += next.octaves;
        self.rate += next.rate;
        self.idle_ns += next.idle_ns;
        self.sampled += next.sampled;
        self.estimated += next.estimated;
        self.hot += next.hot;
    }

    fn joined(mut self, next: Part) -> Part {
        self.join(&next);
        self
    }

    /// How different two parts are, in octaves. Joining unmeasured pages to measured ones loses no heat, because the
    /// mean is over measured pages. So with too many regions, such a join comes before joining parts as different as
    /// hot and cold.
    fn unlike(&self, other: &Part) -> f64 {
        match (self.mean_octaves(), other.mean_octaves()) {
            (Some(a), Some(b)) => (a - b).abs(),
            (None, None) => 0.0,
            _ => UNMEASURED_OCTAVES,
        }
    }

    /// Whether they are no more unlike than that. Asked for each huge range: without a division.
    fn is_within(&self, other: &Part, octaves: f64) -> bool {
        let (a, b) = (self.measured as f64, other.measured as f64);
        match (self.measured, other.measured) {
            (0, 0) => true,
            (0, _) | (_, 0) => UNMEASURED_OCTAVES <= octaves,
            _ => (self.octaves * b - other.octaves * a).abs() <= octaves * a * b,
        }
    }

    /// What joining two neighbours loses, in squared octaves times pages. If one is much smaller, its pages count.
    fn loss(&self, next: &Part) -> f64 {
        let pages = match (self.measured, next.measured) {
            (0, _) | (_, 0) => (self.resident, next.resident),
            both => both,
        };
        let (a, b) = (pages.0 as f64, pages.1 as f64);
        a * b / (a + b).max(1.0) * self.unlike(next).powi(2)
    }

    fn region(&self) -> Region {
        let interval = self.mean_octaves().map_or(Interval::UNMEASURED, Interval::from_octaves);
        #[expect(clippy::cast_possible_truncation, reason = "four digits of a rate are plenty")]
        let rate_hz = (self.rate / self.measured.max(1) as f64) as f32;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a mean of times below 2^63")]
        let idle_ns = (self.idle_ns / self.measured.max(1) as f64) as u64;
        Region {
            range: AddrRange::new(Addr(self.start), Addr(self.end)),
            resident_pages: self.resident,
            measured_pages: self.measured,
            huge_pages: self.huge,
            interval,
            rate_hz,
            age_ns: 0,
            idle_ns,
            sampled_pages: self.sampled,
            estimated_pages: self.estimated,
            hot_pages: Some(self.hot),
        }
    }
}

/// Whether runs of one huge range are one part in any order: whatever the mean of some of them, the others are near it.
pub(crate) fn are_alike(runs: &[Run]) -> bool {
    let octaves = || runs.iter().filter_map(|run| run.interval.octaves());
    octaves().fold(f64::NEG_INFINITY, f64::max) - octaves().fold(f64::INFINITY, f64::min) <= LIKE_OCTAVES
}

/// Counts the parts that [`RegionBuilder::pmd`] makes of adjacent measured runs, without making them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Parts {
    count: usize,
    /// Only its heat and how many pages it has.
    last: Part,
}

impl Parts {
    /// The next run.
    pub fn add(&mut self, octaves: f64, pages: u64) {
        if !self.last.takes(Some(octaves)) {
            *self = Parts { count: self.count + 1, last: Part::default() };
        }
        self.last.octaves += octaves * pages as f64;
        self.last.measured += pages;
    }

    /// Whether so many runs make no more parts than may stay.
    pub fn are_few(runs: u32) -> bool {
        runs as usize <= MAX_RUNS
    }

    /// Whether they are too many: the huge range becomes one region.
    pub fn are_mixed(&self) -> bool {
        self.count > MAX_RUNS
    }
}

/// What is known of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Heat {
    /// log2 of the interval in milliseconds, which may be below 0; `None`: not measured.
    octaves: Option<f64>,
    rate_hz: f64,
    idle_ns: f64,
    /// Known from samples.
    sampled: bool,
}

impl Heat {
    /// From accessed bits.
    pub fn of_interval(interval: Interval, idle: Interval) -> Heat {
        let idle_ns = idle.ns().unwrap_or(0) as f64;
        Heat { octaves: interval.octaves(), rate_hz: interval.rate_hz(), idle_ns, sampled: false }
    }

    /// From samples. The rate has to be positive.
    pub fn of_rate(rate_hz: f64, idle_ns: u64) -> Heat {
        Heat { octaves: Some((1000.0 / rate_hz).log2()), rate_hz, idle_ns: idle_ns as f64, sampled: true }
    }

    /// Time since last seen accessed, on the scale.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from a time")]
    pub fn idle(&self) -> Interval {
        Interval::from_ns(self.idle_ns as u64)
    }

    /// Whether it shows more frequent accesses than the other.
    pub fn is_hotter_than(&self, other: &Heat) -> bool {
        self.octaves.is_some() && (other.octaves.is_none() || self.rate_hz > other.rate_hz)
    }

    /// The matching step of the scale.
    pub fn interval(&self) -> Interval {
        self.octaves.map_or(Interval::UNMEASURED, Interval::from_octaves)
    }
}

/// Pages of one kind in a row.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Like {
    heat: Heat,
    huge: bool,
    estimated: bool,
}

/// Builds regions from huge ranges given in address order. Holds at most twice as many as are wanted in the end, however large the
/// target.
#[derive(Debug)]
pub struct RegionBuilder {
    max: usize,
    parts: Vec<Part>,
    of_pmd: Vec<Part>,
    /// Parts from which on they are merged before the end.
    full: usize,
}

impl RegionBuilder {
    /// A builder of at most `max` regions (at least 1), with nothing in it.
    pub fn new(max: usize) -> RegionBuilder {
        let max = max.max(1);
        RegionBuilder { max, parts: Vec::new(), of_pmd: Vec::new(), full: max.saturating_mul(2) }
    }

    /// Adds pages as one region of their own: the number of pages by interval and idle time is known, but not where in
    /// `range` they are.
    pub fn mixed(&mut self, range: AddrRange, huge_pages: u64, counted: &[(Interval, Interval, u64)]) {
        let mut part = Part { start: range.start.0, huge: huge_pages, ..Part::default() };
        for (interval, idle, pages) in counted {
            part.add(
                range.end.0,
                Like { heat: Heat::of_interval(*interval, *idle), huge: false, estimated: false },
                *pages,
            );
        }
        part.end = range.end.0;
        self.append(part);
    }

    /// Adds pages that all have the same heat, as one region of their own.
    pub(crate) fn of_heat(&mut self, range: AddrRange, resident_pages: u64, huge_pages: u64, heat: Heat) {
        let mut part = Part { start: range.start.0, huge: huge_pages, ..Part::default() };
        part.add(range.end.0, Like { heat, huge: false, estimated: false }, resident_pages);
        self.append(part);
    }

    /// Adds the present pages of a huge range, as runs in order. Absent pages between them end a region.
    pub fn pmd(&mut self, pmd: PmdNo, runs: &[Run]) {
        // As of most huge ranges: it needs no list of parts.
        if let [run] = runs {
            return self.push(part_of(pmd, run, like(run)));
        }
        self.heats(pmd, runs.iter().map(|run| (*run, Heat::of_interval(run.interval, run.idle))));
    }

    /// Adds a huge range as one region, of which the runs say how many pages of each kind there are.
    pub(crate) fn gathered(&mut self, pmd: PmdNo, kinds: &[Run]) {
        let parts = kinds.iter().map(|run| part_of(pmd, run, like(run)));
        parts.reduce(Part::joined).into_iter().for_each(|part| self.push(part));
    }

    /// Like [`RegionBuilder::pmd`], with the heat of each run given.
    pub(crate) fn heats(&mut self, pmd: PmdNo, runs: impl IntoIterator<Item = (Run, Heat)>) {
        self.of_pmd.clear();
        // Of a mixed huge range only the sum is kept.
        let mut mixed: Option<Part> = None;
        for (run, heat) in runs {
            let of = Like { heat, huge: run.huge, estimated: run.estimated };
            let (addr, pages) = (pmd.page(usize::from(run.first)).addr().0, u64::from(run.pages));
            match &mut mixed {
                Some(whole) => whole.add(addr + pages * PAGE_SIZE, of, pages),
                None => self.add_run(addr, pages, of),
            }
            if self.of_pmd.len() > MAX_RUNS {
                mixed = self.of_pmd.drain(..).reduce(Part::joined);
            }
        }
        let mut parts = std::mem::take(&mut self.of_pmd);
        mixed.into_iter().chain(parts.drain(..)).for_each(|part| self.push(part));
        self.of_pmd = parts;
    }

    fn add_run(&mut self, addr: u64, pages: u64, of: Like) {
        let end = addr + pages * PAGE_SIZE;
        let last = self.of_pmd.last_mut().filter(|run| run.end == addr && run.takes(of.heat.octaves));
        if let Some(run) = last {
            return run.add(end, of, pages);
        }
        let mut run = Part { start: addr, ..Part::default() };
        run.add(end, of, pages);
        self.of_pmd.push(run);
    }

    /// Appends a part, or extends the last one if it is adjacent and alike. Parts with and without hot pages are not: a
    /// few hot pages hardly move a mean, and a reader of the joined region would spread them over all of it.
    fn push(&mut self, part: Part) {
        let alike = |last: &Part| last.is_within(&part, LIKE_OCTAVES / 2.0) && (last.hot > 0) == (part.hot > 0);
        match self.parts.last_mut() {
            Some(last) if last.end == part.start && alike(last) => last.join(&part),
            _ => self.append(part),
        }
    }

    /// Appends a part. If there are too many to keep, those that lose least are merged: more than may be left of all memory in the
    /// end stay, so what follows decides on the rest.
    fn append(&mut self, part: Part) {
        if self.parts.len() >= self.full {
            merge_down_to(&mut self.parts, self.max + self.max / 4, adjacent_loss, Part::join);
            // What cannot be merged, for it is not adjacent, is not tried again with each part.
            self.full = (self.parts.len() + self.max / 2).max(self.max.saturating_mul(2));
        }
        self.parts.push(part);
    }

    /// The regions in address order, as many as allowed. Cheaper than sorting by loss: see `merge`.
    pub fn finish(mut self) -> Vec<Region> {
        merge_down_to(&mut self.parts, self.max, adjacent_loss, Part::join);
        // More separate mappings than regions allowed: bridge the smallest gaps. `resident_pages` shows the holes.
        merge_down_to(&mut self.parts, self.max, |a, b| (b.start - a.end) as f64, Part::join);
        self.parts.iter().map(Part::region).collect()
    }
}

fn like(run: &Run) -> Like {
    Like { heat: Heat::of_interval(run.interval, run.idle), huge: run.huge, estimated: run.estimated }
}

fn part_of(pmd: PmdNo, run: &Run, of: Like) -> Part {
    let (addr, pages) = (pmd.page(usize::from(run.first)).addr().0, u64::from(run.pages));
    let mut part = Part { start: addr, ..Part::default() };
    part.add(addr + pages * PAGE_SIZE, of, pages);
    part
}

fn adjacent_loss(a: &Part, b: &Part) -> f64 {
    if a.end == b.start { a.loss(b) } else { NEVER }
}

/// What the ages of later regions follow from: a third of a [`Region`], as one is kept of each until the next snapshot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PastRegion {
    range: AddrRange,
    interval: Interval,
    age_ns: u64,
    idle_ns: u64,
}

impl From<&Region> for PastRegion {
    fn from(region: &Region) -> PastRegion {
        let Region { range, interval, age_ns, idle_ns, .. } = *region;
        PastRegion { range, interval, age_ns, idle_ns }
    }
}

/// Gives `regions` the age of the regions they continue. `before` are the regions of a snapshot `elapsed_ns` ago.
///
/// A region keeps its age while its heat stays within an octave of the old region at its middle, or while it keeps
/// cooling because it is idle. Otherwise its age begins at 0. Linear in both lists.
pub fn carry_ages(regions: &mut [Region], before: &[PastRegion], elapsed_ns: u64) {
    let mut old = before.iter().peekable();
    for region in regions {
        let middle = Addr(region.range.start.0 / 2 + region.range.end.0 / 2);
        while old.next_if(|o| o.range.end <= middle).is_some() {}
        let Some(was) = old.peek().filter(|o| o.range.contains(middle)) else { continue };
        let same = match (was.interval.octaves(), region.interval.octaves()) {
            // An idle region's interval is its idle time, which grows by itself.
            (Some(a), Some(b)) => (a - b).abs() <= 1.0 || (b > a && region.idle_ns >= was.idle_ns + elapsed_ns / 2),
            (None, None) => true,
            _ => false,
        };
        if same {
            region.age_ns = was.age_ns + elapsed_ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hot() -> Interval {
        Interval::from_ns(20_000_000)
    }

    fn cold() -> Interval {
        Interval::from_ns(60_000_000_000)
    }

    fn runs(pmd: &[Interval; 512]) -> Vec<Run> {
        let present = pmd.iter().enumerate().filter(|(_, i)| **i != Interval::ABSENT);
        let run = |(i, interval): (usize, &Interval)| Run {
            first: u16::try_from(i).unwrap(),
            pages: 1,
            interval: *interval,
            idle: *interval,
            huge: false,
            cleared: false,
            estimated: false,
        };
        present.map(run).collect()
    }

    fn build(pmds: &[[Interval; 512]], max: usize) -> Vec<Region> {
        let mut b = RegionBuilder::new(max);
        for (no, pmd) in pmds.iter().enumerate() {
            b.pmd(PmdNo(100 + no as u64), &runs(pmd));
        }
        b.finish()
    }

    #[test]
    fn a_hot_span_across_huge_ranges_is_one_region() {
        let mut pmds = [[cold(); 512]; 3];
        pmds[0][400..].fill(hot());
        pmds[1][..100].fill(hot());
        let regions = build(&pmds, 1000);
        let sizes: Vec<_> = regions.iter().map(|r| (r.range.len().pages(), r.interval)).collect();
        assert_eq!(sizes, [(400, cold()), (212, hot()), (412 + 512, cold())]);
        assert!((f64::from(regions[1].rate_hz) - hot().rate_hz()).abs() < 0.1);
    }

    #[test]
    fn scattered_hot_pages_are_told_as_a_mix() {
        let mut pmd = [cold(); 512];
        for page in (0..512).step_by(8) {
            pmd[page] = hot();
        }
        let regions = build(&[pmd], 1000);
        assert_eq!(regions.len(), 1);
        assert_eq!(regions[0].resident_pages, 512);
        let expected = (64.0 * hot().rate_hz() + 448.0 * cold().rate_hz()) / 512.0;
        assert!((f64::from(regions[0].rate_hz) - expected).abs() < 0.01);
    }

    #[test]
    fn hot_pages_are_counted_one_by_one_however_regions_merge() {
        let mut mixed = [cold(); 512];
        mixed.iter_mut().step_by(8).for_each(|page| *page = hot());
        mixed[1] = Interval::UNMEASURED;
        let pmds = [[hot(); 512], mixed, [cold(); 512], [Interval::UNMEASURED; 512], [Interval::HOT; 512]];
        for max in [1, 2, 3, 1000] {
            let regions = build(&pmds, max);
            assert_eq!(regions.iter().map(Region::hot).sum::<u64>(), 512 + 64 + 512, "at most {max} regions");
            assert!(regions.iter().all(|r| r.hot_pages.is_some()));
        }
    }

    #[test]
    fn a_few_hot_pages_are_not_spread_over_idle_memory_next_to_them() {
        let mut sparse = [cold(); 512];
        sparse.iter_mut().step_by(25).for_each(|page| *page = hot());
        let regions = build(&[sparse, sparse, [cold(); 512], [cold(); 512], [cold(); 512]], 1000);
        let means: Vec<_> = regions.iter().filter_map(|r| r.interval.octaves()).collect();
        assert!(means[1] - means[0] < LIKE_OCTAVES / 2.0, "the means alone are alike: {means:?}");
        let found: Vec<_> = regions.iter().map(|r| (r.range.len().pages(), r.hot())).collect();
        assert_eq!(found, [(2 * 512, 42), (3 * 512, 0)]);
        assert_eq!(build(&[sparse, [cold(); 512]], 1)[0].hot(), 21, "with too few regions they are still counted");
    }

    #[test]
    fn absent_pages_end_a_region() {
        let mut pmd = [hot(); 512];
        pmd[10..20].fill(Interval::ABSENT);
        let regions = build(&[pmd], 1000);
        assert_eq!(regions.iter().map(|r| r.resident_pages).collect::<Vec<_>>(), [10, 492]);
    }

    #[test]
    fn the_bound_holds_and_the_like_merge_first() {
        // Four levels of heat in 64 spans, the two coldest close together.
        let level = |i: usize| Interval::from_ns([10, 500, 30_000, 60_000][i % 4] * 1_000_000);
        let pmds: Vec<[Interval; 512]> = (0..64).map(|i| [level(i); 512]).collect();
        assert_eq!(build(&pmds, 1000).len(), 64);
        let some = build(&pmds, 50);
        assert_eq!(some.len(), 50, "no more than have to are merged");
        let pairs = some.iter().filter(|r| r.resident_pages == 2 * 512).map(|r| r.interval);
        let between = Interval::from_octaves((30_000_f64.log2() + 60_000_f64.log2()) / 2.0);
        assert!(pairs.clone().all(|i| i == between) && pairs.count() == 14, "of 30 s and 60 s, and nothing else");
        assert_eq!(build(&pmds, 1).len(), 1);
        let pages: u64 = build(&pmds, 7).iter().map(|r| r.resident_pages).sum();
        assert_eq!(pages, 64 * 512, "no page is lost");
    }

    #[test]
    fn more_hot_spans_than_regions_lose_the_smallest_gaps_first() {
        // 3,000 spans of 24 to 127 hot pages in groups of ten: 2 to 15 cold pages between those of a group, a huge range or
        // more between groups.
        let mut rng = crate::Rng::new(9);
        let (mut page, mut is_hot) = (1 << 20, Vec::new());
        let mut b = RegionBuilder::new(1000);
        for no in 0..6_000 {
            let pages = match no % 20 {
                19 => 512 + rng.below(3_584),
                n if n % 2 == 0 => 24 + rng.below(104),
                _ => 2 + rng.below(14),
            };
            let interval = if no % 2 == 0 { hot() } else { cold() };
            for _ in 0..pages {
                let of = Run {
                    first: (page % 512) as u16,
                    pages: 1,
                    interval,
                    idle: interval,
                    huge: false,
                    cleared: false,
                    estimated: false,
                };
                b.pmd(PmdNo(page / 512), &[of]);
                is_hot.push(no % 2 == 0);
                page += 1;
            }
        }
        let regions = b.finish();
        assert_eq!(regions.len(), 1000);
        assert_eq!(regions.iter().map(|r| r.resident_pages).sum::<u64>(), is_hot.len() as u64);
        let (mut said, mut right) = (0, 0);
        for region in regions.iter().filter(|r| r.interval <= Interval::from_ns(1_000_000_000)) {
            let index = |addr: Addr| usize::try_from(addr.page().0 - (1 << 20)).unwrap();
            let pages = &is_hot[index(region.range.start)..index(region.range.end)];
            said += pages.len();
            right += pages.iter().filter(|hot| **hot).count();
        }
        let (recall, precision) =
            (right as f64 / is_hot.iter().filter(|hot| **hot).count() as f64, right as f64 / said as f64);
        println!("recall {recall:.3}, precision {precision:.3}");
        // Nothing but gaps within groups has to go: 300 groups and 300 gaps fit.
        assert!(recall >= 0.99 && precision >= 0.88, "recall {recall}, precision {precision}");
    }

    #[test]
    fn what_is_not_measured_yet_does_not_make_hot_and_cold_one() {
        // Half of the huge ranges are known, every other eight; too many runs for the regions there may be.
        let known = |i: u64| if (800..1200).contains(&i) { hot() } else { cold() };
        let level = |i: u64| if (i / 8).is_multiple_of(2) { Interval::UNMEASURED } else { known(i) };
        let pmds: Vec<[Interval; 512]> = (0..2000).map(|i| [level(i); 512]).collect();
        let regions = build(&pmds, 20);
        assert!(regions.len() <= 20);
        // Neighbours may stay apart though they are alike, if there is room for them.
        let hot_ones: Vec<_> = regions.iter().filter(|r| r.interval <= hot()).collect();
        assert!(hot_ones.windows(2).all(|w| w[0].range.end == w[1].range.start), "{regions:?}");
        let pmds = hot_ones.iter().map(|r| r.range.len().pages() / 512).sum::<u64>();
        assert!((384..=416).contains(&pmds), "{pmds}");
        assert!(regions.iter().all(|r| [hot(), cold()].contains(&r.interval)), "{regions:?}");
    }

    #[test]
    fn more_mappings_than_regions_bridge_the_smallest_gaps() {
        let mut pmd = [Interval::ABSENT; 512];
        for page in (0..512).step_by(2) {
            pmd[page] = hot();
        }
        let mut far = pmd;
        far[..].rotate_left(1);
        let mut b = RegionBuilder::new(2);
        b.pmd(PmdNo(1), &runs(&pmd));
        b.pmd(PmdNo(1 << 20), &runs(&far));
        let regions = b.finish();
        assert_eq!(regions.len(), 2);
        assert!(regions.iter().all(|r| r.resident_pages == 256));
    }

    #[test]
    fn age_grows_while_heat_stays_and_restarts_when_it_changes() {
        let mut first = build(&[[hot(); 512], [cold(); 512]], 10);
        for region in &mut first {
            region.age_ns = 5;
        }
        let first: Vec<PastRegion> = first.iter().map(PastRegion::from).collect();
        let mut second = build(&[[hot(); 512], [hot(); 512]], 10);
        carry_ages(&mut second, &first, 100);
        assert_eq!(second[0].age_ns, 0, "the middle of the new region was cold");
        let mut third = build(&[[hot(); 512], [cold(); 512]], 10);
        carry_ages(&mut third, &first, 100);
        assert_eq!(third.iter().map(|r| r.age_ns).collect::<Vec<_>>(), [105, 105]);
    }

    /// Idle memory whose checks differ, with a few hot spans in it, as while a large target is checked for the first time.
    #[test]
    fn what_is_held_is_bounded_and_what_matters_is_kept() {
        let seed = 3;
        let mut rng = isotherm_rng::Rng::new(seed);
        let mut b = RegionBuilder::new(40);
        let spans = [700..702, 3000..3001, 9000..9064];
        for no in 0..10_000 {
            let idle = Interval::from_ns((2 << rng.below(8)) * 1_000_000_000);
            let interval = if spans.iter().any(|span| span.contains(&no)) { hot() } else { idle };
            b.pmd(PmdNo(no), &runs(&[interval; 512]));
            assert!(b.parts.len() <= 80, "seed {seed}: {} parts", b.parts.len());
        }
        let regions = b.finish();
        let hot: Vec<_> =
            regions.iter().filter(|r| r.hot() > 0).map(|r| r.range.start.pmd().0..r.range.end.pmd().0).collect();
        assert_eq!((hot.as_slice(), regions.len()), (spans.as_slice(), 40), "seed {seed}");
        // Nothing is adjacent, and nothing can be merged before the end.
        let mut apart = RegionBuilder::new(10);
        (0..1000).for_each(|no| apart.pmd(PmdNo(2 * no), &runs(&[cold(); 512])));
        assert_eq!(apart.finish().len(), 10);
    }
}
