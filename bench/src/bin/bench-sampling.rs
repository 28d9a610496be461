//! The cost of drawing a page in each region, and of a whole sampling pass, with the generator of `isotherm_heat::Rng`
//! and with others, for up to 200,000 regions.
//!
//! The generator to compare with models what DAMON did before it had a generator for each context:
//! `get_random_u32_below`, made for keys. Each call takes a lock and takes the next 32-bit word of a batch of 96 bytes.
//! It refills an empty batch from ChaCha20. It maps the word to the range by multiplication, and draws again if that
//! would be biased. Here the lock is an uncontended `std::sync::Mutex` (two atomic operations; the kernel's is a
//! per-CPU lock, taken by disabling interrupts). ChaCha20 is that of `rand_chacha`, which computes four huge ranges at once
//! with vector instructions and stores them (the kernel's computes one huge range at a time and makes a new key with each
//! refill). So the time is not the kernel's, but the steps are the same. It reaches 4 GiB of a region, as DAMON did;
//! regions here are smaller than that.
//!
//! All generators of the first table fill the same flat list of regions of 40 bytes. A context has regions of 32 bytes,
//! because it draws the pages again when it checks them. The output of a locked generator cannot be repeated, so there
//! the pages stay in the list. A pass is a draw and a check. The answers are made up and cost next to nothing, so a
//! pass shows the engine's own cost. Reading a page table costs far more.

use anyhow::Result;
use isotherm_bench::adaptive::{Attrs, Context, Sample};
use isotherm_bench::{Log, median, spread, take_no_options};
use isotherm_heat::{Rng, Tiles};
use isotherm_sys::clock;
use isotherm_units::{Addr, AddrRange, Bytes, PAGE_SIZE, PageNo};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng};
use std::hint::black_box;
use std::sync::Mutex;

const ROUNDS: usize = 31;
const SIZES: [usize; 3] = [1_000, 20_000, 200_000];
/// Regions walked in one measurement: about 5 ms of draws.
const WALKED: usize = 2_000_000;

fn main() -> Result<()> {
    take_no_options();
    let mut log = Log::new("bench-sampling");
    generators(&mut log);
    passes(&mut log)?;
    log.finish()
}

/// One draw in a range: the page that is sampled.
trait Draw {
    fn page(&mut self, range: AddrRange) -> PageNo;
}

/// The next 64 bits, mapped by multiplication and shift.
trait Bits {
    fn next_u64(&mut self) -> u64;
}

impl<B: Bits> Draw for B {
    fn page(&mut self, range: AddrRange) -> PageNo {
        let first = range.start.page().0;
        let pages = Addr(range.end.0 - 1).page().0 - first + 1;
        PageNo(first + ((u128::from(self.next_u64()) * u128::from(pages)) >> 64) as u64)
    }
}

struct Own(Rng);

impl Bits for Own {
    fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }
}

struct SplitMix64(u64);

impl Bits for SplitMix64 {
    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// xoshiro256++.
struct Xoshiro([u64; 4]);

impl Bits for Xoshiro {
    fn next_u64(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }
}

/// Four Tausworthe generators of 32 bits, as published by L'Ecuyer in 1999.
struct Lfsr113([u32; 4]);

impl Lfsr113 {
    fn step(z: u32, mask: u32, (up, feed, down): (u32, u32, u32)) -> u32 {
        ((z & mask) << up) ^ (((z << feed) ^ z) >> down)
    }

    fn next_u32(&mut self) -> u32 {
        let [a, b, c, d] = self.0;
        let next = [
            Lfsr113::step(a, !1, (18, 6, 13)),
            Lfsr113::step(b, !7, (2, 2, 27)),
            Lfsr113::step(c, !15, (7, 13, 21)),
            Lfsr113::step(d, !127, (13, 3, 12)),
        ];
        self.0 = next;
        next[0] ^ next[1] ^ next[2] ^ next[3]
    }
}

impl Bits for Lfsr113 {
    fn next_u64(&mut self) -> u64 {
        u64::from(self.next_u32()) << 32 | u64::from(self.next_u32())
    }
}

/// 24 words of ChaCha20, refilled together.
struct Batch {
    words: [u32; 24],
    used: usize,
    chacha: ChaCha20Rng,
}

/// The batch behind a lock.
struct LockedBatch(Mutex<Batch>);

impl LockedBatch {
    fn new(seed: u64) -> LockedBatch {
        LockedBatch(Mutex::new(Batch { words: [0; 24], used: 24, chacha: ChaCha20Rng::seed_from_u64(seed) }))
    }

