//! A context: targets that are sampled together, with one set of attributes, one generator, and one limit on all their
//! regions.
//!
//! The caller is responsible for the order within a sample: [`Context::draw`], wait a sampling interval,
//! [`Context::check`], [`Context::end_of_sample`], and then everything that it reports as due. Nothing on this path
//! divides or allocates: it is two walks over flat lists. The drawn pages are not stored. The check draws them again,
//! from the same state of the generator. That takes less time than to write and read 200,000 of them.

use super::split::{Limits, cut_on_grid, cut_randomly, cut_to, pieces};
use super::tune::Score;
use super::{Attrs, AttrsError, Counters, merge, moving_sum_bp};
use isotherm_heat::{Rng, Tile, Tiles};
use isotherm_units::{Addr, AddrRange, PAGE_SHIFT, PageNo};

/// One region of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Index of its target.
    pub target: usize,
    /// Index of the region in its target.
    pub region: usize,
    /// The region.
    pub range: AddrRange,
    /// The page that is sampled for the region. A source that reports huge ranges uses the page's huge range. A huge range of which
    /// the region holds half is then half as likely.
    pub page: PageNo,
}

impl Sample {
    #[inline]
    fn draw(rng: &mut Rng, target: usize, region: usize, range: AddrRange) -> Sample {
        Sample { target, region, range, page: rng.in_range(range, PAGE_SHIFT).page() }
    }
}

/// What is due after a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// [`Context::aggregate`] is due. No accesses are counted until it is called.
    pub aggregation: bool,
    /// The memory layout has to be read again, and [`Context::refit_target`] called with it.
    pub update: bool,
}

/// The result of an aggregation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aggregated {
    /// Regions in the snapshot.
    pub regions: usize,
    /// Regions to sample from now on.
    pub after_split: usize,
    /// Whether the intervals were tuned. If so, the caller has to wait the new [`Attrs::sample_ns`].
    pub tuned: bool,
}

/// The phase of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing was drawn, or the drawn pages no longer match the regions.
    Begun,
    Drawn,
    Counted,
}

/// Targets, their regions, and their position in time.
#[derive(Clone, Debug)]
pub struct Context {
    attrs: Attrs,
    rng: Rng,
    /// State of the generator before the last draw.
    drawn_by: Rng,
    targets: Vec<Tiles<Counters>>,
    phase: Phase,
    /// Samples taken since the start.
    passed: u64,
    /// Samples taken when the current aggregation began, when it ends, and when the next update is due.
    began: u64,
    next_aggregation: u64,
    next_update: u64,
    regions_at_split: usize,
    score: Score,
}

impl Context {
    /// A context without targets. The same `seed` gives the same samples for the same calls.
    pub fn new(attrs: Attrs, seed: u64) -> Result<Context, AttrsError> {
        attrs.validate()?;
        Ok(Context {
            rng: Rng::new(seed),
            drawn_by: Rng::new(seed),
            targets: Vec::new(),
            phase: Phase::Begun,
            passed: 0,
            began: 0,
            next_aggregation: attrs.samples(),
            next_update: attrs.samples_per_update(),
            regions_at_split: 0,
            score: Score::default(),
            attrs,
        })
    }

    /// The current attributes, with the tuned intervals.
    pub fn attrs(&self) -> &Attrs {
        &self.attrs
    }

    /// The regions of every target.
    pub fn targets(&self) -> &[Tiles<Counters>] {
        &self.targets
    }

    /// Number of regions of all targets.
    pub fn regions(&self) -> usize {
        self.targets.iter().map(Tiles::len).sum()
    }

    /// Samples taken since the start.
    pub fn passed_samples(&self) -> u64 {
        self.passed
    }

    /// Accesses of a region of this context over the last aggregation interval, in ten-thousandths of an access. Valid
    /// at any time.
    pub fn moving_sum_bp(&self, counters: &Counters) -> u64 {
        moving_sum_bp(counters, self.passed - self.began, self.next_aggregation - self.began)
    }

    /// Adds a target with memory at `ranges` (in any order; overlapping ranges are merged) and returns its index.
    pub fn add_target(&mut self, ranges: &[AddrRange]) -> usize {
        self.targets.push(Tiles::new());
        self.refit_target(self.targets.len() - 1, ranges);
        self.targets.len() - 1
    }

