//! One target: the heat of its blocks, and which of them to read and to clear next.
//!
//! The rules, which the tests of `isotherm-monitor` hold it to on replayed histories:
//! - A block whose pages were cleared is read after 10, 20, 40 ... ms, and from one patrol time on once per patrol: cold
//!   memory is read often, which costs little and the target nothing, so that what becomes hot is found within a patrol.
//! - A block without armed pages is not read at all: its bits can say nothing new.
//! - A block is cleared again when its time has come, which backs off from 2 s to 4 minutes, or at once when a read surprises
//!   (idle for long, touched now) in several of its pages, which also begins the backing off anew. Surprises go first. Where it is
//!   a page or two, the block's time comes soon: the thin edge of a hot set surprises all the time.
//! - Clears stop while the slow-down expected of them exceeds the budget. What is expected is learned from what is seen.
//! - The first clears go in random order, so that what is known of a large target early on is a fair sample of it; but by
//!   [`NEIGHBOURS`] at a time, which a source clears in one piece for two thirds of the cost.
//!
//! Times come from the caller; the only randomness is a seeded generator.

use crate::Mask;
use crate::Rng;
use crate::block::{BlockBits, HugeHeat, Ns, PageHeat, Run, Sighting, Timing};
use crate::budget::{Bucket, RETOUCH_NS};
use crate::due::{Reads, claim, take_due};
use isotherm_units::{BlockNo, PAGES_PER_BLOCK};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Range;

/// Distance of the first read after a clear.
pub const FIRST_READ: Ns = 10_000_000;
/// Pages touched at least this often are expected to be touched again in a look, and paid for in advance.
pub const HORIZON: Ns = 10_000_000_000;
/// The shortest time between two looks at a block that confirm each other.
const FIRST_BACKOFF: Ns = 2_000_000_000;
/// Pages of a block that have to surprise for it to go before all others.
const MANY: u32 = 8;
/// How soon a block is looked at again in which pages stirred as expected.
const STIRRING_WAITS: Ns = 8_000_000_000;
/// When a block whose pages a clear did not reach is tried again.
const STUCK_AGAIN: Ns = 60_000_000_000;
/// Doublings of it at most: about four minutes.
const MAX_BACKOFF: u8 = 7;
/// Seconds' worth of slow-down that may come at once at the start, for a quick first answer.
pub const CREDIT_S: f64 = 5.0;
/// Blocks whose first clears go together.
const NEIGHBOURS: u64 = 8;
/// Patrol reads are due at multiples of this, so that a pass reads many.
const PATROL_GRID: Ns = 100_000_000;

/// The heat of a block, by what maps it.
#[derive(Clone, Debug)]
pub enum BlockHeat {
    /// Small pages.
    Pages(Box<PageHeat>),
    /// One huge page.
    Huge(HugeHeat),
}

impl BlockHeat {
    fn new(bits: BlockBits) -> Option<BlockHeat> {
        match bits {
            BlockBits::Pages { present, .. } => Some(BlockHeat::Pages(Box::new(PageHeat::new(present)))),
            BlockBits::Huge { .. } => Some(BlockHeat::Huge(HugeHeat::new())),
            BlockBits::Gone => None,
        }
    }

    fn has_armed(&self) -> bool {
        match self {
            BlockHeat::Pages(p) => !p.armed().is_empty(),
            BlockHeat::Huge(h) => h.is_armed(),
        }
    }

    fn has_unarmed(&self) -> bool {
        match self {
            BlockHeat::Pages(p) => !p.unarmed().is_empty(),
            BlockHeat::Huge(h) => !h.is_armed(),
        }
    }

