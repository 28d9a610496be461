//! The part of the state that keeps readings of work and TLB misses, for the gain in `status`.

use super::State;
use crate::gain::{Measured, Reading};

/// Readings of work and TLB misses, ten seconds apart: rates are reported over the last 30 s.
const READINGS: usize = 4;

impl State {
    /// Adds a reading of the counters of work and misses, about every ten seconds.
    pub fn read(&mut self, reading: Reading) {
        if self.readings.len() == READINGS {
            self.readings.pop_front();
        }
        self.readings.push_back(reading);
        if self.first_rates.is_none() && self.readings.len() == 2 {
            self.first_rates = self.rates();
        }
    }

    pub(super) fn rates(&self) -> Option<Measured> {
        Some(Measured::between(self.readings.front()?, self.readings.back()?))
    }

    /// Forgets all readings, as other processes are measured from now on.
    pub fn forget_readings(&mut self) {
        self.readings.clear();
        self.first_rates = None;
    }
}
