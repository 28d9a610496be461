//! Who else uses the files of a cgroup.
//!
//! Processes of other cgroups may map the file as well. When a cgroup is reclaimed, the kernel heeds no accesses of others, and what these read again it
//! counts as a refault of theirs, or not at all: no brake would notice. So as many pages as they have in use are left out
//! ([`IdleFiles::spare`]).
//!
//! All processes of a host may map one library, and each of hundreds of cgroups may be asked. So the mappings of all are gone through once, those of files
//! that are idle somewhere are kept by name, and what is used of a file is counted once for each age that is asked.

use super::idle::{IdleFiles, idle_in, is_copied, present_in, span};
use crate::page_out::{Rules, idle_pages_within};
use isotherm_heat::{Mapping, Ns, Target};
use std::collections::{HashMap, HashSet};

/// A process that may use files.
#[derive(Clone, Copy, Debug)]
pub struct Process<'a> {
    /// Path of its cgroup.
    pub cgroup: &'a str,
    /// `None` if it is sampled: which of its pages are idle is not known then, so all of them count as used.
    pub pages: Option<&'a Target>,
    /// In address order.
    pub mappings: &'a [Mapping],
}

/// Mappings of processes, by the name of the file.
#[derive(Debug, Default)]
pub struct Users<'a> {
    by_file: HashMap<&'a str, Vec<(Process<'a>, &'a Mapping)>>,
    /// What was counted, by file and by how long a page is idle.
    counted: HashMap<(&'a str, Ns), Used<'a>>,
}

/// Pages of a file that are in use: all, and by cgroup.
#[derive(Debug, Default)]
struct Used<'a> {
    all: u64,
    of: HashMap<&'a str, u64>,
}

impl<'a> Users<'a> {
    /// Of those files of which some of `files` have idle pages.
    pub fn of<'f>(
        files: impl IntoIterator<Item = &'f IdleFiles>,
        processes: impl IntoIterator<Item = Process<'a>>,
    ) -> Users<'a> {
        let wanted: HashSet<&str> = files.into_iter().flat_map(IdleFiles::idle_names).collect();
        let mut users = Users::default();
        if wanted.is_empty() {
            return users;
        }
        for process in processes {
            let is_wanted = |mapping: &&Mapping| !is_copied(mapping) && wanted.contains(mapping.name.as_str());
            for mapping in process.mappings.iter().filter(is_wanted) {
                users.by_file.entry(&mapping.name).or_default().push((process, mapping));
            }
        }
        users
    }

    /// Pages of a file that processes of other cgroups have in use. Reads only the huge ranges of the file.
    fn used_elsewhere(&mut self, file: &str, cgroup: &str, (min_idle_ns, now): (Ns, Ns)) -> u64 {
        let Some((&file, mappings)) = self.by_file.get_key_value(file) else { return 0 };
        let count = || {
            let mut used = Used::default();
            for (process, mapping) in mappings {
                let pages = used_in(process.pages, mapping, (min_idle_ns, now));
                used.all += pages;
                *used.of.entry(process.cgroup).or_default() += pages;
            }
            used
        };
        let used = self.counted.entry((file, min_idle_ns)).or_insert_with(count);
        used.all - used.of.get(cgroup).copied().unwrap_or(0)
    }
}

/// Pages of a mapping that are present and not idle.
fn used_in(target: Option<&Target>, mapping: &Mapping, (min_idle_ns, now): (Ns, Ns)) -> u64 {
    let Some(target) = target else { return mapping.range.len().pages() };
    let mut known = Vec::new();
    target.for_pmds_in(span(mapping), now, |pmd, _| known.push(pmd));
    let idle = idle_pages_within(Rules { min_idle_ns }, target, span(mapping), now);
    present_in(mapping, target, &known).saturating_sub(idle_in(mapping, &idle))
}

impl IdleFiles {
    /// The same of a cgroup, without as many pages of each file as processes of others have in use: these may be any of those that are idle here.
    #[must_use]
    pub fn spare(mut self, users: &mut Users<'_>, cgroup: &str, (min_idle_ns, now): (Ns, Ns)) -> IdleFiles {
        for (name, idle) in self.idle_mut().filter(|(_, idle)| **idle > 0) {
            *idle = idle.saturating_sub(users.used_elsewhere(name, cgroup, (min_idle_ns, now)));
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::super::idle::tests::{among, idle, mapping};
    use super::*;
    use isotherm_heat::{Mask, PmdBits, Watch};
    use isotherm_units::PmdNo;

    const S: Ns = 1_000_000_000;

    /// 100 of the 512 pages of the second huge range are accessed all the time.
    fn target() -> Target {
        let mut target = Target::new(0, Watch { max_slowdown_pct: 1000.0, scan_period_ns: 2 * S }, 1);
        let read = |target: &mut Target, now, young| {
            target.read(now, PmdNo(1), PmdBits::Pages { young, present: Mask::ALL });
        };
        read(&mut target, 0, Mask::ALL);
        target.cleared(0, PmdNo(1), Mask::NONE);
        (1..60).for_each(|second| read(&mut target, second * S, (0..100).collect()));
        target
    }

    /// Pages of "/var/db" and of "/own" that a cgroup "/a" leaves idle, without what these processes use.
    fn spared(processes: &[Process<'_>]) -> u64 {
        let own = among(
            &[idle(1, 0..500), idle(9, 0..10)],
            &[mapping(512..1024, "/var/db", "r--s"), mapping(4608..4700, "/own", "r--s")],
        );
        let mut users = Users::of([&own], processes.iter().copied());
        own.spare(&mut users, "/a", (20 * S, 60 * S)).pages()
    }

    #[test]
    fn as_many_pages_stay_as_processes_of_other_cgroups_use() {
        let target = target();
        // It has a copy of its own of a part.
        let mappings = [
            mapping(512..1000, "/var/db", "r--s"),
            mapping(1000..1024, "/var/db", "rw-p"),
            mapping(1024..1030, "/theirs", "r--s"),
        ];
        let process = Process { cgroup: "/b", pages: Some(&target), mappings: &mappings };
        assert_eq!(spared(&[process]), 410);
        assert_eq!(spared(&[process, Process { cgroup: "/c", ..process }]), 310);
        assert_eq!(spared(&[Process { cgroup: "/a", ..process }]), 510, "a process of the cgroup itself");
        assert_eq!(spared(&[Process { pages: None, ..process }]), 12 + 10, "of a sampled one nothing is known");
        assert_eq!(spared(&[process; 9]), 10, "not less than nothing");
        // 64 TiB of addresses, of which 2 MiB are there: to go through all of them, for each process, would take minutes.
        let long = [mapping(512..1 << 34, "/var/db", "r--s")];
        assert_eq!(spared(&[Process { mappings: &long, ..process }; 200]), 10);
        assert_eq!(spared(&[]), 510);
    }
}
