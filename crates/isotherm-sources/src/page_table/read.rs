//! Reads the page tables of a target in passes, through any of its threads that still has its memory.

use super::{MAX_THREAD_TRIES, PMDS_PER_PASS, PageTable, io_error, larger};
use crate::Error;
use isotherm_bpf::page_table::{Answer, Kind, MAX_REQUESTS, Op};
use isotherm_heat::source::{BitsSink, Progress};
use isotherm_heat::{Mask, Ns, PmdBits};
use isotherm_sys::clock;
use isotherm_sys::pagemap::Pagemap;
use isotherm_sys::proc::{MapEntry, Status};
use isotherm_units::{Addr, AddrRange, PAGES_PER_PMD, PageNo, PmdNo};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Huge ranges whose entries of pagemap are held at once: 24 bytes a page, 768 KiB.
const PMDS_OF_PAGEMAP: usize = 64;

impl PageTable {
    /// One pass over `addresses`, retried while the mmap lock is held for writing. Passes the answers to `each`, with the time before the try that
    /// gave them.
    pub(super) fn pass(
        &mut self,
        pid: u32,
        op: Op,
        addresses: &[Addr],
        each: &mut dyn FnMut(Ns, usize, &Answer),
    ) -> Result<Progress, Error> {
        let mut progress = Progress::default();
        let mut ended = Vec::new();
        while progress.answered < addresses.len() {
            let rest = &addresses[progress.answered..];
            let rest = &rest[..rest.len().min(PMDS_PER_PASS).min(MAX_REQUESTS)];
            let attached = self.attached.get_mut(&pid).ok_or(Error::Gone(pid))?;
            // One time for the pass, which takes a millisecond at most: to read the clock for each huge range costs as much
            // as reading fifty pages.
            let now = clock::monotonic_ns();
            let (pass, answers) = self.walker.pass(attached.tid, op, rest)?;
            if !pass.has_memory {
                self.other_thread(pid, &mut ended)?;
                continue;
            }
            attached.check_identity(pid, pass.mm_id)?;
            for (index, answer) in answers.iter().enumerate() {
                each(now, progress.answered + index, answer);
            }
            progress.answered += pass.done;
            progress.read_errors += pass.read_errors;
            progress.longest_hold_ns = progress.longest_hold_ns.max(pass.longest_hold_ns);
            // A pass that has answered some of it was let in: the rest is asked for at once.
            let is_locked_out = pass.busy && pass.done == 0;
            if !attached.patience.goes_on(is_locked_out) {
                break;
            }
            if is_locked_out {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(progress)
    }

    /// The thread we read through has no memory any more. Takes one that was not tried before, or finds that the
    /// process has ended.
    ///
    /// `ended` are the threads tried since memory was last found. If all threads of a process have ended, but its
    /// tracer does not wait for it, the process has neither exited nor any memory, for as long as the tracer does
    /// nothing.
    pub(super) fn other_thread(&mut self, pid: u32, ended: &mut Vec<u32>) -> Result<(), Error> {
        let attached = self.attached.get_mut(&pid).ok_or(Error::Gone(pid))?;
        if attached.pidfd.has_exited() {
            return Err(Error::Gone(pid));
        }
        self.walker.forget(attached.tid);
        ended.push(attached.tid);
        if ended.len() > MAX_THREAD_TRIES {
            return Err(Error::NoMemory(pid));
        }
        let threads = self.proc.threads(pid)?;
        let has_ended = |tid| self.proc.thread_state(pid, tid).is_ok_and(is_of_ended);
        // `stat` may be out of date by the time the thread is read through, so `ended` is needed as well.
        let other = threads.into_iter().find(|tid| !ended.contains(tid) && !has_ended(*tid));
        attached.tid = other.ok_or(Error::NoMemory(pid))?;
        // One that was opened while the memory was there still shows it.
        if !attached.pagemap.as_ref().is_some_and(|pagemap| pagemap.is_there().unwrap_or(true)) {
            attached.pagemap = Pagemap::open(&self.proc.path(pid, "task"), attached.tid).ok();
        }
        Ok(())
    }

    /// The status of the process, with its memory: that of the thread we read through.
    pub(super) fn status(&self, pid: u32) -> Result<Status, Error> {
        let tid = self.attached.get(&pid).ok_or(Error::Gone(pid))?.tid;
        self.proc.status_of_thread(pid, tid).map_err(|error| self.of_thread(pid, error))
    }

    /// An error about the thread that we read through. If only that has ended, the next pass finds another.
    pub(super) fn of_thread(&self, pid: u32, error: isotherm_sys::proc::Error) -> Error {
        if error.is_gone() { self.without_thread(pid) } else { error.into() }
    }

    /// What it means that the thread we read through has ended: the process has, or the next pass finds another thread.
    pub(super) fn without_thread(&self, pid: u32) -> Error {
        match self.attached.get(&pid) {
            Some(attached) if !attached.pidfd.has_exited() => Error::Busy(pid),
            _ => Error::Gone(pid),
        }
    }

    /// An address in a mapping for each huge range (sorted), or `None` where nothing is mapped any more. In the largest, as in
    /// [`super::gib_addresses`].
    pub(crate) fn anchors(maps: &[MapEntry], pmds: &[PmdNo]) -> Vec<Option<Addr>> {
        let mut anchor_of = Self::anchor_of(maps);
        pmds.iter().map(|pmd| anchor_of(*pmd)).collect()
    }

    /// The same for one huge range after the other. None may be before the one that was asked for last.
    fn anchor_of(maps: &[MapEntry]) -> impl FnMut(PmdNo) -> Option<Addr> {
        let mut at = 0;
        // Most of a large memory is in few mappings: its huge ranges are not looked up one by one.
        let mut whole = AddrRange::default();
        move |pmd| {
            let range = pmd.range();
            if whole.intersect(range) == Some(range) {
                return Some(range.start);
            }
            at += maps[at..].partition_point(|m| m.range.end <= range.start);
            if let Some(map) = maps.get(at).filter(|m| m.is_monitorable()) {
                whole = map.range;
            }
            let mappings = maps[at..].iter().take_while(|m| m.range.start < range.end).filter(|m| m.is_monitorable());
            let parts = mappings.filter_map(|m| m.range.intersect(range));
            parts.reduce(larger).map(|part| part.start)
        }
    }

    /// Drops huge ranges (sorted) where nothing is mapped any more.
    pub(super) fn keep_mapped(maps: &[MapEntry], pmds: &mut Vec<PmdNo>) {
        let mut anchor_of = Self::anchor_of(maps);
        pmds.retain(|pmd| anchor_of(*pmd).is_some());
    }

    /// Reads the accessed bits of `pmds`. Each huge range is answered once.
    pub(super) fn read_pmds(&mut self, pid: u32, pmds: &[PmdNo], sink: &mut BitsSink<'_>) -> Result<Progress, Error> {
        let mut total = Progress::default();
        for chunk in pmds.chunks(PMDS_PER_PASS) {
            let anchors = Self::anchors(self.target(pid)?.maps.entries(), chunk);
            let mapped: Vec<(PmdNo, Addr)> =
                chunk.iter().zip(&anchors).filter_map(|(b, a)| a.map(|a| (*b, a))).collect();
            for (pmd, _) in chunk.iter().zip(&anchors).filter(|(_, a)| a.is_none()) {
                sink(clock::monotonic_ns(), *pmd, Some(PmdBits::Gone));
            }
            let addresses: Vec<Addr> = mapped.iter().map(|(_, a)| *a).collect();
            let mut entries = 0;
            let kernel_made = Arc::clone(&self.target(pid)?.kernel_made);
            let progress = self.pass(pid, Op::Pmds, &addresses, &mut |now, i, answer| {
                let found = bits(answer).map(|found| without(found, mapped[i].0, &kernel_made));
                entries += match found {
                    Some(PmdBits::Pages { .. }) => PAGES_PER_PMD as u64,
                    Some(_) => 1,
                    None => 0,
                };
                sink(now, mapped[i].0, found);
            })?;
            total.add_reads(Progress { entries, ..progress });
            if progress.answered < addresses.len() {
                let last = mapped[progress.answered].0;
                total.answered += chunk.partition_point(|b| *b < last);
                return Ok(total);
            }
            total.answered += chunk.len();
        }
        Ok(total)
    }

    /// Calls `each` with the frames of pages that several processes map. Returns false without pagemap, which shows them.
    pub(super) fn frames_of_shared(
        &mut self,
        pid: u32,
        pmds: &[PmdNo],
        each: &mut dyn FnMut(Option<u64>),
    ) -> Result<bool, Error> {
        if self.target(pid)?.pagemap.is_none() {
            return Ok(false);
        }
        // Only pages that count as resident: pagemap shows those of the kernel and the zero page, too, as one that is mapped many times.
        let mut resident = HashMap::new();
        self.read_pmds(pid, pmds, &mut |_, pmd, bits| {
            let pages = match bits {
                Some(PmdBits::Pages { present, .. }) => present,
                Some(PmdBits::Gone) => Mask::NONE,
                Some(PmdBits::Huge { .. }) | None => Mask::ALL,
            };
            resident.insert(pmd, pages);
        })?;
        let is_resident = |page: PageNo| resident.get(&page.pmd()).is_none_or(|pages| pages.has(page.index_in_pmd()));
        let Some(pagemap) = &self.target(pid)?.pagemap else { return Ok(false) };
        for run in pmds.chunk_by(|a, b| a.next() == *b).flat_map(|run| run.chunks(PMDS_OF_PAGEMAP)) {
            let range = AddrRange::new(run[0].addr(), run[run.len() - 1].next().addr());
            for (page, entry) in pagemap.read(range).map_err(|e| io_error("pagemap", pid, e))? {
                if entry.is_present() && !entry.is_exclusive() && is_resident(page) {
                    each(entry.frame());
                }
            }
        }
        Ok(true)
    }
}

/// Whether a thread in this state has ended.
pub(super) fn is_of_ended(state: char) -> bool {
    matches!(state, 'Z' | 'X' | 'x')
}

/// What was found in `pmd`, without the pages that the kernel has put there.
fn without(found: PmdBits, pmd: PmdNo, kernel_made: &[(PmdNo, Mask)]) -> PmdBits {
    let Some((_, pages)) = kernel_made.iter().find(|(of, _)| *of == pmd) else { return found };
    match found {
        PmdBits::Pages { young, present } => match present & !*pages {
            present if present.is_empty() => PmdBits::Gone,
            present => PmdBits::Pages { young: young & present, present },
        },
        other => other,
    }
}

fn bits(answer: &Answer) -> Option<PmdBits> {
    match answer.kind() {
        Kind::None | Kind::Unmapped => Some(PmdBits::Gone),
        Kind::Pages if answer.b == [0; 8] => Some(PmdBits::Gone),
        Kind::Pages => Some(PmdBits::Pages { young: Mask(answer.a), present: Mask(answer.b) }),
        Kind::Leaf2M | Kind::Leaf1G => Some(PmdBits::Huge { young: answer.a[0] & 1 == 1 }),
        Kind::Error => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page_table::{gib_addresses, kernel_made, push_all};
    use isotherm_heat::Rng;

    fn mapping(start: u64, end: u64, name: &str) -> MapEntry {
        MapEntry {
            range: AddrRange::new(Addr(start), Addr(end)),
            perms: "r-xp".parse().unwrap(),
            offset: 0,
            dev: (0, 0),
            inode: 0,
            name: name.into(),
        }
    }

    #[test]
    fn memory_is_looked_up_at_the_largest_mapping_around_and_not_at_a_small_one_that_comes_and_goes() {
        // In the huge range at 2 MiB: a buffer, and the beginning of a heap that goes on to 3 GiB.
        let maps = [
            mapping(0x0020_0000, 0x0024_0000, "[vvar]"),
            mapping(0x0024_0000, 0x0028_0000, ""),
            mapping(0x0030_0000, 0xc000_0000, "[heap]"),
            mapping(0xc000_0000, 0xc000_1000, ""),
            mapping(0xc040_0000, 0xc040_1000, ""),
        ];
        let pmds = [1, 2, 0x600, 0x601, 0x602].map(PmdNo);
        let at = [Some(0x0030_0000), Some(0x0040_0000), Some(0xc000_0000), None, Some(0xc040_0000)];
        assert_eq!(PageTable::anchors(&maps, &pmds), at.map(|at| at.map(Addr)));
        assert_eq!(gib_addresses(&maps), [0x0030_0000, 0x4000_0000, 0x8000_0000, 0xc000_0000].map(Addr));
    }

    /// Mappings of any size, some of which the kernel has made, against a search through all of them for each huge range.
    #[test]
    fn each_huge_range_is_looked_up_in_its_largest_mapping() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let (mut maps, mut start) = (Vec::new(), 1 << 20);
            for _ in 0..rng.below(30) {
                let len = if rng.below(3) == 0 { rng.below(4000) } else { rng.below(100) } + 1;
                let name = if rng.below(6) == 0 { "[vvar]" } else { "" };
                maps.push(mapping(start, start + len * 4096, name));
                start += (len + rng.below(3) * rng.below(1000)) * 4096;
            }
            let pmds: Vec<PmdNo> = (0..start >> 21).filter(|_| rng.below(4) > 0).map(PmdNo).collect();
            let naive = |pmd: &PmdNo| {
                let parts = maps.iter().filter(|m| m.is_monitorable()).filter_map(|m| m.range.intersect(pmd.range()));
                parts.reduce(larger).map(|part| part.start)
            };
            let expected: Vec<Option<Addr>> = pmds.iter().map(naive).collect();
            assert_eq!(PageTable::anchors(&maps, &pmds), expected, "seed {seed}");
            let mut kept = pmds.clone();
            PageTable::keep_mapped(&maps, &mut kept);
            assert!(kept.iter().eq(pmds.iter().filter(|pmd| naive(pmd).is_some())), "seed {seed}");
        }
    }

    #[test]
    fn the_huge_ranges_of_a_mask_are_listed_in_order() {
        let masks = [
            Mask::NONE,
            Mask::ALL,
            Mask::of_range(64..128),
            Mask::of_range(1..511),
            Mask([1, 0, u64::MAX, 6, 0, 0, 0, 1 << 63]),
        ];
        for mask in masks {
            let mut found = vec![PmdNo(7)];
            push_all(1024, mask, &mut found);
            let naive = (0..512_usize).filter(|i| mask.has(*i)).map(|i| PmdNo(1024 + i as u64));
            assert!(found.into_iter().eq(std::iter::once(PmdNo(7)).chain(naive)), "{mask:?}");
        }
    }

    #[test]
    fn pages_of_the_kernel_are_no_pages_of_the_process() {
        // Four pages before the end of huge range 1, two at the beginning of huge range 2, and one whole page of another kind.
        let maps = [
            mapping(0x0020_0000, 0x003f_c000, ""),
            mapping(0x003f_c000, 0x0040_1000, "[vvar]"),
            mapping(0x0040_1000, 0x0040_2000, "[vdso]"),
            mapping(0x0040_2000, 0x0040_3000, "[stack]"),
        ];
        let made = kernel_made(&maps);
        let of = Mask::of_range;
        assert_eq!(*made, [(PmdNo(1), of(508..512)), (PmdNo(2), of(0..2))]);
        let pages = |young, present| PmdBits::Pages { young, present };
        assert_eq!(without(pages(of(0..3), of(0..3)), PmdNo(2), &made), pages(of(2..3), of(2..3)));
        assert_eq!(without(pages(of(0..2), of(0..2)), PmdNo(2), &made), PmdBits::Gone);
        assert_eq!(without(pages(of(0..2), of(0..2)), PmdNo(3), &made), pages(of(0..2), of(0..2)));
        assert_eq!(without(PmdBits::Huge { young: true }, PmdNo(1), &made), PmdBits::Huge { young: true });
    }
}
