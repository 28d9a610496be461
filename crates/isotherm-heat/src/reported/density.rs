//! From pages with samples to stretches of equal density.
//!
//! In a large target, most hot pages have one sample or none. So the samples do not show how hot a page is, but how
//! dense they are. The steps, each of which costs time proportional to the number of samples:
//!
//! 1. *Cut*: samples in address order are counted off into bins of [`BIN`] samples. A page with [`OWN`] samples or more
//!    is a bin by itself. A gap without samples that is longer than the samples on either side make likely is a bin,
//!    too. So a hot span ends where its samples end. Bins have equal counts, not equal lengths. So a sparse area gets
//!    few bins and a dense area many. Single samples would be the finest bins. But merging those by likeness begins
//!    with pairs that are close by chance, and ends in clusters that do not exist.
//! 2. *Merge* neighbours that may well have the same density, the likeliest first, and more of them if there are too
//!    many. The difference of two densities is the likelihood lost if they are taken for one. (These are Bayesian
//!    huge ranges of Poisson counts, Scargle 2013, with a fixed price for each huge range. They are found bottom up instead of by
//!    dynamic programming, which costs the square of the number of samples.)
//! 3. *Place* the bounds that are left. A bin is coarse, so each bound moves to its likeliest place among the nearby
//!    samples.
//!
//! Nothing crosses the ends of a mapping.

use super::store::Entry;
use crate::merge::{NEVER, merge_down_to, merge_within};
use std::ops::Range;

/// Samples in a bin. Its density is known to within a third.
const BIN: f64 = 8.0;
/// A page with this many samples is a bin by itself. Its rate can be wrong by a factor of two at most.
pub(super) const OWN: f64 = 4.0;
/// A gap that comes by chance less often than once in this many is a bin without samples.
const ODDS: f64 = 1000.0;
/// Two densities are taken for one if their difference costs less likelihood than this plus the logarithm of the number
/// of entries (natural logarithms). Among n samples, clusters of a given likelihood come by chance n times as often as
/// at one place; hence the logarithm.
const BY_CHANCE: f64 = 6.0;
/// Numbers of pages on either side of a gap from which the density there is estimated. A small cluster has only few;
/// more give a better estimate.
const BESIDE: [usize; 3] = [2, 4, 8];
/// Samples on either side of a bound among which its place is searched: two bins.
const NEAR: usize = 16;

/// A stretch of equal density.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    /// Its pages, ends exclusive.
    pub start: u64,
    pub end: u64,
    /// Indices of its entries in the full list.
    pub from: usize,
    pub to: usize,
    /// The index of its mapping.
    pub mapping: usize,
    samples: f64,
    /// Its log likelihood, up to what all ways to cut have in common.
    likelihood: f64,
}

impl Stretch {
    fn new(pages: Range<u64>, entries: Range<usize>, mapping: usize, samples: f64) -> Stretch {
        let (start, end, from, to) = (pages.start, pages.end, entries.start, entries.end);
        let mut new = Stretch { start, end, from, to, mapping, samples, likelihood: 0.0 };
        new.likelihood = likelihood(samples, new.pages());
        new
    }

    fn pages(&self) -> f64 {
        (self.end - self.start) as f64
    }

    fn density(&self) -> f64 {
        self.samples / self.pages()
    }

    fn joined_likelihood(&self, next: &Stretch) -> f64 {
        likelihood(self.samples + next.samples, self.pages() + next.pages())
    }

    fn loss(&self, next: &Stretch) -> f64 {
        match self.mapping == next.mapping {
            true => self.likelihood + next.likelihood - self.joined_likelihood(next),
            false => NEVER,
        }
    }

    fn join(&mut self, next: &Stretch) {
        self.likelihood = self.joined_likelihood(next);
        self.samples += next.samples;
        (self.end, self.to) = (next.end, next.to);
    }
}

fn likelihood(samples: f64, pages: f64) -> f64 {
    if samples > 0.0 { samples * (samples / pages).ln() } else { 0.0 }
}