    // Not inlined: it belongs to another part of the system, in the kernel and here.
    #[inline(never)]
    fn next_u32(&self) -> u32 {
        let mut batch = self.0.lock().expect("no holder panics");
        if batch.used == batch.words.len() {
            let mut bytes = [0; 96];
            batch.chacha.fill_bytes(&mut bytes);
            for (word, bytes) in batch.words.iter_mut().zip(bytes.as_chunks().0) {
                *word = u32::from_le_bytes(*bytes);
            }
            batch.used = 0;
        }
        batch.used += 1;
        // Each word is used once and then cleared.
        let used = batch.used - 1;
        std::mem::take(&mut batch.words[used])
    }

    fn below(&self, n: u32) -> u32 {
        let wide = |word: u32| u64::from(word) * u64::from(n);
        let mut product = wide(self.next_u32());
        if low(product) < n {
            let biased = n.wrapping_neg() % n;
            while low(product) < biased {
                product = wide(self.next_u32());
            }
        }
        low(product >> 32)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "that is what it is for")]
fn low(wide: u64) -> u32 {
    wide as u32
}

impl Draw for LockedBatch {
    fn page(&mut self, range: AddrRange) -> PageNo {
        let bytes = u32::try_from(range.len().0).unwrap_or(u32::MAX);
        Addr(range.start.0 + u64::from(self.below(bytes))).page()
    }
}

/// Counters for generators that are not part of a context.
#[derive(Clone, Copy, Default)]
struct Counters {
    sampled: PageNo,
    nr_accesses: u32,
    _rest: [u32; 2],
}

/// Adjacent regions of 1 to 16 MiB.
fn ranges(regions: usize) -> Vec<AddrRange> {
    let mut rng = Rng::new(7);
    let mut start = 1 << 40;
    let mut next = |_| {
        let range = AddrRange::new(Addr(start), Addr(start + PAGE_SIZE * (256 + rng.below(3_840))));
        start = range.end.0 + PAGE_SIZE;
        range
    };
    (0..regions).map(&mut next).collect()
}

fn tiles(regions: usize) -> Tiles<Counters> {
    let mut tiles = Tiles::new();
    tiles.refit(&ranges(regions), Bytes(PAGE_SIZE), |_| Counters::default());
    tiles
}

/// A context of exactly this many regions: gaps keep them apart.
fn context(regions: usize) -> Result<Context> {
    let attrs = Attrs { max_regions: regions, aggregation_ns: 5_000_000 * 10_000_000, ..Attrs::default() };
    let mut context = Context::new(attrs, 1)?;
    context.add_target(&ranges(regions));
    anyhow::ensure!(context.regions() == regions, "{} regions instead of {regions}", context.regions());
    Ok(context)
}

#[inline(never)]
fn draw(tiles: &mut Tiles<Counters>, rng: &mut impl Draw) {
    for (range, counters) in tiles.iter_mut() {
        counters.sampled = rng.page(range);
    }
}

fn made_up(page: PageNo) -> u32 {
    u32::from(page.0 & 7 == 0)
}

#[inline(never)]
fn check(tiles: &mut Tiles<Counters>) {
    for (_, counters) in tiles.iter_mut() {
        counters.nr_accesses += made_up(counters.sampled);
    }
}

/// Nanoseconds per region, with enough repetitions for a measurement.
fn time(regions: usize, mut once: impl FnMut()) -> f64 {
    let repeats = (WALKED / regions).max(1);
    // The previous arm has left its own regions in the caches.
    once();
    let began = clock::thread_cpu_ns();
    (0..repeats).for_each(|_| once());
    (clock::thread_cpu_ns() - began) as f64 / (repeats * regions) as f64
}

/// All generators on the same list, in alternation.
fn generators(log: &mut Log) {
    log.line(format!("\na page drawn in each region, ns a region, {ROUNDS} rounds in turn: median (least to most)"));
    log.line(format!(
        "{:>8} {:>22} {:>22} {:>22} {:>22} {:>24}",
        "regions", "own", "SplitMix64", "xoshiro256++", "lfsr113", "ChaCha20, locked"
    ));
    for regions in SIZES {
        let mut tiles = tiles(regions);
        let (mut own, mut split) = (Own(Rng::new(1)), SplitMix64(1));
        let (mut xoshiro, mut lfsr, mut chacha) =
            (Xoshiro([1, 2, 3, 4]), Lfsr113([200, 201, 202, 203]), LockedBatch::new(1));
        let mut times: [Vec<f64>; 5] = Default::default();
        for _ in 0..ROUNDS {
            times[0].push(time(regions, || draw(black_box(&mut tiles), &mut own)));
            times[1].push(time(regions, || draw(black_box(&mut tiles), &mut split)));
            times[2].push(time(regions, || draw(black_box(&mut tiles), &mut xoshiro)));
            times[3].push(time(regions, || draw(black_box(&mut tiles), &mut lfsr)));
            times[4].push(time(regions, || draw(black_box(&mut tiles), &mut chacha)));
        }
        let [a, b, c, d, e] = times.map(|t| spread(&t));
        log.line(format!("{regions:>8} {a:>22} {b:>22} {c:>22} {d:>22} {e:>24}"));
    }
}

/// Nanoseconds per region: draw and pass of a context, draw and pass with the locked batch.
#[derive(Default)]
struct Costs {
    draw: Vec<f64>,
    pass: Vec<f64>,
    locked_draw: Vec<f64>,
    locked_pass: Vec<f64>,
}

impl Costs {
    /// The saving of a pass over a pass with the locked batch.
    fn saved_pct(&self) -> f64 {
        100.0 * (1.0 - median(&self.pass) / median(&self.locked_pass))
    }
}

/// Draws, and uses the result: otherwise the compiler would remove the work.
#[inline(never)]
fn draw_all(context: &mut Context) {
    let mut all = 0;
    context.draw(|s| all ^= s.page.0);
    black_box(all);
}

/// One size, and its measurements.
struct Arm {
    regions: usize,
    context: Context,
    tiles: Tiles<Counters>,
    chacha: LockedBatch,
    costs: Costs,
}

impl Arm {
    fn new(regions: usize) -> Result<Arm> {
        let (context, tiles, chacha) = (context(regions)?, tiles(regions), LockedBatch::new(1));
        Ok(Arm { regions, context, tiles, chacha, costs: Costs::default() })
    }

