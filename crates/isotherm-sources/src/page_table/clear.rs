//! Clears huge range by huge range, with advice. Finds out what refuses it, what it skips, and what is shared.

use super::few;
use super::shared_mapping::SharedMapping;
use super::whole::is_private;
use super::{
    ClearBy, DRAIN_EVERY, EAGAIN, EINTR, EINVAL, ENOMEM, ENOSYS, EPERM, ESRCH, PMDS_PER_ADVICE, PMDS_PER_CLEAR,
};
use super::{FLAGS_EVERY, FLAGS_SHARE, PAGES_PER_PMD_U32, PageTable, io_error, pages_in, pages_of, within};
use crate::Error;
use isotherm_heat::source::{Cleared, ClearedSink, Progress};
use isotherm_heat::{Mask, Ns, PmdBits};
use isotherm_sys::clock;
use isotherm_sys::lru;
use isotherm_sys::proc::{Evicted, MapEntry, Proc, SmapsEntry, VmFlags};
use isotherm_units::{Addr, AddrRange, PmdNo};
use std::collections::HashMap;

/// The worst result in a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Refusal {
    Nothing,
    /// Locked, or advice is not wanted: `clear_refs` can clear it.
    Stuck,
    /// Nothing can clear it.
    Final,
}

impl PageTable {
    /// Clears `pmds`, and no others.
    pub(super) fn clear_pmds(
        &mut self,
        pid: u32,
        pmds: &[PmdNo],
        sink: &mut ClearedSink<'_>,
    ) -> Result<Progress, Error> {
        let mut total = Progress::default();
        if !pmds.is_empty() {
            self.look_for_shortage(pid)?;
            self.drain(pid)?;
        }
        // `process_madvise` refuses hugetlb memory. `clear_refs` skips it without an error.
        let has_hugetlb = !self.advises(pid)? && self.status(pid)?.hugetlb.unwrap_or_default().0 > 0;
        for chunk in pmds.chunks(PMDS_PER_CLEAR) {
            let mut cleared = Vec::with_capacity(chunk.len());
            let found = self.look_for_few(pid, chunk, &mut total)?;
            let mut has_few = false;
            for run in chunk.chunk_by(|a, b| a.next() == *b && b.0 % PMDS_PER_ADVICE != 0) {
                let range = AddrRange::new(run[0].addr(), run[run.len() - 1].next().addr());
                let of_few = self.clear_few(pid, run, &found)?;
                has_few |= of_few;
                let refusal = if of_few { Refusal::Nothing } else { self.clear_run(pid, range)? };
                let at = clock::monotonic_ns();
                // Something in the run refused: ask huge range by huge range.
                let one_by_one = run.len() > 1 && refusal != Refusal::Nothing && self.advises(pid)?;
                for pmd in run {
                    let own = match refusal {
                        _ if one_by_one => self.clear_run(pid, pmd.range())?,
                        Refusal::Stuck if has_hugetlb && self.is_unlike(pid, pmd.addr())? => Refusal::Final,
                        of_run => of_run,
                    };
                    // With no other way allowed, what is stuck stays stuck.
                    let last_way = self.clear_by == ClearBy::Cold && own == Refusal::Stuck;
                    cleared.push((at, *pmd, if last_way { Refusal::Final } else { own }));
                }
            }
            self.target(pid)?.few.note(has_few);
            let verified = self.verify(pid, &cleared, sink)?;
            total.answered += chunk.len();
            total.add_reads(verified);
        }
        Ok(total)
    }

    /// Looks up whether memory of the process is short, if that is due and it can be cleared as a whole.
    fn look_for_shortage(&mut self, pid: u32) -> Result<(), Error> {
        let now = clock::monotonic_ns();
        if !self.has_advice(pid) || !self.target(pid)?.shortage.is_due(now) || !self.page_advice.has_swap(now) {
            return Ok(());
        }
        let status = self.status(pid)?;
        let counts = if self.stalls_briefly(&status) { self.evicted(pid)? } else { None };
        self.target(pid)?.shortage.note(now, &status, counts);
        Ok(())
    }

    /// What left the cgroup of the process so far, or the machine where its cgroup does not count that.
    fn evicted(&mut self, pid: u32) -> Result<Option<Evicted>, Error> {
        let membership = self.proc.membership(pid)?;
        let mounted = self.proc.known_cgroups(&mut self.cgroups);
        let own = mounted.and_then(|mounted| mounted.of(&membership)?.evicted().ok().flatten());
        // A cgroup may have been removed, and the process moved.
        Ok(own.or_else(|| self.proc.evicted().ok().flatten()))
    }