/// Stretches of the mappings, whose pages are given, sorted. At most `most`, if there are no more mappings than that.
/// O(mappings + entries log entries).
pub(super) fn stretches(list: &[Entry], mappings: &[Range<u64>], most: usize) -> Vec<Stretch> {
    let mut found = Vec::new();
    let mut at = 0;
    let improbable = Improbable::new();
    for (no, pages) in mappings.iter().enumerate() {
        at += super::store::gallop(&list[at..], |e| e.page < pages.start);
        let to = at + super::store::gallop(&list[at..], |e| e.page < pages.end);
        Cutter { list, entries: at..to, mapping: no, improbable: &improbable, out: &mut found }.cut(pages.clone());
        at = to;
    }
    merge_within(&mut found, BY_CHANCE + (list.len().max(1) as f64).ln(), Stretch::loss, Stretch::join);
    merge_down_to(&mut found, most, Stretch::loss, Stretch::join);
    for right in 1..found.len() {
        let (left, right) = found.split_at_mut(right);
        if let (Some(left), Some(right)) = (left.last_mut(), right.first_mut()) {
            place(list, left, right);
        }
    }
    found
}

/// How many times the mean distance of samples a gap has to be long. The mean is taken from `n` samples, so a gap x
/// times as long or longer comes by chance with a probability of (1 + x / n)^-n.
struct Improbable([f64; 65]);

impl Improbable {
    fn new() -> Improbable {
        Improbable(std::array::from_fn(|n| n as f64 * (ODDS.powf(1.0 / n as f64) - 1.0)))
    }

    fn is(&self, gap: u64, samples: f64, pages: u64) -> bool {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 64")]
        let whole = samples.min(64.0) as usize;
        whole > 0 && gap as f64 * samples > self.0[whole] * pages as f64
    }
}

/// Cuts one mapping into bins.
struct Cutter<'a> {
    list: &'a [Entry],
    /// The entries in the mapping.
    entries: Range<usize>,
    mapping: usize,
    improbable: &'a Improbable,
    out: &'a mut Vec<Stretch>,
}

impl Cutter<'_> {
    fn push(&mut self, pages: Range<u64>, entries: Range<usize>, samples: f64) {
        if !pages.is_empty() {
            self.out.push(Stretch::new(pages, entries, self.mapping, samples));
        }
    }

    fn cut(&mut self, pages: Range<u64>) {
        let Range { start: first, end: last } = self.entries.clone();
        // The current bin, and the end of the previous page.
        let (mut start, mut from, mut samples) = (pages.start, first, 0.0);
        let mut before = pages.start;
        let mut own = false;
        for no in first..last {
            let (page, count) = (self.list[no].page, self.list[no].samples());
            if self.is_gap(no, page - before) {
                self.push(start..before, from..no, samples);
                self.push(before..page, no..no, 0.0);
                (start, from, samples) = (page, no, 0.0);
            } else if own || count >= OWN || samples >= BIN {
                let bound = match (own, count >= OWN) {
                    (true, _) => before,
                    (_, true) => page,
                    _ => u64::midpoint(before, page),
                };
                self.push(start..bound, from..no, samples);
                (start, from, samples) = (bound, no, 0.0);
                if own && count >= OWN {
                    self.push(before..page, no..no, 0.0);
                    start = page;
                }
            }
            samples += count;
            before = page + 1;
            own = count >= OWN;
        }
        if first < last && (own || self.is_gap(last, pages.end - before)) {
            self.push(start..before, from..last, samples);
            self.push(before..pages.end, last..last, 0.0);
        } else {
            self.push(start..pages.end, from..last, samples);
        }
    }

    /// Whether `gap` pages without samples before entry `no` are more than chance allows.
    fn is_gap(&self, no: usize, gap: u64) -> bool {
        gap > 0 && (self.is_long(gap, (self.entries.start..no).rev()) || self.is_long(gap, no..self.entries.end))
    }

    /// The same, judged by the entries on one side, nearest first.
    fn is_long(&self, gap: u64, mut beside: impl Iterator<Item = usize>) -> bool {
        let Some(nearest) = beside.next() else { return false };
        let mut samples = 0.0;
        for (no, entry) in beside.take(BESIDE[BESIDE.len() - 1]).enumerate() {
            // A page that stands out says nothing about the density around it.
            samples += self.list[entry].samples().min(BIN);
            let pages = self.list[entry].page.abs_diff(self.list[nearest].page);
            if BESIDE.contains(&(no + 1)) && self.improbable.is(gap, samples, pages) {
                return true;
            }
        }
        false
    }
}

