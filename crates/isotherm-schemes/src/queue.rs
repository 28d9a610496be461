//! The hint queue: which huge range of which process to work on next.
//!
//! Hints come from heat maps, from the MGLRU generations, from `isotherm hint` and, when nothing above the lowest level is queued, from a
//! walk over all huge ranges. [`crate::worker`] takes them. The queue knows neither, nor the actions that hints name. It
//! removes duplicates, orders hints, and stays within its bounds. It has no clock and no I/O, and the order depends
//! only on the calls.
//!
//! The rules, which `tests/queue_model.rs` checks:
//! - The highest level comes first. Within a level, the processes that have hints there form a ring. They are served
//!   one hint each, in turn, so that none starves another. The hints of one process in one level (a *slot*) are first
//!   in, first out.
//! - A process with its first hint in a level joins the end of the ring; a process without hints there leaves it.
//! - A huge range is queued once, for one action. A hint for it at a higher level moves it to the end of the slot there, and
//!   the action of that hint counts. Any other hint for it is ignored.
//! - When the queue is full, a hint that is hotter than the coldest level replaces the one hint that would be taken
//!   last of all. Any other hint is refused.
//!
//! The hint taken last is the last one of the longest slot in the coldest level; of equally long slots, of the one
//! latest in turn. To find it we walk the ring of that level, in time proportional to the number of its processes, but
//! only on an eviction. Evicting from the slot that is last in turn would need no walk, but it hits the latest process:
//! one that floods the queue would push out the single hints of others, one newcomer after the other. A heap by length
//! would slow down every call for the sake of the few that find the queue full. Everything else takes constant time:
//! hints are nodes in one array, linked by indices, a table maps process and huge range to the node, and one bit per level
//! shows which levels have hints. The constant is amortised, as in a hash table: the table grows by doubling, and now
//! and then clears the tombstones of removals.
//!
//! Memory of a full queue is at most [`HINT_BYTES`] per hint and [`PROCESS_BYTES`] per process that has hints. It grows
//! with the hints, not with the capacity, and is not freed: nothing is allocated until there are more hints or
//! processes than ever before.

mod table;

use hashbrown::DefaultHashBuilder;
use isotherm_heat::{Ns, TargetId};
use isotherm_units::PmdNo;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::hash::BuildHasher;
use table::{Keyed, NONE, Table};

/// Which action a hint is for. Each action's module has its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActionId(pub u8);

/// Priority levels: one bit each in a word.
pub const LEVELS: usize = 32;
/// Most bytes that a hint takes in a full queue.
pub const HINT_BYTES: usize = Table::<Node>::ENTRY_BYTES;
/// Most bytes that a process with hints takes in a full queue, without its hints.
pub const PROCESS_BYTES: usize = Table::<Process>::ENTRY_BYTES;

const _: () = assert!(size_of::<Node>() == 32 && HINT_BYTES <= 64);
const _: () = assert!(PROCESS_BYTES <= 704);

/// Huge ranges that are adjacent in the hash table. Runs of less than 16 full buckets take removals without tombstones.
const NEIGHBOURS: u64 = 8;

/// How urgent a hint is: 0 is the coldest, 31 the hottest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Level(u8);

impl Level {
    /// The level of this number; 31 for all above.
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

/// The origin of a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// A heat map.
    Heat,
    /// The MGLRU generations.
    Mglru,
    /// Another program, through `isotherm hint`.
    External,
    /// The walk over all huge ranges, when there is no other hint.
    RoundRobin,
}

/// One huge range worth working on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hint {
    /// The process.
    pub process: TargetId,
    /// The huge range.
    pub pmd: PmdNo,
    /// What to do to it. A raise brings its own action.
    pub action: ActionId,
    /// How urgent it is.
    pub level: Level,
    /// The origin of the last hint for it. A raise brings its own origin.
    pub origin: Origin,
    /// When it was first added. A raise does not change it.
    pub since: Ns,
}

/// The result of adding a hint. Most callers can ignore it, because the counters record it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// Queued.
    New,
    /// It was queued at a lower level and was moved up.
    Raised,
    /// It was queued at this level or a higher one: nothing changed.
    Known,
    /// The queue is full and the hint is no hotter than its coldest level: nothing changed.
    Refused,
    /// Queued. The queue was full, so this hint, which would have been taken last of all, was evicted.
    NewInsteadOf(Hint),
}

