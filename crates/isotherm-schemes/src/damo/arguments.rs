//! Schemes as damo takes them on its command line: `--damos_action` and the options that go with it.
//!
//! Each option may be given several times; the n-th belongs to the n-th action, but for filters and goals of quotas, of which
//! `--damos_nr_filters` and `--damos_nr_quota_goals` say how many each action has. The arguments become the schemes that damo would write to a file, and are read as such.

use super::{Converted, Damos, Error, convert};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};

const ACTION: &str = "--damos_action";

/// The words of a command line; `None` if a quote is not closed. The splitter takes a continued line for an empty word.
fn words(text: &str) -> Option<Vec<String>> {
    shlex::split(&text.replace("\\\n", " "))
}

/// Whether a text has schemes as arguments of damo.
pub fn are_arguments(text: &str) -> bool {
    let is_action =
        |word: &String| word.strip_prefix(ACTION).is_some_and(|rest| rest.is_empty() || rest.starts_with('='));
    words(text).is_some_and(|words| words.iter().any(is_action))
}

/// Reads a command line of damo, or the part of one that has its schemes. Comments and line breaks are as in a shell.
pub fn read_arguments(text: &str) -> Result<Converted, Error> {
    let words = words(text).ok_or_else(|| Error::Arguments("a quote is not closed".to_owned()))?;
    let mut options = Options::of(words);
    let mut filters = options.filters().map_err(Error::Arguments)?;
    let mut goals = options.goals();
    let actions = options.take(ACTION);
    let filter_counts = options.counts("filters", actions.len(), filters.len()).map_err(Error::Arguments)?;
    let goal_counts = options.counts("quota_goals", actions.len(), goals.len()).map_err(Error::Arguments)?;
    let mut schemes: Vec<Damos> = Vec::new();
    for (action, (of_filters, of_goals)) in actions.iter().zip(filter_counts.into_iter().zip(goal_counts)) {
        let own: Vec<Value> = filters.drain(..of_filters.min(filters.len())).collect();
        let own_goals: Vec<Value> = goals.drain(..of_goals.min(goals.len())).collect();
        let scheme = options.scheme(action, own, own_goals).map_err(Error::Arguments)?;
        schemes.push(serde_json::from_value(scheme)?);
    }
    let mut converted = convert(&schemes)?;
    converted.notes.extend(options.rest());
    Ok(converted)
}

/// Options with their values, in the order in which they were given.
struct Options {
    given: BTreeMap<String, VecDeque<Vec<String>>>,
    /// Words that belong to no option: "damo", "start", a target.
    others: Vec<String>,
}

/// How many values an option takes at most. What follows is a target.
fn max_values(option: &str) -> usize {
    match option {
        "--damos_sz_region" | "--damos_access_rate" | "--damos_age" => 2,
        "--damos_wmarks" => 5,
        "--damos_quota_interval" | "--damos_quota_time" | "--damos_quota_space" => 1,
        "--damos_quota_weights" => 3,
        _ => usize::MAX,
    }
}

impl Options {
    fn of(words: Vec<String>) -> Options {
        let mut options = Options { given: BTreeMap::new(), others: Vec::new() };
        let mut last: Option<String> = None;
        for word in words {
            if word.starts_with("--") {
                // As argparse has it, a value may follow an equals sign.
                let (name, value) =
                    word.split_once('=').map_or((word.as_str(), None), |(name, value)| (name, Some(value)));
                let values = value.into_iter().map(str::to_owned).collect();
                options.given.entry(name.to_owned()).or_default().push_back(values);
                last = Some(name.to_owned());
                continue;
            }
            let taking = last.as_ref().and_then(|last| Some((last, options.given.get_mut(last)?.back_mut()?)));
            match taking {
                Some((name, values)) if values.len() < max_values(name) => values.push(word),
                _ => options.others.push(word),
            }
        }
        options
    }

    fn take(&mut self, option: &str) -> VecDeque<Vec<String>> {
        self.given.remove(option).unwrap_or_default()
    }

