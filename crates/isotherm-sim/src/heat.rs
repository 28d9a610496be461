//! How hot a range is. These are the terms in which hosts are described.

use crate::error::Error;
use crate::quantity::{self, Time};
use isotherm_heat::Ns;
use serde::Deserialize;

/// Steps in which a Gaussian falls off: the interval grows by 2^(1/4), 19%, from one to the next.
const STEPS_PER_OCTAVE: f64 = 4.0;
/// The default cut-off of a Gaussian: pages with a longer interval than this are never accessed.
const COLDEST: Ns = 3_600_000_000_000;

/// How each page of a range is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "AccessText")]
pub enum Access {
    /// Never.
    Never,
    /// Once in this many nanoseconds exactly, each page at its own phase: a sweep.
    Every(Ns),
    /// At random times (a Poisson process) with this mean interval, in ns: keys drawn at random.
    Poisson(Ns),
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum AccessText {
    Never,
    Every(Time),
    Poisson(Time),
}

impl From<AccessText> for Access {
    fn from(text: AccessText) -> Access {
        match text {
            AccessText::Never => Access::Never,
            AccessText::Every(t) => Access::Every(t.0),
            AccessText::Poisson(t) => Access::Poisson(t.0),
        }
    }
}

/// The heat of an area.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "HeatText")]
pub enum Heat {
    /// The same for all pages.
    Uniform(Access),
    /// A share of the pages, picked by hash, is accessed in one way and the rest in another way.
    Scattered {
        /// Share of the pages, 0 to 1.
        share: f64,
        /// Access of those pages.
        hot: Access,
        /// Access of the other pages.
        rest: Access,
    },
    /// Hottest in the middle. The rate falls off like a normal distribution, and accesses come at random times.
    ///
    /// The area is divided into steps. All pages of a step have the same mean interval, which grows by 19% from one
    /// step to the next.
    Gaussian {
        /// Mean interval in the middle, in ns.
        peak: Ns,
        /// Standard deviation, as a share of the area's length.
        sigma: f64,
        /// Pages with a longer interval than this, in ns, are never accessed.
        coldest: Ns,
    },
    /// Phases, one after another.
    Phases(Vec<Phase>),
}

/// A period in which heat does not change.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// When it ends, in ns from the start of the model. The last phase of an area never ends, whatever this value is.
    #[serde(default = "for_ever", deserialize_with = "quantity::ns")]
    pub until: Ns,
    /// The heat until then: any kind except phases.
    pub heat: Heat,
}

fn for_ever() -> Ns {
    Ns::MAX
}

