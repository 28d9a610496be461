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

pub use kernel::{FastMemory, MigrateMachine, Moved, Moves, Placed};
pub use rules::{Limits, Wanted, hints, wanted_in};

use crate::action::{Action, Failure, Guard, Performed, Price};
use crate::budgets::Budgets;
use crate::machine::Process;
use crate::outcome::Refusal;
use crate::queue::{ActionId, Hint};
use isotherm_heat::{Mask, Ns, TargetId};
use isotherm_units::PmdNo;
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

/// What moves of the pages that are wanted, given where they are and what is free of fast memory.
fn moves(wanted: &Wanted, placed: Placed, fast: FastMemory, keep_free_pct: f64) -> Result<Moves, Refusal> {
    let (up, down) = (wanted.hot & placed.slow, wanted.idle & placed.fast);
    let demote = if fast.free_pct < keep_free_pct { down } else { Mask::NONE };
    let room = fast.room_pages + u64::from(demote.count());
    let promote = up.iter().take(usize::try_from(room).unwrap_or(usize::MAX)).collect();
    let moves = Moves { promote, demote };
    match moves {
        Moves { promote: Mask::NONE, demote: Mask::NONE } if !up.is_empty() => Err(Refusal::NoFastMemory),
        Moves { promote: Mask::NONE, demote: Mask::NONE } => Err(Refusal::InPlace),
        some => Ok(some),
    }
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
        let placed = machine.placed(hint.process, hint.pmd, wanted.hot | wanted.idle)?;
        let fast = machine.fast_memory().ok_or(Refusal::NoFastMemory)?;
        self.checked = moves(&wanted, placed, fast, keep_free_pct)?;
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
        let placed = Placed { fast: pages(0..50) | pages(200..300), slow: pages(50..200) | pages(300..512) };
        let fast = |free_pct, room_pages| FastMemory { free_pct, room_pages };
        let of = |free, room| moves(&wanted, placed, fast(free, room), 10.0);
        let (up, down) = (pages(50..100), pages(200..300));
        assert_eq!(of(5.0, 900), Ok(Moves { promote: up, demote: down }));
        assert_eq!(of(50.0, 900), Ok(Moves { promote: up, demote: Mask::NONE }), "there is room");
        assert_eq!(of(0.5, 0), Ok(Moves { promote: up, demote: down }), "what leaves makes room");
        let hot = Wanted { idle: Mask::NONE, ..wanted };
        let of = |wanted, placed, free, room| moves(wanted, placed, fast(free, room), 10.0);
        assert_eq!(of(&hot, placed, 0.5, 0), Err(Refusal::NoFastMemory));
        assert_eq!(
            of(&hot, placed, 0.5, 7),
            Ok(Moves { promote: pages(50..57), demote: Mask::NONE }),
            "as many as fit"
        );
        let all_fast = Placed { fast: Mask::ALL, slow: Mask::NONE };
        assert_eq!(of(&hot, all_fast, 0.5, 9), Err(Refusal::InPlace));
        assert_eq!(of(&wanted, all_fast, 50.0, 9), Err(Refusal::InPlace));
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
