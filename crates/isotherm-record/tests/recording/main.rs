//! What users and other programs may do to a recording, and what the library makes of it.

#[path = "../../src/samples.rs"]
mod samples;

mod fixture;
mod full_disk;
mod honest;
mod hostile;
mod kill;
mod life;
mod modes;
mod round_trip;

use isotherm_record::{Options, Writer};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A name for a recording in a directory that is removed with the first value.
fn place() -> (tempfile::TempDir, PathBuf) {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("recording");
    (parent, path)
}

/// Segments of two snapshots.
fn two_each() -> Options {
    Options { flush_interval: Duration::from_secs(2), ..Options::default() }
}

/// A recording of `n` sample snapshots, in segments of two after an empty one.
fn record(path: &Path, n: u64) -> Writer {
    let mut writer = Writer::create(path, &samples::run(), two_each()).unwrap();
    samples::snapshots(n).iter().for_each(|s| writer.push(s).unwrap());
    writer
}

/// Names of files, sorted.
fn names(dir: &Path) -> Vec<String> {
    let files = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = files.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
