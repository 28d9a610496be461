//! Hot, warm, cold, idle: the memory of each process and each cgroup by class.
//!
//! A row shows all memory that a process has mapped, as if it were alone. A total counts each page once: pages that a
//! target shares with another counted target are subtracted. The heat of the shared pages is not recorded separately,
//! so each class is reduced in proportion. The classes still add up to the resident memory. Targets that have ended are
//! listed but not summed. A `~` means that pages may still be counted twice, because it is not known which other
//! processes map some of them.
//!
//! A cgroup includes its children, as in the kernel's own counters. Memory in the cgroup itself has its own column and
//! field. Every ancestor has a row, in tree order, the hottest child first.

use super::cost::CostSummary;
use crate::human::{self, Keep};
use crate::math;
use crate::text::{Column, Table, TextStyle, write_wrapped};
use isotherm_heat::{Acted, CgroupMemory, Classes, Snapshot, TargetHeat, Thresholds};
use isotherm_units::Bytes;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Memory by class, and how much of it is shared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HeatSum {
    /// Accessed at least every `hot_ns`.
    pub hot_bytes: Bytes,
    /// Accessed at least every `warm_ns`.
    pub warm_bytes: Bytes,
    /// Accessed at least every `cold_ns`.
    pub cold_bytes: Bytes,
    /// Accessed less often.
    pub idle_bytes: Bytes,
    /// Interval not known yet.
    pub unmeasured_bytes: Bytes,
    /// The sum of the above.
    pub resident_bytes: Bytes,
    /// Memory in the classes above that was not checked itself yet, and is assumed to be like checked memory around it.
    pub estimated_bytes: Bytes,
    /// Hot memory if pages on huge pages count as they did before those were made, and else the same as `hot_bytes`.
    pub hot_by_estimate_bytes: Bytes,
    /// Memory on huge pages whose small pages were known before.
    pub behind_huge_bytes: Bytes,
    /// Memory that is also counted for another target. A row includes it, a total does not.
    pub counted_elsewhere_bytes: Bytes,
    /// Memory that may also be counted for another target.
    pub maybe_shared_bytes: Bytes,
}

impl HeatSum {
    /// The memory of one target.
    pub fn of(target: &TargetHeat, bounds: Thresholds) -> HeatSum {
        let c = Classes::of(&target.temperature, bounds);
        HeatSum {
            hot_bytes: c.hot,
            warm_bytes: c.warm,
            cold_bytes: c.cold,
            idle_bytes: c.idle,
            unmeasured_bytes: c.unmeasured,
            resident_bytes: Bytes::of_pages(target.temperature.resident()),
            estimated_bytes: target.estimated(),
            hot_by_estimate_bytes: Classes::of(target.by_estimate(), bounds).hot,
            behind_huge_bytes: Bytes::of_pages(target.behind_huge.as_ref().map_or(0, |b| b.pages)),
            counted_elsewhere_bytes: Bytes::of_pages(target.counted_elsewhere_pages),
            maybe_shared_bytes: Bytes::of_pages(target.maybe_shared_pages),
        }
    }

    /// The same without the memory counted elsewhere: the contribution of this target to a total.
    pub fn counted_once(&self) -> HeatSum {
        let whole = self.resident_bytes.0;
        let kept = whole.saturating_sub(self.counted_elsewhere_bytes.0);
        let (mut before, mut given) = (0_u64, 0_u64);
        // The running sum is rounded, so that the parts add up to `kept` exactly.
        let mut part = |class: Bytes| {
            before += class.0;
            let until = math::scale(before, kept, whole);
            Bytes(until - std::mem::replace(&mut given, until))
        };
        // The classes do not say which of their pages these are.
        let scaled = |bytes: Bytes| Bytes(math::scale(bytes.0.min(whole), kept, whole));
        HeatSum {
            hot_bytes: part(self.hot_bytes),
            warm_bytes: part(self.warm_bytes),
            cold_bytes: part(self.cold_bytes),
            idle_bytes: part(self.idle_bytes),
            unmeasured_bytes: part(self.unmeasured_bytes),
            resident_bytes: Bytes(kept),
            estimated_bytes: scaled(self.estimated_bytes),
            hot_by_estimate_bytes: scaled(self.hot_by_estimate_bytes),
            behind_huge_bytes: scaled(self.behind_huge_bytes),
            ..*self
        }
    }

