//! Clears a whole process: through `clear_refs`, which clears what advice does not, or by aging its cgroup.

use super::read::is_of_ended;
use super::{AGING_TRIES, ClearBy, ENOENT, ESRCH, PMDS_PER_ADVICE, PageTable, memcg_of, pages_in, within};
use crate::Error;
use isotherm_heat::source::{Clear, ClearedProcess};
use isotherm_heat::track::is_worth_a_stall;
use isotherm_heat::{Mask, PmdBits};
use isotherm_sys::clear_refs;
use isotherm_sys::clock;
use isotherm_sys::proc::{MapEntry, Status};
use isotherm_units::{AddrRange, PAGES_PER_PMD, PmdNo};
use std::collections::HashMap;
use std::io;

/// A process is not cleared as a whole if its page faults would wait for longer than this.
const MAX_STALL_NS: u64 = 500_000_000;
/// The same where advice would clear it as well, but memory is short: 1.4 GiB.
const MAX_STALL_IN_SHORTAGE_NS: u64 = 20_000_000;
/// With so many huge ranges with mappings of files for each of private memory, the latter do not decide what is cleared.
const FILE_RANGES_THRESHOLD: usize = 8;
/// What a page takes: to clear it, and to step over it in a walk that only flushes the TLB.
const CLEAR_NS_PER_PAGE: u64 = 50;
const FLUSH_NS_PER_PAGE: u64 = 3;

/// Huge ranges that a clear reaches as a whole, and those of which it reaches these pages.
type Reached = (Vec<PmdNo>, Vec<(PmdNo, Mask)>);

