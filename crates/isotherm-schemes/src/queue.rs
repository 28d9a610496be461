//! The hint queue: which block of which process to work on next.
//!
//! Filled from heat maps, from the kernel's generations, by `isotherm hint` and, when it runs empty, by a walk over everything; emptied by
//! [`crate::worker`]. It knows neither, nor what the actions are that hints name: it removes duplicates, orders, and stays within its
//! bounds. No clock, no I/O, and the order depends on nothing but the calls.
//!
//! The rules, which `tests/queue_model.rs` holds it to:
//! - The highest level first. Within a level the processes that have hints there form a ring and are served one hint each, in
//!   turn, so that none starves another. The hints of one process in one level (a *slot*) go in the order in which they came.
//! - A process with its first hint in a level joins the ring as the last to be served; one without hints there leaves it.
//! - A block is queued once, for one action. A hint for it at a higher level moves it to the end of the slot up there, and it is that
//!   hint's action that counts; any other is ignored.
//! - When full, a hint that is hotter than the coldest level takes the place of the one hint that would have been taken last
//!   of all; any other is refused.
//!
//! The hint taken last is the last of the slot that has most hints in the coldest level; of equally long slots, of the one
//! latest in turn. To find it we walk the ring of that level, which takes time by the number of its processes, and only on an
//! eviction. To evict from the slot that is last in turn would need no walk, but it hits whoever came last: a process that
//! floods the queue would push out the single hints of the others, one newcomer after the other. A heap by length would cost
//! every call something, to spare the few that find the queue full. Everything else takes constant time: hints are nodes in
//! one array, linked by indices; a table leads from process and block to the node; a bit per level says where to look. The
//! constant is amortised, as a hash table's is: it grows by doubling, and clears away the marks of removals once in a while.
//!
//! Memory, for a full queue: at most [`HINT_BYTES`] a hint and [`PROCESS_BYTES`] a process that has hints. It grows with the
//! hints, not with the capacity, and is kept: nothing is allocated until there are more hints or processes than ever before.

mod table;

use hashbrown::DefaultHashBuilder;
use isotherm_heat::{Ns, TargetId};
use isotherm_units::BlockNo;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::hash::BuildHasher;
use table::{Keyed, NONE, Table};

/// Which action a hint is for. Each module of an action has its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActionId(pub u8);

/// Priority levels: one bit each in a word.
pub const LEVELS: usize = 32;
/// Bytes that a hint takes at most in a full queue.
pub const HINT_BYTES: usize = Table::<Node>::ENTRY_BYTES;
/// Bytes that a process with hints takes at most in a full queue, beside those of its hints.
pub const PROCESS_BYTES: usize = Table::<Process>::ENTRY_BYTES;

const _: () = assert!(size_of::<Node>() == 32 && HINT_BYTES <= 64);
const _: () = assert!(PROCESS_BYTES <= 704);

/// Blocks that are kept together in the hash table. Runs of less than 16 full buckets take removals without leaving marks.
const NEIGHBOURS: u64 = 8;

/// How urgent a hint is: 0 is the coldest, 31 the hottest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Level(u8);

impl Level {
    /// The level of this number; the hottest for all above 31.
    pub const fn new(level: u8) -> Level {
        if level < 32 { Level(level) } else { Level(31) }
    }

    /// Its number, 0 to 31.
    pub const fn get(self) -> u8 {
        self.0
    }

    fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Who gave a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// A heat map.
    Heat,
    /// The generations of the kernel's multi-generation LRU.
    Mglru,
    /// Somebody outside, through `isotherm hint`.
    External,
    /// The walk over all blocks, for want of anything better.
    RoundRobin,
}

/// One block worth working on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hint {
    /// Whose block.
    pub process: TargetId,
    /// Which block.
    pub block: BlockNo,
    /// What to do to it: a raise brings its own action.
    pub action: ActionId,
    /// How urgent.
    pub level: Level,
    /// Who gave it last: a raise brings its own origin.
    pub origin: Origin,
    /// When it was first given: a raise leaves it.
    pub since: Ns,
}

/// What became of a hint that was given. Most callers need not ask: the counters keep it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// Queued.
    New,
    /// It was queued at a lower level, and moved.
    Raised,
    /// It was queued at this or a higher level: nothing changed.
    Known,
    /// The queue is full and the hint no hotter than its coldest level: nothing changed.
    Refused,
    /// Queued. The queue was full; this one, which would have been taken last of all, had to go.
    NewInsteadOf(Hint),
}