    /// Removes a target and returns its regions. The indexes of the targets after it decrease by one.
    pub fn remove_target(&mut self, target: usize) -> Option<Tiles<Counters>> {
        if target >= self.targets.len() {
            return None;
        }
        let gone = self.targets.remove(target);
        self.fit();
        Some(gone)
    }

    /// Makes the regions of a target cover exactly `ranges`, see [`Tiles::refit`]. An empty slice means a target
    /// without mappings. An unknown target is ignored.
    pub fn refit_target(&mut self, target: usize, ranges: &[AddrRange]) {
        if let Some(tiles) = self.targets.get_mut(target) {
            tiles.refit(ranges, self.attrs.min_region, |_| Counters::default());
            self.fit();
        }
    }

    /// The same with ranges that a user gave. If there are none, the regions do not change.
    pub fn commit_regions(&mut self, target: usize, ranges: &[AddrRange]) {
        if !ranges.is_empty() {
            self.refit_target(target, ranges);
        }
    }

    /// Changes the attributes. The last counts and ages are scaled to the new attributes. If the meaning of a count
    /// changes, the current aggregation starts again.
    pub fn set_attrs(&mut self, attrs: Attrs) -> Result<(), AttrsError> {
        attrs.validate()?;
        let recount = !attrs.counts_like(&self.attrs);
        if recount {
            self.rescale(&attrs);
            self.each_counters(|region| region.nr_accesses = 0);
            self.score = Score::default();
        }
        self.reschedule(&attrs, recount);
        let coarser = attrs.min_region > self.attrs.min_region;
        self.attrs = attrs;
        if coarser {
            self.round_bounds();
        }
        self.fit();
        Ok(())
    }

    /// Draws the page to sample in each region, and calls `each` for all of them: targets in order, regions by address.
    /// A second draw before the check replaces the first. A draw after the check is not counted.
    pub fn draw(&mut self, mut each: impl FnMut(Sample)) {
        if self.phase == Phase::Begun {
            self.phase = Phase::Drawn;
        }
        self.drawn_by = self.rng.clone();
        // Kept in a register instead of behind a pointer.
        let mut rng = self.rng.clone();
        for (target, tiles) in self.targets.iter().enumerate() {
            for (region, tile) in tiles.iter().enumerate() {
                each(Sample::draw(&mut rng, target, region, tile.range));
            }
        }
        self.rng = rng;
    }

    /// Calls `hits` for each sample drawn, in the same order, and adds the result to the count: 0 for no access, up to
    /// [`Attrs::weight`]. Larger values are reduced to that.
    ///
    /// Each sample counts once. If regions changed since the draw, `hits` is not called, because the drawn pages no
    /// longer represent them.
    pub fn check(&mut self, mut hits: impl FnMut(Sample) -> u32) {
        if self.phase != Phase::Drawn || self.passed >= self.next_aggregation {
            return;
        }
        self.phase = Phase::Counted;
        let (weight, mut rng) = (self.attrs.weight, self.drawn_by.clone());
        for (target, tiles) in self.targets.iter_mut().enumerate() {
            for (region, (range, counters)) in tiles.iter_mut().enumerate() {
                let sample = Sample::draw(&mut rng, target, region, range);
                counters.nr_accesses += hits(sample).min(weight);
            }
        }
    }

    /// Ends a sample and returns what is due. An update is reported once, an aggregation until it is done.
    pub fn end_of_sample(&mut self) -> Due {
        self.phase = Phase::Begun;
        self.passed += 1;
        let update = self.passed >= self.next_update;
        if update {
            self.next_update = self.passed + self.attrs.samples_per_update();
        }
        Due { aggregation: self.passed >= self.next_aggregation, update }
    }

    /// Ends an aggregation if it is due: merges similar neighbours, passes the result to `snapshot`, tunes the
    /// intervals, resets the counts and splits.
    pub fn aggregate(&mut self, snapshot: impl FnOnce(&Context)) -> Option<Aggregated> {
        if self.passed < self.next_aggregation {
            return None;
        }
        self.void_draw();
        self.merge_alike();
        let regions = self.regions();
        snapshot(self);
        self.score.add(&self.targets, self.attrs.max_nr_accesses());
        let tuned = self.tune();
        self.began = self.passed;
        self.next_aggregation = self.passed + self.attrs.samples();
        self.each_counters(Counters::reset);
        self.split_randomly(regions);
        Some(Aggregated { regions, after_split: self.regions(), tuned })
    }

