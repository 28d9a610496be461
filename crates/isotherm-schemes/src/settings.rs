//! The settings file of `isotherm run`, as it is written: TOML, in which everything is optional.
//!
//! A key that is not known and a value that means nothing are errors, because a misspelt budget must not become no
//! budget. Which file, who may write it, and what the command line overrides is up to the caller.

use crate::Budgets;
use crate::plan::HintSource;
use crate::scheme::{Scheme, Written};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// The shortest time between two snapshots: below, a snapshot would cost more than its window is worth.
pub const MIN_WINDOW: Duration = Duration::from_millis(50);

/// Why a settings file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It is no TOML, or has a key or a type that is not expected.
    #[error(transparent)]
    Syntax(#[from] toml::de::Error),
    /// A value means nothing.
    #[error("[{section}] {what}")]
    Value {
        /// The section of the file.
        section: &'static str,
        /// What has to hold, or what was found.
        what: String,
    },
}

/// The file.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct File {
    /// What is watched.
    pub targets: Targets,
    /// How it is watched.
    pub watch: Watch,
    /// What becomes a hint.
    pub rules: Rules,
    /// What to do to which processes.
    pub scheme: Vec<Written>,
    /// The file that gives cgroups to the schemes that are `assigned`. It is read again when it changes.
    pub assignments: Option<PathBuf>,
    /// What acting on hints may cost.
    pub budgets: Budgets,
    /// Only count what would be done.
    pub dry_run: bool,
    /// Processes take turns, instead of the hottest memory first.
    pub round_robin: bool,
    /// Where hints come from.
    pub hints: HintSource,
    /// The path of the control socket.
    pub socket: Option<PathBuf>,
    /// The path of the socket at which snapshots can be received. Without it none are sent.
    pub stream: Option<PathBuf>,
    /// The group that may connect there.
    pub stream_group: Option<String>,
    /// A shell command whose run time is the work to be measured.
    pub work: Option<String>,
}

/// What is watched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Targets {
    /// Processes.
    pub pids: Vec<u32>,
    /// A cgroup, by its path or a part of it.
    pub cgroup: Option<String>,
    /// All processes.
    pub all: bool,
    /// Only the processes themselves.
    pub no_children: bool,
}

/// How targets are watched.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Watch {
    /// Percent of a core that targets may lose.
    pub max_slowdown: Option<f64>,
    /// Percent of a core that the monitor may use.
    pub max_cpu: Option<f64>,
    /// The time between two snapshots, as on the command line: "2s".
    pub window: Option<String>,
}

