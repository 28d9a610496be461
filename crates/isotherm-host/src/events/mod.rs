//! Access events by name: what this machine has to sample memory accesses with, and the numbers to open it with.
//!
//! The numbers come from sysfs: each event source lists there which bits mean what and which events it has. This takes
//! precedence over any table, since the numbers change with every generation of CPUs. The TLB misses of Intel's CPUs
//! are not in sysfs, but they are composed through the source's own formats. Everything is read below a root and
//! nothing is opened: [`isotherm_sys::perf::Rings`] does that with the [`PmuEvent`]s.
//!
//! `names` has the names and `event` the types; `pmu` and `terms` read what a source lists; `part` adds what all events
//! of a source have in common. Each vendor has a module that composes its events of these (`intel`, `amd`, `spe`), and
//! each syntax for numbers from users has one (`spelled`, `raw`); [`find`] picks among them. The choice depends on the
//! vendor, so it is not in `isotherm-sys`, which opens any numbers.
//!
//! If a name is not available, the error names the file that was missing or wrong: half of a PMU, as virtual machines
//! offer it, is more common than none.

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
pub use names::MAJOR_FAULTS;
pub use raw::RawEvent;

use isotherm_sys::roots::HostRoots;
use pmu::Pmu;

/// A name, and its event on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The name.
    pub name: &'static str,
    /// Its description for users, in one sentence.
    pub what: &'static str,
    /// The event, or why it is not available.
    pub found: Result<NamedEvent, NamedError>,
}

/// Finds an event by its name: one of those that [`list`] lists, or
///
/// - `mem-loads:LDLAT`, with the lowest latency that counts, in cycles (30 if not given);
/// - `ibs-op:l3miss`, `ibs-op:ldlat=CYCLES`, where the CPU has these;
/// - `PMU/TERM[=VALUE],.../` in the syntax of perf, with the terms and events that the source lists in sysfs;
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

/// Every plain name, with its event or the reason why it is not available here.
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

/// How the event source of this name samples memory accesses, or what prevents it. `None` if it is not of a kind that
/// samples them.
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
