//! Which segments of a recording are joined while it goes on: after a day it has some hundred segments (of six files each), and not 43,200.
//!
//! `writer` adds each segment that it has written, joins what is due, and says so. Nothing here touches a disk. As in a log-structured merge
//! tree, segments have levels: [`Limits::fan`] neighbours of one level become one of the next. A join takes place between two windows of the monitor, out
//! of its budget, so it has to be short: what has few rows is encoded anew, the rest is copied (`compact`), and a joined segment has at most
//! [`Limits::max_rows`]. One of more than half of that is joined no more before the end.
//!
//! What was joined stays on the disk for a while. Somebody who has just opened the recording reads on in it; after that, in what has replaced it.

use std::ops::Range;

/// How much is joined, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// So many neighbours of one level are joined. Two at least.
    pub(crate) fan: usize,
    /// Rows of a joined segment, over all tables.
    pub(crate) max_rows: u64,
    /// A table of no more rows is encoded anew when segments are joined.
    pub(crate) max_encoded_rows: u64,
    /// So many segments are written before one that was replaced is removed.
    pub(crate) keeps: u64,
}

impl Limits {
    /// With a segment every two seconds, at most 31 of each level that are not joined yet, and 32 s to read on in those that were. 8,192 rows
    /// of a table take 13 ms of CPU, and row groups that are copied have 256 rows then, or more. (The longest join of half an hour of
    /// a redis takes 44 ms, the median of five; 93 at most.)
    pub(crate) const DEFAULT: Limits = Limits { fan: 32, max_rows: 1 << 21, max_encoded_rows: 1 << 13, keeps: 16 };
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Segment {
    number: u64,
    snapshots: Range<u64>,
    rows: u64,
    /// `None`: too large to be joined.
    level: Option<u8>,
}

/// Segments to join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Join {
    /// In the order of their snapshots.
    pub(crate) numbers: Vec<u64>,
    /// What they cover.
    pub(crate) snapshots: Range<u64>,
    at: Range<usize>,
}

/// The segments of a recording.
#[derive(Debug)]
pub(crate) struct Tiers {
    limits: Limits,
    /// In the order of their snapshots. Those of one level are neighbours, as the oldest are joined first.
    segments: Vec<Segment>,
    /// Numbers that were replaced by joined segments, and the highest number of that moment.
    replaced: Vec<(u64, u64)>,
    /// The highest number in use.
    last: u64,
    /// Nothing is joined up to this number.
    rests_until: u64,
}

impl Tiers {
    pub(crate) fn new(limits: Limits) -> Tiers {
        Tiers { limits, segments: Vec::new(), replaced: Vec::new(), last: 0, rests_until: 0 }
    }

    /// Joins by other limits from now on.
    #[cfg(test)]
    pub(crate) fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// A table of no more rows is encoded anew when segments are joined.
    pub(crate) fn max_encoded_rows(&self) -> u64 {
        self.limits.max_encoded_rows
    }

    /// Segments that count.
    pub(crate) fn len(&self) -> usize {
        self.segments.len()
    }

