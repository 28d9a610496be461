//! Pictures made of regions, as DAMON and `smaps` give them, scored by page like ours: all pages of a range that is reported
//! hot count as hot.

use isotherm_heat::{KernelRegion, Ns, Score};
use isotherm_units::AddrRange;

/// The ranges of the `reported` regions whose interval is at most `hot_ns`.
pub fn hot_ranges(reported: &[KernelRegion], hot_ns: Ns) -> impl Iterator<Item = AddrRange> {
    let is_hot = move |region: &&KernelRegion| region.interval().ns().is_some_and(|ns| ns <= hot_ns);
    reported.iter().filter(is_hot).map(|region| region.range)
}

/// Compares the pages in the ranges `said_hot` with `hot`, which has a value for each page of `memory`. Pages outside
/// `memory` are ignored. O(pages).
pub fn score_ranges(memory: AddrRange, hot: &[bool], said_hot: impl IntoIterator<Item = AddrRange>) -> Score {
    let mut score = Score::of(hot.iter().filter(|h| **h).count() as f64);
    for range in said_hot {
        let Some(inside) = range.intersect(memory) else { continue };
        for page in inside.start.page().0..inside.end.page().0 {
            let is_hot = usize::try_from(page - memory.start.page().0).is_ok_and(|i| hot.get(i) == Some(&true));
            score.say_hot(1.0, f64::from(u8::from(is_hot)));
        }
    }
    score
}

/// How many pages of `span` are in the ranges `said_hot`, which do not overlap.
pub fn pages_in(span: AddrRange, said_hot: &[AddrRange]) -> u64 {
    said_hot.iter().filter_map(|range| range.intersect(span)).map(|range| range.len().pages()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_units::{Addr, PAGE_SIZE};

    fn pages(from: u64, to: u64) -> AddrRange {
        AddrRange::new(Addr(from * PAGE_SIZE), Addr(to * PAGE_SIZE))
    }

    #[test]
    fn all_pages_of_a_hot_range_count_and_only_those_of_the_memory() {
        // Pages 100 to 200, of which 120 to 160 are hot. Reported are 90 to 140.
        let hot: Vec<bool> = (100..200).map(|page| (120..160).contains(&page)).collect();
        let score = score_ranges(pages(100, 200), &hot, [pages(90, 110), pages(110, 140)]);
        assert_eq!((score.precision(), score.recall()), (0.5, 0.5));
        assert_eq!(score_ranges(pages(100, 200), &hot, []).recall(), 0.0);
        assert_eq!(pages_in(pages(100, 130), &[pages(90, 110), pages(110, 120), pages(140, 150)]), 20);
    }

    #[test]
    fn a_region_is_hot_from_one_access_a_second_on() {
        let region = |page: u64, nr_accesses: u64| KernelRegion {
            range: pages(page, page + 1),
            resident_pages: 1,
            huge_pages: 0,
            nr_accesses,
            max_nr_accesses: 20,
            age_aggregations: 3,
            // At samples of half a second, one of twenty is 0.1 accesses a second, and thirteen of them 2.1.
            aggregation_ns: 10_000_000_000,
        };
        let reported = [region(1, 1), region(2, 13), region(3, 0)];
        assert_eq!(hot_ranges(&reported, 1_000_000_000).collect::<Vec<_>>(), [pages(2, 3)]);
    }
}
