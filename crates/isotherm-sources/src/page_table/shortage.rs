//! Whether memory of a process is so short that advice would make pages in use leave.
//!
//! Advice deactivates: MGLRU moves each private page of the range to its second youngest generation, accessed or not, and so loses their order. Where
//! pages leave for swap and are needed again, pages in use then leave sooner (`bench-cold`, evict: up to 1.24 times the refaults).
//! `clear_refs` moves no page. It clears the whole process while its page faults wait, so it is used in place of advice only if
//!
//! - anonymous pages of the process's cgroup come back from swap, and reclaim takes pages, so that it is not schemes of ours that page out,
//! - and the process is small enough.

use isotherm_heat::Ns;
use isotherm_sys::proc::{Evicted, Status};
use isotherm_units::Bytes;

/// The counts are read at most this often: `memory.stat` sums over all processors.
const LOOK_EVERY: Ns = 10_000_000_000;
/// It counts as short for so long after that was seen last. Refaults come in bursts.
const HOLDS_FOR: Ns = 60_000_000_000;
/// So many refaults a minute, of the resident pages.
const REFAULTS_PCT_MIN: u64 = 1;
/// Nothing is compared yet: with so much of the process in swap it counts as short.
const SWAPPED_PCT: u64 = 1;
const MINUTE: Ns = 60_000_000_000;

/// What is known of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shortage {
    looked: Option<Looked>,
    until: Ns,
    /// The process cannot be cleared as a whole, so there is nothing but advice.
    has_no_other_way: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Looked {
    at: Ns,
    counts: Option<Evicted>,
}

impl Shortage {
    /// Whether advice is to be left alone now.
    pub fn holds(&self, now: Ns) -> bool {
        now < self.until
    }

    /// Whether to look, and to [`Self::note`] what was seen.
    pub fn is_due(&self, now: Ns) -> bool {
        !self.has_no_other_way && self.looked.is_none_or(|looked| now.saturating_sub(looked.at) >= LOOK_EVERY)
    }

    /// Takes in what was seen at `now`. The first time there is nothing to compare with, and that decides until the next.
    pub fn note(&mut self, now: Ns, status: &Status, counts: Option<Evicted>) {
        let before = self.looked.replace(Looked { at: now, counts });
        let (resident, swapped) = (status.rss.unwrap_or_default(), status.swap.unwrap_or_default());
        let Some(counts) = counts.filter(|_| swapped.0 * 100 >= resident.0 * SWAPPED_PCT && swapped.0 > 0) else {
            return;
        };
        match before {
            None => self.until = now + LOOK_EVERY,
            Some(Looked { at, counts: Some(before) }) if is_short(before, counts, now.saturating_sub(at), resident) => {
                self.until = now + HOLDS_FOR;
            }
            Some(_) => {}
        }
    }

    /// The process cannot be cleared as a whole, so advice is used whatever is short.
    pub fn give_up(&mut self) {
        *self = Shortage { has_no_other_way: true, ..Shortage::default() };
    }
}

/// Whether reclaim took pages in that time, and more refaults came than resident memory allows for.
fn is_short(before: Evicted, after: Evicted, elapsed: Ns, resident: Bytes) -> bool {
    let refaults = after.refaulted_anon_pages.saturating_sub(before.refaulted_anon_pages);
    let allowed = u128::from(resident.pages() * REFAULTS_PCT_MIN) * u128::from(elapsed) / u128::from(100 * MINUTE);
    after.stolen_pages > before.stolen_pages && u128::from(refaults) > allowed
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Ns = 1_000_000_000;

    fn status(resident_mib: u64, swapped_kib: u64) -> Status {
        let (rss, swap) = (Some(Bytes(resident_mib << 20)), Some(Bytes(swapped_kib << 10)));
        Status { rss, swap, ..Status::default() }
    }

    fn counts(stolen_pages: u64, refaulted_anon_pages: u64) -> Option<Evicted> {
        Some(Evicted { stolen_pages, refaulted_anon_pages })
    }

    /// Resident are 25,600 pages, of which 1% a minute is 256, or 42 in ten seconds.
    fn after_ten_seconds(stolen: u64, refaulted: u64, swapped_kib: u64) -> Shortage {
        let mut shortage = Shortage::default();
        shortage.note(100 * S, &status(100, 0), counts(1000, 500));
        assert!(!shortage.holds(100 * S), "nothing is in swap");
        assert!(!shortage.is_due(110 * S - 1) && shortage.is_due(110 * S));
        shortage.note(110 * S, &status(100, swapped_kib), counts(1000 + stolen, 500 + refaulted));
        shortage
    }

    #[test]
    fn short_is_what_reclaim_takes_and_what_is_needed_again() {
        let short = after_ten_seconds(1, 43, 1024);
        assert!(short.holds(170 * S - 1) && !short.holds(170 * S), "for a minute");
        assert!(!after_ten_seconds(1, 42, 1024).holds(110 * S), "1% a minute");
        assert!(!after_ten_seconds(0, 1000, 1024).holds(110 * S), "what a scheme has paged out comes back");
        assert!(!after_ten_seconds(1000, 1000, 1023).holds(110 * S), "a hundredth of it is not in swap");
    }

    #[test]
    fn at_first_what_is_in_swap_decides() {
        let mut shortage = Shortage::default();
        assert!(shortage.is_due(0));
        shortage.note(0, &status(100, 1024), counts(1000, 500));
        assert!(shortage.holds(10 * S - 1));
        shortage.note(10 * S, &status(100, 1024), counts(1000, 500));
        assert!(!shortage.holds(10 * S), "it was swapped out long ago");
    }

    #[test]
    fn what_is_not_counted_is_not_short() {
        let mut shortage = Shortage::default();
        shortage.note(0, &status(100, 1024), None);
        assert!(!shortage.holds(0));
        shortage.note(10 * S, &status(100, 1024), counts(1000, 500));
        assert!(!shortage.holds(10 * S));
        shortage.note(20 * S, &Status::default(), counts(2000, 5000));
        assert!(!shortage.holds(20 * S), "a thread that has no memory any more");
    }

    #[test]
    fn where_there_is_no_other_way_advice_is_used() {
        let mut shortage = after_ten_seconds(1, 43, 1024);
        shortage.give_up();
        assert!(!shortage.holds(111 * S) && !shortage.is_due(1000 * S));
    }
}
