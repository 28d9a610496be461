//! The formula against the cache itself, the fast ways against the naive one, and the published theory against draws.

use super::*;
use isotherm_rng::Rng;
use isotherm_units::{Bytes, FrameNo};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn cache_of(frames: u64) -> DirectMapped {
    DirectMapped::new(Bytes::of_pages(frames)).unwrap()
}

/// By definition, and by no way that the code goes: the loads of all colours in a map.
fn naive(cache: DirectMapped, frames: &[(u64, f64)]) -> Misses {
    let mut colours: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    frames.iter().for_each(|(frame, weight)| colours.entry(frame % cache.frames()).or_default().push(*weight));
    let mut misses = Misses { frames: frames.len() as u64, colours_used: colours.len() as u64, ..Misses::default() };
    for weights in colours.values() {
        let all: f64 = weights.iter().sum();
        misses.weight += all;
        misses.hits += if all > 0.0 { weights.iter().map(|w| w * (w / all)).sum() } else { 0.0 };
        misses.histogram[weights.len().min(MAX_HISTOGRAM)] += 1;
        misses.most_frames = misses.most_frames.max(weights.len() as u64);
        if weights.len() > 1 {
            misses.crowded_frames += weights.len() as u64;
            misses.crowded_weight += all;
        }
    }
    misses
}

/// The same but for what summing in another order changes.
#[track_caller]
fn assert_alike(a: Misses, b: Misses) {
    let counts = |m: Misses| Misses { weight: 0.0, hits: 0.0, crowded_weight: 0.0, ..m };
    assert_eq!(counts(a), counts(b));
    for (a, b) in [(a.weight, b.weight), (a.hits, b.hits), (a.crowded_weight, b.crowded_weight)] {
        assert!((a - b).abs() <= 1e-9 * (1.0 + a.abs()), "{a} is not {b}");
    }
}

fn conflict(cache: DirectMapped, frames: &[(u64, f64)]) -> Misses {
    let mut conflict = Conflict::new(cache);
    frames.iter().for_each(|(frame, weight)| conflict.add(FrameNo(*frame), *weight));
    conflict.finish()
}

/// The miss rate that a cache shows on random accesses by weight, the first of each frame left out.
fn simulated(cache: DirectMapped, frames: &[(u64, f64)], accesses: u64, seed: u64) -> f64 {
    let mut sums: Vec<f64> = Vec::new();
    frames.iter().for_each(|(_, weight)| sums.push(sums.last().unwrap_or(&0.0) + weight));
    let all = *sums.last().unwrap();
    let mut rng = Rng::new(seed);
    let mut machine = DirectMappedCache::new(cache).unwrap();
    let (mut seen, mut misses, mut counted) = (BTreeSet::new(), 0_u64, 0_u64);
    for _ in 0..accesses {
        let at = rng.unit() * all;
        let frame = frames[sums.partition_point(|sum| *sum <= at).min(frames.len() - 1)].0;
        let hit = machine.access(FrameNo(frame));
        if !seen.insert(frame) {
            counted += 1;
            misses += u64::from(!hit);
        }
    }
    misses as f64 / counted as f64
}

#[test]
fn a_cache_has_whole_pages_of_any_number() {
    assert_eq!(DirectMapped::new(Bytes(0)), Err(CacheError::TooSmall(Bytes(0))));
    assert_eq!(DirectMapped::new(Bytes(6000)), Err(CacheError::NotPages(Bytes(6000))));
    let cache = DirectMapped::new(Bytes::of_pages(3)).unwrap();
    assert_eq!((cache.frames(), cache.size()), (3, Bytes(12288)));
    assert_eq!([0, 2, 3, 8].map(|frame| cache.colour_of(FrameNo(frame))), [0, 2, 0, 2]);
    assert!(DirectMapped::new(Bytes(!4095)).is_ok());
}

#[test]
fn two_frames_of_a_colour_miss_as_their_weights_tell() {
    let cache = cache_of(10);
    // Alone; alike; 3 to 1: 9/4 + 1/4 of 4 hit.
    assert_eq!(conflict(cache, &[(1, 7.0)]).rate(), Some(0.0));
    assert_eq!(conflict(cache, &[(1, 1.0), (11, 1.0)]).rate(), Some(0.5));
    assert_eq!(conflict(cache, &[(1, 3.0), (11, 1.0)]).rate(), Some(1.0 - 2.5 / 4.0));
    // One never accessed is in nobody's way, but is there.
    let idle = conflict(cache, &[(1, 3.0), (11, 0.0), (2, 1.0)]);
    assert_eq!((idle.rate(), idle.crowded_share(), idle.crowded_frames), (Some(0.0), Some(0.75), 2));
    assert_eq!((idle.colours_used, idle.histogram[1], idle.histogram[2], idle.most_frames), (2, 1, 1, 2));
    assert_eq!(conflict(cache, &[(1, 0.0)]).rate(), None);
    assert_eq!(conflict(cache, &[]), Misses::default());
    assert_eq!(conflict(cache, &[(1, f64::NAN), (11, 1.0), (21, -1.0)]).rate(), Some(0.0));
}

