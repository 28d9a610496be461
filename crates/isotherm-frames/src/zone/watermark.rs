//! Watermarks: how many free frames a zone reserves, and for which requests.

use crate::isqrt;

/// The urgency of a request: how far below the watermark it may go.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Urgency {
    /// Leaves `min` frames free.
    #[default]
    Normal,
    /// Leaves half of `min` free.
    High,
    /// May take the last frame. For callers that will free frames as a result.
    Critical,
}

/// Free frames at which a zone is short. All 0 (the default): every frame can be allocated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Watermarks {
    /// Below this, normal allocations fail.
    pub min: u64,
    /// Below this, the owner of the zone should begin to free frames; [`Zones`](crate::Zones) goes to the next zone.
    pub low: u64,
    /// Above this, it can stop.
    pub high: u64,
}

impl Watermarks {
    /// The kernel's watermarks for a single zone of `managed` frames. `min` follows from `min_free_kbytes`, which is 4
    /// times the square root of the zone's KiB, between 128 KiB and 256 MiB. `low` and `high` are one and two steps
    /// above. A step is a quarter of `min` or 0.1% of the zone, whichever is more.
    pub const fn like_the_kernel(managed: u64) -> Watermarks {
        let kib = isqrt(managed.saturating_mul(4 * 16));
        let kib = if kib < 128 {
            128
        } else if kib > 256 << 10 {
            256 << 10
        } else {
            kib
        };
        let min = kib / 4;
        let (quarter, thousandth) = (min / 4, managed / 1000);
        let step = if quarter > thousandth { quarter } else { thousandth };
        Watermarks { min, low: min + step, high: min + 2 * step }
    }

    /// Frames that an allocation of this urgency leaves free.
    pub(crate) const fn kept_from(&self, urgency: Urgency) -> u64 {
        match urgency {
            Urgency::Normal => self.min,
            Urgency::High => self.min - self.min / 2,
            Urgency::Critical => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_formula_with_worked_numbers() {
        // 16 GiB: sqrt(16,777,216 KiB * 16) = 16,384 KiB = 4,096 frames; a step is 4,194 frames.
        let limits = Watermarks::like_the_kernel(4 << 20);
        assert_eq!(limits, Watermarks { min: 4_096, low: 4_096 + 4_194, high: 4_096 + 2 * 4_194 });
        assert_eq!(Watermarks::like_the_kernel(0), Watermarks { min: 32, low: 40, high: 48 });
        assert_eq!(Watermarks::like_the_kernel(1 << 40).min, 64 << 10);
    }

    #[test]
    fn urgency_goes_deeper() {
        let limits = Watermarks { min: 7, low: 9, high: 11 };
        let kept = [Urgency::Normal, Urgency::High, Urgency::Critical].map(|u| limits.kept_from(u));
        assert_eq!(kept, [7, 4, 0]);
    }
}