/// What became of the hints of one origin since the start.
///
/// What is still queued is `given - raised - known - refused - evicted - taken - removed`, summed over the origins. For one
/// origin by itself the sum does not hold: a raised hint changes hands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OriginCounters {
    /// Calls of [`HintQueue::add`].
    pub given: u64,
    /// Of these, that moved a hint up.
    pub raised: u64,
    /// Of these, that said nothing new.
    pub known: u64,
    /// Of these, that found the queue full of what is as hot.
    pub refused: u64,
    /// Queued hints that had to make room.
    pub evicted: u64,
    /// Queued hints that were taken.
    pub taken: u64,
    /// Queued hints that were removed, alone or with their process.
    pub removed: u64,
}

/// Counts since the start, by origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Of heat maps.
    pub heat: OriginCounters,
    /// Of the kernel's generations.
    pub mglru: OriginCounters,
    /// Of `isotherm hint`.
    pub external: OriginCounters,
    /// Of the walk.
    pub round_robin: OriginCounters,
}

impl Counters {
    /// Those of one origin.
    pub fn of(&self, origin: Origin) -> &OriginCounters {
        match origin {
            Origin::Heat => &self.heat,
            Origin::Mglru => &self.mglru,
            Origin::External => &self.external,
            Origin::RoundRobin => &self.round_robin,
        }
    }

    fn of_mut(&mut self, origin: Origin) -> &mut OriginCounters {
        match origin {
            Origin::Heat => &mut self.heat,
            Origin::Mglru => &mut self.mglru,
            Origin::External => &mut self.external,
            Origin::RoundRobin => &mut self.round_robin,
        }
    }

    fn count_added(&mut self, origin: Origin, added: Added) {
        let counters = self.of_mut(origin);
        counters.given += 1;
        match added {
            Added::New => {}
            Added::Raised => counters.raised += 1,
            Added::Known => counters.known += 1,
            Added::Refused => counters.refused += 1,
            Added::NewInsteadOf(evicted) => self.of_mut(evicted.origin).evicted += 1,
        }
    }
}

/// A queued hint.
#[derive(Clone)]
struct Node {
    since: Ns,
    block: BlockNo,
    process: u32,
    /// Its neighbours in the slot.
    previous: u32,
    next: u32,
    level: Level,
    origin: Origin,
    action: ActionId,
}

impl Keyed for Node {
    type Key = (u32, BlockNo);

    fn key(&self) -> (u32, BlockNo) {
        (self.process, self.block)
    }

    /// Neighbours share their bits but for those that make their buckets adjacent, and those by which they are told apart. Hints
    /// mostly come, and go, in address order: eight of them then find the same two cache lines, where each would miss two.
    fn hash((process, block): &(u32, BlockNo), hasher: &DefaultHashBuilder) -> u64 {
        let (group, place) = (block.0 / NEIGHBOURS, block.0 % NEIGHBOURS);
        let hash = hasher.hash_one((process, group));
        (hash & !(NEIGHBOURS - 1) | place) ^ place << 57
    }
}

/// The hints of one process in one level, and the process's place in the ring of that level.
#[derive(Clone, Copy)]
struct Slot {
    first: u32,
    last: u32,
    hints: u32,
    /// Processes. Of no meaning while there are no hints.
    turn_before: u32,
    turn_after: u32,
}

impl Slot {
    const EMPTY: Slot = Slot { first: NONE, last: NONE, hints: 0, turn_before: NONE, turn_after: NONE };
}

/// A process that has hints.
#[derive(Clone)]
struct Process {
    id: TargetId,
    hints: u32,
    slots: [Slot; LEVELS],
}

impl Keyed for Process {
    type Key = TargetId;

    fn key(&self) -> TargetId {
        self.id
    }

    fn hash(id: &TargetId, hasher: &DefaultHashBuilder) -> u64 {
        hasher.hash_one(id)
    }
}

/// Hints in the order in which to work on them. See the [module](self) for the rules and the memory.
///
/// A clone gives the same hints in the same order, but has no room to spare: it allocates where the original would not.
#[derive(Clone)]
pub struct HintQueue {
    nodes: Table<Node>,
    processes: Table<Process>,
    /// Levels that have hints, a bit each.
    levels: u32,
    /// The process to serve next in each level.
    turns: [u32; LEVELS],
    capacity: usize,
    counters: Counters,
}

