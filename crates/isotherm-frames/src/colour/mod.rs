//! Colouring: frames that compete for a place in a direct-mapped memory-side cache are handed out evenly.
//!
//! In such a cache, frames whose numbers are equal modulo the cache's frames throw each other out; they are said to have the same
//! colour. Shuffling makes it a matter of chance how many frames of a colour are in use; counting makes it none. So: for every
//! colour, how many of its frames are taken (its load), and for every load, the set of colours that have it and a free frame. The
//! next frame is one of a colour of the smallest load. As long as the frames in use fit into the cache, no two of them share a
//! colour, whatever was freed in between. (Frames that wait in per-CPU sets count as in use, and where migrate types have page blocks of
//! their own, a type may have run out of the best colours: then it gets the best that a bounded search finds.)
//!
//! The unit is a *granule*, a block of an order of the caller's choice: 4 KiB where frames are handed out singly, 2 MiB where huge
//! pages are. Blocks of that order are placed exactly. Smaller ones come from granules already begun, then from the best new one;
//! larger ones are the best of a few candidates. The other choice, best of k random granules, is there to be compared with: it is
//! the better shuffle, at a fraction of the books, and it does not reach zero.
//!
//! Costs, for memory of R caches: a bit and 2/R bytes a granule, and R + 1 bits a colour. Time is spent where the zone's lock is
//! held, once a refill, on words of 64 colours at a time; handing out from a per-CPU set does not get here.
//!
//! A colour is a frame's number modulo the cache, as the kernel describes direct-mapped caches. What a memory controller hashes
//! on top of that is not known here.

mod bytes;
mod tree;

use crate::memory::{Metadata, bytes_for};
use crate::zone::books::{Books, Placement, Run, part_for};
use crate::zone::lists::Kind;
use crate::{FrameNo, MAX_ORDER, MigrateType, Order, PAGE_BLOCK_ORDER};
use bytes::Counts;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use tree::{Shape, Tree};

/// Loads are bytes: memory of more caches than this is not coloured.
const MOST_LAYERS: u64 = 250;
const MOST_LEVELS: usize = 256;
/// Words of colours looked at for one whose granules are of the right migrate type, before the lists decide.
const TRIES: u32 = 32;
/// Granules that may be compared for one allocation: more would hold the zone's lock for longer than they improve anything.
const MOST_CANDIDATES: u32 = 64;
/// Candidates for blocks larger than a granule, from the head of their list.
const CANDIDATES: u32 = 8;

/// How frames are chosen by colour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// Of a colour with the smallest load.
    Exact,
    /// Of the colour with the smallest load among this many free granules drawn at random, 1 to 64; 1 is random placement.
    BestOf(u32),
}

/// A direct-mapped cache to place for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Colouring {
    /// Its size in frames: frames this far apart compete. A multiple of 1,024. In one that is larger than the zone's span no two
    /// frames compete: then there are as many colours as granules.
    pub cache_frames: u64,
    /// The blocks that are counted by colour: the order that most allocations have.
    pub granule: Order,
    /// How to choose.
    pub choice: Choice,
}

/// Sizes that follow from a colouring and a span.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    granules: usize,
    colours: usize,
    levels: usize,
}

impl Colouring {
    /// A cache of `cache_frames`, exactly, for single frames.
    pub const fn exact(cache_frames: u64) -> Colouring {
        Colouring { cache_frames, granule: Order::FRAME, choice: Choice::Exact }
    }

    /// What is wrong with it, for `frames` frames of memory.
    pub(crate) fn check(&self, frames: u64) -> Result<(), &'static str> {
        let largest = u64::from(Order::MAX.frames());
        if self.cache_frames == 0 || !self.cache_frames.is_multiple_of(largest) {
            return Err("the cache must be a multiple of 1,024 frames (4 MiB)");
        }
        if frames / self.cache_frames >= MOST_LAYERS {
            return Err(
                "the memory is more than 250 times the cache: give a larger cache, or colour a part of the memory",
            );
        }
        match self.choice {
            Choice::BestOf(0) => Err("the best of 0 candidates: give at least 1"),
            Choice::BestOf(k) if k > MOST_CANDIDATES => {
                Err("the best of more than 64 candidates: give fewer, or Exact")
            }
            _ => Ok(()),
        }
    }

    fn sizes(&self, frames: usize) -> Sizes {
        let shift = self.granule.get();
        let granules = frames >> shift;
        let colours = usize::try_from(self.cache_frames >> shift).map_or(granules, |colours| colours.min(granules));
        let levels = match self.choice {
            Choice::Exact => granules.div_ceil(colours) + 1,
            Choice::BestOf(_) => 0,
        };
        Sizes { granules, colours: colours.max(1), levels }
    }

    /// Bytes of metadata for `frames` frames.
    pub(crate) fn metadata_bytes(&self, frames: usize) -> usize {
        let Sizes { granules, colours, levels } = self.sizes(frames);
        bytes_for::<AtomicU64>(granules.div_ceil(64) + 1)
            + 2 * bytes_for::<AtomicU64>(bytes::words(colours))
            + bytes_for::<AtomicU64>(levels * Shape::new(colours).map_or(0, |shape| shape.words()))
    }
}

