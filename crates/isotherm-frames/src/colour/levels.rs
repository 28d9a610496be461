//! For each load the set of colours that have it, to find the smallest load and its colours.

use super::tree::{Shape, Tree};
use core::sync::atomic::AtomicU64;

const MAX_LEVELS: usize = 256;

/// One set of colours for each load, and a bitmap of the sets that are not empty.
#[derive(Debug)]
pub(super) struct Levels<'m> {
    pub(super) words: &'m [AtomicU64],
    pub(super) shape: Shape,
    pub(super) count: usize,
    pub(super) filled: [u64; MAX_LEVELS / 64],
}

impl Levels<'_> {
    #[inline]
    pub(super) fn level(&self, load: usize) -> Option<Tree<'_>> {
        let start = load * self.shape.words();
        self.words.get(start..start + self.shape.words()).and_then(|words| Tree::new(&self.shape, words))
    }

    #[inline]
    pub(super) fn insert(&mut self, load: u8, word: usize, mask: u64) {
        let load = usize::from(load);
        if let Some(tree) = self.level(load) {
            tree.insert(word, mask);
            self.filled[load / 64] |= 1 << (load % 64);
        }
    }

    #[inline]
    pub(super) fn remove(&mut self, load: u8, word: usize, mask: u64) {
        let load = usize::from(load);
        if let Some(tree) = self.level(load) {
            tree.remove(word, mask);
            if tree.is_empty() {
                self.filled[load / 64] &= !(1 << (load % 64));
            }
        }
    }

    /// The loads of colours that have a free granule, the smallest first.
    pub(super) fn loads(&self) -> impl Iterator<Item = usize> {
        let words = self.filled.into_iter().enumerate();
        words.flat_map(|(at, word)| (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at * 64 + bit))
    }

    /// The smallest of these loads.
    #[inline]
    pub(super) fn lowest(&self) -> Option<usize> {
        let found = self.filled.iter().position(|&word| word != 0)?;
        Some(found * 64 + self.filled[found].trailing_zeros() as usize)
    }
}