    fn round(&mut self) {
        let Arm { regions, context, tiles, chacha, costs } = self;
        costs.draw.push(time(*regions, || draw_all(black_box(context))));
        costs.locked_draw.push(time(*regions, || draw(black_box(tiles), chacha)));
        costs.pass.push(time(*regions, || {
            draw_all(black_box(context));
            black_box(&mut *context).check(|s: Sample| made_up(s.page));
            black_box(context.end_of_sample());
        }));
        costs.locked_pass.push(time(*regions, || {
            draw(black_box(tiles), chacha);
            check(black_box(tiles));
        }));
    }
}

fn passes(log: &mut Log) -> Result<()> {
    log.line(
        "\na context's draw and pass (draw, check, end of sample), and the same with locked ChaCha20, ns a region",
    );
    log.line(format!(
        "{:>8} {:>22} {:>24} {:>22} {:>24} {:>8}",
        "regions", "draw", "draw, ChaCha20", "pass", "pass, ChaCha20", "saved"
    ));
    let mut arms = SIZES.into_iter().map(Arm::new).collect::<Result<Vec<_>>>()?;
    // The sizes alternate as well, because the load on the caches of this machine changes within seconds.
    for _ in 0..ROUNDS {
        arms.iter_mut().for_each(Arm::round);
    }
    for Arm { regions, costs, .. } in &arms {
        let [draw, locked_draw, pass, locked_pass] =
            [&costs.draw, &costs.locked_draw, &costs.pass, &costs.locked_pass].map(|t| spread(t));
        let saved = costs.saved_pct();
        log.line(format!("{regions:>8} {draw:>22} {locked_draw:>24} {pass:>22} {locked_pass:>24} {saved:>7.1}%"));
    }
    let (twenty, two_hundred) = (&arms[1].costs, &arms[2].costs);
    log.result("draw_ns", median(&twenty.draw));
    log.result("chacha_draw_ns", median(&twenty.locked_draw));
    log.result("draw_ratio", median(&twenty.locked_draw) / median(&twenty.draw));
    log.result("pass_saved_pct_20k", twenty.saved_pct());
    log.result("growth_200k_over_20k", median(&two_hundred.pass) / median(&twenty.pass));
    Ok(())
}
