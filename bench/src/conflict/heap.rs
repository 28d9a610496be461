//! A heap of three caches, with most accesses to a part that fits: the Java server of the kernel's proposal, as far as
//! it is described.
//!
//! What is published: a heap of three times the cache; 8% of conflicts in the first run, 21% after the allocator had
//! aged, 11% with shuffling. The distribution of heat, the size of memory and what ran before are not published. We use
//! memory of 4 and of 8 caches, the heap as adjacent pages that were first touched in that order, and one of two kinds
//! of heat:
//!
//! - *Zipf*: the page of rank r is accessed in proportion to r^-s, with hot pages next to each other;
//! - *young*: the first third gets a share of all accesses, evenly, and the other pages get the rest. That third is as
//!   large as the cache, and is the default young generation of the JVM.
//!
//! Each kind has one parameter. It is chosen so that the first run, in order, has the published 8%. The other figures
//! follow from it.

use super::ageing::{Left, Others};
use super::placing::{Placing, books, frames_from_zero, grow, weighted_rate, zone};
use super::{CACHE_FRAMES, Options, cache, percent};
use anyhow::Result;
use isotherm_bench::Log;
use isotherm_frames::FrameNo;
use isotherm_rng::Rng;

const HEAP_FRAMES: u64 = 3 * CACHE_FRAMES;
/// Published for the first run: the heat is fitted to it.
const FIRST_RUN: f64 = 0.08;
const MEMORY: [u64; 2] = [4, 8];
const DRAWS: u32 = 8;
const AGED_DRAWS: u32 = 2;

/// Placement, what ageing leaves if the machine is aged, number of draws, and the RESULT key in memory of 4 caches,
/// with Zipf.
struct Row {
    name: &'static str,
    placing: Placing,
    aged: Option<Left>,
    draws: u32,
    key: &'static str,
}

const fn row(name: &'static str, placing: Placing, aged: Option<Left>, draws: u32, key: &'static str) -> Row {
    Row { name, placing, aged, draws, key }
}

const ROWS: [Row; 6] = [
    row("in order, fresh (published 8%)", Placing::InOrder, None, 1, "heap_inorder"),
    row("in order, aged (published 21%)", Placing::InOrder, Some(Left::Eighth), AGED_DRAWS, "heap_aged_inorder"),
    row("in order, aged, alone", Placing::InOrder, Some(Left::Nothing), DRAWS, "heap_aged_alone_inorder"),
    row("shuffled, fresh (published 11%)", Placing::Shuffled, None, DRAWS, "heap_shuffled"),
    row("shuffled, aged (published 11%)", Placing::Shuffled, Some(Left::Eighth), AGED_DRAWS, "heap_aged_shuffled"),
    row("coloured, aged", Placing::Coloured, Some(Left::Eighth), 1, "heap_aged_coloured"),
];

/// The heat of the pages of a heap, with one parameter.
struct Heat {
    name: &'static str,
    /// The weights of all pages in order.
    weights: fn(f64) -> Vec<f64>,
    /// Range of the parameter. Misses fall as it rises.
    range: [f64; 2],
}

const HEATS: [Heat; 2] = [
    Heat { name: "Zipf, s", weights: zipf, range: [0.5, 2.0] },
    Heat { name: "young, share", weights: young, range: [0.4, 0.9999] },
];

fn zipf(s: f64) -> Vec<f64> {
    (0..HEAP_FRAMES).map(|page| (page as f64 + 1.0).powf(-s)).collect()
}

fn young(share: f64) -> Vec<f64> {
    let (hot, cold) = (share / CACHE_FRAMES as f64, (1.0 - share) / (HEAP_FRAMES - CACHE_FRAMES) as f64);
    (0..HEAP_FRAMES).map(|page| if page < CACHE_FRAMES { hot } else { cold }).collect()
}

/// Prints the table.
pub fn print(log: &mut Log, options: &Options) -> Result<()> {
    let mut weights = Vec::new();
    let mut titles = Vec::new();
    for heat in &HEATS {
        let parameter = fit(heat)?;
        weights.push((heat.weights)(parameter));
        titles.push(format!("{} {parameter:.3}", heat.name));
    }
    log.line(
        "\na heap of three caches, unevenly hot; misses (the heat's parameter is chosen so that the first row is 8%)",
    );
    log.line(format!("{:<10} {:<34} {:>18} {:>18}", "memory", "frames", titles[0], titles[1]));
    let mut rng = Rng::new(options.seed);
    for memory in MEMORY {
        for row in &ROWS {
            let rates = measure(row, memory * CACHE_FRAMES, options, &weights, &mut rng)?;
            let cells: Vec<String> = rates.iter().map(|rate| format!("{:>18}", percent(*rate))).collect();
            log.line(format!("{:<10} {:<34} {}", format!("{memory} caches"), row.name, cells.join(" ")));
            if memory == MEMORY[0] {
                log.result(row.key, rates[0]);
            }
        }
    }
    let beyond: Vec<String> = weights.iter().map(|weights| format!("{:>18}", percent(beyond(weights)))).collect();
    log.line(format!("{:<45} {}", "unavoidable in a cache of that size", beyond.join(" ")));
    Ok(())
}

/// Finds the parameter with which a heap in order has the published misses of the first run, by bisection.
fn fit(heat: &Heat) -> Result<f64> {
    let (cache, [mut low, mut high]) = (cache()?, heat.range);
    for _ in 0..12 {
        let middle = f64::midpoint(low, high);
        if weighted_rate(cache, (0..).map(FrameNo).zip((heat.weights)(middle))) > FIRST_RUN {
            low = middle
        } else {
            high = middle
        }
    }
    Ok(f64::midpoint(low, high))
}

/// The mean rate of all draws, for each kind of heat.
fn measure(row: &Row, memory: u64, options: &Options, heats: &[Vec<f64>], rng: &mut Rng) -> Result<Vec<f64>> {
    let cache = cache()?;
    let mut rates = vec![0.0; heats.len()];
    for _ in 0..row.draws {
        let seed = rng.next_u64();
        let config = row.placing.config(frames_from_zero(memory), seed);
        let mut books = books(&config)?;
        let zone = zone(&config, &mut books)?;
        if let Some(left) = row.aged {
            Others::new(memory, seed).age(&zone, options.operations, left)?;
        }
        let mut owned = Vec::new();
        grow(&zone, &mut owned, HEAP_FRAMES)?;
        for (rate, weights) in rates.iter_mut().zip(heats) {
            *rate += weighted_rate(cache, owned.iter().copied().zip(weights.iter().copied())) / f64::from(row.draws);
        }
    }
    Ok(rates)
}

/// The share of accesses to pages beyond the hottest that fit. Pages are sorted, the hottest first.
fn beyond(weights: &[f64]) -> f64 {
    let fit = usize::try_from(CACHE_FRAMES).unwrap_or(usize::MAX).min(weights.len());
    weights[fit..].iter().sum::<f64>() / weights.iter().sum::<f64>()
}
