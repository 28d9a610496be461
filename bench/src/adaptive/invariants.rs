//! Through any sequence of calls the regions tile their targets, keep their bounds and count no more than can be counted.

use super::{Attrs, Context};
use isotherm_heat::Rng;
use isotherm_units::{Addr, AddrRange, Bytes, PAGE_SIZE};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

type Ranges = Vec<AddrRange>;

#[derive(Clone, Debug)]
enum Call {
    Add(Ranges),
    Refit(prop::sample::Index, Ranges),
    Remove(prop::sample::Index),
    Attrs(Attrs),
    /// So many samples with accesses at so many of a thousand pages; aggregations as they are due, or not at all.
    Samples(u64, u64, bool),
    /// A draw that is not followed by a check, and a check that does not follow a draw.
    OutOfOrder,
}

fn ranges() -> impl Strategy<Value = Ranges> {
    let small = (0..4_000_u64, 0..400_u64).prop_map(|(start, pages)| (start, start + pages));
    let wide = (0..1_u64 << 33, 0..1_u64 << 32).prop_map(|(start, pages)| (start, start + pages));
    let page = (0..4_000_u64).prop_map(|start| (start, start + 1));
    let range = prop_oneof![4 => small, 1 => wide, 2 => page]
        .prop_map(|(start, end)| AddrRange::new(Addr(start * PAGE_SIZE), Addr(end * PAGE_SIZE)));
    vec(range, 0..12)
}

fn attrs() -> impl Strategy<Value = Attrs> {
    let intervals = (1..10_u64, 1..30_u64, 1..500_u64);
    let regions = (3..40_usize, prop_oneof![0..5_usize, 0..300_usize]);
    let granule = prop_oneof![4 => Just(12), 1 => Just(14), 1 => Just(21)];
    let rest = (granule, prop::option::weighted(0.3, 0..10_u32), prop_oneof![Just(1), Just(512)]);
    (intervals, regions, rest).prop_map(
        |((sample_ns, samples, update_ns), (min_regions, more), (granule, cap, weight))| Attrs {
            sample_ns,
            aggregation_ns: sample_ns * samples,
            update_ns,
            min_regions,
            max_regions: min_regions + more,
            min_region: Bytes(1 << granule),
            max_region: cap.map(|cap| Bytes(3 << (granule + cap))),
            weight,
            goal: None,
        },
    )
}

fn calls() -> impl Strategy<Value = Call> {
    prop_oneof![
        2 => ranges().prop_map(Call::Add),
        3 => (any::<prop::sample::Index>(), ranges()).prop_map(|(at, ranges)| Call::Refit(at, ranges)),
        1 => any::<prop::sample::Index>().prop_map(Call::Remove),
        2 => attrs().prop_map(Call::Attrs),
        6 => (1..100_u64, 0..1_000_u64, prop::bool::weighted(0.9)).prop_map(|(n, hot, due)| Call::Samples(n, hot, due)),
        1 => Just(Call::OutOfOrder),
    ]
}

/// `ranges` with those that overlap or touch as one: what must be covered.
fn union(ranges: &[AddrRange]) -> Ranges {
    let mut all: Ranges = ranges.iter().copied().filter(|r| !r.is_empty()).collect();
    all.sort_unstable();
    let mut out: Ranges = Vec::new();
    for range in all {
        match out.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => out.push(range),
        }
    }
    out
}

/// No region may be larger, where nothing else is asked for.
fn size_limit(attrs: &Attrs, total: u128) -> u128 {
    let least = u128::from(attrs.min_region.0);
    let limit = (total / attrs.min_regions as u128).max(least).next_multiple_of(least);
    attrs.max_region.map_or(limit, |cap| limit.min(u128::from(cap.0)))
}

fn check(context: &Context, memory: &[Ranges]) -> Result<(), TestCaseError> {
    let attrs = context.attrs();
    let mut runs = 0;
    for (tiles, ranges) in context.targets().iter().zip(memory) {
        prop_assert_eq!(tiles.check(), Ok(()));
        let covered: Ranges = tiles.iter().map(|t| t.range).collect();
        prop_assert_eq!(&union(&covered), &union(ranges));
        runs += union(ranges).len();
        let greatest = attrs.max_nr_accesses();
        prop_assert!(tiles.iter().all(|t| t.of.nr_accesses <= greatest && t.of.last_nr_accesses <= greatest));
    }
    prop_assert_eq!(context.targets().len(), memory.len());
    prop_assert!(
        context.regions() <= attrs.max_regions.max(runs),
        "{} regions of {}",
        context.regions(),
        attrs.max_regions
    );
    let total: u128 = context.targets().iter().map(|t| u128::from(t.bytes().0)).sum();
    let limit = size_limit(attrs, total);
    // Cutting to the limit makes at most two pieces more in each stretch than its size divided by the limit.
    if total / limit + 2 * runs as u128 <= attrs.max_regions as u128 {
        let largest = context.targets().iter().flat_map(|t| t.iter()).map(|t| u128::from(t.range.len().0)).max();
        prop_assert!(largest.unwrap_or(0) <= limit, "{largest:?} above {limit}");
    }
    Ok(())
}

