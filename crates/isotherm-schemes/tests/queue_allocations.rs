//! What the queue allocates: as much as it says, and once warm nothing.

use isotherm_heat::{Rng, TargetId};
use isotherm_schemes::ActionId;
use isotherm_schemes::queue::*;
use isotherm_units::PmdNo;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Counts what the thread that asks allocates: the test harness has threads of its own.
struct Counting;

thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
    static BYTES: Cell<usize> = const { Cell::new(0) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call goes to `System` as it came. The counters are constants without destructors: to touch them allocates
// nothing, and they are there for as long as the thread is. Reallocation is the trait's own, by these two.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.set(CALLS.get() + 1);
        BYTES.set(BYTES.get().wrapping_add(layout.size()));
        // SAFETY: the caller's promise about `layout` is what `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        BYTES.set(BYTES.get().wrapping_sub(layout.size()));
        // SAFETY: `place` came from `alloc` above, hence from `System`, with the same `layout`.
        unsafe { System.dealloc(place, layout) }
    }
}

fn hint(process: u64, pmd: u64, level: u64) -> Hint {
    Hint {
        process: TargetId { pid: u32::try_from(process).unwrap(), start_ticks: process },
        pmd: PmdNo(pmd),
        action: ActionId(0),
        level: Level::new(u8::try_from(level).unwrap()),
        origin: Origin::Heat,
        since: 0,
    }
}

#[test]
fn a_full_queue_takes_no_more_memory_than_it_says() {
    const PROCESSES: usize = 16;
    // 7/16 of a power of two is just what the hash table has room for twice; one more, and it doubles.
    for capacity in [7 << 12, (7 << 12) + 1, 40_000, 50_000] {
        let before = BYTES.get();
        let mut queue = HintQueue::new(capacity);
        assert_eq!(BYTES.get(), before, "nothing before the first hint");
        for number in 0..capacity {
            assert_eq!(queue.add(hint((number % PROCESSES) as u64, number as u64, 5)), Added::New);
        }
        let bytes = BYTES.get().wrapping_sub(before);
        // The array of processes grows by doubling, and the control bytes of the two hash tables are repeated for a group.
        let most = capacity * HINT_BYTES + PROCESSES * 2 * PROCESS_BYTES + 64;
        assert!(bytes <= most, "{capacity} hints: {bytes} bytes, {most} at most");
    }
}

#[test]
fn a_warm_queue_allocates_nothing() {
    // Seven eighths of a power of two: a hash table with room for just so many would fill up with marks of what was removed.
    const CAPACITY: usize = 7 << 8;
    const PROCESSES: u64 = 50;
    const PMDS: u64 = 80;
    let mut queue = HintQueue::new(CAPACITY);
    for number in 0..CAPACITY as u64 {
        assert_eq!(queue.add(hint(number % PROCESSES, number / PROCESSES, 0)), Added::New);
    }
    let warm = CALLS.get();
    assert!(warm > 0, "counted at all");
    let mut random = Rng::new(7);
    // Full for half of the time and nearly empty for the other half.
    for round in 0..400_000_u64 {
        let (process, pmd) = (random.below(PROCESSES), random.below(PMDS));
        let id = hint(process, pmd, 0).process;
        let adds = if round / 20_000 % 2 == 0 { 900 } else { 400 };
        match random.below(1000) {
            0 => _ = queue.forget(id),
            1..50 => _ = queue.remove(id, PmdNo(pmd)),
            kind if kind < adds => _ = queue.add(hint(process, pmd, random.below(32))),
            _ => _ = queue.take(),
        }
    }
    assert_eq!(CALLS.get(), warm);
    let counters = queue.counters().heat;
    assert!(counters.evicted > 1000 && counters.raised > 1000 && counters.removed > 1000, "{counters:?}");
}
