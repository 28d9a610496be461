//! Cold memory: how much has been idle for how long at least, of each process, cgroup or mapping.
//!
//! Only what was observed counts: pages whose accessed bits were cleared, and that no later read has found accessed. A page that was
//! accessed since then, or not checked yet, is not idle here, however cold it may be. An idle huge page is idle as a whole. Of an
//! accessed one it is not known how much is, so what lies on such pages has a column of its own: it is where more may hide.
//!
//! Sampled targets, and recordings of format version 1, have no idle time for each mapping. Their figures come from the histogram of
//! idle time, which also counts accessed pages by the interval at which they are expected to be accessed again. They have a `~`.

use super::classes::lineage;
use super::cost::CostSummary;
use super::target::is_approximate;
use crate::human::{self, Keep};
use crate::math;
use crate::text::{Column, Table, TextStyle, write_wrapped};
use isotherm_heat::{Granularity, Interval, MappingIdle, Snapshot, TargetHeat};
use isotherm_units::{Addr, Bytes};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};

const SECOND: u64 = 1_000_000_000;
/// The ages that are shown.
pub const COLD_AGES_NS: [u64; 4] = [10 * SECOND, 60 * SECOND, 600 * SECOND, 3600 * SECOND];
const HEADS: [(&str, u8); 4] = [("10 S", 0), ("1 MIN", 0), ("10 MIN", 2), ("1 H", 3)];
/// A page is idle from the first read after it was cleared. To clear the first pages, and to read them again, takes a few seconds.
const FIRST_IDLE_NS: u64 = 5 * SECOND;
/// Mappings that are shown as text.
const SHOWN_MAPPINGS: usize = 40;

/// What a row stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ColdBy {
    /// A process.
    #[default]
    Process,
    /// A cgroup with those below it.
    Cgroup,
    /// A mapping of a process.
    Mapping,
}

/// Memory that has been idle for some time or longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ColdAge {
    /// The time.
    pub age_ns: u64,
    /// So much memory. `None` if nothing was watched for long enough to be seen idle for that long.
    pub bytes: Option<Bytes>,
    /// The part of it on huge pages.
    pub huge_bytes: Option<Bytes>,
}

/// One process, cgroup or mapping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ColdRow {
    /// Process id; none for a cgroup.
    pub pid: Option<u32>,
    /// Command name, path of the cgroup, or name of the mapping.
    pub name: String,
    /// Where the mapping begins.
    pub start: Option<Addr>,
    /// Whether figures may be too high: expected idle time counts as well, or pages may be counted twice.
    pub approximate: bool,
    /// Resident memory. `None` for a mapping.
    pub resident_bytes: Option<Bytes>,
    /// Memory whose heat is not known yet. `None` for a mapping.
    pub unmeasured_bytes: Option<Bytes>,
    /// Memory on huge pages that are not known to be idle for the shortest of the ages: some of it may be. `None` for a mapping.
    pub in_accessed_huge_bytes: Option<Bytes>,
    /// By age.
    pub idle: Vec<ColdAge>,
}

/// The report of one snapshot.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ColdReport {
    /// When the snapshot was taken.
    pub end_unix_ns: u64,
    /// For how long was watched until then.
    pub watched_ns: u64,
    /// What a row stands for.
    pub by: ColdBy,
    /// Processes and mappings by idle memory; cgroups by path, each with those below it.
    pub rows: Vec<ColdRow>,
    /// All processes that have not ended, each page once.
    pub total: ColdRow,
    /// Processes without figures by mapping: sampled, or recorded before those were counted.
    pub not_by_mapping: Vec<u32>,
    /// The cost of monitoring.
    pub cost: CostSummary,
}

/// Pages that a row sums up.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    resident: u64,
    unmeasured: u64,
    huge: u64,
    /// Small pages and pages on huge pages, by age.
    idle: [[u64; 2]; COLD_AGES_NS.len()],
    approximate: bool,
}

