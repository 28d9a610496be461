//! Times as a machine with such a cache would show them, and those of the machine at hand.

use super::*;
use isotherm_rng::Rng;
use isotherm_sys::frames::{FrameError, FrameSource, OffsetIsPhysical, PagemapFrames};
use isotherm_sys::memory::{Memory, PageSize};
use isotherm_units::FrameNo;
use std::io::Write;
use std::time::{Duration, Instant};

/// Times with a spread of `sigma` to either side in their logarithm, near enough to a normal distribution.
fn jitter(rng: &mut Rng, sigma: f64) -> f64 {
    let normal: f64 = (0..12).map(|_| rng.unit()).sum::<f64>() - 6.0;
    (sigma * normal).exp()
}

/// How a modelled machine behaves.
#[derive(Clone, Copy, Debug)]
struct Machine {
    /// What pairs at the distance cost, next to the control.
    ratio: f64,
    /// How many of the pairs do.
    share: f64,
    /// Spread of each time.
    sigma: f64,
    /// One in ten readings takes up to this many times as long: interrupts, neighbours.
    burst: f64,
    /// How much slower the machine has become at the end.
    drift: f64,
}

const QUIET: Machine = Machine { ratio: 1.0, share: 1.0, sigma: 0.02, burst: 1.0, drift: 1.0 };

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times of a few thousand"
)]
fn run(machine: Machine, samples: usize, seed: u64) -> Vec<Sample> {
    let mut rng = Rng::new(seed);
    let time = |rng: &mut Rng, at: usize, ratio: f64| {
        let drift = 1.0 + (machine.drift - 1.0) * at as f64 / samples as f64;
        let burst = if rng.below(10) == 0 { 1.0 + (machine.burst - 1.0) * rng.unit() } else { 1.0 };
        (3000.0 * drift * ratio * burst * jitter(rng, machine.sigma)) as u64
    };
    (0..samples)
        .map(|at| {
            let ratio = if rng.unit() < machine.share { machine.ratio } else { 1.0 };
            Sample { apart: time(&mut rng, at, ratio), control: time(&mut rng, at, 1.0) }
        })
        .collect()
}

const SEEDS: u64 = 200;

/// Conflicts, none, and unsure, of as many runs as there are seeds.
fn verdicts(machine: Machine, samples: usize) -> [usize; 3] {
    let mut counts = [0; 3];
    for seed in 0..SEEDS {
        match judge(&run(machine, samples, seed)) {
            Verdict::Conflict(_) => counts[0] += 1,
            Verdict::NoConflict(_) => counts[1] += 1,
            Verdict::Unsure(_) => counts[2] += 1,
        }
    }
    counts
}

#[test]
fn conflicts_are_found_and_nothing_else_is() {
    let all = usize::try_from(SEEDS).unwrap();
    for ratio in [1.3, 2.0, 4.0] {
        assert_eq!(verdicts(Machine { ratio, ..QUIET }, 400), [all, 0, 0], "{ratio}");
        assert_eq!(verdicts(Machine { ratio, ..QUIET }, 64), [all, 0, 0], "{ratio}");
    }
    assert_eq!(verdicts(QUIET, 400), [0, all, 0]);
    // What two pages in one bank of memory may cost; and a control that happens to be slower.
    assert_eq!(verdicts(Machine { ratio: 1.04, ..QUIET }, 400), [0, all, 0]);
    assert_eq!(verdicts(Machine { ratio: 0.8, ..QUIET }, 400), [0, all, 0]);
}

#[test]
fn noise_and_drift_do_not_make_a_conflict() {
    let rough = Machine { sigma: 0.2, burst: 20.0, drift: 3.0, ..QUIET };
    let all = usize::try_from(SEEDS).unwrap();
    for drift in [1.0, 3.0, 0.2] {
        // With so much of it a few runs remain unsure; more samples settle these.
        let [conflicts, none, _] = verdicts(Machine { drift, ..rough }, 400);
        assert!(conflicts == 0 && none * 4 > all * 3, "{conflicts} {none}, drift {drift}");
        assert_eq!(verdicts(Machine { drift, ..rough }, 2000), [0, all, 0], "drift {drift}");
    }
    assert_eq!(verdicts(Machine { ratio: 1.6, ..rough }, 400), [all, 0, 0]);
    // So much that one cannot tell: then it says so, one way or the other, and never claims what is not there.
    let wild = Machine { sigma: 1.0, burst: 50.0, drift: 3.0, ..QUIET };
    let [conflicts, none, unsure] = verdicts(wild, 400);
    assert!(conflicts == 0 && unsure > none, "{conflicts} {none} {unsure}");
    let [conflicts, none, unsure] = verdicts(Machine { ratio: 1.3, ..wild }, 400);
    assert!(none == 0 && unsure > conflicts, "{conflicts} {none} {unsure}");
    // More samples settle it.
    assert_eq!(verdicts(Machine { ratio: 3.0, ..wild }, 4000), [all, 0, 0]);
}

