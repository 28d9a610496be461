//! A host: its memory, its processes and their areas, and what any page of them did at any time.
//!
//! Described in code here or in a file (`Host::from_toml`). Checked when it is made, so nothing can be wrong with it later.

use crate::error::{AreaFault, Error};
use crate::heat::Heat;
use crate::mix::mix;
use crate::view::{View, WorkedOut};
use isotherm_heat::{Mapping, Ns};
use isotherm_units::{Addr, AddrRange, BLOCK_SIZE, Bytes, PAGE_SIZE, PAGES_PER_BLOCK, PageNo};
use std::ops::Range;

const PID_MAX: u32 = 1 << 22;
const COMM_MAX: usize = 15;
const USER_SPACE: u64 = 1 << 47;
const BLOCK_PAGES: u64 = PAGES_PER_BLOCK as u64;

/// Neighbouring pages of one process, of one kind and heat.
#[derive(Clone, Debug, PartialEq)]
pub struct Area {
    /// Its addresses. All of it is populated.
    pub range: AddrRange,
    /// Name of its mapping: a path, `[heap]`, or empty. Neighbours of the same name and kind are one mapping, so that the
    /// list of mappings does not tell where heat changes.
    pub name: String,
    /// On huge pages: one accessed bit for 512 pages, and its heat is that of each huge page, not of the pages in it.
    pub huge: bool,
    /// How hot it is.
    pub heat: Heat,
}

impl Area {
    /// An unnamed area of 4 KiB pages.
    pub fn new(range: AddrRange, heat: Heat) -> Area {
        Area { range, name: String::new(), huge: false, heat }
    }

    /// The same with a name.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Area {
        self.name = name.into();
        self
    }

    /// The same on huge pages.
    #[must_use]
    pub fn huge(mut self) -> Area {
        self.huge = true;
        self
    }

    pub(crate) fn pages(&self) -> Range<u64> {
        self.range.start.page().0..self.range.end.page().0
    }

    pub(crate) fn unit(&self) -> u64 {
        if self.huge { BLOCK_PAGES } else { 1 }
    }

    fn fault(&self) -> Option<AreaFault> {
        let ends = [self.range.start.0, self.range.end.0];
        if self.range.is_empty() {
            Some(AreaFault::Empty)
        } else if self.range.end.0 > USER_SPACE {
            Some(AreaFault::BeyondUserSpace)
        } else if ends.iter().any(|at| at % PAGE_SIZE != 0) {
            Some(AreaFault::NotPages)
        } else if self.huge && ends.iter().any(|at| at % BLOCK_SIZE != 0) {
            Some(AreaFault::NotBlocks)
        } else {
            None
        }
    }

    pub(crate) fn mapping(&self) -> Mapping {
        Mapping { range: self.range, name: self.name.clone(), perms: "rw-p".into() }
    }
}

/// A process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Process {
    /// Its id, 1 to 4194304.
    pub pid: u32,
    /// When it began, in clock ticks since boot.
    pub start_ticks: u64,
    /// Its name, at most 15 bytes.
    pub comm: String,
    /// Path of its cgroup, `/` being the root.
    pub cgroup: String,
    /// Its memory.
    pub areas: Vec<Area>,
}

impl Process {
    /// A process of the root cgroup without memory, begun at tick 1.
    pub fn new(pid: u32, comm: impl Into<String>) -> Process {
        Process { pid, start_ticks: 1, comm: comm.into(), cgroup: "/".into(), areas: Vec::new() }
    }

    /// The same in a cgroup.
    #[must_use]
    pub fn cgroup(mut self, path: impl Into<String>) -> Process {
        self.cgroup = path.into();
        self
    }

    /// The same with one more area.
    #[must_use]
    pub fn area(mut self, area: Area) -> Process {
        self.areas.push(area);
        self
    }

