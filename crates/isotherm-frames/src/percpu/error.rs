//! Errors: no restartable sequences, too little memory, a CPU that cannot be stopped.

/// Why restartable sequences are not available. The allocator works without them, through its lock. The message says
/// what would make them available.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoRseq {
    /// Wrong operating system or processor, or built without the feature `std`.
    #[error("restartable sequences: built without them; they need Linux on x86-64, and the feature std")]
    Target,
    /// The C library does not export where its rseq area is.
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
    #[error("restartable sequences: this thread is not registered (cpu_id {cpu_id}); create it with pthread_create")]
    ThreadNotRegistered {
        /// The `cpu_id` in the area: -1 before registration, -2 after one that failed.
        cpu_id: i32,
    },
    /// The kernel cannot restart the sequences of another CPU, so that CPU could never be drained.
    #[error(
        "restartable sequences: membarrier(REGISTER_PRIVATE_EXPEDITED_RSEQ): error {errno}; \
         the kernel must be 5.10 or later and no seccomp filter may refuse membarrier"
    )]
    NoMembarrier {
        /// The kernel's `errno`, positive.
        errno: i32,
    },
}

/// The memory is too small for stacks of that shape.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("per-CPU stacks: {given} words given, {needed} needed; see Shape::words")]
pub struct TooSmall {
    /// Words needed.
    pub needed: usize,
    /// Words given.
    pub given: usize,
}

/// Why a CPU was not stopped. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StopError {
    /// The stacks have no such CPU.
    #[error("stop CPU {cpu}: there are stacks only for CPUs below {cpus}")]
    NoSuchCpu {
        /// The CPU that was asked for.
        cpu: u32,
        /// Number of CPUs.
        cpus: u32,
    },
    /// Another thread has stopped it and has not dropped its [`Stopped`](super::Stopped) yet.
    #[error("stop CPU {cpu}: another thread has stopped it; try again later")]
    Stopped {
        /// The CPU.
        cpu: u32,
    },
    /// The kernel refused to restart what runs on the CPU.
    #[error("stop CPU {cpu}: membarrier(PRIVATE_EXPEDITED_RSEQ): error {errno}; is a seccomp filter in the way?")]
    Membarrier {
        /// The CPU.
        cpu: u32,
        /// The kernel's `errno`, positive.
        errno: i32,
    },
}
