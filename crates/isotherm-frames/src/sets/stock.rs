//! The blocks of one set as plain memory: for one thread, or for whoever holds a lock.

use crate::percpu::LISTS;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

/// Lists of block indices, each a stack with a limit. Entries lie one list after the other.
#[derive(Debug)]
pub(crate) struct Stock<'m> {
    entries: &'m [AtomicU32],
    starts: [u32; LISTS + 1],
    counts: [u32; LISTS],
    limits: [u32; LISTS],
}

/// Entries that lists of these capacities take together.
pub(crate) fn entries(capacities: &[u32; LISTS]) -> usize {
    capacities.iter().map(|&c| c as usize).sum()
}

impl<'m> Stock<'m> {
    /// Empty lists. `entries` has room for all of them; what is missing, the last ones lack.
    pub(crate) fn new(capacities: &[u32; LISTS], entries: &'m [AtomicU32]) -> Stock<'m> {
        let mut starts = [0; LISTS + 1];
        for list in 0..LISTS {
            let room = u32::try_from(entries.len()).unwrap_or(u32::MAX) - starts[list];
            starts[list + 1] = starts[list] + capacities[list].min(room);
        }
        let limits = core::array::from_fn(|list| starts[list + 1] - starts[list]);
        Stock { entries, starts, counts: [0; LISTS], limits }
    }

    #[inline]
    fn slot(&self, list: usize, at: u32) -> &'m AtomicU32 {
        &self.entries[(self.starts[list] + at) as usize]
    }

    #[inline]
    pub(crate) fn count(&self, list: usize) -> u32 {
        self.counts[list]
    }

    pub(crate) fn set_limit(&mut self, list: usize, limit: u32) {
        self.limits[list] = limit.min(self.starts[list + 1] - self.starts[list]);
    }

    #[inline]
    pub(crate) fn push(&mut self, list: usize, index: u32) -> bool {
        let count = self.counts[list];
        if count >= self.limits[list] {
            return false;
        }
        self.slot(list, count).store(index, Relaxed);
        self.counts[list] = count + 1;
        true
    }

    #[inline]
    pub(crate) fn pop(&mut self, list: usize) -> Option<u32> {
        let count = self.counts[list].checked_sub(1)?;
        self.counts[list] = count;
        Some(self.slot(list, count).load(Relaxed))
    }

    /// Pushes from the front until the list is full; how many.
    pub(crate) fn push_many(&mut self, list: usize, indices: &[u32]) -> usize {
        indices.iter().take_while(|&&index| self.push(list, index)).count()
    }

    /// Takes the newest, in the order in which they lie: the newest last.
    pub(crate) fn pop_many(&mut self, list: usize, into: &mut [u32]) -> usize {
        let got = into.len().min(self.counts[list] as usize);
        for slot in into[..got].iter_mut().rev() {
            *slot = self.pop(list).unwrap_or_default();
        }
        got
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_stacks_with_limits() {
        let mut capacities = [2; LISTS];
        capacities[3] = 5;
        let words: Vec<AtomicU32> = (0..entries(&capacities)).map(|_| AtomicU32::new(0)).collect();
        let mut stock = Stock::new(&capacities, &words);
        assert_eq!(stock.push_many(3, &[1, 2, 3, 4, 5, 6]), 5);
        assert_eq!(stock.push_many(4, &[7, 8, 9]), 2);
        let mut three = [0; 3];
        assert_eq!((stock.pop_many(3, &mut three[..2]), three), (2, [4, 5, 0]));
        assert_eq!((stock.pop(3), stock.pop(4)), (Some(3), Some(8)));
        assert_eq!((stock.pop_many(3, &mut three), three), (2, [1, 2, 0]));
        assert_eq!((stock.pop(3), stock.count(3), stock.count(4)), (None, 0, 1));
        stock.set_limit(3, 1);
        assert!(stock.push(3, 1) && !stock.push(3, 2));
        stock.set_limit(3, 100);
        assert_eq!(stock.push_many(3, &[2, 3, 4, 5, 6]), 4);
    }
}
