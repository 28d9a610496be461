//! The real machine.
//!
//! [`Live`] holds a pidfd for each process, so a reused pid is never touched. It remembers the program image that was
//! admitted, so hints from before an exec are not applied afterwards. Data that seldom changes is cached for up to a
//! second. What only one action needs to know about a huge range is in the module of that action.

use super::cgroup::{self, CgroupState};
use super::{HostState, Machine, Process, Unfit, refusal_of};
use crate::action::{Failure, Performed};
use crate::journal::{Act, Entry, Journal};
use crate::migrate::Rooms;
use crate::outcome::Refusal;
use isotherm_heat::{Mapping, Ns, TargetId};
use isotherm_sys::clock;
use isotherm_sys::free::{self, FreeBlocks, Swap};
use isotherm_sys::madvise::PidFd;
use isotherm_sys::pagemap::Pagemap;
use isotherm_sys::pressure::Pressure;
use isotherm_sys::proc::{self, Cgroups, Held, Proc, Status, maps_guest};
use isotherm_sys::tiers::Tiers;
use isotherm_units::{Addr, PMD_SIZE, Perms, PmdNo};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// How long data that seldom changes (mappings, children) is cached.
const MAPPINGS_TTL: Ns = 1_000_000_000;
const CHILDREN_TTL: Ns = 100_000_000;
const MUST_STAY_TTL: Ns = 1_000_000_000;

/// The real machine.
#[derive(Debug, Default)]
pub struct Live {
    pub(crate) proc: Proc,
    pub(crate) members: BTreeMap<TargetId, Member>,
    /// The mounted hierarchies, read when first needed.
    cgroups: Option<Cgroups>,
    /// Where collapses and splits are noted.
    journal: Option<Box<dyn Journal>>,
    /// Memory tiers, read when first needed.
    tiers: Option<Arc<Tiers>>,
    /// What their nodes have free.
    pub(crate) rooms: Rooms,
}

/// What is kept about one process.
#[derive(Debug)]
pub(crate) struct Member {
    pub pidfd: PidFd,
    pub pagemap: Pagemap,
    /// `None` if the kernel does not show it to us.
    image: Option<(u64, u64)>,
    pub mappings: Vec<Mapping>,
    mappings_at: Ns,
    /// It maps the memory that a guest's virtual CPU shares with the kernel.
    pub runs_guest: bool,
    /// Results of earlier refusals, by the start of the mapping: why the whole mapping refuses, if it does, and when
    /// that was found out. For the action that needs it.
    pub verdicts: BTreeMap<Addr, (Option<Refusal>, Ns)>,
    /// Why none of its memory may be paged out, and when that was found out.
    must_stay: (Option<Refusal>, Ns),
    fork: Option<u32>,
    fork_at: Ns,
    /// Children that are not copies of the process: they execute something else, or share none of its memory.
    other_children: BTreeSet<u32>,
    pub cgroup: cgroup::Known,
}

impl Live {
    /// The machine, with no process admitted yet.
    pub fn new() -> Live {
        Live::default()
    }

    /// The same, with another root of `/proc`.
    pub fn at(proc: Proc) -> Live {
        Live { proc, ..Live::new() }
    }

    /// Notes each collapse and split there right before it.
    pub fn with_journal(self, journal: Box<dyn Journal>) -> Live {
        Live { journal: Some(journal), ..self }
    }

    /// Does this to a huge range, and notes it in the journal before and after. If it cannot be noted it is not done. Its time is that of the
    /// act alone, since the target does not wait for the journal.
    pub(crate) fn act(
        &mut self,
        process: TargetId,
        (pmd, act): (PmdNo, Act),
        perform: impl FnOnce(&mut Live) -> Result<u16, Failure>,
    ) -> Performed {
        if let Err(failure) = self.begin(process, pmd, act) {
            return Performed { result: Err(failure), pages: 0, took_ns: 0, cpu_ns: 0 };
        }
        let done = timed(|| perform(self));
        if let (Ok(entry), Some(journal)) = (self.entry(process, pmd, act), &mut self.journal) {
            journal.end(entry, done.result.is_ok());
        }
        done
    }

    fn begin(&mut self, process: TargetId, pmd: PmdNo, act: Act) -> Result<(), Failure> {
        let entry = self.entry(process, pmd, act)?;
        let noted = self.journal.as_mut().map_or(Ok(()), |journal| journal.begin(entry));
        noted.map_err(|_| Failure::Refused(Refusal::NoJournal))
    }

