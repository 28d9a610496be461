//! Takes idle files from memory cgroups: every few seconds, for each cgroup that a scheme names.
//!
//! This counts what is idle in the processes of a cgroup, as the monitor knows it. The state decides how much to ask for
//! ([`isotherm_schemes::state::State`]), and a thread of its own asks ([`isotherm_schemes::reclaim::worker`]).

use super::acting::Ends;
use super::args::RunArgs;
use super::config::Config;
use super::page_out::{MINUTE, unfit_for_idle};
use crate::args::usage::Usage;
use crate::output;
use isotherm_heat::{Clock, Ns, Snapshot, TargetHeat, TargetId};
use isotherm_monitor::Monitor;
use isotherm_schemes::page_out::keeper::{SEARCH, Stays};
use isotherm_schemes::reclaim::Asker;
use isotherm_schemes::reclaim::idle::IdleFiles;
use isotherm_schemes::reclaim::reclaimer::Found;
use isotherm_schemes::reclaim::worker::Worker;
use isotherm_schemes::scheme::ReclaimScheme;
use isotherm_schemes::state::{Shared, lock};
use isotherm_sys::clock;
use isotherm_sys::proc::{Cgroup, CgroupKind, Cgroups, Mounts, Proc};
use std::collections::BTreeMap;
use std::thread::Scope;
use std::time::Duration;

/// The longest sleep of the thread, so that it ends soon after the rest.
const LONGEST_SLEEP: Duration = Duration::from_millis(200);

/// Most huge ranges of a process that are read once more before its idle pages are counted: 8 GiB, which takes some milliseconds.
const MAX_READ_AGAIN: usize = 4096;

/// Refuses settings with which memory that is in use may look idle.
pub fn check(args: &RunArgs, config: &Config) -> Result<(), Usage> {
    let unfit = unfit_for_idle(args, config).filter(|_| config.reclaims());
    unfit.map_or(Ok(()), |why| Err(Usage(format!("a scheme reclaims: {why}"))))
}

/// Starts the thread that asks, if a scheme says so.
pub fn start<'scope>(
    scope: &'scope Scope<'scope, '_>,
    is_asked: bool,
    (shared, dry_run): (&'scope Shared, bool),
    ends: Ends<'scope>,
) {
    if is_asked {
        scope.spawn(move || {
            let _on_panic = ends.on_panic();
            work(shared, dry_run, || ends.is_near());
        });
    }
}

fn work(shared: &Shared, dry_run: bool, is_over: impl Fn() -> bool) {
    let mut worker = Worker::new(Asker::new(dry_run), clock::monotonic_ns());
    while !is_over() {
        let now = clock::monotonic_ns();
        let turn = worker.turn(shared, now);
        if let Some(fault) = turn.fault {
            output::warn(fault);
        }
        std::thread::sleep(Duration::from_nanos(turn.until.saturating_sub(now)).min(LONGEST_SLEEP));
    }
}

/// A cgroup of which a scheme takes idle files, with those of its processes that are watched.
struct Asked<'a> {
    cgroup: Cgroup,
    scheme: ReclaimScheme,
    targets: Vec<&'a TargetHeat>,
}

/// Counts idle files.
#[derive(Debug, Default)]
pub struct Counting {
    cgroups: Option<Cgroups>,
    counted_at: Ns,
    /// The log says that cgroups of version 1 are passed over.
    has_warned: bool,
}

impl Counting {
    /// Counts what is idle, if it is time. What something else has cleared the accessed bits of may look idle.
    pub fn step(
        &mut self,
        (shared, proc): (&Shared, &Proc),
        monitor: &mut Monitor<Box<dyn Clock>>,
        snapshot: &Snapshot,
        others_clear: &BTreeMap<TargetId, Ns>,
    ) {
        let now = clock::monotonic_ns();
        if now.saturating_sub(self.counted_at) < SEARCH {
            return;
        }
        self.counted_at = now;
        let asked = self.asked(shared, proc, snapshot);
        lock(shared).keep_cgroups(|path| asked.contains_key(path));
        for Asked { cgroup, scheme, targets } in asked.into_values() {
            let min_idle_ns = lock(shared).reclaim_age(&cgroup, scheme, now);
            let stays = stays(&cgroup, &targets, monitor, others_clear);
            let watched: Vec<(&TargetHeat, Mounts)> = targets.iter().map(|t| (*t, mounts_of(proc, t.id.pid))).collect();
            if stays.is_none() {
                read_again(&watched, monitor, min_idle_ns);
            }
            let is_elsewhere = |target: &&TargetHeat| stays.is_none() && target.cgroup != cgroup.path;
            let elsewhere: Vec<&TargetHeat> = live(snapshot).filter(is_elsewhere).collect();
            let found = Found { stays, ..found(&watched, &elsewhere, monitor, min_idle_ns) };
            lock(shared).found_idle_files(&cgroup, found, scheme.watermarks, clock::monotonic_ns());
        }
    }

