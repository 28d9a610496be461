//! From a snapshot, and what is known of pages, to the rows that are sent.

use crate::output;
use isotherm_heat::{Histogram, Interval, Ns, RunInfo, Snapshot, Target, TargetHeat, TargetId};
use isotherm_schemes::bring_back::BROUGHT_BACK;
use isotherm_schemes::collapse::COLLAPSED;
use isotherm_schemes::migrate::MIGRATED;
use isotherm_schemes::page_out::PAGED_OUT;
use isotherm_schemes::state::{Status, TargetStatus};
use isotherm_stream::{ActionRow, HostRow, MappingRow, ProcessRow, RegionRow};
use isotherm_sys::proc::{Cgroup, Cgroups, Proc};
use isotherm_units::{Bytes, PMD_SIZE};
use std::collections::HashMap;

/// The machine, the monitor and its cost.
pub fn host(run: &RunInfo, hostname: &str, snapshot: &Snapshot, (unchecked, all): (usize, usize)) -> HostRow {
    let cost = &snapshot.cost;
    HostRow {
        start_unix_ns: snapshot.start_unix_ns,
        end_unix_ns: snapshot.end_unix_ns,
        hostname: hostname.to_owned(),
        version: run.version.clone(),
        source: run.source.clone(),
        source_note: run.source_note.clone(),
        kernel: run.kernel.clone(),
        cpu: run.cpu.clone(),
        cpus: run.cpus,
        memory_bytes: run.memory.0,
        elapsed_ns: cost.elapsed_ns,
        monitor_cpu_ns: cost.monitor_cpu_ns,
        slowdown_pct: cost.slowdown_pct,
        max_cpu_pct: run.max_cpu_pct,
        max_slowdown_pct: run.max_slowdown_pct,
        read_errors: cost.read_errors,
        unchecked_pmds: unchecked as u64,
        all_pmds: all as u64,
        pages_read: cost.pages_read,
        pages_cleared: cost.pages_cleared,
        pages_retouched: cost.pages_retouched,
        samples_lost: cost.samples_lost,
    }
}

/// What changes slowly and takes a file or more to read: limits of memory cgroups, and what of a process is in swap.
#[derive(Debug)]
pub struct Slow {
    cgroups: Option<Cgroups>,
    read_at: Ns,
    limits: HashMap<String, Option<u64>>,
    swapped: HashMap<TargetId, Option<u64>>,
}

/// How long it is kept.
const SLOW_TTL: Ns = 10_000_000_000;

impl Slow {
    pub fn new(proc: &Proc) -> Slow {
        Slow { cgroups: proc.cgroups().ok(), read_at: 0, limits: HashMap::new(), swapped: HashMap::new() }
    }

    /// Begins another snapshot.
    pub fn begin(&mut self, now: Ns) {
        if now.saturating_sub(self.read_at) >= SLOW_TTL {
            self.read_at = now;
            self.limits.clear();
            self.swapped.clear();
        }
    }

    /// The lowest limit of the cgroup of a process, and of those above it.
    fn limit(&mut self, proc: &Proc, target: &TargetHeat) -> Option<u64> {
        if let Some(limit) = self.limits.get(&target.cgroup) {
            return *limit;
        }
        let own = || self.cgroups.as_ref()?.of(&proc.membership(target.id.pid).ok()?);
        let lowest = |cgroup: &Cgroup| cgroup.memory_use().ok().flatten()?.lowest();
        let limit = own().and_then(|own| own.with_ancestors().iter().filter_map(lowest).min()).map(|limit| limit.0);
        self.limits.insert(target.cgroup.clone(), limit);
        limit
    }

    /// What of a process is in swap.
    fn swapped(&mut self, proc: &Proc, process: TargetId) -> Option<u64> {
        let read = || proc.status(process.pid).ok()?.swap.map(|swap| swap.0);
        *self.swapped.entry(process).or_insert_with(read)
    }
}

/// One process; with what is known of each of its pages, and the time, and whether it is sampled.
pub fn process(
    target: &TargetHeat,
    (pages, is_sampled): (Option<(&Target, Ns)>, bool),
    (proc, slow): (&Proc, &mut Slow),
    status: Option<&Status>,
) -> ProcessRow {
    let on_huge = pages.map_or_else(|| huge_by_regions(target), |(pages, now)| huge_by_pages(pages, now));
    let out = status.and_then(|status| of_target(status, target.id.pid)?.page_out.as_ref());
    let heat = target.by_estimate().clone();
    ProcessRow {
        pid: target.id.pid,
        start_ticks: target.id.start_ticks,
        comm: target.comm.clone(),
        cgroup: target.cgroup.clone(),
        exited: target.exited,
        sampled: is_sampled || target.regions.iter().any(|region| region.sampled_pages > 0),
        heat_huge: part_of(&heat, &on_huge),
        heat,
        idle: target.idle.clone(),
        counted_elsewhere_pages: target.counted_elsewhere_pages,
        estimated_pages: target.estimated().pages(),
        unclearable_pages: target.unclearable_pages,
        swapped_bytes: if target.exited { None } else { slow.swapped(proc, target.id) },
        cgroup_memory: target.facts.cgroup_memory,
        cgroup_limit_bytes: if target.exited { None } else { slow.limit(proc, target) },
        left_bytes: out.map_or(0, |out| out.left_bytes),
        refaulted_bytes: out.map_or(0, |out| out.refaulted_bytes),
        out_bytes: out.map_or(0, |out| out.out_bytes),
    }
}

