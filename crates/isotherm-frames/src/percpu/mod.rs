//! Stacks of frame numbers, one set a CPU, that are pushed and popped without a lock and without a locked instruction.
//!
//! The zone puts what it refills and takes what it drains here; [`crate::tune`] says how much. A push or a pop is a
//! *restartable sequence* (rseq(2), Linux 4.18): a few instructions that end with one store, the commit. A thread that
//! is preempted, moved or interrupted by a signal before the commit goes back to the start. So nothing else can have
//! touched the CPU's stacks in between, and a count needs no more than a load and a store. A locked instruction costs
//! about 11 ns where this was measured, a whole pop and push this way less than 2.
//!
//! Choices, and why:
//!
//! - *Array stacks with a count, not linked lists.* The commit must be a single store. A link would have to be read
//!   from the frame that is popped, which may be in use by then; and a batch would be one sequence a frame.
//! - *The registration is the C library's.* A thread has one rseq area only, and glibc (2.35 or later) registers it. Of
//!   that area `rseq_cs` is written here, and nothing else ever is: kernels check that. The symbols that name the area
//!   are looked up when the program runs, so that it also starts where there are none, as with musl.
//! - *A CPU is stopped by a flag and a membarrier.* Only its own threads may work on a CPU's stacks. To take from
//!   another, a drainer sets a flag that each sequence reads, and has the kernel restart what runs there:
//!   [`Stacks::stop`].
//!
//! An operation that cannot work here and now (the CPU is stopped, or has come up since with a number beyond the
//! [`Shape`]; the thread is not registered) answers as an empty or a full stack does, and the caller goes to the zone,
//! which is always right.
//!
//! An architecture is one file, `x86_64.rs`: where the thread's CPU is read, and the four sequences. All others get
//! `absent.rs`, which says that there are none.
//!
//! What one CPU has:
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
//!
//! Fork: the child has its own copy, and a sequence that another thread was in has not happened in it. But the kernel
//! copies page after page while other threads go on, and a CPU that one of them had stopped stays stopped in the child:
//! fork while no other thread uses the stacks. Code that is unloaded with `dlclose` must not contain these sequences:
//! the area still names the last one.

#[cfg(all(feature = "std", target_os = "linux", target_arch = "x86_64", not(miri)))]
#[path = "x86_64.rs"]
mod arch;

#[cfg(not(all(feature = "std", target_os = "linux", target_arch = "x86_64", not(miri))))]
#[path = "absent.rs"]
mod arch;

#[cfg(all(feature = "std", target_os = "linux", target_arch = "x86_64", not(miri)))]
mod register;

#[cfg(all(test, feature = "std", target_os = "linux", target_arch = "x86_64", not(miri)))]
mod tests;

use arch::Registration;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};

/// Lists that a CPU has: `3 * order + migrate type` for orders 0 to 3, then order 9 not movable, then order 9 movable.
pub const LISTS: usize = 14;

/// Most entries that one sequence moves. A sequence must be short next to the time between two interrupts, or it never
/// ends: 64 take some 20 ns.
const PIECE: usize = 64;

/// Bytes that a CPU's words begin on a multiple of: two lines, as processors fetch lines in pairs.
const ALIGN: usize = 128;
const WORD: usize = size_of::<AtomicU32>();
const HEADER_WORDS: usize = 32;
const ALIGN_WORDS: usize = ALIGN / WORD;

const _: () = assert!(WORD == 4 && align_of::<AtomicU32>() == 4);
const _: () = assert!(limit_word(LISTS - 1) < HEADER_WORDS && HEADER_WORDS.is_multiple_of(ALIGN_WORDS));

const fn count_word(list: usize) -> usize {
    2 + 2 * list
}

const fn limit_word(list: usize) -> usize {
    count_word(list) + 1
}

