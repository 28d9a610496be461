//! How many frames a CPU keeps: the kernel's formulas for its per-CPU lists, as numbers in and numbers out.
//!
//! The caller, the zone, holds the lists and the lock. It asks here how much to take when a list is empty
//! ([`Tuner::refill`]), how much to give back after a free ([`Tuner::drain`]) and at every tick of its housekeeping
//! ([`Tuner::decay`]), and does so in chunks of [`Marks::batch`] frames, letting go of the lock in between. Nothing is
//! stored of the lists, not even how long they are: `count`, in frames of all lists of the CPU together, is an
//! argument.
//!
//! The formulas are those of Linux 6.7 and later, where `high` moves between two marks by itself, and not better ones,
//! on purpose: what is known of how the kernel's lists behave then holds here, and one of the tests compares the marks
//! with those in `/proc/zoneinfo`. What they do:
//!
//! - a CPU that allocates and allocates refills with twice as much each time, up to 32 batches, and its `high` rises;
//! - one that frees and frees drains as much at a time as it has freed in a row;
//! - blocks of orders 1 to 3 freed in a row, as buffers that another CPU has allocated, go back at once;
//! - when frames are short, `high` sinks, and what is kept is little;
//! - a CPU that does neither gives back an eighth a tick, or 32 batches where that is less.

use crate::Order;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

/// log2 of how many batches are moved at once at most. The kernel's `PCP_BATCH_SCALE_MAX`, 5 unless configured
/// otherwise.
const SCALE_MAX: u8 = 5;
/// log2 of the managed frames for each frame of a batch.
const BATCH_SHIFT: u32 = 12;
/// A batch is of about this many frames at most: 256 KiB.
const BATCH_MOST: u64 = 64;
/// Of a zone, the CPUs keep an eighth at most, all of them together.
const FRACTION_LEAST: u32 = 8;
/// The largest order that [`Tuner::on_free`] counts as one of those that come in streams: the kernel's "costly" order.
const STREAM_ORDER: u32 = 3;

/// Between what numbers a CPU's lists are kept. All in frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marks {
    /// How many are moved under one hold of the zone's lock; at least 1.
    pub batch: u32,
    /// What `high` does not go below.
    pub high_min: u32,
    /// What `high` does not go above. Equal to `high_min`: it stays there.
    pub high_max: u32,
}

impl Marks {
    /// Those of a zone of `managed` frames with that low watermark, which `cpus` CPUs share (0 counts as 1).
    ///
    /// With a `fraction`, `high` is fixed where all CPUs together keep that part of the zone (100: a hundredth; below 8
    /// counts as 8). With `None` or 0 it moves, from where they keep as much as the low watermark to where they keep an
    /// eighth of the zone. Four batches at least, in either case.
    pub fn for_zone(managed: u64, low_watermark: u64, cpus: u32, fraction: Option<u32>) -> Marks {
        let batch = batch(managed);
        let high = |frames: u64| saturate(frames / u64::from(cpus.max(1))).max(4 * batch);
        match fraction.filter(|&fraction| fraction > 0) {
            Some(fraction) => {
                let fixed = high(managed / u64::from(fraction.max(FRACTION_LEAST)));
                Marks { batch, high_min: fixed, high_max: fixed }
            }
            None => Marks { batch, high_min: high(low_watermark), high_max: high(managed / u64::from(FRACTION_LEAST)) },
        }
    }

    /// Most that is moved at once: 32 batches.
    fn most(&self) -> u32 {
        self.batch.saturating_mul(1 << SCALE_MAX)
    }

    /// `high` within the marks. Not `clamp`, which panics where a caller has mixed them up.
    fn within(&self, high: u32) -> u32 {
        high.max(self.high_min).min(self.high_max)
    }
}

/// One less than a power of two, on purpose: with a power of two, CPUs that refill in turns would each have frames of
/// half the colours.
fn batch(managed: u64) -> u32 {
    let about = saturate((managed >> BATCH_SHIFT).min(BATCH_MOST)).max(1);
    let power = 1 << (about + about / 2).ilog2();
    (power - 1).max(1)
}

