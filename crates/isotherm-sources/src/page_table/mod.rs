//! Accessed bits page by page: read through BPF, cleared with `MADV_COLD`, or with `clear_refs` where that is refused.
//!
//! `isotherm-bpf` has the reader, and `isotherm-sys` the system calls; this module knows mappings. `MADV_COLD` is the
//! default because it takes only the read lock, works in small pieces and flushes the TLB, so that a small hot set is
//! seen from the first millisecond. It silently skips pages that several processes map, and refuses locked and hugetlb
//! mappings. So pages that are still young right after a clear are looked up in pagemap, and those that are not
//! exclusive to the process are reported as stuck.
//!
//! Aging of MGLRU is a third way, on request ([`ClearBy`]). It takes only the read lock. But it ages the pages of the
//! whole cgroup with those of the target, and it does not flush the TLB.
//!
//! This file has the source and its state of each process. `read` has the passes over page tables, `clear` the clearing
//! by advice, `few` the choice of pages for it where few were accessed, `shortage` when advice would do harm, `whole` the clearing of
//! whole processes, and `patience` how long reads wait for the mmap lock.

mod clear;
mod few;
mod patience;
mod read;
mod shared_mapping;
mod shortage;
mod whole;

use crate::Error;
use isotherm_bpf::page_table::{Answer, Kind, Op, Walker};
use isotherm_heat::source::{
    AccessSource, Accesses, Attached, BitsSink, ClearedProcess, ClearedSink, Description, Layout, PageSource, Progress,
    SourceResult,
};
use isotherm_heat::{Granularity, Mapping, Mask, Ns, TargetId};
use isotherm_sys::caps::Cap;
use isotherm_sys::clock;
use isotherm_sys::descriptors;
use isotherm_sys::lru_gen::{LruGen, Memcg};
use isotherm_sys::madvise::PidFd;
use isotherm_sys::pagemap::{Pagemap, kernel_has_soft_dirty};
use isotherm_sys::proc::{Cgroups, MapEntry, Maps, Proc, VmFlags};
use isotherm_units::{Addr, AddrRange, PAGES_PER_PMD, PmdNo};
use patience::Patience;
use shared_mapping::SharedMapping;
use shortage::Shortage;
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

const GIB_SHIFT: u32 = 30;
const PAGES_PER_PMD_U32: u32 = 512;
/// Huge ranges in one pass, which holds the target's mmap lock for about a millisecond.
const PMDS_PER_PASS: usize = 512;
/// Huge ranges cleared before they are verified together.
const PMDS_PER_CLEAR: usize = 64;
/// Neighbouring huge ranges advised in one call: about a quarter of a millisecond under the read lock.
pub const PMDS_PER_ADVICE: u64 = 8;
/// Threads of a process tried in turn for one that still has its memory. A process may have thousands of ended threads
/// that nobody waits for.
const MAX_THREAD_TRIES: usize = 1024;
/// Agings before a process whose memory is all young counts as all hot.
const AGING_TRIES: u32 = 3;
/// The minimum time between two reads of mapping flags, and the share of time that they may take.
const FLAGS_EVERY: Ns = 10_000_000_000;
const FLAGS_SHARE: u64 = 500;
/// The LRU batches of all CPUs are drained at most this often.
const DRAIN_EVERY: Ns = 5_000_000_000;
/// RSS of processes with fewer huge ranges is not read.
const RSS_FROM: usize = 32;
const EINVAL: i32 = 22;
const ENOMEM: i32 = 12;
const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const ENOSYS: i32 = 38;
const ESRCH: i32 = 3;
const EAGAIN: i32 = 11;
const EINTR: i32 = 4;

/// How accessed bits are cleared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClearBy {
    /// `MADV_COLD`, and `clear_refs` where that is refused, or would make pages in use leave for swap.
    #[default]
    Auto,
    /// `MADV_COLD` only: what it cannot clear stays unmeasured, and no page fault of the target ever waits.
    Cold,
    /// `clear_refs` only, process by process.
    Refs,
    /// Aging of MGLRU only, cgroup by cgroup: other processes of the cgroup have their bits cleared too.
    Mglru,
}

