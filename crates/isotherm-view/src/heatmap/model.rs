//! The grid of a heat map, computed from snapshots.
//!
//! The cost is one pass over the regions of the selected target and one over the cells. The regions of a snapshot are
//! added to the rows that they overlap, then the rows to the columns that the snapshot's window overlaps. Columns are
//! proportional to time, so a pause in a recording is a gap in the picture.
//!
//! Of memory that was just checked for the first time, accessed pages are known within milliseconds, and idle ones only
//! after a second. Figures of the accessed pages alone would show such a cell as hot all over. So a region counts as
//! measured only as far as its pages are, and a cell of which less than half is measured is [`Cell::Unmeasured`]. From
//! then on its figures are those of the measured pages: a hot share is at most twice what it is of the whole cell.
//!
//! Hot pages are those that regions have counted, not all pages of regions whose mean is hot: hot pages scattered among
//! cold ones make one region, whose mean is cold. Within a region they are assumed to be spread evenly. With too few
//! regions for all that is unlike, one hot page may lie in a region of hundreds of MiB. A cell does not show the fraction
//! of a page that would then be its own, unless that is a share to be seen ([`MIN_SHARE`]).
//!
//! Memory whose heat is estimated from checked memory around it counts as measured. A cell of which more than half is estimated says so, and is
//! drawn paler.
//!
//! In the mean interval, memory that was never seen accessed is idle from the start, not ever colder while it is idle.

use super::axis::{self, AxisRow};
use super::scale::MIN_SHARE;
use crate::math;
use isotherm_heat::{
    Interval, Mapping, Region, Snapshot, TargetHeat, TargetId, is_mostly_estimated, is_mostly_measured,
};
use isotherm_units::{AddrRange, Bytes};
use std::borrow::Borrow;
use std::collections::BTreeMap;

/// In a mean interval, memory that was never seen accessed counts like memory accessed at this interval: the cold end of
/// the scale.
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

/// What is known of the memory of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Cell {
    /// It has none.
    #[default]
    Absent,
    /// It has some, of which less than half was measured.
    Unmeasured,
    /// At least half of it was measured.
    Measured(CellHeat),
}

impl Cell {
    /// Whether its heat is estimated for the most part.
    pub fn is_estimated(&self) -> bool {
        matches!(self, Cell::Measured(heat) if heat.is_estimated)
    }
}

/// The heat of the measured pages of a cell. Those whose heat is estimated from checked memory around them are among
/// them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CellHeat {
    /// The share of them that is accessed at least once a second, from 0 to 1.
    pub hot_share: f64,
    /// Their mean access interval, on the log scale.
    pub interval: Interval,
    /// Their mean time since an access was found, on the log scale. Where none was found, it is the time since they are
    /// watched. They are idle for at least so long; nothing is extrapolated.
    pub idle: Interval,
    /// The heat of more than half of them is estimated.
    pub is_estimated: bool,
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
    cells: Vec<Cell>,
}