/// Why there are no restartable sequences here. The allocator does without them, through its lock; this says what would
/// bring them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoRseq {
    /// Not the operating system or the processor, or built without the feature `std`.
    #[error("restartable sequences: built without them; they need Linux on x86-64, and the feature std")]
    Target,
    /// The C library does not say where its rseq area is.
    #[error(
        "restartable sequences: the C library has no __rseq_offset; glibc 2.35 or later has, and not linked statically"
    )]
    NoSymbol,
    /// The C library has not registered its threads.
    #[error(
        "restartable sequences: __rseq_size is {size}: the C library registers no threads; \
         see that the kernel has rseq (4.18) and that GLIBC_TUNABLES does not set glibc.pthread.rseq=0"
    )]
    NotRegistered {
        /// `__rseq_size`: 0, or less than the 20 bytes that the first version has.
        size: u32,
    },
    /// The C library registers its threads, but not this one.
    #[error("restartable sequences: this thread is not registered (cpu_id {cpu_id}); make it with pthread_create")]
    ThreadNotRegistered {
        /// What the area says: -1 before registration, -2 after one that failed.
        cpu_id: i32,
    },
    /// The kernel cannot restart the sequences of another CPU, without which that CPU could never be drained.
    #[error(
        "restartable sequences: membarrier(REGISTER_PRIVATE_EXPEDITED_RSEQ): error {errno}; \
         the kernel must be 5.10 or later and no seccomp filter may refuse membarrier"
    )]
    NoMembarrier {
        /// What the kernel answered, a positive `errno`.
        errno: i32,
    },
}

/// That this process has restartable sequences: what [`Stacks`] are made with.
#[derive(Clone, Copy, Debug)]
pub struct Rseq(Registration);

impl Rseq {
    /// Looks for them, and registers the process for `membarrier`. A few system calls; the answer holds for the
    /// process.
    pub fn check() -> Result<Rseq, NoRseq> {
        Registration::find().map(Rseq)
    }

    /// The CPU that this thread was on just now. Below 1 ns; as [`current_cpu`] where the thread is not registered.
    #[inline]
    pub fn cpu(&self) -> u32 {
        u32::try_from(self.0.cpu_id()).unwrap_or_else(|_| current_cpu())
    }
}

/// The CPU that this thread was on just now, by `sched_getcpu`: some 5 ns. 0 where there is no telling.
#[inline]
pub fn current_cpu() -> u32 {
    #[cfg(all(feature = "std", target_os = "linux", not(miri)))]
    // SAFETY: takes nothing and writes nothing.
    let cpu = unsafe { libc::sched_getcpu() };
    #[cfg(not(all(feature = "std", target_os = "linux", not(miri))))]
    let cpu = 0;
    u32::try_from(cpu).unwrap_or(0)
}

/// How many CPUs there are to be stacks for, and how much each list of one can hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// CPUs numbered 0 to this: the highest number that is possible, plus one.
    pub cpus: u32,
    /// Entries that each list can hold.
    pub capacities: [u32; LISTS],
}

impl Shape {
    /// Words of memory that [`Stacks`] of this shape take, `usize::MAX` where they are more than can be addressed.
    pub fn words(&self) -> usize {
        self.words_checked().unwrap_or(usize::MAX)
    }

    /// 128 bytes a CPU and four an entry, each CPU rounded up; and what aligning the first may waste.
    fn words_checked(&self) -> Option<usize> {
        // A cpu_id of an unregistered thread is negative: as an unsigned number it must be none of ours.
        let cpus = usize::try_from(i32::try_from(self.cpus).ok()?).ok()?;
        let words = self.cpu_words()?.checked_mul(cpus)?.checked_add(ALIGN_WORDS - 1)?;
        // In bytes as well, as everything is that can be pointed into.
        isize::try_from(words.checked_mul(WORD)?).is_ok().then_some(words)
    }

    fn cpu_words(&self) -> Option<usize> {
        let sum = |words: usize, &capacity: &u32| words.checked_add(usize::try_from(capacity).ok()?);
        self.capacities.iter().try_fold(HEADER_WORDS, sum)?.checked_next_multiple_of(ALIGN_WORDS)
    }
}

/// The memory does not hold stacks of that shape.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("per-CPU stacks: they take {needed} words, and {given} were given; give what Shape::words says")]
pub struct TooSmall {
    /// Words that it takes.
    pub needed: usize,
    /// Words that there were.
    pub given: usize,
}

