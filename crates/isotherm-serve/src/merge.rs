//! Several moments as one, to keep hours of them: means of what adds up, on the scale for intervals and idle times. Beside the mean of hot
//! pages is the most of any moment, since a mean over an hour shows little of what was hot for a minute.
//!
//! The regions of a process differ from moment to moment. A merged list has a boundary where any of them has one. A boundary
//! between pieces that are alike then goes, and if there are still more pieces than the longest of the lists had, pieces that
//! are less and less alike are joined.

use crate::moment::{Moment, Piece, Process};
use crate::sums::Sum;
use isotherm_heat::{Interval, TargetId};
use isotherm_units::{Addr, AddrRange};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Moments in order of time as one. There is at least one.
pub fn merge(moments: &[Arc<Moment>]) -> Moment {
    let mut processes: BTreeMap<TargetId, Vec<&Process>> = BTreeMap::new();
    let mut cgroups: BTreeMap<&Arc<str>, Vec<u64>> = BTreeMap::new();
    for moment in moments {
        moment.processes.iter().for_each(|process| processes.entry(process.id).or_default().push(process));
        moment.cgroups.iter().for_each(|(path, bytes)| cgroups.entry(path).or_default().push(*bytes));
    }
    let mean = |bytes: &[u64]| bytes.iter().sum::<u64>() / (bytes.len() as u64).max(1);
    Moment {
        start_ms: moments.first().map_or(0, |moment| moment.start_ms),
        at_ms: moments.last().map_or(0, |moment| moment.at_ms),
        total: Sum::mean(moments.iter().map(|moment| &moment.total)),
        cgroups: cgroups.into_iter().map(|(path, bytes)| (Arc::clone(path), mean(&bytes))).collect(),
        processes: processes.into_values().filter_map(|same| merge_process(&same)).map(Arc::new).collect(),
    }
}

fn merge_process(same: &[&Process]) -> Option<Process> {
    let last = *same.last()?;
    let lists: Vec<&[Piece]> = same.iter().map(|process| process.regions.as_slice()).collect();
    Some(Process {
        sum: Sum::mean(same.iter().map(|process| &process.sum)),
        temperature: mean_octaves(same.iter().map(|process| &process.temperature)),
        idle: mean_octaves(same.iter().map(|process| &process.idle)),
        regions: merge_regions(&lists),
        ..last.clone()
    })
}

type Octaves = (Vec<(u8, u64)>, u64);

fn mean_octaves<'a>(of: impl ExactSizeIterator<Item = &'a Octaves>) -> Octaves {
    let count = (of.len() as u64).max(1);
    let (mut sums, mut unknown) = (BTreeMap::new(), 0);
    for (octaves, rest) in of {
        octaves.iter().for_each(|(octave, pages)| *sums.entry(*octave).or_insert(0) += pages);
        unknown += rest;
    }
    (sums.into_iter().map(|(octave, pages)| (octave, pages / count)).collect(), unknown / count)
}

/// Regions of several moments as one list.
fn merge_regions(lists: &[&[Piece]]) -> Vec<Piece> {
    let bounds = lists.iter().flat_map(|list| list.iter().flat_map(|piece| [piece.range.start, piece.range.end]));
    let mut bounds: Vec<Addr> = bounds.collect();
    bounds.sort_unstable();
    bounds.dedup();
    let mut next = vec![0_usize; lists.len()];
    let mut merged = Vec::with_capacity(bounds.len());
    for pair in bounds.windows(2) {
        let range = AddrRange::new(pair[0], pair[1]);
        let mut mean = Mean::default();
        for (list, next) in lists.iter().zip(&mut next) {
            while list.get(*next).is_some_and(|piece| piece.range.end <= range.start) {
                *next += 1;
            }
            if let Some(piece) = list.get(*next).filter(|piece| piece.range.start < range.end) {
                mean.add(piece, share(range, piece.range));
            }
        }
        merged.extend(mean.piece(range));
    }
    coalesce(merged, lists.iter().map(|list| list.len()).max().unwrap_or_default())
}

/// Which part of `whole` its part is.
fn share(part: AddrRange, whole: AddrRange) -> f64 {
    crate::sums::as_f64(part.len().0) / crate::sums::as_f64(whole.len().0.max(1))
}

