//! State of a CPU other than its blocks: the tuner, and what is remembered between drain runs. A lock that is only
//! tried protects it.
//!
//! It is apart from the blocks because only visits to the zone need it. The distance is that of what processors fetch
//! at once.

use super::decay_run::RunHistory;
use crate::lock::TryWord;
use crate::memory::{Metadata, bytes_for};
use crate::tune::{PcpLimits, Tuner};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

/// Words of a CPU: the lock, the tuner, the memory of runs.
const WORDS: usize = 32;
const _: () = assert!(WORDS > Tuner::WORDS + RunHistory::WORDS);

/// The state of all CPUs.
#[derive(Debug)]
pub(super) struct CpuStates<'m> {
    words: &'m [AtomicU32],
    limits: PcpLimits,
}

/// The state of one CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct CpuState<'m> {
    pub(super) lock: TryWord<'m>,
    pub(super) tuner: &'m [AtomicU32],
    pub(super) memory: &'m [AtomicU32],
}

fn words(cpus: u32) -> usize {
    (cpus as usize).saturating_mul(WORDS)
}

impl<'m> CpuStates<'m> {
    pub(super) fn bytes(cpus: u32) -> usize {
        bytes_for::<AtomicU32>(words(cpus))
    }

    /// New tuners without history. `None` if the memory is too small.
    pub(super) fn new(cpus: u32, limits: PcpLimits, metadata: &mut Metadata<'m>) -> Option<CpuStates<'m>> {
        let words = metadata.take::<AtomicU32>(words(cpus))?;
        let tuner = Tuner::new(limits).to_words();
        for state in words.chunks(WORDS) {
            state.iter().for_each(|word| word.store(0, Relaxed));
            state[1..].iter().zip(tuner).for_each(|(word, value)| word.store(value, Relaxed));
        }
        Some(CpuStates { words, limits })
    }

    /// Number of CPUs.
    pub(super) const fn cpus(&self) -> u32 {
        #[expect(clippy::cast_possible_truncation, reason = "made from a u32")]
        let cpus = (self.words.len() / WORDS) as u32;
        cpus
    }

    pub(super) fn of(&self, cpu: u32) -> Option<CpuState<'m>> {
        let start = cpu as usize * WORDS;
        let (lock, words) = self.words.get(start..start + WORDS)?.split_first()?;
        let (tuner, rest) = words.split_at(Tuner::WORDS);
        Some(CpuState { lock: TryWord(lock), tuner, memory: &rest[..RunHistory::WORDS] })
    }

    /// Asks the CPU's tuner during a visit to the zone. `None` if there is no such CPU, or another thread holds the lock.
    pub(super) fn tuned<T>(&self, cpu: u32, ask: impl FnOnce(&mut Tuner) -> T) -> Option<T> {
        let state = self.of(cpu)?;
        let _held = state.lock.try_lock()?;
        RunHistory::visited_in(state.memory);
        let mut tuner = self.tuner_in(state);
        let answer = ask(&mut tuner);
        store(state.tuner, tuner.to_words());
        Some(answer)
    }

    /// Acts on a CPU's tuner and on what is remembered of its lists. `None` if there is no such CPU, or another thread
    /// holds the lock.
    pub(super) fn remembered<T>(&self, cpu: u32, act: impl FnOnce(&mut Tuner, &mut RunHistory) -> T) -> Option<T> {
        let state = self.of(cpu)?;
        let _held = state.lock.try_long()?;
        let mut tuner = self.tuner_in(state);
        let mut memory = RunHistory::from_words(core::array::from_fn(|at| state.memory[at].load(Relaxed)));
        let answer = act(&mut tuner, &mut memory);
        store(state.tuner, tuner.to_words());
        store(state.memory, memory.to_words());
        Some(answer)
    }

    fn tuner_in(&self, state: CpuState<'m>) -> Tuner {
        Tuner::from_words(self.limits, core::array::from_fn(|at| state.tuner[at].load(Relaxed)))
    }
}

fn store(words: &[AtomicU32], values: impl IntoIterator<Item = u32>) {
    words.iter().zip(values).for_each(|(word, value)| word.store(value, Relaxed));
}
