//! What is kept of a snapshot: enough for heat maps and lines over hours, and small.
//!
//! Made from a received snapshot, kept by `history`, thinned by `merge`, read by the API. A region takes 56 bytes. What does not
//! change from one moment to the next (names, mappings) is shared between them.

use crate::sums::{MINUTE, Sum, octaves};
use isotherm_heat::{Interval, Mapping, Region, TargetId};
use isotherm_stream::{MappingRow, ProcessRow, RegionRow, Snapshot};
use isotherm_units::AddrRange;
use std::collections::BTreeMap;
use std::mem::size_of;
use std::sync::Arc;

const NS_PER_MS: u64 = 1_000_000;

/// The heat of all processes at one moment, or the mean over several.
#[derive(Clone, Debug, Default)]
pub struct Moment {
    /// When its window began, and ended, milliseconds since the epoch.
    pub start_ms: u64,
    /// When it ended.
    pub at_ms: u64,
    /// The sum over processes.
    pub total: Sum,
    /// The working set of a minute, by cgroup, in order of the paths.
    pub cgroups: Vec<(Arc<str>, u64)>,
    /// Processes, in order of their ids.
    pub processes: Vec<Arc<Process>>,
}

/// A process at one moment.
#[derive(Clone, Debug)]
pub struct Process {
    /// Which process.
    pub id: TargetId,
    /// Command name.
    pub comm: Arc<str>,
    /// Cgroup path; empty if unknown.
    pub cgroup: Arc<str>,
    /// It has ended.
    pub exited: bool,
    /// Its heat comes from a sample.
    pub sampled: bool,
    /// All memory that it has mapped.
    pub sum: Sum,
    /// Pages by octave of their access interval, and those that are not measured.
    pub temperature: (Vec<(u8, u64)>, u64),
    /// Pages by octave of their idle time, and those of which it is not known.
    pub idle: (Vec<(u8, u64)>, u64),
    /// Regions in address order, disjoint.
    pub regions: Vec<Piece>,
    /// Mappings in address order.
    pub mappings: Arc<[Mapping]>,
}

/// A region, as it is kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Piece {
    /// Its addresses.
    pub range: AddrRange,
    /// Pages of it: present, of known heat, on huge pages, hot, of estimated heat. A region of more than 16 TiB is kept as one of
    /// 16 TiB.
    pub resident: u32,
    /// Of known heat.
    pub measured: u32,
    /// On huge pages.
    pub huge: u32,
    /// Accessed at least once a second.
    pub hot: u32,
    /// The most that was hot at one moment, of those that were made one. At most that, where regions were joined: each counts with its own.
    pub peak_hot: u32,
    /// Assumed from checked memory around them.
    pub estimated: u32,
    /// Accesses a second.
    pub rate_hz: f32,
    /// Time since last seen accessed, in the mean, and how long it has had this heat.
    pub idle_ms: u32,
    /// How long it has had this heat.
    pub age_ms: u32,
    /// The mean interval.
    pub interval: Interval,
}

impl Piece {
    fn of(region: &Region) -> Piece {
        Piece {
            range: region.range,
            resident: small(region.resident_pages),
            measured: small(region.measured_pages.min(region.resident_pages)),
            huge: small(region.huge_pages.min(region.resident_pages)),
            hot: small(region.hot().min(region.resident_pages)),
            peak_hot: small(region.hot().min(region.resident_pages)),
            estimated: small(region.estimated_pages),
            rate_hz: region.rate_hz,
            idle_ms: small(region.idle_ns / NS_PER_MS),
            age_ms: small(region.age_ns / NS_PER_MS),
            interval: region.interval,
        }
    }
}

impl From<&Piece> for Region {
    /// What is kept of the region. It does not say which pages were sampled.
    fn from(piece: &Piece) -> Region {
        Region {
            range: piece.range,
            resident_pages: piece.resident.into(),
            measured_pages: piece.measured.into(),
            huge_pages: piece.huge.into(),
            interval: piece.interval,
            rate_hz: piece.rate_hz,
            age_ns: u64::from(piece.age_ms) * NS_PER_MS,
            idle_ns: u64::from(piece.idle_ms) * NS_PER_MS,
            sampled_pages: 0,
            estimated_pages: piece.estimated.into(),
            hot_pages: Some(piece.hot.into()),
        }
    }
}

