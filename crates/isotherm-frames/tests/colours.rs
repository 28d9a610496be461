//! Placement for a direct-mapped cache: what the counting promises, and what chance would give.

mod support;

use isotherm_frames::{Choice, Colouring, ConfigError, FrameNo, Metadata, MigrateType, Order, Zone, ZoneConfig};
use isotherm_rng::Rng;
use support::{below, frames, metadata, order, seeds};

const MOVABLE: MigrateType = MigrateType::Movable;

fn coloured(start: u64, count: u64, colouring: Colouring) -> ZoneConfig {
    ZoneConfig { colouring: Some(colouring), ..ZoneConfig::new(frames(start, count)) }
}

#[test]
fn colourings_that_cannot_be_are_refused_and_say_why() {
    let refused = |colouring: Colouring| match coloured(0, 1 << 20, colouring).metadata_bytes() {
        Err(ConfigError::Colouring(why)) => why,
        other => panic!("{colouring:?}: {other:?}"),
    };
    assert!(refused(Colouring::exact(0)).contains("multiple of 1,024"));
    assert!(refused(Colouring::exact(1025)).contains("multiple of 1,024"));
    assert!(refused(Colouring::exact(u64::MAX)).contains("multiple of 1,024"));
    assert!(refused(Colouring::exact(4096)).contains("250 times"));
    for k in [0, 65, 1 << 26, u32::MAX] {
        let why = refused(Colouring { choice: Choice::BestOf(k), ..Colouring::exact(1 << 18) });
        assert!(why.contains("candidates"), "{k}: {why}");
    }
}

#[test]
fn a_cache_larger_than_the_memory_has_a_place_for_every_frame() {
    let whole = coloured(5 << 10, 8192, Colouring::exact(8192)).metadata_bytes().unwrap();
    for cache_frames in [8192, 9216, 1 << 32, u64::MAX - 1023] {
        for choice in [Choice::Exact, Choice::BestOf(64)] {
            let config = coloured(5 << 10, 8192, Colouring { choice, ..Colouring::exact(cache_frames) });
            assert!(config.metadata_bytes().unwrap() <= whole, "{cache_frames}");
            let mut bytes = metadata(&config);
            let zone = Zone::new(&config, Metadata::zeroed(&mut bytes)).unwrap();
            zone.add(frames(5 << 10, 8192), MOVABLE).unwrap();
            while zone.alloc(Order::FRAME, MOVABLE).is_ok() {}
            let mut loads = [0; 3];
            assert!(zone.loads(&mut loads));
            assert_eq!(loads, [0, 8192, 0], "{cache_frames} {choice:?}");
            zone.validate().unwrap();
        }
    }
}

/// Random allocations and frees of one order, up to `most` blocks: after each, how many of a colour are in use.
struct Ageing<'z, 'm> {
    zone: &'z Zone<'m>,
    order: Order,
    used: Vec<FrameNo>,
    loads: Vec<u32>,
    rng: Rng,
}

impl<'z, 'm> Ageing<'z, 'm> {
    fn new(zone: &'z Zone<'m>, order: Order, cache_frames: u64, seed: u64) -> Self {
        let colours = usize::try_from(cache_frames >> order.get()).unwrap();
        Ageing { zone, order, used: Vec::new(), loads: vec![0; colours], rng: Rng::new(seed) }
    }

    fn colour(&self, frame: FrameNo) -> usize {
        usize::try_from((frame.0 >> self.order.get()) % self.loads.len() as u64).unwrap()
    }

    /// One step; the load of the colour that it changed.
    fn step(&mut self, most: usize, migrate: MigrateType) -> u32 {
        // Full three times of four: where colours run out is where it is hard.
        let fill = self.used.len() < most && (self.used.is_empty() || self.rng.below(4) > 0);
        if fill {
            let frame = self.zone.alloc(self.order, migrate).unwrap();
            let colour = self.colour(frame);
            self.used.push(frame);
            self.loads[colour] += 1;
            self.loads[colour]
        } else {
            let at = below(&mut self.rng, self.used.len());
            let frame = self.used.swap_remove(at);
            self.zone.free(frame, self.order).unwrap();
            let colour = self.colour(frame);
            self.loads[colour] -= 1;
            self.loads[colour]
        }
    }