    /// Pages present.
    pub fn resident(&self) -> u64 {
        match self {
            BlockHeat::Pages(p) => u64::from(p.present().count()),
            BlockHeat::Huge(_) => PAGES_PER_BLOCK as u64,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub heat: BlockHeat,
    pub timing: Timing,
    pub stuck: bool,
}

/// What may be changed about how a target is watched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Watch {
    /// Slow-down allowed, in percent of one core. Over 100: no limit.
    pub max_slowdown_pct: f64,
    /// The time within which every cold block is read once.
    pub patrol_ns: Ns,
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// Pages (or huge pages) cleared.
    pub cleared: u64,
    /// Those seen touched again.
    pub retouched: u64,
    /// Pages read whose accessed bit was left set when they were read before.
    pub left_set: u64,
    /// Those of them whose bit somebody else had cleared.
    pub lost: u64,
}

/// The heat of one process and the schedule of looks at it.
#[derive(Debug)]
pub struct Target {
    pub(crate) blocks: BTreeMap<BlockNo, Entry>,
    reads: Reads,
    routine: BinaryHeap<Reverse<(Ns, BlockNo)>>,
    urgent: BinaryHeap<Reverse<(Ns, BlockNo)>>,
    slowdown: Bucket,
    /// Sum of the blocks' reservations.
    reserved: u64,
    patrol_ns: Ns,
    tally: Tally,
    /// Orders the first looks.
    seed: u64,
    /// Blocks that were never cleared, nor found to be unclearable.
    unlooked: usize,
}

impl Target {
    /// A target of which nothing is known. The seed orders the first looks.
    pub fn new(now: Ns, watch: Watch, seed: u64) -> Target {
        Target {
            blocks: BTreeMap::new(),
            reads: BinaryHeap::new(),
            routine: BinaryHeap::new(),
            urgent: BinaryHeap::new(),
            slowdown: Bucket::new(watch.max_slowdown_pct, CREDIT_S, now),
            reserved: 0,
            patrol_ns: watch.patrol_ns,
            tally: Tally::default(),
            seed,
            unlooked: 0,
        }
    }

    /// Changes the patrol time: the caller stretches it for targets that cannot all be read in time.
    pub fn set_patrol(&mut self, patrol_ns: Ns) {
        self.patrol_ns = patrol_ns;
    }

    /// Takes in which blocks are populated now (sorted). Blocks not listed are forgotten; those returned are new and have to be
    /// read once, through [`Target::read`], before anything else happens with them. O(blocks).
    pub fn refit(&mut self, populated: &[BlockNo]) -> Vec<BlockNo> {
        let mut gone = Vec::new();
        let mut fresh = Vec::new();
        let mut listed = populated.iter().copied().peekable();
        for block in self.blocks.keys() {
            while let Some(new) = listed.next_if(|b| b < block) {
                fresh.push(new);
            }
            if listed.next_if_eq(block).is_none() {
                gone.push(*block);
            }
        }
        fresh.extend(listed);
        for block in gone {
            self.remove(block);
        }
        fresh
    }

    fn remove(&mut self, block: BlockNo) {
        if let Some(entry) = self.blocks.remove(&block) {
            self.reserved -= u64::from(entry.timing.reserved);
            self.unlooked -= usize::from(!entry.timing.looked);
        }
    }

    /// Takes in that nothing is mapped in `block` any more.
    pub fn gone(&mut self, block: BlockNo) {
        self.remove(block);
    }

    /// A due read could not be done: it is due again shortly.
    pub fn postpone(&mut self, now: Ns, block: BlockNo) {
        if let Some(entry) = self.blocks.get_mut(&block) {
            entry.timing.next_read = now + FIRST_READ;
            self.reads.push(Reverse((now + FIRST_READ, block)));
        }
    }

    /// A block chosen by [`Target::due_arms`] could not be cleared now: its turn comes again shortly.
    pub fn arm_later(&mut self, now: Ns, block: BlockNo) {
        if let Some(entry) = self.blocks.get_mut(&block) {
            (entry.timing.next_arm, entry.timing.urgent) = (now + FIRST_READ, false);
            self.routine.push(Reverse((now + FIRST_READ, block)));
        }
    }

