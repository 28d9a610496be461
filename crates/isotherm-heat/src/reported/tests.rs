use super::*;
use crate::{Mask, PmdBits, Region, Rng, Since, Target, Watch};
use isotherm_units::{Addr, PAGE_SIZE, PmdNo};

const MS: Ns = 1_000_000;
const S: Ns = 1000 * MS;
const GIB: u64 = 1 << 18;
/// Where targets of tests begin.
const FIRST: u64 = 0x7f00_0000;

fn range(pages: Range<u64>) -> AddrRange {
    AddrRange::new(Addr(pages.start * PAGE_SIZE), Addr(pages.end * PAGE_SIZE))
}

fn resident(pages: Range<u64>) -> Resident {
    Resident { range: range(pages.clone()), pages: pages.end - pages.start, huge_pages: 0 }
}

/// Pages, and how often a second each is accessed.
type Span = (Range<u64>, f64);

/// Reports of one in `weight` accesses between two times, at random as those are.
fn reports(spans: &[Span], weight: u32, time: Range<Ns>, rng: &mut Rng) -> Vec<Access> {
    let mut all = Vec::new();
    for (pages, rate_hz) in spans {
        let each_s = (pages.end - pages.start) as f64 * rate_hz / f64::from(weight);
        let mut at = time.start as f64;
        loop {
            at += -((rng.below(1 << 53) + 1) as f64 / (1_u64 << 53) as f64).ln() / each_s * 1e9;
            if at >= time.end as f64 {
                break;
            }
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below the end")]
            let at = at as Ns;
            all.push(Access { at, page: PageNo(pages.start + rng.below(pages.end - pages.start)), weight });
        }
    }
    all
}

/// Listens from one second to another, telling so every second.
fn listen(target: &mut ReportedTarget, spans: &[Span], weight: u32, seconds: Range<u64>, rng: &mut Rng) {
    for second in seconds {
        let time = second * S..(second + 1) * S;
        reports(spans, weight, time, rng).into_iter().for_each(|access| target.report(access));
        target.listened((second + 1) * S, 1.0);
    }
}

/// Precision and recall by page of what is told to be accessed at least once a second.
fn score(regions: &[Region], spans: &[Span]) -> (f64, f64) {
    let hot = |page: u64| spans.iter().any(|(pages, rate)| pages.contains(&page) && *rate >= 1.0);
    let all: u64 = spans.iter().filter(|s| s.1 >= 1.0).map(|s| s.0.end - s.0.start).sum();
    let (mut said, mut right) = (0, 0);
    for region in regions.iter().filter(|r| r.interval.is_measured() && r.interval <= Interval::from_ns(S)) {
        let pages = pages_of(region.range);
        said += pages.end - pages.start;
        right += pages.filter(|page| hot(*page)).count() as u64;
    }
    (right as f64 / said.max(1) as f64, right as f64 / all as f64)
}

#[test]
fn a_rate_is_events_reported_over_time_listened() {
    let mut t = ReportedTarget::new(0, Silence::Cold);
    t.refit(vec![resident(FIRST..FIRST + 1)]);
    // Ten reports of 100 events each second, for an hour, of which the second of each two minutes is not listened to.
    for second in 0..3_600 {
        let on = second / 60 % 2 == 0;
        for i in 0..if on { 10 } else { 0 } {
            t.report(Access { at: second * S + i, page: PageNo(FIRST), weight: 100 });
        }
        t.listened((second + 1) * S, if on { 1.0 } else { 0.0 });
        if [0, 1, 30, 59, 119, 3_599].contains(&second) {
            let region = t.summarize((second + 1) * S, 10, &[], 0).regions[0];
            if on {
                assert!((region.rate_hz - 1000.0).abs() < 2.0, "{second}: {}", region.rate_hz);
            }
            assert_eq!((region.resident_pages, region.measured_pages, region.sampled_pages), (1, 1, 1));
        }
    }
    assert_eq!(t.samples(), 30 * 600);
    // A minute's worth at 10 a second is left at the most, not an hour's.
    assert!(t.counters().get(PageNo(FIRST)).unwrap().samples < 600.0);
}