#[test]
fn a_conflict_of_some_pairs_only_is_not_none() {
    // Controllers that hash: half of the pairs compete.
    let [conflicts, none, unsure] = verdicts(Machine { ratio: 2.0, share: 0.5, ..QUIET }, 400);
    assert!(none == 0 && unsure > conflicts, "{conflicts} {none} {unsure}");
    // A tenth are lost in the median: "none" is said of most pairs.
    assert_eq!(verdicts(Machine { ratio: 2.0, share: 0.1, ..QUIET }, 400)[0], 0);
}

#[test]
fn the_evidence_is_told() {
    let Verdict::Conflict(evidence) = judge(&run(Machine { ratio: 2.0, ..QUIET }, 400, 1)) else { panic!("conflict") };
    assert!((1.98..2.02).contains(&evidence.ratio) && evidence.low < evidence.ratio && evidence.ratio < evidence.high);
    assert!(evidence.samples == 400 && evidence.p < 1e-100 && evidence.low > 1.9 && evidence.high < 2.1);
    let told = Verdict::Conflict(Evidence { samples: 400, ratio: 2.0, low: 1.95, high: 2.04, p: 3.2e-16 }).to_string();
    assert_eq!(told, "conflict: 2.00 times the control (1.95 to 2.04, p 3.2e-16, 400 samples)");
}

#[test]
fn what_cannot_be_judged_is_not() {
    assert_eq!(judge(&[]), Verdict::Unsure(Unsure::TooFew(0)));
    assert_eq!(judge(&[Sample { apart: 200, control: 100 }; 63]), Verdict::Unsure(Unsure::TooFew(63)));
    assert_eq!(judge(&[Sample { apart: 0, control: 0 }; 100]), Verdict::Unsure(Unsure::NoTime(100)));
    // A clock of which two ticks fit: equal times are neither slower nor faster.
    let Verdict::NoConflict(evidence) = judge(&[Sample { apart: 2, control: 2 }; 100]) else { panic!("none") };
    assert!((evidence.p - 1.0).abs() < 1e-9, "{evidence:?}");
    let extreme = [Sample { apart: u64::MAX, control: 1 }; 100];
    assert!(matches!(judge(&extreme), Verdict::Conflict(_)));
}

#[test]
fn candidates_end_with_the_memory() {
    let gib = |n: u64| Bytes(n << 30);
    assert_eq!(candidates(Bytes(7 << 29)), [gib(1), Bytes(3 << 29), gib(2), gib(3)]);
    assert_eq!(candidates(gib(4)).last(), Some(&gib(4)));
    assert_eq!(candidates(Bytes((1 << 30) - 1)), []);
    assert_eq!(candidates(Bytes(u64::MAX)).len(), 64);
}

#[test]
fn without_pairs_it_says_so() {
    let memory = Memory::anonymous(2 << 20, PageSize::Small).unwrap();
    memory.populate();
    let source = OffsetIsPhysical { first: FrameNo(0), len: Bytes(2 << 20) };
    let frames = PagesByFrame::of(&source).unwrap();
    for (size, pairs) in [(1 << 30, 0), (2 << 20, 0), ((2 << 20) - (10 << 12), 10), (0, 512), (u64::MAX, 0)] {
        let probed = probe(&memory, &frames, Bytes(size), &mut Rng::new(1), Limits::default()).unwrap();
        assert_eq!(probed.verdict, Verdict::Unsure(Unsure::NoPairs(pairs)), "{size}");
    }
}

/// Tells each page's frame once as it is, and as another one ever after.
struct Moving(OffsetIsPhysical);

impl FrameSource for Moving {
    fn pages(&self) -> u64 {
        self.0.pages()
    }

    fn frames(&self, pages: std::ops::Range<u64>) -> Result<Vec<Option<FrameNo>>, FrameError> {
        let whole = pages.end - pages.start == self.pages();
        Ok(self.0.frames(pages)?.into_iter().map(|frame| if whole { frame } else { Some(FrameNo(1)) }).collect())
    }

    fn describe(&self) -> String {
        "pages that move".to_owned()
    }
}

