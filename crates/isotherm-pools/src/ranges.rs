//! Ranges of frames: where they are in the memory of a span, and sorted lists of them.

use isotherm_units::{FrameNo, FrameRange, PAGE_SIZE};

/// The offset of a frame of the span.
#[expect(clippy::cast_possible_truncation, reason = "the span is mapped, or is to be: its length is a usize")]
pub(crate) fn offset_in(span: FrameRange, frame: FrameNo) -> usize {
    ((frame.0 - span.start.0) * PAGE_SIZE) as usize
}

/// Offset and length of a range of the span.
pub(crate) fn part(span: FrameRange, range: FrameRange) -> (usize, usize) {
    let start = offset_in(span, range.start);
    (start, offset_in(span, range.end) - start)
}

/// Adds a range that overlaps none of the others.
pub(crate) fn insert(ranges: &mut Vec<FrameRange>, range: FrameRange) {
    let at = ranges.partition_point(|r| r.start < range.start);
    ranges.insert(at, range);
}

/// Cuts `range` out of the ranges; returns the parts that were in them.
pub(crate) fn remove(ranges: &mut Vec<FrameRange>, range: FrameRange) -> Vec<FrameRange> {
    let (mut left, mut gone) = (Vec::new(), Vec::new());
    for &r in ranges.iter() {
        let cut = FrameRange::new(r.start.max(range.start), r.end.min(range.end));
        if cut.is_empty() {
            left.push(r);
            continue;
        }
        gone.push(cut);
        let around = [FrameRange::new(r.start, cut.start), FrameRange::new(cut.end, r.end)];
        left.extend(around.into_iter().filter(|r| !r.is_empty()));
    }
    *ranges = left;
    gone
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(start: u64, end: u64) -> FrameRange {
        FrameRange::new(FrameNo(start), FrameNo(end))
    }

    #[test]
    fn ranges_come_sorted_and_are_cut() {
        let mut ranges = vec![frames(0, 10)];
        insert(&mut ranges, frames(20, 30));
        insert(&mut ranges, frames(12, 18));
        assert_eq!(ranges, [frames(0, 10), frames(12, 18), frames(20, 30)]);
        assert_eq!(remove(&mut ranges, frames(4, 22)), [frames(4, 10), frames(12, 18), frames(20, 22)]);
        assert_eq!(ranges, [frames(0, 4), frames(22, 30)]);
        assert_eq!(remove(&mut ranges, frames(24, 26)), [frames(24, 26)]);
        assert_eq!(ranges, [frames(0, 4), frames(22, 24), frames(26, 30)]);
        assert!(remove(&mut ranges, frames(4, 22)).is_empty());
    }
}
