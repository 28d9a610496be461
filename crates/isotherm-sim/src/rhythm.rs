//! When one page is accessed: at fixed times, at random times, or never.
//!
//! Every query asks whether a page was accessed in a stretch of time `(from, to]`. Answers have to be consistent for
//! overlapping stretches, and nothing is stored. So accesses are points in time. Time is cut into slots, and a moment
//! is a slot and a fraction of it. The points within a slot follow from a hash of page and slot. A query compares these
//! points with two moments, so no answer can contradict another.
//!
//! - *Every*: slots are as long as the interval, with one point in each, at the page's own phase.
//! - *Poisson*: each slot has a number of points drawn from the Poisson distribution, at uniformly distributed places.
//!   That is exactly a memoryless process, not an approximation. Slots are a quarter of the mean interval, so that few
//!   have a second point and one hash is enough for a slot. Most queries cover a time much shorter than the interval.

use crate::mix::{GOLDEN, mix, threshold};
use isotherm_heat::{Mask, Ns};

/// Slots per interval of a memoryless page.
const SLOTS_PER_INTERVAL: u64 = 4;
/// After this many slots, a memoryless page counts as accessed without a check of each slot. The probability that it
/// was not accessed is e^-64, or one in 10^27.
const SURELY: u64 = 64 * SLOTS_PER_INTERVAL;

/// A stretch of time: after `since`, up to and including `until`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub since: Ns,
    pub until: Ns,
}

/// How one page is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rhythm {
    kind: Kind,
    interval: Ns,
    /// Length of a slot.
    slot: Ns,
    /// 2^64 / slot: converts a time within a slot into a fraction of it, with a multiplication instead of a slow
    /// division.
    scale: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Never,
    Every,
    Poisson,
}

/// A moment: a slot, and a 64-bit fraction of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Moment {
    slot: u64,
    fraction: u64,
}

/// A moment, with the part that all hashes of the slot have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SaltedMoment {
    at: Moment,
    salt: u64,
}

/// A stretch of time for one rhythm, computed once for all pages in a query.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Window {
    /// No page was accessed.
    Nothing,
    /// Every page was accessed.
    Everything,
    /// Pages with their phase among `width` fractions after `after`.
    Phases { after: u64, width: u64 },
    /// Pages with a random point in it.
    Points { from: SaltedMoment, to: SaltedMoment },
}

impl Rhythm {
    pub const NEVER: Rhythm = Rhythm { kind: Kind::Never, interval: 0, slot: 0, scale: 0 };

    pub fn every(interval: Ns) -> Rhythm {
        Rhythm { kind: Kind::Every, interval, slot: interval, scale: u64::MAX / interval }
    }

    /// The interval is accurate to within 4 ns.
    pub fn poisson(interval: Ns) -> Rhythm {
        let slot = (interval / SLOTS_PER_INTERVAL).max(1);
        Rhythm { kind: Kind::Poisson, interval, slot, scale: u64::MAX / slot }
    }

    /// The mean time between accesses.
    pub fn interval(&self) -> Option<Ns> {
        (self.kind != Kind::Never).then_some(self.interval)
    }

    /// Converts `time` for this rhythm.
    pub fn window(&self, time: Stretch) -> Window {
        let Stretch { since, until } = time;
        if self.kind == Kind::Never || since >= until {
            return Window::Nothing;
        }
        let (from, to) = (self.moment(since), self.moment(until));
        let slots = to.slot - from.slot;
        match self.kind {
            Kind::Every if slots > 1 || (slots == 1 && to.fraction >= from.fraction) => Window::Everything,
            Kind::Every => Window::Phases { after: from.fraction, width: to.fraction.wrapping_sub(from.fraction) },
            _ if slots > SURELY => Window::Everything,
            _ => Window::Points { from: from.salted(), to: to.salted() },
        }
    }

    fn moment(&self, t: Ns) -> Moment {
        let slot = t / self.slot;
        Moment { slot, fraction: (t - slot * self.slot) * self.scale }
    }
}

impl Moment {
    fn salted(self) -> SaltedMoment {
        SaltedMoment { at: self, salt: salt_of(self.slot) }
    }
}

/// Hashes the slot's number: the plain number added to a page's key would be the key of another page.
#[inline]
fn salt_of(slot: u64) -> u64 {
    mix(slot.wrapping_add(1))
}

