//! Segments: the names of their files, and the metadata that describes what each of them holds.
//!
//! The writer creates both. The reader trusts neither: names and metadata of a file that somebody else wrote are input
//! like any other.

use crate::schema::{FORMAT, Table, VERSION};
use crate::{Error, Result, footer};
use isotherm_heat::RunInfo;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::file::metadata::KeyValue;
use std::collections::HashMap;
use std::fs::{self, File};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// A file of ours, as parsed from its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileName {
    pub(crate) table: Table,
    pub(crate) segment: u64,
    pub(crate) temporary: bool,
}

impl FileName {
    /// The name of a table in a segment that counts.
    pub(crate) fn of(table: Table, segment: u64) -> FileName {
        FileName { table, segment, temporary: false }
    }

    /// The name of the same table while it is written.
    pub(crate) fn temporary(self) -> FileName {
        FileName { temporary: true, ..self }
    }

    /// The name, if it is exactly one that we would write.
    pub(crate) fn parse(name: &str) -> Option<FileName> {
        let bare = name.strip_prefix('.').and_then(|n| n.strip_suffix(".tmp"));
        let (table, rest) = bare.unwrap_or(name).split_once('-')?;
        let table = Table::ALL.into_iter().find(|t| t.name() == table)?;
        let segment = rest.strip_suffix(".parquet")?.parse().ok()?;
        let file = FileName { table, segment, temporary: bare.is_some() };
        (file.to_string() == name).then_some(file)
    }
}

impl std::fmt::Display for FileName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (dot, tmp) = if self.temporary { (".", ".tmp") } else { ("", "") };
        write!(f, "{dot}{}-{:06}.parquet{tmp}", self.table.name(), self.segment)
    }
}

/// What a segment covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Coverage {
    pub(crate) snapshots: Range<u64>,
    /// Whether the recorder ended properly with this segment.
    pub(crate) finished: bool,
}

impl Coverage {
    pub(crate) fn count(&self) -> u64 {
        self.snapshots.end - self.snapshots.start
    }

    /// Whether a segment of a lower number that covers `other` is replaced by this one.
    pub(crate) fn replaces(&self, other: &Coverage) -> bool {
        self.snapshots.start <= other.snapshots.start && other.snapshots.end <= self.snapshots.end
    }

    /// Whether the two have a snapshot in common.
    pub(crate) fn overlaps(&self, other: &Coverage) -> bool {
        self.snapshots.start.max(other.snapshots.start) < self.snapshots.end.min(other.snapshots.end)
    }

    /// The metadata of the file that holds `table`.
    pub(crate) fn to_metadata(&self, table: Table, run: &str) -> Vec<KeyValue> {
        [
            ("isotherm.format", FORMAT.to_owned()),
            ("isotherm.version", VERSION.to_string()),
            ("isotherm.run", run.to_owned()),
            ("isotherm.table", table.name().to_owned()),
            ("isotherm.first_snapshot", self.snapshots.start.to_string()),
            ("isotherm.snapshots", self.count().to_string()),
            ("isotherm.finished", self.finished.to_string()),
        ]
        .into_iter()
        .map(|(key, value)| KeyValue::new(key.to_owned(), value))
        .collect()
    }
}

/// The contents of a file's footer.
#[derive(Debug)]
pub(crate) struct Footer {
    pub(crate) coverage: Coverage,
    pub(crate) run: String,
    pub(crate) rows: u64,
    /// The version of the format that it was written in.
    pub(crate) version: u32,
}

impl Footer {
    /// Reads and checks the footer of the file at `path`, which should hold `table`.
    pub(crate) fn read(path: &Path, table: Table) -> Result<Footer> {
        let (_, metadata) = open_parquet(path)?;
        let damaged = |what: String| Error::Damaged { path: path.to_owned(), what };
        let file = metadata.metadata().file_metadata();
        let pairs = file.key_value_metadata().map(Vec::as_slice).unwrap_or_default();
        let keys: HashMap<&str, &str> =
            pairs.iter().filter_map(|kv| Some((kv.key.as_str(), kv.value.as_deref()?))).collect();
        let version = check_format(path, &keys)?;
        if keys.get("isotherm.table") != Some(&table.name()) {
            return Err(damaged(format!("it does not hold the table {}", table.name())));
        }
        let coverage = coverage(&keys).ok_or_else(|| damaged("it does not state which snapshots it covers".into()))?;
        let run = keys.get("isotherm.run").ok_or_else(|| damaged("isotherm.run is missing".into()))?;
        let rows = u64::try_from(file.num_rows()).map_err(|_| damaged("negative number of rows".into()))?;
        Ok(Footer { coverage, run: (*run).to_owned(), rows, version })
    }
}

/// The version of the format, if it can be read.
fn check_format(path: &Path, keys: &HashMap<&str, &str>) -> Result<u32> {
    if keys.get("isotherm.format") != Some(&FORMAT) {
        let what = format!("isotherm.format is not {FORMAT} in its metadata");
        return Err(Error::NotARecording { path: path.to_owned(), what });
    }
    let version = keys.get("isotherm.version").copied().unwrap_or_default();
    match version.split('.').next().unwrap_or_default().parse::<u32>() {
        Ok(major) if (1..=VERSION).contains(&major) => Ok(major),
        Ok(0) | Err(_) => {
            Err(Error::Damaged { path: path.to_owned(), what: format!("format version {version:?} does not exist") })
        }
        Ok(_) => Err(Error::NewerVersion { path: path.to_owned(), found: version.to_owned(), supported: VERSION }),
    }
}

