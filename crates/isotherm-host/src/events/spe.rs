//! Arm's SPE: found, named and composed; its packets are not decoded yet.

use super::error::NamedError;
use super::event::{Kind, NamedEvent, PmuEvent};
use super::names::{SPE, SPE_IS};
use super::part::{is_spe, part};
use super::pmu::Pmu;
use super::terms;
use isotherm_sys::perf::Rate;
use isotherm_sys::roots::HostRoots;

/// Arm's Statistical Profiling Extension.
pub(super) fn find(roots: &HostRoots) -> Result<NamedEvent, NamedError> {
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
    let parts = units.iter().map(plain_part).collect::<Result<_, _>>()?;
    NamedEvent { name: SPE.to_owned(), kind: Kind::Spe, parts, what: SPE_IS, default_rate: EVERY }.online()
}

/// Loads and stores of one source, and nothing else.
pub(super) fn plain_part(pmu: &Pmu) -> Result<PmuEvent, NamedError> {
    const ACCESSES_ONLY: [&str; 2] = ["load_filter", "store_filter"];
    let terms: Vec<_> = ACCESSES_ONLY.iter().map(|term| terms::Term::new(term, 1)).collect();
    part(pmu, pmu.compose(&terms)?)
}
