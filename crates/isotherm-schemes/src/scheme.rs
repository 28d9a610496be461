//! Schemes: which action is for which processes, and its limits. The table `[[scheme]]` of the settings.
//!
//! The words are DAMON's: a scheme has an action, a pattern (how long idle), a quota (the budgets, and what may come back) and filters
//! (processes and cgroups). For a huge range the first scheme that matches wins. Without a table, hot memory of all targets is collapsed.

use crate::page_out::brake::Limits;
use isotherm_heat::Ns;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The shortest age at which pages may leave. Below, a page counts as idle that is merely not in use at the moment.
pub const SHORTEST_AGE: Duration = Duration::from_secs(10);
const DEFAULT_AGE: Duration = Duration::from_mins(10);
/// Percent of the working set that may come back in a minute: what the field pages out by.
const DEFAULT_MAX_REFAULTS_PCT: f64 = 0.2;

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ActionName {
    /// Hot huge ranges become huge pages, by `[rules]`.
    Collapse,
    /// Pages that are idle for an age leave for swap.
    PageOut,
}

/// One `[[scheme]]` as it is written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Written {
    /// What to do.
    pub action: ActionName,
    /// Names of processes, as `comm` has them. Empty: all targets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<String>,
    /// Cgroups: paths from the root on, which begin with a slash, or parts of them between slashes; those below too. Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cgroups: Vec<String>,
    /// Of `page-out`: pages leave that are idle for this long, as "10m".
    pub min_idle: Option<String>,
    /// Of `page-out`: refaults in a minute at which it stops, percent of the working set.
    pub max_refaults: Option<f64>,
}

/// A scheme in force.
#[derive(Clone, Debug, PartialEq)]
pub struct Scheme {
    /// What to do.
    pub action: Does,
    processes: Vec<String>,
    cgroups: Vec<String>,
}

/// An action and its limits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Does {
    /// Collapses.
    Collapse,
    /// Pages out, within these.
    PageOut(Limits),
}

impl Scheme {
    /// What happens without a table: hot memory of all targets is collapsed.
    pub fn collapse_all() -> Scheme {
        Scheme { action: Does::Collapse, processes: Vec::new(), cgroups: Vec::new() }
    }

    /// Checks what is written. The error says what has to hold.
    pub fn new(written: Written) -> Result<Scheme, String> {
        let action = match written.action {
            ActionName::PageOut => Does::PageOut(limits(&written)?),
            ActionName::Collapse if written.min_idle.is_some() || written.max_refaults.is_some() => {
                return Err("min_idle and max_refaults are for action = \"page-out\"".to_owned());
            }
            ActionName::Collapse => Does::Collapse,
        };
        Ok(Scheme { action, processes: written.processes, cgroups: written.cgroups })
    }

    /// Whether it has no filter.
    pub fn is_for_all(&self) -> bool {
        self.processes.is_empty() && self.cgroups.is_empty()
    }

    /// Whether it is for this process.
    pub fn is_for(&self, comm: &str, cgroup: &str) -> bool {
        let whole = format!("{}/", cgroup.trim_end_matches('/'));
        // From the root on, or anywhere in the path; and what is below, too.
        let is_in = |path: &String| match path.strip_prefix('/').map(|path| path.trim_matches('/')) {
            Some("") => true,
            Some(path) => whole.starts_with(&format!("/{path}/")),
            None => whole.contains(&format!("/{}/", path.trim_matches('/'))),
        };
        (self.processes.is_empty() || self.processes.iter().any(|name| name == comm))
            && (self.cgroups.is_empty() || self.cgroups.iter().any(is_in))
    }
}

fn limits(written: &Written) -> Result<Limits, String> {
    let age = match &written.min_idle {
        None => DEFAULT_AGE,
        Some(text) => humantime::parse_duration(text).map_err(|error| format!("min_idle = {text:?}: {error}"))?,
    };
    if age < SHORTEST_AGE {
        return Err(format!("min_idle has to be {SHORTEST_AGE:?} or longer"));
    }
    let max_refaults_pct = written.max_refaults.unwrap_or(DEFAULT_MAX_REFAULTS_PCT);
    if !(max_refaults_pct > 0.0 && max_refaults_pct <= 100.0) {
        return Err("max_refaults has to be above 0, and 100 at most: percent of the working set a minute".to_owned());
    }
    Ok(Limits { min_idle_ns: Ns::try_from(age.as_nanos()).unwrap_or(Ns::MAX), max_refaults_pct })
}

