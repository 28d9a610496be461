//! Sets that all threads share: handing out and taking back, and the way to the zone when a list is empty or full.

use super::aside::Asides;
use super::config::SetsConfig;
use super::cpu_lists::CpuLists;
use super::error::SetsError;
use super::exchange::{Mark, Want};
use super::front::Front;
use super::lists::{frames_in, list_of, order_of};
use super::retry::retry_for_ms;
use super::tier::Tier;
use crate::lock::Lock;
use crate::memory::Metadata;
use crate::percpu::{LISTS, Rseq};
use crate::state;
use crate::tune::Marks;
use crate::{AllocError, FrameNo, FrameState, FreeError, MigrateType, Order, Request, Zone};
use core::sync::atomic::Ordering::Relaxed;

/// For how long a request that the zone cannot serve comes back to sets that someone has: some slices of a processor, for whoever was
/// interrupted in a set to get out of it.
const EXHAUSTED_MS: u32 = 20;

/// Blocks of a zone in sets for each CPU, shared by all threads.
///
/// A thread that ends in the middle of a call, as one that is cancelled: in a restartable sequence it holds nothing. With locks, the
/// CPU's set stays taken and is passed over from then on; everyone goes to the zone. In a visit to the zone it may hold the zone's
/// lock, which nobody then gets any more, as with any lock; so may an interrupted one: in signal handlers, only
/// [`Zone::request`](crate::Zone::request) without waiting is allowed.
pub struct Sets<'m> {
    pub(super) zone: Zone<'m>,
    pub(super) lists: CpuLists<'m>,
    pub(super) asides: Asides<'m>,
    pub(super) marks: Marks,
    capacities: [u32; LISTS],
    /// Held while everything is to be quiet.
    pub(super) quiet: Lock<()>,
}