    /// Those that count, in the order of their snapshots.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.segments.iter().map(|segment| segment.number).collect()
    }

    /// The number of the next segment.
    pub(crate) fn next_number(&self) -> u64 {
        self.last + 1
    }

    /// Adds the next segment, which was written.
    pub(crate) fn add(&mut self, snapshots: Range<u64>, rows: u64) {
        self.last += 1;
        self.segments.push(Segment { number: self.last, snapshots, rows, level: Some(0) });
    }

    /// What to join now, if anything. O(segments).
    pub(crate) fn due(&mut self) -> Option<Join> {
        if self.last < self.rests_until {
            return None;
        }
        loop {
            let run = self.full_run()?;
            let mut rows = 0;
            let fits = self.segments[run.clone()].iter().take_while(|segment| {
                rows += segment.rows;
                rows <= self.limits.max_rows
            });
            let at = run.start..run.start + fits.count().min(self.limits.fan);
            if at.len() < 2 {
                self.segments[run.start].level = None;
                continue;
            }
            let of = &self.segments[at.clone()];
            let snapshots = of[0].snapshots.start..of[of.len() - 1].snapshots.end;
            return Some(Join { numbers: of.iter().map(|segment| segment.number).collect(), snapshots, at });
        }
    }

    /// The newest neighbours of one level that are as many as are joined.
    fn full_run(&self) -> Option<Range<usize>> {
        let mut end = self.segments.len();
        for run in self.segments.chunk_by(|a, b| a.level == b.level).rev() {
            let at = end - run.len()..end;
            if run.len() >= self.limits.fan && run[0].level.is_some() {
                return Some(at);
            }
            end = at.start;
        }
        None
    }

    /// Takes in that `join` was written, as the next segment.
    pub(crate) fn joined(&mut self, join: &Join) {
        self.last += 1;
        let of = &self.segments[join.at.clone()];
        let rows = of.iter().map(|segment| segment.rows).sum();
        let level = of[0].level.filter(|_| rows <= self.limits.max_rows / 2).map(|level| level.saturating_add(1));
        let new = Segment { number: self.last, snapshots: join.snapshots.clone(), rows, level };
        self.segments.splice(join.at.clone(), [new]);
        self.replaced.extend(join.numbers.iter().map(|number| (*number, self.last)));
    }

    /// `join` is not possible: its segments stay as they are.
    pub(crate) fn leave(&mut self, join: &Join) {
        self.segments[join.at.clone()].iter_mut().for_each(|segment| segment.level = None);
    }

    /// Nothing is joined for as many segments as are joined at once: it failed.
    pub(crate) fn rest(&mut self) {
        self.rests_until = self.last + self.limits.fan as u64;
    }

    /// Those that were replaced long enough ago.
    pub(crate) fn old(&self) -> Vec<u64> {
        let is_old = |(_, at): &&(u64, u64)| at + self.limits.keeps <= self.last;
        self.replaced.iter().filter(is_old).map(|(number, _)| *number).collect()
    }

    /// All that were replaced and are still there.
    pub(crate) fn replaced(&self) -> Vec<u64> {
        self.replaced.iter().map(|(number, _)| *number).collect()
    }

    /// These replaced ones are there no longer.
    pub(crate) fn removed(&mut self, numbers: &[u64]) {
        self.replaced.retain(|(number, _)| !numbers.contains(number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes `count` segments of `rows(n)` rows and two snapshots each, and joins what is due. The most that were on the disk at once, with
    /// those that were replaced.
    fn grow(tiers: &mut Tiers, count: u64, rows: impl Fn(u64) -> u64) -> usize {
        let mut most = 0;
        for n in 0..count {
            tiers.add(2 * n..2 * n + 2, rows(n));
            let old = tiers.old();
            tiers.removed(&old);
            if let Some(join) = tiers.due() {
                assert!(join.numbers.len() >= 2 && join.numbers.len() <= tiers.limits.fan);
                tiers.joined(&join);
            }
            most = most.max(tiers.len() + tiers.replaced.len());
        }
        most
    }

    /// Every snapshot is covered once, in order.
    fn assert_whole(tiers: &Tiers, snapshots: u64) {
        let mut end = 0;
        for segment in &tiers.segments {
            assert_eq!(segment.snapshots.start, end);
            end = segment.snapshots.end;
        }
        assert_eq!(end, snapshots);
    }

    #[test]
    fn a_day_of_small_segments_is_some_hundred() {
        let mut tiers = Tiers::new(Limits::DEFAULT);
        let most = grow(&mut tiers, 43_200, |_| 20);
        assert_whole(&tiers, 86_400);
        assert!(most <= 200, "{most}");
    }

    #[test]
    fn a_day_of_large_segments_is_as_many_as_it_has_rows_for() {
        for rows in [1_000_u64, 20_000, 600_000, 1_500_000] {
            let mut tiers = Tiers::new(Limits::DEFAULT);
            grow(&mut tiers, 43_200, |_| rows);
            assert_whole(&tiers, 86_400);
            let max_rows = tiers.segments.iter().map(|segment| segment.rows).max();
            assert!(max_rows.unwrap() <= rows.max(Limits::DEFAULT.max_rows), "{rows}: {max_rows:?}");
            let full = (43_200 * rows).div_ceil(Limits::DEFAULT.max_rows / 2).min(43_200);
            assert!(tiers.len() as u64 <= full + 200, "{rows}: {} segments", tiers.len());
        }
    }

    #[test]
    fn levels_are_joined_one_after_the_other_with_worked_numbers() {
        let mut tiers = Tiers::new(Limits { fan: 2, max_rows: 8, keeps: 2, ..Limits::DEFAULT });
        tiers.add(0..1, 2);
        assert_eq!(tiers.due(), None);
        tiers.add(1..2, 2);
        let join = tiers.due().unwrap();
        assert_eq!((&join.numbers, &join.snapshots), (&vec![1, 2], &(0..2)));
        tiers.joined(&join);
        assert_eq!((tiers.numbers(), tiers.next_number(), tiers.old()), (vec![3], 4, vec![]));
        tiers.add(2..3, 2);
        tiers.add(3..4, 2);
        assert_eq!(tiers.old(), [1, 2], "two segments later");
        tiers.removed(&[1, 2]);
        let join = tiers.due().unwrap();
        assert_eq!(join.numbers, [4, 5]);
        tiers.joined(&join);
        // Of four rows each: both of the next level.
        let join = tiers.due().unwrap();
        assert_eq!((&join.numbers, &join.snapshots), (&vec![3, 6], &(0..4)));
        tiers.joined(&join);
        assert_eq!(
            (tiers.numbers(), tiers.segments[0].level),
            (vec![7], None),
            "eight rows are as many as it may have"
        );
        assert_eq!(tiers.replaced(), [4, 5, 3, 6]);
    }

    #[test]
    fn what_is_too_large_with_its_neighbour_is_left_and_does_not_hold_up_others() {
        let mut tiers = Tiers::new(Limits { fan: 3, max_rows: 10, keeps: 1, ..Limits::DEFAULT });
        for (n, rows) in (0..).zip([8, 8, 1, 1, 1]) {
            tiers.add(n..n + 1, rows);
        }
        // The first does not go with the second, which goes with the third and the fourth.
        assert_eq!(tiers.due().unwrap().numbers, [2, 3, 4]);
        assert_eq!(tiers.segments[0].level, None);
    }

    #[test]
    fn after_a_failure_it_rests_or_leaves_what_cannot_be_joined() {
        let mut tiers = Tiers::new(Limits { fan: 2, max_rows: 100, keeps: 1, ..Limits::DEFAULT });
        (0..2).for_each(|n| tiers.add(n..n + 1, 1));
        assert!(tiers.due().is_some());
        tiers.rest();
        assert_eq!(tiers.due(), None);
        tiers.add(2..3, 1);
        assert_eq!(tiers.due(), None);
        tiers.add(3..4, 1);
        let join = tiers.due().unwrap();
        assert_eq!(join.numbers, [1, 2]);
        // One of them cannot be read. Others are joined.
        tiers.leave(&join);
        assert_eq!(tiers.due().unwrap().numbers, [3, 4]);
    }
}
