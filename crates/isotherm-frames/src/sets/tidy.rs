//! Housekeeping of shared sets: one turn over the set of any CPU, from any. What a turn gives back is decided in `turn`.

use super::shared::Sets;
use super::turn::{Course, Memory, Pace, Tidied};
use crate::tune::{Decay, Tuner};

impl Sets<'_> {
    /// One turn of housekeeping over the set of a CPU, from any CPU: takes an eighth off what it may keep, gives what is above that back
    /// to the zone, or everything if it is idle. To be called once an interval for each CPU; [`crate::housekeep::Housekeeper`] does.
    ///
    /// Some 20 ns a frame that goes; a system call for each 8 chunks where sets are restartable. Nothing for a CPU that has no set.
    pub fn tidy(&self, cpu: u32, pace: &Pace) -> Tidied {
        let begin = |tuner: &mut Tuner, memory: &mut Memory| {
            let decay = memory.begin(tuner, &self.lists.counts(cpu), pace);
            Some((*memory, decay))
        };
        self.turn(cpu, pace, begin)
    }

    /// Goes on with a turn that was put off, soon after it, without taking a further eighth off. At most [`Tidied::left`] go, also if
    /// more have come since; nothing from a set whose last turn put nothing off, as where that of another zone was.
    pub fn tidy_rest(&self, cpu: u32, pace: &Pace) -> Tidied {
        let begin = |tuner: &mut Tuner, memory: &mut Memory| {
            let rest = memory.rest(tuner, &self.lists.counts(cpu));
            rest.map(|drain| (*memory, Decay { drain, again: true }))
        };
        self.turn(cpu, pace, begin)
    }

    /// Whether a turn over a CPU's set would have something to do. Looks at some 20 words, without a lock.
    pub fn is_untidy(&self, cpu: u32, pace: &Pace) -> bool {
        let Some(aside) = self.asides.of(cpu) else { return false };
        let low = self.marks.high_min;
        let at_rest = if pace.idle_after > 0 { 0 } else { low };
        Tuner::high_in(aside.tuner) > low || self.frames_waiting(cpu) > at_rest
    }

    /// As `begin` says; if that is nothing, the set keeps its traces of use for the next.
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
        let mut course = Course::new(&self.zone, self.marks.batch, &memory, pace, decay);
        self.send(cpu, &mut course);
        let (tidied, list) = (course.tidied, course.next());
        // What it had room for before is no longer what it may keep.
        self.set_room(cpu);
        let counts = self.lists.counts(cpu);
        // Someone has it: then the set is in use, and the next turn finds it changed.
        let _ = self.asides.remembered(cpu, |_, now| now.end(&memory, &counts, &tidied, list));
        Tidied { again: tidied.again || tidied.is_deferred() || tidied.missed, ..tidied }
    }

    /// Holds the set again and again until enough has gone.
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