impl Window {
    /// Whether the page with this key was accessed.
    #[inline]
    pub fn has(&self, key: u64) -> bool {
        match *self {
            Window::Nothing => false,
            Window::Everything => true,
            Window::Phases { after, width } => in_phase(key, after, width),
            Window::Points { from, to } => has_point(key, from, to),
        }
    }

    /// Sets the bits of accessed pages from `first` up to but not including `end`. `key` is that of page 0 of the
    /// huge range. The key of each page is [`GOLDEN`] more than that of the page before.
    pub fn mark(&self, key: u64, first: usize, end: usize, mask: &mut Mask) {
        match *self {
            Window::Nothing => {}
            Window::Everything => mark_all(first, end, mask),
            Window::Phases { after, width } => mark_if(key, first, end, mask, |key| in_phase(key, after, width)),
            Window::Points { from, to } => mark_if(key, first, end, mask, |key| has_point(key, from, to)),
        }
    }
}

/// Sets bits from `first` up to but not including `end`.
pub(crate) fn mark_all(first: usize, end: usize, mask: &mut Mask) {
    let mut at = first;
    while at < end {
        let stop = end.min((at / 64 + 1) * 64);
        mask.0[at / 64] |= u64::MAX >> (64 - (stop - at)) << (at % 64);
        at = stop;
    }
}

/// Sets the bits of the pages for whose key `is` returns true.
#[inline]
pub(crate) fn mark_if(key: u64, first: usize, end: usize, mask: &mut Mask, is: impl Fn(u64) -> bool) {
    let mut at = first;
    while at < end {
        // Word by word, so that the inner loop works in registers.
        let stop = end.min((at / 64 + 1) * 64);
        let mut page_key = key.wrapping_add(GOLDEN.wrapping_mul(at as u64));
        let mut word = 0;
        for bit in at % 64..at % 64 + (stop - at) {
            word |= u64::from(is(page_key)) << bit;
            page_key = page_key.wrapping_add(GOLDEN);
        }
        mask.0[at / 64] |= word;
        at = stop;
    }
}

/// A page's phase is its key. Keys of adjacent pages are a golden step apart, so phases are spread evenly over any
/// range of pages.
#[inline]
fn in_phase(key: u64, after: u64, width: u64) -> bool {
    key.wrapping_sub(after).wrapping_sub(1) < width
}

#[inline]
fn has_point(key: u64, from: SaltedMoment, to: SaltedMoment) -> bool {
    let first = Slot::of(key, from.salt);
    if from.at.slot == to.at.slot {
        return first.has_between(from.at.fraction, to.at.fraction);
    }
    first.has_between(from.at.fraction, u64::MAX)
        || Slot::of(key, to.salt).has_to(to.at.fraction)
        || (from.at.slot + 1..to.at.slot).any(|slot| !Slot::of(key, salt_of(slot)).is_empty())
}

/// The random points of one page in one slot.
struct Slot {
    /// The upper half gives the number of points, the lower half the place of the first.
    hash: u64,
}

/// The number of hashes, of 2^64, that mean at most 0, 1, 2 ... points in a slot. More than 8 points come once in 10^11
/// slots and are ignored.
const AT_MOST: [u64; 8] = at_most();

const fn at_most() -> [u64; 8] {
    let mean = 1.0 / SLOTS_PER_INTERVAL as f64;
    let mut table = [0; 8];
    // e^-0.25, as a literal because `exp` is not const.
    let mut term = 0.778_800_783_071_404_9;
    let mut sum = 0.0;
    let mut n = 0;
    while n < table.len() {
        sum += term;
        table[n] = threshold(sum);
        n += 1;
        term *= mean / n as f64;
    }
    table
}

impl Slot {
    #[inline]
    fn of(key: u64, salt: u64) -> Slot {
        Slot { hash: mix(key ^ salt) }
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.hash < AT_MOST[0]
    }

    /// The first point. Valid only if the slot is not empty.
    #[inline]
    fn first(&self) -> u64 {
        self.hash.rotate_left(32)
    }

    #[inline]
    fn has_between(&self, after: u64, to: u64) -> bool {
        self.has(|p| p.wrapping_sub(after).wrapping_sub(1) < to.wrapping_sub(after))
    }

