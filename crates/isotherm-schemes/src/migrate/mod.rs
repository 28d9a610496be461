//! The action that moves pages between memory tiers: hot pages up to fast memory, idle ones down to slow memory when fast memory is short.
//!
//! [`rules`] decides which pages are hot or idle, from what is known of each page; [`kernel`] finds out where they are and moves them
//! (`move_pages`), page by page, and reads back where each is then. [`mover`] counts what was moved, and what had to be moved back.
//!
//! A hint names a huge range. Which of its pages to move changes with every window, so planner and action share [`Movable`]. One action
//! does both directions, since a huge range may have pages of both kinds and has one place in the queue.

mod kernel;
pub mod mover;
mod rules;

pub(crate) use kernel::Rooms;
pub use kernel::{MigrateMachine, Moved, Moves, Placed};
pub use rules::{Limits, Wanted, hints, wanted_in};

use crate::action::{Action, Failure, Guard, Performed, Price};
use crate::budgets::Budgets;
use crate::machine::Process;
use crate::outcome::Refusal;
use crate::queue::{ActionId, Hint};
use isotherm_heat::{Mask, Ns, TargetId};
use isotherm_units::{PAGES_PER_PMD, PmdNo};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The id by which hints name it.
pub const MIGRATE: ActionId = ActionId(3);
/// What counters call huge ranges of which pages have moved.
pub const MIGRATED: &str = "migrated";

/// Pages that a copy of the process shares do not move. Nothing is written to swap, and no more memory is used.
const GUARDS: &[Guard] = &[Guard::Fork];

/// What was found longer ago than this does not count.
const FRESH: Ns = 15_000_000_000;

/// The pages of each huge range that should move, by the last search, and those that have moved since, shared by the planner and the
/// action.
#[derive(Clone, Debug, Default)]
pub struct Movable(Arc<Mutex<Pages>>);

#[derive(Debug, Default)]
struct Pages {
    wanted: HashMap<TargetId, Found>,
    moved: Vec<(TargetId, PmdNo, Moves)>,
}

/// What was found in one process, and when.
#[derive(Debug)]
struct Found {
    at: Ns,
    keep_free_pct: f64,
    pages: HashMap<PmdNo, Wanted>,
}

impl Movable {
    fn lock(&self) -> MutexGuard<'_, Pages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces what is known of a process. Its idle pages move while less than this share of fast memory is free.
    pub fn replace(&self, process: TargetId, wanted: impl IntoIterator<Item = Wanted>, keep_free_pct: f64, now: Ns) {
        let pages = wanted.into_iter().map(|wanted| (wanted.pmd, wanted)).collect();
        self.lock().wanted.insert(process, Found { at: now, keep_free_pct, pages });
    }

    /// None of the idle pages of a process may move any more.
    pub fn stop_idle(&self, process: TargetId) {
        if let Some(found) = self.lock().wanted.get_mut(&process) {
            found.pages.values_mut().for_each(|wanted| wanted.idle = Mask::NONE);
        }
    }

    /// Forgets what is known of a process: none of it may move.
    pub fn forget(&self, process: TargetId) {
        self.lock().wanted.remove(&process);
    }

    /// What is wanted of a huge range, and the share of fast memory to keep free.
    fn of(&self, process: TargetId, pmd: PmdNo, now: Ns) -> Option<(Wanted, f64)> {
        let pages = self.lock();
        let found = pages.wanted.get(&process).filter(|found| now.saturating_sub(found.at) <= FRESH)?;
        found.pages.get(&pmd).map(|wanted| (*wanted, found.keep_free_pct))
    }

    /// What is wanted of a huge range, however long ago that was found.
    pub(crate) fn wanted(&self, process: TargetId, pmd: PmdNo) -> Option<Wanted> {
        self.lock().wanted.get(&process)?.pages.get(&pmd).copied()
    }

    /// Only this of it is wanted until the next search.
    pub(crate) fn restrict(&self, process: TargetId, wanted: Wanted) {
        if let Some(found) = self.lock().wanted.get_mut(&process) {
            found.pages.insert(wanted.pmd, wanted);
        }
    }

    /// Takes what has moved since the last call.
    pub fn take_moved(&self) -> Vec<(TargetId, PmdNo, Moves)> {
        std::mem::take(&mut self.lock().moved)
    }

    pub(crate) fn note(&self, process: TargetId, pmd: PmdNo, moves: Moves) {
        self.lock().moved.push((process, pmd, moves));
    }
}

/// The action.
#[derive(Clone, Debug)]
pub struct Migrate {
    movable: Movable,
    /// Of the last huge range that was checked, which is the next to be moved.
    checked: Moves,
}

impl Migrate {
    /// Of the pages that a planner keeps up to date.
    pub fn new(movable: Movable) -> Migrate {
        Migrate { movable, checked: Moves::default() }
    }
}

/// What moves of the pages that are wanted, given where they are and what is free.
fn moves(wanted: &Wanted, placed: Placed) -> Result<Moves, Refusal> {
    let (up, demote) = (wanted.hot & placed.slow, wanted.idle & placed.short);
    if placed.is_huge && !(is_whole(up) && is_whole(demote)) {
        // It has become one since its pages were judged.
        return Err(Refusal::AlreadyHuge);
    }
    let room = placed.room_pages + u64::from(demote.count());
    let is_too_large = placed.is_huge && room < PAGES_PER_PMD as u64;
    let promote =
        if is_too_large { Mask::NONE } else { up.iter().take(usize::try_from(room).unwrap_or(usize::MAX)).collect() };
    match (Moves { promote, demote }, up.is_empty()) {
        (Moves { promote: Mask::NONE, demote: Mask::NONE }, true) => Err(Refusal::InPlace),
        (Moves { promote: Mask::NONE, demote: Mask::NONE }, false) => Err(Refusal::NoFastMemory),
        (some, _) => Ok(some),
    }
}

