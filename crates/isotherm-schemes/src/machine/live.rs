//! Where collapses happen: the seam between the worker and a system, and the real system.
//!
//! [`Live`] holds each process by a pidfd, so a reused pid is never touched, and knows the program image it was admitted with, so
//! that hints for memory of before an exec are not applied to what came after. Everything is looked at afresh for each block
//! (one read of 4 KiB of `pagemap`, a hundredth of what a collapse costs); what changes seldom is kept for a second.

use super::cgroup::{self, CgroupState};
use crate::outcome::Refusal;
use crate::plan::{is_anonymous, unfit_mapping};
use isotherm_heat::{Mapping, Ns, TargetId};
use isotherm_sys::clock;
use isotherm_sys::free::{self, FreeBlocks};
use isotherm_sys::madvise::{CollapseError, PidFd};
use isotherm_sys::pagemap::Pagemap;
use isotherm_sys::pressure::Pressure;
use isotherm_sys::proc::{Cgroups, GUEST_MAPPING, Proc};
use isotherm_units::{Addr, BlockNo, Bytes, PAGES_PER_BLOCK};
use std::collections::{BTreeMap, BTreeSet};

/// How long what changes seldom (mappings, children) is believed.
const MAPPINGS_FOR: Ns = 1_000_000_000;
const CHILDREN_FOR: Ns = 100_000_000;
/// How long what the kernel has said of a whole mapping is believed: a program seldom changes its advice.
const VERDICT_FOR: Ns = 60_000_000_000;

/// A process as it was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its resident memory.
    pub resident: Bytes,
}

/// A block at this moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Pages present, of 512.
    pub present: u16,
    /// Pages of those that no other process maps.
    pub exclusive: u16,
    /// Why it cannot be collapsed, if that is known without trying.
    pub refusal: Option<Refusal>,
}

/// What the host has to spare; `None` where it is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HostState {
    /// Memory available without swapping.
    pub available: Option<Bytes>,
    /// All memory.
    pub memory: Option<Bytes>,
    /// Free blocks of 2 MiB or more, in blocks of 2 MiB.
    pub free_blocks: Option<u64>,
    /// Share of the last ten seconds in which something waited for memory.
    pub pressure_pct: Option<f64>,
}

/// What a collapse came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collapsed {
    /// Whether it worked.
    pub result: Result<(), CollapseFailure>,
    /// How long it took: the target was held up for no longer than this.
    pub took_ns: Ns,
    /// CPU time it took, which counts against the stall budget of the target.
    pub cpu_ns: Ns,
}

/// Why a collapse failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollapseFailure {
    /// For good.
    Refused(Refusal),
    /// Pages were locked or could not be isolated.
    Busy,
    /// The cgroup's limit.
    NoCharge,
    /// No free huge page.
    NoHugePage,
    /// Refused, and nothing that is known of the block says why. It may pass: kernels (seen on 6.1 and 6.12, not on 6.18) refuse a
    /// block without a single writable page like one that can never be huge. That is what NUMA balancing makes of a block until it is
    /// touched again, and a fork, also one that has ended, until it is written again. Nothing shows it from outside.
    Unexplained,
}

/// A system with processes.
pub trait Machine: std::fmt::Debug {
    /// Begins to deal with a process.
    fn admit(&mut self, process: TargetId) -> Result<Process, Refusal>;
    /// Ends that.
    fn dismiss(&mut self, process: TargetId);
    /// Looks at a block of an admitted process.
    fn look(&mut self, process: TargetId, block: BlockNo) -> Result<Look, Refusal>;
    /// Collapses a block.
    fn collapse(&mut self, process: TargetId, block: BlockNo) -> Collapsed;
    /// A live copy of the process that shares its memory, made by a fork.
    fn fork_of(&mut self, process: TargetId) -> Option<u32>;
    /// What the host has to spare.
    fn host(&mut self) -> HostState;
    /// The memory cgroup of a process, at this moment; `None` where it has none, or none that can be read.
    fn cgroup(&mut self, process: TargetId) -> Option<CgroupState>;
    /// CPU time that this thread has used so far. Everything that the machine is asked for costs some, not collapses alone.
    fn cpu_ns(&mut self) -> Ns;
}

