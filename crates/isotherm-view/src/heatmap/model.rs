//! The grid of a heat map, computed from snapshots.
//!
//! The cost is one pass over the regions of the selected target and one over the cells. The regions of a snapshot are
//! added to the rows that they overlap, then the rows to the columns that the snapshot's window overlaps. Columns are
//! proportional to time, so a pause in a recording is a gap in the picture.
//!
//! Of memory that was just checked for the first time, accessed pages are known within milliseconds, and idle ones only
//! after a second. So a cell of which most is not measured is shown as not measured. Memory that was never seen accessed is
//! shown as idle from the start, not as ever colder while it is idle.

use super::axis::{self, AxisRow};
use crate::math;
use isotherm_heat::{Interval, Mapping, Region, Snapshot, TargetHeat, TargetId};
use isotherm_units::{AddrRange, Bytes};
use std::borrow::Borrow;
use std::collections::BTreeMap;

/// Memory that was never seen accessed is drawn like memory accessed at this interval: the cold end of the default scale.
const IDLE: u64 = 600_000_000_000;

/// The meaning of the columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrangement {
    /// Time, unless there is a single snapshot.
    #[default]
    Auto,
    /// Time.
    Time,
    /// Addresses in the last snapshot: each row is a stretch of memory, read like text.
    Strip,
}

/// What to draw, and at what resolution.
#[derive(Clone, Copy, Debug)]
pub struct Select {
    /// The target; `None` selects the one with the most resident memory.
    pub target: Option<TargetId>,
    /// Show only these addresses.
    pub range: Option<AddrRange>,
    /// Use only snapshots that end in this span, both ends included.
    pub time_unix_ns: Option<(u64, u64)>,
    /// Cells in a row.
    pub columns: usize,
    /// Maximum number of rows.
    pub rows: usize,
    /// The meaning of the columns.
    pub arrangement: Arrangement,
}

impl Default for Select {
    fn default() -> Select {
        let arrangement = Arrangement::Auto;
        Select { target: None, range: None, time_unix_ns: None, columns: 80, rows: 40, arrangement }
    }
}

/// The meaning of the columns of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// Equal parts of this span.
    Time {
        /// Start of the first column.
        start_unix_ns: u64,
        /// End of the last column.
        end_unix_ns: u64,
    },
    /// Equal parts of the row's addresses, at one moment.
    Strip {
        /// When the snapshot was taken.
        at_unix_ns: u64,
    },
}

/// One row of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its addresses. For a break: the addresses that it omits.
    pub range: AddrRange,
    /// Whether this is a break in the address axis, without cells.
    pub is_break: bool,
    /// Number of bytes of the range that are on the axis. Less than its length if a gap within it was folded.
    pub covered: Bytes,
    /// The mapping that holds most of it; empty for anonymous memory and for breaks.
    pub mapping: String,
}

/// A grid of heat.
#[derive(Clone, Debug)]
pub struct HeatMap {
    /// The target; `None` if there was nothing to draw.
    pub target: Option<TargetId>,
    /// Its command name.
    pub comm: String,
    /// The meaning of the columns.
    pub axis: Axis,
    /// Cells in a row.
    pub columns: usize,
    /// Rows, lowest address first.
    pub rows: Vec<Row>,
    cells: Vec<Interval>,
}

/// The sums for one cell so far.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    /// Steps of the interval scale, times weight. The scale is logarithmic, so their mean is a geometric mean.
    steps: f64,
    measured: f64,
    unmeasured: f64,
}

/// The target in one snapshot.
#[derive(Clone, Copy)]
struct Look<'a> {
    start_unix_ns: u64,
    end_unix_ns: u64,
    target: &'a TargetHeat,
}

