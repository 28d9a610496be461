//! A moment in six bytes, for what is kept of each 2 MiB of each target.
//!
//! A clear and a read are known to the microsecond at best: a pass over many huge ranges has one time. So a microsecond is kept, which
//! leaves room for nine years of uptime in 48 bits. Used by `pmd` (when to read and clear) and by `uniform` (when that was done).

use crate::Ns;

/// log2 of the unit, in nanoseconds: 1.024 us.
const SHIFT: u32 = 10;

/// The first moment that is not 0.
pub(crate) const SOONEST: Ns = 1 << SHIFT;

/// A moment, rounded down to 1.024 us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moment([u8; 6]);

impl Moment {
    /// The latest moment there is.
    pub const NEVER: Moment = Moment([u8::MAX; 6]);

    /// `at`, rounded down. What is later than [`Moment::NEVER`] is as late.
    pub fn of(at: Ns) -> Moment {
        let [a, b, c, d, e, f, 0, 0] = (at >> SHIFT).to_le_bytes() else { return Moment::NEVER };
        Moment([a, b, c, d, e, f])
    }

    /// Its nanoseconds.
    pub fn ns(self) -> Ns {
        let [a, b, c, d, e, f] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, 0, 0]) << SHIFT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_rounded_down_and_the_last_one_is_nine_years_away() {
        let of = |at| Moment::of(at).ns();
        assert_eq!([0, 1023, 1024, 2047, 10_000_000].map(of), [0, 0, SOONEST, SOONEST, 9_999_360]);
        let years = 365 * 86_400 * 1_000_000_000;
        assert_eq!(of(9 * years), (9 * years) >> SHIFT << SHIFT);
        assert_eq!([of(10 * years), of(Ns::MAX)], [Moment::NEVER.ns(); 2]);
    }
}