/// The machine that we run on.
#[derive(Debug, Default)]
pub struct Live {
    proc: Proc,
    /// Memory of files and shared memory may be tried as well.
    files: bool,
    members: BTreeMap<TargetId, Member>,
    /// The mounted hierarchies, once they were needed.
    cgroups: Option<Cgroups>,
}

#[derive(Debug)]
struct Member {
    pidfd: PidFd,
    pagemap: Pagemap,
    /// `None` where the kernel does not show it to us.
    image: Option<(u64, u64)>,
    mappings: Vec<Mapping>,
    mappings_at: Ns,
    /// It has mapped what it shares with the kernel for a guest's processor.
    runs_guest: bool,
    /// By the starts of mappings of which a block was refused: why the whole mapping is, if it is, and when that was found out.
    verdicts: BTreeMap<Addr, (Option<Refusal>, Ns)>,
    fork: Option<u32>,
    fork_at: Ns,
    /// Children that are no copies of the process: they execute something else, or share none of its memory.
    other_children: BTreeSet<u32>,
    cgroup: cgroup::Known,
}

impl Live {
    /// The machine, with nothing admitted yet.
    pub fn new(files: bool) -> Live {
        Live { files, ..Live::default() }
    }

    /// The same on processes as another `/proc` shows them.
    pub fn at(proc: Proc, files: bool) -> Live {
        Live { proc, ..Live::new(files) }
    }

    fn member(&mut self, process: TargetId) -> Result<&mut Member, Refusal> {
        self.members.get_mut(&process).ok_or(Refusal::NotNamed)
    }

    /// Whether it is still the process, and the program, that was admitted.
    fn check(&mut self, process: TargetId) -> Result<(), Refusal> {
        let stat = self.proc.stat(process.pid).map_err(|_| Refusal::Gone)?;
        let member = self.member(process)?;
        let same = stat.start_ticks == process.start_ticks && stat.image() == member.image;
        if same && !member.pidfd.has_exited() { Ok(()) } else { Err(Refusal::Gone) }
    }

    fn refresh_mappings(&mut self, process: TargetId, now: Ns) -> Result<(), Refusal> {
        let member = self.members.get(&process).ok_or(Refusal::NotNamed)?;
        if now.saturating_sub(member.mappings_at) < MAPPINGS_FOR && member.mappings_at > 0 {
            return Ok(());
        }
        let entries = self.proc.maps(process.pid).map_err(|_| Refusal::Gone)?;
        let mappings: Vec<Mapping> = entries
            .iter()
            .map(|m| Mapping { range: m.range, name: m.name.to_string(), perms: m.perms.to_string() })
            .collect();
        let member = self.member(process)?;
        // A VMM may make its guest after it was admitted.
        member.runs_guest = mappings.iter().any(|m| m.name.starts_with(GUEST_MAPPING));
        (member.mappings, member.mappings_at) = (mappings, now);
        Ok(())
    }

    fn mapping_of(&self, process: TargetId, block: BlockNo) -> Option<&Mapping> {
        let mappings = &self.members.get(&process)?.mappings;
        let at = mappings.partition_point(|m| m.range.end <= block.addr());
        mappings.get(at).filter(|m| m.range.contains(block.addr()))
    }

    /// What is known of the whole mapping of a block from an earlier refusal.
    fn verdict(&self, process: TargetId, block: BlockNo, now: Ns) -> Option<Option<Refusal>> {
        let start = self.mapping_of(process, block)?.range.start;
        let (verdict, at) = self.members.get(&process)?.verdicts.get(&start)?;
        (now.saturating_sub(*at) < VERDICT_FOR).then_some(*verdict)
    }

    fn failure(&mut self, process: TargetId, block: BlockNo, error: CollapseError) -> CollapseFailure {
        match error {
            CollapseError::Busy => CollapseFailure::Busy,
            CollapseError::NoCharge if self.is_for_userfaultfd(process, block) => {
                CollapseFailure::Refused(Refusal::UserfaultMissing)
            }
            CollapseError::NoCharge => CollapseFailure::NoCharge,
            CollapseError::NoHugePage => CollapseFailure::NoHugePage,
            CollapseError::Gone => CollapseFailure::Refused(Refusal::Gone),
            CollapseError::Denied => CollapseFailure::Refused(Refusal::Denied),
            CollapseError::Refused => self.reason(process, block),
            _ => CollapseFailure::Refused(Refusal::Error),
        }
    }

