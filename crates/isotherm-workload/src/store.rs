//! A key-value store in one process: items in slabs of size classes, keys by a distribution, SETs that move their item.
//!
//! It is to the monitor what caches and databases are: hot memory has no sharp edge, wanders, and is accessed by every CPU.
//! Each thread owns a part of the items and of the memory, as shards do, so that no lock is measured. No network is used;
//! [`Store::work`] stands for what a request costs besides. Memory is laid out as allocators do:
//!
//! ```text
//!   slab of 1 MiB    256 B chunks | 512 B chunks | 1 KiB chunks | 2 KiB chunks | 256 B chunks | ...
//!   key 0, 1, 2, ..  each in its class, in order; the last chunks of each class are free
//!   SET              the item goes to a free chunk of its class, and leaves its own
//! ```
//!
//! Which of the free chunks is for the caller to say ([`Reuse`]). Caches and allocators take the last one that was freed (memcached's slabs,
//! jemalloc's thread caches); with the one that has been free for longest, hot items wander over all memory that was ever free.
//!
//! Which pages it accesses how often is not a function of the parameters. So it counts, in a file that the parent maps as
//! well ([`PageCounts`]).

use crate::draw::normal;
use crate::run::{REPORT_EVERY, begin};
use crate::{PageCounts, Progress};
use isotherm_heat::{Ns, Rng};
use isotherm_sys::clock;
use isotherm_sys::memory::{Memory, PageSize};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How keys are drawn. Shares are of all keys.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Keys {
    /// Around a hottest key.
    Normal {
        /// The standard deviation.
        deviation: f64,
    },
    /// The nth key from the hottest is drawn in proportion to n to the power of minus `exponent`.
    Zipf {
        /// Not 1.
        exponent: f64,
    },
    /// One after the other.
    Sequential,
}

/// Which free chunk a SET takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reuse {
    /// The one that has been free for longest.
    #[default]
    Oldest,
    /// The one that was freed last.
    Newest,
}

/// What the store does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Store {
    /// Pages for items, a multiple of 1,024 for each thread. All are populated.
    pub pages: usize,
    /// How keys are drawn.
    pub keys: Keys,
    /// The position of the hottest key at the start, as a share of all.
    pub centre: f64,
    /// How fast it moves on.
    pub drift_per_s: f64,
    /// The share of operations that are SETs. The others read an item.
    pub sets: f64,
    /// Where a SET puts its item.
    #[serde(default)]
    pub reuse: Reuse,
    /// The share of keys, around the hottest, that are asked for at all. The others are what a cache keeps and nobody wants.
    #[serde(default = "all")]
    pub asked: f64,
    /// Operations a second of each thread; `None` for as many as it can serve.
    #[serde(default)]
    pub per_s: Option<f64>,
    /// Threads; one for each CPU keeps all of them busy.
    pub threads: usize,
    /// CPU time of an operation besides its accesses, in steps of a generator of about 1 ns.
    pub work: u32,
    /// Use small pages, regardless of the system's THP setting. They cannot be collapsed.
    pub small_pages: bool,
    /// Of [`PageCounts::path`]; set by [`crate::Server::start`].
    pub counts: PathBuf,
    /// Seed of the keys.
    pub seed: u64,
}

/// Addresses are kept in units of the smallest chunk.
const UNIT: usize = 256;
const UNITS_OF_PAGE: usize = 4096 / UNIT;
const UNITS_OF_SLAB: usize = (1 << 20) / UNIT;
const WORDS_OF_UNIT: usize = UNIT / 8;
const WORDS_OF_LINE: usize = 8;
/// Pages of a slab of each class: every thread has as many, or several times as many.
const PART: usize = CLASSES.len() * UNITS_OF_SLAB / UNITS_OF_PAGE;
/// Units of a chunk, by class.
const CLASSES: [usize; 4] = [1, 2, 4, 8];
/// The share of the chunks of a class that are free.
const FREE: f64 = 0.05;
/// Ranks drawn in advance: drawing one takes longer than an operation.
const DRAWN: usize = 1 << 17;
/// A rank is drawn to within one part in this many, so that all keys are reached.
const GRAIN: usize = 64;
/// A rank that is asked for is found within so many draws, or the hottest is taken.
const DRAWS: usize = 1000;
/// Operations between two reads of the clock.
const BATCH: u64 = 256;
/// The same with a limit on operations, so that they come evenly.
const PACED_BATCH: u64 = 32;

