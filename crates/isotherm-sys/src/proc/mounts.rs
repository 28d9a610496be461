//! Which mount points of a process hold files in memory: `/proc/PID/mountinfo`.
//!
//! Pages of such files leave for swap. Names in `maps` are looked up among the process's own mounts, which fits in mount namespaces, but not
//! after a chroot.

use super::cgroup::unescape;
use super::error::Unexpected;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// File systems whose files are in memory alone.
const IN_MEMORY: [&[u8]; 5] = [b"tmpfs", b"ramfs", b"rootfs", b"devtmpfs", b"hugetlbfs"];

/// The mount points of a process, and whether the files of each are in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mounts(HashMap<PathBuf, bool>);

impl Mounts {
    /// Parses the file. Errors count lines from 1.
    pub(super) fn parse(text: &[u8]) -> Result<Mounts, (usize, Unexpected)> {
        let mut mounts = HashMap::new();
        for (index, line) in text.split(|&b| b == b'\n').enumerate().filter(|(_, line)| !line.is_empty()) {
            let words: Vec<&[u8]> = line.split(|&b| b == b' ').collect();
            let dash = words.iter().position(|word| *word == b"-").filter(|&dash| dash >= 6);
            let kind = dash
                .and_then(|dash| words.get(dash + 1))
                .ok_or_else(|| (index + 1, Unexpected::new("mount", "six items, a dash and a type", line)))?;
            // Of mounts at one point the last hides the others.
            mounts.insert(unescape(words[4]), IN_MEMORY.contains(kind));
        }
        Ok(Mounts(mounts))
    }

    /// For a process whose mounts cannot be read: `/run` is in memory.
    pub fn usual() -> Mounts {
        Mounts(HashMap::from([(PathBuf::from("/run"), true)]))
    }

    /// The same of a text, for tests and for files from elsewhere.
    pub fn of_text(text: &[u8]) -> super::Result<Mounts> {
        Mounts::parse(text).map_err(|(line, e)| e.at(Path::new("mountinfo"), line))
    }

    /// Whether files of this absolute path are in memory: by the nearest mount point above it. O(depth of the path).
    pub fn is_in_memory(&self, path: &str) -> bool {
        Path::new(path).ancestors().find_map(|above| self.0.get(above)).copied().unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_mount_point_decides_and_of_two_at_one_point_the_last() {
        let text = b"21 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
            22 21 0:20 / /tmp rw,nosuid shared:5 - tmpfs tmpfs rw\n\
            23 22 8:2 / /tmp/disk rw - xfs /dev/sdb rw\n\
            24 21 0:21 / /run rw - tmpfs tmpfs rw\n\
            25 24 8:3 / /run/media\\040x rw - ext4 /dev/sdc rw\n\
            26 21 8:4 / /srv rw - ext4 /dev/sdd rw\n\
            27 21 0:22 / /srv rw - tmpfs tmpfs rw\n";
        let mounts = Mounts::parse(text).unwrap();
        let in_memory = ["/tmp/db", "/run/log (deleted)", "/srv/a"].map(|path| mounts.is_in_memory(path));
        let on_disk = ["/var/db", "/tmp/disk/db", "/tmpx/db", "/run/media x/db"].map(|path| mounts.is_in_memory(path));
        assert_eq!((in_memory, on_disk), ([true; 3], [false; 4]));
        assert!(!Mounts::default().is_in_memory("/tmp/db"));
        assert_eq!(Mounts::parse(b"21 1 8:1 / / rw - ext4 x rw\nshort\n").map_err(|(line, _)| line), Err(2));
    }
}
