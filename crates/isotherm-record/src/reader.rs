//! Reads a recording, in whatever state its recorder left it.
//!
//! Used by replay and reports. [`Recording::open`] reads only the footers of files, decides by the rule in
//! [`crate::schema`] which segments count, and lists in notes what it had to skip. [`Snapshots`] then joins the six
//! tables of one segment after the other, a snapshot at a time. Files are untrusted: whatever is in them, the result is
//! data or an error.

use crate::allowance::{Allowance, bytes_of, size_of_data};
use crate::cursor::{
    Cursor, HISTOGRAM, HeatKind, HeatRow, IdleRow, MappingRow, RegionRow, Row, SnapshotRow, TargetRow,
};
use crate::error::counted;
use crate::schema::Table;
use crate::segment::{Coverage, FileName, Footer, run_from_json};
use crate::{Error, Result};
use isotherm_heat::{
    Histogram, IdleStep, Interval, Mapping, MappingIdle, PagesBehindHuge, Region, RunInfo, Snapshot, TargetHeat,
    TargetId,
};
use isotherm_units::Bytes;
use std::collections::HashMap;
use std::fmt;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::vec;

/// An opened recording. It holds no open files.
#[derive(Debug)]
pub struct Recording {
    path: PathBuf,
    run: RunInfo,
    /// Segments that count, by the snapshots they cover.
    segments: Vec<Segment>,
    /// Snapshots that are missing now but existed once.
    missing: Vec<Range<u64>>,
    notes: Vec<String>,
    /// Total bytes of the files that are ours.
    size: u64,
    max_memory: Option<u64>,
}

#[derive(Clone, Debug)]
struct Segment {
    number: u64,
    coverage: Coverage,
    /// Of the format.
    version: u32,
}

impl Recording {
    /// Opens the recording in the directory `path`. Changes nothing there.
    pub fn open(path: impl AsRef<Path>) -> Result<Recording> {
        let path = path.as_ref();
        let mut survey = Survey { dir: path, run: None, segments: Vec::new(), notes: Vec::new(), damage: None };
        let (numbers, size) = segment_numbers(path)?;
        for number in numbers.into_iter().rev() {
            survey.consider(number)?;
        }
        Ok(Recording { size, ..survey.conclude()? })
    }