    /// Unarmed pages in `blocks`.
    pub fn unarmed_in(&self, blocks: &[BlockNo]) -> u64 {
        let unarmed = |heat: &BlockHeat| match heat {
            BlockHeat::Pages(p) => u64::from(p.unarmed().count()),
            BlockHeat::Huge(h) => {
                if h.is_armed() {
                    0
                } else {
                    PAGES_PER_BLOCK as u64
                }
            }
        };
        blocks.iter().filter_map(|b| self.blocks.get(b)).map(|e| unarmed(&e.heat)).sum()
    }

    /// Takes in a read of one block.
    pub fn read(&mut self, now: Ns, block: BlockNo, bits: BlockBits) {
        let Some(entry) = self.blocks.get_mut(&block) else {
            return self.insert(now, block, bits);
        };
        let is_ours = std::mem::take(&mut entry.timing.partly_cleared);
        let mut sighting = match (&mut entry.heat, bits) {
            (BlockHeat::Pages(heat), BlockBits::Pages { young, present }) => heat.read(now, young, present),
            (BlockHeat::Huge(heat), BlockBits::Huge { young }) => heat.read(now, young),
            // Collapsed, split or unmapped since: what was known of the old shape does not hold for the new one.
            _ => {
                self.remove(block);
                return self.insert(now, block, bits);
            }
        };
        if is_ours {
            sighting.lost = 0;
        }
        self.account(block, sighting);
        self.plan_after_read(now, block, sighting);
    }

    fn insert(&mut self, now: Ns, block: BlockNo, bits: BlockBits) {
        let Some(heat) = BlockHeat::new(bits) else { return };
        // Spread over a second's worth of keys: a random order of first looks.
        let due = now + Rng::new(self.seed ^ (block.0 / NEIGHBOURS)).below(1_000_000_000);
        self.unlooked += 1;
        let timing = Timing { next_arm: due, ..Timing::default() };
        self.blocks.insert(block, Entry { heat, timing, stuck: false });
        self.routine.push(Reverse((due, block)));
    }

    fn account(&mut self, block: BlockNo, sighting: Sighting) {
        let seen = u64::from(sighting.retouched);
        self.tally.retouched += seen;
        self.tally.left_set += u64::from(sighting.left_set);
        self.tally.lost += u64::from(sighting.lost);
        self.slowdown.spend(seen as f64 * RETOUCH_NS);
        if let Some(entry) = self.blocks.get_mut(&block) {
            let paid = u16::try_from(seen).unwrap_or(u16::MAX).min(entry.timing.reserved);
            entry.timing.reserved -= paid;
            self.reserved -= u64::from(paid);
        }
    }

    fn plan_after_read(&mut self, now: Ns, block: BlockNo, sighting: Sighting) {
        let patrol = self.patrol_ns;
        let Some(entry) = self.blocks.get_mut(&block) else { return };
        let t = &mut entry.timing;
        if t.urgent || t.unclearable || entry.stuck {
            // Its turn comes anyway, or never.
        } else if sighting.surprising >= MANY {
            t.urgent = true;
            t.backoff = 0;
            t.next_arm = now;
            self.urgent.push(Reverse((now, block)));
        } else if sighting.surprising + sighting.stirring > 0 {
            // A page here and there: that is how the edge of what is hot always looks. Soon, and after what was never looked at.
            let soon = now + if sighting.surprising > 0 { FIRST_BACKOFF } else { STIRRING_WAITS };
            if t.next_arm == 0 || t.next_arm > soon {
                t.backoff = if sighting.surprising > 0 { 0 } else { t.backoff };
                t.next_arm = soon;
                self.routine.push(Reverse((soon, block)));
            }
        }
        if t.next_arm == 0 && !t.unclearable && !entry.stuck && entry.heat.has_unarmed() {
            // Everything was armed when its last turn came, and now there is something to learn again.
            t.next_arm = now.max(1);
            self.routine.push(Reverse((t.next_arm, block)));
        }
        if !entry.heat.has_armed() {
            t.next_read = 0;
            return;
        }
        let distance = FIRST_READ << t.step.min(20);
        if distance >= patrol.min(HORIZON) {
            // What was expected within the horizon has come or does not.
            self.reserved -= u64::from(std::mem::take(&mut t.reserved));
        }
        if distance < patrol {
            t.step += 1;
            // From the clear on, reads are at 10, 20, 40 ...: each gap is as long as all before it.
            t.next_read = now + distance;
        } else {
            t.next_read = (now + patrol.max(PATROL_GRID)) / PATROL_GRID * PATROL_GRID;
        }
        self.reads.push(Reverse((t.next_read, block)));
    }