/// Whether a mask has all pages of a huge page, or none.
fn is_whole(pages: Mask) -> bool {
    pages.is_empty() || pages == Mask::ALL
}

impl<M: MigrateMachine> Action<M> for Migrate {
    fn id(&self) -> ActionId {
        MIGRATE
    }

    fn done(&self) -> &'static str {
        MIGRATED
    }

    fn guards(&self) -> &'static [Guard] {
        GUARDS
    }

    fn refuses(&self, _: &Process) -> Option<Refusal> {
        None
    }

    fn check(&mut self, machine: &mut M, hint: &Hint, _: &Budgets) -> Result<Price, Refusal> {
        let now = machine.now_ns();
        let (wanted, keep_free_pct) = self.movable.of(hint.process, hint.pmd, now).ok_or(Refusal::Unmeasured)?;
        let placed = machine.placed(hint.process, hint.pmd, wanted.hot | wanted.idle, keep_free_pct)?;
        self.checked = moves(&wanted, placed)?;
        Ok(Price::default())
    }

    fn perform(&mut self, machine: &mut M, hint: &Hint) -> Performed {
        let moves = std::mem::take(&mut self.checked);
        let Moved { performed: done, moved } = machine.migrate(hint.process, hint.pmd, moves);
        let nothing = moved == Moves::default();
        if !nothing {
            self.movable.note(hint.process, hint.pmd, moved);
        }
        // Locked or isolated by something else, or the node has become full: another try may find them free.
        let result = if nothing { done.result.and(Err(Failure::Busy)) } else { done.result };
        Performed { result, ..done }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(range: std::ops::Range<usize>) -> Mask {
        range.collect()
    }

    #[test]
    fn hot_pages_go_up_while_there_is_room_and_idle_ones_down_while_there_is_little() {
        let wanted = Wanted { pmd: PmdNo(1), hot: pages(0..100), idle: pages(200..512), hz: 5.0 };
        let fast = pages(0..50) | pages(200..300);
        let placed = |short, room_pages| Placed { fast, short, slow: !fast, is_huge: false, room_pages };
        let (up, down) = (pages(50..100), pages(200..300));
        assert_eq!(moves(&wanted, placed(fast, 900)), Ok(Moves { promote: up, demote: down }));
        let none = Mask::NONE;
        assert_eq!(moves(&wanted, placed(none, 900)), Ok(Moves { promote: up, demote: none }), "there is room");
        assert_eq!(moves(&wanted, placed(fast, 0)), Ok(Moves { promote: up, demote: down }), "what leaves makes room");
        let hot = Wanted { idle: none, ..wanted };
        assert_eq!(moves(&hot, placed(fast, 0)), Err(Refusal::NoFastMemory));
        assert_eq!(moves(&hot, placed(fast, 7)), Ok(Moves { promote: pages(50..57), demote: none }), "as many as fit");
        let all_fast = Placed { fast: Mask::ALL, slow: none, ..placed(none, 9) };
        assert_eq!((moves(&hot, all_fast), moves(&wanted, all_fast)), (Err(Refusal::InPlace), Err(Refusal::InPlace)));
    }

    #[test]
    fn a_huge_page_moves_as_a_whole() {
        let wanted = |hot, idle| Wanted { pmd: PmdNo(1), hot, idle, hz: 5.0 };
        let slow = |room_pages| Placed { slow: Mask::ALL, is_huge: true, room_pages, ..Placed::default() };
        let up = Moves { promote: Mask::ALL, demote: Mask::NONE };
        assert_eq!(moves(&wanted(Mask::ALL, Mask::NONE), slow(512)), Ok(up));
        assert_eq!(moves(&wanted(Mask::ALL, Mask::NONE), slow(511)), Err(Refusal::NoFastMemory));
        assert_eq!(
            moves(&wanted(pages(0..7), Mask::NONE), slow(900)),
            Err(Refusal::AlreadyHuge),
            "it became one since"
        );
        let fast = Placed { fast: Mask::ALL, short: Mask::ALL, is_huge: true, ..Placed::default() };
        assert_eq!(moves(&wanted(pages(0..7), pages(9..99)), fast), Err(Refusal::AlreadyHuge));
    }

    #[test]
    fn what_was_found_too_long_ago_does_not_count() {
        let (movable, id) = (Movable::default(), TargetId { pid: 1, start_ticks: 1 });
        let wanted = Wanted { pmd: PmdNo(7), hot: Mask::ALL, idle: Mask::NONE, hz: 5.0 };
        movable.replace(id, [wanted], 10.0, 100);
        assert_eq!(movable.of(id, PmdNo(7), 100 + FRESH), Some((wanted, 10.0)));
        assert_eq!(movable.of(id, PmdNo(7), 101 + FRESH), None);
        assert_eq!(movable.of(id, PmdNo(8), 100), None);
        movable.replace(id, [], 10.0, 100);
        assert_eq!(movable.of(id, PmdNo(7), 100), None);
    }
}
