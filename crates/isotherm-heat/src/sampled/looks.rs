//! The checks in progress, and when each block is read next.
//!
//! A check ends when further reads can add nothing. Before that, it has decided to which region its block belongs.
//! Until it has, it is *undecided*, and its possible cost is reserved in the slow-down budget. [`super::choose`]
//! decides which blocks to check.

use super::mix::{FIRST, Look, Mix, distance};
use crate::Ns;
use crate::due::{Reads, claim, take_due};
use isotherm_units::BlockNo;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Reads this far from the clear are due at multiples of [`GRID`].
const COARSE: Ns = 600_000_000;
const GRID: Ns = 200_000_000;

/// All checks in progress.
#[derive(Debug)]
pub(crate) struct Looks {
    looks: BTreeMap<BlockNo, Look>,
    /// Blocks whose check has not yet decided to which region they belong.
    undecided: BTreeSet<BlockNo>,
    reads: Reads,
    reserved: f64,
}

impl Looks {
    /// None.
    pub fn new() -> Looks {
        Looks { looks: BTreeMap::new(), undecided: BTreeSet::new(), reads: Reads::new(), reserved: 0.0 }
    }

    /// Retouches expected from undecided checks.
    pub fn reserved(&self) -> f64 {
        self.reserved
    }

    pub fn contains(&self, block: BlockNo) -> bool {
        self.looks.contains_key(&block)
    }

    pub fn is_undecided(&self, block: BlockNo) -> bool {
        self.undecided.contains(&block)
    }

    /// Whether a block strictly between the two is undecided.
    pub fn are_between(&self, below: BlockNo, above: BlockNo) -> bool {
        self.undecided.range(below.next()..above).next().is_some()
    }

    pub fn get(&self, block: BlockNo) -> Option<&Look> {
        self.looks.get(&block)
    }

    pub fn get_mut(&mut self, block: BlockNo) -> Option<&mut Look> {
        self.looks.get_mut(&block)
    }

    /// Begins a check in place of another, if there was one.
    pub fn begin(&mut self, block: BlockNo, look: Look) {
        self.end(block);
        self.reserved += look.reserved;
        self.reads.push(Reverse((look.next_read, block)));
        self.looks.insert(block, look);
        self.undecided.insert(block);
    }

    /// Settles what `block` was found to be. Returns whether that is new.
    pub fn decide(&mut self, block: BlockNo) -> bool {
        let is_news = self.undecided.remove(&block);
        if let Some(look) = self.looks.get(&block).filter(|_| is_news) {
            self.reserved -= look.reserved;
        }
        is_news
    }

    /// Ends a check, decided or not.
    pub fn end(&mut self, block: BlockNo) {
        self.decide(block);
        self.looks.remove(&block);
    }

    /// A check in progress, of a block drawn at random, stands for `blocks` more blocks. Their region is `expected` to
    /// be like this.
    pub fn let_stand(&mut self, block: BlockNo, blocks: f64, expected: Option<Mix>) {
        if let Some(look) = self.looks.get_mut(&block) {
            look.stands_for = match (look.stands_for, expected) {
                (Some((before, mut mean)), Some(expected)) => {
                    #[expect(clippy::cast_possible_truncation, reason = "0 to 1")]
                    mean.blend(&expected, (blocks / (before + blocks)) as f32);
                    Some((before + blocks, mean))
                }
                (before, expected) => before.or(Some(blocks).zip(expected)),
            };
        }
    }

    /// Blocks whose read is due, in address order.
    pub fn due(&mut self, now: Ns) -> Vec<BlockNo> {
        let looks = &mut self.looks;
        take_due(&mut self.reads, now, |block, at| looks.get_mut(&block).is_some_and(|l| claim(&mut l.next_read, at)))
    }

    /// When the next read is due.
    pub fn next_due(&self) -> Option<Ns> {
        self.reads.peek().map(|Reverse((at, _))| *at)
    }

