//! Access events by name: what this machine has to sample memory accesses with, and the numbers to open it by.
//!
//! The numbers come from sysfs: each event source says there which bits mean what and which events it knows, and that is
//! believed over any table, since the numbers change with every generation of processors. What sysfs does not list, the TLB
//! misses of Intel's processors, is still composed through the source's own formats. Everything is read below a root and
//! nothing is opened: that is the rings' business, which take the [`PmuEvent`]s; [`ibs`](isotherm_sys::perf::ibs) takes apart the samples of the one
//! source whose samples need it.
//!
//! A name that cannot be had is an error that says which file was missing or wrong: half a unit, as virtual machines offer
//! it, is more common than none.

mod amd;
mod error;
mod faults;
mod intel;
mod pmu;
mod raw;
mod spelled;
mod terms;
#[cfg(test)]
mod tests;

pub use error::{Found, NamedError};
pub use faults::makes_hint_faults;
pub use raw::RawEvent;

use isotherm_sys::perf::{Event, Rate};
use isotherm_sys::roots::HostRoots;
use pmu::Pmu;

/// What a report of an event is, and so how it is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Page faults, NUMA hint faults among them: the sample carries the address.
    Faults,
    /// Memory accesses, as by Intel's PEBS: the sample carries the address.
    Memory,
    /// Operations, by AMD's IBS: most are no access. [`ibs::decode`](isotherm_sys::perf::ibs::decode) tells by the raw part of the sample. A period has to be a
    /// multiple of 16.
    Ibs,
    /// Packets of Arm's SPE: found, but not decoded yet.
    Spe,
    /// Numbers from the user: the sample carries the address if it carries one.
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
    /// An event that has to lead the group: without it the kernel refuses Intel's loads, from Sapphire Rapids on.
    pub leader: Option<Event>,
    /// The processors that have it; `None` is all.
    pub cpus: Option<Vec<u32>>,
    /// The most that can be asked for in `precise_ip`.
    pub most_precise: u8,
    /// Whether the source can leave out the kernel. One that cannot refuses `exclude_user` and `exclude_hv` as well.
    pub user_only: bool,
}

/// An event by its name on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedEvent {
    /// As it was asked for.
    pub name: String,
    /// How its samples are decoded.
    pub kind: Kind,
    /// Its events: one for each source that has it (hybrid processors have two), and two for page faults. Never empty.
    pub parts: Vec<PmuEvent>,
    /// What it is, in a sentence for people.
    pub what: &'static str,
    /// How often it is sampled unless something else is asked for.
    pub default_rate: Rate,
}

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

/// Memory accesses a second and processor: about 0.05% of its time at 250 ns a sample.
const ACCESSES: Rate = Rate::Frequency(2000);
/// The most of IBS, as most operations are no accesses.
const OPERATIONS: Rate = Rate::Frequency(4000);
/// What is rare enough to be told each time.
const EACH: Rate = Rate::Period(1);

/// Events by plain names.
const NAMES: [&str; 11] = [
    intel::LOADS,
    intel::STORES,
    intel::STLB_LOADS,
    intel::STLB_STORES,
    amd::OPS,
    amd::OPS_L3_MISS,
    amd::OPS_LATENCY,
    SPE,
    faults::ALL,
    faults::MINOR,
    faults::MAJOR,
];

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
        (intel::LOADS, latency) => intel::loads(roots, name, latency),
        (intel::STORES, None) => intel::stores(roots),
        (intel::STLB_LOADS, None) => intel::stlb_loads(roots),
        (intel::STLB_STORES, None) => intel::stlb_stores(roots),
        (amd::OPS, options) => amd::ops(roots, name, options),
        (SPE, None) => spe(roots),
        (faults::ALL | faults::MINOR | faults::MAJOR, None) => Ok(faults::find(roots, name)),
        _ => Err(NamedError::Unknown { name: name.to_owned() }),
    }
}

/// Every plain name, with what was found or why it is not to be had here.
pub fn list(roots: &HostRoots) -> Vec<Candidate> {
    NAMES
        .into_iter()
        .map(|name| {
            let found = find(roots, name);
            let what = found.as_ref().map_or_else(|_| what_is(name), |event| event.what);
            Candidate { name, what, found }
        })
        .collect()
}

/// What a name stands for where it is not to be had.
fn what_is(name: &str) -> &'static str {
    match name {
        intel::LOADS => intel::LOADS_ARE,
        intel::STORES => intel::STORES_ARE,
        intel::STLB_LOADS => intel::STLB_LOADS_ARE,
        intel::STLB_STORES => intel::STLB_STORES_ARE,
        amd::OPS_L3_MISS => amd::L3_MISSES_ARE,
        amd::OPS_LATENCY => amd::SLOW_LOADS_ARE,
        SPE => SPE_IS,
        _ => amd::OPS_ARE,
    }
}