    fn each_counters(&mut self, change: impl FnMut(&mut Counters)) {
        self.targets.iter_mut().flat_map(Tiles::iter_mut).map(|(_, counters)| counters).for_each(change);
    }

    fn tune(&mut self) -> bool {
        let Some(attrs) = self.score.tune(&self.attrs) else { return false };
        self.rescale(&attrs);
        self.reschedule(&attrs, false);
        self.attrs = attrs;
        true
    }

    fn rescale(&mut self, new: &Attrs) {
        let old = self.attrs.clone();
        self.each_counters(|region| region.rescale(&old, new));
    }

    /// Converts the schedule to the `new` attributes. Sampling intervals are tuned more often than updates happen, so
    /// the time to the next update continues and does not restart.
    fn reschedule(&mut self, new: &Attrs, recount: bool) {
        if recount {
            self.began = self.passed;
            self.next_aggregation = self.passed + new.samples();
        }
        let left_ns = u128::from(self.next_update - self.passed) * u128::from(self.attrs.sample_ns);
        let same = u64::try_from(left_ns / u128::from(new.sample_ns)).unwrap_or(u64::MAX);
        let wait = if new.update_ns == self.attrs.update_ns { same.max(1) } else { new.samples_per_update() };
        self.next_update = self.passed.saturating_add(wait);
    }

    /// Bounds were multiples of a smaller region size than the new one.
    fn round_bounds(&mut self) {
        for tiles in &mut self.targets {
            let ranges: Vec<AddrRange> = runs(tiles).map(|(start, end)| AddrRange::new(start, end)).collect();
            tiles.refit(&ranges, self.attrs.min_region, |_| Counters::default());
        }
    }

    fn limits(&self) -> Limits {
        Limits::of(&self.attrs, || self.targets.iter().flat_map(runs))
    }

    /// The regions changed, so the drawn pages no longer represent them. A sample that was counted stays counted, or it
    /// would count twice.
    fn void_draw(&mut self) {
        if self.phase == Phase::Drawn {
            self.phase = Phase::Begun;
        }
    }

    /// Restores the limits after any change except an aggregation.
    fn fit(&mut self) {
        self.void_draw();
        let limits = self.limits();
        self.cut_to(limits);
        self.merge_down(0, limits);
    }

    /// Merges neighbours with similar counts, and others as far as the limit on their number requires.
    fn merge_alike(&mut self) {
        let limits = self.limits();
        let counts = self.targets.iter().flat_map(Tiles::iter).map(|tile| tile.of.nr_accesses);
        let bound = counts.max().unwrap_or(0) / 10;
        self.each_counters(|region| region.grow_older(bound));
        self.merge(bound, limits);
        self.cut_to(limits);
        self.merge_down(bound, limits);
    }

    fn merge(&mut self, bound: u32, limits: Limits) {
        for tiles in &mut self.targets {
            tiles.merge(|left, right| merge::join(left, right, bound, limits.size));
        }
    }

    /// Merges regions of increasing difference while there are too many. Merging alone may end with up to two regions
    /// for each allowed size. If that is too many, they are cut at multiples of the size and each piece becomes one
    /// region.
    fn merge_down(&mut self, mut bound: u32, limits: Limits) {
        let greatest = self.attrs.max_nr_accesses();
        while self.regions() > limits.regions && bound < greatest {
            bound = merge::next_bound(bound, greatest);
            self.merge(bound, limits);
        }
        if self.regions() > limits.regions {
            self.cut_on_grid(limits);
            self.merge(greatest, limits);
        }
    }

    fn cut_to(&mut self, limits: Limits) {
        let granule = self.attrs.min_region;
        for tiles in &mut self.targets {
            if tiles.iter().any(|tile| tile.range.len().0 > limits.size) {
                tiles.split(|tile, cuts| cut_to(tile, limits.size, granule, cuts));
            }
        }
    }

    fn cut_on_grid(&mut self, limits: Limits) {
        let granule = self.attrs.min_region.0;
        for tiles in &mut self.targets {
            let (mut origin, mut end) = (0, Addr(u64::MAX));
            tiles.split(|tile, cuts| {
                if tile.range.start != end {
                    origin = tile.range.start.0 & !(granule - 1);
                }
                end = tile.range.end;
                cut_on_grid(tile, origin, limits.size, cuts);
            });
        }
    }

