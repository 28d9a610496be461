//! Accessed bits page by page: read through BPF, cleared with `MADV_COLD`, or `clear_refs` where that is refused.
//!
//! `isotherm-sys` has the reader and the system calls; this module knows mappings. `MADV_COLD` is the default because it takes
//! only the read lock, goes in small pieces and flushes the TLB, so that a small hot set is seen from the first millisecond. It
//! skips pages that several processes map, in silence, and refuses locked and hugetlb mappings; so what is still young right
//! after a clear is looked up in pagemap, and what is not the process's own is reported as stuck.
//!
//! The aging of MGLRU is a third way, for those who choose it ([`ClearBy`]): it takes the read lock only, but the pages of the whole
//! cgroup are aged with those of the target, and the TLB is not flushed.

use crate::{AccessSource, Accesses, Cleared, ClearedProcess, Description, Error, Layout, Progress, Report, Sink};
use isotherm_bpf::page_table::{Answer, Kind, MAX_REQUESTS, Op, Walker};
use isotherm_heat::{BlockBits, Granularity, Mapping, Mask, Ns, TargetId};
use isotherm_sys::clear_refs::{self, Clear};
use isotherm_sys::clock;
use isotherm_sys::descriptors;
use isotherm_sys::lru;
use isotherm_sys::lru_gen::{LruGen, Memcg};
use isotherm_sys::madvise::PidFd;
use isotherm_sys::pagemap::{Pagemap, kernel_has_soft_dirty};
use isotherm_sys::proc::{MapEntry, Maps, Perms, Proc, VmFlags};
use isotherm_units::{Addr, AddrRange, BlockNo, PAGES_PER_BLOCK};
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::time::Duration;

const GIB_SHIFT: u32 = 30;
const PAGES_PER_BLOCK_U32: u32 = 512;
/// Blocks in one pass: holds the target's map for about a millisecond.
const BLOCKS_PER_PASS: usize = 512;
/// Blocks cleared before they are verified together.
const BLOCKS_PER_CLEAR: usize = 64;
/// Neighbouring blocks advised in one piece: about a quarter of a millisecond under the read lock.
const BLOCKS_PER_ADVICE: u64 = 8;
/// Tries at a map that is locked for writing, a millisecond apart.
const BUSY_TRIES: u32 = 50;
/// Threads of a process tried one after the other for one that still has its memory. A process may have thousands that have ended and
/// that nobody waits for.
const MAX_THREAD_TRIES: usize = 1024;
/// Agings before a process all of whose memory is young is taken to be all hot.
const AGING_TRIES: u32 = 3;
/// How often flags of mappings are read at the most, and the share of the time that may take.
const FLAGS_EVERY: Ns = 10_000_000_000;
const FLAGS_SHARE: u64 = 500;
/// How long a mapping is taken to be shared since its pages were last found to be.
const SHARED_FOR: Ns = 60_000_000_000;
/// At most this often are the CPUs asked to empty their batches.
const DRAIN_EVERY: Ns = 5_000_000_000;
const EINVAL: i32 = 22;
const ENOMEM: i32 = 12;
const EPERM: i32 = 1;
const ESRCH: i32 = 3;
const EAGAIN: i32 = 11;
const EINTR: i32 = 4;

/// How accessed bits are cleared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClearBy {
    /// `MADV_COLD`, and `clear_refs` where that is refused.
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
    attached: HashMap<u32, Attached>,
    soft_dirty: bool,
    /// When the batches of pages on their way to an LRU list were last emptied.
    drained_at: Ns,
    /// `process_madvise` is not permitted or not wanted: everything is cleared process by process.
    cold_denied: bool,
    clear_by: ClearBy,
    /// If that is how bits are cleared.
    mglru: Option<LruGen>,
    /// What else people should know of it.
    remark: String,
}

