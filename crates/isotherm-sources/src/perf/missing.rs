//! Events that are counted but missing in the rings: losses that nothing reports.

/// Events without a sample count as lost beyond this share: counters and rings are not read at the same moment.
const COUNT_SLACK: f64 = 0.05;

/// Events that happened and left neither a sample nor a report of a loss.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Missing {
    /// Samples that were lost, reported or not, as far as known.
    all: u64,
    counted: u64,
}

impl Missing {
    /// Takes new counts: of events, of those that samples stand for, of samples, and of samples reported as lost.
    /// Events that were counted at the last call must have reached the samples by now.
    pub fn update(&mut self, counted: u64, weighed: u64, samples: u64, lost: u64) {
        let before = std::mem::replace(&mut self.counted, counted) as f64;
        let each = (weighed as f64 / samples.max(1) as f64).max(1.0);
        let missing_events = before - weighed as f64 - lost as f64 * each;
        if samples > 0 && missing_events > before * COUNT_SLACK {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "positive, as it is above a share"
            )]
            let missing = (missing_events / each) as u64;
            self.all = self.all.max(missing + lost);
        }
    }

    /// Lost samples that nothing has reported. A report may come late: a ring has room for it when the next event comes there.
    pub fn unreported(&self, lost: u64) -> u64 {
        self.all.saturating_sub(lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_without_a_sample_are_missing() {
        let mut missing = Missing::default();
        missing.update(1000, 0, 0, 0);
        missing.update(1000, 1000, 100, 0);
        assert_eq!(missing.unreported(0), 0, "what was counted first is heard later");
        // 1000 more events of ten a sample: half came, a fifth was reported lost.
        missing.update(2000, 1500, 150, 20);
        missing.update(2000, 1500, 150, 20);
        assert_eq!(missing.unreported(20), 30);
        // Two thirds of them are reported after all.
        missing.update(2000, 1500, 150, 40);
        assert_eq!(missing.unreported(40), 10);
        let mut missing = Missing { all: 50, counted: 2000 };
        missing.update(4000, 3460, 346, 20);
        missing.update(4000, 3460, 346, 20);
        assert_eq!(missing.unreported(20), 34, "of all so far");
        let mut missing = Missing { all: 0, counted: 1000 };
        missing.update(1000, 960, 96, 0);
        assert_eq!(missing.unreported(0), 0, "4% is no more than other processors' counters make");
    }
}
