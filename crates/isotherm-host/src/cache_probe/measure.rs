//! Chooses which pages of our own are timed, in which order and how often.

use super::judge::{MIN_SAMPLES, Sample, Unsure, Verdict, judge};
use isotherm_rng::Rng;
use isotherm_sys::frames::{FrameError, FrameSource};
use isotherm_sys::memory::Memory;
use isotherm_sys::page_time;
use isotherm_units::{Bytes, FrameNo};
use std::fmt;
use std::time::{Duration, Instant};

/// Limits of a probe.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of samples; each reads two pairs of pages five times. Fewer than 64 decide nothing.
    pub samples: usize,
    /// Maximum time.
    pub time: Duration,
}

impl Default for Limits {
    /// 400 samples, or a second.
    fn default() -> Limits {
        Limits { samples: 400, time: Duration::from_secs(1) }
    }
}

/// A size that was tried.
#[derive(Clone, Copy, Debug)]
pub struct Probed {
    /// The distance between frames, in bytes.
    pub size: Bytes,
    /// Pages of our memory with another one at that distance, as far as frames are known.
    pub pairs: usize,
    /// The verdict.
    pub verdict: Verdict,
}

/// Three pages of the mapping, by their index.
#[derive(Clone, Copy, Debug)]
struct Trio {
    first: usize,
    /// At the distance in question from `first`.
    apart: usize,
    /// Near `apart`, but not at that distance from `first`.
    control: usize,
}

/// The pages of a mapping that have frames, sorted by frame: [`probe`] picks from them. Built once for several sizes.
#[derive(Clone)]
pub struct PagesByFrame<'a> {
    /// Read again after each sample: pages may be moved.
    source: &'a dyn FrameSource,
    sorted: Vec<(FrameNo, usize)>,
}

impl fmt::Debug for PagesByFrame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pages in frames, by {}", self.sorted.len(), self.source.describe())
    }
}

/// Measures whether frames that are `size` apart compete, on pages of `memory`, whose frames `frames` knows.
///
/// `size` is a multiple of 4 KiB. `rng` decides which pages are used, and in which order. Their contents do not change.
/// Pages are read past the caches, which hardly affects other programs on the machine.
pub fn probe(
    memory: &Memory,
    frames: &PagesByFrame<'_>,
    size: Bytes,
    rng: &mut Rng,
    limits: Limits,
) -> Result<Probed, FrameError> {
    probe_pages(&mut Real(memory), frames, size, rng, limits)
}

/// Pages whose reads can be timed: real ones, and those of a modelled machine that has such a cache.
pub(super) trait Pages {
    /// Reads the page of this index past the CPU's caches and returns the time it took.
    fn read(&mut self, page: usize) -> u64;
}

pub(super) fn probe_pages(
    pages: &mut dyn Pages,
    frames: &PagesByFrame<'_>,
    size: Bytes,
    rng: &mut Rng,
    limits: Limits,
) -> Result<Probed, FrameError> {
    let began = Instant::now();
    let distance = size.pages();
    let firsts = frames.with_partner(distance);
    let unsure = |why| Ok(Probed { size, pairs: firsts.len(), verdict: Verdict::Unsure(why) });
    // The same few pairs again and again would give a verdict on these only.
    if distance == 0 || firsts.len() < MIN_SAMPLES {
        return unsure(Unsure::NoPairs(firsts.len()));
    }
    let (mut samples, mut moved) = (Vec::new(), 0);
    // Bounded even if no control is ever found.
    for _ in 0..2 * limits.samples {
        if samples.len() >= limits.samples || began.elapsed() >= limits.time {
            break;
        }
        let first = firsts[below(rng, firsts.len())];
        let Some(trio) = frames.pick(first, distance, rng) else { continue };
        let sample = time_trio(pages, trio, rng);
        // Read again each time: 3 us in addition to 100 us for the sample.
        if frames.stayed(first, trio, distance)? {
            samples.push(sample);
        } else {
            moved += 1;
        }
    }
    if samples.len() < MIN_SAMPLES && moved >= MIN_SAMPLES {
        return unsure(Unsure::Moved(moved));
    }
    Ok(Probed { size, pairs: firsts.len(), verdict: judge(&samples) })
}

/// A number below `n`.
fn below(rng: &mut Rng, n: usize) -> usize {
    usize::try_from(rng.below(n as u64)).expect("below a usize")
}