impl HeatMap {
    /// Computes the grid from snapshots in order of time. The map has no rows if there is nothing to draw.
    pub fn build<S: Borrow<Snapshot>>(snapshots: &[S], select: &Select) -> HeatMap {
        let snapshots: Vec<&Snapshot> = snapshots.iter().map(Borrow::borrow).filter(|s| select.takes(s)).collect();
        let Some(id) = select.target.or_else(|| largest_target(&snapshots)) else { return HeatMap::empty(select) };
        let mut looks: Vec<Look> = snapshots.iter().filter_map(|s| Look::of(s, id)).collect();
        let strip = match select.arrangement {
            Arrangement::Auto => snapshots.len() < 2,
            Arrangement::Time => false,
            Arrangement::Strip => true,
        };
        if strip {
            looks.drain(..looks.len().saturating_sub(1));
        }
        let axis = if strip {
            Axis::Strip { at_unix_ns: looks.last().map_or(0, |l| l.end_unix_ns) }
        } else {
            time_axis(&snapshots)
        };
        let rows = axis::build(spans(&looks, select.range), select.rows);
        let columns = select.columns.max(1);
        let cells = match axis {
            Axis::Strip { .. } => strip_cells(&looks, &rows, columns),
            Axis::Time { start_unix_ns, end_unix_ns } => {
                time_cells(&looks, &rows, columns, (start_unix_ns, end_unix_ns))
            }
        };
        let comm = looks.last().map_or_else(String::new, |l| l.target.comm.clone());
        HeatMap { target: Some(id), comm, axis, columns, rows: name_rows(&rows, &looks), cells }
    }

    fn empty(select: &Select) -> HeatMap {
        let axis = Axis::Time { start_unix_ns: 0, end_unix_ns: 0 };
        let (columns, rows, cells) = (select.columns.max(1), Vec::new(), Vec::new());
        HeatMap { target: None, comm: String::new(), axis, columns, rows, cells }
    }

    /// The cells of a row; all absent in a break.
    ///
    /// # Panics
    ///
    /// If there is no such row.
    pub fn cells(&self, row: usize) -> &[Interval] {
        &self.cells[row * self.columns..(row + 1) * self.columns]
    }

    /// Whether there is nothing to draw.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// `812 postgres`, printable.
    pub fn title(&self) -> String {
        match self.target {
            Some(id) => format!("{} {}", id.pid, crate::human::printable(&self.comm)),
            None => "no target".to_owned(),
        }
    }

    /// The time at which a column begins; in a strip, the time of the snapshot.
    pub fn column_unix_ns(&self, column: usize) -> u64 {
        match self.axis {
            Axis::Strip { at_unix_ns } => at_unix_ns,
            Axis::Time { start_unix_ns, end_unix_ns } => {
                start_unix_ns + math::scale(end_unix_ns - start_unix_ns, column as u64, self.columns as u64)
            }
        }
    }

    /// The label of a row: each mapping's name at its first row, and the size of the gap at a break.
    pub(crate) fn row_label(&self, row: usize) -> String {
        let this = &self.rows[row];
        if this.is_break {
            return format!("{} not mapped", this.range.len());
        }
        let before = row.checked_sub(1).map(|r| &self.rows[r]);
        match before {
            Some(before) if !before.is_break && before.mapping == this.mapping => String::new(),
            _ => crate::human::mapping(&this.mapping),
        }
    }
}

impl Select {
    fn takes(&self, snapshot: &Snapshot) -> bool {
        self.time_unix_ns.is_none_or(|(from, to)| (from..=to).contains(&snapshot.end_unix_ns))
    }
}

