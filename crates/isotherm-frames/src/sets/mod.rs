//! Per-CPU sets: a few blocks of the usual orders for each CPU, in front of a zone, so that most allocations see no lock.
//!
//! Three tiers behind one trait, [`Front`]:
//!
//! | tier | what | `alloc` and `free_unique`, as measured |
//! |---|---|---|
//! | [`OwnedSet`] | a handle that one thread has; plain memory, no unsafe code | 7 ns |
//! | [`Sets`], [`Tier::Restartable`] | shared by all threads; each works on its CPU's stacks by restartable sequences | 6 ns |
//! | [`Sets`], [`Tier::Locked`] | shared by all threads; each tries its CPU's lock, and goes to the zone if that is taken | 15 ns |
//!
//! A set has lists for the orders 0 to 3 of each migrate type and two for order 9, as the kernel's have; other orders go to the
//! zone. How much a set takes at once, how much it may keep and what it gives back is decided by [`crate::tune`]. Blocks are taken
//! back last in, first out; what is given to the zone is of the list that grew, from below its newest 64. What a set keeps without need goes
//! back by housekeeping only: [`Sets::tidy`], [`crate::housekeep`].
//!
//! What waits in a set is marked so in the zone's books, which is how a second free of the same block is found without a lock. The mark
//! is set by a compare-and-swap, as the zone's own frees are, so that of several frees of a block at the same instant one wins and the
//! others are told. That costs 4 to 11 ns. Whoever owns blocks in a way that rules a second free out, as a guard that is dropped once,
//! leaves it away with [`Sets::free_unique`].
//!
//! Difference from the kernel in the shared tiers: its factors decay with every call, ours with every visit to the zone, since the
//! calls in between leave no trace that would cost less than the decay is worth.

mod locked;
mod owned;
mod stock;
mod tidy;

pub use owned::OwnedSet;
pub use tidy::{Pace, Tidied};

use crate::lock::{Lock, TryWord};
use crate::memory::{Metadata, bytes_for};
use crate::percpu::{LISTS, NoRseq, Rseq, Shape, Stacks, StopError, Stopped};
use crate::state;
use crate::tune::{Marks, Pressure, Tuner};
use crate::zone::CHUNK;
use crate::{AllocError, FrameNo, FrameState, FreeError, MigrateType, Order, PAGE_BLOCK_ORDER, Request, Zone};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use locked::LockedStacks;
use thiserror::Error;
use tidy::Memory;

/// The largest of the small orders that a set has lists for: what the kernel calls costly begins above.
const SMALL_ORDERS: u32 = 3;
/// Entries of a list for order 0 at the most, unless told otherwise: 64 MiB of frames.
const MOST_FRAMES_A_LIST: u32 = 16 << 10;
/// Huge pages in a list at the most.
const MOST_HUGE_A_LIST: u32 = 64;

/// How often something is tried that another thread has for a moment, with a chance for that thread to run in between.
const TRIES: u32 = 20_000;

/// How often a CPU is tried to be stopped that someone else has stopped.
const STOP_TRIES: u32 = 3200;

fn patiently<T>(mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    for _ in 0..TRIES {
        if let Some(had) = attempt() {
            return Some(had);
        }
        #[cfg(feature = "std")]
        std::thread::yield_now();
        #[cfg(not(feature = "std"))]
        core::hint::spin_loop();
    }
    None
}

/// For how long a CPU that has gone is drained, where someone has its set.
const OFFLINE_MS: u32 = 100;

/// For how long a request that the zone cannot serve comes back to sets that someone has: some slices of a processor, for whoever was
/// interrupted in a set to get out of it.
const EXHAUSTED_MS: u32 = 20;

/// Attempts in a millisecond where there is no clock: each tries for a tenth of that to have a set.
#[cfg(not(feature = "std"))]
const ATTEMPTS_A_MS: u32 = 10;