    /// Blocks whose read is due, in address order.
    pub fn due_reads(&mut self, now: Ns) -> Vec<BlockNo> {
        let blocks = &mut self.blocks;
        take_due(&mut self.reads, now, |block, at| {
            blocks.get_mut(&block).is_some_and(|e| claim(&mut e.timing.next_read, at))
        })
    }

    /// Up to `most` blocks to clear now, in address order: surprises first, then (unless `urgent_only`) by due time, as the
    /// slow-down budget allows.
    ///
    /// The caller reads each (so that nothing seen until now is lost), clears it, and reports it to [`Target::armed`].
    pub fn due_arms(&mut self, now: Ns, most: usize, urgent_only: bool) -> Vec<BlockNo> {
        let mut chosen = Vec::new();
        let mut allowed = self.slowdown.available_ns(now) / RETOUCH_NS - self.reserved as f64;
        for urgent in [true, false] {
            // Surprises may take three quarters; a steady trickle of them must not starve what was never looked at.
            let most = match (urgent, urgent_only) {
                (true, false) => (most * 3).div_ceil(4),
                (false, true) => 0,
                _ => most,
            };
            while chosen.len() < most && allowed > 0.0 {
                let Some((at, block)) = self.pop_arm(now, urgent) else { break };
                let Some(expected) = self.expected(block) else { continue };
                if expected as f64 > allowed && !chosen.is_empty() {
                    self.push_back(at, block, urgent);
                    break;
                }
                allowed -= expected as f64;
                chosen.push(block);
            }
        }
        chosen.sort_unstable();
        chosen
    }

    fn pop_arm(&mut self, now: Ns, urgent: bool) -> Option<(Ns, BlockNo)> {
        loop {
            let queue = if urgent { &mut self.urgent } else { &mut self.routine };
            let &Reverse((at, block)) = queue.peek()?;
            if at > now {
                return None;
            }
            queue.pop();
            let Some(entry) = self.blocks.get_mut(&block) else { continue };
            // An entry that is not the block's current plan is a left-over of an older one.
            if entry.timing.next_arm != at || entry.timing.urgent != urgent || entry.timing.unclearable {
                continue;
            }
            if entry.heat.has_unarmed() {
                return Some((at, block));
            }
            // What a clear did not reach, and was cleared with the process meanwhile, is still to be tried this way.
            let again = if entry.stuck { now + STUCK_AGAIN } else { 0 };
            (entry.timing.next_arm, entry.timing.urgent) = (again, false);
            if again > 0 {
                self.routine.push(Reverse((again, block)));
            }
        }
    }

    fn push_back(&mut self, at: Ns, block: BlockNo, urgent: bool) {
        let queue = if urgent { &mut self.urgent } else { &mut self.routine };
        queue.push(Reverse((at, block)));
    }

    fn expected(&self, block: BlockNo) -> Option<u64> {
        Some(match &self.blocks.get(&block)?.heat {
            BlockHeat::Huge(_) => 1,
            BlockHeat::Pages(p) => {
                let (known, unknown) = p.expected_retouches(HORIZON);
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 512 pages")]
                let guess = (f64::from(unknown) * self.prior()).ceil() as u64;
                u64::from(known) + guess
            }
        })
    }

