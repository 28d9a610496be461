//! How much of each mapping is resident, for sources that are told of accesses or regions and not of pages.
//!
//! `smaps` knows it exactly and walks every page table for it: 65 ms a GiB with the huge pages of other tools' measurements aside,
//! so seconds for a large process, again and again. Above a bound the share is estimated instead: runs of 64 pages, spread evenly
//! over each mapping with a jitter, are looked up in `pagemap`. That costs the same whatever the size, 3 us a run, and is off by
//! 2% of a mapping or so for one that is resident in large pieces. Mappings small enough are counted whole, so exactly.

use crate::Error;
use crate::page_table::mapping_of;
use isotherm_heat::{Mapping, Resident, Rng};
use isotherm_sys::pagemap::{PageEntry, Pagemap};
use isotherm_sys::proc::{MapEntry, Proc, VmFlags};
use isotherm_units::{Addr, AddrRange, Bytes, PAGE_SIZE};
use std::io;

/// Up to so much resident memory, `smaps` takes a tenth of a second at most.
const EXACT: Bytes = Bytes::of_mib(1024);
/// Pages looked up in one go.
const RUN: u64 = 64;
/// Runs for all of a process, if its mappings are not too many for that.
const RUNS: u64 = 4096;
const LEAST_RUNS: u64 = 16;

/// The mappings of a process and what is resident of each, both in address order. Fails if it has no memory of its own.
pub(crate) fn of_process(proc: &Proc, pid: u32) -> Result<(Vec<Mapping>, Vec<Resident>), Error> {
    let rss = proc.status(pid)?.rss;
    let found = if rss.is_some_and(|rss| rss > EXACT) { by_runs(proc, pid)? } else { by_smaps(proc, pid)? };
    if found.0.is_empty() { Err(Error::NoMemory(pid)) } else { Ok(found) }
}

/// The same for physical memory, which is all there.
pub(crate) fn of_ram(ram: &[AddrRange]) -> (Vec<Mapping>, Vec<Resident>) {
    let whole = |range: &AddrRange| Resident { range: *range, pages: range.len().pages(), huge_pages: 0 };
    let mapping = |range: &AddrRange| Mapping { range: *range, name: "[System RAM]".into(), perms: String::new() };
    (ram.iter().map(mapping).collect(), ram.iter().map(whole).collect())
}

fn by_smaps(proc: &Proc, pid: u32) -> Result<(Vec<Mapping>, Vec<Resident>), Error> {
    let (mut mappings, mut resident) = (Vec::new(), Vec::new());
    for entry in proc.smaps(pid)? {
        let entry = entry?;
        let hidden = entry.flags.is_some_and(|f| f.contains(VmFlags::HUGETLB) || f.contains(VmFlags::PFNMAP));
        if !entry.map.is_monitorable() || hidden {
            continue;
        }
        let pages = entry.usage.rss.pages();
        let huge_pages = entry.usage.huge().pages().min(pages);
        resident.push(Resident { range: entry.map.range, pages, huge_pages });
        mappings.push(mapping_of(&entry.map));
    }
    Ok((mappings, resident))
}

fn by_runs(proc: &Proc, pid: u32) -> Result<(Vec<Mapping>, Vec<Resident>), Error> {
    let maps: Vec<MapEntry> = proc.maps(pid)?.into_iter().filter(MapEntry::is_monitorable).collect();
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::PermissionDenied => Error::Denied {
            attempted: format!("read /proc/{pid}/pagemap"),
            advice: "the process has to be your own, or you root",
        },
        _ => Error::Io { attempted: format!("read /proc/{pid}/pagemap"), source },
    };
    let pagemap = Pagemap::open(proc.root(), pid).map_err(failed)?;
    let all: u64 = maps.iter().map(|m| m.range.len().pages()).sum();
    let mut resident = Vec::with_capacity(maps.len());
    for map in &maps {
        let runs = runs(map.range, all);
        let mut counted = Counted::default();
        for run in &runs {
            counted.add(&pagemap, *run).map_err(failed)?;
        }
        resident.push(counted.scaled(map.range));
    }
    Ok((maps.iter().map(mapping_of).collect(), resident))
}

/// What to look up of a mapping, when all mappings have `all` pages: everything, if that is its share or less.
fn runs(range: AddrRange, all: u64) -> Vec<AddrRange> {
    let pages = range.len().pages();
    let share = u64::try_from(u128::from(RUNS) * u128::from(pages) / u128::from(all.max(1))).unwrap_or(RUNS);
    let count = share.max(LEAST_RUNS).min(pages.div_ceil(RUN));
    // The same places each time: what is told of a mapping changes when the mapping does.
    let mut rng = Rng::new(range.start.0);
    let run = |i: u64| {
        let stratum = |i: u64| u64::try_from(u128::from(pages) * u128::from(i) / u128::from(count)).unwrap_or(pages);
        let (first, next) = (stratum(i), stratum(i + 1));
        let room = (next - first).saturating_sub(RUN);
        let start = first + if room > 0 { rng.below(room + 1) } else { 0 };
        let end = (start + RUN).min(next);
        AddrRange::new(Addr(range.start.0 + start * PAGE_SIZE), Addr(range.start.0 + end * PAGE_SIZE))
    };
    (0..count).map(run).collect()
}

