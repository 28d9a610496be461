//! Finds out where pages are, moves them, and reads back where they are then.
//!
//! `move_pages` says for each page whether it has moved, but takes a pid: so whether it is still the same process is checked before and
//! after. It stalls the process for less than a page's copy at a time, and skips pages that another process maps.

use crate::action::{Failure, Performed};
use crate::machine::{DryRun, Live, Machine, timed};
use crate::outcome::Refusal;
use isotherm_heat::{Mask, Ns, TargetId};
use isotherm_sys::clock;
use isotherm_sys::move_pages::{Place, move_to, places};
use isotherm_sys::room;
use isotherm_sys::tiers::Tiers;
use isotherm_units::{PAGES_PER_PMD, PageNo, PmdNo};
use std::collections::BTreeMap;
use std::io;

/// In which tier pages are. Those in neither are not present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// In the fastest tier.
    pub fast: Mask,
    /// In a slower one.
    pub slow: Mask,
}

/// The fastest tier.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FastMemory {
    /// Percent of it that is free.
    pub free_pct: f64,
    /// Pages that it can take without reclaim.
    pub room_pages: u64,
}

/// Pages of one huge range that move, or have moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    /// To the fastest tier.
    pub promote: Mask,
    /// To the next slower tier.
    pub demote: Mask,
}

/// The result of moving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// How it went.
    pub performed: Performed,
    /// What has moved, or would.
    pub moved: Moves,
}

/// What moving needs of a machine.
pub trait MigrateMachine: Machine {
    /// The time (monotonic), by which what was found is fresh.
    fn now_ns(&self) -> Ns;
    /// In which tier these pages of an admitted process are, or why none of the huge range can be moved.
    fn placed(&mut self, process: TargetId, pmd: PmdNo, pages: Mask) -> Result<Placed, Refusal>;
    /// What is free of the fastest tier now.
    fn fast_memory(&mut self) -> Option<FastMemory>;
    /// Moves these pages, which [`MigrateMachine::placed`] has found right before.
    fn migrate(&mut self, process: TargetId, pmd: PmdNo, moves: Moves) -> Moved;
}

impl<M: MigrateMachine + ?Sized> MigrateMachine for Box<M> {
    fn now_ns(&self) -> Ns {
        (**self).now_ns()
    }

    fn placed(&mut self, process: TargetId, pmd: PmdNo, pages: Mask) -> Result<Placed, Refusal> {
        (**self).placed(process, pmd, pages)
    }

    fn fast_memory(&mut self) -> Option<FastMemory> {
        (**self).fast_memory()
    }

    fn migrate(&mut self, process: TargetId, pmd: PmdNo, moves: Moves) -> Moved {
        (**self).migrate(process, pmd, moves)
    }
}

/// The node of each page of a huge range that is among `pages` and present.
fn nodes_of(process: TargetId, pmd: PmdNo, pages: Mask) -> Result<Vec<(usize, u32)>, Refusal> {
    let indices: Vec<usize> = pages.iter().collect();
    let asked: Vec<PageNo> = indices.iter().map(|index| pmd.page(*index)).collect();
    let found = places(process.pid, &asked).map_err(|error| refusal_of(&error))?;
    let node = |(index, place)| if let Place::Node(node) = place { Some((index, node)) } else { None };
    Ok(indices.into_iter().zip(found).filter_map(node).collect())
}

fn refusal_of(error: &io::Error) -> Refusal {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Refusal::Denied,
        io::ErrorKind::NotFound => Refusal::Gone,
        // ESRCH has no kind of its own.
        _ if error.raw_os_error() == Some(3) => Refusal::Gone,
        io::ErrorKind::OutOfMemory => Refusal::NoFastMemory,
        _ => Refusal::Error,
    }
}

/// Where pages go: by node, those that are to move there. Slow nodes come first, which makes room on the fast ones.
fn destinations(tiers: &Tiers, nodes: &[(usize, u32)], moves: Moves) -> BTreeMap<(bool, u32), Mask> {
    let mut by_node: BTreeMap<(bool, u32), Mask> = BTreeMap::new();
    for (index, node) in nodes {
        let to = if moves.promote.has(*index) {
            tiers.fastest_near(*node)
        } else if tiers.is_fast(*node) {
            tiers.below(*node)
        } else {
            None
        };
        if let Some(to) = to {
            let pages = by_node.entry((tiers.is_fast(to), to)).or_default();
            *pages = *pages | std::iter::once(*index).collect();
        }
    }
    by_node
}

