//! Truth and scores against counting pages.

use isotherm_heat::Interval;
use isotherm_sim::{Access, Area, Claim, Heat, Host, Phase, Process, Scope};
use isotherm_units::{Addr, AddrRange, Bytes, PAGE_SIZE, PageNo};
use proptest::prelude::*;

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;
const BASE: u64 = 1 << 40;

fn pages(first: u64, count: u64) -> AddrRange {
    AddrRange::new(Addr(BASE + first * PAGE_SIZE), Addr(BASE + (first + count) * PAGE_SIZE))
}

fn host() -> Host {
    let scattered = Heat::Scattered { share: 0.3, hot: Access::Every(50 * MS), rest: Access::Poisson(100 * S) };
    let a = Process::new(1, "a")
        .cgroup("/t/a")
        .area(Area::new(pages(0, 1000), Heat::never()))
        .area(Area::new(pages(1000, 100), Heat::every(20 * MS)))
        .area(Area::new(pages(2000, 20_000), scattered))
        .area(Area::new(pages(30 * 1024, 1024), Heat::poisson(30 * MS)).huge());
    let b = Process::new(2, "b").cgroup("/t/ab").area(Area::new(pages(0, 10_000), Heat::gaussian(10 * MS, 0.1)));
    Host::new(Bytes(1 << 30), vec![b, a]).unwrap()
}

fn bytes(pages: u64) -> Bytes {
    Bytes::of_pages(pages)
}

#[test]
fn truth_is_bytes_by_interval() {
    let host = host();
    let truth = host.truth(Scope::Process(1), 0);
    let classes: Vec<_> = truth.classes().collect();
    let wanted = [(20 * MS, bytes(100)), (30 * MS, bytes(1024)), (50 * MS, bytes(6000)), (100 * S, bytes(14_000))];
    assert_eq!(classes, wanted);
    assert_eq!((truth.never(), truth.total()), (bytes(1000), bytes(22_124)));
    assert_eq!((truth.within(S), truth.within(30 * MS), truth.within(1)), (bytes(7124), bytes(1124), bytes(0)));
    let temperature = truth.temperature();
    assert_eq!((temperature.resident(), temperature.at(Interval::LONGEST)), (22_124, 1000));
    assert_eq!(host.truth(Scope::Process(9), 0).total(), bytes(0));
}

#[test]
fn a_scope_is_a_cgroup_with_those_below_it_and_not_its_namesakes() {
    let host = host();
    let total = |scope| host.truth(Scope::Cgroup(scope), 0).total();
    assert_eq!((total("/t/a"), total("/t/ab"), total("/t")), (bytes(22_124), bytes(10_000), bytes(32_124)));
    assert_eq!((total("/"), total("/t/"), total("/t/abc")), (bytes(32_124), bytes(32_124), bytes(0)));
    assert_eq!(host.truth(Scope::Host, 0).total(), bytes(32_124));
}

#[test]
fn truth_changes_with_phases() {
    let phases = Heat::Phases(vec![
        Phase { until: 10 * S, heat: Heat::never() },
        Phase { until: 20 * S, heat: Heat::every(MS) },
        Phase { until: 30 * S, heat: Heat::every(MS * 100) },
    ]);
    let process = Process::new(1, "a").area(Area::new(pages(0, 10), phases));
    let host = Host::new(Bytes(1 << 30), vec![process]).unwrap();
    let hot = |now, ns| host.truth(Scope::Host, now).within(ns).pages();
    assert_eq!([hot(0, S), hot(10 * S, MS), hot(20 * S, MS), hot(20 * S, S), hot(99 * S, S)], [0, 10, 0, 10, 10]);
}

#[test]
fn rates_of_pages_are_what_the_truth_says() {
    let host = host();
    // Process 2 is a Gaussian: what share of its pages is accessed in a time follows from the intervals and chance alone.
    let truth = host.truth(Scope::Process(2), 0);
    for (since, time) in [(S, 10 * MS), (7 * S, 100 * MS), (9 * S, S)] {
        let first = pages(0, 1).start.page().0;
        let counted = (0..10_000).filter(|i| host.accessed(2, PageNo(first + i), since, since + time)).count() as f64;
        let chance = |interval: u64| 1.0 - (-(time as f64 / interval as f64)).exp();
        let expected: f64 = truth.classes().map(|(interval, b)| b.pages() as f64 * chance(interval)).sum();
        assert!((counted - expected).abs() < 4.0 * expected.sqrt(), "{counted}, not {expected}, in {time} ns");
    }
}

