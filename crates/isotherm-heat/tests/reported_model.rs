//! Counters do what a map from page to sums does, and nothing depends on the order in which reports come.

use isotherm_heat::{Access, Counters, ReportedTarget, Resident, Rng, Silence};
use isotherm_units::{Addr, AddrRange, PAGE_SIZE, PageNo};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use std::collections::BTreeMap;

const S: u64 = 1_000_000_000;

#[derive(Clone, Debug)]
enum Step {
    /// Page, weight, time in seconds, how often.
    Report(u64, u32, u64, usize),
    /// So many pages at random, so that the log is settled.
    Flood(u64, usize),
    Settle,
    /// A share in 1/16.
    Forget(u8),
    /// Bounds of regions, to be sorted.
    ByRegion(Vec<u64>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let page = prop_oneof![4 => 0..64_u64, 1 => 0..1_u64 << 40];
    let step = prop_oneof![
        20 => (page, 1..20_000_u32, 0..1000_u64, 1..20_usize).prop_map(|(p, w, t, n)| Step::Report(p, w, t, n)),
        1 => (any::<u64>(), 1..100_000_usize).prop_map(|(seed, n)| Step::Flood(seed, n)),
        2 => Just(Step::Settle),
        2 => (0..=16_u8).prop_map(Step::Forget),
        3 => vec(0..80_u64, 0..12).prop_map(Step::ByRegion),
    ];
    vec(step, 1..60)
}

/// Weight, samples and latest time.
type Model = BTreeMap<u64, (f64, f64, u64)>;

fn report(counters: &mut Counters, model: &mut Model, access: Access) {
    counters.report(access);
    let sum = model.entry(access.page.0).or_default();
    *sum = (sum.0 + f64::from(access.weight), sum.1 + 1.0, sum.2.max(access.at));
}

fn apply(counters: &mut Counters, model: &mut Model, step: &Step) -> Result<(), TestCaseError> {
    match step {
        Step::Report(page, weight, at, times) => {
            for _ in 0..*times {
                report(counters, model, Access { at: at * S, page: PageNo(*page), weight: *weight });
            }
        }
        Step::Flood(seed, pages) => {
            let mut rng = Rng::new(*seed);
            for _ in 0..*pages {
                report(counters, model, Access { at: S, page: PageNo(1000 + rng.below(1 << 30)), weight: 7 });
            }
        }
        Step::Settle => counters.settle(),
        Step::Forget(sixteenths) => {
            let keep = f64::from(*sixteenths) / 16.0;
            counters.forget(keep);
            for sum in model.values_mut() {
                // To a part in 4,096, as they are kept.
                let round = |x: f64| (x * keep * 4096.0 + 0.5).floor() / 4096.0;
                (sum.0, sum.1) = (round(sum.0), round(sum.1));
            }
            model.retain(|_, sum| sum.1 >= 27.0 / 4096.0);
        }
        Step::ByRegion(bounds) => {
            let mut bounds = bounds.clone();
            bounds.sort_unstable();
            bounds.dedup();
            // Every other pair is left out: gaps.
            let regions: Vec<(u64, u64)> = bounds.windows(2).map(|b| (b[0], b[1])).filter(|b| b.0 % 3 > 0).collect();
            let ranges: Vec<AddrRange> =
                regions.iter().map(|b| AddrRange::new(Addr(b.0 * PAGE_SIZE), Addr(b.1 * PAGE_SIZE))).collect();
            let mut told = Vec::new();
            counters.by_region(&ranges, |no, pages, sum| told.push((no, pages, sum.weight, sum.samples)));
            let mut wanted = Vec::new();
            for (no, bounds) in regions.iter().enumerate() {
                let hit: Vec<_> = model.range(bounds.0..bounds.1).map(|(_, sum)| *sum).collect();
                if !hit.is_empty() {
                    let sum = hit.iter().fold((0.0, 0.0), |sum, h| (sum.0 + h.0, sum.1 + h.1));
                    wanted.push((no, hit.len() as u64, sum.0, sum.1));
                }
            }
            prop_assert_eq!(told, wanted);
        }
    }
    Ok(())
}

fn check(counters: &mut Counters, model: &Model) -> Result<(), TestCaseError> {
    for page in 0..64 {
        let known = counters.get(PageNo(page)).map(|c| (c.weight, c.samples));
        prop_assert_eq!(known, model.get(&page).map(|sum| (sum.0, sum.1)), "page {}", page);
    }
    let sorted: Vec<_> = counters.sorted().collect();
    prop_assert_eq!(sorted.len(), model.len());
    for ((page, count), (wanted, sum)) in sorted.iter().zip(model) {
        prop_assert_eq!((page.0, count.weight, count.samples), (*wanted, sum.0, sum.1));
        prop_assert!(count.last <= sum.2 && sum.2 - count.last < 17_000_000, "{:?} {:?}", count, sum);
    }
    Ok(())
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, rng_seed: RngSeed::Fixed(7), failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config(200))]

    #[test]
    fn counters_are_a_map_of_sums(steps in steps()) {
        let (mut counters, mut model) = (Counters::new(), Model::new());
        for step in &steps {
            apply(&mut counters, &mut model, step)?;
        }
        check(&mut counters, &model)?;
    }
}

