//! Counts per colour how many granules are in use and how many are free, and which. The zone reports every allocation
//! and free here.

use super::bytes::{self, Counts};
use super::config::{Choice, Colouring, Sizes};
use super::levels::Levels;
use super::tree::Shape;
use crate::memory::Metadata;
use crate::{FrameNo, MAX_ORDER, Order};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// The metadata of colouring.
#[derive(Debug)]
pub(crate) struct Colours<'m> {
    pub(super) choice: Choice,
    pub(super) granule: Order,
    pub(super) colours: u32,
    pub(super) granules: u32,
    /// Colour of the first granule.
    pub(super) base: u32,
    /// One bit for each granule that is entirely free and can be allocated.
    free: &'m [AtomicU64],
    /// For each colour, how many of its granules are in use, entirely or in part.
    pub(super) loads: Counts<'m>,
    /// For each colour, how many of its granules are free.
    left: Counts<'m>,
    /// For each load, the colours that have it and that have a free granule.
    pub(super) levels: Levels<'m>,
    given: FreedRun,
    /// The word of colours that the last allocated granule was in.
    pub(super) cursor: usize,
}

/// A run of neighbouring granules that were freed and are not counted as free yet. Frames that were allocated together
/// are usually freed together, and a run costs as much as one granule.
#[derive(Clone, Copy, Debug, Default)]
struct FreedRun {
    first: u32,
    count: u32,
}

impl FreedRun {
    /// Adds a granule at either end of the run, if it is next to it and in the same block of the largest order
    /// (2^`block` granules). Within such a block, neighbouring granules have neighbouring colours.
    #[inline]
    fn extend(&mut self, granule: u32, block: u32) -> bool {
        let same = (granule ^ self.first) >> block == 0;
        if same && granule == self.first + self.count {
            self.count += 1;
            true
        } else if same && granule + 1 == self.first {
            (self.first, self.count) = (granule, self.count + 1);
            true
        } else {
            false
        }
    }
}

