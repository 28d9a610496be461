//! Periodic drain of shared lists: one run over the lists of any CPU, from any CPU. `decay_run` decides what goes back.

use super::decay_run::{DecayRun, Decayed, Pace, RunHistory};
use super::shared::PcpLists;
use crate::tune::{Decay, Tuner};

impl PcpLists<'_> {
    /// One run of the periodic drain over the lists of a CPU, from any CPU. Lowers `high` by an eighth and returns what
    /// is above it to the zone, or everything if the lists are idle. Call it once per interval for each CPU, as
    /// [`crate::housekeep::Housekeeper`] does.
    ///
    /// Takes some 20 ns per drained frame, and with restartable sequences a system call for every 8 chunks. Does
    /// nothing for a CPU without lists.
    pub fn decay(&self, cpu: u32, pace: &Pace) -> Decayed {
        let begin = |tuner: &mut Tuner, memory: &mut RunHistory| {
            let decay = memory.begin(tuner, &self.lists.counts(cpu), pace);
            Some((*memory, decay))
        };
        self.decay_run(cpu, pace, begin)
    }

    /// Continues a deferred run, soon after it, without lowering `high` again. Returns at most [`Decayed::left`] frames,
    /// even if more were freed since. Does nothing if the last run over these lists deferred nothing; the deferred one
    /// may have been that of another zone.
    pub fn decay_rest(&self, cpu: u32, pace: &Pace) -> Decayed {
        let begin = |tuner: &mut Tuner, memory: &mut RunHistory| {
            let rest = memory.rest(tuner, &self.lists.counts(cpu));
            rest.map(|drain| (*memory, Decay { drain, again: true }))
        };
        self.decay_run(cpu, pace, begin)
    }

    /// Whether a run over a CPU's lists would have something to do. Reads some 20 words, without a lock.
    pub fn needs_decay(&self, cpu: u32, pace: &Pace) -> bool {
        let Some(state) = self.states.of(cpu) else { return false };
        let low = self.limits.high_min;
        let kept = if pace.idle_after > 0 { 0 } else { low };
        Tuner::high_in(state.tuner) > low || self.cached_frames(cpu) > kept
    }

    /// Runs what `begin` returns. If that is nothing, the traces of use stay for the next run.
    fn decay_run(
        &self,
        cpu: u32,
        pace: &Pace,
        begin: impl FnOnce(&mut Tuner, &mut RunHistory) -> Option<(RunHistory, Decay)>,
    ) -> Decayed {
        if self.states.of(cpu).is_none() {
            return Decayed::default();
        }
        let Some(begun) = self.states.remembered(cpu, begin) else { return Decayed::MISSED };
        let Some((memory, decay)) = begun else { return Decayed::NO_REST };
        let mut run = DecayRun::new(&self.zone, self.limits.batch, &memory, pace, decay);
        self.send(cpu, &mut run);
        let (decayed, list) = (run.decayed, run.next());
        // The limits reflect what the lists could hold before; recompute them.
        self.set_room(cpu);
        let counts = self.lists.counts(cpu);
        // If another thread holds the lock, the lists are in use, and the next run finds them changed.
        let _ = self.states.remembered(cpu, |_, now| now.end(&memory, &counts, &decayed, list));
        Decayed { again: decayed.again || decayed.is_deferred() || decayed.missed, ..decayed }
    }

    /// Holds the lists again and again until enough has gone back.
    fn send(&self, cpu: u32, run: &mut DecayRun<'_, '_>) {
        let mut goes_on = run.left > 0;
        while goes_on {
            let went = self.lists.hold(cpu).map(|mut held| run.go(&mut held));
            run.decayed.missed |= went.is_none();
            goes_on = went.unwrap_or(false);
        }
    }
}

#[cfg(test)]
mod tests;
