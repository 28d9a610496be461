//! How many frames the lists of a CPU hold: the kernel's formulas for its pcp lists, as a pure computation.
//!
//! The caller holds the lists and the lock. It asks how much to take when a list is empty ([`Tuner::refill`]), how much to
//! return after a free ([`Tuner::drain`]), and how much to return at every tick of the periodic drain ([`Tuner::decay`]).
//! It moves blocks in chunks of [`PcpLimits::batch`] frames and releases the lock in between. Nothing about the lists is
//! stored here, not even their length: `count`, in frames of all lists of the CPU together, is an argument.
//!
//! The formulas are those of Linux 6.7 and later, where `high` moves by itself between `high_min` and `high_max`. They
//! are copied and not improved, so that what is known about the kernel's lists also holds here. A test compares the
//! limits with those in `/proc/zoneinfo`. The effects:
//!
//! - A CPU that only allocates refills with twice as much each time, up to 32 batches, and its `high` rises.
//! - A CPU that only frees returns as much at a time as it has freed in a row.
//! - Blocks of orders 1 to 3 that are freed in a row, such as buffers that another CPU allocated, go back at once.
//! - When frames are short, `high` falls and little is cached.
//! - A CPU that does neither returns an eighth per tick, or 32 batches if that is less.

use crate::Order;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

/// log2 of the most batches that are moved at once. The kernel's `PCP_BATCH_SCALE_MAX`, which is 5 by default.
const SCALE_MAX: u8 = 5;
/// log2 of the managed frames per frame of a batch.
const BATCH_SHIFT: u32 = 12;
/// A batch has at most about this many frames: 256 KiB.
const MAX_BATCH: u64 = 64;
/// All CPUs together hold at most an eighth of a zone.
const MIN_FRACTION: u32 = 8;
/// The largest order that [`Tuner::on_free`] takes for part of a stream: the kernel's "costly" order.
const STREAM_ORDER: u32 = 3;

/// The limits of a CPU's lists, in frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PcpLimits {
    /// Frames that are moved each time the zone lock is taken; at least 1.
    pub batch: u32,
    /// The lower bound of `high`.
    pub high_min: u32,
    /// The upper bound of `high`. If it equals `high_min`, `high` is fixed.
    pub high_max: u32,
}

impl PcpLimits {
    /// The limits for a zone of `managed` frames with that low watermark, which `cpus` CPUs share (0 counts as 1).
    ///
    /// With a `fraction`, `high` is fixed so that all CPUs together hold that part of the zone (100 is a hundredth;
    /// below 8 counts as 8). With `None` or 0 it moves: at `high_min` all CPUs together hold as much as the low
    /// watermark, at `high_max` an eighth of the zone. In either case it is at least four batches.
    pub fn for_zone(managed: u64, low_watermark: u64, cpus: u32, fraction: Option<u32>) -> PcpLimits {
        let batch = batch(managed);
        let high = |frames: u64| saturate(frames / u64::from(cpus.max(1))).max(4 * batch);
        match fraction.filter(|&fraction| fraction > 0) {
            Some(fraction) => {
                let fixed = high(managed / u64::from(fraction.max(MIN_FRACTION)));
                PcpLimits { batch, high_min: fixed, high_max: fixed }
            }
            None => {
                PcpLimits { batch, high_min: high(low_watermark), high_max: high(managed / u64::from(MIN_FRACTION)) }
            }
        }
    }

    /// Most frames that are moved at once: 32 batches.
    fn most(&self) -> u32 {
        self.batch.saturating_mul(1 << SCALE_MAX)
    }

    /// `high` within the limits. Not `clamp`, which panics if a caller has mixed them up.
    fn within(&self, high: u32) -> u32 {
        high.max(self.high_min).min(self.high_max)
    }
}

