//! How much of each mapping is resident, for sources that receive accesses or regions and not pages.
//!
//! `smaps` is exact, but walks every page table: 65 ms per GiB without huge pages, so seconds for a large process, each
//! time. Above a bound the share is estimated instead. Runs of 64 pages, spread evenly over each mapping with a jitter,
//! are looked up in `pagemap`, 3 us each. There are 4,096 runs in all, or one per mapping if there are more mappings.
//! The error is about 2% of a mapping for a large one that is resident in large pieces. For a small one among thousands
//! it can be anything, though not in sum. But the end of each mapping is counted, and mappings of up to two runs are
//! counted whole: among thousands of mappings most are stacks, and only their last pages are resident.
//!
//! Both ways list the same mappings and count the same pages: mapped pages, also on hugetlb pages, which the RSS omits
//! and accesses do not. Both list device memory that is mapped as a whole (PFNMAP) with no pages. They differ in two
//! points: `pagemap` also counts the zero page, which backs memory that was only read, and single pages of devices
//! (MIXEDMAP). [`Residency`] remembers the last choice, so that a target near the bound does not alternate between the
//! two.

use crate::Error;
use crate::page_table::mapping_of;
use isotherm_heat::{Mapping, Resident, Rng};
use isotherm_sys::pagemap::{PageEntry, Pagemap};
use isotherm_sys::proc::{MapEntry, Proc, Usage};
use isotherm_units::{Addr, AddrRange, Bytes, PAGE_SIZE, Perms};
use std::io;

/// Up to this much resident memory, `smaps` takes a tenth of a second at most.
const EXACT: Bytes = Bytes::of_mib(1024);
/// A target that was above `EXACT` has to shrink to this to be counted exactly again.
const EXACT_AGAIN: Bytes = Bytes::of_mib(768);
/// Pages per lookup.
const RUN: u64 = 64;
/// Runs for all of a process, or one per mapping if there are more mappings. The end of each mapping comes in addition.
const RUNS: u64 = 4096;
/// Runs that small mappings get next to large ones, if there are that many for each.
const MIN_RUNS: u64 = 16;

/// The mappings of a process and the resident pages of each, both in address order.
type Found = (Vec<Mapping>, Vec<Resident>);

/// How the resident memory of one process is counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Residency {
    by_runs: bool,
}

impl Residency {
    /// The mappings of the process and the resident pages of each, both in address order. Fails if it has no memory of
    /// its own.
    pub(crate) fn of_process(&mut self, proc: &Proc, pid: u32) -> Result<Found, Error> {
        let rss = proc.status(pid)?.rss;
        let count = if self.is_by_runs(rss) { by_runs } else { by_smaps };
        let mut found = Found::default();
        let has_memory = proc.find_memory(pid, || {
            found = count(proc, pid)?;
            Ok::<bool, Error>(!found.0.is_empty())
        })?;
        if has_memory { Ok(found) } else { Err(Error::NoMemory(pid)) }
    }

    fn is_by_runs(&mut self, rss: Option<Bytes>) -> bool {
        self.by_runs = rss.is_some_and(|rss| rss > if self.by_runs { EXACT_AGAIN } else { EXACT });
        self.by_runs
    }
}

/// The same for physical memory, all of which is resident.
pub(crate) fn of_ram(ram: &[AddrRange]) -> Found {
    let whole = |range: &AddrRange| Resident { range: *range, pages: range.len().pages(), huge_pages: 0 };
    let mapping = |range: &AddrRange| Mapping { range: *range, name: "[System RAM]".into(), perms: Perms::UNKNOWN };
    (ram.iter().map(mapping).collect(), ram.iter().map(whole).collect())
}

fn by_smaps(proc: &Proc, pid: u32) -> Result<Found, Error> {
    let (mut mappings, mut resident) = (Vec::new(), Vec::new());
    for entry in proc.smaps(pid)? {
        let entry = entry?;
        if !entry.map.is_monitorable() {
            continue;
        }
        resident.push(resident_of(entry.map.range, &entry.usage));
        mappings.push(mapping_of(&entry.map));
    }
    Ok((mappings, resident))
}

fn resident_of(range: AddrRange, usage: &Usage) -> Resident {
    let hugetlb = usage.shared_hugetlb.pages() + usage.private_hugetlb.pages();
    let pages = usage.rss.pages() + hugetlb;
    Resident { range, pages, huge_pages: (usage.huge().pages() + hugetlb).min(pages) }
}