#[derive(Debug)]
struct Attached {
    pidfd: PidFd,
    pagemap: Option<Pagemap>,
    /// The thread whose memory is read: the main thread, or another if that has exited.
    tid: u32,
    /// Which memory map it has, to tell an exec. Known after the first pass. (A reused pid shows in the pidfd.)
    mm_id: Option<u64>,
    maps: Maps,
    /// Flags of mappings, read from `smaps` when one of them refuses that is not among them, but not before then.
    flags: HashMap<Addr, VmFlags>,
    next_flags: Ns,
    /// Mappings in which pages were found that other processes map as well, by their starts: advice would be wasted on them.
    shared: HashMap<Addr, SharedMapping>,
    /// Blocks at the last listing.
    blocks: usize,
    /// It has got memory since the batches were last emptied.
    grown: bool,
}

impl PageTable {
    /// Loads the reader and checks it on our own memory.
    pub fn open() -> Result<PageTable, Error> {
        PageTable::open_clearing(ClearBy::Auto)
    }

    /// The same, with something more for people: such as why there are no samples beside it.
    #[must_use]
    pub(crate) fn with_remark(self, remark: String) -> PageTable {
        PageTable { remark, ..self }
    }

    /// The same, with bits cleared in a way of the caller's choice; an error if that cannot be had.
    pub fn open_clearing(by: ClearBy) -> Result<PageTable, Error> {
        let mglru = if by == ClearBy::Mglru { Some(LruGen::open(Path::new("/sys"))?) } else { None };
        Ok(PageTable {
            clear_by: by,
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

    fn target(&mut self, pid: u32) -> Result<&mut Attached, Error> {
        self.attached.get_mut(&pid).ok_or(Error::Gone(pid))
    }

    /// One pass over `addresses`; retried while the map is busy. Returns what was answered through `each`.
    fn pass(
        &mut self,
        pid: u32,
        op: Op,
        addresses: &[Addr],
        each: &mut dyn FnMut(usize, &Answer),
    ) -> Result<Progress, Error> {
        let mut progress = Progress::default();
        let mut tries = 0;
        let mut ended = Vec::new();
        while progress.answered < addresses.len() {
            let rest = &addresses[progress.answered..];
            let rest = &rest[..rest.len().min(BLOCKS_PER_PASS).min(MAX_REQUESTS)];
            let attached = self.attached.get_mut(&pid).ok_or(Error::Gone(pid))?;
            let (pass, answers) = self.walker.pass(attached.tid, op, rest)?;
            if !pass.has_memory {
                self.other_thread(pid, &mut ended)?;
                continue;
            }
            attached.check_identity(pid, pass.mm_id)?;
            for (index, answer) in answers.iter().enumerate() {
                each(progress.answered + index, answer);
            }
            progress.answered += pass.done;
            progress.read_errors += pass.read_errors;
            progress.longest_hold_ns = progress.longest_hold_ns.max(pass.longest_hold_ns);
            if pass.busy {
                tries += 1;
                if tries > BUSY_TRIES {
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(progress)
    }

    /// The thread we read through has no memory any more: takes one that was not tried before, or finds that the process has ended.
    ///
    /// `ended` are those tried since memory was last found. A process all of whose threads have ended, but that its tracer does not wait
    /// for, has neither exited nor any memory, and stays like that for as long as its tracer likes.
    fn other_thread(&mut self, pid: u32, ended: &mut Vec<u32>) -> Result<(), Error> {
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
        let has_ended = |tid| self.proc.thread_state(pid, tid).is_ok_and(|state| matches!(state, 'Z' | 'X' | 'x'));
        // What `stat` says may be out of date by the time it is read through: hence a list, and not only this.
        let other = threads.into_iter().find(|tid| !ended.contains(tid) && !has_ended(*tid));
        attached.tid = other.ok_or(Error::NoMemory(pid))?;
        Ok(())
    }

    /// An address in a mapping for each block (sorted), or `None` where nothing is mapped any more.
    pub(crate) fn anchors(maps: &[MapEntry], blocks: &[BlockNo]) -> Vec<Option<Addr>> {
        let mut at = 0;
        blocks
            .iter()
            .map(|block| {
                let range = block.range();
                at += maps[at..].partition_point(|m| m.range.end <= range.start);
                let mapping = maps[at..].iter().take_while(|m| m.range.start < range.end).find(|m| m.is_monitorable());
                mapping.map(|m| m.range.start.max(range.start))
            })
            .collect()
    }

    /// Clears one run of neighbouring blocks. Returns for each block what refused, if anything.
    fn clear_run(&mut self, pid: u32, run: AddrRange) -> Result<Refusal, Error> {
        if self.cold_denied || self.is_known_shared(pid, run)? {
            return Ok(Refusal::Stuck);
        }
        match self.advise(pid, run)? {
            None => Ok(Refusal::Nothing),
            Some(EPERM) => {
                self.cold_denied = true;
                Ok(Refusal::Stuck)
            }
            // One of the mappings in it refuses, and what lies behind was not reached.
            Some(_) => self.clear_by_mapping(pid, run),
        }
    }

    /// Advises one range: the errno of a refusal, or `None`. Holes are no refusal: the kernel does what is mapped around them.
    fn advise(&mut self, pid: u32, range: AddrRange) -> Result<Option<i32>, Error> {
        loop {
            let Err(error) = self.target(pid)?.pidfd.advise_cold(&[range]) else { return Ok(None) };
            match error.raw_os_error() {
                Some(ENOMEM) => return Ok(None),
                Some(ESRCH) => return Err(Error::Gone(pid)),
                Some(EAGAIN | EINTR) => {}
                Some(errno @ (EPERM | EINVAL)) => return Ok(Some(errno)),
                _ => {
                    return Err(Error::Io {
                        attempted: format!("process_madvise(MADV_COLD) on process {pid}, {range:?}"),
                        source: error,
                    });
                }
            }
        }
    }

    /// Sees to it that pages populated lately can be cleared: `MADV_COLD` passes over those that wait in a CPU's batch.
    ///
    /// Where it cannot be done a few pages of each CPU are taken for hot until they have moved on.
    fn drain(&mut self, pid: u32) -> Result<(), Error> {
        let now = clock::monotonic_ns();
        if self.target(pid)?.grown && !self.cold_denied && now.saturating_sub(self.drained_at) >= DRAIN_EVERY {
            self.drained_at = now;
            let _ = lru::drain_batches();
            self.target(pid)?.grown = false;
        }
        Ok(())
    }

    /// Whether `run` lies within a mapping of which several processes were found to map pages.
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

    /// Whether a mapping refuses because it is locked, and not for being hugetlb or device memory.
    ///
    /// The flags are in `smaps`, which takes an eighth of a microsecond a page and holds the target's map meanwhile: only read if
    /// anything is locked at all, and the more seldom the longer it takes. Of what refuses, all that is neither hugetlb nor device memory is
    /// locked, since whenever. A mapping that was not there the last time is taken to be: what is not measured yet is found later,
    /// what is given up is not.
    fn is_locked(&mut self, pid: u32, addr: Addr) -> Result<bool, Error> {
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

    /// Which young pages of `block` are not the process's alone, and so were not cleared.
    fn shared_among(&mut self, pid: u32, block: BlockNo, young: Mask) -> Result<Mask, Error> {
        let attached = self.target(pid)?;
        let private =
            attached.maps.find(block.addr()).is_some_and(|m| m.is_anonymous() && !m.perms.contains(Perms::SHARED));
        // Private memory is shared only after a fork, and then all of it: if most of a block was reached, the rest was touched
        // again. This spares hot blocks a read of pagemap, which costs a third of what the clear does.
        if private && young.count() < PAGES_PER_BLOCK_U32 / 4 {
            return Ok(Mask::NONE);
        }
        let Some(pagemap) = &attached.pagemap else {
            // Without pagemap, memory of files and shared memory is taken to be shared, private memory not to be.
            let mapping = attached.maps.find(block.addr());
            let maybe = mapping.is_some_and(|m| !m.is_anonymous() || m.perms.contains(Perms::SHARED));
            return Ok(if maybe { young } else { Mask::NONE });
        };
        let entries = pagemap.read(block.range()).map_err(|e| io_error("pagemap", pid, e))?;
        let shared =
            entries.iter().filter(|(_, e)| e.is_present() && !e.is_exclusive()).map(|(p, _)| p.index_in_block());
        let shared = shared.collect::<Mask>() & young;
        // Memory of a file or for several processes: as one block is, so are its neighbours.
        if let Some(mapping) = attached.maps.find(block.addr()).filter(|_| !private && !shared.is_empty()) {
            attached.shared.insert(mapping.range.start, SharedMapping::of(mapping, clock::monotonic_ns()));
        }
        Ok(shared)
    }
}

/// Whether we may advise other processes: it takes CAP_SYS_NICE. Unknown counts as yes: the first refusal shows.
fn may_advise() -> bool {
    const CAP_SYS_NICE: u64 = 1 << 23;
    let caps = Proc::default().status(std::process::id()).ok().and_then(|s| s.cap_eff);
    caps.is_none_or(|caps| caps & CAP_SYS_NICE != 0)
}

/// The worst that a range met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Refusal {
    Nothing,
    /// Locked: `clear_refs` reaches it.
    Stuck,
    /// Nothing reaches it.
    Final,
}

/// What was found to be mapped by several processes, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SharedMapping {
    dev: (u32, u32),
    inode: u64,
    offset: u64,
    perms: Perms,
    found_at: Ns,
}

impl SharedMapping {
    fn of(mapping: &MapEntry, found_at: Ns) -> SharedMapping {
        let MapEntry { dev, inode, offset, perms, .. } = *mapping;
        SharedMapping { dev, inode, offset, perms, found_at }
    }

    /// Whether this may still be taken to hold for `mapping`: it is the same memory, and was looked up not long ago.
    fn holds_for(&self, mapping: &MapEntry, now: Ns) -> bool {
        *self == SharedMapping::of(mapping, self.found_at) && now.saturating_sub(self.found_at) < SHARED_FOR
    }
}

impl Attached {
    /// Forgets what was known of mappings that are gone or were replaced, and what is too old to be relied on: the others that mapped
    /// the pages may have ended. Keeps the set no larger than the list of mappings.
    fn forget_replaced(&mut self, now: Ns) {
        let maps = &self.maps;
        let at = |start| maps.find(start).filter(|m| m.range.start == start);
        self.flags.retain(|start, _| at(*start).is_some());
        self.shared.retain(|start, known| at(*start).is_some_and(|m| known.holds_for(m, now)));
    }

    fn check_identity(&mut self, pid: u32, mm: u64) -> Result<(), Error> {
        // Nothing was found within any mapping: no map was seen in this pass.
        if mm == 0 {
            return Ok(());
        }
        if *self.mm_id.get_or_insert(mm) == mm { Ok(()) } else { Err(Error::Replaced(pid)) }
    }
}

fn io_error(what: &str, pid: u32, source: io::Error) -> Error {
    Error::Io { attempted: format!("read /proc/{pid}/{what}"), source }
}

fn bits(answer: &Answer) -> Option<BlockBits> {
    match answer.kind() {
        Kind::None | Kind::Unmapped => Some(BlockBits::Gone),
        Kind::Pages if answer.b == [0; 8] => Some(BlockBits::Gone),
        Kind::Pages => Some(BlockBits::Pages { young: Mask(answer.a), present: Mask(answer.b) }),
        Kind::Leaf2M | Kind::Leaf1G => Some(BlockBits::Huge { young: answer.a[0] & 1 == 1 }),
        Kind::Error => None,
    }
}

/// The first address of each GiB that a mapping touches.
fn gib_addresses(maps: &[MapEntry]) -> Vec<Addr> {
    let mut addresses: Vec<Addr> = Vec::new();
    for map in maps.iter().filter(|m| m.is_monitorable() && !m.range.is_empty()) {
        let (first, last) = (map.range.start.0 >> GIB_SHIFT, (map.range.end.0 - 1) >> GIB_SHIFT);
        for gib in first..=last {
            if addresses.last().is_none_or(|a| a.0 >> GIB_SHIFT != gib) {
                addresses.push(map.range.start.max(Addr(gib << GIB_SHIFT)));
            }
        }
    }
    addresses
}

/// Blocks of the GiB around `addr` that an answer to [`Op::Tables`] lists.
fn populated(addr: Addr, answer: &Answer, out: &mut Vec<BlockNo>) {
    let first = Addr(addr.0 >> GIB_SHIFT << GIB_SHIFT).block().0;
    let listed = match answer.kind() {
        Kind::Pages => Mask(answer.a) | Mask(answer.b),
        Kind::Leaf1G => Mask::ALL,
        _ => Mask::NONE,
    };
    out.extend(listed.iter().map(|i| BlockNo(first + i as u64)));
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
            ClearBy::Auto => "cleared with MADV_COLD, which flushes the TLB, and clear_refs where that is refused",
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

    fn attach(&mut self, pid: u32) -> Result<(TargetId, String), Error> {
        let pidfd = PidFd::open(pid).map_err(|source| match source.raw_os_error() {
            Some(ESRCH | EINVAL) => Error::Gone(pid),
            _ => Error::Io { attempted: format!("open process {pid}"), source },
        })?;
        // Before there are none left for what is watched already, and for writing down what was found.
        if !descriptors::leaves_reserve(&pidfd) {
            return Err(Error::NoDescriptors { pid, limit: descriptors::limit() });
        }
        let stat = self.proc.stat(pid)?;
        let pagemap = match Pagemap::open(self.proc.root(), pid) {
            Ok(pagemap) => Some(pagemap),
            Err(e) if descriptors::are_short(&e) => return Err(io_error("pagemap", pid, e)),
            Err(_) => None,
        };
        let attached = Attached {
            pidfd,
            pagemap,
            tid: pid,
            mm_id: None,
            maps: Maps::default(),
            flags: HashMap::new(),
            next_flags: 0,
            shared: HashMap::new(),
            blocks: 0,
            grown: true,
        };
        self.attached.insert(pid, attached);
        Ok((TargetId { pid, start_ticks: stat.start_ticks }, stat.comm))
    }

    fn detach(&mut self, pid: u32) {
        if let Some(attached) = self.attached.remove(&pid) {
            self.walker.forget(attached.tid);
        }
    }

    fn layout(&mut self, pid: u32) -> Result<Layout, Error> {
        let proc = self.proc.clone();
        let attached = self.target(pid)?;
        if attached.pidfd.has_exited() {
            return Err(Error::Gone(pid));
        }
        attached.maps.read(&proc, pid)?;
        let mut ended = Vec::new();
        while self.target(pid)?.maps.entries().is_empty() {
            // Perhaps only the main thread has ended: the others show the same maps.
            self.other_thread(pid, &mut ended)?;
            let attached = self.target(pid)?;
            attached.maps.read_thread(&proc, pid, attached.tid)?;
        }
        let attached = self.target(pid)?;
        attached.forget_replaced(clock::monotonic_ns());
        let addresses = gib_addresses(attached.maps.entries());
        let mut blocks = Vec::new();
        let progress =
            self.pass(pid, Op::Tables, &addresses, &mut |i, answer| populated(addresses[i], answer, &mut blocks))?;
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
        // Two mappings in one block, or two GiB addresses in one GiB, list a block once: both lists are sorted.
        blocks.dedup();
        let anchors = Self::anchors(maps, &blocks);
        let blocks: Vec<BlockNo> = blocks.iter().zip(anchors).filter_map(|(b, anchor)| anchor.map(|_| *b)).collect();
        let mappings = maps.iter().filter(|m| m.is_monitorable()).map(mapping_of).collect();
        let attached = self.target(pid)?;
        attached.grown |= blocks.len() > attached.blocks;
        attached.blocks = blocks.len();
        Ok(Layout { blocks, mappings, ..Layout::default() })
    }

    fn read(&mut self, pid: u32, blocks: &[BlockNo], sink: &mut Sink<'_>) -> Result<Progress, Error> {
        let mut total = Progress::default();
        for chunk in blocks.chunks(BLOCKS_PER_PASS) {
            let anchors = Self::anchors(self.target(pid)?.maps.entries(), chunk);
            let mapped: Vec<(BlockNo, Addr)> =
                chunk.iter().zip(&anchors).filter_map(|(b, a)| a.map(|a| (*b, a))).collect();
            for (block, _) in chunk.iter().zip(&anchors).filter(|(_, a)| a.is_none()) {
                sink(clock::monotonic_ns(), Report::Block(*block, BlockBits::Gone));
            }
            let addresses: Vec<Addr> = mapped.iter().map(|(_, a)| *a).collect();
            let mut entries = 0;
            // One time for the pass, which takes a millisecond at the most: asking the clock for each block costs as much as
            // reading fifty pages.
            let now = clock::monotonic_ns();
            let progress = self.pass(pid, Op::Blocks, &addresses, &mut |i, answer| {
                let Some(bits) = bits(answer) else { return sink(now, Report::Failed(mapped[i].0)) };
                entries += if matches!(bits, BlockBits::Pages { .. }) { PAGES_PER_BLOCK as u64 } else { 1 };
                sink(now, Report::Block(mapped[i].0, bits));
            })?;
            total.entries += entries;
            total.read_errors += progress.read_errors;
            total.longest_hold_ns = total.longest_hold_ns.max(progress.longest_hold_ns);
            if progress.answered < addresses.len() {
                let last = mapped[progress.answered].0;
                total.answered += chunk.partition_point(|b| *b < last);
                return Ok(total);
            }
            total.answered += chunk.len();
        }
        Ok(total)
    }

    fn clear(
        &mut self,
        pid: u32,
        blocks: &[BlockNo],
        sink: &mut dyn FnMut(Ns, BlockNo, Cleared),
    ) -> Result<Progress, Error> {
        let mut total = Progress::default();
        if !blocks.is_empty() {
            self.drain(pid)?;
        }
        for chunk in blocks.chunks(BLOCKS_PER_CLEAR) {
            let mut cleared = Vec::with_capacity(chunk.len());
            for run in chunk.chunk_by(|a, b| a.next() == *b && b.0 % BLOCKS_PER_ADVICE != 0) {
                let range = AddrRange::new(run[0].addr(), run[run.len() - 1].next().addr());
                let refusal = self.clear_run(pid, range)?;
                let at = clock::monotonic_ns();
                // A refusal somewhere in the run: ask block by block whose it was.
                let one_by_one = run.len() > 1 && refusal != Refusal::Nothing && !self.cold_denied;
                for block in run {
                    let own = if one_by_one { self.clear_run(pid, block.range())? } else { refusal };
                    // With no other way allowed, what is stuck stays so.
                    let last_way = self.clear_by == ClearBy::Cold && own == Refusal::Stuck;
                    cleared.push((at, *block, if last_way { Refusal::Final } else { own }));
                }
            }
            let verified = self.verify(pid, &cleared, sink)?;
            total.answered += chunk.len();
            total.entries += verified.entries;
            total.read_errors += verified.read_errors;
            total.longest_hold_ns = total.longest_hold_ns.max(verified.longest_hold_ns);
        }
        Ok(total)
    }

    fn clear_process(&mut self, pid: u32, stuck: &[BlockNo], all: &[BlockNo]) -> Result<ClearedProcess, Error> {
        match self.clear_by {
            ClearBy::Mglru => return self.age_process(pid, all),
            ClearBy::Cold => {
                return Ok(ClearedProcess {
                    at: clock::monotonic_ns(),
                    stall_ns: 0,
                    flushed: false,
                    blocks: Vec::new(),
                    partly: Vec::new(),
                });
            }
            ClearBy::Auto | ClearBy::Refs => {}
        }
        let maps = &self.target(pid)?.maps;
        let of_file = |anchor: &Option<Addr>| anchor.and_then(|a| maps.find(a)).is_some_and(|m| !m.is_anonymous());
        let mut partly = Vec::new();
        let (which, mut blocks): (_, Vec<BlockNo>) = if Self::anchors(maps.entries(), stuck).iter().all(of_file) {
            let anchors = Self::anchors(maps.entries(), all);
            let holds_file = |block: &BlockNo| {
                let first = maps.entries().partition_point(|m| m.range.end <= block.addr());
                let within = maps.entries()[first..].iter().take_while(|m| m.range.start < block.next().addr());
                within.into_iter().any(|m| !m.is_anonymous())
            };
            let mixed = all.iter().zip(&anchors).filter(|(block, a)| !of_file(a) && holds_file(block));
            partly = mixed.map(|(block, _)| *block).collect();
            (Clear::File, all.iter().zip(&anchors).filter(|(_, a)| of_file(a)).map(|(b, _)| *b).collect())
        } else {
            (Clear::All, all.to_vec())
        };
        let began = clock::monotonic_ns();
        let failed = |source: io::Error| match source.raw_os_error() {
            Some(ESRCH) => Error::Gone(pid),
            _ => Error::Io { attempted: format!("write /proc/{pid}/clear_refs"), source },
        };
        clear_refs::clear(self.proc.root(), pid, which).map_err(failed)?;
        let flushed = !self.soft_dirty;
        if flushed {
            clear_refs::flush_tlb(self.proc.root(), pid).map_err(failed)?;
        } else {
            // The caller has read these as well, and has to know that they are clear.
            let advised = self.flush_by_advice(pid)?;
            blocks.extend(advised.into_iter().filter(|block| all.binary_search(block).is_ok()));
            blocks.sort_unstable();
            blocks.dedup();
        }
        let at = clock::monotonic_ns();
        Ok(ClearedProcess { at, stall_ns: at - began, flushed, blocks, partly })
    }

    fn shared_frames(&mut self, pid: u32, blocks: &[BlockNo], each: &mut dyn FnMut(Option<u64>)) -> Result<(), Error> {
        let Some(pagemap) = &self.target(pid)?.pagemap else { return Ok(()) };
        for run in blocks.chunk_by(|a, b| a.next() == *b) {
            let range = AddrRange::new(run[0].addr(), run[run.len() - 1].next().addr());
            for (_, entry) in pagemap.read(range).map_err(|e| io_error("pagemap", pid, e))? {
                if entry.is_present() && !entry.is_exclusive() {
                    each(entry.frame());
                }
            }
        }
        Ok(())
    }
}

impl PageTable {
    /// Reads back what was just cleared: what is still young and not the process's own was not reached.
    fn verify(
        &mut self,
        pid: u32,
        cleared: &[(Ns, BlockNo, Refusal)],
        sink: &mut dyn FnMut(Ns, BlockNo, Cleared),
    ) -> Result<Progress, Error> {
        let blocks: Vec<BlockNo> = cleared.iter().map(|(_, b, _)| *b).collect();
        let mut young = HashMap::new();
        let progress = self.read(pid, &blocks, &mut |_, report| {
            if let Report::Block(block, bits) = report {
                let still = match bits {
                    BlockBits::Pages { young, .. } => young,
                    BlockBits::Huge { young: true } => Mask::ALL,
                    _ => Mask::NONE,
                };
                young.insert(block, still);
            }
        })?;
        for (at, block, refusal) in cleared {
            // Not read back: nothing can be said of it, as if nothing had been cleared.
            let still = young.get(block).copied().unwrap_or(Mask::ALL);
            let outcome = match refusal {
                Refusal::Final => Cleared::Refused,
                Refusal::Stuck => Cleared::Except(still),
                Refusal::Nothing if still.is_empty() => Cleared::Except(Mask::NONE),
                Refusal::Nothing if !young.contains_key(block) => Cleared::Except(Mask::ALL),
                Refusal::Nothing => Cleared::Except(self.shared_among(pid, *block, still)?),
            };
            sink(*at, *block, outcome);
        }
        Ok(progress)
    }

    /// Ages the cgroup of the process. Some pages are not reached, and the kernel does not say which: locked ones, those charged
    /// to another cgroup, and all of them if the map was locked for writing just then. So the bits are read back.
    ///
    /// Private memory that is young again was touched again, unless nothing at all was cleared: then it is tried again. Of other
    /// memory, a block most of which was not reached counts as not cleared.
    fn age_process(&mut self, pid: u32, all: &[BlockNo]) -> Result<ClearedProcess, Error> {
        let private: Vec<bool> = {
            let maps = &self.target(pid)?.maps;
            let of = |anchor: Option<Addr>| anchor.and_then(|a| maps.find(a)).is_some_and(is_private);
            Self::anchors(maps.entries(), all).into_iter().map(of).collect()
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
            let any_locked = self.proc.status(pid)?.locked.unwrap_or_default().0 > 0;
            let mut blocks = Vec::with_capacity(all.len());
            for ((block, private), young) in all.iter().zip(private).zip(young) {
                let cleared = match young {
                    Some(false) => true,
                    Some(true) => private && !(any_locked && self.is_locked(pid, block.addr())?),
                    None => false,
                };
                if cleared {
                    blocks.push(*block);
                }
            }
            return Ok(ClearedProcess { at, stall_ns: 0, flushed: false, blocks, partly: Vec::new() });
        }
    }

    /// For each of `blocks`, whether more than a quarter of its pages are young; `None` if it could not be read.
    fn mostly_young(&mut self, pid: u32, blocks: &[BlockNo]) -> Result<Vec<Option<bool>>, Error> {
        let mut young = HashMap::with_capacity(blocks.len());
        self.read(pid, blocks, &mut |_, report| {
            if let Report::Block(block, bits) = report {
                young.insert(
                    block,
                    match bits {
                        BlockBits::Pages { young, present } => young.count() * 4 > present.count(),
                        BlockBits::Huge { young } => young,
                        BlockBits::Gone => false,
                    },
                );
            }
        })?;
        Ok(blocks.iter().map(|block| young.get(block).copied()).collect())
    }

    /// A flush on kernels where `clear_refs` has none: `MADV_COLD` over private memory flushes what it clears, and everything if
    /// that was more than 33 pages. Not certain, so it is not counted as a flush. Returns what it has cleared on the way.
    fn flush_by_advice(&mut self, pid: u32) -> Result<Vec<BlockNo>, Error> {
        let private = |m: &&MapEntry| is_private(m) && m.is_monitorable();
        let largest = self.target(pid)?.maps.entries().iter().filter(private).max_by_key(|m| m.range.len());
        let Some(range) = largest.map(|m| m.range) else { return Ok(Vec::new()) };
        // Whole blocks only: a range that ends within a large folio would split it.
        let first = BlockNo(range.start.block().0 + 1);
        let last = BlockNo((first.0 + BLOCKS_PER_ADVICE).min(range.end.block().0));
        if first >= last {
            return Ok(Vec::new());
        }
        self.advise(pid, AddrRange::new(first.addr(), last.addr()))?;
        Ok((first.0..last.0).map(BlockNo).collect())
    }
}

/// Memory of the process's own, without a file.
fn is_private(map: &MapEntry) -> bool {
    map.is_anonymous() && !map.perms.contains(Perms::SHARED)
}

/// The cgroup by which MGLRU sorts the pages of a process.
pub(crate) fn memcg_of(mglru: &LruGen, proc: &Proc, pid: u32) -> Result<Memcg, Error> {
    let membership = proc.membership(pid)?;
    Ok(mglru.of_path(membership.memory_path().unwrap_or("/"))?)
}

/// A mapping as snapshots tell it.
pub(crate) fn mapping_of(entry: &MapEntry) -> Mapping {
    Mapping { range: entry.range, name: entry.name.to_string(), perms: entry.perms.to_string() }
}
