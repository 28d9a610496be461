//! The main table: the misses of an owner of a quarter to one and a half caches, by placement of its frames.
//!
//! Rates are for the owner's accesses alone, with all its frames accessed equally often. The others keep their memory
//! and are idle. If the owner is larger than the cache, unavoidable misses are part of every rate, and they are printed
//! below. *Alone* means an owner on a machine that has aged and on which all others have ended.
//!
//! Colouring counts all frames in use, of all owners and at all access rates. It avoids colours that idle owners
//! occupy, so an owner as large as the cache has several frames in some of the other colours. Therefore the misses of
//! all owners together are printed too.

use super::ageing::{Left, Others};
use super::placing::{Placing, books, frames_from_zero, grow, rate, zone};
use super::{CACHE_FRAMES, Options, cache, percent, trace};
use anyhow::Result;
use isotherm_bench::Log;
use isotherm_frames::FrameNo;
use isotherm_placement::direct_mapped::{Spread, coloured_hit, shuffled_hit};
use isotherm_rng::Rng;

/// Footprints in quarters of the cache.
const QUARTERS: [u64; 6] = [1, 2, 3, 4, 5, 6];
/// Index of the footprint that equals the cache.
const WHOLE: usize = 3;
/// Memory in caches.
const MEMORY: [u64; 3] = [2, 4, 8];
/// The RESULT line uses this memory.
const RESULT_MEMORY: u64 = 4;

/// A row: placement, what ageing leaves if the machine is aged, number of draws. Placement by whole blocks differs much
/// between draws, because 256 blocks fill the cache.
struct Row {
    name: &'static str,
    placing: Placing,
    aged: Option<Left>,
    draws: u32,
    key: Option<&'static str>,
}

const fn row(name: &'static str, placing: Placing, aged: Option<Left>, draws: u32, key: Option<&'static str>) -> Row {
    Row { name, placing, aged, draws, key }
}

const ROWS: [Row; 9] = [
    row("in order, fresh", Placing::InOrder, None, 1, None),
    row("in order, aged", Placing::InOrder, Some(Left::Eighth), 3, Some("conflict_aged_inorder")),
    row("in order, aged, alone", Placing::InOrder, Some(Left::Nothing), 6, Some("conflict_aged_alone_inorder")),
    row("shuffled, fresh", Placing::Shuffled, None, 48, Some("conflict_shuffled_r4")),
    row("shuffled, aged", Placing::Shuffled, Some(Left::Eighth), 6, Some("conflict_aged_shuffled")),
    row("best of 4, fresh", Placing::BestOf4, None, 2, Some("conflict_bestof4_r4")),
    row("coloured, fresh", Placing::Coloured, None, 1, Some("conflict_coloured_r4")),
    row("coloured, aged", Placing::Coloured, Some(Left::Eighth), 2, Some("conflict_aged_coloured")),
    row("coloured, aged, alone", Placing::Coloured, Some(Left::Nothing), 2, Some("conflict_aged_alone_coloured")),
];

/// The results of a row, by footprint.
#[derive(Default)]
struct Rates {
    own: [Spread; QUARTERS.len()],
    /// With the others' frames accessed as well, for the footprint that equals the cache.
    everyone: Spread,
    /// The part of it that misses in any cache of that size.
    unavoidable: Spread,
    /// The formula and the simulated cache, for the footprint that equals the cache, in the last draw.
    checked: Option<(f64, f64)>,
}

/// Prints the tables, one for each size of memory.
pub fn print(log: &mut Log, options: &Options) -> Result<()> {
    let mut rng = Rng::new(options.seed);
    for memory in MEMORY {
        log.line(format!("\nmisses of an owner, memory of {memory} caches (mean of all draws)"));
        let columns: Vec<String> = QUARTERS.iter().map(|q| format!("{:>7.2}", *q as f64 / 4.0)).collect();
        log.line(format!("{:<26} {}   at 1.00: least to most", "footprint in caches", columns.join(" ")));
        let mut after = Vec::new();
        for row in &ROWS {
            let rates = measure(row, memory, options, &mut rng)?;
            log.line(line(row, &rates));
            after.push((row, rates));
        }
        theory(log, memory);
        remarks(log, &after);
        if memory == RESULT_MEMORY {
            for (row, rates) in &after {
                if let Some((key, rate)) = row.key.zip(rates.own[WHOLE].mean()) {
                    log.result(key, rate);
                }
            }
        }
    }
    log.result("theory_shuffled_r4", 1.0 - shuffled_hit(1.0 / RESULT_MEMORY as f64, RESULT_MEMORY as f64));
    Ok(())
}