    fn next(&mut self, option: &str) -> Option<Vec<String>> {
        self.given.get_mut(option)?.pop_front()
    }

    /// All filters, as damo writes them.
    fn filters(&mut self) -> Result<Vec<Value>, String> {
        let is_other = |option: &&String| option.starts_with("--damos_filter") && *option != "--damos_filter";
        if let Some(other) = self.given.keys().find(is_other) {
            return Err(format!("{other} has no counterpart: say it with --damos_filter"));
        }
        let mut filters = Vec::new();
        for words in self.take("--damos_filter") {
            filters.extend(filters_of(&words)?);
        }
        Ok(filters)
    }

    /// All goals of quotas, as damo writes them.
    fn goals(&mut self) -> Vec<Value> {
        let goal = |words: Vec<String>| json!({"metric": words.first(), "target_value": words.get(1)});
        self.take("--damos_quota_goal").into_iter().map(goal).collect()
    }

    /// How many of these each action has, of `all`.
    fn counts(&mut self, what: &str, actions: usize, all: usize) -> Result<Vec<usize>, String> {
        let option = format!("--damos_nr_{what}");
        let given: Vec<String> = self.take(&option).into_iter().flatten().collect();
        let counts: Vec<usize> = if given.is_empty() && (actions == 1 || all == 0) {
            vec![all; actions]
        } else {
            let counts: Result<_, _> = given.iter().map(|count| count.parse::<usize>()).collect();
            counts.map_err(|_| format!("{option} takes numbers"))?
        };
        if counts.len() != actions || counts.iter().sum::<usize>() != all {
            let what = what.replace('_', " ");
            return Err(format!(
                "{option} has to say for each of the {actions} actions how many of the {all} {what} it has"
            ));
        }
        Ok(counts)
    }

    /// The next scheme, as damo writes it.
    fn scheme(&mut self, action: &[String], filters: Vec<Value>, goals: Vec<Value>) -> Result<Value, String> {
        let mut bounds = |option: &str, unit: &str| match self.next(option).as_deref() {
            // A number without a unit is one of microseconds, or of bytes.
            Some([min, max]) => Ok(json!({"min": with_unit(min, unit), "max": with_unit(max, unit)})),
            Some(others) => Err(format!("{option} takes a minimum and a maximum, and has {others:?}")),
            None => Ok(json!({"min": "min", "max": "max"})),
        };
        let pattern = json!({
            "sz_bytes": bounds("--damos_sz_region", "")?,
            "nr_accesses": bounds("--damos_access_rate", "")?,
            "age": bounds("--damos_age", " us")?,
        });
        let watermarks = self.next("--damos_wmarks").map_or(Value::Null, |words| watermarks_of(&words));
        let quotas = self.quotas(goals);
        Ok(json!({
            "action": action.first().cloned().unwrap_or_default(),
            "access_pattern": pattern,
            "filters": filters,
            "watermarks": watermarks,
            "quotas": quotas,
        }))
    }

    /// The next quotas, with their goals. Times without a unit are of milliseconds. Weights say nothing here: the oldest leave first.
    fn quotas(&mut self, goals: Vec<Value>) -> Value {
        let old: Vec<String> = self.next("--damos_quotas").unwrap_or_default();
        self.next("--damos_quota_weights");
        let mut one = |option: &str, place: usize| {
            let new = self.next(option).and_then(|words| words.first().cloned());
            new.or_else(|| old.get(place).cloned())
        };
        let (time, size) = (one("--damos_quota_time", 0), one("--damos_quota_space", 1));
        let interval = one("--damos_quota_interval", 2);
        let ms = |text: Option<String>| text.map(|text| with_unit(&text, " ms"));
        json!({"time_ms": ms(time), "sz_bytes": size, "reset_interval_ms": ms(interval), "goals": goals})
    }