impl<'m> Colours<'m> {
    /// Metadata for `frames` frames from `base` on, none of them free. `None` if the memory is too small.
    pub(crate) fn new(
        colouring: &Colouring,
        base: FrameNo,
        frames: usize,
        memory: &mut Metadata<'m>,
    ) -> Option<Colours<'m>> {
        let Sizes { granules, colours, levels } = colouring.sizes(frames);
        let shape = Shape::new(colours)?;
        Some(Colours {
            choice: colouring.choice,
            granule: colouring.granule,
            colours: u32::try_from(colours).ok()?,
            granules: u32::try_from(granules).ok()?,
            base: u32::try_from((base.0 >> colouring.granule.get()) % colours as u64).ok()?,
            // One extra word, so that any 64 bits can be read from two words.
            free: memory.take(granules.div_ceil(64) + 1)?,
            loads: Counts::new(memory.take(bytes::words(colours))?),
            left: Counts::new(memory.take(bytes::words(colours))?),
            levels: Levels {
                words: memory.take(levels * shape.words())?,
                shape,
                count: levels,
                filled: Default::default(),
            },
            given: FreedRun::default(),
            cursor: 0,
        })
    }

    #[inline]
    pub(super) fn colour_of(&self, granule: u32) -> u32 {
        // The sum fits: there are fewer than 2^31 granules and at most 2^31 colours.
        (granule + self.base) % self.colours
    }

    /// How many granules of this granule's colour are in use.
    #[inline]
    pub(super) fn load_of(&self, granule: u32) -> u8 {
        self.loads.get(self.colour_of(granule))
    }

    /// The granules that cover these frames, entirely or in part.
    #[inline]
    pub(super) fn granules_of(&self, index: u32, frames: u32) -> (u32, u32) {
        let shift = self.granule.get();
        (index >> shift, frames.div_ceil(1 << shift))
    }

    /// Some frames at the start of a free block of order `from` are in use now.
    #[inline]
    pub(crate) fn taken(&mut self, index: u32, frames: u32, from: Order) {
        if from >= self.granule {
            self.settle();
            let (first, count) = self.granules_of(index, frames);
            self.flip(first, count, true);
        }
    }

    /// A part is free again, and has merged into a block of order `merged`.
    #[inline]
    pub(crate) fn given(&mut self, index: u32, part: Order, merged: Order) {
        if merged < self.granule {
            return;
        }
        let (first, count) = self.granules_of(index, part.frames());
        if count > 1 {
            self.settle();
            self.flip(first, count, false);
        } else if self.given.count == 0 || !self.given.extend(first, MAX_ORDER - self.granule.get()) {
            self.settle();
            self.given = FreedRun { first, count: 1 };
        }
    }

    /// Counts the pending run of freed granules. Everything that reads this metadata calls it first.
    #[inline]
    pub(crate) fn settle(&mut self) {
        if self.given.count > 0 {
            let FreedRun { first, count } = core::mem::take(&mut self.given);
            self.flip(first, count, false);
        }
    }

    /// A part is no longer in use but is being removed: it cannot be allocated.
    pub(crate) fn given_up(&mut self, index: u32, part: Order, merged: Order) {
        if merged < self.granule {
            return;
        }
        self.settle();
        let (first, count) = self.granules_of(index, part.frames());
        let colour = self.colour_of(first);
        for colour in colour..colour + count {
            self.leave_level(colour);
            self.loads.step(colour, 1, false);
            self.enter_level(colour);
        }
    }

    /// Granules were added as free, or free granules were removed: the free counts of their colours change.
    pub(crate) fn appeared(&mut self, index: u32, order: Order, appeared: bool) {
        if order < self.granule {
            return;
        }
        self.settle();
        let (first, count) = self.granules_of(index, order.frames());
        self.flip_free(first, count, !appeared);
        let colour = self.colour_of(first);
        let mut done = 0;
        while done < count {
            done += self.appear_alike(colour + done, count - done, appeared);
        }
    }

    /// Changes the free count of neighbouring colours, as many as have equal counts and are in one word.
    fn appear_alike(&mut self, colour: u32, most: u32, appeared: bool) -> u32 {
        let (load, left) = (self.loads.get(colour), self.left.get(colour));
        let to_left = if appeared { left + 1 } else { left - 1 };
        let most = most.min(64 - colour % 64);
        let count = self.loads.alike(colour, self.left.alike(colour, most));
        self.left.step(colour, count, appeared);
        // Their load stays the same. What changes is whether they have a free granule.
        if left == 0 || to_left == 0 {
            let (word, mask) = (colour as usize / 64, ones(count) << (colour % 64));
            if appeared { self.levels.insert(load, word, mask) } else { self.levels.remove(load, word, mask) }
        }
        count
    }

    fn leave_level(&mut self, colour: u32) {
        if self.left.get(colour) > 0 {
            self.levels.remove(self.loads.get(colour), colour as usize / 64, 1 << (colour % 64));
        }
    }

    fn enter_level(&mut self, colour: u32) {
        if self.left.get(colour) > 0 {
            self.levels.insert(self.loads.get(colour), colour as usize / 64, 1 << (colour % 64));
        }
    }

    /// Granules are allocated or freed. Their colours are neighbours: a block never wraps around the cache.
    #[inline]
    fn flip(&mut self, first: u32, count: u32, taken: bool) {
        self.flip_free(first, count, taken);
        let colour = self.colour_of(first);
        let mut done = 0;
        while done < count {
            done += self.flip_alike(colour + done, count - done, taken);
        }
    }

    fn flip_free(&self, first: u32, count: u32, taken: bool) {
        let mut done = 0;
        while done < count {
            let (word, bit) = ((first + done) / 64, (first + done) % 64);
            let here = (64 - bit).min(count - done);
            let mask = ones(here) << bit;
            let word = &self.free[word as usize];
            let was = word.load(Relaxed);
            word.store(if taken { was & !mask } else { was | mask }, Relaxed);
            done += here;
        }
    }

    /// Changes the loads of neighbouring colours, as many as have equal counts and are in one word, so that each set is
    /// updated once for all of them.
    #[inline]
    fn flip_alike(&mut self, colour: u32, most: u32, taken: bool) -> u32 {
        let (load, left) = (self.loads.get(colour), self.left.get(colour));
        let (to_load, to_left) = if taken { (load + 1, left - 1) } else { (load - 1, left + 1) };
        let most = most.min(64 - colour % 64);
        let count = if most == 1 { 1 } else { self.loads.alike(colour, self.left.alike(colour, most)) };
        self.loads.step(colour, count, taken);
        self.left.step(colour, count, !taken);
        let (word, mask) = (colour as usize / 64, ones(count) << (colour % 64));
        if left > 0 {
            self.levels.remove(load, word, mask);
        }
        if to_left > 0 {
            self.levels.insert(to_load, word, mask);
        }
        count
    }

    /// The 64 bits of `free` from a granule on. The granule may lie before the first one.
    pub(super) fn free_from(&self, granule: i64) -> u64 {
        let Ok(start) = usize::try_from(granule) else {
            let missing = granule.unsigned_abs();
            return if missing >= 64 { 0 } else { self.free[0].load(Relaxed) << missing };
        };
        let (word, bit) = (start / 64, start % 64);
        if word + 1 >= self.free.len() {
            return 0;
        }
        let low = self.free[word].load(Relaxed) >> bit;
        if bit == 0 { low } else { low | self.free[word + 1].load(Relaxed) << (64 - bit) }
    }

    /// The smallest load of a colour that has a free granule.
    pub(crate) fn lowest(&mut self) -> Option<usize> {
        self.settle();
        self.levels.lowest()
    }
}

