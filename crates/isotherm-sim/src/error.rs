//! Errors in the description of a host.

use isotherm_heat::Ns;
use isotherm_units::{AddrRange, Bytes};

/// Why a host cannot be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is not a host file: bad syntax, an unknown key, or an invalid size or time.
    #[error("host description: {0}")]
    Toml(#[from] toml::de::Error),
    /// No memory.
    #[error("the host has no memory; give it some: memory = \"2 TiB\"")]
    NoMemory,
    /// More processes and areas than a description of this length may create.
    #[error(
        "processes and areas would take {needed} of memory, and a description of this length may take {limit}: lower `count`, or \
         set ISOTHERM_MAX_MEMORY to allow more, such as ISOTHERM_MAX_MEMORY=4GiB"
    )]
    TooMuchMemory {
        /// Memory that they would take.
        needed: Bytes,
        /// Memory that they may take.
        limit: Bytes,
    },
    /// A pid that is used twice, 0, or too large.
    #[error("pid {0} is taken twice, or 0, or beyond 4194304; each process needs a unique pid")]
    Pid(u32),
    /// A name that the kernel would truncate.
    #[error("process {pid}: comm {comm:?} is longer than 15 bytes")]
    LongComm {
        /// The process.
        pid: u32,
        /// Its name.
        comm: String,
    },
    /// The place of an area is invalid.
    #[error("process {pid}: area {range:?}: {fault}")]
    Area {
        /// The process.
        pid: u32,
        /// The area.
        range: AddrRange,
        /// The fault.
        fault: AreaFault,
    },
    /// The heat of an area is invalid.
    #[error("process {pid}: area {range:?}: {source}")]
    Heat {
        /// The process.
        pid: u32,
        /// The area.
        range: AddrRange,
        /// The fault.
        source: Box<Error>,
    },
    /// The areas exceed the memory of the host.
    #[error("processes use {used}, the host has {memory}")]
    TooLittleMemory {
        /// Total size of the areas.
        used: Bytes,
        /// Memory of the host.
        memory: Bytes,
    },
    /// A page cannot be accessed every 0 ns.
    #[error("an interval of 0; the shortest is 1ns, and \"never\" is written as that")]
    ZeroInterval,
    /// A share or a deviation is out of range.
    #[error("{what} = {got}: a share is between 0 and 1, and a deviation above 0")]
    Share {
        /// Its name.
        what: &'static str,
        /// Its value.
        got: f64,
    },
    /// The edge of a Gaussian would be hotter than its middle.
    #[error("coldest is a shorter time than peak")]
    ColdestBelowPeak,
    /// An empty list of phases.
    #[error("phases = []: at least one is needed")]
    NoPhases,
    /// Phases are not in order of time.
    #[error("a phase until {until} ns is followed by one until {next} ns; only the last may omit \"until\"")]
    PhasesOutOfOrder {
        /// End of the first.
        until: Ns,
        /// End of the next phase.
        next: Ns,
    },
    /// Phases within phases.
    #[error("phases within phases")]
    PhasesInPhases,
    /// Physical memory cannot be divided into chunks of this size.
    #[error("chunks of {chunk}: a power of two is needed, at least {least} here, and at most the memory of {memory}")]
    Chunk {
        /// The size requested.
        chunk: Bytes,
        /// A page, or a huge range if there are huge pages.
        least: Bytes,
        /// The host's memory.
        memory: Bytes,
    },
    /// More hot memory, or more spans, than fit into the process.
    #[error("{hot} of hot memory in {spans} spans do not fit into {total}")]
    HotDoesNotFit {
        /// Hot memory requested.
        hot: Bytes,
        /// Number of spans.
        spans: usize,
        /// Memory of the process.
        total: Bytes,
    },
}

/// Why the place of an area is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AreaFault {
    /// It is empty.
    #[error("its size is 0")]
    Empty,
    /// It is not aligned to pages.
    #[error("start and size must be multiples of 4 KiB")]
    NotPages,
    /// It is not aligned to huge pages.
    #[error("start and size must be multiples of 2 MiB on huge pages")]
    NotPmds,
    /// It is in the kernel's half of the address space.
    #[error("it ends beyond user space, 128 TiB")]
    BeyondUserSpace,
    /// It overlaps another area.
    #[error("it overlaps with the area {0:?}")]
    Overlap(AddrRange),
}
