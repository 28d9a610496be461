//! Periodic drain of shared lists: one run over the lists of any CPU, from any CPU. `turn` decides what goes back.

use super::shared::Sets;
use super::turn::{Course, Memory, Pace, Tidied};
use crate::tune::{Decay, Tuner};

impl Sets<'_> {
    /// One run of the periodic drain over the lists of a CPU, from any CPU. Lowers `high` by an eighth and returns what
    /// is above it to the zone, or everything if the lists are idle. Call it once per interval for each CPU, as
    /// [`crate::housekeep::Housekeeper`] does.
    ///
    /// Takes some 20 ns per drained frame, and with restartable sequences a system call for every 8 chunks. Does
    /// nothing for a CPU without lists.
    pub fn tidy(&self, cpu: u32, pace: &Pace) -> Tidied {
        let begin = |tuner: &mut Tuner, memory: &mut Memory| {
            let decay = memory.begin(tuner, &self.lists.counts(cpu), pace);
            Some((*memory, decay))
        };
        self.turn(cpu, pace, begin)
    }

    /// Continues a deferred run, soon after it, without lowering `high` again. Returns at most [`Tidied::left`] frames,
    /// even if more were freed since. Does nothing if the last run over these lists deferred nothing; the deferred one
    /// may have been that of another zone.
    pub fn tidy_rest(&self, cpu: u32, pace: &Pace) -> Tidied {
        let begin = |tuner: &mut Tuner, memory: &mut Memory| {
            let rest = memory.rest(tuner, &self.lists.counts(cpu));
            rest.map(|drain| (*memory, Decay { drain, again: true }))
        };
        self.turn(cpu, pace, begin)
    }

    /// Whether a run over a CPU's lists would have something to do. Reads some 20 words, without a lock.
    pub fn is_untidy(&self, cpu: u32, pace: &Pace) -> bool {
        let Some(aside) = self.asides.of(cpu) else { return false };
        let low = self.limits.high_min;
        let at_rest = if pace.idle_after > 0 { 0 } else { low };
        Tuner::high_in(aside.tuner) > low || self.frames_waiting(cpu) > at_rest
    }

    /// Runs what `begin` returns. If that is nothing, the traces of use stay for the next run.
    fn turn(
        &self,
        cpu: u32,
        pace: &Pace,
        begin: impl FnOnce(&mut Tuner, &mut Memory) -> Option<(Memory, Decay)>,
    ) -> Tidied {
        if self.asides.of(cpu).is_none() {
            return Tidied::default();
        }
        let Some(begun) = self.asides.remembered(cpu, begin) else { return Tidied::MISSED };
        let Some((memory, decay)) = begun else { return Tidied::NO_REST };
        let mut course = Course::new(&self.zone, self.limits.batch, &memory, pace, decay);
        self.send(cpu, &mut course);
        let (tidied, list) = (course.tidied, course.next());
        // The limits reflect what the lists could hold before; recompute them.
        self.set_room(cpu);
        let counts = self.lists.counts(cpu);
        // If another thread holds the lock, the lists are in use, and the next run finds them changed.
        let _ = self.asides.remembered(cpu, |_, now| now.end(&memory, &counts, &tidied, list));
        Tidied { again: tidied.again || tidied.is_deferred() || tidied.missed, ..tidied }
    }

    /// Holds the lists again and again until enough has gone back.
    fn send(&self, cpu: u32, course: &mut Course<'_, '_>) {
        let mut goes_on = course.left > 0;
        while goes_on {
            let went = self.lists.hold(cpu).map(|mut held| course.go(&mut held));
            course.tidied.missed |= went.is_none();
            goes_on = went.unwrap_or(false);
        }
    }
}

#[cfg(test)]
mod tests;