/// The source. One walker serves all targets.
#[derive(Debug)]
pub struct PageTable {
    walker: Walker,
    proc: Proc,
    attached: HashMap<u32, Watched>,
    soft_dirty: bool,
    /// When the per-CPU LRU batches were last drained.
    drained_at: Ns,
    /// `process_madvise` is not permitted or not wanted: everything is cleared process by process.
    cold_denied: bool,
    clear_by: ClearBy,
    page_advice: few::PageAdvice,
    /// Where cgroups are mounted, once that was looked up.
    cgroups: Option<Cgroups>,
    /// Set if bits are cleared by aging.
    mglru: Option<LruGen>,
    /// A further remark for users.
    remark: String,
}

#[derive(Debug)]
struct Watched {
    pidfd: PidFd,
    pagemap: Option<Pagemap>,
    /// The thread whose memory is read: the main thread, or another if that has exited.
    tid: u32,
    /// The main thread has exited, others run. The kernel looks up the memory to advise through the main thread.
    main_has_exited: bool,
    /// Identifies its mm, to detect an exec. Known after the first pass. (A reused pid shows in the pidfd.)
    mm_id: Option<u64>,
    maps: Maps,
    /// Flags of mappings from `smaps`, read only when a mapping refuses that is not among them.
    flags: HashMap<Addr, VmFlags>,
    next_flags: Ns,
    /// Mappings with pages that other processes map as well, by start address: advice would be wasted on them.
    shared: HashMap<Addr, SharedMapping>,
    /// Pages that the kernel has put there, such as `[vdso]`, by huge range. Nothing clears them, so they would look hot for ever.
    kernel_made: Arc<[(PmdNo, Mask)]>,
    /// Whether memory is so short that advice would do harm.
    shortage: Shortage,
    few: few::Luck,
    patience: Patience,
    /// The number of huge ranges at the last listing.
    pmds: usize,
    /// It has grown since the batches were last drained.
    grown: bool,
}

impl PageTable {
    /// Loads the reader and checks it on our own memory.
    pub fn open() -> Result<PageTable, Error> {
        PageTable::open_clearing(ClearBy::Auto)
    }

    /// The same with a further remark for users, such as why there are no samples in addition.
    #[must_use]
    pub(crate) fn with_remark(self, remark: String) -> PageTable {
        PageTable { remark, ..self }
    }

    /// The same with a chosen way to clear bits; an error if that is not available.
    pub fn open_clearing(by: ClearBy) -> Result<PageTable, Error> {
        let mglru = if by == ClearBy::Mglru { Some(LruGen::open(Path::new("/sys"))?) } else { None };
        Ok(PageTable {
            clear_by: by,
            page_advice: few::PageAdvice::look_up(clock::monotonic_ns()),
            cgroups: None,
            remark: String::new(),
            mglru,
            walker: Walker::open()?,
            proc: Proc::default(),
            attached: HashMap::new(),
            drained_at: 0,
            soft_dirty: kernel_has_soft_dirty().unwrap_or(true),
            cold_denied: matches!(by, ClearBy::Refs | ClearBy::Mglru) || !may_advise(),
        })
    }

    fn target(&mut self, pid: u32) -> Result<&mut Watched, Error> {
        self.attached.get_mut(&pid).ok_or(Error::Gone(pid))
    }
}

/// Whether we may advise other processes: it takes CAP_SYS_NICE. Unknown counts as yes, and the first refusal corrects
/// it.
fn may_advise() -> bool {
    let caps = Proc::default().status(std::process::id()).ok().and_then(|s| s.cap_eff);
    caps.is_none_or(|caps| caps & (1 << Cap::SysNice as u32) != 0)
}