/// Why a CPU was not stopped. It is as it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StopError {
    /// The stacks have no such CPU.
    #[error("stop CPU {cpu}: there are stacks for CPUs 0 to {cpus} only, the last not included")]
    NoSuchCpu {
        /// What was asked for.
        cpu: u32,
        /// How many there are.
        cpus: u32,
    },
    /// Another has stopped it, and not dropped its [`Stopped`] yet.
    #[error("stop CPU {cpu}: it is stopped already; leave it to whoever did, or try again later")]
    Stopped {
        /// Which.
        cpu: u32,
    },
    /// The kernel refused to restart what runs on it.
    #[error("stop CPU {cpu}: membarrier(PRIVATE_EXPEDITED_RSEQ): error {errno}; is a seccomp filter in the way?")]
    Membarrier {
        /// Which.
        cpu: u32,
        /// What the kernel answered, a positive `errno`.
        errno: i32,
    },
}

/// Where everything is: what a sequence is given, so its layout is fixed.
#[derive(Debug)]
#[repr(C, align(64))]
struct Geometry {
    /// Of the first CPU.
    base: NonNull<u32>,
    /// Bytes from one CPU to the next.
    stride: usize,
    registration: Registration,
    cpus: u32,
    /// Bytes from a CPU's first word to the first entry of each list.
    entries: [usize; LISTS],
}

/// The stacks of all CPUs. Shared by all threads; each works on those of the CPU it is on.
#[derive(Debug)]
pub struct Stacks<'m> {
    geometry: Geometry,
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
        let geometry = Geometry { base, stride, registration: rseq.0, cpus: shape.cpus, entries };
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
        Rseq(self.geometry.registration).cpu()
    }

    /// Puts `value` on top of this CPU's `list`. False when the list is at its limit, or the CPU is stopped, or there
    /// is no such list.
    #[inline]
    pub fn push(&self, list: usize, value: u32) -> bool {
        let Some(&entries) = self.geometry.entries.get(list) else { return false };
        // SAFETY: `new` has made the geometry for memory that holds it, and `list` is one of the lists.
        unsafe { arch::push(&self.geometry, count_word(list) * WORD, entries, value) }
    }

    /// Takes the top of this CPU's `list`. `None` when it is empty, or the CPU is stopped, or there is no such list.
    #[inline]
    pub fn pop(&self, list: usize) -> Option<u32> {
        let &entries = self.geometry.entries.get(list)?;
        // SAFETY: `new` has made the geometry for memory that holds it, and `list` is one of the lists.
        let popped = unsafe { arch::pop(&self.geometry, count_word(list) * WORD, entries) };
        u32::try_from(popped).ok()
    }

    /// Pushes from the front of `values` until the list is at its limit, and says how many. Some 20 ns for 64, which go
    /// in one sequence; between two such the thread may change to another CPU, and goes on there.
    #[inline]
    pub fn push_many(&self, list: usize, values: &[u32]) -> usize {
        let Some(&entries) = self.geometry.entries.get(list) else { return 0 };
        let mut done = 0;
        for piece in values.chunks(PIECE) {
            // SAFETY: as in `push`; a piece is 1 to 64 entries, readable, and not in the memory of the stacks, which is
            // theirs alone.
            let pushed = unsafe {
                arch::push_many(&self.geometry, count_word(list) * WORD, entries, piece.as_ptr(), piece.len())
            };
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
        let Some(&entries) = self.geometry.entries.get(list) else { return 0 };
        let mut done = 0;
        for piece in values.chunks_mut(PIECE) {
            // SAFETY: as in `pop`; a piece is 1 to 64 entries, writable, and not in the memory of the stacks, which is
            // theirs alone.
            let popped = unsafe {
                arch::pop_many(&self.geometry, count_word(list) * WORD, entries, piece.as_mut_ptr(), piece.len())
            };
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
        self.geometry.registration.restart(cpu).map_err(|errno| StopError::Membarrier { cpu, errno })?;
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
