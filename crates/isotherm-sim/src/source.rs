//! The modelled host as a source of access reports, page by page.
//!
//! It behaves like the page-table source with a flushed TLB: a clear takes effect at once. It stores only which huge ranges
//! were cleared and when. A huge range is forgotten when a read finds all of it young again: from then on it is as if it had
//! never been cleared.

use crate::clock::ModelClock;
use crate::costs::Work;
use crate::host::Host;
use crate::view::{Found, View};
use isotherm_heat::source::{
    AccessSource, Accesses, Attached, BitsSink, Clear, Cleared, ClearedProcess, ClearedSink, Description, Layout,
    PageSource, Progress, SourceError, SourceErrorKind, SourceResult,
};
use isotherm_heat::{Clock, Granularity, Mask, Ns, PmdBits};
use isotherm_units::{PAGES_PER_PMD, PmdNo};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

/// Huge ranges read per acquisition of the mmap lock, as in the page-table source.
const PMDS_PER_PASS: u64 = 512;
/// Huge ranges whose tables belong to one upper table: listing reads one upper table for each GiB.
const PMDS_PER_UPPER: u64 = 512;

/// The source.
#[derive(Debug)]
pub struct ModelSource {
    host: Arc<Host>,
    clock: ModelClock,
    attached: HashMap<u32, Watched>,
}

#[derive(Debug, Default)]
struct Watched {
    /// Index of the process in the host.
    index: usize,
    cleared: HashMap<u64, Ns, BuildHasherDefault<PmdHasher>>,
}

/// Huge range numbers are consecutive, and there is a look-up for each huge range: a multiplication spreads them well enough.
#[derive(Debug, Default)]
struct PmdHasher(u64);

impl Hasher for PmdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, n: u64) {
        // The map uses the high and the low bits, but only the high bits of a product are well mixed.
        let product = (self.0 ^ n).wrapping_mul(crate::mix::GOLDEN);
        self.0 = product ^ product >> 32;
    }
}

impl ModelSource {
    /// A source of `host` whose work is charged to `clock`.
    pub fn new(host: Arc<Host>, clock: ModelClock) -> ModelSource {
        ModelSource { host, clock, attached: HashMap::new() }
    }

    /// Number of huge ranges stored as cleared.
    pub fn pmds_remembered(&self) -> usize {
        self.attached.values().map(|a| a.cleared.len()).sum()
    }

    fn watched(&mut self, pid: u32) -> SourceResult<&mut Watched> {
        self.attached.get_mut(&pid).ok_or_else(|| gone(pid))
    }

    /// Clears one huge range. The cost is charged first, and the time is taken afterwards.
    fn clear_pmd(clock: &ModelClock, view: View<'_>, pmd: PmdNo) -> (Ns, Cleared) {
        let work = match view.pmd(pmd, None, 0) {
            Found::Nothing => return (clock.now(), Cleared::Except(Mask::NONE)),
            Found::Huge(_) => Work::ClearHuge,
            Found::Pages { .. } => Work::ClearPmd,
        };
        clock.work(work, 1);
        (clock.now(), Cleared::Except(Mask::NONE))
    }
}

impl Watched {
    fn read(&mut self, clock: &ModelClock, view: View<'_>, pmd: PmdNo) -> PmdBits {
        let since = self.cleared.get(&pmd.0).copied();
        match view.pmd(pmd, since, clock.now()) {
            Found::Nothing => PmdBits::Gone,
            Found::Huge(young) => {
                clock.work(Work::ReadHuge, 1);
                self.forget_if(young && since.is_some(), pmd);
                PmdBits::Huge { young }
            }
            Found::Pages { young, present } => {
                clock.work(Work::ReadTable, 1);
                self.forget_if(young == present && since.is_some(), pmd);
                PmdBits::Pages { young, present }
            }
        }
    }

    fn forget_if(&mut self, all_young: bool, pmd: PmdNo) {
        if all_young {
            self.cleared.remove(&pmd.0);
        }
    }
}

