//! The shapes: the order in which frames are taken and freed, and which part is timed.
//!
//! A batch is as many rounds of a shape as take milliseconds ([`Batch::calibrate`]). Before the timed part, the same
//! work runs untimed, so that the thread's caches are filled and the memory is populated. Nothing reads the contents of
//! a frame, except an allocator that keeps its lists in the frames.

use super::Frames;
use super::crew::Gate;
use isotherm_bench::own_thread::involuntary_switches;
use isotherm_rng::Rng;
use isotherm_sys::clock;
use std::hint::black_box;
use std::sync::Arc;

/// Frames in use at the same time in the bulk shapes.
pub const BULK: usize = 32_768;
/// Frames per call in the shapes that take many.
pub const CALL: usize = 256;
/// Frames in a burst.
pub const BURST: usize = 128;
/// Pairs in a round.
const PAIRS: usize = 64;
/// Target length of a batch: more than 1 ms, less than a scheduler's time slice.
const BATCH_NS: u64 = 1_500_000;

/// The order in which frames are taken and freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shape {
    /// One frame is taken and freed, repeatedly.
    Pair,
    /// [`BULK`] frames are taken one by one, and freed one by one in the order in which they were taken.
    Bulk,
    /// The same, freed in random order. The next frames are taken in the order that this left.
    BulkRandom,
    /// The same as `Bulk`, in calls of [`CALL`].
    BulkCall,
    /// [`BURST`] frames are taken, and freed.
    Burst,
    /// As `Pair`, with blocks of 512 frames.
    HugePair,
}

impl Shape {
    /// All shapes, each at the index of its number.
    pub const ALL: [Shape; 6] =
        [Shape::Pair, Shape::Bulk, Shape::BulkRandom, Shape::BulkCall, Shape::Burst, Shape::HugePair];

    /// The timed parts: one, or taking and freeing separately.
    pub const fn parts(self) -> &'static [&'static str] {
        match self {
            Shape::Pair => &["pair: a frame allocated and freed"],
            Shape::Bulk => &["bulk, get: 32,768 frames, one by one", "bulk, put: in the order taken"],
            Shape::BulkRandom => &["bulk, get: after they came back in random order", "bulk, put: in random order"],
            Shape::BulkCall => &["bulk, get, 256 a call: a frame", "bulk, put, 256 a call: a frame"],
            Shape::Burst => &["burst: 128 allocated, 128 freed; one of each"],
            Shape::HugePair => &["order 9: a block of 2 MiB allocated and freed"],
        }
    }
}

/// The work of a thread.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The shape.
    pub shape: Shape,
    /// Number of rounds.
    pub rounds: usize,
    /// Where the threads that run it at the same time wait for each other.
    pub gate: Arc<Gate>,
}

impl Batch {
    /// Finds the number of rounds that take long enough. `run` runs some and returns how long they took.
    ///
    /// # Errors
    ///
    /// Those of `run`.
    pub fn calibrate<E>(mut run: impl FnMut(usize) -> Result<Sample, E>) -> Result<usize, E> {
        let mut rounds = 1;
        loop {
            let took = run(rounds)?.wall_ns();
            if took >= BATCH_NS {
                return Ok(rounds);
            }
            // In proportion to the time taken, but with a limit, because a first run is not like the others.
            let factor = (BATCH_NS as f64 / took.max(1) as f64 * 1.1).clamp(1.0, 4.0);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and positive")]
            let more = (rounds as f64 * factor) as usize;
            rounds = more.max(rounds + 1);
        }
    }
}

/// State that a thread keeps for all its batches.
#[derive(Debug)]
pub struct Own {
    blocks: Vec<usize>,
    rng: Rng,
}

impl Own {
    /// For the thread with this number.
    pub fn new(thread: usize) -> Own {
        Own { blocks: vec![0; BULK], rng: Rng::new(thread as u64) }
    }

    fn shuffle(&mut self) {
        for last in (1..self.blocks.len()).rev() {
            let other = self.rng.below(last as u64 + 1);
            self.blocks.swap(last, usize::try_from(other).expect("below a usize"));
        }
    }
}

/// The cost of a number of operations.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    ops: usize,
    wall_ns: u64,
    cpu_ns: u64,
}

impl Cost {
    fn time<T>(&mut self, ops: usize, what: impl FnOnce() -> T) -> T {
        let cpu = clock::thread_cpu_ns();
        let began = clock::monotonic_ns();
        let result = what();
        self.wall_ns += clock::monotonic_ns() - began;
        self.cpu_ns += clock::thread_cpu_ns() - cpu;
        self.ops += ops;
        result
    }

    /// Wall-clock nanoseconds per operation.
    pub fn wall(&self) -> f64 {
        self.wall_ns as f64 / self.ops as f64
    }

    /// CPU nanoseconds per operation. The clock is read by a system call, a fraction of a microsecond for each stretch
    /// of at least a hundred operations.
    pub fn cpu(&self) -> f64 {
        self.cpu_ns as f64 / self.ops as f64
    }
}

/// The cost of a thread's batch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// For each of the shape's parts.
    pub costs: [Cost; 2],
    /// Whether the thread was preempted meanwhile.
    pub disturbed: bool,
}

