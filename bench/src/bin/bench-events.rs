//! What a window of reported accesses costs: 200,000 samples over targets of up to 262 million pages (1 TB), kept count
//! of by `isotherm_heat::Counters`; and by a list of page-sized regions, as the kernel proposal for such reports keeps
//! them.
//!
//! The list stands for that proposal: regions in address order, each allocated by itself and linked to the next and the
//! one before (56 bytes, as `struct damon_region` has), walked from end to end once a window while the window's
//! samples, sorted, are counted into them; at the same time the age of each is carried on and its count begun anew.
//! Ours: every sample is reported, one by one as they come from the ring; then all pages are read in address order with
//! their counts, as a snapshot reads them. The counts are the same, which is checked.
//!
//! A walk costs what the memory behind it costs, so there are three lists. *In a row*: allocated in address order, so
//! that the processor sees what comes next; no kernel has that. *Slabs*: in random order within each 4 KiB, as kernels
//! allocate that randomize their free lists (`SLAB_FREELIST_RANDOM`, as distributions have it). *Aged*: in random order
//! within 64 MiB, as after many splits and merges, which free regions here and allocate them there. The published
//! figure, 2.59 s for 26 million regions on another machine, includes what the kernel does around the walk. A list
//! takes about 2 GiB of memory, one after the other.

use anyhow::{Result, ensure};
use isotherm_bench::{Log, median, spread};
use isotherm_heat::{Access, Counters, ReportedTarget, Resident, Rng, Silence};
use isotherm_sys::clock;
use isotherm_units::{AddrRange, PageNo};
use std::collections::LinkedList;
use std::hint::black_box;

const ROUNDS: usize = 11;
const SAMPLES: usize = 200_000;
/// The period that perf is commonly asked for: a prime.
const WEIGHT: u32 = 10_007;
/// 10 GB, 100 GB and 1 TB.
const SIZES: [u64; 3] = [2_620_000, 26_200_000, 262_000_000];
/// The size of which the list is made.
const LISTED: usize = 1;
/// Where the targets begin: as mappings do.
const FIRST: u64 = 0x7f00_0000_0000 >> 12;

/// A list, and how many neighbours lie in random order in memory.
const LISTS: [(&str, usize); 3] = [("list, in a row", 1), ("list, slabs", 64), ("list, aged", 1 << 20)];

fn main() -> Result<()> {
    let mut log = Log::new("bench-events");
    log.line(format!(
        "\n{SAMPLES} samples a window, {ROUNDS} rounds with each list in turn, CPU ms a window: median (least to most)\n\
         {:<28} {:>12} {:>26} {:>12}",
        "", "pages", "ms", "ns a sample"
    ));
    let mut arms: Vec<Arm> = SIZES.into_iter().map(|pages| Arm::new("counters, random pages", pages, even)).collect();
    arms.push(Arm::new("counters, hot span of 1%", SIZES[LISTED], hot_span));
    let mut walks = Vec::new();
    for (name, together) in LISTS {
        walks.push((name, with_list(&mut arms, together)?));
    }
    for arm in &arms {
        log.line(arm.line());
    }
    for (name, times) in &walks {
        log.line(format!("{name:<28} {:>12} {:>26}", SIZES[LISTED], spread(times)));
    }
    let snapshot = summaries(&mut log);
    let check = arms[LISTED].ms();
    let [row, slabs, aged] = [0, 1, 2].map(|no: usize| median(&walks[no].1));
    log.result("check_ms", check);
    log.result("list_check_ms", slabs);
    log.result("list_row_check_ms", row);
    log.result("list_aged_check_ms", aged);
    log.result("check_ratio", slabs / check);
    log.result("check_ratio_row", row / check);
    log.result("check_ratio_aged", aged / check);
    log.result("growth_262m_over_2m6", arms[2].ms() / arms[0].ms());
    log.result("ns_per_sample", arms[LISTED].ns_a_sample());
    log.result("summarize_ms", snapshot);
    log.result("store_mib", arms.iter().map(|arm| arm.mib).fold(0.0, f64::max));
    log.finish()
}

