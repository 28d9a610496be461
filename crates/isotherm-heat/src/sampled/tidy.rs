//! Limits the number of regions: similar ones are joined, and those larger than allowed are cut. DAMON's merge and
//! split, based on checks.
//!
//! Pure: takes a list of regions in address order and returns another that tiles the same huge ranges. [`super::pieces`]
//! decides when, and knows which of the new ends are worth checking.

use super::piece::Piece;
use isotherm_units::PmdNo;

/// Where a region starts, and the region.
pub(crate) type Placed = (PmdNo, Piece);

/// Limits on the number of regions and on the size of each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub max_regions: usize,
    /// The largest region, in huge ranges. Exceeded if the number of regions cannot be kept otherwise.
    pub cap: u64,
}

/// The result.
#[derive(Debug, Default)]
pub(crate) struct Tidied {
    pub pieces: Vec<Placed>,
    /// Ends between two parts of a former region that turned out to be of two kinds.
    pub seams: Vec<PmdNo>,
}

/// Merges similar regions, the most similar first if there are too many, and cuts those larger than the cap.
pub(crate) fn tidied(mut list: Vec<Placed>, limits: Limits) -> Tidied {
    let Limits { max_regions, cap } = limits;
    merge(&mut list, |a, b| a.is_like(b), cap);
    let mut bound = 0.5;
    while list.len() > max_regions && bound < 256.0 {
        // Once everything within the cap is joined, the cap is lifted. Separate ranges were bridged by `refit`.
        merge(&mut list, |a, b| a.unlike(b) <= bound, if bound < 64.0 { cap } else { u64::MAX });
        bound *= 2.0;
    }
    let mut room = max_regions.saturating_sub(list.len()) as u64;
    let mut tidied = Tidied::default();
    for (start, piece) in list {
        if let Some(seam) = piece.seam().filter(|_| room > 0) {
            room -= 1;
            tidied.pieces.push((start, piece.part_by_marks(start, seam)));
            tidied.pieces.push((seam, piece.part_by_marks(seam, piece.end)));
            tidied.seams.push(seam);
            continue;
        }
        let cells = (piece.end.0 - start.0).div_ceil(cap).min(room + 1);
        room -= cells - 1;
        tidied.pieces.extend(cut(start, &piece, cells));
    }
    tidied
}

/// `piece` in `cells` parts of about the same size.
fn cut(start: PmdNo, piece: &Piece, cells: u64) -> impl Iterator<Item = Placed> {
    let pmds = piece.end.0 - start.0;
    let bound = move |no: u64| PmdNo(start.0 + pmds / cells * no + pmds % cells * no / cells);
    (0..cells).map(move |no| (bound(no), piece.part(bound(no), bound(no + 1))))
}

fn merge(list: &mut Vec<Placed>, alike: impl Fn(&Piece, &Piece) -> bool, cap: u64) {
    list.dedup_by(|(next_start, next), (start, kept)| {
        let pmds = next.end.0 - start.0;
        let joined = kept.end == *next_start && pmds <= cap && alike(kept, next);
        if joined {
            kept.join(next, next_start.0 - start.0, next.end.0 - next_start.0);
        }
        joined
    });
}

#[cfg(test)]
mod tests {
    use super::super::mix::{Finding, Mix, OUTCOMES, READS, Reach};
    use super::super::piece::Mark;
    use super::*;

    fn found(hot_pages: u32) -> Finding {
        let mut counts = [0; OUTCOMES];
        (counts[0], counts[READS]) = (hot_pages, 512 - hot_pages);
        Finding { mix: Mix::of_counts(counts), resident: 1.0, huge: false, reach: Reach::Itself }
    }

    /// Regions that touch, from huge range 0: where each ends, and of how many hot pages a huge range the looks at it say.
    fn list(of: &[(u64, &[u32])]) -> Vec<Placed> {
        let mut start = PmdNo(0);
        of.iter()
            .map(|(end, checks)| {
                let mut piece = Piece::new(PmdNo(*end));
                for (no, hot) in (0..).zip(*checks) {
                    let found = found(*hot);
                    piece.learn(Mark { pmd: PmdNo(start.0 + no), at: 0, mix: found.mix.into() }, &found);
                }
                (std::mem::replace(&mut start, piece.end), piece)
            })
            .collect()
    }

    fn bounds(pieces: &[Placed]) -> Vec<(u64, u64)> {
        pieces.iter().map(|(start, piece)| (start.0, piece.end.0)).collect()
    }

    #[test]
    fn like_ones_become_one_up_to_the_cap() {
        let four: &[(u64, &[u32])] = &[(10, &[0]), (20, &[0]), (30, &[512]), (40, &[512])];
        let at = |cap| bounds(&tidied(list(four), Limits { max_regions: 100, cap }).pieces);
        assert_eq!(at(20), [(0, 20), (20, 40)]);
        assert_eq!(at(19), [(0, 10), (10, 20), (20, 30), (30, 40)]);
        assert_eq!(
            at(5),
            [(0, 5), (5, 10), (10, 15), (15, 20), (20, 25), (25, 30), (30, 35), (35, 40)],
            "and cut to it"
        );
    }

    #[test]
    fn too_many_are_merged_the_most_alike_first_whatever_the_cap() {
        let three: &[(u64, &[u32])] = &[(10, &[0]), (20, &[120]), (30, &[512])];
        let at = |max_regions| bounds(&tidied(list(three), Limits { max_regions, cap: 10 }).pieces);
        assert_eq!(at(3), [(0, 10), (10, 20), (20, 30)]);
        assert_eq!(at(1), [(0, 30)]);
        let wide = tidied(list(three), Limits { max_regions: 2, cap: 30 });
        assert_eq!(bounds(&wide.pieces), [(0, 20), (20, 30)]);
    }

    #[test]
    fn what_is_of_two_kinds_is_cut_between_them_if_there_is_room() {
        // Looks at huge ranges 0 to 5.
        let one: &[(u64, &[u32])] = &[(100, &[512, 512, 512, 0, 0, 0])];
        let at = |max_regions| tidied(list(one), Limits { max_regions, cap: 100 });
        assert_eq!((bounds(&at(2).pieces), at(2).seams), (vec![(0, 3), (3, 100)], vec![PmdNo(3)]));
        assert_eq!((bounds(&at(1).pieces), at(1).seams), (vec![(0, 100)], vec![]));
    }

    #[test]
    fn parts_are_of_about_the_same_size_and_no_more_than_there_is_room_for() {
        let one: &[(u64, &[u32])] = &[(10, &[0])];
        let at = |max_regions, cap| bounds(&tidied(list(one), Limits { max_regions, cap }).pieces);
        assert_eq!(at(100, 3), [(0, 2), (2, 5), (5, 7), (7, 10)]);
        assert_eq!(at(3, 1), [(0, 3), (3, 6), (6, 10)]);
    }
}