fn all() -> f64 {
    1.0
}

impl Keys {
    /// How far a drawn key is from the hottest of `keys`, for two numbers of 0 to 1. Not more than half of them.
    fn rank(self, keys: f64, (u, v): (f64, f64)) -> f64 {
        let half = keys / 2.0;
        let rank = match self {
            Keys::Normal { deviation } => normal(u, v).abs() * deviation * keys,
            // The inverse of the distribution of a continuous rank from 1 on.
            Keys::Zipf { exponent } => {
                let to = 1.0 - exponent;
                (u * (half.powf(to) - 1.0) + 1.0).powf(1.0 / to) - 1.0
            }
            Keys::Sequential => 0.0,
        };
        rank.clamp(0.0, half - 1.0)
    }
}

impl Store {
    /// A store that keeps every CPU busy, of `pages` or fewer: keys are normal around one that wanders, and half of the
    /// operations are SETs. It has no pages if there are too few for so many threads.
    pub fn on_every_cpu(pages: usize, seed: u64) -> io::Result<Store> {
        let threads = std::thread::available_parallelism()?.get();
        Ok(Store {
            pages: pages / (threads * PART) * threads * PART,
            keys: Keys::Normal { deviation: 0.03 },
            centre: 0.6,
            drift_per_s: 0.000_1,
            sets: 0.5,
            reuse: Reuse::Oldest,
            asked: 1.0,
            per_s: None,
            threads,
            work: 3000,
            small_pages: false,
            counts: PathBuf::new(),
            seed,
        })
    }

    /// The fewest pages for so many threads.
    pub fn min_pages(&self) -> usize {
        self.threads * PART
    }

    /// Serves until standard input is closed. Prints the same lines as [`fn@crate::run`], with the CPU time of all threads.
    pub fn run(&self) -> io::Result<()> {
        let size = if self.small_pages { PageSize::Small } else { PageSize::Default };
        let memory = Memory::anonymous(self.pages as u64 * 4096, size)?;
        let counts = PageCounts::open(&self.counts, self.pages)?;
        memory.populate();
        let mut shards: Vec<Shard<'_>> = (0..self.threads).map(|no| Shard::new(self, no, &memory, &counts)).collect();
        let mut out = io::stdout().lock();
        let orders = begin(&memory, &mut out)?;
        let done = AtomicU64::new(0);
        let end = &orders.end;
        std::thread::scope(|scope| {
            for shard in &mut shards {
                let done = &done;
                scope.spawn(move || shard.serve(end, done));
            }
            while !end.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_nanos(REPORT_EVERY));
                let (cpu_ns, at, accesses) =
                    (clock::process_cpu_ns(), clock::monotonic_ns(), done.load(Ordering::Relaxed));
                Progress { accesses, cpu_ns, at, ..Progress::default() }.write(&mut out)?;
            }
            Ok(())
        })
    }

    /// The units that a thread owns.
    fn units(&self, no: usize) -> Range<usize> {
        let slabs = self.pages * UNITS_OF_PAGE / UNITS_OF_SLAB / self.threads;
        no * slabs * UNITS_OF_SLAB..(no + 1) * slabs * UNITS_OF_SLAB
    }
}

/// The lower 32 bits.
#[expect(clippy::cast_possible_truncation, reason = "they are wanted")]
fn index(bits: u64) -> usize {
    bits as u32 as usize
}

/// The class of the chunk at `unit`.
fn class_at(unit: usize) -> usize {
    unit / UNITS_OF_SLAB % CLASSES.len()
}

/// The chunks of a class in `units`, in order of addresses.
fn chunks_of(class: usize, units: Range<usize>) -> impl Iterator<Item = usize> {
    units.step_by(CLASSES[class]).filter(move |unit| class_at(*unit) == class)
}