/// How an event source of this name samples memory accesses: what was found, or what stands against it. `None` if it is
/// not one of those that do.
pub(crate) fn samples_memory(roots: &HostRoots, pmu: &str) -> Option<Result<Kind, NamedError>> {
    let source = Pmu::open(&roots.sys, pmu).ok()?;
    let part = match pmu {
        amd::IBS_OP => amd::plain_part(&source),
        _ if is_spe(pmu) => spe_part(&source),
        _ if source.is_core() && source.has_event(intel::LOADS) => intel::loads_part(&source, None),
        _ => return None,
    };
    Some(part.map(|part| kind_of(&source, part.event)))
}

const SPE: &str = "spe";
const SPE_IS: &str = "loads and stores, by Arm's SPE, with their addresses; not decoded yet, so told but not sampled";

fn is_spe(pmu: &str) -> bool {
    pmu.starts_with("arm_spe_")
}

/// Arm's Statistical Profiling Extension.
fn spe(roots: &HostRoots) -> Result<NamedEvent, NamedError> {
    // Its period is in operations, and it has no frequency.
    const EVERY: Rate = Rate::Period(4096);
    let units: Vec<Pmu> = Pmu::all(&roots.sys)?.into_iter().filter(|pmu| is_spe(&pmu.name)).collect();
    if units.is_empty() {
        return Err(NamedError::NotHere {
            name: SPE.to_owned(),
            lacking: "there is no event source arm_spe_*".to_owned(),
            advice: "it takes an Arm processor with SPE, firmware that hands it out, and a kernel with CONFIG_ARM_SPE_PMU",
        });
    }
    let parts = units.iter().map(spe_part).collect::<Result<_, _>>()?;
    NamedEvent { name: SPE.to_owned(), kind: Kind::Spe, parts, what: SPE_IS, default_rate: EVERY }.online()
}

fn spe_part(pmu: &Pmu) -> Result<PmuEvent, NamedError> {
    const ACCESSES_ONLY: [&str; 2] = ["load_filter", "store_filter"];
    let terms: Vec<_> = ACCESSES_ONLY.iter().map(|term| terms::Term::new(term, 1)).collect();
    PmuEvent::new(pmu, pmu.compose(&terms)?)
}

impl NamedEvent {
    /// Without the parts whose processors are all offline.
    fn online(mut self) -> Result<NamedEvent, NamedError> {
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

impl PmuEvent {
    /// An event of a source, with what the source says about all of its events.
    fn new(pmu: &Pmu, event: Event) -> Result<PmuEvent, NamedError> {
        Ok(PmuEvent {
            pmu: pmu.name.clone(),
            leader: intel::leader(pmu, event)?,
            cpus: pmu.cpus()?,
            most_precise: most_precise(pmu, event)?,
            user_only: !pmu.name.starts_with("ibs_") || amd::filters(pmu, event),
            event,
        })
    }
}

/// What `precise_ip` may be. Sources that are exact by nature, and software, take none.
fn most_precise(pmu: &Pmu, event: Event) -> Result<u8, NamedError> {
    /// AMD's cores hand events that ask for it to IBS, which is as good as this.
    const OTHERWISE: u8 = 2;
    const PEBS: u8 = 3;
    if event.kind == faults::SOFTWARE || pmu.name.starts_with("ibs_") || is_spe(&pmu.name) {
        return Ok(0);
    }
    if !pmu.has_event(intel::LOADS) {
        return Ok(OTHERWISE);
    }
    Ok(pmu.max_precise()?.unwrap_or(PEBS).min(PEBS))
}

/// How samples of a source are decoded.
fn kind_of(pmu: &Pmu, event: Event) -> Kind {
    match pmu.name.as_str() {
        _ if faults::are(event) => Kind::Faults,
        amd::IBS_OP => Kind::Ibs,
        spe if is_spe(spe) => Kind::Spe,
        _ if pmu.is_core() && pmu.has_event(intel::LOADS) => Kind::Memory,
        _ => Kind::Raw,
    }
}

/// How often an event is sampled whose numbers somebody else chose.
fn default_rate(kind: Kind) -> Rate {
    match kind {
        Kind::Faults => EACH,
        Kind::Ibs => OPERATIONS,
        Kind::Memory | Kind::Spe | Kind::Raw => ACCESSES,
    }
}
