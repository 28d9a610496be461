//! A sorted map by huge range, with little memory around its entries.
//!
//! Used by `target`, which has an entry of 32 bytes for each 2 MiB, and by `survey` until it ends. A B-tree whose
//! keys come in order, as those of a listing do, leaves its nodes half empty, and would take 140 bytes for each. Here the entries of
//! each GiB lie in one sorted list, beside a bit for each huge range. Listings append to it; an entry in the middle moves at most 511
//! others.

use crate::Mask;
use isotherm_units::PmdNo;
use std::collections::BTreeMap;
use std::ops::Range;

/// log2 of the huge ranges in a list.
const LIST_SHIFT: u32 = 9;

/// Values that a list gets room for at once.
const GROWTH: usize = 64;

/// Values by huge range, in address order.
#[derive(Clone, Debug)]
pub(crate) struct PmdMap<T> {
    /// By GiB.
    lists: BTreeMap<u64, List<T>>,
    len: usize,
}

/// The values of one GiB. Never empty while it is in the map.
#[derive(Clone, Debug)]
struct List<T> {
    /// Which of the 512 places in the GiB have one.
    places: Mask,
    values: Vec<T>,
}

impl<T> List<T> {
    fn find(&self, pmd: PmdNo) -> Result<usize, usize> {
        let (place, at) = (place_of(pmd), self.places.rank(place_of(pmd)));
        if self.places.has(place) { Ok(at) } else { Err(at) }
    }

    /// The indices of the values from `first` up to but not including `end`, which may lie in other GiB.
    fn within(&self, gib: u64, pmds: &Range<PmdNo>) -> Range<usize> {
        let before = |end: PmdNo| match gib_of(end).cmp(&gib) {
            std::cmp::Ordering::Less => 0,
            std::cmp::Ordering::Equal => self.places.rank(place_of(end)),
            std::cmp::Ordering::Greater => self.values.len(),
        };
        before(pmds.start)..before(pmds.end)
    }
}

fn gib_of(pmd: PmdNo) -> u64 {
    pmd.0 >> LIST_SHIFT
}

fn place_of(pmd: PmdNo) -> usize {
    (pmd.0 & ((1 << LIST_SHIFT) - 1)) as usize
}

fn pmd_of(gib: u64, place: usize) -> PmdNo {
    PmdNo(gib << LIST_SHIFT | place as u64)
}

impl<T> PmdMap<T> {
    /// An empty map.
    pub fn new() -> PmdMap<T> {
        PmdMap { lists: BTreeMap::new(), len: 0 }
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value of a huge range.
    pub fn get(&self, pmd: PmdNo) -> Option<&T> {
        let list = self.lists.get(&gib_of(pmd))?;
        list.find(pmd).ok().map(|at| &list.values[at])
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, pmd: PmdNo) -> Option<&mut T> {
        let list = self.lists.get_mut(&gib_of(pmd))?;
        list.find(pmd).ok().map(|at| &mut list.values[at])
    }

    /// Puts a value in. Returns the one that was there.
    pub fn insert(&mut self, pmd: PmdNo, value: T) -> Option<T> {
        let list = self.lists.entry(gib_of(pmd)).or_insert_with(|| List { places: Mask::NONE, values: Vec::new() });
        match list.find(pmd) {
            Ok(at) => Some(std::mem::replace(&mut list.values[at], value)),
            Err(at) => {
                // Doubling would leave a third of the memory unused.
                if list.values.len() == list.values.capacity() {
                    list.values.reserve_exact(GROWTH);
                }
                list.places.set(place_of(pmd));
                list.values.insert(at, value);
                self.len += 1;
                None
            }
        }
    }

    /// Takes a value out.
    pub fn remove(&mut self, pmd: PmdNo) -> Option<T> {
        let list = self.lists.get_mut(&gib_of(pmd))?;
        let at = list.find(pmd).ok()?;
        list.places.unset(place_of(pmd));
        let value = list.values.remove(at);
        if list.values.is_empty() {
            self.lists.remove(&gib_of(pmd));
        }
        self.len -= 1;
        Some(value)
    }

    /// All huge ranges and their values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (PmdNo, &T)> {
        self.range(PmdNo(0)..PmdNo(u64::MAX))
    }

    /// All huge ranges, in order.
    pub fn keys(&self) -> impl Iterator<Item = PmdNo> {
        self.iter().map(|(pmd, _)| pmd)
    }