    /// Notes that `block` was cleared at `now`. Pages in `stuck` were not: several processes map them, or they are locked. If
    /// that is all that was left to clear, the block waits for [`Target::armed_whole`] and is tried this way again after a minute: other
    /// memory may have come in its place, or the others that map it may have ended.
    pub fn armed(&mut self, now: Ns, block: BlockNo, stuck: Mask) {
        let learned = self.arm_pages(now, block, stuck);
        let Some(entry) = self.blocks.get_mut(&block) else { return };
        entry.stuck = learned == 0 && !stuck.is_empty();
        entry.timing.urgent = false;
        if entry.stuck {
            entry.timing.next_arm = now + STUCK_AGAIN;
            self.routine.push(Reverse((entry.timing.next_arm, block)));
            return;
        }
        let t = &mut entry.timing;
        t.next_arm = now + (FIRST_BACKOFF << t.backoff);
        t.backoff = (t.backoff + 1).min(MAX_BACKOFF);
        self.routine.push(Reverse((t.next_arm, block)));
    }

    /// Notes that `block` was cleared at `now` with the whole process, which reaches every page.
    pub fn armed_whole(&mut self, now: Ns, block: BlockNo) {
        self.arm_pages(now, block, Mask::NONE);
    }

    /// Arms what was cleared and plans the first read. Returns how many pages (or huge pages) that were.
    fn arm_pages(&mut self, now: Ns, block: BlockNo, stuck: Mask) -> u64 {
        let expected = self.expected(block).unwrap_or(0);
        let Some(entry) = self.blocks.get_mut(&block) else { return 0 };
        let learned = match &mut entry.heat {
            BlockHeat::Pages(p) => {
                let fresh = p.unarmed() & !stuck;
                p.arm(now, fresh);
                u64::from(fresh.count())
            }
            BlockHeat::Huge(h) if stuck.is_empty() => {
                h.arm(now);
                1
            }
            BlockHeat::Huge(_) => 0,
        };
        self.tally.cleared += learned;
        let t = &mut entry.timing;
        self.unlooked -= usize::from(!std::mem::replace(&mut t.looked, true));
        let reserve = u16::try_from(expected.min(learned)).unwrap_or(u16::MAX);
        self.reserved = self.reserved - u64::from(t.reserved) + u64::from(reserve);
        t.reserved = reserve;
        t.step = 0;
        t.next_read = now + FIRST_READ;
        self.reads.push(Reverse((t.next_read, block)));
        learned
    }

    /// Notes that `block` cannot be cleared by any means here: it is not tried again, and counted as unclearable.
    pub fn refused(&mut self, block: BlockNo) {
        if let Some(entry) = self.blocks.get_mut(&block) {
            entry.timing.unclearable = true;
            self.unlooked -= usize::from(!std::mem::replace(&mut entry.timing.looked, true));
        }
    }

    /// Notes that some pages of `block` may have been cleared with the whole process: bits that the next read finds clear were not cleared by
    /// somebody else.
    pub fn partly_cleared(&mut self, block: BlockNo) {
        if let Some(entry) = self.blocks.get_mut(&block) {
            entry.timing.partly_cleared = true;
        }
    }

    /// Whether `block` has cleared pages, of which a read could tell something.
    pub fn has_armed(&self, block: BlockNo) -> bool {
        self.blocks.get(&block).is_some_and(|e| e.heat.has_armed())
    }

    /// Blocks that wait for their first clear.
    pub fn unlooked(&self) -> usize {
        self.unlooked
    }

    /// Blocks with pages that the last clear did not reach.
    pub fn stuck_blocks(&self) -> Vec<BlockNo> {
        self.blocks.iter().filter(|(_, e)| e.stuck).map(|(b, _)| *b).collect()
    }

    /// Every block, in address order.
    pub fn all_blocks(&self) -> Vec<BlockNo> {
        self.blocks.keys().copied().collect()
    }

    /// When a read falls due next.
    pub fn next_read(&self) -> Option<Ns> {
        self.reads.peek().map(|Reverse((at, _))| *at)
    }

    /// The share of never-measured pages expected to be touched again: what was seen so far, beginning at a cautious half.
    fn prior(&self) -> f64 {
        (self.tally.retouched as f64 + 256.0) / (self.tally.cleared as f64 + 512.0)
    }

    /// Counts since the start.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Number of blocks known.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether no block is known.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Pages present.
    pub fn resident(&self) -> u64 {
        self.blocks.values().map(|e| e.heat.resident()).sum()
    }