/// A number that is cut to 32 bits.
fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl Moment {
    /// From a snapshot. `before` is the moment before it, with which it shares what has not changed.
    pub fn of(snapshot: &Snapshot, before: Option<&Moment>) -> Moment {
        let mut regions = by_process(&snapshot.regions, RegionRow::id, |row| Piece::of(&row.region));
        let mut mappings = by_process(&snapshot.mappings, MappingRow::id, |row| row.mapping.clone());
        let mut processes: Vec<Arc<Process>> = snapshot
            .processes
            .iter()
            .map(|row| {
                let before = before.and_then(|moment| moment.process(row.id()));
                let regions = disjoint(regions.remove(&row.id()).unwrap_or_default());
                Arc::new(Process::of(row, regions, mappings.remove(&row.id()).unwrap_or_default(), before))
            })
            .collect();
        processes.sort_unstable_by_key(|process| process.id);
        let mut total = Sum::default();
        let mut cgroups: BTreeMap<&str, u64> = BTreeMap::new();
        for row in snapshot.processes.iter().filter(|row| !row.exited) {
            let sum = Sum::counted_once(row);
            total.add(&sum);
            *cgroups.entry(&row.cgroup).or_default() += sum.wss[MINUTE];
        }
        let known = |path: &str| {
            let place = before.and_then(|moment| Some((moment, moment.cgroup_place(path)?)));
            place.map_or_else(|| Arc::from(path), |(moment, place)| Arc::clone(&moment.cgroups[place].0))
        };
        let [start_ms, at_ms] = [snapshot.host.start_unix_ns, snapshot.host.end_unix_ns].map(|ns| ns / NS_PER_MS);
        // Windows do not overlap, so that a column of a heat map never shows more of them than it meets.
        let earlier = before.map(|moment| moment.at_ms).filter(|earlier| *earlier < at_ms).unwrap_or_default();
        Moment {
            start_ms: start_ms.max(earlier).min(at_ms),
            at_ms,
            total,
            cgroups: cgroups.into_iter().map(|(path, bytes)| (known(path), bytes)).collect(),
            processes,
        }
    }

    /// One of its processes.
    pub fn process(&self, id: TargetId) -> Option<&Arc<Process>> {
        self.processes.binary_search_by_key(&id, |process| process.id).ok().map(|place| &self.processes[place])
    }

    /// The working set of a cgroup.
    pub fn cgroup_wss(&self, path: &str) -> Option<u64> {
        self.cgroup_place(path).map(|place| self.cgroups[place].1)
    }

    fn cgroup_place(&self, path: &str) -> Option<usize> {
        self.cgroups.binary_search_by(|(known, _)| (**known).cmp(path)).ok()
    }

    /// The memory that it takes, without what it may share: names and mappings, which `footprint` counts.
    pub fn bytes(&self) -> usize {
        let processes: usize = self.processes.iter().map(|process| process.bytes()).sum();
        size_of::<Moment>() + self.cgroups.len() * size_of::<(Arc<str>, u64)>() + processes
    }
}

impl Process {
    /// The memory that its regions cover, in address order.
    pub fn used(&self) -> impl Iterator<Item = AddrRange> + Clone {
        self.regions.iter().map(|region| region.range)
    }

    fn of(row: &ProcessRow, regions: Vec<Piece>, mappings: Vec<Mapping>, before: Option<&Arc<Process>>) -> Process {
        let shared = |text: &str, known: Option<&Arc<str>>| match known {
            Some(known) if **known == *text => Arc::clone(known),
            _ => Arc::from(text),
        };
        Process {
            id: row.id(),
            comm: shared(&row.comm, before.map(|process| &process.comm)),
            cgroup: shared(&row.cgroup, before.map(|process| &process.cgroup)),
            exited: row.exited,
            sampled: row.sampled,
            sum: Sum::of(row),
            temperature: octaves(&row.heat),
            idle: octaves(&row.idle),
            regions,
            mappings: match before {
                Some(before) if *before.mappings == *mappings => Arc::clone(&before.mappings),
                _ => mappings.into(),
            },
        }
    }

    fn bytes(&self) -> usize {
        let octaves = (self.temperature.0.len() + self.idle.0.len()) * size_of::<(u8, u64)>();
        // What an allocation takes beyond its contents, for three lists and an Arc.
        size_of::<Process>() + 64 + octaves + self.regions.len() * size_of::<Piece>()
    }
}

fn by_process<R, T>(rows: &[R], id: fn(&R) -> TargetId, of: fn(&R) -> T) -> BTreeMap<TargetId, Vec<T>> {
    let mut lists: BTreeMap<TargetId, Vec<T>> = BTreeMap::new();
    // Rows of a process follow each other, so it is looked up once.
    for chunk in rows.chunk_by(|one, other| id(one) == id(other)) {
        lists.entry(id(&chunk[0])).or_default().extend(chunk.iter().map(of));
    }
    lists
}

/// Regions in order. Those that begin within the one before them are dropped: a monitor sends none.
fn disjoint(mut regions: Vec<Piece>) -> Vec<Piece> {
    regions.retain(|region| !region.range.is_empty());
    if !regions.is_sorted_by_key(|region| region.range.start) {
        regions.sort_unstable_by_key(|region| region.range.start);
    }
    regions.dedup_by(|next, kept| next.range.start < kept.range.end);
    regions.shrink_to_fit();
    regions
}