fn measure(row: &Row, memory: u64, options: &Options, rng: &mut Rng) -> Result<Rates> {
    let mut rates = Rates::default();
    for number in 0..row.draws {
        let (seed, last) = (rng.next_u64(), number + 1 == row.draws);
        let draw = Draw { memory: memory * CACHE_FRAMES, operations: options.operations, seed, last };
        measure_once(row, draw, &mut rates)?;
    }
    Ok(rates)
}

/// One draw of a row.
#[derive(Clone, Copy)]
struct Draw {
    /// Frames of memory.
    memory: u64,
    /// Operations that age the machine.
    operations: u64,
    seed: u64,
    /// Whether it is the row's last, which is checked against a simulated cache.
    last: bool,
}

/// The footprints are those of one growing owner, since a prefix of its frames is what it would have taken with a
/// smaller goal.
fn measure_once(row: &Row, draw: Draw, rates: &mut Rates) -> Result<()> {
    let Draw { memory, operations, seed, last } = draw;
    let (cache, config) = (cache()?, row.placing.config(frames_from_zero(memory), seed));
    let mut books = books(&config)?;
    let zone = zone(&config, &mut books)?;
    let mut others = Others::new(memory, seed);
    if let Some(left) = row.aged {
        others.age(&zone, operations, left)?;
    }
    let mut owned: Vec<FrameNo> = Vec::new();
    for (at, quarters) in QUARTERS.into_iter().enumerate() {
        grow(&zone, &mut owned, CACHE_FRAMES / 4 * quarters)?;
        let own = rate(cache, owned.iter().copied());
        rates.own[at].add(own);
        if at == WHOLE {
            let everyone = || others.frames().chain(owned.iter().copied());
            rates.everyone.add(rate(cache, everyone()));
            rates.unavoidable.add(1.0 - coloured_hit(everyone().count() as f64 / CACHE_FRAMES as f64));
            if last && row.placing == Placing::Shuffled && row.aged.is_some() {
                rates.checked = Some((own, trace::random(cache, &owned, seed)?));
            }
        }
    }
    Ok(())
}

fn line(row: &Row, rates: &Rates) -> String {
    let cells: Vec<String> =
        rates.own.iter().map(|own| format!("{:>7}", percent(own.mean().unwrap_or_default()))).collect();
    let whole = &rates.own[WHOLE];
    let spread = if row.draws > 1 {
        let ends = [whole.least(), whole.most()].map(|end| percent(end.unwrap_or_default()));
        format!("{} to {} of {} draws", ends[0], ends[1], row.draws)
    } else {
        String::new()
    };
    format!("{:<26} {}   {spread}", row.name, cells.join(" "))
}

fn theory(log: &mut Log, memory: u64) {
    let of = |name: &str, miss: &dyn Fn(f64) -> f64| {
        let cells: Vec<String> = QUARTERS.iter().map(|q| format!("{:>7}", percent(miss(*q as f64 / 4.0)))).collect();
        format!("{name:<26} {}", cells.join(" "))
    };
    let memory = memory as f64;
    log.line(of("theory: shuffled", &|footprint| 1.0 - shuffled_hit(footprint / memory, memory)));
    log.line(of("theory: unavoidable", &|footprint| 1.0 - coloured_hit(footprint)));
}

/// The memory of the others, and the result of a cache with simulated accesses.
fn remarks(log: &mut Log, rows: &[(&Row, Rates)]) {
    for (row, rates) in rows.iter().filter(|(row, _)| row.aged == Some(Left::Eighth)) {
        let [all, least] = [&rates.everyone, &rates.unavoidable].map(|s| percent(s.mean().unwrap_or_default()));
        log.line(format!(
            "{} at 1.00, with the others' frames accessed as often: {all} of everyone's accesses \
             miss, {least} unavoidable",
            row.name
        ));
    }
    for (row, (formula, seen)) in rows.iter().filter_map(|(row, rates)| Some((row, rates.checked?))) {
        log.line(format!(
            "{}, last draw at 1.00: {:.2}% by the formula, {:.2}% of random accesses simulated",
            row.name,
            formula * 100.0,
            seen * 100.0
        ));
    }
}
