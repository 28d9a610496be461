//! The random quantities, each with its own generator.

use super::options::{Foreground, Latency, Rate, Work};
use isotherm_rng::Rng;

#[derive(Debug)]
pub(super) struct Chance {
    pub(super) latency: Rng,
    pub(super) work: Rng,
    pub(super) foreground: Rng,
    pub(super) kicks: Rng,
    pub(super) holds: Rng,
}

impl Chance {
    pub(super) fn new(seed: u64) -> Chance {
        // Neighbouring seeds are unrelated: see `Rng::new`.
        let mut seeds = Rng::new(seed);
        let mut next = || Rng::new(seeds.next_u64());
        Chance { latency: next(), work: next(), foreground: next(), kicks: next(), holds: next() }
    }

    pub(super) fn latency_ns(&mut self, of: &Latency) -> u64 {
        let usual = exponential_ns(&mut self.latency, of.mean_ns as f64);
        let late = if happens(&mut self.latency, of.late_share) {
            self.latency.below(of.late_most_ns.saturating_add(1))
        } else {
            0
        };
        usual.saturating_add(late)
    }

    /// Number of chunks that a run drains.
    pub(super) fn chunks(&mut self, of: &Work) -> u32 {
        if !happens(&mut self.work, of.share) {
            return 0;
        }
        let more = self.work.below(u64::from(of.most - of.least) + 1);
        of.least + u32::try_from(more).unwrap_or(0)
    }

    /// Time until the next foreground burst; `None` for never.
    pub(super) fn pause_ns(&mut self, of: &Foreground, online: usize) -> Option<u64> {
        let a_second = match of.rate {
            Rate::Machine(rate) => rate,
            Rate::EachCpu(rate) => rate * online.max(1) as f64,
        };
        (a_second > 0.0).then(|| exponential_ns(&mut self.foreground, 1e9 / a_second))
    }
}

pub(super) fn happens(rng: &mut Rng, share: f64) -> bool {
    rng.unit() < share
}

fn exponential_ns(rng: &mut Rng, mean_ns: f64) -> u64 {
    let ns = -(1.0 - rng.unit()).ln() * mean_ns;
    // At most 37 times the mean; `as` saturates.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "never negative")]
    let ns = ns.round() as u64;
    ns
}