#[test]
fn aliased_regions_miss_half_of_the_time() {
    let frames: Vec<(u64, f64)> = (0..500).flat_map(|i| [(i, 1.0), (i + 3 * 1000, 1.0)]).collect();
    assert_eq!(conflict(cache_of(1000), &frames).rate(), Some(0.5));
}

fn shuffled(frames: &mut [u64], rng: &mut Rng) {
    for at in 0..frames.len() {
        let other = at + usize::try_from(rng.below((frames.len() - at) as u64)).unwrap();
        frames.swap(at, other);
    }
}

/// Zipf and Gaussian weights on random frames, and even ones.
fn weighted_examples(rng: &mut Rng) -> Vec<(&'static str, Vec<(u64, f64)>)> {
    let scatter = |rng: &mut Rng, weight: &dyn Fn(f64) -> f64| {
        let frames: BTreeSet<u64> = (0..600).map(|_| rng.below(4096)).collect();
        let mut frames: Vec<u64> = frames.into_iter().collect();
        shuffled(&mut frames, rng);
        frames.into_iter().enumerate().map(|(rank, frame)| (frame, weight(rank as f64))).collect::<Vec<_>>()
    };
    vec![
        ("zipf 1", scatter(rng, &|rank| 1.0 / (rank + 1.0))),
        ("zipf 0.8", scatter(rng, &|rank| (rank + 1.0).powf(-0.8))),
        ("gaussian", scatter(rng, &|rank| (-(rank - 300.0).powi(2) / (2.0 * 80.0 * 80.0)).exp())),
        ("uniform", scatter(rng, &|_| 1.0)),
    ]
}

#[test]
fn the_formula_tells_what_a_cache_does() {
    let seed = 7;
    let mut rng = Rng::new(seed);
    for (name, frames) in weighted_examples(&mut rng) {
        for colours in [256, 1000] {
            let cache = cache_of(colours);
            let (told, seen) = (conflict(cache, &frames).rate().unwrap(), simulated(cache, &frames, 400_000, seed));
            // 400,000 draws are off by 0.0008 at the most likely, and each is not quite independent of the one before.
            assert!((told - seen).abs() < 0.006, "{name}, {colours} colours, seed {seed}: {told} told, {seen} seen");
            assert!(told > 0.01, "{name}: an example without conflicts shows nothing");
        }
    }
}

#[test]
fn draws_agree_with_the_theory() {
    // Frame by frame: the theory's own case. Quarters of the cache in use; the table of docs/guide/placement.md.
    let table = [
        (1_u32, [0.062, 0.090, 0.103], 0.0),
        (2, [0.125, 0.172, 0.193], 0.0),
        (4, [0.250, 0.316, 0.344], 0.0),
        (6, [0.375, 0.435, 0.460], 1.0 / 3.0),
    ];
    let cache = cache_of(1 << 13);
    let seed = 3;
    let mut rng = Rng::new(seed);
    for (quarters, misses, balanced) in table {
        let (footprint, used) = (f64::from(quarters) / 4.0, cache.frames() / 4 * u64::from(quarters));
        for (times, published) in [2_u64, 4, 8].into_iter().zip(misses) {
            let f = footprint / times as f64;
            let theory = 1.0 - shuffled_hit(f, times as f64);
            assert!((theory - published).abs() < 0.001, "{footprint} at {times}: {theory}, published {published}");
            let mut all: Vec<u64> = (0..cache.frames() * times).collect();
            shuffled(&mut all, &mut rng);
            let drawn: Vec<(u64, f64)> = (0..used).zip(&all).map(|(_, frame)| (*frame, 1.0)).collect();
            let rate = conflict(cache, &drawn).rate().unwrap();
            assert!((rate - theory).abs() < 0.01, "{footprint} at {times}, seed {seed}: {rate}, not {theory}");
        }
        assert!((1.0 - coloured_hit(footprint) - balanced).abs() < 1e-12);
        let even = Footprint::uniform((0..used).map(|i| FrameNo(i * 77)));
        let rate = coloured(&even, cache, &mut rng).rate().unwrap();
        assert!((rate - balanced).abs() < 1e-9 && (unavoidable(&even, cache).unwrap() - balanced).abs() < 1e-9);
        assert_eq!(coloured_by_heat(&even, cache), coloured(&even, cache, &mut rng));
    }
    assert_eq!((shuffled_hit(0.0, 4.0), shuffled_hit(1.0, 1.0), shuffled_hit(1.0, 4.0)), (1.0, 1.0, 0.25));
}