fn saturate(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// How short of frames the zone is. Both are the zone's to know: it has the watermarks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pressure {
    /// Its free frames are below its high watermark, or were not long ago.
    pub below_high: bool,
    /// Someone is reclaiming frames for it.
    pub reclaiming: bool,
}

impl Pressure {
    /// There are enough.
    pub const NONE: Pressure = Pressure { below_high: false, reclaiming: false };
}

/// What to do in a tick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decay {
    /// Frames to give back, the coldest first.
    pub drain: u32,
    /// Whether the next tick will have something to do too, so far as is known now.
    pub again: bool,
}

/// The state of one CPU's lists of one zone: five numbers, of which `high` matters.
#[derive(Clone, Debug)]
pub struct Tuner {
    marks: Marks,
    high: u32,
    alloc_factor: u8,
    free_count: u32,
    last_in_stream: bool,
    stream: bool,
    keeps_batch: bool,
}

impl Tuner {
    /// One that has seen nothing yet.
    pub fn new(marks: Marks) -> Tuner {
        Tuner {
            marks,
            high: marks.within(0),
            alloc_factor: 0,
            free_count: 0,
            last_in_stream: false,
            stream: false,
            keeps_batch: false,
        }
    }

    /// Words that [`Tuner::to_words`] gives.
    pub(crate) const WORDS: usize = 4;

    /// What it remembers beside its marks, for memory that holds words only.
    pub(crate) fn to_words(&self) -> [u32; Tuner::WORDS] {
        let flags = [self.last_in_stream, self.stream, self.keeps_batch];
        let bits = flags.iter().rev().fold(0, |bits, &flag| bits << 1 | u32::from(flag));
        [self.high, u32::from(self.alloc_factor), self.free_count, bits]
    }

    /// The one that gave these words.
    pub(crate) fn from_words(marks: Marks, [high, alloc_factor, free_count, bits]: [u32; Tuner::WORDS]) -> Tuner {
        Tuner {
            marks,
            high,
            alloc_factor: u8::try_from(alloc_factor).unwrap_or(SCALE_MAX).min(SCALE_MAX),
            free_count,
            last_in_stream: bits & 1 != 0,
            stream: bits & 2 != 0,
            keeps_batch: bits & 4 != 0,
        }
    }

    /// The `high` in such words, where they lie.
    pub(crate) fn high_in(words: &[AtomicU32]) -> u32 {
        words[0].load(Relaxed)
    }

    /// The marks it goes by.
    pub fn marks(&self) -> Marks {
        self.marks
    }

    /// Goes by others from now on, as when the zone or the number of CPUs has changed.
    pub fn set_marks(&mut self, marks: Marks) {
        self.marks = marks;
        self.high = marks.within(self.high);
    }

    /// Whether blocks freed in a row stay until there is a batch of them; false to begin with. For processors of which
    /// each CPU's share of the cache holds more than three batches: there, frames that are kept are still warm.
    pub fn set_keeps_batch(&mut self, keeps_batch: bool) {
        self.keeps_batch = keeps_batch;
    }

    /// Frames that the lists may hold before a free drains.
    pub fn high(&self) -> u32 {
        self.high
    }

    /// A block was taken from the lists.
    #[inline]
    pub fn on_alloc(&mut self) {
        self.free_count /= 2;
    }

    /// A block was put on the lists. To be followed by [`Tuner::drain`].
    #[inline]
    pub fn on_free(&mut self, order: Order) {
        self.alloc_factor /= 2;
        let in_stream = (1..=STREAM_ORDER).contains(&order.get());
        let many = self.marks.batch.saturating_add(self.marks.high_min / 2);
        self.stream = in_stream && self.last_in_stream && self.free_count >= many;
        self.last_in_stream = in_stream;
        // What has got above the bound, by other marks, stays and is halved away.
        if self.free_count < self.marks.most() {
            self.free_count = self.free_count.saturating_add(order.frames()).min(self.marks.most());
        }
    }