    /// The kernel has one errno (EBUSY) for a charge that was refused and for pages missing where somebody waits for their faults
    /// through userfaultfd. The second it is if pages are missing and no limit was met.
    fn is_for_userfaultfd(&self, process: TargetId, block: BlockNo) -> bool {
        let Some(member) = self.members.get(&process) else { return false };
        // The page of zeros counts as missing, and is never exclusive.
        let missing = member.pagemap.block(block).is_ok_and(|pages| usize::from(pages.exclusive) < PAGES_PER_BLOCK);
        missing && member.cgroup.no_charge_was_refused()
    }

    /// After a refusal that does not say why: whether it is of the process, of the mapping, or of this block only.
    ///
    /// The flags of a mapping are in `smaps` alone, which walks the page tables of the whole process with its mmap lock held: 35 ms
    /// with 3 GiB resident, for which a target that maps memory waits. So the kernel is asked about one page of the mapping.
    fn reason(&mut self, process: TargetId, block: BlockNo) -> CollapseFailure {
        if self.proc.status(process.pid).is_ok_and(|s| s.thp_enabled == Some(false)) {
            return CollapseFailure::Refused(Refusal::Disabled);
        }
        let now = clock::monotonic_ns();
        let verdict = self.verdict(process, block, now).unwrap_or_else(|| self.ask_of_mapping(process, block, now));
        // Others of the mapping may do, and this one may later.
        verdict.map_or(CollapseFailure::Unexplained, CollapseFailure::Refused)
    }

    /// Why the whole mapping refuses, if it does. Remembered.
    fn ask_of_mapping(&mut self, process: TargetId, block: BlockNo, now: Ns) -> Option<Refusal> {
        let mapping = self.mapping_of(process, block)?;
        let (start, refusal) = (mapping.range.start, why_a_mapping_refuses(mapping));
        let member = self.members.get_mut(&process)?;
        let refused = member.pidfd.takes_huge_pages(block) == Err(CollapseError::Refused);
        member.verdicts.retain(|_, (_, at)| now.saturating_sub(*at) < VERDICT_FOR);
        member.verdicts.insert(start, (refused.then_some(refusal), now));
        refused.then_some(refusal)
    }

    /// Whether `child` is a forked copy: it runs the same image, and has pages of `process` mapped that nobody has written since.
    fn is_copy(&self, process: TargetId, child: u32) -> Option<bool> {
        let member = self.members.get(&process)?;
        let stat = self.proc.stat(child).ok()?;
        if stat.image() != member.image || stat.has_ended() {
            return Some(false);
        }
        // What a copy shares shows as pages that are not exclusive.
        let own = |m: &&Mapping| {
            m.perms.ends_with('p') && m.perms.contains('w') && m.range.len().0 >= isotherm_units::BLOCK_SIZE
        };
        let largest = member.mappings.iter().filter(own).max_by_key(|m| m.range.len())?;
        let blocks = largest.range.len().0 / isotherm_units::BLOCK_SIZE;
        let (mut present, mut shared) = (0_u32, 0_u32);
        for sample in 0..FORK_SAMPLES.min(blocks) {
            let block = BlockNo(largest.range.start.block().0 + 1 + sample * blocks / FORK_SAMPLES.min(blocks));
            if let Ok(pages) = member.pagemap.block(block) {
                present += u32::from(pages.present);
                shared += u32::from(pages.present - pages.exclusive);
            }
        }
        Some(shared * FORK_SHARE > present)
    }
}

/// Why a mapping refuses huge pages of which nothing else is known. Private memory without a file has no other reason than the
/// program's advice, once pages of its own are there and the process allows huge pages.
fn why_a_mapping_refuses(mapping: &Mapping) -> Refusal {
    let is_device = mapping.name.starts_with("/dev/") && !mapping.name.starts_with("/dev/shm/");
    if is_anonymous(mapping) {
        Refusal::NoHugeAdvice
    } else if is_device || mapping.name.starts_with("/anon_hugepage") {
        Refusal::Special
    } else {
        Refusal::Ineligible
    }
}

/// Blocks looked at to tell a fork, and the part of their pages (one in so many) that has to be shared.
const FORK_SAMPLES: u64 = 16;
const FORK_SHARE: u32 = 20;