impl PageTable {
    /// Clears the whole process, `stuck` included: see [`isotherm_heat::source::PageSource::clear_process`].
    pub(super) fn clear_whole(&mut self, pid: u32, stuck: &[PmdNo], all: &[PmdNo]) -> Result<ClearedProcess, Error> {
        match self.clear_by {
            ClearBy::Mglru => return self.age_process(pid, all),
            ClearBy::Cold => return Ok(none_cleared()),
            ClearBy::Auto | ClearBy::Refs => {}
        }
        let Some(which) = self.which(pid, stuck)? else { return Ok(none_cleared()) };
        let (mut pmds, partly) = self.reached_by(pid, which, all)?;
        let tid = self.target(pid)?.tid;
        let began = clock::monotonic_ns();
        let failed = |source: io::Error| match source.raw_os_error() {
            Some(ENOENT | ESRCH) => self.without_thread(pid),
            _ => {
                let instead = if self.cold_denied { ", since process_madvise is not permitted" } else { "" };
                Error::Io { attempted: format!("write /proc/{pid}/task/{tid}/clear_refs{instead}"), source }
            }
        };
        // Not `/proc/TID`: the number of a thread that has ended may be reused by another process.
        let tasks = self.proc.path(pid, "task");
        match clear_refs::clear(&tasks, tid, which) {
            // Another user's process, without CAP_DAC_OVERRIDE. What advice reaches is still measured.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && self.has_advice(pid) => {
                self.target(pid)?.shortage.give_up();
                return Ok(none_cleared());
            }
            cleared => cleared.map_err(failed)?,
        }
        let flushed = !self.soft_dirty;
        if flushed {
            clear_refs::flush_tlb(&tasks, tid).map_err(failed)?;
        }
        // A write to a thread that has ended succeeds and clears nothing.
        if !self.proc.thread_state(pid, tid).is_ok_and(|state| !is_of_ended(state)) {
            return Err(self.without_thread(pid));
        }
        if !flushed {
            // The caller has read these as well, and must learn that they are cleared.
            let advised = self.flush_by_advice(pid)?;
            pmds.extend(advised.into_iter().filter(|pmd| all.binary_search(pmd).is_ok()));
            pmds.sort_unstable();
            pmds.dedup();
        }
        let at = clock::monotonic_ns();
        Ok(ClearedProcess { clear: Clear { at, stall_ns: at - began, flushed }, pmds, partly })
    }

    /// What to clear for these huge ranges; `None` if page faults of the process would wait for too long. Where advice clears nothing, there is no
    /// other way, and no limit.
    fn which(&self, pid: u32, stuck: &[PmdNo]) -> Result<Option<clear_refs::Clear>, Error> {
        let maps = self.attached.get(&pid).ok_or(Error::Gone(pid))?.maps.entries();
        // Libraries may lie behind a stack of a thread: what is stuck there are most probably their pages.
        let is_of_file = |pmd: &PmdNo| !pages_in(maps, *pmd, |m| !m.is_anonymous()).is_empty();
        let of_files = stuck.iter().filter(|pmd| is_of_file(pmd)).count();
        let status = self.status(pid)?;
        let is_short = |which| !self.has_advice(pid) || stall_ns(which, &status, !self.soft_dirty) <= MAX_STALL_NS;
        Ok(match wanted(of_files, stuck.len() - of_files, &status) {
            which if is_short(which) => Some(which),
            // Locked or forked private memory stays unmeasured then, and not what files hold, too.
            clear_refs::Clear::All if of_files > 0 && is_short(clear_refs::Clear::File) => {
                Some(clear_refs::Clear::File)
            }
            _ => None,
        })
    }

    /// Which of `all` such a clear reaches, and those of which it reaches a part.
    fn reached_by(&self, pid: u32, which: clear_refs::Clear, all: &[PmdNo]) -> Result<Reached, Error> {
        if which != clear_refs::Clear::File {
            return Ok((all.to_vec(), Vec::new()));
        }
        let maps = self.attached.get(&pid).ok_or(Error::Gone(pid))?.maps.entries();
        let (mut pmds, mut partly) = (Vec::new(), Vec::new());
        for pmd in all {
            match pages_in(maps, *pmd, |m| !m.is_anonymous()) {
                Mask::NONE => {}
                _ if pages_in(maps, *pmd, MapEntry::is_anonymous).is_empty() => pmds.push(*pmd),
                pages => partly.push((*pmd, pages)),
            }
        }
        Ok((pmds, partly))
    }

    /// Whether page faults of a process wait so briefly while it is cleared that this is better than advice where memory is short.
    pub(super) fn stalls_briefly(&self, status: &Status) -> bool {
        stall_ns(clear_refs::Clear::All, status, !self.soft_dirty) <= MAX_STALL_IN_SHORTAGE_NS
    }

    /// Whether single huge ranges of the process are cleared by advice where nothing is short.
    pub(super) fn has_advice(&self, pid: u32) -> bool {
        self.clear_by == ClearBy::Auto && self.reaches_by_advice(pid)
    }

    /// Whether the kernel takes advice for the process from us.
    pub(super) fn reaches_by_advice(&self, pid: u32) -> bool {
        !self.cold_denied && self.attached.get(&pid).is_some_and(|attached| !attached.main_has_exited)
    }

    /// Ages the cgroup of the process. Some pages are skipped, and the kernel does not report which: locked ones, those
    /// charged to another cgroup, and all of them if the mmap lock was held for writing. So the bits are read back.
    ///
    /// Private memory that is young afterwards was touched again, unless nothing at all was cleared: then aging is
    /// tried again. In other memory, a huge range counts as not cleared if most of it was skipped.
    fn age_process(&mut self, pid: u32, all: &[PmdNo]) -> Result<ClearedProcess, Error> {
        let private: Vec<bool> = {
            let maps = self.target(pid)?.maps.entries();
            let is_private = |pmd: &PmdNo| within(maps, *pmd).filter(|m| m.is_monitorable()).all(is_private);
            all.iter().map(is_private).collect()
        };
        let mut tries = 0;
        loop {
            tries += 1;
            if let Some(mglru) = &self.mglru {
                mglru.age_all(&memcg_of(mglru, &self.proc, pid)?)?;
            }
            let at = clock::monotonic_ns();
            let young = self.mostly_young(pid, all)?;
            let reached = private.iter().zip(&young).any(|(private, young)| *private && *young == Some(false));
            if !reached && tries < AGING_TRIES {
                continue;
            }
            let any_locked = self.status(pid)?.locked.unwrap_or_default().0 > 0;
            let mut pmds = Vec::with_capacity(all.len());
            for ((pmd, private), young) in all.iter().zip(private).zip(young) {
                let cleared = match young {
                    Some(false) => true,
                    Some(true) => private && !(any_locked && self.is_locked(pid, pmd.addr())?),
                    None => false,
                };
                if cleared {
                    pmds.push(*pmd);
                }
            }
            let clear = Clear { at, ..Clear::default() };
            return Ok(ClearedProcess { clear, pmds, partly: Vec::new() });
        }
    }

    /// For each of `pmds`, whether more than a quarter of its pages are young; `None` if it could not be read.
    fn mostly_young(&mut self, pid: u32, pmds: &[PmdNo]) -> Result<Vec<Option<bool>>, Error> {
        let mut young = HashMap::with_capacity(pmds.len());
        self.read_pmds(pid, pmds, &mut |_, pmd, bits| {
            if let Some(bits) = bits {
                young.insert(
                    pmd,
                    match bits {
                        PmdBits::Pages { young, present } => young.count() * 4 > present.count(),
                        PmdBits::Huge { young } => young,
                        PmdBits::Gone => false,
                    },
                );
            }
        })?;
        Ok(pmds.iter().map(|pmd| young.get(pmd).copied()).collect())
    }

    /// A TLB flush on kernels where `clear_refs` has none: `MADV_COLD` over private memory flushes what it clears, and
    /// the whole TLB if that was more than 33 pages. This is not certain, so it does not count as a flush. Returns the
    /// huge ranges that it has cleared.
    fn flush_by_advice(&mut self, pid: u32) -> Result<Vec<PmdNo>, Error> {
        let private = |m: &&MapEntry| is_private(m) && m.is_monitorable();
        let largest = self.target(pid)?.maps.entries().iter().filter(private).max_by_key(|m| m.range.len());
        let Some(range) = largest.map(|m| m.range) else { return Ok(Vec::new()) };
        // Whole huge ranges only: a range that ends within a large folio would split it.
        let first = PmdNo(range.start.pmd().0 + 1);
        let last = PmdNo((first.0 + PMDS_PER_ADVICE).min(range.end.pmd().0));
        if first >= last {
            return Ok(Vec::new());
        }
        let refusal = self.advise(pid, AddrRange::new(first.addr(), last.addr()))?;
        Ok(if refusal.is_some() { Vec::new() } else { (first.0..last.0).map(PmdNo).collect() })
    }
}

