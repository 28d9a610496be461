//! Accessed bits summed up by mapping: `clear_refs`, then `Referenced` of `smaps`. For users without privilege.
//!
//! Works on processes of the same user on any kernel with `CONFIG_PROC_PAGE_MONITOR`. What is lost, compared with page tables:
//! which pages of a mapping are hot; what stays in the TLB, where the kernel offers no flush; and reading costs some fifty times
//! as much, with the target's map locked for writing while bits are cleared.

use crate::page_table::mapping_of;
use crate::{AccessSource, Accesses, Cleared, ClearedProcess, Description, Error, Layout, Progress, Report, Sink};
use isotherm_heat::{Granularity, Ns, TargetId};
use isotherm_sys::clear_refs::{self, Clear};
use isotherm_sys::clock;
use isotherm_sys::pagemap::kernel_has_soft_dirty;
use isotherm_sys::proc::{Proc, VmFlags};
use isotherm_units::BlockNo;
use std::io;

/// The source.
#[derive(Debug)]
pub struct Referenced {
    proc: Proc,
    soft_dirty: bool,
    why: String,
}

impl Referenced {
    /// The source; `why` says why none better is used, and is shown to people.
    pub fn new(why: impl Into<String>) -> Referenced {
        Referenced { proc: Proc::default(), soft_dirty: kernel_has_soft_dirty().unwrap_or(true), why: why.into() }
    }
}

impl AccessSource for Referenced {
    fn describe(&self) -> Description {
        let small = if self.soft_dirty { "; a hot set that fits the TLB may look idle" } else { "" };
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

    fn attach(&mut self, pid: u32) -> Result<(TargetId, String), Error> {
        let stat = self.proc.stat(pid)?;
        Ok((TargetId { pid, start_ticks: stat.start_ticks }, stat.comm))
    }

    fn detach(&mut self, _: u32) {}

    fn layout(&mut self, pid: u32) -> Result<Layout, Error> {
        if self.proc.stat(pid)?.has_ended() {
            return Err(Error::Gone(pid));
        }
        let maps = self.proc.maps(pid)?;
        if maps.is_empty() {
            return Err(Error::NoMemory(pid));
        }
        let mappings = maps.iter().filter(|m| m.is_monitorable()).map(mapping_of).collect();
        Ok(Layout { mappings, ..Layout::default() })
    }

    fn read(&mut self, pid: u32, _: &[BlockNo], sink: &mut Sink<'_>) -> Result<Progress, Error> {
        let began = clock::monotonic_ns();
        let mut entries = 0;
        for entry in self.proc.smaps(pid)? {
            let entry = entry?;
            let hidden = entry.flags.is_some_and(|f| f.contains(VmFlags::HUGETLB) || f.contains(VmFlags::PFNMAP));
            if entry.usage.rss.0 == 0 || hidden || !entry.map.is_monitorable() {
                continue;
            }
            let resident_pages = entry.usage.rss.pages();
            entries += resident_pages;
            sink(
                began,
                Report::Mapping {
                    range: entry.map.range,
                    resident_pages,
                    // A huge page counts as referenced whole, and reading races with the target.
                    young_pages: entry.usage.referenced.pages().min(resident_pages),
                    huge_pages: entry.usage.huge().pages().min(resident_pages),
                },
            );
        }
        if entries == 0 && self.proc.stat(pid)?.has_ended() {
            return Err(Error::Gone(pid));
        }
        Ok(Progress { answered: 0, entries, read_errors: 0, longest_hold_ns: clock::monotonic_ns() - began })
    }

    fn clear(&mut self, _: u32, _: &[BlockNo], _: &mut dyn FnMut(Ns, BlockNo, Cleared)) -> Result<Progress, Error> {
        Ok(Progress::default())
    }

    fn clear_process(&mut self, pid: u32, _: &[BlockNo], all: &[BlockNo]) -> Result<ClearedProcess, Error> {
        let began = clock::monotonic_ns();
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::PermissionDenied => Error::Denied {
                attempted: format!("write /proc/{pid}/clear_refs"),
                advice: "the process has to be your own, or you root",
            },
            _ => Error::Io { attempted: format!("write /proc/{pid}/clear_refs"), source },
        };
        clear_refs::clear(self.proc.root(), pid, Clear::All).map_err(failed)?;
        if !self.soft_dirty {
            clear_refs::flush_tlb(self.proc.root(), pid).map_err(failed)?;
        }
        let at = clock::monotonic_ns();
        Ok(ClearedProcess {
            at,
            stall_ns: at - began,
            flushed: !self.soft_dirty,
            blocks: all.to_vec(),
            partly: Vec::new(),
        })
    }
}
