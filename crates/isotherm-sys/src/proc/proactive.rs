//! Reclaim from a memory cgroup on request, before memory is short (`memory.reclaim`, v2), and what the kernel counts of it.
//!
//! The kernel chooses which pages leave, by its own lists. With `swappiness=0` it takes pages of files only, and anonymous memory stays;
//! it understands that from Linux 6.11 on. How much has left is never believed: [`Cgroup::reclaim_counts`] is read before and after.

use super::memcg::keyed;
use super::{Cgroup, Error, Result};
use isotherm_units::Bytes;
use std::fs::OpenOptions;
use std::io::{self, Write};

/// What the kernel counts for a memory cgroup, with all descendants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReclaimCounts {
    /// Page cache of files on the lists from which it can leave, mapped or not. Not shared memory, which leaves for swap, and nothing locked.
    pub file: Bytes,
    /// Of page cache and shared memory that are charged to it, what a process maps, of whatever cgroup.
    pub mapped: Bytes,
    /// Shared memory that is charged to it, mapped or not.
    pub shmem: Bytes,
    /// All memory of programs that is charged to it: anonymous memory, page cache and shared memory.
    pub charged: Bytes,
    /// Pages that have left so far, for whatever reason.
    pub stolen_pages: u64,
    /// Pages of files that were read again so far, soon after they had left.
    pub refaulted_file_pages: u64,
}

impl Cgroup {
    /// What has left and come back so far; `None` where the cgroup does not report it (v1, the root, no memory controller).
    pub fn reclaim_counts(&self) -> Result<Option<ReclaimCounts>> {
        let Some((path, text)) = self.unified_stat()? else { return Ok(None) };
        let value = |key| keyed(&path, &text, key);
        let known = |key| value(key).map(Option::unwrap_or_default);
        let (Some(stolen_pages), Some(refaulted_file_pages)) = (value("pgsteal")?, value("workingset_refault_file")?)
        else {
            return Ok(None);
        };
        Ok(Some(ReclaimCounts {
            file: Bytes(known("active_file")? + known("inactive_file")?),
            mapped: Bytes(known("file_mapped")?),
            shmem: Bytes(known("shmem")?),
            charged: Bytes(known("anon")? + known("file")?),
            stolen_pages,
            refaulted_file_pages,
        }))
    }

    /// Asks the kernel, once, to take so many bytes of files from it and from those below it. Returns when that is done, which may take long, or
    /// when no more is to be had or a signal has come, which are no errors: it returns whether all of it was taken. With 0 bytes nothing is done but to find out whether it can be asked: not on older
    /// kernels (`EINVAL`), and not where its file is missing or read-only.
    pub fn reclaim_file(&self, bytes: Bytes) -> Result<bool> {
        let path = self.dir.join("memory.reclaim");
        let written = OpenOptions::new()
            .write(true)
            .open(&path)
            // Not `write_all`, which would ask for all of it once more.
            .and_then(|mut file| file.write(format!("{} swappiness=0", bytes.0).as_bytes()));
        match written {
            // Some has left, or none.
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(false),
            // Linux before 5.19.
            Err(source) if source.kind() == io::ErrorKind::NotFound && self.dir.is_dir() => {
                Err(Error::Write { path, source })
            }
            done => done.map(|_| true).map_err(|source| Error::from_write(&path, source)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::CgroupKind;
    use super::*;
    use std::fs;
    use tempfile::TempDir;

    const STAT: &str = "anon 4096\nfile 40960\nshmem 8192\nfile_mapped 20480\ninactive_file 16384\nactive_file 12288\nunevictable 4096\npgscan 9\n\
                        pgsteal 7\nworkingset_refault_anon 5\nworkingset_refault_file 3\n";

    fn cgroup(kind: CgroupKind, stat: &str) -> (TempDir, Cgroup) {
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join("memory.stat"), stat).unwrap();
        let cgroup = Cgroup { kind, dir: dir.path().to_owned(), path: "/a".to_owned() };
        (dir, cgroup)
    }

    #[test]
    fn what_has_left_and_come_back_is_counted_without_shared_memory() {
        let (_dir, v2) = cgroup(CgroupKind::Unified, STAT);
        let counts = ReclaimCounts {
            file: Bytes(28672),
            mapped: Bytes(20480),
            shmem: Bytes(8192),
            charged: Bytes(45056),
            stolen_pages: 7,
            refaulted_file_pages: 3,
        };
        assert_eq!(v2.reclaim_counts().unwrap(), Some(counts));
        let (_dir, v1) = cgroup(CgroupKind::MemoryV1, STAT);
        assert_eq!(v1.reclaim_counts().unwrap(), None);
        let (_dir, old) = cgroup(CgroupKind::Unified, "anon 4096\nfile 40960\n");
        assert_eq!(old.reclaim_counts().unwrap(), None);
        let (_dir, wrong) = cgroup(CgroupKind::Unified, "file 1\npgsteal many\nworkingset_refault_file 3\n");
        assert!(wrong.reclaim_counts().is_err());
    }

    #[test]
    fn files_are_asked_for_and_a_cgroup_that_cannot_be_asked_is_an_error() {
        let (dir, v2) = cgroup(CgroupKind::Unified, STAT);
        let error = v2.reclaim_file(Bytes(0)).unwrap_err();
        assert!(error.to_string().contains("memory.reclaim"), "{error}");
        fs::write(dir.path().join("memory.reclaim"), "").unwrap();
        assert!(v2.reclaim_file(Bytes(1 << 20)).unwrap());
        assert_eq!(fs::read_to_string(dir.path().join("memory.reclaim")).unwrap(), "1048576 swappiness=0");
    }
}