#[test]
fn half_listened_is_twice_the_rate() {
    let mut t = ReportedTarget::new(0, Silence::Cold);
    t.refit(vec![resident(FIRST..FIRST + 4)]);
    (0..8).for_each(|i| t.report(Access { at: S, page: PageNo(FIRST + i % 4), weight: 10 }));
    t.listened(2 * S, 0.5);
    // 80 events on four pages in a second.
    let sum = t.summarize(2 * S, 10, &[], 0);
    assert_eq!((sum.regions.len(), sum.regions[0].rate_hz), (1, 20.0));
    assert_eq!(sum.regions[0].interval, Interval::from_ns(50 * MS));
    assert_eq!(sum.temperature.at(Interval::from_ns(50 * MS)), 4);
    assert!((S..S + 20 * MS).contains(&sum.regions[0].idle_ns));
}

#[test]
fn rates_above_the_scale_of_intervals_are_told() {
    let mut t = ReportedTarget::new(0, Silence::Cold);
    t.refit(vec![resident(FIRST..FIRST + 1)]);
    (0..20).for_each(|_| t.report(Access { at: 0, page: PageNo(FIRST), weight: 1000 }));
    t.listened(S, 1.0);
    let region = t.summarize(S, 10, &[], 0).regions[0];
    assert_eq!((region.rate_hz, region.interval), (20_000.0, Interval::SHORTEST));
}

#[test]
fn silence_is_cold_or_nothing_by_what_is_listened_to() {
    let silent = |silence, weight: Option<u32>, pages| {
        let mut t = ReportedTarget::new(0, silence);
        weight.into_iter().for_each(|w| t.expect_weight(w));
        t.refit(vec![resident(FIRST..FIRST + pages)]);
        t.listened(2 * S, 1.0);
        t.summarize(2 * S, 10, &[], 0)
    };
    // Less than one report of 1,000 events in 2 s of 10,000 pages: each is accessed less than every 20 s.
    let cold = silent(Silence::Cold, Some(1000), 10_000).regions[0];
    assert_eq!((cold.interval, cold.idle_ns, cold.sampled_pages), (Interval::from_ns(20 * S), 2 * S, 10_000));
    // Less than every 200 ms says nothing.
    for (silence, weight, pages) in
        [(Silence::Cold, Some(1000), 100), (Silence::Unknown, Some(1000), 10_000), (Silence::Cold, None, 10_000)]
    {
        let sum = silent(silence, weight, pages);
        assert_eq!((sum.temperature.measured(), sum.temperature.resident(), sum.idle.measured()), (0, pages, 0));
        assert_eq!((sum.regions[0].measured_pages, sum.regions[0].sampled_pages), (0, 0));
    }
}

#[test]
fn nothing_is_known_before_anything_was_listened_to() {
    let mut t = ReportedTarget::new(5 * S, Silence::Cold);
    t.refit(vec![resident(FIRST..FIRST + 10), Resident { pages: 0, ..resident(1..1000) }]);
    t.report(Access { at: 5 * S, page: PageNo(FIRST), weight: 1 });
    let sum = t.summarize(5 * S, 10, &[], 0);
    assert_eq!((sum.regions.len(), sum.temperature.measured(), sum.temperature.resident()), (1, 0, 10));
}