/// The part of the store that one thread owns.
struct Shard<'a> {
    store: &'a Store,
    words: &'a [AtomicU64],
    counts: &'a PageCounts,
    /// The chunk of each key.
    at: Vec<u32>,
    free: [VecDeque<u32>; CLASSES.len()],
    drawn: Vec<u32>,
    rng: Rng,
    next: usize,
}

impl<'a> Shard<'a> {
    fn new(store: &'a Store, no: usize, memory: &'a Memory, counts: &'a PageCounts) -> Shard<'a> {
        let (at, free) = place(store.units(no));
        let mut rng = Rng::new(store.seed.wrapping_add(no as u64));
        let keys = at.len() as f64;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below the number of keys")]
        let mut rank = || store.keys.rank(keys, (rng.unit(), rng.unit())) as u32;
        // Those beyond are drawn again, so that no key at the edge stands for all of them.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below the number of keys")]
        let most = (keys * store.asked / 2.0) as u32;
        let drawn = (0..DRAWN).map(|_| (0..DRAWS).map(|_| rank()).find(|rank| *rank <= most).unwrap_or(0)).collect();
        Shard { store, words: memory.words(), counts, at, free, drawn, rng, next: 0 }
    }

    fn serve(&mut self, end: &AtomicBool, done: &AtomicU64) {
        let began = clock::monotonic_ns();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of 2^32")]
        let sets = (self.store.sets * 2_f64.powi(32)) as u64;
        let batch = if self.store.per_s.is_some() { PACED_BATCH } else { BATCH };
        let (mut found, mut batches) = (0, 0_u64);
        while !end.load(Ordering::Relaxed) {
            let passed = clock::monotonic_ns() - began;
            let due = self.store.per_s.map_or(0.0, |per_s| (batches * batch) as f64 / per_s * 1e9);
            if due > passed as f64 {
                std::thread::sleep(Duration::from_secs_f64((due - passed as f64) / 1e9));
            }
            batches += 1;
            let centre = self.centre(clock::monotonic_ns() - began);
            for _ in 0..batch {
                let key = self.key(centre);
                found ^= if self.rng.next_u64() >> 32 < sets { self.set(key) } else { self.get(key) };
                found ^= self.work();
            }
            done.fetch_add(batch, Ordering::Relaxed);
        }
        std::hint::black_box(found);
    }

    /// The hottest key after so long.
    fn centre(&self, after: Ns) -> usize {
        let share = (self.store.centre + self.store.drift_per_s * after as f64 / 1e9).fract();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of the keys")]
        let centre = (share * self.at.len() as f64) as usize;
        centre
    }

    fn key(&mut self, centre: usize) -> usize {
        let keys = self.at.len();
        if self.store.keys == Keys::Sequential {
            self.next = (self.next + 1) % keys;
            return self.next;
        }
        let bits = self.rng.next_u64();
        let drawn = self.drawn[index(bits) & (DRAWN - 1)] as usize;
        let rank = (drawn + index(bits >> 32) % (1 + drawn / GRAIN)).min(keys - 1);
        if bits >> 63 == 0 { (centre + rank) % keys } else { (centre + keys - rank) % keys }
    }

    fn get(&self, key: usize) -> u64 {
        let mut found = 0;
        self.each_line(self.at[key], |word| found ^= word.load(Ordering::Relaxed));
        found
    }

    fn set(&mut self, key: usize) -> u64 {
        let old = self.at[key];
        let free = &mut self.free[class_at(old as usize)];
        let taken = match self.store.reuse {
            Reuse::Oldest => free.pop_front(),
            Reuse::Newest => free.pop_back(),
        };
        if let Some(new) = taken {
            free.push_back(old);
            self.at[key] = new;
        }
        self.each_line(self.at[key], |word| word.store(key as u64, Ordering::Relaxed));
        0
    }

    /// Calls `each` with a word of every cache line of a chunk, and counts the access to its page.
    fn each_line(&self, unit: u32, mut each: impl FnMut(&AtomicU64)) {
        let unit = unit as usize;
        let words = unit * WORDS_OF_UNIT..(unit + CLASSES[class_at(unit)]) * WORDS_OF_UNIT;
        self.words[words].iter().step_by(WORDS_OF_LINE).for_each(&mut each);
        self.counts.add(unit / UNITS_OF_PAGE);
    }

    fn work(&mut self) -> u64 {
        (0..self.store.work).fold(0, |sum, _| sum ^ self.rng.next_u64())
    }
}

/// Puts keys into all chunks of `units` but those that stay free: the chunk of each key, and the free chunks by class.
fn place(units: Range<usize>) -> (Vec<u32>, [VecDeque<u32>; CLASSES.len()]) {
    let of_class = |class| chunks_of(class, units.clone()).map(|unit| u32::try_from(unit).expect("below 1 TiB"));
    let mut chunks: [VecDeque<u32>; CLASSES.len()] = std::array::from_fn(|class| of_class(class).collect());
    let full = chunks.each_ref().map(VecDeque::len);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of them")]
    let free = full.map(|n| (n as f64 * FREE).ceil() as usize);
    let keys: usize = full.iter().zip(free).map(|(n, free)| n - free).sum();
    // The next key goes to the class that is behind most: keys of all classes are mixed, and all fill up together.
    let behind = |chunks: &[VecDeque<u32>; CLASSES.len()], class: usize| {
        (chunks[class].len() - free[class]) as f64 / (full[class] - free[class]).max(1) as f64
    };
    let at = (0..keys).map(|_| {
        let class = (0..CLASSES.len()).max_by(|a, b| behind(&chunks, *a).total_cmp(&behind(&chunks, *b)));
        chunks[class.unwrap_or(0)].pop_front().expect("keys are no more than chunks")
    });
    (at.collect(), chunks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_fill_all_classes_in_order_and_leave_some_chunks_free() {
        let (at, free) = place(0..8 * UNITS_OF_SLAB);
        // Two slabs of each class, of 4,096 chunks down to 512.
        let chunks = [8192, 4096, 2048, 1024];
        assert_eq!(free.each_ref().map(VecDeque::len), [410, 205, 103, 52]);
        assert_eq!(at.len(), chunks.iter().sum::<usize>() - 410 - 205 - 103 - 52);
        for class in 0..CLASSES.len() {
            let of_class: Vec<u32> = at.iter().copied().filter(|unit| class_at(*unit as usize) == class).collect();
            assert!(of_class.is_sorted() && of_class.len() + free[class].len() == chunks[class], "class {class}");
            assert!(of_class.iter().all(|unit| (*unit as usize).is_multiple_of(CLASSES[class])));
        }
        // Keys in the middle are in the middle of each class.
        let middle: Vec<u32> = at[at.len() / 2..][..30].to_vec();
        // Half of what is used of two slabs: near the end of the first.
        let near_end = |unit: &u32| *unit as usize % UNITS_OF_SLAB > UNITS_OF_SLAB * 9 / 10;
        assert!(middle.iter().all(|unit| (*unit as usize) < 4 * UNITS_OF_SLAB && near_end(unit)), "{middle:?}");
    }

    #[test]
    fn ranks_follow_their_distribution() {
        let normal = Keys::Normal { deviation: 0.01 };
        assert_eq!(normal.rank(1e6, (0.0, 0.3)), 0.0);
        // u = 1 - e^-0.5 is one deviation, where the cosine is 1.
        assert!((normal.rank(1e6, (1.0 - (-0.5_f64).exp(), 0.0)) - 1e4).abs() < 1e-6);
        let zipf = Keys::Zipf { exponent: 2.0 };
        assert_eq!(zipf.rank(1e6, (0.0, 0.0)), 0.0);
        // With an exponent of 2, half of all draws are within the first rank.
        assert!((zipf.rank(1e6, (0.5, 0.0)) - 1.0).abs() < 1e-3);
        assert!(zipf.rank(1e6, (1.0, 0.0)) >= 499_998.0);
    }

    #[test]
    fn keys_that_nobody_asks_for_are_never_drawn_and_a_limit_on_operations_is_kept() {
        let counts = PageCounts::create(8192).unwrap();
        let store = Store {
            keys: Keys::Normal { deviation: 0.2 },
            asked: 0.1,
            per_s: Some(1000.0),
            pages: 8192,
            threads: 1,
            centre: 0.5,
            ..Store::on_every_cpu(8192, 3).unwrap()
        };
        let memory = Memory::anonymous(8192 * 4096, PageSize::Default).unwrap();
        let mut shard = Shard::new(&store, 0, &memory, &counts);
        let keys = shard.at.len();
        let centre = keys / 2;
        let far = (0..10_000).map(|_| shard.key(centre).abs_diff(centre)).max().unwrap();
        // A twentieth on either side, and the grain of the draw.
        assert!(far <= keys / 20 + keys / 20 / GRAIN + 1 && far > keys / 25, "{far} of {keys}");
        let (end, done) = (AtomicBool::new(false), AtomicU64::new(0));
        let began = clock::monotonic_ns();
        std::thread::scope(|scope| {
            scope.spawn(|| shard.serve(&end, &done));
            std::thread::sleep(Duration::from_millis(300));
            end.store(true, Ordering::Relaxed);
        });
        let most = (clock::monotonic_ns() - began) as f64 / 1e9 * 1000.0;
        let done = done.load(Ordering::Relaxed);
        assert!(done > 0 && done as f64 <= most + PACED_BATCH as f64, "{done} operations of {most} at most");
    }

    #[test]
    fn every_thread_has_slabs_of_all_classes() {
        let store = Store::on_every_cpu(1 << 20, 1).unwrap();
        // Four slabs of 1 MiB, of 256 pages each.
        assert_eq!(store.min_pages(), 1024 * store.threads);
        assert!(store.pages.is_multiple_of(store.min_pages()) && (1 << 20) - store.pages < store.min_pages());
        assert_eq!(Store::on_every_cpu(store.min_pages() - 1, 1).unwrap().pages, 0);
    }

    #[test]
    fn a_set_moves_its_item_within_its_class_and_is_counted_by_page() {
        let counts = PageCounts::create(8192).unwrap();
        let store = Store {
            pages: 8192,
            keys: Keys::Sequential,
            centre: 0.5,
            drift_per_s: 0.0,
            sets: 1.0,
            reuse: Reuse::Oldest,
            asked: 1.0,
            per_s: None,
            threads: 2,
            work: 0,
            small_pages: true,
            counts: counts.path().unwrap(),
            seed: 1,
        };
        let memory = Memory::anonymous(8192 * 4096, PageSize::Default).unwrap();
        // The second thread owns the second half.
        let mut shard = Shard::new(&store, 1, &memory, &counts);
        let old = shard.at[7];
        assert!(store.units(1).contains(&(old as usize)) && store.units(1).end == 8192 * UNITS_OF_PAGE);
        shard.set(7);
        let new = shard.at[7];
        assert!(new != old && class_at(new as usize) == class_at(old as usize));
        assert_eq!(shard.free[class_at(old as usize)].back(), Some(&old));
        let words = new as usize * WORDS_OF_UNIT..(new as usize + CLASSES[class_at(new as usize)]) * WORDS_OF_UNIT;
        let mut lines = memory.words()[words].iter().step_by(WORDS_OF_LINE);
        assert!(lines.all(|word| word.load(Ordering::Relaxed) == 7), "every line of the item was written");
        shard.get(7);
        let accessed: Vec<(usize, u64)> =
            (0..8192).map(|page| (page, counts.of(page))).filter(|(_, n)| *n > 0).collect();
        assert_eq!(accessed, [(new as usize / UNITS_OF_PAGE, 2)]);
        // The next item of the class gets what this one has left.
        let newest = Store { reuse: Reuse::Newest, ..store.clone() };
        let mut shard = Shard::new(&newest, 1, &memory, &counts);
        let left = shard.at[7];
        shard.set(7);
        let other = (8..).find(|key| class_at(shard.at[*key] as usize) == class_at(left as usize)).unwrap();
        shard.set(other);
        assert_eq!(shard.at[other], left);
    }
}
