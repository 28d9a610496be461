//! Shuffling: that every order of blocks is as likely as any other, and when it is done.

mod support;

use isotherm_frames::{FrameNo, Metadata, MigrateType, Order, Shuffling, Switch, Zone, ZoneConfig};
use isotherm_rng::Rng;
use support::{below, frames, metadata};

const MOVABLE: MigrateType = MigrateType::Movable;
/// Independent streams of random numbers, the same on every run.
const SEEDS: [u64; 4] = [1, 2, 3, 4];

fn on(from: Order) -> Shuffling {
    Shuffling { from, ..Shuffling::from_option(Some(true)) }
}

/// How often each block was at each place of its list.
struct Places {
    blocks: Vec<FrameNo>,
    counts: Vec<Vec<u32>>,
    rounds: u32,
}

impl Places {
    fn of(mut blocks: Vec<FrameNo>) -> Places {
        blocks.sort();
        Places { counts: vec![vec![0; blocks.len()]; blocks.len()], blocks, rounds: 0 }
    }

    fn add(&mut self, list: &[FrameNo]) {
        assert_eq!(list.len(), self.blocks.len());
        for (place, frame) in list.iter().enumerate() {
            let block = self.blocks.binary_search(frame).unwrap_or_else(|_| panic!("{frame:?} is of another list"));
            self.counts[block][place] += 1;
        }
        self.rounds += 1;
    }

    /// How far the places are from chance, as a chi-square, and what it exceeds once in a hundred times if they are chance.
    ///
    /// Of n blocks at n places, each block and each place occurs once a round: (n - 1)^2 degrees of freedom are left, and the sum over
    /// all cells is larger by n / (n - 1) than that of as many independent counts.
    fn chi_square(&self) -> (f64, f64) {
        let n = self.blocks.len() as f64;
        let expected = f64::from(self.rounds) / n;
        let sum: f64 = self.counts.iter().flatten().map(|&c| (f64::from(c) - expected).powi(2) / expected).sum();
        let dof = (n - 1.0).powi(2);
        // Wilson and Hilferty; 2.326 is what a normal variable exceeds once in a hundred times.
        let bound = dof * (1.0 - 2.0 / (9.0 * dof) + 2.326 * (2.0 / (9.0 * dof)).sqrt()).powi(3);
        (sum * (n - 1.0) / n, bound)
    }

    fn assert_chance(&self, what: &str) {
        let (chi, bound) = self.chi_square();
        assert!(chi < bound, "{what}: {chi:.1} is not below {bound:.1}; seeds {SEEDS:?}, {:?}", self.counts);
    }
}

/// The blocks of a list from its head on, by taking and giving back all of them.
fn list(zone: &Zone<'_>, order: Order, migrate: MigrateType) -> Vec<FrameNo> {
    let count = zone.stats().free_by_type[order.get() as usize][migrate as usize];
    let blocks: Vec<FrameNo> = (0..count).map(|_| zone.alloc(order, migrate).unwrap()).collect();
    zone.free_bulk(&blocks, order).unwrap();
    blocks
}

/// A zone that is shuffled again and again, and where the blocks of a list were.
fn shuffled(zone: &Zone<'_>, order: Order, migrate: MigrateType, rounds: u32) -> Places {
    let mut places = Places::of(list(zone, order, migrate));
    for _ in 0..rounds {
        zone.shuffle();
        places.add(&list(zone, order, migrate));
    }
    places
}

/// Rounds for a test that makes this many where nothing slows it down.
fn rounds(all: u32) -> u32 {
    if cfg!(miri) { all / 5_000 } else { all }
}

fn config(blocks: u64) -> ZoneConfig {
    ZoneConfig::new(frames(0, blocks << 10))
}

#[test]
fn what_is_forbidden_stays_forbidden() {
    let config = config(4);
    let mut bytes = metadata(&config);
    let zone = Zone::new(&config, Metadata::zeroed(&mut bytes)).unwrap();
    assert_eq!(zone.set_shuffling(Shuffling::detected).switch, Switch::Detected);
    assert_eq!(zone.set_shuffling(Shuffling::forbidden).switch, Switch::ForcedOff);
    assert_eq!(zone.set_shuffling(|_| Shuffling::from_option(Some(true))).switch, Switch::ForcedOff);
    assert_eq!(zone.shuffling().switch, Switch::ForcedOff);
}

