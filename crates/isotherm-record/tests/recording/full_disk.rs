//! A disk that is really full: a file system in memory of a few hundred KiB. Needs root to mount it, and says so otherwise.

use crate::{place, samples};
use isotherm_record::{Error, Options, Recording, Writer};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

struct Mount(PathBuf);

impl Mount {
    fn new(path: &Path, size: &str) -> Option<Mount> {
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", size, "tmpfs"]).arg(path).stderr(Stdio::null());
        command.status().is_ok_and(|s| s.success()).then(|| Mount(path.to_owned()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_keeps_what_was_written_and_says_what_to_do() {
    let (_parent, path) = place();
    std::fs::create_dir(&path).unwrap();
    let Some(_mount) = Mount::new(&path, "size=400k") else {
        println!("skipped: needs root (mount)");
        return;
    };
    let options = Options { flush_interval: Duration::ZERO, ..Options::default() };
    let mut writer = Writer::create(&path, &samples::run(), options).unwrap();
    let error = (0..1000).find_map(|i| writer.push(&samples::snapshot(i)).err()).expect("the disk is small");
    let Error::Write { kept, lost: 1, .. } = error else { panic!("{error}") };
    assert!(kept > 2);
    let text = error.to_string();
    for part in ["No space left", &path.display().to_string(), &format!("{kept} snapshots kept"), "free space"] {
        assert!(text.contains(part), "{text}");
    }
    println!("{text}");
    assert_eq!(Recording::open(&path).unwrap().read_all().unwrap(), samples::snapshots(kept));
}

#[test]
fn no_room_to_join_segments_is_no_loss() {
    let (_parent, path) = place();
    std::fs::create_dir(&path).unwrap();
    let Some(_mount) = Mount::new(&path, "size=400k") else {
        println!("skipped: needs root (mount)");
        return;
    };
    let options = Options { flush_interval: Duration::ZERO, ..Options::default() };
    let mut writer = Writer::create(&path, &samples::run(), options).unwrap();
    samples::snapshots(5).iter().for_each(|s| writer.push(s).unwrap());
    // All the room there is, down to the last page.
    let ballast = path.join("ballast");
    let size = (1..).find(|pages| std::fs::write(&ballast, vec![1; pages * 4096]).is_err()).unwrap();
    let summary = writer.finish().unwrap();
    assert_eq!(summary.snapshots, 5, "with a ballast of {size} pages");
    assert!(summary.note.is_some_and(|n| n.contains("still has 6 segments") && n.contains("No space left")));
    assert_eq!(Recording::open(&path).unwrap().read_all().unwrap(), samples::snapshots(5));
}
