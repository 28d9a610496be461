//! The lists of one CPU or thread as plain words, for a single thread or for the holder of a lock.
//!
//! They are words of the caller's memory, like everything here. Locked lists and owned lists only differ in who may call.

use crate::percpu::LISTS;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

/// Words before the entries: a count for each list, then a limit.
const HEAD: usize = 2 * LISTS;

/// Where the entries of each list begin, and where the last ones end.
pub(crate) type Starts = [u32; LISTS + 1];

/// Lists of block indices, each a stack with a limit. The entries of one list follow those of the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListWords<'m, 's> {
    words: &'m [AtomicU32],
    starts: &'s Starts,
}

/// Words that lists of these capacities take in total.
pub(crate) fn words(capacities: &[u32; LISTS]) -> usize {
    HEAD + capacities.iter().map(|&c| c as usize).sum::<usize>()
}

/// Where lists of these capacities begin.
pub(crate) fn starts(capacities: &[u32; LISTS]) -> Starts {
    let mut starts = [0; LISTS + 1];
    for list in 0..LISTS {
        starts[list + 1] = starts[list] + capacities[list];
    }
    starts
}

impl<'m, 's> ListWords<'m, 's> {
    /// The lists in `words`, which must be as many as [`words`] returns for the capacities behind `starts`.
    #[inline]
    pub(crate) const fn new(words: &'m [AtomicU32], starts: &'s Starts) -> ListWords<'m, 's> {
        ListWords { words, starts }
    }

    /// Empties all lists and sets their limits to their capacities.
    pub(crate) fn clear(&self) {
        for list in 0..LISTS {
            self.count_word(list).store(0, Relaxed);
            self.set_limit(list, u32::MAX);
        }
    }

    #[inline]
    fn count_word(&self, list: usize) -> &'m AtomicU32 {
        &self.words[list]
    }

    #[inline]
    fn slot(&self, list: usize, at: u32) -> &'m AtomicU32 {
        &self.words[HEAD + (self.starts[list] + at) as usize]
    }

    #[inline]
    pub(crate) fn count(&self, list: usize) -> u32 {
        self.count_word(list).load(Relaxed)
    }

    pub(crate) fn set_limit(&self, list: usize, limit: u32) {
        self.words[LISTS + list].store(limit.min(self.starts[list + 1] - self.starts[list]), Relaxed);
    }

    #[inline]
    pub(crate) fn push(&self, list: usize, index: u32) -> bool {
        let count = self.count(list);
        if count >= self.words[LISTS + list].load(Relaxed) {
            return false;
        }
        self.slot(list, count).store(index, Relaxed);
        self.count_word(list).store(count + 1, Relaxed);
        true
    }

    #[inline]
    pub(crate) fn pop(&self, list: usize) -> Option<u32> {
        let count = self.count(list).checked_sub(1)?;
        self.count_word(list).store(count, Relaxed);
        Some(self.slot(list, count).load(Relaxed))
    }

    /// Pushes from the front until the list is full; returns how many.
    pub(crate) fn push_many(&self, list: usize, indices: &[u32]) -> usize {
        indices.iter().take_while(|&&index| self.push(list, index)).count()
    }

    /// Takes the newest blocks, in list order: the newest last.
    pub(crate) fn pop_many(&self, list: usize, into: &mut [u32]) -> usize {
        let got = into.len().min(self.count(list) as usize);
        for slot in into[..got].iter_mut().rev() {
            *slot = self.pop(list).unwrap_or_default();
        }
        got
    }

    /// Copies the oldest blocks without the `skip` oldest, in list order; returns how many. They stay in the list.
    pub(crate) fn copy_oldest(&self, list: usize, skip: u32, into: &mut [u32]) -> usize {
        let some = into.len().min(self.count(list).saturating_sub(skip) as usize);
        for (at, slot) in (skip..).zip(&mut into[..some]) {
            *slot = self.slot(list, at).load(Relaxed);
        }
        some
    }

    /// Removes the `blocks` oldest blocks, or all. The others move down, a word at a time.
    pub(crate) fn forget_oldest(&self, list: usize, blocks: u32) {
        let count = self.count(list);
        let left = count.saturating_sub(blocks);
        for at in 0..left {
            let moved = self.slot(list, at + (count - left)).load(Relaxed);
            self.slot(list, at).store(moved, Relaxed);
        }
        self.count_word(list).store(left, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_stacks_with_limits() {
        let mut capacities = [2; LISTS];
        capacities[3] = 5;
        let memory: Vec<AtomicU32> = (0..words(&capacities)).map(|_| AtomicU32::new(0)).collect();
        let starts = starts(&capacities);
        let list_words = ListWords::new(&memory, &starts);
        list_words.clear();
        assert_eq!(list_words.push_many(3, &[1, 2, 3, 4, 5, 6]), 5);
        assert_eq!(list_words.push_many(4, &[7, 8, 9]), 2);
        let mut three = [0; 3];
        assert_eq!((list_words.pop_many(3, &mut three[..2]), three), (2, [4, 5, 0]));
        assert_eq!((list_words.pop(3), list_words.pop(4)), (Some(3), Some(8)));
        assert_eq!((list_words.pop_many(3, &mut three), three), (2, [1, 2, 0]));
        assert_eq!((list_words.pop(3), list_words.count(3), list_words.count(4)), (None, 0, 1));
        list_words.set_limit(3, 1);
        assert!(list_words.push(3, 1) && !list_words.push(3, 2));
        list_words.set_limit(3, 100);
        assert_eq!(list_words.push_many(3, &[2, 3, 4, 5, 6]), 4);
        assert_eq!((list_words.copy_oldest(3, 1, &mut three), three), (3, [2, 3, 4]));
        assert_eq!((list_words.copy_oldest(3, 4, &mut three), three), (1, [5, 3, 4]));
        assert_eq!(list_words.copy_oldest(3, 6, &mut three), 0);
        list_words.forget_oldest(3, 2);
        assert_eq!((list_words.pop_many(3, &mut three), three), (3, [3, 4, 5]));
        list_words.forget_oldest(3, 1);
        assert_eq!((list_words.count(3), list_words.count(4)), (0, 1));
    }
}