    /// Whether single huge ranges of the process are cleared by advice now.
    fn advises(&mut self, pid: u32) -> Result<bool, Error> {
        Ok(self.reaches_by_advice(pid) && !self.target(pid)?.shortage.holds(clock::monotonic_ns()))
    }

    /// Reads what is to be cleared, if advice for single pages may be enough for some of it.
    fn look_for_few(
        &mut self,
        pid: u32,
        pmds: &[PmdNo],
        total: &mut Progress,
    ) -> Result<HashMap<PmdNo, PmdBits>, Error> {
        let mut found = HashMap::new();
        if !self.advises(pid)? || !self.page_advice.is_allowed(clock::monotonic_ns()) || !self.target(pid)?.few.looks()
        {
            return Ok(found);
        }
        let read = self.read_pmds(pid, pmds, &mut |_, pmd, bits| {
            if let Some(bits) = bits {
                found.insert(pmd, bits);
            }
        })?;
        total.add_reads(read);
        Ok(found)
    }

    /// Clears one run of neighbouring huge ranges by advice for those of its pages that were accessed, if they are few, and all of it is
    /// private memory without files. Returns whether that was done: if not, the run is to be cleared as a whole.
    fn clear_few(&mut self, pid: u32, run: &[PmdNo], found: &HashMap<PmdNo, PmdBits>) -> Result<bool, Error> {
        let Some(ranges) = few::accessed_ranges(run, |pmd| found.get(&pmd).copied()) else { return Ok(false) };
        let attached = self.target(pid)?;
        let maps = attached.maps.entries();
        // Folios of files have any size.
        let of_files = run.iter().any(|pmd| !pages_in(maps, *pmd, |m| !m.is_anonymous()).is_empty());
        if of_files {
            return Ok(false);
        }
        let bytes: u64 = ranges.iter().map(|range| range.len().0).sum();
        // A part of it may be locked, or gone by now. The way for whole ranges finds out.
        Ok(ranges.is_empty() || attached.pidfd.advise_cold(&ranges).is_ok_and(|advised| advised == bytes))
    }

    /// Clears one run of neighbouring huge ranges. Returns what refused, if anything.
    fn clear_run(&mut self, pid: u32, run: AddrRange) -> Result<Refusal, Error> {
        if !self.advises(pid)? || self.is_known_shared(pid, run)? {
            return Ok(Refusal::Stuck);
        }
        match self.advise(pid, run)? {
            None => Ok(Refusal::Nothing),
            Some(EPERM) => {
                self.cold_denied = true;
                Ok(Refusal::Stuck)
            }
            Some(ESRCH) => Ok(Refusal::Stuck),
            // One of its mappings refuses, and the kernel did not reach what comes after it.
            Some(_) => self.clear_by_mapping(pid, run),
        }
    }

    /// Advises one range. Returns the errno of a refusal, or `None`. Holes are no refusal: the kernel advises what is
    /// mapped around them. `ESRCH`: the main thread has exited, and others run.
    pub(super) fn advise(&mut self, pid: u32, range: AddrRange) -> Result<Option<i32>, Error> {
        loop {
            let attached = self.target(pid)?;
            let Err(error) = attached.pidfd.advise_cold(&[range]) else { return Ok(None) };
            match error.raw_os_error() {
                Some(ENOMEM) => return Ok(None),
                Some(ESRCH) if attached.pidfd.has_exited() => return Err(Error::Gone(pid)),
                Some(ESRCH) => {
                    attached.main_has_exited = true;
                    return Ok(Some(ESRCH));
                }
                Some(EAGAIN | EINTR) => {}
                // A filter of system calls may answer that there is no such call.
                Some(EPERM | ENOSYS) => return Ok(Some(EPERM)),
                Some(EINVAL) => return Ok(Some(EINVAL)),
                _ => {
                    return Err(Error::Io {
                        attempted: format!("process_madvise(MADV_COLD) on process {pid}, {range:?}"),
                        source: error,
                    });
                }
            }
        }
    }

