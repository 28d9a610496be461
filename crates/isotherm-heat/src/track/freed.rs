//! Memory that was freed and that no read comes to soon.
//!
//! A huge range whose pages were all accessed since their clear is read again after a few seconds, or where reads are dear after a minute or two. What
//! the target frees of it in the meantime stays in the picture, as hot as it was. So when RSS has fallen, these ranges are read, some at each
//! listing, a GiB of them. Of a target of hundreds of GiB that is hot all over, its next check may come first. Memory that is freed while as
//! much is allocated elsewhere does not show in RSS. RSS costs one small file, where a sum over all ranges would cost as much as the listing.

use isotherm_units::{Bytes, PmdNo};

/// RSS falls by less without being looked into. The kernel keeps parts of its count for each CPU.
const MIN_FALL: Bytes = Bytes::of_mib(16);
/// So does a fall by less than this part of it.
const MIN_FALL_SHARE: u64 = 16;
/// Huge ranges that are read at one listing: a millisecond or two, with what is taken in of them.
pub(super) const READ_AT_ONCE: usize = 512;

/// How far this has come for one target.
#[derive(Clone, Copy, Debug)]
pub(super) struct Freed {
    /// The largest RSS since the last fall.
    most: Bytes,
    /// Where to go on.
    next: PmdNo,
    /// How often to come to the end.
    rounds: u8,
}

impl Freed {
    pub fn new() -> Freed {
        Freed { most: Bytes(0), next: PmdNo(0), rounds: 0 }
    }

    /// Takes in RSS as of a listing. A fall in the middle of a round takes another one after it.
    pub fn note(&mut self, rss: Bytes) {
        self.most = self.most.max(rss);
        if self.most.0 - rss.0 > MIN_FALL.0.max(self.most.0 / MIN_FALL_SHARE) {
            self.most = rss;
            self.rounds = if self.next == PmdNo(0) { 1 } else { 2 };
        }
    }

    /// From where on to read. `None` if there is no need to.
    pub fn next(&self) -> Option<PmdNo> {
        (self.rounds > 0).then_some(self.next)
    }

    /// Takes in the last huge range that was read, or that there are no more.
    pub fn came_to(&mut self, last: Option<PmdNo>) {
        match last {
            Some(last) => self.next = last.next(),
            None => (self.next, self.rounds) = (PmdNo(0), self.rounds.saturating_sub(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn after(rss_mib: &[u64]) -> Freed {
        let mut freed = Freed::new();
        rss_mib.iter().for_each(|mib| freed.note(Bytes(mib * MIB)));
        freed
    }

    #[test]
    fn a_fall_by_a_sixteenth_is_looked_into_at_once_or_bit_by_bit() {
        assert_eq!(after(&[1024, 1000, 1024, 970, 2000]).next(), None, "less than a sixteenth");
        assert_eq!(after(&[1024, 900]).next(), Some(PmdNo(0)));
        assert_eq!(after(&[1024, 1000, 980, 960, 940]).next(), Some(PmdNo(0)));
        assert_eq!(after(&[24, 9]).next(), None, "too little");
        assert_eq!(after(&[24, 7]).next(), Some(PmdNo(0)));
    }

    #[test]
    fn a_round_ends_at_the_end_and_a_fall_on_the_way_takes_another() {
        let mut freed = after(&[1024, 512]);
        freed.came_to(Some(PmdNo(41)));
        assert_eq!(freed.next(), Some(PmdNo(42)));
        freed.came_to(None);
        assert_eq!(freed.next(), None);
        freed.note(Bytes(500 * MIB));
        assert_eq!(freed.next(), None, "it has not fallen since");
        let mut freed = after(&[1024, 512]);
        freed.came_to(Some(PmdNo(41)));
        freed.note(Bytes(256 * MIB));
        assert_eq!(freed.next(), Some(PmdNo(42)), "goes on: a target that shrinks all the time has an end, too");
        freed.came_to(None);
        assert_eq!(freed.next(), Some(PmdNo(0)));
        freed.came_to(None);
        assert_eq!(freed.next(), None);
    }
}