    /// Plans the next read, by the number of reads done.
    pub fn plan_next(&mut self, block: BlockNo) {
        if let Some(look) = self.looks.get(&block) {
            let at = look.cleared_at + distance(look.reads);
            self.plan(block, if distance(look.reads) >= COARSE { at.next_multiple_of(GRID) } else { at });
        }
    }

    /// A due read could not be done. It is due again shortly.
    pub fn postpone(&mut self, now: Ns, block: BlockNo) {
        self.plan(block, now + FIRST);
    }

    fn plan(&mut self, block: BlockNo, at: Ns) {
        if let Some(look) = self.looks.get_mut(&block) {
            look.next_read = at;
            self.reads.push(Reverse((at, block)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::mix::OUTCOMES;
    use super::*;
    use crate::Mask;

    const MS: Ns = 1_000_000;
    const BLOCK: BlockNo = BlockNo(5);

    fn looks() -> Looks {
        let mut looks = Looks::new();
        looks.begin(BLOCK, Look::new(0, Mask::NONE, 100.0));
        looks
    }

    #[test]
    fn what_is_reserved_is_that_of_undecided_looks() {
        let mut looks = looks();
        looks.begin(BlockNo(6), Look::new(0, Mask::NONE, 10.0));
        assert_eq!(looks.reserved(), 110.0);
        looks.begin(BLOCK, Look::new(MS, Mask::NONE, 1.0));
        assert_eq!(looks.reserved(), 11.0, "one in place of another");
        assert!(looks.decide(BLOCK) && !looks.decide(BLOCK) && looks.contains(BLOCK));
        assert_eq!(looks.reserved(), 10.0);
        looks.end(BLOCK);
        looks.end(BlockNo(6));
        assert!(looks.reserved() == 0.0 && !looks.contains(BLOCK) && !looks.is_undecided(BlockNo(6)));
    }

    #[test]
    fn between_is_strictly_between() {
        let looks = looks();
        let between = |below, above| looks.are_between(BlockNo(below), BlockNo(above));
        assert_eq!([between(4, 6), between(5, 9), between(1, 5)], [true, false, false]);
    }

    #[test]
    fn late_reads_are_due_on_a_grid_and_each_once() {
        let mut looks = looks();
        looks.get_mut(BLOCK).unwrap().cleared_at = 7 * MS;
        let mut planned = |reads: usize| {
            looks.get_mut(BLOCK).unwrap().reads = reads;
            looks.plan_next(BLOCK);
            looks.get(BLOCK).unwrap().next_read / MS
        };
        assert_eq!([planned(1), planned(2), planned(3), planned(4)], [47, 167, 800, 2600]);
        assert_eq!(looks.next_due(), Some(10 * MS), "what is planned no more is dropped when it comes");
        assert_eq!((looks.due(2600 * MS), looks.due(2600 * MS)), (vec![BLOCK], vec![]));
        looks.postpone(2600 * MS, BLOCK);
        assert_eq!((looks.due(2605 * MS), looks.due(2610 * MS)), (vec![], vec![BLOCK]));
    }

    #[test]
    fn a_look_that_stands_for_more_expects_the_mean() {
        let of = |hot, cold| {
            let mut counts = [0; OUTCOMES];
            (counts[0], counts[OUTCOMES - 1]) = (hot, cold);
            Mix::of_counts(counts)
        };
        let mut looks = looks();
        looks.let_stand(BLOCK, 10.0, None);
        assert_eq!(looks.get(BLOCK).unwrap().stands_for, None, "there is nothing to compare with");
        looks.let_stand(BLOCK, 10.0, Some(of(1, 0)));
        looks.let_stand(BLOCK, 30.0, Some(of(0, 1)));
        let (blocks, expected) = looks.get(BLOCK).unwrap().stands_for.unwrap();
        assert_eq!((blocks, expected), (40.0, of(1, 3)));
    }
}