/// The sums for one cell so far.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    /// Pages.
    measured: f64,
    unmeasured: f64,
    /// Of the measured ones.
    estimated: f64,
    hot: f64,
    /// Steps of the interval scale, times pages. The scale is logarithmic, so their mean is a geometric mean.
    steps: f64,
    idle_steps: f64,
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
    pub fn cells(&self, row: usize) -> &[Cell] {
        &self.cells[row * self.columns..(row + 1) * self.columns]
    }

    /// Whether any cell is estimated.
    pub(crate) fn has_estimates(&self) -> bool {
        self.cells.iter().any(|cell| cell.is_estimated())
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

/// Adds the regions of one snapshot to the cells that they overlap, in proportion to the overlap.
fn add_regions(regions: &[Region], pieces: &Pieces, sums: &mut [Sum]) {
    for region in regions.iter().filter(|r| r.resident_pages > 0) {
        let whole = Sum::of(region);
        let first = pieces.partition_point(|(piece, _)| piece.end <= region.range.start);
        for (piece, cell) in pieces[first..].iter().take_while(|(piece, _)| piece.start < region.range.end) {
            let Some(overlap) = piece.intersect(region.range) else { continue };
            sums[*cell].add_part(&whole, math::share(overlap.len().0, region.range.len().0));
        }
    }
    sums.iter_mut().filter(|sum| sum.hot < 1.0 && sum.hot < MIN_SHARE * sum.measured).for_each(|sum| sum.hot = 0.0);
}

/// The interval that stands for a region in a mean. One that follows from idle time alone is [`IDLE`] or longer.
fn shown(region: &Region) -> Interval {
    if region.is_extrapolated() { region.interval.max(Interval::from_ns(IDLE)) } else { region.interval }
}

impl Sum {
    /// Of all pages of a region. Files from others may count more pages as measured than are there.
    fn of(region: &Region) -> Sum {
        let Some(step) = shown(region).step() else {
            return Sum { unmeasured: region.resident_pages as f64, ..Sum::default() };
        };
        let pages = region.measured_pages.min(region.resident_pages);
        let measured = pages as f64;
        Sum {
            measured,
            unmeasured: (region.resident_pages - pages) as f64,
            estimated: region.estimated_pages.min(pages) as f64,
            hot: region.hot().min(pages) as f64,
            steps: f64::from(step) * measured,
            idle_steps: f64::from(Interval::from_ns(region.idle_ns).step().unwrap_or(0)) * measured,
        }
    }

    fn add_part(&mut self, other: &Sum, part: f64) {
        self.measured += other.measured * part;
        self.unmeasured += other.unmeasured * part;
        self.estimated += other.estimated * part;
        self.hot += other.hot * part;
        self.steps += other.steps * part;
        self.idle_steps += other.idle_steps * part;
    }

    fn cell(&self) -> Cell {
        if is_mostly_measured(self.measured, self.measured + self.unmeasured) {
            Cell::Measured(CellHeat {
                hot_share: (self.hot / self.measured).clamp(0.0, 1.0),
                interval: Interval::nearest_step(self.steps / self.measured),
                idle: Interval::nearest_step(self.idle_steps / self.measured),
                is_estimated: is_mostly_estimated(self.estimated, self.measured),
            })
        } else if self.unmeasured > 0.0 {
            Cell::Unmeasured
        } else {
            Cell::Absent
        }
    }
}

fn strip_cells(looks: &[Look], rows: &[AxisRow], columns: usize) -> Vec<Cell> {
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

fn time_cells(looks: &[Look], rows: &[AxisRow], columns: usize, (start, end): (u64, u64)) -> Vec<Cell> {
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
    use super::super::scale::Scale;
    use super::*;
    use crate::sample::{EPOCH, MIB, MS, SECOND, large, mapping, region, snapshot, target};
    use isotherm_heat::{RegionBuilder, Rng, Run};
    use isotherm_units::{Addr, PAGE_SIZE, PmdNo};

    fn codes(map: &HeatMap, row: usize) -> Vec<f64> {
        let ms = |cell: &Cell| match cell {
            Cell::Absent => 0.0,
            Cell::Unmeasured => -1.0,
            Cell::Measured(heat) => heat.interval.ns().map_or(f64::NAN, |ns| ns as f64 / 1e6),
        };
        map.cells(row).iter().map(ms).collect()
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
        assert_eq!(codes(&map, 0), [expected.ns().unwrap() as f64 / 1e6, 0.0]);
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

    /// Of each region: MiB, share measured and share hot of its pages in eighths, idle time in seconds.
    fn cell_of(regions: &[(u64, u64, u64, u64)]) -> Cell {
        let mut start = 0;
        let parts = regions.iter().map(|(mib, measured, hot, idle_s)| {
            let pages = mib * MIB / PAGE_SIZE;
            let (measured_pages, hot_pages) = (pages * measured / 8, Some(pages * hot / 8));
            let idle_ns = idle_s * SECOND;
            let like = region(start, mib * MIB, if *measured == 0 { 0 } else { 30 * SECOND });
            start += mib * MIB;
            Region { measured_pages, hot_pages, idle_ns, ..like }
        });
        let regions = parts.collect();
        let select = Select { arrangement: Arrangement::Time, ..select(1, 1) };
        HeatMap::build(&[snapshot(1, one(regions))], &select).cells(0)[0]
    }

    fn share_of(regions: &[(u64, u64, u64, u64)]) -> f64 {
        match cell_of(regions) {
            Cell::Absent => -2.0,
            Cell::Unmeasured => -1.0,
            Cell::Measured(heat) => heat.hot_share,
        }
    }

    #[test]
    fn the_share_is_of_the_measured_pages_of_all_regions() {
        // 1 of 4 MiB is hot, whatever the mean interval of 30 s.
        assert_eq!(share_of(&[(1, 8, 8, 0), (3, 8, 0, 60)]), 0.25);
        // Half of 2 MiB in the first, a quarter of 4 MiB in the second.
        assert_eq!(share_of(&[(2, 8, 4, 0), (4, 8, 2, 60)]), 2.0 / 6.0);
        // 4 MiB of 1 GiB.
        assert_eq!(share_of(&[(4, 8, 8, 0), (1020, 8, 0, 60)]), 1.0 / 256.0);
        // 3 of 4 MiB are measured, and 1 of them is hot.
        assert_eq!(share_of(&[(1, 8, 8, 0), (1, 0, 0, 0), (2, 8, 0, 60)]), 1.0 / 3.0);
        // The same within one region: 6 of 8 pages measured, 2 of 8 hot.
        assert_eq!(share_of(&[(4, 6, 2, 10)]), 1.0 / 3.0);
        assert_eq!([share_of(&[(4, 3, 3, 0)]), share_of(&[(4, 0, 0, 0)])], [-1.0; 2], "less than half is measured");
        assert_eq!(share_of(&[(4, 8, 0, 60)]), 0.0);
    }

    #[test]
    fn a_hot_page_is_not_smeared_over_the_cells_of_a_large_region() {
        let shares = |hot_pages, rows| {
            let region = Region { hot_pages: Some(hot_pages), ..region(0, 64 * MIB, 60 * SECOND) };
            let map = HeatMap::build(&[snapshot(1, one(vec![region])), snapshot(2, vec![])], &select(2, rows));
            (0..rows).map(|row| Scale::Share.digit(map.cells(row)[0])).collect::<String>()
        };
        // One page of 16 Ki, in one cell: it is there. In four cells: in none of them for sure.
        assert_eq!([shares(1, 1), shares(1, 4), shares(4, 4)], ["1", "....", "1111"]);
        // A tenth of all pages is seen however small the cells are: here of two pages each, 0.2 of them hot.
        assert_eq!(shares(1638, 8192), shares(1638, 1).repeat(8192));
    }

    #[test]
    fn idle_time_is_the_mean_of_what_is_known_and_not_extrapolated() {
        let idle = |regions: &[(u64, u64, u64, u64)]| match cell_of(regions) {
            Cell::Measured(heat) => heat.idle,
            other => panic!("{other:?}"),
        };
        assert_eq!(idle(&[(4, 8, 0, 16)]), Interval::from_ns(16 * SECOND));
        // Octaves of 4, 16 and 64 s, the second twice: 16 s is their mean. Unmeasured memory does not count.
        assert_eq!(idle(&[(1, 8, 0, 4), (2, 8, 0, 16), (1, 8, 0, 64), (1, 0, 0, 0)]), Interval::from_ns(16 * SECOND));
    }

    /// Every sixteenth page is accessed all the time. After 20 ms of a first check only those are known, after two
    /// seconds all are.
    #[test]
    fn a_first_column_in_which_only_accessed_pages_are_known_is_not_bright() {
        const PMDS: u64 = 8;
        let hot = Interval::from_ns(20 * MS);
        let taken = |second, unaccessed, idle| {
            let mut builder = RegionBuilder::new(1000);
            for pmd in 0..PMDS {
                let run = |page: u16| {
                    let (interval, idle) = if page.is_multiple_of(16) { (hot, hot) } else { (unaccessed, idle) };
                    Run { first: page, pages: 1, interval, idle, huge: false, cleared: false, estimated: false }
                };
                builder.pmd(PmdNo(pmd), &(0..512).map(run).collect::<Vec<_>>());
            }
            snapshot(second, one(builder.finish()))
        };
        let first = taken(1, Interval::UNMEASURED, Interval::UNMEASURED);
        let two = Interval::from_ns(2 * SECOND);
        let map = HeatMap::build(&[first, taken(2, two.extrapolated(), two)], &select(2, 8));
        assert_eq!(map.rows.len(), 8);
        for row in 0..8 {
            let [before, Cell::Measured(after)] = map.cells(row) else { panic!("{:?}", map.cells(row)) };
            assert_eq!((*before, after.hot_share), (Cell::Unmeasured, 1.0 / 16.0), "row {row}");
        }
    }

    /// A page of the naive model: `None` if it is not measured, else hot, step of its interval, step of its idle time.
    type Page = Option<(bool, u8, u8)>;

    /// What a cell should show of a list of pages.
    fn naive(pages: &[Page]) -> Cell {
        let known: Vec<_> = pages.iter().flatten().collect();
        if pages.is_empty() {
            return Cell::Absent;
        }
        if known.len() * 2 < pages.len() {
            return Cell::Unmeasured;
        }
        let mean = |of: &dyn Fn(&(bool, u8, u8)) -> f64| known.iter().map(|p| of(p)).sum::<f64>() / known.len() as f64;
        Cell::Measured(CellHeat {
            hot_share: mean(&|p| f64::from(u8::from(p.0))),
            interval: Interval::nearest_step(mean(&|p| f64::from(p.1))),
            idle: Interval::nearest_step(mean(&|p| f64::from(p.2))),
            is_estimated: false,
        })
    }

    #[test]
    fn cells_are_those_of_a_model_that_counts_page_by_page() {
        const ROW: u64 = 64;
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let (mut snapshots, mut expected) = (Vec::new(), Vec::new());
            for second in 1..=3 {
                let mut regions = Vec::new();
                for row in 0..4 {
                    // In the first snapshot all memory is there, so that rows begin at the same places.
                    let in_row = random_regions(&mut rng, row * ROW..(row + 1) * ROW, second == 1);
                    expected.push(naive(&in_row.iter().flat_map(pages_of).collect::<Vec<_>>()));
                    regions.extend(in_row);
                }
                snapshots.push(snapshot(second, one(regions)));
            }
            let map = HeatMap::build(&snapshots, &select(3, 4));
            assert_eq!(map.rows.len(), 4);
            for (at, expected) in expected.into_iter().enumerate() {
                assert_alike(map.cells(at % 4)[at / 4], expected, &format!("seed {seed}, cell {at}"));
            }
        }
    }

    fn random_regions(rng: &mut Rng, pages: std::ops::Range<u64>, all: bool) -> Vec<Region> {
        let (mut regions, mut page) = (Vec::new(), pages.start);
        while page < pages.end {
            let len = 1 + rng.below(pages.end - page);
            let measured_pages = rng.below(len + 1);
            // Idle for as long as its interval, so that the interval is no extrapolation.
            let ns = MS << rng.below(20);
            let like = region(page * PAGE_SIZE, len * PAGE_SIZE, if measured_pages == 0 { 0 } else { ns });
            let hot_pages = Some(rng.below(measured_pages + 1));
            if all || rng.below(3) > 0 {
                regions.push(Region { measured_pages, hot_pages, idle_ns: ns, ..like });
            }
            page += len;
        }
        regions
    }

    fn pages_of(region: &Region) -> Vec<Page> {
        let idle = Interval::from_ns(region.idle_ns).step().unwrap();
        let page = |n| (n < region.measured_pages).then(|| (n < region.hot(), region.interval.step().unwrap(), idle));
        (0..region.resident_pages).map(page).collect()
    }

    /// The same, but for rounding.
    fn assert_alike(got: Cell, expected: Cell, what: &str) {
        let close = match (got, expected) {
            (Cell::Measured(a), Cell::Measured(b)) => {
                (a.hot_share - b.hot_share).abs() < 1e-9
                    && a.interval.code().abs_diff(b.interval.code()) <= 1
                    && a.idle.code().abs_diff(b.idle.code()) <= 1
            }
            (a, b) => a == b,
        };
        assert!(close, "{what}: {got:?}, expected {expected:?}");
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
        assert_eq!(codes(&map, 0), [0.0, 1.0, 0.0]);
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
        assert!(map.cells(broken).iter().all(|c| *c == Cell::Absent));
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
    fn ten_times_as_many_snapshots_take_about_ten_times_as_long() {
        let snapshots = large(600, 1000);
        let took = |snapshots: &[Snapshot]| {
            let mut times = [0; 3].map(|_| {
                let began = std::time::Instant::now();
                assert_eq!(HeatMap::build(snapshots, &select(200, 200)).rows.len(), 200);
                began.elapsed()
            });
            times.sort_unstable();
            times[1].as_secs_f64()
        };
        let ratio = took(&snapshots) / took(&snapshots[..60]);
        assert!(ratio < 50.0, "{ratio}");
    }
}
