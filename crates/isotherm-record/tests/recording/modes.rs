//! Who can read what is written: the owner, and nobody else.

use crate::{place, record, samples, two_each};
use isotherm_record::damo::{self, ExportOptions};
use isotherm_record::{Options, Writer};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Checks that there are files in a directory, and that only their owner may read them.
#[track_caller]
fn assert_private_files(dir: &Path) {
    let files: Vec<_> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    assert!(!files.is_empty());
    for file in files {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
}

#[test]
fn a_recording_is_readable_by_its_owner_only_from_its_first_segment_to_the_joined_one() {
    let (_parent, path) = place();
    let writer = record(&path, 5);
    assert_eq!(mode(&path), 0o700);
    assert_private_files(&path);
    writer.finish().unwrap();
    assert_private_files(&path);
}

#[test]
fn a_recording_that_is_overwritten_becomes_private() {
    let (_parent, path) = place();
    record(&path, 3).finish().unwrap();
    set_mode(&path, 0o755);
    fs::read_dir(&path).unwrap().for_each(|e| set_mode(&e.unwrap().path(), 0o644));
    let again = Options { overwrite: true, ..two_each() };
    Writer::create(&path, &samples::run(), again).unwrap().finish().unwrap();
    assert_eq!(mode(&path), 0o700);
    assert_private_files(&path);
}

#[test]
fn a_directory_that_is_not_only_a_recording_keeps_its_mode() {
    let (_parent, path) = place();
    fs::create_dir(&path).unwrap();
    set_mode(&path, 0o755);
    record(&path, 3).finish().unwrap();
    assert_eq!(mode(&path), 0o755, "it was there and empty");
    assert_private_files(&path);
    fs::write(path.join("notes.txt"), "mine").unwrap();
    let again = Options { overwrite: true, ..two_each() };
    Writer::create(&path, &samples::run(), again).unwrap().finish().unwrap();
    assert_eq!(mode(&path), 0o755, "it holds other files");
}

#[test]
fn a_file_for_damo_is_readable_by_its_owner_only_whatever_lay_in_its_way() {
    let (parent, _) = place();
    let path = parent.path().join("damon.data");
    // Left by an export that was killed, and a file that the export replaces.
    for stale in [parent.path().join(".damon.data.part"), path.clone()] {
        fs::write(&stale, "old").unwrap();
        set_mode(&stale, 0o666);
    }
    let options = ExportOptions { overwrite: true, ..ExportOptions::default() };
    damo::write(&path, &samples::run(), &samples::snapshots(3), &options).unwrap();
    assert_eq!(mode(&path), 0o600);
}