#[test]
fn a_hot_tenth_of_a_gib_is_found_from_few_samples() {
    let hot = FIRST + 100_003..FIRST + 100_003 + GIB / 10;
    let spans = [(hot, 1000.0)];
    println!("samples a hot MiB: precision, recall (least of five)");
    // The bounds can be off by a distance of samples or two, which are 128, 32 and 8 pages; and by chance a bit more.
    for (a_mib, least) in [(2, 0.97), (8, 0.99), (32, 0.997)] {
        let weight = 256 * 1000 * 60 / a_mib;
        let (mut precision, mut recall) = (1.0_f64, 1.0_f64);
        for seed in 0..5 {
            let mut t = ReportedTarget::new(0, Silence::Cold);
            t.refit(vec![resident(FIRST..FIRST + GIB)]);
            listen(&mut t, &spans, weight, 0..60, &mut Rng::new(seed));
            let sum = t.summarize(60 * S, 1000, &[], 0);
            let (p, r) = score(&sum.regions, &spans);
            (precision, recall) = (precision.min(p), recall.min(r));
        }
        println!("{a_mib:>3}: {precision:.4}, {recall:.4}");
        assert!(precision >= least && recall >= least, "{a_mib} a MiB: {precision}, {recall}");
    }
}

#[test]
fn hot_spans_are_found_in_a_target_that_is_nowhere_silent() {
    // Spans of 4 to 32 MiB, a thousand times as hot as what is around them, which has half of all samples.
    let mut spans: Vec<Span> = vec![(FIRST..FIRST + 16 * GIB, 0.05)];
    for (no, mib) in [4, 32, 8, 16, 8, 4, 12, 32].into_iter().enumerate() {
        let start = FIRST + (2 * no as u64 + 1) * 250_000;
        spans.push((start..start + mib * 256, 50.0));
    }
    let mut rng = Rng::new(1);
    let mut t = ReportedTarget::new(0, Silence::Cold);
    t.refit(vec![resident(FIRST..FIRST + 16 * GIB)]);
    listen(&mut t, &spans, 30_011, 0..60, &mut rng);
    let sum = t.summarize(60 * S, 1000, &[], 0);
    let (precision, recall) = score(&sum.regions, &spans);
    println!("{} samples, {} regions: {precision:.3}, {recall:.3}", t.samples(), sum.regions.len());
    assert!(precision >= 0.98 && recall >= 0.98, "{precision}, {recall}");
    assert_eq!(sum.regions.len(), 17, "eight spans and what is between them");
    for region in sum.regions.iter().filter(|r| r.rate_hz > 1.0) {
        assert!((30.0..75.0).contains(&region.rate_hz), "{}", region.rate_hz);
    }
}

#[test]
fn one_very_hot_page_is_a_region_of_its_own() {
    let spans = [(FIRST + 77_777..FIRST + 77_778, 20_000.0), (FIRST..FIRST + GIB, 0.5)];
    let mut t = ReportedTarget::new(0, Silence::Cold);
    t.refit(vec![resident(FIRST..FIRST + GIB)]);
    listen(&mut t, &spans, 10_007, 0..60, &mut Rng::new(3));
    let sum = t.summarize(60 * S, 1000, &[], 0);
    let hot: Vec<_> = sum.regions.iter().filter(|r| r.rate_hz > 100.0).collect();
    assert_eq!(hot.len(), 1, "{:?}", sum.regions);
    assert_eq!(hot[0].range, range(FIRST + 77_777..FIRST + 77_778));
    assert!((15_000.0..25_000.0).contains(&hot[0].rate_hz), "{}", hot[0].rate_hz);
    assert_eq!(sum.temperature.at(Interval::SHORTEST), 1);
}

#[test]
fn reports_of_what_is_not_mapped_count_and_make_no_region() {
    let mut t = ReportedTarget::new(0, Silence::Cold);
    t.refit(vec![resident(FIRST..FIRST + 100)]);
    for page in [1, FIRST - 1, FIRST + 100, u64::MAX >> 12] {
        (0..10).for_each(|_| t.report(Access { at: 0, page: PageNo(page), weight: 100 }));
    }
    t.listened(S, 1.0);
    let sum = t.summarize(S, 10, &[], 0);
    assert_eq!((t.samples(), sum.regions.len(), sum.regions[0].resident_pages), (40, 1, 100));
    assert!(sum.regions[0].interval >= Interval::from_ns(S), "{:?}", sum.regions[0]);
}

