//! Schemes: which action is for which processes, and its limits. The table `[[scheme]]` of the settings.
//!
//! The words are DAMON's: a scheme has an action, a pattern (how long idle), a quota (how much in an interval, and what may come back), a goal for that, watermarks,
//! and filters (processes and cgroups). For a huge range the first scheme that matches wins. Without a table, hot memory of all targets is collapsed.

use crate::assigned::{self, Assignments};
use crate::migrate;
use crate::page_out::brake::Limits;
use crate::page_out::watermarks::Watermarks;
use crate::quota::{Goal, Quota, WrittenQuota};
use crate::split::splitter;
use isotherm_heat::Ns;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The shortest age at which pages may leave. Below, a page counts as idle that is merely not in use at the moment.
pub const SHORTEST_AGE: Duration = Duration::from_secs(10);
/// The longest: intervals end there ([`isotherm_heat::Interval::LONGEST`]).
pub const LONGEST_AGE: Duration = Duration::from_secs(38 * 86_400);
const DEFAULT_AGE: Duration = Duration::from_mins(10);
/// Percent of the working set that may come back in a minute: what the field pages out by.
const DEFAULT_MAX_REFAULTS_PCT: f64 = 0.2;
/// Accessed this often a second, a page belongs in fast memory. Half of what most would call hot: a page at the edge stays where it is.
pub const DEFAULT_HOT_HZ: f64 = 0.5;
/// Percent of fast memory that is kept free by moving idle pages to slow memory.
pub const DEFAULT_KEEP_FREE_PCT: f64 = 10.0;
/// Percent of the memory of huge pages that is unused, from which on splitting them pays.
pub const DEFAULT_MIN_UNUSED_PCT: f64 = 50.0;

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ActionName {
    /// Hot huge ranges become huge pages, by `[rules]`.
    Collapse,
    /// Pages that are idle for an age leave for swap.
    PageOut,
    /// Hot pages move to the fastest memory tier.
    Promote,
    /// Pages that are idle for an age move to a slower memory tier.
    Demote,
    /// What is out of a huge range is read from swap when its other pages come back.
    BringBack,
    /// Huge pages of which little is in use become small ones.
    Split,
    /// As much of the files of memory cgroups leaves as is idle.
    Reclaim,
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
    /// The name by which pods ask for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether it is for the cgroups that the file of assignments names, and for no others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub assigned: bool,
    /// The Kubernetes namespaces whose pods may ask for it; `isotherm-kube` reads them. Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// Of `page-out`, `reclaim` and `demote`: pages leave that are idle for this long, as "10m". Of `split`: those are unused.
    pub min_idle: Option<String>,
    /// Of `page-out` and `reclaim`: refaults in a minute at which it stops, percent of the working set.
    pub max_refaults: Option<f64>,
    /// Of `page-out` and `reclaim`: how much memory has to be free, and may be, for it to be active.
    pub watermarks: Option<Watermarks>,
    /// Of all but `bring-back` and `split`: how much is taken in an interval at most, of all its processes and cgroups together.
    pub quota: Option<WrittenQuota>,
    /// Of `page-out` and `reclaim` with a quota: what it is tuned to.
    pub goal: Option<Goal>,
    /// Of `promote`: accesses a second of a page from which on it is hot.
    pub min_rate: Option<f64>,
    /// Of `demote`: pages leave while less than this is free of the fastest tier, percent.
    pub keep_free: Option<f64>,
    /// Of `split`: it pays from this share of unused memory on, percent.
    pub min_unused: Option<f64>,
}

impl Written {
    /// A scheme with this action, all defaults and no filter.
    pub fn of(action: ActionName) -> Written {
        Written {
            action,
            processes: Vec::new(),
            cgroups: Vec::new(),
            name: None,
            assigned: false,
            namespaces: Vec::new(),
            min_idle: None,
            max_refaults: None,
            watermarks: None,
            quota: None,
            goal: None,
            min_rate: None,
            keep_free: None,
            min_unused: None,
        }
    }
}

/// A scheme in force.
#[derive(Clone, Debug, PartialEq)]
pub struct Scheme {
    /// What to do.
    pub action: Does,
    /// How much is collapsed, moves or leaves in an interval at most.
    pub quota: Option<Quota>,
    /// Why this machine cannot perform it, if so, as a sentence. It stays in its place: what it is for is not left to a later one with other limits.
    pub left_out: Option<String>,
    processes: Vec<String>,
    cgroups: Vec<String>,
    /// The name by which the file of assignments gives it cgroups. Until then it is for no process.
    assigned_as: Option<String>,
}

