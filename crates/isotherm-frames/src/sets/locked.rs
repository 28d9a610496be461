//! Sets behind a lock for each CPU, which is tried and not waited for, as the kernel does: whoever finds it taken goes to the zone.

use super::Stock;
use super::stock::entries;
use crate::lock::{Tried, TryLock};
use crate::memory::{Metadata, bytes_for};
use crate::percpu::{Rseq, Shape, current_cpu};
use core::sync::atomic::AtomicU32;

/// Two lines to itself, as processors fetch lines in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Cpu<'m>(TryLock<Stock<'m>>);

/// The stocks of all CPUs.
#[derive(Debug)]
pub(super) struct LockedStacks<'m> {
    cpus: &'m [Cpu<'m>],
    /// Says the CPU in a fraction of the time that the C library takes, where it is there; its sequences are not used.
    rseq: Option<Rseq>,
}

impl<'m> LockedStacks<'m> {
    pub(super) fn bytes(shape: &Shape) -> usize {
        let cpus = shape.cpus as usize;
        let words = entries(&shape.capacities).saturating_mul(cpus);
        bytes_for::<Cpu<'_>>(cpus).saturating_add(words.saturating_mul(4)).saturating_add(3)
    }

    pub(super) fn new(shape: &Shape, metadata: &mut Metadata<'m>) -> Option<LockedStacks<'m>> {
        let cpus = shape.cpus as usize;
        let each = entries(&shape.capacities);
        let words: &[AtomicU32] = metadata.take(each.checked_mul(cpus)?)?;
        let stock = |cpu: usize| Stock::new(&shape.capacities, &words[cpu * each..(cpu + 1) * each]);
        let cpus = metadata.take_made(cpus, |cpu| Cpu(TryLock::new(stock(cpu))))?;
        Some(LockedStacks { cpus, rseq: Rseq::check().ok() })
    }

    #[inline]
    pub(super) fn cpu(&self) -> u32 {
        self.rseq.map_or_else(current_cpu, |rseq| rseq.cpu())
    }

    #[inline]
    fn mine<T: Default>(&self, act: impl FnOnce(&mut Stock<'m>) -> T) -> T {
        let mine = self.cpus.get(self.cpu() as usize).and_then(|cpu| cpu.0.try_lock());
        mine.map(|mut stock| act(&mut stock)).unwrap_or_default()
    }

    #[inline]
    pub(super) fn push(&self, list: usize, index: u32) -> bool {
        self.mine(|stock| stock.push(list, index))
    }

    #[inline]
    pub(super) fn pop(&self, list: usize) -> Option<u32> {
        self.mine(|stock| stock.pop(list))
    }

    pub(super) fn push_many(&self, list: usize, indices: &[u32]) -> usize {
        self.mine(|stock| stock.push_many(list, indices))
    }

    pub(super) fn pop_many(&self, list: usize, into: &mut [u32]) -> usize {
        self.mine(|stock| stock.pop_many(list, into))
    }

    fn other<T: Default>(&self, cpu: u32, act: impl FnOnce(&mut Stock<'m>) -> T) -> T {
        let other = self.cpus.get(cpu as usize).and_then(|cpu| cpu.0.try_long());
        other.map(|mut stock| act(&mut stock)).unwrap_or_default()
    }

    /// Keeps everyone out of a CPU's stock.
    pub(super) fn hold(&self, cpu: u32) -> Option<Tried<'_, Stock<'m>>> {
        self.cpus.get(cpu as usize)?.0.try_long()
    }

    pub(super) fn take_from(&self, cpu: u32, list: usize, into: &mut [u32]) -> usize {
        self.other(cpu, |stock| stock.pop_many(list, into))
    }

    pub(super) fn count(&self, cpu: u32, list: usize) -> u32 {
        self.other(cpu, |stock| stock.count(list))
    }

    pub(super) fn set_limit(&self, cpu: u32, list: usize, limit: u32) {
        self.other(cpu, |stock| stock.set_limit(list, limit));
    }
}
