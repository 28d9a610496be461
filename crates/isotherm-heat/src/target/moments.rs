//! Moments of reads and clears: late reads share passes, and neighbours have their turns at different times.

use crate::pmd::{MIN_IDLE, Ns};
use isotherm_units::PmdNo;

/// Between two checks of a huge range with hot pages. A check of all of them costs the target 0.2% of a core for each GiB at that.
const HOT_PERIOD: Ns = 64_000_000_000;
/// Late reads are due at multiples of this or of a power of two times this.
const SCAN_GRID: Ns = 100_000_000;
/// Reads that are closer than this are done at their time: they show short intervals.
const EACH_AT_ITS_TIME: Ns = 150_000_000;
/// Neighbours that the background scan reads at the same moment. Plans of reads are kept by runs of neighbours.
const SCAN_BLOCK: u64 = 4;

/// When to read what is due at `at`, `distance` from now: about then, together with others. A pass costs as much as forty huge ranges in it. Where
/// the budget is small, few are cleared at once, and without this half of the CPU time went into passes and into waking up for them.
///
/// From 320 ms after a clear on it is the nearest of the moments, and so at twice the distance of the read before on average. With the next of
/// them, whether pages that are accessed twice a second are hot would depend on the moment at which the monitor started.
pub(super) fn late_read(at: Ns, distance: Ns) -> Ns {
    match distance {
        ..EACH_AT_ITS_TIME => at,
        EACH_AT_ITS_TIME..MIN_IDLE => {
            let grid = if distance < MIN_IDLE / 2 { SCAN_GRID / 2 } else { SCAN_GRID };
            (at + grid / 2) / grid * grid
        }
        _ => at.next_multiple_of(grid(distance, 8)),
    }
}

/// Reads that are so far away are due at multiples of this, so that a pass reads many: one part in `parts` of the distance, or up to half of
/// that, but [`SCAN_GRID`] at least.
fn grid(distance: Ns, parts: u64) -> Ns {
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
    fn reads_that_are_more_than_150_ms_away_are_shared_and_the_distances_stay_about_doubled() {
        for cleared in (1_000..1_200).map(|ms| ms * 1_000_000) {
            let mut read = cleared + 160_000_000;
            let late = [160, 320, 640, 1280].map(|distance| {
                read = late_read(read + distance * 1_000_000, distance * 1_000_000);
                (read - cleared) / 1_000_000
            });
            let nominal = [320, 640, 1280, 2560];
            for (at, nominal) in late.into_iter().zip(nominal) {
                assert!((nominal - nominal / 12..=nominal + nominal / 12).contains(&at), "{late:?}");
            }
            // An access between two of them is at the interval that is twice the geometric mean: below 1,069 ms it is hot.
            assert!(4 * late[0] * late[1] < 1_069 * 1_069, "{late:?}");
            assert!(late[2] * 1_000_000 >= MIN_IDLE, "{late:?}");
            assert!(late.iter().all(|at| (cleared / 1_000_000 + at) % 50 == 0), "{late:?}");
        }
        assert_eq!([40, 80].map(|distance| late_read(1_003, distance * 1_000_000)), [1_003; 2]);
    }

    #[test]
    fn late_reads_are_on_a_grid_of_an_eighth_of_their_distance_at_most() {
        let ms = |distance: Ns, parts| grid(distance * 1_000_000, parts) / 1_000_000;
        assert_eq!([1000, 1280, 2560, 5120, 20_480].map(|distance| ms(distance, 8)), [100, 100, 200, 400, 1600]);
        assert_eq!([1000, 12_000, 60_000].map(|distance| ms(distance, 16)), [100, 400, 3200]);
    }
}
