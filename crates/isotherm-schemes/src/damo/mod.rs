//! Schemes of damo (`--schemes FILE`, JSON), to and from the table `[[scheme]]`.
//!
//! DAMON acts on regions whose size, accesses and age lie within bounds; a scheme here acts on pages by idle time, or on hot huge ranges.
//! What has no counterpart is named in a note, and an action or a filter that would change what is done to is an error: a scheme that
//! loses a filter would act on memory that it was meant to spare. The format is damo's of 2026; keys of older versions are read.
//! [`read_arguments`] reads the same from a command line.

mod arguments;
mod quotas;

pub use arguments::{are_arguments, read_arguments};

use crate::page_out::watermarks::Watermarks;
use crate::scheme::{ActionName, LONGEST_AGE, SHORTEST_AGE, Written};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Why a file cannot be converted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It is no JSON, or not in the form of damo.
    #[error(transparent)]
    Syntax(#[from] serde_json::Error),
    /// A command line has no counterpart here.
    #[error("{0}")]
    Arguments(String),
    /// A scheme has no counterpart here.
    #[error("scheme {number}: {what}")]
    Scheme {
        /// Which one, from 1 on.
        number: usize,
        /// What it asks for.
        what: String,
    },
}

/// Schemes, and what of them is lost.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Converted {
    /// In their order.
    pub schemes: Vec<Written>,
    /// Sentences for people.
    pub notes: Vec<String>,
}

/// One scheme of damo, as far as it is used here.
#[derive(Deserialize)]
struct Damos {
    action: String,
    #[serde(default)]
    access_pattern: Option<AccessPattern>,
    #[serde(default)]
    filters: Vec<Filter>,
    #[serde(default)]
    core_filters: Vec<Filter>,
    #[serde(default)]
    ops_filters: Vec<Filter>,
    #[serde(default)]
    quotas: Value,
    #[serde(default)]
    watermarks: Value,
    /// What has no counterpart.
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
struct AccessPattern {
    #[serde(default)]
    sz_bytes: Bounds,
    #[serde(default)]
    nr_accesses: Bounds,
    #[serde(default)]
    age: Bounds,
}

/// From and to, as text or as numbers.
#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct Bounds {
    min: Value,
    max: Value,
}

#[derive(Deserialize)]
struct Filter {
    filter_type: String,
    #[serde(default)]
    matching: Value,
    #[serde(default, alias = "filter_pass")]
    allow: Value,
    #[serde(default)]
    memcg_path: Option<String>,
}

/// Whether a text is a list of schemes of damo.
pub fn is_schemes(text: &str) -> bool {
    serde_json::from_str::<Vec<Damos>>(text).is_ok_and(|schemes| !schemes.is_empty())
}

/// Reads schemes of damo.
pub fn read(text: &str) -> Result<Converted, Error> {
    convert(&serde_json::from_str::<Vec<Damos>>(text)?)
}

fn convert(all: &[Damos]) -> Result<Converted, Error> {
    let mut converted = Converted::default();
    for (number, damos) in (1..).zip(all) {
        let mut notes = Vec::new();
        let written = scheme(damos, &mut notes).map_err(|what| Error::Scheme { number, what })?;
        converted.schemes.push(written);
        converted.notes.extend(notes.into_iter().map(|note| format!("scheme {number}: {note}")));
    }
    Ok(converted)
}

fn action_of(action: &str) -> Result<ActionName, String> {
    Ok(match action {
        "pageout" => ActionName::PageOut,
        "hugepage" | "collapse" => ActionName::Collapse,
        "migrate_cold" => ActionName::Demote,
        "migrate_hot" => ActionName::Promote,
        other => {
            return Err(format!(
                "action {other:?} has no counterpart; pageout, hugepage, collapse, migrate_cold and migrate_hot have"
            ));
        }
    })
}

