//! Access events by name: what this machine has to sample memory accesses with, and the numbers to open it by.
//!
//! The numbers come from sysfs: each event source says there which bits mean what and which events it knows, and that is
//! believed over any table, since the numbers change with every generation of processors. What sysfs does not list, the TLB
//! misses of Intel's processors, is still composed through the source's own formats. Everything is read below a root and
//! nothing is opened: that is the business of [`isotherm_sys::perf::Rings`], which take the [`PmuEvent`]s.
//!
//! `names` has the names, `event` the types, `pmu` and `terms` read what a source lists, `part` knows what goes for all events of a
//! source. One module a vendor composes its events of these (`intel`, `amd`, `spe`), and one each way to give numbers oneself
//! (`spelled`, `raw`); [`find`] picks among them. This is choice by vendor, and so not in `isotherm-sys`, which opens any numbers.
//!
//! A name that cannot be had is an error that says which file was missing or wrong: half a unit, as virtual machines offer
//! it, is more common than none.

mod amd;
mod error;
mod event;
mod faults;
mod intel;
mod names;
mod part;
mod pmu;
mod raw;
mod spe;
mod spelled;
mod terms;
#[cfg(test)]
mod tests;

pub use error::{Found, NamedError};
pub use event::{Kind, NamedEvent, PmuEvent};
pub use faults::makes_hint_faults;
pub use raw::RawEvent;

use isotherm_sys::roots::HostRoots;
use pmu::Pmu;

/// A name, and what came of it here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The name.
    pub name: &'static str,
    /// What it is, in a sentence for people.
    pub what: &'static str,
    /// The event, or why it is not to be had.
    pub found: Result<NamedEvent, NamedError>,
}

/// Finds an event by its name: one of those that [`list`] lists, or
///
/// - `mem-loads:LDLAT`, with the cycles from which on a load counts (30 if not given);
/// - `ibs-op:l3miss`, `ibs-op:ldlat=CYCLES`, where the processor has these;
/// - `PMU/TERM[=VALUE],.../` as perf spells it, with the terms and events that the source lists in sysfs;
/// - `raw:TYPE:CONFIG[:CONFIG1[:CONFIG2[:CONFIG3]]]`, decimal or hexadecimal with `0x`.
pub fn find(roots: &HostRoots, name: &str) -> Result<NamedEvent, NamedError> {
    if let Some(numbers) = name.strip_prefix("raw:") {
        return raw::find(roots, name, numbers);
    }
    if name.contains('/') {
        return spelled::find(roots, name);
    }
    let (plain, options) = name.split_once(':').map_or((name, None), |(plain, options)| (plain, Some(options)));
    match (plain, options) {
        (names::LOADS, latency) => intel::loads(roots, name, latency),
        (names::STORES, None) => intel::stores(roots),
        (names::STLB_LOADS, None) => intel::stlb_loads(roots),
        (names::STLB_STORES, None) => intel::stlb_stores(roots),
        (names::OPS, options) => amd::ops(roots, name, options),
        (names::SPE, None) => spe::find(roots),
        (names::FAULTS | names::MINOR_FAULTS | names::MAJOR_FAULTS, None) => Ok(faults::find(roots, name)),
        _ => Err(NamedError::Unknown { name: name.to_owned() }),
    }
}

/// Every plain name, with what was found or why it is not to be had here.
pub fn list(roots: &HostRoots) -> Vec<Candidate> {
    names::NAMES
        .into_iter()
        .map(|name| {
            let found = find(roots, name);
            let what = found.as_ref().map_or_else(|_| names::what_is(name), |event| event.what);
            Candidate { name, what, found }
        })
        .collect()
}

/// How an event source of this name samples memory accesses: what was found, or what stands against it. `None` if it is
/// not one of those that do.
pub(crate) fn samples_memory(roots: &HostRoots, pmu: &str) -> Option<Result<Kind, NamedError>> {
    let source = Pmu::open(&roots.sys, pmu).ok()?;
    let part = match pmu {
        part::IBS_OP => amd::plain_part(&source),
        _ if part::is_spe(pmu) => spe::plain_part(&source),
        _ if source.is_core() && source.has_event(names::LOADS) => intel::loads_part(&source, None),
        _ => return None,
    };
    Some(part.map(|part| part::kind_of(&source, part.event)))
}
