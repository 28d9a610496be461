//! Readers of `/proc` and of cgroup files: which processes there are, what they map and who they belong to.
//!
//! Used by the sources, the target selection and `isotherm-host`. Each reader has two parts: a parser, which takes
//! bytes and knows no file, and a method of [`Proc`], which knows the path. `Proc` takes the root as an argument, so
//! tests run on a made-up tree, without privilege and without a process to read.
//!
//! Parsers work on bytes, not on `str`: file names and command names are bytes to the kernel, and a monitor that fails on a
//! badly encoded name can be blinded with one. Such names are shown with replacement characters.
//!
//! A process may end between any two reads. [`Error::Gone`] reports that. If a process ends half way through a list,
//! the kernel returns a short list and no error, so a caller that needs certainty compares [`Proc::identity`] before
//! and after.

mod cgroup;
mod error;
mod evicted;
mod family;
mod held;
mod maps;
mod memcg;
mod meminfo;
mod mounts;
mod namespace;
mod proactive;
mod root;
mod smaps;
mod stat;
#[cfg(test)]
mod tests;
mod text;

pub use cgroup::{Cgroup, CgroupKind, Cgroups, Hierarchy, Membership};
pub use error::{Error, Result};
pub use evicted::Evicted;
pub use family::Family;
pub use held::{Held, maps_guest};
pub use isotherm_units::Perms;
pub use maps::{MapEntry, Maps};
pub use memcg::{MemoryEvents, MemoryStat, MemoryUse};
pub use meminfo::meminfo;
pub use mounts::Mounts;
pub use proactive::ReclaimCounts;
pub use root::Proc;
pub use smaps::{Smaps, SmapsEntry, Usage, VmFlags};
pub use stat::{Identity, Stat, Status};

use error::Unexpected;
use isotherm_units::Bytes;
use memcg::keyed;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use text::decimal;

impl Proc {
    /// All processes, in order of pid. Threads are not listed.
    pub fn pids(&self) -> Result<Vec<u32>> {
        numbered(self.root())
    }

    /// Page table entries that NUMA balancing has made inaccessible, to find accesses by hint faults. Counts all
    /// processes. `None` where the kernel has no NUMA balancing.
    pub fn numa_updates(&self) -> Option<u64> {
        let (path, text) = self.vmstat().ok()?;
        keyed(&path, &text, "numa_pte_updates").ok()?
    }

    /// Counts of the machine, and the path of their file: lines `key number`.
    fn vmstat(&self) -> Result<(PathBuf, String)> {
        let path = self.root().join("vmstat");
        let text = fs::read_to_string(&path).map_err(|e| Error::from_io(&path, e))?;
        Ok((path, text))
    }

    /// How often NUMA balancing has scanned all of a process's memory, whether it changed anything or not. `None` where
    /// the kernel does not report it (no `CONFIG_SCHED_DEBUG`).
    pub fn numa_scans(&self, pid: u32) -> Option<u64> {
        let text = std::fs::read_to_string(self.path(pid, "sched")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("mm->numa_scan_seq"))?;
        line.trim_start().strip_prefix(':')?.trim().parse().ok()
    }

    /// The fields of `/proc/PID/status` that are used here.
    pub fn status(&self, pid: u32) -> Result<Status> {
        self.status_at(&self.path(pid, "status"))
    }

    /// The same of one of its threads: once the main thread has ended, the others still have memory. The number of a thread that has ended may be
    /// that of another process, so it is looked up in its process.
    pub fn status_of_thread(&self, pid: u32, tid: u32) -> Result<Status> {
        self.status_at(&self.path(pid, &format!("task/{tid}/status")))
    }

    fn status_at(&self, path: &Path) -> Result<Status> {
        Status::parse(&self.read(path)?).map_err(|(line, e)| e.at(path, line))
    }

    /// Resident memory, by the second number of `/proc/PID/task/TID/statm`, through any thread that has not ended. The kernel
    /// keeps a part of its count for each CPU, which is missing.
    pub fn rss(&self, pid: u32, tid: u32) -> Result<Bytes> {
        let path = self.path(pid, &format!("task/{tid}/statm"));
        let text = self.read(&path)?;
        let pages = text.split(u8::is_ascii_whitespace).nth(1).and_then(decimal);
        pages.map(Bytes::of_pages).ok_or_else(|| Unexpected::new("resident", "two numbers", &text).at(&path, 1))
    }