fn scheme(damos: &Damos, notes: &mut Vec<String>) -> Result<Written, String> {
    let action = action_of(&damos.action)?;
    let pattern = damos.access_pattern.as_ref();
    let min_idle = match action {
        ActionName::PageOut | ActionName::Demote => Some(min_idle(pattern, notes)?),
        ActionName::Promote => {
            notes.push("bounds of accesses and age are replaced by `min_rate`: once in two seconds".to_owned());
            None
        }
        ActionName::BringBack | ActionName::Split | ActionName::Reclaim => None,
        ActionName::Collapse => {
            notes.push("bounds of accesses and age are replaced by `min_benefit_hz` of [rules]".to_owned());
            None
        }
    };
    if pattern.is_some_and(|p| !is_open(&p.sz_bytes)) {
        notes.push("bounds of the size of regions are lost: pages are known one by one".to_owned());
    }
    let (quota, goal) = if action == ActionName::PageOut {
        quotas::read(&damos.quotas, notes)
    } else {
        quotas::read(&without_goals(&damos.quotas, notes), notes)
    };
    if let Some(age) = pattern.map(|pattern| &pattern.age.max).filter(|age| has_value(age)) {
        return Err(format!("age.max = {age} has no counterpart: memory that is idle for longer leaves, too"));
    }
    let of_the_past = |key: &str| ["stats", "tried_regions", "tried_bytes", "name"].contains(&key);
    let lost = damos.rest.iter().filter(|(key, value)| !of_the_past(key) && has_value(value));
    notes.extend(lost.map(|(key, _)| format!("{key} is lost")));
    let filters: Vec<&Filter> = damos.filters.iter().chain(&damos.core_filters).chain(&damos.ops_filters).collect();
    let cgroups = cgroups_of(&filters, action)?;
    let watermarks = watermarks(&damos.watermarks).filter(|_| action == ActionName::PageOut);
    if watermarks.is_none() && has_value(&damos.watermarks) {
        notes.push("watermarks are lost".to_owned());
    }
    if matches!(action, ActionName::Promote | ActionName::Demote) {
        notes.push("target_nid is replaced by the memory tiers of the machine".to_owned());
    }
    // DAMON moves whatever is free of fast memory.
    let keep_free = (action == ActionName::Demote).then_some(100.0);
    Ok(Written { cgroups, min_idle, watermarks, quota, goal, keep_free, ..Written::of(action) })
}

/// Quotas of what does not leave. Only how much leaves is tuned here.
fn without_goals(quotas: &Value, notes: &mut Vec<String>) -> Value {
    let mut sizes = quotas.clone();
    let goals = sizes.as_object_mut().and_then(|all| all.remove("goals"));
    if goals.is_some_and(|goals| has_value(&goals)) {
        notes.push("goals of the quota are lost: here they tune what leaves, and nothing else".to_owned());
    }
    sizes
}

/// Watermarks of free memory. DAMON has no others.
fn watermarks(written: &Value) -> Option<Watermarks> {
    (written["metric"].as_str()? == "free_mem_rate").then_some(())?;
    // As text "50 %", or as a number of thousandths.
    let pct = |key: &str| match &written[key] {
        Value::String(text) => percent_text(text),
        other => Some(other.as_f64()? / 10.0),
    };
    Some(Watermarks { high: pct("high_permil")?, mid: pct("mid_permil")?, low: pct("low_permil")? })
        .filter(|marks| marks.fault().is_none())
}

/// As "50 %".
fn percent_text(text: &str) -> Option<f64> {
    text.trim().strip_suffix('%')?.trim().parse().ok()
}

/// The age of memory without accesses.
fn min_idle(pattern: Option<&AccessPattern>, notes: &mut Vec<String>) -> Result<String, String> {
    let none = || Err("it pages out memory that is accessed: only nr_accesses of 0 have a counterpart".to_owned());
    let Some(pattern) = pattern else { return none() };
    if !is_zero(&pattern.nr_accesses.max) {
        return none();
    }
    let age = match &pattern.age.min {
        // Numbers without a unit are aggregation intervals in some versions and microseconds in others.
        Value::String(text) => time(text).ok_or_else(|| format!("age.min = {text:?} is no time: write \"2 m\""))?,
        other => return Err(format!("age.min = {other} has no unit: write \"2 m\"")),
    };
    if age < SHORTEST_AGE {
        notes.push(format!("the age of {age:?} is below the shortest, which is used: {SHORTEST_AGE:?}"));
    }
    if age > LONGEST_AGE {
        notes.push(format!("the age of {age:?} is above the longest, which is used: {LONGEST_AGE:?}"));
    }
    Ok(humantime::format_duration(age.clamp(SHORTEST_AGE, LONGEST_AGE)).to_string())
}

