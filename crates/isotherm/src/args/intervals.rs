//! Intervals of sampled processes: one that stays, or a goal that they tune themselves to.
//!
//! The goal has the values of damo's `--monitoring_intervals_goal`, in one word: share, aggregations, shortest and longest
//! interval. The units are in the values here, so that no one has to count zeros.

use crate::args::usage::Usage;
use crate::args::values::{duration_ns, percent, positive_duration_ns};
use clap::Args;
use humantime::format_duration;
use isotherm_heat::tune::{IntervalGoal, Tuning};
use isotherm_monitor::{CLEAR_TICK, Settings};
use std::time::Duration;

/// How often regions of sampled processes are checked.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Watching")]
pub struct IntervalArgs {
    /// Give each region of a sampled process a turn once in this time, if the budgets allow, small ones in every fifth at least; it is not
    /// tuned, but with --intervals-goal begins with it [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = positive_duration_ns)]
    pub sample_interval: Option<u64>,
    /// Tune that interval for each process until this share of its memory is accessed within it: share, rounds of checks
    /// between two changes, shortest and longest interval; or off [default: 4%,3,200ms,1s]
    #[arg(long, value_name = "GOAL", value_parser = intervals_goal)]
    pub intervals_goal: Option<GoalArg>,
}

/// The value of `--intervals-goal`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoalArg {
    /// Intervals stay as they are.
    Off,
    /// They are tuned.
    Tune(Tuning),
}

impl IntervalArgs {
    /// The interval to begin with, in nanoseconds, and the goal. Without a goal the interval stays. Fails if the interval is
    /// none that the goal allows.
    pub fn resolve(&self) -> Result<(u64, Option<Tuning>), Usage> {
        let default = Settings::default();
        let tuning = match (self.intervals_goal, self.sample_interval) {
            (Some(GoalArg::Off), _) | (None, Some(_)) => None,
            (Some(GoalArg::Tune(tuning)), _) => Some(tuning),
            (None, None) => default.intervals_goal,
        };
        let interval_ns = match (self.sample_interval, tuning.map(|t| t.goal)) {
            (Some(given), Some(goal)) if !(goal.min_interval_ns..=goal.max_interval_ns).contains(&given) => {
                let [given, min, max] = [given, goal.min_interval_ns, goal.max_interval_ns].map(duration_text);
                return Err(Usage(format!(
                    "--sample-interval {given} is not between the {min} and {max} of --intervals-goal: change one of them"
                )));
            }
            (Some(given), _) => given,
            (None, Some(goal)) => default.sample_interval_ns.clamp(goal.min_interval_ns, goal.max_interval_ns),
            (None, None) => default.sample_interval_ns,
        };
        Ok((interval_ns, tuning))
    }
}

/// A goal like `4%,3,200ms,1s`, or `off`.
fn intervals_goal(text: &str) -> Result<GoalArg, String> {
    if text == "off" {
        return Ok(GoalArg::Off);
    }
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    let [share, aggregations, min, max] = parts[..] else {
        return Err("write SHARE,AGGREGATIONS,MIN,MAX like 4%,3,200ms,1s, or off".to_owned());
    };
    let aggregations = aggregations.parse::<u32>().ok().filter(|n| *n > 0);
    let goal = IntervalGoal {
        observed_bp: share_bp(share)?,
        min_interval_ns: duration_ns(min)?,
        max_interval_ns: duration_ns(max)?,
    };
    let shortest = duration_text(CLEAR_TICK);
    if goal.min_interval_ns < CLEAR_TICK {
        return Err(format!("access checks begin every {shortest}: set the shortest interval to that or longer"));
    }
    if goal.max_interval_ns < goal.min_interval_ns {
        return Err(format!("the longest interval, {max}, is below the shortest, {min}: exchange them"));
    }
    let aggregations = aggregations.ok_or("the number of aggregations has to be 1 or more")?;
    Ok(GoalArg::Tune(Tuning { goal, aggregations }))
}

