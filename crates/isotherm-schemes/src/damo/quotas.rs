//! Quotas of damo's schemes and their goals, to and from those of the table.
//!
//! DAMON charges what it tries, and counts in the kernel; here what has left is charged. Its sizes are powers of 1,024 whatever the unit is
//! called. A goal of it is a number: microseconds of pressure in the interval of the quota, or ten-thousandths of the memory of a node.

use super::{has_value, percent_text, time};
use crate::budgets::Budgets;
use crate::quota::{Goal, Quota, WrittenQuota};
use isotherm_units::PMD_SIZE;
use serde_json::{Value, json};
use std::time::Duration;

const PRESSURE: &str = "some_mem_psi_us";
const FREE: &str = "node_mem_free_bp";
const SECOND: Duration = Duration::from_secs(1);

/// Reads quotas. What of them is lost is noted.
pub(super) fn read(quotas: &Value, notes: &mut Vec<String>) -> (Option<WrittenQuota>, Option<Goal>) {
    if has_value(&quotas["time_ms"]) {
        notes.push("the quota of time is lost: `cpu_pct` of [budgets] limits it".to_owned());
    }
    let (size, goals) = (&quotas["sz_bytes"], quotas["goals"].as_array().map_or(&[][..], Vec::as_slice));
    if !has_value(size) && goals.is_empty() {
        return (None, None);
    }
    let Some(every) = interval(&quotas["reset_interval_ms"]).filter(|every| !every.is_zero()) else {
        notes.push("the quota is lost: it has no interval that could be read".to_owned());
        return (None, None);
    };
    let given = if has_value(size) { bytes(size) } else { Some(bytes_served_in(every)) };
    let Some(size_bytes) = given else {
        notes.push(format!("the quota is lost: {size} is no size"));
        return (None, None);
    };
    if !has_value(size) {
        notes.push("a goal tunes a quota, and there is none: it is what [budgets] can serve".to_owned());
    }
    // Shorter intervals than a second mean nothing here: so much in a second, then.
    #[expect(clippy::cast_possible_truncation, reason = "a thousand million at most")]
    let times = SECOND.as_nanos().div_ceil(every.as_nanos()) as u32;
    let goal =
        goals.iter().fold(None, |goal, next| goal_of(next, every, notes).map_or(goal, |next| stricter(goal, next)));
    let every = humantime::format_duration(every.saturating_mul(times)).to_string();
    let quota = WrittenQuota { size: size_text(size_bytes.saturating_mul(u64::from(times))), every };
    if let Err(why) = Quota::new(Some(&quota), goal) {
        notes.push(format!("the quota is lost: {why}"));
        return (None, None);
    }
    (Some(quota), goal)
}

/// What is served at the default budgets.
fn bytes_served_in(every: Duration) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive; saturates")]
    let bytes = (Budgets::default().per_second * PMD_SIZE as f64 * every.as_secs_f64()) as u64;
    bytes.max(PMD_SIZE)
}

/// Of several goals, DAMON keeps to the one that is reached first.
fn stricter(goal: Option<Goal>, next: Goal) -> Option<Goal> {
    let Some(goal) = goal else { return Some(next) };
    let least = |a: Option<f64>, b: Option<f64>| a.into_iter().chain(b).reduce(f64::min);
    Some(Goal { pressure: least(goal.pressure, next.pressure), free: least(goal.free, next.free) })
}

fn goal_of(goal: &Value, every: Duration, notes: &mut Vec<String>) -> Option<Goal> {
    let (metric, target) = (goal["metric"].as_str().unwrap_or("user_input"), &goal["target_value"]);
    let found = match metric {
        PRESSURE => micros(target).map(|us| {
            let pct = us / every.as_secs_f64() / 1e4;
            Goal { pressure: Some(pct.min(100.0)), free: None }
        }),
        FREE => {
            notes.push("a goal of free memory is of the whole machine, and not of a node".to_owned());
            percent(target).map(|pct| Goal { pressure: None, free: Some(pct) })
        }
        _ => None,
    };
    match (found, [PRESSURE, FREE].contains(&metric)) {
        (None, true) => notes.push(format!("the goal {metric} is lost: its target {target} means nothing")),
        (None, false) => {
            notes.push(format!("the goal {metric} is lost: {PRESSURE} and {FREE} have a counterpart"));
        }
        _ => {}
    }
    found
}