/// As written in a host file: `"never"`, `{ every = "100ms" }`, `{ scattered = { ... } }` and so on.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum HeatText {
    Never,
    Every(Time),
    Poisson(Time),
    Scattered(ScatteredText),
    Gaussian(GaussianText),
    Phases(Vec<Phase>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScatteredText {
    share: f64,
    hot: Access,
    rest: Access,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GaussianText {
    peak: Time,
    sigma: f64,
    #[serde(default = "coldest")]
    coldest: Time,
}

fn coldest() -> Time {
    Time(COLDEST)
}

impl From<HeatText> for Heat {
    fn from(text: HeatText) -> Heat {
        match text {
            HeatText::Never => Heat::never(),
            HeatText::Every(t) => Heat::every(t.0),
            HeatText::Poisson(t) => Heat::poisson(t.0),
            HeatText::Scattered(s) => Heat::Scattered { share: s.share, hot: s.hot, rest: s.rest },
            HeatText::Gaussian(g) => Heat::Gaussian { peak: g.peak.0, sigma: g.sigma, coldest: g.coldest.0 },
            HeatText::Phases(phases) => Heat::Phases(phases),
        }
    }
}

impl Heat {
    /// Never accessed.
    pub const fn never() -> Heat {
        Heat::Uniform(Access::Never)
    }

    /// Each page once every `interval` ns.
    pub const fn every(interval: Ns) -> Heat {
        Heat::Uniform(Access::Every(interval))
    }

    /// Each page at random times with a mean interval of `interval` ns.
    pub const fn poisson(interval: Ns) -> Heat {
        Heat::Uniform(Access::Poisson(interval))
    }

    /// A [`Heat::Gaussian`] with a cut-off at an hour.
    pub const fn gaussian(peak: Ns, sigma: f64) -> Heat {
        Heat::Gaussian { peak, sigma, coldest: COLDEST }
    }

    /// Returns what is wrong with it, if anything.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self {
            Heat::Uniform(access) => check_access(*access),
            Heat::Scattered { share, hot, rest } => {
                check_access(*hot)?;
                check_access(*rest)?;
                let is_share = (0.0..=1.0).contains(share);
                if is_share { Ok(()) } else { Err(Error::Share { what: "share", got: *share }) }
            }
            Heat::Gaussian { peak, sigma, coldest } => {
                check_access(Access::Poisson(*peak))?;
                if !(*sigma > 0.0 && sigma.is_finite()) {
                    return Err(Error::Share { what: "sigma", got: *sigma });
                }
                if coldest < peak { Err(Error::ColdestBelowPeak) } else { Ok(()) }
            }
            Heat::Phases(phases) => check_phases(phases),
        }
    }

    /// The intervals of a Gaussian, from the middle outward: the reach of each step as a share of the area's length,
    /// and its mean interval. Pages beyond the last step are never accessed.
    pub(crate) fn gaussian_steps(peak: Ns, sigma: f64, coldest: Ns) -> impl Iterator<Item = (f64, Ns)> {
        // rate(d) = exp(-d^2 / 2 sigma^2) / peak, so the rate has halved n times at d = sigma * sqrt(2 n ln 2).
        let reach = move |octaves: f64| sigma * (2.0 * octaves * std::f64::consts::LN_2).sqrt();
        // 64 octaves cover the range from the shortest time to the longest.
        (0..64 * 4_u32)
            .map(|step| f64::from(step) / STEPS_PER_OCTAVE)
            // The interval in the middle of the step is used for all of it.
            .map(move |from| (reach(from + 1.0 / STEPS_PER_OCTAVE), scaled(peak, from + 0.5 / STEPS_PER_OCTAVE)))
            .take_while(move |(_, interval)| *interval <= coldest)
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, and is positive")]
fn scaled(ns: Ns, octaves: f64) -> Ns {
    (ns as f64 * octaves.exp2()).round() as Ns
}

fn check_access(access: Access) -> Result<(), Error> {
    match access {
        Access::Every(0) | Access::Poisson(0) => Err(Error::ZeroInterval),
        _ => Ok(()),
    }
}

fn check_phases(phases: &[Phase]) -> Result<(), Error> {
    if phases.is_empty() {
        return Err(Error::NoPhases);
    }
    for pair in phases.windows(2) {
        if pair[0].until >= pair[1].until {
            return Err(Error::PhasesOutOfOrder { until: pair[0].until, next: pair[1].until });
        }
    }
    for phase in phases {
        if matches!(phase.heat, Heat::Phases(_)) {
            return Err(Error::PhasesInPhases);
        }
        phase.heat.check()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gaussian_falls_off_as_a_normal_distribution_does() {
        let steps: Vec<(f64, Ns)> = Heat::gaussian_steps(1_000_000, 0.1, 3_600_000_000_000).collect();
        assert!(steps.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1));
        for (reach, interval) in [steps[3], steps[20], steps[60]] {
            // At the outer end of a step the interval is an eighth of an octave longer than the step's.
            let exact = 1e6 * (reach * reach / 0.02).exp();
            let ratio = exact / interval as f64;
            assert!((ratio - 0.125_f64.exp2()).abs() < 1e-5, "{reach}: {ratio}");
        }
        assert_eq!(steps.len(), 87, "21.8 octaves from 1 ms to an hour");
    }

    #[test]
    fn the_last_phase_may_leave_its_end_open_and_no_other() {
        let phase = |until| Phase { until, heat: Heat::never() };
        assert!(Heat::Phases(vec![phase(5), phase(Ns::MAX)]).check().is_ok());
        assert!(matches!(Heat::Phases(vec![phase(5), phase(5)]).check(), Err(Error::PhasesOutOfOrder { .. })));
        assert!(matches!(Heat::Phases(vec![]).check(), Err(Error::NoPhases)));
        let inner = Phase { until: 9, heat: Heat::Phases(vec![phase(5)]) };
        assert!(matches!(Heat::Phases(vec![inner]).check(), Err(Error::PhasesInPhases)));
    }
}
