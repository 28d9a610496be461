//! Keeps at paging out: once a window, for each process that a scheme pages out.
//!
//! The state decides ([`isotherm_schemes::state::State`]); this reads what it asks for. What has left is read, some of it in every window, since
//! the monitor reads nothing where no page is present. What is about to leave is read once more right before it is hinted: the last background read may be a minute old.

use super::args::RunArgs;
use super::config::Config;
use crate::args::usage::Usage;
use crate::watch::idle_window_of;
use isotherm_heat::{Clock, Mapping, Ns, TargetHeat};
use isotherm_monitor::Monitor;
use isotherm_schemes::page_out::keeper::Stays;
use isotherm_schemes::page_out::refaults::Found;
use isotherm_schemes::page_out::{Rules, idle_pages, idle_pages_in};
use isotherm_schemes::plan::HintSource;
use isotherm_schemes::scheme::Does;
use isotherm_schemes::state::{Shared, lock};
use isotherm_sys::clock;
use isotherm_units::PmdNo;

/// The window of the working set that refaults are a share of.
pub const MINUTE: Ns = 60_000_000_000;

type Watched = Monitor<Box<dyn Clock>>;

/// Why memory that is in use may look idle with these settings, if so.
pub fn unfit_for_idle(args: &RunArgs, config: &Config) -> Option<&'static str> {
    let ages = config.hints != HintSource::Heat;
    let why = "ageing by MGLRU clears accessed bits, and memory that is in use may look idle: take --hints heat";
    args.watch.unfit_for_idle().or(ages.then_some(why))
}

/// Refuses settings with which memory that is in use may look idle, or memory would leave that nobody named.
pub fn check(args: &RunArgs, config: &Config) -> Result<(), Usage> {
    let brings_back = config.schemes.iter().any(|scheme| scheme.action == Does::BringBack);
    if brings_back && !config.pages_out() {
        let why = "a scheme brings back, and none pages out: only what left here is brought back";
        return Err(Usage(why.to_owned()));
    }
    if !config.pages_out() {
        return Ok(());
    }
    let is_unnamed = config.acts_unnamed(|scheme| matches!(scheme.action, Does::PageOut(..)));
    let why = "memory leaves processes that are named only: give the scheme `processes` or `cgroups`, or name targets instead of --all";
    let unfit = unfit_for_idle(args, config).or(is_unnamed.then_some(why));
    unfit.map_or(Ok(()), |why| Err(Usage(format!("a scheme pages out: {why}"))))
}

/// One window of one process.
pub struct PageOutStep<'a> {
    pub shared: &'a Shared,
    pub target: &'a TargetHeat,
    /// Between two windows.
    pub window_ns: Ns,
    /// Something else has cleared its accessed bits.
    pub others_clear: bool,
    pub has_swap: bool,
}

impl PageOutStep<'_> {
    /// Takes in what has come back, and hints what may leave.
    pub fn take(&self, monitor: &mut Watched) {
        let id = self.target.id;
        let Some(out) = lock(self.shared).out_in(id, clock::monotonic_ns()) else { return };
        let read = self.read(monitor, &out);
        self.come_back(monitor, &read);
        let stays = self.stays(monitor);
        let Some(min_idle_ns) = lock(self.shared).page_out_age(id, stays, clock::monotonic_ns()) else { return };
        let rules = Rules { min_idle_ns };
        if lock(self.shared).is_search_due(id, clock::monotonic_ns()) {
            let idle = monitor.pages_of(id.pid).map(|pages| idle_pages(rules, pages, monitor.now()));
            let window = idle_window_of(monitor, self.target, idle.unwrap_or_default());
            lock(self.shared).found_idle(&window, clock::monotonic_ns());
        }
        let chosen = lock(self.shared).choose_idle(id, self.window_ns);
        let read = self.read(monitor, &chosen);
        let idle = monitor.pages_of(id.pid).map(|pages| idle_pages_in(rules, pages, &read, monitor.now()));
        let window = idle_window_of(monitor, self.target, idle.unwrap_or_default());
        lock(self.shared).hint_idle(&window, clock::monotonic_ns());
    }

    /// Reads these. Returns those that were, in order: the target's map may be busy.
    fn read(&self, monitor: &mut Watched, pmds: &[PmdNo]) -> Vec<PmdNo> {
        if pmds.is_empty() { Vec::new() } else { monitor.read_now(self.target.id.pid, pmds) }
    }

    fn come_back(&self, monitor: &Watched, read: &[PmdNo]) {
        let id = self.target.id;
        let (Some(pages), Some(mappings)) = (monitor.pages_of(id.pid), monitor.mappings_of(id.pid)) else { return };
        let found = |pmd: PmdNo| {
            if Mapping::first_in(mappings, pmd.range()).is_none() {
                Found::Unmapped
            } else if read.binary_search(&pmd).is_ok() {
                Found::Present(pages.present_in(pmd))
            } else {
                Found::NotRead
            }
        };
        let working_set = self.target.temperature.within_ns(MINUTE);
        lock(self.shared).come_back(id, working_set, clock::monotonic_ns(), found);
    }

    fn stays(&self, monitor: &Watched) -> Option<Stays> {
        if !self.has_swap {
            Some(Stays::NoSwap)
        } else if self.others_clear {
            Some(Stays::ClearedByOthers)
        } else {
            monitor.pages_of(self.target.id.pid).is_none().then_some(Stays::Sampled)
        }
    }
}
