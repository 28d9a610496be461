//! Events by their bare numbers: as `raw:TYPE:CONFIG...`, and in the order of damo.

use super::error::NamedError;
use super::event::{Kind, NamedEvent, PmuEvent, default_rate};
use super::part::{self, SOFTWARE, are_faults, kind_of};
use super::pmu::Pmu;
use super::terms::number;
use isotherm_sys::perf::{Event, Rate};
use isotherm_sys::roots::HostRoots;
use std::str::FromStr;

const WHAT: &str = "an event by its numbers";
/// For numbers of a source that sysfs does not list, above all `PERF_TYPE_RAW`: what the cores of most CPUs accept.
const MAX_PRECISE: u8 = 2;

/// An event as damo takes it: `FREQ PHYS TYPE CONFIG CONFIG1 CONFIG2`, and optionally `CONFIG3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawEvent {
    /// Samples per second and CPU.
    pub frequency: u64,
    /// Whether physical addresses are wanted as well.
    pub physical: bool,
    /// The event.
    pub event: Event,
}

impl RawEvent {
    /// The event with what this machine lists about its source, to be sampled at that rate.
    pub fn named(&self, roots: &HostRoots) -> Result<NamedEvent, NamedError> {
        let Event { kind, config, config1, config2, config3 } = self.event;
        let name = format!("raw:{kind}:{config:#x}:{config1:#x}:{config2:#x}:{config3:#x}");
        let found = of_numbers(roots, &name, self.event)?;
        Ok(NamedEvent { default_rate: Rate::Frequency(self.frequency), ..found })
    }
}

impl FromStr for RawEvent {
    type Err = NamedError;

    fn from_str(text: &str) -> Result<RawEvent, NamedError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let [frequency, physical, numbers @ ..] = words.as_slice() else { return Err(too_few_or_many(text)) };
        if !(4..=5).contains(&numbers.len()) {
            return Err(too_few_or_many(text));
        }
        let event = event(text, numbers)?;
        let wrong = |part: &str, expected| Err(malformed(text, part, expected));
        let Some(frequency) = number(frequency).filter(|f| *f > 0) else {
            return wrong(frequency, "samples a second, 1 or more");
        };
        let Some(physical) = yes_or_no(physical) else { return wrong(physical, "0 or 1, false or true, no or yes") };
        Ok(RawEvent { frequency, physical, event })
    }
}

fn too_few_or_many(text: &str) -> NamedError {
    malformed(text, text, "six or seven words: FREQ PHYS TYPE CONFIG CONFIG1 CONFIG2 [CONFIG3]")
}

fn yes_or_no(word: &str) -> Option<bool> {
    match word.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "y" => Some(true),
        "0" | "false" | "no" | "n" => Some(false),
        _ => None,
    }
}

fn malformed(name: &str, part: &str, expected: &'static str) -> NamedError {
    NamedError::Malformed { name: name.to_owned(), part: part.to_owned(), expected }
}

/// A type, and up to four numbers after it.
fn event(name: &str, numbers: &[&str]) -> Result<Event, NamedError> {
    const TYPE: &str = "the number of an event type, below 2^32";
    let (kind, configs) = numbers.split_first().ok_or_else(|| malformed(name, "", TYPE))?;
    let kind = number(kind).and_then(|n| u32::try_from(n).ok()).ok_or_else(|| malformed(name, kind, TYPE))?;
    let mut values = [0; 4];
    for (value, text) in values.iter_mut().zip(configs) {
        *value = number(text).ok_or_else(|| malformed(name, text, "a number, decimal or 0x and hexadecimal"))?;
    }
    let [config, config1, config2, config3] = values;
    Ok(Event { kind, config, config1, config2, config3 })
}

/// An event as `raw:TYPE:CONFIG[:CONFIG1[:CONFIG2[:CONFIG3]]]`.
pub(super) fn find(roots: &HostRoots, name: &str, numbers: &str) -> Result<NamedEvent, NamedError> {
    let numbers: Vec<&str> = numbers.split(':').collect();
    if !(2..=5).contains(&numbers.len()) {
        return Err(malformed(name, name, "raw:TYPE:CONFIG[:CONFIG1[:CONFIG2[:CONFIG3]]]"));
    }
    of_numbers(roots, name, event(name, &numbers)?)
}

/// Numbers are used as given. What their source adds is read if sysfs lists the source.
fn of_numbers(roots: &HostRoots, name: &str, event: Event) -> Result<NamedEvent, NamedError> {
    let sources = Pmu::all(&roots.sys).unwrap_or_default();
    let source = sources.iter().find(|pmu| pmu.type_id() == Ok(event.kind));
    // A source with an error in its files may still work: numbers are the way to try it.
    let Some((pmu, part)) = source.and_then(|pmu| Some((pmu, part::part(pmu, event).ok()?))) else {
        return Ok(without_source(name, event));
    };
    let kind = match kind_of(pmu, event) {
        // Of a core, but not known to be about memory.
        Kind::Memory => Kind::Raw,
        kind => kind,
    };
    let part =
        if kind == Kind::Raw && event.kind != SOFTWARE { PmuEvent { most_precise: MAX_PRECISE, ..part } } else { part };
    let (name, parts, default_rate) = (name.to_owned(), vec![part], default_rate(kind));
    NamedEvent { name, kind, parts, what: WHAT, default_rate }.online()
}

fn without_source(name: &str, event: Event) -> NamedEvent {
    let kind = if are_faults(event) { Kind::Faults } else { Kind::Raw };
    let most_precise = if event.kind == SOFTWARE { 0 } else { MAX_PRECISE };
    let pmu = format!("type {}", event.kind);
    let part = PmuEvent { pmu, event, leader: None, cpus: None, most_precise, user_only: true };
    NamedEvent { name: name.to_owned(), kind, parts: vec![part], what: WHAT, default_rate: default_rate(kind) }
}