impl Watched {
    /// Forgets mappings that are gone or were replaced, and findings that are too old: the other processes that mapped
    /// the pages may have ended. So the set is never larger than the list of mappings.
    fn forget_replaced(&mut self, now: Ns) {
        let maps = &self.maps;
        let at = |start| maps.find(start).filter(|m| m.range.start == start);
        self.flags.retain(|start, _| at(*start).is_some());
        self.shared.retain(|start, known| at(*start).is_some_and(|m| known.holds_for(m, now)));
    }

    fn check_identity(&mut self, pid: u32, mm: u64) -> Result<(), Error> {
        // Nothing was found within any mapping, so no mm was seen in this pass.
        if mm == 0 {
            return Ok(());
        }
        if *self.mm_id.get_or_insert(mm) == mm { Ok(()) } else { Err(Error::Replaced(pid)) }
    }
}

fn io_error(what: &str, pid: u32, source: io::Error) -> Error {
    Error::Io { attempted: format!("read /proc/{pid}/{what}"), source }
}

/// An address for each GiB that a mapping touches, in the mapping with most of it. One that comes and goes, and is gone when its address
/// is looked up, would take the others with it; the largest is seldom of that kind.
fn gib_addresses(maps: &[MapEntry]) -> Vec<Addr> {
    let mut found: Vec<AddrRange> = Vec::new();
    for map in maps.iter().filter(|m| m.is_monitorable() && !m.range.is_empty()) {
        let (first, last) = (map.range.start.0 >> GIB_SHIFT, (map.range.end.0 - 1) >> GIB_SHIFT);
        for gib in first..=last {
            let whole = AddrRange::new(Addr(gib << GIB_SHIFT), Addr((gib + 1) << GIB_SHIFT));
            let Some(part) = map.range.intersect(whole) else { continue };
            match found.last_mut() {
                Some(last) if last.start.0 >> GIB_SHIFT == gib => *last = larger(*last, part),
                _ => found.push(part),
            }
        }
    }
    found.into_iter().map(|part| part.start).collect()
}

/// The larger range, or the first of two that are alike.
fn larger(first: AddrRange, second: AddrRange) -> AddrRange {
    if second.len() > first.len() { second } else { first }
}

/// The mappings in a huge range.
fn within(maps: &[MapEntry], pmd: PmdNo) -> impl Iterator<Item = &MapEntry> {
    let range = pmd.range();
    let first = maps.partition_point(|m| m.range.end <= range.start);
    maps[first..].iter().take_while(move |m| m.range.start < range.end)
}

/// The pages of a huge range that lie in a mapping.
fn pages_of(map: &MapEntry, pmd: PmdNo) -> Mask {
    let index = |addr: Addr| {
        let pages = addr.page().0.saturating_sub(pmd.page(0).0);
        usize::try_from(pages).map_or(PAGES_PER_PMD, |pages| pages.min(PAGES_PER_PMD))
    };
    Mask::of_range(index(map.range.start)..index(map.range.end))
}

/// The pages of a huge range that lie in mappings of a kind.
fn pages_in(maps: &[MapEntry], pmd: PmdNo, wanted: impl Fn(&MapEntry) -> bool) -> Mask {
    within(maps, pmd).filter(|m| wanted(m)).fold(Mask::NONE, |pages, m| pages | pages_of(m, pmd))
}

/// The pages of what only the kernel maps, such as `[vdso]`, by huge range.
fn kernel_made(maps: &[MapEntry]) -> Arc<[(PmdNo, Mask)]> {
    let mut pmds: Vec<PmdNo> = maps.iter().filter(|m| !m.is_monitorable()).flat_map(|m| m.range.pmds()).collect();
    pmds.dedup();
    pmds.into_iter().map(|pmd| (pmd, pages_in(maps, pmd, |m| !m.is_monitorable()))).collect()
}

/// Huge ranges of the GiB around `addr` that an answer to [`Op::Tables`] lists.
fn populated(addr: Addr, answer: &Answer, out: &mut Vec<PmdNo>) {
    let first = Addr(addr.0 >> GIB_SHIFT << GIB_SHIFT).pmd().0;
    let listed = match answer.kind() {
        Kind::Pages => Mask(answer.b),
        Kind::Leaf1G => Mask::ALL,
        _ => Mask::NONE,
    };
    push_all(first, listed, out);
}

