//! Per-CPU lists that all threads share: allocate, free, and the way to the zone when a list is empty or full.

use super::config::PcpConfig;
use super::cpu_lists::CpuLists;
use super::cpu_state::CpuStates;
use super::error::PcpError;
use super::exchange::{CacheMark, Want};
use super::front::Front;
use super::lists::{frames_in, list_of, order_of};
use super::retry::retry_for_ms;
use super::tier::Tier;
use crate::lock::Lock;
use crate::memory::Metadata;
use crate::percpu::{LISTS, Rseq};
use crate::state;
use crate::tune::PcpLimits;
use crate::{AllocError, FrameNo, FrameState, FreeError, MigrateType, Order, Request, Zone};
use core::sync::atomic::Ordering::Relaxed;

/// For how long a request that the zone cannot serve retries while others hold cached blocks: several time slices, so
/// that a thread that was interrupted while it held lists can release them.
const EXHAUSTED_MS: u32 = 20;

/// Per-CPU lists of a zone's blocks, shared by all threads.
///
/// A thread may end in the middle of a call, for example if it is cancelled. In a restartable sequence it holds
/// nothing. With locks, the lists of that CPU stay locked; from then on they are skipped and everyone goes to the zone.
/// In a visit to the zone it may hold the zone lock, which then stays locked forever, as any lock would. An interrupted
/// thread may hold it too, so signal handlers may call only [`Zone::request`](crate::Zone::request) without waiting.
pub struct PcpLists<'m> {
    pub(super) zone: Zone<'m>,
    pub(super) lists: CpuLists<'m>,
    pub(super) states: CpuStates<'m>,
    pub(super) limits: PcpLimits,
    capacities: [u32; LISTS],
    /// Held while everything else is locked out.
    pub(super) quiet: Lock<()>,
}