impl Machine for Live {
    fn admit(&mut self, process: TargetId) -> Result<Process, Refusal> {
        let pidfd = PidFd::open(process.pid).map_err(|_| Refusal::Gone)?;
        let stat = self.proc.stat(process.pid).map_err(|_| Refusal::Gone)?;
        if stat.start_ticks != process.start_ticks {
            return Err(Refusal::Gone);
        }
        let status = self.proc.status(process.pid).map_err(|_| Refusal::Gone)?;
        if status.thp_enabled == Some(false) {
            return Err(Refusal::Disabled);
        }
        // Unknown is not no, but whose descriptors we may not list, we may not collapse either.
        if self.proc.holds_guest(process.pid).unwrap_or(false) {
            return Err(Refusal::Guest);
        }
        let pagemap = Pagemap::open(self.proc.root(), process.pid).map_err(|_| Refusal::Denied)?;
        let member = Member {
            pidfd,
            pagemap,
            image: stat.image(),
            mappings: Vec::new(),
            mappings_at: 0,
            runs_guest: false,
            verdicts: BTreeMap::new(),
            fork: None,
            fork_at: 0,
            other_children: BTreeSet::new(),
            cgroup: cgroup::Known::default(),
        };
        self.members.insert(process, member);
        Ok(Process { resident: status.rss.unwrap_or_default() })
    }

    fn dismiss(&mut self, process: TargetId) {
        self.members.remove(&process);
    }

    fn look(&mut self, process: TargetId, block: BlockNo) -> Result<Look, Refusal> {
        self.check(process)?;
        let now = clock::monotonic_ns();
        self.refresh_mappings(process, now)?;
        let files = self.files;
        let refusing = self.verdict(process, block, now).flatten();
        let member = self.member(process)?;
        let guest = member.runs_guest.then_some(Refusal::Guest);
        if let Some(refusal) = guest.or(refusing).or_else(|| unfit_mapping(&member.mappings, block, files)) {
            return Ok(Look { refusal: Some(refusal), ..Look::default() });
        }
        let pages = member.pagemap.block(block).map_err(|_| Refusal::Gone)?;
        let huge = member.pagemap.is_huge(block).unwrap_or(None) == Some(true);
        let refusal = if huge {
            Some(Refusal::AlreadyHuge)
        } else {
            // One such page is enough for the kernel to refuse, and it would not say why.
            (pages.userfault_wp > 0).then_some(Refusal::UserfaultWp)
        };
        Ok(Look { present: pages.present, exclusive: pages.exclusive, refusal })
    }

    fn collapse(&mut self, process: TargetId, block: BlockNo) -> Collapsed {
        let Some(member) = self.members.get(&process) else {
            return Collapsed { result: Err(CollapseFailure::Refused(Refusal::NotNamed)), took_ns: 0, cpu_ns: 0 };
        };
        let (began, cpu) = (clock::monotonic_ns(), clock::thread_cpu_ns());
        let tried = member.pidfd.collapse(block);
        // The kernel also reports success where it has done nothing, as for a block that a mapping ends in.
        let still_small = tried.is_ok() && member.pagemap.is_huge(block).unwrap_or(None) == Some(false);
        let result = match tried {
            Ok(()) if still_small => Err(CollapseFailure::Refused(Refusal::Ineligible)),
            Ok(()) => Ok(()),
            Err(error) => Err(self.failure(process, block, error)),
        };
        // With what it took to find out why it was refused: the target may have waited for that as well.
        let (took_ns, cpu_ns) = (clock::monotonic_ns() - began, clock::thread_cpu_ns() - cpu);
        Collapsed { result, took_ns, cpu_ns }
    }

    fn fork_of(&mut self, process: TargetId) -> Option<u32> {
        let now = clock::monotonic_ns();
        self.refresh_mappings(process, now).ok()?;
        let member = self.members.get(&process)?;
        if now.saturating_sub(member.fork_at) < CHILDREN_FOR {
            return member.fork;
        }
        let children = self.proc.children(process.pid).unwrap_or_default();
        let mut others: BTreeSet<u32> =
            member.other_children.iter().filter(|c| children.contains(c)).copied().collect();
        let mut fork = None;
        for child in children.iter().filter(|c| !member.other_children.contains(c)) {
            match self.is_copy(process, *child) {
                Some(true) => fork = Some(*child),
                // Sharing only ever gets less, so this stays so.
                Some(false) => drop(others.insert(*child)),
                None => {}
            }
        }
        let member = self.members.get_mut(&process)?;
        (member.fork, member.fork_at, member.other_children) = (fork, now, others);
        fork
    }

