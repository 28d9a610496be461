//! Everything that waits in a CPU's set given back, and everyone kept out of all sets around a fork.

use super::lists::order_of;
use super::retry::{retry, retry_for_ms};
use super::shared::Sets;
use crate::percpu::LISTS;

/// For how long a CPU that has gone is drained, where someone has its set.
const OFFLINE_MS: u32 = 100;

/// What came of draining.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Drained {
    pub(super) frames: u64,
    /// Someone had a set that was not empty.
    pub(super) missed: bool,
}

impl Sets<'_> {
    /// Gives what waits in the set of a CPU back to the zone, from any CPU: how many frames. 0 if another is doing so for
    /// long, or if the set cannot be had.
    pub fn drain(&self, cpu: u32) -> u64 {
        self.drain_if_had(cpu).frames
    }

    /// The same, and whether the set could be had all the time. An empty one need not be.
    pub(super) fn drain_if_had(&self, cpu: u32) -> Drained {
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

    /// Gives what waits in the set of a CPU back: how many frames. Goes on for a tenth of a second if someone has it, or still fills it;
    /// what is left in one that a thread has died in stays there. For CPUs that have gone.
    pub(crate) fn drain_for_good(&self, cpu: u32) -> u64 {
        let mut frames = 0;
        // What someone has died in cannot be had.
        let _ = retry_for_ms(OFFLINE_MS, || {
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
    pub(super) fn drain_all_had(&self) -> Drained {
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
        let Some(aside) = self.asides.of(cpu) else { return self.zone.while_quiet(act) };
        let _tuner = retry(|| aside.lock.try_lock());
        let _held = self.lists.hold_long(cpu);
        self.while_quiet_from(cpu + 1, act)
    }

    /// Whether there is nothing to drain.
    fn is_empty(&self, cpu: u32) -> bool {
        self.lists.counts(cpu) == [0; LISTS]
    }
}