    /// What of the command line has become nothing.
    fn rest(self) -> Option<String> {
        let is_lost =
            |(option, values): (&String, &VecDeque<Vec<String>>)| (!values.is_empty()).then(|| option.clone());
        let lost: Vec<String> = self.given.iter().filter_map(is_lost).collect();
        let target = self.others.iter().find(|word| !["damo", "sudo", "start", "tune"].contains(&word.as_str()));
        let target = target.map(|target| format!("the target {target:?}"));
        let lost: Vec<String> = target.into_iter().chain(lost).collect();
        (!lost.is_empty())
            .then(|| format!("lost: {}; name the processes with -p, or in [targets] of the settings", lost.join(", ")))
    }
}

fn with_unit(text: &str, unit: &str) -> String {
    if text.parse::<f64>().is_ok() { format!("{text}{unit}") } else { text.to_owned() }
}

/// Metric, interval, high, mid and low marks. Numbers are thousandths.
fn watermarks_of(words: &[String]) -> Value {
    let [metric, interval, high, mid, low] = words else { return json!({"metric": "unknown", "words": words}) };
    let mark = |text: &String| text.parse::<f64>().map_or_else(|_| json!(text), |permil| json!(permil));
    json!({"metric": metric, "interval_us": interval,
        "high_permil": mark(high), "mid_permil": mark(mid), "low_permil": mark(low)})
}