fn coverage(keys: &HashMap<&str, &str>) -> Option<Coverage> {
    let number = |key| keys.get(key)?.parse::<u64>().ok();
    let first = number("isotherm.first_snapshot")?;
    let end = first.checked_add(number("isotherm.snapshots")?)?;
    let finished = keys.get("isotherm.finished")?.parse().ok()?;
    Some(Coverage { snapshots: first..end, finished })
}

/// Opens a Parquet file and reads its footer. One that was joined since its name was read has its temporary name for a while.
pub(crate) fn open_parquet(path: &Path) -> Result<(File, ArrowReaderMetadata)> {
    let opened = open_named(path);
    let is_gone = opened.as_ref().is_err_and(Error::is_gone);
    match retired_name(path).filter(|_| is_gone) {
        Some(retired) => open_named(&retired).or(opened),
        None => opened,
    }
}

fn retired_name(path: &Path) -> Option<PathBuf> {
    let file = FileName::parse(path.file_name()?.to_str()?)?;
    Some(path.with_file_name(file.temporary().to_string()))
}

fn open_named(path: &Path) -> Result<(File, ArrowReaderMetadata)> {
    let open = |error| Error::Open { path: path.to_owned(), error };
    // Checked before opening: opening a pipe would wait for a writer.
    if !fs::metadata(path).map_err(open)?.is_file() {
        return Err(Error::Damaged { path: path.to_owned(), what: "it is not a regular file".into() });
    }
    let file = File::open(path).map_err(open)?;
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let metadata = guard(path, || {
        footer::check(&file)?;
        ArrowReaderMetadata::load(&file, options).map_err(|e| e.to_string())
    })?;
    Ok((file, metadata))
}

/// Runs `read` on an untrusted file. Decoders of Parquet have panicked on such files before. To the caller that is one
/// more kind of damage.
pub(crate) fn guard<T>(path: &Path, read: impl FnOnce() -> std::result::Result<T, String>) -> Result<T> {
    let outcome = catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| Err("the decoder gave up".into()));
    outcome.map_err(|what| Error::Damaged { path: path.to_owned(), what })
}

/// The description of a run as JSON. `Err` describes what cannot be stored.
pub(crate) fn run_to_json(run: &RunInfo) -> std::result::Result<String, String> {
    let json = serde_json::to_string(run).map_err(|e| e.to_string())?;
    // JSON has no infinity. It would be stored as null, and only the reader would notice.
    let back = run_from_json(&json)?;
    if back == *run { Ok(json) } else { Err("a number in it is not finite".into()) }
}

/// The description of a run. Fields that an older recorder did not have get their defaults.
pub(crate) fn run_from_json(json: &str) -> std::result::Result<RunInfo, String> {
    let mut all = serde_json::to_value(RunInfo::default()).map_err(|e| e.to_string())?;
    let stored: serde_json::Value = serde_json::from_str(json).map_err(|e| e.to_string())?;
    match (all.as_object_mut(), stored) {
        (Some(all), serde_json::Value::Object(stored)) => all.extend(stored),
        _ => return Err("not a JSON object".into()),
    }
    serde_json::from_value(all).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_we_would_write_are_ours() {
        for file in Table::ALL.map(|t| FileName::of(t, 1_234_567)) {
            assert_eq!(FileName::parse(&file.to_string()), Some(file));
            assert_eq!(FileName::parse(&file.temporary().to_string()), Some(file.temporary()));
        }
        assert_eq!(FileName::of(Table::Regions, 1).to_string(), "regions-000001.parquet");
        assert_eq!(FileName::of(Table::Regions, 1).temporary().to_string(), ".regions-000001.parquet.tmp");
        for foreign in [
            "",
            "regions",
            "regions-1.parquet",
            "regions-0000001.parquet",
            "regions-+00001.parquet",
            "regions-000001.parquet.tmp",
            ".regions-000001.parquet",
            "region-000001.parquet",
            "regions-99999999999999999999.parquet",
            "sales-000001.parquet",
        ] {
            assert_eq!(FileName::parse(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn a_segment_replaces_what_it_covers() {
        let of = |snapshots| Coverage { snapshots, finished: false };
        assert!(of(0..40).replaces(&of(20..40)));
        assert!(of(0..40).replaces(&of(0..0)));
        assert!(!of(0..40).replaces(&of(20..41)));
        assert!(of(0..40).overlaps(&of(39..50)));
        assert!(!of(0..40).overlaps(&of(40..50)));
    }

    #[test]
    fn a_run_that_json_cannot_hold_is_refused_before_it_is_recorded() {
        let run = RunInfo { max_slowdown_pct: f64::INFINITY, ..RunInfo::default() };
        assert!(run_to_json(&run).is_err());
        let run = RunInfo { max_slowdown_pct: 0.1 + 0.2, ..RunInfo::default() };
        assert_eq!(run_from_json(&run_to_json(&run).unwrap()), Ok(run));
    }

    #[test]
    fn fields_that_an_older_recorder_did_not_know_have_their_defaults() {
        let run = run_from_json(r#"{"source": "page-table", "from_the_future": 1}"#).unwrap();
        assert_eq!(run, RunInfo { source: "page-table".into(), ..RunInfo::default() });
        assert!(run_from_json("[]").is_err());
    }
}