impl<'a> Look<'a> {
    fn of(snapshot: &'a Snapshot, id: TargetId) -> Option<Look<'a>> {
        let target = snapshot.targets.iter().find(|t| t.id == id)?;
        // A window of zero length would have no weight.
        let start_unix_ns = snapshot.start_unix_ns.min(snapshot.end_unix_ns.saturating_sub(1));
        Some(Look { start_unix_ns, end_unix_ns: snapshot.end_unix_ns.max(1), target })
    }
}

/// Targets by their largest memory in any snapshot, largest first.
pub(super) fn targets_by_size(snapshots: &[&Snapshot]) -> Vec<(TargetId, u64)> {
    let mut most: BTreeMap<TargetId, u64> = BTreeMap::new();
    for target in snapshots.iter().flat_map(|s| &s.targets) {
        let pages = most.entry(target.id).or_default();
        *pages = (*pages).max(target.temperature.resident());
    }
    let mut sorted: Vec<(TargetId, u64)> = most.into_iter().collect();
    sorted.sort_by_key(|(id, pages)| (std::cmp::Reverse(*pages), *id));
    sorted
}

fn largest_target(snapshots: &[&Snapshot]) -> Option<TargetId> {
    targets_by_size(snapshots).first().map(|(id, _)| *id)
}

fn time_axis(snapshots: &[&Snapshot]) -> Axis {
    let start_unix_ns = snapshots.iter().map(|s| s.start_unix_ns.min(s.end_unix_ns)).min().unwrap_or(0);
    let end_unix_ns = snapshots.iter().map(|s| s.end_unix_ns).max().unwrap_or(0).max(start_unix_ns + 1);
    Axis::Time { start_unix_ns, end_unix_ns }
}

fn spans(looks: &[Look], range: Option<AddrRange>) -> Vec<AddrRange> {
    let regions = looks.iter().flat_map(|l| &l.target.regions).filter(|r| r.resident_pages > 0);
    match range {
        Some(range) => regions.filter_map(|r| r.range.intersect(range)).collect(),
        None => regions.map(|r| r.range).collect(),
    }
}

/// Every piece of the axis with the index of its cell, in address order.
type Pieces = Vec<(AddrRange, usize)>;

/// Adds regions to the cells that they overlap, in proportion to the overlap.
fn add_regions(regions: &[Region], pieces: &Pieces, sums: &mut [Sum]) {
    for region in regions.iter().filter(|r| r.resident_pages > 0) {
        let first = pieces.partition_point(|(piece, _)| piece.end <= region.range.start);
        for (piece, cell) in pieces[first..].iter().take_while(|(piece, _)| piece.start < region.range.end) {
            let Some(overlap) = piece.intersect(region.range) else { continue };
            let weight = region.resident_pages as f64 * math::share(overlap.len().0, region.range.len().0);
            sums[*cell].add(shown(region), weight);
        }
    }
}

/// The interval that stands for a region in a cell. One that follows from idle time alone is [`IDLE`] or longer.
fn shown(region: &Region) -> Interval {
    if region.is_extrapolated() { region.interval.max(Interval::from_ns(IDLE)) } else { region.interval }
}

impl Sum {
    fn add(&mut self, interval: Interval, weight: f64) {
        match interval.step() {
            Some(step) => {
                self.steps += f64::from(step) * weight;
                self.measured += weight;
            }
            None => self.unmeasured += weight,
        }
    }

    fn add_part(&mut self, other: &Sum, part: f64) {
        self.steps += other.steps * part;
        self.measured += other.measured * part;
        self.unmeasured += other.unmeasured * part;
    }

    fn cell(&self) -> Interval {
        if self.measured > 0.0 && self.measured >= self.unmeasured {
            Interval::nearest_step(self.steps / self.measured)
        } else if self.unmeasured > 0.0 {
            Interval::UNMEASURED
        } else {
            Interval::ABSENT
        }
    }
}

fn strip_cells(looks: &[Look], rows: &[AxisRow], columns: usize) -> Vec<Interval> {
    let mut pieces: Pieces = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        for (column, part) in axis::cut(&row.pieces, columns, 1).into_iter().enumerate() {
            pieces.extend(part.into_iter().map(|piece| (piece, at * columns + column)));
        }
    }
    let mut sums = vec![Sum::default(); rows.len() * columns];
    looks.iter().for_each(|look| add_regions(&look.target.regions, &pieces, &mut sums));
    sums.iter().map(Sum::cell).collect()
}

fn time_cells(looks: &[Look], rows: &[AxisRow], columns: usize, (start, end): (u64, u64)) -> Vec<Interval> {
    let of_row = |(at, row): (usize, &AxisRow)| row.pieces.iter().map(move |p| (*p, at)).collect::<Pieces>();
    let pieces: Pieces = rows.iter().enumerate().flat_map(of_row).collect();
    let mut sums = vec![Sum::default(); rows.len() * columns];
    for look in looks {
        let mut by_row = vec![Sum::default(); rows.len()];
        add_regions(&look.target.regions, &pieces, &mut by_row);
        for (column, part) in columns_of(look, columns, start, end) {
            for (row, sum) in by_row.iter().enumerate() {
                sums[row * columns + column].add_part(sum, part);
            }
        }
    }
    sums.iter().map(Sum::cell).collect()
}

/// The columns that the window of a snapshot overlaps, each with the share of the column that it fills.
fn columns_of(look: &Look, columns: usize, start: u64, end: u64) -> impl Iterator<Item = (usize, f64)> {
    let per_column = (end - start).max(1) as f64 / columns as f64;
    let from = look.start_unix_ns.saturating_sub(start) as f64 / per_column;
    let to = look.end_unix_ns.saturating_sub(start) as f64 / per_column;
    (math::floor(from)..columns).map_while(move |column| {
        let part = to.min(column as f64 + 1.0) - from.max(column as f64);
        // A rounding error must not colour a column that the window only touches.
        (part > 1e-6).then_some((column, part))
    })
}

