//! The parts of a named event: the sources that have it, how it is sampled, and how its samples are decoded.

use super::error::NamedError;
use isotherm_sys::perf::{Event, Rate};

/// The kind of samples of an event, which decides how they are decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Page faults, NUMA hint faults among them: the sample carries the address.
    Faults,
    /// Memory accesses, as by Intel's PEBS: the sample carries the address.
    Memory,
    /// Operations, by AMD's IBS: most are not accesses. [`isotherm_sys::perf::ibs::decode`] finds those that are in the
    /// raw part of the sample. A period has to be a multiple of 16.
    Ibs,
    /// Packets of Arm's SPE: found, but not decoded yet.
    Spe,
    /// Numbers from the user: the sample may carry an address or not.
    Raw,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Kind::Faults => "page faults",
            Kind::Memory => "PEBS",
            Kind::Ibs => "IBS",
            Kind::Spe => "SPE, not decoded yet",
            Kind::Raw => "raw",
        })
    }
}

/// One event of one event source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PmuEvent {
    /// The event source.
    pub pmu: String,
    /// The event.
    pub event: Event,
    /// An event that has to lead the group: without it the kernel refuses Intel's loads from Sapphire Rapids on.
    pub leader: Option<Event>,
    /// The CPUs that have it; `None` means all.
    pub cpus: Option<Vec<u32>>,
    /// The highest `precise_ip` that can be requested.
    pub most_precise: u8,
    /// Whether the source can exclude the kernel. One that cannot refuses `exclude_user` and `exclude_hv` as well.
    pub user_only: bool,
}

/// An event by its name on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedEvent {
    /// The name as given.
    pub name: String,
    /// How its samples are decoded.
    pub kind: Kind,
    /// Its events: one for each source that has it (hybrid CPUs have two), and two for page faults. Never empty.
    pub parts: Vec<PmuEvent>,
    /// Its description for users, in one sentence.
    pub what: &'static str,
    /// The rate at which it is sampled by default.
    pub default_rate: Rate,
}

/// Memory accesses per second and CPU: about 0.05% of its time at 250 ns a sample.
pub(super) const ACCESSES: Rate = Rate::Frequency(2000);
/// More for IBS, since most operations are not accesses.
pub(super) const OPERATIONS: Rate = Rate::Frequency(4000);
/// For events that are rare enough to sample each one.
pub(super) const EACH: Rate = Rate::Period(1);

impl NamedEvent {
    /// The event without the parts whose CPUs are all offline.
    pub(super) fn online(mut self) -> Result<NamedEvent, NamedError> {
        self.parts.retain(|part| part.cpus.as_ref().is_none_or(|cpus| !cpus.is_empty()));
        if !self.parts.is_empty() {
            return Ok(self);
        }
        Err(NamedError::NotHere {
            name: self.name,
            lacking: "the event sources that have it list no processors".to_owned(),
            advice: "bring a processor of that kind online",
        })
    }
}

/// The default rate of an event that is given by its numbers.
pub(super) fn default_rate(kind: Kind) -> Rate {
    match kind {
        Kind::Faults => EACH,
        Kind::Ibs => OPERATIONS,
        Kind::Memory | Kind::Spe | Kind::Raw => ACCESSES,
    }
}