/// Moves the bound between two neighbours to its likeliest place.
fn place(list: &[Entry], left: &mut Stretch, right: &mut Stretch) {
    if left.mapping != right.mapping {
        return;
    }
    let (dense, sparse) = (left.density().max(right.density()), left.density().min(right.density()));
    if dense <= sparse {
        return;
    }
    // A stretch without samples counts as half a sample.
    let floor = 0.5 / left.pages().max(right.pages());
    let each = (dense / sparse.max(floor)).ln() * if left.density() == dense { 1.0 } else { -1.0 };
    let slope = if left.density() == dense { sparse - dense } else { dense - sparse };
    let bound = |no: usize| {
        let after_left = if no > left.from { list[no - 1].page + 1 } else { left.start };
        let before_right = if no < right.to { list[no].page } else { right.end };
        // The denser stretch reaches a bit beyond its last sample: as far as the mean of the possible ends.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "capped by a number of pages")]
        let beyond = (1.0 / (dense - sparse)).round().min(((before_right - after_left) / 2) as f64) as u64;
        if left.density() == dense { after_left + beyond } else { before_right - beyond }
    };
    // Without samples on one side there is nothing to move past. Neither side may lose its last entry.
    let (low, high) = match left.to > left.from && right.to > right.from {
        true => (left.to.saturating_sub(NEAR).max(left.from + 1), (right.from + NEAR).min(right.to - 1)),
        false => (left.to, left.to),
    };
    let mut samples: f64 = -list[low..left.to].iter().map(Entry::samples).sum::<f64>();
    let (mut best, mut best_gain) = (left.to, f64::NEG_INFINITY);
    for no in low..=high {
        let gain = samples * each + slope * bound(no) as f64;
        if gain > best_gain {
            (best, best_gain) = (no, gain);
        }
        samples += list.get(no).map_or(0.0, Entry::samples);
    }
    let at = bound(best);
    // A page with a bin of its own stays whole, and nothing becomes empty.
    if at > left.start && at < right.end {
        (left.end, left.to, right.start, right.from) = (at, best, at, best);
    }
}

