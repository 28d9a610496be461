//! What made-up sources have in common: processes with a row of huge ranges each, of which a test says what their pages do.

use isotherm_heat::source::{
    AccessSource, Accesses, Attached, Clear, ClearedProcess, Description, Layout, PageSource, ReportSource,
    SourceError, SourceErrorKind, SourceResult,
};
use isotherm_heat::{Granularity, Mapping, Ns, TargetId};
use isotherm_units::{AddrRange, Perms, PmdNo};

/// A source that sees pages, as `pages` answers, and is given reports where there are `reports`.
pub struct MadeUp<P> {
    pub pages: P,
    pub accesses: Accesses,
    pub reports: Option<Box<dyn ReportSource>>,
    /// Huge ranges of a process now, in one mapping or in several of equal size.
    pub pmds: Box<dyn Fn(u32) -> u64>,
    pub mappings: usize,
    /// Of all mappings.
    pub perms: Perms,
    /// When a process has started.
    pub start_ticks: fn(u32) -> u64,
    /// Whether a process has ended.
    pub has_ended: Box<dyn Fn(u32) -> bool>,
}

impl<P> MadeUp<P> {
    /// Without reports.
    pub fn of(pages: P, pmds: u64) -> MadeUp<P> {
        let (pmds, has_ended) = (Box::new(move |_| pmds), Box::new(|_| false));
        let (perms, start_ticks) = (Perms::UNKNOWN, |_| 1);
        MadeUp { pages, accesses: Accesses::None, reports: None, pmds, mappings: 1, perms, start_ticks, has_ended }
    }
}

impl<P: PageSource> AccessSource for MadeUp<P> {
    fn describe(&self) -> Description {
        let (granularity, note) = (Granularity::Page, String::new());
        Description { name: "made-up", granularity, accesses: self.accesses, clears_others: false, note }
    }

    fn attach(&mut self, pid: u32) -> SourceResult<Attached> {
        Ok(Attached::here(TargetId { pid, start_ticks: (self.start_ticks)(pid) }, "made-up".into()))
    }

    fn detach(&mut self, _: u32) {}

    fn layout(&mut self, pid: u32) -> SourceResult<Layout> {
        if (self.has_ended)(pid) {
            return Err(SourceError::new(SourceErrorKind::Gone, "list the mappings: it has ended"));
        }
        let pmds: Vec<PmdNo> = (1000..1000 + (self.pmds)(pid)).map(PmdNo).collect();
        let of = |part: &[PmdNo]| AddrRange::new(part[0].addr(), part[part.len() - 1].next().addr());
        let parts = pmds.chunks(pmds.len().div_ceil(self.mappings).max(1));
        let mapping = |part| Mapping { range: of(part), name: String::new(), perms: self.perms };
        Ok(Layout { mappings: parts.map(mapping).collect(), pmds, ..Layout::default() })
    }

    fn as_pages(&mut self) -> Option<&mut dyn PageSource> {
        Some(&mut self.pages)
    }

    fn as_reports(&mut self) -> Option<&mut dyn ReportSource> {
        self.reports.as_deref_mut().map(|reports| reports as &mut dyn ReportSource)
    }
}

/// A clear of the whole process that was not needed.
pub fn nothing_cleared(at: Ns) -> ClearedProcess {
    ClearedProcess { clear: Clear { at, stall_ns: 0, flushed: true }, ..ClearedProcess::default() }
}
