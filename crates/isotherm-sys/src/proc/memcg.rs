//! Usage, limits and limit events of a memory cgroup. The v1 controller and v2 return the same types.
//!
//! Used by the guards of collapses, which charge memory to the target's cgroup, and by reports. Every value is a file
//! of the cgroup's directory (see [`super::cgroup`] for how that is found). A charge counts against the cgroup and all
//! its ancestors, so [`Cgroup::with_ancestors`] lists them up to the root of the mount. A container sees nothing above
//! its own root, so limits there cannot be read.
//!
//! A missing file is no error: the v2 root has no `memory.current`, v1 has no `memory.high`, and a v2 cgroup without
//! the controller has none of these files. `None` means "unknown" or "no limit"; [`Cgroup::memory_use`] distinguishes
//! them.

use super::error::Unexpected;
use super::{Cgroup, CgroupKind, Error, Result};
use crate::pressure::Pressure;
use isotherm_units::Bytes;
use std::fs;
use std::path::{Path, PathBuf};

/// v1 writes "no limit" as the largest number of pages that fits, in bytes: 0x7fff_ffff_ffff_f000 with pages of 4 KiB,
/// less with larger ones.
const NO_LIMIT: u64 = 0x7fff_ffff_ffff_0000;

/// What is charged to a cgroup, and its limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Charged now: anonymous memory, page cache and kernel memory, with all descendants.
    pub current: Bytes,
    /// The limit. At the limit the kernel reclaims, then calls the OOM killer. `None`: no limit.
    pub limit: Option<Bytes>,
    /// Above this the kernel reclaims and throttles the cgroup (v2 only). `None`: no such threshold.
    pub high: Option<Bytes>,
    /// Memory plus swap, and their common limit, where there is one (v1 with swap accounting only).
    pub with_swap: Option<(Bytes, Bytes)>,
}

impl MemoryUse {
    /// What can still be charged before the lowest limit is reached; `None` without a limit.
    pub fn room(&self) -> Option<Bytes> {
        let own = [self.limit, self.high].into_iter().flatten().map(|limit| (self.current, limit));
        own.chain(self.with_swap).map(|(held, limit)| Bytes(limit.0.saturating_sub(held.0))).min()
    }

    /// The lowest limit, `high` included; `None` without a limit.
    pub fn lowest(&self) -> Option<Bytes> {
        [self.limit, self.high, self.with_swap.map(|(_, limit)| limit)].into_iter().flatten().min()
    }
}

/// The memory of a cgroup by kind, with all descendants. `None` where the kernel does not report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStat {
    /// Anonymous memory.
    pub anon: Option<Bytes>,
    /// Page cache, shared memory included, mapped or not.
    pub file: Option<Bytes>,
    /// Slab (v2), or all kernel memory (v1, which does not report slab separately).
    pub slab: Option<Bytes>,
    /// Swapped out.
    pub swap: Option<Bytes>,
}

/// How often a cgroup has hit its limits. `None` where the kernel does not count it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryEvents {
    /// Reclaimed although its usage was below its protection.
    pub low: Option<u64>,
    /// Above `memory.high`: reclaimed and throttled.
    pub high: Option<u64>,
    /// About to exceed its limit (v1: charges that failed at first, `memory.failcnt` plus that of memory and swap).
    pub max: Option<u64>,
    /// Reclaim could not bring its usage below the limit.
    pub oom: Option<u64>,
    /// Processes killed because of that.
    pub oom_kill: Option<u64>,
    /// Times that all processes were killed together.
    pub oom_group_kill: Option<u64>,
}

impl Cgroup {
    /// This cgroup and its ancestors, up to the root of the mount: all that a charge counts against.
    ///
    /// The list ends early at a v1 cgroup that does not account for its descendants (`memory.use_hierarchy` 0, before
    /// 5.11).
    pub fn with_ancestors(&self) -> Vec<Cgroup> {
        let mut found = vec![self.clone()];
        let mut here = self.clone();
        while let Some(above) = here.parent().filter(Cgroup::counts_below) {
            found.push(above.clone());
            here = above;
        }
        found
    }

