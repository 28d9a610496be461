//! An area prepared for queries: which pages share a rhythm, and their phases.
//!
//! Computed once from [`Heat`]. All queries of a host (bits of a huge range, one page, bytes by interval) are
//! answered from pieces, so all answers agree. Memory grows with the number of areas, phases and steps of Gaussians.

use crate::heat::{Access, Heat, Phase};
use crate::mix::{GOLDEN, mix, threshold};
use crate::rhythm::{Rhythm, Stretch, mark_if};
use isotherm_heat::{Mask, Ns};
use std::ops::Range;

/// Separates the hash that picks scattered pages from the one that places accesses.
const PICK: u64 = 0x5ca7_7e2e_d0f0_0d01;

/// The key of a page. All its random values follow from it. `salt` is that of the process.
pub(crate) fn key_of(salt: u64, page: u64) -> u64 {
    page.wrapping_mul(GOLDEN).wrapping_add(salt)
}

/// A range of pages with the same mixture of rhythms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// One past its last page. It begins at the end of the previous piece.
    pub end: u64,
    pub mixture: Mixture,
}

/// The rhythms of its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mixture {
    One(Rhythm),
    /// `hot` if the hash is below `threshold`, `rest` otherwise.
    Two {
        threshold: u64,
        hot: Rhythm,
        rest: Rhythm,
    },
}

/// A period in which nothing changes. It begins at the end of the previous stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stage {
    pub until: Ns,
    pub pieces: Vec<Piece>,
}

/// The stages of an area; the last one never ends. Heat may change only at multiples of `unit` pages: 512 on huge
/// pages.
pub(crate) fn stages(heat: &Heat, pages: Range<u64>, unit: u64) -> Vec<Stage> {
    let Heat::Phases(phases) = heat else {
        return vec![Stage { until: Ns::MAX, pieces: pieces(heat, pages, unit) }];
    };
    let mut stages: Vec<Stage> =
        phases.iter().map(|p| Stage { until: p.until, pieces: pieces(&p.heat, pages.clone(), unit) }).collect();
    if let Some(last) = stages.last_mut() {
        last.until = Ns::MAX;
    }
    stages
}

fn pieces(heat: &Heat, pages: Range<u64>, unit: u64) -> Vec<Piece> {
    let mixture = match *heat {
        Heat::Uniform(access) => Mixture::One(rhythm(access)),
        Heat::Scattered { share, hot, rest } => {
            Mixture::Two { threshold: threshold(share), hot: rhythm(hot), rest: rhythm(rest) }
        }
        Heat::Gaussian { peak, sigma, coldest } => return gaussian(peak, sigma, coldest, pages, unit),
        // Rejected when the host was checked.
        Heat::Phases(_) => Mixture::One(Rhythm::NEVER),
    };
    vec![Piece { end: pages.end, mixture }]
}

fn rhythm(access: Access) -> Rhythm {
    match access {
        Access::Never => Rhythm::NEVER,
        Access::Every(interval) => Rhythm::every(interval),
        Access::Poisson(interval) => Rhythm::poisson(interval),
    }
}

/// The two flanks mirror each other around the middle. A step narrower than a unit is omitted, except the first.
fn gaussian(peak: Ns, sigma: f64, coldest: Ns, pages: Range<u64>, unit: u64) -> Vec<Piece> {
    let units = (pages.end - pages.start) / unit;
    let half = units / 2;
    let mut right = Vec::new();
    let mut left = Vec::new();
    let mut reached = 0;
    for (reach, interval) in Heat::gaussian_steps(peak, sigma, coldest) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, and is positive")]
        let distance = ((reach * units as f64).round() as u64).max(1).min(units - half);
        if distance > reached {
            let mixture = Mixture::One(Rhythm::poisson(interval));
            right.push(Piece { end: pages.start + (half + distance) * unit, mixture });
            left.push(Piece { end: pages.start + half.saturating_sub(reached) * unit, mixture });
            reached = distance;
        }
    }
    let cold = Mixture::One(Rhythm::NEVER);
    left.push(Piece { end: pages.start + half.saturating_sub(reached) * unit, mixture: cold });
    right.push(Piece { end: pages.end, mixture: cold });
    let mut begin = pages.start;
    let mut all: Vec<Piece> = left.into_iter().rev().chain(right).collect();
    all.retain(|piece| {
        let is_wide = piece.end > begin;
        begin = begin.max(piece.end);
        is_wide
    });
    all
}

/// Memory that `heat` takes in an area, as described and as computed.
pub(crate) fn bytes_of(heat: &Heat) -> u64 {
    let pieces = |n: usize| (n * size_of::<Piece>()) as u64;
    match heat {
        Heat::Uniform(_) | Heat::Scattered { .. } => pieces(1),
        // The two flanks are each collected, and then both together. Vectors may have twice the capacity they need.
        Heat::Gaussian { peak, sigma, coldest } => {
            pieces(8 * (Heat::gaussian_steps(*peak, *sigma, *coldest).count() + 1))
        }
        Heat::Phases(phases) => {
            let each = (size_of::<Phase>() + size_of::<Stage>()) as u64;
            phases.iter().map(|phase| each + bytes_of(&phase.heat)).fold(0, u64::saturating_add)
        }
    }
}