/// Shares `all` among parts, each given as (least, room). Each gets its least, and at most its room. What remains is
/// shared in proportion to the room above the least. The sum is exact. If the leasts add up to more than `all`, it is
/// shared in proportion to them.
pub(super) fn share_out(all: u64, parts: &[(u64, u64)]) -> Vec<u64> {
    let least: u64 = parts.iter().map(|p| p.0).sum();
    let too_few = least > all;
    let rest = if too_few { all } else { all - least };
    let weight = |part: &(u64, u64)| if too_few { part.0 } else { part.1.saturating_sub(part.0) };
    let weights = parts.iter().map(weight).sum::<u64>().max(1);
    let (mut seen, mut given) = (0_u64, 0);
    let share = |part: &(u64, u64)| {
        seen += weight(part);
        let upto = u64::try_from(u128::from(rest) * u128::from(seen) / u128::from(weights)).unwrap_or(rest);
        let share = upto - std::mem::replace(&mut given, upto);
        share + if too_few { 0 } else { part.0 }
    };
    parts.iter().map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reported::store::Counters;
    use crate::{Access, Rng};
    use isotherm_units::PageNo;

    fn list(pages: impl IntoIterator<Item = u64>) -> Counters {
        let mut counters = Counters::new();
        for page in pages {
            counters.report(Access { at: 0, page: PageNo(page), weight: 1 });
        }
        counters.settle();
        counters
    }

    /// One mapping from page 0 to `end`.
    fn cut_one(counters: &Counters, end: u64) -> Vec<(u64, u64, f64)> {
        cut(counters, std::slice::from_ref(&(0..end)))
    }

    fn cut(counters: &Counters, mappings: &[Range<u64>]) -> Vec<(u64, u64, f64)> {
        let found = stretches(counters.list(), mappings, 1000);
        found.iter().map(|s| (s.start, s.end, s.samples)).collect()
    }

    #[test]
    fn nothing_reported_is_one_stretch_a_mapping() {
        assert_eq!(cut(&list([]), &[0..10, 20..30]), [(0, 10, 0.0), (20, 30, 0.0)]);
        assert_eq!(cut(&list([3, 15, 40]), &[10..20, 20..30]), [(10, 20, 1.0), (20, 30, 0.0)]);
    }

    #[test]
    fn a_dense_span_in_silence_is_found_to_a_page() {
        // A sample in every tenth page from 50,000 to 50,990: the span reaches half a distance beyond its last sample
        // or so.
        let found = cut_one(&list((0..100).map(|i| 50_000 + 10 * i)), 100_000);
        assert_eq!(found, [(0, 49_990, 0.0), (49_990, 51_001, 100.0), (51_001, 100_000, 0.0)]);
    }

    #[test]
    fn small_clusters_far_apart_are_found() {
        let found = cut_one(&list([1_000, 1_010, 1_015, 1_030, 1_041, 500_000]), 1_000_000);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[1].0 <= 1_000 && found[1].1 < 1_100 && found[1].2 == 5.0, "{found:?}");
    }

    #[test]
    fn chance_makes_no_stretches() {
        let (mut cuts, mut rng) = (0, Rng::new(11));
        for samples in [50, 500, 5_000, 50_000] {
            for _ in 0..10 {
                let pages: Vec<u64> = (0..samples).map(|_| rng.below(1_000_000)).collect();
                cuts += cut_one(&list(pages), 1_000_000).len() - 1;
            }
        }
        println!("{cuts} bounds in 40 even targets");
        assert!(cuts <= 4, "{cuts}");
    }

    #[test]
    fn twice_as_dense_is_found_if_samples_are_many() {
        let mut rng = Rng::new(2);
        let pages: Vec<u64> =
            (0..3_000).map(|i| if i % 3 == 0 { rng.below(50_000) } else { 50_000 + rng.below(50_000) }).collect();
        let found = cut_one(&list(pages), 100_000);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].1.abs_diff(50_000) < 500, "{found:?}");
    }

    #[test]
    fn a_bound_is_placed_among_the_samples_next_to_it() {
        // Five times as dense from page 50,000 on: samples are 100 and 20 pages apart, a bin is 800 or 160.
        let mut off = 0;
        for seed in 0..40 {
            let mut rng = Rng::new(seed);
            let pages: Vec<u64> =
                (0..3_000).map(|i| if i % 6 == 0 { rng.below(50_000) } else { 50_000 + rng.below(50_000) }).collect();
            let found = cut_one(&list(pages), 100_000);
            assert_eq!(found.len(), 2, "{found:?}");
            off += found[0].1.abs_diff(50_000);
        }
        println!("off by {} pages in the mean", off / 40);
        assert!(off / 40 <= 50, "{}", off / 40);
    }

    #[test]
    fn a_page_that_stands_out_is_a_stretch_of_its_own() {
        let mut rng = Rng::new(2);
        let pages = (0..1_000).map(|_| rng.below(100_000)).chain([7_777; 40]).collect::<Vec<_>>();
        let found = cut_one(&list(pages), 100_000);
        assert_eq!(found.len(), 3, "{found:?}");
        assert_eq!((found[1].0, found[1].1), (7_777, 7_778), "{found:?}");
    }

    #[test]
    fn shares_are_exact() {
        assert_eq!(share_out(100, &[(0, 50), (0, 150)]), [25, 75]);
        assert_eq!(share_out(100, &[(80, 90), (0, 990), (0, 10)]), [80, 19, 1]);
        assert_eq!(share_out(10, &[(15, 20), (5, 100)]), [7, 3], "more reported than there are now");
        assert_eq!(share_out(0, &[(0, 20), (0, 0)]), [0, 0]);
        assert_eq!(share_out(7, &[(0, 1), (0, 1), (0, 1)]).iter().sum::<u64>(), 7);
    }
}