/// Tries for so long, and once at least, with a chance for others to run in between. For attempts that themselves try for a while.
fn for_ms<T>(ms: u32, mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    #[cfg(feature = "std")]
    let (began, most) = (std::time::Instant::now(), core::time::Duration::from_millis(u64::from(ms)));
    #[cfg(not(feature = "std"))]
    let mut left = ms.saturating_mul(ATTEMPTS_A_MS);
    loop {
        if let Some(had) = attempt() {
            return Some(had);
        }
        #[cfg(feature = "std")]
        {
            if began.elapsed() >= most {
                return None;
            }
            std::thread::yield_now();
        }
        #[cfg(not(feature = "std"))]
        {
            left = left.checked_sub(1)?;
            core::hint::spin_loop();
        }
    }
}

/// Stops a CPU; tries for as long as locks of sets are tried, against those who tidy it for some us.
fn stop_long<'s, 'm>(stacks: &'s Stacks<'m>, cpu: u32) -> Option<Stopped<'s, 'm>> {
    for _ in 0..STOP_TRIES {
        match stacks.stop(cpu) {
            Err(StopError::Stopped { .. }) => core::hint::spin_loop(),
            outcome => return outcome.ok(),
        }
    }
    None
}

/// What stands in front of a zone and hands out its frames: an owned set by `&mut self`, shared ones by `&mut &self`.
pub trait Front {
    /// Hands out a block: its first frame.
    fn alloc(&mut self, order: Order, migrate: MigrateType) -> Result<FrameNo, AllocError>;

    /// Takes a block back. On an error nothing has changed.
    fn free(&mut self, frame: FrameNo, order: Order) -> Result<(), FreeError>;

    /// The same by a caller who alone can free this block: see [`Sets::free_unique`].
    fn free_unique(&mut self, frame: FrameNo, order: Order) -> Result<(), FreeError> {
        self.free(frame, order)
    }

    /// Gives everything that waits back to the zone; how many frames.
    fn drain(&mut self) -> u64;
}

/// The list of a set for blocks of an order and type; `None` for orders that go to the zone.
#[inline]
pub(crate) const fn list_of(order: Order, migrate: MigrateType) -> Option<usize> {
    match order.get() {
        0..=SMALL_ORDERS => Some(MigrateType::COUNT * order.get() as usize + migrate as usize),
        PAGE_BLOCK_ORDER => Some(LISTS - 2 + matches!(migrate, MigrateType::Movable) as usize),
        _ => None,
    }
}

/// The order of the blocks in a list.
pub(crate) fn order_of(list: usize) -> Order {
    let small = u32::try_from(list / MigrateType::COUNT).ok().and_then(Order::new);
    small.filter(|o| o.get() <= SMALL_ORDERS).unwrap_or(Order::HUGE)
}

/// How the shared sets keep threads apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Tier {
    /// Restartable sequences where there are any, else locks.
    #[default]
    Best,
    /// Restartable sequences, or an error.
    Restartable,
    /// A lock for each CPU that is tried.
    Locked,
}

/// How a block is marked as waiting in a set.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    /// By a compare-and-swap: of several at once one wins.
    Swapped,
    /// By a load and a store: nobody else does.
    Stored,
}

/// What shared sets are to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SetsConfig {
    /// CPUs, numbered from 0: the highest number that is possible, plus one. A CPU with a higher one goes to the zone.
    pub cpus: u32,
    /// How threads are kept apart.
    pub tier: Tier,
    /// Between what numbers a set is kept. `None`: by the kernel's formulas, from the frames of the zone when the sets are made.
    pub marks: Option<Marks>,
}

impl SetsConfig {
    /// Sets for `cpus` CPUs, the rest as usual.
    pub const fn new(cpus: u32) -> SetsConfig {
        SetsConfig { cpus, tier: Tier::Best, marks: None }
    }

    /// The marks that hold for a zone.
    pub fn marks_for(&self, zone: &Zone<'_>) -> Marks {
        self.marks.unwrap_or_else(|| Marks::for_zone(zone.stats().present, zone.watermarks().low, self.cpus, None))
    }

    /// Bytes of metadata that sets like these need.
    pub fn metadata_bytes(&self, zone: &Zone<'_>) -> usize {
        let shape = self.shape(zone);
        let tuners = bytes_for::<AtomicU32>((self.cpus as usize).saturating_mul(ASIDE_WORDS));
        let stacks = bytes_for::<AtomicU32>(shape.words()).max(LockedStacks::bytes(&shape));
        tuners.saturating_add(stacks)
    }