/// What to clear for so many huge ranges with mappings of files, and so many without. A forked process may share a huge range or two with its parent
/// still, beside libraries, and for these all of its memory would be walked and accessed anew. Of a sampled process each stands for a region.
fn wanted(of_files: usize, private: usize, status: &Status) -> clear_refs::Clear {
    let private_pages = (private * PAGES_PER_PMD) as u64;
    let is_worth_all = is_worth_a_stall(private_pages, || status.rss.unwrap_or_default().pages());
    if is_worth_all || private * FILE_RANGES_THRESHOLD > of_files {
        clear_refs::Clear::All
    } else {
        clear_refs::Clear::File
    }
}

/// For how long page faults of a process wait while it is cleared, about. Written pages of private mappings of files are not among those of files
/// here, and a huge page counts as its small ones.
fn stall_ns(which: clear_refs::Clear, status: &Status, flushes: bool) -> u64 {
    let resident = status.rss.unwrap_or_default();
    let cleared = match which {
        clear_refs::Clear::File => status.rss_of_files.unwrap_or(resident),
        clear_refs::Clear::All | clear_refs::Clear::Anonymous => resident,
    };
    let flushed = if flushes { resident.pages() } else { 0 };
    cleared.pages() * CLEAR_NS_PER_PAGE + flushed * FLUSH_NS_PER_PAGE
}

/// The answer where a whole process may not be cleared.
fn none_cleared() -> ClearedProcess {
    ClearedProcess { clear: Clear { at: clock::monotonic_ns(), ..Clear::default() }, ..ClearedProcess::default() }
}

/// Memory private to the process, without a file.
pub(super) fn is_private(map: &MapEntry) -> bool {
    map.is_anonymous() && map.perms.is_private()
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_units::Bytes;

    #[test]
    fn a_clear_of_all_of_a_large_process_would_stall_it_and_one_of_its_files_would_not() {
        const GIB: u64 = 1 << 30;
        let of = |rss: u64, files| Status { rss: Some(Bytes(rss)), rss_of_files: files, ..Status::default() };
        let large = of(200 * GIB, Some(Bytes(GIB)));
        assert!(stall_ns(clear_refs::Clear::File, &large, true) < MAX_STALL_NS);
        assert!(stall_ns(clear_refs::Clear::All, &large, false) > MAX_STALL_NS);
        let small = of(30 * GIB, Some(Bytes(GIB)));
        assert!(stall_ns(clear_refs::Clear::All, &small, true) < MAX_STALL_NS);
        // Libraries alone would be fast, but a flush steps over all of it.
        assert!(stall_ns(clear_refs::Clear::File, &of(2048 * GIB, Some(Bytes(GIB))), true) > MAX_STALL_NS);
        // A kernel that does not tell files apart.
        assert_eq!(stall_ns(clear_refs::Clear::File, &of(GIB, None), false), 262_144 * CLEAR_NS_PER_PAGE);
    }

    #[test]
    fn for_a_huge_range_of_private_memory_beside_libraries_only_files_are_cleared() {
        use clear_refs::Clear::{All, File};
        let of_gib = |gib: u64| Status { rss: Some(Bytes::of_mib(gib * 1024)), ..Status::default() };
        let large = of_gib(8);
        assert_eq!(
            [(8, 0), (8, 1), (7, 1), (0, 1)].map(|(files, private)| wanted(files, private, &large)),
            [File, File, All, All]
        );
        // A thousandth of 2 Mi pages are five huge ranges.
        assert_eq!([(80, 4), (80, 5)].map(|(files, private)| wanted(files, private, &large)), [File, All]);
        assert_eq!(wanted(80, 1, &of_gib(1)), All, "of a small process it takes little");
    }
}
