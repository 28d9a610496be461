//! Which service a process belongs to, by the path of its cgroup and its command name.
//!
//! The first rule of the settings that matches decides. Without one, the name follows from what the path says
//! ([`CgroupNames`]): it should be the same on all hosts and after each restart, so that the fleet adds up. So instances of a unit
//! have the name of its template, scopes lose their numbers, and processes of pods go by their command: a path has the id of a pod,
//! which no other pod shares, and not its name.
//!
//! | cgroup | service |
//! |---|---|
//! | `/system.slice/redis-server.service` | `redis-server.service` |
//! | `/system.slice/system-getty.slice/getty@tty1.service` | `getty@.service` |
//! | `/user.slice/user-1000.slice/session-3.scope` | `session.scope` |
//! | `/user.slice/user-1000.slice/user@1000.service/app.slice/app-x-4711.scope` | `app-x.scope` |
//! | `/kubepods/burstable/podUID/ID`, command `java` | `pod/java` |
//! | `/docker/ID`, command `java` | `container/java` |
//! | `/` or unknown, command `java` | `java` |

use crate::error::{Error, Result};
use isotherm_sys::cgroup_names::CgroupNames;
use regex::Regex;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A rule as the settings have it: `[[service]]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleSettings {
    /// A regular expression. It matches anywhere: use `^` and `$`.
    #[serde(rename = "match")]
    pub pattern: String,
    /// What it is matched with.
    #[serde(default)]
    pub on: On,
    /// The name of the service, with `$1` or `${name}` for what groups of the expression have matched.
    pub name: String,
    /// Labels, with groups likewise.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// The memory request of each cgroup of the service, if there is one.
    #[serde(default)]
    pub request_bytes: Option<u64>,
}

/// What a rule is matched with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum On {
    /// The path of the cgroup.
    #[default]
    Cgroup,
    /// The command name of the process, at most 15 bytes.
    Comm,
}

/// A service.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Service {
    /// Its name.
    pub name: Arc<str>,
    /// Labels as a JSON object with sorted keys; empty if there are none.
    pub labels: Arc<str>,
    /// The memory request of each of its cgroups.
    pub request_bytes: Option<u64>,
}

#[derive(Clone, Debug)]
struct Rule {
    regex: Regex,
    settings: RuleSettings,
}

/// The rules, in order.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    rules: Vec<Rule>,
}

impl Rules {
    /// Of the settings. Fails if an expression is none, or a name is empty.
    pub fn new(settings: &[RuleSettings]) -> Result<Rules> {
        let rule = |settings: &RuleSettings| {
            let wrong = |reason: String| Error::Rule { pattern: settings.pattern.clone(), reason };
            if settings.name.trim().is_empty() {
                return Err(wrong("the name is empty".to_owned()));
            }
            let regex = Regex::new(&settings.pattern).map_err(|error| wrong(error.to_string()))?;
            Ok(Rule { regex, settings: settings.clone() })
        };
        Ok(Rules { rules: settings.iter().map(rule).collect::<Result<_>>()? })
    }

    /// Of the tables `[[service]]` of a settings file. Its other tables are not for rules and are not read.
    pub fn from_toml(text: &str) -> Result<Rules> {
        #[derive(Deserialize)]
        struct Settings {
            #[serde(default)]
            service: Vec<RuleSettings>,
        }
        let wrong = |error: toml::de::Error| Error::Settings { reason: error.to_string() };
        Rules::new(&toml::from_str::<Settings>(text).map_err(wrong)?.service)
    }

    /// The service of a process.
    pub fn service(&self, cgroup: &str, comm: &str) -> Service {
        let by_rule = self.rules.iter().find_map(|rule| rule.service(cgroup, comm));
        by_rule.unwrap_or_else(|| Service { name: default_name(cgroup, comm).into(), ..Service::default() })
    }
}

impl Rule {
    fn service(&self, cgroup: &str, comm: &str) -> Option<Service> {
        let on = match self.settings.on {
            On::Cgroup => cgroup,
            On::Comm => comm,
        };
        let found = self.regex.captures(on)?;
        let expand = |template: &str| {
            let mut text = String::new();
            found.expand(template, &mut text);
            text
        };
        let name = expand(&self.settings.name);
        let labels: BTreeMap<&str, String> =
            self.settings.labels.iter().map(|(key, value)| (key.as_str(), expand(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { serde_json::json!(labels).to_string() };
        // A group that has matched nothing leaves no name: another rule may have one.
        let is_named = !name.trim().is_empty();
        let request_bytes = self.settings.request_bytes;
        is_named.then(|| Service { name: name.into(), labels: labels.into(), request_bytes })
    }
}

fn default_name(cgroup: &str, comm: &str) -> String {
    let names = CgroupNames::of(cgroup);
    let name = match (names.pod_uid, names.unit, names.container_id) {
        (Some(_), ..) => format!("pod/{comm}"),
        (None, _, Some(_)) => format!("container/{comm}"),
        (None, Some(unit), None) => unnumbered(&unit),
        (None, None, None) => comm.to_owned(),
    };
    if name.is_empty() { "unknown".to_owned() } else { name }
}

/// The name of a unit without its instance, and of a scope without its numbers.
fn unnumbered(unit: &str) -> String {
    let Some((name, kind)) = unit.rsplit_once('.') else { return unit.to_owned() };
    let name = name.split_once('@').map_or(name, |(template, _)| &name[..=template.len()]);
    if kind != "scope" {
        return format!("{name}.{kind}");
    }
    // `run-r0123abcd...`, `run-u77`, `session-3`, `session-c1`, `app-x-4711`.
    let is_number = |part: &str| {
        let digits = part.trim_start_matches(['r', 'u', 'c']);
        !digits.is_empty()
            && part.len() - digits.len() <= 1
            && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
            && digits.bytes().any(|byte| byte.is_ascii_digit())
    };
    let mut name = name;
    while let Some((rest, last)) = name.rsplit_once('-')
        && is_number(last)
        && !rest.is_empty()
    {
        name = rest;
    }
    format!("{name}.{kind}")
}

/// The most names that are remembered: then all are forgotten, and found again as they occur.
const MAX_KNOWN: usize = 65_536;

/// Rules with their answers, since a process is asked for once in each window.
#[derive(Debug, Default)]
pub(crate) struct Services {
    rules: Rules,
    /// By cgroup, then by command.
    known: HashMap<String, HashMap<String, Service>>,
    entries: usize,
}

impl Services {
    pub(crate) fn new(rules: Rules) -> Services {
        Services { rules, ..Services::default() }
    }

    pub(crate) fn of(&mut self, cgroup: &str, comm: &str) -> Service {
        if let Some(service) = self.known.get(cgroup).and_then(|by_comm| by_comm.get(comm)) {
            return service.clone();
        }
        if self.entries >= MAX_KNOWN {
            self.known.clear();
            self.entries = 0;
        }
        let service = self.rules.service(cgroup, comm);
        self.known.entry(cgroup.to_owned()).or_default().insert(comm.to_owned(), service.clone());
        self.entries += 1;
        service
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "3f0a68b6ff485d5b7ac81cb3c6ff9d2a5ab6e13b74df0c7e5b9ac3a0c4a1b2d3";
    const UID: &str = "0f1c2d3e-4a5b-6c7d-8e9f-a0b1c2d3e4f5";

    #[test]
    fn default_names_are_the_same_on_all_hosts_and_after_each_restart() {
        let user = "/user.slice/user-1000.slice";
        let cases = [
            ("/system.slice/redis-server.service", "redis-server.service"),
            ("/system.slice/system-getty.slice/getty@tty1.service", "getty@.service"),
            (&format!("{user}/session-3.scope"), "session.scope"),
            (&format!("{user}/session-c12.scope"), "session.scope"),
            (&format!("{user}/user@1000.service/app.slice/app-x-4711.scope"), "app-x.scope"),
            (&format!("{user}/user@1000.service/app.slice/app-face.scope"), "app-face.scope"),
            (&format!("{user}/user@1000.service"), "user@.service"),
            ("/system.slice/run-r0123456789abcdef.scope", "run.scope"),
            ("/init.scope", "init.scope"),
            (&format!("/kubepods/burstable/pod{UID}/{ID}"), "pod/java"),
            (&format!("/docker/{ID}"), "container/java"),
            (&format!("/system.slice/docker-{ID}.scope"), "container/java"),
            ("/", "java"),
            ("", "java"),
        ];
        for (cgroup, name) in cases {
            assert_eq!(&*Rules::default().service(cgroup, "java").name, name, "{cgroup}");
        }
        assert_eq!(&*Rules::default().service("", "").name, "unknown");
    }

    #[test]
    fn the_first_rule_that_matches_gives_name_labels_and_request() {
        let text = r#"
            [[service]]
            match = "^/system.slice/(?P<team>[a-z]+)-(.*)\\.service$"
            name = "$2"
            labels = { team = "${team}", stage = "prod" }
            request_bytes = 1073741824
            [[service]]
            match = "^postgres"
            on = "comm"
            name = "db"
        "#;
        let rules = Rules::from_toml(text).unwrap();
        assert!(Rules::from_toml("[run]\nx = 1").is_ok(), "settings without rules");
        assert!(Rules::from_toml("[[service]]\nmach = 'x'").unwrap_err().to_string().contains("mach"));
        let found = rules.service("/system.slice/shop-cart.service", "x");
        assert_eq!((&*found.name, &*found.labels), ("cart", r#"{"stage":"prod","team":"shop"}"#));
        assert_eq!(found.request_bytes, Some(1 << 30));
        let by_comm = rules.service("/system.slice/redis.service", "postgres");
        assert_eq!((&*by_comm.name, &*by_comm.labels, by_comm.request_bytes), ("db", "", None));
        assert_eq!(&*rules.service("/system.slice/redis.service", "redis").name, "redis.service");
    }

    #[test]
    fn rules_that_cannot_be_used_are_refused_and_empty_names_are_passed_over() {
        let rule = |pattern: &str, name: &str| RuleSettings {
            pattern: pattern.into(),
            name: name.into(),
            ..RuleSettings::default()
        };
        assert!(Rules::new(&[rule("(", "x")]).unwrap_err().to_string().contains("service rule \"(\""));
        assert!(Rules::new(&[rule("x", " ")]).unwrap_err().to_string().contains("empty"));
        let rules = Rules::new(&[rule("/(a)?", "$1"), rule("/b", "second")]).unwrap();
        assert_eq!(&*rules.service("/b", "x").name, "second");
    }
}