    fn parent(&self) -> Option<Cgroup> {
        let dir = self.dir.parent()?.to_owned();
        // Above the root of the mount there is no cgroup.
        dir.join("cgroup.procs").is_file().then_some(())?;
        let path = Path::new(&self.path).parent()?.to_string_lossy().into_owned();
        Some(Cgroup { kind: self.kind, dir, path })
    }

    /// Whether it is the root of the whole hierarchy, and not only of the part that a container sees.
    pub fn is_root(&self) -> bool {
        match self.kind {
            CgroupKind::Unified => !self.dir.join("cgroup.type").exists(),
            CgroupKind::MemoryV1 | CgroupKind::PerfEventV1 => self.dir.join("release_agent").exists(),
        }
    }

    fn counts_below(&self) -> bool {
        let hierarchical = fs::read_to_string(self.dir.join("memory.use_hierarchy"));
        self.kind != CgroupKind::MemoryV1 || hierarchical.map_or(true, |text| text.trim() != "0")
    }

    /// What is charged, and the limits; `None` where the cgroup is not accounted (the v2 root, or no memory
    /// controller).
    pub fn memory_use(&self) -> Result<Option<MemoryUse>> {
        let v1 = self.kind == CgroupKind::MemoryV1;
        let (current, limit) =
            if v1 { ("memory.usage_in_bytes", "memory.limit_in_bytes") } else { ("memory.current", "memory.max") };
        let Some(current) = self.bytes(current)? else { return Ok(None) };
        let with_swap = if v1 {
            let limit = self.bytes("memory.memsw.limit_in_bytes")?;
            // Without a common limit, the common usage need not be read.
            limit.map(|limit| Ok(self.bytes("memory.memsw.usage_in_bytes")?.map(|held| (held, limit)))).transpose()?
        } else {
            None
        };
        let high = if v1 { None } else { self.bytes("memory.high")? };
        Ok(Some(MemoryUse { current, limit: self.bytes(limit)?, high, with_swap: with_swap.flatten() }))
    }

    /// Swap that may still be charged to it; `None` without a limit of its own. v1 limits memory and swap together: [`Self::memory_use`].
    pub fn swap_room(&self) -> Result<Option<Bytes>> {
        if self.kind != CgroupKind::Unified {
            return Ok(None);
        }
        let Some(limit) = self.bytes("memory.swap.max")? else { return Ok(None) };
        let held = self.bytes("memory.swap.current")?.unwrap_or_default();
        Ok(Some(Bytes(limit.0.saturating_sub(held.0))))
    }

    /// Its memory, by kind.
    pub fn memory_stat(&self) -> Result<MemoryStat> {
        let Some((path, text)) = self.text("memory.stat")? else { return Ok(MemoryStat::default()) };
        let value = |key| keyed(&path, &text, key).map(|value| value.map(Bytes));
        Ok(if self.kind == CgroupKind::MemoryV1 {
            MemoryStat {
                anon: value("total_rss")?,
                file: value("total_cache")?,
                slab: self.bytes("memory.kmem.usage_in_bytes")?,
                swap: value("total_swap")?,
            }
        } else {
            let swap = self.bytes("memory.swap.current")?;
            MemoryStat { anon: value("anon")?, file: value("file")?, slab: value("slab")?, swap }
        })
    }

    /// Its `memory.stat`, and the path of that; `None` if it is a v1 cgroup, whose file has other lines, or has none.
    pub(super) fn unified_stat(&self) -> Result<Option<(PathBuf, String)>> {
        if self.kind == CgroupKind::Unified { self.text("memory.stat") } else { Ok(None) }
    }

    /// How often it has hit its limits.
    pub fn memory_events(&self) -> Result<MemoryEvents> {
        if self.kind == CgroupKind::MemoryV1 {
            let oom_kill = match self.text("memory.oom_control")? {
                Some((path, text)) => keyed(&path, &text, "oom_kill")?,
                None => None,
            };
            let failed = [self.bytes("memory.failcnt")?, self.bytes("memory.memsw.failcnt")?];
            let max = failed.into_iter().flatten().map(|times| times.0).reduce(u64::saturating_add);
            return Ok(MemoryEvents { max, oom_kill, ..MemoryEvents::default() });
        }
        let Some((path, text)) = self.text("memory.events")? else { return Ok(MemoryEvents::default()) };
        let value = |key| keyed(&path, &text, key);
        Ok(MemoryEvents {
            low: value("low")?,
            high: value("high")?,
            max: value("max")?,
            oom: value("oom")?,
            oom_kill: value("oom_kill")?,
            oom_group_kill: value("oom_group_kill")?,
        })
    }

