//! From records, one for each target, to snapshots of all targets.
//!
//! Snapshots of damo's targets end at slightly different times. Those that end within half a snapshot's length belong
//! together. A target is never twice in one snapshot.

use super::count::Counting;
use super::model::{Ours, Record, RegionRecord, SnapshotRecord};
use crate::error::counted;
use isotherm_heat::{Cost, Granularity, Histogram, Interval, Region, RunInfo, Snapshot, TargetHeat, TargetId};
use isotherm_units::Bytes;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Earlier times are not wall time. This is in 1973.
const EARLIEST_WALL_NS: u64 = 100_000_000_000_000_000;
/// No process has addresses between this and the stack above; physical addresses stay below.
const END_OF_PHYSICAL: u64 = 1 << 46;

/// Notes on how a file was understood.
#[derive(Debug, Default)]
pub struct Notes {
    sentences: Vec<String>,
    beyond: u64,
}

impl Notes {
    pub fn say(&mut self, sentence: String) {
        if !self.sentences.contains(&sentence) {
            self.sentences.push(sentence);
        }
    }

    pub fn unknown_fields(&mut self, names: &BTreeSet<String>) {
        if !names.is_empty() {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            self.say(format!("fields that this version does not know were skipped: {}", names.join(", ")));
        }
    }

    pub fn sentences(mut self) -> Vec<String> {
        if self.beyond > 0 {
            let regions = counted(self.beyond, "region");
            self.sentences.push(format!("{regions} with more accesses than checks: counted as one access per check"));
        }
        self.sentences
    }
}

/// Joins records. The error is what is wrong with them.
pub fn recording(records: Vec<Record>, notes: &mut Notes) -> Result<(RunInfo, Vec<Snapshot>), String> {
    let mut targets = Targets::default();
    let mut seen = Vec::new();
    let mut run = None;
    for record in records {
        let Some((id, ours)) = targets.place(&record, notes) else { continue };
        let intervals = record.intervals;
        run = run.or_else(|| ours.as_ref().map(|o| o.run.clone()));
        let resident = record.passes_resident();
        let timing = Timing::of(&record, notes).map_err(|what| format!("target {}: {what}", id.pid))?;
        targets.intervals_ns = targets.intervals_ns.max(intervals.map_or(timing.length_ns, |i| i.aggregation_ns));
        for (index, snapshot) in record.snapshots.into_iter().enumerate().filter(|(_, s)| !s.is_filler()) {
            let part = Part::of(id, snapshot, timing, resident, notes);
            seen.push(part.map_err(|what| format!("target {}, snapshot {index}: {what}", id.pid))?);
        }
    }
    if seen.iter().any(|p| p.end_ns > 0) && seen.iter().all(|p| p.end_ns < EARLIEST_WALL_NS) {
        notes.say("times are those of the tracer's clock, which does not count from 1970".into());
    }
    let mut run = run.unwrap_or_else(|| targets.run_info());
    run.source_note += " (by way of a file of damo: counts in regions)";
    Ok((run, targets.snapshots(seen)))
}

/// The identity of targets.
#[derive(Debug, Default)]
struct Targets {
    /// Contexts, in order. Two of them may have a target of the same number.
    contexts: Vec<(Option<u64>, Option<u64>)>,
    /// The scheme whose view of a target is used.
    schemes: BTreeMap<TargetId, Option<u64>>,
    names: BTreeMap<TargetId, (String, String)>,
    /// Targets whose number is not a pid, by it.
    pointers: HashMap<u64, u32>,
    intervals_ns: u64,
}

impl Targets {
    /// The target of a record. `None` if the record is another scheme's view of a target that is already there.
    fn place(&mut self, record: &Record, notes: &mut Notes) -> Option<(TargetId, Option<Ours>)> {
        let ours = record.ours();
        let pid = self.pid(record.target_id, notes);
        let start_ticks = ours.as_ref().map_or_else(|| self.context(record), |o| o.start_ticks);
        let id = TargetId { pid, start_ticks };
        if *self.schemes.entry(id).or_insert(record.scheme_idx) != record.scheme_idx {
            notes.say("several schemes recorded the same target: the first one's view was taken".into());
            return None;
        }
        let name = match &ours {
            Some(ours) => (ours.comm.clone(), ours.cgroup.clone()),
            None => (made_up_name(record).to_owned(), String::new()),
        };
        self.names.entry(id).or_insert(name);
        Some((id, ours))
    }

