//! Cgroups: which one a process is in, and which processes are in one.
//!
//! A machine has the v2 hierarchy, the v1 controllers, or both at once. Users name a cgroup by its directory or by its
//! path inside a hierarchy. So nothing is assumed about `/sys/fs/cgroup`: the mount table shows what is where, and a
//! name is looked up in each hierarchy in turn. The v1 memory controller comes first. Where it is mounted, it accounts
//! for memory, and the v2 hierarchy does not.

use super::error::Unexpected;
use super::{Error, Result};
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// The cgroups of one process, as paths inside their hierarchies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// In the v2 hierarchy.
    pub unified: Option<String>,
    /// In the v1 memory controller's.
    pub memory_v1: Option<String>,
}

impl Membership {
    /// The path that accounts for the memory of the process: v1 where its memory controller is in use, else v2.
    pub fn memory_path(&self) -> Option<&str> {
        self.memory_v1.as_deref().or(self.unified.as_deref())
    }

    /// Parses `/proc/PID/cgroup`: lines `id:controllers:path`, where the path may hold colons.
    pub(super) fn parse(text: &[u8]) -> std::result::Result<Membership, (usize, Unexpected)> {
        let mut membership = Membership::default();
        for (index, line) in text.split(|&b| b == b'\n').enumerate().filter(|(_, line)| !line.is_empty()) {
            let mut parts = line.splitn(3, |&b| b == b':');
            let (Some(id), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
                return Err((index + 1, Unexpected::new("cgroup", "id:controllers:path", line)));
            };
            let path = || Some(String::from_utf8_lossy(path).into_owned());
            if id == b"0" && controllers.is_empty() {
                membership.unified = path();
            } else if has_option(controllers, b"memory") {
                membership.memory_v1 = path();
            }
        }
        Ok(membership)
    }
}

fn has_option(list: &[u8], option: &[u8]) -> bool {
    list.split(|&b| b == b',').any(|word| word == option)
}

/// Which kind of hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CgroupKind {
    /// v1, with the memory controller.
    MemoryV1,
    /// v2.
    Unified,
    /// v1, with the perf_event controller. Users name no cgroups in it. The kernel looks there when an event is bound
    /// to a cgroup.
    PerfEventV1,
}

impl fmt::Display for CgroupKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            CgroupKind::MemoryV1 => "memory (v1)",
            CgroupKind::Unified => "unified (v2)",
            CgroupKind::PerfEventV1 => "perf_event (v1)",
        })
    }
}

/// A mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    /// Its kind.
    pub kind: CgroupKind,
    /// Where it is mounted.
    pub mount: PathBuf,
    /// The path inside the hierarchy that is mounted here: `/`, except in containers without a cgroup namespace.
    pub root: PathBuf,
}

impl Hierarchy {
    /// The directory of a path inside the hierarchy. A path outside of the mount is tried unchanged.
    fn dir_of(&self, path: &Path) -> PathBuf {
        let below = path.strip_prefix(&self.root).or_else(|_| path.strip_prefix("/")).unwrap_or(path);
        self.mount.join(below)
    }

    /// The cgroup at a directory, if there is one.
    fn at(&self, dir: &Path) -> Option<Cgroup> {
        let below = dir.strip_prefix(&self.mount).ok()?;
        if !dir.join("cgroup.procs").is_file() {
            return None;
        }
        let path = self.root.join(below).to_string_lossy().into_owned();
        Some(Cgroup { kind: self.kind, dir: dir.to_owned(), path })
    }
}

impl fmt::Display for Hierarchy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.kind, self.mount.display())
    }
}

/// One cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    /// The kind of its hierarchy.
    pub kind: CgroupKind,
    /// Its directory.
    pub dir: PathBuf,
    /// Its path inside the hierarchy, as in `/proc/PID/cgroup`.
    pub path: String,
}

impl Cgroup {
    /// The processes in it and in all cgroups below it, sorted. Those of another pid namespace, which have no number here, are left out. Error
    /// [`Error::Gone`] if it has been removed.
    pub fn processes(&self) -> Result<Vec<u32>> {
        Ok(self.numbers()?.into_iter().filter(|pid| *pid != 0).collect())
    }