#[test]
fn whole_blocks_shuffled_miss_as_frames_do_in_the_mean() {
    // Half of 512 blocks full; a cache of a quarter of memory, and one that cuts blocks. Whole blocks differ more from draw to draw.
    let frames: Vec<FrameNo> = (0..256 << SHUFFLE_ORDER).map(|i| FrameNo(i + (1 << 30))).collect();
    let memory = Bytes::of_pages(512 << SHUFFLE_ORDER);
    let footprint = Footprint::uniform(frames);
    for colours in [128 << SHUFFLE_ORDER, (128 << SHUFFLE_ORDER) - 517] {
        let cache = cache_of(colours);
        let theory = 1.0 - shuffled_hit(0.5, 512.0 * 1024.0 / colours as f64);
        let seed = 11;
        let (mut shuffle, mut rng, mut spread) = (Shuffle::new(memory, &footprint), Rng::new(seed), Spread::default());
        assert_eq!(shuffle.blocks(), 512);
        for _ in 0..30 {
            spread.add(shuffle.draw(&footprint, cache, &mut rng).rate().unwrap());
        }
        let mean = spread.mean().unwrap();
        assert!((mean - theory).abs() < 0.01, "{colours} colours, seed {seed}: {mean}, not {theory}");
        assert!(spread.least().unwrap() < mean && mean < spread.most().unwrap() && spread.draws() == 30);
    }
}

#[test]
fn the_spread_of_no_draws_is_unknown() {
    let none = Spread::default();
    assert_eq!((none.draws(), none.mean(), none.least(), none.most()), (0, None, None, None));
}

#[test]
fn heat_beside_cold_is_best_of_even_placements_and_nothing_beats_the_unavoidable() {
    let seed = 5;
    let mut rng = Rng::new(seed);
    for (name, frames) in weighted_examples(&mut rng) {
        #[expect(clippy::cast_possible_truncation, reason = "less exact is good enough")]
        let footprint = Footprint::weighted(frames.iter().map(|(f, w)| (FrameNo(*f), *w as f32)));
        for colours in [100, 300, 400, 1000] {
            let cache = cache_of(colours);
            let by_heat = coloured_by_heat(&footprint, cache).rate().unwrap();
            let rest = unavoidable(&footprint, cache).unwrap();
            assert!(rest <= by_heat + 1e-9, "{name}, {colours}: {rest} unavoidable, {by_heat}");
            for _ in 0..20 {
                let even = coloured(&footprint, cache, &mut rng);
                let rate = even.rate().unwrap();
                assert!(by_heat <= rate + 1e-9, "{name}, {colours}, seed {seed}: {by_heat} by heat, {rate} without");
                assert!(even.most_frames == footprint.frames().div_ceil(colours) && even.frames == footprint.frames());
            }
        }
    }
}

#[test]
fn frames_gathered_apart_are_as_those_gathered_together() {
    let parts = [vec![(1, 1.0), (5, 2.0), (1, 0.5)], vec![], vec![(5, 4.0), (3000, 8.0)]];
    for empty in [Gather::uniform(), Gather::weighted()] {
        let (mut together, mut apart) = (empty.clone(), empty.clone());
        for part in &parts {
            let mut one = empty.clone();
            for (frame, weight) in part {
                together.add(FrameNo(*frame), *weight);
                one.add(FrameNo(*frame), *weight);
            }
            apart.absorb(one);
        }
        assert_eq!((apart.pages(), together.pages()), (5, 5));
        let [apart, together] = [apart, together].map(|gather| gather.finish().iter().collect::<Vec<_>>());
        assert_eq!((apart.len(), &apart), (3, &together));
    }
}

#[test]
fn a_frame_mapped_twice_is_one() {
    let uniform = Footprint::uniform(vec![FrameNo(5), FrameNo(2), FrameNo(5)]);
    assert_eq!((uniform.frames(), uniform.blocks(), uniform.is_uniform()), (2, 1, true));
    let weighted = Footprint::weighted(vec![(FrameNo(5), 1.5), (FrameNo(2000), f32::NAN), (FrameNo(5), 2.0)]);
    let listed: Vec<_> = weighted.iter().collect();
    assert_eq!((listed, weighted.blocks()), (vec![(FrameNo(5), 3.5), (FrameNo(2000), 0.0)], 2));
    let mut gather = Gather::weighted();
    (0..3 << 20).for_each(|i: u64| gather.add(FrameNo(i % 1000), 0.5));
    assert_eq!(gather.pages(), 3 << 20);
    let again = gather.finish();
    let sum: f64 = again.weights().map(f64::from).sum();
    assert!(again.frames() == 1000 && (sum - f64::from(3 << 19)).abs() < 1.0, "{sum}");
    assert_eq!(unavoidable(&Footprint::default(), cache_of(1)), None);
    assert_eq!(Shuffle::new(Bytes(0), &weighted).blocks(), 2, "as many places as are needed");
}