    fn pid(&mut self, target_id: Option<u64>, notes: &mut Notes) -> u32 {
        let id = target_id.unwrap_or(0);
        if let Ok(pid) = u32::try_from(id) {
            return pid;
        }
        notes.say("targets are named by addresses in the kernel: they are numbered from 1 instead".into());
        let next = u32::try_from(self.pointers.len() + 1).unwrap_or(u32::MAX);
        *self.pointers.entry(id).or_insert(next)
    }

    fn context(&mut self, record: &Record) -> u64 {
        let context = (record.kdamond_idx, record.context_idx);
        let index = self.contexts.iter().position(|c| *c == context).unwrap_or_else(|| {
            self.contexts.push(context);
            self.contexts.len() - 1
        });
        index as u64
    }

    fn run_info(&self) -> RunInfo {
        RunInfo {
            version: env!("CARGO_PKG_VERSION").into(),
            source: "damo".into(),
            source_note: "recorded by the kernel's DAMON, one page sampled in each region".into(),
            window_ns: self.intervals_ns,
            ..RunInfo::default()
        }
    }

    fn snapshots(&self, mut parts: Vec<Part>) -> Vec<Snapshot> {
        parts.sort_by_key(|p| (p.end_ns, p.start_ns));
        let mut groups: Vec<Vec<Part>> = Vec::new();
        let mut ids = HashSet::new();
        for part in parts {
            let is_new = ids.insert(part.id);
            match groups.last_mut() {
                Some(group) if is_new && is_near(group, &part) => group.push(part),
                _ => {
                    ids = HashSet::from([part.id]);
                    groups.push(vec![part]);
                }
            }
        }
        let began_ns = groups.iter().flatten().map(|p| p.start_ns).min().unwrap_or(0);
        groups.into_iter().map(|group| self.snapshot(group, began_ns)).collect()
    }

    /// What it has cost is unknown, but for how long it has watched.
    fn snapshot(&self, mut group: Vec<Part>, began_ns: u64) -> Snapshot {
        group.sort_by_key(|p| p.id);
        let end_unix_ns = group.iter().map(|p| p.end_ns).max().unwrap_or(0);
        Snapshot {
            start_unix_ns: group.iter().map(|p| p.start_ns).min().unwrap_or(0),
            end_unix_ns,
            targets: group.into_iter().map(|p| self.heat(p)).collect(),
            cost: Cost { elapsed_ns: end_unix_ns.saturating_sub(began_ns), ..Cost::default() },
        }
    }

    fn heat(&self, part: Part) -> TargetHeat {
        let (comm, cgroup) = self.names.get(&part.id).cloned().unwrap_or_default();
        let (mut temperature, mut idle) = (Histogram::default(), Histogram::default());
        for region in &part.regions {
            temperature.add(region.interval, region.resident_pages);
            let seen = region.interval.is_measured();
            idle.add(
                if seen { Interval::from_ns(region.idle_ns) } else { Interval::UNMEASURED },
                region.resident_pages,
            );
        }
        TargetHeat {
            id: part.id,
            comm,
            cgroup,
            exited: false,
            granularity: Granularity::Region,
            regions: part.regions,
            mappings: [].into(),
            temperature,
            idle,
            counted_elsewhere_pages: 0,
            maybe_shared_pages: 0,
            unclearable_pages: 0,
            behind_huge: None,
            idle_by_mapping: Vec::new(),
            facts: Default::default(),
        }
    }
}

/// A name for targets, which damo does not name. damo knows only which memory is physical, and does not put that into
/// its records.
fn made_up_name(record: &Record) -> &'static str {
    let mut ends = record.snapshots.iter().flat_map(|s| &s.regions).map(|r| r.end).peekable();
    let physical = record.target_id.unwrap_or(0) == 0 && ends.peek().is_some() && ends.all(|e| e < END_OF_PHYSICAL);
    if physical { "paddr" } else { "target" }
}