    fn shape(&self, zone: &Zone<'_>) -> Shape {
        Shape { cpus: self.cpus, capacities: capacities(self.marks_for(zone)) }
    }
}

/// Blocks to take for a list that is to get `wanted`. One more, which is handed out at once; and of single frames whole chunks: a
/// batch is 63 of them on purpose, but runs of 64 are cut from the zone's blocks in one piece, and leave what is left aligned.
pub(crate) fn whole_chunks(wanted: u32, order: Order) -> usize {
    let wanted = wanted as usize;
    match order {
        Order::FRAME if wanted + 1 >= CHUNK => (wanted + 1).next_multiple_of(CHUNK),
        _ => wanted,
    }
}

/// Entries that each list can hold.
pub(crate) fn capacities(marks: Marks) -> [u32; LISTS] {
    let frames = marks.high_max.min(MOST_FRAMES_A_LIST);
    core::array::from_fn(|list| match order_of(list) {
        Order::HUGE => (frames >> PAGE_BLOCK_ORDER).clamp(2, MOST_HUGE_A_LIST),
        order => (frames >> order.get()).max(2),
    })
}

/// Why there are no sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum SetsError {
    /// No CPUs.
    #[error("per-CPU sets for no CPU: give the highest CPU number that is possible, plus one")]
    NoCpus,
    /// The metadata does not suffice.
    #[error("per-CPU sets with {given} bytes of metadata: they need {needed}; see SetsConfig::metadata_bytes")]
    MetadataTooSmall {
        /// Bytes given.
        given: usize,
        /// Bytes needed.
        needed: usize,
    },
    /// Restartable sequences were asked for and there are none.
    #[error("per-CPU sets by restartable sequences: {0}; ask for Tier::Best or Tier::Locked")]
    NoRseq(NoRseq),
}

/// Words of what a CPU's set knows beside its blocks: a lock, its tuner, what housekeeping remembers. Apart from the blocks, since only visits to the zone need
/// them, and as far apart as processors fetch at once.
const ASIDE_WORDS: usize = 32;
const _: () = assert!(ASIDE_WORDS > Tuner::WORDS + Memory::WORDS);

/// What came of draining.
#[derive(Clone, Copy, Debug, Default)]
struct Drained {
    frames: u64,
    /// Someone had a set that was not empty.
    missed: bool,
}