/// One less than a power of two, on purpose. With a power of two, CPUs that refill alternately would each get frames of
/// half the colours.
fn batch(managed: u64) -> u32 {
    let about = saturate((managed >> BATCH_SHIFT).min(MAX_BATCH)).max(1);
    let power = 1 << (about + about / 2).ilog2();
    (power - 1).max(1)
}

fn saturate(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// How short of frames the zone is. The zone knows both, because it has the watermarks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pressure {
    /// Its free frames are below its high watermark, or were so recently.
    pub below_high: bool,
    /// Frames are being reclaimed for it.
    pub reclaiming: bool,
}

impl Pressure {
    /// No shortage.
    pub const NONE: Pressure = Pressure { below_high: false, reclaiming: false };
}

/// What to do in a tick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decay {
    /// Frames to return, the coldest first.
    pub drain: u32,
    /// Whether the next tick will have something to do, as far as is known now.
    pub again: bool,
}

/// The state of one CPU's lists for one zone. Of its numbers, `high` is the important one.
#[derive(Clone, Debug)]
pub struct Tuner {
    limits: PcpLimits,
    high: u32,
    alloc_factor: u8,
    free_count: u32,
    last_in_stream: bool,
    stream: bool,
    keeps_batch: bool,
}

impl Tuner {
    /// A tuner without history.
    pub fn new(limits: PcpLimits) -> Tuner {
        Tuner {
            limits,
            high: limits.within(0),
            alloc_factor: 0,
            free_count: 0,
            last_in_stream: false,
            stream: false,
            keeps_batch: false,
        }
    }

    /// Number of words in [`Tuner::to_words`].
    pub(crate) const WORDS: usize = 4;

    /// Its state without the limits, for memory that holds only words.
    pub(crate) fn to_words(&self) -> [u32; Tuner::WORDS] {
        let flags = [self.last_in_stream, self.stream, self.keeps_batch];
        let bits = flags.iter().rev().fold(0, |bits, &flag| bits << 1 | u32::from(flag));
        [self.high, u32::from(self.alloc_factor), self.free_count, bits]
    }

    /// The tuner that these words were made from.
    pub(crate) fn from_words(limits: PcpLimits, [high, alloc_factor, free_count, bits]: [u32; Tuner::WORDS]) -> Tuner {
        Tuner {
            limits,
            high,
            alloc_factor: u8::try_from(alloc_factor).unwrap_or(SCALE_MAX).min(SCALE_MAX),
            free_count,
            last_in_stream: bits & 1 != 0,
            stream: bits & 2 != 0,
            keeps_batch: bits & 4 != 0,
        }
    }

    /// Reads `high` from such words.
    pub(crate) fn high_in(words: &[AtomicU32]) -> u32 {
        words[0].load(Relaxed)
    }

    /// The limits that it uses.
    pub fn limits(&self) -> PcpLimits {
        self.limits
    }

    /// Sets new limits, for example after the zone or the number of CPUs has changed.
    pub fn set_limits(&mut self, limits: PcpLimits) {
        self.limits = limits;
        self.high = limits.within(self.high);
    }

    /// Whether blocks that are freed in a row stay until there is a batch of them; false by default. For processors on
    /// which each CPU's share of the cache is larger than three batches: cached frames are still warm there.
    pub fn set_keeps_batch(&mut self, keeps_batch: bool) {
        self.keeps_batch = keeps_batch;
    }

    /// Frames that the lists may hold before a free drains them.
    pub fn high(&self) -> u32 {
        self.high
    }

    /// A block was taken from the lists.
    #[inline]
    pub fn on_alloc(&mut self) {
        self.free_count /= 2;
    }

