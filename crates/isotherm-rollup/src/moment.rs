//! One snapshot by service and cgroup: sums over processes, each page counted once.
//!
//! `interval` adds moments up over time. Pages that are also counted for another process are taken from each step in proportion
//! ([`Reduced`]), with their kinds and huge pages, so that all figures of a moment come from the same pages.

use crate::kinds::{self, Kind};
use crate::service::{Service, Services};
use isotherm_heat::{Histogram, Interval, Mapping, Region, STEPS_PER_OCTAVE, TargetId};
use isotherm_schemes::collapse::benefit::{Run, level_of, runs_of_regions};
use isotherm_stream::{MappingRow, ProcessRow, Reduced, RegionRow, Snapshot};
use isotherm_units::{Bytes, PMD_SIZE};
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

const NS_PER_MS: f64 = 1e6;
/// The windows of a working set.
const WINDOWS_NS: [u64; 4] = [10_000_000_000, 60_000_000_000, 600_000_000_000, 3_600_000_000_000];
/// The same on the scale. Asked for once for each row of heat, and a logarithm takes as long as the row.
static WINDOWS: LazyLock<[Window; 4]> = LazyLock::new(|| WINDOWS_NS.map(Window::of_ns));
/// The most huge ranges of one region: 8 TiB. A larger one cannot be on a machine of today.
const MAX_RANGES: u64 = 1 << 22;

/// Which rows of an interval belong together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct GroupKey {
    pub service: Service,
    pub cgroup: String,
}

/// What the processes of a group have at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct GroupMoment {
    pub processes: u64,
    /// Small pages and pages on huge pages, by code and kind.
    pub cells: BTreeMap<(u8, Kind), [u64; 2]>,
    /// Pages by idle time.
    pub idle: BTreeMap<u8, u64>,
    /// Huge ranges that are not huge and that are, by level.
    pub levels: BTreeMap<u8, [u64; 2]>,
    pub swapped_bytes: Option<u64>,
    pub limit_bytes: Option<u64>,
    /// Of the cgroup: anonymous, file, slab.
    pub charged_bytes: Option<[u64; 3]>,
    pub estimated_pages: u64,
    /// Since the last snapshot: accesses to idle pages by idle time; bytes that left, and that came back.
    pub refaults: BTreeMap<u8, u64>,
    pub moved_bytes: [u64; 2],
}

/// A window on the scale: all steps before one, and a part of that.
///
/// A step holds the intervals nearest to it, from half a step before to half a step after. Ten minutes lie near the beginning of theirs,
/// which ends at 651 s: as a whole it made working sets up to 3% too large.
#[derive(Clone, Copy, Debug)]
struct Window {
    last: Interval,
    part_ppm: u64,
}

impl Window {
    fn of_ns(ns: u64) -> Window {
        let last = Interval::from_ns(ns);
        let begins = last.octaves().unwrap_or_default() - 0.5 / f64::from(STEPS_PER_OCTAVE);
        let part = ((as_f64(ns) / NS_PER_MS).log2() - begins) * f64::from(STEPS_PER_OCTAVE);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to a million")]
        let part_ppm = (part.clamp(0.0, 1.0) * 1e6) as u64;
        Window { last, part_ppm }
    }

    fn pages(self, interval: Interval, pages: u64) -> u64 {
        match interval.cmp(&self.last) {
            _ if !interval.is_measured() => 0,
            Ordering::Less => pages,
            Ordering::Equal => (pages.saturating_mul(self.part_ppm) + 500_000) / 1_000_000,
            Ordering::Greater => 0,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "an hour in nanoseconds at most")]
fn as_f64(ns: u64) -> f64 {
    ns as f64
}

/// Pages by code to the working sets of [`WINDOWS_NS`].
pub(crate) fn working_sets(by_code: impl Iterator<Item = (u8, u64)>) -> [u64; 4] {
    let (mut sets, windows) = ([0; 4], *WINDOWS);
    for (interval, pages) in by_code.map(|(code, pages)| (Interval::from_code(code), pages)) {
        for (set, window) in sets.iter_mut().zip(windows) {
            *set += window.pages(interval, pages);
        }
    }
    sets
}

impl GroupMoment {
    /// Resident bytes, and those of each working set.
    pub(crate) fn sizes(&self) -> [u64; 5] {
        let by_code = || self.cells.iter().map(|((code, _), [small, huge])| (*code, small + huge));
        let [a, b, c, d] = working_sets(by_code());
        [by_code().map(|(_, pages)| pages).sum(), a, b, c, d].map(|pages| Bytes::of_pages(pages).0)
    }