impl AccessSource for ModelSource {
    fn describe(&self) -> Description {
        Description {
            name: "model",
            granularity: Granularity::Page,
            accesses: Accesses::None,
            clears_others: false,
            note: "a modelled host: accesses follow from its description; no real memory is monitored".into(),
        }
    }

    fn attach(&mut self, pid: u32) -> SourceResult<Attached> {
        let index = self.host.index_of(pid).ok_or_else(|| gone(pid))?;
        self.attached.entry(pid).or_insert_with(|| Watched { index, ..Watched::default() });
        let view = self.host.view_at(index);
        let cgroup = Some(view.process.cgroup.clone());
        Ok(Attached { id: view.id(), comm: view.process.comm.clone(), cgroup })
    }

    fn detach(&mut self, pid: u32) {
        self.attached.remove(&pid);
    }

    fn layout(&mut self, pid: u32) -> SourceResult<Layout> {
        let index = self.watched(pid)?.index;
        let view = self.host.view_at(index);
        let (pmds, mappings) = (view.pmds(), view.mappings());
        let mut uppers: Vec<u64> = pmds.iter().map(|b| b.0 / PMDS_PER_UPPER).collect();
        uppers.dedup();
        self.clock.work(Work::ListMapping, mappings.len() as u64);
        self.clock.work(Work::ReadTable, uppers.len() as u64);
        Ok(Layout { pmds, mappings, ..Layout::default() })
    }

    fn as_pages(&mut self) -> Option<&mut dyn PageSource> {
        Some(self)
    }
}

// No process shares memory with another: there are no frames of shared pages.
impl PageSource for ModelSource {
    fn read(&mut self, pid: u32, pmds: &[PmdNo], sink: &mut BitsSink<'_>) -> SourceResult<Progress> {
        let attached = self.attached.get_mut(&pid).ok_or_else(|| gone(pid))?;
        let view = self.host.view_at(attached.index);
        let mut entries = 0;
        for pmd in pmds {
            let bits = attached.read(&self.clock, view, *pmd);
            entries += match bits {
                PmdBits::Pages { .. } => PAGES_PER_PMD as u64,
                PmdBits::Huge { .. } => 1,
                PmdBits::Gone => 0,
            };
            sink(self.clock.now(), *pmd, Some(bits));
        }
        let longest_hold_ns = PMDS_PER_PASS.min(pmds.len() as u64) * self.clock.costs().read_table_ns;
        Ok(Progress { answered: pmds.len(), entries, read_errors: 0, longest_hold_ns })
    }

    fn clear(&mut self, pid: u32, pmds: &[PmdNo], sink: &mut ClearedSink<'_>) -> SourceResult<Progress> {
        let attached = self.attached.get_mut(&pid).ok_or_else(|| gone(pid))?;
        let view = self.host.view_at(attached.index);
        for pmd in pmds {
            let (at, outcome) = ModelSource::clear_pmd(&self.clock, view, *pmd);
            attached.cleared.insert(pmd.0, at);
            sink(at, *pmd, outcome);
        }
        Ok(Progress { answered: pmds.len(), ..Progress::default() })
    }

    fn clear_process(&mut self, pid: u32, _: &[PmdNo], all: &[PmdNo]) -> SourceResult<ClearedProcess> {
        let attached = self.attached.get_mut(&pid).ok_or_else(|| gone(pid))?;
        let view = self.host.view_at(attached.index);
        let unit = |huge| if huge { PAGES_PER_PMD as u64 } else { 1 };
        let pages: u64 = view.areas().map(|(pages, huge)| (pages.end - pages.start) / unit(huge)).sum();
        let began = self.clock.now();
        self.clock.work(Work::ClearRefsPage, pages);
        let at = self.clock.now();
        attached.cleared = view.pmds().into_iter().map(|pmd| (pmd.0, at)).collect();
        let clear = Clear { at, stall_ns: at - began, flushed: true };
        Ok(ClearedProcess { clear, pmds: all.to_vec(), partly: Vec::new() })
    }
}

fn gone(pid: u32) -> SourceError {
    SourceError::new(SourceErrorKind::Gone, format!("process {pid} is not there, or has ended"))
}
