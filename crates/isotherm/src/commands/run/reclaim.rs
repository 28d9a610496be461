//! Takes idle files from memory cgroups: every few seconds, for each cgroup that a scheme names.
//!
//! This counts what is idle in the processes of a cgroup, as the monitor knows it. The state decides how much to ask for
//! ([`isotherm_schemes::state::State`]), and a thread of its own asks ([`isotherm_schemes::reclaim::worker`]).

use super::acting::{Ends, turn};
use super::args::RunArgs;
use super::config::Config;
use super::page_out::{MINUTE, unfit_for_idle};
use crate::args::usage::Usage;
use crate::output;
use isotherm_heat::{Clock, Mapping, Ns, Snapshot, Target, TargetHeat, TargetId};
use isotherm_monitor::Monitor;
use isotherm_schemes::page_out::keeper::{SEARCH, Stays};
use isotherm_schemes::reclaim::Asker;
use isotherm_schemes::reclaim::idle::IdleFiles;
use isotherm_schemes::reclaim::reclaimer::Found;
use isotherm_schemes::reclaim::users::{Process, Users};
use isotherm_schemes::reclaim::worker::Worker;
use isotherm_schemes::scheme::ReclaimScheme;
use isotherm_schemes::state::{Shared, lock};
use isotherm_sys::clock;
use isotherm_sys::proc::{Cgroup, CgroupKind, Cgroups, Mounts, Proc};
use isotherm_systemd::Pulse;
use std::collections::{BTreeMap, BTreeSet};
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
    (shared, dry_run, pulse): (&'scope Shared, bool, &'scope Pulse),
    ends: Ends<'scope>,
) {
    if is_asked {
        scope.spawn(move || {
            let _on_panic = ends.on_panic();
            work((shared, dry_run, pulse), || ends.is_near());
        });
    }
}

fn work((shared, dry_run, pulse): (&Shared, bool, &Pulse), is_over: impl Fn() -> bool) {
    let mut worker = Worker::new(Asker::new(dry_run), clock::monotonic_ns());
    while !is_over() {
        let now = clock::monotonic_ns();
        let until = turn(pulse, now, || {
            let asked = worker.turn(shared, now);
            if let Some(fault) = asked.fault {
                output::warn(fault);
            }
            Some(asked.until)
        });
        std::thread::sleep(Duration::from_nanos(until.unwrap_or(now).saturating_sub(now)).min(LONGEST_SLEEP));
    }
}

/// A cgroup of which a scheme takes idle files, with those of its processes that are watched.
struct Asked<'a> {
    cgroup: Cgroup,
    scheme: ReclaimScheme,
    /// With where each sees files in memory.
    targets: Vec<(&'a TargetHeat, Mounts)>,
}

/// Idle files of a cgroup.
struct Idle {
    cgroup: Cgroup,
    scheme: ReclaimScheme,
    /// For how long they are idle, and when they were counted.
    min_idle_ns: Ns,
    counted_at: Ns,
    /// Why none of them may leave, if so.
    stays: Option<Stays>,
    files: IdleFiles,
    working_set_pages: u64,
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
        let idle = asked.into_values().map(|asked| asked.idle(shared, monitor, others_clear));
        let idle: Vec<Idle> = idle.collect();
        let may_leave = idle.iter().filter(|of| of.stays.is_none()).map(|of| &of.files);
        let mut users = Users::of(may_leave, snapshot.alive().filter_map(|target| user(target, monitor)));
        for mut of in idle {
            if of.stays.is_none() {
                of.files = of.files.spare(&mut users, &of.cgroup.path, (of.min_idle_ns, monitor.now()));
            }
            lock(shared).found_idle_files(&of.cgroup, of.found(), of.scheme.watermarks, of.counted_at);
        }
    }

    /// The cgroups that are asked, by path.
    fn asked<'a>(&mut self, shared: &Shared, proc: &Proc, snapshot: &'a Snapshot) -> BTreeMap<String, Asked<'a>> {
        let mut asked: BTreeMap<String, Asked<'a>> = BTreeMap::new();
        let Some(cgroups) = proc.known_cgroups(&mut self.cgroups) else { return asked };
        for target in snapshot.alive() {
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
            let mounts = proc.mounts(target.id.pid).unwrap_or_else(|_| Mounts::usual());
            asked.entry(cgroup.path.clone()).or_insert_with(new).targets.push((target, mounts));
        }
        asked
    }
}