/// A share in ten-thousandths.
fn share_bp(text: &str) -> Result<u32, String> {
    let bp = (percent(text)? * 100.0).round();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
    if (1.0..=10_000.0).contains(&bp) { Ok(bp as u32) } else { Err("the share has to be 0.01% to 100%".to_owned()) }
}

/// A goal as it is written on the command line.
pub fn goal_text(Tuning { goal, aggregations }: Tuning) -> String {
    let [min, max] = [goal.min_interval_ns, goal.max_interval_ns].map(duration_text);
    format!("{}%,{aggregations},{min},{max}", f64::from(goal.observed_bp) / 100.0)
}

/// An interval as it is written on the command line.
fn duration_text(ns: u64) -> String {
    format_duration(Duration::from_nanos(ns)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    const MS: u64 = 1_000_000;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: IntervalArgs,
    }

    fn resolve(line: &str) -> Result<(u64, Option<Tuning>), String> {
        let line = Line::try_parse_from(["x"].into_iter().chain(line.split_whitespace())).map_err(|e| e.to_string())?;
        line.args.resolve().map_err(|e| e.to_string())
    }

    fn tuning(observed_bp: u32, aggregations: u32, min_ms: u64, max_ms: u64) -> Tuning {
        let goal = IntervalGoal { observed_bp, min_interval_ns: min_ms * MS, max_interval_ns: max_ms * MS };
        Tuning { goal, aggregations }
    }

    #[test]
    fn an_interval_of_ones_own_is_not_tuned_unless_a_goal_is_given_too() {
        assert_eq!(resolve(""), Ok((1000 * MS, Some(tuning(400, 3, 200, 1000)))));
        assert_eq!(resolve("--sample-interval 5s"), Ok((5000 * MS, None)));
        assert_eq!(resolve("--intervals-goal off"), Ok((1000 * MS, None)));
        assert_eq!(resolve("--intervals-goal off --sample-interval 5s"), Ok((5000 * MS, None)));
        let goal = tuning(250, 2, 500, 10_000);
        assert_eq!(resolve("--intervals-goal 2.5%,2,500ms,10s"), Ok((1000 * MS, Some(goal))));
        assert_eq!(resolve("--intervals-goal 2.5%,2,500ms,10s --sample-interval 5s"), Ok((5000 * MS, Some(goal))));
        let long = tuning(1, 1, 2000, 4000);
        assert_eq!(resolve("--intervals-goal 0.01,1,2s,4s"), Ok((2000 * MS, Some(long))), "the nearest that it allows");
    }

    #[test]
    fn what_is_wrong_with_a_goal_is_reported_with_what_to_write() {
        for (goal, hint) in [
            ("4%", "4%,3,200ms,1s, or off"),
            ("4%,3,200ms,1s,1s", "4%,3,200ms,1s, or off"),
            ("0%,3,200ms,1s", "above 0"),
            ("101%,3,200ms,1s", "0.01% to 100%"),
            ("0.001%,3,200ms,1s", "0.01% to 100%"),
            ("4%,0,200ms,1s", "1 or more"),
            ("4%,-1,200ms,1s", "1 or more"),
            ("4%,3,199ms,1s", "every 200ms"),
            ("4%,3,2s,1s", "exchange them"),
            ("4%,3,soon,1s", "write a time like"),
        ] {
            let error = resolve(&format!("--intervals-goal {goal}")).unwrap_err();
            assert!(error.contains(hint), "{goal}: {error}");
        }
        let outside = resolve("--intervals-goal 4%,3,200ms,1s --sample-interval 1001ms").unwrap_err();
        assert!(outside.contains("1s 1ms is not between the 200ms and 1s"), "{outside}");
    }

    #[test]
    fn a_goal_is_printed_as_it_is_written() {
        for text in ["4%,3,200ms,1s", "2.5%,1,1s 500ms,2m"] {
            let GoalArg::Tune(tuning) = intervals_goal(text).unwrap() else { panic!("{text} is off") };
            assert_eq!(goal_text(tuning), text);
        }
    }
}