impl Watch {
    /// The window in nanoseconds, if there is one.
    pub fn window_ns(&self) -> Result<Option<u64>, Error> {
        let Some(text) = &self.window else { return Ok(None) };
        let parsed: Result<Duration, _> = humantime::parse_duration(text);
        let window = parsed.map_err(|error| value("watch", format!("window = {text:?}: {error}")))?;
        if window < MIN_WINDOW {
            return Err(value("watch", format!("window = {text:?}: has to be {MIN_WINDOW:?} or longer")));
        }
        Ok(Some(u64::try_from(window.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// What becomes a hint.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Rules {
    /// The lowest access rate of a huge range that is worth a collapse, in Hz.
    pub min_benefit_hz: Option<f64>,
    /// Mappings of files as well.
    pub files: bool,
}

/// A settings file with these schemes and nothing else.
pub fn text_of(schemes: &[Written]) -> Result<String, toml::ser::Error> {
    #[derive(Serialize)]
    struct Schemes<'a> {
        scheme: &'a [Written],
    }
    toml::to_string(&Schemes { scheme: schemes })
}

fn value(section: &'static str, what: impl Into<String>) -> Error {
    Error::Value { section, what: what.into() }
}

impl File {
    /// The schemes, in order. Without any, hot memory of all targets is collapsed.
    pub fn schemes(&self) -> Result<Vec<Scheme>, Error> {
        if self.scheme.is_empty() {
            return Ok(vec![Scheme::collapse_all()]);
        }
        let numbered = (1..).zip(self.scheme.iter().cloned());
        let checked = numbered.map(|(number, written)| {
            Scheme::new(written).map_err(|what| value("[scheme]", format!("number {number}: {what}")))
        });
        checked.collect()
    }

    /// Reads the text of a file, and checks each value.
    pub fn parse(text: &str) -> Result<File, Error> {
        let file: File = toml::from_str(text)?;
        if file.targets.pids.contains(&0) {
            return Err(value("targets", "pids: 0 is no process id"));
        }
        let targets = &file.targets;
        if [!targets.pids.is_empty(), targets.cgroup.is_some(), targets.all].into_iter().filter(|is| *is).count() > 1 {
            return Err(value("targets", "pids, cgroup and all exclude each other"));
        }
        for (name, percent) in [("max_slowdown", file.watch.max_slowdown), ("max_cpu", file.watch.max_cpu)] {
            if percent.is_some_and(|percent| !(percent > 0.0 && percent.is_finite())) {
                return Err(value("watch", format!("{name} has to be above 0; over 100 lifts the limit")));
            }
        }
        file.watch.window_ns()?;
        file.schemes()?;
        crate::assigned::check_settings(&file).map_err(|what| value("[scheme]", what))?;
        if file.rules.min_benefit_hz.is_some_and(|hz| !(hz >= 0.0 && hz.is_finite())) {
            return Err(value("rules", "min_benefit_hz has to be 0 or more"));
        }
        match file.budgets.fault() {
            Some(fault) => Err(value("budgets", fault)),
            None => Ok(file),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_has_a_default_and_what_is_said_is_read() {
        assert_eq!(File::parse("").unwrap(), File::default());
        let file = File::parse(
            "round_robin = true\nsocket = \"/run/s\"\n[targets]\npids = [7]\n[watch]\nwindow = \"250ms\"\nmax_cpu = 3\n",
        )
        .unwrap();
        assert_eq!((file.targets.pids.as_slice(), file.round_robin), ([7].as_slice(), true));
        assert_eq!((file.watch.window_ns().unwrap(), file.watch.max_cpu), (Some(250_000_000), Some(3.0)));
        assert_eq!(file.schemes().unwrap(), [Scheme::collapse_all()]);
        let both = File::parse("[[scheme]]\naction = \"page-out\"\n[[scheme]]\naction = \"collapse\"\n").unwrap();
        assert_eq!(both.schemes().unwrap().len(), 2);
        let text = text_of(&both.scheme).unwrap();
        assert_eq!(File::parse(&text).unwrap(), both, "{text}");
    }

    #[test]
    fn values_that_mean_nothing_are_errors_that_name_them() {
        for (text, name) in [
            ("[targets]\npids = [7]\nall = true", "[targets] pids, cgroup and all"),
            ("[targets]\ncgroup = \"a\"\nall = true", "[targets] pids, cgroup and all"),
            ("[targets]\npids = [7]\ncgroup = \"a\"", "[targets] pids, cgroup and all"),
            ("[watch]\nmax_cpu = nan", "[watch] max_cpu"),
            ("[watch]\nmax_cpu = -1.0", "[watch] max_cpu"),
            ("[watch]\nmax_slowdown = inf", "[watch] max_slowdown"),
            ("[watch]\nwindow = \"soon\"", "[watch] window"),
            ("[watch]\nwindow = \"49ms\"", "50ms or longer"),
            ("[rules]\nmin_benefit_hz = nan", "[rules] min_benefit_hz"),
            ("[targets]\npids = [0]", "[targets] pids"),
            ("[targets]\npids = [-1]", "pids"),
            ("[budgets]\nper_second = 0.0", "[budgets] per_second"),
            ("[budgets]\nper_second = inf", "[budgets] per_second"),
            ("[budgets]\nper_secnd = 5", "per_secnd"),
            ("budget = 5", "budget"),
            ("[[scheme]]\nmin_idle = \"1m\"", "action"),
            (
                "[[scheme]]\naction = \"collapse\"\n[[scheme]]\naction = \"page-out\"\nmin_idle = \"1s\"",
                "[[scheme]] number 2",
            ),
        ] {
            let error = File::parse(text).unwrap_err().to_string();
            assert!(error.contains(name), "{text:?}: {error}");
        }
    }
}