/// The parts of `time` that are in each stage.
pub(crate) fn during(stages: &[Stage], time: Stretch) -> impl Iterator<Item = (&Stage, Stretch)> {
    let first = stages.partition_point(|s| s.until <= time.since);
    let mut start = time.since;
    stages[first.min(stages.len() - 1)..].iter().map_while(move |stage| {
        let part = Stretch { since: start, until: time.until.min(stage.until) };
        start = stage.until;
        (part.since < part.until).then_some((stage, part))
    })
}

impl Stage {
    /// The piece that contains a page of the area.
    pub fn piece_of(&self, page: u64) -> &Piece {
        let index = self.pieces.partition_point(|p| p.end <= page);
        &self.pieces[index.min(self.pieces.len() - 1)]
    }

    /// The pieces within `pages`, cut to that range.
    pub fn pieces_in(&self, pages: Range<u64>) -> impl Iterator<Item = (Range<u64>, &Mixture)> {
        let first = self.pieces.partition_point(|p| p.end <= pages.start);
        let mut start = pages.start;
        self.pieces[first..].iter().map_while(move |piece| {
            let part = start..piece.end.min(pages.end);
            start = piece.end;
            (part.start < part.end).then_some((part, &piece.mixture))
        })
    }
}

impl Mixture {
    /// Whether the page with this key was accessed in `time`.
    pub fn accessed(&self, key: u64, time: Stretch) -> bool {
        self.rhythm_of(key).window(time).has(key)
    }

    /// The rhythm of the page with this key.
    pub fn rhythm_of(&self, key: u64) -> Rhythm {
        match *self {
            Mixture::One(rhythm) => rhythm,
            Mixture::Two { threshold, hot, rest } => {
                if is_picked(key, threshold) {
                    hot
                } else {
                    rest
                }
            }
        }
    }

    /// Sets the bits of those of `indices` that were accessed in `time`. `key` is the key of the huge range's page 0.
    pub fn mark(&self, key: u64, indices: Range<usize>, time: Stretch, mask: &mut Mask) {
        let Range { start: first, end } = indices;
        match *self {
            Mixture::One(rhythm) => rhythm.window(time).mark(key, first, end, mask),
            Mixture::Two { threshold, hot, rest } => {
                let (hot, rest) = (hot.window(time), rest.window(time));
                mark_if(
                    key,
                    first,
                    end,
                    mask,
                    |key| {
                        if is_picked(key, threshold) { hot.has(key) } else { rest.has(key) }
                    },
                );
            }
        }
    }

    /// Each rhythm, and the share of pages that have it.
    pub fn shares(&self) -> impl Iterator<Item = (Rhythm, f64)> {
        let shares = match *self {
            Mixture::One(rhythm) => [(rhythm, 1.0), (rhythm, 0.0)],
            Mixture::Two { threshold, hot, rest } => {
                let share = threshold as f64 / u64::MAX as f64;
                [(hot, share), (rest, 1.0 - share)]
            }
        };
        shares.into_iter().filter(|(_, share)| *share > 0.0)
    }
}

#[inline]
fn is_picked(key: u64, threshold: u64) -> bool {
    // All ones means a share of 1.
    mix(key ^ PICK) < threshold || threshold == u64::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gaussian_is_cut_into_pieces_that_mirror_each_other() {
        for (pages, unit) in [(1000..201_000, 1), (1024..1024 + 512 * 1000, 512), (5..12, 1), (5..6, 1)] {
            let all = pieces(&Heat::gaussian(1_000_000, 0.05), pages.clone(), unit);
            assert!(all.is_sorted_by(|a, b| a.end < b.end) && all[0].end > pages.start);
            assert_eq!(all.last().unwrap().end, pages.end);
            assert!(all.iter().all(|p| (p.end - pages.start) % unit == 0));
            let interval = |page| all[all.partition_point(|p| p.end <= page)].mixture.rhythm_of(0).interval();
            let middle = pages.start + (pages.end - pages.start) / 2;
            assert!(interval(middle).unwrap() < 1_200_000);
            for distance in (0..(pages.end - pages.start) / 2).step_by(777) {
                let (left, right) = (interval(middle - 1 - distance), interval(middle + distance));
                assert_eq!(left, right, "{distance} from the middle of {pages:?}");
            }
        }
    }

    #[test]
    fn a_stretch_of_time_is_cut_where_heat_changes() {
        let phase = |until| Phase { until, heat: Heat::never() };
        let stages = stages(&Heat::Phases(vec![phase(10), phase(20), phase(30)]), 0..8, 1);
        let cut = |since, until| {
            during(&stages, Stretch { since, until }).map(|(_, part)| (part.since, part.until)).collect::<Vec<_>>()
        };
        assert_eq!(cut(0, 5), [(0, 5)]);
        assert_eq!(cut(5, 25), [(5, 10), (10, 20), (20, 25)]);
        assert_eq!(cut(10, 11), [(10, 11)]);
        assert_eq!(cut(29, 99), [(29, 99)], "the last phase goes on for ever");
        assert_eq!(cut(7, 7), []);
    }
}