    /// Whether it is in the cgroup at `path`, or in one below it.
    pub fn is_within(&self, path: &str) -> bool {
        self.cgroup
            .strip_prefix(path.trim_end_matches('/'))
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Its memory, all of it populated.
    pub fn size(&self) -> Bytes {
        Bytes(self.areas.iter().map(|a| a.range.len().0).fold(0, u64::saturating_add))
    }

    pub(crate) fn salt(&self) -> u64 {
        mix(u64::from(self.pid) << 40 ^ mix(self.start_ticks))
    }

    fn check(&self) -> Result<(), Error> {
        let pid = self.pid;
        if pid == 0 || pid > PID_MAX {
            return Err(Error::Pid(pid));
        }
        if self.comm.len() > COMM_MAX {
            return Err(Error::LongComm { pid, comm: self.comm.clone() });
        }
        for area in &self.areas {
            let range = area.range;
            if let Some(fault) = area.fault() {
                return Err(Error::Area { pid, range, fault });
            }
            area.heat.check().map_err(|e| Error::Heat { pid, range, source: Box::new(e) })?;
        }
        Ok(())
    }

    /// Sorted areas only.
    fn check_overlaps(&self) -> Result<(), Error> {
        match self.areas.windows(2).find(|pair| pair[0].range.end > pair[1].range.start) {
            None => Ok(()),
            Some(pair) => {
                let fault = AreaFault::Overlap(pair[0].range);
                Err(Error::Area { pid: self.pid, range: pair[1].range, fault })
            }
        }
    }
}

/// A modelled host. Copies share nothing and cost what the description does; wrap it in an `Arc` to share it.
#[derive(Clone, Debug)]
pub struct Host {
    memory: Bytes,
    /// By pid.
    processes: Vec<Process>,
    /// What the areas of each come to.
    worked_out: Vec<WorkedOut>,
}

impl Host {
    /// A host of `memory` bytes with these processes, in any order, with areas in any order.
    ///
    /// ```
    /// use isotherm_sim::{Area, Heat, Host, Process};
    /// use isotherm_units::{Addr, AddrRange, Bytes, PageNo};
    ///
    /// let heap = AddrRange::new(Addr(1 << 40), Addr((1 << 40) + (1 << 30)));
    /// let process = Process::new(7, "sweeper").area(Area::new(heap, Heat::every(50_000_000)));
    /// let host = Host::new(Bytes(2 << 30), vec![process])?;
    /// let page = PageNo(heap.start.page().0 + 5);
    /// assert!(host.accessed(7, page, 0, 50_000_000), "within any 50 ms");
    /// assert!((0..50).filter(|ms| host.accessed(7, page, ms * 1_000_000, (ms + 1) * 1_000_000)).count() == 1);
    /// # Ok::<(), isotherm_sim::Error>(())
    /// ```
    pub fn new(memory: Bytes, mut processes: Vec<Process>) -> Result<Host, Error> {
        if memory.0 == 0 {
            return Err(Error::NoMemory);
        }
        processes.sort_by_key(|p| p.pid);
        if let Some(pair) = processes.windows(2).find(|pair| pair[0].pid == pair[1].pid) {
            return Err(Error::Pid(pair[0].pid));
        }
        for process in &mut processes {
            process.check()?;
            process.areas.sort_by_key(|a| a.range.start);
            process.check_overlaps()?;
        }
        let used = Bytes(processes.iter().map(|p| p.size().0).fold(0, u64::saturating_add));
        if used > memory {
            return Err(Error::TooLittleMemory { used, memory });
        }
        let worked_out = processes.iter().map(WorkedOut::of).collect();
        Ok(Host { memory, processes, worked_out })
    }

    /// All memory there is, used or not.
    pub fn memory(&self) -> Bytes {
        self.memory
    }

    /// Its processes, by pid, with areas in address order.
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// One process; `None` if there is none of this pid.
    pub fn process(&self, pid: u32) -> Option<&Process> {
        self.processes.get(self.index_of(pid)?)
    }

    /// Whether `page` of process `pid` was accessed after `since` and not after `until` (ns). Pages that are not there never are.
    ///
    /// Answers about overlapping times agree: what was accessed in a stretch was accessed in one of any parts it is cut into.
    pub fn accessed(&self, pid: u32, page: PageNo, since: Ns, until: Ns) -> bool {
        self.view(pid).is_some_and(|view| view.accessed(page, since, until))
    }

    /// Whether `page` of process `pid` exists.
    pub fn has_page(&self, pid: u32, page: PageNo) -> bool {
        self.view(pid).is_some_and(|view| view.has_page(page))
    }

    pub(crate) fn index_of(&self, pid: u32) -> Option<usize> {
        self.processes.binary_search_by_key(&pid, |p| p.pid).ok()
    }

    pub(crate) fn view(&self, pid: u32) -> Option<View<'_>> {
        Some(self.view_at(self.index_of(pid)?))
    }

    pub(crate) fn view_at(&self, index: usize) -> View<'_> {
        View::new(&self.processes[index], &self.worked_out[index])
    }

    pub(crate) fn views(&self) -> impl Iterator<Item = View<'_>> {
        (0..self.processes.len()).map(|index| self.view_at(index))
    }
}

/// `len` bytes from `start`.
pub(crate) fn range_at(start: u64, len: u64) -> AddrRange {
    AddrRange::new(Addr(start), Addr(start.saturating_add(len)))
}