    /// The same, or `None` if processes of another pid namespace are among them.
    pub fn processes_if_all_seen(&self) -> Result<Option<Vec<u32>>> {
        Ok(Some(self.numbers()?).filter(|pids| !pids.contains(&0)))
    }

    /// The numbers of its processes, sorted. 0 stands for all in another pid namespace.
    fn numbers(&self) -> Result<Vec<u32>> {
        let mut pids = Vec::new();
        let mut todo = vec![self.dir.clone()];
        while let Some(dir) = todo.pop() {
            match own_processes(&dir, &mut pids).and_then(|()| subgroups(&dir, &mut todo)) {
                // A descendant that is removed meanwhile has no processes: no error.
                Err(e) if e.is_gone() && dir != self.dir => {}
                result => result?,
            }
        }
        // A process that moves during the read appears twice.
        pids.sort_unstable();
        pids.dedup();
        Ok(pids)
    }
}

fn own_processes(dir: &Path, pids: &mut Vec<u32>) -> Result<()> {
    let path = dir.join("cgroup.procs");
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        // A threaded cgroup: its processes are listed by the cgroup above.
        Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => return Ok(()),
        Err(e) => return Err(Error::from_io(&path, e)),
    };
    for (index, line) in text.lines().enumerate() {
        let pid: u32 =
            line.parse().map_err(|_| Unexpected::new("pid", "a number", line.as_bytes()).at(&path, index + 1))?;
        pids.push(pid);
    }
    Ok(())
}

fn subgroups(dir: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    let io = |e: io::Error| Error::from_io(dir, e);
    for entry in fs::read_dir(dir).map_err(io)? {
        let entry = entry.map_err(io)?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.push(entry.path());
        }
    }
    Ok(())
}

/// The mounted hierarchies: the v1 memory controller's first, then v2.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cgroups {
    hierarchies: Vec<Hierarchy>,
    perf_events: Option<Hierarchy>,
}

impl Cgroups {
    /// The hierarchies found.
    pub fn hierarchies(&self) -> &[Hierarchy] {
        &self.hierarchies
    }

    pub(super) fn map(self, of: impl Fn(Hierarchy) -> Hierarchy) -> Cgroups {
        Cgroups { hierarchies: self.hierarchies.into_iter().map(of).collect(), perf_events: self.perf_events }
    }

    /// The cgroup that a user means: a directory such as `/sys/fs/cgroup/memory/foo`, or a path inside a hierarchy such as
    /// `/foo` or `foo`. If a path exists in two hierarchies, the one where it has processes is returned.
    pub fn find(&self, asked: &str) -> Result<Cgroup> {
        let found = match self.by_directory(Path::new(asked)) {
            Some(cgroup) => Some(cgroup),
            None => self.by_path(Path::new(asked)),
        };
        found.ok_or_else(|| Error::NoCgroup {
            asked: asked.to_owned(),
            searched: self.hierarchies.iter().map(Hierarchy::to_string).collect(),
        })
    }

    /// The cgroup that accounts for the memory of a process with this membership.
    pub fn of(&self, membership: &Membership) -> Option<Cgroup> {
        let path = |kind| match kind {
            CgroupKind::MemoryV1 => membership.memory_v1.as_deref(),
            CgroupKind::Unified => membership.unified.as_deref(),
            CgroupKind::PerfEventV1 => None,
        };
        self.hierarchies.iter().find_map(|h| h.at(&h.dir_of(Path::new(path(h.kind)?))))
    }

    /// The directory by which the kernel identifies `cgroup` for perf events. In v2 it is the cgroup's own. Where the
    /// perf_event controller has its own hierarchy, it is the directory with the same path and the same processes.
    /// `None` if there is none.
    pub fn of_perf_events(&self, cgroup: &Cgroup) -> Option<PathBuf> {
        let Some(hierarchy) = &self.perf_events else {
            return (cgroup.kind == CgroupKind::Unified).then(|| cgroup.dir.clone());
        };
        let same = hierarchy.at(&hierarchy.dir_of(Path::new(&cgroup.path)))?;
        let alike = cgroup.processes().ok()? == same.processes().ok()?;
        alike.then_some(same.dir)
    }