    fn split_randomly(&mut self, regions: usize) {
        let pieces = pieces(regions, self.regions_at_split, self.attrs.max_regions);
        self.regions_at_split = regions;
        if pieces < 2 {
            return;
        }
        let (granule, rng) = (self.attrs.min_region, &mut self.rng);
        for tiles in &mut self.targets {
            tiles.split(|tile, cuts| cut_randomly(tile, pieces, granule, rng, cuts));
        }
    }
}

/// Start and end of each run of adjacent regions.
fn runs(tiles: &Tiles<Counters>) -> impl Iterator<Item = (Addr, Addr)> {
    let touch = |a: &Tile<Counters>, b: &Tile<Counters>| a.range.end == b.range.start;
    tiles.as_slice().chunk_by(touch).map(|run| (run[0].range.start, run[run.len() - 1].range.end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adaptive::Goal;
    use isotherm_units::{Bytes, PAGE_SIZE};

    const TIB: u64 = 1 << 40;

    fn range(start: u64, end: u64) -> AddrRange {
        AddrRange::new(Addr(start), Addr(end))
    }

    fn pages(start: u64, end: u64) -> AddrRange {
        range(start * PAGE_SIZE, end * PAGE_SIZE)
    }

    /// Regions of the sizes they are given with: nothing is large enough to be cut.
    fn uncut() -> Attrs {
        Attrs { min_regions: 3, min_region: Bytes(1 << 20), ..Attrs::default() }
    }

    fn list(tiles: &Tiles<Counters>) -> Vec<(u64, u64)> {
        tiles.iter().map(|t| (t.range.start.0, t.range.end.0)).collect()
    }

    /// Samples until an aggregation is due.
    fn aggregation(context: &mut Context, mut hits: impl FnMut(Sample) -> u32) {
        loop {
            context.draw(|_| {});
            context.check(&mut hits);
            if context.end_of_sample().aggregation {
                return;
            }
        }
    }

    #[test]
    fn an_aggregation_resets_counts_and_keeps_regions_and_targets() {
        let mut context = Context::new(uncut(), 1).unwrap();
        // Gaps between them, so that nothing merges.
        let counts = [[13, 10, 20], [9, 14, 3], [7, 2, 8]];
        for target in 0..3 {
            let at = |i: u64| range(100 * (target + i), 100 * (target + i) + 50);
            context.add_target(&[at(0), at(1), at(2)]);
        }
        let mut sample = 0;
        aggregation(&mut context, |s| {
            sample += 1;
            u32::from((sample - 1) / 9 < counts[s.target][s.region])
        });
        let mut seen = Vec::new();
        let done = context.aggregate(|shown| {
            seen = shown.targets().iter().map(|t| t.iter().map(|t| t.of.nr_accesses).collect::<Vec<_>>()).collect();
        });
        assert_eq!(seen, counts);
        assert_eq!(done, Some(Aggregated { regions: 9, after_split: 9, tuned: false }));
        for (tiles, counts) in context.targets().iter().zip(counts) {
            assert!(tiles.iter().all(|t| t.of.nr_accesses == 0));
            assert_eq!(tiles.iter().map(|t| t.of.last_nr_accesses).collect::<Vec<_>>(), counts);
        }
    }

    #[test]
    fn given_regions_replace_what_is_there_unless_none_are_given() {
        let mut context = Context::new(uncut(), 1).unwrap();
        context.add_target(&[range(3, 8), range(8, 10)]);
        context.commit_regions(0, &[range(4, 6)]);
        assert_eq!(list(&context.targets()[0]), [(4, 6)]);
        context.commit_regions(0, &[]);
        assert_eq!(list(&context.targets()[0]), [(4, 6)]);
        context.refit_target(0, &[]);
        assert_eq!(context.regions(), 0, "a target without mappings");
    }

    /// DAMON's apply_three_regions cases.
    #[test]
    fn new_ranges_cut_and_stretch_what_was_known() {
        let regions =
            [(10, 20), (20, 30), (50, 55), (55, 57), (57, 59), (70, 80), (80, 90), (90, 100)].map(|(s, e)| range(s, e));
        let refitted = |to: [(u64, u64); 3]| {
            let mut tiles = Tiles::new();
            tiles.refit(&regions, Bytes(1), |_| Counters::default());
            tiles.refit(&to.map(|(s, e)| range(s, e)), Bytes(1), |_| Counters::default());
            list(&tiles)
        };
        assert_eq!(
            refitted([(5, 27), (45, 55), (73, 104)]),
            [(5, 20), (20, 27), (45, 55), (73, 80), (80, 90), (90, 104)]
        );
        assert_eq!(
            refitted([(5, 27), (56, 57), (65, 104)]),
            [(5, 20), (20, 27), (56, 57), (65, 80), (80, 90), (90, 104)]
        );
        assert_eq!(refitted([(5, 27), (61, 63), (65, 104)])[2], (61, 63), "a new range in a gap");
    }

    #[test]
    fn the_least_number_of_regions_is_there_from_the_start() {
        let mut context = Context::new(Attrs::default(), 1).unwrap();
        context.add_target(&[pages(0, 1000)]);
        assert_eq!(context.regions(), 10);
        context.add_target(&[pages(0, 1)]);
        assert_eq!(context.regions(), 10 + 1, "one page is one region");
        context.set_attrs(Attrs { min_regions: 50, ..Attrs::default() }).unwrap();
        assert!((50..60).contains(&context.regions()));
        context.set_attrs(Attrs { max_region: Some(Bytes(5 * PAGE_SIZE)), ..Attrs::default() }).unwrap();
        assert!(context.regions() >= 200);
        assert!(context.targets()[0].iter().all(|t| t.range.len() <= Bytes(5 * PAGE_SIZE)));
        context.remove_target(0);
        assert_eq!((context.regions(), context.remove_target(1)), (1, None));
    }

    #[test]
    fn fewer_regions_are_kept_at_once() {
        let mut context = Context::new(Attrs { min_regions: 700, ..Attrs::default() }, 1).unwrap();
        context.add_target(&[range(0, 16 * TIB), range(17 * TIB, 17 * TIB + PAGE_SIZE)]);
        assert!(context.regions() >= 700);
        for (min_regions, max_regions) in [(3, 20), (3, 7), (3, 3), (20, 20), (900, 1000)] {
            context.set_attrs(Attrs { min_regions, max_regions, ..Attrs::default() }).unwrap();
            assert!((min_regions..=max_regions).contains(&context.regions()), "{}", context.regions());
        }
    }

    #[test]
    fn separate_ranges_alone_make_more_regions_than_allowed() {
        let mut context = Context::new(Attrs { max_regions: 10, ..Attrs::default() }, 1).unwrap();
        let many: Vec<_> = (0..100).map(|i| pages(10 * i, 10 * i + 9)).collect();
        context.add_target(&many);
        assert_eq!(context.regions(), 100);
        aggregation(&mut context, |s| u32::from(s.region % 2 == 0));
        assert_eq!(context.aggregate(|_| {}).unwrap().after_split, 100);
    }

    #[test]
    fn bad_attributes_change_nothing() {
        let mut context = Context::new(Attrs::default(), 1).unwrap();
        context.add_target(&[pages(0, 100)]);
        assert!(context.set_attrs(Attrs { min_regions: 1, ..Attrs::default() }).is_err());
        assert_eq!((context.attrs(), context.regions()), (&Attrs::default(), 10));
        assert!(Context::new(Attrs { sample_ns: 0, ..Attrs::default() }, 1).is_err());
    }

    #[test]
    fn a_sample_counts_once_and_only_for_what_was_drawn() {
        let mut context = Context::new(Attrs { weight: 512, ..uncut() }, 1).unwrap();
        context.add_target(&[pages(0, 10)]);
        let count = |context: &Context| context.targets()[0].as_slice()[0].of.nr_accesses;
        context.check(|_| 1);
        assert_eq!(count(&context), 0, "nothing was drawn");
        context.draw(|_| {});
        context.check(|_| 100_000);
        context.check(|_| 1);
        context.draw(|_| {});
        context.check(|_| 1);
        context.add_target(&[]);
        context.draw(|_| {});
        context.check(|_| 1);
        assert_eq!(count(&context), 512, "once, and at most the weight");
        context.end_of_sample();
        context.draw(|_| {});
        context.refit_target(0, &[pages(5, 10)]);
        context.check(|_| panic!("the page drawn may be outside now"));
        while !context.end_of_sample().aggregation {}
        context.draw(|_| {});
        context.check(|_| panic!("an aggregation is due first"));
        assert!(context.aggregate(|_| {}).is_some() && context.aggregate(|_| {}).is_none());
    }

    #[test]
    fn updates_and_aggregations_fall_due_by_samples() {
        let attrs = Attrs { sample_ns: 10, aggregation_ns: 35, update_ns: 50, ..Attrs::default() };
        let mut context = Context::new(attrs.clone(), 1).unwrap();
        let due = |context: &mut Context, samples: u64| -> Vec<(u64, bool)> {
            let mut all = Vec::new();
            for _ in 0..samples {
                let due = context.end_of_sample();
                let passed = context.passed_samples();
                if due.aggregation {
                    context.aggregate(|_| {}).unwrap();
                    all.push((passed, false));
                }
                if due.update {
                    all.push((passed, true));
                }
            }
            all
        };
        assert_eq!(due(&mut context, 10), [(3, false), (5, true), (6, false), (9, false), (10, true)]);
        context.set_attrs(Attrs { sample_ns: 5, ..attrs }).unwrap();
        assert_eq!(due(&mut context, 20), [(17, false), (20, true), (24, false), (30, true)]);
    }

    #[test]
    fn a_context_keeps_the_moving_sum() {
        let mut context = Context::new(uncut(), 1).unwrap();
        context.add_target(&[pages(0, 10)]);
        let sum = |context: &Context| context.moving_sum_bp(&context.targets()[0].as_slice()[0].of);
        aggregation(&mut context, |_| 1);
        assert_eq!(sum(&context), 200_000);
        context.aggregate(|_| {});
        assert_eq!(sum(&context), 200_000);
        for _ in 0..5 {
            context.draw(|_| {});
            context.check(|_| 0);
            context.end_of_sample();
        }
        assert_eq!(sum(&context), 150_000);
    }

    /// Every other sample finds an access: tuned until the share is what the goal says it should be, or the bounds are met.
    #[test]
    fn intervals_follow_the_goal_and_updates_still_come() {
        let goal = Goal { access_bp: 400, aggregations: 2, min_sample_ns: 1_000_000, max_sample_ns: 40_000_000 };
        let attrs = Attrs { goal: Some(goal), update_ns: 2_000_000_000, ..Attrs::default() };
        let mut context = Context::new(attrs, 1).unwrap();
        context.add_target(&[pages(0, 1000)]);
        let run = |context: &mut Context, hit: u32| -> (Vec<u64>, u64) {
            let (mut samples, mut time_ns, mut updates) = (Vec::new(), 0, 0);
            while time_ns < 20_000_000_000 {
                context.draw(|_| {});
                context.check(|_| hit);
                time_ns += context.attrs().sample_ns;
                let due = context.end_of_sample();
                updates += u64::from(due.update);
                if due.aggregation && context.aggregate(|_| {}).unwrap().tuned {
                    samples.push(context.attrs().sample_ns / 1_000);
                }
            }
            (samples, updates)
        };
        assert_eq!(run(&mut context, 0), (vec![10_000, 20_000, 40_000], 10));
        assert_eq!(run(&mut context, 1), (vec![20_000, 10_000, 5_000, 2_500, 1_250, 1_000], 10));
        assert_eq!(context.attrs().max_nr_accesses(), 20, "the number of samples in an aggregation stays");
    }

    /// What regions are for: an eighth of the memory is hot, nobody says where, and 20 samples of at most 200 regions find it.
    #[test]
    fn hot_memory_is_found_to_within_a_few_percent() {
        for (size, seed) in [(1_u64 << 30, 1), (1 << 30, 2), (16 * TIB, 3)] {
            let (hot, attrs) = (range(size / 4, size / 8 * 3), Attrs { max_regions: 200, ..Attrs::default() });
            let mut context = Context::new(attrs, seed).unwrap();
            context.add_target(&[range(0, size)]);
            let (mut wrong, mut oldest) = (0, 0);
            for round in 0..60 {
                aggregation(&mut context, |s| u32::from(hot.contains(s.page.addr())));
                context.aggregate(|shown| {
                    let told = |t: &Tile<Counters>| {
                        let inside = t.range.intersect(hot).map_or(0, |both| both.len().0);
                        if t.of.nr_accesses >= 10 { t.range.len().0 - inside } else { inside }
                    };
                    wrong += if round < 40 { 0 } else { shown.targets()[0].iter().map(told).sum::<u64>() / 20 };
                    oldest = shown.targets()[0].iter().map(|t| t.of.age).max().unwrap();
                });
            }
            assert!(wrong < hot.len().0 / 20, "{} of {} told wrongly", Bytes(wrong), hot.len());
            assert!(oldest > 30, "what does not change grows old: {oldest}");
        }
    }
}