    /// Sets the memory that reading may take. With `None`, the limit follows from the recording's size.
    #[must_use]
    pub fn with_max_memory(self, max_memory: Option<Bytes>) -> Recording {
        Recording { max_memory: max_memory.map(|bytes| bytes.0), ..self }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How and where the recording was made.
    pub fn run(&self) -> &RunInfo {
        &self.run
    }

    /// Snapshots that can be read.
    pub fn len(&self) -> usize {
        let count: u64 = self.segments.iter().map(|s| s.coverage.count()).sum();
        usize::try_from(count).unwrap_or(usize::MAX)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What a user should know about the state of the recording, a sentence each. Empty if it was finished and is
    /// complete.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The snapshots in order, read on demand. After an error the rest of that segment is skipped, and the iterator
    /// continues with the next segment.
    pub fn snapshots(&self) -> Snapshots {
        Snapshots {
            dir: self.path.clone(),
            run: self.run.clone(),
            segments: self.segments.clone().into_iter(),
            end: self.segments.last().map_or(0, |last| last.coverage.snapshots.end),
            current: None,
            mappings: KnownMappings::new(self.missing.clone()),
            allowance: Allowance::new(&self.path, self.size, self.max_memory),
            all: false,
        }
    }

    /// The same for a caller that keeps them all: an error if they would take more memory than a recording of this size should.
    pub fn snapshots_to_keep(&self) -> Snapshots {
        Snapshots { all: true, ..self.snapshots() }
    }

    /// All snapshots at once.
    pub fn read_all(&self) -> Result<Vec<Snapshot>> {
        self.snapshots_to_keep().collect()
    }
}

/// Numbers of the segments that have a `snapshots` file, ascending, and the size of all files that are ours. An error
/// if no file is ours.
fn segment_numbers(dir: &Path) -> Result<(Vec<u64>, u64)> {
    let failed = |error| Error::Open { path: dir.to_owned(), error };
    if !fs::metadata(dir).map_err(failed)?.is_dir() {
        return Err(Error::NotARecording { path: dir.to_owned(), what: "it is not a directory".into() });
    }
    let (mut numbers, mut ours, mut sizes) = (Vec::new(), false, HashMap::new());
    for entry in fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let Some(file) = entry.file_name().to_str().and_then(FileName::parse) else { continue };
        ours = true;
        // Follows links, as opening the files does; one file counts once, by however many names. Files that are gone by now are not read either.
        if let Ok(there) = fs::metadata(entry.path())
            && there.is_file()
        {
            let size = || File::open(entry.path()).map_or(0, |file| size_of_data(&file));
            sizes.entry((there.dev(), there.ino())).or_insert_with(size);
        }
        if file == FileName::of(Table::Snapshots, file.segment) {
            numbers.push(file.segment);
        }
    }
    if !ours {
        let what = "it has no files such as snapshots-000001.parquet".into();
        return Err(Error::NotARecording { path: dir.to_owned(), what });
    }
    numbers.sort_unstable();
    Ok((numbers, sizes.into_values().fold(0, u64::saturating_add)))
}

/// Decides which segments count, from the newest to the oldest.
struct Survey<'a> {
    dir: &'a Path,
    run: Option<(String, RunInfo)>,
    segments: Vec<Segment>,
    notes: Vec<String>,
    /// The first error found.
    damage: Option<Error>,
}