    /// Makes pages populated recently clearable: `MADV_COLD` skips those that wait in a CPU's LRU batch.
    ///
    /// If the batches cannot be drained, a few pages of each CPU look hot until they have moved on.
    fn drain(&mut self, pid: u32) -> Result<(), Error> {
        let now = clock::monotonic_ns();
        if self.target(pid)?.grown && self.advises(pid)? && now.saturating_sub(self.drained_at) >= DRAIN_EVERY {
            self.drained_at = now;
            let _ = lru::drain_batches();
            self.target(pid)?.grown = false;
        }
        Ok(())
    }

    /// Whether `run` lies within a mapping with pages that several processes map.
    fn is_known_shared(&mut self, pid: u32, run: AddrRange) -> Result<bool, Error> {
        let attached = self.target(pid)?;
        let within = |m: &MapEntry| run.end <= m.range.end && attached.shared.contains_key(&m.range.start);
        Ok(!attached.shared.is_empty() && attached.maps.find(run.start).is_some_and(within))
    }

    fn clear_by_mapping(&mut self, pid: u32, run: AddrRange) -> Result<Refusal, Error> {
        let maps = self.target(pid)?.maps.entries();
        let first = maps.partition_point(|m| m.range.end <= run.start);
        let parts: Vec<AddrRange> = maps[first..]
            .iter()
            .take_while(|m| m.range.start < run.end)
            // `[vvar]` refuses, and lies among the libraries: its huge range would be given up for pages without heat.
            .filter(|m| m.is_monitorable())
            .filter_map(|m| m.range.intersect(run))
            .collect();
        let mut refusal = Refusal::Nothing;
        for part in parts {
            let Some(errno) = self.advise(pid, part)? else { continue };
            let is_stuck = errno == ESRCH || self.is_locked(pid, part.start)?;
            refusal = refusal.max(if is_stuck { Refusal::Stuck } else { Refusal::Final });
        }
        Ok(refusal)
    }

    /// Whether a mapping refuses because it is locked, and not because it is hugetlb or device memory.
    ///
    /// The flags are in `smaps`. To read it takes an eighth of a microsecond per page and holds the target's mmap lock.
    /// So it is read only if anything is locked at all, and less often the longer it takes. A mapping that refuses is
    /// locked if it is neither hugetlb nor device memory, even if it was locked after that read. A mapping that was not
    /// in `smaps` at that time counts as locked: memory that is not measured yet is found later, but memory that is
    /// given up is not.
    pub(super) fn is_locked(&mut self, pid: u32, addr: Addr) -> Result<bool, Error> {
        if self.status(pid)?.locked.unwrap_or_default().0 == 0 {
            return Ok(false);
        }
        if self.target(pid)?.maps.find(addr).is_none() {
            return Ok(false);
        }
        Ok(self.flags_at(pid, addr)?.is_none_or(|flags| !is_unlike_others(flags)))
    }

    /// Whether an address lies in hugetlb or device memory, which no way clears. Costs as much as [`PageTable::is_locked`].
    fn is_unlike(&mut self, pid: u32, addr: Addr) -> Result<bool, Error> {
        Ok(self.flags_at(pid, addr)?.is_some_and(is_unlike_others))
    }

    /// The flags of the mapping around an address, if there is one and it was there when `smaps` was read.
    fn flags_at(&mut self, pid: u32, addr: Addr) -> Result<Option<VmFlags>, Error> {
        let (proc, now) = (self.proc.clone(), clock::monotonic_ns());
        let attached = self.target(pid)?;
        let Some(start) = attached.maps.find(addr).map(|m| m.range.start) else { return Ok(None) };
        if now >= attached.next_flags && !attached.flags.contains_key(&start) {
            let flags = flags_of(&proc, pid, attached.tid).map_err(|error| self.of_thread(pid, error))?;
            let done = clock::monotonic_ns();
            let attached = self.target(pid)?;
            attached.flags = flags;
            attached.next_flags = done + FLAGS_EVERY.max((done - now) * FLAGS_SHARE);
        }
        Ok(self.target(pid)?.flags.get(&start).copied())
    }

