//! The colour of an interval.
//!
//! Lightness rises steadily from cold to hot, so the map can be read in grey and by colour-blind readers, and hot
//! memory stands out. The cold end is a dark violet, not black: absent memory is black. A few control points with
//! straight lines between them are enough, because the eye cannot distinguish neighbouring intervals.

use crate::math;
use isotherm_heat::Interval;

/// Red, green, blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rgb(pub u8, pub u8, pub u8);

/// Memory without a known interval: a grey that is not on the scale.
pub const UNMEASURED_COLOR: Rgb = Rgb(96, 104, 112);

/// From cold to hot, at equal distances.
const CONTROL: [Rgb; 7] = [
    Rgb(44, 20, 84),
    Rgb(92, 22, 110),
    Rgb(150, 38, 103),
    Rgb(203, 65, 73),
    Rgb(238, 108, 36),
    Rgb(250, 170, 40),
    Rgb(252, 250, 176),
];

/// The colour of `heat`, from 0 (cold) to 1 (hot).
pub fn heat_color(heat: f64) -> Rgb {
    let position = heat.clamp(0.0, 1.0) * (CONTROL.len() - 1) as f64;
    let below = math::floor(position).min(CONTROL.len() - 2);
    let (a, b, t) = (CONTROL[below], CONTROL[below + 1], position - below as f64);
    let mix = |a: u8, b: u8| math::to_byte(f64::from(a) + (f64::from(b) - f64::from(a)) * t);
    Rgb(mix(a.0, b.0), mix(a.1, b.1), mix(a.2, b.2))
}

impl Rgb {
    /// The nearest colour of the 6x6x6 cube of 256-colour terminals.
    pub fn ansi256(self) -> u8 {
        const LEVELS: [u8; 6] = [0, 95, 135, 175, 215, 255];
        let nearest = |v: u8| (0..6_u8).min_by_key(|i| LEVELS[usize::from(*i)].abs_diff(v)).unwrap_or(0);
        16 + 36 * nearest(self.0) + 6 * nearest(self.1) + nearest(self.2)
    }

    /// Perceived lightness, 0 to 255 (Rec. 709 weights on the encoded values: good enough to order colours).
    pub fn lightness(self) -> f64 {
        0.2126 * f64::from(self.0) + 0.7152 * f64::from(self.1) + 0.0722 * f64::from(self.2)
    }
}

/// The intervals at the ends of the colour scale. They are fixed instead of fitted to the data, so that pictures can be
/// compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Intervals up to this have the brightest colour.
    pub hot_ns: u64,
    /// Intervals from this on have the darkest colour.
    pub cold_ns: u64,
}

impl Default for Scale {
    fn default() -> Scale {
        Scale { hot_ns: 8_000_000, cold_ns: 600_000_000_000 }
    }
}

impl Scale {
    /// 1 at the hot end, 0 at the cold end; `None` if there is no interval.
    pub fn heat(&self, interval: Interval) -> Option<f64> {
        let (hot, cold) = self.ends();
        interval.octaves().map(|o| ((cold - o) / (cold - hot)).clamp(0.0, 1.0))
    }

    /// The colour of a cell; `None` if nothing is mapped there.
    pub fn color(&self, cell: Interval) -> Option<Rgb> {
        match self.heat(cell) {
            Some(heat) => Some(heat_color(heat)),
            None => (cell == Interval::UNMEASURED).then_some(UNMEASURED_COLOR),
        }
    }

    /// `count` intervals at equal distances, coldest first.
    pub fn ticks(&self, count: usize) -> Vec<Interval> {
        let (hot, cold) = self.ends();
        let last = count.saturating_sub(1).max(1) as f64;
        (0..count).map(|i| Interval::from_octaves(cold + (hot - cold) * i as f64 / last)).collect()
    }

    /// Both ends in octaves. The hot end is always below the cold end, in whatever order they were given.
    fn ends(&self) -> (f64, f64) {
        let octaves = |ns| Interval::from_ns(ns).octaves().unwrap_or(0.0);
        let hot = octaves(self.hot_ns.min(self.cold_ns));
        (hot, octaves(self.hot_ns.max(self.cold_ns)).max(hot + 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lightness_rises_with_heat() {
        let colors: Vec<Rgb> = (0..=100).map(|i| heat_color(f64::from(i) / 100.0)).collect();
        assert!(colors.windows(2).all(|w| w[0].lightness() < w[1].lightness()));
        assert_eq!((colors[0], colors[100]), (CONTROL[0], CONTROL[6]));
    }

    #[test]
    fn the_scale_ends_where_asked_and_special_cells_are_not_on_it() {
        let scale = Scale { hot_ns: 1_000_000, cold_ns: 16_000_000 };
        let heat = |ms: u64| scale.heat(Interval::from_ns(ms * 1_000_000));
        assert_eq!([heat(1), heat(4), heat(16), heat(99)], [Some(1.0), Some(0.5), Some(0.0), Some(0.0)]);
        assert_eq!(scale.color(Interval::ABSENT), None);
        assert_eq!(scale.color(Interval::UNMEASURED), Some(UNMEASURED_COLOR));
        assert_eq!(scale.ticks(3), [16, 4, 1].map(|ms| Interval::from_ns(ms * 1_000_000)));
        assert!(Scale { hot_ns: 5, cold_ns: 5 }.heat(Interval::SHORTEST).is_some());
    }

    #[test]
    fn the_cube_has_its_corners() {
        assert_eq!([Rgb(0, 0, 0).ansi256(), Rgb(255, 255, 255).ansi256(), Rgb(250, 0, 0).ansi256()], [16, 231, 196]);
    }
}
