//! The stacks of all CPUs, and a CPU that is stopped. The sequences themselves are in `arch`.

use super::arch;
use super::error::{StopError, TooSmall};
use super::layout::{ALIGN, Geometry, HEADER_WORDS, LISTS, Shape, WORD, count_word, limit_word};
use super::rseq::Rseq;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};

/// Most entries that one sequence moves. If a sequence takes nearly as long as the time between two interrupts, it may
/// never finish. 64 entries take some 20 ns.
pub(super) const PIECE: usize = 64;

/// The stacks of all CPUs. All threads share them; each works on those of the CPU it runs on.
#[derive(Debug)]
pub struct Stacks<'m> {
    pub(super) geometry: Geometry,
    shape: Shape,
    memory: PhantomData<&'m mut [AtomicU32]>,
}

// SAFETY: the memory is theirs alone. It is accessed by sequences, which the kernel keeps apart, by atomics, or while a
// CPU is stopped.
unsafe impl Send for Stacks<'_> {}
// SAFETY: as above.
unsafe impl Sync for Stacks<'_> {}

impl<'m> Stacks<'m> {
    /// Empty stacks, with limits equal to the capacities. Writes 128 bytes per CPU and no entry.
    ///
    /// The borrow is exclusive because counts that others write would be trusted.
    pub fn new(rseq: Rseq, shape: Shape, memory: &'m mut [AtomicU32]) -> Result<Stacks<'m>, TooSmall> {
        // SAFETY: borrowed exclusively for as long as the stacks exist.
        unsafe { Stacks::new_shared(rseq, shape, memory) }
    }

    /// As [`Stacks::new`], for memory that others can also reach.
    ///
    /// # Safety
    ///
    /// While the stacks exist, nothing else may access the first [`Shape::words`] of `memory`: no other stacks, no
    /// other process.
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

    /// The shape that they were made for.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The CPU that this thread ran on just now.
    #[inline]
    pub fn cpu(&self) -> u32 {
        Rseq(self.geometry.area).cpu()
    }

    /// Pushes `value` to this CPU's `list`. False if the list is at its limit, the CPU is stopped, or there is no such list.
    #[inline]
    pub fn push(&self, list: usize, value: u32) -> bool {
        let Some(list) = self.geometry.list(list) else { return false };
        // SAFETY: `new` made the geometry for memory that can hold it, and `list` is one of the lists.
        unsafe { arch::push(&self.geometry, list, value) }
    }

    /// Pops the top of this CPU's `list`. `None` if it is empty, the CPU is stopped, or there is no such list.
    #[inline]
    pub fn pop(&self, list: usize) -> Option<u32> {
        let list = self.geometry.list(list)?;
        // SAFETY: `new` made the geometry for memory that can hold it, and `list` is one of the lists.
        let popped = unsafe { arch::pop(&self.geometry, list) };
        u32::try_from(popped).ok()
    }

    /// Pushes from the front of `values` until the list is at its limit, and returns how many. Takes some 20 ns for 64,
    /// which is one sequence. Between two sequences the thread may move to another CPU; it then continues there.
    #[inline]
    pub fn push_many(&self, list: usize, values: &[u32]) -> usize {
        let Some(list) = self.geometry.list(list) else { return 0 };
        let mut done = 0;
        for piece in values.chunks(PIECE) {
            // SAFETY: as in `push`. A piece is 1 to 64 readable entries outside the memory of the stacks, which is
            // theirs alone.
            let pushed = unsafe { arch::push_many(&self.geometry, list, piece.as_ptr(), piece.len()) };
            done += pushed;
            if pushed < piece.len() {
                break;
            }
        }
        done
    }

    /// Pops into the front of `values` until they are full or the list is empty, and returns how many. Costs the same
    /// as [`Stacks::push_many`].
    ///
    /// Each 64 keep their order in the list, the top last: what one call pushed and one call popped is in the same order.
    #[inline]
    pub fn pop_many(&self, list: usize, values: &mut [u32]) -> usize {
        let Some(list) = self.geometry.list(list) else { return 0 };
        let mut done = 0;
        for piece in values.chunks_mut(PIECE) {
            // SAFETY: as in `pop`. A piece is 1 to 64 writable entries outside the memory of the stacks, which is
            // theirs alone.
            let popped = unsafe { arch::pop_many(&self.geometry, list, piece.as_mut_ptr(), piece.len()) };
            done += popped;
            if popped < piece.len() {
                break;
            }
        }
        done
    }

    /// Entries of `list` of `cpu` a moment ago; 0 if there is no such list or CPU.
    pub fn count(&self, cpu: u32, list: usize) -> u32 {
        self.header(cpu, list, count_word).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// The limit up to which `list` of `cpu` takes entries; 0 if there is no such list or CPU.
    pub fn limit(&self, cpu: u32, list: usize) -> u32 {
        self.header(cpu, list, limit_word).map_or(0, |limit| limit.load(Ordering::Relaxed))
    }

    /// Sets the limit, to the capacity at most. Works from any CPU. Entries above the limit stay until they are popped.
    pub fn set_limit(&self, cpu: u32, list: usize, limit: u32) {
        if let Some(word) = self.header(cpu, list, limit_word) {
            word.store(limit.min(self.shape.capacities[list]), Ordering::Relaxed);
        }
    }

    /// Stops `cpu`: until the result is dropped, operations on it find its lists both empty and full. On return, no
    /// operation that began before can still take effect. This is a system call that interrupts the CPU if it runs this
    /// process: some microseconds.
    ///
    /// Only one thread can stop a CPU at a time; for the others it is an error.
    pub fn stop(&self, cpu: u32) -> Result<Stopped<'_, 'm>, StopError> {
        if cpu >= self.shape.cpus {
            return Err(StopError::NoSuchCpu { cpu, cpus: self.shape.cpus });
        }
        // Acquire: pairs with the Release in the drop of the last `Stopped`, whose accesses were not atomic.
        self.word(cpu, 0)
            .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .map_err(|_| StopError::Stopped { cpu })?;
        let stopped = Stopped { stacks: self, cpu };
        // Sequences on `cpu` that have read 0 are restarted or have committed; those that begin from now on read 1.
        // Stores of the former are visible after the call, which is a full barrier here and there.
        arch::restart(self.geometry.area, cpu).map_err(|errno| StopError::Membarrier { cpu, errno })?;
        Ok(stopped)
    }

    fn header(&self, cpu: u32, list: usize, word: impl Fn(usize) -> usize) -> Option<&AtomicU32> {
        (cpu < self.shape.cpus && list < LISTS).then(|| self.word(cpu, word(list)))
    }

    /// A word in the header of an existing CPU.
    fn word(&self, cpu: u32, word: usize) -> &AtomicU32 {
        assert!(cpu < self.shape.cpus && word < HEADER_WORDS);
        // SAFETY: `cpu` is within the shape, for which `new` found room, and `word` is within the header.
        let pointer = unsafe { self.geometry.base.byte_add(cpu as usize * self.geometry.stride).add(word) };
        // SAFETY: an aligned word of memory that lives as long as the stacks. All accesses are atomic, or are made by
        // sequences as single instructions on aligned words.
        unsafe { AtomicU32::from_ptr(pointer.as_ptr()) }
    }
}

/// A CPU that is stopped: any thread can take from its lists. Dropping it lets the CPU continue.
#[must_use = "dropping it lets the CPU continue"]
pub struct Stopped<'s, 'm> {
    stacks: &'s Stacks<'m>,
    cpu: u32,
}

impl Stopped<'_, '_> {
    /// The number of the CPU.
    pub fn cpu(&self) -> u32 {
        self.cpu
    }

    /// Entries of `list`; 0 if there is no such list.
    pub fn count(&self, list: usize) -> u32 {
        self.stacks.count(self.cpu, list)
    }

    /// Takes from the bottom of `list` into the front of `values`, the coldest first, until they are full or the list
    /// is empty, and returns how many. The remaining entries move down: a copy of four bytes per entry.
    pub fn drain(&mut self, list: usize, values: &mut [u32]) -> usize {
        let taken = self.copy_oldest(list, 0, values);
        self.forget_oldest(list, u32::try_from(taken).unwrap_or(u32::MAX));
        taken
    }

    /// Copies entries of `list` into the front of `values`, the coldest first but without the `skip` coldest, and
    /// returns how many. They stay in the list: see [`Stopped::forget_oldest`].
    pub(crate) fn copy_oldest(&self, list: usize, skip: u32, values: &mut [u32]) -> usize {
        let Some(bottom) = self.bottom(list) else { return 0 };
        let some = values.len().min(self.count(list).saturating_sub(skip) as usize);
        if some > 0 {
            // SAFETY: `skip + some` entries are in the list and `some` in `values`, which is outside the memory of the
            // stacks. Only sequences access entries, and none runs on a stopped CPU.
            unsafe { bottom.add(skip as usize).copy_to_nonoverlapping(values.as_mut_ptr(), some) };
        }
        some
    }

    /// Removes `entries` entries from the bottom of `list`, or all. The others move down: a copy of four bytes per entry.
    pub(crate) fn forget_oldest(&mut self, list: usize, entries: u32) {
        let Some(bottom) = self.bottom(list) else { return };
        let count = self.count(list);
        let left = count.saturating_sub(entries);
        // SAFETY: all `count` entries are within the capacity of the list. Nothing else accesses them, because the CPU
        // is stopped.
        unsafe { bottom.add((count - left) as usize).copy_to(bottom, left as usize) };
        self.stacks.word(self.cpu, count_word(list)).store(left, Ordering::Relaxed);
    }

    /// The first entry of a list.
    fn bottom(&self, list: usize) -> Option<*mut u32> {
        let &entries = self.stacks.geometry.entries.get(list)?;
        let stride = self.stacks.geometry.stride;
        // SAFETY: the first entry of a list of an existing CPU, in memory that holds the shape.
        Some(unsafe { self.stacks.geometry.base.byte_add(self.cpu as usize * stride + entries).as_ptr() })
    }
}

impl Drop for Stopped<'_, '_> {
    fn drop(&mut self) {
        // Release: pairs with the read of the flag in the sequences, which must see the counts and entries that are left.
        self.stacks.word(self.cpu, 0).store(0, Ordering::Release);
    }
}

impl fmt::Debug for Stopped<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stopped").field("cpu", &self.cpu).finish_non_exhaustive()
    }
}