#[test]
fn a_mapping_that_is_partly_resident_has_its_hot_pages_resident() {
    let mut t = ReportedTarget::new(0, Silence::Cold);
    // 100 pages of 10,000, half of them huge; 60 of them reported next to each other.
    t.refit(vec![Resident { pages: 100, huge_pages: 50, ..resident(FIRST..FIRST + 10_000) }]);
    (0..600).for_each(|i| t.report(Access { at: 0, page: PageNo(FIRST + 500 + i % 60), weight: 10 }));
    t.listened(S, 1.0);
    let sum = t.summarize(S, 10, &[], 0);
    let hot = sum.regions.iter().find(|r| r.rate_hz > 50.0).unwrap();
    assert!((60..=61).contains(&hot.resident_pages), "{hot:?}");
    assert_eq!(sum.regions.iter().map(|r| r.resident_pages).sum::<u64>(), 100);
    assert_eq!(sum.regions.iter().map(|r| r.huge_pages).sum::<u64>(), 50);
    assert_eq!((sum.temperature.resident(), sum.idle.resident()), (100, 100));
}

#[test]
fn what_stops_being_accessed_is_not_hot_for_minutes() {
    let spans = [(FIRST + 1000..FIRST + 9000, 200.0)];
    let mut rng = Rng::new(8);
    let mut t = ReportedTarget::new(0, Silence::Cold);
    t.refit(vec![resident(FIRST..FIRST + GIB)]);
    listen(&mut t, &spans, 10_007, 0..60, &mut rng);
    let hot = t.summarize(60 * S, 100, &[], 0).temperature.within_ns(S);
    assert!((7_900..8_100).contains(&hot), "{hot}");
    // 160 reports a second until then.
    listen(&mut t, &[], 10_007, 60..66, &mut rng);
    let after = t.summarize(66 * S, 100, &[], 0);
    assert_eq!(after.temperature.within_ns(S), 0);
    let region = after.regions.iter().find(|r| r.range.contains(PageNo(FIRST + 5000).addr())).unwrap();
    assert!((5 * S..7 * S).contains(&region.idle_ns), "{region:?}");
}

#[test]
fn silence_while_nobody_listened_is_no_cooling() {
    let spans = [(FIRST + 1000..FIRST + 9000, 200.0)];
    let mut t = ReportedTarget::new(0, Silence::Cold);
    t.refit(vec![resident(FIRST..FIRST + GIB)]);
    listen(&mut t, &spans, 10_007, 0..60, &mut Rng::new(8));
    (61..180).for_each(|second| t.listened(second * S, 0.0));
    let after = t.summarize(180 * S, 100, &[], 0);
    let region = after.regions.iter().find(|r| r.range.contains(PageNo(FIRST + 5000).addr())).unwrap();
    assert!((180.0..220.0).contains(&region.rate_hz), "{region:?}");
}

#[test]
fn silence_since_the_last_scan_is_no_cooling_and_what_never_faulted_is_cold() {
    let spans = [(FIRST + 1000..FIRST + 9000, 1.0)];
    let mut t = ReportedTarget::new(0, Silence::Scanned);
    t.refit(vec![resident(FIRST..FIRST + GIB)]);
    listen(&mut t, &spans, 1, 0..20, &mut Rng::new(8));
    // Other memory of the process is scanned, this is not.
    (21..50).for_each(|second| t.listened(second * S, 1.0));
    let after = t.summarize(50 * S, 100, &[], 0);
    let region = |page| after.regions.iter().find(|r| r.range.contains(PageNo(page).addr())).unwrap();
    assert!((0.2..0.6).contains(&region(FIRST + 5000).rate_hz), "{after:?}");
    assert!(region(FIRST + 50_000).interval > Interval::from_ns(1000 * S), "{after:?}");
}

