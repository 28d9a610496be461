//! What was moved of one process, and how much of it had to be moved back.
//!
//! A page that went down to slow memory is remembered by a bit. If it goes up again, it should have stayed: that counts, as a refault
//! does in [`crate::page_out`], and stops what goes down when it is too much.

use super::{Limits, Moves};
use crate::page_out::brake::{self, Brake};
use crate::page_out::keeper::Stays;
use crate::page_out::refaults::{Found, LeftPages};
use isotherm_heat::Ns;
use isotherm_units::{Bytes, PmdNo};
use serde::{Deserialize, Serialize};

/// Between two searches for pages to move.
pub const SEARCH: Ns = 5_000_000_000;
/// The same while fast memory is full: idle pages that go down make room at any time.
const SEARCH_FOR_ROOM: Ns = 1_000_000_000;
/// Percent of the working set that may go up again in a minute.
const MAX_BACK_PCT: f64 = 0.2;

/// What `status` reports of moving pages of a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MigrateStatus {
    /// Memory that has gone up so far.
    pub promoted_bytes: u64,
    /// Memory that has gone down so far.
    pub demoted_bytes: u64,
    /// Memory that has gone down and up again.
    pub back_bytes: u64,
    /// The age at which its pages go down at present; `None` if no scheme moves them.
    pub min_idle_ns: Option<u64>,
    /// Why nothing goes down at the moment.
    #[serde(deserialize_with = "crate::named::if_known")]
    pub stays: Option<Stays>,
}

/// Moving pages of one process.
#[derive(Clone, Debug)]
pub struct Mover {
    limits: Limits,
    brake: Brake,
    down: LeftPages,
    promoted: u64,
    searched_at: Ns,
    /// Since the last search, hot pages found no room in fast memory.
    is_full: bool,
    working_set_pages: u64,
    /// Why nothing goes down, as the caller has found last.
    stays: Option<Stays>,
}

impl Mover {
    /// Of a process of which nothing was moved.
    pub fn new(limits: Limits, now: Ns) -> Mover {
        Mover {
            limits,
            brake: brake_of(limits, now),
            down: LeftPages::default(),
            promoted: 0,
            searched_at: 0,
            is_full: false,
            working_set_pages: 0,
            stays: None,
        }
    }

    /// Sets other limits.
    pub fn set_limits(&mut self, limits: Limits, now: Ns) {
        if self.limits != limits {
            (self.limits, self.brake) = (limits, brake_of(limits, now));
        }
    }

    /// Notes the working set of a minute, and why nothing may go down, if so.
    pub fn note(&mut self, working_set_pages: u64, stays: Option<Stays>, now: Ns) {
        (self.working_set_pages, self.stays) = (working_set_pages, stays);
        self.brake.note(0, working_set_pages, now);
    }

    /// Why nothing goes down at the moment.
    pub fn stays(&self) -> Option<Stays> {
        self.limits.idle_ns?;
        self.stays.or(self.brake.age_ns().is_none().then_some(Stays::Refaults))
    }

    /// Whether hot pages found no room since the last search.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// The limits to search with, if it is time. Nothing goes down while too much has gone up again.
    pub fn search(&mut self, now: Ns) -> Option<Limits> {
        let apart = if self.is_full { SEARCH_FOR_ROOM } else { SEARCH };
        if self.searched_at != 0 && now.saturating_sub(self.searched_at) < apart {
            return None;
        }
        (self.searched_at, self.is_full) = (now, false);
        let idle_ns = self.limits.idle_ns.and(self.brake.age_ns()).filter(|_| self.stays.is_none());
        Some(Limits { idle_ns, ..self.limits })
    }

    /// Notes that hot pages found no room in fast memory.
    pub fn full(&mut self) {
        self.is_full = true;
    }

    /// Forgets what has gone down where nothing is mapped any more: what is mapped there later is other memory. O(huge ranges that are down).
    pub fn keep_mapped(&mut self, is_mapped: impl Fn(PmdNo) -> bool, now: Ns) {
        self.down.come_back(now, |pmd| if is_mapped(pmd) { Found::NotRead } else { Found::Unmapped });
    }

    /// Takes in what has moved.
    pub fn moved(&mut self, pmd: PmdNo, moves: Moves, now: Ns) {
        self.promoted += u64::from(moves.promote.count());
        // What goes down again has been up since: the kernel has promoted it (NUMA balancing), or it was freed and is other memory. Which of both
        // is not known, and both count.
        let unseen = self.down.came_back_unseen(pmd, moves.demote, now);
        let back = self.down.come_back_in(pmd, moves.promote, now) + unseen;
        // Nothing is brought back here, so nobody asks which are likely to follow.
        self.down.take_following();
        self.brake.note(back, self.working_set_pages, now);
        self.down.leave(pmd, moves.demote, self.brake.next_age_ns(), now);
    }