/// The cgroups that all filters keep to.
fn cgroups_of(filters: &[&Filter], action: ActionName) -> Result<Vec<String>, String> {
    let of_cgroups = filters.iter().filter(|f| f.filter_type == "memcg");
    let (allowing, rejecting): (Vec<&Filter>, Vec<&Filter>) = of_cgroups.copied().partition(|f| is_true(&f.allow));
    if rejecting.len() > 1 {
        return Err(
            "of several memcg filters that reject others, nothing is left: take one, or such that allow".to_owned()
        );
    }
    if !rejecting.is_empty() && !allowing.is_empty() {
        let why = "of a memcg filter that rejects all others and one that allows, the first in the list counts for DAMON: take one kind";
        return Err(why.to_owned());
    }
    let mut cgroups = Vec::new();
    for filter in filters {
        cgroups.extend(cgroup_of(filter, action)?);
    }
    Ok(cgroups)
}

/// The cgroup that a filter keeps to.
fn cgroup_of(filter: &Filter, action: ActionName) -> Result<Option<String>, String> {
    let (is_matching, allows) = (is_true(&filter.matching), is_true(&filter.allow));
    match filter.filter_type.as_str() {
        // Memory without a file is all that leaves here, and all that is collapsed by default.
        "anon" if allows == is_matching => Ok(None),
        // Pages that were accessed since they were found idle stay anyway.
        "young" if action == ActionName::PageOut && allows != is_matching => Ok(None),
        "memcg" if allows == is_matching => match filter.memcg_path.as_deref().map(|path| path.trim_matches('/')) {
            None | Some("") => Err("a memcg filter names no cgroup but the root".to_owned()),
            // From the root on, as DAMON takes it.
            Some(path) => Ok(Some(format!("/{path}"))),
        },
        other => {
            let verb = if allows { "allow" } else { "reject" };
            let none = if is_matching { "" } else { "none " };
            Err(format!("the filter \"{verb} {none}{other}\" has no counterpart"))
        }
    }
}

fn is_true(value: &Value) -> bool {
    match value {
        Value::Bool(is) => *is,
        Value::String(text) => matches!(text.to_ascii_lowercase().as_str(), "true" | "yes" | "y" | "1"),
        Value::Number(number) => number.as_f64() != Some(0.0),
        _ => false,
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => {
            let number = text.trim().split([' ', '%']).next().unwrap_or_default();
            text == "min" || number.parse::<f64>() == Ok(0.0)
        }
        _ => false,
    }
}

/// Whether bounds exclude nothing; a region has a page at least.
fn is_open(bounds: &Bounds) -> bool {
    let is_smallest = |text: &str| ["min", "0", "0 B", "4K", "4.000 KiB", "4.0 KiB", "4 KiB", "4096"].contains(&text);
    let of = |value: &Value, is_so: &dyn Fn(&str) -> bool| match value {
        Value::Null => true,
        Value::String(text) => is_so(text.trim()),
        other => is_so(&other.to_string()),
    };
    of(&bounds.min, &is_smallest) && of(&bounds.max, &|text| text == "max" || text.starts_with("16.000 EiB"))
}

/// Whether anything in it is set: not null, empty, nought or "none".
fn has_value(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Array(values) => values.iter().any(has_value),
        // The interval to which a quota applies, and the weights within one, say nothing by themselves.
        Value::Object(values) => values.iter().any(|(key, value)| {
            !(key.contains("interval") || key.contains("weights") || key == "goal_tuner") && has_value(value)
        }),
        Value::String(text) => text != "none" && text != "max" && !is_zero(value),
        other => !is_zero(other),
    }
}

/// A time of damo: "2 m", "1s", "1 m 30 s", "1.5 s", "100 ms". `None` for anything else.
fn time(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut all = Duration::ZERO;
    if rest == "min" {
        return Some(all);
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == ','))?;
        let number: f64 = rest[..digits].replace(',', "").parse().ok()?;
        rest = rest[digits..].trim_start();
        let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let unit_s = match &rest[..letters] {
            "ns" => 1e-9,
            "us" | "usec" => 1e-6,
            "ms" | "msec" => 1e-3,
            "s" | "sec" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        rest = rest[letters..].trim_start();
        all = all.checked_add(Duration::try_from_secs_f64(number * unit_s).ok()?)?;
    }
    (!text.trim().is_empty()).then_some(all)
}