/// Reports of two windows: hot pages, a hot span, and some anywhere.
fn windows() -> impl Strategy<Value = Vec<Vec<(u64, u32, u64)>>> {
    let page = prop_oneof![1 => 500..520_u64, 3 => 2_000..6_000_u64, 1 => 0..100_000_u64];
    let report = (page, prop_oneof![Just(10_007_u32), 1..50_000_u32], 0..5 * S);
    vec(vec(report, 0..400), 2..5)
}

fn watched(windows: &[Vec<(u64, u32, u64)>]) -> ReportedTarget {
    let mut target = ReportedTarget::new(0, Silence::Cold);
    let range = |from: u64, to: u64| AddrRange::new(Addr(from * PAGE_SIZE), Addr(to * PAGE_SIZE));
    target.refit(vec![
        Resident { range: range(100, 3_000), pages: 2_000, huge_pages: 0 },
        Resident { range: range(3_000, 90_000), pages: 87_000, huge_pages: 512 },
    ]);
    for (no, window) in windows.iter().enumerate() {
        let start = 5 * S * no as u64;
        for &(page, weight, at) in window {
            target.report(Access { at: start + at, page: PageNo(page), weight });
        }
        target.listened(start + 5 * S, 0.75);
    }
    target
}

proptest! {
    #![proptest_config(config(100))]

    #[test]
    fn the_order_of_reports_does_not_matter(windows in windows(), seed in any::<u64>(), most in 1..40_usize) {
        let mut rng = Rng::new(seed);
        let mut shuffled = windows.clone();
        for window in &mut shuffled {
            for left in (1..window.len()).rev() {
                window.swap(left, usize::try_from(rng.below(left as u64 + 1)).unwrap());
            }
        }
        let now = 5 * S * windows.len() as u64;
        let (mut one, mut other) = (watched(&windows), watched(&shuffled));
        let sum = one.summarize(now, most, &[], 0);
        prop_assert_eq!(&sum, &other.summarize(now, most, &[], 0));
        prop_assert!(sum.regions.len() <= most);
        prop_assert_eq!(sum.regions.iter().map(|r| r.resident_pages).sum::<u64>(), 89_000);
        prop_assert_eq!(sum.regions.iter().map(|r| r.huge_pages).sum::<u64>(), 512);
        prop_assert_eq!((sum.temperature.resident(), sum.idle.resident()), (89_000, 89_000));
        prop_assert!(sum.regions.windows(2).all(|two| two[0].range.end <= two[1].range.start));
        prop_assert!(sum.regions.iter().all(|r| r.sampled_pages == r.measured_pages && !r.range.is_empty()));
    }
}
