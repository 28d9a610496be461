//! Per-CPU stacks of frame numbers that are pushed and popped without a lock and without a locked instruction.
//!
//! The zone refills and drains them; [`crate::tune`] computes by how much. A push or a pop is a *restartable sequence*
//! (rseq(2), Linux 4.18): a few instructions that end with one store, the commit. A thread that is preempted, migrated
//! or interrupted by a signal before the commit restarts the sequence. So nothing else can have touched the CPU's
//! stacks in between, and a counter needs only a load and a store. In `bench-frames` a locked instruction costs about
//! 3 ns, and a frame taken and given back with sequences 6.6 ns.
//!
//! Choices, and why:
//!
//! - *Array stacks with a count, not linked lists.* The commit must be a single store. A link would have to be read
//!   from the frame that is popped, which may be in use by then. And a batch would take one sequence per frame.
//! - *The C library owns the registration.* A thread has only one rseq area, and glibc (2.35 or later) registers it. We
//!   write only `rseq_cs` in that area; kernels check that nothing else changes. The symbols that name the area are
//!   looked up at run time, so that programs also start without them, as with musl.
//! - *A flag and a membarrier stop a CPU.* Only its own threads may work on a CPU's stacks. To take from another CPU, a
//!   drainer sets a flag that each sequence reads, and has the kernel restart what runs there: [`Stacks::stop`].
//!
//! Some operations cannot work at the moment: the CPU is stopped, or it came online later and its number is beyond the
//! [`Shape`], or the thread is not registered. They then return what an empty or a full stack returns, and the caller
//! goes to the zone, which always works.
//!
//! | file | job |
//! |---|---|
//! | `layout` | where the words of each CPU are, and how many there are |
//! | `x86_64` | the sequences: an architecture is one file, behind the functions that `stacks` and `rseq` call |
//! | `absent` | the same functions for targets without sequences |
//! | `register` | where the C library has registered the threads; `membarrier` |
//! | `rseq` | whether this process has sequences, or why not |
//! | `stacks` | the lists of all CPUs, and a CPU that is stopped |
//!
//! Fork: the child has its own copy, and a sequence that another thread was in has not happened there. But the kernel
//! copies page after page while other threads continue, and a CPU that one of them had stopped stays stopped in the
//! child. So fork while no other thread uses the stacks. Code that may be unloaded with `dlclose` must not contain
//! these sequences: the rseq area still points to the last one.

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