/// Adds the huge ranges of a mask, which begins with number `first`. Most of a large memory is populated as a whole: a word with all bits
/// set takes no look at each.
fn push_all(first: u64, listed: Mask, out: &mut Vec<PmdNo>) {
    for (first, word) in (first..).step_by(64).zip(listed.0) {
        match word {
            0 => {}
            u64::MAX => out.extend((first..first + 64).map(PmdNo)),
            _ => out.extend((0..64).filter(|bit| word >> bit & 1 == 1).map(|bit| PmdNo(first + bit))),
        }
    }
}

impl PageTable {
    /// Starts to monitor a process: opens the descriptors that this takes.
    fn watch(&mut self, pid: u32) -> Result<Attached, Error> {
        let pidfd = PidFd::open(pid).map_err(|source| match source.raw_os_error() {
            Some(ESRCH | EINVAL) => Error::Gone(pid),
            _ => Error::Io { attempted: format!("open process {pid}"), source },
        })?;
        // Fails before the targets that are monitored already, and the output files, run out of descriptors.
        if !descriptors::leaves_reserve(&pidfd) {
            return Err(Error::NoDescriptors { pid, limit: descriptors::limit() });
        }
        let stat = self.proc.stat(pid)?;
        let pagemap = match Pagemap::open(self.proc.root(), pid) {
            Ok(pagemap) => Some(pagemap),
            Err(e) if descriptors::are_short(&e) => return Err(io_error("pagemap", pid, e)),
            Err(_) => None,
        };
        let watched = Watched {
            pidfd,
            pagemap,
            tid: pid,
            main_has_exited: false,
            mm_id: None,
            maps: Maps::default(),
            flags: HashMap::new(),
            next_flags: 0,
            shared: HashMap::new(),
            kernel_made: Arc::default(),
            shortage: Shortage::default(),
            few: few::Luck::default(),
            patience: Patience::default(),
            pmds: 0,
            grown: true,
        };
        self.attached.insert(pid, watched);
        Ok(Attached::here(TargetId { pid, start_ticks: stat.start_ticks }, stat.comm))
    }

    /// Reads the mappings, through any thread that still has the memory.
    fn read_maps(&mut self, pid: u32) -> Result<(), Error> {
        let proc = self.proc.clone();
        let mut ended = Vec::new();
        loop {
            let attached = self.target(pid)?;
            if attached.tid == pid {
                attached.maps.read(&proc, pid)?;
            } else if let Err(error) = attached.maps.read_thread(&proc, pid, attached.tid)
                && !error.is_gone()
            {
                return Err(error.into());
            }
            if !attached.maps.entries().is_empty() {
                return Ok(());
            }
            // Perhaps only this thread has ended. The others show the same maps.
            self.other_thread(pid, &mut ended)?;
        }
    }

    fn listed(&mut self, pid: u32) -> Result<Layout, Error> {
        if self.target(pid)?.pidfd.has_exited() {
            return Err(Error::Gone(pid));
        }
        self.read_maps(pid)?;
        let attached = self.target(pid)?;
        attached.forget_replaced(clock::monotonic_ns());
        attached.kernel_made = kernel_made(attached.maps.entries());
        let addresses = gib_addresses(attached.maps.entries());
        let mut pmds = Vec::new();
        let progress =
            self.pass(pid, Op::Tables, &addresses, &mut |_, i, answer| populated(addresses[i], answer, &mut pmds))?;
        if progress.read_errors > 0 {
            return Err(Error::Io {
                attempted: format!("list the page tables of process {pid}"),
                source: io::Error::other(format!("{} reads of kernel memory failed", progress.read_errors)),
            });
        }
        if progress.answered < addresses.len() {
            return Err(Error::Busy(pid));
        }
        let maps = self.target(pid)?.maps.entries();
        // Two mappings in one huge range, or two GiB addresses in one GiB, must list a huge range once. Both lists are sorted.
        pmds.dedup();
        Self::keep_mapped(maps, &mut pmds);
        let mappings = maps.iter().filter(|m| m.is_monitorable()).map(mapping_of).collect();
        let attached = self.target(pid)?;
        attached.grown |= pmds.len() > attached.pmds;
        let before = std::mem::replace(&mut attached.pmds, pmds.len());
        // There may be hundreds of small processes. The first thread may have ended, and has no memory then.
        let tid = attached.tid;
        let rss = if before.max(pmds.len()) < RSS_FROM { None } else { self.proc.rss(pid, tid).ok() };
        Ok(Layout { pmds, mappings, rss, ..Layout::default() })
    }
}

