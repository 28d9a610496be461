//! The storage of the queue for hints and processes: entries in one array, found by index or, through a hash table of
//! indices, by key.
//!
//! This is an array and not a map of boxes: hints are linked by indices of four bytes, and nothing is allocated until
//! there are more entries than ever before.
//!
//! All of it is marked `#[inline]`: a hint costs some 65 ns, a third less than with calls into another module.

use hashbrown::{DefaultHashBuilder, HashTable};
use std::ops::{Index, IndexMut};

/// The null index.
pub(super) const NONE: u32 = u32::MAX;

/// An entry that is found by its key.
pub(super) trait Keyed {
    type Key: Eq;

    fn key(&self) -> Self::Key;

    /// 64 well-mixed bits. The hash table starts at the bucket that the low bits select, and compares the top seven
    /// bits before it reads an entry.
    fn hash(key: &Self::Key, hasher: &DefaultHashBuilder) -> u64;
}

/// Entries that are found by key or by index. The index of an entry stays the same until the entry is removed, and is
/// reused after that.
#[derive(Clone)]
pub(super) struct Table<T> {
    entries: Vec<T>,
    /// Unused positions in `entries`.
    free: Vec<u32>,
    by_key: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl<T: Keyed> Table<T> {
    /// The entry itself, its position in the free list, and at most 32/7 buckets of five bytes: the hash table has room
    /// for twice the entries, fills seven eighths of its buckets, and has a power of two of them.
    pub const ENTRY_BYTES: usize = size_of::<T>() + size_of::<u32>() + (size_of::<u32>() + 1) * 32_usize.div_ceil(7);

    /// A table without entries.
    pub fn new() -> Table<T> {
        Table { entries: Vec::new(), free: Vec::new(), by_key: HashTable::new(), hasher: DefaultHashBuilder::default() }
    }

    /// Number of entries.
    #[inline]
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// The index of the entry with this key.
    #[inline]
    pub fn find(&self, key: &T::Key) -> Option<u32> {
        let hash = T::hash(key, &self.hasher);
        self.by_key.find(hash, |index| self[*index].key() == *key).copied()
    }

    /// Adds an entry whose key is new. There are never more than `most` entries, which is below [`NONE`].
    #[inline]
    pub fn insert(&mut self, entry: T, most: usize) -> u32 {
        if self.free.is_empty() && self.entries.len() == self.entries.capacity() {
            self.grow(most);
        }
        let hash = T::hash(&entry.key(), &self.hasher);
        let index = if let Some(index) = self.free.pop() {
            self[index] = entry;
            index
        } else {
            self.entries.push(entry);
            #[expect(clippy::cast_possible_truncation, reason = "the caller's limit is below NONE")]
            let index = (self.entries.len() - 1) as u32;
            index
        };
        let (entries, hasher) = (&self.entries, &self.hasher);
        self.by_key.insert_unique(hash, index, |index| T::hash(&entries[*index as usize].key(), hasher));
        index
    }

    /// Makes room. Nothing else allocates.
    ///
    /// The hash table gets room for twice the entries. Removals leave tombstones in it that use up its room. When the room
    /// runs out, a hash table that is at most half full clears them in place; a fuller one would allocate a larger one.
    #[cold]
    fn grow(&mut self, most: usize) {
        let len = self.entries.len();
        self.entries.reserve_exact(len.max(16).min(most - len));
        let room = self.entries.capacity();
        self.free.reserve_exact(room - self.free.len());
        let (entries, hasher) = (&self.entries, &self.hasher);
        let additional = 2 * room - self.by_key.len();
        self.by_key.reserve(additional, |index| T::hash(&entries[*index as usize].key(), hasher));
    }

    /// Removes an entry. Its index is reused.
    #[inline]
    pub fn remove(&mut self, index: u32) {
        let hash = T::hash(&self[index].key(), &self.hasher);
        if let Ok(found) = self.by_key.find_entry(hash, |other| *other == index) {
            found.remove();
            self.free.push(index);
        }
    }
}

impl<T> Index<u32> for Table<T> {
    type Output = T;

    #[inline]
    fn index(&self, index: u32) -> &T {
        &self.entries[index as usize]
    }
}

impl<T> IndexMut<u32> for Table<T> {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut T {
        &mut self.entries[index as usize]
    }
}
