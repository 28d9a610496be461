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
//! | file | job |
//! |---|---|
//! | `layout` | where each CPU's words lie, and how many there are |
//! | `x86_64` | the sequences: an architecture is one file, behind the functions that `stacks` and `rseq` call |
//! | `absent` | the same functions where there are none |
//! | `register` | where the C library has registered the threads; `membarrier` |
//! | `rseq` | that this process has sequences, or why not |
//! | `stacks` | the lists of all CPUs, and a CPU that is stopped |
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
mod error;
mod layout;
#[cfg(all(feature = "std", target_os = "linux", target_arch = "x86_64", not(miri)))]
mod register;
mod rseq;
mod stacks;

#[cfg(all(test, feature = "std", target_os = "linux", target_arch = "x86_64", not(miri)))]
mod tests;

pub use error::{NoRseq, StopError, TooSmall};
pub use layout::{LISTS, Shape};
pub use rseq::{Rseq, current_cpu};
pub use stacks::{Stacks, Stopped};