impl fmt::Debug for HintQueue {
    /// Without the hints: there may be millions, and [`HintQueue::snapshot`] has them in order.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HintQueue")
            .field("len", &self.len())
            .field("capacity", &self.capacity)
            .field("processes", &self.processes.len())
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

impl HintQueue {
    /// An empty queue for up to `capacity` hints: at least 1, at most 2³² - 1. Allocates nothing yet.
    pub fn new(capacity: usize) -> HintQueue {
        HintQueue {
            nodes: Table::new(),
            processes: Table::new(),
            levels: 0,
            turns: [NONE; LEVELS],
            capacity: capacity.clamp(1, NONE as usize),
            counters: Counters::default(),
        }
    }

    /// Takes in a hint. O(1); O(processes in the coldest level) if another has to make room for it.
    pub fn add(&mut self, hint: Hint) -> Added {
        let added = self.place(hint);
        self.counters.count_added(hint.origin, added);
        added
    }

    /// Removes and returns the hint to work on next. O(1).
    pub fn take(&mut self) -> Option<Hint> {
        let level = self.levels.checked_ilog2()? as usize;
        let slot = self.processes[self.turns[level]].slots[level];
        self.turns[level] = slot.turn_after;
        let hint = self.detach(slot.first);
        self.counters.of_mut(hint.origin).taken += 1;
        Some(hint)
    }

    /// Removes a hint that has become pointless: the block is gone, or done. Leaves the turns as they are. O(1).
    pub fn remove(&mut self, process: TargetId, block: BlockNo) -> Option<Hint> {
        let node = self.find(process, block)?;
        let hint = self.detach(node);
        self.counters.of_mut(hint.origin).removed += 1;
        Some(hint)
    }

    /// Removes all hints of a process, which has ended, and returns how many there were. O(its hints).
    pub fn forget(&mut self, process: TargetId) -> usize {
        let Some(process) = self.processes.find(&process) else { return 0 };
        let hints = self.processes[process].hints;
        for level in 0..LEVELS {
            // The entry is given up with the last hint, but nobody else gets it before this is over.
            while self.processes[process].slots[level].hints > 0 {
                let hint = self.detach(self.processes[process].slots[level].first);
                self.counters.of_mut(hint.origin).removed += 1;
            }
        }
        hints as usize
    }

    /// The level at which a block is queued. O(1).
    pub fn contains(&self, process: TargetId, block: BlockNo) -> Option<Level> {
        Some(self.nodes[self.find(process, block)?].level)
    }

    /// Hints queued.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is nothing to take.
    pub fn is_empty(&self) -> bool {
        self.levels == 0
    }

    /// Hints that it holds at most.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Hints queued of one process. O(1).
    pub fn len_of(&self, process: TargetId) -> usize {
        self.processes.find(&process).map_or(0, |process| self.processes[process].hints as usize)
    }

    /// Counts since the start.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// All hints, in the order in which [`HintQueue::take`] would give them if nothing were added: for a dry run. O(hints).
    pub fn snapshot(&self) -> Vec<Hint> {
        let mut hints = Vec::with_capacity(self.len());
        let mut waiting = Vec::new();
        let mut served = Vec::new();
        for level in (0..LEVELS).rev().filter(|level| self.levels >> level & 1 == 1) {
            waiting.extend(self.ring(level).map(|process| self.processes[process].slots[level].first));
            // Round after round, one hint of each process that has one left.
            while !waiting.is_empty() {
                for node in waiting.drain(..) {
                    hints.push(self.hint(node));
                    served.push(self.nodes[node].next);
                }
                waiting.extend(served.drain(..).filter(|next| *next != NONE));
            }
        }
        hints
    }

    fn find(&self, process: TargetId, block: BlockNo) -> Option<u32> {
        let process = self.processes.find(&process)?;
        self.nodes.find(&(process, block))
    }

    fn hint(&self, node: u32) -> Hint {
        let Node { since, block, process, level, origin, action, .. } = self.nodes[node];
        Hint { process: self.processes[process].id, block, action, level, origin, since }
    }