    /// Calls `each` with what is known of every block at `now`, in address order.
    pub fn for_each_block(&self, now: Ns, each: impl FnMut(BlockNo, View<'_>)) {
        self.for_blocks_in(BlockNo(0)..BlockNo(u64::MAX), now, each);
    }

    /// The same for some blocks only.
    pub fn for_blocks_in(&self, blocks: Range<BlockNo>, now: Ns, mut each: impl FnMut(BlockNo, View<'_>)) {
        let mut runs = Vec::new();
        for (block, entry) in self.blocks.range(blocks) {
            runs.clear();
            match &entry.heat {
                BlockHeat::Huge(h) => runs.push(h.run(now)),
                BlockHeat::Pages(p) => p.runs(now, &mut runs),
            }
            each(*block, View { unclearable: entry.timing.unclearable, runs: &runs });
        }
    }
}

/// What is known of a block at one moment.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The block cannot be cleared here.
    pub unclearable: bool,
    /// Its present pages.
    pub runs: &'a [Run],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_a_clear_did_not_reach_is_tried_again_after_a_minute() {
        let mut target = Target::new(0, Watch { max_slowdown_pct: 1000.0, patrol_ns: 1_000_000_000 }, 1);
        target.read(0, BlockNo(1), BlockBits::Pages { young: Mask::ALL, present: Mask::ALL });
        let first = 1_000_000_000;
        assert_eq!(target.due_arms(first, 64, false), [BlockNo(1)]);
        target.armed(first, BlockNo(1), Mask::ALL);
        assert_eq!(target.stuck_blocks(), [BlockNo(1)]);
        assert_eq!(target.due_arms(first + STUCK_AGAIN - 1, 64, false), [] as [BlockNo; 0]);
        assert_eq!(target.due_arms(first + STUCK_AGAIN, 64, false), [BlockNo(1)]);
        // Still shared; cleared with the process a second later, and nothing in it is touched for the next two minutes.
        let second = first + STUCK_AGAIN;
        target.armed(second, BlockNo(1), Mask::ALL);
        target.armed_whole(second + 1_000_000_000, BlockNo(1));
        assert_eq!(target.due_arms(second + STUCK_AGAIN, 64, false), [] as [BlockNo; 0], "all of it is armed");
        let warm = second + STUCK_AGAIN + 1_000_000_000;
        target.read(warm, BlockNo(1), BlockBits::Pages { young: Mask::ALL, present: Mask::ALL });
        let third = second + 2 * STUCK_AGAIN;
        assert_eq!(target.due_arms(third, 64, false), [BlockNo(1)]);
        // Private memory lies there now: the clear reaches it.
        target.armed(third, BlockNo(1), Mask::NONE);
        assert_eq!(target.stuck_blocks(), [] as [BlockNo; 0]);
    }

    #[test]
    fn several_surprises_go_first_and_one_or_two_soon() {
        const S: Ns = 1_000_000_000;
        let mut target = Target::new(0, Watch { max_slowdown_pct: 1000.0, patrol_ns: S }, 1);
        let bits = |young| BlockBits::Pages { young, present: Mask::ALL };
        for block in [BlockNo(1), BlockNo(2)] {
            target.read(0, block, bits(Mask::ALL));
            target.armed(0, block, Mask::NONE);
            target.read(5 * S, block, bits(Mask::NONE));
        }
        assert_eq!(target.due_arms(5 * S, 64, false), [] as [BlockNo; 0], "every page is armed");
        // Idle for six seconds, of which nothing else was known, and touched.
        for (block, pages) in [(BlockNo(1), 1), (BlockNo(2), 8)] {
            target.read(6 * S, block, bits((0..pages).collect()));
        }
        assert_eq!(target.due_arms(6 * S, 64, true), [BlockNo(2)], "at once, whatever the budget");
        assert_eq!(target.due_arms(6 * S, 64, false), [] as [BlockNo; 0]);
        assert_eq!(target.due_arms(8 * S, 64, false), [BlockNo(1)], "two seconds later, with the others");
    }
}