#[test]
fn accesses_of_every_kind_are_as_many_as_their_rates_say() {
    let (fast, slow) = (Access::Every(10 * MS), Access::Poisson(70 * MS));
    let in_turn = vec![
        Phase { until: S, heat: Heat::Uniform(fast) },
        Phase { until: 2 * S, heat: Heat::never() },
        Phase { until: 4 * S, heat: Heat::Uniform(slow) },
    ];
    // Each with the accesses of a page in the four seconds, and by how much they may be off: of 400 scattered pages, the hot
    // ones are a hundred, give or take nine.
    let kinds = [
        (Heat::every(13 * MS), 4000.0 / 13.0, 0.01),
        (Heat::poisson(13 * MS), 4000.0 / 13.0, 0.04),
        (Heat::Scattered { share: 0.25, hot: fast, rest: slow }, 0.25 * 400.0 + 0.75 * 4000.0 / 70.0, 0.15),
        (Heat::Phases(in_turn), 100.0 + 2000.0 / 70.0, 0.04),
        (Heat::never(), 0.0, 0.0),
    ];
    for (heat, expected, off) in kinds {
        let process = Process::new(1, "a").area(Area::new(pages(0, 400), heat.clone()));
        let host = Host::new(Bytes(1 << 30), vec![process]).unwrap();
        let first = pages(0, 1).start.page().0;
        // Slices of 0.5 ms: of random accesses, one in fifty or so falls into a slice with another.
        let slice = MS / 2;
        let is_accessed = |page, i| host.accessed(1, PageNo(page), i * slice, (i + 1) * slice);
        let in_page = |page| (0..4 * S / slice).filter(|i| is_accessed(page, *i)).count();
        let counted = (first..first + 400).map(in_page).sum::<usize>() as f64 / 400.0;
        assert!((counted - expected).abs() <= off * expected, "{heat:?}: {counted} accesses a page, not {expected}");
    }
}

#[test]
fn a_score_has_its_usual_meaning() {
    let host = host();
    let claim = |first, count, hot| Claim { pid: 1, range: pages(first, count), hot };
    let score = |claims: Vec<Claim>| host.score(Scope::Process(1), 0, S, claims);
    let nothing = score(vec![]);
    assert_eq!((nothing.precision(), nothing.recall(), nothing.f1()), (1.0, 0.0, 0.0));
    assert_eq!(nothing.hot_pages, 7124.0);
    // Pages 900 to 1099: half is hot; what is not mapped does not count; nor does another process, nor what is said to be cold.
    let other = Claim { pid: 2, ..claim(0, 10_000, 1.0) };
    let half = score(vec![claim(900, 200, 1.0), claim(1200, 700, 1.0), other, claim(2000, 20_000, 0.0)]);
    assert_eq!(half.precision(), 0.5);
    assert!((half.recall() - 100.0 / 7124.0).abs() < 1e-9);
    // A long range over scattered pages is right as often as there are hot ones.
    let scattered = score(vec![claim(2000, 20_000, 0.5)]);
    assert!((scattered.precision() - 0.3).abs() < 1e-9 && (scattered.recall() - 3000.0 / 7124.0).abs() < 1e-9);
}

#[test]
fn scattered_pages_claimed_one_by_one_score_exactly() {
    let host = host();
    let first = pages(0, 1).start.page().0;
    let hot: Vec<u64> = (2000..22_000).filter(|i| host.accessed(1, PageNo(first + i), S, S + 50 * MS)).collect();
    let claims = hot.iter().map(|i| Claim { pid: 1, range: pages(*i, 1), hot: 1.0 });
    let score = host.score(Scope::Process(1), 0, S, claims);
    // But for the few of the rest that were accessed by chance: 14,000 pages, every 100 s.
    assert!(score.precision() > 0.995, "{}", score.precision());
    assert!((score.true_hot_pages - 6000.0).abs() < 200.0);
}

proptest! {
    #[test]
    fn a_score_is_what_counting_pages_would_give(
        claims in prop::collection::vec((1_u64..400, 1_u64..400, any::<bool>()), 1..12),
    ) {
        let heats = [Heat::never(), Heat::every(MS), Heat::poisson(S), Heat::every(9 * S)];
        let area = |i: u64| Area::new(pages(i * 300, 250), heats[usize::try_from(i).unwrap() % 4].clone());
        let process = (0..12).fold(Process::new(1, "a"), |p, i| p.area(area(i)));
        let host = Host::new(Bytes(1 << 30), vec![process]).unwrap();
        let is_hot = |page: u64| page < 3600 && page % 300 < 250 && matches!(page / 300 % 4, 1 | 2);
        let (mut right, mut wrong, mut next) = (0.0, 0.0, 0);
        let mut list = Vec::new();
        for (gap, len, hot) in claims {
            let first = next + gap;
            next = first + len;
            list.push(Claim { pid: 1, range: pages(first, len), hot: f64::from(u8::from(hot)) });
            for page in (first..next).filter(|p| hot && *p < 3600 && p % 300 < 250) {
                if is_hot(page) { right += 1.0 } else { wrong += 1.0 }
            }
        }
        let score = host.score(Scope::Host, 0, S, list);
        prop_assert_eq!((score.true_hot_pages, score.false_hot_pages), (right, wrong));
        prop_assert_eq!(score.hot_pages, 1500.0);
    }
}
