//! Selects the granule to allocate next: one of a colour with the smallest load, or the best of some drawn at random.

use super::config::Choice;
use super::loads::Colours;
use crate::Order;
use isotherm_rng::Rng;

/// How many words of colours are searched for a granule of the right migrate type before the free lists decide.
const TRIES: u32 = 32;

/// A granule found by colour.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pick {
    pub(crate) granule: u32,
    /// How many granules from there on are equally good.
    pub(crate) run: u32,
}

impl Colours<'_> {
    /// A free granule that `fits`, and how many can be allocated with it. `None`: take one from the free lists.
    pub(crate) fn pick(&mut self, rng: &mut Rng, fits: &impl Fn(u32) -> bool) -> Option<Pick> {
        match self.choice {
            Choice::Exact => self.pick_exact(fits),
            Choice::BestOf(k) => {
                let mut draw = |below: u32| u32::try_from(rng.below(u64::from(below))).unwrap_or(0);
                self.pick_random(k, &mut draw, fits)
            }
        }
    }

    /// A free granule that `fits`, of a `wanted` colour in a word, and the length of the run that it starts.
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
        // Most of the memory may be in use, so the number of draws is bounded. After that the free lists decide.
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

    /// The sum of the loads of all colours that a block of `order` would use.
    pub(crate) fn load_under(&self, index: u32, order: Order) -> u32 {
        let (first, count) = self.granules_of(index, order.frames());
        let colour = self.colour_of(first);
        (colour..colour + count).map(|c| u32::from(self.loads.get(c))).sum()
    }
}

/// The first run of free granules, counted from `start`, whose first granule `fits`.
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