    fn place(&mut self, hint: Hint) -> Added {
        let process = self.processes.find(&hint.process);
        if let Some(node) = process.and_then(|process| self.nodes.find(&(process, hint.block))) {
            return self.raise(node, hint);
        }
        if self.len() < self.capacity {
            self.insert(process, hint);
            return Added::New;
        }
        let coldest = self.levels.trailing_zeros() as usize;
        if hint.level.index() <= coldest {
            return Added::Refused;
        }
        let evicted = self.detach(self.taken_last(coldest));
        // Looked up again: it may have been the last hint of this very process.
        self.insert(self.processes.find(&hint.process), hint);
        Added::NewInsteadOf(evicted)
    }

    fn raise(&mut self, node: u32, hint: Hint) -> Added {
        if hint.level <= self.nodes[node].level {
            return Added::Known;
        }
        self.unlink(node);
        let raised = &mut self.nodes[node];
        (raised.level, raised.origin, raised.action) = (hint.level, hint.origin, hint.action);
        self.append(node);
        Added::Raised
    }

    fn insert(&mut self, process: Option<u32>, hint: Hint) {
        let Hint { process: id, block, action, level, origin, since } = hint;
        let process = process.unwrap_or_else(|| {
            self.processes.insert(Process { id, hints: 0, slots: [Slot::EMPTY; LEVELS] }, self.capacity)
        });
        self.processes[process].hints += 1;
        let node = Node { since, block, process, previous: NONE, next: NONE, level, origin, action };
        let node = self.nodes.insert(node, self.capacity);
        self.append(node);
    }

    /// Takes a hint out for good, and with the last one its process.
    fn detach(&mut self, node: u32) -> Hint {
        let hint = self.hint(node);
        self.unlink(node);
        let process = self.nodes[node].process;
        self.nodes.remove(node);
        self.processes[process].hints -= 1;
        if self.processes[process].hints == 0 {
            self.processes.remove(process);
        }
        hint
    }

    /// Puts a node at the end of the slot of its process and level.
    fn append(&mut self, node: u32) {
        let Node { process, level, .. } = self.nodes[node];
        let level = level.index();
        let slot = &mut self.processes[process].slots[level];
        let last = std::mem::replace(&mut slot.last, node);
        slot.hints += 1;
        (self.nodes[node].previous, self.nodes[node].next) = (last, NONE);
        if last == NONE {
            slot.first = node;
            self.join(process, level);
        } else {
            self.nodes[last].next = node;
        }
    }

    /// Takes a node out of its slot.
    fn unlink(&mut self, node: u32) {
        let Node { process, previous, next, level, .. } = self.nodes[node];
        let level = level.index();
        let slot = &mut self.processes[process].slots[level];
        slot.hints -= 1;
        if previous == NONE {
            slot.first = next;
        } else {
            self.nodes[previous].next = next;
        }
        if next == NONE {
            slot.last = previous;
        } else {
            self.nodes[next].previous = previous;
        }
        if slot.hints == 0 {
            self.leave(process, level);
        }
    }

    /// Makes a process the last to be served in a level.
    fn join(&mut self, process: u32, level: usize) {
        let after = self.turns[level];
        if after == NONE {
            self.turns[level] = process;
            self.levels |= 1 << level;
            self.link_turns(process, process, level);
        } else {
            let before = self.processes[after].slots[level].turn_before;
            self.link_turns(before, process, level);
            self.link_turns(process, after, level);
        }
    }

    /// Takes a process out of the ring of a level. If it was its turn, it is that of the one after it.
    fn leave(&mut self, process: u32, level: usize) {
        let Slot { turn_before, turn_after, .. } = self.processes[process].slots[level];
        if turn_after == process {
            self.turns[level] = NONE;
            self.levels &= !(1 << level);
            return;
        }
        self.link_turns(turn_before, turn_after, level);
        if self.turns[level] == process {
            self.turns[level] = turn_after;
        }
    }

    fn link_turns(&mut self, before: u32, after: u32, level: usize) {
        self.processes[before].slots[level].turn_after = after;
        self.processes[after].slots[level].turn_before = before;
    }

    /// The processes that have hints in a level (there is one at least), in the order of their turns.
    fn ring(&self, level: usize) -> impl Iterator<Item = u32> {
        let first = self.turns[level];
        std::iter::successors(Some(first), move |process| {
            let after = self.processes[*process].slots[level].turn_after;
            (after != first).then_some(after)
        })
    }

