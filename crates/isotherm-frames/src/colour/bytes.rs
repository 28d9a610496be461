//! Counts of one byte, eight to a word, so that the counts of neighbouring colours can be compared and changed
//! together.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

const ONES: u64 = 0x0101_0101_0101_0101;

/// Counts of 0 to 255.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts<'m>(&'m [AtomicU64]);

/// Words that `size` counts take.
pub(super) const fn words(size: usize) -> usize {
    size.div_ceil(8)
}

impl<'m> Counts<'m> {
    /// The counts stored in `words`.
    pub(super) const fn new(words: &'m [AtomicU64]) -> Counts<'m> {
        Counts(words)
    }

    #[inline]
    pub(super) fn get(&self, at: u32) -> u8 {
        #[expect(clippy::cast_possible_truncation, reason = "one byte is wanted")]
        let count = (self.0[at as usize / 8].load(Relaxed) >> (at % 8 * 8)) as u8;
        count
    }

    /// The words that hold `count` counts from `at` on, if these are whole words.
    #[inline]
    fn whole(&self, at: u32, count: u32) -> Option<&'m [AtomicU64]> {
        let (first, words) = (at as usize / 8, count as usize / 8);
        if (at | count).is_multiple_of(8) { self.0.get(first..first + words) } else { None }
    }

    /// How many counts from `at` on are equal, up to `most`.
    #[inline]
    pub(super) fn alike(&self, at: u32, most: u32) -> u32 {
        let same = ONES * u64::from(self.get(at));
        // Usually all of them are equal, and lie in whole words.
        if let Some(words) = self.whole(at, most)
            && words.iter().all(|word| word.load(Relaxed) == same)
        {
            return most;
        }
        let mut found = 0;
        while found < most {
            let next = at + found;
            let shift = next % 8 * 8;
            let differs = (self.0[next as usize / 8].load(Relaxed) ^ same) >> shift;
            let whole = 8 - next % 8;
            // Zeros shifted in at the top count as equal, so limit the result to the counts in this word.
            let here = (differs.trailing_zeros() / 8).min(whole);
            found += here;
            if here < whole {
                break;
            }
        }
        found.min(most)
    }

    /// Adds one to `count` counts from `at` on, or subtracts one. None overflows: loads and free counts are at most
    /// 250.
    #[inline]
    pub(super) fn step(&self, at: u32, count: u32, up: bool) {
        if let Some(words) = self.whole(at, count) {
            let add = if up { ONES } else { ONES.wrapping_neg() };
            words.iter().for_each(|word| word.store(word.load(Relaxed).wrapping_add(add), Relaxed));
            return;
        }
        let mut done = 0;
        while done < count {
            let next = at + done;
            let here = (8 - next % 8).min(count - done);
            let ones = (ONES >> (64 - here * 8)) << (next % 8 * 8);
            let word = &self.0[next as usize / 8];
            let was = word.load(Relaxed);
            word.store(if up { was.wrapping_add(ones) } else { was.wrapping_sub(ones) }, Relaxed);
            done += here;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_rng::Rng;

    #[test]
    fn counts_are_those_of_a_plain_array() {
        let words: Vec<AtomicU64> = (0..words(203)).map(|_| AtomicU64::new(0)).collect();
        let counts = Counts::new(&words);
        let mut plain = [0_u8; 203];
        let mut rng = Rng::new(7);
        for _ in 0..if cfg!(miri) { 40 } else { 5_000 } {
            let at = usize::try_from(rng.below(203)).unwrap();
            let len = usize::try_from(rng.below(64)).unwrap().min(203 - at);
            let run = &mut plain[at..at + len];
            let up = run.iter().all(|&c| c < 250) && (rng.below(2) == 0 || run.contains(&0));
            if !up && run.contains(&0) {
                continue;
            }
            run.iter_mut().for_each(|c| if up { *c += 1 } else { *c -= 1 });
            counts.step(u32::try_from(at).unwrap(), u32::try_from(len).unwrap(), up);
            assert!((0..203).all(|c| counts.get(c) == plain[c as usize]));
            let alike = plain[at..].iter().take_while(|&&c| c == plain[at]).count().min(len.max(1));
            let most = u32::try_from(len.max(1)).unwrap();
            assert_eq!(counts.alike(u32::try_from(at).unwrap(), most) as usize, alike);
        }
    }
}
