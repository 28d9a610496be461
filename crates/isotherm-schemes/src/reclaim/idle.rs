//! How much of the files that processes map is idle.
//!
//! A page counts that is idle by its own accessed bit, as for [`crate::page_out`]. Several processes may map one file, and a page that is
//! idle in one may be hot in another. Which page of the file a page of a mapping is is not known here, so of such a file
//! the smallest of the counts is taken: never more than the least that one of them leaves alone.
//!
//! What processes of other cgroups use of the same files is for [`super::users`]. Files are the same if their names are: those of other mount
//! namespaces are taken for one.
//!
//! Present pages are counted beside, by file those of the process with most: they may be charged to another cgroup, the one that has read the file
//! first, and then the kernel takes nothing of them when this one is asked. [`super::reclaimer`] compares them with what is charged.

use crate::facts::{is_named_memory, pages_within};
use crate::page_out::{IdlePmd, Rules, idle_pages};
use isotherm_heat::{Mapping, Ns, Target};
use isotherm_sys::proc::Mounts;
use isotherm_units::{Addr, Perms, PmdNo};
use std::collections::BTreeMap;
use std::ops::Range;

/// The mappings of a process, in address order, and where it sees files in memory.
pub type Files<'a> = (&'a [Mapping], &'a Mounts);

/// Pages by the name of their file, and those of shared memory by its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdleFiles {
    files: BTreeMap<String, Pages>,
    shared: BTreeMap<String, u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Pages {
    idle: u64,
    present: u64,
}

impl IdleFiles {
    /// Of one process: pages of files that are idle for so long. Costs the same as [`idle_pages`].
    pub fn of(target: &Target, (mappings, mounts): Files<'_>, min_idle_ns: Ns, now: Ns) -> IdleFiles {
        let mut files = IdleFiles::among(&idle_pages(Rules { min_idle_ns }, target, now), (mappings, mounts));
        let known = target.all_pmds();
        let present = |mapping: &Mapping| present_in(mapping, target, &known);
        for mapping in mappings {
            if is_of_file(mapping, mounts) {
                files.files.entry(mapping.name.clone()).or_default().present += present(mapping);
            } else if is_shared_memory(mapping, mounts) {
                *files.shared.entry(mapping.name.clone()).or_default() += present(mapping);
            }
        }
        files
    }

    /// Of huge ranges with idle pages, and all mappings, both in address order.
    fn among(idle: &[IdlePmd], (mappings, mounts): Files<'_>) -> IdleFiles {
        let mut files = IdleFiles::default();
        for mapping in mappings.iter().filter(|mapping| is_of_file(mapping, mounts)) {
            files.files.entry(mapping.name.clone()).or_default().idle += idle_in(mapping, idle);
        }
        files
    }

    /// The huge ranges in which idle pages of files may be, of one process, in address order. What has left since they were read last still looks
    /// idle.
    pub fn pmds_of(target: &Target, (mappings, mounts): Files<'_>, min_idle_ns: Ns, now: Ns) -> Vec<PmdNo> {
        let idle = idle_pages(Rules { min_idle_ns }, target, now);
        let files = mappings.iter().filter(|mapping| is_of_file(mapping, mounts));
        let mut pmds: Vec<PmdNo> = files.flat_map(|mapping| within(&idle, mapping)).map(|known| known.pmd).collect();
        pmds.dedup();
        pmds
    }

    /// The same with another process of the cgroup.
    pub fn and(mut self, other: IdleFiles) -> IdleFiles {
        for (name, pages) in other.shared {
            let known = self.shared.entry(name).or_default();
            *known = pages.max(*known);
        }
        for (name, pages) in other.files {
            let both = |known: &mut Pages| {
                *known = Pages { idle: known.idle.min(pages.idle), present: known.present.max(pages.present) };
            };
            self.files.entry(name).and_modify(both).or_insert(pages);
        }
        self
    }

    /// Names of the files with idle pages.
    pub(super) fn idle_names(&self) -> impl Iterator<Item = &str> {
        self.files.iter().filter(|(_, pages)| pages.idle > 0).map(|(name, _)| name.as_str())
    }

    /// The files with the number of their idle pages.
    pub(super) fn idle_mut(&mut self) -> impl Iterator<Item = (&str, &mut u64)> {
        self.files.iter_mut().map(|(name, pages)| (name.as_str(), &mut pages.idle))
    }

    /// All that are idle.
    pub fn pages(&self) -> u64 {
        self.files.values().map(|pages| pages.idle).sum()
    }

    /// All that are present.
    pub fn present_pages(&self) -> u64 {
        self.files.values().map(|pages| pages.present).sum()
    }

    /// All of shared memory that are present.
    pub fn shared_pages(&self) -> u64 {
        self.shared.values().sum()
    }
}

/// The huge ranges that a mapping touches. It may have far more of them than there is memory, and be longer than its file.
pub(super) fn span(mapping: &Mapping) -> Range<PmdNo> {
    let range = mapping.range;
    let last = if range.is_empty() { range.start } else { Addr(range.end.0 - 1) };
    range.start.pmd()..last.pmd().next()
}

/// Pages of a mapping that are present, of those huge ranges of which anything is known, in address order.
pub(super) fn present_in(mapping: &Mapping, target: &Target, known: &[PmdNo]) -> u64 {
    let Range { start, end } = span(mapping);
    let first = known.partition_point(|pmd| *pmd < start);
    let of = |pmd: &PmdNo| u64::from((target.present_in(*pmd) & pages_within(mapping, *pmd)).count());
    known[first..].iter().take_while(|pmd| **pmd < end).map(of).sum()
}