fn name_rows(rows: &[AxisRow], looks: &[Look]) -> Vec<Row> {
    let mut names: BTreeMap<AddrRange, &str> = BTreeMap::new();
    let mut last: &[Mapping] = &[];
    for look in looks.iter().filter(|l| !l.target.mappings.is_empty()) {
        if *look.target.mappings != *last {
            names.extend(look.target.mappings.iter().map(|m| (m.range, m.name.as_str())));
            last = &look.target.mappings;
        }
    }
    let named = |row: &AxisRow| Row {
        range: row.range,
        is_break: row.pieces.is_empty(),
        covered: Bytes(row.pieces.iter().map(|p| p.len().0).sum()),
        mapping: if row.pieces.is_empty() { String::new() } else { name_of(row.range, &names).to_owned() },
    };
    rows.iter().map(named).collect()
}

/// The name that covers most of `range`. Mappings of different times may overlap, so overlaps are summed by name.
fn name_of<'a>(range: AddrRange, names: &BTreeMap<AddrRange, &'a str>) -> &'a str {
    let mut covered: BTreeMap<&str, u64> = BTreeMap::new();
    for (mapping, name) in names {
        if mapping.start >= range.end {
            break;
        }
        if let Some(overlap) = mapping.intersect(range) {
            let sum = covered.entry(name).or_default();
            *sum = sum.saturating_add(overlap.len().0);
        }
    }
    covered.into_iter().max_by_key(|(_, bytes)| *bytes).map_or("", |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{EPOCH, MIB, MS, SECOND, large, mapping, region, snapshot, target};
    use isotherm_units::{Addr, PAGE_SIZE};

    fn codes(map: &HeatMap, row: usize) -> Vec<f64> {
        map.cells(row).iter().map(|c| c.ns().map_or(-f64::from(c.code()), |ns| ns as f64 / 1e6)).collect()
    }

    fn select(columns: usize, rows: usize) -> Select {
        Select { columns, rows, ..Select::default() }
    }

    fn one(regions: Vec<Region>) -> Vec<TargetHeat> {
        vec![target(1, "t", "", vec![mapping(0, 1 << 40, "m")], regions)]
    }

    #[test]
    fn a_cell_is_the_mean_on_the_log_scale_by_resident_pages() {
        let mut sparse = region(MIB, MIB, 16 * MS);
        sparse.resident_pages /= 2; // 256 pages at 1 ms, 128 at 16 ms: (0 * 256 + 4 * 128) / 384 = 1 1/3 octaves
        let map =
            HeatMap::build(&[snapshot(1, one(vec![region(0, MIB, MS), sparse])), snapshot(2, vec![])], &select(2, 1));
        let expected = Interval::from_octaves(4.0 / 3.0);
        assert_eq!(map.cells(0), [expected, Interval::ABSENT]);
    }

    #[test]
    fn unmeasured_memory_does_not_count_beside_more_that_is_measured_and_shows_elsewhere() {
        let map = HeatMap::build(
            &[snapshot(1, one(vec![region(0, MIB, 4 * MS), region(MIB, 3 * MIB, 0)]))],
            &Select { arrangement: Arrangement::Time, ..select(1, 2) },
        );
        assert_eq!((codes(&map, 0), codes(&map, 1)), (vec![4.0], vec![-1.0]));
    }

    /// As after the first 20 ms of a first check: accessed pages are known, and the others not yet.
    #[test]
    fn a_cell_of_which_most_is_not_measured_is_not_measured() {
        let of = |hot, unknown| {
            let regions = vec![region(0, hot * MIB, 4 * MS), region(hot * MIB, unknown * MIB, 0)];
            let select = Select { arrangement: Arrangement::Time, ..select(1, 1) };
            codes(&HeatMap::build(&[snapshot(1, one(regions))], &select), 0)
        };
        assert_eq!([of(1, 3), of(2, 2), of(3, 1)], [[-1.0], [4.0], [4.0]]);
    }

    #[test]
    fn memory_that_was_never_seen_accessed_is_idle_from_the_start_and_no_colder_later() {
        let idle_for = |seconds: u64| {
            let idle = Region { idle_ns: seconds * SECOND, ..region(0, MIB, 8 * seconds * SECOND) };
            codes(&HeatMap::build(&[snapshot(1, one(vec![idle]))], &select(1, 1)), 0)[0].round()
        };
        assert_eq!([1, 2, 60].map(|s| idle_for(s).to_bits()), [idle_for(1).to_bits(); 3]);
        assert!((idle_for(1) / 600_000.0 - 1.0).abs() < 0.05, "the cold end: {} ms", idle_for(1));
    }

    #[test]
    fn a_single_snapshot_wraps_its_addresses_into_rows() {
        let slots = (0..8).map(|i| region(i * PAGE_SIZE, PAGE_SIZE, MS << i)).collect();
        let map = HeatMap::build(&[snapshot(1, one(slots))], &select(4, 2));
        assert_eq!(map.axis, Axis::Strip { at_unix_ns: EPOCH + SECOND });
        assert_eq!(codes(&map, 0), [1.0, 2.0, 4.0, 8.0]);
        assert_eq!(codes(&map, 1), [16.0, 32.0, 64.0, 128.0]);
    }

    #[test]
    fn columns_are_true_to_time() {
        let at = |second, ms| snapshot(second, one(vec![region(0, MIB, ms * MS)]));
        // Seconds 1, 2 and 5 of five.
        let map = HeatMap::build(&[at(1, 1), at(2, 4), at(5, 16)], &select(5, 1));
        assert_eq!(codes(&map, 0), [1.0, 4.0, 0.0, 0.0, 16.0].map(|v| if v == 0.0 { -0.0 } else { v }));
        assert_eq!(map.column_unix_ns(1), EPOCH + SECOND);
        let coarse = HeatMap::build(&[at(1, 1), at(2, 4)], &select(1, 1));
        assert_eq!(codes(&coarse, 0), [2.0]);
    }

    #[test]
    fn targets_come_and_go() {
        let there = |second| snapshot(second, one(vec![region(0, MIB, MS)]));
        let map = HeatMap::build(&[snapshot(1, vec![]), there(2), snapshot(3, vec![])], &select(3, 1));
        assert_eq!(map.cells(0), [Interval::ABSENT, Interval::SHORTEST, Interval::ABSENT]);
        assert_eq!(map.title(), "1 t");
        let gone = TargetId { pid: 99, start_ticks: 0 };
        assert!(HeatMap::build(&[there(1)], &Select { target: Some(gone), ..select(3, 3) }).is_empty());
    }

    #[test]
    fn empty_input_makes_an_empty_map() {
        assert!(HeatMap::build::<Snapshot>(&[], &select(3, 3)).is_empty());
        assert!(HeatMap::build(&[snapshot(1, vec![]), snapshot(2, one(vec![]))], &select(3, 3)).is_empty());
        assert!(HeatMap::build(&[snapshot(1, one(vec![region(0, MIB, MS)]))], &select(0, 0)).is_empty());
    }

    #[test]
    fn a_sparse_terabyte_folds_to_what_is_there() {
        let regions = vec![region(0x1000_0000, MIB, MS), region(0x1000_0000 + (1 << 40), MIB, 64 * MS)];
        let map = HeatMap::build(&[snapshot(1, one(regions))], &select(8, 9));
        let broken = map.rows.iter().position(|r| r.is_break).unwrap();
        assert_eq!((map.rows.len(), broken), (9, 4));
        assert_eq!(map.row_label(broken), "1.0 TiB not mapped");
        assert!(map.cells(broken).iter().all(|c| *c == Interval::ABSENT));
        assert_eq!(map.row_label(0), "m");
        assert_eq!(map.row_label(1), "");
    }

    #[test]
    fn a_range_and_a_time_can_be_chosen() {
        let snapshots = [1, 2, 3].map(|s| snapshot(s, one(vec![region(0, 8 * MIB, MS)])));
        let select = Select {
            range: Some(AddrRange::new(Addr(2 * MIB), Addr(4 * MIB))),
            time_unix_ns: Some((EPOCH + 2 * SECOND, EPOCH + 3 * SECOND)),
            ..select(2, 2)
        };
        let map = HeatMap::build(&snapshots, &select);
        assert_eq!((map.rows[0].range.start, map.rows[1].range.end), (Addr(2 * MIB), Addr(4 * MIB)));
        assert_eq!(map.column_unix_ns(0), EPOCH + SECOND);
    }

    #[test]
    fn a_thousand_regions_times_six_hundred_snapshots_are_quick() {
        let snapshots = large(600, 1000);
        let began = std::time::Instant::now();
        let map = HeatMap::build(&snapshots, &select(200, 200));
        // A release build takes a tenth of this; the bound is for a busy machine.
        assert!(began.elapsed().as_secs() < 5, "{:?}", began.elapsed());
        assert_eq!(map.rows.len(), 200);
    }
}
