//! Shuffles the free lists, so that which frames share a colour of a direct-mapped cache does not depend on the history
//! of the zone.
//!
//! The kernel swaps each block with one drawn from the whole zone. That does not make all orders equally likely, and it
//! gives up on a block after ten draws that hit holes. Here the blocks of a list are copied to an array, put into
//! random order by Fisher-Yates (every order is equally likely), and moved to the tail of their list in that order.
//! Copying and drawing need no lock. Moving takes it for 96 blocks at a time and skips blocks that were allocated
//! meanwhile. Holes never occur.
//!
//! Freed blocks add entropy: from the shuffled order up, they go to a random end of their list.

use super::alloc::Zone;
use super::lists::{End, Kind};
use super::shuffling::{Shuffling, Switch, permute};
use crate::lock::Held;
use crate::state;
use crate::{MAX_ORDER, MigrateType, Order, PAGE_BLOCK_ORDER};
use core::sync::atomic::Ordering::Relaxed;
use isotherm_rng::Rng;

/// Blocks that are moved each time the lock is held. Each costs a few memory accesses that miss every cache.
const BLOCKS_A_HOLD: usize = 96;

impl<'m> Zone<'m> {
    /// Whether free blocks are shuffled, and why.
    pub fn shuffling(&self) -> Shuffling {
        *self.shuffle.lock()
    }

    /// Changes whether free blocks are shuffled, for example with `|s| s.asked()` or `|s| s.detected()`. If that turns
    /// shuffling on, the present free blocks are shuffled. Shuffling that was forbidden stays off, whatever `change`
    /// returns. `change` runs under a lock and must not call this zone. Returns the new setting.
    pub fn set_shuffling(&self, change: impl FnOnce(Shuffling) -> Shuffling) -> Shuffling {
        let (before, after) = {
            let mut shuffling = self.shuffle.lock();
            let before = *shuffling;
            if before.switch != Switch::ForcedOff {
                *shuffling = change(before);
            }
            // Under both locks, or of two concurrent callers each could win in one place.
            self.metadata.lock().placement.shuffle = shuffling.order();
            (before, *shuffling)
        };
        if after.is_on() && !before.is_on() {
            self.shuffle();
        }
        after
    }

    /// Shuffles the present free blocks, if shuffling is on.
    pub fn shuffle(&self) {
        let mut shuffler = self.shuffler();
        while shuffler.step() {}
    }

    /// As [`Zone::shuffle()`], for callers that want to act between two holds of the lock, or to time them. Allocations
    /// and frees continue meanwhile. Callers of `add`, `offline`, `keep` and `validate` wait until the shuffler is
    /// dropped; the thread that owns it would deadlock.
    pub fn shuffler(&self) -> Shuffler<'_, 'm> {
        Shuffler::new(self, Some(self.changing.lock()))
    }

    /// As [`Zone::shuffle()`], for callers that hold `changing`.
    pub(super) fn shuffle_held(&self) {
        let mut shuffler = Shuffler::new(self, None);
        while shuffler.step() {}
    }
}

/// A shuffle in progress. While it exists, no one else shuffles, adds or removes ranges.
pub struct Shuffler<'z, 'm> {
    zone: &'z Zone<'m>,
    _changing: Option<Held<'z, ()>>,
    /// The current list; the lists after it follow. `None`: done.
    list: Option<(Order, MigrateType)>,
    rng: Rng,
    written: usize,
    moved: usize,
}

impl core::fmt::Debug for Shuffler<'_, '_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Shuffler")
            .field("list", &self.list)
            .field("written", &self.written)
            .field("moved", &self.moved)
            .finish_non_exhaustive()
    }
}

impl<'z, 'm> Shuffler<'z, 'm> {
    fn new(zone: &'z Zone<'m>, changing: Option<Held<'z, ()>>) -> Shuffler<'z, 'm> {
        let mut metadata = zone.metadata.lock();
        let from = metadata.placement.shuffle;
        let rng = Rng::new(metadata.placement.rng.next_u64());
        drop(metadata);
        let list = from.map(|order| (order, MigrateType::ALL[0]));
        let mut shuffler = Shuffler { zone, _changing: changing, list, rng, written: 0, moved: 0 };
        shuffler.write_down();
        shuffler.advance();
        shuffler
    }

    /// Goes to the next list that has blocks to move, if this one is done. Takes no lock for long.
    fn advance(&mut self) {
        while self.moved == self.written
            && let Some(list) = self.list
        {
            self.list = following(list);
            self.write_down();
        }
    }

