//! Regions do what a model does that is too slow to be wrong: a list of cells, one for each address.

use isotherm_heat::{Tile, Tiles};
use isotherm_units::{Addr, AddrRange, Bytes};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

const SPACE: u64 = 128;
const FRESH: u32 = 1000;

/// What an address belongs to: what its region knows, and whether the region begins here.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cell {
    of: u32,
    begins: bool,
}

type Cells = Vec<Option<Cell>>;

#[derive(Clone, Debug)]
enum Change {
    Refit(Vec<(u64, u64)>, u64),
    Merge(u32),
    Split(Vec<u64>),
    Count(u32),
}

fn changes() -> impl Strategy<Value = Change> {
    let refit = (vec((0..SPACE, 0..SPACE), 0..5), prop_oneof![3 => Just(1_u64), 1 => Just(4), 1 => Just(16)]);
    prop_oneof![
        refit.prop_map(|(ranges, granule)| Change::Refit(ranges, granule)),
        (0..30_u32).prop_map(Change::Merge),
        vec(0..SPACE, 0..12).prop_map(Change::Split),
        (0..40_u32).prop_map(Change::Count),
    ]
}

fn cells(tiles: &Tiles<u32>) -> Cells {
    let mut cells = vec![None; usize::try_from(SPACE).unwrap()];
    for tile in tiles.iter() {
        for addr in tile.range.start.0..tile.range.end.0 {
            cells[usize::try_from(addr).unwrap()] = Some(Cell { of: tile.of, begins: addr == tile.range.start.0 });
        }
    }
    cells
}

fn range(of: (u64, u64)) -> AddrRange {
    AddrRange { start: Addr(of.0), end: Addr(of.1) }
}

/// Where ranges begin that overlap nothing before them, and what is in any of them.
fn covered(ranges: &[(u64, u64)]) -> (Vec<bool>, Vec<bool>) {
    let inside = |addr: u64| ranges.iter().any(|r| r.0 <= addr && addr < r.1);
    let crossed = |addr: u64| ranges.iter().any(|r| r.0 < addr && addr < r.1);
    let begins = |addr: u64| ranges.iter().any(|r| r.0 == addr && r.0 < r.1) && !crossed(addr);
    ((0..SPACE).map(begins).collect(), (0..SPACE).map(inside).collect())
}

/// The rules of a refit at a granule of 1, range by range and cell by cell.
fn refit(old: &Cells, ranges: &[(u64, u64)]) -> Cells {
    let (begins, inside) = covered(ranges);
    let mut new = vec![None; old.len()];
    let mut start = 0;
    while start < old.len() {
        if !inside[start] {
            start += 1;
            continue;
        }
        let end = (start + 1..old.len()).find(|&i| !inside[i] || begins[i]).unwrap_or(old.len());
        let known: Vec<usize> = (start..end).filter(|&i| old[i].is_some()).collect();
        for i in start..end {
            let source = match (known.first(), known.last()) {
                (Some(&first), _) if i < first => old[first],
                (_, Some(&last)) if i > last => old[last],
                _ => old[i],
            };
            let of = source.map_or(FRESH, |cell| cell.of);
            let stretched =
                known.first().is_some_and(|&first| i <= first) || known.last().is_some_and(|&last| i > last);
            let bound = old[i].map(|cell| cell.begins).unwrap_or(i > 0 && old[i - 1].is_some());
            new[i] = Some(Cell { of, begins: i == start || (bound && !stretched) });
        }
        start = end;
    }
    new
}

fn merge(tiles: &Tiles<u32>, bound: u32) -> Vec<Tile<u32>> {
    let mut out: Vec<Tile<u32>> = Vec::new();
    for tile in tiles.iter() {
        match out.last_mut() {
            Some(left) if left.range.end == tile.range.start && left.of.abs_diff(tile.of) <= bound => {
                left.of = left.of.midpoint(tile.of);
                left.range.end = tile.range.end;
            }
            _ => out.push(*tile),
        }
    }
    out
}

fn change(tiles: &mut Tiles<u32>, change: &Change) -> Result<(), TestCaseError> {
    let before = cells(tiles);
    match change {
        Change::Refit(to, granule) => {
            let ranges: Vec<AddrRange> = to.iter().map(|&r| range(r)).collect();
            tiles.refit(&ranges, Bytes(*granule), |hole| {
                assert!(!hole.is_empty() && hole.end.0 <= SPACE);
                FRESH
            });
            let (begins, inside) = covered(to);
            let after = cells(tiles);
            prop_assert_eq!(after.iter().map(Option::is_some).collect::<Vec<_>>(), inside);
            let rounded = |(i, cell): (usize, &Option<Cell>)| {
                !cell.is_some_and(|cell| cell.begins) || begins[i] || (i as u64).is_multiple_of(*granule)
            };
            prop_assert!(after.iter().enumerate().all(rounded));
            prop_assert!(begins.iter().zip(&after).all(|(begins, cell)| !begins || cell.is_some_and(|c| c.begins)));
            if *granule == 1 {
                prop_assert_eq!(after, refit(&before, to));
            }
        }
        Change::Merge(bound) => {
            let expected = merge(tiles, *bound);
            tiles.merge(|left, right| {
                let alike = left.of.abs_diff(right.of) <= *bound;
                left.of = if alike { left.of.midpoint(right.of) } else { left.of };
                alike
            });
            prop_assert_eq!(tiles.as_slice(), expected);
        }
        Change::Split(at) => {
            let mut at = at.clone();
            at.sort_unstable();
            tiles.split(|_, cuts| cuts.extend(at.iter().map(|&addr| Addr(addr))));
            let mut expected = before;
            for &addr in &at {
                if let Some(cell) = &mut expected[usize::try_from(addr).unwrap()] {
                    cell.begins = true;
                }
            }
            prop_assert_eq!(cells(tiles), expected);
        }
        Change::Count(more) => tiles.iter_mut().for_each(|(range, of)| *of += more * u32::from(range.start.0 % 2 == 0)),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, rng_seed: RngSeed::Fixed(1), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn regions_tile_their_target_through_any_changes(all in vec(changes(), 0..40)) {
        let mut tiles = Tiles::new();
        for each in &all {
            change(&mut tiles, each)?;
            prop_assert_eq!(tiles.check(), Ok(()));
            let sum: u64 = tiles.iter().map(|tile| tile.range.len().0).sum();
            prop_assert_eq!(tiles.bytes(), Bytes(sum));
            for addr in 0..SPACE {
                let naive = tiles.iter().position(|tile| tile.range.contains(Addr(addr)));
                prop_assert_eq!(tiles.at(Addr(addr)), naive);
            }
        }
    }
}