    /// The zone counts the same.
    fn check(&self) {
        self.zone.validate().unwrap();
        let mut counted = [0; 8];
        assert!(self.zone.loads(&mut counted));
        let mine: [u64; 8] = std::array::from_fn(|n| self.loads.iter().filter(|&&l| l as usize == n).count() as u64);
        assert_eq!(counted, mine);
    }
}

/// Steps for a test that makes a million where they are fast.
fn steps(all: u32) -> u32 {
    if cfg!(miri) {
        all / 10_000
    } else if cfg!(debug_assertions) {
        all / 8
    } else {
        all
    }
}

/// What fits into the cache never competes, whatever was freed in between: for caches of a single largest block, of a power of two
/// and of other sizes, from bases that are no multiple of them, with and without odd ends.
#[test]
fn what_fits_into_the_cache_never_competes() {
    for seed in seeds() {
        for (cache_frames, base, odd) in
            [(1024, 0, 0), (4096, 0, 0), (3072, 1024, 0), (5120, 123 << 10, 77), (7168, (1 << 40) + (5 << 10), 500)]
        {
            let config = ZoneConfig { seed, ..coloured(base, 4 * cache_frames + 1024, Colouring::exact(cache_frames)) };
            let mut bytes = metadata(&config);
            let zone = Zone::new(&config, Metadata::zeroed(&mut bytes)).unwrap();
            zone.add(frames(base + odd, 4 * cache_frames), MOVABLE).unwrap();
            let mut ageing = Ageing::new(&zone, Order::FRAME, cache_frames, seed);
            let most = usize::try_from(cache_frames).unwrap();
            for step in 0..steps(200_000) {
                let load = ageing.step(most, MOVABLE);
                assert!(load <= 1, "seed {seed}, cache {cache_frames} from {base:#x}, step {step}: load {load}");
            }
            ageing.check();
            // Half as much again: half of the colours have to be used twice, and none more.
            for step in 0..steps(100_000) {
                let load = ageing.step(most * 3 / 2, MOVABLE);
                assert!(load <= 2, "seed {seed}, cache {cache_frames} from {base:#x}, step {step}: load {load}");
            }
            ageing.check();
        }
    }
}

#[test]
fn huge_pages_that_fit_into_the_cache_never_compete() {
    for granule in [4, 9, 10].map(order) {
        let cache_frames = 12 << 10;
        let colouring = Colouring { granule, ..Colouring::exact(cache_frames) };
        let config = coloured(7 << 10, 4 * cache_frames, colouring);
        let mut bytes = metadata(&config);
        let zone = Zone::new(&config, Metadata::zeroed(&mut bytes)).unwrap();
        zone.add(frames(7 << 10, 4 * cache_frames), MOVABLE).unwrap();
        let mut ageing = Ageing::new(&zone, granule, cache_frames, 5);
        let most = ageing.loads.len();
        for step in 0..steps(100_000) {
            assert!(ageing.step(most, MOVABLE) <= 1, "{granule:?}, step {step}");
        }
        ageing.check();
    }
}

/// The share of accesses that miss, all frames in use accessed equally often: of those of one colour, all but one share.
fn misses(loads: &[u64]) -> f64 {
    let used: u64 = loads.iter().enumerate().map(|(load, colours)| load as u64 * colours).sum();
    1.0 - loads[1..].iter().sum::<u64>() as f64 / used as f64
}