impl Survey<'_> {
    fn consider(&mut self, number: u64) -> Result<()> {
        match self.check(number) {
            Ok(segment) => self.segments.extend(segment),
            // Not damage to skip: this version cannot know what the recording holds.
            Err(newer @ Error::NewerVersion { .. }) => return Err(newer),
            Err(error) => {
                self.notes.push(format!("segment {number} was skipped: {error}"));
                self.damage.get_or_insert(error);
            }
        }
        Ok(())
    }

    /// The segment if it counts. `None` if a newer one replaces it.
    fn check(&mut self, number: u64) -> Result<Option<Segment>> {
        let snapshots = self.footer(Table::Snapshots, number)?;
        let coverage = snapshots.coverage.clone();
        if self.segments.iter().any(|newer| newer.coverage.replaces(&coverage)) {
            return Ok(None);
        }
        self.check_coverage(number, &snapshots)?;
        for table in Table::ALL.into_iter().filter(|table| table.is_in(snapshots.version)) {
            let footer = self.footer(table, number)?;
            if footer.coverage != coverage || footer.run != snapshots.run {
                return Err(self.damaged(table, number, "it is from a different segment than the other tables"));
            }
        }
        self.check_run(number, &snapshots.run)?;
        Ok(Some(Segment { number, coverage, version: snapshots.version }))
    }

    fn footer(&self, table: Table, number: u64) -> Result<Footer> {
        Footer::read(&self.dir.join(FileName::of(table, number).to_string()), table)
    }

    fn check_coverage(&self, number: u64, snapshots: &Footer) -> Result<()> {
        if snapshots.rows != snapshots.coverage.count() {
            return Err(self.damaged(
                Table::Snapshots,
                number,
                "its number of rows differs from its number of snapshots",
            ));
        }
        if self.segments.iter().any(|newer| newer.coverage.overlaps(&snapshots.coverage)) {
            return Err(self.damaged(Table::Snapshots, number, "a newer segment has some of its snapshots, not all"));
        }
        Ok(())
    }

    fn check_run(&mut self, number: u64, json: &str) -> Result<()> {
        match &self.run {
            Some((known, _)) if known == json => Ok(()),
            Some(_) => {
                Err(self.damaged(Table::Snapshots, number, "it is from a different run than the newer segments"))
            }
            None => {
                let run = run_from_json(json);
                let run = run.map_err(|e| self.damaged(Table::Snapshots, number, &format!("isotherm.run: {e}")))?;
                self.run = Some((json.to_owned(), run));
                Ok(())
            }
        }
    }

    fn damaged(&self, table: Table, number: u64, what: &str) -> Error {
        Error::Damaged { path: self.dir.join(FileName::of(table, number).to_string()), what: what.to_owned() }
    }

    fn conclude(mut self) -> Result<Recording> {
        let Some((_, run)) = self.run.take().filter(|_| !self.segments.is_empty()) else {
            let what = self.damage.map_or_else(|| "none was completed".to_owned(), |e| e.to_string());
            return Err(Error::NothingLeft { path: self.dir.to_owned(), what });
        };
        // A segment of no snapshots sorts before the one that starts at the same index.
        self.segments.sort_by_key(|s| (s.coverage.snapshots.start, s.coverage.snapshots.end));
        let missing = self.missing();
        self.note_state(&missing);
        let (path, segments, notes) = (self.dir.to_owned(), self.segments, self.notes);
        Ok(Recording { path, run, segments, missing, notes, size: 0, max_memory: None })
    }

    fn missing(&self) -> Vec<Range<u64>> {
        let mut end = 0;
        let mut missing = Vec::new();
        for segment in &self.segments {
            if segment.coverage.snapshots.start > end {
                missing.push(end..segment.coverage.snapshots.start);
            }
            end = segment.coverage.snapshots.end;
        }
        missing
    }

    fn note_state(&mut self, missing: &[Range<u64>]) {
        if !self.segments.iter().any(|s| s.coverage.finished) {
            let count: u64 = self.segments.iter().map(|s| s.coverage.count()).sum();
            let segments = self.segments.len() as u64;
            self.notes.push(format!(
                "the recorder did not finish, has not yet, or could not join its segments: opened {} with {}; \
                 if it was cut off, what came in the seconds after is not there",
                counted(segments, "complete segment"),
                counted(count, "snapshot")
            ));
        }
        for gap in missing {
            self.notes.push(format!(
                "snapshots {} to {} are missing; mappings stored in them are omitted until they change",
                gap.start,
                gap.end - 1
            ));
        }
    }
}

/// The snapshots of a recording in order. See [`Recording::snapshots`].
pub struct Snapshots {
    dir: PathBuf,
    run: RunInfo,
    segments: vec::IntoIter<Segment>,
    /// Snapshots from this index on came after the recording was opened.
    end: u64,
    current: Option<Tables>,
    mappings: KnownMappings,
    /// Covers what is in memory at once: one snapshot, or all of them.
    allowance: Allowance,
    all: bool,
}

impl fmt::Debug for Snapshots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshots").field("dir", &self.dir).field("segments", &self.segments).finish_non_exhaustive()
    }
}

impl Iterator for Snapshots {
    type Item = Result<Snapshot>;

    fn next(&mut self) -> Option<Result<Snapshot>> {
        if !self.all {
            self.allowance.release();
        }
        loop {
            let Some(tables) = &mut self.current else {
                let segment = self.segments.next()?;
                match self.open(&segment) {
                    Ok(tables) => self.current = Some(tables),
                    Err(error) => return Some(Err(self.give_up(segment.coverage.snapshots, error))),
                }
                continue;
            };
            let rest = tables.rest.clone();
            if rest.start >= self.end && rest.end > self.end {
                return None;
            }
            match tables.next(&mut self.mappings, &mut self.allowance) {
                Ok(Some(snapshot)) => return Some(Ok(snapshot)),
                Ok(None) => self.current = None,
                Err(error) => return Some(Err(self.give_up(rest, error))),
            }
        }
    }
}