    fn entry(&self, process: TargetId, pmd: PmdNo, act: Act) -> Result<Entry, Failure> {
        let member = self.members.get(&process).ok_or(Failure::Refused(Refusal::NotNamed))?;
        Ok(Entry { process, image: member.image, pmd, act })
    }

    /// The memory tiers of this machine.
    pub(crate) fn tiers(&mut self) -> Arc<Tiers> {
        Arc::clone(self.tiers.get_or_insert_with(|| Arc::new(Tiers::read(Path::new("/sys")))))
    }

    /// What is kept about an admitted process.
    pub(crate) fn member(&mut self, process: TargetId) -> Result<&mut Member, Refusal> {
        self.members.get_mut(&process).ok_or(Refusal::NotNamed)
    }

    /// Whether this is still the process and the program that was admitted.
    pub(crate) fn check(&mut self, process: TargetId) -> Result<(), Refusal> {
        let stat = self.proc.stat(process.pid).map_err(|error| unreadable(&error))?;
        let member = self.member(process)?;
        let same = stat.start_ticks == process.start_ticks && stat.image() == member.image;
        if same && !member.pidfd.has_exited() { Ok(()) } else { Err(Refusal::Gone) }
    }

    /// Lists the mappings of a process again, if the list is too old.
    pub(crate) fn refresh_mappings(&mut self, process: TargetId, now: Ns) -> Result<(), Refusal> {
        let member = self.members.get(&process).ok_or(Refusal::NotNamed)?;
        if now.saturating_sub(member.mappings_at) < MAPPINGS_TTL && member.mappings_at > 0 {
            return Ok(());
        }
        let entries = self.proc.maps(process.pid).map_err(|error| unreadable(&error))?;
        let mappings: Vec<Mapping> =
            entries.iter().map(|m| Mapping { range: m.range, name: m.name.to_string(), perms: m.perms }).collect();
        let member = self.member(process)?;
        // A VMM may create its guest after it was admitted.
        member.runs_guest = maps_guest(mappings.iter().map(|m| &*m.name));
        (member.mappings, member.mappings_at) = (mappings, now);
        Ok(())
    }

    /// Whether all of its memory has to stay. A process may create a ring or a guest, or crash, after it was admitted.
    pub(crate) fn check_must_stay(&mut self, process: TargetId, now: Ns) -> Result<(), Refusal> {
        self.refresh_mappings(process, now)?;
        let (mut refusal, at) = self.member(process)?.must_stay;
        if now.saturating_sub(at) >= MUST_STAY_TTL {
            let status = self.proc.status(process.pid).map_err(|error| unreadable(&error))?;
            refusal = must_stay(&status, self.proc.held(process.pid).unwrap_or_default());
            self.member(process)?.must_stay = (refusal, now);
        }
        let member = self.member(process)?;
        // A ring stays mapped where its descriptor is closed or registered.
        let has_ring = member.mappings.iter().any(|m| m.name.starts_with("anon_inode:[io_uring]"));
        let mapped = member.runs_guest.then_some(Refusal::Guest).or(has_ring.then_some(Refusal::IoUring));
        refusal.or(mapped).map_or(Ok(()), Err)
    }

    /// The mapping in which a huge range begins, from the cached list.
    pub(crate) fn mapping_of(&self, process: TargetId, pmd: PmdNo) -> Option<&Mapping> {
        let mappings = &self.members.get(&process)?.mappings;
        let at = mappings.partition_point(|m| m.range.end <= pmd.addr());
        mappings.get(at).filter(|m| m.range.contains(pmd.addr()))
    }

    /// Whether `child` may be a forked copy, since it runs the same image.
    fn may_be_copy(&self, process: TargetId, child: u32) -> Option<bool> {
        let member = self.members.get(&process)?;
        let stat = self.proc.stat(child).ok()?;
        Some(stat.image() == member.image && !stat.has_ended())
    }

    /// Whether a process shares pages with a copy of it: those that neither has written since the fork.
    fn shares_with_copy(&self, process: TargetId) -> Option<bool> {
        let member = self.members.get(&process)?;
        // Pages that a copy shares are not exclusive.
        let own = |m: &&Mapping| m.perms.is_private() && m.perms.contains(Perms::WRITE) && m.range.len().0 >= PMD_SIZE;
        let largest = member.mappings.iter().filter(own).max_by_key(|m| m.range.len())?;
        let pmds = largest.range.len().0 / PMD_SIZE;
        let (mut present, mut shared) = (0_u32, 0_u32);
        for sample in 0..FORK_SAMPLES.min(pmds) {
            let pmd = PmdNo(largest.range.start.pmd().0 + 1 + sample * pmds / FORK_SAMPLES.min(pmds));
            if let Ok(pages) = member.pagemap.pmd(pmd) {
                present += u32::from(pages.present);
                shared += u32::from(pages.present - pages.exclusive);
            }
        }
        are_shared(shared, present)
    }
}