/// The books by colour.
#[derive(Debug)]
pub(crate) struct Colours<'m> {
    choice: Choice,
    granule: Order,
    colours: u32,
    granules: u32,
    /// Colour of the first granule.
    base: u32,
    /// A bit for each granule that is wholly free and can be handed out.
    free: &'m [AtomicU64],
    /// For each colour, how many of its granules are in use, also in part.
    loads: Counts<'m>,
    /// For each colour, how many of its granules are free.
    left: Counts<'m>,
    /// For each load, the colours that have it and a free granule.
    levels: Levels<'m>,
    given: Given,
    /// The word of colours that the last granule came from.
    cursor: usize,
}

/// For each load a set of colours, and which of these are not empty.
#[derive(Debug)]
struct Levels<'m> {
    words: &'m [AtomicU64],
    shape: Shape,
    count: usize,
    filled: [u64; MOST_LEVELS / 64],
}

impl Levels<'_> {
    #[inline]
    fn level(&self, load: usize) -> Option<Tree<'_>> {
        let start = load * self.shape.words();
        self.words.get(start..start + self.shape.words()).and_then(|words| Tree::new(&self.shape, words))
    }

    #[inline]
    fn insert(&mut self, load: u8, word: usize, mask: u64) {
        let load = usize::from(load);
        if let Some(tree) = self.level(load) {
            tree.insert(word, mask);
            self.filled[load / 64] |= 1 << (load % 64);
        }
    }

    #[inline]
    fn remove(&mut self, load: u8, word: usize, mask: u64) {
        let load = usize::from(load);
        if let Some(tree) = self.level(load) {
            tree.remove(word, mask);
            if tree.is_empty() {
                self.filled[load / 64] &= !(1 << (load % 64));
            }
        }
    }

    /// The loads that colours with a free granule have, the smallest first.
    fn loads(&self) -> impl Iterator<Item = usize> {
        let words = self.filled.into_iter().enumerate();
        words.flat_map(|(at, word)| (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at * 64 + bit))
    }

    /// The smallest of these.
    #[inline]
    fn lowest(&self) -> Option<usize> {
        let found = self.filled.iter().position(|&word| word != 0)?;
        Some(found * 64 + self.filled[found].trailing_zeros() as usize)
    }
}

/// Granules next to each other that were given back and are not yet booked: frames that were taken together are given back together,
/// and a run of them costs what one costs.
#[derive(Clone, Copy, Debug, Default)]
struct Given {
    first: u32,
    count: u32,
}