/// A number, which may have commas.
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::String(text) => text.trim().replace(',', "").parse().ok(),
        other => other.as_f64(),
    }
}

/// Microseconds, or a time with a unit.
fn micros(value: &Value) -> Option<f64> {
    number(value).or_else(|| Some(time(value.as_str()?)?.as_secs_f64() * 1e6)).filter(|us| *us > 0.0)
}

/// Ten-thousandths, or a text like "20 %"; in percent.
fn percent(value: &Value) -> Option<f64> {
    number(value)
        .map(|bp| bp / 100.0)
        .or_else(|| percent_text(value.as_str()?))
        .filter(|pct| *pct > 0.0 && *pct <= 100.0)
}

/// Milliseconds, or a time with a unit.
fn interval(value: &Value) -> Option<Duration> {
    let of_number = |ms: f64| Duration::try_from_secs_f64(ms / 1e3).ok();
    number(value).and_then(of_number).or_else(|| time(value.as_str()?))
}

/// Bytes, or a size with a unit.
fn bytes(value: &Value) -> Option<u64> {
    let text = match value {
        Value::String(text) => text.trim().replace(',', ""),
        other => other.to_string(),
    };
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let power = match unit.trim().chars().next().map(|first| first.to_ascii_uppercase()) {
        None | Some('B') => 0,
        Some('K') => 1,
        Some('M') => 2,
        Some('G') => 3,
        Some('T') => 4,
        _ => return None,
    };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive; saturates")]
    let bytes = (digits.parse::<f64>().ok()? * 1024_f64.powi(power)) as u64;
    (bytes > 0).then_some(bytes)
}

fn size_text(bytes: u64) -> String {
    match bytes {
        whole if whole % (1 << 20) == 0 => format!("{}MiB", whole >> 20),
        whole if whole % (1 << 10) == 0 => format!("{}KiB", whole >> 10),
        other => other.to_string(),
    }
}

