//! Moments of reads and clears: late reads share passes, and neighbours have their turns at different times.

use crate::pmd::Ns;
use isotherm_units::PmdNo;

/// Between two checks of a huge range with hot pages. A check of all of them costs the target 0.2% of a core for each GiB at that.
const HOT_PERIOD: Ns = 64_000_000_000;
/// Late reads are due at multiples of this or of a power of two times this.
const SCAN_GRID: Ns = 100_000_000;
/// Neighbours that the background scan reads at the same moment. Plans of reads are kept by runs of neighbours.
const SCAN_BLOCK: u64 = 4;

/// Reads that are so far away are due at multiples of this, so that a pass reads many: one part in `parts` of the distance, or up to half of
/// that, but [`SCAN_GRID`] at least.
pub(super) fn grid(distance: Ns, parts: u64) -> Ns {
    SCAN_GRID << (distance / (parts * SCAN_GRID)).max(1).ilog2()
}

/// The next check of a huge range with hot pages, an eighth of a period from now at the soonest. Moments of any 32 neighbours are spread over
/// the period without a gap of more than 4 s.
pub(super) fn hot_turn(seed: u64, pmd: PmdNo, now: Ns) -> Ns {
    next_turn(seed, pmd.0, HOT_PERIOD, now + HOT_PERIOD / 8)
}

/// The next read of `pmd` by the background scan. Moments of any 32 neighbours are spread over the period, so that 64 MiB that turn hot are come
/// to after a fifth of it. [`SCAN_BLOCK`] of them have their turn together.
///
/// From one turn to the next it is a period. From a read at another time it is a period on average, too.
pub(super) fn scan_turn(seed: u64, pmd: PmdNo, now: Ns, period: Ns) -> Ns {
    let period = period.max(SCAN_GRID);
    next_turn(seed, pmd.0 / SCAN_BLOCK, period, now + period / 2).next_multiple_of(grid(period, 16))
}

/// The first moment from `from` on at which it is the turn of `number`. Each has its turn at a fixed moment of the period. Those of numbers in a
/// row are apart by the golden ratio of it.
fn next_turn(seed: u64, number: u64, period: Ns, from: Ns) -> Ns {
    let part = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed);
    let moment = ((u128::from(part) * u128::from(period)) >> 64) as Ns;
    from + (period + moment - from % period) % period
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_any_64_mib_some_range_has_its_turn_within_four_seconds() {
        for (seed, first) in [(1, 0), (7, 12_345), (u64::MAX, 33_554_000)] {
            let from = 1_000 * HOT_PERIOD + 17;
            let mut turns: Vec<Ns> =
                (first..first + 32).map(|pmd| next_turn(seed, pmd, HOT_PERIOD, from) - from).collect();
            turns.sort_unstable();
            assert!(turns[31] < HOT_PERIOD, "{turns:?}");
            turns.push(turns[0] + HOT_PERIOD);
            let gap = turns.windows(2).map(|two| two[1] - two[0]).max();
            assert!(gap < Some(4_000_000_000), "seed {seed}: {turns:?}");
            let turn = next_turn(seed, first, HOT_PERIOD, from);
            assert_eq!(next_turn(seed, first, HOT_PERIOD, turn), turn);
            assert_eq!(next_turn(seed, first, HOT_PERIOD, turn + 1), turn + HOT_PERIOD);
        }
    }

    #[test]
    fn late_reads_are_on_a_grid_of_an_eighth_of_their_distance_at_most() {
        let ms = |distance: Ns, parts| grid(distance * 1_000_000, parts) / 1_000_000;
        assert_eq!([1000, 1280, 2560, 5120, 20_480].map(|distance| ms(distance, 8)), [100, 100, 200, 400, 1600]);
        assert_eq!([1000, 12_000, 60_000].map(|distance| ms(distance, 16)), [100, 400, 3200]);
    }
}