impl Asked<'_> {
    fn idle(
        self,
        shared: &Shared,
        monitor: &mut Monitor<Box<dyn Clock>>,
        others_clear: &BTreeMap<TargetId, Ns>,
    ) -> Idle {
        let min_idle_ns = lock(shared).reclaim_age(&self.cgroup, self.scheme, clock::monotonic_ns());
        let stays = self.stays(monitor, others_clear);
        if stays.is_none() {
            // Some of it may have left since the last background read.
            for (target, mounts) in &self.targets {
                read_again(target.id.pid, mounts, monitor, min_idle_ns);
            }
        }
        let files = |(target, mounts): &(&TargetHeat, Mounts)| {
            let (pages, mappings) = known(monitor, target.id.pid)?;
            Some(IdleFiles::of(pages, (mappings, mounts), min_idle_ns, monitor.now()))
        };
        Idle {
            min_idle_ns,
            counted_at: clock::monotonic_ns(),
            stays,
            files: self.targets.iter().filter_map(files).fold(IdleFiles::default(), IdleFiles::and),
            working_set_pages: self.targets.iter().map(|(target, _)| target.temperature.within_ns(MINUTE)).sum(),
            cgroup: self.cgroup,
            scheme: self.scheme,
        }
    }

    /// Why nothing of it may leave, if so.
    fn stays(&self, monitor: &Monitor<Box<dyn Clock>>, others_clear: &BTreeMap<TargetId, Ns>) -> Option<Stays> {
        let pids: BTreeSet<u32> = self.targets.iter().map(|(target, _)| target.id.pid).collect();
        if self.targets.iter().any(|(target, _)| others_clear.contains_key(&target.id)) {
            return Some(Stays::ClearedByOthers);
        }
        let is_known = |pid: &u32| pids.contains(pid) && monitor.pages_of(*pid).is_some();
        let seen = self.cgroup.processes_if_all_seen();
        let all_known = seen.is_ok_and(|seen| seen.is_some_and(|pids| pids.iter().all(is_known)));
        (!all_known).then_some(Stays::Unwatched)
    }
}

impl Idle {
    fn found(&self) -> Found {
        Found {
            idle_pages: self.files.pages(),
            present_pages: self.files.present_pages(),
            shared_pages: self.files.shared_pages(),
            working_set_pages: self.working_set_pages,
            stays: self.stays,
        }
    }
}

/// Reads what looks idle in a process.
fn read_again(pid: u32, mounts: &Mounts, monitor: &mut Monitor<Box<dyn Clock>>, min_idle_ns: Ns) {
    let Some((pages, mappings)) = known(monitor, pid) else { return };
    let mut pmds = IdleFiles::pmds_of(pages, (mappings, mounts), min_idle_ns, monitor.now());
    pmds.truncate(MAX_READ_AGAIN);
    if !pmds.is_empty() {
        monitor.read_now(pid, &pmds);
    }
}

/// Pages and mappings of a process that is watched page by page.
fn known(monitor: &Monitor<Box<dyn Clock>>, pid: u32) -> Option<(&Target, &[Mapping])> {
    Some((monitor.pages_of(pid)?, monitor.mappings_of(pid)?))
}

fn user<'a>(target: &'a TargetHeat, monitor: &'a Monitor<Box<dyn Clock>>) -> Option<Process<'a>> {
    let mappings = monitor.mappings_of(target.id.pid)?;
    Some(Process { cgroup: &target.cgroup, pages: monitor.pages_of(target.id.pid), mappings })
}