impl Snapshots {
    /// Opens a segment, or the one that has replaced it since the recording was opened.
    fn open(&mut self, segment: &Segment) -> Result<Tables> {
        let error = match Tables::open(&self.dir, segment) {
            Err(error) if error.is_gone() => error,
            opened => return opened,
        };
        let from = segment.coverage.snapshots.start;
        // By another run of the same name nothing is continued.
        let Some(now) = Recording::open(&self.dir).ok().filter(|now| now.run == self.run) else { return Err(error) };
        let mut left = now.segments.into_iter().filter(|other| other.coverage.snapshots.end > from);
        let Some(joined) = left.next().filter(|joined| joined.coverage.replaces(&segment.coverage)) else {
            return Err(error);
        };
        let mut tables = Tables::open(&self.dir, &joined)?;
        tables.skip_to(from, &self.allowance)?;
        self.segments = left.collect::<Vec<_>>().into_iter();
        Ok(tables)
    }

    fn give_up(&mut self, rest: Range<u64>, error: Error) -> Error {
        self.current = None;
        self.mappings.missing.push(rest);
        error
    }
}

/// The six tables of a segment, read in parallel.
struct Tables {
    /// Indices that are still to come.
    rest: Range<u64>,
    snapshots: Cursor<SnapshotRow>,
    targets: Cursor<TargetRow>,
    regions: Cursor<RegionRow>,
    mappings: Cursor<MappingRow>,
    heat: Cursor<HeatRow>,
    /// Not in version 1.
    idle: Option<Cursor<IdleRow>>,
}

impl Tables {
    fn open(dir: &Path, segment: &Segment) -> Result<Tables> {
        Ok(Tables {
            rest: segment.coverage.snapshots.clone(),
            snapshots: Cursor::open(dir, segment.number)?,
            targets: Cursor::open(dir, segment.number)?,
            regions: Cursor::open(dir, segment.number)?,
            mappings: Cursor::open(dir, segment.number)?,
            heat: Cursor::open(dir, segment.number)?,
            idle: Table::Idle.is_in(segment.version).then(|| Cursor::open(dir, segment.number)).transpose()?,
        })
    }

    /// Passes over the snapshots before this index.
    fn skip_to(&mut self, index: u64, allowance: &Allowance) -> Result<()> {
        self.snapshots.skip_to(index, allowance)?;
        self.targets.skip_to(index, allowance)?;
        self.regions.skip_to(index, allowance)?;
        self.mappings.skip_to(index, allowance)?;
        self.heat.skip_to(index, allowance)?;
        self.idle.as_mut().map_or(Ok(()), |idle| idle.skip_to(index, allowance))?;
        self.rest.start = index;
        Ok(())
    }

    fn next(&mut self, known: &mut KnownMappings, allowance: &mut Allowance) -> Result<Option<Snapshot>> {
        let Some(index) = self.rest.next() else { return self.check_end(allowance).map(|()| None) };
        let Ok([row]) = <[SnapshotRow; 1]>::try_from(self.snapshots.take(index, allowance)?) else {
            return Err(self.snapshots.damaged(format!("snapshot {index} does not have exactly one row")));
        };
        let rows = self.targets.take(index, allowance)?;
        if rows.len() as u64 != row.targets {
            return Err(self.targets.damaged(format!("snapshot {index} does not have as many targets as it states")));
        }
        let mut parts = self.parts(index, allowance)?;
        known.begin(index);
        let targets = rows.into_iter().map(|row| self.target(row, &mut parts, known)).collect::<Result<_>>()?;
        known.end();
        if !parts.is_empty() {
            return Err(self.targets.damaged(format!("snapshot {index} has rows of a target that is not in it")));
        }
        let SnapshotRow { start_unix_ns, end_unix_ns, cost, .. } = row;
        Ok(Some(Snapshot { start_unix_ns, end_unix_ns, targets, cost }))
    }