    fn add(&mut self, row: &ProcessRow, parts: &Parts<'_>) {
        let whole = row.heat.resident();
        let kept = whole.saturating_sub(row.counted_elsewhere_pages);
        let mut reduce = Reduced::new(whole, kept);
        kinds::split(&row.heat, &row.heat_huge, parts.regions(), &parts.mappings, |(code, kind, is_huge, pages)| {
            let pages = reduce.reduce(pages);
            if pages > 0 {
                self.cells.entry((code, kind)).or_default()[usize::from(is_huge)] += pages;
            }
        });
        let mut reduce = Reduced::new(whole, kept);
        for (idle, pages) in row.idle.iter().filter(|(idle, _)| idle.is_measured()) {
            *self.idle.entry(idle.code()).or_default() += reduce.reduce(pages);
        }
        parts.add_levels(&mut self.levels, Reduced::new(whole, kept));
        self.processes += 1;
        self.estimated_pages += Reduced::new(whole, kept).reduce(row.estimated_pages.min(whole));
        if let Some(bytes) = row.swapped_bytes {
            self.swapped_bytes = Some(self.swapped_bytes.unwrap_or_default().saturating_add(bytes));
        }
        // The same for all processes of a cgroup.
        self.limit_bytes = self.limit_bytes.or(row.cgroup_limit_bytes);
        let charged = row.cgroup_memory.map(|memory| [memory.anon.0, memory.file.0, memory.slab.0]);
        self.charged_bytes = self.charged_bytes.or(charged);
    }
}

/// Regions and mappings of one process.
#[derive(Default)]
struct Parts<'a> {
    regions: Vec<&'a RegionRow>,
    mappings: Vec<&'a Mapping>,
}

impl Parts<'_> {
    fn regions(&self) -> impl Iterator<Item = &Region> {
        self.regions.iter().map(|row| &row.region)
    }

    /// Adds the huge ranges of its regions, as far as they are not counted for another process.
    fn add_levels(&self, levels: &mut BTreeMap<u8, [u64; 2]>, mut reduce: Reduced) {
        let is_possible = |region: &&Region| region.range.len().0 / PMD_SIZE <= MAX_RANGES;
        let regions: Vec<Region> = self.regions().filter(is_possible).copied().collect();
        for Run { facts, pmds } in runs_of_regions(&regions) {
            let pmds = reduce.reduce(pmds);
            if let Some(level) = level_of(facts.benefit_hz).filter(|_| pmds > 0) {
                levels.entry(level.get()).or_default()[usize::from(facts.huge)] += pmds;
            }
        }
    }
}

/// All groups of a snapshot. `moved` has the bytes that left and came back since the last one, by process.
pub(crate) fn groups_of(
    snapshot: &Snapshot,
    services: &mut Services,
    moved: &HashMap<TargetId, [u64; 2]>,
) -> HashMap<GroupKey, GroupMoment> {
    let mut parts: HashMap<TargetId, Parts<'_>> = HashMap::new();
    for row in &snapshot.regions {
        parts.entry(row.id()).or_default().regions.push(row);
    }
    for row in &snapshot.mappings {
        let MappingRow { mapping, .. } = row;
        parts.entry(row.id()).or_default().mappings.push(mapping);
    }
    let mut accessed: HashMap<TargetId, Histogram> = HashMap::new();
    for row in &snapshot.idle {
        accessed.entry(row.id()).or_default().add(row.interval, row.pages);
    }
    let (mut groups, no_parts) = (HashMap::<GroupKey, GroupMoment>::new(), Parts::default());
    for row in &snapshot.processes {
        let key = GroupKey { service: services.of(&row.cgroup, &row.comm), cgroup: row.cgroup.clone() };
        let group = groups.entry(key).or_default();
        // Of one that has ended, what happened before counts.
        if !row.exited {
            group.add(row, parts.get(&row.id()).unwrap_or(&no_parts));
        }
        // A page that several processes map comes back once, like the pages that are idle. One that has ended has none of its own any more.
        let whole = row.heat.resident();
        let kept = if row.exited { whole } else { whole.saturating_sub(row.counted_elsewhere_pages) };
        let mut reduce = Reduced::new(whole, if whole == 0 { 1 } else { kept });
        for (idle, pages) in accessed.get(&row.id()).into_iter().flat_map(Histogram::iter) {
            let pages = reduce.reduce(pages);
            if pages > 0 {
                *group.refaults.entry(idle.code()).or_default() += pages;
            }
        }
        for (sum, bytes) in group.moved_bytes.iter_mut().zip(moved.get(&row.id()).copied().unwrap_or_default()) {
            *sum = sum.saturating_add(bytes);
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Intervals spread evenly on the log scale from 1 s to 10,000 s: of them 2,778 of 4,000 are within ten minutes.
    #[test]
    fn a_window_that_ends_within_a_step_has_a_part_of_it() {
        let mut by_code: BTreeMap<u8, u64> = BTreeMap::new();
        for n in 0..4000 {
            let ns = 1e9 * 10_f64.powf(f64::from(n) / 1000.0);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "10,000 s at most")]
            let code = Interval::from_ns(ns as u64).code();
            *by_code.entry(code).or_default() += 1;
        }
        let sets = working_sets(by_code.into_iter());
        for (set, seconds) in sets.into_iter().zip([10_f64, 60.0, 600.0, 3600.0]) {
            let expected = 1000.0 * seconds.log10();
            assert!((as_f64(set) - expected).abs() < 5.0, "{set} within {seconds} s, and not {expected}");
        }
    }
}
