//! Gives free memory of the C library's heap back to the system.
//!
//! glibc keeps what is freed below the top of its heap. After the first minute of a large target that is as much as the monitor needs from
//! then on: lists as long as the target were made and freed. And from the first large block that is freed on, it takes others of that size
//! from its heap, where they leave gaps. Other C libraries give back by themselves, or have no such calls.

/// Blocks from this size on are mappings of their own, which end when they are freed.
const LARGE: i32 = 32 << 10;
/// Free memory at the end of the heap beyond this is given back at once.
const TOP: i32 = 32 << 10;

/// From now on, large blocks are given back when they are freed. Until then that is so up to the first of them. Costs a page fault for each
/// 4 KiB of such a block, so callers keep those that they fill often.
#[cfg(target_env = "gnu")]
pub fn give_back_large_blocks() {
    // SAFETY: sets a limit for blocks allocated later; any thread may call it at any time.
    unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE) };
    // SAFETY: as above.
    unsafe { libc::mallopt(libc::M_TRIM_THRESHOLD, TOP) };
}

/// From now on, large blocks are given back when they are freed, where the C library can be asked to.
#[cfg(not(target_env = "gnu"))]
pub fn give_back_large_blocks() {}

/// Gives back all free pages. Takes about a millisecond for 10 MiB.
#[cfg(target_env = "gnu")]
pub fn give_back() {
    // SAFETY: takes no memory of ours and changes no allocated block; any thread may call it at any time.
    unsafe { libc::malloc_trim(0) };
}

/// Gives back all free pages, where the C library can be asked to.
#[cfg(not(target_env = "gnu"))]
pub fn give_back() {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::Proc;

    fn rss() -> u64 {
        Proc::default().status(std::process::id()).unwrap().rss.unwrap().0
    }

    /// One test, because each part needs that nothing else takes or gives back much memory.
    #[test]
    fn what_is_freed_is_given_back() {
        large_blocks_are_given_back_when_they_are_freed();
        what_lies_between_live_blocks_is_given_back();
    }

    fn large_blocks_are_given_back_when_they_are_freed() {
        const SIZE: usize = 24 << 20;
        give_back_large_blocks();
        let mut live: Vec<Vec<u8>> = Vec::new();
        // From the first large block that is freed, glibc would learn to take the next ones from its heap.
        for _ in 0..3 {
            drop(vec![1_u8; SIZE]);
            live.push(vec![1; 1000]);
        }
        let large = vec![1_u8; SIZE];
        live.push(vec![1; 1000]);
        let with = rss();
        drop(large);
        let after = rss();
        if cfg!(target_env = "gnu") {
            assert!(after + (SIZE as u64 / 2) < with, "{with} bytes with a block of {SIZE}, {after} without");
        }
        assert_eq!(live.len(), 4);
    }

    fn what_lies_between_live_blocks_is_given_back() {
        let live = || (0..2000).map(|_| vec![1_u8; 16 << 10]).collect::<Vec<_>>();
        let mut blocks = live();
        let mut index = 0;
        // Every second block, so that no end of the heap is free.
        blocks.retain(|_| {
            index += 1;
            index % 2 == 0
        });
        let before = rss();
        give_back();
        let after = rss();
        if cfg!(target_env = "gnu") {
            assert!(after + (8 << 20) < before, "{before} bytes before, {after} after, of 16 MiB that are free");
        }
        assert!(blocks.iter().all(|block| block.iter().all(|byte| *byte == 1)));
    }
}