#[test]
fn rates_of_regions_that_looks_found_are_raised_and_never_lowered() {
    let mut t = ReportedTarget::new(0, Silence::Cold);
    (0..100).for_each(|_| t.report(Access { at: S, page: PageNo(FIRST + 1), weight: 1000 }));
    (0..4).for_each(|_| t.report(Access { at: S, page: PageNo(FIRST + 300), weight: 1_000_000 }));
    (0..9).for_each(|_| t.report(Access { at: S, page: PageNo(FIRST + 600), weight: 1 }));
    t.listened(S, 1.0);
    let region = |first: u64| Region {
        range: range(FIRST + first..FIRST + first + 100),
        resident_pages: 100,
        measured_pages: 100,
        huge_pages: 0,
        interval: Interval::from_ns(S / 50),
        rate_hz: 50.0,
        age_ns: 0,
        idle_ns: 0,
        sampled_pages: 0,
        estimated_pages: 0,
        hot_pages: None,
    };
    let mut regions = [region(0), region(300), region(600)];
    raise_rates(&mut regions, &mut t);
    let told = regions.map(|r| (r.rate_hz, r.sampled_pages));
    assert_eq!(told, [(1000.0, 100), (50.0, 0), (50.0, 0)], "too few samples, and a lower rate");
}

#[test]
fn regions_are_bounded_and_no_page_is_lost() {
    let mut rng = Rng::new(6);
    let mut t = ReportedTarget::new(0, Silence::Cold);
    t.refit((0..20).map(|no| resident(FIRST + no * 100_000..FIRST + no * 100_000 + 90_000)).collect());
    for _ in 0..2_000 {
        let page = PageNo(FIRST + rng.below(2_000_000));
        (0..10).for_each(|_| t.report(Access { at: S, page, weight: 1000 }));
    }
    t.listened(10 * S, 1.0);
    let regions = |t: &mut ReportedTarget, most| t.summarize(10 * S, most, &[], 0).regions;
    let free = regions(&mut t, 100_000).len();
    assert!(free > 3_000, "{free}");
    for most in [1000, 100, 20, 7, 1] {
        let regions = regions(&mut t, most);
        assert_eq!(regions.len(), most);
        assert_eq!(regions.iter().map(|r| r.resident_pages).sum::<u64>(), 20 * 90_000);
        assert!(regions.windows(2).all(|two| two[0].range.end <= two[1].range.start));
    }
}

#[test]
fn ages_are_carried_on() {
    let spans = [(FIRST + 10_000..FIRST + 20_000, 100.0)];
    let mut rng = Rng::new(8);
    let mut t = ReportedTarget::new(0, Silence::Cold);
    t.refit(vec![resident(FIRST..FIRST + GIB)]);
    listen(&mut t, &spans, 10_007, 0..20, &mut rng);
    let first = t.summarize(20 * S, 100, &[], 0);
    listen(&mut t, &spans, 10_007, 20..25, &mut rng);
    let first: Vec<PastRegion> = first.regions.iter().map(PastRegion::from).collect();
    let second = t.summarize(25 * S, 100, &first, 5 * S);
    assert!(second.regions.iter().filter(|r| r.rate_hz > 10.0).all(|r| r.age_ns == 5 * S), "{:?}", second.regions);
}

#[test]
fn a_flood_of_pages_is_thinned_out() {
    let mut rng = Rng::new(8);
    let mut t = ReportedTarget::new(0, Silence::Cold);
    for second in 1..20 {
        for _ in 0..300_000 {
            t.report(Access { at: second * S, page: PageNo(rng.below(1 << 34)), weight: 1 });
        }
        t.listened(second * S, 1.0);
    }
    assert!(t.counters().len() < 2 * MAX_PAGES, "{}", t.counters().len());
    // What is left stands for all: 300,000 a second on 2^34 pages.
    let mut left = Count::default();
    t.counters.settle();
    t.counters().list().iter().for_each(|e| left.add(t.counters().count_of(e)));
    assert!((left.weight / t.exposure_s / 300_000.0 - 1.0).abs() < 0.01, "{}", left.weight / t.exposure_s);
}