    /// All values, in the order of their huge ranges.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.iter().map(|(_, value)| value)
    }

    /// The last value before `pmd`.
    pub fn last_before(&self, pmd: PmdNo) -> Option<(PmdNo, &T)> {
        self.lists.range(..=gib_of(pmd)).rev().find_map(|(gib, list)| {
            let end = if *gib == gib_of(pmd) { place_of(pmd) } else { 1 << LIST_SHIFT };
            let place = list.places.last_before(end)?;
            Some((pmd_of(*gib, place), &list.values[list.places.rank(place)]))
        })
    }

    /// The first value from `pmd` on.
    pub fn first_from(&self, pmd: PmdNo) -> Option<(PmdNo, &T)> {
        self.range(pmd..PmdNo(u64::MAX)).next()
    }

    /// Those of `listed` (sorted) that have no value, and those with a value that are not listed. Each GiB is compared at once: nearly
    /// all of a listing is as it was.
    pub fn differences(&self, listed: &[PmdNo]) -> (Vec<PmdNo>, Vec<PmdNo>) {
        let chunks = listed.chunk_by(|a, b| gib_of(*a) == gib_of(*b));
        let chunks: Vec<(u64, Mask)> =
            chunks.map(|pmds| (gib_of(pmds[0]), pmds.iter().map(|pmd| place_of(*pmd)).collect())).collect();
        let listed_in =
            |gib: u64| chunks.binary_search_by_key(&gib, |chunk| chunk.0).map_or(Mask::NONE, |at| chunks[at].1);
        let known_in = |gib: u64| self.lists.get(&gib).map_or(Mask::NONE, |list| list.places);
        let pmds = |gib: u64, places: Mask| places.iter().map(move |place| pmd_of(gib, place));
        let fresh = chunks.iter().flat_map(|(gib, listed)| pmds(*gib, *listed & !known_in(*gib)));
        let gone = self.lists.iter().flat_map(|(gib, list)| pmds(*gib, list.places & !listed_in(*gib)));
        (fresh.collect(), gone.collect())
    }

    /// The huge ranges in `pmds` and their values, in order.
    pub fn range(&self, pmds: Range<PmdNo>) -> impl Iterator<Item = (PmdNo, &T)> {
        let gibs = gib_of(pmds.start)..=gib_of(pmds.end).max(gib_of(pmds.start));
        self.lists.range(gibs).flat_map(move |(gib, list)| {
            let within = list.within(*gib, &pmds);
            let within = within.start.min(within.end)..within.end;
            let places = list.places.iter().skip(within.start).map(|place| pmd_of(*gib, place));
            places.zip(&list.values[within])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_rng::Rng;

    #[test]
    fn it_is_a_sorted_map() {
        let seed = 3;
        let mut rng = Rng::new(seed);
        let (mut map, mut naive) = (PmdMap::new(), BTreeMap::new());
        for step in 0..20_000 {
            let spread = [64, 2000, u64::MAX][(step / 2000) % 3];
            let pmd = PmdNo(rng.below(spread));
            if rng.below(5) < 3 {
                assert_eq!(map.insert(pmd, step), naive.insert(pmd, step), "seed {seed}, step {step}");
            } else {
                assert_eq!(map.remove(pmd), naive.remove(&pmd), "seed {seed}, step {step}");
            }
            let asked = PmdNo(rng.below(spread));
            assert_eq!(map.get(asked), naive.get(&asked));
            assert_eq!(map.get_mut(asked), naive.get_mut(&asked));
            assert_eq!((map.len(), map.is_empty()), (naive.len(), naive.is_empty()));
            if step % 100 == 0 {
                let (a, b) = (PmdNo(rng.below(spread)), PmdNo(rng.below(spread)));
                let range = a.min(b)..a.max(b);
                let of_naive: Vec<_> = naive.range(range.clone()).map(|(pmd, value)| (*pmd, value)).collect();
                assert_eq!(map.range(range).collect::<Vec<_>>(), of_naive, "seed {seed}, step {step}");
                assert_eq!(map.range(b.max(a)..a.min(b)).count(), 0, "an empty range");
                assert_eq!(map.last_before(a), naive.range(..a).next_back().map(|(pmd, value)| (*pmd, value)));
                assert_eq!(map.first_from(a), naive.range(a..).next().map(|(pmd, value)| (*pmd, value)));
                assert!(map.keys().eq(naive.keys().copied()) && map.values().eq(naive.values()));
                let mut listed: Vec<PmdNo> = naive.keys().copied().filter(|_| rng.below(8) > 0).collect();
                listed.extend((0..9).map(|_| PmdNo(rng.below(spread))));
                listed.sort_unstable();
                listed.dedup();
                let fresh: Vec<_> = listed.iter().copied().filter(|pmd| !naive.contains_key(pmd)).collect();
                let gone: Vec<_> = naive.keys().copied().filter(|pmd| listed.binary_search(pmd).is_err()).collect();
                assert_eq!(map.differences(&listed), (fresh, gone), "seed {seed}, step {step}");
            }
        }
    }
}
