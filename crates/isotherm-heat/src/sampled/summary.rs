//! Regions in the form in which all targets are reported: regions of pages, and histograms.
//!
//! Checks give shares, reports count pages. So every number of pages here is an estimate, rounded so that they add up.

use super::mix::Kinds;
use super::piece::Piece;
use super::surplus::Surplus;
use crate::regions::RegionBuilder;
use crate::view::Summary;
use crate::{Interval, Region};
use isotherm_units::{AddrRange, PAGES_PER_PMD, PmdNo};

/// At most `max_regions`, of `pieces` in address order.
pub(crate) fn regions<'a>(pieces: impl Iterator<Item = (PmdNo, &'a Piece)>, max_regions: usize) -> Vec<Region> {
    let mut builder = RegionBuilder::new(max_regions);
    let mut alike: Option<(PmdNo, Piece)> = None;
    for (start, piece) in pieces {
        match &mut alike {
            Some((from, all)) if all.end == start && all.is_like(piece) => {
                let pmds = all.end.0 - from.0;
                all.join(piece, pmds, piece.end.0 - start.0);
            }
            other => {
                if let Some((from, all)) = other.replace((start, *piece)) {
                    tell(&mut builder, from, &all);
                }
            }
        }
    }
    if let Some((from, all)) = alike {
        tell(&mut builder, from, &all);
    }
    builder.finish()
}

/// Resident pages of a target.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    /// Those whose heat is known, by kind. They add up to `known_pages`.
    pub kinds: Kinds,
    pub known_pages: u64,
    pub unmeasured: u64,
}

/// Summed by region, then corrected by the error that random checks found. Those are of huge ranges that are cleared by
/// themselves. Of regions that are cleared with the process many more huge ranges are read at once.
pub(crate) fn totals<'a>(pieces: impl Iterator<Item = (PmdNo, &'a Piece)>, surplus: &Surplus) -> Totals {
    let mut totals = Totals::default();
    let (mut with_process, mut corrected_pages) = (Kinds::default(), 0);
    for (start, piece) in pieces {
        let pages = resident(start, piece);
        match piece.kinds() {
            Some(kinds) => {
                totals.known_pages += pages;
                if piece.is_stuck() {
                    with_process.add(&kinds, pages as f64);
                } else {
                    totals.kinds.add(&kinds, pages as f64);
                    corrected_pages += pages;
                }
            }
            None => totals.unmeasured += pages,
        }
    }
    surplus.correct(&mut totals.kinds, corrected_pages);
    totals.kinds.add(&with_process, 1.0);
    totals
}

/// The histograms of these pages, without regions.
pub(crate) fn histograms(totals: &Totals) -> Summary {
    let mut sum = Summary::default();
    for (interval, idle, pages) in whole_pages(&totals.kinds, totals.known_pages) {
        sum.temperature.add(interval, pages);
        sum.idle.add(idle, pages);
    }
    for histogram in [&mut sum.temperature, &mut sum.idle] {
        histogram.add(Interval::UNMEASURED, totals.unmeasured);
    }
    sum
}

fn tell(builder: &mut RegionBuilder, start: PmdNo, piece: &Piece) {
    let pages = resident(start, piece);
    let counted = match piece.kinds() {
        Some(kinds) => {
            let mut of_pages = Kinds::default();
            of_pages.add(&kinds, pages as f64);
            whole_pages(&of_pages, pages)
        }
        None => vec![(Interval::UNMEASURED, Interval::UNMEASURED, pages)],
    };
    if pages > 0 {
        let huge = part_of(pages, f64::from(piece.huge));
        builder.mixed(AddrRange::new(start.addr(), piece.end.addr()), huge, &counted);
    }
}

/// Pages present in a region, estimated from its checks.
pub(crate) fn resident(start: PmdNo, piece: &Piece) -> u64 {
    let all = (piece.end.0 - start.0) * PAGES_PER_PMD as u64;
    if piece.is_known() { part_of(all, f64::from(piece.resident)) } else { all }
}

/// Interval, idle time and number of pages. The numbers add up to `all`.
fn whole_pages(kinds: &Kinds, all: u64) -> Vec<(Interval, Interval, u64)> {
    let mut left = all;
    let mut counted: Vec<_> = kinds
        .intervals()
        .map(|(interval, idle, pages)| {
            let pages = part_of(1, pages).min(left);
            left -= pages;
            (interval, idle, pages)
        })
        .collect();
    match counted.last_mut() {
        // What rounding left over.
        Some(last) => last.2 += left,
        None => counted.push((Interval::UNMEASURED, Interval::UNMEASURED, left)),
    }
    counted.retain(|c| c.2 > 0);
    counted
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share, 0 to 1, of a number of pages")]
fn part_of(pages: u64, share: f64) -> u64 {
    (pages as f64 * share).round() as u64
}