    fn by_directory(&self, asked: &Path) -> Option<Cgroup> {
        if !asked.is_absolute() {
            return None;
        }
        // Resolves links such as /sys/fs/cgroup/cpu, and `..`.
        let dir = fs::canonicalize(asked).ok()?;
        let resolved =
            |h: &Hierarchy| Hierarchy { mount: fs::canonicalize(&h.mount).unwrap_or(h.mount.clone()), ..h.clone() };
        self.hierarchies.iter().find_map(|h| resolved(h).at(&dir))
    }

    fn by_path(&self, asked: &Path) -> Option<Cgroup> {
        // `..` would lead out of the hierarchy, and an empty path would mean everything.
        let plain = asked.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        if !plain || asked.as_os_str().is_empty() {
            return None;
        }
        let path = Path::new("/").join(asked);
        let mut found: Vec<Cgroup> = self.hierarchies.iter().filter_map(|h| h.at(&h.dir_of(&path))).collect();
        let inhabited = found.iter().position(|cgroup| cgroup.processes().is_ok_and(|pids| !pids.is_empty()));
        (!found.is_empty()).then(|| found.swap_remove(inhabited.unwrap_or(0)))
    }

    /// Parses `/proc/self/mountinfo`. Errors count lines from 1.
    pub(super) fn parse(text: &[u8]) -> std::result::Result<Cgroups, (usize, Unexpected)> {
        let mut hierarchies = Vec::new();
        for (index, line) in text.split(|&b| b == b'\n').enumerate().filter(|(_, line)| !line.is_empty()) {
            hierarchies.extend(parse_mount(line).map_err(|e| (index + 1, e))?);
        }
        // Stable: of two mounts of one hierarchy the earlier stays first.
        hierarchies.sort_by_key(|h: &Hierarchy| h.kind);
        let perf_events = hierarchies.iter().find(|h| h.kind == CgroupKind::PerfEventV1).cloned();
        hierarchies.retain(|h| h.kind != CgroupKind::PerfEventV1);
        Ok(Cgroups { hierarchies, perf_events })
    }
}

/// One line of mountinfo: `id parent major:minor root mount options [optional]... - type source super-options`.
fn parse_mount(line: &[u8]) -> std::result::Result<Option<Hierarchy>, Unexpected> {
    let words: Vec<&[u8]> = line.split(|&b| b == b' ').collect();
    let dash = words.iter().position(|word| *word == b"-").filter(|&dash| dash >= 6);
    let Some((dash, kind)) = dash.and_then(|dash| Some((dash, *words.get(dash + 1)?))) else {
        return Err(Unexpected::new("mount", "six items, a dash and a type", line));
    };
    let options = words.get(dash + 3).copied().unwrap_or_default();
    let kind = match kind {
        b"cgroup2" => CgroupKind::Unified,
        b"cgroup" if has_option(options, b"memory") => CgroupKind::MemoryV1,
        b"cgroup" if has_option(options, b"perf_event") => CgroupKind::PerfEventV1,
        _ => return Ok(None),
    };
    Ok(Some(Hierarchy { kind, mount: unescape(words[4]), root: unescape(words[3]) }))
}

/// Undoes the octal escapes of mountinfo: `\040` is a space.
pub(super) fn unescape(text: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, tail)) = rest.split_first() {
        match octal(rest) {
            Some(byte) => {
                bytes.push(byte);
                rest = &rest[4..];
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// The byte of a leading `\ooo`.
fn octal(text: &[u8]) -> Option<u8> {
    let [b'\\', digits @ ..] = text else { return None };
    let digits = digits.get(..3)?;
    let value = digits
        .iter()
        .try_fold(0u16, |value, &b| (b'0'..=b'7').contains(&b).then(|| value * 8 + u16::from(b - b'0')))?;
    u8::try_from(value).ok()
}