/// A page-table target of full huge ranges: touched within 10 ms of a clear, or not since.
fn by_bits(pmds: &[(u64, bool)]) -> Target {
    let mut target = Target::new(0, Watch { max_slowdown_pct: 1000.0, scan_period_ns: S }, 1);
    for &(pmd, hot) in pmds {
        let bits = |young| PmdBits::Pages { young, present: Mask::ALL };
        target.read(0, PmdNo(pmd), bits(Mask::ALL));
        target.cleared(0, PmdNo(pmd), Mask::NONE);
        target.read(10 * MS, PmdNo(pmd), bits(if hot { Mask::ALL } else { Mask::NONE }));
        target.read(20 * S, PmdNo(pmd), bits(Mask::NONE));
    }
    target
}

fn pmd_pages(pmds: Range<u64>) -> Range<u64> {
    pmds.start * 512..pmds.end * 512
}

#[test]
fn samples_tell_levels_apart_that_are_one_to_bits() {
    let pmds: Vec<(u64, bool)> = (1000..1040).map(|b| (b, b < 1032)).collect();
    let target = by_bits(&pmds);
    // Eight huge ranges each at 100, 1,000 and 10,000 a second; eight that the event does not see; eight cold ones.
    let spans =
        [(1000..1008, 100.0), (1008..1016, 1_000.0), (1016..1024, 10_000.0)].map(|(b, rate)| (pmd_pages(b), rate));
    let mut t = ReportedTarget::new(0, Silence::Cold);
    listen(&mut t, &spans, 100_003, 0..20, &mut Rng::new(5));
    let bits = crate::summarize(&target, 20 * S, 100);
    assert_eq!(bits.regions.len(), 2, "hot and cold");
    let sum = summarize_fused(&target, &mut t, 20 * S, 100, Since::default());
    let told: Vec<_> = sum.regions.iter().map(|r| (r.range.start.pmd().0, r.range.end.pmd().0)).collect();
    assert_eq!(told, [(1000, 1008), (1008, 1016), (1016, 1024), (1024, 1032), (1032, 1040)], "{:?}", sum.regions);
    for (region, rate) in sum.regions.iter().zip([100.0, 1_000.0, 10_000.0]) {
        assert!((region.rate_hz / rate - 1.0).abs() < 0.15, "{region:?} of {rate}");
        assert!(region.sampled_pages * 10 >= region.resident_pages * 7, "{region:?}");
    }
    let missed = sum.regions[3];
    assert_eq!((missed.sampled_pages, missed.interval), (0, bits.regions[0].interval), "hot by bits");
    assert_eq!((sum.temperature.resident(), sum.idle.resident()), (40 * 512, 40 * 512));
    assert_eq!(sum.regions.iter().map(|r| r.resident_pages).sum::<u64>(), 40 * 512);
}

#[test]
fn few_samples_are_shared_by_the_neighbourhood() {
    let target = by_bits(&(1000..1064).map(|b| (b, true)).collect::<Vec<_>>());
    // About two samples a huge range.
    let mut t = ReportedTarget::new(0, Silence::Cold);
    listen(&mut t, &[(pmd_pages(1000..1064), 1_000.0)], 5_000_011, 0..20, &mut Rng::new(5));
    assert!((100..160).contains(&t.samples()), "{}", t.samples());
    let sum = summarize_fused(&target, &mut t, 20 * S, 100, Since::default());
    let (sampled, pages) = sum.regions.iter().fold((0, 0), |n, r| (n.0 + r.sampled_pages, n.1 + r.resident_pages));
    assert_eq!(pages, 64 * 512);
    assert!(sampled * 10 >= pages * 7, "{sampled} of {pages}");
    let rate = sum.regions.iter().map(|r| f64::from(r.rate_hz) * r.resident_pages as f64).sum::<f64>() / pages as f64;
    assert!((600.0..1_300.0).contains(&rate), "{rate}");
}

