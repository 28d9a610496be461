//! Splits huge pages of which little is in use: round by round, for each process that a scheme splits.
//!
//! The state decides when and which ([`isotherm_schemes::state::State`]); this reads what it asks for.

use super::args::RunArgs;
use super::config::Config;
use super::page_out::unfit_for_idle;
use crate::args::usage::Usage;
use isotherm_heat::{Clock, TargetHeat};
use isotherm_monitor::Monitor;
use isotherm_schemes::page_out::keeper::Stays;
use isotherm_schemes::scheme::Does;
use isotherm_schemes::split::given_back_in;
use isotherm_schemes::split::probes::huge_by_mapping;
use isotherm_schemes::split::splitter::Wants;
use isotherm_schemes::state::{Shared, lock};
use isotherm_sys::clock;
use isotherm_sys::pagemap::Pagemap;
use isotherm_sys::proc::Proc;
use isotherm_units::PmdNo;
use std::collections::BTreeMap;

/// Refuses settings with which memory that is in use may look idle, or huge pages would be split of processes that nobody named.
pub fn check(args: &RunArgs, config: &Config) -> Result<(), Usage> {
    if !config.splits() {
        return Ok(());
    }
    let is_unnamed = config.acts_unnamed(|scheme| matches!(scheme.action, Does::Split(_)));
    let why = "huge pages are split of processes that are named only: give the scheme `processes` or `cgroups`, or name targets instead of --all";
    let unfit = unfit_for_idle(args, config).or(is_unnamed.then_some(why));
    unfit.map_or(Ok(()), |why| Err(Usage(format!("a scheme splits: {why}"))))
}

/// One window of one process. Its huge pages stay as they are if something else clears its accessed bits.
pub fn step(
    shared: &Shared,
    monitor: &mut Monitor<Box<dyn Clock>>,
    target: &TargetHeat,
    others_clear: bool,
    proc: &Proc,
) {
    let id = target.id;
    let is_sampled = monitor.pages_of(id.pid).is_none();
    let stays = if is_sampled { Some(Stays::Sampled) } else { others_clear.then_some(Stays::ClearedByOthers) };
    let wants = lock(shared).split_wants(id, stays, clock::monotonic_ns());
    match wants {
        Wants::Nothing => {}
        Wants::HugePages => {
            let (Some(pages), Some(mappings)) = (monitor.pages_of(id.pid), monitor.mappings_of(id.pid)) else { return };
            let huge = huge_by_mapping(pages, mappings, monitor.now());
            lock(shared).probe(id, huge, clock::monotonic_ns());
        }
        // They are checked before all others once they are known to be small.
        Wants::Read(split) => drop(monitor.read_now(id.pid, &split)),
        Wants::Judgement { read, probes } => {
            // The last background read may be a minute old.
            monitor.read_now(id.pid, &read);
            let given_back = given_back(proc, id.pid, &probes);
            let Some(pages) = monitor.pages_of(id.pid) else { return };
            lock(shared).judge_split(id, (pages, monitor.now()), &given_back, clock::monotonic_ns());
        }
    }
}

/// Pages of each probe that hold nothing but zeros; none if the process has ended.
fn given_back(proc: &Proc, pid: u32, probes: &[PmdNo]) -> BTreeMap<PmdNo, u16> {
    let Ok(pagemap) = Pagemap::open(proc.root(), pid) else { return BTreeMap::new() };
    probes.iter().map(|pmd| (*pmd, given_back_in(&pagemap, *pmd))).collect()
}
