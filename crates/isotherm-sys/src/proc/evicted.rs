//! Pages that the kernel has taken because memory was short, and anonymous pages that came back from swap soon after.
//!
//! A memory cgroup counts what was taken from it, for its own limit, for one above it, and for the machine. The machine counts what was
//! taken for its own shortage only. Neither counts what left by `process_madvise(MADV_PAGEOUT)`, but refaults of that are counted.

use super::memcg::keyed;
use super::{Cgroup, Proc, Result};

/// Counts since the cgroup was made, or since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evicted {
    /// Pages that reclaim has taken, of whatever kind.
    pub stolen_pages: u64,
    /// Anonymous pages and pages of shared memory that were needed again soon after they had left.
    pub refaulted_anon_pages: u64,
}

impl Cgroup {
    /// Of this cgroup, with all descendants; `None` where it does not count them (v1, no memory controller, Linux before 5.9).
    pub fn evicted(&self) -> Result<Option<Evicted>> {
        let Some((path, text)) = self.unified_stat()? else { return Ok(None) };
        let value = |key| keyed(&path, &text, key);
        let counts = value("pgsteal")?.zip(value("workingset_refault_anon")?);
        Ok(counts.map(|(stolen_pages, refaulted_anon_pages)| Evicted { stolen_pages, refaulted_anon_pages }))
    }
}

impl Proc {
    /// Of the whole machine; `None` where it does not count them.
    pub fn evicted(&self) -> Result<Option<Evicted>> {
        let (path, text) = self.vmstat()?;
        let value = |key| keyed(&path, &text, key);
        let stolen = value("pgsteal_kswapd")?.zip(value("pgsteal_direct")?).map(|(behind, direct)| behind + direct);
        let counts = stolen.zip(value("workingset_refault_anon")?);
        Ok(counts.map(|(stolen_pages, refaulted_anon_pages)| Evicted { stolen_pages, refaulted_anon_pages }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::CgroupKind;
    use super::*;
    use std::fs;
    use tempfile::TempDir;

    fn of_cgroup(kind: CgroupKind, stat: &str) -> Result<Option<Evicted>> {
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join("memory.stat"), stat).unwrap();
        Cgroup { kind, dir: dir.path().to_owned(), path: "/a".to_owned() }.evicted()
    }

    fn of_machine(vmstat: &str) -> Result<Option<Evicted>> {
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join("vmstat"), vmstat).unwrap();
        Proc::at(dir.path()).evicted()
    }

    const COUNTS: Option<Evicted> = Some(Evicted { stolen_pages: 7, refaulted_anon_pages: 5 });

    #[test]
    fn a_cgroup_counts_its_own() {
        let stat = "anon 4096\npgscan 9\npgsteal 7\nworkingset_refault_anon 5\nworkingset_refault_file 3\n";
        assert_eq!(of_cgroup(CgroupKind::Unified, stat).unwrap(), COUNTS);
        assert_eq!(of_cgroup(CgroupKind::MemoryV1, stat).unwrap(), None);
        assert_eq!(
            of_cgroup(CgroupKind::Unified, "anon 4096\npgsteal 7\nworkingset_refault 5\n").unwrap(),
            None,
            "5.8"
        );
        of_cgroup(CgroupKind::Unified, "pgsteal many\nworkingset_refault_anon 5\n").unwrap_err();
    }

    #[test]
    fn the_machine_counts_what_was_taken_in_the_background_and_directly() {
        let vmstat = "pgsteal_kswapd 4\npgsteal_direct 3\npgsteal_khugepaged 100\nworkingset_refault_anon 5\n";
        assert_eq!(of_machine(vmstat).unwrap(), COUNTS);
        assert_eq!(of_machine("pgsteal_kswapd 4\nworkingset_refault_anon 5\n").unwrap(), None);
        of_machine("pgsteal_kswapd 4\npgsteal_direct\npgsteal_direct x\n").unwrap_err();
    }
}