/// 16 blocks, 100,000 shuffles.
#[test]
fn every_block_is_at_every_place_equally_often() {
    let mut sum = (0.0, 0.0);
    for seed in SEEDS {
        let config = ZoneConfig { shuffle: on(Order::MAX), seed, ..config(16) };
        let mut bytes = metadata(&config);
        let zone = Zone::new(&config, Metadata::zeroed(&mut bytes)).unwrap();
        zone.add(frames(0, 16 << 10), MOVABLE).unwrap();
        let places = shuffled(&zone, Order::MAX, MOVABLE, rounds(25_000));
        places.assert_chance(&format!("seed {seed}"));
        let (chi, bound) = places.chi_square();
        sum = (sum.0 + chi, sum.1 + bound);
    }
    assert!(sum.0 < sum.1);
}

/// The kernel's way: each block is swapped with another one, drawn from all. The same statistic tells it from chance.
#[test]
fn swapping_each_with_any_other_is_told_from_chance() {
    let mut rng = Rng::new(SEEDS[0]);
    let blocks: Vec<FrameNo> = (0..16).map(FrameNo).collect();
    let mut places = Places::of(blocks.clone());
    for _ in 0..25_000 {
        let mut list = blocks.clone();
        for block in 0..16 {
            let other = std::iter::repeat_with(|| below(&mut rng, 16)).take(10).find(|&other| other != block);
            let Some(other) = other else { continue };
            // Not places are swapped but blocks, wherever they are by now.
            let at = |wanted: usize| list.iter().position(|f| f.0 == wanted as u64).unwrap();
            let (a, b) = (at(block), at(other));
            list.swap(a, b);
        }
        places.add(&list);
    }
    let (chi, bound) = places.chi_square();
    assert!(chi > 2.0 * bound, "{chi:.1} should be far above {bound:.1}");
}

/// What a zone is created with, thousands of times: the first range is put in order by other code than a later shuffle.
#[test]
fn the_first_list_is_chance_as_well() {
    let mut bytes = metadata(&config(8));
    let mut places = Places::of((0..8).map(|n| FrameNo(n << 10)).collect());
    for seed in 0..u64::from(rounds(20_000)) {
        let config = ZoneConfig { shuffle: on(Order::MAX), seed, ..config(8) };
        let zone = Zone::new(&config, Metadata::cleared(&mut bytes)).unwrap();
        zone.add(frames(0, 8 << 10), MOVABLE).unwrap();
        places.add(&list(&zone, Order::MAX, MOVABLE));
    }
    places.assert_chance("at creation");
}

/// Blocks that come later are shuffled with those there were: the kernel's hotplug.
#[test]
fn what_is_added_later_mixes_with_what_was_there() {
    let mut bytes = metadata(&config(8));
    let mut places = Places::of((0..8).map(|n| FrameNo(n << 10)).collect());
    for seed in 0..u64::from(rounds(20_000)) {
        let config = ZoneConfig { shuffle: on(Order::MAX), seed, ..config(8) };
        let zone = Zone::new(&config, Metadata::cleared(&mut bytes)).unwrap();
        zone.add(frames(0, 5 << 10), MOVABLE).unwrap();
        zone.add(frames(5 << 10, 3 << 10), MOVABLE).unwrap();
        places.add(&list(&zone, Order::MAX, MOVABLE));
    }
    places.assert_chance("after a range was added");
}

/// A tenth of the span is there: the kernel gives up on a third of the blocks after ten draws, here every one moves.
#[test]
fn holes_leave_no_block_in_place() {
    let config = ZoneConfig { shuffle: on(Order::MAX), ..config(160) };
    let mut bytes = metadata(&config);
    let zone = Zone::new(&config, Metadata::zeroed(&mut bytes)).unwrap();
    for n in 0..16 {
        // Not quite regular, and one beginning in the midst of a block.
        zone.add(
            frames((10 * n + n % 3) * 1024 - if n == 5 { 100 } else { 0 }, 1024 + if n == 5 { 100 } else { 0 }),
            MOVABLE,
        )
        .unwrap();
    }
    shuffled(&zone, Order::MAX, MOVABLE, rounds(20_000)).assert_chance("16 blocks of 160");
}