/// How loads come out if each frame is the best of `k` drawn from the free ones, for memory of `ratio` caches filled to one cache:
/// of many colours, the shares with each load follow a differential equation.
///
/// A drawn frame is of a colour with load l in proportion to the free frames of those, (ratio - l) times their share. That all k
/// are of loads from l up has the k-th power of the probability that one is; the best is l if that is so for l and not for l + 1.
fn expected_misses(ratio: u32, k: u32) -> f64 {
    let layers = ratio as usize + 1;
    let mut shares = vec![0.0; layers];
    shares[0] = 1.0;
    let steps = 20_000;
    for _ in 0..steps {
        let free: Vec<f64> = (0..layers).map(|l| (layers - 1 - l) as f64 * shares[l]).collect();
        let all: f64 = free.iter().sum();
        let from_up = |l: usize| (free[l..].iter().sum::<f64>() / all).powi(k.try_into().unwrap());
        let best: Vec<f64> = (0..layers - 1).map(|l| from_up(l) - from_up(l + 1)).collect();
        for (l, rate) in best.into_iter().enumerate() {
            shares[l] -= rate / f64::from(steps);
            shares[l + 1] += rate / f64::from(steps);
        }
    }
    // As many frames as colours: those that miss are as many as the colours without any.
    shares[0]
}

#[test]
fn the_best_of_a_few_is_as_good_as_theory_says() {
    let cache_frames = if cfg!(miri) { 1024 } else { 64 << 10 };
    // The shares of frames that compete: random, and the best of 2, 4, 8. With one miss in a thousand for the exact choice.
    for (choice, published) in [
        (Choice::BestOf(1), 0.32),
        (Choice::BestOf(2), 0.20),
        (Choice::BestOf(4), 0.11),
        (Choice::BestOf(8), 0.06),
        (Choice::Exact, 0.0),
    ] {
        let config = coloured(0, 4 * cache_frames, Colouring { choice, ..Colouring::exact(cache_frames) });
        let mut bytes = metadata(&config);
        let zone = Zone::new(&config, Metadata::zeroed(&mut bytes)).unwrap();
        zone.add(frames(0, 4 * cache_frames), MOVABLE).unwrap();
        for _ in 0..cache_frames {
            zone.alloc(Order::FRAME, MOVABLE).unwrap();
        }
        let mut loads = [0; 6];
        assert!(zone.loads(&mut loads));
        let measured = misses(&loads);
        let within = if cfg!(miri) { 0.06 } else { 0.01 };
        assert!((measured - published).abs() < within, "{choice:?}: {measured:.4}, published {published}");
        let Choice::BestOf(k) = choice else {
            assert_eq!(loads, [0, cache_frames, 0, 0, 0, 0]);
            continue;
        };
        let expected = expected_misses(4, k);
        assert!((measured - expected).abs() < within / 2.0, "{choice:?}: {measured:.4}, expected {expected:.4}");
    }
    // The equation for one candidate has a solution that can be written down: (1 - 1 / 4)^4.
    assert!((expected_misses(4, 1) - 0.75_f64.powi(4)).abs() < 1e-4);
}

/// Colours and migrate types want different things of a page block. Three types in memory of two caches: hardly anything competes.
#[test]
fn three_types_leave_the_colours_even() {
    let cache_frames = 8192;
    for seed in seeds() {
        let config = ZoneConfig { seed, ..coloured(0, 2 * cache_frames, Colouring::exact(cache_frames)) };
        let mut bytes = metadata(&config);
        let zone = Zone::new(&config, Metadata::zeroed(&mut bytes)).unwrap();
        zone.add(frames(0, 2 * cache_frames), MOVABLE).unwrap();
        let mut ageing = Ageing::new(&zone, Order::FRAME, cache_frames, seed);
        let most = ageing.loads.len();
        for _ in 0..steps(400_000) {
            let migrate = MigrateType::ALL[below(&mut ageing.rng, 3)];
            ageing.step(most, migrate);
        }
        ageing.check();
        let mut loads = [0; 4];
        assert!(zone.loads(&mut loads));
        // By chance, a quarter would.
        assert!(misses(&loads) < 0.02, "seed {seed}: {loads:?}");
    }
}