/// Counters of the hints of one origin since the start.
///
/// The number of queued hints is `given - raised - known - refused - evicted - taken - removed`, summed over the
/// origins. The formula does not hold for a single origin, because a raise can change the origin of a hint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OriginCounters {
    /// Calls of [`HintQueue::add`].
    pub given: u64,
    /// Calls that moved a hint up.
    pub raised: u64,
    /// Calls that added nothing new.
    pub known: u64,
    /// Calls that found the queue full of hints at least as hot.
    pub refused: u64,
    /// Queued hints that were evicted.
    pub evicted: u64,
    /// Queued hints that were taken.
    pub taken: u64,
    /// Queued hints that were removed, alone or with their process.
    pub removed: u64,
}

/// Counters since the start, by origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Hints from heat maps.
    pub heat: OriginCounters,
    /// Hints from the MGLRU generations.
    pub mglru: OriginCounters,
    /// Hints from `isotherm hint`.
    pub external: OriginCounters,
    /// Hints from the walk.
    pub round_robin: OriginCounters,
}

impl Counters {
    /// The counters of one origin.
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
    pmd: PmdNo,
    process: u32,
    /// Its neighbours in the slot.
    previous: u32,
    next: u32,
    level: Level,
    origin: Origin,
    action: ActionId,
}

impl Keyed for Node {
    type Key = (u32, PmdNo);

    fn key(&self) -> (u32, PmdNo) {
        (self.process, self.pmd)
    }

    /// Neighbours share all bits but those that make their buckets adjacent and those that distinguish them. Hints mostly
    /// come and go in address order: eight of them then use the same two cache lines, instead of missing two each.
    fn hash((process, pmd): &(u32, PmdNo), hasher: &DefaultHashBuilder) -> u64 {
        let (group, place) = (pmd.0 / NEIGHBOURS, pmd.0 % NEIGHBOURS);
        let hash = hasher.hash_one((process, group));
        (hash & !(NEIGHBOURS - 1) | place) ^ place << 57
    }
}

/// The hints of one process in one level, and the process's position in the ring of that level.
#[derive(Clone, Copy)]
struct Slot {
    first: u32,
    last: u32,
    hints: u32,
    /// Neighbouring processes in the ring. Meaningless while there are no hints.
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
/// A clone returns the same hints in the same order, but has no spare room: it allocates where the original would not.
#[derive(Clone)]
pub struct HintQueue {
    nodes: Table<Node>,
    processes: Table<Process>,
    /// Levels that have hints, one bit each.
    levels: u32,
    /// The process to serve next in each level.
    turns: [u32; LEVELS],
    capacity: usize,
    counters: Counters,
}

impl fmt::Debug for HintQueue {
    /// Omits the hints: there may be millions, and [`HintQueue::snapshot`] lists them in order.
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

    /// Adds a hint. O(1); O(processes in the coldest level) if it evicts another.
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

    /// Removes a hint that has become pointless because the huge range is gone or done. Does not change the turns. O(1).
    pub fn remove(&mut self, process: TargetId, pmd: PmdNo) -> Option<Hint> {
        let node = self.find(process, pmd)?;
        let hint = self.detach(node);
        self.counters.of_mut(hint.origin).removed += 1;
        Some(hint)
    }

    /// Removes all hints of a process that has ended. Returns how many there were. O(its hints).
    pub fn forget(&mut self, process: TargetId) -> usize {
        let Some(process) = self.processes.find(&process) else { return 0 };
        let hints = self.processes[process].hints;
        for level in 0..LEVELS {
            // The entry is freed with the last hint, but is not reused before this loop ends.
            while self.processes[process].slots[level].hints > 0 {
                let hint = self.detach(self.processes[process].slots[level].first);
                self.counters.of_mut(hint.origin).removed += 1;
            }
        }
        hints as usize
    }

    /// The level at which a huge range is queued. O(1).
    pub fn contains(&self, process: TargetId, pmd: PmdNo) -> Option<Level> {
        self.get(process, pmd).map(|hint| hint.level)
    }

    /// The hint that is queued for a huge range. O(1).
    pub fn get(&self, process: TargetId, pmd: PmdNo) -> Option<Hint> {
        self.find(process, pmd).map(|node| self.hint(node))
    }

    /// Number of queued hints.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is nothing to take.
    pub fn is_empty(&self) -> bool {
        self.levels == 0
    }