impl Live {
    fn move_all(&mut self, process: TargetId, pmd: PmdNo, moves: Moves) -> Result<Moves, Failure> {
        let refused = Failure::Refused;
        self.check(process).map_err(refused)?;
        let is_huge = self.member(process).map_err(refused)?.pagemap.is_huge(pmd).unwrap_or(None) == Some(true);
        let nodes = nodes_of(process, pmd, moves.promote | moves.demote).map_err(refused)?;
        let mut moved = Moves::default();
        for ((_, node), pages) in destinations(self.tiers(), &nodes, moves) {
            // One page of a huge page stands for all of it.
            let asked = pages.iter().take(if is_huge { 1 } else { PAGES_PER_PMD }).map(|index| pmd.page(index));
            let asked: Vec<PageNo> = asked.collect();
            move_to(process.pid, &asked, node).map_err(|error| refused(refusal_of(&error)))?;
            let there = nodes_of(process, pmd, pages).map_err(refused)?;
            let there: Mask = there.into_iter().filter(|(_, at)| *at == node).map(|(index, _)| index).collect();
            moved.promote = moved.promote | (there & moves.promote);
            moved.demote = moved.demote | (there & moves.demote);
        }
        self.check(process).map_err(refused)?;
        Ok(moved)
    }
}

impl MigrateMachine for Live {
    fn now_ns(&self) -> Ns {
        clock::monotonic_ns()
    }

    fn placed(&mut self, process: TargetId, pmd: PmdNo, pages: Mask) -> Result<Placed, Refusal> {
        self.check(process)?;
        let nodes = nodes_of(process, pmd, pages)?;
        let tiers = self.tiers();
        let of = |is_fast: bool| {
            nodes.iter().filter(|(_, node)| tiers.is_fast(*node) == is_fast).map(|(index, _)| *index).collect()
        };
        if nodes.is_empty() { Err(Refusal::Unmapped) } else { Ok(Placed { fast: of(true), slow: of(false) }) }
    }

    fn fast_memory(&mut self) -> Option<FastMemory> {
        let (free, all) = self.tiers().free_of_fast()?;
        let rooms = room::by_node(self.proc.root()).ok()?;
        let tiers = self.tiers();
        let fast = rooms.iter().filter(|(node, _)| tiers.is_fast(**node));
        let room_pages = fast.map(|(_, pages)| pages).sum();
        Some(FastMemory { free_pct: free.0 as f64 / all.0.max(1) as f64 * 100.0, room_pages })
    }

    fn migrate(&mut self, process: TargetId, pmd: PmdNo, moves: Moves) -> Moved {
        let mut moved = Moves::default();
        let performed = timed(|| {
            moved = self.move_all(process, pmd, moves)?;
            // None has left memory.
            Ok(0)
        });
        // The process waits for a page only while that page is copied.
        let pages = u64::from((moves.promote | moves.demote).count()).max(1);
        let performed = Performed { took_ns: performed.took_ns / pages, cpu_ns: performed.cpu_ns / pages, ..performed };
        Moved { performed, moved }
    }
}

impl MigrateMachine for DryRun {
    fn now_ns(&self) -> Ns {
        MigrateMachine::now_ns(&self.live)
    }

    fn placed(&mut self, process: TargetId, pmd: PmdNo, pages: Mask) -> Result<Placed, Refusal> {
        if self.done.contains(&(process, pmd)) {
            // It would be where it belongs.
            return Err(Refusal::InPlace);
        }
        self.live.placed(process, pmd, pages)
    }

    fn fast_memory(&mut self) -> Option<FastMemory> {
        self.live.fast_memory()
    }

    fn migrate(&mut self, process: TargetId, pmd: PmdNo, moves: Moves) -> Moved {
        self.done.insert((process, pmd));
        Moved { performed: Performed { result: Ok(()), pages: 0, took_ns: 0, cpu_ns: 0 }, moved: moves }
    }
}