    /// Adds another sum to this one.
    pub fn add(&mut self, other: &HeatSum) {
        let theirs = other.fields();
        for (mine, theirs) in self.fields_mut().into_iter().zip(theirs) {
            mine.0 = mine.0.saturating_add(theirs.0);
        }
    }

    /// Whether pages may be counted twice in a total that includes this.
    pub fn is_approximate(&self) -> bool {
        self.maybe_shared_bytes.0 > 0
    }

    fn fields(&self) -> [Bytes; 11] {
        let mut copy = *self;
        copy.fields_mut().map(|b| *b)
    }

    fn fields_mut(&mut self) -> [&mut Bytes; 11] {
        [
            &mut self.hot_bytes,
            &mut self.warm_bytes,
            &mut self.cold_bytes,
            &mut self.idle_bytes,
            &mut self.unmeasured_bytes,
            &mut self.resident_bytes,
            &mut self.estimated_bytes,
            &mut self.hot_by_estimate_bytes,
            &mut self.behind_huge_bytes,
            &mut self.counted_elsewhere_bytes,
            &mut self.maybe_shared_bytes,
        ]
    }

    /// The six cells that every table of classes shows.
    pub(crate) fn cells(&self, mark: &str) -> Vec<String> {
        self.fields()[..6].iter().map(|b| marked(*b, mark)).collect()
    }
}

/// An amount with a mark of doubt. Zero has no mark.
fn marked(bytes: Bytes, mark: &str) -> String {
    if bytes.0 == 0 { bytes.to_string() } else { format!("{mark}{bytes}") }
}

/// One process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProcessRow {
    /// Process id.
    pub pid: u32,
    /// Command name.
    pub comm: String,
    /// Path of its cgroup.
    pub cgroup: String,
    /// Whether it has ended. If so, it is not in the total.
    pub exited: bool,
    /// It runs a KVM guest, whose accesses are not seen.
    pub runs_guest: bool,
    /// Of its memory, swapped out. `None` if not known.
    pub swapped_bytes: Option<Bytes>,
    /// What `isotherm run` has done to it, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acted: Option<Acted>,
    /// Its memory.
    #[serde(flatten)]
    pub heat: HeatSum,
}

/// Processes by hot memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessReport {
    /// When the snapshot was taken.
    pub end_unix_ns: u64,
    /// Bounds of the classes.
    pub thresholds: Thresholds,
    /// Processes, most hot memory first.
    pub processes: Vec<ProcessRow>,
    /// The sum, with each page counted once.
    pub total: HeatSum,
    /// Whether the sum may count pages twice.
    pub total_is_approximate: bool,
    /// The cost of monitoring.
    pub cost: CostSummary,
}

impl ProcessReport {
    /// Builds the report.
    pub fn build(snapshot: &Snapshot, thresholds: Thresholds) -> ProcessReport {
        let mut processes: Vec<ProcessRow> = snapshot.targets.iter().map(|t| process(t, thresholds)).collect();
        processes.sort_by_key(|p| (Reverse(p.heat.hot_bytes), p.pid));
        let total = total_of(processes.iter());
        ProcessReport {
            end_unix_ns: snapshot.end_unix_ns,
            thresholds,
            processes,
            total,
            total_is_approximate: total.is_approximate(),
            cost: CostSummary::of(&snapshot.cost),
        }
    }

    /// Writes the report as text.
    pub fn write_text(&self, out: &mut dyn Write, style: TextStyle) -> io::Result<()> {
        write_wrapped(out, &head_line("processes", self.end_unix_ns, self.thresholds), style)?;
        let last = LastColumns::of(&self.processes);
        let mut table =
            class_table(&[Column::number("PID", 1), Column::name("COMMAND", Keep::Start, 12, 0)], &last.columns());
        for p in &self.processes {
            table.row([vec![p.pid.to_string(), p.label()], p.heat.cells(""), last.cells(p)].concat());
        }
        let mark = if self.total_is_approximate { "~" } else { "" };
        let last = vec![String::new(); last.columns().len()];
        table.row([vec![String::new(), "total".to_owned()], self.total.cells(mark), last].concat());
        table.write(out, style)?;
        write_notes(&self.total, out, style)?;
        self.cost.write_text(out, style)
    }
}

