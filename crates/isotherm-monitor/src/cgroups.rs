//! What the cgroups of targets hold in addition to mapped memory: page cache and slab, which are charged to them and
//! which no page table shows. And how much they may hold.
//!
//! `memory.stat` is expensive to read on a large host: the kernel sums the counters of all CPUs and of all descendants.
//! So each cgroup is read rarely, and a bounded number at a time, the least recently read first. A snapshot has the
//! last values.

use isotherm_heat::{CgroupMemory, Ns};
use isotherm_sys::proc::{Cgroup, Cgroups, Membership, MemoryStat, Proc};
use isotherm_units::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// How long a value is used before it is read again.
const BELIEVED_FOR: Ns = 5_000_000_000;
/// Cgroups read per snapshot.
const READ_AT_ONCE: usize = 64;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct CgroupReader {
    /// The hierarchies, once they were read.
    mounted: Option<Cgroups>,
    known: BTreeMap<String, Known>,
}

#[derive(Debug)]
struct Known {
    cgroup: Cgroup,
    read_at: Option<Ns>,
    memory: Option<CgroupMemory>,
    limit: Option<Bytes>,
}

impl CgroupReader {
    /// Registers the cgroup of a target.
    pub fn note(&mut self, proc: &Proc, membership: &Membership) {
        let Some(path) = membership.memory_path().filter(|path| !self.known.contains_key(*path)) else { return };
        if let Some(cgroup) = proc.known_cgroups(&mut self.mounted).and_then(|mounted| mounted.of(membership)) {
            self.known.insert(path.to_owned(), Known { cgroup, read_at: None, memory: None, limit: None });
        }
    }

    /// Reads the cgroups in `used` that are due, and forgets the others.
    pub fn refresh(&mut self, now: Ns, used: &BTreeSet<&str>) {
        self.known.retain(|path, _| used.contains(path.as_str()));
        let mut due: Vec<&mut Known> = self.known.values_mut().filter(|known| known.is_due(now)).collect();
        due.sort_by_key(|known| known.read_at);
        for known in due.into_iter().take(READ_AT_ONCE) {
            known.memory = known.cgroup.memory_stat().ok().and_then(of_stat);
            known.limit = limit_of(&known.cgroup);
            known.read_at = Some(now);
        }
    }

    /// The memory of a cgroup when it was last read.
    pub fn memory(&self, path: &str) -> Option<CgroupMemory> {
        self.known.get(path)?.memory
    }

    /// The lowest limit of a cgroup and of those above it, when it was last read.
    pub fn limit(&self, path: &str) -> Option<Bytes> {
        self.known.get(path)?.limit
    }
}

impl Known {
    fn is_due(&self, now: Ns) -> bool {
        self.read_at.is_none_or(|at| now.saturating_sub(at) >= BELIEVED_FOR)
    }
}

fn limit_of(cgroup: &Cgroup) -> Option<Bytes> {
    cgroup.with_ancestors().iter().filter_map(|above| above.memory_use().ok()??.lowest()).min()
}

/// `None` where the kernel does not account for the memory of the cgroup.
fn of_stat(stat: MemoryStat) -> Option<CgroupMemory> {
    Some(CgroupMemory {
        anon: stat.anon?,
        file: stat.file?,
        slab: stat.slab.unwrap_or_default(),
        swap: stat.swap.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    /// A made-up machine with one cgroup, `/db`, that holds so many bytes of anonymous memory.
    fn machine(root: &Path, anon: u64) -> (Proc, Membership) {
        let mount = root.join("cgroup");
        fs::create_dir_all(mount.join("db")).unwrap();
        fs::create_dir_all(root.join("proc/self")).unwrap();
        fs::create_dir_all(root.join("proc/7")).unwrap();
        let line = format!("30 1 0:26 / {} rw - cgroup2 cgroup2 rw\n", mount.display());
        fs::write(root.join("proc/self/mountinfo"), line).unwrap();
        fs::write(root.join("proc/7/cgroup"), "0::/db\n").unwrap();
        fs::write(mount.join("db/cgroup.procs"), "7\n").unwrap();
        fs::write(mount.join("db/memory.stat"), format!("anon {anon}\nfile 20\nslab 30\n")).unwrap();
        fs::write(mount.join("db/memory.swap.current"), "40\n").unwrap();
        fs::write(mount.join("db/memory.current"), "60\n").unwrap();
        fs::write(mount.join("db/memory.max"), "8192\n").unwrap();
        let proc = Proc::at(root.join("proc"));
        let membership = proc.membership(7).unwrap();
        (proc, membership)
    }

    #[test]
    fn a_cgroup_is_read_seldom_and_forgotten_with_its_last_target() {
        let dir = tempfile::tempdir().unwrap();
        let mut reader = CgroupReader::default();
        let (proc, membership) = machine(dir.path(), 10);
        reader.note(&proc, &membership);
        assert_eq!((reader.memory("/db"), reader.limit("/db")), (None, None), "not read yet");
        reader.refresh(0, &["/db"].into());
        let [anon, file, slab, swap] = [10, 20, 30, 40].map(Bytes);
        assert_eq!(reader.memory("/db"), Some(CgroupMemory { anon, file, slab, swap }));
        assert_eq!((reader.limit("/db"), reader.limit("/no")), (Some(Bytes(8192)), None));
        machine(dir.path(), 11);
        reader.refresh(BELIEVED_FOR - 1, &["/db"].into());
        assert_eq!(reader.memory("/db").map(|m| m.anon), Some(Bytes(10)), "as read before");
        reader.refresh(BELIEVED_FOR, &["/db"].into());
        assert_eq!(reader.memory("/db").map(|m| m.anon), Some(Bytes(11)));
        fs::remove_file(dir.path().join("cgroup/db/memory.stat")).unwrap();
        reader.refresh(2 * BELIEVED_FOR, &["/db"].into());
        assert_eq!(reader.memory("/db"), None, "unknown is not nothing");
        reader.refresh(2 * BELIEVED_FOR, &BTreeSet::new());
        assert!(reader.known.is_empty());
    }
}