fn sample(context: &mut Context, hot: u64, rng: &mut Rng) -> Result<(), TestCaseError> {
    let mut drawn = Vec::new();
    context.draw(|s| drawn.push(s));
    let expected: Ranges = context.targets().iter().flat_map(|t| t.iter().map(|t| t.range)).collect();
    prop_assert_eq!(drawn.iter().map(|s| s.range).collect::<Ranges>(), expected);
    for s in &drawn {
        prop_assert!(s.range.contains(s.page.addr()), "{:?}", s);
        prop_assert_eq!(context.targets()[s.target].as_slice()[s.region].range, s.range);
    }
    let mut asked = drawn.iter();
    context.check(|s| {
        assert_eq!(Some(&s), asked.next());
        let heat = u32::try_from(rng.below(600)).unwrap();
        heat * u32::from(s.page.0 % 1_000 < hot)
    });
    Ok(())
}

fn call(context: &mut Context, memory: &mut Vec<Ranges>, call: &Call, rng: &mut Rng) -> Result<(), TestCaseError> {
    match call {
        Call::Add(ranges) => {
            prop_assert_eq!(context.add_target(ranges), memory.len());
            memory.push(ranges.clone());
        }
        Call::Refit(at, ranges) if !memory.is_empty() => {
            let at = at.index(memory.len());
            context.refit_target(at, ranges);
            memory[at].clone_from(ranges);
        }
        Call::Remove(at) if !memory.is_empty() => {
            let at = at.index(memory.len());
            prop_assert!(context.remove_target(at).is_some());
            memory.remove(at);
        }
        Call::Refit(..) | Call::Remove(_) => {
            context.refit_target(7, &[]);
            prop_assert!(context.remove_target(7).is_none());
        }
        Call::Attrs(attrs) => prop_assert_eq!(context.set_attrs(attrs.clone()), Ok(())),
        Call::Samples(samples, hot, aggregate) => {
            for _ in 0..*samples {
                sample(context, *hot, rng)?;
                let due = context.end_of_sample();
                if due.aggregation && *aggregate {
                    let (mut shown, mut told) = (0, Ok(()));
                    let done = context.aggregate(|snapshot| {
                        shown = snapshot.regions();
                        told = check(snapshot, memory);
                    });
                    told?;
                    prop_assert_eq!(done.map(|d| (d.regions, d.after_split)), Some((shown, context.regions())));
                    check(context, memory)?;
                }
            }
        }
        Call::OutOfOrder => {
            context.check(|_| 1_000);
            context.draw(|_| {});
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, rng_seed: RngSeed::Fixed(1), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn invariants_hold_through_any_calls(first in attrs(), seed: u64, all in vec(calls(), 1..24)) {
        let mut context = Context::new(first, seed).unwrap();
        let (mut memory, mut rng) = (Vec::new(), Rng::new(!seed));
        for each in &all {
            call(&mut context, &mut memory, each, &mut rng)?;
            check(&context, &memory)?;
        }
    }
}

/// The greatest number that is ordinary, over a sixteenth of the address space.
#[test]
fn two_hundred_thousand_regions_are_ordinary() {
    let attrs = Attrs { max_regions: 200_000, min_regions: 100_000, aggregation_ns: 25_000_000, ..Attrs::default() };
    let mut context = Context::new(attrs, 1).unwrap();
    let memory = vec![vec![AddrRange::new(Addr(0), Addr(1 << 44))], vec![AddrRange::new(Addr(1 << 44), Addr(1 << 60))]];
    memory.iter().for_each(|ranges| assert!(context.add_target(ranges) < 2));
    let mut rng = Rng::new(2);
    for _ in 0..4 {
        for _ in 0..5 {
            sample(&mut context, 100, &mut rng).unwrap();
            context.end_of_sample();
        }
        assert!(context.aggregate(|shown| check(shown, &memory).unwrap()).is_some());
        assert!((100_000..=200_000).contains(&context.regions()));
        check(&context, &memory).unwrap();
    }
}