#[derive(Debug)]
enum Kind<'m> {
    Restartable(Stacks<'m>),
    Locked(LockedStacks<'m>),
}

/// Blocks of a zone in sets for each CPU, shared by all threads.
///
/// A thread that ends in the middle of a call, as one that is cancelled: in a restartable sequence it holds nothing. With locks, the
/// CPU's set stays taken and is passed over from then on; everyone goes to the zone. In a visit to the zone it may hold the zone's
/// lock, which nobody then gets any more, as with any lock; so may an interrupted one: in signal handlers, only
/// [`Zone::request`](crate::Zone::request) without waiting is allowed.
pub struct Sets<'m> {
    zone: Zone<'m>,
    kind: Kind<'m>,
    asides: &'m [AtomicU32],
    marks: Marks,
    capacities: [u32; LISTS],
    /// Held while everything is to be quiet.
    quiet: Lock<()>,
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
        let words = (config.cpus as usize).saturating_mul(ASIDE_WORDS);
        let asides = metadata.take::<AtomicU32>(words).ok_or(too_small)?;
        let tuner = Tuner::new(marks).to_words();
        for aside in asides.chunks(ASIDE_WORDS) {
            aside.iter().for_each(|word| word.store(0, Relaxed));
            aside[1..].iter().zip(tuner).for_each(|(word, value)| word.store(value, Relaxed));
        }
        let rseq = match config.tier {
            Tier::Locked => None,
            Tier::Best => Rseq::check().ok(),
            Tier::Restartable => Some(Rseq::check().map_err(SetsError::NoRseq)?),
        };
        let kind = match rseq {
            Some(rseq) => {
                let words = metadata.take(shape.words()).ok_or(too_small)?;
                // SAFETY: cut from metadata that nobody else has.
                Kind::Restartable(unsafe { Stacks::new_shared(rseq, shape, words) }.map_err(|_| too_small)?)
            }
            None => Kind::Locked(LockedStacks::new(&shape, &mut metadata).ok_or(too_small)?),
        };
        let sets = Sets { zone, kind, asides, marks, capacities: shape.capacities, quiet: Lock::new(()) };
        (0..config.cpus).for_each(|cpu| sets.set_room(cpu));
        Ok(sets)
    }

    /// The zone behind. Frames in sets are not free there.
    pub const fn zone(&self) -> &Zone<'m> {
        &self.zone
    }

    /// Which tier it has become.
    pub const fn tier(&self) -> Tier {
        match self.kind {
            Kind::Restartable(_) => Tier::Restartable,
            Kind::Locked(_) => Tier::Locked,
        }
    }

    /// CPUs that have sets.
    pub const fn cpus(&self) -> u32 {
        #[expect(clippy::cast_possible_truncation, reason = "made from a u32")]
        let cpus = (self.asides.len() / ASIDE_WORDS) as u32;
        cpus
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
            let index = self.pop(list)?;
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
                if !self.push(list, index) {
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
        let counts = self.counts(cpu);
        counts.iter().enumerate().map(|(list, &count)| u64::from(count) * u64::from(order_of(list).frames())).sum()
    }

    /// Gives what waits in the set of a CPU back to the zone, from any CPU: how many frames. 0 if another is doing so for
    /// long, or if the set cannot be had.
    pub fn drain(&self, cpu: u32) -> u64 {
        self.drain_if_had(cpu).frames
    }

    /// The same, and whether the set could be had all the time. An empty one need not be.
    fn drain_if_had(&self, cpu: u32) -> Drained {
        const MISSED: Drained = Drained { frames: 0, missed: true };
        if self.is_empty(cpu) {
            return Drained::default();
        }
        let mut missed = false;
        let mut frames = 0;
        let mut give = |list: usize, blocks: &[u32]| {
            self.zone.give_back(blocks, order_of(list));
            frames += blocks.len() as u64 * u64::from(order_of(list).frames());
        };
        // Taking from the bottom moves what is left, so not by the chunk.
        let mut buffer = [0; 8 * CHUNK];
        match &self.kind {
            Kind::Restartable(stacks) => {
                let Some(mut stopped) = stop_long(stacks, cpu) else { return MISSED };
                for list in 0..LISTS {
                    while let got @ 1.. = stopped.drain(list, &mut buffer) {
                        give(list, &buffer[..got]);
                    }
                }
            }
            Kind::Locked(stacks) => {
                // Whoever has it now has it for the other lists too.
                'lists: for list in 0..LISTS {
                    loop {
                        match stacks.take_from(cpu, list, &mut buffer) {
                            Some(0) => break,
                            Some(got) => give(list, &buffer[..got]),
                            None => {
                                missed = true;
                                break 'lists;
                            }
                        }
                    }
                }
            }
        }
        Drained { frames, missed }
    }

    /// Gives what waits in the set of a CPU back: how many frames. Goes on for a tenth of a second if someone has it, or still fills it;
    /// what is left in one that a thread has died in stays there. For CPUs that have gone.
    pub(crate) fn drain_for_good(&self, cpu: u32) -> u64 {
        let mut frames = 0;
        // What someone has died in cannot be had.
        let _ = for_ms(OFFLINE_MS, || {
            frames += self.drain(cpu);
            self.is_empty(cpu).then_some(())
        });
        frames
    }

    /// Gives what waits in all sets back: how many frames.
    pub fn drain_all(&self) -> u64 {
        self.drain_all_had().frames
    }

    /// The same, and whether any set could not be had.
    fn drain_all_had(&self) -> Drained {
        (0..self.cpus()).map(|cpu| self.drain_if_had(cpu)).fold(Drained::default(), |all, one| Drained {
            frames: all.frames + one.frames,
            missed: all.missed || one.missed,
        })
    }

    /// Runs `act` while nobody else can be in the zone or in a set: around a `fork`, so that the child finds no lock that its only
    /// thread does not hold, and no set half changed. What other threads had just taken out of the zone for their sets is lost to
    /// the child.
    ///
    /// `act` must not use these sets. A system call for each CPU where sets are restartable. Waits for who drains a set; one that a
    /// thread has died in is given up after a while, and passed over by everyone from then on, here and in the child.
    pub fn while_quiet<T>(&self, act: impl FnOnce() -> T) -> T {
        let _one_at_a_time = self.quiet.lock();
        self.while_quiet_from(0, act)
    }

    /// The sets first, then the zone: who drains a set has it while waiting for the zone, and nobody the other way round.
    fn while_quiet_from<T>(&self, cpu: u32, act: impl FnOnce() -> T) -> T {
        let Some((lock, ..)) = self.aside(cpu) else { return self.zone.while_quiet(act) };
        let _tuner = patiently(|| lock.try_lock());
        match &self.kind {
            Kind::Restartable(stacks) => {
                let _stopped = patiently(|| match stacks.stop(cpu) {
                    Err(StopError::Stopped { .. }) => None,
                    // Had, or not to be had at all.
                    outcome => Some(outcome.ok()),
                });
                self.while_quiet_from(cpu + 1, act)
            }
            Kind::Locked(stacks) => {
                let _held = patiently(|| stacks.hold(cpu));
                self.while_quiet_from(cpu + 1, act)
            }
        }
    }

    #[inline]
    fn pop(&self, list: usize) -> Option<u32> {
        match &self.kind {
            Kind::Restartable(stacks) => stacks.pop(list),
            Kind::Locked(stacks) => stacks.pop(list),
        }
    }

    #[inline]
    fn push(&self, list: usize, index: u32) -> bool {
        match &self.kind {
            Kind::Restartable(stacks) => stacks.push(list, index),
            Kind::Locked(stacks) => stacks.push(list, index),
        }
    }

    fn cpu(&self) -> u32 {
        match &self.kind {
            Kind::Restartable(stacks) => stacks.cpu(),
            Kind::Locked(stacks) => stacks.cpu(),
        }
    }

    fn count(&self, cpu: u32, list: usize) -> u32 {
        match &self.kind {
            Kind::Restartable(stacks) => stacks.count(cpu, list),
            Kind::Locked(stacks) => stacks.count(cpu, list),
        }
    }

    fn counts(&self, cpu: u32) -> [u32; LISTS] {
        core::array::from_fn(|list| self.count(cpu, list))
    }

    /// Whether there is nothing to drain.
    fn is_empty(&self, cpu: u32) -> bool {
        self.counts(cpu) == [0; LISTS]
    }

    /// Lets every list of a CPU grow by a batch from what it has, and no further: the limits of all lists together are what bounds a set,
    /// since the tuner is asked only at a limit.
    fn set_room(&self, cpu: u32) {
        for list in 0..LISTS {
            let room = (self.marks.batch >> order_of(list).get()).max(1);
            self.set_limit(cpu, list, self.count(cpu, list).saturating_add(room));
        }
    }

    fn set_limit(&self, cpu: u32, list: usize, limit: u32) {
        match &self.kind {
            Kind::Restartable(stacks) => stacks.set_limit(cpu, list, limit),
            Kind::Locked(stacks) => stacks.set_limit(cpu, list, limit),
        }
    }

    fn frames_waiting(&self, cpu: u32) -> u32 {
        tidy::frames_in(&self.counts(cpu))
    }

    /// What a CPU's tuner is kept in: its lock, its words, and those of what housekeeping remembers.
    fn aside(&self, cpu: u32) -> Option<(TryWord<'m>, &'m [AtomicU32], &'m [AtomicU32])> {
        let start = cpu as usize * ASIDE_WORDS;
        let (lock, words) = self.asides.get(start..start + ASIDE_WORDS)?.split_first()?;
        let (tuner, rest) = words.split_at(Tuner::WORDS);
        Some((TryWord(lock), tuner, &rest[..Memory::WORDS]))
    }

    /// What the CPU's tuner says to a visit to the zone; `None` where there is none, or someone else has it.
    fn tuned<T>(&self, cpu: u32, ask: impl FnOnce(&mut Tuner) -> T) -> Option<T> {
        let (lock, words, memory) = self.aside(cpu)?;
        let _held = lock.try_lock()?;
        Memory::visited_in(memory);
        let mut tuner = Tuner::from_words(self.marks, core::array::from_fn(|at| words[at].load(Relaxed)));
        let answer = ask(&mut tuner);
        words.iter().zip(tuner.to_words()).for_each(|(word, value)| word.store(value, Relaxed));
        Some(answer)
    }

    #[cold]
    #[inline(never)]
    fn alloc_slow(&self, order: Order, migrate: MigrateType) -> Result<FrameNo, AllocError> {
        self.alloc_behind(order, migrate).or_else(|_| {
            // The last frames may wait in other CPUs' sets, or keep buddies in them apart, or be on their way back from there.
            // Those of a set that someone has, to tidy it or to drain it, can be had once he is done.
            let mut last = Err(AllocError::Exhausted { order, free_blocks: [0; crate::ORDERS] });
            let _ = for_ms(EXHAUSTED_MS, || {
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
        let cpu = self.cpu();
        let waiting = self.frames_waiting(cpu);
        let pressure = self.zone.pressure();
        let wanted = self.tuned(cpu, |tuner| {
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
        self.set_limit(cpu, list, self.count(cpu, list).saturating_add(room));
        self.push_many(list, blocks)
    }

    /// A block for which there is no room: makes room, by letting the list grow or by giving some back.
    #[cold]
    #[inline(never)]
    fn free_slow(&self, list: usize, index: u32) {
        let (cpu, order) = (self.cpu(), order_of(list));
        let waiting = self.frames_waiting(cpu) + order.frames();
        let pressure = self.zone.pressure();
        let drain = self.tuned(cpu, |tuner| {
            tuner.on_free(order);
            tuner.drain(waiting, pressure)
        });
        let Some(frames) = drain else {
            self.zone.give_back(&[index], order);
            return;
        };
        let count = self.count(cpu, list);
        let batch = (self.marks.batch >> order.get()).max(1);
        if frames > 0 {
            self.give_older(list, order, (frames >> order.get()).max(1) as usize);
            self.set_room(cpu);
        } else if count < self.capacities[list] {
            // Room for another batch, or the tuner would be asked each time.
            self.set_limit(cpu, list, count.saturating_add(batch));
        } else {
            self.give_older(list, order, batch as usize);
        }
        if !self.push(list, index) {
            self.zone.give_back(&[index], order);
        }
    }

    /// Gives blocks of this CPU's list to the zone: see [`Zone::give_older`].
    fn give_older(&self, list: usize, order: Order, blocks: usize) {
        self.zone.give_older(order, blocks, |into| self.pop_many(list, into), |blocks| self.push_many(list, blocks));
    }

    fn push_many(&self, list: usize, blocks: &[u32]) -> usize {
        match &self.kind {
            Kind::Restartable(stacks) => stacks.push_many(list, blocks),
            Kind::Locked(stacks) => stacks.push_many(list, blocks),
        }
    }

    fn pop_many(&self, list: usize, into: &mut [u32]) -> usize {
        match &self.kind {
            Kind::Restartable(stacks) => stacks.pop_many(list, into),
            Kind::Locked(stacks) => stacks.pop_many(list, into),
        }
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

/// What a list without blocks is to get.
struct Want {
    order: Order,
    migrate: MigrateType,
    /// As the tuner says.
    blocks: u32,
    /// Whether the zone's lock is waited for once there is a block to hand out.
    waits_for_more: bool,
}

/// What all tiers do alike between a list and the zone.
impl Zone<'_> {
    /// Takes some blocks: one of them is the answer, `keep` puts others into a list and says how many had room there, from the first on.
    /// The rest goes back.
    fn refill_some(&self, want: &Want, mut keep: impl FnMut(&[u32]) -> usize) -> Result<FrameNo, AllocError> {
        let (order, migrate) = (want.order, want.migrate);
        let mut left = whole_chunks(want.blocks, order);
        let mut answer = None;
        let mut buffer = [0; CHUNK];
        while left > 0 {
            let some = &mut buffer[..left.min(CHUNK)];
            let asked = some.len();
            let got = match self.refill(order, migrate, some, answer.is_some() && !want.waits_for_more) {
                Ok(got) => got,
                Err(error) if answer.is_none() => return Err(error),
                Err(_) => break,
            };
            // Last in, first out: so that they are handed out as they came.
            some[..got].reverse();
            let others = if answer.is_none() { got - 1 } else { got };
            answer = answer.or(some.get(others).copied());
            let kept = keep(&some[..others]);
            self.give_back(&some[kept..others], order);
            left -= got;
            // No more of them, or no room: the CPU is another one by now, or someone drains it.
            if got < asked || kept < others {
                break;
            }
        }
        let Some(index) = answer else { return self.alloc(order, migrate) };
        self.set_state_byte(index, state::allocated(order, migrate));
        Ok(self.frame(index))
    }

    /// Takes so many blocks back from a list: not its newest, which are the most likely to be in the processor's caches, unless there
    /// are no others. Takes and puts from and to its top; how many there were.
    fn give_older(
        &self,
        order: Order,
        blocks: usize,
        mut pop: impl FnMut(&mut [u32]) -> usize,
        push: impl FnOnce(&[u32]) -> usize,
    ) -> usize {
        let (mut newest, mut older) = ([0; CHUNK], [0; CHUNK]);
        let kept = pop(&mut newest);
        let mut left = blocks;
        while left > 0 {
            let some = &mut older[..left.min(CHUNK)];
            let got = pop(some);
            self.give_back(&some[..got], order);
            left -= got;
            if got < CHUNK {
                break;
            }
        }
        // What the rest did not have, the newest must give, the older of them first.
        let (give, keep) = newest[..kept].split_at(left.min(kept));
        self.give_back(give, order);
        let pushed = push(keep);
        self.give_back(&keep[pushed..], order);
        (blocks - left) + give.len() + (keep.len() - pushed)
    }

    /// Marks a block that is handed out as waiting in a set; false if it is not handed out as that.
    #[inline]
    fn mark_cached(&self, index: u32, order: Order, mark: Mark) -> bool {
        match mark {
            Mark::Swapped => self.take_back(index, order),
            Mark::Stored => {
                let byte = self.byte(index);
                let is_allocated = state::is_allocated(byte.load(Relaxed), order);
                if is_allocated {
                    byte.store(state::cached(order), Relaxed);
                }
                is_allocated
            }
        }
    }

    /// How short of frames it is, for tuners. Off by what happens meanwhile, which does not matter to them.
    fn pressure(&self) -> Pressure {
        let high = self.watermarks().high;
        Pressure { below_high: high > 0 && self.free_frames() < high, reclaiming: false }
    }
}

#[cfg(test)]
pub(crate) mod testing;

#[cfg(test)]
mod tests {
    use super::testing::{assert_all_there, fill, pretend, sets, tiers};
    use super::*;
    use core::sync::atomic::AtomicBool;
    use std::thread;

    const MARKS: Marks = Marks { batch: 63, high_min: 252, high_max: 1024 };

    /// Keeps everyone out of a CPU's set while `act` runs.
    fn while_had<T>(sets: &Sets<'_>, cpu: u32, act: impl FnOnce() -> T) -> T {
        match &sets.kind {
            Kind::Locked(stacks) => {
                let _held = stacks.hold(cpu).unwrap();
                act()
            }
            Kind::Restartable(stacks) => {
                let _stopped = stacks.stop(cpu).unwrap();
                act()
            }
        }
    }

    /// The CPU in whose set all of these wait; `None` if the thread was moved meanwhile.
    fn fill_one(sets: &Sets<'_>, frames: usize) -> Option<u32> {
        pretend(3);
        fill(sets, frames);
        (0..sets.cpus()).find(|&cpu| sets.waiting(cpu) == frames as u64)
    }

    #[test]
    #[cfg_attr(miri, ignore = "thousands of calls on a zone take minutes when interpreted")]
    fn the_last_frames_are_had_once_whoever_has_their_set_is_done() {
        for tier in tiers() {
            let sets = sets(4096, &SetsConfig { tier, marks: Some(MARKS), ..SetsConfig::new(1024) });
            let mut taken = vec![FrameNo(0); 4090];
            assert_eq!(sets.zone().alloc_bulk(Order::FRAME, MigrateType::Movable, &mut taken), 4090);
            // A machine that is busy may keep the holder from letting go in time: until it did not.
            let has_waited = (0..50).any(|_| {
                let Some(cpu) = fill_one(&sets, 6) else {
                    sets.drain_all();
                    return false;
                };
                let failed = || sets.zone().stats().events.failed;
                let (before, is_over) = (failed(), AtomicBool::new(false));
                let got = thread::scope(|s| {
                    let asks = || {
                        pretend(5);
                        let got = sets.alloc_slow(Order::FRAME, MigrateType::Movable);
                        is_over.store(true, Relaxed);
                        got
                    };
                    let asking = while_had(&sets, cpu, || {
                        let asking = s.spawn(asks);
                        // Before and after draining, and once more: whoever gives up then is over.
                        while failed() < before + 3 && !is_over.load(Relaxed) {
                            thread::yield_now();
                        }
                        asking
                    });
                    asking.join().unwrap()
                });
                sets.drain_all();
                got.is_ok_and(|frame| sets.zone().free(frame, Order::FRAME).is_ok())
            });
            assert!(has_waited, "{tier:?}");
            sets.drain_all();
            assert_all_there(&sets, 4090);
        }
    }

    /// Else whoever takes a CPU offline, and all who come or go meanwhile, would wait for a dead thread for minutes.
    #[test]
    #[cfg_attr(miri, ignore = "spins for long")]
    fn draining_for_good_gives_up_at_the_first_list_that_cannot_be_had() {
        for tier in tiers() {
            let sets = sets(4096, &SetsConfig { tier, marks: Some(MARKS), ..SetsConfig::new(1024) });
            let cpu = (0..50).find_map(|_| {
                sets.drain_all();
                fill_one(&sets, 6)
            });
            let cpu = cpu.expect("fifty times the thread was moved meanwhile");
            while_had(&sets, cpu, || {
                let drained = sets.drain_if_had(cpu);
                assert_eq!((drained.frames, drained.missed), (0, true), "{tier:?}");
                assert_eq!(sets.drain_for_good(cpu), 0, "{tier:?}");
            });
            assert_eq!(sets.drain_for_good(cpu), 6, "{tier:?}");
            assert!(!sets.drain_if_had(cpu).missed);
            assert_all_there(&sets, 0);
        }
    }

    /// Threads that died in a set, with its lock, its tuner's, or with the CPU stopped.
    #[test]
    #[cfg_attr(miri, ignore = "thousands of calls on a zone take minutes when interpreted")]
    fn sets_that_someone_died_in_are_passed_over() {
        let (frames, cpus) = (4096, 256);
        for tier in [Tier::Locked, Tier::Best] {
            let sets = sets(frames, &SetsConfig { tier, ..SetsConfig::new(cpus) });
            for cpu in 0..sets.cpus() {
                core::mem::forget(sets.aside(cpu).and_then(|(lock, ..)| lock.try_lock()));
                match &sets.kind {
                    Kind::Locked(stacks) => core::mem::forget(stacks.hold(cpu)),
                    Kind::Restartable(stacks) => core::mem::forget(stacks.stop(cpu)),
                }
            }
            let all: Vec<FrameNo> =
                (0..frames).map(|_| sets.alloc(Order::FRAME, MigrateType::Movable).unwrap()).collect();
            assert!(sets.alloc(Order::FRAME, MigrateType::Movable).is_err());
            all.into_iter().for_each(|frame| sets.free(frame, Order::FRAME).unwrap());
            assert_eq!(sets.drain_all(), 0);
            sets.zone().validate().unwrap();
            assert_eq!(sets.zone().stats().free, frames, "{tier:?}");
        }
    }
}
