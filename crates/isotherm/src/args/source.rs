//! Which source, and how it clears accessed bits. [`crate::request`] makes a request to the sources of it.

use clap::ValueEnum;

/// Where access reports come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SourceArg {
    /// The best that this machine and your privileges offer
    #[default]
    Auto,
    /// Page by page through BPF: needs root, or CAP_BPF, CAP_PERFMON, CAP_SYSLOG, CAP_SYS_PTRACE and CAP_SYS_NICE
    PageTable,
    /// Sampled accesses, as perf events report them: see --event; your own processes without privilege
    Perf,
    /// Sampled accesses to physical memory as a whole; takes no targets, needs CAP_PERFMON
    PerfPaddr,
    /// By mapping through clear_refs and smaps: your own processes, no privilege
    Referenced,
    /// By region through the kernel's DAMON, if it is not in use: needs root and tracefs
    Damon,
    /// Physical memory as a whole through the kernel's DAMON; takes no targets
    DamonPaddr,
}

impl SourceArg {
    /// Whether it watches the machine as a whole, so that it needs no targets.
    pub fn is_machine(self) -> bool {
        matches!(self, SourceArg::DamonPaddr | SourceArg::PerfPaddr)
    }
}

/// How accessed bits are cleared, by a source that sees pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ClearArg {
    /// MADV_COLD, and clear_refs where that is refused, or would make pages in use leave for swap
    #[default]
    Auto,
    /// MADV_COLD only: locked and shared pages stay unmeasured
    Cold,
    /// clear_refs only: may stall the targets, and on kernels with soft-dirty tracking does not flush the TLB
    Refs,
    /// Aging of the kernel's multi-generation LRU: clears the bits of all processes in the cgroups of the targets
    Mglru,
}