#[test]
fn what_became_hot_between_two_looks_is_hot_by_its_samples() {
    let target = by_bits(&[(1000, false), (1001, false)]);
    let mut t = ReportedTarget::new(0, Silence::Cold);
    t.listened(18 * S, 1.0);
    // One page with five samples, one with three.
    for (page, samples) in [(100, 5), (300, 3)] {
        (0..samples).for_each(|_| t.report(Access { at: 19 * S, page: PmdNo(1000).page(page), weight: 1000 }));
    }
    t.listened(20 * S, 1.0);
    let sum = summarize_fused(&target, &mut t, 20 * S, 100, Since::default());
    let hot: Vec<_> = sum.regions.iter().filter(|r| r.rate_hz > 1.0).collect();
    assert_eq!(hot.len(), 1, "{:?}", sum.regions);
    let page = PmdNo(1000).page(100);
    assert_eq!((hot[0].range, hot[0].sampled_pages), (range(page.0..page.0 + 1), 1));
    // 5,000 events in two seconds, and 18 before them of which exp(-18 / 60) is left.
    assert!((hot[0].rate_hz - 5_000.0 / (2.0 + 18.0 * (-0.3_f32).exp())).abs() < 2.0, "{}", hot[0].rate_hz);
    assert_eq!((sum.temperature.within_ns(S), sum.temperature.resident()), (1, 1024));
}

#[test]
fn memory_that_cannot_be_cleared_is_known_from_samples() {
    let mut target = Target::new(0, Watch { max_slowdown_pct: 1000.0, scan_period_ns: S }, 1);
    for pmd in [1000, 1001] {
        target.read(0, PmdNo(pmd), PmdBits::Huge { young: true });
        target.refused(0, PmdNo(pmd));
    }
    let mut t = ReportedTarget::new(0, Silence::Cold);
    listen(&mut t, &[(pmd_pages(1000..1001), 1_000.0)], 20_011, 0..20, &mut Rng::new(5));
    let sum = summarize_fused(&target, &mut t, 20 * S, 100, Since::default());
    assert_eq!(sum.regions.len(), 2, "{:?}", sum.regions);
    assert!((850.0..1_150.0).contains(&sum.regions[0].rate_hz), "{:?}", sum.regions);
    assert_eq!(sum.regions.iter().map(|r| (r.sampled_pages, r.huge_pages)).collect::<Vec<_>>(), [(512, 512), (0, 512)]);
    assert_eq!((sum.unclearable_pages, sum.temperature.measured()), (1024, 512));
}

#[test]
fn fewer_accesses_reported_than_bits_saw_change_nothing() {
    // NUMA-hint faults come once a scan, however hot the page is.
    let target = by_bits(&[(1000, true), (1001, false)]);
    let bits = crate::summarize(&target, 20 * S, 100);
    let mut t = ReportedTarget::new(0, Silence::Cold);
    for second in 0..20 {
        (0..512).for_each(|i| t.report(Access { at: second * S, page: PmdNo(1000).page(i), weight: 1 }));
    }
    t.listened(20 * S, 1.0);
    let sum = summarize_fused(&target, &mut t, 20 * S, 100, Since::default());
    assert_eq!(sum, bits);
}

#[test]
fn pages_that_the_event_misses_stay_hot_among_those_it_sees() {
    let target = by_bits(&[(1000, true)]);
    let mut t = ReportedTarget::new(0, Silence::Cold);
    // Every other page: 20 samples each.
    for page in (0..512).step_by(2) {
        (0..20).for_each(|_| t.report(Access { at: 19 * S, page: PmdNo(1000).page(page), weight: 10_007 }));
    }
    t.listened(20 * S, 1.0);
    let sum = summarize_fused(&target, &mut t, 20 * S, 100, Since::default());
    let bits = crate::summarize(&target, 20 * S, 100).regions[0].interval;
    assert_eq!(sum.temperature.at(bits), 256);
    assert_eq!(sum.temperature.at(Interval::SHORTEST), 256);
    assert_eq!((sum.regions.len(), sum.regions[0].sampled_pages), (1, 256), "a mixed huge range");
}