impl Given {
    /// Adds a granule at either end, if it is next to these, and in the same block of the largest order (2^`block` granules): their
    /// colours are neighbours then.
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

/// A granule found by colour.
#[derive(Clone, Copy, Debug)]
struct Pick {
    granule: u32,
    /// How many from there on would do as well.
    run: u32,
}

impl<'m> Colours<'m> {
    /// Books for `frames` frames from `base` on, none of them free. `None`: too little memory.
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
            // One word more, so that any 64 bits can be read from two.
            free: memory.take(granules.div_ceil(64) + 1)?,
            loads: Counts::new(memory.take(bytes::words(colours))?),
            left: Counts::new(memory.take(bytes::words(colours))?),
            levels: Levels {
                words: memory.take(levels * shape.words())?,
                shape,
                count: levels,
                filled: Default::default(),
            },
            given: Given::default(),
            cursor: 0,
        })
    }

    #[inline]
    fn colour_of(&self, granule: u32) -> u32 {
        // The sum fits: there are fewer than 2^31 granules and at the most 2^31 colours.
        (granule + self.base) % self.colours
    }

    /// How many granules of this colour are in use.
    #[inline]
    fn load_of(&self, granule: u32) -> u8 {
        self.loads.get(self.colour_of(granule))
    }

    /// The granules that some frames stand for: all that they cover, also in part.
    #[inline]
    fn granules_of(&self, index: u32, frames: u32) -> (u32, u32) {
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

    /// A part is free again, and has merged to a block of order `merged`.
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
            self.given = Given { first, count: 1 };
        }
    }

    /// Books what was given back. Everything that reads the books of colours begins with it.
    #[inline]
    pub(crate) fn settle(&mut self) {
        if self.given.count > 0 {
            let Given { first, count } = core::mem::take(&mut self.given);
            self.flip(first, count, false);
        }
    }

    /// A part is no longer in use, but on its way out: nobody can have it.
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

    /// Granules that become present and free, or are free and go away: their colours have more or fewer of them.
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

    /// Neighbouring colours have one free granule more or fewer, as many as are alike and in one word.
    fn appear_alike(&mut self, colour: u32, most: u32, appeared: bool) -> u32 {
        let (load, left) = (self.loads.get(colour), self.left.get(colour));
        let to_left = if appeared { left + 1 } else { left - 1 };
        let most = most.min(64 - colour % 64);
        let count = self.loads.alike(colour, self.left.alike(colour, most));
        self.left.step(colour, count, appeared);
        // They keep their load; what changes is whether there is anything of them to be had.
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

    /// Granules go into use or out of it. Their colours are neighbours: a block never wraps around the cache.
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

    /// Changes the loads of neighbouring colours, as many as are alike and in one word, so that the sets are changed once for all.
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

    /// The 64 bits of `free` from a granule on, which may lie before the first.
    fn free_from(&self, granule: i64) -> u64 {
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

    /// The smallest load that a colour with a free granule has.
    pub(crate) fn lowest(&mut self) -> Option<usize> {
        self.settle();
        self.levels.lowest()
    }

    /// A free granule of a colour in a word, that `fits`, with how many alike follow.
    fn pick_in_word(&self, word: usize, wanted: u64, fits: &impl Fn(u32) -> bool) -> Option<Pick> {
        let layers = i64::from(self.granules.div_ceil(self.colours)) + 1;
        let mut best: Option<Pick> = None;
        for layer in 0..layers {
            let start = layer * i64::from(self.colours) + word as i64 * 64 - i64::from(self.base);
            let free = self.free_from(start) & wanted;
            if free == 0 {
                continue;
            }
            let found = first_fit(free, start, fits);
            if let Some(pick) = found
                && best.is_none_or(|b| pick.run > b.run)
            {
                best = Some(pick);
                if free == wanted {
                    break;
                }
            }
        }
        best
    }

    /// The best granule that `fits`, after at most [`TRIES`] words of colours.
    fn pick_exact(&mut self, fits: &impl Fn(u32) -> bool) -> Option<Pick> {
        let mut tries = TRIES;
        for load in self.levels.loads() {
            let tree = self.levels.level(load)?;
            let mut wrapped = false;
            let mut word = self.cursor;
            while tries > 0 {
                let Some(found) = tree.next(word) else {
                    if wrapped || self.cursor == 0 {
                        break;
                    }
                    (wrapped, word) = (true, 0);
                    continue;
                };
                if wrapped && found >= self.cursor {
                    break;
                }
                if let Some(pick) = self.pick_in_word(found, tree.word(found), fits) {
                    self.cursor = found;
                    return Some(pick);
                }
                tries -= 1;
                word = found + 1;
            }
        }
        None
    }

    /// The best of `k` free granules drawn at random.
    fn pick_random(&self, k: u32, draw: &mut impl FnMut(u32) -> u32, fits: &impl Fn(u32) -> bool) -> Option<Pick> {
        let mut best: Option<(u8, u32)> = None;
        let mut found = 0;
        // Most of the memory may be in use: a bounded number of draws, then the lists decide.
        for _ in 0..k * 16 {
            let granule = draw(self.granules);
            if self.free_from(i64::from(granule)) & 1 == 0 || !fits(granule) {
                continue;
            }
            let load = self.load_of(granule);
            if best.is_none_or(|(least, _)| load < least) {
                best = Some((load, granule));
            }
            found += 1;
            if found == k {
                break;
            }
        }
        best.map(|(_, granule)| Pick { granule, run: 1 })
    }

    /// The sum of the loads of the colours that a block of `order` would take.
    fn load_under(&self, index: u32, order: Order) -> u32 {
        let (first, count) = self.granules_of(index, order.frames());
        let colour = self.colour_of(first);
        (colour..colour + count).map(|c| u32::from(self.loads.get(c))).sum()
    }
}

/// The first run of free granules, counted from `start`, that may be taken: granules of other page blocks may not.
#[inline]
fn first_fit(free: u64, start: i64, fits: &impl Fn(u32) -> bool) -> Option<Pick> {
    let mut left = free;
    while left != 0 {
        let bit = left.trailing_zeros();
        let run = (left >> bit).trailing_ones();
        let granule = u32::try_from(start + i64::from(bit)).ok()?;
        if fits(granule) {
            return Some(Pick { granule, run });
        }
        left &= left - 1;
    }
    None
}

/// `count` ones, 64 at the most.
const fn ones(count: u32) -> u64 {
    if count >= 64 { !0 } else { (1 << count) - 1 }
}

/// Takes up to `most` blocks of `order` next to each other, placed by colour; what colours cannot tell, the lists do.
pub(crate) fn take_run(books: &mut Books<'_>, order: Order, migrate: MigrateType, most: u32) -> Option<Run> {
    let colours = books.placement.colours.as_mut()?;
    colours.settle();
    let granule = colours.granule;
    let begun = books.lists.smallest(order, Kind::Of(migrate)).is_some_and(|o| o < granule);
    if order > granule {
        return take_best_listed(books, order, migrate);
    }
    if begun {
        return books.take_run_anywhere(order, migrate, most);
    }
    match pick(books, migrate) {
        Some(pick) => take_pick(books, pick, order, migrate, most),
        None => take_best_listed(books, order, migrate),
    }
}

fn pick(books: &mut Books<'_>, migrate: MigrateType) -> Option<Pick> {
    let lie = books.lie();
    let Placement { colours, rng, .. } = &mut books.placement;
    let colours = colours.as_mut()?;
    let shift = colours.granule.get();
    let fits = |granule: u32| {
        let index = granule << shift;
        let block = lie.page_block(index);
        !block.is_isolated()
            && (block.migrate() == migrate
                || lie.covering(index, Order::FRAME).is_some_and(|(_, order)| order.get() >= PAGE_BLOCK_ORDER))
    };
    match colours.choice {
        Choice::Exact => colours.pick_exact(&fits),
        Choice::BestOf(k) => {
            let mut draw = |below: u32| u32::try_from(rng.below(u64::from(below))).unwrap_or(0);
            colours.pick_random(k, &mut draw, &fits)
        }
    }
}

/// Takes what was picked: as much of the run as is one block and not more than asked for.
fn take_pick(books: &mut Books<'_>, pick: Pick, order: Order, migrate: MigrateType, most: u32) -> Option<Run> {
    let granule = books.placement.colours.as_ref()?.granule;
    let index = pick.granule << granule.get();
    // As much as one block can be: aligned, free as one, of neighbouring colours, asked for. What is free, aligned and of the size of a
    // block has merged to one, so smaller ones need not be looked for.
    let run = Order::new(index.trailing_zeros().min(MAX_ORDER).min(granule.get() + pick.run.ilog2()))?;
    let (head, from) = books.lie().covering(index, run).or_else(|| books.lie().covering(index, granule))?;
    if books.page_block(head).migrate() != migrate {
        books.claim_whole(head, from, migrate);
    }
    let part = run.min(from).min(part_for(order, most)).max(order);
    books.remove(head, from);
    let first = books.split(head, from, part, index);
    Some(books.took(first, part, from, order, most))
}

/// Takes the first few blocks of the list that serves this order, and keeps the one whose colours are least in use.
fn take_best_listed(books: &mut Books<'_>, order: Order, migrate: MigrateType) -> Option<Run> {
    let kind = Kind::Of(migrate);
    let Some(found) = books.lists.smallest(order, kind) else { return books.take_run_anywhere(order, migrate, 1) };
    let colours = books.placement.colours.as_ref()?;
    let listed = core::iter::successors(books.lists.first(found, kind), |&block| books.lists.after(block, found));
    let best = listed.take(CANDIDATES as usize).min_by_key(|&block| colours.load_under(block, order))?;
    books.take_at(best, order)
}

/// Loads by colour, recomputed: for [`Zone::validate`](crate::Zone::validate).
impl Colours<'_> {
    /// Whether the books say of every granule and colour what `is_free` (wholly free, and to be handed out) and `is_there` say.
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

    /// How many colours have each load, the smallest first: what [`Zone::loads`](crate::Zone::loads) gives.
    pub(crate) fn histogram(&self, into: &mut [u64]) {
        for colour in 0..self.colours {
            if let Some(count) = into.get_mut(usize::from(self.loads.get(colour))) {
                *count += 1;
            }
        }
    }
}
