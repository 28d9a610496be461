//! Sorts reports by page.
//!
//! A radix sort from the top bits, with no more bits than separate this many reports: two passes for up to two million
//! reports, whether they are spread over ten GB or a TB. Reports that fall together are sorted separately: a few by
//! comparing, a dense cluster in the same way by its next bits. So the cost follows the number of reports. A radix sort
//! of all bits would take a pass for every eleven bits.
//!
//! A pass streams through the reports and appends each to one of at most 2,048 places. A second-level cache holds the
//! ends of these places.

use super::store::Logged;

/// Maximum bits of a digit.
const MAX_BITS: u32 = 11;
/// Up to this many reports, setting up counters costs more than comparing.
const FEW: usize = 64;

/// Sorts `log` by page. Passes write to `spare`, whose allocation is reused and whose content does not matter.
pub(super) fn by_page(log: &mut [Logged], spare: &mut Vec<Logged>) {
    if spare.len() < log.len() {
        spare.resize(log.len(), Logged::default());
    }
    sort(log, spare);
}

fn sort(log: &mut [Logged], spare: &mut [Logged]) {
    if log.len() <= FEW {
        return log.sort_unstable_by_key(|l| l.page);
    }
    let spare = &mut spare[..log.len()];
    let first = log[0].page;
    let differ = log.iter().fold(0, |bits, l| bits | (l.page ^ first));
    if differ == 0 {
        return;
    }
    let (low, high) = (differ.trailing_zeros(), u64::BITS - differ.leading_zeros());
    // About one place for each report: most are alone then, or with one or two others.
    let enough = usize::BITS - log.len().leading_zeros();
    let bits = (high - low).min(enough).min(2 * MAX_BITS);
    let shift = high - bits;
    two_passes(log, spare, shift, [bits / 2, bits - bits / 2]);
    if shift > low {
        for together in log.chunk_by_mut(|a, b| a.page >> shift == b.page >> shift).filter(|t| t.len() > 1) {
            sort(together, spare);
        }
    }
}

/// Sorts by the digits of these widths from bit `shift` on, the lower one first: to `spare` and back.
fn two_passes(log: &mut [Logged], spare: &mut [Logged], shift: u32, widths: [u32; 2]) {
    let (lower, upper) = (Digit::new(shift, widths[0]), Digit::new(shift + widths[0], widths[1]));
    let mut places = [[0_u32; 1 << MAX_BITS]; 2];
    for logged in log.iter() {
        places[0][lower.of(logged)] += 1;
        places[1][upper.of(logged)] += 1;
    }
    scatter(log, spare, lower, &mut places[0]);
    scatter(spare, log, upper, &mut places[1]);
}

#[derive(Clone, Copy)]
struct Digit {
    shift: u32,
    mask: usize,
}

impl Digit {
    fn new(shift: u32, width: u32) -> Digit {
        Digit { shift, mask: (1 << width) - 1 }
    }

    #[expect(clippy::cast_possible_truncation, reason = "at most 11 bits are wanted")]
    fn of(self, logged: &Logged) -> usize {
        (logged.page >> self.shift) as usize & self.mask & ((1 << MAX_BITS) - 1)
    }
}

/// One pass. `places` holds the number of reports for each digit.
fn scatter(from: &[Logged], to: &mut [Logged], digit: Digit, places: &mut [u32; 1 << MAX_BITS]) {
    let mut next = 0;
    for place in &mut places[..=digit.mask] {
        next += std::mem::replace(place, next);
    }
    for logged in from {
        let place = &mut places[digit.of(logged)];
        to[*place as usize] = *logged;
        *place += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    #[test]
    fn any_pages_come_out_in_order() {
        let mut rng = Rng::new(3);
        let mut spare = Vec::new();
        for pages in [1, 2, 1 << 11, (1 << 11) + 1, 26_200_000, 1 << 44] {
            for (len, shift) in [(0, 0), (1, 0), (64, 0), (65, 0), (5_000, 0), (5_000, 9)] {
                let mut log: Vec<Logged> =
                    (0..len).map(|_| Logged { page: rng.below(pages) << shift, weight: 1, last: 0 }).collect();
                let mut wanted: Vec<u64> = log.iter().map(|l| l.page).collect();
                wanted.sort_unstable();
                by_page(&mut log, &mut spare);
                assert_eq!(log.iter().map(|l| l.page).collect::<Vec<_>>(), wanted, "{pages} {len} {shift}");
            }
        }
    }

    #[test]
    fn clusters_within_clusters_come_out_in_order() {
        let mut rng = Rng::new(4);
        // Half of them anywhere, half of the others in a thousandth of that, and so on.
        let mut log: Vec<Logged> = (0..100_000)
            .map(|_| {
                let depth = rng.next_u64().trailing_zeros().min(4);
                Logged { page: rng.below(1 << (44 - 10 * depth)), weight: 1, last: 0 }
            })
            .collect();
        let mut wanted: Vec<u64> = log.iter().map(|l| l.page).collect();
        wanted.sort_unstable();
        by_page(&mut log, &mut Vec::new());
        assert_eq!(log.iter().map(|l| l.page).collect::<Vec<_>>(), wanted);
    }
}
