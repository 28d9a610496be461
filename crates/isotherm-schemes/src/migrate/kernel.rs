//! Finds out where pages are, moves them, and reads back where they are then.
//!
//! `move_pages` says for each page whether it has moved, but takes a pid: so whether it is still the same process is checked before and
//! after. It skips pages that another process maps. Pages are moved to the nearest node that has room for them, since an allocation below the
//! watermarks of a node reclaims there or fails; a huge page only if a free huge page is there, or the kernel would split it.

use crate::action::{Failure, Performed};
use crate::machine::{DryRun, Live, Machine, refusal_of, timed};
use crate::outcome::Refusal;
use isotherm_heat::{Mask, Ns, TargetId};
use isotherm_sys::clock;
use isotherm_sys::free::FreeBlocks;
use isotherm_sys::move_pages::{Place, move_to, places};
use isotherm_sys::room;
use isotherm_units::{PAGES_PER_PMD, PageNo, PmdNo};
use std::collections::BTreeMap;

/// How long it is believed what nodes have free. Moves of our own are known at once.
const ROOM_TTL: Ns = 100_000_000;

/// In which tier pages are. Those in neither are not present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// In the fastest tier.
    pub fast: Mask,
    /// Of those, on nodes of which less is free than is to be kept free.
    pub short: Mask,
    /// In a slower tier.
    pub slow: Mask,
    /// They are one huge page, which moves as a whole.
    pub is_huge: bool,
    /// Pages that the fastest tier can take without reclaim.
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
    /// In which tier these pages of an admitted process are, or why none of the huge range can be moved. Fast nodes of which less than
    /// `keep_free_pct` percent is free are short.
    fn placed(&mut self, process: TargetId, pmd: PmdNo, pages: Mask, keep_free_pct: f64) -> Result<Placed, Refusal>;
    /// Moves these pages, which [`MigrateMachine::placed`] has found right before.
    fn migrate(&mut self, process: TargetId, pmd: PmdNo, moves: Moves) -> Moved;
}

impl<M: MigrateMachine + ?Sized> MigrateMachine for Box<M> {
    fn now_ns(&self) -> Ns {
        (**self).now_ns()
    }

    fn placed(&mut self, process: TargetId, pmd: PmdNo, pages: Mask, keep_free_pct: f64) -> Result<Placed, Refusal> {
        (**self).placed(process, pmd, pages, keep_free_pct)
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

/// What the nodes have free, and when that was read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rooms {
    at: Ns,
    /// Pages that each node can take.
    pages: BTreeMap<u32, u64>,
    /// Free huge pages of each, and how many of them were taken since.
    huge: FreeBlocks,
    huge_taken: BTreeMap<u32, u64>,
}

impl Rooms {
    /// How many pages of these a node can take. A huge page goes as a whole, into a free one.
    fn fits(&self, node: u32, pages: Mask, is_huge: bool) -> Mask {
        let room = self.pages.get(&node).copied().unwrap_or(0);
        if is_huge {
            let taken = self.huge_taken.get(&node).copied().unwrap_or(0);
            let fits = room >= PAGES_PER_PMD as u64 && self.huge.huge_pages_on(node) > taken;
            return if fits { pages } else { Mask::NONE };
        }
        pages.iter().take(usize::try_from(room).unwrap_or(usize::MAX)).collect()
    }

    fn take(&mut self, node: u32, pages: Mask, is_huge: bool) {
        if is_huge && !pages.is_empty() {
            *self.huge_taken.entry(node).or_default() += 1;
        }
        if let Some(room) = self.pages.get_mut(&node) {
            *room = room.saturating_sub(u64::from(pages.count()));
        }
    }
}

impl Live {
    fn rooms(&mut self) -> &mut Rooms {
        let now = clock::monotonic_ns();
        if self.rooms.at == 0 || now.saturating_sub(self.rooms.at) > ROOM_TTL {
            let proc = self.proc.root();
            let (pages, huge) = (room::by_node(proc).unwrap_or_default(), FreeBlocks::read(proc).unwrap_or_default());
            self.rooms = Rooms { at: now, pages, huge, huge_taken: BTreeMap::new() };
        }
        &mut self.rooms
    }

    /// Moves pages of one node to the first of these nodes that has room for them, and what does not fit to the next. Returns those that are
    /// there then.
    fn move_off(
        &mut self,
        (process, pmd): (TargetId, PmdNo),
        mut pages: Mask,
        to: &[u32],
        is_huge: bool,
    ) -> Result<Mask, Refusal> {
        let mut moved = Mask::NONE;
        for node in to {
            let some = self.rooms().fits(*node, pages, is_huge);
            if some.is_empty() {
                continue;
            }
            // One page of a huge page stands for all of it.
            let asked = some.iter().take(if is_huge { 1 } else { PAGES_PER_PMD }).map(|index| pmd.page(index));
            let asked: Vec<PageNo> = asked.collect();
            let result = move_to(process.pid, &asked, *node);
            // Some may have moved before an error.
            let there = nodes_of(process, pmd, some)?;
            let there: Mask = there.into_iter().filter(|(_, at)| at == node).map(|(index, _)| index).collect();
            self.rooms().take(*node, there, is_huge);
            (moved, pages) = (moved | there, pages & !there);
            match result {
                Err(error) if refusal_of(&error) == Refusal::Gone => return Err(Refusal::Gone),
                // The node may be outside of its cpuset: another may not be.
                _ => {}
            }
        }
        Ok(moved)
    }