fn by_runs(proc: &Proc, pid: u32) -> Result<Found, Error> {
    let maps: Vec<MapEntry> = proc.maps(pid)?.into_iter().filter(MapEntry::is_monitorable).collect();
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::PermissionDenied => Error::Denied {
            attempted: format!("read /proc/{pid}/pagemap"),
            advice: "the process has to be your own, or you root",
        },
        _ => Error::Io { attempted: format!("read /proc/{pid}/pagemap"), source },
    };
    let pagemap = Pagemap::open(proc.root(), pid).map_err(failed)?;
    let ranges: Vec<AddrRange> = maps.iter().map(|m| m.range).collect();
    let mut resident = Vec::with_capacity(maps.len());
    for (range, count) in ranges.iter().zip(deal(&ranges)) {
        let (middle, end) = parts(*range);
        let (mut in_middle, mut at_end) = (Counted::default(), Counted::default());
        for run in runs(middle, count) {
            in_middle.add(&pagemap, run).map_err(failed)?;
        }
        at_end.add(&pagemap, end).map_err(failed)?;
        resident.push(joined(in_middle.scaled(middle), at_end.scaled(end)));
    }
    Ok((maps.iter().map(mapping_of).collect(), resident))
}

/// A mapping without its end, and its end, which is counted exactly.
fn parts(range: AddrRange) -> (AddrRange, AddrRange) {
    let bound = Addr(range.end.0 - (RUN * PAGE_SIZE).min(range.len().0));
    (AddrRange::new(range.start, bound), AddrRange::new(bound, range.end))
}

fn joined(middle: Resident, end: Resident) -> Resident {
    let range = AddrRange::new(middle.range.start, end.range.end);
    Resident { range, pages: middle.pages + end.pages, huge_pages: middle.huge_pages + end.huge_pages }
}

/// The number of runs for each of the mappings: a few each, and the rest by size. In sum [`RUNS`], or one each if there
/// are more mappings.
fn deal(ranges: &[AddrRange]) -> Vec<u64> {
    let needs: Vec<u64> = ranges.iter().map(|range| parts(*range).0.len().pages().div_ceil(RUN)).collect();
    let each = (RUNS / 2 / (ranges.len() as u64).max(1)).clamp(1, MIN_RUNS);
    let rest = RUNS.saturating_sub(needs.iter().map(|need| need.min(&each)).sum());
    let all: u64 = needs.iter().sum();
    let share = |need: u64| u64::try_from(u128::from(rest) * u128::from(need) / u128::from(all.max(1))).unwrap_or(rest);
    needs.iter().map(|need| (need.min(&each) + share(*need)).min(*need)).collect()
}