/// What a snapshot takes beside: from the same samples to at most 1,000 regions. Returns that of the hot span.
fn summaries(log: &mut Log) -> f64 {
    let pages = SIZES[LISTED];
    let range = AddrRange::new(PageNo(FIRST).addr(), PageNo(FIRST + pages).addr());
    let mut last = 0.0;
    for (name, draw) in [("regions, random pages", even as Draw), ("regions, hot span of 1%", hot_span)] {
        let mut times = Vec::new();
        let mut regions = 0;
        for round in 0..ROUNDS as u64 {
            let mut target = ReportedTarget::new(0, Silence::Cold);
            target.refit(vec![Resident { range, pages, huge_pages: 0 }]);
            draw(pages, round).into_iter().for_each(|access| target.report(access));
            target.listened(5_000_000_000, 1.0);
            let (ms, sum) = time(|| target.summarize(5_000_000_000, 1000, &[], 0));
            times.push(ms);
            regions = sum.regions.len();
        }
        last = median(&times);
        log.line(format!("{name:<28} {pages:>12} {:>26}   {regions} regions", spread(&times)));
    }
    last
}

/// Runs all arms and one list in turn. Returns the milliseconds of the list.
fn with_list(arms: &mut [Arm], together: usize) -> Result<Vec<f64>> {
    let mut list = regions(SIZES[LISTED], together);
    let mut times = Vec::new();
    // The first round is not counted: memory is touched for the first time in it.
    for round in 0..=ROUNDS as u64 {
        arms.iter_mut().for_each(|arm| arm.round(round));
        let window = even(SIZES[LISTED], round);
        let (ms, seen) = time(|| walk(&mut list, &window));
        ensure!(arms[LISTED].seen == seen, "the list counted {seen:?}, the counters {:?}", arms[LISTED].seen);
        if round > 0 {
            times.push(ms);
        }
    }
    Ok(times)
}

/// What a window was seen to hold: samples, pages, and a sum that depends on which page had how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    samples: u64,
    pages: u64,
    digest: u64,
}

impl Seen {
    fn add(&mut self, page: u64, samples: u64) {
        self.samples += samples;
        self.pages += 1;
        self.digest = self.digest.wrapping_add(page.wrapping_mul(samples));
    }
}

/// CPU milliseconds, and what came of it.
fn time<T>(what: impl FnOnce() -> T) -> (f64, T) {
    let began = clock::thread_cpu_ns();
    let result = black_box(what());
    ((clock::thread_cpu_ns() - began) as f64 / 1e6, result)
}

fn access(page: u64, no: usize) -> Access {
    Access { at: no as u64 * 25_000, page: PageNo(FIRST + page), weight: WEIGHT }
}

/// Every page as likely as the next.
fn even(pages: u64, round: u64) -> Vec<Access> {
    let mut rng = Rng::new(round);
    (0..SAMPLES).map(|no| access(rng.below(pages), no)).collect()
}

/// Four fifths of them in a hundredth of the pages.
fn hot_span(pages: u64, round: u64) -> Vec<Access> {
    let mut rng = Rng::new(round);
    let page = |rng: &mut Rng| match rng.below(5) {
        0 => rng.below(pages),
        _ => pages / 3 + rng.below(pages / 100),
    };
    (0..SAMPLES).map(|no| access(page(&mut rng), no)).collect()
}

/// Draws the accesses of a round for a target of so many pages.
type Draw = fn(u64, u64) -> Vec<Access>;

/// One target, watched by its counters.
struct Arm {
    name: &'static str,
    pages: u64,
    draw: Draw,
    counters: Counters,
    seen: Seen,
    times: Vec<f64>,
    mib: f64,
}

