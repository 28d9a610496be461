//! Turns arguments into a request for a source: which one, how it clears, which events it samples and of which processes.

use crate::args::sampling::SamplingArgs;
use crate::args::source::{ClearArg, SourceArg};
use crate::args::targets::TargetArgs;
use crate::args::usage::Usage;
use crate::args::watching::WatchArgs;
use isotherm_sources::choose::{Request, Wanted};
use isotherm_sources::page_table::ClearBy;
use isotherm_sources::perf::{Options, Over};
use isotherm_sys::caps::may_sample;
use isotherm_sys::cpus::cpus_online;
use isotherm_sys::proc::Proc;
use isotherm_sys::roots::HostRoots;

/// Each thread of the targets gets its own events if that takes at most this many descriptors.
const MAX_OWN_DESCRIPTORS: usize = 2048;
/// Most sampled events consist of two perf events: loads and stores, or minor and major faults.
const KINDS: usize = 2;

/// The request that the arguments make.
pub fn of(targets: &TargetArgs, args: &WatchArgs) -> Result<Request, Usage> {
    let clear = match args.clear {
        ClearArg::Auto => ClearBy::Auto,
        ClearArg::Cold => ClearBy::Cold,
        ClearArg::Refs => ClearBy::Refs,
        ClearArg::Mglru => ClearBy::Mglru,
    };
    let has_pages = matches!(args.source, SourceArg::Auto | SourceArg::PageTable);
    if !has_pages && clear != ClearBy::Auto {
        return Err(Usage("--clear is for the page-table source; other sources have no choice in it".into()));
    }
    if let Some(option) = args.for_pages().filter(|_| !has_pages) {
        return Err(Usage(format!(
            "{option} is for the page-table source; other sources do not choose which pages they check: leave it out, or take --source page-table"
        )));
    }
    let samples = has_pages || matches!(args.source, SourceArg::Perf | SourceArg::PerfPaddr);
    if args.sampling.is_given() && (!samples || clear != ClearBy::Auto) {
        return Err(Usage(
            "events are sampled with --source perf, perf-paddr, page-table or auto, and no --clear".into(),
        ));
    }
    if args.sampling.is_physical() && has_pages {
        return Err(Usage("physical addresses (PHYS of 1) are for --source perf or perf-paddr".into()));
    }
    let physical = args.source == SourceArg::PerfPaddr;
    let perf = Options { physical, over: over(targets), ..options(&args.sampling, args.max_slowdown_pct())? };
    Ok(Request { wanted: wanted(args.source), clear, perf })
}

/// The source of that name.
pub fn wanted(source: SourceArg) -> Wanted {
    match source {
        SourceArg::Auto => Wanted::Best,
        SourceArg::PageTable => Wanted::PageTable,
        SourceArg::Perf | SourceArg::PerfPaddr => Wanted::Perf,
        SourceArg::Referenced => Wanted::Referenced,
        SourceArg::Damon => Wanted::Damon,
        SourceArg::DamonPaddr => Wanted::DamonPaddr,
    }
}

/// Which events are sampled. Leaves `over`, the processes, at its default.
pub fn options(args: &SamplingArgs, max_slowdown_pct: f64) -> Result<Options, Usage> {
    let events = args.names();
    if args.events.is_some() && events.is_empty() {
        return Err(Usage("--event names no event; `isotherm doctor --events` lists those of this machine".into()));
    }
    Ok(Options { events, raw: args.perf_event, rate: args.rate(), max_slowdown_pct, ..Options::default() })
}

/// Which processes to sample for these targets.
///
/// A command that we start inherits our events, so nothing that it does is missed. Named processes get their own events, which do not
/// affect other processes. Each event then takes one descriptor per thread and CPU, and the kernel switches all of them whenever a thread
/// is scheduled. So with too many threads, and for whole cgroups and hosts, there is one event per CPU, which is cheaper.
pub fn over(targets: &TargetArgs) -> Over {
    let proc = Proc::default();
    if !targets.command.is_empty() {
        return Over::Descendants;
    }
    if let Some(path) = &targets.cgroup {
        let dir = proc.cgroups().and_then(|all| Ok(all.of_perf_events(&all.find(path)?)));
        return dir.ok().flatten().map_or(Over::Host, Over::Cgroup);
    }
    if targets.all || targets.pids.is_empty() {
        return Over::Host;
    }
    // Not all processes of the host: that would take longer than opening the source where there are thousands.
    let family = if targets.no_children { None } else { proc.family_of(&targets.pids).ok() };
    let pids = family.map_or_else(|| targets.pids.clone(), |family| family.with_descendants(&targets.pids));
    let threads: usize = pids.iter().map(|pid| proc.threads(*pid).map_or(0, |t| t.len())).sum();
    let roots = HostRoots::default();
    let cpus = cpus_online(&roots.sys).unwrap_or(1) as usize;
    let descriptors = threads.saturating_mul(cpus).saturating_mul(KINDS);
    let may_all = may_sample(&roots.proc) == Some(true);
    if descriptors > MAX_OWN_DESCRIPTORS && may_all { Over::Host } else { Over::Processes }
}