/// Whether so many of the pages sampled are shared that the process is a copy. Unknown if none was present, as where a large mapping has few
/// pages.
fn are_shared(shared: u32, present: u32) -> Option<bool> {
    (present > 0).then_some(shared * FORK_SHARE > present)
}

/// Does this, and measures how long it takes. The answer is the number of pages that have left.
pub(crate) fn timed(perform: impl FnOnce() -> Result<u16, Failure>) -> Performed {
    let (began, cpu) = (clock::monotonic_ns(), clock::thread_cpu_ns());
    let done = perform();
    let (took_ns, cpu_ns) = (clock::monotonic_ns() - began, clock::thread_cpu_ns() - cpu);
    Performed { result: done.map(drop), pages: done.unwrap_or_default(), took_ns, cpu_ns }
}

/// What it means that a file of a process could not be read. Who is short of descriptors has not seen it end.
fn unreadable(error: &proc::Error) -> Refusal {
    match error {
        _ if error.is_gone() => Refusal::Gone,
        _ if error.is_denied() => Refusal::Denied,
        _ => Refusal::Error,
    }
}

/// Why none of a process's memory may be paged out, if so.
fn must_stay(status: &Status, held: Held) -> Option<Refusal> {
    let reasons = [
        (held.guest, Refusal::Guest),
        (held.io_uring, Refusal::IoUring),
        (held.userfaultfd, Refusal::Userfault),
        (status.pinned.is_some_and(|pinned| pinned.0 > 0), Refusal::Pinned),
        (status.dumps_core == Some(true), Refusal::DumpsCore),
        (status.tracer.is_some(), Refusal::Traced),
    ];
    reasons.into_iter().find(|(is_so, _)| *is_so).map(|(_, refusal)| refusal)
}

/// Number of huge ranges that are sampled to detect a fork, and the part of their pages (one in this many) that must be shared.
const FORK_SAMPLES: u64 = 16;
const FORK_SHARE: u32 = 20;

impl Machine for Live {
    fn admit(&mut self, process: TargetId, unfit: &Unfit<'_>) -> Result<Process, Refusal> {
        let pidfd = PidFd::open(process.pid).map_err(|error| refusal_of(&error))?;
        let stat = self.proc.stat(process.pid).map_err(|error| unreadable(&error))?;
        if stat.start_ticks != process.start_ticks || stat.has_ended() {
            return Err(Refusal::Gone);
        }
        let status = self.proc.status(process.pid).map_err(|error| unreadable(&error))?;
        let mut admitted = Process {
            resident: status.rss.unwrap_or_default(),
            takes_huge_pages: status.thp_enabled != Some(false),
            must_stay: None,
        };
        // Its descriptors may be many thousands.
        if let Some(refusal) = unfit(&admitted) {
            return Err(refusal);
        }
        // Unknown does not mean no. But if we may not list a process's descriptors, we may not act on it either.
        let held = self.proc.held(process.pid).unwrap_or_default();
        admitted.must_stay = must_stay(&status, held);
        if let Some(refusal) = unfit(&admitted) {
            return Err(refusal);
        }
        if held.guest {
            return Err(Refusal::Guest);
        }
        // The memory of a process that ends is gone before the process is.
        let pagemap = Pagemap::open(self.proc.root(), process.pid).map_err(|error| refusal_of(&error))?;
        let member = Member {
            pidfd,
            pagemap,
            image: stat.image(),
            mappings: Vec::new(),
            mappings_at: 0,
            runs_guest: false,
            verdicts: BTreeMap::new(),
            must_stay: (admitted.must_stay, clock::monotonic_ns()),
            fork: None,
            fork_at: 0,
            other_children: BTreeSet::new(),
            cgroup: cgroup::Known::default(),
        };
        self.members.insert(process, member);
        Ok(admitted)
    }

    fn dismiss(&mut self, process: TargetId) {
        self.members.remove(&process);
    }

