//! Heat by mapping, for sources that only count how many pages of a mapping were accessed.
//!
//! After one clear, the count is read at growing distances. Pages that are added between two reads have a residual
//! between the two distances. That gives the distribution of intervals within the mapping, but not which page has which
//! interval. So a snapshot holds one region per mapping, with true histograms behind it.

use crate::pmd::{MIN_IDLE, Ns, estimate_octaves};
use crate::regions::RegionBuilder;
use crate::view::Summary;
use crate::{Histogram, Interval, Tally};
use isotherm_units::{Addr, AddrRange};
use std::collections::BTreeMap;

/// Distance of the first read after a clear. Longer than with page tables, because a read walks the whole process.
const FIRST_READ: Ns = 50_000_000;
/// A check ends with the first read after this time.
const CHECK_PERIOD: Ns = 10_000_000_000;

/// What a read found in one mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappingBits {
    /// Its addresses.
    pub range: AddrRange,
    /// Pages present.
    pub resident_pages: u64,
    /// Those of them accessed since the last clear.
    pub young_pages: u64,
    /// Those of them on huge pages.
    pub huge_pages: u64,
}

impl MappingBits {
    /// Number of accessed bits for `pages` of its pages. A huge page has one.
    fn units(&self, pages: u64) -> u64 {
        let huge = pages * self.huge_pages / self.resident_pages.max(1);
        pages - huge + huge.div_ceil(512)
    }
}

#[derive(Clone, Debug)]
struct MappingHeat {
    bits: MappingBits,
    /// Pages by interval in the current check, and in the previous one.
    now: Histogram,
    before: Histogram,
    /// Not accessed since.
    idle_since: Ns,
    read_at: Ns,
}

/// What to do next with a process monitored by mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Clear, then report with [`MappingTarget::cleared`].
    Clear,
    /// Read at this time.
    Read(Ns),
}

/// The heat of one process, by mapping.
#[derive(Clone, Debug, Default)]
pub struct MappingTarget {
    mappings: BTreeMap<Addr, MappingHeat>,
    cleared_at: Option<Ns>,
    read_at: Ns,
    tally: Tally,
}

impl MappingTarget {
    /// A process of which nothing is known.
    pub fn new() -> MappingTarget {
        MappingTarget::default()
    }

    /// Whether it was cleared.
    pub fn is_begun(&self) -> bool {
        self.cleared_at.is_some()
    }

    /// What to do next.
    pub fn next(&self) -> Next {
        match self.cleared_at {
            None => Next::Clear,
            Some(at) if self.read_at.saturating_sub(at) >= CHECK_PERIOD => Next::Clear,
            Some(at) => Next::Read(at + (self.read_at.saturating_sub(at) * 2).max(FIRST_READ)),
        }
    }

    /// Notes a clear at `now`.
    pub fn cleared(&mut self, now: Ns) {
        for mapping in self.mappings.values_mut() {
            self.tally.cleared += mapping.bits.units(mapping.bits.resident_pages);
            mapping.before = std::mem::take(&mut mapping.now);
            mapping.bits.young_pages = 0;
            mapping.idle_since = mapping.idle_since.min(now);
        }
        self.cleared_at = Some(now);
        self.read_at = now;
    }

    /// Takes in one read of all mappings at `now`. Mappings that are not in it are gone.
    pub fn read(&mut self, now: Ns, found: &[MappingBits]) {
        let Some(cleared_at) = self.cleared_at else { return };
        let observed = estimate_octaves(self.read_at.saturating_sub(cleared_at), now.saturating_sub(cleared_at));
        for bits in found {
            let mapping = self.mappings.entry(bits.range.start).or_insert_with(|| MappingHeat {
                bits: MappingBits { young_pages: 0, ..*bits },
                now: Histogram::default(),
                before: Histogram::default(),
                idle_since: cleared_at,
                read_at: now,
            });
            let joined = bits.young_pages.saturating_sub(mapping.bits.young_pages);
            if joined > 0 {
                mapping.now.add(Interval::from_octaves(observed), joined);
                mapping.idle_since = now;
                self.tally.retouched += bits.units(joined);
            }
            mapping.bits = *bits;
            mapping.read_at = now;
        }
        self.mappings.retain(|_, m| m.read_at == now);
        self.read_at = now;
    }

