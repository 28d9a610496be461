//! Events in the syntax of perf: `cpu/mem-loads,ldlat=50/`.

use super::error::NamedError;
use super::event::{NamedEvent, default_rate};
use super::part::{kind_of, part};
use super::pmu::Pmu;
use super::terms::{self, Term};
use isotherm_sys::roots::HostRoots;

const WHAT: &str = "an event in the terms of its source";

/// An event as `PMU/TERM[=VALUE],.../`.
pub(super) fn find(roots: &HostRoots, name: &str) -> Result<NamedEvent, NamedError> {
    let (pmu, terms) = parse(name)?;
    let pmu = Pmu::open(&roots.sys, pmu)?;
    let part = part(&pmu, pmu.compose(&terms)?)?;
    let kind = kind_of(&pmu, part.event);
    let (name, parts, default_rate) = (name.to_owned(), vec![part], default_rate(kind));
    NamedEvent { name, kind, parts, what: WHAT, default_rate }.online()
}

fn parse(name: &str) -> Result<(&str, Vec<Term>), NamedError> {
    let malformed =
        |part: &str, expected| NamedError::Malformed { name: name.to_owned(), part: part.to_owned(), expected };
    let (pmu, rest) = name.split_once('/').unwrap_or((name, ""));
    if !terms::is_file_name(pmu) {
        return Err(malformed(pmu, "the name of an event source before the first slash"));
    }
    let list =
        rest.strip_suffix('/').ok_or_else(|| malformed(rest, "a slash at the end, and no modifiers behind it"))?;
    let terms = if list.trim().is_empty() {
        Vec::new()
    } else {
        // Before the values are parsed: a name is no number.
        list.split(',').try_for_each(|term| refuse(name, term))?;
        terms::parse(list).map_err(|term| malformed(term, "terms such as event=0xcd, with numbers as values"))?
    };
    Ok((pmu, terms))
}

/// Rejects terms that perf accepts but that are not part of the event.
fn refuse(name: &str, term: &str) -> Result<(), NamedError> {
    let Some((term, _)) = term.split_once('=') else { return Ok(()) };
    let advice = match term.trim() {
        "name" => "events go by the name they are asked for with",
        "period" | "freq" => "how often to sample is an option of its own",
        _ => return Ok(()),
    };
    Err(NamedError::Refused { name: name.to_owned(), term: term.trim().to_owned(), advice })
}
