//! Accessed bits summed up by mapping: `clear_refs`, then `Referenced` of `smaps`. For users without privilege.
//!
//! Works on processes of the same user on any kernel with `CONFIG_PROC_PAGE_MONITOR`. Compared with page tables, it
//! does not show which pages of a mapping are hot, and it misses accesses that hit in the TLB where the kernel offers
//! no flush. Reading costs about fifty times as much, and the target's mmap lock is held for writing while bits are
//! cleared.

use crate::Error;
use crate::page_table::mapping_of;
use crate::process::Process;
use isotherm_heat::source::{
    AccessSource, Accesses, Attached, Clear, Counted, Description, Layout, MappingSource, Progress, SourceResult,
};
use isotherm_heat::{Granularity, MappingBits};
use isotherm_sys::clear_refs;
use isotherm_sys::clock;
use isotherm_sys::pagemap::kernel_has_soft_dirty;
use isotherm_sys::proc::{Proc, VmFlags};
use std::collections::HashMap;
use std::io;

/// The source.
#[derive(Debug)]
pub struct Referenced {
    proc: Proc,
    /// Those that are watched. Their pids may come to be those of others.
    processes: HashMap<u32, Process>,
    soft_dirty: bool,
    why: String,
}

impl Referenced {
    /// The source. `why` explains why no better one is used, and is shown to users.
    pub fn new(why: impl Into<String>) -> Referenced {
        Referenced {
            proc: Proc::default(),
            processes: HashMap::new(),
            soft_dirty: kernel_has_soft_dirty().unwrap_or(true),
            why: why.into(),
        }
    }
}

impl AccessSource for Referenced {
    fn describe(&self) -> Description {
        let small = if self.soft_dirty { "; a hot working set that fits the TLB may look idle" } else { "" };
        let why = if self.why.is_empty() { String::new() } else { format!(" ({})", self.why) };
        Description {
            name: "referenced",
            granularity: Granularity::Mapping,
            accesses: Accesses::None,
            clears_others: false,
            note: format!(
                "referenced bits by mapping through clear_refs and smaps{why}: how much of a mapping is hot, not which pages{small}"
            ),
        }
    }

    fn attach(&mut self, pid: u32) -> SourceResult<Attached> {
        let (process, comm) = Process::find(&self.proc, pid)?;
        self.processes.insert(pid, process);
        Ok(Attached::here(process.id, comm))
    }

    fn detach(&mut self, pid: u32) {
        self.processes.remove(&pid);
    }

    fn layout(&mut self, pid: u32) -> SourceResult<Layout> {
        Ok(self.listed(pid)?)
    }

    fn as_mappings(&mut self) -> Option<&mut dyn MappingSource> {
        Some(self)
    }
}

impl MappingSource for Referenced {
    fn count(&mut self, pid: u32) -> SourceResult<Counted> {
        Ok(self.counted(pid)?)
    }

    fn clear(&mut self, pid: u32) -> SourceResult<Clear> {
        Ok(self.cleared(pid)?)
    }
}

impl Referenced {
    /// Whether it is still the process that was attached. Between this and the next call another may take its pid, but no sooner than all other pids
    /// were used.
    fn check(&self, pid: u32) -> Result<(), Error> {
        self.processes.get(&pid).ok_or(Error::Gone(pid))?.check(&self.proc)
    }

    fn listed(&self, pid: u32) -> Result<Layout, Error> {
        self.check(pid)?;
        let maps = self.proc.maps(pid)?;
        if maps.is_empty() {
            return Err(Error::NoMemory(pid));
        }
        let mappings = maps.iter().filter(|m| m.is_monitorable()).map(mapping_of).collect();
        Ok(Layout { mappings, ..Layout::default() })
    }

    fn counted(&self, pid: u32) -> Result<Counted, Error> {
        self.check(pid)?;
        let at = clock::monotonic_ns();
        let mut mappings = Vec::new();
        let mut entries = 0;
        for entry in self.proc.smaps(pid)? {
            let entry = entry?;
            let hidden = entry.flags.is_some_and(|f| f.contains(VmFlags::HUGETLB) || f.contains(VmFlags::PFNMAP));
            if entry.usage.rss.0 == 0 || hidden || !entry.map.is_monitorable() {
                continue;
            }
            let resident_pages = entry.usage.rss.pages();
            entries += resident_pages;
            mappings.push(MappingBits {
                range: entry.map.range,
                resident_pages,
                // A huge page counts as referenced whole, and reading races with the target.
                young_pages: entry.usage.referenced.pages().min(resident_pages),
                huge_pages: entry.usage.huge().pages().min(resident_pages),
            });
        }
        if entries == 0 && self.proc.stat(pid)?.has_ended() {
            return Err(Error::Gone(pid));
        }
        let longest_hold_ns = clock::monotonic_ns() - at;
        Ok(Counted { at, mappings, progress: Progress { entries, longest_hold_ns, ..Progress::default() } })
    }

    fn cleared(&self, pid: u32) -> Result<Clear, Error> {
        self.check(pid)?;
        let began = clock::monotonic_ns();
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::PermissionDenied => Error::Denied {
                attempted: format!("write /proc/{pid}/clear_refs"),
                advice: "the process has to be your own, or you root",
            },
            _ => Error::Io { attempted: format!("write /proc/{pid}/clear_refs"), source },
        };
        clear_refs::clear(self.proc.root(), pid, clear_refs::Clear::All).map_err(failed)?;
        if !self.soft_dirty {
            clear_refs::flush_tlb(self.proc.root(), pid).map_err(failed)?;
        }
        let at = clock::monotonic_ns();
        Ok(Clear { at, stall_ns: at - began, flushed: !self.soft_dirty })
    }
}