#[test]
fn each_migrate_type_is_shuffled_by_itself() {
    let config = ZoneConfig { shuffle: on(Order::MAX), ..config(24) };
    let mut bytes = metadata(&config);
    let zone = Zone::new(&config, Metadata::zeroed(&mut bytes)).unwrap();
    for n in 0..24 {
        zone.add(frames(n << 10, 1 << 10), MigrateType::ALL[usize::try_from(n % 3).unwrap()]).unwrap();
    }
    for migrate in MigrateType::ALL {
        // A block of another type would be found by `Places::add`.
        shuffled(&zone, Order::MAX, migrate, rounds(20_000)).assert_chance("of three types");
    }
    assert_eq!(zone.stats().events.claimed + zone.stats().events.stolen, 0);
    zone.validate().unwrap();
}

#[test]
fn from_which_order_on_is_a_setting() {
    for (from, by_chance) in [(Order::HUGE, true), (Order::MAX, false)] {
        let config = ZoneConfig { shuffle: on(from), ..config(12) };
        let mut bytes = metadata(&config);
        let zone = Zone::new(&config, Metadata::zeroed(&mut bytes)).unwrap();
        // Every other page block: none has a buddy.
        for n in 0..12 {
            zone.add(frames(n << 10, 512), MOVABLE).unwrap();
        }
        let places = shuffled(&zone, Order::HUGE, MOVABLE, rounds(20_000));
        if by_chance {
            places.assert_chance("of page blocks");
        } else {
            assert!(places.counts.iter().flatten().all(|&c| c == 0 || c >= places.rounds / 2), "{:?}", places.counts);
        }
    }
}

/// A freed block goes to one end or the other, each about half of the time, and to no place between.
#[test]
fn freed_blocks_go_to_either_end() {
    let config = ZoneConfig { shuffle: on(Order::MAX), ..config(4) };
    let mut bytes = metadata(&config);
    let zone = Zone::new(&config, Metadata::zeroed(&mut bytes)).unwrap();
    zone.add(frames(0, 4 << 10), MOVABLE).unwrap();
    let rounds = rounds(20_000);
    let mut heads = 0_u32;
    for _ in 0..rounds {
        let freed = zone.alloc(Order::MAX, MOVABLE).unwrap();
        zone.free(freed, Order::MAX).unwrap();
        let blocks: Vec<FrameNo> = (0..4).map(|_| zone.alloc(Order::MAX, MOVABLE).unwrap()).collect();
        assert!(blocks[0] == freed || blocks[3] == freed);
        heads += u32::from(blocks[0] == freed);
        blocks.iter().for_each(|&block| zone.free(block, Order::MAX).unwrap());
    }
    // Five standard deviations.
    let (half, width) = (f64::from(rounds) / 2.0, 2.5 * f64::from(rounds).sqrt());
    assert!((f64::from(heads) - half).abs() < width, "{heads} of {rounds} to the head");
    // Smaller blocks go where they always do: the last freed comes first.
    let mut some = [FrameNo(0); 64];
    assert_eq!(zone.alloc_bulk(Order::FRAME, MOVABLE, &mut some), 64);
    for freed in [some[8], some[20], some[40], some[60]] {
        zone.free(freed, Order::FRAME).unwrap();
        assert_eq!(zone.alloc(Order::FRAME, MOVABLE), Ok(freed));
        zone.free(freed, Order::FRAME).unwrap();
    }
}

/// While it is shuffled, the zone is used, and its books stay right.
#[test]
fn a_zone_is_used_while_it_is_shuffled() {
    let config = ZoneConfig { shuffle: on(Order::HUGE), ..config(64) };
    let mut bytes = metadata(&config);
    let zone = Zone::new(&config, Metadata::zeroed(&mut bytes)).unwrap();
    zone.add(frames(0, 64 << 10), MOVABLE).unwrap();
    let mut rng = Rng::new(9);
    let mut held = Vec::new();
    for _ in 0..if cfg!(miri) { 1 } else { 100 } {
        let mut shuffler = zone.shuffler();
        loop {
            for _ in 0..8 {
                let order = if rng.below(2) == 0 { Order::HUGE } else { Order::FRAME };
                if rng.below(2) == 0 {
                    let migrate = MigrateType::ALL[below(&mut rng, 3)];
                    held.extend(zone.alloc(order, migrate).ok().map(|f| (f, order)));
                } else if !held.is_empty() {
                    let (frame, order) = held.swap_remove(below(&mut rng, held.len()));
                    zone.free(frame, order).unwrap();
                }
            }
            if !shuffler.step() {
                break;
            }
        }
        drop(shuffler);
        zone.validate().unwrap();
    }
}