impl Sum {
    /// `by_page`: idle pages were counted one by one.
    fn of(target: &TargetHeat, by_page: bool) -> Sum {
        let mut sum = Sum {
            resident: target.temperature.resident(),
            unmeasured: target.temperature.at(Interval::UNMEASURED),
            huge: target.regions.iter().map(|r| r.huge_pages).fold(0, u64::saturating_add),
            approximate: is_approximate(target),
            ..Sum::default()
        };
        if by_page {
            target.idle_by_mapping.iter().for_each(|mapping| sum.add_idle(mapping));
        } else {
            let measured = target.idle.iter().filter(|(idle, _)| idle.is_measured());
            for (idle, pages) in measured {
                sum.count(idle, [pages, 0]);
                sum.approximate = true;
            }
        }
        sum
    }

    fn add_idle(&mut self, mapping: &MappingIdle) {
        mapping.steps.iter().for_each(|step| self.count(step.idle, [step.pages, step.huge_pages]));
    }

    fn count(&mut self, idle: Interval, pages: [u64; 2]) {
        for (age_ns, sum) in COLD_AGES_NS.into_iter().zip(&mut self.idle) {
            if idle >= Interval::from_ns(age_ns) {
                *sum = [sum[0].saturating_add(pages[0]), sum[1].saturating_add(pages[1])];
            }
        }
    }

    /// The same without pages that are counted for another target as well. It is not known how long those are idle, so each figure is
    /// reduced in proportion.
    fn counted_once(mut self, target: &TargetHeat) -> Sum {
        let whole = self.resident;
        let kept = whole.saturating_sub(target.counted_elsewhere_pages);
        for part in [&mut self.unmeasured, &mut self.huge].into_iter().chain(self.idle.iter_mut().flatten()) {
            *part = math::scale(*part, kept, whole);
        }
        Sum { resident: kept, ..self }
    }

    fn add(&mut self, other: &Sum) {
        self.resident = self.resident.saturating_add(other.resident);
        self.unmeasured = self.unmeasured.saturating_add(other.unmeasured);
        self.huge = self.huge.saturating_add(other.huge);
        for (mine, theirs) in self.idle.iter_mut().zip(other.idle) {
            *mine = [mine[0].saturating_add(theirs[0]), mine[1].saturating_add(theirs[1])];
        }
        self.approximate |= other.approximate;
    }

    fn shortest(&self) -> u64 {
        self.idle[0][0].saturating_add(self.idle[0][1])
    }

    /// The ages as they are shown, after so long a watch.
    fn ages(&self, watched_ns: u64) -> Vec<ColdAge> {
        let age = |(age_ns, [small, huge]): (u64, [u64; 2])| {
            let pages = small.saturating_add(huge);
            let shown_from = age_ns + if pages > 0 { 0 } else { FIRST_IDLE_NS };
            let known = |pages| (watched_ns >= shown_from).then(|| Bytes::of_pages(pages));
            ColdAge { age_ns, bytes: known(pages), huge_bytes: known(huge) }
        };
        COLD_AGES_NS.into_iter().zip(self.idle).map(age).collect()
    }

    fn row(&self, pid: Option<u32>, name: &str, watched_ns: u64) -> ColdRow {
        ColdRow {
            pid,
            name: name.to_owned(),
            start: None,
            approximate: self.approximate,
            resident_bytes: Some(Bytes::of_pages(self.resident)),
            unmeasured_bytes: Some(Bytes::of_pages(self.unmeasured)),
            in_accessed_huge_bytes: Some(Bytes::of_pages(self.huge.saturating_sub(self.idle[0][1]))),
            idle: self.ages(watched_ns),
        }
    }
}

impl ColdReport {
    /// Builds the report.
    pub fn build(snapshot: &Snapshot, by: ColdBy) -> ColdReport {
        let watched_ns = snapshot.cost.elapsed_ns;
        let alive: Vec<&TargetHeat> = snapshot.alive().collect();
        let mut total = Sum::default();
        let sums: Vec<(&TargetHeat, Sum)> = alive.iter().map(|t| (*t, Sum::of(t, is_by_page(t, snapshot)))).collect();
        sums.iter().for_each(|(target, sum)| total.add(&sum.counted_once(target)));
        let rows = match by {
            ColdBy::Process => by_process(&sums, watched_ns),
            ColdBy::Cgroup => by_cgroup(&sums, watched_ns),
            ColdBy::Mapping => by_mapping(&alive, watched_ns),
        };
        let cost = CostSummary::of(&snapshot.cost);
        ColdReport {
            end_unix_ns: snapshot.end_unix_ns,
            watched_ns,
            by,
            rows,
            total: total.row(None, "total", watched_ns),
            not_by_mapping: alive.iter().filter(|t| !is_by_page(t, snapshot)).map(|t| t.id.pid).collect(),
            cost,
        }
    }

