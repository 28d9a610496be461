//! Where the words of each CPU are, and how many there are. The sequences read [`Geometry`], so its layout is fixed.
//!
//! The words of one CPU:
//!
//! ```text
//! word 0   stopped        0, or 1 while a `Stopped` for it exists
//!      1   (unused)
//!      2   count, limit   of list 0: lists 0 to 6 share the first line with the flag
//!      ...
//!     28   count, limit   of list 13
//!     30   (unused)
//!     32   entries of list 0, the bottom first; then those of list 1; ...
//! ```

use core::ptr::NonNull;
use core::sync::atomic::AtomicU32;

/// Number of lists of a CPU: `3 * order + migrate type` for orders 0 to 3, then order 9 not movable, then order 9 movable.
pub const LISTS: usize = 14;

/// Alignment of a CPU's words in bytes: two cache lines, because processors fetch lines in pairs.
pub(super) const ALIGN: usize = 128;
pub(super) const WORD: usize = size_of::<AtomicU32>();
pub(super) const HEADER_WORDS: usize = 32;
const ALIGN_WORDS: usize = ALIGN / WORD;

const _: () = assert!(WORD == 4 && align_of::<AtomicU32>() == 4);
const _: () = assert!(limit_word(LISTS - 1) < HEADER_WORDS && HEADER_WORDS.is_multiple_of(ALIGN_WORDS));

pub(super) const fn count_word(list: usize) -> usize {
    2 + 2 * list
}

pub(super) const fn limit_word(list: usize) -> usize {
    count_word(list) + 1
}

/// Where a list is, in bytes from a CPU's first word. Input of a sequence.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(all(feature = "std", target_os = "linux", target_arch = "x86_64", not(miri))), expect(dead_code))]
pub(super) struct List {
    /// Its count, followed by its limit.
    pub(super) count: usize,
    /// Its first entry.
    pub(super) entries: usize,
}

/// Where the rseq area of each thread is. Having one proves that threads are registered.
#[cfg(all(feature = "std", target_os = "linux", target_arch = "x86_64", not(miri)))]
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(super) struct Area {
    /// Bytes from the thread pointer.
    pub(super) offset: isize,
}

/// There are no sequences here. The type has no values, so nothing that needs one can be made.
#[cfg(not(all(feature = "std", target_os = "linux", target_arch = "x86_64", not(miri))))]
#[derive(Clone, Copy, Debug)]
pub(super) enum Area {}

/// The number of CPUs, and the capacity of each list of a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// CPUs are numbered from 0 to below this: the highest possible number plus one.
    pub cpus: u32,
    /// Capacity of each list in entries.
    pub capacities: [u32; LISTS],
}

impl Shape {
    /// Words of memory that [`Stacks`](super::Stacks) of this shape take, or `usize::MAX` if they are more than can be
    /// addressed.
    pub fn words(&self) -> usize {
        self.words_checked().unwrap_or(usize::MAX)
    }

    /// 128 bytes per CPU and four per entry, rounded up for each CPU, plus padding to align the first.
    fn words_checked(&self) -> Option<usize> {
        // The cpu_id of an unregistered thread is negative. As an unsigned number it must not be one of ours.
        let cpus = usize::try_from(i32::try_from(self.cpus).ok()?).ok()?;
        let words = self.cpu_words()?.checked_mul(cpus)?.checked_add(ALIGN_WORDS - 1)?;
        // The size in bytes must be addressable too.
        isize::try_from(words.checked_mul(WORD)?).is_ok().then_some(words)
    }

    pub(super) fn cpu_words(&self) -> Option<usize> {
        let sum = |words: usize, &capacity: &u32| words.checked_add(usize::try_from(capacity).ok()?);
        self.capacities.iter().try_fold(HEADER_WORDS, sum)?.checked_next_multiple_of(ALIGN_WORDS)
    }
}

/// Where everything is. Input of the sequences, so its layout is fixed.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Geometry {
    /// The words of the first CPU.
    pub(super) base: NonNull<u32>,
    /// Bytes from one CPU to the next.
    pub(super) stride: usize,
    pub(super) area: Area,
    pub(super) cpus: u32,
    /// Bytes from a CPU's first word to the first entry of each list.
    pub(super) entries: [usize; LISTS],
}

impl Geometry {
    /// `None` where there is no such list.
    #[inline]
    pub(super) fn list(&self, list: usize) -> Option<List> {
        let &entries = self.entries.get(list)?;
        Some(List { count: count_word(list) * WORD, entries })
    }
}
