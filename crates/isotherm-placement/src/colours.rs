//! What the report shows of a node's colours: how many hold how many frames, the most loaded ones, and a picture of all
//! of them.

use crate::direct_mapped::{Load, MAX_HISTOGRAM, Misses};
use crate::report::{ColourCell, ColoursByFrames, LoadedColour};
use std::cmp::Ordering;

/// Colours that the report lists one by one.
const MAX_LOADED: usize = 10;

/// Colours by how many frames they hold.
pub(crate) fn by_frames(placed: &Misses) -> Vec<ColoursByFrames> {
    let entry = |(frames, colours): (u64, &u64)| ColoursByFrames { frames, colours: *colours };
    (0_u64..).zip(&placed.histogram).take(MAX_HISTOGRAM + 1).filter(|(_, n)| **n > 0).map(entry).collect()
}

/// Colours folded into cells.
pub(crate) struct Picture {
    colours: u64,
    cells: Vec<Load>,
}

impl Picture {
    pub fn new(colours: u64, most_cells: usize) -> Picture {
        let cells = usize::try_from(colours).map_or(most_cells, |n| n.min(most_cells)).max(1);
        Picture { colours, cells: vec![Load::default(); cells] }
    }

    pub fn add(&mut self, colour: u64, load: &Load) {
        let cell = u128::from(colour) * self.cells.len() as u128 / u128::from(self.colours.max(1));
        if let Some(cell) = usize::try_from(cell).ok().and_then(|cell| self.cells.get_mut(cell)) {
            cell.frames += load.frames;
            cell.weight += load.weight;
        }
    }

    /// The first colour of a cell: the lowest that [`Picture::add`] puts into it.
    fn first(&self, cell: usize) -> u64 {
        let first = (cell as u128 * u128::from(self.colours)).div_ceil(self.cells.len() as u128);
        u64::try_from(first).unwrap_or(self.colours)
    }

    pub fn cells(&self, weight: f64) -> Vec<ColourCell> {
        let reported = |(index, cell): (usize, &Load)| ColourCell {
            first_colour: self.first(index),
            colours: self.first(index + 1) - self.first(index),
            frames: cell.frames,
            accesses_pct: (weight > 0.0).then(|| cell.weight / weight * 100.0),
        };
        self.cells.iter().enumerate().map(reported).collect()
    }
}

/// The most loaded colours: by frames, or by misses if heat is known.
pub(crate) struct MostLoaded {
    by_heat: bool,
    colours: Vec<(u64, Load)>,
}

impl MostLoaded {
    pub fn new(by_heat: bool) -> MostLoaded {
        MostLoaded { by_heat, colours: Vec::with_capacity(MAX_LOADED + 1) }
    }

    pub fn add(&mut self, colour: u64, load: &Load) {
        if self.colours.len() == MAX_LOADED
            && self.colours.last().is_some_and(|(_, last)| self.order(load, last).is_ge())
        {
            return;
        }
        let at = self.colours.partition_point(|(_, other)| self.order(other, load).is_le());
        self.colours.insert(at, (colour, *load));
        self.colours.truncate(MAX_LOADED);
    }

    /// The more loaded colour sorts first.
    fn order(&self, a: &Load, b: &Load) -> Ordering {
        if self.by_heat { (b.weight - b.hits()).total_cmp(&(a.weight - a.hits())) } else { b.frames.cmp(&a.frames) }
    }

    pub fn into_report(self, weight: f64) -> Vec<LoadedColour> {
        let reported = |(colour, load): (u64, Load)| LoadedColour {
            colour,
            frames: load.frames,
            accesses_pct: (weight > 0.0).then(|| load.weight / weight * 100.0),
        };
        self.colours.into_iter().map(reported).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_tile_the_colours() {
        for (colours, most) in [(1, 400), (399, 400), (400, 400), (401, 400), (1_000_003, 400), (7, 3)] {
            let mut picture = Picture::new(colours, most);
            (0..colours).for_each(|colour| {
                let mut load = Load::default();
                load.add(1.0);
                picture.add(colour, &load);
            });
            let cells = picture.cells(colours as f64);
            assert!(cells.len() <= most && cells[0].first_colour == 0);
            assert!(cells.windows(2).all(|w| w[0].first_colour + w[0].colours == w[1].first_colour));
            assert!(cells.iter().all(|c| c.frames == c.colours), "{colours} in {most}: one frame a colour");
            let all: f64 = cells.iter().filter_map(|c| c.accesses_pct).sum();
            assert!((all - 100.0).abs() < 1e-6);
        }
    }

    #[test]
    fn the_most_loaded_are_kept_in_order() {
        let load = |weights: &[f64]| {
            let mut load = Load::default();
            weights.iter().for_each(|w| load.add(*w));
            load
        };
        let mut most = MostLoaded::new(false);
        (0..100).for_each(|colour: u64| most.add(colour, &load(&vec![1.0; usize::try_from(colour % 13).unwrap() + 1])));
        let reported = most.into_report(700.0);
        assert_eq!(reported.len(), MAX_LOADED);
        assert_eq!(
            (reported[0].colour, reported[0].frames, reported[7].frames),
            (12, 13, 12),
            "first come, first told"
        );
        // By heat: the one that misses most, not the one that is hottest.
        let mut most = MostLoaded::new(true);
        most.add(1, &load(&[1000.0]));
        most.add(2, &load(&[5.0, 5.0]));
        most.add(3, &load(&[1.0, 1.0, 1.0]));
        assert_eq!(most.into_report(1013.0).iter().map(|c| c.colour).collect::<Vec<_>>(), [2, 3, 1]);
    }
}