    /// The rows of other tables, by target.
    fn parts(&mut self, index: u64, allowance: &mut Allowance) -> Result<HashMap<TargetId, Parts>> {
        let mut parts: HashMap<TargetId, Parts> = HashMap::new();
        for row in self.regions.take(index, allowance)? {
            Parts::of(row.id, &mut parts, allowance)?.regions.push(row.region);
        }
        for row in self.mappings.take(index, allowance)? {
            Parts::of(row.id, &mut parts, allowance)?.mappings.push(row.mapping);
        }
        for row in self.heat.take(index, allowance)? {
            let of = Parts::of(row.id, &mut parts, allowance)?;
            if row.by_estimate.is_some() && of.by_estimate.is_none() {
                allowance.charge(HISTOGRAM)?;
            }
            if !of.count(&row) {
                return Err(self.heat.damaged(format!("snapshot {index} counts a step twice or too many pages")));
            }
        }
        if let Some(idle) = &mut self.idle {
            for row in idle.take(index, allowance)? {
                if !Parts::of(row.id, &mut parts, allowance)?.add_idle(&row) {
                    return Err(idle.damaged(format!("snapshot {index} has idle times out of order or too many pages")));
                }
            }
        }
        Ok(parts)
    }

    fn target(
        &self,
        row: TargetRow,
        parts: &mut HashMap<TargetId, Parts>,
        known: &mut KnownMappings,
    ) -> Result<TargetHeat> {
        let TargetRow { mut heat, regions, mappings, mappings_snapshot, behind_huge } = row;
        let found = parts.remove(&heat.id).unwrap_or_default();
        if found.regions.len() as u64 != regions {
            return Err(self.regions.damaged(format!("{regions} regions expected, {} found", found.regions.len())));
        }
        heat.mappings = known
            .resolve(heat.id, mappings_snapshot, mappings, found.mappings)
            .ok_or_else(|| self.mappings.damaged(format!("not the {mappings} mappings of pid {}", heat.id.pid)))?;
        (heat.regions, heat.temperature, heat.idle) = (found.regions, found.temperature, found.idle);
        heat.idle_by_mapping = found.idle_by_mapping;
        let (pages, age_ns) = behind_huge;
        let estimate = || PagesBehindHuge { temperature: found.by_estimate.unwrap_or_default(), pages, age_ns };
        heat.behind_huge = (pages > 0).then(estimate);
        Ok(heat)
    }

    /// No row may be left after the last snapshot.
    fn check_end(&mut self, allowance: &mut Allowance) -> Result<()> {
        ended(&mut self.snapshots, allowance)?;
        ended(&mut self.targets, allowance)?;
        ended(&mut self.regions, allowance)?;
        ended(&mut self.mappings, allowance)?;
        ended(&mut self.heat, allowance)?;
        self.idle.as_mut().map_or(Ok(()), |idle| ended(idle, allowance))
    }
}

fn ended<R: Row>(cursor: &mut Cursor<R>, allowance: &mut Allowance) -> Result<()> {
    match cursor.peek(allowance)? {
        Some(index) => Err(cursor.damaged(format!("rows of snapshot {index}, which the segment does not cover"))),
        None => Ok(()),
    }
}

/// What other tables hold for a target.
#[derive(Default)]
struct Parts {
    regions: Vec<Region>,
    mappings: Vec<Mapping>,
    temperature: Histogram,
    idle: Histogram,
    by_estimate: Option<Histogram>,
    idle_by_mapping: Vec<MappingIdle>,
    /// Pages counted in each of the four.
    totals: [u64; 4],
}