    /// The hint that would be taken last in a level. O(processes in it).
    fn taken_last(&self, level: usize) -> u32 {
        let slot = |process| &self.processes[process].slots[level];
        // Of equal ones `max_by_key` gives the last, which is the one latest in turn.
        self.ring(level).map(slot).max_by_key(|slot| slot.hints).map_or(NONE, |slot| slot.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: TargetId = TargetId { pid: 1, start_ticks: 10 };
    const B: TargetId = TargetId { pid: 2, start_ticks: 20 };
    const C: TargetId = TargetId { pid: 3, start_ticks: 30 };

    fn hint(process: TargetId, block: u64, level: u8) -> Hint {
        let (block_no, level) = (BlockNo(block), Level::new(level));
        Hint { process, block: block_no, action: ActionId(0), level, origin: Origin::Heat, since: block }
    }

    /// With these given in order; each has to be new.
    fn queue(capacity: usize, hints: &[(TargetId, u64, u8)]) -> HintQueue {
        let mut queue = HintQueue::new(capacity);
        for (process, block, level) in hints {
            assert_eq!(queue.add(hint(*process, *block, *level)), Added::New);
        }
        queue
    }

    fn blocks_in_order(queue: &HintQueue) -> Vec<u64> {
        let order = queue.snapshot();
        let mut drained = queue.clone();
        assert_eq!(std::iter::from_fn(|| drained.take()).collect::<Vec<_>>(), order);
        order.iter().map(|hint| hint.block.0).collect()
    }

    #[test]
    fn levels_are_clamped_to_the_hottest() {
        assert_eq!([0, 31, 32, 255].map(|level| Level::new(level).get()), [0, 31, 31, 31]);
        assert_eq!(HintQueue::new(0).capacity(), 1);
    }

    #[test]
    fn the_hottest_go_first_and_equals_in_the_order_given() {
        let queue = queue(9, &[(A, 1, 3), (A, 2, 31), (A, 3, 3), (A, 4, 0), (A, 5, 31)]);
        assert_eq!(blocks_in_order(&queue), [2, 5, 1, 3, 4]);
    }

    #[test]
    fn processes_are_served_in_turn_whatever_they_ask_for() {
        // A floods; B and C, which come later, wait for one hint of it and not for five.
        let mut queue =
            queue(20, &[(A, 1, 7), (A, 2, 7), (A, 3, 7), (A, 4, 7), (A, 5, 7), (B, 11, 7), (B, 12, 7), (C, 21, 7)]);
        assert_eq!(blocks_in_order(&queue), [1, 11, 21, 2, 12, 3, 4, 5]);
        // A was served: the turn is B's. C leaves with its only hint and, when it comes back, joins at the end.
        assert_eq!(queue.take(), Some(hint(A, 1, 7)));
        assert_eq!(queue.take(), Some(hint(B, 11, 7)));
        assert_eq!(queue.take(), Some(hint(C, 21, 7)));
        assert_eq!(queue.add(hint(C, 22, 7)), Added::New);
        assert_eq!(blocks_in_order(&queue), [2, 12, 22, 3, 4, 5]);
        // Where the turn is does not change with hints that are removed, unless it is that of the one that leaves.
        assert_eq!(queue.take(), Some(hint(A, 2, 7)));
        assert_eq!(queue.remove(A, BlockNo(4)), Some(hint(A, 4, 7)));
        assert_eq!(queue.remove(B, BlockNo(12)), Some(hint(B, 12, 7)));
        assert_eq!(queue.remove(B, BlockNo(12)), None);
        assert_eq!(blocks_in_order(&queue), [22, 3, 5]);
    }

    #[test]
    fn a_hint_is_raised_but_never_lowered_and_keeps_its_age() {
        let mut queue = queue(9, &[(A, 1, 2), (A, 2, 2), (B, 11, 5), (A, 3, 5)]);
        assert_eq!(queue.add(Hint { since: 99, ..hint(A, 1, 2) }), Added::Known);
        assert_eq!(queue.add(Hint { since: 99, ..hint(B, 11, 4) }), Added::Known);
        let external = Hint { origin: Origin::External, action: ActionId(1), since: 99, ..hint(A, 1, 5) };
        assert_eq!(queue.add(external), Added::Raised);
        assert_eq!(queue.contains(A, BlockNo(1)), Some(Level::new(5)));
        assert_eq!(blocks_in_order(&queue), [11, 3, 1, 2], "behind block 3, which A has had up there");
        assert_eq!(queue.remove(A, BlockNo(1)), Some(Hint { since: 1, ..external }));
    }

    #[test]
    fn a_full_queue_gives_up_what_would_be_taken_last() {
        let mut queue = queue(5, &[(A, 1, 4), (A, 2, 4), (B, 11, 4), (B, 12, 4), (C, 21, 9)]);
        assert_eq!(blocks_in_order(&queue), [21, 1, 11, 2, 12]);
        assert_eq!(queue.add(hint(C, 22, 4)), Added::Refused, "no hotter than the coldest");
        assert_eq!(queue.add(hint(A, 1, 4)), Added::Known, "known is not refused");
        assert_eq!(queue.add(hint(A, 1, 5)), Added::Raised, "nor is a raise: it needs no room");
        // Level 4 is left with 2 of A and 11, 12 of B: B's second would go last.
        assert_eq!(queue.add(hint(C, 22, 6)), Added::NewInsteadOf(hint(B, 12, 4)));
        assert_eq!(queue.add(hint(C, 23, 6)), Added::NewInsteadOf(hint(B, 11, 4)), "A has as many, B is later in turn");
        assert_eq!(queue.add(hint(B, 13, 6)), Added::NewInsteadOf(hint(A, 2, 4)));
        assert_eq!(blocks_in_order(&queue), [21, 22, 13, 23, 1]);
        assert_eq!(queue.add(hint(B, 14, 5)), Added::Refused, "level 5 is the coldest now");
    }

    #[test]
    fn a_process_may_evict_its_own_last_hint() {
        let mut queue = queue(1, &[(A, 1, 4)]);
        assert_eq!(queue.add(hint(A, 2, 5)), Added::NewInsteadOf(hint(A, 1, 4)));
        assert_eq!(queue.add(hint(B, 2, 6)), Added::NewInsteadOf(hint(A, 2, 5)));
        assert_eq!((queue.len(), queue.len_of(A), queue.len_of(B)), (1, 0, 1));
    }

    #[test]
    fn a_process_that_ended_leaves_nothing_behind() {
        let mut queue = queue(9, &[(A, 1, 4), (B, 1, 4), (A, 2, 4), (C, 1, 4), (A, 3, 9), (B, 2, 0)]);
        let again = TargetId { start_ticks: 11, ..A };
        assert_eq!(queue.forget(again), 0, "another program under the same pid");
        assert_eq!(queue.forget(A), 3);
        assert_eq!((queue.len(), queue.len_of(A), queue.contains(A, BlockNo(1))), (3, 0, None));
        assert_eq!(queue.snapshot(), [hint(B, 1, 4), hint(C, 1, 4), hint(B, 2, 0)]);
        assert_eq!(queue.forget(A), 0);
        assert_eq!((queue.forget(C), queue.forget(B)), (1, 2));
        assert!(queue.is_empty() && queue.take().is_none());
    }

    #[test]
    fn counters_say_what_became_of_each_hint() {
        let of = |origin, block, level| Hint { origin, ..hint(A, block, level) };
        let mut queue = HintQueue::new(2);
        assert_eq!(queue.add(of(Origin::RoundRobin, 1, 0)), Added::New);
        assert_eq!(queue.add(of(Origin::RoundRobin, 2, 0)), Added::New);
        assert_eq!(queue.add(of(Origin::RoundRobin, 2, 0)), Added::Known);
        assert_eq!(queue.add(of(Origin::RoundRobin, 3, 0)), Added::Refused);
        assert_eq!(queue.add(of(Origin::Heat, 1, 3)), Added::Raised);
        assert_eq!(queue.add(of(Origin::External, 3, 9)), Added::NewInsteadOf(of(Origin::RoundRobin, 2, 0)));
        assert_eq!(queue.take().map(|hint| hint.origin), Some(Origin::External));
        assert_eq!(queue.forget(A), 1);
        let counters = queue.counters();
        let none = OriginCounters::default();
        let round_robin = OriginCounters { given: 4, known: 1, refused: 1, evicted: 1, ..none };
        assert_eq!(*counters.of(Origin::RoundRobin), round_robin);
        assert_eq!(*counters.of(Origin::Heat), OriginCounters { given: 1, raised: 1, removed: 1, ..none });
        assert_eq!(*counters.of(Origin::External), OriginCounters { given: 1, taken: 1, ..none });
    }
}