/// The intervals of a record, and the length of its snapshots.
#[derive(Clone, Copy, Debug)]
struct Timing {
    counting: Counting,
    length_ns: u64,
}

impl Timing {
    fn of(record: &Record, notes: &mut Notes) -> Result<Timing, String> {
        let lengths = record.snapshots.iter().filter(|s| !s.is_filler()).map(|s| s.end_ns.saturating_sub(s.start_ns));
        let mut lengths: Vec<u64> = lengths.collect();
        lengths.sort_unstable();
        let length_ns = lengths.get(lengths.len() / 2).copied().unwrap_or(0);
        if let Some(said) = record.intervals {
            if said.sample_ns == 0 || said.aggregation_ns < said.sample_ns {
                return Err(
                    "its intervals make no sense: sampling has to be longer than 0 and no longer than aggregation"
                        .into(),
                );
            }
            let counting = Counting { sample_ns: Some(said.sample_ns), aggregation_ns: said.aggregation_ns };
            return Ok(Timing { counting, length_ns });
        }
        if length_ns == 0 && !lengths.is_empty() {
            return Err(
                "it gives neither its intervals nor the length of its snapshots, so rates cannot be computed".into()
            );
        }
        // DAMON reports once an aggregation interval, and a rate needs no other interval.
        notes.say("no intervals given: assuming one aggregation interval per snapshot".into());
        let counting = Counting { sample_ns: None, aggregation_ns: length_ns.max(1) };
        Ok(Timing { counting, length_ns })
    }

    /// The intervals of a snapshot whose sampling interval was tuned. Tuning does not change the ratio of the two.
    fn tuned(self, sample_ns: Option<u64>) -> Counting {
        match (sample_ns, self.counting.max()) {
            (Some(sample), Some(max)) if sample > 0 => {
                Counting { sample_ns: Some(sample), aggregation_ns: sample.saturating_mul(max) }
            }
            _ => self.counting,
        }
    }
}

/// One target at one time.
#[derive(Debug)]
struct Part {
    id: TargetId,
    start_ns: u64,
    end_ns: u64,
    regions: Vec<Region>,
}

impl Part {
    fn of(
        id: TargetId,
        snapshot: SnapshotRecord,
        timing: Timing,
        resident: bool,
        notes: &mut Notes,
    ) -> Result<Part, String> {
        let (start_ns, end_ns) = (snapshot.start_ns, snapshot.end_ns);
        if end_ns < start_ns {
            return Err(format!("it ends at {end_ns} ns, before it starts at {start_ns} ns"));
        }
        let counting = timing.tuned(snapshot.sample_ns);
        let mut regions = Vec::with_capacity(snapshot.regions.len());
        for record in snapshot.regions {
            check(&record)?;
            if record.start == record.end {
                continue;
            }
            let passed = record.sz_filter_passed.filter(|_| resident).map(Bytes);
            let (region, beyond) = counting.region(&record, passed);
            notes.beyond += u64::from(beyond);
            regions.push(region);
        }
        // `damo adjust` writes regions in the order in which it found them.
        regions.sort_by_key(|r| r.range.start);
        match regions.windows(2).find(|two| two[0].range.end > two[1].range.start) {
            Some([a, b]) => Err(format!("regions {:?} and {:?} overlap", a.range, b.range)),
            _ => Ok(Part { id, start_ns, end_ns, regions }),
        }
    }
}

fn check(region: &RegionRecord) -> Result<(), String> {
    let (start, end) = (region.start, region.end);
    if end < start {
        return Err(format!("a region ends at {end:#x}, before it starts at {start:#x}"));
    }
    match region.samples().into_iter().chain(region.age.aggr_intervals).find(|n| *n < 0) {
        Some(n) => Err(format!("the region at {start:#x} has a negative count ({n})")),
        None => Ok(()),
    }
}

/// Whether a part is of the same time as a group.
fn is_near(group: &[Part], part: &Part) -> bool {
    let half = (part.end_ns - part.start_ns) / 2;
    group.first().is_some_and(|first| part.end_ns - first.end_ns <= half)
}
