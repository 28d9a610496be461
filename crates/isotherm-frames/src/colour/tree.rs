//! A set of small numbers with a fast "next": bits, and above them bits that say which words have any, up to a single word.
//!
//! For the 16 million colours of a 64 GiB cache that is four tiers, one word read in each. The words are the caller's.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

const MOST_TIERS: usize = 6;

/// The set. Numbers are told by word (64 of them) and mask.
#[derive(Debug)]
pub(super) struct Tree<'m> {
    tiers: [&'m [AtomicU64]; MOST_TIERS],
    count: usize,
}

/// Words that a set of numbers below `size` takes, in all tiers.
pub(super) const fn words(size: usize) -> usize {
    let mut all = 0;
    let mut tier = size.div_ceil(64);
    while tier > 1 {
        all += tier;
        tier = tier.div_ceil(64);
    }
    all + 1
}

impl<'m> Tree<'m> {
    /// An empty set in words that are all zero, [`words`] of them.
    pub(super) fn new(size: usize, mut words: &'m [AtomicU64]) -> Option<Tree<'m>> {
        let mut tiers: [&[AtomicU64]; MOST_TIERS] = [&[]; MOST_TIERS];
        let mut tier = size.div_ceil(64).max(1);
        let mut count = 0;
        loop {
            let (mine, rest) = words.split_at_checked(tier)?;
            *tiers.get_mut(count)? = mine;
            (words, count) = (rest, count + 1);
            if tier == 1 {
                return Some(Tree { tiers, count });
            }
            tier = tier.div_ceil(64);
        }
    }

    #[inline]
    pub(super) fn word(&self, word: usize) -> u64 {
        self.tiers[0][word].load(Relaxed)
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.tiers[self.count - 1][0].load(Relaxed) == 0
    }

    #[inline]
    pub(super) fn insert(&self, word: usize, mask: u64) {
        let mut at = word;
        let mut mask = mask;
        for tier in &self.tiers[..self.count] {
            let was = tier[at].load(Relaxed);
            tier[at].store(was | mask, Relaxed);
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
        for tier in &self.tiers[..self.count] {
            let left = tier[at].load(Relaxed) & !mask;
            tier[at].store(left, Relaxed);
            if left != 0 {
                return;
            }
            mask = 1 << (at % 64);
            at /= 64;
        }
    }

    /// The first word from `from` on that has a number in it.
    pub(super) fn next(&self, from: usize) -> Option<usize> {
        if self.tiers[0].get(from)?.load(Relaxed) != 0 {
            return Some(from);
        }
        // Up until a word has something to the right of where we came from, then down along the first bits.
        let mut at = from;
        for up in 1..self.count {
            let right = self.tiers[up][at / 64].load(Relaxed) & (!0 << (at % 64)) & !(1 << (at % 64));
            at /= 64;
            if right != 0 {
                let mut found = at * 64 + right.trailing_zeros() as usize;
                for down in (1..up).rev() {
                    found = found * 64 + self.tiers[down][found].load(Relaxed).trailing_zeros() as usize;
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
        for size in [1, 64, 65, 4096, 4097, 300_000] {
            let bits: Vec<AtomicU64> = (0..words(size)).map(|_| AtomicU64::new(0)).collect();
            let tree = Tree::new(size, &bits).unwrap();
            let mut set = BTreeSet::new();
            let mut rng = Rng::new(size as u64);
            for step in 0..3_000 {
                let number = usize::try_from(rng.below(size as u64)).unwrap();
                if rng.below(3) < 2 && step < 1_500 {
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
        let bits: Vec<AtomicU64> = (0..words(5000) - 1).map(|_| AtomicU64::new(0)).collect();
        assert!(Tree::new(5000, &bits).is_none());
    }
}