impl Sample {
    /// Total time of all its parts.
    fn wall_ns(&self) -> u64 {
        self.costs.iter().map(|cost| cost.wall_ns).sum()
    }
}

/// Runs a batch. The first part is untimed. When all threads have reached that point, the timed part starts. Work then
/// continues untimed until all are done, so that no thread has an easier end than beginning.
pub fn run<F: Frames>(frames: &mut F, batch: &Batch, own: &mut Own) -> Sample {
    let untimed = batch.rounds.div_ceil(4);
    work(frames, batch.shape, untimed, own);
    batch.gate.arrive();
    let switches = involuntary_switches();
    let costs = work(frames, batch.shape, batch.rounds, own);
    batch.gate.leave();
    while batch.gate.others_at_work() {
        work(frames, batch.shape, batch.rounds.div_ceil(64), own);
    }
    // Checked until the end: a thread that is preempted with a lock held disturbs all others.
    let disturbed = involuntary_switches() != switches;
    Sample { costs, disturbed }
}

fn work<F: Frames>(frames: &mut F, shape: Shape, rounds: usize, own: &mut Own) -> [Cost; 2] {
    let mut costs = [Cost::default(); 2];
    let [first, second] = &mut costs;
    let pairs_done = rounds * PAIRS;
    match shape {
        Shape::Pair => first.time(pairs_done, || pairs::<F, 0>(frames, pairs_done)),
        Shape::HugePair => first.time(pairs_done, || pairs::<F, 9>(frames, pairs_done)),
        Shape::Burst => first.time(rounds * BURST, || bursts(frames, rounds)),
        Shape::Bulk | Shape::BulkRandom => {
            for _ in 0..rounds {
                first.time(BULK, || gets(frames, &mut own.blocks));
                if shape == Shape::BulkRandom {
                    own.shuffle();
                }
                // SAFETY: they have just been taken, and are freed only here.
                second.time(BULK, || unsafe { puts(frames, &own.blocks) });
            }
        }
        Shape::BulkCall => {
            for _ in 0..rounds {
                first.time(BULK, || own.blocks.chunks_mut(CALL).for_each(|blocks| frames.get_many(blocks)));
                // SAFETY: as above.
                second.time(BULK, || own.blocks.chunks(CALL).for_each(|blocks| unsafe { frames.put_many(blocks) }));
            }
        }
    }
    costs
}

#[inline(never)]
fn pairs<F: Frames, const ORDER: u32>(frames: &mut F, n: usize) {
    for _ in 0..n {
        let block = black_box(frames.get(ORDER));
        // SAFETY: it has just been taken, of this order, and is freed only here.
        unsafe { frames.put(block, ORDER) };
    }
}

#[inline(never)]
fn bursts<F: Frames>(frames: &mut F, n: usize) {
    let mut blocks = [0; BURST];
    for _ in 0..n {
        gets(frames, &mut blocks);
        // SAFETY: they have just been taken, and are freed only here.
        unsafe { puts(frames, black_box(&blocks)) };
    }
}

#[inline(never)]
fn gets<F: Frames>(frames: &mut F, blocks: &mut [usize]) {
    blocks.iter_mut().for_each(|block| *block = frames.get(0));
}

/// # Safety
///
/// As [`Frames::put_many`].
#[inline(never)]
unsafe fn puts<F: Frames>(frames: &mut F, blocks: &[usize]) {
    for &block in blocks {
        // SAFETY: the caller guarantees it for each of them.
        unsafe { frames.put(block, 0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Sees to it that what is put was taken.
    #[derive(Default)]
    struct Checked {
        out: BTreeSet<(usize, u32)>,
        next: usize,
        most_out: usize,
    }

    impl Frames for Checked {
        fn get(&mut self, order: u32) -> usize {
            self.next += 1;
            self.out.insert((self.next, order));
            self.most_out = self.most_out.max(self.out.len());
            self.next
        }

        unsafe fn put(&mut self, block: usize, order: u32) {
            assert!(self.out.remove(&(block, order)), "block {block} of order {order} was not out");
        }
    }

    #[test]
    fn every_shape_gives_back_what_it_took_and_counts_it() {
        for (shape, out, ops) in [
            (Shape::Pair, 1, PAIRS),
            (Shape::Bulk, BULK, BULK),
            (Shape::BulkRandom, BULK, BULK),
            (Shape::BulkCall, BULK, BULK),
            (Shape::Burst, BURST, BURST),
            (Shape::HugePair, 1, PAIRS),
        ] {
            let mut frames = Checked::default();
            let costs = work(&mut frames, shape, 2, &mut Own::new(0));
            assert!(frames.out.is_empty() && frames.most_out == out, "{shape:?}");
            for (no, cost) in costs.iter().enumerate() {
                assert_eq!(cost.ops, if no < shape.parts().len() { 2 * ops } else { 0 }, "{shape:?}");
            }
        }
    }

    #[test]
    fn places_in_the_list_are_the_numbers() {
        assert!(Shape::ALL.iter().enumerate().all(|(no, shape)| *shape as usize == no));
    }
}