/// An age of a scheme as damo takes it: it knows fewer units than the settings.
fn age_text(written: &str) -> String {
    match humantime::parse_duration(written) {
        Ok(age) if time(written) != Some(age) => format!("{} s", age.as_secs_f64()),
        _ => written.to_owned(),
    }
}

/// As schemes of damo, and what of them is lost.
pub fn write(schemes: &[Written]) -> Result<(String, Vec<String>), Error> {
    let mut notes = Vec::new();
    let numbered = (1..).zip(schemes);
    let all: Result<Vec<Value>, Error> =
        numbered.map(|(number, scheme)| to_damos(number, scheme, &mut notes)).collect();
    Ok((serde_json::to_string_pretty(&all?)? + "\n", notes))
}

/// Why DAMON would act on other memory, if so.
fn fits_damo(scheme: &Written) -> Result<(), &'static str> {
    if scheme.assigned {
        return Err(
            "its cgroups are assigned while it runs, and DAMON would act on all targets: name `cgroups` instead",
        );
    }
    if !scheme.processes.is_empty() {
        return Err(
            "it names processes, and DAMON would act on all targets: give damo the pids as targets, and leave `processes` out",
        );
    }
    if scheme.cgroups.iter().any(|path| !path.starts_with('/')) {
        return Err("it names a part of a cgroup's path: DAMON takes paths from the root on");
    }
    match scheme.action {
        ActionName::Promote | ActionName::Demote => {
            Err("it moves pages by memory tier, and DAMON to a node with a number")
        }
        ActionName::BringBack => Err(
            "it reads from swap what has begun to come back, and DAMON's willneed acts on regions by their accesses",
        ),
        ActionName::Split => Err("it splits huge pages, and DAMON has no action for that"),
        ActionName::Reclaim => Err("it asks the kernel for files of a cgroup, and DAMON has no action for that"),
        ActionName::PageOut | ActionName::Collapse => Ok(()),
    }
}

fn to_damos(number: usize, scheme: &Written, notes: &mut Vec<String>) -> Result<Value, Error> {
    fits_damo(scheme).map_err(|what| Error::Scheme { number, what: what.to_owned() })?;
    let memcg = |path: &String| json!({"filter_type": "memcg", "matching": true, "allow": true, "memcg_path": path});
    // Only memory without a file leaves or is collapsed here.
    let anon = json!({"filter_type": "anon", "matching": false, "allow": false});
    let filters: Vec<Value> = std::iter::once(anon).chain(scheme.cgroups.iter().map(memcg)).collect();
    if scheme.action == ActionName::PageOut {
        return to_pageout(number, scheme, &filters, notes);
    }
    // All but collapse were refused above.
    notes.push(format!("scheme {number}: `min_benefit_hz` is lost: it collapses what is accessed at all"));
    let any = json!({"min": "min", "max": "max"});
    let mut written = json!({
        "action": "collapse",
        "access_pattern": {"sz_bytes": any, "nr_accesses": {"min": "1 %", "max": "max"}, "age": any},
        "filters": filters,
    });
    if let Some(quota) = &scheme.quota {
        written["quotas"] = quotas::write(quota, None).map_err(|what| Error::Scheme { number, what })?;
        notes.push(format!("scheme {number}: DAMON spends its quota on what it tries, what is huge already too"));
    }
    Ok(written)
}