impl Parts {
    /// The parts of a target, created if they are not there yet.
    fn of<'a>(id: TargetId, all: &'a mut HashMap<TargetId, Parts>, allowance: &mut Allowance) -> Result<&'a mut Parts> {
        if !all.contains_key(&id) {
            allowance.charge(bytes_of::<(TargetId, Parts)>(2) + 2 * HISTOGRAM)?;
        }
        Ok(all.entry(id).or_default())
    }

    /// Counts a row. False if its step was counted already or the total overflows 64 bits.
    fn count(&mut self, row: &HeatRow) -> bool {
        let [temperature, idle, by_estimate, _] = &mut self.totals;
        let (histogram, total) = match row.kind {
            HeatKind::Temperature => (&mut self.temperature, temperature),
            HeatKind::Idle => (&mut self.idle, idle),
        };
        let mut estimated = |pages| {
            let histogram = self.by_estimate.get_or_insert_default();
            count_step(histogram, by_estimate, row.interval, pages)
        };
        row.by_estimate.is_none_or(&mut estimated) && count_step(histogram, total, row.interval, row.pages)
    }
}

impl Parts {
    /// Appends a step of a mapping. False if it does not come after the last one, or the total overflows.
    fn add_idle(&mut self, row: &IdleRow) -> bool {
        let IdleStep { idle, pages, huge_pages, accessed_pages, accessed_huge_pages } = row.step;
        let all = [pages, huge_pages, accessed_pages, accessed_huge_pages];
        let Some(total) = all.into_iter().try_fold(self.totals[3], u64::checked_add) else { return false };
        self.totals[3] = total;
        match self.idle_by_mapping.last_mut() {
            Some(last) if last.start == row.start => {
                let comes_after = last.steps.last().is_none_or(|step| step.idle < idle);
                last.steps.push(row.step);
                comes_after
            }
            last => {
                let comes_after = last.is_none_or(|last| last.start < row.start);
                self.idle_by_mapping.push(MappingIdle { start: row.start, steps: vec![row.step] });
                comes_after
            }
        }
    }
}

/// Counts one step. False if it was counted already or the total overflows.
fn count_step(histogram: &mut Histogram, total: &mut u64, step: Interval, pages: u64) -> bool {
    let Some(sum) = total.checked_add(pages) else { return false };
    if histogram.at(step) > 0 {
        return false;
    }
    *total = sum;
    histogram.add(step, pages);
    true
}

/// Mappings of the targets of the last snapshot, to which `mappings_snapshot` can point.
struct KnownMappings {
    /// For each target, the index under which its mappings are stored, and the mappings.
    before: HashMap<TargetId, (u64, Arc<[Mapping]>)>,
    /// The same for the snapshot that is being read. Only its targets are carried on.
    now: HashMap<TargetId, (u64, Arc<[Mapping]>)>,
    index: u64,
    /// Snapshots whose rows cannot be read. Mappings stored there are not known.
    missing: Vec<Range<u64>>,
}

impl KnownMappings {
    fn new(missing: Vec<Range<u64>>) -> KnownMappings {
        KnownMappings { before: HashMap::new(), now: HashMap::new(), index: 0, missing }
    }

    fn begin(&mut self, index: u64) {
        self.index = index;
        self.now.clear();
    }

    fn end(&mut self) {
        self.before = std::mem::take(&mut self.now);
    }

    /// The `count` mappings stored under snapshot `written`. `found` are those stored under the current one. `None` if
    /// the recording contradicts itself. Empty if the mappings are lost.
    fn resolve(&mut self, id: TargetId, written: u64, count: u64, found: Vec<Mapping>) -> Option<Arc<[Mapping]>> {
        let set: Option<Arc<[Mapping]>> = if written == self.index {
            Some(found.into())
        } else if found.is_empty() {
            self.before.remove(&id).filter(|(index, _)| *index == written).map(|(_, set)| set)
        } else {
            return None;
        };
        match set {
            Some(set) if set.len() as u64 == count => {
                self.now.insert(id, (written, Arc::clone(&set)));
                Some(set)
            }
            None if self.missing.iter().any(|range| range.contains(&written)) => Some([].into()),
            _ => None,
        }
    }
}