    fn fork_of(&mut self, process: TargetId) -> Option<u32> {
        let now = clock::monotonic_ns();
        self.refresh_mappings(process, now).ok()?;
        let member = self.members.get(&process)?;
        if now.saturating_sub(member.fork_at) < CHILDREN_TTL {
            return member.fork;
        }
        let children = self.proc.children(process.pid).unwrap_or_default();
        let mut others: BTreeSet<u32> =
            member.other_children.iter().filter(|c| children.contains(c)).copied().collect();
        let mut fork = None;
        // Its pages are sampled once, for however many children.
        let shares = OnceCell::new();
        for child in children.iter().filter(|c| !member.other_children.contains(c)) {
            let is_copy = self.may_be_copy(process, *child).and_then(|may_be| match may_be {
                true => *shares.get_or_init(|| self.shares_with_copy(process)),
                false => Some(false),
            });
            match is_copy {
                Some(true) => fork = Some(*child),
                // Sharing only decreases, so this stays true.
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
        let pressure = |of: &str| Some(Pressure::read(&root.join("pressure").join(of)).ok()??.some_avg10);
        let memory = free::available(root);
        HostState {
            available: memory.map(|m| m.available),
            memory: memory.map(|m| m.total),
            free_blocks: FreeBlocks::read(root).ok().map(|b| b.huge_pages()),
            swap: Swap::read(root),
            pressure_pct: pressure("memory"),
            io_pressure_pct: pressure("io"),
        }
    }

    fn cgroup(&mut self, process: TargetId) -> Option<CgroupState> {
        let Live { proc, cgroups, members, .. } = self;
        // Until the list can be read, no cgroup counts as near its limit.
        let cgroups = proc.known_cgroups(cgroups)?;
        members.get_mut(&process)?.cgroup.state(proc, cgroups, process.pid, clock::monotonic_ns())
    }

    fn cpu_ns(&mut self) -> Ns {
        clock::thread_cpu_ns()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_units::Bytes;
    use std::process::Command;

    #[test]
    fn a_copy_shares_much_of_what_is_present_and_of_nothing_that_cannot_be_said() {
        assert_eq!(
            [(0, 0), (0, 512), (25, 512), (26, 512)].map(|(shared, present)| are_shared(shared, present)),
            [None, Some(false), Some(false), Some(true)]
        );
    }

    #[test]
    fn what_has_ended_and_is_not_waited_for_is_gone() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let start_ticks = Proc::default().identity(child.id()).unwrap().start_ticks;
        let (id, mut live) = (TargetId { pid: child.id(), start_ticks }, Live::new());
        child.kill().unwrap();
        let ended = || Proc::default().stat(id.pid).unwrap().has_ended();
        let began = clock::monotonic_ns();
        while !ended() {
            assert!(clock::monotonic_ns() - began < 60_000_000_000, "it does not end");
            std::thread::yield_now();
        }
        let admitted = live.admit(id, &|_| None);
        child.wait().unwrap();
        assert!(matches!(admitted, Err(Refusal::Gone)), "{admitted:?}");
        let no_memory = std::io::Error::from_raw_os_error(3);
        assert_eq!(refusal_of(&no_memory), Refusal::Gone);
        // Files that can no longer be opened say nothing of the process.
        let short =
            |number| proc::Error::Io { path: "/proc/1/stat".into(), source: std::io::Error::from_raw_os_error(number) };
        assert_eq!([24, 12].map(|number| unreadable(&short(number))), [Refusal::Error; 2]);
        assert_eq!(unreadable(&proc::Error::Gone { path: "/proc/1/stat".into() }), Refusal::Gone);
    }

    #[test]
    fn memory_that_others_use_behind_its_back_must_stay() {
        let idle = Status { pinned: Some(Bytes(0)), dumps_core: Some(false), ..Status::default() };
        assert_eq!(must_stay(&idle, Held::default()), None);
        let of = |status: Status| must_stay(&status, Held::default());
        assert_eq!(of(Status { pinned: Some(Bytes(4096)), ..idle.clone() }), Some(Refusal::Pinned));
        assert_eq!(of(Status { dumps_core: Some(true), ..idle.clone() }), Some(Refusal::DumpsCore));
        assert_eq!(of(Status { tracer: Some(7), ..idle.clone() }), Some(Refusal::Traced));
        let holding = |held| must_stay(&idle, held);
        assert_eq!(holding(Held { guest: true, io_uring: true, ..Held::default() }), Some(Refusal::Guest));
        assert_eq!(holding(Held { io_uring: true, ..Held::default() }), Some(Refusal::IoUring));
        assert_eq!(holding(Held { userfaultfd: true, ..Held::default() }), Some(Refusal::Userfault));
    }
}
