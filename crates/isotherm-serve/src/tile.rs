//! A tile: a part of the heat map of a process, as bytes. A column is a time, a row is a part of the packed addresses.
//!
//! A column shows the moments whose windows it meets, all of them: a cell is the mean over its pages and moments. A column
//! between two moments shows the one whose window it lies in, and is copied if that was the last one too. So the cost is
//! that of the regions in the window of the tile plus that of its cells. A region counts in a cell by the part of it that
//! lies there. What was hot at its peak is the one exception from the mean: it is that of the moment that had the most.
//!
//! As in reports, a cell of which less than half was measured is unmeasured, and the others show their measured pages: of memory that is
//! checked for the first time the hot pages are known first, and idle ones that are not known yet are not idle.

use crate::layout::Layout;
use crate::moment::{Moment, Piece};
use isotherm_heat::{TargetId, is_mostly_estimated, is_mostly_measured};
use isotherm_units::Addr;
use serde::Deserialize;
use std::sync::Arc;

/// The largest width and height.
pub const MAX_SIDE: usize = 2048;
/// Nothing is resident, or nothing mapped.
pub const NOTHING: u8 = 0;
/// Resident, and less than half of it measured.
pub const UNMEASURED: u8 = 1;
/// The values of known heat: even ones. The odd one above each is the same heat where more than half of it is estimated.
const COLDEST: f64 = 2.0;
const HOTTEST: f64 = 254.0;

/// What a tile shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Show {
    /// The share of measured pages that is hot.
    Hot,
    /// The largest share of measured pages that was hot at one moment.
    Peak,
    /// The access interval.
    Interval,
    /// The time since last seen accessed.
    Idle,
}

/// Which tile.
#[derive(Clone, Copy, Debug)]
pub struct Tile {
    /// The first and the last millisecond, exclusive.
    pub time_ms: [u64; 2],
    /// The same of packed bytes.
    pub packed: [u64; 2],
    /// Columns.
    pub width: usize,
    /// Cells in a column.
    pub height: usize,
    /// What it shows.
    pub show: Show,
}

impl Tile {
    /// Its cells, column by column, and the time of the newest moment in it (0: none).
    pub fn render(&self, moments: &[Arc<Moment>], id: TargetId, layout: &Layout) -> (Vec<u8>, u64) {
        let mut bytes = Vec::with_capacity(self.width * self.height);
        let mut column = Column::new(self, layout);
        let used = self.packed.map(|packed| layout.addr(packed));
        let mut newest_ms = 0;
        let (mut first, mut shown) = (0, 0..0);
        for number in 0..self.width {
            let [from, to] = [number, number + 1].map(|edge| self.edge_ms(edge));
            // A window ends with its last millisecond: one that ends at `from` is over.
            while moments.get(first).is_some_and(|moment| at(moment) <= from) {
                first += 1;
            }
            let met = first..first + moments[first..].iter().take_while(|moment| start(moment) < to).count();
            if number > 0 && met == shown {
                bytes.extend_from_within(bytes.len() - self.height..);
                continue;
            }
            for moment in &moments[met.clone()] {
                newest_ms = newest_ms.max(moment.at_ms);
                let regions = moment.process(id).map_or(&[][..], |process| within(&process.regions, used));
                regions.iter().for_each(|region| column.add(region));
                if self.show == Show::Peak {
                    column.end_moment();
                }
            }
            column.finish(self.show, &mut bytes);
            shown = met;
        }
        (bytes, newest_ms)
    }

    /// The time of the edge before a column.
    fn edge_ms(&self, column: usize) -> f64 {
        let [from, to] = self.time_ms.map(crate::sums::as_f64);
        from + (to - from) * as_f64(column) / as_f64(self.width)
    }
}

/// The regions that have a part between two addresses.
fn within(regions: &[Piece], [from, to]: [Addr; 2]) -> &[Piece] {
    let first = regions.partition_point(|region| region.range.end <= from);
    let rest = &regions[first..];
    &rest[..rest.partition_point(|region| region.range.start < to)]
}

fn at(moment: &Moment) -> f64 {
    crate::sums::as_f64(moment.at_ms)
}

fn start(moment: &Moment) -> f64 {
    crate::sums::as_f64(moment.start_ms)
}

fn as_f64(number: usize) -> f64 {
    crate::sums::as_f64(number as u64)
}

/// What is in a cell of a column.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    resident: f64,
    measured: f64,
    /// Of the measured ones.
    estimated: f64,
    hot: f64,
    /// The sum over measured pages of log2 of the interval in milliseconds.
    interval: f64,
    /// The same of the idle time.
    idle: f64,
    /// At the moment that is being added.
    now: Now,
    /// The largest share of the moments before it.
    peak: f64,
}

