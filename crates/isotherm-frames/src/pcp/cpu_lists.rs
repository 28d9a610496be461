//! The lists of all CPUs, by restartable sequences or behind locks. Only this module knows which.
//!
//! This is an enum and not a type parameter. The tier is only known at run time, and a branch costs less than two types
//! would cost their users. To add a tier, add a variant and the methods that `each!` calls.

use super::decay_run::HeldLists;
use super::list_words::ListWords;
use super::locked::LockedStacks;
use super::retry::retry;
use super::tier::Tier;
use crate::lock::Tried;
use crate::memory::{Metadata, bytes_for};
use crate::percpu::{LISTS, Rseq, Shape, Stacks, StopError, Stopped};
use crate::zone::CHUNK;
use core::sync::atomic::AtomicU32;

/// How many times to try to stop a CPU that another thread has stopped.
const STOP_TRIES: u32 = 3200;

#[derive(Debug)]
pub(super) enum CpuLists<'m> {
    Restartable(Stacks<'m>),
    Locked(LockedStacks<'m>),
}

/// Calls the same method on either variant.
macro_rules! each {
    ($lists:expr, $it:ident => $call:expr) => {
        match $lists {
            CpuLists::Restartable($it) => $call,
            CpuLists::Locked($it) => $call,
        }
    };
}

impl<'m> CpuLists<'m> {
    /// Bytes for either variant. Which one it will be is not known before it is created.
    pub(super) fn bytes(shape: &Shape) -> usize {
        bytes_for::<AtomicU32>(shape.words()).max(LockedStacks::bytes(shape))
    }

    /// Empty lists, by restartable sequences if `rseq` is given. `None` if the memory is too small.
    pub(super) fn new(rseq: Option<Rseq>, shape: Shape, metadata: &mut Metadata<'m>) -> Option<CpuLists<'m>> {
        let Some(rseq) = rseq else { return LockedStacks::new(&shape, metadata).map(CpuLists::Locked) };
        let words = metadata.take(shape.words())?;
        // SAFETY: cut from metadata that nothing else refers to.
        let stacks = unsafe { Stacks::new_shared(rseq, shape, words) };
        stacks.ok().map(CpuLists::Restartable)
    }

    pub(super) const fn tier(&self) -> Tier {
        match self {
            CpuLists::Restartable(_) => Tier::Restartable,
            CpuLists::Locked(_) => Tier::Locked,
        }
    }

    /// The CPU that this thread runs on.
    pub(super) fn cpu(&self) -> u32 {
        each!(self, lists => lists.cpu())
    }

    /// Pops the top of this CPU's list.
    #[inline]
    pub(super) fn pop(&self, list: usize) -> Option<u32> {
        each!(self, lists => lists.pop(list))
    }

    /// Pushes a block to this CPU's list. False if the list is at its limit or cannot be used now.
    #[inline]
    pub(super) fn push(&self, list: usize, index: u32) -> bool {
        each!(self, lists => lists.push(list, index))
    }

    pub(super) fn push_many(&self, list: usize, blocks: &[u32]) -> usize {
        each!(self, lists => lists.push_many(list, blocks))
    }

    pub(super) fn pop_many(&self, list: usize, into: &mut [u32]) -> usize {
        each!(self, lists => lists.pop_many(list, into))
    }

    /// Entries of any CPU's list a moment ago.
    pub(super) fn count(&self, cpu: u32, list: usize) -> u32 {
        each!(self, lists => lists.count(cpu, list))
    }

    pub(super) fn counts(&self, cpu: u32) -> [u32; LISTS] {
        core::array::from_fn(|list| self.count(cpu, list))
    }

    pub(super) fn set_limit(&self, cpu: u32, list: usize, limit: u32) {
        each!(self, lists => lists.set_limit(cpu, list, limit));
    }

    /// Locks all others out of a CPU's lists. `None` if another thread has already done so.
    pub(super) fn hold(&self, cpu: u32) -> Option<Held<'_, 'm>> {
        match self {
            CpuLists::Restartable(stacks) => stacks.stop(cpu).ok().map(Held::Stopped),
            CpuLists::Locked(stacks) => {
                stacks.hold(cpu).map(|(lock, list_words)| Held::Locked { _lock: lock, list_words })
            }
        }
    }

    /// As `hold`, but retries for a while.
    pub(super) fn hold_long(&self, cpu: u32) -> Option<Held<'_, 'm>> {
        match self {
            CpuLists::Restartable(stacks) => retry(|| match stacks.stop(cpu) {
                Err(StopError::Stopped { .. }) => None,
                // Held, or it can never be held.
                outcome => Some(outcome.ok().map(Held::Stopped)),
            })
            .flatten(),
            CpuLists::Locked(_) => retry(|| self.hold(cpu)),
        }
    }

    /// Takes everything off a CPU's lists and passes it to `give`, several blocks of one list at a time. All others are locked out meanwhile, or a
    /// thread that goes on freeing would keep this going. False if the lists cannot be held.
    pub(super) fn take_all(&self, cpu: u32, mut give: impl FnMut(usize, &[u32])) -> bool {
        // Taking from the bottom moves the remaining entries, so take more than a chunk at a time.
        let mut buffer = [0; 8 * CHUNK];
        let Some(mut held) = self.hold_to_drain(cpu) else { return false };
        for list in 0..LISTS {
            while let got @ 1.. = held.copy_oldest(list, 0, &mut buffer) {
                give(list, &buffer[..got]);
                // Not before: who finds the lists empty may rely on it that their blocks are in the zone.
                held.forget_oldest(list, u32::try_from(got).unwrap_or(u32::MAX));
            }
        }
        true
    }

    /// As `hold`. Waits for as long as a lock is waited for.
    fn hold_to_drain(&self, cpu: u32) -> Option<Held<'_, 'm>> {
        match self {
            CpuLists::Restartable(stacks) => stop_long(stacks, cpu).map(Held::Stopped),
            CpuLists::Locked(_) => self.hold(cpu),
        }
    }
}

/// The lists of a CPU, with all others locked out until this is dropped.
pub(super) enum Held<'s, 'm> {
    Stopped(Stopped<'s, 'm>),
    Locked { _lock: Tried<'m>, list_words: ListWords<'m, 's> },
}

impl HeldLists for Held<'_, '_> {
    fn count(&self, list: usize) -> u32 {
        match self {
            Held::Stopped(stopped) => stopped.count(list),
            Held::Locked { list_words, .. } => list_words.count(list),
        }
    }

    fn copy_oldest(&self, list: usize, skip: u32, into: &mut [u32]) -> usize {
        match self {
            Held::Stopped(stopped) => stopped.copy_oldest(list, skip, into),
            Held::Locked { list_words, .. } => list_words.copy_oldest(list, skip, into),
        }
    }

    fn forget_oldest(&mut self, list: usize, blocks: u32) {
        match self {
            Held::Stopped(stopped) => stopped.forget_oldest(list, blocks),
            Held::Locked { list_words, .. } => list_words.forget_oldest(list, blocks),
        }
    }
}

/// Stops a CPU. Retries for as long as a CPU's lock is retried, because drain runs stop a CPU for some us.
fn stop_long<'s, 'm>(stacks: &'s Stacks<'m>, cpu: u32) -> Option<Stopped<'s, 'm>> {
    for _ in 0..STOP_TRIES {
        match stacks.stop(cpu) {
            Err(StopError::Stopped { .. }) => core::hint::spin_loop(),
            outcome => return outcome.ok(),
        }
    }
    None
}
