//! When a scheme is active, by how much memory is free: DAMON's watermarks.
//!
//! ```text
//!   free memory   100% ── high ── mid ── low ── 0%
//!   inactive         ·······                 ····    there is plenty; or so little that the kernel reclaims by itself
//!   active                        ·········
//!   as it was                 ····
//! ```

use serde::{Deserialize, Serialize};

/// Shares of all memory that is free, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Watermarks {
    /// Inactive while more is free.
    pub high: f64,
    /// Active from less than this on.
    pub mid: f64,
    /// Inactive while less is free.
    pub low: f64,
}

impl Watermarks {
    /// What has to hold and does not, if so.
    pub fn fault(&self) -> Option<&'static str> {
        let Watermarks { high, mid, low } = *self;
        let are_ordered = 0.0 <= low && low <= mid && mid <= high && high <= 100.0;
        (!are_ordered).then_some("watermarks have to be 0 <= low <= mid <= high <= 100 percent of memory")
    }

    /// Whether the scheme is active with so much free, if it was so before.
    pub fn is_active(&self, was_active: bool, free_pct: f64) -> bool {
        if free_pct > self.high || free_pct < self.low { false } else { was_active || free_pct < self.mid }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_mid_and_high_it_stays_as_it_was() {
        let marks = Watermarks { high: 50.0, mid: 40.0, low: 5.0 };
        let mut is_active = false;
        let seen = [60.0, 45.0, 39.0, 45.0, 50.0, 51.0, 45.0, 30.0, 4.0, 6.0].map(|free| {
            is_active = marks.is_active(is_active, free);
            is_active
        });
        assert_eq!(seen, [false, false, true, true, true, false, false, true, false, true]);
    }

    #[test]
    fn they_are_in_order() {
        let fault = |high, mid, low| Watermarks { high, mid, low }.fault().is_some();
        assert!(!fault(50.0, 40.0, 5.0) && !fault(100.0, 100.0, 0.0));
        assert!(
            fault(40.0, 50.0, 5.0) && fault(50.0, 40.0, 45.0) && fault(101.0, 40.0, 5.0) && fault(50.0, f64::NAN, 5.0)
        );
    }
}