fn of_target(status: &Status, pid: u32) -> Option<&TargetStatus> {
    status.targets.iter().find(|target| target.pid == pid)
}

fn huge_by_pages(pages: &Target, now: Ns) -> Histogram {
    let mut huge = Histogram::default();
    pages.for_each_pmd(now, |_, view| {
        for run in view.runs.iter().filter(|run| run.huge) {
            match view.behind {
                // As the sums of the target have it: small pages that a huge page has replaced count as they were.
                Some(behind) => {
                    behind
                        .estimated(now, run.interval)
                        .for_each(|(interval, pages)| huge.add(interval, u64::from(pages)));
                }
                None => huge.add(run.interval, u64::from(run.pages)),
            }
        }
    });
    huge
}

fn huge_by_regions(target: &TargetHeat) -> Histogram {
    let mut huge = Histogram::default();
    target.regions.iter().for_each(|region| huge.add(region.interval, region.huge_pages));
    huge
}

/// `wanted` as a part of `all`: at no interval more pages than there are. The two are of moments that lie a little apart, and in the
/// meantime idle pages have grown colder. What does not fit at its interval is counted at the next where it does.
fn part_of(all: &Histogram, wanted: &Histogram) -> Histogram {
    let mut part = Histogram::default();
    let mut over = 0;
    // Towards cold first: later means idle for longer.
    for code in 1..=u8::MAX {
        let interval = Interval::from_code(code);
        let asked = over + wanted.at(interval);
        let fits = asked.min(all.at(interval));
        part.add(interval, fits);
        over = asked - fits;
    }
    for code in (1..=u8::MAX).rev() {
        let interval = Interval::from_code(code);
        let fits = over.min(all.at(interval) - part.at(interval));
        part.add(interval, fits);
        over -= fits;
    }
    part
}

/// Its regions.
pub fn regions(target: &TargetHeat) -> impl Iterator<Item = RegionRow> + '_ {
    let id = target.id;
    target.regions.iter().map(move |region| RegionRow { pid: id.pid, start_ticks: id.start_ticks, region: *region })
}

/// Its mappings.
pub fn mappings(target: &TargetHeat) -> impl Iterator<Item = MappingRow> + '_ {
    let id = target.id;
    let row = move |mapping: &isotherm_heat::Mapping| MappingRow {
        pid: id.pid,
        start_ticks: id.start_ticks,
        mapping: mapping.clone(),
    };
    target.mappings.iter().map(row)
}

/// What was done to memory so far, and why it was not.
pub fn actions(status: &Status) -> Vec<ActionRow> {
    let counters = &status.counters;
    let collapsed = counters.all(COLLAPSED).saturating_mul(PMD_SIZE);
    let all = [
        ("collapse", COLLAPSED, collapsed),
        ("page-out", PAGED_OUT, Bytes::of_pages(counters.left_pages).0),
        ("migrate", MIGRATED, status.totals.moved_bytes),
        ("bring-back", BROUGHT_BACK, status.totals.asked_back_bytes),
    ];
    let is_there = |(_, name, _): &(&str, &str, u64)| counters.done.contains_key(*name);
    let done = all.into_iter().filter(is_there).map(|(action, name, bytes)| ActionRow {
        action: action.to_owned(),
        result: "done".to_owned(),
        huge_ranges: counters.all(name),
        bytes,
    });
    // Refusals are counted for all actions together.
    let refused = counters.refused.iter().map(|(refusal, huge_ranges)| ActionRow {
        action: "any".to_owned(),
        result: output::json_name(refusal),
        huge_ranges: *huge_ranges,
        bytes: 0,
    });
    done.chain(refused).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(pages: &[(u64, u64)]) -> Histogram {
        let mut histogram = Histogram::default();
        pages.iter().for_each(|(ms, pages)| histogram.add(Interval::from_ns(ms * 1_000_000), *pages));
        histogram
    }

    #[test]
    fn a_part_is_never_more_than_the_whole() {
        let all = histogram(&[(10, 100), (1000, 50), (60_000, 512)]);
        assert_eq!(part_of(&all, &histogram(&[(10, 60), (60_000, 512)])), histogram(&[(10, 60), (60_000, 512)]));
        // It was warmer when it was counted: it has grown colder since.
        assert_eq!(part_of(&all, &histogram(&[(50_000, 512)])), histogram(&[(60_000, 512)]));
        // Or hotter.
        assert_eq!(part_of(&all, &histogram(&[(90_000, 20)])), histogram(&[(60_000, 20)]));
        assert_eq!(part_of(&all, &histogram(&[(10, 9999)])), all, "there is no more");
    }

    #[test]
    fn actions_have_what_was_done_and_why_not() {
        let text = r#"{"version": "1", "pid": 1, "targets": [], "totals": {"moved_bytes": 12288},
            "counters": {"collapsed": {"heat": 3}, "migrated": {"heat": 2}, "refused": {"no-charge": 4}, "left_pages": 9}}"#;
        let rows = actions(&serde_json::from_str(text).unwrap());
        let row = |action: &str, result: &str, huge_ranges, bytes| ActionRow {
            action: action.into(),
            result: result.into(),
            huge_ranges,
            bytes,
        };
        let done =
            [row("collapse", "done", 3, 6 << 20), row("migrate", "done", 2, 12_288), row("any", "no-charge", 4, 0)];
        assert_eq!(rows, done);
    }
}