    /// A block was put on the lists. Call [`Tuner::drain`] afterwards.
    #[inline]
    pub fn on_free(&mut self, order: Order) {
        self.alloc_factor /= 2;
        let in_stream = (1..=STREAM_ORDER).contains(&order.get());
        let many = self.limits.batch.saturating_add(self.limits.high_min / 2);
        self.stream = in_stream && self.last_in_stream && self.free_count >= many;
        self.last_in_stream = in_stream;
        // If the count is above the bound, because of earlier limits, it stays and is halved over time.
        if self.free_count < self.limits.most() {
            self.free_count = self.free_count.saturating_add(order.frames()).min(self.limits.most());
        }
    }

    /// Blocks of `order` to take from the zone for an empty list, at least one. The first of them is allocated at once.
    pub fn refill(&mut self, order: Order, count: u32, pressure: Pressure) -> u32 {
        let base = self.limits.batch;
        self.high = self.limits.within(self.high);
        // A batch does not fit: cache nothing.
        if self.high < base {
            return 1;
        }
        let single = order == Order::FRAME;
        let mut frames = if single { base.saturating_mul(1 << self.alloc_factor) } else { base };
        // A higher `high` would have avoided this visit to the zone.
        if self.moves() && !pressure.below_high {
            self.high = self.high.saturating_add(frames).min(self.limits.high_max);
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

    /// Frames to return to the zone after a block was put on the lists. They hold `count` frames, that block included.
    /// Usually 0.
    pub fn drain(&mut self, count: u32, pressure: Pressure) -> u32 {
        let stream = self.stream && (!self.keeps_batch || count >= self.limits.batch);
        let high = self.high_for_free(count, stream, pressure);
        if count < high {
            return 0;
        }
        let frames = match (stream, high.checked_sub(self.limits.batch)) {
            (true, _) => self.limits.most(),
            // A batch does not fit: return what was just freed.
            (false, None) => 1,
            // As many as were freed in a row, but at least a batch, and at most what leaves a batch.
            (false, Some(most)) => self.free_count.max(self.limits.batch).min(most).max(1),
        };
        frames.min(count)
    }

    /// The count from which on a free drains. Also moves `high`.
    fn high_for_free(&mut self, count: u32, stream: bool, pressure: Pressure) -> u32 {
        self.high = self.limits.within(self.high);
        let (high, batch) = (self.high, self.limits.batch);
        let freed = self.free_count.max(batch);
        if high == 0 {
            return 0;
        }
        if stream {
            self.sink(self.limits.most());
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
            return count.max(self.limits.high_min);
        }
        if count >= high {
            // Raise `high` so that as many as were freed in a row would fit. This applies next time; this time, drain.
            self.high = self.limits.within(high.max(self.free_count.saturating_add(batch)));
        }
        high
    }

    /// One tick for lists that hold `count` frames. Lowers `high` by an eighth, or by less, so that at most 32 batches
    /// are above it. Those are to be drained.
    ///
    /// With lists of 227,328 frames and batches of 63, that is 2,016 frames per tick down to 16,128 frames, and an
    /// eighth per tick from there.
    pub fn decay(&mut self, count: u32) -> Decay {
        let mut keep = self.high;
        if self.high > self.limits.high_min {
            // At least one: the kernel's formula never ends if `high_min` is below 8.
            let eighth = (self.high / 8).max(1);
            keep = (self.high - eighth).max(count.saturating_sub(self.limits.most())).max(self.limits.high_min);
            // Lists that hold more than `high_max` may keep more than `high` for a tick or two.
            self.high = self.limits.within(keep);
        }
        let drain = count.saturating_sub(keep);
        Decay { drain, again: drain > 0 || self.high > self.limits.high_min }
    }

    /// Resets the history, after unused lists were emptied.
    pub(crate) fn forget(&mut self) {
        *self = Tuner { keeps_batch: self.keeps_batch, ..Tuner::new(self.limits) };
    }

    fn sink(&mut self, frames: u32) {
        self.high = self.high.saturating_sub(frames).max(self.limits.high_min);
    }

    fn moves(&self) -> bool {
        self.limits.high_min != self.limits.high_max
    }
}

#[cfg(test)]
mod tests;