#[test]
fn pages_that_moved_do_not_count() {
    let memory = Memory::anonymous(8 << 20, PageSize::Small).unwrap();
    memory.populate();
    let source = Moving(OffsetIsPhysical { first: FrameNo(0), len: Bytes(8 << 20) });
    let frames = PagesByFrame::of(&source).unwrap();
    let limits = Limits { samples: 70, ..Limits::default() };
    let probed = probe(&memory, &frames, Bytes(4 << 20), &mut Rng::new(1), limits).unwrap();
    assert_eq!(probed.verdict, Verdict::Unsure(Unsure::Moved(140)));
    // Nor is there an end to wait for.
    let limits = Limits { time: Duration::ZERO, ..limits };
    let probed = probe(&memory, &frames, Bytes(4 << 20), &mut Rng::new(1), limits).unwrap();
    assert_eq!(probed.verdict, Verdict::Unsure(Unsure::TooFew(0)));
}

/// A machine with a direct-mapped memory-side cache, in which a page is read.
struct Modelled {
    source: OffsetIsPhysical,
    /// The frame that each place of the cache holds.
    places: Vec<Option<FrameNo>>,
    rng: Rng,
}

impl measure::Pages for Modelled {
    fn read(&mut self, page: usize) -> u64 {
        let frame = self.source.frame(page as u64 * 4096).unwrap();
        let places = self.places.len() as u64;
        let place = &mut self.places[usize::try_from(frame.0 % places).unwrap()];
        let near = *place == Some(frame);
        *place = Some(frame);
        let interrupted = if self.rng.below(8) == 0 { 5000 } else { 0 };
        let ticks = if near { 3000 } else { 5500 };
        ticks + self.rng.below(600) + interrupted
    }
}

#[test]
fn the_distance_of_a_modelled_cache_is_found() {
    let seed = isotherm_sys::random::seed();
    let mut rng = Rng::new(seed);
    let source = OffsetIsPhysical { first: FrameNo(1 << 20), len: Bytes(256 << 20) };
    let frames = PagesByFrame::of(&source).unwrap();
    // A cache of 48 MiB.
    let mut machine = Modelled { source, places: vec![None; 48 << 8], rng: Rng::new(seed ^ 1) };
    let mut conflicts = Vec::new();
    for mib in [16, 24, 32, 48, 64, 72, 96, 128, 144, 192] {
        let limits = Limits { time: Duration::from_secs(60), ..Limits::default() };
        let probed = measure::probe_pages(&mut machine, &frames, Bytes(mib << 20), &mut rng, limits).unwrap();
        match probed.verdict {
            Verdict::Conflict(evidence) => {
                assert!((1.4..2.0).contains(&evidence.ratio), "seed {seed}: {probed:?}");
                conflicts.push(mib);
            }
            Verdict::NoConflict(_) => {}
            Verdict::Unsure(_) => panic!("seed {seed}: {probed:?}"),
        }
    }
    assert_eq!(conflicts, [48, 96, 144, 192], "seed {seed}");
}

#[test]
fn what_pages_hold_stays() {
    let memory = Memory::anonymous(8 << 20, PageSize::Small).unwrap();
    memory.populate();
    let source = OffsetIsPhysical { first: FrameNo(0), len: Bytes(8 << 20) };
    let frames = PagesByFrame::of(&source).unwrap();
    let limits = Limits { samples: 100, ..Limits::default() };
    probe(&memory, &frames, Bytes(4 << 20), &mut Rng::new(2), limits).unwrap();
    assert!((0..memory.pages()).all(|page| memory.read(page) == page as u64));
}

#[test]
fn no_conflict_is_claimed_on_a_machine_without_such_a_cache() {
    let memory = Memory::anonymous(256 << 20, PageSize::Default).unwrap();
    memory.populate();
    let source = PagemapFrames::own(memory.range()).unwrap();
    let frames = match PagesByFrame::of(&source) {
        Err(error @ FrameError::Hidden { .. }) => {
            let _ = std::io::stderr().write_all(format!("skipped: needs CAP_SYS_ADMIN ({error})\n").as_bytes());
            return;
        }
        frames => frames.unwrap(),
    };
    let seed = isotherm_sys::random::seed();
    let mut rng = Rng::new(seed);
    for size in [32 << 20, 64 << 20, 96 << 20, 128 << 20, 1 << 30] {
        let began = Instant::now();
        let probed = probe(&memory, &frames, Bytes(size), &mut rng, Limits::default()).unwrap();
        let took = began.elapsed();
        let _ = writeln!(std::io::stderr(), "{}: {}; {} pairs, {took:?}", probed.size, probed.verdict, probed.pairs);
        assert!(!matches!(probed.verdict, Verdict::Conflict(_)), "seed {seed}: {probed:?}");
    }
}