    /// Blocks of `order` to take from the zone for a list that is empty, at least one. The first of them is allocated
    /// at once.
    pub fn refill(&mut self, order: Order, count: u32, pressure: Pressure) -> u32 {
        let base = self.marks.batch;
        self.high = self.marks.within(self.high);
        // A batch does not fit: nothing is to be kept.
        if self.high < base {
            return 1;
        }
        let single = order == Order::FRAME;
        let mut frames = if single { base.saturating_mul(1 << self.alloc_factor) } else { base };
        // A larger high would have saved a visit to the zone.
        if self.moves() && !pressure.below_high {
            self.high = self.high.saturating_add(frames).min(self.marks.high_max);
        }
        if single {
            let room = self.high.saturating_sub(count).saturating_sub(base).max(base);
            if frames <= room && self.alloc_factor < SCALE_MAX {
                self.alloc_factor += 1;
            }
            frames = frames.min(room);
        }
        if frames > 1 { (frames >> order.get()).max(2) } else { 1 }
    }

    /// Frames to give back to the zone now that a block was put on the lists, which hold `count`, that block included.
    /// 0 as a rule.
    pub fn drain(&mut self, count: u32, pressure: Pressure) -> u32 {
        let stream = self.stream && (!self.keeps_batch || count >= self.marks.batch);
        let high = self.high_for_free(count, stream, pressure);
        if count < high {
            return 0;
        }
        let frames = match (stream, high.checked_sub(self.marks.batch)) {
            (true, _) => self.marks.most(),
            // A batch does not fit: what came goes.
            (false, None) => 1,
            // As many as came in a row, but a batch at least, and what leaves a batch at most.
            (false, Some(most)) => self.free_count.max(self.marks.batch).min(most).max(1),
        };
        frames.min(count)
    }

    /// From which count on a free drains; moves `high` on the way.
    fn high_for_free(&mut self, count: u32, stream: bool, pressure: Pressure) -> u32 {
        self.high = self.marks.within(self.high);
        let (high, batch) = (self.high, self.marks.batch);
        let freed = self.free_count.max(batch);
        if high == 0 {
            return 0;
        }
        if stream {
            self.sink(self.marks.most());
            return 0;
        }
        if pressure.reclaiming {
            self.sink(freed);
            return batch.saturating_mul(4).min(self.high);
        }
        if !self.moves() {
            return high;
        }
        if pressure.below_high {
            self.sink(freed);
            return count.max(self.marks.high_min);
        }
        if count >= high {
            // So that as many as came in a row would fit. For the next time: this time there is to be drained.
            self.high = self.marks.within(high.max(self.free_count.saturating_add(batch)));
        }
        high
    }

    /// One tick over lists that hold `count`: takes an eighth off `high`, or less, so that no more than 32 batches are
    /// above it; they are to be drained.
    ///
    /// Lists at 227,328 frames, batches of 63: 2,016 frames a tick down to 16,128, an eighth a tick from there.
    pub fn decay(&mut self, count: u32) -> Decay {
        let mut keep = self.high;
        if self.high > self.marks.high_min {
            // One at least: the kernel's has no end when the low mark is below 8.
            let eighth = (self.high / 8).max(1);
            keep = (self.high - eighth).max(count.saturating_sub(self.marks.most())).max(self.marks.high_min);
            // Lists that hold more than they may keep more than `high` for a tick or two.
            self.high = self.marks.within(keep);
        }
        let drain = count.saturating_sub(keep);
        Decay { drain, again: drain > 0 || self.high > self.marks.high_min }
    }

    /// Forgets what it has seen: after lists that nobody used were emptied, as with new ones.
    pub(crate) fn forget(&mut self) {
        *self = Tuner { keeps_batch: self.keeps_batch, ..Tuner::new(self.marks) };
    }

    fn sink(&mut self, frames: u32) {
        self.high = self.high.saturating_sub(frames).max(self.marks.high_min);
    }

    fn moves(&self) -> bool {
        self.marks.high_min != self.marks.high_max
    }
}

#[cfg(test)]
mod tests;