fn frames_and_weights() -> impl Strategy<Value = BTreeMap<u64, f32>> {
    let frame = prop_oneof![0..5_000_u64, 0..60_000_u64, 0..1_u64 << 40];
    let weight = prop_oneof![Just(0.0_f32), Just(1.0), 0.0..100.0_f32];
    prop::collection::btree_map(frame, weight, 0..400)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// In a list, in an array, and block by block through the window: as by definition.
    #[test]
    fn every_way_agrees_with_the_naive_one(
        frames in frames_and_weights(),
        colours in prop_oneof![1..20_u64, 20..3_000_u64, 3_000..40_000_u64, Just(1 << 20)],
        elsewhere in any::<u64>(),
    ) {
        let cache = cache_of(colours);
        let listed: Vec<(u64, f64)> = frames.iter().map(|(f, w)| (*f, f64::from(*w))).collect();
        let expected = naive(cache, &listed);
        assert_alike(conflict(cache, &listed), expected);
        let footprint = Footprint::weighted(frames.iter().map(|(f, w)| (FrameNo(*f), *w)));
        assert_alike(footprint.conflict(cache).finish(), expected);
        // Each block moved to a place of its own: its number times an odd one, modulo 2^30.
        let odd = elsewhere | 1;
        let mut blocks: Vec<u64> = frames.keys().map(|frame| frame >> SHUFFLE_ORDER).collect();
        blocks.dedup();
        let moved = |block: u64| block.wrapping_mul(odd) & ((1 << 30) - 1);
        let there: Vec<(u64, f64)> = listed.iter().map(|(f, w)| ((moved(f >> SHUFFLE_ORDER) << SHUFFLE_ORDER) + (f & 1023), *w)).collect();
        assert_alike(footprint.misses_at(cache, |index| moved(blocks[index])), naive(cache, &there));
    }

    /// Rates are rates, and colours are told in order with all that was put in.
    #[test]
    fn rates_lie_between_0_and_1(frames in frames_and_weights(), colours in 1..3_000_u64, seed in any::<u64>()) {
        let cache = cache_of(colours);
        let footprint = Footprint::weighted(frames.iter().map(|(f, w)| (FrameNo(*f), *w)));
        let mut rng = Rng::new(seed);
        let mut shuffle = Shuffle::new(Bytes::of_mib(1024), &footprint);
        let (mut last, mut told) = (None, 0);
        let placed = footprint.conflict(cache).visit(|colour, load| {
            assert!(last < Some(colour) && colour < colours);
            last = Some(colour);
            told += load.frames;
        });
        prop_assert_eq!(told, frames.len() as u64);
        let rest = unavoidable(&footprint, cache);
        for misses in [
            placed,
            shuffle.draw(&footprint, cache, &mut rng),
            coloured(&footprint, cache, &mut rng),
            coloured_by_heat(&footprint, cache),
        ] {
            prop_assert_eq!(misses.frames, frames.len() as u64);
            prop_assert_eq!(misses.rate().is_some(), rest.is_some());
            if let Some((rate, rest)) = misses.rate().zip(rest) {
                prop_assert!((0.0..=1.0).contains(&rate) && rest <= rate + 1e-6, "{} {}", rate, rest);
            }
        }
    }
}

#[test]
fn a_split_footprint_has_every_frame_once_with_its_weight() {
    let frames: Vec<(FrameNo, f32)> =
        (0..5000_u64).map(|i| (FrameNo(i * 7), f32::from(u8::try_from(i % 200).unwrap()))).collect();
    let whole = Footprint::weighted(frames.clone());
    // A limit inside a block of 4 MiB, and a key of no frame.
    let parts = whole.split(|frame| frame.0 >= 10_000);
    let (low, high) = (&parts[&false], &parts[&true]);
    assert_eq!(low.iter().chain(high.iter()).collect::<Vec<_>>(), frames);
    assert!(low.iter().all(|(frame, _)| frame.0 < 10_000) && high.iter().all(|(frame, _)| frame.0 >= 10_000));
    assert_eq!(low.blocks() + high.blocks(), whole.blocks() + 1, "the block that is cut counts on both sides");
    assert!((low.weight_of_all() + high.weight_of_all() - whole.weight_of_all()).abs() < 1e-6);
    let even = Footprint::uniform((0..10).map(FrameNo));
    assert!(even.split(|_| 0)[&0].is_uniform() && even.weight_of_all() == 10.0);
    assert!(Footprint::default().split(|_| 0).is_empty());
}