/// `count` ones, at most 64.
const fn ones(count: u32) -> u64 {
    if count >= 64 { !0 } else { (1 << count) - 1 }
}

/// Recomputes the loads by colour, for [`Zone::validate`](crate::Zone::validate).
impl Colours<'_> {
    /// Compares the metadata of every granule and colour with `is_free` (entirely free and available) and `is_used`.
    pub(crate) fn agree(
        &self,
        is_free: impl Fn(u32) -> bool,
        is_used: impl Fn(u32) -> bool,
    ) -> Result<(), (u32, &'static str)> {
        for colour in 0..self.colours {
            let granules = || (0..self.granules).skip(self.first_of(colour)).step_by(self.colours as usize);
            let free = granules().filter(|&g| is_free(g)).count();
            let used = granules().filter(|&g| is_used(g)).count();
            if let Some(wrong) = granules().find(|&g| (self.free_from(i64::from(g)) & 1 == 1) != is_free(g)) {
                return Err((wrong << self.granule.get(), "the free bit of a granule is wrong"));
            }
            if usize::from(self.left.get(colour)) != free || usize::from(self.loads.get(colour)) != used {
                return Err((colour, "the load of a colour is wrong"));
            }
            let levels = (0..self.levels.count).filter(|&load| self.is_in(load, colour));
            let expected = (free > 0 && self.levels.count > 0).then_some(used);
            if !levels.eq(expected) {
                return Err((colour, "a colour is in the wrong set"));
            }
        }
        Ok(())
    }

    fn first_of(&self, colour: u32) -> usize {
        ((colour + self.colours - self.base) % self.colours) as usize
    }

    fn is_in(&self, load: usize, colour: u32) -> bool {
        self.levels.level(load).is_some_and(|tree| tree.word(colour as usize / 64) >> (colour % 64) & 1 == 1)
    }

    /// log2 of the frames of a granule.
    pub(crate) const fn granule(&self) -> Order {
        self.granule
    }

    /// Counts the colours by load, the smallest load first, for [`Zone::loads`](crate::Zone::loads).
    pub(crate) fn histogram(&self, into: &mut [u64]) {
        for colour in 0..self.colours {
            if let Some(count) = into.get_mut(usize::from(self.loads.get(colour))) {
                *count += 1;
            }
        }
    }
}
