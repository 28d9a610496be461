//! A process of a host and its areas, as described: names, places and heat. Also checks them for errors.

use crate::error::{AreaFault, Error};
use crate::heat::Heat;
use crate::mix::mix;
use isotherm_heat::Mapping;
use isotherm_units::{Addr, AddrRange, Bytes, PAGE_SIZE, PAGES_PER_PMD, PMD_SIZE, Perms};
use std::ops::Range;

const PID_MAX: u32 = 1 << 22;
const COMM_MAX: usize = 15;
const USER_SPACE: u64 = 1 << 47;
const PMD_PAGES: u64 = PAGES_PER_PMD as u64;

/// Adjacent pages of one process, of one kind and heat.
#[derive(Clone, Debug, PartialEq)]
pub struct Area {
    /// Its addresses. All of it is populated.
    pub range: AddrRange,
    /// Name of its mapping: a path, `[heap]`, or empty. Adjacent areas with the same name and kind are one mapping, so
    /// that the list of mappings does not reveal where heat changes.
    pub name: String,
    /// On huge pages: one accessed bit for 512 pages. The heat is that of each huge page, not of the pages in it.
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
        if self.huge { PMD_PAGES } else { 1 }
    }

    fn fault(&self) -> Option<AreaFault> {
        let ends = [self.range.start.0, self.range.end.0];
        if self.range.is_empty() {
            Some(AreaFault::Empty)
        } else if self.range.end.0 > USER_SPACE {
            Some(AreaFault::BeyondUserSpace)
        } else if ends.iter().any(|at| at % PAGE_SIZE != 0) {
            Some(AreaFault::NotPages)
        } else if self.huge && ends.iter().any(|at| at % PMD_SIZE != 0) {
            Some(AreaFault::NotPmds)
        } else {
            None
        }
    }

    pub(crate) fn mapping(&self) -> Mapping {
        Mapping { range: self.range, name: self.name.clone(), perms: Perms::READ.union(Perms::WRITE) }
    }
}

/// A process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Process {
    /// Its id, 1 to 4194304.
    pub pid: u32,
    /// When it started, in clock ticks since boot.
    pub start_ticks: u64,
    /// Its name, at most 15 bytes.
    pub comm: String,
    /// Path of its cgroup; `/` is the root.
    pub cgroup: String,
    /// Its memory.
    pub areas: Vec<Area>,
}

impl Process {
    /// A process in the root cgroup without memory, started at tick 1.
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

    /// The size of its memory, all of it populated.
    pub fn size(&self) -> Bytes {
        Bytes(self.areas.iter().map(|a| a.range.len().0).fold(0, u64::saturating_add))
    }

    pub(crate) fn salt(&self) -> u64 {
        mix(u64::from(self.pid) << 40 ^ mix(self.start_ticks))
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
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

    /// Areas have to be sorted.
    pub(crate) fn check_overlaps(&self) -> Result<(), Error> {
        match self.areas.windows(2).find(|pair| pair[0].range.end > pair[1].range.start) {
            None => Ok(()),
            Some(pair) => {
                let fault = AreaFault::Overlap(pair[0].range);
                Err(Error::Area { pid: self.pid, range: pair[1].range, fault })
            }
        }
    }
}

/// `len` bytes from `start`.
pub(crate) fn range_at(start: u64, len: u64) -> AddrRange {
    AddrRange::new(Addr(start), Addr(start.saturating_add(len)))
}