/// An action and its limits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Does {
    /// Collapses.
    Collapse,
    /// Pages out, within these, while memory is between the watermarks, if there are any.
    PageOut(Limits, Option<Watermarks>),
    /// Moves up what is accessed once in this time, or more often.
    Promote(Ns),
    /// Moves down what is idle for this time, to keep this share of fast memory free, in percent.
    Demote(Ns, f64),
    /// Reads from swap what is likely to be accessed next, of memory that a scheme has paged out.
    BringBack,
    /// Splits huge pages, where this much of them is not in use.
    Split(splitter::Limits),
    /// Asks the kernel to take idle files from the cgroups, within these, while memory is between the watermarks, if there are any.
    Reclaim(Limits, Option<Watermarks>),
}

impl Scheme {
    /// What happens without a table: hot memory of all targets is collapsed.
    pub fn collapse_all() -> Scheme {
        Scheme {
            action: Does::Collapse,
            quota: None,
            left_out: None,
            processes: Vec::new(),
            cgroups: Vec::new(),
            assigned_as: None,
        }
    }

    /// Checks what is written. The error says what has to hold.
    pub fn new(written: Written) -> Result<Scheme, String> {
        check_keys(&written)?;
        check_filter(&written)?;
        assigned::check_keys(&written)?;
        let action = match written.action {
            ActionName::PageOut => Does::PageOut(limits(&written)?, watermarks(&written)?),
            ActionName::Reclaim => Does::Reclaim(limits(&written)?, watermarks(&written)?),
            ActionName::Collapse => Does::Collapse,
            ActionName::BringBack => Does::BringBack,
            ActionName::Promote => Does::Promote(hot_ns(&written)?),
            ActionName::Demote => Does::Demote(age_ns(&written)?, keep_free_pct(&written)?),
            ActionName::Split => Does::Split(splitter::Limits {
                min_idle_ns: age_ns(&written)?,
                min_unused_pct: min_unused_pct(&written)?,
            }),
        };
        let quota = Quota::new(written.quota.as_ref(), written.goal)?;
        let assigned_as = written.name.filter(|_| written.assigned);
        let (processes, cgroups) = (written.processes, written.cgroups);
        Ok(Scheme { action, quota, left_out: None, processes, cgroups, assigned_as })
    }

    /// The same with the cgroups that are assigned to it, if it is of those that take them.
    pub fn assigned(&self, assignments: &Assignments) -> Scheme {
        let Some(name) = &self.assigned_as else { return self.clone() };
        Scheme { cgroups: assignments.of(name).map(str::to_owned).collect(), ..self.clone() }
    }

    /// Whether both spend from one account: the same action for the same processes with the same quota, whatever its limits and the cgroups that
    /// are assigned to it.
    pub fn shares_account(&self, other: &Scheme) -> bool {
        let is_assigned = self.assigned_as.is_some();
        std::mem::discriminant(&self.action) == std::mem::discriminant(&other.action)
            && (self.quota, &self.processes, &self.assigned_as) == (other.quota, &other.processes, &other.assigned_as)
            && (is_assigned || self.cgroups == other.cgroups)
    }

    /// Whether it has no filter.
    pub fn is_for_all(&self) -> bool {
        self.processes.is_empty() && self.cgroups.is_empty() && self.assigned_as.is_none()
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
            // Where cgroups are assigned, no cgroup yet means no process, and not all.
            && ((self.cgroups.is_empty() && self.assigned_as.is_none()) || self.cgroups.iter().any(is_in))
    }
}

/// Whether all keys are for the action.
fn check_keys(written: &Written) -> Result<(), String> {
    use ActionName::{Collapse, Demote, PageOut, Promote, Reclaim, Split};
    let keys: [(&str, bool, &[ActionName], &str); 8] = [
        (
            "min_idle",
            written.min_idle.is_some(),
            &[PageOut, Reclaim, Demote, Split],
            "\"page-out\", \"reclaim\", \"demote\" and \"split\"",
        ),
        ("max_refaults", written.max_refaults.is_some(), &[PageOut, Reclaim], "\"page-out\" and \"reclaim\""),
        ("watermarks", written.watermarks.is_some(), &[PageOut, Reclaim], "\"page-out\" and \"reclaim\""),
        (
            "quota",
            written.quota.is_some(),
            &[Collapse, PageOut, Promote, Demote, Reclaim],
            "\"collapse\", \"page-out\", \"promote\", \"demote\" and \"reclaim\"",
        ),
        ("goal", written.goal.is_some(), &[PageOut, Reclaim], "\"page-out\" and \"reclaim\""),
        ("min_rate", written.min_rate.is_some(), &[Promote], "\"promote\""),
        ("keep_free", written.keep_free.is_some(), &[Demote], "\"demote\""),
        ("min_unused", written.min_unused.is_some(), &[Split], "\"split\""),
    ];
    let unfit = keys.into_iter().find(|(_, is_there, actions, _)| *is_there && !actions.contains(&written.action));
    unfit.map_or(Ok(()), |(key, _, _, actions)| Err(format!("{key} is for the action {actions}")))
}

