//! Colours from cold to hot. Which figure of a cell they stand for is up to `scale`.
//!
//! Lightness rises steadily from cold to hot, so the map can be read in grey and by colour-blind readers, and hot
//! memory stands out. The cold end is a dark violet, not black: absent memory is black. A few control points with
//! straight lines between them are enough, because the eye cannot distinguish neighbouring steps.

use crate::math;

/// Red, green, blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rgb(pub u8, pub u8, pub u8);

/// Memory of which nothing is known: a grey that is not on the scale.
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
    /// Half of the way to grey: it is not known for certain.
    #[must_use]
    pub fn paler(self) -> Rgb {
        let half = |of: u8, grey: u8| of.midpoint(grey);
        let grey = UNMEASURED_COLOR;
        Rgb(half(self.0, grey.0), half(self.1, grey.1), half(self.2, grey.2))
    }

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
    fn the_cube_has_its_corners() {
        assert_eq!([Rgb(0, 0, 0).ansi256(), Rgb(255, 255, 255).ansi256(), Rgb(250, 0, 0).ansi256()], [16, 231, 196]);
    }
}