/// Columns of processes after those of the classes, each where there is any such memory: swapped, and what `isotherm run` has paged out,
/// and what of it has come back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastColumns {
    swapped: bool,
    acted: bool,
}

impl LastColumns {
    pub(crate) fn of<'a>(processes: impl IntoIterator<Item = &'a ProcessRow>) -> LastColumns {
        let none = LastColumns { swapped: false, acted: false };
        processes.into_iter().fold(none, |found, p| LastColumns {
            swapped: found.swapped || p.swapped_bytes.is_some_and(|bytes| bytes.0 > 0),
            acted: found.acted || p.acted.is_some_and(|acted| acted.left_bytes.0 > 0),
        })
    }

    /// Without that of what the process itself knows to be swapped.
    pub(crate) fn of_actions(self) -> LastColumns {
        LastColumns { swapped: false, ..self }
    }

    pub(crate) fn columns(self) -> Vec<(&'static str, u8)> {
        let swapped = self.swapped.then_some(("SWAPPED", 8));
        let acted = self.acted.then_some([("OUT", 7), ("CAME BACK", 9)]);
        swapped.into_iter().chain(acted.into_iter().flatten()).collect()
    }

    pub(crate) fn cells(self, of: &ProcessRow) -> Vec<String> {
        let text = |bytes: Option<Bytes>| bytes.map_or_else(|| "?".to_owned(), |bytes| bytes.to_string());
        let swapped = self.swapped.then(|| text(of.swapped_bytes));
        let acted = of.acted.unwrap_or_default();
        let acted = self.acted.then(|| [acted.out_bytes, acted.refaulted_bytes].map(|bytes| bytes.to_string()));
        swapped.into_iter().chain(acted.into_iter().flatten()).collect()
    }
}

impl ProcessRow {
    /// Its name, marked if it has ended or runs a guest. Printable.
    pub(crate) fn label(&self) -> String {
        let guest = if self.runs_guest { " (KVM guest unseen)" } else { "" };
        let ended = if self.exited { " (exited)" } else { "" };
        format!("{}{guest}{ended}", human::printable(&self.comm))
    }
}

/// One cgroup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CgroupRow {
    /// Its path; empty for processes whose cgroup is unknown.
    pub path: String,
    /// How many ancestors have a row above it.
    pub depth: usize,
    /// Live processes in it and below.
    pub processes: usize,
    /// Memory of the processes in it and below.
    pub total: HeatSum,
    /// Memory of the processes in it alone.
    pub own: HeatSum,
    /// The memory that the kernel charges to it, by kind, including memory that is not mapped. If it has no processes
    /// itself, the sum over the monitored cgroups below it. `None` if unknown.
    pub cgroup_memory: Option<CgroupMemory>,
}

/// Cgroups as a tree, hottest first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CgroupReport {
    /// When the snapshot was taken.
    pub end_unix_ns: u64,
    /// Bounds of the classes.
    pub thresholds: Thresholds,
    /// Parents before children, siblings by hot memory.
    pub cgroups: Vec<CgroupRow>,
    /// The sum, with each page counted once.
    pub total: HeatSum,
    /// Whether the sum may count pages twice.
    pub total_is_approximate: bool,
    /// The cost of monitoring.
    pub cost: CostSummary,
}

impl CgroupReport {
    /// Builds the report.
    pub fn build(snapshot: &Snapshot, thresholds: Thresholds) -> CgroupReport {
        let mut rows: BTreeMap<String, CgroupRow> = BTreeMap::new();
        let mut total = HeatSum::default();
        for target in snapshot.alive() {
            let heat = HeatSum::of(target, thresholds).counted_once();
            total.add(&heat);
            let lineage = lineage(&target.cgroup);
            for (depth, path) in lineage.iter().enumerate() {
                let row = rows.entry(path.clone()).or_insert_with(|| CgroupRow::new(path, depth));
                row.processes += 1;
                row.total.add(&heat);
                if depth + 1 == lineage.len() {
                    row.own.add(&heat);
                }
            }
        }
        note_memory(&mut rows, snapshot);
        CgroupReport {
            end_unix_ns: snapshot.end_unix_ns,
            thresholds,
            cgroups: in_tree_order(rows.into_values().collect()),
            total,
            total_is_approximate: total.is_approximate(),
            cost: CostSummary::of(&snapshot.cost),
        }
    }

