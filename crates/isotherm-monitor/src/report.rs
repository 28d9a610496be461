//! Snapshots of the heat of all targets, and the cost of watching.

use crate::shared::is_shareable;
use crate::watched::TargetMonitor;
use crate::{Monitor, swapped};
use isotherm_heat::source::ReportSource;
use isotherm_heat::{Clock, Cost, Mapping, Ns, Region, Snapshot, Summary, TargetFacts, TargetHeat};
use isotherm_sys::heap;
use std::collections::BTreeSet;
use std::sync::Arc;

/// With more mappings than this per region, a snapshot does not hold all of them.
const MAPPINGS_PER_REGION: usize = 4;
/// Free memory is given back no sooner than after this, and after so many times what it took the last time: a ten-thousandth of a
/// CPU's time at most. It takes 0.1 ms for each MiB.
const MIN_GIVE_BACK: Ns = 10_000_000_000;
const GIVE_BACK_TIMES: u64 = 10_000;

impl<C: Clock> Monitor<C> {
    /// The heat of all targets now. Wall time is an argument: the monitor's clock may be a replay's.
    pub fn snapshot(&mut self, unix_ns: u64) -> Snapshot {
        for pid in self.alive() {
            let now = self.clock.now();
            self.step(pid, now, TargetMonitor::take_accesses);
        }
        let now = self.clock.now();
        let elapsed = now.saturating_sub(self.last_snapshot);
        let used: BTreeSet<&str> = self.watched.values().map(|w| w.cgroup.as_str()).collect();
        self.cgroups.refresh(now, &used);
        if self.follower.is_of_machine() {
            self.read_swapped(now);
        }
        let among_others = self.alive().len() > 1;
        let mut targets = Vec::with_capacity(self.watched.len());
        for watched in self.watched.values_mut() {
            let sum = watched.summarize(now, self.settings.max_regions, elapsed);
            let facts = TargetFacts {
                cgroup_memory: self.cgroups.memory(&watched.cgroup),
                cgroup_limit: self.cgroups.limit(&watched.cgroup).filter(|_| !watched.exited),
                swapped: watched.swapped.bytes().filter(|_| !watched.exited),
                ..TargetFacts::default()
            };
            let maybe_shared_pages = maybe_shared(watched, &sum.regions, among_others);
            targets.push(TargetHeat { maybe_shared_pages, ..target_heat(watched, sum, facts) });
        }
        self.note_others(&targets);
        self.forget_ended(now);
        self.give_back(now);
        self.last_snapshot = now;
        self.charge_bookkeeping();
        Snapshot { start_unix_ns: unix_ns.saturating_sub(elapsed), end_unix_ns: unix_ns, targets, cost: self.cost(now) }
    }

    /// Reads how much of processes is swapped out, of those for which it is time.
    fn read_swapped(&mut self, now: Ns) {
        let alive = self.watched.iter_mut().filter(|(_, watched)| !watched.exited);
        let mut due: Vec<_> =
            alive.filter_map(|(pid, watched)| Some((watched.swapped.due(now)?, *pid, watched))).collect();
        due.sort_by_key(|(read_at, pid, _)| (*read_at, *pid));
        for (_, pid, watched) in due.into_iter().take(swapped::READ_AT_ONCE) {
            watched.swapped.note(now, self.proc.status(pid).ok().and_then(|status| status.swap));
        }
    }

    /// Reports once that somebody else clears accessed bits.
    fn note_others(&mut self, targets: &[TargetHeat]) {
        let Some(target) = targets.iter().find(|t| t.facts.cleared_by_others_pages > 0) else { return };
        if !std::mem::replace(&mut self.reported_others, true) {
            self.news.push(format!(
                "accessed bits of process {} ({}) are cleared by something else as well (another monitor, the kernel's DAMON, reclaim, or the \
                 program's own MADV_FREE): less access is found than there is",
                target.id.pid, target.comm
            ));
        }
    }

    /// Gives free memory back to the system: lists that this snapshot and first checks have made and freed.
    fn give_back(&mut self, now: Ns) {
        if now >= self.next_give_back {
            let cpu = self.clock.cpu();
            heap::give_back();
            let took = self.clock.cpu().saturating_sub(cpu);
            self.next_give_back = now + MIN_GIVE_BACK.max(GIVE_BACK_TIMES * took);
        }
    }