    /// The cgroups that are asked, by path.
    fn asked<'a>(&mut self, shared: &Shared, proc: &Proc, snapshot: &'a Snapshot) -> BTreeMap<String, Asked<'a>> {
        let mut asked: BTreeMap<String, Asked<'a>> = BTreeMap::new();
        let Some(cgroups) = proc.known_cgroups(&mut self.cgroups) else { return asked };
        for target in live(snapshot) {
            let Some(scheme) = lock(shared).reclaims(target.id) else { continue };
            let Ok(membership) = proc.membership(target.id.pid) else { continue };
            let Some(cgroup) = cgroups.of(&membership) else { continue };
            if cgroup.kind != CgroupKind::Unified {
                if !std::mem::replace(&mut self.has_warned, true) {
                    output::warn(format_args!(
                        "files of the cgroup {} stay, and of others like it: it is of version 1, and reclaim needs version 2",
                        cgroup.path
                    ));
                }
                continue;
            }
            // The scheme is that of the cgroup in which it was found. Another one may have none.
            if cgroup.path != target.cgroup {
                continue;
            }
            let new = || Asked { cgroup: cgroup.clone(), scheme, targets: Vec::new() };
            asked.entry(cgroup.path.clone()).or_insert_with(new).targets.push(target);
        }
        asked
    }
}

fn live(snapshot: &Snapshot) -> impl Iterator<Item = &TargetHeat> {
    snapshot.targets.iter().filter(|target| !target.exited)
}

/// Why nothing of a cgroup may leave, if so.
fn stays(
    cgroup: &Cgroup,
    targets: &[&TargetHeat],
    monitor: &Monitor<Box<dyn Clock>>,
    others_clear: &BTreeMap<TargetId, Ns>,
) -> Option<Stays> {
    if targets.iter().any(|target| others_clear.contains_key(&target.id)) {
        return Some(Stays::ClearedByOthers);
    }
    let is_known = |pid: &u32| targets.iter().any(|target| target.id.pid == *pid) && monitor.pages_of(*pid).is_some();
    let all_known = cgroup.processes_if_all_seen().is_ok_and(|seen| seen.is_some_and(|pids| pids.iter().all(is_known)));
    (!all_known).then_some(Stays::Unwatched)
}

/// Where a process sees files in memory.
fn mounts_of(proc: &Proc, pid: u32) -> Mounts {
    proc.mounts(pid).unwrap_or_else(|_| Mounts::usual())
}

/// Reads what looks idle in these processes: some of it may have left since the last background read.
fn read_again(targets: &[(&TargetHeat, Mounts)], monitor: &mut Monitor<Box<dyn Clock>>, min_idle_ns: Ns) {
    for (pid, mounts) in targets.iter().map(|(target, mounts)| (target.id.pid, mounts)) {
        let (Some(pages), Some(mappings)) = (monitor.pages_of(pid), monitor.mappings_of(pid)) else { continue };
        let mut pmds = IdleFiles::pmds_of(pages, (mappings, mounts), min_idle_ns, monitor.now());
        pmds.truncate(MAX_READ_AGAIN);
        if !pmds.is_empty() {
            monitor.read_now(pid, &pmds);
        }
    }
}

/// What is idle in these processes, and in those of other cgroups as far as they map the same files.
fn found(
    targets: &[(&TargetHeat, Mounts)],
    elsewhere: &[&TargetHeat],
    monitor: &Monitor<Box<dyn Clock>>,
    min_idle_ns: Ns,
) -> Found {
    let idle = |(target, mounts): &(&TargetHeat, Mounts)| {
        let pages = monitor.pages_of(target.id.pid)?;
        Some(IdleFiles::of(pages, (monitor.mappings_of(target.id.pid)?, mounts), min_idle_ns, monitor.now()))
    };
    let files = targets.iter().filter_map(idle).fold(IdleFiles::default(), IdleFiles::and);
    let spare = |files: IdleFiles, target: &&TargetHeat| {
        let Some(mappings) = monitor.mappings_of(target.id.pid) else { return files };
        let used = files.used_by(monitor.pages_of(target.id.pid), mappings, min_idle_ns, monitor.now());
        files.without(&used)
    };
    let files = elsewhere.iter().fold(files, spare);
    Found {
        idle_pages: files.pages(),
        present_pages: files.present_pages(),
        shared_pages: files.shared_pages(),
        working_set_pages: targets.iter().map(|(target, _)| target.temperature.within_ns(MINUTE)).sum(),
        stays: None,
    }
}
