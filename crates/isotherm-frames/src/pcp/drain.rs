//! Drains the lists of a CPU or of all CPUs, and locks everyone out of them around a fork.

use super::lists::order_of;
use super::retry::{retry, retry_for_ms};
use super::shared::PcpLists;
use crate::percpu::LISTS;

/// How long to retry draining an offline CPU whose lists another thread holds, in ms.
const OFFLINE_MS: u32 = 100;

/// The result of a drain.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Drained {
    pub(super) frames: u64,
    /// Another thread held lists that were not empty.
    pub(super) missed: bool,
}

impl PcpLists<'_> {
    /// Returns the frames on a CPU's lists to the zone, from any CPU. Returns how many. 0 if another thread holds the
    /// lists for long, or if they cannot be used.
    pub fn drain(&self, cpu: u32) -> u64 {
        self.drain_if_free(cpu).frames
    }

    /// As `drain`, and whether the lists could be held all the time. Empty lists need not be held.
    pub(super) fn drain_if_free(&self, cpu: u32) -> Drained {
        if self.is_empty(cpu) {
            return Drained::default();
        }
        let mut frames = 0;
        let had = self.lists.take_all(cpu, |list, blocks| {
            self.zone.give_back(blocks, order_of(list));
            frames += blocks.len() as u64 * u64::from(order_of(list).frames());
        });
        Drained { frames, missed: !had }
    }

    /// Drains a CPU that has gone offline; returns how many frames. Retries for 0.1 s if another thread holds the lists
    /// or still fills them. If a thread has died in them, what is left stays there.
    pub(crate) fn drain_offline(&self, cpu: u32) -> u64 {
        let mut frames = 0;
        // Fails if a thread has died in the lists.
        let _ = retry_for_ms(OFFLINE_MS, || {
            frames += self.drain(cpu);
            self.is_empty(cpu).then_some(())
        });
        frames
    }

    /// Returns the frames on all lists of all CPUs to the zone. Returns how many.
    pub fn drain_all(&self) -> u64 {
        self.drain_all_free().frames
    }

    /// As `drain_all`, and whether any lists could not be held.
    pub(super) fn drain_all_free(&self) -> Drained {
        (0..self.cpus()).map(|cpu| self.drain_if_free(cpu)).fold(Drained::default(), |all, one| Drained {
            frames: all.frames + one.frames,
            missed: all.missed || one.missed,
        })
    }

    /// Runs `act` while no other thread can be in the zone or in any per-CPU list. Use it around a `fork`, so that the
    /// child finds no lock that its only thread does not hold, and no half-changed list. Blocks that other threads had
    /// just taken out of the zone for their lists are lost to the child.
    ///
    /// `act` must not use these lists. Costs a system call per CPU with restartable sequences. Waits for threads that
    /// drain a list. If a thread has died in the lists of a CPU, it stops waiting after a while; everyone skips those
    /// lists from then on, here and in the child.
    pub fn while_quiet<T>(&self, act: impl FnOnce() -> T) -> T {
        let _serialised = self.quiet.lock();
        self.while_quiet_from(0, act)
    }

    /// The lists first, then the zone. A drainer holds lists while it waits for the zone, and no thread does the reverse.
    fn while_quiet_from<T>(&self, cpu: u32, act: impl FnOnce() -> T) -> T {
        let Some(state) = self.states.of(cpu) else { return self.zone.while_quiet(act) };
        let _tuner = retry(|| state.lock.try_lock());
        let _held = self.lists.hold_long(cpu);
        self.while_quiet_from(cpu + 1, act)
    }

    /// Whether there is nothing to drain.
    fn is_empty(&self, cpu: u32) -> bool {
        self.lists.counts(cpu) == [0; LISTS]
    }
}