    /// Writes the report as text.
    pub fn write_text(&self, out: &mut dyn Write, style: TextStyle) -> io::Result<()> {
        write_wrapped(out, &head_line("cgroups", self.end_unix_ns, self.thresholds), style)?;
        let is_known = self.knows_memory();
        let held = if is_known { CGROUP_MEMORY.as_slice() } else { &[] };
        let names = [Column::name("CGROUP", Keep::Start, 20, 0), Column::number("OWN", 7)];
        let mut table = class_table(&names, held);
        for c in &self.cgroups {
            let mark = if c.total.is_approximate() { "~" } else { "" };
            let own = marked(c.own.resident_bytes, if c.own.is_approximate() { "~" } else { "" });
            let memory = if is_known { c.memory_cells() } else { Vec::new() };
            table.row([vec![c.label(), own], c.total.cells(mark), memory].concat());
        }
        let mark = if self.total_is_approximate { "~" } else { "" };
        let memory = vec![String::new(); held.len()];
        table.row([vec!["total".to_owned(), String::new()], self.total.cells(mark), memory].concat());
        table.write(out, style)?;
        write_notes(&self.total, out, style)?;
        if is_known {
            write_wrapped(out, CHARGED, style)?;
        }
        self.cost.write_text(out, style)
    }
}

impl CgroupReport {
    /// Whether the charged memory of any cgroup is known.
    pub fn knows_memory(&self) -> bool {
        self.cgroups.iter().any(|c| c.cgroup_memory.is_some())
    }
}

/// Columns after those of the classes: the memory that the kernel charges to a cgroup.
pub(crate) const CGROUP_MEMORY: [(&str, u8); 4] = [("ANON", 9), ("FILE", 8), ("SLAB", 10), ("SWAP", 11)];
const CHARGED: &str = "anon, file (page cache, mapped or not), slab and swap are what the cgroup is charged for; heat is known of mapped memory only";

impl CgroupRow {
    fn new(path: &str, depth: usize) -> CgroupRow {
        let (total, own) = (HeatSum::default(), HeatSum::default());
        CgroupRow { path: path.to_owned(), depth, processes: 0, total, own, cgroup_memory: None }
    }

    /// The four cells after those of the classes.
    pub(crate) fn memory_cells(&self) -> Vec<String> {
        match self.cgroup_memory {
            Some(m) => [m.anon, m.file, m.slab, m.swap].map(|bytes| bytes.to_string()).to_vec(),
            None => vec!["?".to_owned(); CGROUP_MEMORY.len()],
        }
    }

    /// The last part of the path, indented by its depth.
    pub(crate) fn label(&self) -> String {
        let last = self.path.rsplit('/').next().unwrap_or("");
        let name = match self.path.as_str() {
            "" => "(none)",
            "/" => "/",
            _ if self.depth == 0 => &self.path,
            _ => last,
        };
        "  ".repeat(self.depth.min(20)) + &human::printable(name)
    }
}

/// Fills in the charged memory of each cgroup. For a cgroup with processes the value comes from the kernel and includes
/// the cgroups below. For other cgroups it is the sum over the direct children, which covers only monitored cgroups.
fn note_memory(rows: &mut BTreeMap<String, CgroupRow>, snapshot: &Snapshot) {
    for target in snapshot.alive() {
        let own = lineage(&target.cgroup).pop().and_then(|path| rows.get_mut(&path));
        if let (Some(row), Some(memory)) = (own, target.facts.cgroup_memory) {
            row.cgroup_memory = Some(memory);
        }
    }
    // Children sort after their parents, so in reverse order each sum is complete when it is added.
    let paths: Vec<String> = rows.keys().rev().cloned().collect();
    let mut sums: BTreeMap<String, CgroupMemory> = BTreeMap::new();
    for path in paths {
        let sum = sums.remove(&path);
        let Some(row) = rows.get_mut(&path) else { continue };
        row.cgroup_memory = row.cgroup_memory.or(sum);
        let parent = lineage(&path).into_iter().rev().nth(1);
        if let (Some(memory), Some(parent)) = (row.cgroup_memory, parent) {
            add_memory(sums.entry(parent).or_default(), &memory);
        }
    }
}

