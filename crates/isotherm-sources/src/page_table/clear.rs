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
use isotherm_sys::proc::{Evicted, MapEntry, VmFlags};
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
        for chunk in pmds.chunks(PMDS_PER_CLEAR) {
            let mut cleared = Vec::with_capacity(chunk.len());
            let found = self.look_for_few(pid, chunk, &mut total)?;
            for run in chunk.chunk_by(|a, b| a.next() == *b && b.0 % PMDS_PER_ADVICE != 0) {
                let range = AddrRange::new(run[0].addr(), run[run.len() - 1].next().addr());
                let refusal =
                    if self.clear_few(pid, run, &found)? { Refusal::Nothing } else { self.clear_run(pid, range)? };
                let at = clock::monotonic_ns();
                // Something in the run refused: ask huge range by huge range.
                let one_by_one = run.len() > 1 && refusal != Refusal::Nothing && self.advises(pid)?;
                for pmd in run {
                    let own = if one_by_one { self.clear_run(pid, pmd.range())? } else { refusal };
                    // With no other way allowed, what is stuck stays stuck.
                    let last_way = self.clear_by == ClearBy::Cold && own == Refusal::Stuck;
                    cleared.push((at, *pmd, if last_way { Refusal::Final } else { own }));
                }
            }
            let verified = self.verify(pid, &cleared, sink)?;
            total.answered += chunk.len();
            total.add_reads(verified);
        }
        Ok(total)
    }

    /// Looks up whether memory of the process is short, if that is due and it can be cleared as a whole.
    fn look_for_shortage(&mut self, pid: u32) -> Result<(), Error> {
        let now = clock::monotonic_ns();
        if !self.has_advice() || !self.target(pid)?.shortage.is_due(now) || !self.page_advice.has_swap(now) {
            return Ok(());
        }
        let status = self.proc.status(pid)?;
        let counts = if self.stalls_briefly(&status) { self.evicted(pid)? } else { None };
        self.target(pid)?.shortage.note(now, &status, counts);
        Ok(())
    }

    /// What left the cgroup of the process so far, or the machine where its cgroup does not count that.
    fn evicted(&mut self, pid: u32) -> Result<Option<Evicted>, Error> {
        let membership = self.proc.membership(pid)?;
        let mounted = self.cgroups.get_or_insert_with(|| self.proc.cgroups().unwrap_or_default());
        let own = mounted.of(&membership).and_then(|cgroup| cgroup.evicted().ok().flatten());
        // A cgroup may have been removed, and the process moved.
        Ok(own.or_else(|| self.proc.evicted().ok().flatten()))
    }

    /// Whether single huge ranges of the process are cleared by advice now.
    fn advises(&mut self, pid: u32) -> Result<bool, Error> {
        Ok(!self.cold_denied && !self.target(pid)?.shortage.holds(clock::monotonic_ns()))
    }

    /// Reads what is to be cleared, if advice for single pages may be enough for some of it.
    fn look_for_few(
        &mut self,
        pid: u32,
        pmds: &[PmdNo],
        total: &mut Progress,
    ) -> Result<HashMap<PmdNo, PmdBits>, Error> {
        let mut found = HashMap::new();
        if !self.advises(pid)? || !self.page_advice.is_allowed(clock::monotonic_ns()) {
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
            // One of its mappings refuses, and the kernel did not reach what comes after it.
            Some(_) => self.clear_by_mapping(pid, run),
        }
    }

    /// Advises one range. Returns the errno of a refusal, or `None`. Holes are no refusal: the kernel advises what is
    /// mapped around them.
    pub(super) fn advise(&mut self, pid: u32, range: AddrRange) -> Result<Option<i32>, Error> {
        loop {
            let Err(error) = self.target(pid)?.pidfd.advise_cold(&[range]) else { return Ok(None) };
            match error.raw_os_error() {
                Some(ENOMEM) => return Ok(None),
                Some(ESRCH) => return Err(Error::Gone(pid)),
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
            if self.advise(pid, part)?.is_some() {
                refusal = refusal.max(if self.is_locked(pid, part.start)? { Refusal::Stuck } else { Refusal::Final });
            }
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
        if self.proc.status(pid)?.locked.unwrap_or_default().0 == 0 {
            return Ok(false);
        }
        let (proc, now) = (self.proc.clone(), clock::monotonic_ns());
        let attached = self.target(pid)?;
        let Some(start) = attached.maps.find(addr).map(|m| m.range.start) else { return Ok(false) };
        if now >= attached.next_flags && !attached.flags.contains_key(&start) {
            attached.flags.clear();
            for entry in proc.smaps(pid)? {
                let entry = entry?;
                attached.flags.insert(entry.map.range.start, entry.flags.unwrap_or_default());
            }
            let done = clock::monotonic_ns();
            attached.next_flags = done + FLAGS_EVERY.max((done - now) * FLAGS_SHARE);
        }
        let unlike =
            |f: &VmFlags| f.contains(VmFlags::HUGETLB) || f.contains(VmFlags::PFNMAP) || f.contains(VmFlags::IO);
        Ok(attached.flags.get(&start).is_none_or(|f| !unlike(f)))
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
            // Not read back. Its state is unknown, so it is treated as if nothing had been cleared.
            let still = young.get(pmd).copied().unwrap_or(Mask::ALL);
            let outcome = match refusal {
                Refusal::Final => Cleared::Refused,
                Refusal::Stuck => Cleared::Except(still),
                Refusal::Nothing if still.is_empty() => Cleared::Except(Mask::NONE),
                Refusal::Nothing if !young.contains_key(pmd) => Cleared::Except(Mask::ALL),
                Refusal::Nothing => Cleared::Except(self.shared_among(pid, *pmd, still)?),
            };
            sink(*at, *pmd, outcome);
        }
        Ok(progress)
    }
}
