//! The cost of reading accessed bits with the page-table source, and of what the machine takes for the same without us: bench-scan compares reads
//! with `smaps`, bench-first with a copy, and the time until a picture is exact with one clear of all pages. And what a program pays for a page that
//! was cleared and is accessed again, from which bench-busy estimates a slow-down that is too small to measure.

use crate::median;
use anyhow::{Context, Result, ensure};
use isotherm_heat::source::PageSource;
use isotherm_heat::{Ns, Rng};
use isotherm_sources::page_table::{PMDS_PER_ADVICE, PageTable};
use isotherm_sys::clock;
use isotherm_sys::madvise::PidFd;
use isotherm_sys::memory::{Memory, PageSize};
use isotherm_units::{AddrRange, PAGES_PER_PMD, PmdNo};
use std::hint::black_box;
use std::sync::atomic::Ordering;

/// Pages that are accessed again: more than the processor's caches of translations hold, as of a server.
const RETOUCHED_PAGES: usize = 1 << 16;
/// Times that it is measured.
const RETOUCHES: usize = 9;

/// What one pass over the pages of some memory took.
#[derive(Clone, Copy, Debug)]
pub struct PassCost {
    /// CPU time of the thread: how much time passes depends on what else the machine does.
    cpu_ns: Ns,
    pages: usize,
}

impl PassCost {
    /// Reads the accessed bits of `pmds` (sorted) of `pid`, which `source` has attached and listed. The bits go nowhere: what a
    /// monitor makes of them is not in the cost. Fails if any of them could not be read.
    pub fn measure(source: &mut PageTable, pid: u32, pmds: &[PmdNo]) -> Result<PassCost> {
        let began = clock::thread_cpu_ns();
        let progress = source.read(pid, pmds, &mut |_, _, _| {})?;
        let cpu_ns = clock::thread_cpu_ns() - began;
        ensure!(progress.answered == pmds.len() && progress.read_errors == 0, "a read was skipped");
        Ok(PassCost { cpu_ns, pages: pmds.len() * PAGES_PER_PMD })
    }

    /// Nanoseconds of CPU time for each page of 4 KiB.
    pub fn cpu_ns_per_page(&self) -> f64 {
        self.cpu_ns as f64 / self.pages as f64
    }
}

/// Clears `memory`, whose pages were all accessed, by the same calls as the source, and does nothing else. No picture of all pages can cost
/// less on this machine.
pub fn bare_clear(pid: u32, memory: AddrRange) -> Result<PassCost> {
    let process = PidFd::open(pid)?;
    let pmds: Vec<PmdNo> = memory.pmds().collect();
    let began = clock::thread_cpu_ns();
    for run in pmds.chunk_by(|_, next| next.0 % PMDS_PER_ADVICE != 0) {
        let run = AddrRange::new(run[0].addr(), run[run.len() - 1].next().addr());
        let range = run.intersect(memory).context("huge ranges of the memory overlap it")?;
        let advised = process.advise_cold(&[range])?;
        ensure!(advised == range.len().0, "a part was not cleared");
    }
    Ok(PassCost { cpu_ns: clock::thread_cpu_ns() - began, pages: pmds.len() * PAGES_PER_PMD })
}

/// What the first access to a page costs more after its accessed bit was cleared, in nanoseconds of CPU time: the median of several passes over
/// memory of this process in random order, with clears and without by turns.
pub fn retouch_ns() -> Result<f64> {
    let memory = Memory::anonymous(RETOUCHED_PAGES as u64 * 4096, PageSize::Small)?;
    memory.populate();
    let order = shuffled(RETOUCHED_PAGES);
    let words = memory.words();
    let pass = || {
        let began = clock::thread_cpu_ns();
        for page in &order {
            black_box(words[page * 512].load(Ordering::Relaxed));
        }
        (clock::thread_cpu_ns() - began) as f64
    };
    let mut costs = Vec::new();
    for _ in 0..RETOUCHES {
        pass();
        let usual = pass();
        bare_clear(std::process::id(), memory.range())?;
        costs.push((pass() - usual) / RETOUCHED_PAGES as f64);
    }
    Ok(median(&costs))
}

/// The numbers below `count`, each once, in an order that no prefetcher follows.
fn shuffled(count: usize) -> Vec<usize> {
    let (mut rng, mut order) = (Rng::new(1), (0..count).collect::<Vec<usize>>());
    for last in (1..count).rev() {
        order.swap(last, usize::try_from(rng.below(last as u64 + 1)).expect("below count"));
    }
    order
}

/// Memory as large as the page-table entries of some ranges. Copying it is the least that any reader of them could take on this machine,
/// so it tells a slow machine from a slow reader.
#[derive(Debug)]
pub struct EntryCopy {
    tables: Vec<Table>,
}

/// The entries of a huge range.
type Table = [u64; PAGES_PER_PMD];

impl EntryCopy {
    /// For so many huge ranges.
    pub fn new(pmds: usize) -> EntryCopy {
        // Not zero, so that each table has frames of its own.
        EntryCopy { tables: (1..=pmds as u64).map(|no| [no; PAGES_PER_PMD]).collect() }
    }

    /// Copies all of it, one table after the other to the same place.
    pub fn measure(&self) -> PassCost {
        let mut to = [0; PAGES_PER_PMD];
        let began = clock::thread_cpu_ns();
        for table in &self.tables {
            to.copy_from_slice(black_box(table));
            black_box(&to);
        }
        PassCost { cpu_ns: clock::thread_cpu_ns() - began, pages: self.tables.len() * PAGES_PER_PMD }
    }
}