fn add_memory(sum: &mut CgroupMemory, more: &CgroupMemory) {
    let CgroupMemory { anon, file, slab, swap } = *more;
    let add = |to: &mut Bytes, bytes: Bytes| to.0 = to.0.saturating_add(bytes.0);
    add(&mut sum.anon, anon);
    add(&mut sum.file, file);
    add(&mut sum.slab, slab);
    add(&mut sum.swap, swap);
}

fn process(target: &TargetHeat, thresholds: Thresholds) -> ProcessRow {
    ProcessRow {
        pid: target.id.pid,
        comm: target.comm.clone(),
        cgroup: target.cgroup.clone(),
        exited: target.exited,
        runs_guest: target.facts.runs_guest,
        swapped_bytes: target.facts.swapped,
        acted: target.facts.acted,
        heat: HeatSum::of(target, thresholds),
    }
}

/// What is counted for several processes counts once, and what has ended does not.
pub(crate) fn total_of<'a>(processes: impl Iterator<Item = &'a ProcessRow>) -> HeatSum {
    let mut total = HeatSum::default();
    processes.filter(|p| !p.exited).for_each(|p| total.add(&p.heat.counted_once()));
    total
}

/// `/a/b/c` is in `/a`, `/a/b` and itself. The root has a row only if it contains processes directly.
pub(super) fn lineage(path: &str) -> Vec<String> {
    let parts: Vec<&str> = path.split('/').filter(|p| !p.is_empty()).collect();
    if parts.is_empty() {
        return vec![if path.is_empty() { String::new() } else { "/".to_owned() }];
    }
    (1..=parts.len()).map(|n| "/".to_owned() + &parts[..n].join("/")).collect()
}

/// Sorts rows so that each parent is followed by its children, siblings by hot memory.
///
/// The key of a row is the list of (hot, name) of its ancestors and itself. Keys differ first at the first ancestor
/// that differs, which gives tree order.
fn in_tree_order(rows: Vec<CgroupRow>) -> Vec<CgroupRow> {
    let hot: BTreeMap<String, Bytes> = rows.iter().map(|r| (r.path.clone(), r.total.hot_bytes)).collect();
    let mut rows = rows;
    rows.sort_by_cached_key(|row| {
        let of = |path: String| (Reverse(hot.get(&path).copied().unwrap_or_default()), path);
        lineage(&row.path).into_iter().map(of).collect::<Vec<_>>()
    });
    rows
}

