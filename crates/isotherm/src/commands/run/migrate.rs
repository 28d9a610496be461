//! Moves pages between memory tiers: every few seconds, for each process that a scheme moves.
//!
//! The state decides when ([`isotherm_schemes::state::State`]); this looks for hot and idle pages in what the monitor knows. The worker
//! finds out where they are.

use super::args::RunArgs;
use super::config::Config;
use super::page_out::{MINUTE, unfit_for_idle};
use crate::args::usage::Usage;
use isotherm_heat::{Clock, Mapping, Ns, TargetHeat};
use isotherm_monitor::Monitor;
use isotherm_schemes::migrate::wanted_in;
use isotherm_schemes::page_out::keeper::Stays;
use isotherm_schemes::scheme::{Does, Scheme};
use isotherm_schemes::state::{Shared, lock};
use isotherm_sys::clock;
use isotherm_units::PmdNo;

/// Refuses settings with which memory in use may look idle, or pages would move of processes that nobody named.
pub fn check(args: &RunArgs, config: &Config) -> Result<(), Usage> {
    if !config.migrates() {
        return Ok(());
    }
    let moves_down = |scheme: &Scheme| matches!(scheme.action, Does::Demote(..));
    if let Some(why) = unfit_for_idle(args, config).filter(|_| config.schemes.iter().any(moves_down)) {
        return Err(Usage(format!("a scheme demotes: {why}")));
    }
    if config.acts_unnamed(is_of_tiers) {
        let why = "pages move of processes that are named only: give the scheme `processes` or `cgroups`, or name targets instead of --all";
        return Err(Usage(format!("a scheme promotes or demotes: {why}")));
    }
    Ok(())
}

/// Whether a scheme moves pages between tiers.
pub fn is_of_tiers(scheme: &Scheme) -> bool {
    matches!(scheme.action, Does::Promote(_) | Does::Demote(..))
}

/// One window of one process, at `now`, which is the same for all of a window. Its idle pages stay where they are if something else clears its accessed bits.
pub fn step(shared: &Shared, monitor: &Monitor<Box<dyn Clock>>, target: &TargetHeat, others_clear: bool, now: Ns) {
    let (id, working_set) = (target.id, target.temperature.within_ns(MINUTE));
    let pages = monitor.pages_of(id.pid);
    let stays = if pages.is_none() { Some(Stays::Sampled) } else { others_clear.then_some(Stays::ClearedByOthers) };
    let limits = lock(shared).search_movable(id, (working_set, stays), clock::monotonic_ns());
    let (Some(limits), Some(pages), Some(mappings)) = (limits, pages, monitor.mappings_of(id.pid)) else { return };
    let wanted = wanted_in(limits, pages, mappings, PmdNo(0)..PmdNo(u64::MAX), monitor.now());
    let is_mapped = |pmd: PmdNo| Mapping::first_in(mappings, pmd.range()).is_some();
    let mut state = lock(shared);
    state.keep_mapped(id, is_mapped, clock::monotonic_ns());
    state.hint_movable(id, &wanted, limits.keep_free_pct, now);
}