/// The control is at least this many frames away from the second page, so that it shares no row of memory with it ...
const NEAREST: u64 = 64;
/// ... and at most this many: 16 MiB, which is on the same node, and less than any memory-side cache.
const FARTHEST: u64 = 4096;
/// Its frame number has the same lowest bits: the same channel and bank, as far as these bits decide.
const STEP: u64 = 8;

impl<'a> PagesByFrame<'a> {
    /// Reads the frames of all pages of `source`.
    pub fn of(source: &'a dyn FrameSource) -> Result<PagesByFrame<'a>, FrameError> {
        let frames = source.frames(0..source.pages())?;
        let mut sorted: Vec<_> = frames.into_iter().zip(0..).filter_map(|(frame, page)| Some((frame?, page))).collect();
        sorted.sort_unstable();
        Ok(PagesByFrame { source, sorted })
    }

    /// Indices into `sorted` of pages with another one `distance` frames further on.
    fn with_partner(&self, distance: u64) -> Vec<usize> {
        let sorted = &self.sorted;
        let mut found = Vec::new();
        let mut partner = 0;
        for (i, (frame, _)) in sorted.iter().enumerate() {
            let Some(wanted) = frame.0.checked_add(distance) else { break };
            while partner < sorted.len() && sorted[partner].0.0 < wanted {
                partner += 1;
            }
            if sorted.get(partner).is_some_and(|(frame, _)| frame.0 == wanted) {
                found.push(i);
            }
        }
        found
    }

    /// Adds a control, for which several places are tried.
    fn pick(&self, first: usize, distance: u64, rng: &mut Rng) -> Option<Trio> {
        const TRIES: usize = 32;
        let page_in = |frame: u64| {
            let found = self.sorted.binary_search_by_key(&frame, |(frame, _)| frame.0).ok()?;
            Some(self.sorted[found].1)
        };
        let (frame, page) = self.sorted[first];
        let second = frame.0 + distance;
        let apart = page_in(second)?;
        let control = (0..TRIES).find_map(|_| {
            let far = (NEAREST / STEP + rng.below((FARTHEST - NEAREST) / STEP)) * STEP;
            let wanted = if rng.below(2) == 0 { second.checked_add(far) } else { second.checked_sub(far) }?;
            // Not the first page itself, which is possible at small distances.
            page_in(wanted).filter(|control| wanted != frame.0 && *control != page)
        })?;
        Some(Trio { first: page, apart, control })
    }

    /// Whether the pages still have the frames that they had when they were picked.
    fn stayed(&self, first: usize, trio: Trio, distance: u64) -> Result<bool, FrameError> {
        let now = |page: usize| Ok(self.source.frames(page as u64..page as u64 + 1)?.first().copied().flatten());
        let frame = self.sorted[first].0;
        let apart = frame.plus(distance);
        let near = |control: FrameNo| (NEAREST..=FARTHEST).contains(&control.0.abs_diff(apart.0));
        Ok(now(trio.first)? == Some(frame) && now(trio.apart)? == Some(apart) && now(trio.control)?.is_some_and(near))
    }
}

/// Timed reads of a pair. The fastest counts, since a disturbance only makes a read slower.
const ROUNDS: usize = 4;

/// Times both pairs, in random order.
fn time_trio(pages: &mut dyn Pages, trio: Trio, rng: &mut Rng) -> Sample {
    let apart_first = rng.below(2) == 0;
    let others = if apart_first { [trio.apart, trio.control] } else { [trio.control, trio.apart] };
    let [one, two] = others.map(|other| time_pair(pages, trio.first, other));
    if apart_first { Sample { apart: one, control: two } } else { Sample { apart: two, control: one } }
}

/// Reads two pages alternately and returns the time of the fastest round.
fn time_pair(pages: &mut dyn Pages, a: usize, b: usize) -> u64 {
    // The first round fetches them into the memory-side cache, whatever was in it; it does not count.
    let mut turn = || pages.read(a).saturating_add(pages.read(b));
    turn();
    (0..ROUNDS).map(|_| turn()).min().unwrap_or(0)
}

/// Pages of our own memory.
struct Real<'a>(&'a Memory);

impl Pages for Real<'_> {
    fn read(&mut self, page: usize) -> u64 {
        page_time::read_around_caches(self.0, page)
    }
}