/// Pages of the runs looked up.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    looked_up: u64,
    present: u64,
    huge: u64,
}

impl Counted {
    fn add(&mut self, pagemap: &Pagemap, run: AddrRange) -> io::Result<()> {
        let present = pagemap.read(run)?.iter().map(|(_, e): &(_, PageEntry)| u64::from(e.is_present())).sum::<u64>();
        self.looked_up += run.len().pages();
        self.present += present;
        let whole_block = run.len().pages() == present && run.start.block() == Addr(run.end.0 - 1).block();
        if whole_block && pagemap.is_huge(run.start.block())? == Some(true) {
            self.huge += present;
        }
        Ok(())
    }

    fn scaled(self, range: AddrRange) -> Resident {
        let pages = range.len().pages();
        let scale = |of: u64| {
            let exact = u128::from(of) * u128::from(pages) / u128::from(self.looked_up.max(1));
            u64::try_from(exact).unwrap_or(pages)
        };
        Resident { range, pages: scale(self.present), huge_pages: scale(self.huge) }
    }
}

/// Pages of `range` that are resident, and on huge pages: its share of each mapping, as if pages lay evenly in each. `resident` is
/// sorted.
pub(crate) fn share(resident: &[Resident], range: AddrRange) -> (u64, u64) {
    let first = resident.partition_point(|r| r.range.end <= range.start);
    let (mut pages, mut huge) = (0, 0);
    for mapping in resident[first..].iter().take_while(|r| r.range.start < range.end) {
        let overlap = mapping.range.intersect(range).map_or(0, |both| both.len().0);
        let whole = mapping.range.len().0.max(1);
        // Rounded, so that little is lost where a mapping has many regions.
        let part = |of: u64| (u128::from(of) * u128::from(overlap) + u128::from(whole / 2)) / u128::from(whole);
        pages += u64::try_from(part(mapping.pages)).unwrap_or(mapping.pages);
        huge += u64::try_from(part(mapping.huge_pages)).unwrap_or(mapping.huge_pages);
    }
    (pages, huge)
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_sys::memory::{Memory, PageSize};

    fn pages(start: u64, count: u64) -> AddrRange {
        AddrRange::new(Addr(start << 12), Addr((start + count) << 12))
    }

    #[test]
    fn a_region_has_its_share_of_each_mapping_it_overlaps() {
        let resident = [
            Resident { range: pages(100, 100), pages: 50, huge_pages: 0 },
            Resident { range: pages(1000, 1024), pages: 1024, huge_pages: 512 },
        ];
        assert_eq!(share(&resident, pages(0, 100)), (0, 0), "before all");
        assert_eq!(share(&resident, pages(150, 400)), (25, 0), "half of the first, and a hole");
        assert_eq!(share(&resident, pages(0, 1 << 20)), (1074, 512), "all");
        assert_eq!(share(&resident, pages(1000, 256)), (256, 128));
        assert_eq!(share(&resident, pages(3000, 10)), (0, 0), "behind all");
        assert_eq!(share(&[], pages(0, 10)), (0, 0));
    }

    #[test]
    fn small_mappings_are_looked_up_whole_and_large_ones_in_runs_that_do_not_overlap() {
        let looked_up = |runs: &[AddrRange]| runs.iter().map(|r| r.len().pages()).sum::<u64>();
        for count in [1, 63, 64, 65, 1000, 1024] {
            let range = pages(7, count);
            let runs = runs(range, 1 << 30);
            assert_eq!(looked_up(&runs), count, "{count} pages");
            assert!(runs.windows(2).all(|w| w[0].end == w[1].start) && runs[0].start == range.start);
        }
        let large = pages(1 << 20, 1 << 28);
        let runs = runs(large, 1 << 28);
        assert_eq!(runs.len() as u64, RUNS);
        assert!(runs.windows(2).all(|w| w[0].end <= w[1].start));
        assert!(runs.iter().all(|r| large.intersect(*r) == Some(*r) && r.len().pages() == RUN));
    }

    #[test]
    fn what_runs_find_is_what_smaps_counts() {
        // A third of 64 MiB, in pieces of 1 MiB.
        let memory = Memory::anonymous(64 << 20, PageSize::Small).unwrap();
        let touched = (0..memory.pages()).filter(|p| (p / 256) % 3 == 0);
        touched.for_each(|page| memory.write(page));
        let proc = Proc::default();
        let of = |found: &[Resident]| share(found, memory.range()).0;
        let exact = of(&by_smaps(&proc, std::process::id()).unwrap().1);
        let close = of(&by_runs(&proc, std::process::id()).unwrap().1);
        assert!((5000..6500).contains(&exact), "{exact}");
        assert!(close.abs_diff(exact) <= exact / 10, "{close} by runs, {exact} by smaps");
    }
}
