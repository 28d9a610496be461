//! A host: its memory, its processes, and whether any page was accessed at any time.
//!
//! Described in code here or in a file (`Host::from_toml`). It is checked when it is created, so it is always valid
//! later.

use crate::error::Error;
use crate::process::Process;
use crate::view::{View, WorkedOut};
use isotherm_heat::Ns;
use isotherm_units::{Bytes, PageNo};

/// A modelled host. A clone shares nothing and takes as much memory as the description. Wrap it in an `Arc` to share
/// it.
#[derive(Clone, Debug)]
pub struct Host {
    memory: Bytes,
    /// Sorted by pid.
    processes: Vec<Process>,
    /// The computed areas of each process.
    worked_out: Vec<WorkedOut>,
}

impl Host {
    /// A host of `memory` bytes with these processes. Processes and areas may be in any order.
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

    /// All its memory, used or not.
    pub fn memory(&self) -> Bytes {
        self.memory
    }

    /// Its processes, sorted by pid, with areas in address order.
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// The process with this pid; `None` if there is none.
    pub fn process(&self, pid: u32) -> Option<&Process> {
        self.processes.get(self.index_of(pid)?)
    }

    /// Whether `page` of process `pid` was accessed after `since` and not after `until` (ns). False for pages that do
    /// not exist.
    ///
    /// Answers for overlapping times are consistent: a page that was accessed in a stretch of time was accessed in at
    /// least one part of it, however the stretch is divided.
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