fn to_pageout(number: usize, scheme: &Written, filters: &[Value], notes: &mut Vec<String>) -> Result<Value, Error> {
    notes.push(format!("scheme {number}: max_refaults is lost, its default too: DAMON does not count what comes back"));
    let age = scheme.min_idle.as_deref().map_or_else(|| "10m".to_owned(), age_text);
    let mut written = json!({
        "action": "pageout",
        "access_pattern": {
            "sz_bytes": {"min": "min", "max": "max"},
            "nr_accesses": {"min": "0 %", "max": "0 %"},
            "age": {"min": age, "max": "max"},
        },
        "filters": filters,
    });
    if let Some(quota) = &scheme.quota {
        let quotas = quotas::write(quota, scheme.goal);
        written["quotas"] = quotas.map_err(|what| Error::Scheme { number, what })?;
        if scheme.goal.is_some_and(|goal| goal.free.is_some()) {
            notes.push(format!("scheme {number}: the goal of free memory is of node 0, and not of the whole machine"));
        }
    }
    if let Some(Watermarks { high, mid, low }) = scheme.watermarks {
        let pct = |pct: f64| format!("{pct} %");
        written["watermarks"] = json!({"metric": "free_mem_rate", "interval_us": "1 s",
            "high_permil": pct(high), "mid_permil": pct(mid), "low_permil": pct(low)});
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::WrittenQuota;

    /// In the form that damo writes.
    const TWO: &str = r#"[
        {"action": "pageout",
         "access_pattern": {
            "sz_bytes": {"min": "4.000 KiB", "max": "max"},
            "nr_accesses": {"min": "0 %", "max": "0 %"},
            "age": {"min": "2 m 30 s", "max": "max"}},
         "quotas": {"time_ms": "0 ns", "sz_bytes": "1.000 GiB", "reset_interval_ms": "1 s",
            "weights": {"sz_permil": "0 %", "nr_accesses_permil": "30 %", "age_permil": "70 %"}},
         "watermarks": {"metric": "none", "interval_us": "0 ns", "high_permil": "0 %", "mid_permil": "0 %", "low_permil": "0 %"},
         "ops_filters": [{"filter_type": "memcg", "matching": true, "allow": true, "memcg_path": "/app.slice"},
            {"filter_type": "anon", "matching": true, "allow": true}]},
        {"action": "hugepage",
         "access_pattern": {
            "sz_bytes": {"min": "2.000 MiB", "max": "max"},
            "nr_accesses": {"min": "25 %", "max": "max"},
            "age": {"min": "1 s", "max": "max"}}}]"#;

    fn page_out(min_idle: &str, cgroups: &[&str]) -> Written {
        let cgroups = cgroups.iter().map(|path| (*path).to_owned()).collect();
        Written { cgroups, min_idle: Some(min_idle.to_owned()), ..Written::of(ActionName::PageOut) }
    }

    #[test]
    fn what_damo_writes_is_read_and_what_is_lost_is_named() {
        assert!(is_schemes(TWO) && !is_schemes("[]") && !is_schemes("{}") && !is_schemes("[1]"));
        let read = read(TWO).unwrap();
        let collapse = Written { action: ActionName::Collapse, min_idle: None, ..page_out("", &[]) };
        let quota = Some(WrittenQuota { size: "1024MiB".into(), every: "1s".into() });
        let page_out = Written { quota, ..page_out("2m 30s", &["/app.slice"]) };
        assert_eq!(read.schemes, [page_out, collapse]);
        let lost: Vec<&str> = read.notes.iter().map(|note| note.split(' ').nth(2).unwrap()).collect();
        assert_eq!(lost, ["bounds", "bounds"], "{:#?}", read.notes);
    }

    #[test]
    fn an_older_form_is_read() {
        let old = r#"[{"access_pattern": {"sz_bytes": {"min": "min", "max": "max"}, "nr_accesses_unit": "percent",
            "nr_accesses": {"min": "min", "max": "min"}, "age_unit": "usec", "age": {"min": "1s", "max": "max"}}, "action": "pageout"}]"#;
        let read = read(old).unwrap();
        assert_eq!(read.schemes, [page_out("10s", &[])]);
        assert!(read.notes.len() == 1 && read.notes[0].contains("shortest"), "{:#?}", read.notes);
    }

    #[test]
    fn what_would_act_on_other_memory_is_an_error() {
        let with = |what: &str, instead: &str| read(&TWO.replace(what, instead)).unwrap_err().to_string();
        for (what, instead, why) in [
            (r#""pageout""#, r#""lru_prio""#, "lru_prio"),
            (r#""max": "0 %""#, r#""max": "10 %""#, "accessed"),
            (r#""2 m 30 s""#, "1500", "no unit"),
            (r#""2 m 30 s""#, r#""soon""#, "is no time"),
            (r#""allow": true, "memcg_path""#, r#""allow": false, "memcg_path""#, "reject memcg"),
            (
                r#"{"filter_type": "anon", "matching": true, "allow": true}"#,
                r#"{"filter_type": "memcg", "matching": false, "allow": false, "memcg_path": "/b.slice"}"#,
                "one kind",
            ),
            (r#""/app.slice""#, r#""/""#, "but the root"),
            (r#""2 m 30 s", "max": "max""#, r#""2 m 30 s", "max": "1 h""#, "age.max"),
            (r#""anon", "matching": true"#, r#""anon", "matching": false"#, "allow none anon"),
            (r#""anon""#, r#""hugepage_size""#, "hugepage_size"),
        ] {
            let error = with(what, instead);
            assert!(error.starts_with("scheme 1: ") && error.contains(why), "{what} -> {instead}: {error}");
        }
        assert!(read("[{}]").unwrap_err().to_string().contains("action"));
    }

    #[test]
    fn what_migrates_hot_and_cold_memory_moves_by_tier() {
        let cold = TWO.replace("pageout", "migrate_cold").replace("hugepage\"", "migrate_hot\"");
        let read = read(&cold).unwrap();
        let demote = Written {
            action: ActionName::Demote,
            quota: Some(WrittenQuota { size: "1024MiB".into(), every: "1s".into() }),
            keep_free: Some(100.0),
            ..page_out("2m 30s", &["/app.slice"])
        };
        assert_eq!(read.schemes, [demote, Written::of(ActionName::Promote)]);
        // What tunes how much leaves says nothing of how much moves.
        let goals =
            r#""weights": {"sz_permil": "0 %"}, "goals": [{"metric": "some_mem_psi_us", "target_value": "10 ms"}]"#;
        let tuned = self::read(&cold.replacen(r#""weights""#, &format!(r#"{goals}, "x""#), 1)).unwrap();
        assert_eq!(tuned.schemes[0], read.schemes[0]);
        assert!(tuned.notes.iter().any(|note| note.contains("goals of the quota")), "{:#?}", tuned.notes);
    }

    #[test]
    fn times_of_damo_are_read() {
        let ms = |text| time(text).map(|time| time.as_millis());
        let expected = [Some(150_000), Some(1000), Some(1500), Some(100), Some(3_723_000), Some(0), None, None, None];
        let texts = ["2 m 30 s", "1s", "1.5 s", "100 ms", "1 h 2 m 3 s", "min", "max", "", "5"];
        assert_eq!(texts.map(ms), expected);
    }

    #[test]
    fn schemes_go_there_and_back() {
        let collapse = Written { action: ActionName::Collapse, min_idle: None, ..page_out("", &["/b"]) };
        let schemes = [page_out("10m", &["/a", "/c"]), collapse.clone()];
        let (text, notes) = write(&schemes).unwrap();
        assert_eq!(read(&text).unwrap().schemes, schemes, "{text}");
        let quota = Some(WrittenQuota { size: "64MiB".into(), every: "2s".into() });
        let limited = [Written { quota, ..collapse }];
        assert_eq!(read(&write(&limited).unwrap().0).unwrap().schemes, limited);
        assert_eq!(notes.len(), 2, "{notes:?}");
        let marks = Watermarks { high: 50.0, mid: 40.0, low: 2.5 };
        let short = Written { watermarks: Some(marks), ..page_out("10m", &[]) };
        let (text, notes) = write(std::slice::from_ref(&short)).unwrap();
        assert_eq!((read(&text).unwrap().schemes, notes.len()), (vec![short], 1), "the brake is lost: {text}");
        let permil = text.replace("\"50 %\"", "500").replace("\"40 %\"", "400").replace("\"2.5 %\"", "25");
        assert_eq!(read(&permil).unwrap().schemes[0].watermarks, Some(marks), "{permil}");
        for (age, back) in [("10min", "10m"), ("2days", "2days"), ("90s", "1m 30s")] {
            let (text, _) = write(&[page_out(age, &[])]).unwrap();
            assert_eq!(read(&text).unwrap().schemes, [page_out(back, &[])], "{text}");
        }
        let own = Written { max_refaults: Some(0.5), ..page_out("1h", &[]) };
        let (text, notes) = write(&[own]).unwrap();
        assert_eq!((read(&text).unwrap().schemes, notes.len()), (vec![page_out("1h", &[])], 1));
        // DAMON would act on more than was meant.
        for (wider, why) in [
            (Written { processes: vec!["db".into()], ..page_out("1h", &[]) }, "names processes"),
            (Written { name: Some("a".into()), assigned: true, ..page_out("1h", &[]) }, "assigned while it runs"),
            (page_out("1h", &["app.slice"]), "part of a cgroup"),
            (Written::of(ActionName::Promote), "a node with a number"),
        ] {
            let error = write(&[page_out("1h", &[]), wider]).unwrap_err().to_string();
            assert!(error.starts_with("scheme 2: ") && error.contains(why), "{error}");
        }
    }
}