    fn forget_ended(&mut self, now: Ns) {
        let ended: Vec<u32> = self.watched.iter().filter(|(_, w)| w.exited).map(|(pid, _)| *pid).collect();
        for pid in ended {
            if let Some(watched) = self.watched.remove(&pid) {
                self.ended.add(&watched, now);
            }
        }
    }

    /// The cost of watching so far. The slow-down is that of the target that suffered most.
    pub fn cost(&mut self, now: Ns) -> Cost {
        let tallies = || self.watched.values().map(TargetMonitor::tally);
        let reports = self.source.0.as_reports().map(ReportSource::reports).unwrap_or_default();
        let worst = self.watched.values().map(|w| w.slowdown_pct(now)).fold(self.ended.slowdown_pct, f64::max);
        Cost {
            elapsed_ns: now.saturating_sub(self.started),
            monitor_cpu_ns: self.cpu.used(self.clock.cpu()),
            pages_read: self.spent.pages_read,
            pages_cleared: self.ended.cleared + tallies().map(|t| t.cleared).sum::<u64>(),
            pages_retouched: self.ended.retouched + tallies().map(|t| t.retouched).sum::<u64>(),
            slowdown_pct: worst,
            longest_hold_ns: self.spent.longest_hold_ns,
            read_errors: self.spent.read_errors,
            samples: reports.samples,
            samples_lost: reports.lost,
            events: reports.events,
        }
    }
}

fn target_heat(watched: &mut TargetMonitor, sum: Summary, of_cgroup: TargetFacts) -> TargetHeat {
    let facts = TargetFacts {
        cleared_by_others_pages: watched.cleared_by_others(),
        runs_guest: watched.runs_guest,
        ..of_cgroup
    };
    TargetHeat {
        id: watched.id,
        comm: watched.comm.clone(),
        cgroup: watched.cgroup.clone(),
        exited: watched.exited,
        granularity: watched.tracker.granularity(),
        mappings: shown_mappings(watched, &sum.regions),
        regions: sum.regions,
        temperature: sum.temperature,
        idle: sum.idle,
        counted_elsewhere_pages: watched.shared.elsewhere,
        maybe_shared_pages: watched.shared.unknown,
        unclearable_pages: sum.unclearable_pages,
        behind_huge: sum.behind_huge,
        idle_by_mapping: sum.idle_by_mapping,
        facts,
    }
}

/// Pages that other targets may map too. Of a target that was compared with them, those whose frames are not known. Of others, as long as there are any, all
/// whose mapping may be shared: what is sampled is never compared, and what is new will be.
fn maybe_shared(watched: &TargetMonitor, regions: &[Region], among_others: bool) -> u64 {
    if watched.is_compared || !among_others || watched.exited {
        return watched.shared.unknown;
    }
    let is_shareable = |region: &&Region| Mapping::first_in(&watched.mappings, region.range).is_some_and(is_shareable);
    regions.iter().filter(is_shareable).map(|region| region.resident_pages).sum()
}

/// The mappings for a snapshot: those of the last one, if they are the same.
fn shown_mappings(watched: &mut TargetMonitor, regions: &[Region]) -> Arc<[Mapping]> {
    let mappings = mappings_with_regions(&watched.mappings, regions);
    if *watched.shown_mappings != *mappings {
        watched.shown_mappings = mappings.into();
    }
    Arc::clone(&watched.shown_mappings)
}

/// Mappings that hold part of a region: both lists are sorted. Where a few regions span thousands of mappings, only those in
/// which a region begins: nobody reads the others, and every snapshot would carry them.
fn mappings_with_regions(mappings: &[Mapping], regions: &[Region]) -> Vec<Mapping> {
    let mut at = 0;
    let holds = |m: &&Mapping| {
        at += regions[at..].partition_point(|r| r.range.end <= m.range.start);
        regions.get(at).is_some_and(|r| r.range.start < m.range.end)
    };
    if mappings.len() > MAPPINGS_PER_REGION * regions.len() {
        let holding = |start| {
            let after = mappings.partition_point(|m| m.range.start <= start);
            mappings[..after].last().filter(|m| m.range.contains(start)).cloned()
        };
        let mut named: Vec<_> = regions.iter().filter_map(|r| holding(r.range.start)).collect();
        named.dedup();
        return named;
    }
    mappings.iter().filter(holds).cloned().collect()
}
