//! What can be missing or go wrong: no restartable sequences, too little memory, a CPU that cannot be stopped.

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
    /// Another has stopped it, and not dropped its [`Stopped`](super::Stopped) yet.
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
