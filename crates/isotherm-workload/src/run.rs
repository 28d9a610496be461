//! The child's side.

use crate::{Index, Pattern, Progress, Store};
use isotherm_heat::{Ns, Rng};
use isotherm_sys::clock;
use isotherm_sys::memory::{Memory, PageSize};
use std::fs::OpenOptions;
use std::io::{self, BufRead, Write};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

pub(crate) const REPORT_EVERY: Ns = 50_000_000;
/// Accesses between two reads of the clock.
const BATCH: usize = 1024;

/// Commands received on standard input.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    pub end: AtomicBool,
    /// To access from now on.
    pub heat: Span,
    /// Not to access from now on.
    pub cool: Span,
}

/// The pages that the last command of a kind has named. A command with the same first page as the one before is not noticed.
#[derive(Debug, Default)]
pub(crate) struct Span {
    /// The first page, plus one. 0: there was no command.
    from: AtomicU64,
    pages: AtomicU64,
}

impl Span {
    fn set(&self, first: u64, pages: u64) {
        self.pages.store(pages, Ordering::Relaxed);
        self.from.store(first + 1, Ordering::Release);
    }

    /// Its pages; `None` if there was no command.
    pub fn get(&self) -> Option<Range<usize>> {
        let from = self.from.load(Ordering::Acquire);
        let first = usize::try_from(from.checked_sub(1)?).unwrap_or(0);
        let pages = usize::try_from(self.pages.load(Ordering::Relaxed)).unwrap_or(0);
        Some(first..first + pages)
    }

    /// Its pages, if its first page is not that of `last`, which is replaced.
    fn changed(&self, last: &mut Option<usize>) -> Option<Range<usize>> {
        let pages = self.get()?;
        (last.replace(pages.start) != Some(pages.start)).then_some(pages)
    }
}

/// Runs as the workload that `json` describes, a [`Pattern`], an [`Index`] or a [`Store`], until standard input is closed.
pub fn run_json(json: &str) -> io::Result<()> {
    if let Ok(index) = serde_json::from_str::<Index>(json) {
        return index.run();
    }
    if let Ok(store) = serde_json::from_str::<Store>(json) {
        return store.run();
    }
    let pattern = serde_json::from_str(json).map_err(|error| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("read the description of a workload, {json:?}: {error}"))
    })?;
    run(&pattern)
}

/// Runs `pattern` until standard input is closed. Prints `memory START END`, then `did ACCESSES CPU_NS WALL_NS
/// SLOWEST_NS FAULT_NS`.
pub fn run(pattern: &Pattern) -> io::Result<()> {
    let memory = map(pattern)?;
    memory.populate();
    let mut out = io::stdout().lock();
    let orders = begin(&memory, &mut out)?;
    let faulted = Arc::new(AtomicU64::new(0));
    if pattern.faults {
        let worst = Arc::clone(&faulted);
        let scratch = Memory::anonymous(1, PageSize::Small)?;
        std::thread::spawn(move || fault(&scratch, &worst));
    }
    access(pattern, &memory, &orders, &faulted, &mut out)
}

/// Prints the address range, and reads commands from here on.
pub(crate) fn begin(memory: &Memory, out: &mut impl Write) -> io::Result<Arc<Orders>> {
    let range = memory.range();
    writeln!(out, "memory {} {}", range.start.0, range.end.0)?;
    out.flush()?;
    let orders = Arc::new(Orders::default());
    let listening = Arc::clone(&orders);
    std::thread::spawn(move || listen(&listening));
    Ok(orders)
}

fn map(pattern: &Pattern) -> io::Result<Memory> {
    let bytes = pattern.pages as u64 * 4096;
    match &pattern.shared {
        Some(path) => Memory::shared(&OpenOptions::new().read(true).write(true).open(path)?, bytes),
        None => Memory::anonymous(bytes, if pattern.huge { PageSize::Huge } else { PageSize::Small }),
    }
}

fn listen(orders: &Orders) {
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        let mut words = line.split_whitespace();
        let span = match words.next() {
            Some("heat") => &orders.heat,
            Some("cool") => &orders.cool,
            _ => continue,
        };
        let mut number = || words.next().and_then(|w| w.parse::<u64>().ok()).unwrap_or(0);
        span.set(number(), number());
    }
    orders.end.store(true, Ordering::Relaxed);
}

/// Discards a page and touches it again, about 20,000 times a second. Records the longest time that took.
fn fault(scratch: &Memory, worst: &AtomicU64) {
    loop {
        for page in 0..16 {
            scratch.discard(page, 1);
            let began = clock::monotonic_ns();
            scratch.write(page);
            worst.fetch_max(clock::monotonic_ns() - began, Ordering::Relaxed);
        }
        std::thread::sleep(Duration::from_micros(500));
    }
}

fn access(
    pattern: &Pattern,
    memory: &Memory,
    orders: &Orders,
    worst_fault: &AtomicU64,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut hot: Vec<usize> = pattern.hot().iter().enumerate().filter(|(_, h)| **h).map(|(i, _)| i).collect();
    let mut rng = Rng::new(pattern.seed ^ 0x5eed);
    shuffle(&mut hot, &mut rng);
    let (mut done, mut at, mut slowest) = (0_u64, 0_usize, 0);
    let began = clock::monotonic_ns();
    let mut report_at = began;
    let (mut heated, mut cooled) = (None, None);
    let (mut paced_from, mut paced_done) = (began, 0);
    while !orders.end.load(Ordering::Relaxed) {
        // The pace starts again from here.
        if let Some(span) = orders.heat.changed(&mut heated) {
            (paced_from, paced_done) = (clock::monotonic_ns(), done);
            hot.extend(span.filter(|p| *p < memory.pages()));
            shuffle(&mut hot, &mut rng);
        }
        if let Some(span) = orders.cool.changed(&mut cooled) {
            (paced_from, paced_done) = (clock::monotonic_ns(), done);
            hot.retain(|page| !span.contains(page));
            at = 0;
        }
        let batch_began = clock::monotonic_ns();
        for _ in 0..BATCH.min(hot.len().max(1)) {
            if let Some(page) = hot.get(at) {
                memory.write(*page);
            }
            at = if at + 1 >= hot.len() { 0 } else { at + 1 };
            done += 1;
        }
        let now = clock::monotonic_ns();
        slowest = slowest.max(now - batch_began);
        if now >= report_at {
            let fault = worst_fault.swap(0, Ordering::Relaxed);
            let cpu_ns = clock::thread_cpu_ns();
            Progress { accesses: done, cpu_ns, at: now, slowest_ns: slowest, slowest_fault_ns: fault }.write(out)?;
            (report_at, slowest) = (now + REPORT_EVERY, 0);
        }
        pace(pattern.interval_ns, hot.len(), done - paced_done, paced_from);
    }
    Ok(())
}

/// Sleeps until `done` accesses are due, if each of `pages` is to be accessed once per interval.
fn pace(interval_ns: Ns, pages: usize, done: u64, began: Ns) {
    if interval_ns == 0 || pages == 0 {
        return;
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "nanoseconds of a run")]
    let due = began + (done as f64 * interval_ns as f64 / pages as f64) as Ns;
    let wait = due.saturating_sub(clock::monotonic_ns());
    if wait > 50_000 {
        std::thread::sleep(Duration::from_nanos(wait));
    }
}

fn shuffle(pages: &mut [usize], rng: &mut Rng) {
    for last in (1..pages.len()).rev() {
        let other = usize::try_from(rng.below(last as u64 + 1)).expect("below a usize");
        pages.swap(last, other);
    }
}