impl Arm {
    fn new(name: &'static str, pages: u64, draw: Draw) -> Arm {
        let counters = Counters::new();
        Arm { name, pages, draw, counters, seen: Seen::default(), times: Vec::new(), mib: 0.0 }
    }

    fn round(&mut self, round: u64) {
        let window = (self.draw)(self.pages, round);
        let (ms, seen) = time(|| count(&mut self.counters, black_box(&window)));
        if round > 0 {
            self.times.push(ms);
        }
        self.seen = seen;
        self.mib = self.mib.max(self.counters.bytes().0 as f64 / f64::from(1 << 20));
        self.counters.forget(0.0);
    }

    fn ms(&self) -> f64 {
        median(&self.times)
    }

    fn ns_a_sample(&self) -> f64 {
        self.ms() * 1e6 / SAMPLES as f64
    }

    fn line(&self) -> String {
        let (name, pages) = (self.name, self.pages);
        format!("{name:<28} {pages:>12} {:>26} {:>12.1}", spread(&self.times), self.ns_a_sample())
    }
}

/// A window: all samples reported, then every page read in address order.
#[inline(never)]
fn count(counters: &mut Counters, window: &[Access]) -> Seen {
    for access in window {
        counters.report(*access);
    }
    let mut seen = Seen::default();
    for (page, count) in counters.sorted() {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
        seen.add(page.0, count.samples as u64);
    }
    seen
}

/// A region as the kernel keeps it; the links are the list's.
#[derive(Clone, Copy, Debug, Default)]
struct Region {
    start: u64,
    end: u64,
    _sampling_addr: u64,
    nr_accesses: u32,
    nr_accesses_bp: u32,
    age: u32,
    last_nr_accesses: u32,
}

const _: () = assert!(size_of::<Region>() + 2 * size_of::<usize>() == 56);

/// One region a page in address order, each `together` of them allocated in random order.
fn regions(pages: u64, together: usize) -> LinkedList<Region> {
    let mut rng = Rng::new(1);
    let mut list = LinkedList::new();
    let mut ones: Vec<LinkedList<Region>> = (0..together).map(|_| LinkedList::new()).collect();
    let mut order: Vec<usize> = (0..together).collect();
    let mut next = FIRST;
    while next < FIRST + pages {
        for left in (1..together).rev() {
            order.swap(left, usize::try_from(rng.below(left as u64 + 1)).expect("below a usize"));
        }
        for &place in &order {
            let start = (next + place as u64) << 12;
            ones[place].push_back(Region { start, end: start + 4096, ..Region::default() });
        }
        // What is beyond the end goes with the others of its kind.
        let some = usize::try_from(FIRST + pages - next).map_or(together, |left| left.min(together));
        ones[..some].iter_mut().for_each(|one| list.append(one));
        ones[some..].iter_mut().for_each(LinkedList::clear);
        next += together as u64;
    }
    list
}

/// A window: the samples sorted, and one walk over all regions.
#[inline(never)]
fn walk(list: &mut LinkedList<Region>, window: &[Access]) -> Seen {
    let mut addrs: Vec<u64> = window.iter().map(|access| access.page.addr().0).collect();
    addrs.sort_unstable();
    let mut left = addrs.as_slice();
    let mut seen = Seen::default();
    for region in list.iter_mut() {
        while let Some((_, rest)) = left.split_first().filter(|(addr, _)| **addr < region.end) {
            region.nr_accesses += 1;
            left = rest;
        }
        if region.nr_accesses > 0 {
            seen.add(region.start >> 12, u64::from(region.nr_accesses));
        }
        // Age, as DAMON's merge has it, and the count begun anew.
        let changed = region.nr_accesses.abs_diff(region.last_nr_accesses) > 1;
        region.age = if changed { 0 } else { region.age + 1 };
        region.nr_accesses_bp = region.nr_accesses * 10_000;
        region.last_nr_accesses = region.nr_accesses;
        region.nr_accesses = 0;
    }
    seen
}