    /// Writes the report as text.
    pub fn write_text(&self, out: &mut dyn Write, style: TextStyle) -> io::Result<()> {
        let head = format!(
            "memory that no access was found to for at least so long, at {} UTC, watched for {}",
            human::utc(self.end_unix_ns),
            human::duration(self.watched_ns)
        );
        write_wrapped(out, &head, style)?;
        let shown = if self.by == ColdBy::Mapping { SHOWN_MAPPINGS } else { usize::MAX };
        let mut table = Table::new(&[self.names(), Column::numbers(&HEADS), self.more()].concat());
        self.rows.iter().take(shown).for_each(|row| table.row(self.cells(row)));
        if self.by != ColdBy::Mapping {
            table.row(self.cells(&self.total));
        }
        table.write(out, style)?;
        let left_out = self.rows.len().saturating_sub(shown);
        if left_out > 0 {
            write_wrapped(out, &format!("and {left_out} mappings with less (--json has them all)"), style)?;
        }
        self.write_notes(out, style)?;
        self.cost.write_text(out, style)
    }

    fn names(&self) -> Vec<Column> {
        match self.by {
            ColdBy::Process => vec![Column::number("PID", 1), Column::name("COMMAND", Keep::Start, 12, 0)],
            ColdBy::Cgroup => vec![Column::name("CGROUP", Keep::End, 20, 0)],
            ColdBy::Mapping => {
                vec![Column::number("PID", 1), Column::fixed("START", 5), Column::name("MAPPING", Keep::End, 12, 0)]
            }
        }
    }

    fn more(&self) -> Vec<Column> {
        match self.by {
            ColdBy::Mapping => Vec::new(),
            _ => Column::numbers(&[("RESIDENT", 1), ("UNKNOWN", 5), ("HUGE, ACCESSED", 4)]),
        }
    }

    fn cells(&self, row: &ColdRow) -> Vec<String> {
        let pid = row.pid.map_or_else(String::new, |pid| pid.to_string());
        let mut cells = match self.by {
            ColdBy::Process => vec![pid, human::printable(&row.name)],
            ColdBy::Cgroup => vec![human::printable(if row.name.is_empty() { "(none)" } else { &row.name })],
            ColdBy::Mapping => {
                let start = row.start.map_or_else(String::new, |start| start.to_string());
                vec![pid, start, row.label()]
            }
        };
        let mark = if row.approximate { "~" } else { "" };
        let known = |bytes: Option<Bytes>| bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string());
        cells.extend(row.idle.iter().map(|age| match age.bytes {
            Some(bytes) if bytes.0 > 0 => format!("{mark}{bytes}"),
            bytes => known(bytes),
        }));
        if self.by != ColdBy::Mapping {
            cells.extend([row.resident_bytes, row.unmeasured_bytes, row.in_accessed_huge_bytes].map(known));
        }
        cells
    }

    fn write_notes(&self, out: &mut dyn Write, style: TextStyle) -> io::Result<()> {
        if self.total.idle.iter().any(|age| age.bytes.is_none()) {
            write_wrapped(out, "-: watch longer than that to know it", style)?;
        }
        if self.total.approximate {
            let line = "~: may be too high: of sampled processes, idle time is partly expected; of shared memory, pages may be counted twice";
            write_wrapped(out, line, style)?;
        }
        if self.by == ColdBy::Mapping && !self.not_by_mapping.is_empty() {
            let pids: Vec<String> = self.not_by_mapping.iter().map(u32::to_string).collect();
            let line =
                format!("no figures by mapping of {}: sampled, or recorded before they were counted", pids.join(", "));
            write_wrapped(out, &line, style)?;
        }
        if self.total.in_accessed_huge_bytes.is_some_and(|bytes| bytes.0 > 0) && self.by != ColdBy::Mapping {
            let line = "HUGE, ACCESSED: memory on huge pages that are not known to be idle for 10 s: accessed, of which their one accessed bit does not show how much, or not checked for so long yet";
            write_wrapped(out, line, style)?;
        }
        Ok(())
    }
}