/// Filters in the form `allow|reject [none] TYPE OPTION...`, one after the other, or in the older form
/// `TYPE matching|nomatching OPTION... [allow|reject]`.
fn filters_of(words: &[String]) -> Result<Vec<Value>, String> {
    let is_verdict = |word: &str| matches!(word, "allow" | "reject");
    let of = |allow: bool, matching: bool, kind: &str, options: &[String]| json!({"filter_type": kind, "matching": matching, "allow": allow, "memcg_path": options.first()});
    if let [kind, matching @ ("matching" | "nomatching"), options @ ..] =
        words.iter().map(String::as_str).collect::<Vec<_>>().as_slice()
    {
        let (verdict, options) = match options.split_last() {
            Some((last, before)) if is_verdict(last) => (*last, before),
            _ => ("reject", options),
        };
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        return Ok(vec![of(verdict == "allow", *matching == "matching", kind, &options)]);
    }
    let mut filters = Vec::new();
    let mut rest = words;
    while let Some(first) = rest.first() {
        // Without a verdict, a filter rejects.
        let (allow, after) = if is_verdict(first) { (first == "allow", &rest[1..]) } else { (false, rest) };
        let none = after.first().is_some_and(|word| word == "none");
        let after = if none { &after[1..] } else { after };
        let (kind, after) =
            after.split_first().ok_or_else(|| format!("--damos_filter {}: a type is missing", words.join(" ")))?;
        let end = after.iter().position(|word| is_verdict(word)).unwrap_or(after.len());
        filters.push(of(allow, !none, kind, &after[..end]));
        rest = &after[end..];
    }
    Ok(filters)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheme::{ActionName, Written};

    fn read(text: &str) -> Result<Converted, String> {
        read_arguments(text).map_err(|error| error.to_string())
    }

    #[test]
    fn each_action_has_the_options_of_its_place() {
        let text = "sudo damo start --ops vaddr --target_pid 7 \\\n  --damos_action pageout --damos_access_rate 0% 0% --damos_age 2m max \\
            --damos_wmarks free_mem_rate 1s 500 40% 50 --damos_action migrate_hot 0 --damos_access_rate 10% max --damos_age 0 max \\
            --damos_quota_space 1G --damos_quota_interval 1000 --damos_quota_goal some_mem_psi_us 5ms 0 --damos_nr_quota_goals 1 0 --damos_filter reject none memcg /app allow anon --damos_nr_filters 1 1";
        let Converted { schemes, notes } = read(text).unwrap();
        let marks = crate::page_out::watermarks::Watermarks { high: 50.0, mid: 40.0, low: 5.0 };
        let out = Written {
            min_idle: Some("2m".into()),
            watermarks: Some(marks),
            quota: Some(crate::quota::WrittenQuota { size: "1024MiB".into(), every: "1s".into() }),
            goal: Some(crate::quota::Goal { pressure: Some(0.5), free: None }),
            cgroups: vec!["/app".into()],
            ..Written::of(ActionName::PageOut)
        };
        assert_eq!(schemes, [out, Written::of(ActionName::Promote)]);
        let notes = notes.join("\n");
        assert!(!notes.contains("quota"), "the first quota is of the first scheme: {notes}");
        assert!(notes.contains("--ops") && notes.contains("--target_pid") && notes.contains("-p"), "{notes}");
    }

    #[test]
    fn a_number_without_a_unit_is_of_microseconds() {
        let min_idle = |text: &str| read(text).map(|converted| converted.schemes[0].min_idle.clone().unwrap());
        let pageout = "--damos_action pageout --damos_access_rate 0 0";
        assert_eq!(min_idle(&format!("{pageout} --damos_age 90000000 max")), Ok("1m 30s".into()));
        assert_eq!(min_idle(&format!("{pageout} --damos_age 100d max")), Ok("1month 7days 13h 26m 24s".into()));
        for text in [
            format!("damo start 812 {pageout} --damos_age 1h max"),
            format!("{pageout} --damos_age 1h max 812"),
            format!("{pageout} --damos_age 1h max --damos_quota_space 1G --damos_quota_interval 1s 812"),
        ] {
            assert!(read(&text).unwrap().notes.iter().any(|note| note.contains("the target \"812\"")), "{text}");
        }
    }

    #[test]
    fn a_value_may_follow_an_equals_sign() {
        let text = "--damos_action=pageout --damos_access_rate 0% 0% --damos_age 2m max";
        assert!(are_arguments(text) && !are_arguments("--damos_actions pageout"));
        assert_eq!(read(text).unwrap().schemes[0].min_idle.as_deref(), Some("2m"));
    }

    #[test]
    fn what_would_act_on_other_memory_is_an_error() {
        let pageout = "--damos_action pageout --damos_access_rate 0% 0% --damos_age 1m max";
        for (text, why) in [
            ("--damos_action pageout --damos_age 1m max", "memory that is accessed"),
            ("--damos_action lru_prio", "no counterpart"),
            (&format!("{pageout} --damos_filter reject addr 1 2"), "reject addr"),
            (&format!("{pageout} --damos_filter addr matching 1 2"), "reject addr"),
            (&format!("{pageout} --damos_filter_out anon"), "--damos_filter_out"),
            (&format!("{pageout} --damos_filter reject none"), "a type is missing"),
            (&format!("{pageout} --damos_action hugepage --damos_filter allow anon"), "--damos_nr_filters"),
            (&format!("{pageout} --damos_nr_filters many"), "numbers"),
            (&format!("{pageout} --damos_filter=addr"), "reject addr"),
            (&format!("{pageout} --damos_filters_of_later"), "--damos_filters_of_later"),
            ("--damos_action pageout --damos_access_rate 0% 0% --damos_age 1m", "a minimum and a maximum"),
            (&format!("{pageout} \"open"), "quote"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn filters_are_read_in_both_forms() {
        let cgroups = |filter: &str| {
            let text =
                format!("--damos_action pageout --damos_access_rate 0% 0% --damos_age 1m max --damos_filter {filter}");
            read(&text).map(|converted| converted.schemes[0].cgroups.clone())
        };
        for same in
            ["reject none memcg /a", "allow memcg /a", "memcg nomatching /a", "memcg matching /a allow", "none memcg a"]
        {
            assert_eq!(cgroups(same), Ok(vec!["/a".into()]), "{same}");
        }
        assert_eq!(cgroups("reject young reject none anon"), Ok(vec![]));
        assert!(cgroups("reject memcg /a").is_err());
        assert!(are_arguments("damo start --damos_action stat") && !are_arguments("[1]"));
    }
}