/// Those that are idle. Both are in address order.
pub(super) fn idle_in(mapping: &Mapping, idle: &[IdlePmd]) -> u64 {
    let of = |known: &IdlePmd| u64::from((known.pages & pages_within(mapping, known.pmd)).count());
    within(idle, mapping).map(of).sum()
}

/// The huge ranges that touch a mapping. Both are in address order.
fn within<'a>(idle: &'a [IdlePmd], mapping: &Mapping) -> impl Iterator<Item = &'a IdlePmd> {
    let (start, end) = (mapping.range.start, mapping.range.end);
    let from = idle.partition_point(|known| known.pmd.next().addr() <= start);
    idle[from..].iter().take_while(move |known| known.pmd.addr() < end)
}

/// Whether its pages are those of a file. Where a program may write to a private mapping, they have become its own as soon as it did.
/// Files in memory leave for swap.
fn is_of_file(mapping: &Mapping, mounts: &Mounts) -> bool {
    mapping.name.starts_with('/') && !is_in_memory(mapping, mounts) && !is_copied(mapping)
}

pub(super) fn is_copied(mapping: &Mapping) -> bool {
    mapping.perms.is_private() && mapping.perms.contains(Perms::WRITE)
}

fn is_in_memory(mapping: &Mapping, mounts: &Mounts) -> bool {
    is_named_memory(mapping) || mounts.is_in_memory(&mapping.name)
}

/// Whether its pages count as shared memory: those of files in memory, and of mappings that are shared without a file.
fn is_shared_memory(mapping: &Mapping, mounts: &Mounts) -> bool {
    is_in_memory(mapping, mounts) || (!mapping.perms.is_private() && !mapping.name.starts_with('/'))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use isotherm_heat::Interval;
    use isotherm_units::{AddrRange, PageNo};

    pub fn mapping(pages: std::ops::Range<u64>, name: &str, perms: &str) -> Mapping {
        let range = AddrRange::new(PageNo(pages.start).addr(), PageNo(pages.end).addr());
        Mapping { range, name: name.into(), perms: perms.parse().unwrap() }
    }

    pub fn idle(pmd: u64, pages: std::ops::Range<usize>) -> IdlePmd {
        IdlePmd { pmd: PmdNo(pmd), pages: pages.collect(), idle: Interval::LONGEST }
    }

    pub fn among(idle: &[IdlePmd], mappings: &[Mapping]) -> IdleFiles {
        IdleFiles::among(idle, (mappings, &Mounts::default()))
    }

    #[test]
    fn files_in_memory_are_not_idle_files_wherever_they_are_mounted() {
        let mounts = "1 0 8:1 / / rw - ext4 /dev/sda rw\n2 1 0:9 / /tmp rw - tmpfs tmpfs rw\n3 1 8:2 / /run/media rw - xfs x rw\n";
        let mounts = Mounts::of_text(mounts.as_bytes()).unwrap();
        let mappings = [mapping(512..600, "/tmp/db", "rw-s"), mapping(600..1024, "/run/media/db", "rw-s")];
        let files = IdleFiles::among(&[idle(1, 0..512)], (&mappings, &mounts));
        assert_eq!(files.pages(), 424);
        assert!(is_shared_memory(&mappings[0], &mounts) && !is_shared_memory(&mappings[1], &mounts));
    }

    #[test]
    fn idle_pages_of_files_count_and_those_of_the_program_itself_do_not() {
        let mappings = [
            mapping(512..600, "/usr/lib/db", "r-xp"),
            mapping(600..700, "/usr/lib/db", "rw-p"),
            mapping(700..1000, "/var/db", "rw-s"),
            mapping(1000..1536, "", "rw-p"),
            mapping(1536..1600, "/memfd:x", "rw-s"),
            mapping(1600..1700, "/var/db", "r--s"),
        ];
        let idle_ones = [idle(1, 50..400), idle(2, 0..512), idle(3, 0..128)];
        let files = IdleFiles::among(&idle_ones, (&mappings, &Mounts::default()));
        // 562 to 599; 700 to 911 and 1600 to 1663.
        let idle = |idle| Pages { idle, present: 0 };
        assert_eq!(files.files, [("/usr/lib/db".to_owned(), idle(38)), ("/var/db".to_owned(), idle(212 + 64))].into());
        assert_eq!(files.pages(), 314);
    }

    #[test]
    fn huge_ranges_that_touch_a_mapping_are_read_once_more() {
        let idle = [idle(1, 0..512), idle(2, 0..512), idle(3, 0..512), idle(9, 0..512)];
        let touching =
            |pages| within(&idle, &mapping(pages, "/f", "r--s")).map(|known| known.pmd.0).collect::<Vec<_>>();
        assert_eq!((touching(1000..1025), touching(512..1024), touching(2048..4608)), (vec![1, 2], vec![1], vec![]));
    }

    #[test]
    fn of_a_file_that_two_map_only_what_both_leave_alone_may_be_idle() {
        let of = |pages: std::ops::Range<usize>| among(&[idle(1, pages)], &[mapping(512..1024, "/var/db", "r--s")]);
        let own = among(&[idle(9, 0..10)], &[mapping(4608..4700, "/own", "r--s")]);
        assert_eq!(of(0..500).and(of(0..20)).and(own).pages(), 30);
        assert_eq!(of(0..500).and(of(0..0)).pages(), 0, "all of it is in use by the other");
    }
}
