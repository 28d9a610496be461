use super::ageing::{Left, Others};
use super::placing::{Placing, books, frames_from_zero, grow, rate, zone};
use super::{CACHE_FRAMES, cache, trace};
use isotherm_frames::FrameNo;
use isotherm_rng::Rng;
use std::collections::BTreeSet;

const MEMORY: u64 = 1 << 16;
const OPERATIONS: u64 = 60_000;

/// The others' frames after ageing, and those of an owner that comes after.
fn aged(placing: Placing, seed: u64) -> (Vec<FrameNo>, Vec<FrameNo>) {
    let config = placing.config(frames_from_zero(MEMORY), seed);
    let mut books = books(&config).unwrap();
    let zone = zone(&config, &mut books).unwrap();
    let mut others = Others::new(MEMORY, seed);
    others.age(&zone, OPERATIONS, Left::Eighth).unwrap();
    let theirs: Vec<FrameNo> = others.frames().collect();
    assert_eq!(zone.free_frames() + theirs.len() as u64, MEMORY, "{placing:?}, seed {seed}");
    let mut owned = Vec::new();
    grow(&zone, &mut owned, MEMORY / 4).unwrap();
    zone.validate().unwrap();
    (theirs, owned)
}

#[test]
fn ageing_leaves_an_eighth_in_use_in_places_of_history() {
    let seed = 5;
    for placing in [Placing::InOrder, Placing::Shuffled, Placing::BestOf4, Placing::Coloured] {
        let (theirs, owned) = aged(placing, seed);
        let part = theirs.len() as f64 / MEMORY as f64;
        assert!((0.09..0.16).contains(&part), "{placing:?}, seed {seed}: {part} of memory in use");
        let all: BTreeSet<u64> = theirs.iter().chain(&owned).map(|frame| frame.0).collect();
        assert_eq!(all.len(), theirs.len() + owned.len(), "{placing:?}, seed {seed}: a frame has two owners");
        // History shows. From fresh memory all frames but the first of a block of 1,024 follow the one before, in order
        // or shuffled.
        let follow = owned.windows(2).filter(|pair| pair[1].0 == pair[0].0 + 1).count();
        assert!(follow < owned.len() * 15 / 16, "{placing:?}, seed {seed}: {follow} frames in order");
        assert_eq!((theirs, owned), aged(placing, seed), "{placing:?}: the same seed gives the same frames");
    }
}

#[test]
fn frames_in_order_conflict_only_beyond_the_cache_and_coloured_ones_no_earlier() {
    let cache = cache().unwrap();
    for placing in [Placing::InOrder, Placing::Coloured] {
        let config = placing.config(frames_from_zero(2 * CACHE_FRAMES), 1);
        let mut books = books(&config).unwrap();
        let zone = zone(&config, &mut books).unwrap();
        let mut owned = Vec::new();
        grow(&zone, &mut owned, CACHE_FRAMES).unwrap();
        assert_eq!(rate(cache, owned.iter().copied()), 0.0, "{placing:?}");
        grow(&zone, &mut owned, CACHE_FRAMES * 3 / 2).unwrap();
        assert!((rate(cache, owned.iter().copied()) - 1.0 / 3.0).abs() < 1e-9, "{placing:?}");
    }
}

#[test]
fn simulated_accesses_agree_with_the_formula_and_sweeps_miss_twice_as_much() {
    let (cache, seed) = (cache().unwrap(), 3);
    let mut rng = Rng::new(seed);
    let drawn: BTreeSet<u64> = (0..20_000).map(|_| rng.below(4_000) + CACHE_FRAMES * rng.below(8)).collect();
    let frames: Vec<FrameNo> = drawn.into_iter().map(FrameNo).collect();
    let (told, seen) = (rate(cache, frames.iter().copied()), trace::random(cache, &frames, seed).unwrap());
    assert!((told - seen).abs() < 0.01 && told > 0.5, "seed {seed}: {told} told, {seen} seen");
    let first: Vec<FrameNo> = (0..1000).map(FrameNo).collect();
    let alias: Vec<FrameNo> = first.iter().map(|frame| frame.plus(CACHE_FRAMES)).collect();
    assert_eq!(rate(cache, first.iter().chain(&alias).copied()), 0.5);
    assert_eq!(trace::sweeps(cache, &first, &alias).unwrap(), 1.0);
    let apart: Vec<FrameNo> = first.iter().map(|frame| frame.plus(1000)).collect();
    assert_eq!(trace::sweeps(cache, &first, &apart).unwrap(), 0.0);
}

#[test]
fn when_everyone_has_ended_all_is_free_and_colours_know_no_history() {
    let (seed, memory) = (9, 2 * CACHE_FRAMES);
    let config = Placing::Coloured.config(frames_from_zero(memory), seed);
    let mut books = books(&config).unwrap();
    let zone = zone(&config, &mut books).unwrap();
    let mut others = Others::new(memory, seed);
    others.age(&zone, OPERATIONS, Left::Nothing).unwrap();
    assert_eq!((zone.free_frames(), others.frames().count()), (memory, 0), "seed {seed}");
    let mut owned = Vec::new();
    grow(&zone, &mut owned, CACHE_FRAMES).unwrap();
    assert_eq!(rate(cache().unwrap(), owned), 0.0, "seed {seed}");
}
