//! One bit for each of the 512 pages of a huge range.

use std::ops::{BitAnd, BitOr, Not};

/// 512 bits. Page `i` is bit `i % 64` of word `i / 64`, the layout in which page tables are read.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Mask(pub [u64; 8]);

impl Mask {
    /// No page.
    pub const NONE: Mask = Mask([0; 8]);
    /// Every page.
    pub const ALL: Mask = Mask([u64::MAX; 8]);

    /// The pages of a range that ends at 512 at most.
    pub fn of_range(pages: std::ops::Range<usize>) -> Mask {
        // The pages before `end` in the word that begins at page `first`.
        let before = |first: usize, end: usize| match end.saturating_sub(first) {
            0 => 0,
            n @ 1..64 => (1 << n) - 1,
            _ => u64::MAX,
        };
        Mask(std::array::from_fn(|word| before(word * 64, pages.end) & !before(word * 64, pages.start)))
    }

    /// Whether page `index` (0 to 511) is in.
    pub const fn has(&self, index: usize) -> bool {
        self.0[index / 64] >> (index % 64) & 1 == 1
    }

    /// Puts page `index` in.
    pub const fn set(&mut self, index: usize) {
        self.0[index / 64] |= 1 << (index % 64);
    }

    /// Takes page `index` out.
    pub const fn unset(&mut self, index: usize) {
        self.0[index / 64] &= !(1 << (index % 64));
    }

    /// How many pages before page `index` (0 to 511) are in.
    pub fn rank(&self, index: usize) -> usize {
        let whole: u32 = self.0[..index / 64].iter().map(|w| w.count_ones()).sum();
        let before = self.0[index / 64] & ((1 << (index % 64)) - 1);
        (whole + before.count_ones()) as usize
    }

    /// The last page before page `index` (0 to 512) that is in.
    pub fn last_before(&self, index: usize) -> Option<usize> {
        let last_of = |word: usize, bits: u64| bits.checked_ilog2().map(|bit| word * 64 + bit as usize);
        let whole = index / 64;
        let within = self.0.get(whole).map_or(0, |word| word & ((1 << (index % 64)) - 1));
        last_of(whole, within).or_else(|| (0..whole).rev().find_map(|word| last_of(word, self.0[word])))
    }

    /// How many pages are in.
    pub fn count(&self) -> u32 {
        self.0.iter().map(|w| w.count_ones()).sum()
    }

    /// Whether no page is in.
    pub fn is_empty(&self) -> bool {
        self.0 == [0; 8]
    }

    /// The pages that are in, ascending. Cost follows their number.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        self.0.into_iter().enumerate().flat_map(|(word, mut bits)| {
            std::iter::from_fn(move || {
                let bit = bits.trailing_zeros() as usize;
                (bits != 0).then(|| {
                    bits &= bits - 1;
                    word * 64 + bit
                })
            })
        })
    }

    fn zip(self, other: Mask, f: impl Fn(u64, u64) -> u64) -> Mask {
        Mask(std::array::from_fn(|i| f(self.0[i], other.0[i])))
    }
}

impl BitAnd for Mask {
    type Output = Mask;
    fn bitand(self, other: Mask) -> Mask {
        self.zip(other, |a, b| a & b)
    }
}

impl BitOr for Mask {
    type Output = Mask;
    fn bitor(self, other: Mask) -> Mask {
        self.zip(other, |a, b| a | b)
    }
}

impl Not for Mask {
    type Output = Mask;
    fn not(self) -> Mask {
        Mask(self.0.map(|w| !w))
    }
}

impl FromIterator<usize> for Mask {
    fn from_iter<I: IntoIterator<Item = usize>>(pages: I) -> Mask {
        let mut mask = Mask::NONE;
        for page in pages {
            mask.set(page);
        }
        mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_page_before_another_is_the_last_of_those_that_come_first() {
        let mask: Mask = [0, 1, 63, 64, 200, 511].into_iter().collect();
        for index in 0..=512 {
            assert_eq!(mask.last_before(index), mask.iter().filter(|page| *page < index).last(), "{index}");
        }
        assert_eq!(Mask::NONE.last_before(512), None);
    }

    #[test]
    fn iterating_gives_back_what_was_set() {
        let pages = [0, 1, 63, 64, 200, 511];
        let mask: Mask = pages.into_iter().collect();
        assert_eq!(mask.iter().collect::<Vec<_>>(), pages);
        assert_eq!((mask.count(), (!mask).count()), (6, 506));
        assert_eq!([0, 1, 63, 64, 65, 201, 511].map(|page| mask.rank(page)), [0, 1, 2, 3, 4, 5, 5]);
        for (first, end) in
            [(0, 0), (0, 1), (0, 64), (3, 64), (63, 65), (64, 128), (200, 511), (0, 512), (511, 512), (9, 9)]
        {
            assert_eq!(Mask::of_range(first..end), (first..end).collect(), "{first} to {end}");
        }
        let mut fewer = mask;
        fewer.unset(64);
        assert_eq!(fewer.iter().collect::<Vec<_>>(), [0, 1, 63, 200, 511]);
        assert!((mask & !mask).is_empty() && (mask | !mask) == Mask::ALL);
    }
}