impl<'m> Sets<'m> {
    /// Empty sets in front of `zone`, which is from now on reached through them. Make them after its first frames were added: how
    /// large the sets may be follows from the number of frames.
    pub fn new(zone: Zone<'m>, config: &SetsConfig, mut metadata: Metadata<'m>) -> Result<Sets<'m>, SetsError> {
        if config.cpus == 0 {
            return Err(SetsError::NoCpus);
        }
        let (marks, shape) = (config.marks_for(&zone), config.shape(&zone));
        let too_small = SetsError::MetadataTooSmall { given: metadata.len(), needed: config.metadata_bytes(&zone) };
        if metadata.len() < config.metadata_bytes(&zone) {
            return Err(too_small);
        }
        let asides = Asides::new(config.cpus, marks, &mut metadata).ok_or(too_small)?;
        let rseq = match config.tier {
            Tier::Locked => None,
            Tier::Best => Rseq::check().ok(),
            Tier::Restartable => Some(Rseq::check().map_err(SetsError::NoRseq)?),
        };
        let lists = CpuLists::new(rseq, shape, &mut metadata).ok_or(too_small)?;
        let sets = Sets { zone, lists, asides, marks, capacities: shape.capacities, quiet: Lock::new(()) };
        (0..config.cpus).for_each(|cpu| sets.set_room(cpu));
        Ok(sets)
    }

    /// The zone behind. Frames in sets are not free there.
    pub const fn zone(&self) -> &Zone<'m> {
        &self.zone
    }

    /// Which tier it has become.
    pub const fn tier(&self) -> Tier {
        self.lists.tier()
    }

    /// CPUs that have sets.
    pub const fn cpus(&self) -> u32 {
        self.asides.cpus()
    }

    /// Hands out a block of `order`: its first frame.
    ///
    /// When the zone has none, the sets of all CPUs are emptied, and the zone is asked again; while someone has a set in which frames
    /// wait, again and again for 20 ms. Once a thread has died in such a set every failure takes that long.
    #[inline]
    pub fn alloc(&self, order: Order, migrate: MigrateType) -> Result<FrameNo, AllocError> {
        match self.alloc_waiting(order, migrate) {
            Some(frame) => Ok(frame),
            None => self.alloc_slow(order, migrate),
        }
    }

    /// The same without emptying other CPUs' sets when the zone has none: for those who have another choice, as a smaller order.
    pub fn alloc_gently(&self, order: Order, migrate: MigrateType) -> Result<FrameNo, AllocError> {
        match self.alloc_waiting(order, migrate) {
            Some(frame) => Ok(frame),
            None => self.alloc_behind(order, migrate),
        }
    }

    /// A block that waits in this CPU's set.
    #[inline]
    fn alloc_waiting(&self, order: Order, migrate: MigrateType) -> Option<FrameNo> {
        let list = list_of(order, migrate)?;
        loop {
            let index = self.lists.pop(list)?;
            let byte = self.zone.byte(index);
            if byte.load(Relaxed) == state::cached(order) {
                byte.store(state::allocated(order, migrate), Relaxed);
                return Some(self.zone.frame(index));
            }
            self.zone.mistaken();
        }
    }

    /// Takes a block back. On an error nothing has changed: it is not handed out, or not as this, or someone else was just faster.
    #[inline]
    pub fn free(&self, frame: FrameNo, order: Order) -> Result<(), FreeError> {
        self.free_marked(frame, order, Mark::Swapped)
    }

    /// The same without a locked instruction, for callers who alone can free this block, as the owner of a guard can. A second free
    /// is found all the same, unless it comes at the same instant: then the block may have two owners, or the zone's books be wrong,
    /// from then on.
    #[inline]
    pub fn free_unique(&self, frame: FrameNo, order: Order) -> Result<(), FreeError> {
        self.free_marked(frame, order, Mark::Stored)
    }

    #[inline]
    fn free_marked(&self, frame: FrameNo, order: Order, mark: Mark) -> Result<(), FreeError> {
        let Some(index) = self.zone.index(frame) else { return Err(self.zone.foreign(frame, order)) };
        let page_block = self.zone.page_block(index);
        match list_of(order, page_block.migrate()) {
            Some(list) if !page_block.is_isolated() => {
                if !self.zone.mark_cached(index, order, mark) {
                    return Err(self.zone.refuse(frame, order));
                }
                if !self.lists.push(list, index) {
                    self.free_slow(list, index);
                }
                Ok(())
            }
            _ => self.zone.free(frame, order),
        }
    }

    /// Hands out blocks until `frames` is full or none is left; how many. Straight from the zone, which is what many at once cost
    /// least from.
    pub fn alloc_bulk(&self, order: Order, migrate: MigrateType, frames: &mut [FrameNo]) -> usize {
        let got = self.zone.alloc_bulk(order, migrate, frames);
        if got == frames.len() {
            return got;
        }
        self.drain_all();
        got + self.zone.alloc_bulk(order, migrate, &mut frames[got..])
    }

    /// Takes blocks back, straight to the zone. Those that cannot be are left out, and the first such is the error.
    pub fn free_bulk(&self, frames: &[FrameNo], order: Order) -> Result<(), FreeError> {
        self.zone.free_bulk(frames, order)
    }

    /// Hands out the block of `order` that starts at `frame`, if it is free, also if it waits in a set.
    pub fn alloc_at(&self, frame: FrameNo, order: Order, migrate: MigrateType) -> Result<(), AllocError> {
        self.zone.alloc_at(frame, order, migrate).or_else(|error| {
            // Only if that can help: draining interrupts every CPU.
            let mut frames = (0..u64::from(order.frames())).filter_map(|n| frame.0.checked_add(n)).map(FrameNo);
            if !frames.any(|frame| matches!(self.zone.state(frame), FrameState::Cached(_))) {
                return Err(error);
            }
            self.drain_all();
            self.zone.alloc_at(frame, order, migrate)
        })
    }

    /// Frames that wait in the set of a CPU, at this moment.
    pub fn waiting(&self, cpu: u32) -> u64 {
        let counts = self.lists.counts(cpu);
        counts.iter().enumerate().map(|(list, &count)| u64::from(count) * u64::from(order_of(list).frames())).sum()
    }

    /// Lets every list of a CPU grow by a batch from what it has, and no further: the limits of all lists together are what bounds a set,
    /// since the tuner is asked only at a limit.
    pub(super) fn set_room(&self, cpu: u32) {
        for list in 0..LISTS {
            let room = (self.marks.batch >> order_of(list).get()).max(1);
            self.lists.set_limit(cpu, list, self.lists.count(cpu, list).saturating_add(room));
        }
    }

    pub(super) fn frames_waiting(&self, cpu: u32) -> u32 {
        frames_in(&self.lists.counts(cpu))
    }

    #[cold]
    #[inline(never)]
    pub(super) fn alloc_slow(&self, order: Order, migrate: MigrateType) -> Result<FrameNo, AllocError> {
        self.alloc_behind(order, migrate).or_else(|_| {
            // The last frames may wait in other CPUs' sets, or keep buddies in them apart, or be on their way back from there.
            // Those of a set that someone has, to tidy it or to drain it, can be had once he is done.
            let mut last = Err(AllocError::Exhausted { order, free_blocks: [0; crate::ORDERS] });
            let _ = retry_for_ms(EXHAUSTED_MS, || {
                let drained = self.drain_all_had();
                last = self.zone.request(Request::new(order, migrate));
                let may_come = drained.missed && matches!(last, Err(AllocError::Exhausted { .. }));
                (!may_come).then_some(())
            });
            last
        })
    }

    /// From the zone, by way of this CPU's set where it has a list for it.
    fn alloc_behind(&self, order: Order, migrate: MigrateType) -> Result<FrameNo, AllocError> {
        match list_of(order, migrate) {
            Some(list) => self.refill(list, order, migrate),
            None => self.zone.alloc(order, migrate),
        }
    }

    /// Takes some blocks for this CPU's list from the zone: one of them is the answer.
    fn refill(&self, list: usize, order: Order, migrate: MigrateType) -> Result<FrameNo, AllocError> {
        let cpu = self.lists.cpu();
        let waiting = self.frames_waiting(cpu);
        let pressure = self.zone.pressure();
        let wanted = self.asides.tuned(cpu, |tuner| {
            tuner.on_alloc();
            tuner.refill(order, waiting, pressure)
        });
        // Without a set there is nothing to fill. What follows the first chunk is not worth waiting for.
        let want = Want { order, migrate, blocks: wanted.unwrap_or(1), waits_for_more: false };
        self.zone.refill_some(&want, |blocks| self.keep(cpu, list, blocks))
    }

    /// Puts blocks into this CPU's list; how many it took.
    fn keep(&self, cpu: u32, list: usize, blocks: &[u32]) -> usize {
        let room = u32::try_from(blocks.len()).unwrap_or(u32::MAX);
        self.lists.set_limit(cpu, list, self.lists.count(cpu, list).saturating_add(room));
        self.lists.push_many(list, blocks)
    }

    /// A block for which there is no room: makes room, by letting the list grow or by giving some back.
    #[cold]
    #[inline(never)]
    fn free_slow(&self, list: usize, index: u32) {
        let (cpu, order) = (self.lists.cpu(), order_of(list));
        let waiting = self.frames_waiting(cpu) + order.frames();
        let pressure = self.zone.pressure();
        let drain = self.asides.tuned(cpu, |tuner| {
            tuner.on_free(order);
            tuner.drain(waiting, pressure)
        });
        let Some(frames) = drain else {
            self.zone.give_back(&[index], order);
            return;
        };
        let count = self.lists.count(cpu, list);
        let batch = (self.marks.batch >> order.get()).max(1);
        if frames > 0 {
            self.give_older(list, order, (frames >> order.get()).max(1) as usize);
            self.set_room(cpu);
        } else if count < self.capacities[list] {
            // Room for another batch, or the tuner would be asked each time.
            self.lists.set_limit(cpu, list, count.saturating_add(batch));
        } else {
            self.give_older(list, order, batch as usize);
        }
        if !self.lists.push(list, index) {
            self.zone.give_back(&[index], order);
        }
    }

    /// Gives blocks of this CPU's list to the zone: see [`Zone::give_older`].
    fn give_older(&self, list: usize, order: Order, blocks: usize) {
        self.zone.give_older(
            order,
            blocks,
            |into| self.lists.pop_many(list, into),
            |blocks| self.lists.push_many(list, blocks),
        );
    }
}

impl core::fmt::Debug for Sets<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Sets")
            .field("zone", &self.zone)
            .field("tier", &self.tier())
            .field("cpus", &self.cpus())
            .finish_non_exhaustive()
    }
}

impl Front for &Sets<'_> {
    #[inline]
    fn alloc(&mut self, order: Order, migrate: MigrateType) -> Result<FrameNo, AllocError> {
        Sets::alloc(self, order, migrate)
    }

    #[inline]
    fn free(&mut self, frame: FrameNo, order: Order) -> Result<(), FreeError> {
        Sets::free(self, frame, order)
    }

    #[inline]
    fn free_unique(&mut self, frame: FrameNo, order: Order) -> Result<(), FreeError> {
        Sets::free_unique(self, frame, order)
    }

    fn drain(&mut self) -> u64 {
        self.drain_all()
    }
}