impl<'m> PcpLists<'m> {
    /// Empty lists in front of `zone`, which is reached through them from now on. Create them after the first frames
    /// were added to the zone: the number of frames determines how large the lists may be.
    pub fn new(zone: Zone<'m>, config: &PcpConfig, mut metadata: Metadata<'m>) -> Result<PcpLists<'m>, PcpError> {
        if config.cpus == 0 {
            return Err(PcpError::NoCpus);
        }
        let (limits, shape) = (config.limits_for(&zone), config.shape(&zone));
        let too_small = PcpError::MetadataTooSmall { given: metadata.len(), needed: config.metadata_bytes(&zone) };
        if metadata.len() < config.metadata_bytes(&zone) {
            return Err(too_small);
        }
        let states = CpuStates::new(config.cpus, limits, &mut metadata).ok_or(too_small)?;
        let rseq = match config.tier {
            Tier::Locked => None,
            Tier::Best => Rseq::check().ok(),
            Tier::Restartable => Some(Rseq::check().map_err(PcpError::NoRseq)?),
        };
        let lists = CpuLists::new(rseq, shape, &mut metadata).ok_or(too_small)?;
        let pcp = PcpLists { zone, lists, states, limits, capacities: shape.capacities, quiet: Lock::new(()) };
        (0..config.cpus).for_each(|cpu| pcp.set_room(cpu));
        Ok(pcp)
    }

    /// The zone behind the lists. Cached frames are not free there.
    pub const fn zone(&self) -> &Zone<'m> {
        &self.zone
    }

    /// The tier in use.
    pub const fn tier(&self) -> Tier {
        self.lists.tier()
    }

    /// Number of CPUs that have lists.
    pub const fn cpus(&self) -> u32 {
        self.states.cpus()
    }

    /// Allocates a block of `order`; returns its first frame.
    ///
    /// If the zone has none, drains the lists of all CPUs and asks the zone again. While another thread holds lists
    /// that are not empty, it repeats this for up to 20 ms. If a thread has died in such lists, every failing request
    /// takes that long.
    #[inline]
    pub fn alloc(&self, order: Order, migrate: MigrateType) -> Result<FrameNo, AllocError> {
        match self.alloc_cached(order, migrate) {
            Some(frame) => Ok(frame),
            None => self.alloc_slow(order, migrate),
        }
    }

    /// As `alloc`, without draining other CPUs when the zone has none. For callers that have an alternative, such as a
    /// smaller order.
    pub fn alloc_without_draining(&self, order: Order, migrate: MigrateType) -> Result<FrameNo, AllocError> {
        match self.alloc_cached(order, migrate) {
            Some(frame) => Ok(frame),
            None => self.alloc_from_zone(order, migrate),
        }
    }

    /// A block from this CPU's lists.
    #[inline]
    fn alloc_cached(&self, order: Order, migrate: MigrateType) -> Option<FrameNo> {
        let list = list_of(order, migrate)?;
        loop {
            let index = self.lists.pop(list)?;
            let byte = self.zone.byte(index);
            if byte.load(Relaxed) == state::cached(order) {
                byte.store(state::allocated(order, migrate), Relaxed);
                return Some(self.zone.frame(index));
            }
            self.zone.wrong_state();
        }
    }

    /// Frees a block. On an error nothing has changed: the block is not allocated, or has another order, or another
    /// thread just freed it.
    #[inline]
    pub fn free(&self, frame: FrameNo, order: Order) -> Result<(), FreeError> {
        self.free_marked(frame, order, CacheMark::Swapped)
    }

    /// As `free`, without a locked instruction, for callers who alone can free this block, such as the owner of a
    /// guard. A second free is still detected, unless both happen at the same instant. Then the block may have two
    /// owners from then on, or the zone's metadata may be wrong.
    #[inline]
    pub fn free_unique(&self, frame: FrameNo, order: Order) -> Result<(), FreeError> {
        self.free_marked(frame, order, CacheMark::Stored)
    }

    #[inline]
    fn free_marked(&self, frame: FrameNo, order: Order, mark: CacheMark) -> Result<(), FreeError> {
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

    /// Allocates blocks until `frames` is full or none is left; returns how many. Takes them straight from the zone,
    /// which is cheapest for many at once.
    pub fn alloc_bulk(&self, order: Order, migrate: MigrateType, frames: &mut [FrameNo]) -> usize {
        let mut got = self.zone.alloc_bulk(order, migrate, frames);
        if got < frames.len() {
            self.drain_until(|| {
                got += self.zone.alloc_bulk(order, migrate, &mut frames[got..]);
                got == frames.len()
            });
        }
        got
    }

    /// Allocates from the zone. If that has none, drains all lists and tries again, unless the request does not wait.
    pub fn request(&self, request: Request) -> Result<FrameNo, AllocError> {
        self.zone
            .request(request)
            .or_else(|error| if request.no_wait { Err(error) } else { self.request_drained(request) })
    }

    /// Frees blocks, straight to the zone. Skips those that it refuses and returns the first error.
    pub fn free_bulk(&self, frames: &[FrameNo], order: Order) -> Result<(), FreeError> {
        self.zone.free_bulk(frames, order)
    }

    /// Allocates the block of `order` that starts at `frame`, if it is free or cached on a list.
    pub fn alloc_at(&self, frame: FrameNo, order: Order, migrate: MigrateType) -> Result<(), AllocError> {
        self.zone.alloc_at(frame, order, migrate).or_else(|_| {
            // Drain only if that can help, because it interrupts every CPU. Try again in any case: a drain by another
            // thread may have come between the two looks.
            if frame.is_aligned(order.get()) && self.is_cached(frame, order) {
                self.drain_all();
            }
            self.zone.alloc_at(frame, order, migrate)
        })
    }

    /// Whether a frame of a block is in a cached one: that starts in the block, or that is larger and starts before it.
    fn is_cached(&self, frame: FrameNo, order: Order) -> bool {
        let starts = |frame| matches!(self.zone.state(frame), FrameState::Cached(_));
        let around = |larger: Order| {
            let head = FrameNo(frame.0 & !(u64::from(larger.frames()) - 1));
            self.zone.state(head) == FrameState::Cached(larger)
        };
        Order::all().filter(|&larger| larger > order).any(around)
            || (0..u64::from(order.frames())).filter_map(|n| frame.0.checked_add(n)).map(FrameNo).any(starts)
    }

    /// Frames that are cached on the lists of a CPU at this moment.
    pub fn cached(&self, cpu: u32) -> u64 {
        let counts = self.lists.counts(cpu);
        counts.iter().enumerate().map(|(list, &count)| u64::from(count) * u64::from(order_of(list).frames())).sum()
    }

    /// Lets every list of a CPU grow by a batch from its present size, and no further. The tuner is only asked when a
    /// list reaches its limit, so the limits of all lists together bound what a CPU holds.
    pub(super) fn set_room(&self, cpu: u32) {
        for list in 0..LISTS {
            let room = (self.limits.batch >> order_of(list).get()).max(1);
            self.lists.set_limit(cpu, list, self.lists.count(cpu, list).saturating_add(room));
        }
    }

    pub(super) fn cached_frames(&self, cpu: u32) -> u32 {
        frames_in(&self.lists.counts(cpu))
    }

    #[cold]
    #[inline(never)]
    pub(super) fn alloc_slow(&self, order: Order, migrate: MigrateType) -> Result<FrameNo, AllocError> {
        self.alloc_from_zone(order, migrate).or_else(|_| self.request_drained(Request::new(order, migrate)))
    }

    /// Drains all lists and allocates from the zone.
    fn request_drained(&self, request: Request) -> Result<FrameNo, AllocError> {
        let mut last = Err(AllocError::Exhausted { order: request.order, free_blocks: [0; crate::ORDERS] });
        self.drain_until(|| {
            last = self.zone.request(request);
            !matches!(last, Err(AllocError::Exhausted { .. } | AllocError::Kept { .. }))
        });
        last
    }

    /// Drains all lists, and tries. The last frames may be on other CPUs' lists, or their buddies may be, or they may be on their way back: if a
    /// thread holds lists in order to drain them, their frames are available when it is done. So while there are such lists, it drains and tries again for a while.
    fn drain_until(&self, mut has_enough: impl FnMut() -> bool) {
        let _ = retry_for_ms(EXHAUSTED_MS, || {
            let drained = self.drain_all_free();
            (has_enough() || !drained.missed).then_some(())
        });
    }

    /// From the zone; if this CPU has a list for the block, refills it on the way.
    fn alloc_from_zone(&self, order: Order, migrate: MigrateType) -> Result<FrameNo, AllocError> {
        match list_of(order, migrate) {
            Some(list) => self.refill(list, order, migrate),
            None => self.zone.alloc(order, migrate),
        }
    }

    /// Refills this CPU's list from the zone; one of the blocks is the result.
    fn refill(&self, list: usize, order: Order, migrate: MigrateType) -> Result<FrameNo, AllocError> {
        let cpu = self.lists.cpu();
        let cached = self.cached_frames(cpu);
        let pressure = self.zone.pressure();
        let wanted = self.states.tuned(cpu, |tuner| {
            tuner.on_alloc();
            tuner.refill(order, cached, pressure)
        });
        // If the lists cannot be held, there is nothing to fill. Blocks after the first chunk are not worth waiting for.
        let want = Want { order, migrate, blocks: wanted.unwrap_or(1), waits_for_more: false };
        self.zone.refill_some(&want, |blocks| self.keep(cpu, list, blocks))
    }

    /// Pushes blocks to this CPU's list; returns how many it accepted.
    fn keep(&self, cpu: u32, list: usize, blocks: &[u32]) -> usize {
        let room = u32::try_from(blocks.len()).unwrap_or(u32::MAX);
        self.lists.set_limit(cpu, list, self.lists.count(cpu, list).saturating_add(room));
        self.lists.push_many(list, blocks)
    }

    /// Frees a block to a list that is at its limit: lets the list grow, or returns some blocks to the zone.
    #[cold]
    #[inline(never)]
    fn free_slow(&self, list: usize, index: u32) {
        let (cpu, order) = (self.lists.cpu(), order_of(list));
        let cached = self.cached_frames(cpu) + order.frames();
        let pressure = self.zone.pressure();
        let drain = self.states.tuned(cpu, |tuner| {
            tuner.on_free(order);
            tuner.drain(cached, pressure)
        });
        let Some(frames) = drain else {
            self.zone.give_back(&[index], order);
            return;
        };
        let count = self.lists.count(cpu, list);
        let batch = (self.limits.batch >> order.get()).max(1);
        if frames > 0 {
            self.give_older(list, order, (frames >> order.get()).max(1) as usize);
            self.set_room(cpu);
        } else if count < self.capacities[list] {
            // Make room for another batch; else the tuner would be asked each time.
            self.lists.set_limit(cpu, list, count.saturating_add(batch));
        } else {
            self.give_older(list, order, batch as usize);
        }
        if !self.lists.push(list, index) {
            self.zone.give_back(&[index], order);
        }
    }

    /// Returns blocks of this CPU's list to the zone: see [`Zone::give_older`].
    fn give_older(&self, list: usize, order: Order, blocks: usize) {
        self.zone.give_older(
            order,
            blocks,
            |into| self.lists.pop_many(list, into),
            |blocks| self.lists.push_many(list, blocks),
        );
    }
}

impl core::fmt::Debug for PcpLists<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("PcpLists")
            .field("zone", &self.zone)
            .field("tier", &self.tier())
            .field("cpus", &self.cpus())
            .finish_non_exhaustive()
    }
}

impl Front for &PcpLists<'_> {
    #[inline]
    fn alloc(&mut self, order: Order, migrate: MigrateType) -> Result<FrameNo, AllocError> {
        PcpLists::alloc(self, order, migrate)
    }

    #[inline]
    fn free(&mut self, frame: FrameNo, order: Order) -> Result<(), FreeError> {
        PcpLists::free(self, frame, order)
    }

    #[inline]
    fn free_unique(&mut self, frame: FrameNo, order: Order) -> Result<(), FreeError> {
        PcpLists::free_unique(self, frame, order)
    }

    fn drain(&mut self) -> u64 {
        self.drain_all()
    }
}
