//! The cost of a window of reported accesses: 200,000 samples over targets of up to 262 million pages (1 TB). They are
//! counted by `isotherm_heat::Counters`, and by a list of page-sized regions, as the kernel proposal for such reports
//! stores them.
//!
//! The list models that proposal. Regions are in address order, and each is allocated separately and linked to its
//! neighbours (56 bytes, as `struct damon_region` has). Once a window, the list is walked from end to end. The window's
//! samples, sorted, are counted into the regions, and in the same pass the age of each region is updated and its count
//! reset. Ours: every sample is reported, one by one as they come from the ring. Then all pages are read in address
//! order with their counts, as a snapshot reads them. The bench checks that the counts are equal.
//!
//! The cost of a walk depends on the memory behind it, so there are three lists. *In a row*: allocated in address
//! order, so that the processor can prefetch; no kernel has that. *Slabs*: in random order within each 4 KiB, as
//! kernels allocate that randomize their free lists (`SLAB_FREELIST_RANDOM`, as in distributions). *Aged*: in random
//! order within 64 MiB, as after many splits and merges, which free regions in one place and allocate them in another.
//! The published figure, 2.59 s for 26 million regions on another machine, includes the kernel's work around the walk.
//! A list takes about 2 GiB of memory, and only one exists at a time.

use anyhow::{Result, ensure};
use isotherm_bench::{Log, median, spread, take_no_options};
use isotherm_heat::{Access, Counters, ReportedTarget, Resident, Rng, Silence};
use isotherm_sys::clock;
use isotherm_units::{AddrRange, PageNo};
use std::collections::LinkedList;
use std::hint::black_box;

const ROUNDS: usize = 11;
const SAMPLES: usize = 200_000;
/// A common sampling period for perf: a prime.
const WEIGHT: u32 = 10_007;
/// 10 GB, 100 GB and 1 TB.
const SIZES: [u64; 3] = [2_620_000, 26_200_000, 262_000_000];
/// Index of the size for which the list is made.
const LISTED: usize = 1;
/// Start of the targets: a typical address of mappings.
const FIRST: u64 = 0x7f00_0000_0000 >> 12;

/// A list, and the number of neighbours that are in random order in memory.
const LISTS: [(&str, usize); 3] = [("list, in a row", 1), ("list, slabs", 64), ("list, aged", 1 << 20)];

fn main() -> Result<()> {
    take_no_options();
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

/// The additional cost of a snapshot: from the same samples to at most 1,000 regions. Returns that of the hot span.
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

/// Runs all arms and one list in alternation. Returns the milliseconds of the list.
fn with_list(arms: &mut [Arm], together: usize) -> Result<Vec<f64>> {
    let mut list = regions(SIZES[LISTED], together);
    let mut times = Vec::new();
    // The first round is not counted, because it touches the memory for the first time.
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

/// A summary of a window: samples, pages, and a sum that depends on the count of each page.
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

/// CPU milliseconds, and the result.
fn time<T>(what: impl FnOnce() -> T) -> (f64, T) {
    let began = clock::thread_cpu_ns();
    let result = black_box(what());
    ((clock::thread_cpu_ns() - began) as f64 / 1e6, result)
}

fn access(page: u64, no: usize) -> Access {
    Access { at: no as u64 * 25_000, page: PageNo(FIRST + page), weight: WEIGHT }
}

/// All pages equally likely.
fn even(pages: u64, round: u64) -> Vec<Access> {
    let mut rng = Rng::new(round);
    (0..SAMPLES).map(|no| access(rng.below(pages), no)).collect()
}

/// Four fifths of the accesses in a hundredth of the pages.
fn hot_span(pages: u64, round: u64) -> Vec<Access> {
    let mut rng = Rng::new(round);
    let page = |rng: &mut Rng| match rng.below(5) {
        0 => rng.below(pages),
        _ => pages / 3 + rng.below(pages / 100),
    };
    (0..SAMPLES).map(|no| access(page(&mut rng), no)).collect()
}

/// Draws the accesses of a round for a target of this many pages.
type Draw = fn(u64, u64) -> Vec<Access>;

/// One target, with its counters.
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

/// A window: all samples are reported, then every page is read in address order.
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

/// A region as the kernel stores it. The links are those of the list.
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

/// One region per page in address order. Each group of `together` regions is allocated in random order.
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
        // The places beyond the end are dropped with the others of their kind.
        let some = usize::try_from(FIRST + pages - next).map_or(together, |left| left.min(together));
        ones[..some].iter_mut().for_each(|one| list.append(one));
        ones[some..].iter_mut().for_each(LinkedList::clear);
        next += together as u64;
    }
    list
}

/// A window: sorts the samples, and walks over all regions once.
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
        // Updates the age as DAMON's merge does, and resets the count.
        let changed = region.nr_accesses.abs_diff(region.last_nr_accesses) > 1;
        region.age = if changed { 0 } else { region.age + 1 };
        region.nr_accesses_bp = region.nr_accesses * 10_000;
        region.last_nr_accesses = region.nr_accesses;
        region.nr_accesses = 0;
    }
    seen
}
