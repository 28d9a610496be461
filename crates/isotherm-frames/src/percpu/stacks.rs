//! The stacks of all CPUs, and a CPU that is stopped. The sequences themselves are in `arch`.

use super::arch;
use super::error::{StopError, TooSmall};
use super::layout::{ALIGN, Geometry, HEADER_WORDS, LISTS, Shape, WORD, count_word, limit_word};
use super::rseq::Rseq;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};

/// Most entries that one sequence moves. A sequence must be short next to the time between two interrupts, or it never
/// ends: 64 take some 20 ns.
pub(super) const PIECE: usize = 64;

/// The stacks of all CPUs. Shared by all threads; each works on those of the CPU it is on.
#[derive(Debug)]
pub struct Stacks<'m> {
    pub(super) geometry: Geometry,
    shape: Shape,
    memory: PhantomData<&'m mut [AtomicU32]>,
}

// SAFETY: the memory is theirs alone, and what is not done by sequences, which the kernel keeps apart, is done by
// atomic accesses or while a CPU is stopped.
unsafe impl Send for Stacks<'_> {}
// SAFETY: as above.
unsafe impl Sync for Stacks<'_> {}

impl<'m> Stacks<'m> {
    /// Empty stacks, their limits at their capacities. Writes 128 bytes a CPU and no entry.
    ///
    /// The borrow is exclusive since a count that someone else has written would be believed.
    pub fn new(rseq: Rseq, shape: Shape, memory: &'m mut [AtomicU32]) -> Result<Stacks<'m>, TooSmall> {
        // SAFETY: borrowed exclusively for as long as the stacks exist.
        unsafe { Stacks::new_shared(rseq, shape, memory) }
    }

    /// As [`Stacks::new`], for memory that is known by other names too.
    ///
    /// # Safety
    ///
    /// While the stacks exist, nobody else may access the first [`Shape::words`] of `memory`: no other stacks, no other
    /// process.
    pub unsafe fn new_shared(rseq: Rseq, shape: Shape, memory: &'m [AtomicU32]) -> Result<Stacks<'m>, TooSmall> {
        let (needed, given) = (shape.words(), memory.len());
        let stride = shape.cpu_words().filter(|_| needed <= given).ok_or(TooSmall { needed, given })? * WORD;
        let to_aligned = memory.as_ptr().addr().next_multiple_of(ALIGN) - memory.as_ptr().addr();
        let mut entries = [HEADER_WORDS * WORD; LISTS];
        for list in 1..LISTS {
            entries[list] = entries[list - 1] + shape.capacities[list - 1] as usize * WORD;
        }
        let base = NonNull::from(&memory[to_aligned / WORD..]).cast();
        let geometry = Geometry { base, stride, area: rseq.0, cpus: shape.cpus, entries };
        let stacks = Stacks { geometry, shape, memory: PhantomData };
        for cpu in 0..shape.cpus {
            for list in 0..LISTS {
                stacks.word(cpu, count_word(list)).store(0, Ordering::Relaxed);
                stacks.word(cpu, limit_word(list)).store(shape.capacities[list], Ordering::Relaxed);
            }
            stacks.word(cpu, 0).store(0, Ordering::Relaxed);
        }
        Ok(stacks)
    }

    /// What they were made for.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The CPU that this thread was on just now.
    #[inline]
    pub fn cpu(&self) -> u32 {
        Rseq(self.geometry.area).cpu()
    }

    /// Puts `value` on top of this CPU's `list`. False when the list is at its limit, or the CPU is stopped, or there
    /// is no such list.
    #[inline]
    pub fn push(&self, list: usize, value: u32) -> bool {
        let Some(list) = self.geometry.list(list) else { return false };
        // SAFETY: `new` has made the geometry for memory that holds it, and `list` is one of the lists.
        unsafe { arch::push(&self.geometry, list, value) }
    }

    /// Takes the top of this CPU's `list`. `None` when it is empty, or the CPU is stopped, or there is no such list.
    #[inline]
    pub fn pop(&self, list: usize) -> Option<u32> {
        let list = self.geometry.list(list)?;
        // SAFETY: `new` has made the geometry for memory that holds it, and `list` is one of the lists.
        let popped = unsafe { arch::pop(&self.geometry, list) };
        u32::try_from(popped).ok()
    }

    /// Pushes from the front of `values` until the list is at its limit, and says how many. Some 20 ns for 64, which go
    /// in one sequence; between two such the thread may change to another CPU, and goes on there.
    #[inline]
    pub fn push_many(&self, list: usize, values: &[u32]) -> usize {
        let Some(list) = self.geometry.list(list) else { return 0 };
        let mut done = 0;
        for piece in values.chunks(PIECE) {
            // SAFETY: as in `push`; a piece is 1 to 64 entries, readable, and not in the memory of the stacks, which is
            // theirs alone.
            let pushed = unsafe { arch::push_many(&self.geometry, list, piece.as_ptr(), piece.len()) };
            done += pushed;
            if pushed < piece.len() {
                break;
            }
        }
        done
    }

    /// Pops into the front of `values` until they are full or the list is empty, and says how many. Costs as
    /// [`Stacks::push_many`].
    ///
    /// Each 64 come as they lay, the top last: what was pushed by one call and popped by one call is in the same order.
    #[inline]
    pub fn pop_many(&self, list: usize, values: &mut [u32]) -> usize {
        let Some(list) = self.geometry.list(list) else { return 0 };
        let mut done = 0;
        for piece in values.chunks_mut(PIECE) {
            // SAFETY: as in `pop`; a piece is 1 to 64 entries, writable, and not in the memory of the stacks, which is
            // theirs alone.
            let popped = unsafe { arch::pop_many(&self.geometry, list, piece.as_mut_ptr(), piece.len()) };
            done += popped;
            if popped < piece.len() {
                break;
            }
        }
        done
    }

    /// Entries of `list` of `cpu` a moment ago; 0 where there is no such list or CPU.
    pub fn count(&self, cpu: u32, list: usize) -> u32 {
        self.header(cpu, list, count_word).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// Entries up to which `list` of `cpu` takes more; 0 where there is no such list or CPU.
    pub fn limit(&self, cpu: u32, list: usize) -> u32 {
        self.header(cpu, list, limit_word).map_or(0, |limit| limit.load(Ordering::Relaxed))
    }

    /// Sets that limit, to the capacity at most; from any CPU. Entries above it stay until they are popped.
    pub fn set_limit(&self, cpu: u32, list: usize, limit: u32) {
        if let Some(word) = self.header(cpu, list, limit_word) {
            word.store(limit.min(self.shape.capacities[list]), Ordering::Relaxed);
        }
    }

    /// Stops `cpu`: until the result is dropped, operations on it find its lists empty and full. On return, none that
    /// began before can still take effect. A system call that interrupts that CPU if it runs this process: some
    /// microseconds.
    ///
    /// One at a time: an error if another has stopped the CPU.
    pub fn stop(&self, cpu: u32) -> Result<Stopped<'_, 'm>, StopError> {
        if cpu >= self.shape.cpus {
            return Err(StopError::NoSuchCpu { cpu, cpus: self.shape.cpus });
        }
        // Acquire: pairs with the Release of the drop of the last `Stopped`, whose accesses were not atomic.
        self.word(cpu, 0)
            .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .map_err(|_| StopError::Stopped { cpu })?;
        let stopped = Stopped { stacks: self, cpu };
        // Sequences on `cpu` that have read 0 are restarted, or had committed; those that begin from now on read 1.
        // What the former had stored is seen after the call, which is a full barrier here and there.
        arch::restart(self.geometry.area, cpu).map_err(|errno| StopError::Membarrier { cpu, errno })?;
        Ok(stopped)
    }

    fn header(&self, cpu: u32, list: usize, word: impl Fn(usize) -> usize) -> Option<&AtomicU32> {
        (cpu < self.shape.cpus && list < LISTS).then(|| self.word(cpu, word(list)))
    }

    /// A word of the header of a CPU that there is.
    fn word(&self, cpu: u32, word: usize) -> &AtomicU32 {
        assert!(cpu < self.shape.cpus && word < HEADER_WORDS);
        // SAFETY: `cpu` is one of the shape, for which `new` found room, and `word` is one of its header.
        let pointer = unsafe { self.geometry.base.byte_add(cpu as usize * self.geometry.stride).add(word) };
        // SAFETY: an aligned word of memory that lives as long as the stacks and that everyone accesses atomically, or
        // by sequences, whose accesses are single instructions on aligned words.
        unsafe { AtomicU32::from_ptr(pointer.as_ptr()) }
    }
}

/// A CPU that is stopped: its lists can be taken from by any thread. Dropping it sets the CPU going again.
#[must_use = "dropping it sets the CPU going again"]
pub struct Stopped<'s, 'm> {
    stacks: &'s Stacks<'m>,
    cpu: u32,
}

impl Stopped<'_, '_> {
    /// Which it is.
    pub fn cpu(&self) -> u32 {
        self.cpu
    }

    /// Entries of `list`; 0 where there is no such list.
    pub fn count(&self, list: usize) -> u32 {
        self.stacks.count(self.cpu, list)
    }

    /// Takes from the bottom of `list` into the front of `values`, the coldest first, until they are full or the list
    /// is empty, and says how many. What is left moves down: a copy of four bytes an entry.
    pub fn drain(&mut self, list: usize, values: &mut [u32]) -> usize {
        let taken = self.copy_oldest(list, 0, values);
        self.forget_oldest(list, u32::try_from(taken).unwrap_or(u32::MAX));
        taken
    }

    /// Copies entries of `list` into the front of `values`, the coldest first but `skip` of them, and says how many.
    /// They stay: see [`Stopped::forget_oldest`].
    pub(crate) fn copy_oldest(&self, list: usize, skip: u32, values: &mut [u32]) -> usize {
        let Some(bottom) = self.bottom(list) else { return 0 };
        let some = values.len().min(self.count(list).saturating_sub(skip) as usize);
        if some > 0 {
            // SAFETY: `skip + some` entries are in the list and `some` in `values`, which is not the memory of the
            // stacks. Entries are touched by sequences only, and there are none on a stopped CPU.
            unsafe { bottom.add(skip as usize).copy_to_nonoverlapping(values.as_mut_ptr(), some) };
        }
        some
    }

    /// Takes so many from the bottom of `list`, or all; the rest moves down, which is a copy of four bytes an entry.
    pub(crate) fn forget_oldest(&mut self, list: usize, entries: u32) {
        let Some(bottom) = self.bottom(list) else { return };
        let count = self.count(list);
        let left = count.saturating_sub(entries);
        // SAFETY: all `count` entries are within the capacity of the list; nobody else touches them, as the CPU is
        // stopped.
        unsafe { bottom.add((count - left) as usize).copy_to(bottom, left as usize) };
        self.stacks.word(self.cpu, count_word(list)).store(left, Ordering::Relaxed);
    }

    /// The first entry of a list.
    fn bottom(&self, list: usize) -> Option<*mut u32> {
        let &entries = self.stacks.geometry.entries.get(list)?;
        let stride = self.stacks.geometry.stride;
        // SAFETY: the first entry of a list of a CPU that there is, in memory that holds the shape.
        Some(unsafe { self.stacks.geometry.base.byte_add(self.cpu as usize * stride + entries).as_ptr() })
    }
}

impl Drop for Stopped<'_, '_> {
    fn drop(&mut self) {
        // Release: pairs with the read of the flag in the sequences, which must see the counts and entries that were
        // left.
        self.stacks.word(self.cpu, 0).store(0, Ordering::Release);
    }
}

impl fmt::Debug for Stopped<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stopped").field("cpu", &self.cpu).finish_non_exhaustive()
    }
}
