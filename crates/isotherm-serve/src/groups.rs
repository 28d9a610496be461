//! Cgroups: sums over their processes, each page counted once, and the counters that outlive a process.

use crate::sums::{Ages, Sum};
use isotherm_heat::{CgroupMemory, TargetId};
use isotherm_stream::{ProcessRow, Snapshot};
use isotherm_sys::cgroup_names::CgroupNames;
use std::collections::{BTreeMap, HashMap};

/// A cgroup in the newest snapshot. Processes of cgroups below it do not count in it.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// Its path; empty if unknown.
    pub path: String,
    /// What its path says.
    pub names: CgroupNames,
    /// Its memory.
    pub sum: Sum,
    /// The same by idle time.
    pub ages: Ages,
    /// Processes that have not ended.
    pub processes: u64,
    /// What the kernel charges it for, with those below.
    pub memory: Option<CgroupMemory>,
    /// Its limit.
    pub limit: Option<u64>,
    /// Memory that has left by page-out and is not back.
    pub out_bytes: u64,
    /// Memory that came back, since the server started or the cgroup came. Never less than before.
    pub refaulted_bytes: u64,
}

/// What has to be remembered from snapshot to snapshot.
#[derive(Debug, Default)]
pub struct Groups {
    /// The highest value of the counter of each process; `None` before the first snapshot. A counter can fall for a while: what it
    /// rises by after that has been counted already.
    refaulted: Option<HashMap<TargetId, u64>>,
    /// The sum of their steps by cgroup: it does not fall when a process ends.
    sums: HashMap<String, u64>,
}

impl Groups {
    /// The cgroups of a snapshot, the largest first.
    pub fn of(&mut self, snapshot: &Snapshot) -> Vec<Group> {
        let mut groups: BTreeMap<&str, Group> = BTreeMap::new();
        for row in snapshot.processes.iter().filter(|row| !row.exited) {
            let group = groups.entry(&row.cgroup).or_insert_with(|| Group {
                path: row.cgroup.clone(),
                names: CgroupNames::of(&row.cgroup),
                ..Group::default()
            });
            add(group, row);
        }
        self.count(snapshot);
        let mut groups: Vec<Group> = groups.into_values().collect();
        for group in &mut groups {
            group.refaulted_bytes = self.sums.get(&group.path).copied().unwrap_or_default();
        }
        groups.sort_by_key(|group| std::cmp::Reverse(group.sum.resident()));
        groups
    }

    /// Counts what came back since the snapshot before. Counters of processes began before the server did, so those of the first
    /// snapshot count as nothing.
    fn count(&mut self, snapshot: &Snapshot) {
        let mut now = HashMap::with_capacity(snapshot.processes.len());
        let mut sums = HashMap::with_capacity(self.sums.len());
        for row in &snapshot.processes {
            let before = match &self.refaulted {
                Some(refaulted) => refaulted.get(&row.id()).copied().unwrap_or_default(),
                None => row.refaulted_bytes,
            };
            let sum = sums
                .entry(row.cgroup.clone())
                .or_insert_with(|| self.sums.get(&row.cgroup).copied().unwrap_or_default());
            *sum = u64::saturating_add(*sum, row.refaulted_bytes.saturating_sub(before));
            now.insert(row.id(), row.refaulted_bytes.max(before));
        }
        (self.refaulted, self.sums) = (Some(now), sums);
    }
}

fn add(group: &mut Group, row: &ProcessRow) {
    group.sum.add(&Sum::counted_once(row));
    group.ages.add(&Ages::counted_once(row));
    group.processes += 1;
    // The same for all processes of a cgroup.
    group.memory = group.memory.or(row.cgroup_memory);
    group.limit = group.limit.or(row.cgroup_limit_bytes);
    group.out_bytes = group.out_bytes.saturating_add(row.out_bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, cgroup: &str, pages: u64, refaulted_bytes: u64) -> ProcessRow {
        let heat = vec![(20, pages)].into();
        ProcessRow { pid, cgroup: cgroup.into(), heat, refaulted_bytes, out_bytes: 7, ..ProcessRow::default() }
    }

    fn snapshot(processes: Vec<ProcessRow>) -> Snapshot {
        Snapshot { processes, ..Snapshot::default() }
    }

    #[test]
    fn cgroups_are_sums_of_live_processes_the_largest_first() {
        let ended = ProcessRow { exited: true, ..process(4, "/c", 1000, 0) };
        let groups = Groups::default().of(&snapshot(vec![
            process(1, "/a", 5, 0),
            process(2, "/b", 9, 0),
            process(3, "/a", 6, 0),
            ended,
        ]));
        let seen: Vec<_> = groups.iter().map(|g| (g.path.as_str(), g.sum.resident() / 4096, g.processes)).collect();
        assert_eq!(seen, [("/a", 11, 2), ("/b", 9, 1)]);
        assert_eq!(groups[0].out_bytes, 14);
    }

    #[test]
    fn what_came_back_does_not_fall_when_a_process_ends() {
        let mut groups = Groups::default();
        let mut refaulted = |rows| groups.of(&snapshot(rows)).iter().map(|g| g.refaulted_bytes).collect::<Vec<_>>();
        assert_eq!(refaulted(vec![process(1, "/a", 1, 10), process(2, "/a", 1, 5)]), [0], "from before the server");
        assert_eq!(refaulted(vec![process(1, "/a", 1, 30)]), [20]);
        assert_eq!(refaulted(vec![process(1, "/a", 1, 2)]), [20], "a counter that falls");
        assert_eq!(refaulted(vec![process(1, "/a", 1, 31)]), [21], "and rises again, by one more than before");
        assert_eq!(
            refaulted(vec![process(1, "/a", 1, 31), process(3, "/a", 1, 4)]),
            [25],
            "a process that has come since"
        );
        assert_eq!(refaulted(vec![process(1, "/b", 1, 33)]), [2], "it has moved");
        assert_eq!(refaulted(vec![process(1, "/a", 1, 33)]), [0], "a cgroup that was away begins anew");
    }
}