    /// The status to report.
    pub fn status(&self) -> MigrateStatus {
        MigrateStatus {
            promoted_bytes: Bytes::of_pages(self.promoted).0,
            demoted_bytes: Bytes::of_pages(self.down.left()).0,
            back_bytes: Bytes::of_pages(self.down.refaulted().measured()).0,
            min_idle_ns: self.limits.idle_ns.map(|_| self.brake.next_age_ns()),
            stays: self.stays(),
        }
    }
}

fn brake_of(limits: Limits, now: Ns) -> Brake {
    Brake::new(brake::Limits { min_idle_ns: limits.idle_ns.unwrap_or_default(), max_refaults_pct: MAX_BACK_PCT }, now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_heat::Mask;

    const S: Ns = 1_000_000_000;
    const LIMITS: Limits = Limits { hot_ns: Some(S), idle_ns: Some(60 * S), keep_free_pct: 10.0 };

    #[test]
    fn what_goes_down_and_up_again_counts_once_and_too_much_of_it_stops_what_goes_down() {
        let mut mover = Mover::new(LIMITS, 0);
        mover.note(100_000, None, 60 * S);
        assert_eq!(mover.search(60 * S), Some(LIMITS));
        assert_eq!(mover.search(61 * S), None, "not yet");
        mover.full();
        assert_eq!((mover.is_full(), mover.search(61 * S)), (true, Some(LIMITS)), "room may have been made");
        assert_eq!((mover.is_full(), mover.search(62 * S)), (false, None));
        let up = |promote| Moves { promote, demote: Mask::NONE };
        mover.moved(PmdNo(1), Moves { promote: Mask::NONE, demote: Mask::ALL }, 62 * S);
        mover.moved(PmdNo(2), up(Mask::ALL), 63 * S);
        assert_eq!(mover.status().back_bytes, 0, "of another huge range");
        let few: Mask = (0..100).collect();
        mover.moved(PmdNo(1), up(few), 64 * S);
        assert_eq!((mover.status().back_bytes, mover.status().stays), (100 << 12, None));
        assert_eq!(mover.down.take_following(), [], "nothing is kept that nobody takes");
        mover.moved(PmdNo(1), up(Mask::ALL), 65 * S);
        let status = mover.status();
        assert_eq!((status.promoted_bytes, status.demoted_bytes), ((1024 + 100) << 12, 2 << 20));
        let stays = Some(Stays::Refaults);
        assert_eq!((status.back_bytes, status.stays, status.min_idle_ns), (2 << 20, stays, Some(120 * S)));
        assert_eq!(mover.search(70 * S), Some(Limits { idle_ns: None, ..LIMITS }));
    }

    /// NUMA balancing promotes.
    #[test]
    fn what_went_up_without_us_and_goes_down_again_has_come_back() {
        let mut mover = Mover::new(LIMITS, 0);
        mover.note(100_000, None, 60 * S);
        let down = Moves { promote: Mask::NONE, demote: Mask::ALL };
        mover.moved(PmdNo(1), down, 62 * S);
        assert_eq!((mover.status().back_bytes, mover.status().stays), (0, None));
        mover.moved(PmdNo(1), down, 200 * S);
        assert_eq!((mover.status().back_bytes, mover.status().stays), (2 << 20, Some(Stays::Refaults)));
    }

    #[test]
    fn memory_that_is_mapped_where_other_memory_went_down_has_not_come_back() {
        let mut mover = Mover::new(LIMITS, 0);
        mover.note(100_000, None, 60 * S);
        let down = Moves { promote: Mask::NONE, demote: Mask::ALL };
        [1, 2].into_iter().for_each(|pmd| mover.moved(PmdNo(pmd), down, 61 * S));
        mover.keep_mapped(|pmd| pmd != PmdNo(1), 62 * S);
        mover.moved(PmdNo(1), Moves { promote: Mask::ALL, demote: Mask::NONE }, 63 * S);
        assert_eq!((mover.status().back_bytes, mover.status().stays), (0, None));
        mover.moved(PmdNo(2), Moves { promote: Mask::ALL, demote: Mask::NONE }, 63 * S);
        assert_eq!(mover.status().back_bytes, 2 << 20);
    }

    #[test]
    fn what_the_caller_has_found_stops_it_too() {
        let mut mover = Mover::new(LIMITS, 0);
        mover.note(100_000, Some(Stays::ClearedByOthers), 60 * S);
        assert_eq!(mover.search(60 * S), Some(Limits { idle_ns: None, ..LIMITS }));
        assert_eq!(mover.status().stays, Some(Stays::ClearedByOthers));
    }
}