    /// The young pages of `pmd` that are not exclusive to the process, and so were not cleared.
    fn shared_among(&mut self, pid: u32, pmd: PmdNo, young: Mask) -> Result<Mask, Error> {
        let attached = self.target(pid)?;
        let maps = attached.maps.entries();
        let elsewhere = young & !pages_in(maps, pmd, is_private);
        // Private memory is shared only after a fork, and then all of it. If most of a huge range was cleared, the rest was
        // touched again. This saves hot huge ranges a read of pagemap, which costs a third of what the clear does.
        if elsewhere.is_empty() && young.count() < PAGES_PER_PMD_U32 / 4 {
            return Ok(Mask::NONE);
        }
        // Without pagemap, file memory and shared memory count as shared, private memory does not.
        let Some(pagemap) = &attached.pagemap else { return Ok(elsewhere) };
        let entries = pagemap.read(pmd.range()).map_err(|e| io_error("pagemap", pid, e))?;
        let shared = entries.iter().filter(|(_, e)| e.is_present() && !e.is_exclusive()).map(|(p, _)| p.index_in_pmd());
        let shared = shared.collect::<Mask>() & young;
        // File memory or shared memory: if one huge range is shared, so are its neighbours.
        let now = clock::monotonic_ns();
        for mapping in within(maps, pmd).filter(|m| !is_private(m) && !(shared & pages_of(m, pmd)).is_empty()) {
            attached.shared.insert(mapping.range.start, SharedMapping::of(mapping, now));
        }
        Ok(shared)
    }

    /// Reads back what was just cleared. Pages still young and not exclusive to the process were not cleared.
    fn verify(
        &mut self,
        pid: u32,
        cleared: &[(Ns, PmdNo, Refusal)],
        sink: &mut ClearedSink<'_>,
    ) -> Result<Progress, Error> {
        let pmds: Vec<PmdNo> = cleared.iter().map(|(_, b, _)| *b).collect();
        let mut young = HashMap::new();
        let progress = self.read_pmds(pid, &pmds, &mut |_, pmd, bits| {
            if let Some(bits) = bits {
                let still = match bits {
                    PmdBits::Pages { young, .. } => young,
                    PmdBits::Huge { young: true } => Mask::ALL,
                    _ => Mask::NONE,
                };
                young.insert(pmd, still);
            }
        })?;
        for (at, pmd, refusal) in cleared {
            let outcome = match (refusal, young.get(pmd)) {
                (Refusal::Final, _) => Cleared::Refused,
                (Refusal::Stuck, still) => Cleared::Except(still.copied().unwrap_or(Mask::ALL)),
                (Refusal::Nothing, Some(still)) => Cleared::Except(self.shared_among(pid, *pmd, *still)?),
                (Refusal::Nothing, None) => Cleared::Except(perhaps_shared(self.target(pid)?.maps.entries(), *pmd)),
            };
            sink(*at, *pmd, outcome);
        }
        Ok(progress)
    }
}

/// The flags of all mappings, by start address, through a thread.
fn flags_of(proc: &Proc, pid: u32, tid: u32) -> Result<HashMap<Addr, VmFlags>, isotherm_sys::proc::Error> {
    let flags = |entry: SmapsEntry| (entry.map.range.start, entry.flags.unwrap_or_default());
    proc.smaps_of_thread(pid, tid)?.map(|entry| entry.map(flags)).collect()
}

/// Hugetlb and device memory.
fn is_unlike_others(flags: VmFlags) -> bool {
    flags.contains(VmFlags::HUGETLB) || flags.contains(VmFlags::PFNMAP) || flags.contains(VmFlags::IO)
}

/// Pages of `pmd` that may not have been cleared. The advice succeeded, but the mmap lock was held too long to read the bits back. Private
/// memory counts as cleared: it is shared only after a fork, and the next clear finds that.
fn perhaps_shared(maps: &[MapEntry], pmd: PmdNo) -> Mask {
    pages_in(maps, pmd, |map| !is_private(map))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clear_that_could_not_be_read_back_holds_for_private_memory() {
        let mapping = |start: u64, end: u64, perms: &str, inode| MapEntry {
            range: AddrRange::new(Addr(start), Addr(end)),
            perms: perms.parse().unwrap(),
            offset: 0,
            dev: (0, 0),
            inode,
            name: if inode > 0 { "/a/file".into() } else { "".into() },
        };
        let maps = [
            mapping(0x0020_0000, 0x0050_0000, "rw-p", 0),
            mapping(0x0050_0000, 0x0051_0000, "rw-s", 7),
            mapping(0x0051_0000, 0x0080_0000, "rw-p", 0),
        ];
        assert_eq!(perhaps_shared(&maps, PmdNo(1)), Mask::NONE);
        assert_eq!(perhaps_shared(&maps, PmdNo(2)), Mask::of_range(256..272));
        assert_eq!(perhaps_shared(&maps, PmdNo(3)), Mask::NONE);
    }
}
