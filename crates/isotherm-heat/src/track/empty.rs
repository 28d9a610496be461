//! Huge ranges with a page table and no page: emptied, or only read and never written.
//!
//! They are new at every listing, and a read finds nothing in them. There may be thousands: an array of 20 GiB that is only read has 10,240
//! tables of the zero page. So of those that were found empty before, only some are read at each listing, in turn.

use isotherm_units::PmdNo;

/// So many are read at one listing: a quarter of a millisecond.
const READ_AT_ONCE: usize = 256;

/// Those of one target.
#[derive(Debug, Default)]
pub(super) struct Empty {
    /// Sorted.
    known: Vec<PmdNo>,
    /// Where the next turn begins.
    next: PmdNo,
}

impl Empty {
    /// Which of the huge ranges that are new at a listing (sorted) to read now, sorted. The others were empty when they were read last.
    pub fn choose(&mut self, fresh: &[PmdNo]) -> Vec<PmdNo> {
        self.known.retain(|pmd| fresh.binary_search(pmd).is_ok());
        let first = self.known.partition_point(|pmd| *pmd < self.next);
        let mut turn: Vec<PmdNo> =
            self.known[first..].iter().chain(&self.known[..first]).take(READ_AT_ONCE).copied().collect();
        self.next = turn.last().map_or(PmdNo(0), |last| last.next());
        turn.sort_unstable();
        self.known.retain(|pmd| turn.binary_search(pmd).is_err());
        fresh.iter().filter(|pmd| self.known.binary_search(pmd).is_err()).copied().collect()
    }

    /// Takes in those of them that were empty, in any order.
    pub fn note(&mut self, empty: Vec<PmdNo>) {
        self.known.extend(empty);
        self.known.sort_unstable();
        self.known.dedup();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_empty_is_read_in_turn_and_what_is_new_at_once() {
        let mut empty = Empty::default();
        let tables: Vec<PmdNo> = (0..1000).map(PmdNo).collect();
        assert_eq!(empty.choose(&tables), tables, "never read");
        empty.note(tables.clone());
        let mut read = Vec::new();
        for _ in 0..4 {
            let turn = empty.choose(&tables);
            assert_eq!(turn.len(), READ_AT_ONCE);
            empty.note(turn.clone());
            read.extend(turn);
        }
        read.sort_unstable();
        read.dedup();
        assert_eq!(read, tables, "each within four listings");
        // One is not empty any more, one is new, and the last hundred are gone.
        let turn = empty.choose(&tables[..900]);
        empty.note(turn[1..].to_vec());
        let with_new = [&tables[..900], &[PmdNo(5000)]].concat();
        let turn = empty.choose(&with_new);
        assert_eq!((turn.len(), turn.last()), (READ_AT_ONCE + 2, Some(&PmdNo(5000))), "two are not known to be empty");
    }
}