    #[inline]
    fn has_to(&self, to: u64) -> bool {
        self.has(|p| p <= to)
    }

    /// The first point is checked without a branch, because both results are common; a second point is rare.
    #[inline]
    fn has(&self, is_in: impl Fn(u64) -> bool) -> bool {
        (!self.is_empty() & is_in(self.first())) || (self.hash >= AT_MOST[1] && self.others().any(is_in))
    }

    /// All points except the first.
    fn others(&self) -> impl Iterator<Item = u64> {
        let hash = self.hash;
        let count = AT_MOST[1..].iter().take_while(|most| hash >= **most).count() as u64;
        (1..=count).map(move |n| mix(hash.wrapping_add(n.wrapping_mul(GOLDEN))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(page: u64) -> u64 {
        page.wrapping_mul(GOLDEN).wrapping_add(mix(7))
    }

    fn accessed(rhythm: Rhythm, page: u64, since: Ns, until: Ns) -> bool {
        rhythm.window(Stretch { since, until }).has(key(page))
    }

    #[test]
    fn a_regular_page_is_accessed_exactly_once_an_interval() {
        let rhythm = Rhythm::every(1000);
        for page in [0, 1, 77, 0x7f12_3456] {
            let hits = (0..10_000).filter(|i| accessed(rhythm, page, i * 10, i * 10 + 10)).count();
            assert_eq!(hits, 100, "page {page}");
            assert!(accessed(rhythm, page, 500, 1500), "any whole interval holds one");
        }
    }

    #[test]
    fn random_accesses_have_the_mean_and_the_variance_of_poissons_law() {
        let rhythm = Rhythm::poisson(1_000_000);
        // In windows of three intervals that begin anywhere: mean 3, variance 3.
        let counts: Vec<f64> = (0..4000_u64)
            .map(|page| {
                let start = page * 777_777;
                (0..3000).filter(|i| accessed(rhythm, page, start + i * 1000, start + (i + 1) * 1000)).count() as f64
            })
            .collect();
        let mean = counts.iter().sum::<f64>() / 4000.0;
        let variance = counts.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / 4000.0;
        assert!((mean - 3.0).abs() < 0.12, "mean {mean}");
        assert!((variance - 3.0).abs() < 0.3, "variance {variance}");
    }

    #[test]
    fn a_random_page_is_idle_for_long_as_often_as_chance_has_it() {
        let rhythm = Rhythm::poisson(1_000_000);
        for (share_of_interval, expected) in [(0.1_f64, 0.905), (1.0, 0.368), (3.0, 0.050)] {
            let window = 1_000_000.0 * share_of_interval;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and positive")]
            let idle = (0..20_000_u64).filter(|p| !accessed(rhythm, *p, p * 31, p * 31 + window as u64)).count();
            let idle = idle as f64 / 20_000.0;
            assert!((idle - expected).abs() < 0.012, "{share_of_interval} intervals: {idle}, not {expected}");
        }
    }

    fn rhythms() -> impl Strategy<Value = Rhythm> {
        (any::<bool>(), 1_u64..100_000)
            .prop_map(|(regular, interval)| if regular { Rhythm::every(interval) } else { Rhythm::poisson(interval) })
    }

    proptest! {
        #[test]
        fn answers_about_overlapping_times_agree(
            rhythm in rhythms(), page in any::<u64>(), mut t in prop::array::uniform3(0_u64..1_000_000),
        ) {
            t.sort_unstable();
            let [a, b, c] = t;
            let whole = accessed(rhythm, page, a, c);
            prop_assert_eq!(whole, accessed(rhythm, page, a, b) || accessed(rhythm, page, b, c));
        }

        #[test]
        fn a_huge_range_is_marked_as_its_pages_are_answered(
            rhythm in rhythms(), base in any::<u64>(), since in 0_u64..500_000, time in 0_u64..500_000,
            ends in prop::array::uniform2(0_usize..=512),
        ) {
            let window = rhythm.window(Stretch { since, until: since + time });
            let (first, end) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
            let mut mask = Mask::NONE;
            window.mark(base, first, end, &mut mask);
            for page in 0..512 {
                let is = (first..end).contains(&page) && window.has(base.wrapping_add(GOLDEN.wrapping_mul(page as u64)));
                prop_assert_eq!(mask.has(page), is);
            }
        }
    }
}