    /// Pages cleared and seen touched again, since the start.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Sums up what is known by the last read. What was not accessed by then may have been since.
    pub fn summarize(&self, max_regions: usize) -> Summary {
        let mut sum = Summary::default();
        let mut builder = RegionBuilder::new(max_regions);
        let watched_ns = self.read_at.saturating_sub(self.cleared_at.unwrap_or(self.read_at));
        for mapping in self.mappings.values() {
            let counted = mapping.pages(watched_ns);
            for (interval, idle, pages) in &counted {
                sum.temperature.add(*interval, *pages);
                sum.idle.add(*idle, *pages);
            }
            builder.mixed(mapping.bits.range, mapping.bits.huge_pages, &counted);
        }
        sum.regions = builder.finish();
        sum
    }
}

impl MappingHeat {
    /// Pages by interval: from the current check once it has run long enough, else from the previous one.
    fn pages(&self, watched_ns: Ns) -> Vec<(Interval, Interval, u64)> {
        let use_before = watched_ns < CHECK_PERIOD / 4 && self.before.measured() > 0;
        let source = if use_before { &self.before } else { &self.now };
        let resident = self.bits.resident_pages;
        let mut left = resident;
        let mut counted = Vec::new();
        for (interval, pages) in source.iter() {
            let pages = pages.min(left);
            left -= pages;
            counted.push((interval, interval, pages));
        }
        // The rest was not accessed in the check. It has been idle for that long, or longer if the whole mapping was.
        let idle =
            watched_ns.max(self.read_at.saturating_sub(self.idle_since)).max(if use_before { CHECK_PERIOD } else { 0 });
        let idle = if idle >= MIN_IDLE { Interval::from_ns(idle) } else { Interval::UNMEASURED };
        if left > 0 {
            let interval = if idle.is_measured() { idle.extrapolated() } else { idle };
            counted.push((interval, idle, left));
        }
        counted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Ns = 1_000_000_000;

    fn bits(young_pages: u64) -> MappingBits {
        MappingBits {
            range: AddrRange::new(Addr(0x1000), Addr(0x100_1000)),
            resident_pages: 1000,
            young_pages,
            huge_pages: 0,
        }
    }

    #[test]
    fn counts_at_growing_distances_give_a_distribution() {
        let mut t = MappingTarget::new();
        assert_eq!(t.next(), Next::Clear);
        t.cleared(S);
        assert_eq!(t.next(), Next::Read(S + FIRST_READ));
        t.read(S + FIRST_READ, &[bits(100)]);
        assert_eq!(t.next(), Next::Read(S + 2 * FIRST_READ));
        t.read(S + 2 * FIRST_READ, &[bits(100)]);
        t.read(S + 4 * FIRST_READ, &[bits(300)]);
        t.read(11 * S, &[bits(300)]);
        assert_eq!(t.next(), Next::Clear);
        let sum = t.summarize(10);
        assert_eq!(sum.temperature.resident(), 1000);
        assert_eq!(sum.temperature.within_ns(S / 10), 100);
        assert_eq!(sum.temperature.within_ns(S), 300);
        let rest = Interval::from_ns(80 * S);
        assert!(
            (rest.octaves().unwrap() - sum.temperature.quantile(1.0).unwrap().octaves().unwrap()).abs() < 0.2,
            "idle for 10 s"
        );
        assert_eq!(sum.idle.quantile(1.0), Some(Interval::from_ns(10 * S)), "and that is not extrapolated");
        assert_eq!((sum.regions.len(), sum.regions[0].resident_pages), (1, 1000));
    }

    #[test]
    fn idleness_adds_up_over_looks_and_a_mapping_that_goes_is_forgotten() {
        let mut t = MappingTarget::new();
        for look in 0..5 {
            t.cleared(look * 20 * S);
            t.read(look * 20 * S + 15 * S, &[bits(0)]);
        }
        let sum = t.summarize(10);
        assert_eq!(
            sum.idle.quantile(0.5),
            Some(Interval::from_ns(95 * S)),
            "up to the last read, whenever it is asked for"
        );
        assert_eq!(sum.temperature.quantile(0.5), Some(Interval::from_ns(95 * S).extrapolated()));
        t.cleared(100 * S);
        t.read(101 * S, &[]);
        assert_eq!(t.summarize(10).temperature.resident(), 0);
    }
}