    /// Its own pressure; `None` where the kernel does not report it (v1, no PSI, or switched off for this cgroup).
    pub fn memory_pressure(&self) -> Result<Option<Pressure>> {
        let path = self.dir.join("memory.pressure");
        Pressure::read(&path).map_err(|e| Error::from_io(&path, e))
    }

    /// Reads a file of the cgroup; `None` if the cgroup exists but the file does not.
    pub(super) fn text(&self, file: &str) -> Result<Option<(PathBuf, String)>> {
        let path = self.dir.join(file);
        match fs::read(&path) {
            Ok(bytes) => {
                let text = String::from_utf8_lossy(&bytes).into_owned();
                Ok(Some((path, text)))
            }
            // Not supported: v1 swap accounting that was switched off at boot.
            Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(None),
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) && self.dir.is_dir() => Ok(None),
            Err(e) => Err(Error::from_io(&path, e)),
        }
    }

    /// Reads a file that holds one size or count; `None` for "no limit", and if there is no such file.
    fn bytes(&self, file: &'static str) -> Result<Option<Bytes>> {
        let Some((path, text)) = self.text(file)? else { return Ok(None) };
        let word = text.trim();
        if word == "max" {
            return Ok(None);
        }
        let number: u64 =
            word.parse().map_err(|_| Unexpected::new(file, "a number or max", word.as_bytes()).at(&path, 1))?;
        Ok((number < NO_LIMIT).then_some(Bytes(number)))
    }
}