    /// Whether all hints are of the lowest level, or there are none.
    pub fn has_lowest_only(&self) -> bool {
        self.levels <= 1
    }

    /// Most hints that it can hold.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Number of queued hints of one process. O(1).
    pub fn len_of(&self, process: TargetId) -> usize {
        self.processes.find(&process).map_or(0, |process| self.processes[process].hints as usize)
    }

    /// Counters since the start.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// All hints, in the order in which [`HintQueue::take`] would return them if nothing were added. For dry runs. O(hints).
    pub fn snapshot(&self) -> Vec<Hint> {
        let mut hints = Vec::with_capacity(self.len());
        let mut waiting = Vec::new();
        let mut served = Vec::new();
        for level in (0..LEVELS).rev().filter(|level| self.levels >> level & 1 == 1) {
            waiting.extend(self.ring(level).map(|process| self.processes[process].slots[level].first));
            // Each round takes one hint of each process that has one left.
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

    fn find(&self, process: TargetId, pmd: PmdNo) -> Option<u32> {
        let process = self.processes.find(&process)?;
        self.nodes.find(&(process, pmd))
    }

    fn hint(&self, node: u32) -> Hint {
        let Node { since, pmd, process, level, origin, action, .. } = self.nodes[node];
        Hint { process: self.processes[process].id, pmd, action, level, origin, since }
    }

    fn place(&mut self, hint: Hint) -> Added {
        let process = self.processes.find(&hint.process);
        if let Some(node) = process.and_then(|process| self.nodes.find(&(process, hint.pmd))) {
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
        // Look it up again: the evicted hint may have been the last one of this process.
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
        let Hint { process: id, pmd, action, level, origin, since } = hint;
        let process = process.unwrap_or_else(|| {
            self.processes.insert(Process { id, hints: 0, slots: [Slot::EMPTY; LEVELS] }, self.capacity)
        });
        self.processes[process].hints += 1;
        let node = Node { since, pmd, process, previous: NONE, next: NONE, level, origin, action };
        let node = self.nodes.insert(node, self.capacity);
        self.append(node);
    }

    /// Removes a hint, and with the last one its process.
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

    /// Appends a node to the slot of its process and level.
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

    /// Removes a node from its slot.
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

    /// Adds a process to a level as the last one to be served.
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

    /// Removes a process from the ring of a level. If it was its turn, the next one is served instead.
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

    /// The processes that have hints in a level (at least one), in the order of their turns.
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
        // Of equal ones `max_by_key` returns the last, which is the one latest in turn.
        self.ring(level).map(slot).max_by_key(|slot| slot.hints).map_or(NONE, |slot| slot.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: TargetId = TargetId { pid: 1, start_ticks: 10 };
    const B: TargetId = TargetId { pid: 2, start_ticks: 20 };
    const C: TargetId = TargetId { pid: 3, start_ticks: 30 };

    fn hint(process: TargetId, pmd: u64, level: u8) -> Hint {
        let (pmd_no, level) = (PmdNo(pmd), Level::new(level));
        Hint { process, pmd: pmd_no, action: ActionId(0), level, origin: Origin::Heat, since: pmd }
    }

    /// With these given in order; each has to be new.
    fn queue(capacity: usize, hints: &[(TargetId, u64, u8)]) -> HintQueue {
        let mut queue = HintQueue::new(capacity);
        for (process, pmd, level) in hints {
            assert_eq!(queue.add(hint(*process, *pmd, *level)), Added::New);
        }
        queue
    }

    fn pmds_in_order(queue: &HintQueue) -> Vec<u64> {
        let order = queue.snapshot();
        let mut drained = queue.clone();
        assert_eq!(std::iter::from_fn(|| drained.take()).collect::<Vec<_>>(), order);
        order.iter().map(|hint| hint.pmd.0).collect()
    }

    #[test]
    fn levels_are_clamped_to_the_hottest() {
        assert_eq!([0, 31, 32, 255].map(|level| Level::new(level).get()), [0, 31, 31, 31]);
        assert_eq!(HintQueue::new(0).capacity(), 1);
    }

    #[test]
    fn the_hottest_go_first_and_equals_in_the_order_given() {
        let queue = queue(9, &[(A, 1, 3), (A, 2, 31), (A, 3, 3), (A, 4, 0), (A, 5, 31)]);
        assert_eq!(pmds_in_order(&queue), [2, 5, 1, 3, 4]);
    }

    #[test]
    fn processes_are_served_in_turn_whatever_they_ask_for() {
        // A floods; B and C, which come later, wait for one hint of it and not for five.
        let mut queue =
            queue(20, &[(A, 1, 7), (A, 2, 7), (A, 3, 7), (A, 4, 7), (A, 5, 7), (B, 11, 7), (B, 12, 7), (C, 21, 7)]);
        assert_eq!(pmds_in_order(&queue), [1, 11, 21, 2, 12, 3, 4, 5]);
        // A was served: the turn is B's. C leaves with its only hint and, when it comes back, joins at the end.
        assert_eq!(queue.take(), Some(hint(A, 1, 7)));
        assert_eq!(queue.take(), Some(hint(B, 11, 7)));
        assert_eq!(queue.take(), Some(hint(C, 21, 7)));
        assert_eq!(queue.add(hint(C, 22, 7)), Added::New);
        assert_eq!(pmds_in_order(&queue), [2, 12, 22, 3, 4, 5]);
        // Where the turn is does not change with hints that are removed, unless it is that of the one that leaves.
        assert_eq!(queue.take(), Some(hint(A, 2, 7)));
        assert_eq!(queue.remove(A, PmdNo(4)), Some(hint(A, 4, 7)));
        assert_eq!(queue.remove(B, PmdNo(12)), Some(hint(B, 12, 7)));
        assert_eq!(queue.remove(B, PmdNo(12)), None);
        assert_eq!(pmds_in_order(&queue), [22, 3, 5]);
    }

    #[test]
    fn a_hint_is_raised_but_never_lowered_and_keeps_its_age() {
        let mut queue = queue(9, &[(A, 1, 2), (A, 2, 2), (B, 11, 5), (A, 3, 5)]);
        assert_eq!(queue.add(Hint { since: 99, ..hint(A, 1, 2) }), Added::Known);
        assert_eq!(queue.add(Hint { since: 99, ..hint(B, 11, 4) }), Added::Known);
        let external = Hint { origin: Origin::External, action: ActionId(1), since: 99, ..hint(A, 1, 5) };
        assert_eq!(queue.add(external), Added::Raised);
        assert_eq!(queue.contains(A, PmdNo(1)), Some(Level::new(5)));
        assert_eq!(pmds_in_order(&queue), [11, 3, 1, 2], "behind huge range 3, which A has had up there");
        assert_eq!(queue.remove(A, PmdNo(1)), Some(Hint { since: 1, ..external }));
    }

    #[test]
    fn a_full_queue_gives_up_what_would_be_taken_last() {
        let mut queue = queue(5, &[(A, 1, 4), (A, 2, 4), (B, 11, 4), (B, 12, 4), (C, 21, 9)]);
        assert_eq!(pmds_in_order(&queue), [21, 1, 11, 2, 12]);
        assert_eq!(queue.add(hint(C, 22, 4)), Added::Refused, "no hotter than the coldest");
        assert_eq!(queue.add(hint(A, 1, 4)), Added::Known, "known is not refused");
        assert_eq!(queue.add(hint(A, 1, 5)), Added::Raised, "nor is a raise: it needs no room");
        // Level 4 is left with 2 of A and 11, 12 of B: B's second would go last.
        assert_eq!(queue.add(hint(C, 22, 6)), Added::NewInsteadOf(hint(B, 12, 4)));
        assert_eq!(queue.add(hint(C, 23, 6)), Added::NewInsteadOf(hint(B, 11, 4)), "A has as many, B is later in turn");
        assert_eq!(queue.add(hint(B, 13, 6)), Added::NewInsteadOf(hint(A, 2, 4)));
        assert_eq!(pmds_in_order(&queue), [21, 22, 13, 23, 1]);
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
        assert_eq!((queue.len(), queue.len_of(A), queue.contains(A, PmdNo(1))), (3, 0, None));
        assert_eq!(queue.snapshot(), [hint(B, 1, 4), hint(C, 1, 4), hint(B, 2, 0)]);
        assert_eq!(queue.forget(A), 0);
        assert_eq!((queue.forget(C), queue.forget(B)), (1, 2));
        assert!(queue.is_empty() && queue.take().is_none());
    }

    #[test]
    fn counters_say_what_became_of_each_hint() {
        let of = |origin, pmd, level| Hint { origin, ..hint(A, pmd, level) };
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