    /// Moves some blocks, holding the lock once. False if none are left. Between two lists it also copies the next one,
    /// without the lock.
    pub fn step(&mut self) -> bool {
        self.advance();
        let Some((order, migrate)) = self.list else { return false };
        let end = self.written.min(self.moved + BLOCKS_A_HOLD);
        let mut metadata = self.zone.metadata.lock();
        for place in &self.zone.scratch[self.moved..end] {
            let index = place.load(Relaxed);
            // If it was allocated meanwhile, or its type has changed, it is no longer in this list.
            if self.zone.state_byte(index) == state::free(order) && metadata.kind(index) == Kind::Of(migrate) {
                metadata.lists.unlink(index, order, Kind::Of(migrate));
                metadata.lists.insert(index, order, Kind::Of(migrate), End::Tail);
            }
        }
        self.moved = end;
        true
    }

    /// Copies the blocks of the current list to the scratch space, in random order.
    fn write_down(&mut self) {
        (self.written, self.moved) = (0, 0);
        let Some((order, migrate)) = self.list else { return };
        if self.zone.metadata.lock().lists.blocks(order, Kind::Of(migrate)) < 2 {
            return;
        }
        // From order 9 up, a page block has at most one head, and the scratch space has one number for each page block.
        // Lists of smaller blocks are short where shuffling matters. Blocks that do not fit stay where they are.
        let step = order.frames() as usize;
        let places = self.zone.scratch;
        for index in (0..u32::try_from(self.zone.states.len()).unwrap_or(u32::MAX)).step_by(step) {
            if self.zone.state_byte(index) == state::free(order) && self.is_of(index, migrate) {
                let Some(place) = places.get(self.written) else { break };
                place.store(index, Relaxed);
                self.written += 1;
            }
        }
        permute(&places[..self.written], &mut self.rng);
    }

    fn is_of(&self, index: u32, migrate: MigrateType) -> bool {
        let block = self.zone.page_block(index);
        self.zone.is_present(index >> PAGE_BLOCK_ORDER) && !block.is_isolated() && block.migrate() == migrate
    }
}

/// The list after this one: the other types of the order, then the next order.
fn following((order, migrate): (Order, MigrateType)) -> Option<(Order, MigrateType)> {
    match MigrateType::ALL.get(migrate as usize + 1) {
        Some(&next) => Some((order, next)),
        None if order.get() < MAX_ORDER => Some((Order::new(order.get() + 1)?, MigrateType::ALL[0])),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FrameNo, FrameRange, Metadata, ZoneConfig};
    use std::thread;

    #[test]
    fn forbidden_wins_whatever_comes_first() {
        let off = Shuffling::default();
        assert!(!off.is_on());
        assert_eq!(off.asked().switch, Switch::Requested);
        assert_eq!(off.detected().switch, Switch::Detected);
        assert_eq!(off.asked().detected().switch, Switch::Requested);
        assert_eq!(off.detected().asked().switch, Switch::Requested);
        for forbidden in [
            off.forbidden(),
            off.forbidden().asked(),
            off.forbidden().detected(),
            off.asked().forbidden(),
            off.detected().forbidden().asked(),
        ] {
            assert_eq!((forbidden.switch, forbidden.is_on()), (Switch::ForcedOff, false));
        }
        assert_eq!(Shuffling::from_option(None), off);
        assert!(Shuffling::from_option(Some(true)).is_on());
        assert_eq!(Shuffling::from_option(Some(false)).detected().switch, Switch::ForcedOff);
    }

    #[test]
    fn lists_follow_each_other_to_the_largest() {
        let mut list = Some((Order::HUGE, MigrateType::Unmovable));
        let mut seen = Vec::new();
        while let Some(l) = list {
            seen.push(l);
            list = following(l);
        }
        assert_eq!(seen.len(), 6);
        assert_eq!(seen.last(), Some(&(Order::MAX, MigrateType::Reclaimable)));
    }

    #[test]
    fn of_two_callers_the_same_has_the_last_word_everywhere() {
        let config = ZoneConfig::new(FrameRange::new(FrameNo(0), FrameNo(1024)));
        let mut bytes = vec![0; config.metadata_bytes().unwrap()];
        for _ in 0..if cfg!(miri) { 2 } else { 50 } {
            let zone = Zone::new(&config, Metadata::cleared(&mut bytes)).unwrap();
            let metadata = zone.metadata.lock();
            thread::scope(|s| {
                for (cached, from) in [(1, Order::HUGE), (2, Order::MAX)] {
                    let zone = &zone;
                    s.spawn(move || zone.set_shuffling(|shuffling| Shuffling { from, ..shuffling.asked() }));
                    // One waits here, and the other here or for the first.
                    while zone.metadata.raw().contended() + zone.shuffle.raw().contended() < cached {
                        thread::yield_now();
                    }
                    if cached == 1 {
                        // The first falls asleep, so that the second, who still looks, could overtake it.
                        thread::sleep(core::time::Duration::from_micros(200));
                    }
                }
                drop(metadata);
            });
            assert_eq!(zone.metadata.lock().placement.shuffle, zone.shuffling().order());
        }
    }
}