impl ColdRow {
    fn label(&self) -> String {
        match self.start {
            Some(_) => human::mapping(&self.name),
            None => "(others)".to_owned(),
        }
    }
}

/// Whether idle pages of a target were counted one by one: if those of any were, an empty list means that nothing is idle.
fn is_by_page(target: &TargetHeat, snapshot: &Snapshot) -> bool {
    target.granularity == Granularity::Page && snapshot.targets.iter().any(|t| !t.idle_by_mapping.is_empty())
}

fn by_process(sums: &[(&TargetHeat, Sum)], watched_ns: u64) -> Vec<ColdRow> {
    let row = |(t, sum): &(&TargetHeat, Sum)| (sum.shortest(), sum.row(Some(t.id.pid), &t.comm, watched_ns));
    in_order(sums.iter().map(row).collect())
}

fn by_cgroup(sums: &[(&TargetHeat, Sum)], watched_ns: u64) -> Vec<ColdRow> {
    let mut of: BTreeMap<String, Sum> = BTreeMap::new();
    for (target, sum) in sums {
        let sum = sum.counted_once(target);
        lineage(&target.cgroup).into_iter().for_each(|path| of.entry(path).or_default().add(&sum));
    }
    of.into_iter().map(|(path, sum)| sum.row(None, &path, watched_ns)).collect()
}

fn by_mapping(alive: &[&TargetHeat], watched_ns: u64) -> Vec<ColdRow> {
    let mut rows = Vec::new();
    for (target, mapping) in alive.iter().flat_map(|t| t.idle_by_mapping.iter().map(move |m| (t, m))) {
        let mut sum = Sum::default();
        sum.add_idle(mapping);
        if sum.shortest() == 0 {
            continue;
        }
        let at = mapping.start.and_then(|start| target.mappings.binary_search_by_key(&start, |m| m.range.start).ok());
        // A snapshot does not hold all of very many mappings.
        let name = at.map_or("?", |at| target.mappings[at].name.as_str());
        let row = ColdRow {
            start: mapping.start,
            approximate: is_approximate(target),
            resident_bytes: None,
            unmeasured_bytes: None,
            in_accessed_huge_bytes: None,
            ..sum.row(Some(target.id.pid), name, watched_ns)
        };
        rows.push((sum.shortest(), row));
    }
    in_order(rows)
}

