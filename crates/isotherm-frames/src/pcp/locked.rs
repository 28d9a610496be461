//! Per-CPU lists behind a lock for each CPU. As in the kernel, the lock is tried and not waited for: a thread that
//! finds it taken goes to the zone.

use super::list_words::{self, ListWords, Starts};
use crate::lock::{Tried, TryWord};
use crate::memory::{Metadata, bytes_for};
use crate::percpu::{Rseq, Shape, current_cpu};
use core::sync::atomic::AtomicU32;

/// Alignment of a CPU's words, in words: two cache lines, because processors fetch lines in pairs.
const ALIGN: usize = 32;

/// The lists of all CPUs.
#[derive(Debug)]
pub(super) struct LockedStacks<'m> {
    /// `stride` words for each CPU: the lock, then the lists.
    words: &'m [AtomicU32],
    stride: usize,
    starts: Starts,
    /// If available, reads the CPU number much faster than the C library. Its sequences are not used.
    rseq: Option<Rseq>,
}

fn stride(shape: &Shape) -> usize {
    (1 + list_words::words(&shape.capacities)).next_multiple_of(ALIGN)
}

impl<'m> LockedStacks<'m> {
    pub(super) fn bytes(shape: &Shape) -> usize {
        bytes_for::<AtomicU32>(stride(shape).saturating_mul(shape.cpus as usize).saturating_add(ALIGN))
    }

    pub(super) fn new(shape: &Shape, metadata: &mut Metadata<'m>) -> Option<LockedStacks<'m>> {
        let (stride, cpus) = (stride(shape), shape.cpus as usize);
        let words: &[AtomicU32] = metadata.take(stride.checked_mul(cpus)?.checked_add(ALIGN)?)?;
        let skip = words.as_ptr().align_offset(ALIGN * size_of::<AtomicU32>()).min(ALIGN);
        let words = &words[skip..][..stride * cpus];
        let starts = list_words::starts(&shape.capacities);
        for cpu in words.chunks(stride) {
            cpu[0].store(0, core::sync::atomic::Ordering::Relaxed);
            ListWords::new(&cpu[1..], &starts).clear();
        }
        Some(LockedStacks { words, stride, starts, rseq: Rseq::check().ok() })
    }

    #[inline]
    pub(super) fn cpu(&self) -> u32 {
        #[cfg(test)]
        if let Some(cpu) = super::testing::pretended_cpu() {
            return cpu;
        }
        self.rseq.map_or_else(current_cpu, |rseq| rseq.cpu())
    }

    /// A CPU's lock and lists.
    #[inline]
    fn of(&self, cpu: u32) -> Option<(TryWord<'m>, ListWords<'m, '_>)> {
        let start = cpu as usize * self.stride;
        let words = self.words.get(start..start + self.stride)?;
        Some((TryWord(&words[0]), ListWords::new(&words[1..], &self.starts)))
    }

    /// Acts on a CPU's lists, unless another thread holds them.
    #[inline]
    fn try_on<T: Default>(&self, cpu: u32, act: impl FnOnce(ListWords<'m, '_>) -> T) -> T {
        let Some((lock, list_words)) = self.of(cpu) else { return T::default() };
        let Some(_held) = lock.try_lock() else { return T::default() };
        act(list_words)
    }

    #[inline]
    pub(super) fn push(&self, list: usize, index: u32) -> bool {
        self.try_on(self.cpu(), |list_words| list_words.push(list, index))
    }

    #[inline]
    pub(super) fn pop(&self, list: usize) -> Option<u32> {
        self.try_on(self.cpu(), |list_words| list_words.pop(list))
    }

    pub(super) fn push_many(&self, list: usize, indices: &[u32]) -> usize {
        self.try_on(self.cpu(), |list_words| list_words.push_many(list, indices))
    }

    pub(super) fn pop_many(&self, list: usize, into: &mut [u32]) -> usize {
        self.try_on(self.cpu(), |list_words| list_words.pop_many(list, into))
    }

    /// Locks all others out of a CPU's lists, and returns the lists and the lock. Retries for a while; others hold the
    /// lock for some ns only.
    pub(super) fn hold(&self, cpu: u32) -> Option<(Tried<'m>, ListWords<'m, '_>)> {
        let (lock, list_words) = self.of(cpu)?;
        Some((lock.try_long()?, list_words))
    }

    /// Entries of a list a moment ago.
    pub(super) fn count(&self, cpu: u32, list: usize) -> u32 {
        self.of(cpu).map_or(0, |(_, list_words)| list_words.count(list))
    }

    /// A limit is a word that may change at any time, so this needs no lock.
    pub(super) fn set_limit(&self, cpu: u32, list: usize, limit: u32) {
        if let Some((_, list_words)) = self.of(cpu) {
            list_words.set_limit(list, limit);
        }
    }
}
