//! Reads recordings: our own, which are directories, and damo's files.
//!
//! Used by reports, replay, `convert`, and by what acts on recorded heat. Of our own recordings, what is damaged is left out, and those who need
//! one snapshot have one at a time in memory: a day of a large host has more than fits. Damo's files are read whole. Irregularities are reported
//! on standard error.

use crate::args::usage::Usage;
use crate::args::values;
use crate::output;
use crate::privileges::as_user;
use anyhow::{Context, Result};
use isotherm_heat::{RunInfo, Snapshot};
use isotherm_record::{Recording, damo};
use isotherm_units::{Bytes, PAGE_SIZE};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Processes with more memory than this are not played back, because a replay keeps state for each of their huge ranges.
const MAX_PLAYED: Bytes = Bytes(16 << 40);

/// The environment variable that limits the memory for the contents of a file.
const MAX_MEMORY: &str = "ISOTHERM_MAX_MEMORY";

/// Where `record` writes and `report` reads by default.
pub const DEFAULT_RECORDING: &str = "heat.isotherm";

/// Snapshots, and the run that made them.
#[derive(Debug)]
pub struct Recorded {
    pub run: RunInfo,
    pub snapshots: Vec<Snapshot>,
}

impl Recorded {
    /// Reads a recording of either kind.
    pub fn read(path: &Path) -> Result<Recorded> {
        let mut snapshots = Vec::new();
        let run = each(path, true, |snapshot| snapshots.push(snapshot))?;
        Ok(Recorded { run, snapshots })
    }

    /// The same with the last snapshot that is wanted, or the last one if none is. `seen` is given all of them, in order.
    pub fn read_last(
        path: &Path,
        is_wanted: impl Fn(&Snapshot) -> bool,
        mut seen: impl FnMut(&Snapshot),
    ) -> Result<Recorded> {
        let mut snapshots = Vec::new();
        let run = each(path, false, |snapshot| {
            seen(&snapshot);
            keep_last(&mut snapshots, snapshot, &is_wanted);
        })?;
        Ok(Recorded { run, snapshots })
    }

    /// Removes all processes except `pid`. Fails if it was not recorded.
    pub fn only(&mut self, pid: u32, path: &Path) -> Result<()> {
        for snapshot in &mut self.snapshots {
            snapshot.targets.retain(|t| t.id.pid == pid);
        }
        if self.snapshots.iter().all(|s| s.targets.is_empty()) {
            anyhow::bail!("{}: process {pid} was not recorded", path.display());
        }
        Ok(())
    }
}

/// Keeps the last snapshot that is wanted, or the last one if none is: a day of a large host is more than it has memory for.
pub fn keep_last(kept: &mut Vec<Snapshot>, snapshot: Snapshot, is_wanted: impl Fn(&Snapshot) -> bool) {
    if is_wanted(&snapshot) || !kept.iter().any(is_wanted) {
        kept.clear();
        kept.push(snapshot);
    }
}

/// Whether `path` is read as a file of damo. Our own recordings are directories.
pub fn is_damo(path: &Path) -> bool {
    path.metadata().is_ok_and(|m| !m.is_dir())
}

/// The user's limit on the memory for the contents of a file. `None` if the limit depends on the size of the file.
pub fn max_memory() -> Result<Option<Bytes>> {
    let Some(text) = std::env::var_os(MAX_MEMORY).filter(|text| !text.is_empty()) else { return Ok(None) };
    let wrong = |why| Usage(format!("{MAX_MEMORY}={}: {why}", text.display()));
    let parsed = text.to_str().ok_or_else(|| "not UTF-8".to_owned()).and_then(values::size);
    parsed.map(Some).map_err(|why| wrong(why).into())
}

/// Opens a file that the user has named.
pub fn named_file(path: &Path) -> Result<File> {
    as_user(|| File::open(path).with_context(|| format!("read {}", path.display())))
}

/// Reads a text of at most `most` bytes from `file`. Errors name it as `path`.
pub fn short_text(file: File, path: &Path, most: Bytes) -> Result<String> {
    let mut text = String::new();
    let read = file.take(most.0 + 1).read_to_string(&mut text);
    read.with_context(|| format!("read {}", path.display()))?;
    if text.len() as u64 > most.0 {
        anyhow::bail!("read {}: it is longer than the limit of {most}; give a shorter file", path.display());
    }
    Ok(text)
}

/// Our own recording at `path`, with the user's limit on memory. Prints what is to be known of its state.
pub fn open(path: &Path) -> Result<Recording> {
    let recording = Recording::open(path)?.with_max_memory(max_memory()?);
    recording.notes().iter().for_each(output::note);
    Ok(recording)
}

/// Prints what could not be read of a recording.
pub fn note_skipped(error: &isotherm_record::Error) {
    output::note(format_args!("left out: {error}"));
}

/// Gives each snapshot of a recording of either kind to `take`, which keeps all of them, or one.
fn each(path: &Path, keeps_all: bool, take: impl FnMut(Snapshot)) -> Result<RunInfo> {
    as_user(|| each_of(path, keeps_all, take))
}

fn each_of(path: &Path, keeps_all: bool, mut take: impl FnMut(Snapshot)) -> Result<RunInfo> {
    if is_damo(path) {
        let damo::DamoRecording { run, snapshots, notes } = damo::read_within(path, max_memory()?)?;
        notes.iter().for_each(output::note);
        snapshots.into_iter().for_each(take);
        return Ok(run);
    }
    let recording = open(path)?;
    let snapshots = if keeps_all { recording.snapshots_to_keep() } else { recording.snapshots() };
    for snapshot in snapshots.undamaged(note_skipped) {
        take(snapshot?);
    }
    Ok(recording.run().clone())
}

/// Fails if a process is so large that its replay would use up the memory of this machine. In our own recordings no process is that
/// large: they have regions only where there are pages.
pub fn check_playable(path: &Path, snapshots: &[Snapshot]) -> Result<()> {
    let size = |regions: &[isotherm_heat::Region]| {
        regions.iter().map(|region| region.range.len().0 / PAGE_SIZE).fold(0, u64::saturating_add)
    };
    let largest = snapshots.iter().flat_map(|s| &s.targets).map(|t| size(&t.regions)).max().unwrap_or(0);
    let largest = Bytes(largest.saturating_mul(PAGE_SIZE));
    if largest > MAX_PLAYED {
        anyhow::bail!(
            "{}: has {largest} of one process, and up to {MAX_PLAYED} can be played back; report it without --replay",
            path.display()
        );
    }
    Ok(())
}