/// Most idle memory first.
fn in_order(mut rows: Vec<(u64, ColdRow)>) -> Vec<ColdRow> {
    rows.sort_by_key(|(pages, row)| (Reverse(*pages), row.pid, row.start));
    rows.into_iter().map(|(_, row)| row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{MIB, mapping, region, snapshot, target};
    use isotherm_heat::{IdleStep, Region};

    const S: u64 = SECOND;

    fn step(idle_s: u64, pages: u64, huge_pages: u64) -> IdleStep {
        let idle = Interval::from_ns(idle_s * S);
        IdleStep { idle, pages, huge_pages, accessed_pages: 0, accessed_huge_pages: 0 }
    }

    /// 8 MiB, of which 4 are huge.
    fn of(pid: u32, cgroup: &str, idle_by_mapping: Vec<MappingIdle>) -> TargetHeat {
        let regions = vec![Region { huge_pages: 1024, ..region(0, 8 * MIB, 60 * S) }];
        let mappings = vec![mapping(0, 4 * MIB, "[heap]"), mapping(4 * MIB, 4 * MIB, "")];
        TargetHeat { idle_by_mapping, ..target(pid, "t", cgroup, mappings, regions) }
    }

    fn pages(row: &ColdRow) -> Vec<Option<u64>> {
        row.idle.iter().map(|age| age.bytes.map(Bytes::pages)).collect()
    }

    fn snapshot_after(watched_s: u64, targets: Vec<TargetHeat>) -> Snapshot {
        let mut snapshot = snapshot(1, targets);
        snapshot.cost.elapsed_ns = watched_s * S;
        snapshot
    }

    #[test]
    fn an_age_counts_all_that_is_idle_for_longer_and_is_unknown_before_it_can_be() {
        let start = |mib: u64| Some(Addr(mib * MIB));
        let heap = MappingIdle { start: start(0), steps: vec![step(5, 1, 0), step(30, 2, 512), step(700, 4, 0)] };
        let anon = MappingIdle { start: start(4), steps: vec![step(70, 8, 0)] };
        let few = MappingIdle { start: start(9), steps: vec![step(3, 8, 0)] };
        let sampled = TargetHeat { granularity: Granularity::Region, ..of(2, "/a", vec![]) };
        let at = snapshot_after(800, vec![of(1, "/a/b", vec![heap, anon, few]), sampled]);
        let report = ColdReport::build(&at, ColdBy::Process);
        let row = report.rows.iter().find(|r| r.pid == Some(1)).unwrap();
        assert_eq!(pages(row), [Some(526), Some(12), Some(4), None]);
        assert_eq!((row.approximate, row.in_accessed_huge_bytes.map(Bytes::pages)), (false, Some(512)));
        // The other is sampled: half of its interval of a minute, by its histogram.
        let row = report.rows.iter().find(|r| r.pid == Some(2)).unwrap();
        assert_eq!((pages(row), row.approximate), (vec![Some(2048), Some(0), Some(0), None], true));
        let mappings = ColdReport::build(&at, ColdBy::Mapping).rows;
        let reported: Vec<_> = mappings.iter().map(|r| (r.name.as_str(), r.start, pages(r)[0])).collect();
        assert_eq!(reported, [("[heap]", start(0), Some(518)), ("", start(4), Some(8))], "nothing idle in the third");
        assert_eq!(report.not_by_mapping, [2]);
        let cgroups = ColdReport::build(&at, ColdBy::Cgroup).rows;
        let reported: Vec<_> = cgroups.iter().map(|r| (r.name.as_str(), pages(r)[0])).collect();
        assert_eq!(reported, [("/a", Some(2574)), ("/a/b", Some(526))]);
    }

    #[test]
    fn shared_memory_counts_once_in_a_total_and_what_is_all_in_use_is_not_taken_for_sampled() {
        let idle = || vec![MappingIdle { start: None, steps: vec![step(30, 2048, 0)] }];
        let also = TargetHeat { counted_elsewhere_pages: 1536, ..of(2, "/a", idle()) };
        let report = ColdReport::build(
            &snapshot_after(60, vec![of(1, "/a", idle()), also, of(3, "/b", vec![])]),
            ColdBy::Process,
        );
        assert_eq!(report.rows.iter().map(|r| pages(r)[0]).collect::<Vec<_>>(), [Some(2048), Some(2048), Some(0)]);
        assert_eq!((pages(&report.total)[0], report.not_by_mapping.len()), (Some(2560), 0));
        assert_eq!(report.total.resident_bytes.map(Bytes::pages), Some(2048 + 512 + 2048));
    }

    #[test]
    fn the_ended_do_not_count() {
        let mut ended = of(1, "", vec![MappingIdle { start: None, steps: vec![step(30, 5, 0)] }]);
        ended.exited = true;
        let report = ColdReport::build(&snapshot_after(70, vec![ended]), ColdBy::Process);
        assert_eq!((report.rows.len(), pages(&report.total)), (0, vec![Some(0), Some(0), None, None]));
    }

    #[test]
    fn what_could_not_be_seen_yet_is_not_none() {
        let after = |watched_s, pages_idle_11_s| {
            let idle = vec![MappingIdle { start: None, steps: vec![step(11, pages_idle_11_s, 0)] }];
            let snapshot = snapshot_after(watched_s, vec![of(1, "", idle)]);
            pages(&ColdReport::build(&snapshot, ColdBy::Process).total)
        };
        assert_eq!(after(12, 0), [None; 4], "the first pages were cleared too late to be idle for 10 s");
        assert_eq!(after(15, 0), [Some(0), None, None, None]);
        assert_eq!(after(12, 5), [Some(5), None, None, None]);
    }
}