/// What is in a cell at one moment.
#[derive(Clone, Copy, Debug, Default)]
struct Now {
    resident: f64,
    measured: f64,
    /// At most, as far as several snapshots are merged in it.
    hot: f64,
}

/// A column while it is filled.
#[derive(Debug)]
struct Column<'a> {
    cells: Vec<Cell>,
    layout: &'a Layout,
    low: f64,
    /// Packed bytes in a cell.
    step: f64,
}

impl<'a> Column<'a> {
    fn new(tile: &Tile, layout: &'a Layout) -> Column<'a> {
        let [low, high] = tile.packed.map(crate::sums::as_f64);
        let step = ((high - low) / as_f64(tile.height)).max(f64::MIN_POSITIVE);
        Column { cells: vec![Cell::default(); tile.height], layout, low, step }
    }

    fn add(&mut self, region: &Piece) {
        let packed = [region.range.start, region.range.end].map(|addr| crate::sums::as_f64(self.layout.packed(addr)));
        let [from, to] = packed.map(|packed| (packed - self.low) / self.step);
        let height = as_f64(self.cells.len());
        if to <= 0.0 || from >= height || to <= from {
            return;
        }
        let [first, last] = [from.max(0.0), to.min(height)].map(index);
        let whole = to - from;
        for (number, cell) in self.cells.iter_mut().enumerate().take(last + 1).skip(first) {
            let low = as_f64(number);
            let share = (to.min(low + 1.0) - from.max(low)) / whole;
            if share > 0.0 {
                cell.add(region, share);
            }
        }
    }

    fn end_moment(&mut self) {
        self.cells.iter_mut().for_each(Cell::end_moment);
    }

    fn finish(&mut self, show: Show, bytes: &mut Vec<u8>) {
        bytes.extend(self.cells.iter().map(|cell| cell.value(show)));
        self.cells.fill(Cell::default());
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative, and at most the height")]
fn index(place: f64) -> usize {
    place as usize
}

impl Cell {
    fn add(&mut self, region: &Piece, share: f64) {
        let resident = f64::from(region.resident) * share;
        self.resident += resident;
        self.hot += f64::from(region.hot) * share;
        self.now.resident += resident;
        self.now.hot += f64::from(region.peak_hot) * share;
        if let Some(octaves) = region.interval.octaves() {
            let measured = f64::from(region.measured) * share;
            self.measured += measured;
            self.estimated += f64::from(region.estimated) * share;
            self.now.measured += measured;
            self.interval += measured * octaves;
            self.idle += measured * f64::from(region.idle_ms.max(1)).log2();
        }
    }

    fn end_moment(&mut self) {
        let Now { resident, measured, hot } = std::mem::take(&mut self.now);
        if is_mostly_measured(measured, resident) {
            self.peak = self.peak.max((hot / measured).min(1.0));
        }
    }

    fn value(&self, show: Show) -> u8 {
        if self.resident <= 0.0 {
            return NOTHING;
        }
        if !is_mostly_measured(self.measured, self.resident) {
            return UNMEASURED;
        }
        let value = match show {
            Show::Hot => hot_share((self.hot / self.measured).min(1.0)),
            Show::Peak => hot_share(self.peak),
            Show::Interval => colder(self.interval / self.measured, 1.0),
            Show::Idle => colder(self.idle / self.measured, 1000.0),
        };
        value + u8::from(is_mostly_estimated(self.estimated, self.measured))
    }
}

/// The value of a share, on three decades: a thousandth of the pages is the least that differs from none.
fn hot_share(share: f64) -> u8 {
    if share <= 0.0 { byte(0.0) } else { byte((share.log10() + 3.0) / 3.0) }
}

/// The value of a time between `shortest_ms` (hottest) and one hour.
fn colder(log2_ms: f64, shortest_ms: f64) -> u8 {
    let [shortest, longest] = [shortest_ms, 3_600_000.0].map(f64::log2);
    byte(1.0 - (log2_ms - shortest) / (longest - shortest))
}

/// The value of a heat between 0 and 1, where it is measured.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to a byte")]
fn byte(heat: f64) -> u8 {
    let steps = (HOTTEST - COLDEST) / 2.0;
    (COLDEST + 2.0 * (steps * heat).round().clamp(0.0, steps)) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moment::Process;
    use crate::sums::Sum;
    use isotherm_heat::Interval;
    use isotherm_units::{AddrRange, PMD_SIZE};

    const ID: TargetId = TargetId { pid: 7, start_ticks: 1 };

    /// One of two huge ranges: resident pages, hot ones, interval and idle time in seconds (0: unmeasured).
    fn piece(huge_range: u64, resident: u32, hot: u32, interval_s: u64, idle_s: u32) -> Piece {
        let interval =
            if interval_s == 0 { Interval::UNMEASURED } else { Interval::from_ns(interval_s * 1_000_000_000) };
        Piece {
            range: AddrRange::new(Addr(huge_range * PMD_SIZE), Addr((huge_range + 1) * PMD_SIZE)),
            resident,
            measured: if interval_s == 0 { 0 } else { resident },
            huge: 0,
            hot,
            peak_hot: hot,
            estimated: 0,
            rate_hz: 1.0,
            idle_ms: idle_s * 1000,
            age_ms: 0,
            interval,
        }
    }

    fn moment(second: u64, regions: Vec<Piece>) -> Arc<Moment> {
        let process = Process {
            id: ID,
            comm: "x".into(),
            cgroup: "".into(),
            exited: false,
            sampled: false,
            sum: Sum::default(),
            temperature: Default::default(),
            idle: Default::default(),
            regions,
            mappings: [].into(),
        };
        Arc::new(Moment {
            start_ms: second * 1000,
            at_ms: second * 1000 + 1000,
            processes: vec![Arc::new(process)],
            ..Moment::default()
        })
    }

    fn rendered(moments: &[Arc<Moment>], time_ms: [u64; 2], width: usize, height: usize, show: Show) -> Vec<u8> {
        let used = moments.iter().flat_map(|m| m.processes[0].regions.iter().map(|region| region.range));
        let mut used: Vec<AddrRange> = used.collect();
        used.sort_unstable();
        let layout = Layout::with(None, used.into_iter());
        let tile = Tile { time_ms, packed: [0, layout.packed(Addr(u64::MAX))], width, height, show };
        tile.render(moments, ID, &layout).0
    }

    #[test]
    fn shares_of_hot_pages_are_on_a_scale_of_three_decades() {
        let moments = [moment(
            0,
            vec![
                piece(0, 512, 512, 1, 0),
                piece(1, 500, 50, 1, 0),
                piece(2, 500, 5, 1, 0),
                piece(3, 500, 0, 100, 100),
                piece(4, 500, 0, 0, 0),
                piece(5, 0, 0, 0, 0),
            ],
        )];
        // All hot: 254. A tenth: 2 + 252 * 2/3 = 170. A hundredth: 86. None, unmeasured, nothing.
        assert_eq!(rendered(&moments, [0, 1000], 1, 6, Show::Hot), [254, 170, 86, 2, 1, 0]);
    }

    #[test]
    fn intervals_and_idle_times_are_logarithmic() {
        let regions = vec![piece(0, 9, 0, 3600, 1), piece(1, 9, 0, 60, 60), piece(2, 9, 9, 1, 3600)];
        let moments = [moment(0, regions)];
        // From 1 ms to 1 h: 3600 s is 2, 60 s is 2 + 252 * ln(60)/ln(3.6e6) = 70.3, 1 s is
        // 2 + 252 * 0.541 = 138.3 (the step is 1.024 s).
        assert_eq!(rendered(&moments, [0, 1000], 1, 3, Show::Interval), [2, 70, 138]);
        // From 1 s to 1 h: a minute is half of it.
        assert_eq!(rendered(&moments, [0, 1000], 1, 3, Show::Idle), [254, 128, 2]);
    }

    #[test]
    fn a_column_shows_the_windows_that_it_meets() {
        let hot = || vec![piece(0, 10, 10, 1, 0)];
        let cold = || vec![piece(0, 10, 0, 100, 9)];
        // Seconds 1 to 2 hot, 2 to 3 cold, nothing known from 3 to 4, then hot.
        let moments = [moment(1, hot()), moment(2, cold()), moment(4, hot())];
        assert_eq!(rendered(&moments, [0, 6000], 6, 1, Show::Hot), [0, 254, 2, 0, 254, 0]);
        // A column in the middle of a window shows it; one over two of them shows the mean: half is hot.
        let half = byte((0.5_f64.log10() + 3.0) / 3.0);
        assert_eq!(rendered(&moments, [1250, 1750], 1, 1, Show::Hot), [254]);
        assert_eq!(rendered(&moments, [1500, 2500], 1, 1, Show::Hot), [half]);
    }

    #[test]
    fn a_peak_is_that_of_the_moment_that_had_the_most() {
        let with = |hot| vec![piece(0, 500, hot, 1, 0), piece(1, 500, 5, 1, 0)];
        let merged = |hot, peak_hot| vec![Piece { peak_hot, ..piece(0, 500, hot, 1, 0) }];
        let moments = [moment(0, with(0)), moment(1, with(500)), moment(2, with(50)), moment(3, merged(5, 50))];
        // A tenth, and a hundredth.
        assert_eq!(rendered(&moments, [0, 4000], 4, 2, Show::Peak), [2, 86, 254, 86, 170, 86, 170, 0]);
        // Over two moments: of both, that with more. Both huge ranges in one cell: half at most.
        assert_eq!(rendered(&moments, [0, 4000], 2, 2, Show::Peak), [254, 86, 170, 86]);
        let of_both = byte(((505.0_f64 / 1000.0).log10() + 3.0) / 3.0);
        assert_eq!(rendered(&moments, [0, 2000], 1, 1, Show::Peak), [of_both]);
        // In the mean of the first three, 550 of 1,500.
        let mean = byte(((550.0_f64 / 1500.0).log10() + 3.0) / 3.0);
        assert_eq!(rendered(&moments, [0, 3000], 1, 2, Show::Hot)[0], mean);
    }

    /// Of 512 pages so many were measured, and 64 of them are hot.
    #[test]
    fn what_is_hardly_measured_is_unmeasured_and_not_idle() {
        let of = |measured| vec![Piece { measured, ..piece(0, 512, 64, 1, 5) }];
        let shown = |measured, show| rendered(&[moment(0, of(measured))], [0, 1000], 1, 1, show)[0];
        let share = |share: f64| byte((share.log10() + 3.0) / 3.0);
        for show in [Show::Hot, Show::Peak] {
            assert_eq!(
                [0, 255, 256, 512].map(|measured| shown(measured, show)),
                [1, 1, share(0.25), share(0.125)],
                "{show:?}"
            );
        }
        assert_eq!([255, 256].map(|measured| shown(measured, Show::Interval) == 1), [true, false]);
        assert_eq!([255, 256].map(|measured| shown(measured, Show::Idle) == 1), [true, false]);
        // A cell of two huge ranges, of which one was not checked yet.
        let both = |hot| vec![piece(0, 512, hot, 1, 5), piece(1, 300, 0, 0, 0)];
        assert_eq!(rendered(&[moment(0, both(0))], [0, 1000], 1, 1, Show::Hot), [2]);
        // The peak is that of moments in which it was measured, and the mean is over all.
        let moments = [moment(0, of(10)), moment(1, of(512))];
        assert_eq!(rendered(&moments, [0, 2000], 1, 1, Show::Peak), [share(0.125)]);
        assert_eq!(rendered(&moments, [0, 2000], 1, 1, Show::Hot), [share(128.0 / 522.0)]);
    }

    #[test]
    fn an_odd_value_is_an_estimate_for_the_most_part() {
        let of = |estimated, hot| vec![Piece { estimated, ..piece(0, 512, hot, 1, 5) }];
        let shown = |estimated, hot| rendered(&[moment(0, of(estimated, hot))], [0, 1000], 1, 1, Show::Hot)[0];
        assert_eq!([0, 256, 257, 512].map(|estimated| shown(estimated, 512)), [254, 254, 255, 255]);
        assert_eq!([0, 512].map(|estimated| shown(estimated, 0)), [2, 3]);
        for show in [Show::Peak, Show::Interval, Show::Idle] {
            let [measured, estimated] =
                [0, 512].map(|pages| rendered(&[moment(0, of(pages, 64))], [0, 1000], 1, 1, show)[0]);
            assert_eq!((measured % 2, estimated), (0, measured + 1), "{show:?}");
        }
    }

    #[test]
    fn a_region_counts_by_the_part_of_it_that_is_in_a_cell() {
        let moments = [moment(0, vec![piece(0, 512, 512, 1, 0), piece(1, 512, 0, 100, 9)])];
        let third = byte((0.5_f64.log10() + 3.0) / 3.0);
        assert_eq!(rendered(&moments, [0, 1000], 1, 3, Show::Hot), [254, third, 2]);
        assert_eq!(rendered(&moments, [0, 1000], 1, 4, Show::Hot), [254, 254, 2, 2]);
        let layout = Layout::with(None, moments[0].processes[0].regions.iter().map(|region| region.range));
        let upper = Tile { time_ms: [0, 1000], packed: [PMD_SIZE, 3 * PMD_SIZE], width: 1, height: 2, show: Show::Hot };
        assert_eq!(upper.render(&moments, ID, &layout), (vec![2, 0], 1000));
        let none = upper.render(&moments, TargetId { pid: 8, start_ticks: 1 }, &layout);
        assert_eq!(none.0, [0, 0]);
    }
}