/// Name columns, then a column for each class, then more numbers. Used by the reports and the live view.
pub(crate) fn class_table(names: &[Column], more: &[(&'static str, u8)]) -> Table {
    let classes =
        Column::numbers(&[("HOT", 0), ("WARM", 4), ("COLD", 5), ("IDLE", 3), ("UNKNOWN", 6), ("RESIDENT", 2)]);
    Table::new(&[names, &classes, &Column::numbers(more)].concat())
}

fn head_line(what: &str, end_unix_ns: u64, bounds: Thresholds) -> String {
    format!(
        "{what} at {} UTC: hot is accessed every {} or more often, warm {}, cold {}, idle less often",
        human::utc(end_unix_ns),
        human::duration(bounds.hot_ns),
        human::duration(bounds.warm_ns),
        human::duration(bounds.cold_ns),
    )
}

fn write_notes(total: &HeatSum, out: &mut dyn Write, style: TextStyle) -> io::Result<()> {
    if total.counted_elsewhere_bytes.0 > 0 {
        let line = format!("the total counts {} of shared memory once", total.counted_elsewhere_bytes);
        write_wrapped(out, &line, style)?;
    }
    if total.estimated_bytes.0 > 0 {
        let line = format!("{} not checked yet and estimated from memory around it", total.estimated_bytes);
        write_wrapped(out, &line, style)?;
    }
    if total.behind_huge_bytes.0 > 0 {
        let line = format!(
            "hot is {} by estimate: {} are on huge pages, with one accessed bit for 2 MiB each, and count as their pages did before",
            total.hot_by_estimate_bytes, total.behind_huge_bytes
        );
        write_wrapped(out, &line, style)?;
    }
    if total.is_approximate() {
        let line = format!("~ approximate: {} may be counted more than once", total.maybe_shared_bytes);
        write_wrapped(out, &line, style)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{MIB, MS, SECOND, region, snapshot, target};

    fn one(pid: u32, cgroup: &str, hot: u64, warm: u64) -> TargetHeat {
        let regions = vec![region(0, hot * MIB, MS), region(1 << 40, warm * MIB, 5 * SECOND)];
        target(pid, "t", cgroup, vec![], regions)
    }

    #[test]
    fn totals_count_shared_pages_once_and_still_add_up() {
        let mut a = one(1, "/a", 3, 1);
        a.counted_elsewhere_pages = 256; // 1 MiB of 4
        let report = ProcessReport::build(&snapshot(1, vec![a, one(2, "/b", 2, 0)]), Thresholds::default());
        let t = report.total;
        // 3 and 1 MiB less a quarter each, and 2 MiB.
        assert_eq!((t.hot_bytes.0, t.warm_bytes.0), (9 * MIB / 4 + 2 * MIB, 3 * MIB / 4));
        assert_eq!(t.resident_bytes, Bytes(5 * MIB));
        assert_eq!(t.fields()[..5].iter().map(|b| b.0).sum::<u64>(), t.resident_bytes.0);
        assert!(!report.total_is_approximate);
        assert_eq!(report.processes[0].heat.resident_bytes, Bytes(4 * MIB));
    }

    #[test]
    fn what_a_total_says_of_its_classes_counts_shared_pages_once_too() {
        let of_all = |pid| {
            let mut target = one(pid, "/a", 3, 1);
            target.regions.iter_mut().for_each(|region| region.estimated_pages = region.resident_pages);
            target.behind_huge =
                Some(isotherm_heat::PagesBehindHuge { temperature: target.temperature.clone(), pages: 512, age_ns: 1 });
            target.counted_elsewhere_pages = 768; // 3 MiB of 4
            target
        };
        let total = ProcessReport::build(&snapshot(1, (1..=4).map(of_all).collect()), Thresholds::default()).total;
        assert_eq!((total.resident_bytes, total.estimated_bytes), (Bytes(4 * MIB), Bytes(4 * MIB)));
        assert_eq!(total.behind_huge_bytes, Bytes(2 * MIB));
    }

    #[test]
    fn the_parts_of_a_sum_add_up_whatever_is_taken_out() {
        for elsewhere in [0, 1, 7, 255, 1023, 5000] {
            let mut t = one(1, "/a", 3, 1);
            t.counted_elsewhere_pages = elsewhere;
            let once = HeatSum::of(&t, Thresholds::default()).counted_once();
            assert_eq!(once.fields()[..5].iter().map(|b| b.0).sum::<u64>(), once.resident_bytes.0);
        }
    }

    #[test]
    fn the_ended_are_listed_and_not_summed() {
        let mut ended = one(1, "/a", 3, 1);
        ended.exited = true;
        let report = ProcessReport::build(&snapshot(1, vec![ended]), Thresholds::default());
        assert_eq!((report.processes.len(), report.total), (1, HeatSum::default()));
    }

    #[test]
    fn memory_that_is_swapped_out_has_a_column_where_there_is_any() {
        let text = |swapped: [Option<u64>; 2]| {
            let targets = [1, 2].into_iter().zip(swapped).map(|(pid, swapped)| {
                let mut target = one(pid, "/a", 1, 0);
                target.facts.swapped = swapped.map(|mib| Bytes(mib * MIB));
                target
            });
            let report = ProcessReport::build(&snapshot(1, targets.collect()), Thresholds::default());
            let mut text = Vec::new();
            report.write_text(&mut text, TextStyle { width: 200, ascii: true }).unwrap();
            String::from_utf8(text).unwrap()
        };
        let some = text([Some(77), None]);
        assert!(some.contains("SWAPPED") && some.contains("77.0 MiB") && some.contains('?'), "{some}");
        assert!(!text([Some(0), None]).contains("SWAPPED"));
    }

    #[test]
    fn what_was_paged_out_has_columns_where_there_is_any() {
        let report = |left: Option<u64>| {
            let mut target = one(1, "/a", 1, 0);
            let acted = |mib| Acted {
                left_bytes: Bytes(mib * MIB),
                out_bytes: Bytes(mib / 2 * MIB),
                refaulted_bytes: Bytes(3 * MIB),
                ..Acted::default()
            };
            target.facts.acted = left.map(acted);
            ProcessReport::build(&snapshot(1, vec![target, one(2, "/a", 1, 0)]), Thresholds::default())
        };
        let text = |left| {
            let mut text = Vec::new();
            report(left).write_text(&mut text, TextStyle { width: 200, ascii: true }).unwrap();
            String::from_utf8(text).unwrap()
        };
        let some = text(Some(66));
        assert!(["OUT", "CAME BACK", "33.0 MiB", "3.0 MiB"].iter().all(|part| some.contains(part)), "{some}");
        assert!(!text(Some(0)).contains("OUT") && !text(None).contains("OUT"));
        let json = serde_json::to_value(report(Some(66))).unwrap();
        assert_eq!(json["processes"][0]["acted"]["left_bytes"], 66 * MIB);
        assert_eq!(json["processes"][1].get("acted"), None, "nothing acts on it");
    }

    #[test]
    fn a_cgroup_includes_its_children_and_shows_its_own() {
        let targets =
            vec![one(1, "/a/x", 1, 0), one(2, "/a/y", 4, 0), one(3, "/a", 2, 0), one(4, "/b", 5, 0), one(5, "", 1, 0)];
        let report = CgroupReport::build(&snapshot(1, targets), Thresholds::default());
        let rows: Vec<_> = report
            .cgroups
            .iter()
            .map(|c| (c.path.as_str(), c.depth, c.processes, c.total.hot_bytes.0 / MIB, c.own.hot_bytes.0 / MIB))
            .collect();
        let expected =
            [("/a", 0, 3, 7, 2), ("/a/y", 1, 1, 4, 4), ("/a/x", 1, 1, 1, 1), ("/b", 0, 1, 5, 5), ("", 0, 1, 1, 1)];
        assert_eq!(rows, expected);
        assert_eq!(report.total.hot_bytes, Bytes(13 * MIB));
    }

    #[test]
    fn a_cgroup_shows_what_it_is_charged_for_and_one_above_the_sum_of_what_was_watched() {
        let of = |pid, cgroup: &str, mib: u64| {
            let mut target = one(pid, cgroup, 1, 0);
            let [anon, file, slab, swap] = [mib, 10 * mib, 100 * mib, 0].map(|mib| Bytes(mib * MIB));
            target.facts.cgroup_memory = Some(CgroupMemory { anon, file, slab, swap });
            target
        };
        // Two processes of /a/x see the same; of /b the kernel reports all that is below it too; of /c nothing is known.
        let targets = vec![
            of(1, "/a/x", 1),
            of(2, "/a/x", 1),
            of(3, "/a/y", 2),
            of(4, "/b", 7),
            of(5, "/b/z", 3),
            one(6, "/c", 1, 0),
        ];
        let report = CgroupReport::build(&snapshot(1, targets), Thresholds::default());
        let file = |path: &str| {
            let row = report.cgroups.iter().find(|c| c.path == path).unwrap();
            row.cgroup_memory.map(|m| m.file.0 / MIB)
        };
        assert_eq!([file("/a/x"), file("/a/y"), file("/a")], [Some(10), Some(20), Some(30)]);
        assert_eq!([file("/b"), file("/b/z"), file("/c")], [Some(70), Some(30), None]);
        let mut text = Vec::new();
        report.write_text(&mut text, TextStyle { width: 200, ascii: true }).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("SLAB") && text.contains("30.0 MiB") && text.contains('?'), "{text}");
    }

    #[test]
    fn every_cgroup_path_has_a_lineage() {
        assert_eq!(lineage("/a/b"), ["/a", "/a/b"]);
        assert_eq!(lineage("//a//"), ["/a"]);
        assert_eq!(lineage("/"), ["/"]);
        assert_eq!(lineage(""), [""]);
    }
}