/// What the schemes say about one process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Actions {
    /// Hot huge ranges of it are collapsed.
    pub collapses: bool,
    /// Idle pages of it leave.
    pub pages_out: Option<Limits>,
    /// A huge range that is worth a collapse is collapsed, and none of its pages leave. If not, it is the other way round.
    pub collapse_first: bool,
}

impl Actions {
    /// Of the first scheme of each action that is for a process.
    pub fn of(schemes: &[Scheme], comm: &str, cgroup: &str) -> Actions {
        let mut actions = Actions::default();
        for scheme in schemes.iter().filter(|scheme| scheme.is_for(comm, cgroup)) {
            match scheme.action {
                Does::Collapse if !actions.collapses => {
                    (actions.collapses, actions.collapse_first) = (true, actions.pages_out.is_none());
                }
                Does::PageOut(limits) if actions.pages_out.is_none() => actions.pages_out = Some(limits),
                _ => {}
            }
        }
        actions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scheme(text: &str) -> Result<Scheme, String> {
        Scheme::new(toml::from_str(text).map_err(|error| error.to_string())?)
    }

    #[test]
    fn a_scheme_has_defaults_and_its_limits_mean_something() {
        let of = |text: &str| scheme(text).unwrap().action;
        let usual = Limits { min_idle_ns: 600_000_000_000, max_refaults_pct: 0.2 };
        assert_eq!(of("action = \"page-out\""), Does::PageOut(usual));
        let own = Limits { min_idle_ns: 90_000_000_000, max_refaults_pct: 1.0 };
        assert_eq!(of("action = \"page-out\"\nmin_idle = \"90s\"\nmax_refaults = 1.0"), Does::PageOut(own));
        assert_eq!(of("action = \"collapse\""), Does::Collapse);
        for (text, why) in [
            ("", "action"),
            ("action = \"page-in\"", "page-in"),
            ("action = \"page-out\"\nmin_idle = \"soon\"", "min_idle"),
            ("action = \"page-out\"\nmin_idle = \"9s\"", "10s or longer"),
            ("action = \"page-out\"\nmax_refaults = 0.0", "above 0"),
            ("action = \"page-out\"\nmax_refaults = nan", "above 0"),
            ("action = \"page-out\"\nmin_idel = \"9s\"", "min_idel"),
            ("action = \"collapse\"\nmin_idle = \"1m\"", "page-out"),
        ] {
            let error = scheme(text).unwrap_err();
            assert!(error.contains(why), "{text:?}: {error}");
        }
    }

    #[test]
    fn filters_name_processes_and_whole_parts_of_cgroups() {
        let one = scheme("action = \"collapse\"\nprocesses = [\"db\"]\ncgroups = [\"app.slice\", \"/web/a\"]").unwrap();
        assert!(one.is_for("db", "/system.slice/app.slice") && one.is_for("db", "/web/a/b"));
        assert!(!one.is_for("db", "/x/web/a"), "from the root on");
        assert!(!one.is_for("db2", "/web/a") && !one.is_for("db", "/web/ab") && !one.is_for("db", ""));
        assert!(Scheme::collapse_all().is_for("x", "") && Scheme::collapse_all().is_for_all() && !one.is_for_all());
        assert!(scheme("action = \"collapse\"\ncgroups = [\"/\"]").unwrap().is_for("x", "/a"));
    }

    #[test]
    fn the_first_scheme_of_an_action_wins() {
        let table = [
            "action = \"page-out\"\nprocesses = [\"db\"]\nmin_idle = \"1h\"",
            "action = \"collapse\"\nprocesses = [\"db\", \"web\"]",
            "action = \"page-out\"\nmin_idle = \"20s\"",
        ];
        let schemes: Vec<Scheme> = table.iter().map(|text| scheme(text).unwrap()).collect();
        let of = |comm| {
            let actions = Actions::of(&schemes, comm, "/");
            let seconds = actions.pages_out.map(|limits| limits.min_idle_ns / 1_000_000_000);
            (actions.collapses, actions.collapse_first, seconds)
        };
        assert_eq!(of("db"), (true, false, Some(3600)));
        assert_eq!(of("web"), (true, true, Some(20)));
        assert_eq!(of("sh"), (false, false, Some(20)));
    }
}