/// What to look up in a range: all of it, if `count` runs are enough for that.
fn runs(range: AddrRange, count: u64) -> impl Iterator<Item = AddrRange> {
    let pages = range.len().pages();
    // The same places each time: the result for a mapping changes only when the mapping does.
    let mut rng = Rng::new(range.start.0);
    (0..count).map(move |i| {
        let stratum = |i: u64| u64::try_from(u128::from(pages) * u128::from(i) / u128::from(count)).unwrap_or(pages);
        let (first, next) = (stratum(i), stratum(i + 1));
        let room = (next - first).saturating_sub(RUN);
        let start = first + if room > 0 { rng.below(room + 1) } else { 0 };
        let end = (start + RUN).min(next);
        AddrRange::new(Addr(range.start.0 + start * PAGE_SIZE), Addr(range.start.0 + end * PAGE_SIZE))
    })
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
        let whole_pmd = present > 0 && run.len().pages() == present && run.start.pmd() == Addr(run.end.0 - 1).pmd();
        if whole_pmd && pagemap.is_huge(run.start.pmd())? == Some(true) {
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

/// Pages of `range` that are resident, and those on huge pages: its share of each mapping, as if pages were spread
/// evenly in each. `resident` is sorted.
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

    /// What is looked up of each of the mappings: runs, and the end.
    fn looked_up(ranges: &[AddrRange]) -> Vec<Vec<AddrRange>> {
        let of = |(range, count): (&AddrRange, u64)| {
            let (middle, end) = parts(*range);
            runs(middle, count).chain([end]).collect()
        };
        ranges.iter().zip(deal(ranges)).map(of).collect()
    }

    fn in_all(runs: &[AddrRange]) -> u64 {
        runs.iter().map(|r| r.len().pages()).sum()
    }

    #[test]
    fn small_mappings_are_looked_up_whole_and_large_ones_in_runs_that_do_not_overlap() {
        let sizes = [1, 63, 64, 65, 127, 128, 1000, 1024];
        let mut ranges: Vec<AddrRange> = (0_u64..).zip(sizes).map(|(no, count)| pages(no << 16, count)).collect();
        let large = pages(1 << 30, 1 << 28);
        ranges.push(large);
        let all = looked_up(&ranges);
        for (runs, range) in all.iter().zip(&ranges[..sizes.len()]) {
            assert_eq!(in_all(runs), range.len().pages(), "{runs:?}");
            assert!(runs.windows(2).all(|w| w[0].end == w[1].start) && runs[0].start == range.start);
        }
        let runs = &all[sizes.len()];
        assert!((4000..=RUNS + 1).contains(&(runs.len() as u64)), "{}", runs.len());
        assert!(runs.windows(2).all(|w| w[0].end <= w[1].start));
        assert!(runs.iter().all(|r| large.intersect(*r) == Some(*r)));
        assert!(in_all(runs) >= (runs.len() as u64 - 1) * RUN);
        assert_eq!(runs[runs.len() - 1].end, large.end);
    }

    #[test]
    fn runs_are_bounded_whatever_the_number_of_mappings() {
        // Stacks of 8 MiB, and one mapping of a TB.
        for stacks in [0, 1, 100, 1000, 5000, 20_000] {
            let mut ranges: Vec<AddrRange> = (0..stacks).map(|no| pages(no << 12, 2048)).collect();
            ranges.push(pages(1 << 40, 1 << 28));
            let dealt: u64 = deal(&ranges).iter().sum();
            let mappings = ranges.len() as u64;
            assert!(dealt <= RUNS.max(mappings), "{dealt} runs for {stacks} stacks");
            assert!(dealt >= RUNS / 2, "{dealt} runs for {stacks} stacks");
            assert!(deal(&ranges).iter().all(|count| *count > 0), "{stacks} stacks");
            let lookups: usize = looked_up(&ranges).iter().map(Vec::len).sum();
            assert!(lookups as u64 <= RUNS + 2 * mappings, "{lookups}");
        }
        assert!(deal(&[]).is_empty());
    }

    #[test]
    fn a_stack_among_thousands_has_its_pages() {
        let memory = Memory::anonymous(2048 * PAGE_SIZE, PageSize::Small).unwrap();
        (2040..2048).for_each(|page| memory.write(page));
        let pagemap = Pagemap::open(Proc::default().root(), std::process::id()).unwrap();
        let (middle, end) = parts(memory.range());
        let (mut in_middle, mut at_end) = (Counted::default(), Counted::default());
        runs(middle, 1).for_each(|run| in_middle.add(&pagemap, run).unwrap());
        at_end.add(&pagemap, end).unwrap();
        let found = joined(in_middle.scaled(middle), at_end.scaled(end));
        assert_eq!((found.range, found.pages), (memory.range(), 8));
    }

    #[test]
    fn a_target_near_the_bound_is_not_counted_now_this_way_and_now_that() {
        let mut residency = Residency::default();
        let by_runs = [1000, 1025, 1023, 900, 769, 768, 1000, 1024, 1025]
            .map(|mib| residency.is_by_runs(Some(Bytes::of_mib(mib))));
        assert_eq!(by_runs, [false, true, true, true, true, false, false, false, true]);
        assert!(!residency.is_by_runs(None), "without memory of its own");
    }

    #[test]
    fn hugetlb_pages_are_resident_as_accesses_to_them_are_told() {
        let mib = Bytes::of_mib;
        let usage = Usage { private_hugetlb: mib(4), shared_hugetlb: mib(2), ..Usage::default() };
        assert_eq!(
            resident_of(pages(0, 4096), &usage),
            Resident { range: pages(0, 4096), pages: 1536, huge_pages: 1536 }
        );
        let usage = Usage { rss: mib(8), anon_huge: mib(2), ..Usage::default() };
        assert_eq!(
            resident_of(pages(0, 4096), &usage),
            Resident { range: pages(0, 4096), pages: 2048, huge_pages: 512 }
        );
    }

    #[test]
    fn both_ways_list_the_same_mappings() {
        // Other tests map and unmap meanwhile: a child does not.
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let proc = Proc::default();
        // Until it executes the other program, and has linked that.
        let list = |found: Found| found.0.into_iter().map(|m| (m.range, m.name)).collect::<Vec<_>>();
        let agreed = (0..500).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            let (exact, close) = (by_smaps(&proc, child.id()), by_runs(&proc, child.id()));
            exact.is_ok_and(|exact| close.is_ok_and(|close| !exact.0.is_empty() && list(exact) == list(close)))
        });
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(agreed);
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
