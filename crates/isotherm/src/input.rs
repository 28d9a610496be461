//! What was recorded: a recording of ours, which is a directory, or a file of damo.
//!
//! Used by reports, replay and `convert`. Both are read whole, and what is not as it should be is told on standard error.

use crate::output;
use anyhow::Result;
use isotherm_heat::{RunInfo, Snapshot};
use isotherm_record::{Recording, damo};
use isotherm_units::{Bytes, PAGE_SIZE};
use std::path::Path;

/// The most memory of a process that is played back: a replay keeps something for each of its blocks.
const MOST_PLAYED: Bytes = Bytes(16 << 40);

/// Snapshots, and how they were made.
#[derive(Debug)]
pub struct Recorded {
    pub run: RunInfo,
    pub snapshots: Vec<Snapshot>,
}

impl Recorded {
    /// Reads either kind.
    pub fn read(path: &Path) -> Result<Recorded> {
        let (recorded, notes) = if is_damo(path) { of_damo(path)? } else { of_isotherm(path)? };
        for note in notes {
            output::note(note);
        }
        Ok(recorded)
    }

    /// Leaves only one process.
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

/// Whether this is to be read as a file of damo: our recordings are directories.
pub fn is_damo(path: &Path) -> bool {
    path.metadata().is_ok_and(|m| !m.is_dir())
}

fn of_isotherm(path: &Path) -> Result<(Recorded, Vec<String>)> {
    let recording = Recording::open(path)?;
    let recorded = Recorded { run: recording.run().clone(), snapshots: recording.read_all()? };
    Ok((recorded, recording.notes().to_vec()))
}

fn of_damo(path: &Path) -> Result<(Recorded, Vec<String>)> {
    let damo::DamoRecording { run, snapshots, notes } = damo::read(path)?;
    Ok((Recorded { run, snapshots }, notes))
}

/// Fails if a process is so large that playing it back would take the memory of this machine. Ours are never: they have
/// regions only where there are pages.
pub fn check_playable(path: &Path, snapshots: &[Snapshot]) -> Result<()> {
    let size = |regions: &[isotherm_heat::Region]| regions.iter().map(|r| r.range.len().0 / PAGE_SIZE).sum::<u64>();
    let largest = snapshots.iter().flat_map(|s| &s.targets).map(|t| size(&t.regions)).max().unwrap_or(0);
    let largest = Bytes(largest.saturating_mul(PAGE_SIZE));
    if largest > MOST_PLAYED {
        anyhow::bail!(
            "{}: has {largest} of one process, and up to {MOST_PLAYED} can be played back; report it without --replay",
            path.display()
        );
    }
    Ok(())
}