/// The mean of several pieces. Pages are means over the pieces; heat is weighed by measured pages.
#[derive(Debug, Default)]
struct Mean {
    count: f64,
    /// Resident, measured, huge, hot, estimated.
    pages: [f64; 5],
    peak_hot: f64,
    /// The rest is of measured pages: rate, log of the idle time, age, step of the interval.
    heat: [f64; 4],
    weight: f64,
}

impl Mean {
    fn add(&mut self, piece: &Piece, share: f64) {
        self.count += 1.0;
        let pages = [piece.resident, piece.measured, piece.huge, piece.hot, piece.estimated];
        for (sum, pages) in self.pages.iter_mut().zip(pages) {
            *sum += f64::from(pages) * share;
        }
        self.peak_hot = self.peak_hot.max(f64::from(piece.peak_hot) * share);
        let Some(step) = piece.interval.step() else { return };
        let weight = f64::from(piece.measured.max(1)) * share;
        let heat = [piece.rate_hz.into(), (f64::from(piece.idle_ms) + 1.0).ln(), piece.age_ms.into(), f64::from(step)];
        for (sum, value) in self.heat.iter_mut().zip(heat) {
            *sum += value * weight;
        }
        self.weight += weight;
    }

    fn piece(&self, range: AddrRange) -> Option<Piece> {
        if self.count == 0.0 {
            return None;
        }
        let [resident, measured, huge, hot, estimated] = self.pages.map(|pages| rounded(pages / self.count));
        let [rate, idle, age, step] = self.heat.map(|sum| sum / self.weight.max(f64::MIN_POSITIVE));
        let is_measured = self.weight > 0.0;
        #[expect(clippy::cast_possible_truncation, reason = "a mean of such numbers")]
        let rate_hz = rate as f32;
        Some(Piece {
            range,
            resident,
            measured,
            huge,
            hot,
            peak_hot: rounded(self.peak_hot).max(hot),
            estimated,
            rate_hz,
            idle_ms: rounded(idle.exp() - 1.0),
            age_ms: rounded(age),
            interval: if is_measured { Interval::nearest_step(step) } else { Interval::UNMEASURED },
        })
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast of a float saturates")]
fn rounded(number: f64) -> u32 {
    number.round() as u32
}

/// Joins neighbours that are alike, until at most `limit` are left, or all that touch are joined.
fn coalesce(mut pieces: Vec<Piece>, limit: usize) -> Vec<Piece> {
    let mut tolerance = 0.01;
    loop {
        pieces.dedup_by(|next, kept| {
            let is_joined = kept.range.end == next.range.start && distance(kept, next) <= tolerance;
            if is_joined {
                *kept = joined(kept, next);
            }
            is_joined
        });
        if pieces.len() <= limit || tolerance > 4.0 {
            pieces.shrink_to_fit();
            return pieces;
        }
        tolerance *= 2.0;
    }
}

/// How unlike two pieces are: shares of pages that are resident, hot, and hot at most, and intervals, each at most 1.
fn distance(one: &Piece, other: &Piece) -> f64 {
    let of_length =
        |piece: &Piece, pages: u32| f64::from(pages) / crate::sums::as_f64(piece.range.len().0.max(1)) * 4096.0;
    let shares = |pick: fn(&Piece) -> u32| (of_length(one, pick(one)) - of_length(other, pick(other))).abs();
    let intervals = match (one.interval.step(), other.interval.step()) {
        (Some(one), Some(other)) => f64::from(one.abs_diff(other)) / f64::from(u8::MAX),
        (None, None) => 0.0,
        _ => 1.0,
    };
    shares(|piece| piece.resident) + shares(|piece| piece.hot) + shares(|piece| piece.peak_hot) + intervals
}

/// Two that touch as one. Pages add up.
fn joined(one: &Piece, other: &Piece) -> Piece {
    let range = AddrRange::new(one.range.start, other.range.end);
    let mut mean = Mean::default();
    mean.add(one, 1.0);
    mean.add(other, 1.0);
    mean.count = 1.0;
    let joined = mean.piece(range).unwrap_or(*one);
    Piece { peak_hot: one.peak_hot.saturating_add(other.peak_hot), ..joined }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn piece(from: u64, to: u64, resident: u32, hot: u32, code: u8) -> Piece {
        Piece {
            range: AddrRange::new(Addr(from << 12), Addr(to << 12)),
            resident,
            measured: resident,
            huge: 0,
            hot,
            peak_hot: hot,
            estimated: 0,
            rate_hz: 2.0,
            idle_ms: 1000,
            age_ms: 5,
            interval: Interval::from_code(code),
        }
    }

    #[test]
    fn pieces_are_cut_where_any_has_a_boundary_and_pages_are_means() {
        let (one, other) = ([piece(0, 10, 10, 10, 80)], [piece(5, 15, 10, 0, 100)]);
        let merged = merge_regions(&[&one, &other]);
        // 0..5 hot, 5..10 the mean of both: 5 resident pages, half of them hot; 10..15 cold. More than the longest list had, so
        // the two that are most alike were joined.
        assert_eq!(merged.iter().map(|piece| piece.resident).sum::<u32>(), 15);
        assert_eq!(merged.first().unwrap().range.start, Addr(0));
        assert_eq!(merged.last().unwrap().range.end, Addr(15 << 12));
        let three = [piece(0, 5, 5, 5, 80), piece(5, 10, 5, 5, 10), piece(10, 15, 5, 0, 200)];
        assert_eq!(merge_regions(&[&three, &three]), three, "of equal lists, the list");
    }

    #[test]
    fn what_is_unmeasured_in_all_of_them_stays_so_and_otherwise_does_not_count() {
        let unmeasured = [Piece { measured: 0, ..piece(0, 4, 4, 0, 1) }];
        let known = [piece(0, 4, 4, 4, 42)];
        assert_eq!(merge_regions(&[&unmeasured, &unmeasured])[0].interval, Interval::UNMEASURED);
        let mixed = merge_regions(&[&unmeasured, &known])[0];
        assert_eq!((mixed.interval, mixed.measured, mixed.resident), (Interval::from_code(42), 2, 4));
    }

    #[test]
    fn the_most_that_was_hot_outlasts_means_of_means() {
        let cold = || [piece(0, 10, 10, 0, 100)];
        let hot = [piece(0, 4, 4, 4, 80), piece(4, 10, 6, 0, 100)];
        // Hot once in a hundred moments: the mean rounds to nothing.
        let mut tens = vec![cold().to_vec(); 9];
        let mut lists: Vec<&[Piece]> = vec![&hot];
        let still = cold();
        lists.extend([still.as_slice(); 9]);
        tens.push(merge_regions(&lists));
        let merged = merge_regions(&tens.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let of = |pick: fn(&Piece) -> u32| merged.iter().map(pick).sum::<u32>();
        assert_eq!((of(|piece| piece.resident), of(|piece| piece.hot), of(|piece| piece.peak_hot)), (10, 0, 4));
        assert_eq!((merged[0].range.start, merged[0].range.end, merged[0].peak_hot), (Addr(0), Addr(4 << 12), 4));
    }

    proptest! {
        #[test]
        fn merged_regions_are_disjoint_not_more_than_before_and_lose_no_page(
            lists in prop::collection::vec(prop::collection::vec((1_u64..20, 0_u64..5, any::<u8>()), 1..30), 1..10)
        ) {
            let lists: Vec<Vec<Piece>> = lists.iter().map(|list| {
                let mut at = 0;
                list.iter().map(|(pages, gap, code)| {
                    let from = at + gap;
                    at = from + pages;
                    piece(from, at, u32::try_from(*pages).unwrap(), 0, *code)
                }).collect()
            }).collect();
            let slices: Vec<&[Piece]> = lists.iter().map(Vec::as_slice).collect();
            let merged = merge_regions(&slices);
            prop_assert!(merged.windows(2).all(|two| two[0].range.end <= two[1].range.start));
            let covered = |list: &[Piece]| list.iter().map(|piece| piece.range.len().0).sum::<u64>();
            prop_assert!(covered(&merged) >= slices.iter().map(|list| covered(list)).max().unwrap());
            let single = merge_regions(&slices[..1]);
            prop_assert_eq!(covered(&single), covered(slices[0]));
            prop_assert_eq!(
                single.iter().map(|piece| piece.resident).sum::<u32>(),
                slices[0].iter().map(|piece| piece.resident).sum::<u32>()
            );
        }
    }
}