    fn move_all(&mut self, process: TargetId, pmd: PmdNo, moves: Moves) -> Result<Moves, Failure> {
        let refused = Failure::Refused;
        self.check(process).map_err(refused)?;
        let is_huge = self.is_one_huge_page(process, pmd).map_err(refused)?;
        if is_huge && (moves.promote | moves.demote) != Mask::ALL {
            return Err(refused(Refusal::AlreadyHuge));
        }
        let tiers = self.tiers();
        let nodes = nodes_of(process, pmd, moves.promote | moves.demote).map_err(refused)?;
        let mut moved = Moves::default();
        // What goes down makes room for what goes up.
        for (wanted, down) in [(moves.demote, true), (moves.promote, false)] {
            for (node, pages) in by_node(&nodes, wanted) {
                let to = if down { tiers.below(node) } else { tiers.fastest_near(node) };
                let there = self.move_off((process, pmd), pages, &to, is_huge).map_err(refused)?;
                let of = if down { &mut moved.demote } else { &mut moved.promote };
                *of = *of | there;
            }
        }
        self.check(process).map_err(refused)?;
        Ok(moved)
    }

    fn is_one_huge_page(&mut self, process: TargetId, pmd: PmdNo) -> Result<bool, Refusal> {
        Ok(self.member(process)?.pagemap.is_huge(pmd).unwrap_or(None) == Some(true))
    }
}

/// Those of the pages that are wanted, by the node on which they are.
fn by_node(nodes: &[(usize, u32)], wanted: Mask) -> BTreeMap<u32, Mask> {
    let mut found: BTreeMap<u32, Mask> = BTreeMap::new();
    for (index, node) in nodes.iter().filter(|(index, _)| wanted.has(*index)) {
        let pages = found.entry(*node).or_default();
        *pages = *pages | std::iter::once(*index).collect();
    }
    found
}

impl MigrateMachine for Live {
    fn now_ns(&self) -> Ns {
        clock::monotonic_ns()
    }

    fn placed(&mut self, process: TargetId, pmd: PmdNo, pages: Mask, keep_free_pct: f64) -> Result<Placed, Refusal> {
        self.check(process)?;
        // A VMM may create its guest after it was admitted.
        self.refresh_mappings(process, clock::monotonic_ns())?;
        if self.member(process)?.runs_guest {
            return Err(Refusal::Guest);
        }
        let nodes = nodes_of(process, pmd, pages)?;
        if nodes.is_empty() {
            return Err(Refusal::Unmapped);
        }
        let is_huge = self.is_one_huge_page(process, pmd)?;
        let tiers = self.tiers();
        let rooms = self.rooms();
        let fast_nodes = tiers.nodes().first().cloned().unwrap_or_default();
        let room_pages = fast_nodes.iter().filter_map(|node| rooms.pages.get(node)).sum();
        let mut placed = Placed { is_huge, room_pages, ..Placed::default() };
        for (node, pages) in by_node(&nodes, Mask::ALL) {
            if !tiers.is_fast(node) {
                placed.slow = placed.slow | pages;
                continue;
            }
            placed.fast = placed.fast | pages;
            let free = tiers.free_of(node);
            if free.is_some_and(|(free, all)| (free.0 as f64) < all.0 as f64 * keep_free_pct / 100.0) {
                placed.short = placed.short | pages;
            }
        }
        Ok(placed)
    }

    fn migrate(&mut self, process: TargetId, pmd: PmdNo, moves: Moves) -> Moved {
        let mut moved = Moves::default();
        let performed = timed(|| {
            moved = self.move_all(process, pmd, moves)?;
            // None has left memory.
            Ok(0)
        });
        Moved { performed, moved }
    }
}

impl MigrateMachine for DryRun {
    fn now_ns(&self) -> Ns {
        MigrateMachine::now_ns(&self.live)
    }

    fn placed(&mut self, process: TargetId, pmd: PmdNo, pages: Mask, keep_free_pct: f64) -> Result<Placed, Refusal> {
        if self.moved.contains(&(process, pmd)) {
            // It would be where it belongs.
            return Err(Refusal::InPlace);
        }
        self.live.placed(process, pmd, pages, keep_free_pct)
    }

    fn migrate(&mut self, process: TargetId, pmd: PmdNo, moves: Moves) -> Moved {
        self.moved.insert((process, pmd));
        Moved { performed: Performed { result: Ok(()), pages: 0, took_ns: 0, cpu_ns: 0 }, moved: moves }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_sys::free::FreeZone;

    #[test]
    fn a_node_takes_as_many_pages_as_it_has_room_for_and_a_huge_page_as_a_whole_or_not() {
        let counts = vec![0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];
        let huge = FreeBlocks { zones: vec![FreeZone { node: 1, zone: "Normal".into(), counts }] };
        let pages = [(0, 600), (1, 2000), (2, 5)].into();
        let mut rooms = Rooms { at: 1, pages, huge, huge_taken: BTreeMap::new() };
        let pages: Mask = (100..200).collect();
        assert_eq!((rooms.fits(2, pages, false), rooms.fits(3, pages, false)), ((100..105).collect(), Mask::NONE));
        assert_eq!([0, 1, 2].map(|node| rooms.fits(node, Mask::ALL, true).count()), [0, 512, 0]);
        let mut without_block = rooms.clone();
        without_block.take(1, Mask::ALL, true);
        assert_eq!(without_block.fits(1, Mask::ALL, true), Mask::NONE, "the only free block is taken");
        assert_eq!(without_block.fits(1, pages, false), pages);
        (0..15).for_each(|_| rooms.take(1, pages, false));
        assert_eq!(rooms.fits(1, Mask::ALL, true), Mask::NONE, "500 pages are left");
    }

    #[test]
    fn pages_are_grouped_by_the_node_on_which_they_are() {
        let found = by_node(&[(1, 0), (2, 1), (3, 0), (9, 1)], (1..5).collect());
        assert_eq!(found, [(0, [1, 3].into_iter().collect()), (1, [2].into_iter().collect())].into());
    }
}
