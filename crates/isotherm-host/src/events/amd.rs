//! AMD's instruction-based sampling, `ibs_op`: every nth operation is tracked through the core.
//!
//! It counts operations (`cnt_ctl`) and not cycles, which would favour slow operations. The hardware cannot exclude the
//! kernel. Kernels that can filter its samples (`swfilt`) are asked to; others refuse every exclusion.

use super::error::NamedError;
use super::event::{Kind, NamedEvent, OPERATIONS, PmuEvent};
use super::names::{L3_MISSES_ARE, OPS, OPS_ARE, SLOW_LOADS_ARE};
use super::part::{self, FILTER, IBS_OP};
use super::pmu::Pmu;
use super::terms::{self, Term};
use isotherm_sys::roots::HostRoots;

const COUNT_OPERATIONS: &str = "cnt_ctl";
const L3_MISS_ONLY: &str = "l3missonly";
const LATENCY: &str = "ldlat";

/// `ibs-op`, with options after colons.
pub(super) fn ops(roots: &HostRoots, name: &str, options: Option<&str>) -> Result<NamedEvent, NamedError> {
    let options: Vec<Term> =
        options.into_iter().flat_map(|all| all.split(':')).map(|o| option(name, o)).collect::<Result<_, _>>()?;
    let pmu = open(roots)?;
    let what = match options.last().map(|term| term.name.as_str()) {
        Some(LATENCY) => SLOW_LOADS_ARE,
        Some(_) => L3_MISSES_ARE,
        None => OPS_ARE,
    };
    let parts = vec![part(&pmu, options)?];
    NamedEvent { name: name.to_owned(), kind: Kind::Ibs, parts, what, default_rate: OPERATIONS }.online()
}

fn open(roots: &HostRoots) -> Result<Pmu, NamedError> {
    let found = Pmu::all(&roots.sys)?.into_iter().find(|pmu| pmu.name == IBS_OP);
    found.ok_or_else(nowhere)
}

fn nowhere() -> NamedError {
    NamedError::NotHere {
        name: OPS.to_owned(),
        lacking: "there is no event source ibs_op".to_owned(),
        advice: "it takes an AMD processor, and in a virtual machine one that hands IBS on; else try mem-loads, or faults",
    }
}

fn option(name: &str, option: &str) -> Result<Term, NamedError> {
    if option == "l3miss" {
        return Ok(Term::new(L3_MISS_ONLY, 1));
    }
    let cycles = option.strip_prefix("ldlat=").and_then(terms::number).ok_or_else(|| NamedError::Malformed {
        name: name.to_owned(),
        part: option.to_owned(),
        expected: "l3miss or ldlat=CYCLES behind the colon",
    })?;
    // The kernel refuses other values with a bare EINVAL.
    if !(128..=2048).contains(&cycles) {
        return Err(NamedError::OutOfRange { term: LATENCY, value: cycles, expected: "128 to 2048 cycles" });
    }
    Ok(Term::new(LATENCY, cycles))
}

/// Operations of any kind.
pub(super) fn plain_part(pmu: &Pmu) -> Result<PmuEvent, NamedError> {
    part(pmu, Vec::new())
}

fn part(pmu: &Pmu, options: Vec<Term>) -> Result<PmuEvent, NamedError> {
    let mut terms = vec![Term::new(COUNT_OPERATIONS, 1)];
    // Has no effect until something is excluded.
    if pmu.has_term(FILTER) {
        terms.push(Term::new(FILTER, 1));
    }
    terms.extend(options);
    part::part(pmu, pmu.compose(&terms)?)
}