/// As damo writes them. The oldest leave first, as they do here.
pub(super) fn write(quota: &WrittenQuota, goal: Option<Goal>) -> Result<Value, String> {
    let Some(quota) = Quota::new(Some(quota), goal)? else { return Ok(Value::Null) };
    let every = Duration::from_nanos(quota.every_ns);
    let of = |metric: &str, nid: Value, target: f64| json!({"metric": metric, "nid": nid, "target_value": format!("{target:.0}"), "current_value": "0"});
    let pressure = quota.goal.pressure.map(|pct| of(PRESSURE, Value::Null, pct / 100.0 * every.as_secs_f64() * 1e6));
    let free = quota.goal.free.map(|pct| of(FREE, json!("0"), pct * 100.0));
    let goals: Vec<Value> = pressure.into_iter().chain(free).collect();
    Ok(json!({
        "time_ms": "0 ns",
        "sz_bytes": quota.size.0.to_string(),
        "reset_interval_ms": format!("{} ms", every.as_millis()),
        "goals": goals,
        "weights": {"sz_permil": "0 %", "nr_accesses_permil": "0 %", "age_permil": "100 %"},
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_of(quotas: Value) -> (Option<(String, String)>, Option<Goal>, Vec<String>) {
        let mut notes = Vec::new();
        let (quota, goal) = read(&quotas, &mut notes);
        (quota.map(|quota| (quota.size, quota.every)), goal, notes)
    }

    #[test]
    fn sizes_and_intervals_are_read_as_damo_writes_them() {
        let quota = |size: Value, every: Value| {
            let (quota, goal, notes) =
                read_of(json!({"time_ms": "0 ns", "sz_bytes": size, "reset_interval_ms": every}));
            assert!(goal.is_none() && notes.len() == usize::from(quota.is_none()), "{notes:?}");
            quota
        };
        let of = |size: &str, every: &str| Some((size.to_owned(), every.to_owned()));
        assert_eq!(quota(json!("1.000 GiB"), json!("1 s")), of("1024MiB", "1s"));
        assert_eq!(quota(json!("100M"), json!(2000)), of("100MiB", "2s"));
        assert_eq!(quota(json!("67,108,864"), json!("1 m 30 s")), of("64MiB", "1m 30s"));
        assert_eq!(quota(json!(4096), json!("200 ms")), of("20KiB", "1s"), "five times as much in five times the time");
        assert_eq!(quota(json!("1 lot"), json!("1 s")), None);
        assert_eq!(quota(json!("1 GiB"), json!("2 d")), None, "a day is the longest");
        assert_eq!(quota(json!("100 B"), json!("1 s")), None, "less than a page");
        assert_eq!(quota(json!("1 GiB"), json!("max")), None);
        assert_eq!(read_of(json!({"sz_bytes": "0 B", "goals": [], "reset_interval_ms": "max"})), (None, None, vec![]));
        let (_, _, notes) = read_of(json!({"time_ms": "10 ms", "sz_bytes": 0}));
        assert!(notes.len() == 1 && notes[0].contains("cpu_pct"), "{notes:?}");
    }

    #[test]
    fn goals_become_percentages_and_the_strictest_counts() {
        let with = |goals: Value| read_of(json!({"sz_bytes": "1 GiB", "reset_interval_ms": "10 s", "goals": goals}));
        // 10 ms of pressure in 10 s.
        let pressure = json!({"metric": "some_mem_psi_us", "target_value": "10,000", "current_value": "0"});
        let looser = json!({"metric": "some_mem_psi_us", "target_value": "20 ms", "current_value": "0"});
        let free = json!({"metric": "node_mem_free_bp", "nid": "0", "target_value": "2,000", "current_value": "0"});
        let goal = |pressure, free| Some(Goal { pressure, free });
        assert_eq!(with(json!([looser, pressure])).1, goal(Some(0.1), None));
        let (_, both, notes) = with(json!([pressure, free]));
        assert_eq!(both, goal(Some(0.1), Some(20.0)));
        assert!(notes.len() == 1 && notes[0].contains("whole machine"), "{notes:?}");
        let (quota, none, notes) =
            with(json!([{"metric": "user_input", "target_value": "10000", "current_value": "1"}]));
        assert!(quota.is_some() && none.is_none() && notes[0].contains("user_input"), "{notes:?}");
        let zero = json!({"metric": "some_mem_psi_us", "target_value": "0", "current_value": "0"});
        let (_, none, notes) = with(json!([zero]));
        assert!(none.is_none() && notes[0].contains("means nothing"), "{notes:?}");
        let (quota, _, notes) = read_of(json!({"sz_bytes": "0 B", "reset_interval_ms": "1 s", "goals": [pressure]}));
        assert_eq!(quota, Some(("40MiB".to_owned(), "1s".to_owned())));
        assert!(notes[0].contains("[budgets]"), "{notes:?}");
    }

    #[test]
    fn what_is_written_is_read_again() {
        let quota = WrittenQuota { size: "64MiB".into(), every: "5s".into() };
        for goal in
            [None, Some(Goal { pressure: Some(0.5), free: None }), Some(Goal { pressure: None, free: Some(20.0) })]
        {
            let (again, same, _) = read_of(write(&quota, goal).unwrap());
            assert_eq!((again, same), (Some(("64MiB".into(), "5s".into())), goal));
        }
    }
}