    /// Whether this very process is still running: not a later one with its pid, and not a zombie.
    pub fn is_alive(&self, id: Identity) -> Result<bool> {
        match self.stat(id.pid) {
            Ok(stat) => Ok(stat.identity() == id && !stat.has_ended()),
            Err(e) if e.is_gone() => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// The mappings of a process; none for a kernel thread or a zombie. For repeated reads, use a [`Maps`].
    pub fn maps(&self, pid: u32) -> Result<Vec<MapEntry>> {
        let mut maps = Maps::default();
        maps.read(self, pid)?;
        Ok(maps.into_entries())
    }

    /// Where files in memory are mounted, as a process sees it.
    pub fn mounts(&self, pid: u32) -> Result<Mounts> {
        let path = self.path(pid, "mountinfo");
        let of_another = || {
            let of_thread = |tid: u32| self.read(&self.path(pid, &format!("task/{tid}/mountinfo"))).ok();
            self.threads(pid).ok()?.into_iter().find_map(of_thread)
        };
        // Once the main thread has ended, only the others have any.
        let text = self.read(&path).or_else(|error| of_another().ok_or(error))?;
        Mounts::parse(&text).map_err(|(line, e)| e.at(&path, line))
    }

    /// `/proc/PID/smaps`, one mapping at a time. Reading it walks page tables, and costs accordingly.
    pub fn smaps(&self, pid: u32) -> Result<Smaps<File>> {
        self.smaps_at(pid, self.path(pid, "smaps"))
    }

    /// The same through one of its threads.
    pub fn smaps_of_thread(&self, pid: u32, tid: u32) -> Result<Smaps<File>> {
        self.smaps_at(pid, self.path(pid, &format!("task/{tid}/smaps")))
    }

    fn smaps_at(&self, pid: u32, path: PathBuf) -> Result<Smaps<File>> {
        Ok(Smaps::new(self.open_memory(pid, &path)?, path))
    }

    /// The sums over all mappings, from `/proc/PID/smaps_rollup`; all 0 for a kernel thread or a zombie.
    pub fn smaps_rollup(&self, pid: u32) -> Result<Usage> {
        let path = self.path(pid, "smaps_rollup");
        let Some(mut file) = self.open_memory(pid, &path)? else { return Ok(Usage::default()) };
        let mut text = Vec::new();
        match file.read_to_end(&mut text) {
            Ok(_) => Usage::parse_rollup(&text).map_err(|(line, e)| e.at(&path, line)),
            Err(e) => self.memoryless(pid, &path, e).map(|()| Usage::default()),
        }
    }

    /// The program's file; `None` for kernel threads. The path of a deleted file ends in ` (deleted)`.
    pub fn exe(&self, pid: u32) -> Result<Option<PathBuf>> {
        let path = self.path(pid, "exe");
        match fs::read_link(&path) {
            Ok(target) => Ok(Some(target)),
            // No memory, no program. If the whole process has ended, `stat` fails.
            Err(e) => match self.error(&path, e) {
                e if e.is_gone() => self.stat(pid).map(|_| None),
                e => Err(e),
            },
        }
    }

    /// The last part of [`Proc::exe`], without ` (deleted)`. The command name in `stat` can be set at will; this cannot.
    pub fn exe_name(&self, pid: u32) -> Result<Option<String>> {
        let name = |path: PathBuf| {
            let name = path.file_name()?.to_string_lossy().into_owned();
            Some(name.strip_suffix(" (deleted)").map_or(name.clone(), str::to_owned))
        };
        Ok(self.exe(pid)?.and_then(name))
    }

    /// Which cgroups a process is in. In a cgroup namespace: as paths of the host, if its hierarchy is mounted.
    pub fn membership(&self, pid: u32) -> Result<Membership> {
        let path = self.path(pid, "cgroup");
        let membership = Membership::parse(&self.read(&path)?).map_err(|(line, e)| e.at(&path, line))?;
        Ok(self.namespace.resolve(self, membership))
    }

    /// The mounted cgroup hierarchies, from `/proc/self/mountinfo`.
    pub fn cgroups(&self) -> Result<Cgroups> {
        Ok(self.mounted_cgroups()?.map(|hierarchy| self.namespace.resolve_mount(self, hierarchy)))
    }

    /// The same, read once and kept in `known`. If they cannot be read, as where descriptors are short, the next call tries again.
    pub fn known_cgroups<'a>(&self, known: &'a mut Option<Cgroups>) -> Option<&'a Cgroups> {
        if known.is_none() {
            *known = self.cgroups().ok();
        }
        known.as_ref()
    }

    fn mounted_cgroups(&self) -> Result<Cgroups> {
        let path = self.root().join("self/mountinfo");
        Cgroups::parse(&self.read(&path)?).map_err(|(line, e)| e.at(&path, line))
    }

    /// The threads of a process, in order of their ids; the main thread, whose id is the pid, is listed until the last ends.
    pub fn threads(&self, pid: u32) -> Result<Vec<u32>> {
        numbered(&self.path(pid, "task"))
    }

    /// What a thread is doing: `R`, `S`, `D`, `Z`, ...
    pub fn thread_state(&self, pid: u32, tid: u32) -> Result<char> {
        let path = self.path(pid, &format!("task/{tid}/stat"));
        Ok(Stat::parse(&self.read(&path)?).map_err(|e| e.at(&path, 1))?.state)
    }

    /// Whether a thread has been on a CPU yet. `None` if the kernel does not report it (no `CONFIG_SCHED_INFO`), or if
    /// the thread has ended. If the kernel has the file but does not maintain it, the answer is false for every thread.
    ///
    /// The kernel lists a new thread before it has emitted all records of its start, and the thread runs only after
    /// that. So for a thread that has run, all of these records have been emitted.
    pub fn has_run(&self, pid: u32, tid: u32) -> Option<bool> {
        let text = std::fs::read_to_string(self.path(pid, &format!("task/{tid}/schedstat"))).ok()?;
        // Time on CPUs, time spent waiting for one, and the number of timeslices.
        let turns: u64 = text.split_ascii_whitespace().nth(2)?.parse().ok()?;
        Some(turns > 0)
    }
}

/// The entries of a directory whose names are numbers, sorted.
fn numbered(dir: &Path) -> Result<Vec<u32>> {
    let io = |e| Error::from_io(dir, e);
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(io)? {
        let name = entry.map_err(io)?.file_name();
        found.extend(name.to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    found.sort_unstable();
    Ok(found)
}

/// Pids with spaces between and after them. 0 stands for a process of another pid namespace, which has no number here.
fn parse_pids(text: &[u8], found: &mut Vec<u32>) -> std::result::Result<(), Unexpected> {
    for word in text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()) {
        let pid = text::decimal(word).and_then(|pid| u32::try_from(pid).ok());
        let pid = pid.ok_or_else(|| Unexpected::new("pid", "a number", word))?;
        found.extend((pid != 0).then_some(pid));
    }
    Ok(())
}