impl AccessSource for PageTable {
    fn describe(&self) -> Description {
        let clear = match self.clear_by {
            ClearBy::Mglru => "cleared by aging of MGLRU, with those of all processes of the cgroup, and no TLB flush",
            ClearBy::Refs => "cleared through clear_refs only, which stalls the target's page faults",
            ClearBy::Cold if self.cold_denied => "not cleared: process_madvise takes CAP_SYS_NICE",
            ClearBy::Cold => "cleared with MADV_COLD, which flushes the TLB, and not where that is refused",
            ClearBy::Auto if self.cold_denied => {
                "cleared through clear_refs only, which stalls the target's page faults: process_madvise takes CAP_SYS_NICE"
            }
            ClearBy::Auto => {
                "cleared with MADV_COLD, which flushes the TLB, and clear_refs where that is refused or would make pages in use leave"
            }
        };
        Description {
            name: "page-table",
            granularity: Granularity::Page,
            accesses: Accesses::None,
            clears_others: self.clear_by == ClearBy::Mglru,
            note: format!(
                "accessed bits page by page, read through BPF ({} levels); {clear}{}{}",
                self.walker.levels(),
                if self.remark.is_empty() { "" } else { "; " },
                self.remark
            ),
        }
    }

    fn detach(&mut self, pid: u32) {
        if let Some(attached) = self.attached.remove(&pid) {
            self.walker.forget(attached.tid);
        }
    }

    fn attach(&mut self, pid: u32) -> SourceResult<Attached> {
        Ok(self.watch(pid)?)
    }

    fn layout(&mut self, pid: u32) -> SourceResult<Layout> {
        Ok(self.listed(pid)?)
    }

    fn as_pages(&mut self) -> Option<&mut dyn PageSource> {
        Some(self)
    }
}

impl PageSource for PageTable {
    fn read(&mut self, pid: u32, pmds: &[PmdNo], sink: &mut BitsSink<'_>) -> SourceResult<Progress> {
        Ok(self.read_pmds(pid, pmds, sink)?)
    }

    fn clear(&mut self, pid: u32, pmds: &[PmdNo], sink: &mut ClearedSink<'_>) -> SourceResult<Progress> {
        Ok(self.clear_pmds(pid, pmds, sink)?)
    }

    fn clear_process(&mut self, pid: u32, stuck: &[PmdNo], all: &[PmdNo]) -> SourceResult<ClearedProcess> {
        Ok(self.clear_whole(pid, stuck, all)?)
    }

    fn shared_frames(&mut self, pid: u32, pmds: &[PmdNo], each: &mut dyn FnMut(Option<u64>)) -> SourceResult<bool> {
        Ok(self.frames_of_shared(pid, pmds, each)?)
    }
}

/// The cgroup by which MGLRU sorts the pages of a process.
pub(crate) fn memcg_of(mglru: &LruGen, proc: &Proc, pid: u32) -> Result<Memcg, Error> {
    let membership = proc.membership(pid)?;
    Ok(mglru.of_path(membership.memory_path().unwrap_or("/"))?)
}

/// A mapping in the form that snapshots use.
pub(crate) fn mapping_of(entry: &MapEntry) -> Mapping {
    Mapping { range: entry.range, name: entry.name.to_string(), perms: entry.perms }
}
