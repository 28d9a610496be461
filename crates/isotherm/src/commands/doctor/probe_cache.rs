//! `isotherm doctor --probe-cache`: measures whether frames at a given distance compete for cache lines, where the firmware does not
//! report it.

use crate::output;
use anyhow::{Context, Result, ensure};
use isotherm_heat::Rng;
use isotherm_host::cache_probe::{self, Evidence, Limits, PagesByFrame, Probed, Unsure, Verdict};
use isotherm_host::{HostFacts, HostRoots};
use isotherm_sys::frames::{FrameSource, PagemapFrames};
use isotherm_sys::free::{self, Available};
use isotherm_sys::memory::{Memory, PageSize};
use isotherm_sys::random;
use isotherm_units::{Bytes, PAGE_SIZE};
use serde::Serialize;
use std::io::Write;
use std::path::Path;

#[derive(Serialize)]
struct Report {
    /// The memory that was allocated. All pairs come from it.
    memory_bytes: u64,
    /// How its frame numbers were read.
    frames: String,
    sizes: Vec<Line>,
}

#[derive(Serialize)]
struct Line {
    size_bytes: u64,
    /// `conflict`, `no-conflict` or `unsure`.
    verdict: &'static str,
    detail: String,
    /// Pages that have another page at that distance.
    pairs: usize,
    #[serde(flatten)]
    figures: Option<Figures>,
}

/// [`Evidence`] as JSON.
#[derive(Serialize)]
struct Figures {
    samples: usize,
    ratio: f64,
    low: f64,
    high: f64,
    p: f64,
}

pub fn run(sizes: &[Bytes], json: bool) -> Result<()> {
    for size in sizes {
        ensure!(
            size.0 > 0 && size.0.is_multiple_of(PAGE_SIZE),
            "{} bytes are no whole number of pages of 4096",
            size.0
        );
    }
    let available = free::available(Path::new("/proc")).context("read /proc/meminfo: no MemAvailable in it")?;
    let sizes = if sizes.is_empty() { likely(available.total) } else { sizes.to_vec() };
    let report = measure(&sizes, available)?;
    if json {
        return output::json(&report);
    }
    let mut out = output::stdout();
    writeln!(out, "pages of {}, by {}", Bytes(report.memory_bytes), report.frames)?;
    for line in &report.sizes {
        writeln!(out, "  {:>10}  {}", Bytes(line.size_bytes).to_string(), line.detail)?;
    }
    if report.sizes.iter().any(|line| line.verdict == "conflict") {
        writeln!(out, "the smallest size in conflict is the cache's; the others are multiples of it")?;
    }
    out.flush()?;
    Ok(())
}

/// The sizes to try: those that the firmware reports, and those that such caches commonly have.
fn likely(memory: Bytes) -> Vec<Bytes> {
    let facts = HostFacts::read(&HostRoots::default(), isotherm_sys::page_size());
    let reported = isotherm_host::placement_caches(&facts).unwrap_or_default().direct;
    let mut sizes: Vec<Bytes> = reported.iter().map(|cache| Bytes::of_pages(cache.frames)).collect();
    sizes.extend(cache_probe::candidates(memory));
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

fn measure(sizes: &[Bytes], memory: Available) -> Result<Report> {
    /// Memory in addition to the distance itself, so that there are pairs even if frames come in random order.
    const BESIDES: u64 = 256 << 20;
    // Fails here if frame numbers cannot be read, before a lot of memory is allocated.
    let one = Memory::anonymous(1, PageSize::Small).context("map a page of our own")?;
    one.write(0);
    PagemapFrames::own(one.range())?.frame(0)?;

    // Distances larger than the machine's memory cannot be measured.
    let largest = sizes.iter().filter(|size| **size <= memory.total).max().copied().unwrap_or_default();
    let len = largest.0.saturating_add(BESIDES).min(memory.available.0 / 4);
    let memory = Memory::anonymous(len, PageSize::Huge).with_context(|| format!("map {} of our own", Bytes(len)))?;
    memory.populate();
    let source = PagemapFrames::own(memory.range())?;
    let frames = PagesByFrame::of(&source)?;
    let mut rng = Rng::new(random::seed());
    let probed: Result<Vec<Probed>, _> =
        sizes.iter().map(|size| cache_probe::probe(&memory, &frames, *size, &mut rng, Limits::default())).collect();
    Ok(Report {
        memory_bytes: memory.range().len().0,
        frames: source.describe(),
        sizes: probed?.iter().map(line).collect(),
    })
}

fn line(probed: &Probed) -> Line {
    let figures = |e: &Evidence| Figures { samples: e.samples, ratio: e.ratio, low: e.low, high: e.high, p: e.p };
    let (verdict, figures) = match &probed.verdict {
        Verdict::Conflict(evidence) => ("conflict", Some(figures(evidence))),
        Verdict::NoConflict(evidence) => ("no-conflict", Some(figures(evidence))),
        Verdict::Unsure(Unsure::Noise(evidence)) => ("unsure", Some(figures(evidence))),
        Verdict::Unsure(_) => ("unsure", None),
    };
    Line { size_bytes: probed.size.0, verdict, detail: probed.verdict.to_string(), pairs: probed.pairs, figures }
}