#[test]
fn as_many_pages_as_samples_are_bounded_and_nothing_known_is_lost() {
    // 40,000 samples a second of 8 GiB that are used evenly, and a thousandth of it fifty times as much.
    let hot = FIRST + 4 * GIB..FIRST + 4 * GIB + 2_048;
    let spans = [(FIRST..FIRST + 8 * GIB, 190.0), (hot.clone(), 9_500.0)];
    let truth = |region: &Region| if region.range.contains(PageNo(hot.start + 1000).addr()) { 9_690.0 } else { 190.0 };
    let mut rng = Rng::new(4);
    let mut t = ReportedTarget::new(0, Silence::Cold);
    t.refit(vec![resident(FIRST..FIRST + 8 * GIB)]);
    let (mut most_pages, mut most_bytes, mut worst) = (0, 0, 0.0_f64);
    for second in 0..120 {
        for tenth in 0..10 {
            let time = second * S + tenth * S / 10;
            reports(&spans, 10_007, time..time + S / 10, &mut rng).into_iter().for_each(|access| t.report(access));
            t.listened(time + S / 10, 1.0);
            most_pages = most_pages.max(t.counters().len());
            most_bytes = most_bytes.max(t.counters().bytes().0);
        }
        if second < 3 {
            continue;
        }
        let now = (second + 1) * S;
        let of_tau = |ns: Ns| ns as f64 / TAU as f64;
        assert!(t.exposure_s >= 60.0 * (1.0 - (-of_tau(now)).exp()) * 0.93, "{second}: {}", t.exposure_s);
        let regions = t.summarize(now, 1000, &[], 0).regions;
        let found: Vec<_> = regions.iter().filter(|r| r.rate_hz > 2_000.0).collect();
        let (precision, recall) = score(&found.iter().map(|r| **r).collect::<Vec<_>>(), &[(hot.clone(), 9_500.0)]);
        assert!(precision > 0.95 && recall > 0.95, "{second}: {precision}, {recall}");
        for region in regions.iter().filter(|r| r.resident_pages > GIB / 2) {
            let off = (f64::from(region.rate_hz) / truth(region) - 1.0).abs();
            assert!(off < 0.05, "{second}: {region:?}");
            worst = worst.max(off);
        }
    }
    println!("{most_pages} pages, {} MiB, one in {}, off by {worst:.4}", most_bytes >> 20, 1 << t.halvings);
    assert!(most_pages <= MAX_PAGES && most_bytes < 96 << 20, "{most_pages}, {most_bytes}");
    assert!(t.halvings > 0);
    // Once there are few, all are kept again.
    for second in 120..600 {
        (0..100).for_each(|i| t.report(Access { at: second * S + i, page: PageNo(FIRST + i), weight: 10_007 }));
        t.listened((second + 1) * S, 1.0);
    }
    assert_eq!(t.halvings, 0);
    let count = t.counters().get(PageNo(FIRST)).unwrap();
    assert!((count.weight / t.exposure_s - 10_007.0).abs() < 100.0, "{count:?} in {}", t.exposure_s);
}

#[test]
fn time_listened_begins_with_what_was_reported_before_the_target_was_known() {
    let rate = |early: Ns| {
        let mut t = ReportedTarget::new(100 * S, Silence::Cold);
        t.refit(vec![resident(FIRST..FIRST + 1)]);
        // 100 a second from three seconds before on, in no order of time.
        for i in (0..310).rev() {
            t.report(Access { at: 97 * S + i * 10 * MS, page: PageNo(FIRST), weight: 10 });
        }
        t.report(Access { at: early, page: PageNo(FIRST), weight: 10 });
        t.listened(100 * S + 100 * MS, 1.0);
        // What comes late later is of time that was listened to.
        t.report(Access { at: 97 * S - 1, page: PageNo(FIRST), weight: 10 });
        t.listened(100 * S + 200 * MS, 1.0);
        t.summarize(100 * S + 200 * MS, 10, &[], 0).regions[0].rate_hz
    };
    // 312 reports in 3.2 s.
    assert!((970.0..980.0).contains(&rate(97 * S)), "{}", rate(97 * S));
    assert_eq!(rate(0), rate(97 * S), "a time of before all is none");
}
