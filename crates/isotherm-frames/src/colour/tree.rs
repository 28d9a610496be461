//! A set of small numbers with a fast "next": a bitmap, with further bitmaps above it of which words are not empty, up
//! to a single word.
//!
//! The 16 million colours of a 64 GiB cache take four tiers, and one word is read in each. The caller supplies the words.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

const MAX_TIERS: usize = 6;

/// Where the tiers of a set begin in its words, the lowest first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    starts: [u32; MAX_TIERS],
    tiers: usize,
    words: usize,
    lowest: usize,
}

impl Shape {
    /// The shape of sets of numbers below `size`; `None` if `size` is more than 2^32.
    pub(super) fn new(size: usize) -> Option<Shape> {
        let lowest = size.div_ceil(64).max(1);
        let mut shape = Shape { starts: [0; MAX_TIERS], tiers: 0, words: 0, lowest };
        let mut tier = lowest;
        loop {
            *shape.starts.get_mut(shape.tiers)? = u32::try_from(shape.words).ok()?;
            shape.words += tier;
            shape.tiers += 1;
            if tier == 1 {
                return Some(shape);
            }
            tier = tier.div_ceil(64);
        }
    }

    /// Number of words of a set, all tiers included.
    pub(super) const fn words(&self) -> usize {
        self.words
    }
}

/// The set. Numbers are addressed by word (64 numbers) and mask.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tree<'m> {
    words: &'m [AtomicU64],
    shape: &'m Shape,
}

impl<'m> Tree<'m> {
    /// The set in these words, which must be [`Shape::words`] many. If all are zero, the set is empty.
    #[inline]
    pub(super) fn new(shape: &'m Shape, words: &'m [AtomicU64]) -> Option<Tree<'m>> {
        (words.len() == shape.words).then_some(Tree { words, shape })
    }

    #[inline]
    fn at(&self, tier: usize, word: usize) -> &'m AtomicU64 {
        &self.words[self.shape.starts[tier] as usize + word]
    }

    #[inline]
    pub(super) fn word(&self, word: usize) -> u64 {
        self.words[word].load(Relaxed)
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.words[self.words.len() - 1].load(Relaxed) == 0
    }

    #[inline]
    pub(super) fn insert(&self, word: usize, mask: u64) {
        let mut at = word;
        let mut mask = mask;
        for tier in 0..self.shape.tiers {
            let word = self.at(tier, at);
            let was = word.load(Relaxed);
            word.store(was | mask, Relaxed);
            if was != 0 || mask == 0 {
                return;
            }
            mask = 1 << (at % 64);
            at /= 64;
        }
    }

    #[inline]
    pub(super) fn remove(&self, word: usize, mask: u64) {
        let mut at = word;
        let mut mask = mask;
        for tier in 0..self.shape.tiers {
            let word = self.at(tier, at);
            let left = word.load(Relaxed) & !mask;
            word.store(left, Relaxed);
            if left != 0 {
                return;
            }
            mask = 1 << (at % 64);
            at /= 64;
        }
    }

    /// The first word from `from` on that is not empty.
    pub(super) fn next(&self, from: usize) -> Option<usize> {
        if from >= self.shape.lowest {
            return None;
        }
        if self.word(from) != 0 {
            return Some(from);
        }
        // Go up until a word has a bit to the right of the current path, then down along the first bits.
        let mut at = from;
        for up in 1..self.shape.tiers {
            let right = self.at(up, at / 64).load(Relaxed) & (!0 << (at % 64)) & !(1 << (at % 64));
            at /= 64;
            if right != 0 {
                let mut found = at * 64 + right.trailing_zeros() as usize;
                for down in (1..up).rev() {
                    found = found * 64 + self.at(down, found).load(Relaxed).trailing_zeros() as usize;
                }
                return Some(found);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_rng::Rng;
    use std::collections::BTreeSet;

    fn naive_next(set: &BTreeSet<usize>, from: usize) -> Option<usize> {
        set.range(from * 64..).next().map(|n| n / 64)
    }

    #[test]
    fn the_next_word_is_that_of_a_plain_set() {
        let steps = if cfg!(miri) { 60 } else { 3_000 };
        for size in [1, 64, 65, 4096, 4097, 300_000] {
            let shape = Shape::new(size).unwrap();
            let bits: Vec<AtomicU64> = (0..shape.words()).map(|_| AtomicU64::new(0)).collect();
            let tree = Tree::new(&shape, &bits).unwrap();
            let mut set = BTreeSet::new();
            let mut rng = Rng::new(size as u64);
            for step in 0..steps {
                let number = usize::try_from(rng.below(size as u64)).unwrap();
                if rng.below(3) < 2 && step < steps / 2 {
                    set.insert(number);
                    tree.insert(number / 64, 1 << (number % 64));
                } else {
                    let number = set.iter().next().copied().unwrap_or(number);
                    set.remove(&number);
                    tree.remove(number / 64, 1 << (number % 64));
                }
                let from = usize::try_from(rng.below(size.div_ceil(64) as u64)).unwrap();
                assert_eq!(tree.next(from), naive_next(&set, from), "size {size}, step {step}");
                assert_eq!(tree.is_empty(), set.is_empty());
            }
        }
    }

    #[test]
    fn too_few_words_are_refused() {
        let shape = Shape::new(5000).unwrap();
        let bits: Vec<AtomicU64> = (0..shape.words() - 1).map(|_| AtomicU64::new(0)).collect();
        assert!(Tree::new(&shape, &bits).is_none());
    }
}