/// Whether an action of cgroups names them.
fn check_filter(written: &Written) -> Result<(), String> {
    let is_of_cgroups = written.action == ActionName::Reclaim;
    if is_of_cgroups && (!written.processes.is_empty() || (written.cgroups.is_empty() && !written.assigned)) {
        return Err(
            "the action \"reclaim\" takes memory of whole cgroups: give it `cgroups`, and no `processes`".to_owned()
        );
    }
    Ok(())
}

fn watermarks(written: &Written) -> Result<Option<Watermarks>, String> {
    let fault = written.watermarks.and_then(|marks| marks.fault());
    fault.map_or(Ok(written.watermarks), |fault| Err(fault.to_owned()))
}

fn min_unused_pct(written: &Written) -> Result<f64, String> {
    let percent = written.min_unused.unwrap_or(DEFAULT_MIN_UNUSED_PCT);
    // At 0, huge pages that are all in use would be split, and collapsed, and split.
    let is_share = (10.0..=100.0).contains(&percent);
    if is_share { Ok(percent) } else { Err("min_unused has to be 10 to 100 percent".to_owned()) }
}

fn hot_ns(written: &Written) -> Result<Ns, String> {
    let hz = written.min_rate.unwrap_or(DEFAULT_HOT_HZ);
    if !(0.01..=1e6).contains(&hz) {
        return Err("min_rate has to be 0.01 to 1000000 accesses a second".to_owned());
    }
    Ok(ns_between(hz))
}

/// The interval of accesses that occur so often a second.
pub fn ns_between(hz: f64) -> Ns {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative; saturates")]
    let ns = (1e9 / hz) as Ns;
    ns
}

fn keep_free_pct(written: &Written) -> Result<f64, String> {
    let pct = written.keep_free.unwrap_or(DEFAULT_KEEP_FREE_PCT);
    if (0.0..=100.0).contains(&pct) { Ok(pct) } else { Err("keep_free has to be 0 to 100 percent".to_owned()) }
}

fn limits(written: &Written) -> Result<Limits, String> {
    let min_idle_ns = age_ns(written)?;
    let max_refaults_pct = written.max_refaults.unwrap_or(DEFAULT_MAX_REFAULTS_PCT);
    if !(max_refaults_pct > 0.0 && max_refaults_pct <= 100.0) {
        return Err("max_refaults has to be above 0, and 100 at most: percent of the working set a minute".to_owned());
    }
    Ok(Limits { min_idle_ns, max_refaults_pct })
}

fn age_ns(written: &Written) -> Result<Ns, String> {
    let age = match &written.min_idle {
        None => DEFAULT_AGE,
        Some(text) => humantime::parse_duration(text).map_err(|error| format!("min_idle = {text:?}: {error}"))?,
    };
    if age < SHORTEST_AGE {
        return Err(format!("min_idle has to be {SHORTEST_AGE:?} or longer"));
    }
    if age > LONGEST_AGE {
        let days = LONGEST_AGE.as_secs() / 86_400;
        return Err(format!("min_idle has to be {days} days or shorter: idle time is not known for longer"));
    }
    Ok(Ns::try_from(age.as_nanos()).unwrap_or(Ns::MAX))
}

/// What the schemes say about one process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Actions {
    /// Hot huge ranges of it are collapsed.
    pub collapses: bool,
    /// Idle pages of it leave.
    pub pages_out: Option<Limits>,
    /// They do while free memory is between these.
    pub watermarks: Option<Watermarks>,
    /// Which scheme does what.
    pub by: Places,
    /// A huge range that is worth a collapse is collapsed, and none of its pages leave. If not, it is the other way round.
    pub collapse_first: bool,
    /// Pages of it move between memory tiers.
    pub migrates: Option<migrate::Limits>,
    /// What is likely to come back next is read from swap.
    pub brings_back: bool,
    /// Huge pages of it are split.
    pub splits: Option<splitter::Limits>,
    /// Idle files of its cgroup leave, while free memory is between the watermarks, if there are any.
    pub reclaims: Option<ReclaimScheme>,
}

/// What a quota is spent on, of processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charge {
    /// Huge ranges that are collapsed.
    Collapse,
    /// Pages that leave.
    PageOut,
    /// Pages that move up.
    Promote,
    /// Pages that move down.
    Demote,
}

