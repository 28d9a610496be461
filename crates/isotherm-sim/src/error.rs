//! What can be wrong with the description of a host.

use isotherm_heat::Ns;
use isotherm_units::{AddrRange, Bytes};

/// Why a host cannot be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is no host file: bad syntax, an unknown key, a size or time that cannot be read.
    #[error("host description: {0}")]
    Toml(#[from] toml::de::Error),
    /// No memory.
    #[error("the host has no memory; give it some: memory = \"2 TiB\"")]
    NoMemory,
    /// More processes and areas than should be described in so few words.
    #[error(
        "processes and areas would take {needed} of memory, and a description of this length may take {limit}: lower `count`, or \
         set ISOTHERM_MAX_MEMORY to allow more, such as ISOTHERM_MAX_MEMORY=4GiB"
    )]
    TooMuchMemory {
        /// What they would take.
        needed: Bytes,
        /// What they may.
        limit: Bytes,
    },
    /// Two processes share a pid, or one is 0.
    #[error("pid {0} is taken twice, or 0, or beyond 4194304; each process needs one of its own")]
    Pid(u32),
    /// A name that the kernel would cut.
    #[error("process {pid}: comm {comm:?} is longer than 15 bytes")]
    LongComm {
        /// The process.
        pid: u32,
        /// Its name.
        comm: String,
    },
    /// Something is wrong with an area's place.
    #[error("process {pid}: area {range:?}: {fault}")]
    Area {
        /// The process.
        pid: u32,
        /// The area.
        range: AddrRange,
        /// What is wrong.
        fault: AreaFault,
    },
    /// Something is wrong with an area's heat.
    #[error("process {pid}: area {range:?}: {source}")]
    Heat {
        /// The process.
        pid: u32,
        /// The area.
        range: AddrRange,
        /// What is wrong.
        source: Box<Error>,
    },
    /// The areas add up to more than there is.
    #[error("processes use {used}, the host has {memory}")]
    TooLittleMemory {
        /// What the areas add up to.
        used: Bytes,
        /// What there is.
        memory: Bytes,
    },
    /// A page cannot be accessed every 0 ns.
    #[error("an interval of 0; the shortest is 1ns, and \"never\" is written as that")]
    ZeroInterval,
    /// A share or deviation out of range.
    #[error("{what} = {got}: a share is between 0 and 1, and a deviation above 0")]
    Share {
        /// Its name.
        what: &'static str,
        /// Its value.
        got: f64,
    },
    /// The edge of a Gaussian is hotter than its middle.
    #[error("coldest is a shorter time than peak")]
    ColdestBelowPeak,
    /// Phases, but none.
    #[error("phases = []: at least one is needed")]
    NoPhases,
    /// Phases do not follow one another.
    #[error("a phase until {until} ns is followed by one until {next} ns; only the last may leave out \"until\"")]
    PhasesOutOfOrder {
        /// End of the first.
        until: Ns,
        /// End of the one after it.
        next: Ns,
    },
    /// Phases within phases.
    #[error("phases within phases")]
    PhasesInPhases,
    /// Physical memory cannot be cut like this.
    #[error("chunks of {chunk}: a power of two is needed, at least {least} here, and at most the memory of {memory}")]
    Chunk {
        /// What was asked.
        chunk: Bytes,
        /// A page, or a block if there are huge pages.
        least: Bytes,
        /// The host's memory.
        memory: Bytes,
    },
    /// More hot memory, or more spans, than fit.
    #[error("{hot} of hot memory in {spans} spans do not fit into {total}")]
    HotDoesNotFit {
        /// Hot memory asked for.
        hot: Bytes,
        /// In how many spans.
        spans: usize,
        /// Memory of the process.
        total: Bytes,
    },
}

/// What can be wrong with an area's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AreaFault {
    /// Nothing in it.
    #[error("its size is 0")]
    Empty,
    /// Half pages.
    #[error("start and size must be multiples of 4 KiB")]
    NotPages,
    /// Half huge pages.
    #[error("start and size must be multiples of 2 MiB on huge pages")]
    NotBlocks,
    /// The kernel's half of the address space.
    #[error("it ends beyond user space, 128 TiB")]
    BeyondUserSpace,
    /// Two areas at one address.
    #[error("it overlaps with the area {0:?}")]
    Overlap(AddrRange),
}
