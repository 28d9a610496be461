//! An event of one source, with what all events of that source have in common: leader, CPUs, and highest precision.
//!
//! This module knows which source belongs to which vendor, by its name and by what it lists. The modules of the vendors
//! choose the numbers and make the part through [`part`].

use super::error::NamedError;
use super::event::{Kind, PmuEvent};
use super::names::LOADS;
use super::pmu::Pmu;
use isotherm_sys::perf::Event;

/// The event source of AMD's IBS for operations.
pub(super) const IBS_OP: &str = "ibs_op";
/// Its term that makes the kernel filter out its own samples.
pub(super) const FILTER: &str = "swfilt";
/// The event that has to lead loads.
const AUXILIARY: &str = "mem-loads-aux";
/// `PERF_TYPE_SOFTWARE`.
pub(super) const SOFTWARE: u32 = Event::PAGE_FAULTS.kind;

/// An event of a source, with what the source lists for all of its events.
pub(super) fn part(pmu: &Pmu, event: Event) -> Result<PmuEvent, NamedError> {
    Ok(PmuEvent {
        pmu: pmu.name.clone(),
        leader: leader(pmu, event)?,
        cpus: pmu.cpus()?,
        most_precise: most_precise(pmu, event)?,
        user_only: !pmu.name.starts_with("ibs_") || filters(pmu, event),
        event,
    })
}

pub(super) fn is_spe(pmu: &str) -> bool {
    pmu.starts_with("arm_spe_")
}

/// Whether an event of IBS can exclude the kernel.
fn filters(pmu: &Pmu, event: Event) -> bool {
    pmu.has_term(FILTER) && pmu.field(FILTER).is_ok_and(|field| field.get(event) != 0)
}

/// The leader that an event needs: only loads by latency need one, and only if the source lists an auxiliary event for
/// them.
fn leader(pmu: &Pmu, event: Event) -> Result<Option<Event>, NamedError> {
    if !pmu.has_event(AUXILIARY) || !pmu.has_event(LOADS) {
        return Ok(None);
    }
    // However they were specified, and with any latency.
    if pmu.compose(&pmu.event_terms(LOADS)?)?.config != event.config {
        return Ok(None);
    }
    pmu.compose(&pmu.event_terms(AUXILIARY)?).map(Some)
}

/// The highest possible `precise_ip`. Sources that are exact by nature, and software, accept none.
fn most_precise(pmu: &Pmu, event: Event) -> Result<u8, NamedError> {
    /// AMD's cores pass events that ask for it on to IBS, which is as good as this.
    const OTHERWISE: u8 = 2;
    const PEBS: u8 = 3;
    if event.kind == SOFTWARE || pmu.name.starts_with("ibs_") || is_spe(&pmu.name) {
        return Ok(0);
    }
    if !pmu.has_event(LOADS) {
        return Ok(OTHERWISE);
    }
    Ok(pmu.max_precise()?.unwrap_or(PEBS).min(PEBS))
}

/// How samples of a source are decoded.
pub(super) fn kind_of(pmu: &Pmu, event: Event) -> Kind {
    match pmu.name.as_str() {
        _ if are_faults(event) => Kind::Faults,
        IBS_OP => Kind::Ibs,
        spe if is_spe(spe) => Kind::Spe,
        _ if pmu.is_core() && pmu.has_event(LOADS) => Kind::Memory,
        _ => Kind::Raw,
    }
}

/// Whether an event is page faults, of any kind.
pub(super) fn are_faults(event: Event) -> bool {
    [Event::PAGE_FAULTS, Event::MINOR_FAULTS, Event::MAJOR_FAULTS].contains(&event)
}