/// The schemes of a process by their places in the table. They may have quotas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Places {
    collapse: Option<usize>,
    page_out: Option<usize>,
    promote: Option<usize>,
    demote: Option<usize>,
}

impl Places {
    /// The place of the scheme that does this. `None` if there is none.
    pub fn of(self, charge: Charge) -> Option<usize> {
        match charge {
            Charge::Collapse => self.collapse,
            Charge::PageOut => self.page_out,
            Charge::Promote => self.promote,
            Charge::Demote => self.demote,
        }
    }
}

impl Does {
    /// What its quota is spent on, if that is memory of processes.
    pub fn charge(self) -> Option<Charge> {
        match self {
            Does::Collapse => Some(Charge::Collapse),
            Does::PageOut(..) => Some(Charge::PageOut),
            Does::Promote(_) => Some(Charge::Promote),
            Does::Demote(..) => Some(Charge::Demote),
            Does::BringBack | Does::Split(_) | Does::Reclaim(..) => None,
        }
    }
}

/// The scheme that takes idle files of a cgroup.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReclaimScheme {
    /// Its limits.
    pub limits: Limits,
    /// It is active while free memory is between these.
    pub watermarks: Option<Watermarks>,
    /// Its place in the table.
    pub place: usize,
}

impl Actions {
    /// Of the first scheme of each action that is for a process.
    pub fn of(schemes: &[Scheme], comm: &str, cgroup: &str) -> Actions {
        let mut actions = Actions::default();
        let (mut hot_ns, mut down) = (None, None);
        let mut left_out = Vec::new();
        for (place, scheme) in schemes.iter().enumerate().filter(|(_, scheme)| scheme.is_for(comm, cgroup)) {
            let kind = std::mem::discriminant(&scheme.action);
            if scheme.left_out.is_some() || left_out.contains(&kind) {
                left_out.push(kind);
                continue;
            }
            match scheme.action {
                Does::Collapse if !actions.collapses => {
                    (actions.collapses, actions.collapse_first) = (true, actions.pages_out.is_none());
                    actions.by.collapse = Some(place);
                }
                Does::PageOut(limits, marks) if actions.pages_out.is_none() => {
                    (actions.pages_out, actions.watermarks, actions.by.page_out) = (Some(limits), marks, Some(place));
                }
                Does::BringBack => actions.brings_back = true,
                Does::Reclaim(limits, watermarks) if actions.reclaims.is_none() => {
                    actions.reclaims = Some(ReclaimScheme { limits, watermarks, place });
                }
                Does::Split(limits) if actions.splits.is_none() => actions.splits = Some(limits),
                Does::Promote(ns) if hot_ns.is_none() => (hot_ns, actions.by.promote) = (Some(ns), Some(place)),
                Does::Demote(ns, keep_free_pct) if down.is_none() => {
                    (down, actions.by.demote) = (Some((ns, keep_free_pct)), Some(place));
                }
                _ => {}
            }
        }
        let (idle_ns, keep_free_pct) = down.unzip();
        if hot_ns.is_some() || idle_ns.is_some() {
            actions.migrates = Some(migrate::Limits { hot_ns, idle_ns, keep_free_pct: keep_free_pct.unwrap_or(0.0) });
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
        assert_eq!(of("action = \"page-out\""), Does::PageOut(usual, None));
        let own = Limits { min_idle_ns: 90_000_000_000, max_refaults_pct: 1.0 };
        assert_eq!(of("action = \"page-out\"\nmin_idle = \"90s\"\nmax_refaults = 1.0"), Does::PageOut(own, None));
        let marks = Watermarks { high: 50.0, mid: 40.0, low: 5.0 };
        let text = "action = \"page-out\"\nwatermarks = { high = 50.0, mid = 40.0, low = 5.0 }";
        assert_eq!(of(text), Does::PageOut(usual, Some(marks)));
        let quota =
            scheme("action = \"page-out\"\nquota = { size = \"8MiB\" }\ngoal = { pressure = 0.1 }").unwrap().quota;
        assert_eq!(quota.map(|quota| (quota.size.0, quota.goal.pressure)), Some((8 << 20, Some(0.1))));
        assert_eq!(of("action = \"collapse\""), Does::Collapse);
        assert_eq!(of("action = \"bring-back\""), Does::BringBack);
        let limits = |s: u64, min_unused_pct| splitter::Limits { min_idle_ns: s * 1_000_000_000, min_unused_pct };
        assert_eq!(of("action = \"split\""), Does::Split(limits(600, 50.0)));
        assert_eq!(of("action = \"split\"\nmin_idle = \"90s\"\nmin_unused = 80.0"), Does::Split(limits(90, 80.0)));
        let text = "action = \"reclaim\"\ncgroups = [\"/a\"]";
        assert_eq!(of(text), Does::Reclaim(usual, None));
        for (text, why) in [
            ("action = \"reclaim\"", "give it `cgroups`"),
            ("action = \"reclaim\"\ncgroups = [\"/a\"]\nprocesses = [\"db\"]", "no `processes`"),
            ("", "action"),
            ("action = \"page-in\"", "page-in"),
            ("action = \"page-out\"\nmin_idle = \"soon\"", "min_idle"),
            ("action = \"page-out\"\nmin_idle = \"9s\"", "10s or longer"),
            ("action = \"split\"\nmin_idle = \"1000years\"", "38 days or shorter"),
            ("action = \"page-out\"\nmax_refaults = 0.0", "above 0"),
            ("action = \"page-out\"\nmax_refaults = nan", "above 0"),
            ("action = \"page-out\"\nmin_idel = \"9s\"", "min_idel"),
            ("action = \"collapse\"\nmin_idle = \"1m\"", "page-out"),
            ("action = \"page-out\"\nwatermarks = { high = 5.0, mid = 40.0, low = 5.0 }", "low <= mid"),
            ("action = \"demote\"\nwatermarks = { high = 50.0, mid = 40.0, low = 5.0 }", "page-out"),
            ("action = \"bring-back\"\nmin_idle = \"1m\"", "page-out"),
            ("action = \"demote\"\nmax_refaults = 1.0", "page-out"),
            ("action = \"split\"\nquota = { size = \"1MiB\" }", "demote"),
            ("action = \"demote\"\nquota = { size = \"1MiB\" }\ngoal = { free = 1.0 }", "page-out"),
            ("action = \"collapse\"\ngoal = { free = 1.0 }", "page-out"),
            ("action = \"page-out\"\ngoal = { free = 1.0 }", "give the scheme one"),
            ("action = \"page-out\"\nquota = { size = \"1MiB\", evry = \"1s\" }", "evry"),
            ("action = \"page-out\"\nquota = { size = \"0\" }", "a page or more"),
            ("action = \"page-out\"\nkeep_free = 1.0", "demote"),
            ("action = \"demote\"\nkeep_free = 101.0", "0 to 100"),
            ("action = \"promote\"\nmin_rate = 0.0", "min_rate"),
            ("action = \"split\"\nmin_unused = 5.0", "10 to 100"),
            ("action = \"split\"\nmin_idle = \"9s\"", "10s or longer"),
            ("action = \"demote\"\nmin_unused = 50.0", "split"),
        ] {
            let error = scheme(text).unwrap_err();
            assert!(error.contains(why), "{text:?}: {error}");
        }
    }

    #[test]
    fn one_scheme_says_what_moves_up_and_another_what_moves_down() {
        let of = |table: &[&str]| {
            let schemes: Vec<Scheme> = table.iter().map(|text| scheme(text).unwrap()).collect();
            Actions::of(&schemes, "db", "/").migrates
        };
        let (up, down) = ("action = \"promote\"\nmin_rate = 4.0", "action = \"demote\"\nmin_idle = \"90s\"");
        let limits = |hot_ns, idle_ns, keep_free_pct| Some(migrate::Limits { hot_ns, idle_ns, keep_free_pct });
        assert_eq!(of(&[up]), limits(Some(250_000_000), None, 0.0));
        assert_eq!(of(&[down, up]), limits(Some(250_000_000), Some(90_000_000_000), 10.0));
        let table = ["action = \"collapse\"", down, up, "action = \"page-out\""].map(|text| scheme(text).unwrap());
        let by = Actions::of(&table, "db", "/").by;
        let places = [Charge::Collapse, Charge::PageOut, Charge::Promote, Charge::Demote].map(|charge| by.of(charge));
        assert_eq!(places, [0, 3, 2, 1].map(Some));
        assert!((0..4).all(|place| table[place].action.charge().is_some_and(|charge| by.of(charge) == Some(place))));
        assert_eq!(Actions::of(&table[1..], "db", "/").by.of(Charge::Collapse), None);
        assert_eq!(of(&["action = \"collapse\""]), None);
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
        // One that is left out has its processes all the same: the next may do what they must not bear.
        let mut without = schemes.clone();
        without[0].left_out = Some(String::new());
        let pages_out = |comm| Actions::of(&without, comm, "/").by.page_out;
        assert_eq!((pages_out("db"), pages_out("sh")), (None, Some(2)));
    }
}
