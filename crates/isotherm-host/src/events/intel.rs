//! Events of CPU cores that carry the address of the access: PEBS on Intel's CPUs.
//!
//! Loads and stores are in sysfs. Accesses that missed in the second-level TLB are not, although they show best what
//! huge pages would gain. Their numbers have been the same since Haswell, on big cores (`MEM_INST_RETIRED`, formerly
//! `MEM_UOPS_RETIRED`) and on small ones (`MEM_UOPS_RETIRED`).

use super::error::{Found, NamedError};
use super::event::{ACCESSES, Kind, NamedEvent, PmuEvent};
use super::names::{LOADS, LOADS_ARE, STLB_LOADS, STLB_LOADS_ARE, STLB_STORES, STLB_STORES_ARE, STORES, STORES_ARE};
use super::part::part;
use super::pmu::{self, Pmu};
use super::terms::{self, Term};
use isotherm_sys::perf::Event;
use isotherm_sys::roots::HostRoots;
use std::path::Path;

/// The lowest latency of loads that count.
const LATENCY: &str = "ldlat";
/// The default of perf: beyond the second-level cache. The kernel's list has 3, which is every load.
const DEFAULT_LATENCY: u64 = 30;

/// `mem-loads` and `mem-loads:LDLAT`.
pub(super) fn loads(roots: &HostRoots, name: &str, latency: Option<&str>) -> Result<NamedEvent, NamedError> {
    let latency = latency.map(|text| cycles(name, text)).transpose()?;
    of_cores(roots, name, LOADS, LOADS_ARE, |pmu| loads_part(pmu, latency))
}

/// An event with a part for each source that lists the event `listed`.
fn of_cores(
    roots: &HostRoots,
    name: &str,
    listed: &str,
    what: &'static str,
    part: impl Fn(&Pmu) -> Result<PmuEvent, NamedError>,
) -> Result<NamedEvent, NamedError> {
    let cores = Pmu::cores(&roots.sys)?;
    let with_event: Vec<&Pmu> = cores.iter().filter(|pmu| pmu.has_event(listed)).collect();
    if with_event.is_empty() {
        return Err(nowhere(&cores, name, listed));
    }
    let parts = with_event.into_iter().map(part).collect::<Result<_, _>>()?;
    NamedEvent { name: name.to_owned(), kind: Kind::Memory, parts, what, default_rate: ACCESSES }.online()
}

fn nowhere(cores: &[Pmu], name: &str, listed: &str) -> NamedError {
    let names: Vec<&str> = cores.iter().map(|pmu| pmu.name.as_str()).collect();
    let lacking = if names.is_empty() {
        "there is no event source cpu or cpu_*".to_owned()
    } else {
        format!("event source {} has no events/{listed}", names.join(", "))
    };
    let advice =
        "it takes a processor with PEBS, and in a virtual machine one that hands it on; else try ibs-op, or faults";
    NamedError::NotHere { name: name.to_owned(), lacking, advice }
}

fn cycles(name: &str, text: &str) -> Result<u64, NamedError> {
    let malformed = || NamedError::Malformed {
        name: name.to_owned(),
        part: text.to_owned(),
        expected: "a number of cycles behind the colon",
    };
    terms::number(text).ok_or_else(malformed)
}

/// Loads of one source. Not every source with loads accepts a latency. If one is given, it must be accepted.
pub(super) fn loads_part(pmu: &Pmu, latency: Option<u64>) -> Result<PmuEvent, NamedError> {
    let default = pmu.has_term(LATENCY).then_some(DEFAULT_LATENCY);
    let mut terms = pmu.event_terms(LOADS)?;
    terms.extend(latency.or(default).map(|cycles| Term::new(LATENCY, cycles)));
    precise(pmu, pmu.compose(&terms)?)
}

/// `mem-stores`.
pub(super) fn stores(roots: &HostRoots) -> Result<NamedEvent, NamedError> {
    of_cores(roots, STORES, STORES, STORES_ARE, |pmu| precise(pmu, pmu.compose(&pmu.event_terms(STORES)?)?))
}

/// `stlb-loads`.
pub(super) fn stlb_loads(roots: &HostRoots) -> Result<NamedEvent, NamedError> {
    stlb(roots, STLB_LOADS, 0x11, STLB_LOADS_ARE)
}

/// `stlb-stores`.
pub(super) fn stlb_stores(roots: &HostRoots) -> Result<NamedEvent, NamedError> {
    stlb(roots, STLB_STORES, 0x12, STLB_STORES_ARE)
}

fn stlb(roots: &HostRoots, name: &'static str, umask: u64, what: &'static str) -> Result<NamedEvent, NamedError> {
    knows_stlb(&roots.proc, name)?;
    of_cores(roots, name, LOADS, what, |pmu| {
        has_known_loads(pmu, name)?;
        precise(pmu, pmu.compose(&[Term::new("event", 0xd0), Term::new("umask", umask)])?)
    })
}

/// Whether the numbers for TLB misses are known for this CPU, by `/proc/cpuinfo`.
fn knows_stlb(proc: &Path, name: &'static str) -> Result<(), NamedError> {
    const EXPECTED: &str = "a line vendor_id";
    const WANTED: &str = "Intel (GenuineIntel) from Haswell on";
    /// Sandy Bridge and Ivy Bridge count them, but report addresses for loads by latency only.
    const WITHOUT_ADDRESS: [&str; 4] = ["42", "45", "58", "62"];
    let path = proc.join("cpuinfo");
    let text = pmu::read(&path, EXPECTED)?;
    let value = |key: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(k, _)| k.trim() == key).map(|(_, value)| value.trim().to_owned())
    };
    let other = |found: String| Err(NamedError::Vendor { name, wanted: WANTED, found, path: path.clone() });
    match value("vendor_id") {
        None => {
            let first = text.lines().next().unwrap_or_default().to_owned();
            Err(pmu::file_error(&path, EXPECTED, Found::Text(first)))
        }
        Some(vendor) if vendor != "GenuineIntel" => other(vendor),
        Some(vendor) => match (value("cpu family").as_deref(), value("model")) {
            (Some("6"), Some(model)) if WITHOUT_ADDRESS.contains(&model.as_str()) => {
                other(format!("{vendor}, model {model}"))
            }
            _ => Ok(()),
        },
    }
}

/// A second check, by the loads. Before Sandy Bridge, loads and TLB misses had other numbers, and 0xd0 was something
/// else.
fn has_known_loads(pmu: &Pmu, name: &str) -> Result<(), NamedError> {
    const KNOWN: [u64; 2] = [0xcd, 0xd0];
    let terms = pmu.event_terms(LOADS)?;
    let number = terms.iter().find(|term| term.name == "event").and_then(|term| term.value);
    if number.is_some_and(|n| KNOWN.contains(&n)) {
        return Ok(());
    }
    Err(NamedError::NotHere {
        name: name.to_owned(),
        lacking: format!(
            "the loads of event source {} are not event 0xcd or 0xd0, so its TLB misses are not known",
            pmu.name
        ),
        advice: "give the event of this processor as PMU/event=...,umask=.../",
    })
}

/// An event that carries an address only if it is precise.
fn precise(pmu: &Pmu, event: Event) -> Result<PmuEvent, NamedError> {
    const EXPECTED: &str = "1 or more, as only precise samples carry addresses";
    let part = part(pmu, event)?;
    if part.most_precise == 0 {
        return Err(pmu::file_error(&pmu.max_precise_path(), EXPECTED, Found::Text("0".to_owned())));
    }
    Ok(part)
}
