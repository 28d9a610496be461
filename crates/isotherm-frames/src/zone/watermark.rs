//! Watermarks: how many free frames a zone keeps back, and from whom.

use crate::isqrt;

/// How badly frames are needed: how far below the watermark an allocation may go.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Urgency {
    /// Leaves `min` frames free.
    #[default]
    Normal,
    /// Leaves half of them.
    High,
    /// May take the last frame: for what will give frames back.
    Critical,
}

/// Free frames at which a zone is short. All 0 (the default): every frame can be handed out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Watermarks {
    /// Below this, normal allocations fail.
    pub min: u64,
    /// Below this, whoever gives frames back should start; a list of zones turns to the next one.
    pub low: u64,
    /// Above this, they can stop.
    pub high: u64,
}

impl Watermarks {
    /// What the kernel sets for a single zone of `managed` frames: `min` from `min_free_kbytes`, which is 4 times the square root of
    /// the KiB, between 128 KiB and 256 MiB; `low` and `high` one and two steps above, a step being a quarter of `min` or 0.1% of
    /// the zone, whichever is more.
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

    /// Frames that an allocation of this urgency leaves.
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
        let marks = Watermarks::like_the_kernel(4 << 20);
        assert_eq!(marks, Watermarks { min: 4_096, low: 4_096 + 4_194, high: 4_096 + 2 * 4_194 });
        assert_eq!(Watermarks::like_the_kernel(0), Watermarks { min: 32, low: 40, high: 48 });
        assert_eq!(Watermarks::like_the_kernel(1 << 40).min, 64 << 10);
    }

    #[test]
    fn urgency_goes_deeper() {
        let marks = Watermarks { min: 7, low: 9, high: 11 };
        let kept = [Urgency::Normal, Urgency::High, Urgency::Critical].map(|u| marks.kept_from(u));
        assert_eq!(kept, [7, 4, 0]);
    }
}