    fn host(&mut self) -> HostState {
        let root = self.proc.root();
        let pressure = Pressure::read(&root.join("pressure/memory")).ok().flatten();
        let memory = free::available(root);
        HostState {
            available: memory.map(|m| m.available),
            memory: memory.map(|m| m.total),
            free_blocks: FreeBlocks::read(root).ok().map(|b| b.huge_pages()),
            pressure_pct: pressure.map(|p| p.some_avg10),
        }
    }

    fn cgroup(&mut self, process: TargetId) -> Option<CgroupState> {
        let Live { proc, cgroups, members, .. } = self;
        let cgroups = cgroups.get_or_insert_with(|| proc.cgroups().unwrap_or_default());
        members.get_mut(&process)?.cgroup.state(proc, cgroups, process.pid, clock::monotonic_ns())
    }

    fn cpu_ns(&mut self) -> Ns {
        clock::thread_cpu_ns()
    }
}

/// A machine on which nothing is done: what a real run would do, by the same rules and on the same facts.
///
/// Processes that live are looked at; of those that do not (a recording may be older than they), what was recorded is believed.
#[derive(Debug)]
pub struct DryRun {
    live: Live,
    recorded: BTreeMap<(TargetId, BlockNo), u16>,
    ended: BTreeSet<TargetId>,
    done: BTreeSet<(TargetId, BlockNo)>,
}

impl DryRun {
    /// `recorded` tells the pages present in each block.
    pub fn new(files: bool, recorded: BTreeMap<(TargetId, BlockNo), u16>) -> DryRun {
        DryRun { live: Live::new(files), recorded, ended: BTreeSet::new(), done: BTreeSet::new() }
    }
}

impl Machine for DryRun {
    fn admit(&mut self, process: TargetId) -> Result<Process, Refusal> {
        match self.live.admit(process) {
            Err(Refusal::Gone) if self.recorded.keys().any(|(id, _)| *id == process) => {
                self.ended.insert(process);
                let pages = self.recorded.iter().filter(|((id, _), _)| *id == process).map(|(_, p)| u64::from(*p));
                Ok(Process { resident: Bytes::of_pages(pages.sum()) })
            }
            other => other,
        }
    }

    fn dismiss(&mut self, process: TargetId) {
        self.live.dismiss(process);
    }

    fn look(&mut self, process: TargetId, block: BlockNo) -> Result<Look, Refusal> {
        if self.done.contains(&(process, block)) {
            return Ok(Look { refusal: Some(Refusal::AlreadyHuge), ..Look::default() });
        }
        if self.ended.contains(&process) {
            let present = self.recorded.get(&(process, block)).copied().unwrap_or_default();
            return Ok(Look { present, exclusive: present, refusal: None });
        }
        self.live.look(process, block)
    }

    fn collapse(&mut self, process: TargetId, block: BlockNo) -> Collapsed {
        self.done.insert((process, block));
        Collapsed { result: Ok(()), took_ns: 0, cpu_ns: 0 }
    }

    fn fork_of(&mut self, process: TargetId) -> Option<u32> {
        self.live.fork_of(process)
    }

    fn host(&mut self) -> HostState {
        self.live.host()
    }

    fn cgroup(&mut self, process: TargetId) -> Option<CgroupState> {
        self.live.cgroup(process)
    }

    fn cpu_ns(&mut self) -> Ns {
        self.live.cpu_ns()
    }
}

impl<M: Machine + ?Sized> Machine for Box<M> {
    fn admit(&mut self, process: TargetId) -> Result<Process, Refusal> {
        (**self).admit(process)
    }

    fn dismiss(&mut self, process: TargetId) {
        (**self).dismiss(process);
    }

    fn look(&mut self, process: TargetId, block: BlockNo) -> Result<Look, Refusal> {
        (**self).look(process, block)
    }

    fn collapse(&mut self, process: TargetId, block: BlockNo) -> Collapsed {
        (**self).collapse(process, block)
    }

    fn fork_of(&mut self, process: TargetId) -> Option<u32> {
        (**self).fork_of(process)
    }

    fn host(&mut self) -> HostState {
        (**self).host()
    }

    fn cgroup(&mut self, process: TargetId) -> Option<CgroupState> {
        (**self).cgroup(process)
    }

    fn cpu_ns(&mut self) -> Ns {
        (**self).cpu_ns()
    }
}