/// The number after `key` in lines `key number`; `None` without such a line.
pub(super) fn keyed(path: &Path, text: &str, key: &'static str) -> Result<Option<u64>> {
    let lines = text.lines().enumerate();
    let found = lines.filter_map(|(index, line)| Some((index, line.strip_prefix(key)?.strip_prefix(' ')?))).next();
    let Some((index, value)) = found else { return Ok(None) };
    let wrong = |_| Unexpected::new(key, "a number", value.as_bytes()).at(path, index + 1);
    value.trim().parse().map(Some).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::Proc;
    use std::io::Write;
    use tempfile::TempDir;

    /// A hierarchy in a temporary directory: `files` are paths below its root, with what they hold.
    struct Tree {
        dir: TempDir,
        kind: CgroupKind,
    }

    impl Tree {
        fn new(kind: CgroupKind, files: &[(&str, &str)]) -> Tree {
            let dir = TempDir::new().unwrap();
            for (name, text) in files {
                let path = dir.path().join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Tree { dir, kind }
        }

        fn cgroup(&self, path: &str) -> Cgroup {
            let dir = self.dir.path().join(path.trim_start_matches('/'));
            Cgroup { kind: self.kind, dir, path: path.to_owned() }
        }
    }

    const V2: &[(&str, &str)] = &[
        ("cgroup.procs", "1\n"),
        ("pod/cgroup.type", "domain\n"),
        ("memory.stat", "anon 9\nfile 8\nslab 7\n"),
        ("pod/cgroup.procs", ""),
        ("pod/memory.current", "10485760\n"),
        ("pod/memory.max", "20971520\n"),
        ("pod/memory.high", "15728640\n"),
        ("pod/memory.events", "low 1\nhigh 2\nmax 3\noom 4\noom_kill 5\n"),
        ("pod/app/cgroup.procs", "7\n"),
        ("pod/app/memory.current", "4096\n"),
        ("pod/app/memory.max", "max\n"),
        ("pod/app/memory.high", "max\n"),
        ("pod/app/memory.stat", "anon 1024\nfile 2048\nfile_mapped 5\nslab_reclaimable 1\nslab 3\n"),
        ("pod/app/memory.swap.current", "4096\n"),
        ("pod/app/memory.swap.max", "12288\n"),
        ("pod/memory.swap.max", "max\n"),
        (
            "pod/app/memory.pressure",
            "some avg10=3.50 avg60=0.00 avg300=0.00 total=5\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
        ),
    ];

    const V1: &[(&str, &str)] = &[
        ("cgroup.procs", "1\n"),
        ("release_agent", "\n"),
        ("memory.use_hierarchy", "1\n"),
        ("memory.usage_in_bytes", "104857600\n"),
        ("memory.limit_in_bytes", "9223372036854771712\n"),
        ("pod/cgroup.procs", ""),
        ("pod/memory.use_hierarchy", "1\n"),
        ("pod/memory.usage_in_bytes", "10485760\n"),
        ("pod/memory.limit_in_bytes", "20971520\n"),
        ("pod/memory.memsw.usage_in_bytes", "19922944\n"),
        ("pod/memory.memsw.limit_in_bytes", "20971520\n"),
        ("pod/memory.failcnt", "12\n"),
        ("pod/memory.memsw.failcnt", "3\n"),
        ("pod/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
        ("pod/memory.kmem.usage_in_bytes", "77\n"),
        ("pod/memory.stat", "cache 1\nrss 2\ntotal_cache 100\ntotal_rss 200\ntotal_rss_huge 5\ntotal_swap 300\n"),
        ("pod/app/cgroup.procs", "7\n"),
        ("pod/app/memory.usage_in_bytes", "4096\n"),
        ("pod/app/memory.limit_in_bytes", "9223372036854771712\n"),
    ];

    #[test]
    fn swap_that_is_left_is_read_where_it_is_limited() {
        let tree = Tree::new(CgroupKind::Unified, V2);
        let room = |path: &str| tree.cgroup(path).swap_room().unwrap();
        assert_eq!((room("/pod/app"), room("/pod"), room("/")), (Some(Bytes(8192)), None, None));
        assert_eq!(Tree::new(CgroupKind::MemoryV1, V1).cgroup("/pod").swap_room().unwrap(), None);
    }

    #[test]
    fn limits_of_v2_are_read_and_max_is_none() {
        let tree = Tree::new(CgroupKind::Unified, V2);
        let pod = tree.cgroup("/pod").memory_use().unwrap().unwrap();
        assert_eq!((pod.limit, pod.high), (Some(Bytes(20 << 20)), Some(Bytes(15 << 20))));
        assert_eq!((pod.room(), pod.lowest()), (Some(Bytes(5 << 20)), Some(Bytes(15 << 20))), "the lower of the two");
        let app = tree.cgroup("/pod/app").memory_use().unwrap().unwrap();
        assert_eq!((app.limit, app.high, app.room(), app.lowest()), (None, None, None, None));
        assert_eq!(tree.cgroup("/").memory_use().unwrap(), None, "the root is not accounted");
    }

    #[test]
    fn limits_of_v1_are_read_and_the_one_with_swap_counts() {
        let tree = Tree::new(CgroupKind::MemoryV1, V1);
        let pod = tree.cgroup("/pod").memory_use().unwrap().unwrap();
        assert_eq!((pod.current, pod.limit, pod.high), (Bytes(10 << 20), Some(Bytes(20 << 20)), None));
        assert_eq!(pod.room(), Some(Bytes(1 << 20)), "10 MiB below its limit, 1 MiB with what is swapped out");
        let root = tree.cgroup("/").memory_use().unwrap().unwrap();
        assert_eq!((root.limit, root.room()), (None, None), "the largest number of pages is no limit");
    }

    #[test]
    fn a_cgroup_over_its_limit_has_no_room() {
        let over = MemoryUse { current: Bytes(9), limit: Some(Bytes(5)), ..MemoryUse::default() };
        assert_eq!(over.room(), Some(Bytes(0)));
    }

    #[test]
    fn ancestors_end_at_the_root_of_what_is_mounted() {
        for (kind, files) in [(CgroupKind::Unified, V2), (CgroupKind::MemoryV1, V1)] {
            let tree = Tree::new(kind, files);
            let paths: Vec<String> =
                tree.cgroup("/pod/app").with_ancestors().into_iter().map(|above| above.path).collect();
            assert_eq!(paths, ["/pod/app", "/pod", "/"]);
            assert!(tree.cgroup("/").is_root() && !tree.cgroup("/pod").is_root(), "{kind}");
        }
        // A container that sees its own part only: its root has a path, and nothing above it is mounted.
        let tree = Tree::new(CgroupKind::Unified, V2);
        let seen = Cgroup { path: "/docker/abc/pod".into(), ..tree.cgroup("/pod") };
        let paths: Vec<String> = seen.with_ancestors().into_iter().map(|above| above.path).collect();
        assert_eq!(paths, ["/docker/abc/pod", "/docker/abc"]);
    }

    #[test]
    fn a_v1_cgroup_that_does_not_count_what_is_below_is_no_ancestor() {
        let flat: Vec<_> = V1
            .iter()
            .map(|(name, text)| (*name, if *name == "pod/memory.use_hierarchy" { "0\n" } else { *text }))
            .collect();
        let tree = Tree::new(CgroupKind::MemoryV1, &flat);
        assert_eq!(tree.cgroup("/pod/app").with_ancestors(), [tree.cgroup("/pod/app")]);
    }

    #[test]
    fn what_a_cgroup_holds_is_read_by_kind() {
        let some = |n| Some(Bytes(n));
        let v2 = Tree::new(CgroupKind::Unified, V2);
        let app = MemoryStat { anon: some(1024), file: some(2048), slab: some(3), swap: some(4096) };
        assert_eq!(v2.cgroup("/pod/app").memory_stat().unwrap(), app);
        let root = MemoryStat { anon: some(9), file: some(8), slab: some(7), swap: None };
        assert_eq!(v2.cgroup("/").memory_stat().unwrap(), root, "the root has sums, too");
        assert_eq!(v2.cgroup("/pod").memory_stat().unwrap(), MemoryStat::default(), "not reported");
        let v1 = Tree::new(CgroupKind::MemoryV1, V1);
        let pod = MemoryStat { anon: some(200), file: some(100), slab: some(77), swap: some(300) };
        assert_eq!(v1.cgroup("/pod").memory_stat().unwrap(), pod, "of those below it, too");
    }

    #[test]
    fn events_and_pressure_are_read_where_they_are_counted() {
        let v2 = Tree::new(CgroupKind::Unified, V2);
        let events = v2.cgroup("/pod").memory_events().unwrap();
        assert_eq!((events.low, events.high, events.max), (Some(1), Some(2), Some(3)));
        assert_eq!((events.oom, events.oom_kill, events.oom_group_kill), (Some(4), Some(5), None));
        assert_eq!(v2.cgroup("/pod/app").memory_pressure().unwrap().map(|p| p.some_avg10), Some(3.5));
        assert_eq!(v2.cgroup("/pod").memory_pressure().unwrap(), None);
        let v1 = Tree::new(CgroupKind::MemoryV1, V1);
        let events = v1.cgroup("/pod").memory_events().unwrap();
        assert_eq!((events.max, events.oom_kill, events.high), (Some(15), Some(2), None));
        assert_eq!(v1.cgroup("/pod/app").memory_events().unwrap(), MemoryEvents::default());
    }

    #[test]
    fn a_removed_cgroup_is_gone_and_nonsense_names_the_file() {
        let tree = Tree::new(CgroupKind::Unified, &[("bad/cgroup.procs", ""), ("bad/memory.current", "many\n")]);
        let gone = tree.cgroup("/gone");
        assert!(gone.memory_use().unwrap_err().is_gone() && gone.memory_stat().unwrap_err().is_gone());
        let error = tree.cgroup("/bad").memory_use().unwrap_err().to_string();
        assert!(error.contains("bad/memory.current") && error.contains("many"), "{error}");
    }

    #[test]
    fn this_process_own_cgroup_is_read_or_has_none() {
        let proc = Proc::default();
        let own = proc.cgroups().unwrap().of(&proc.membership(std::process::id()).unwrap());
        let Some(held) = own.as_ref().and_then(|cgroup| cgroup.memory_use().unwrap()) else {
            let _ = writeln!(std::io::stderr(), "skipped: needs a memory cgroup other than the root of v2");
            return;
        };
        assert!(held.current.0 > 0, "{held:?}");
        let stat = own.unwrap().memory_stat().unwrap();
        assert!(stat.anon.is_some_and(|anon| anon.0 <= 1 << 50) && stat.file.is_some(), "{stat:?}");
    }
}
