//! State of a CPU other than its blocks: the tuner, and what is remembered between drain runs. A lock that is only
//! tried protects it.
//!
//! It is apart from the blocks because only visits to the zone need it. The distance is that of what processors fetch
//! at once.

use super::turn::Memory;
use crate::lock::TryWord;
use crate::memory::{Metadata, bytes_for};
use crate::tune::{PcpLimits, Tuner};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

/// Words of a CPU: the lock, the tuner, the memory of runs.
const WORDS: usize = 32;
const _: () = assert!(WORDS > Tuner::WORDS + Memory::WORDS);

/// The state of all CPUs.
#[derive(Debug)]
pub(super) struct Asides<'m> {
    words: &'m [AtomicU32],
    limits: PcpLimits,
}

/// The state of one CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Aside<'m> {
    pub(super) lock: TryWord<'m>,
    pub(super) tuner: &'m [AtomicU32],
    pub(super) memory: &'m [AtomicU32],
}

fn words(cpus: u32) -> usize {
    (cpus as usize).saturating_mul(WORDS)
}

impl<'m> Asides<'m> {
    pub(super) fn bytes(cpus: u32) -> usize {
        bytes_for::<AtomicU32>(words(cpus))
    }

    /// New tuners without history. `None` if the memory is too small.
    pub(super) fn new(cpus: u32, limits: PcpLimits, metadata: &mut Metadata<'m>) -> Option<Asides<'m>> {
        let words = metadata.take::<AtomicU32>(words(cpus))?;
        let tuner = Tuner::new(limits).to_words();
        for aside in words.chunks(WORDS) {
            aside.iter().for_each(|word| word.store(0, Relaxed));
            aside[1..].iter().zip(tuner).for_each(|(word, value)| word.store(value, Relaxed));
        }
        Some(Asides { words, limits })
    }

    /// Number of CPUs.
    pub(super) const fn cpus(&self) -> u32 {
        #[expect(clippy::cast_possible_truncation, reason = "made from a u32")]
        let cpus = (self.words.len() / WORDS) as u32;
        cpus
    }

    pub(super) fn of(&self, cpu: u32) -> Option<Aside<'m>> {
        let start = cpu as usize * WORDS;
        let (lock, words) = self.words.get(start..start + WORDS)?.split_first()?;
        let (tuner, rest) = words.split_at(Tuner::WORDS);
        Some(Aside { lock: TryWord(lock), tuner, memory: &rest[..Memory::WORDS] })
    }

    /// Asks the CPU's tuner during a visit to the zone. `None` if there is no such CPU, or another thread holds the lock.
    pub(super) fn tuned<T>(&self, cpu: u32, ask: impl FnOnce(&mut Tuner) -> T) -> Option<T> {
        let aside = self.of(cpu)?;
        let _held = aside.lock.try_lock()?;
        Memory::visited_in(aside.memory);
        let mut tuner = self.tuner_in(aside);
        let answer = ask(&mut tuner);
        store(aside.tuner, tuner.to_words());
        Some(answer)
    }

    /// Acts on a CPU's tuner and on what is remembered of its lists. `None` if there is no such CPU, or another thread
    /// holds the lock.
    pub(super) fn remembered<T>(&self, cpu: u32, act: impl FnOnce(&mut Tuner, &mut Memory) -> T) -> Option<T> {
        let aside = self.of(cpu)?;
        let _held = aside.lock.try_long()?;
        let mut tuner = self.tuner_in(aside);
        let mut memory = Memory::from_words(core::array::from_fn(|at| aside.memory[at].load(Relaxed)));
        let answer = act(&mut tuner, &mut memory);
        store(aside.tuner, tuner.to_words());
        store(aside.memory, memory.to_words());
        Some(answer)
    }

    fn tuner_in(&self, aside: Aside<'m>) -> Tuner {
        Tuner::from_words(self.limits, core::array::from_fn(|at| aside.tuner[at].load(Relaxed)))
    }
}

fn store(words: &[AtomicU32], values: impl IntoIterator<Item = u32>) {
    words.iter().zip(values).for_each(|(word, value)| word.store(value, Relaxed));
}
