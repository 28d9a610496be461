//! What `isotherm status` reports: one type, used by the daemon and by everything that prints it.
//!
//! It is sent over the socket as JSON and read back into the same type, so a field has the same name on both sides. The
//! two sides may be of different versions. Fields added by a later version are skipped. Fields missing from an earlier
//! version read as if nothing had happened yet.

use crate::bring_back::BringBackStatus;
use crate::budgets::{Budgets, Wait};
use crate::gain::Gain;
use crate::migrate::mover::MigrateStatus;
use crate::named::{Named, if_known, known_counts, known_entries};
use crate::outcome::{Counters, Refusal};
use crate::page_out::keeper::PageOutStatus;
use crate::quota::QuotaStatus;
use crate::reclaim::reclaimer::ReclaimStatus;
use crate::split::splitter::SplitStatus;
use isotherm_heat::tune::Tuning;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What `isotherm status` prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Version of the `isotherm run` that answers.
    pub version: String,
    /// Its pid.
    pub pid: u32,
    /// It only counts what it would do.
    #[serde(default)]
    pub dry_run: bool,
    /// The source of its heat.
    #[serde(default)]
    pub source: String,
    /// Huge ranges collapsed so far.
    #[serde(default)]
    pub collapsed: u64,
    /// Why a target is paused, if one is.
    pub paused: Option<String>,
    /// What it waits for at the moment.
    pub waiting: Option<Named<Wait>>,
    /// Queued and deferred hints.
    #[serde(default)]
    pub hints: HintStatus,
    /// Results of hints so far.
    #[serde(default)]
    pub counters: Counters,
    /// What was done to all processes, those that have ended included.
    #[serde(default)]
    pub totals: Totals,
    /// The targets, in the order of their ids.
    pub targets: Vec<TargetStatus>,
    /// What is left of the quotas of schemes.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "known_entries")]
    pub quotas: Vec<QuotaStatus>,
    /// Cgroups of which idle files leave, by path.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "known_entries")]
    pub cgroups: Vec<ReclaimStatus>,
    /// Huge ranges of all targets.
    #[serde(default, rename = "blocks")]
    pub pmds: usize,
    /// Of these, huge ranges that were not checked for accesses yet.
    #[serde(default)]
    pub blocks_not_looked_at: usize,
    /// The budgets in force; `None` if they are of a version with other budgets.
    #[serde(default, deserialize_with = "if_known")]
    pub budgets: Option<Budgets>,
    /// The gain.
    #[serde(default)]
    pub gain: Gain,
    /// The goal that the intervals of sampled targets tune themselves to; `None` if they stay as they are.
    #[serde(default, deserialize_with = "if_known")]
    pub intervals_goal: Option<Tuning>,
    /// What the daemon may still do.
    #[serde(default)]
    pub sandbox: SandboxStatus,
    /// Schemes that this machine cannot perform, with the reason, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

/// Memory that was acted on so far, of all processes. What has left and what was collapsed is in [`Counters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Totals {
    /// Moved between memory tiers.
    pub moved_bytes: u64,
    /// Asked back from swap before it was accessed.
    pub asked_back_bytes: u64,
    /// Given back by the kernel when huge pages were split: they held nothing but zeros.
    pub returned_bytes: u64,
    /// Files that have left memory cgroups.
    pub reclaimed_bytes: u64,
}

impl Totals {
    /// The sum of both.
    pub(super) fn and(self, other: Totals) -> Totals {
        Totals {
            moved_bytes: self.moved_bytes + other.moved_bytes,
            asked_back_bytes: self.asked_back_bytes + other.asked_back_bytes,
            returned_bytes: self.returned_bytes + other.returned_bytes,
            reclaimed_bytes: self.reclaimed_bytes + other.reclaimed_bytes,
        }
    }
}

/// What a daemon may still do after it has opened its source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SandboxStatus {
    /// Names of the capabilities that it has kept.
    pub capabilities: Vec<String>,
    /// The filter of system calls: "on", "off", or why not.
    pub system_calls: String,
    /// Read-only mounts: the same.
    pub mounts: String,
}

/// Queued and deferred hints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HintStatus {
    /// Hints in the queue.
    pub queued: usize,
    /// Hints that are deferred because of a temporary obstacle.
    pub put_off: usize,
    /// Of the deferred ones, huge ranges that must be touched or written first.
    pub unwritable: usize,
    /// Of the deferred ones, huge ranges whose memory cgroup has no room for a huge page, or waits for memory.
    pub cgroup: usize,
    /// Most hints that the queue can hold.
    pub capacity: usize,
}

/// One target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TargetStatus {
    /// Its pid, as the daemon sees it.
    pub pid: u32,
    /// Its command name.
    pub comm: String,
    /// Its resident memory.
    pub rss_bytes: u64,
    /// The same in its first window.
    pub rss_bytes_at_first: u64,
    /// Its memory on huge pages.
    pub huge_bytes: u64,
    /// The share of its heat on huge pages, with ranges that were collapsed as they were before; `None` if nothing is hot.
    pub heat_on_huge_share: Option<f64>,
    /// The same by accessed bits alone: as if all pages of a huge page were as hot as its hottest.
    pub heat_on_huge_share_by_bits: Option<f64>,
    /// The same in its first window.
    pub heat_on_huge_share_at_first: Option<f64>,
    /// Pid of the forked copy for which it is paused.
    pub paused_for: Option<u32>,
    /// What its memory cgroup waits for.
    pub cgroup_wait: Option<Named<Wait>>,
    /// How it is sampled; `None` if each of its huge ranges is checked.
    #[serde(deserialize_with = "if_known")]
    pub sampled: Option<SampledStatus>,
    /// Why the whole process is refused, if it is.
    pub left_alone: Option<Named<Refusal>>,
    /// Huge ranges without a hint in the last window, by reason.
    #[serde(deserialize_with = "known_counts")]
    pub left_out: BTreeMap<Refusal, u64>,
    /// What leaves of it and comes back; `None` if no scheme pages it out.
    #[serde(deserialize_with = "if_known", skip_serializing_if = "Option::is_none")]
    pub page_out: Option<PageOutStatus>,
    /// Moving its pages between memory tiers; `None` if no scheme does.
    #[serde(deserialize_with = "if_known")]
    pub migrate: Option<MigrateStatus>,
    /// What was read from swap before it was accessed; `None` if no scheme does.
    #[serde(deserialize_with = "if_known", skip_serializing_if = "Option::is_none")]
    pub bring_back: Option<BringBackStatus>,
    /// What was split of it; `None` if no scheme does.
    #[serde(deserialize_with = "if_known", skip_serializing_if = "Option::is_none")]
    pub split: Option<SplitStatus>,
}

/// A sampled target: regions, and how often each of them is checked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SampledStatus {
    /// Its regions.
    pub regions: usize,
    /// Each of them is to be checked once in this time at present.
    pub interval_ns: u64,
    /// The time in which each was checked once, the last time that all were. `None` before the first time.
    pub aggregated_in_ns: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collapse::Rules;
    use crate::page_out::keeper::Stays;
    use crate::state::State;
    use isotherm_heat::tune::IntervalGoal;

    #[test]
    fn a_status_is_read_back_as_it_was_written() {
        let mut status = State::new(Rules::default(), Budgets::default()).status();
        status.waiting = Some(Named::Known(Wait::FreeBlocks));
        status.counters.done.insert("collapsed".into(), [(crate::Origin::RoundRobin, 7)].into());
        status.counters.refused.insert(Refusal::NoHugeAdvice, 3);
        let goal = IntervalGoal { observed_bp: 400, min_interval_ns: 1, max_interval_ns: 2 };
        status.intervals_goal = Some(Tuning { goal, aggregations: 3 });
        status.targets.push(TargetStatus {
            pid: 7,
            comm: "db".into(),
            rss_bytes: 1,
            rss_bytes_at_first: 1,
            huge_bytes: 0,
            heat_on_huge_share: Some(0.5),
            heat_on_huge_share_by_bits: Some(0.75),
            heat_on_huge_share_at_first: None,
            paused_for: None,
            cgroup_wait: Some(Named::Known(Wait::CgroupLimit)),
            sampled: Some(SampledStatus { regions: 500, interval_ns: 200_000_000, aggregated_in_ns: None }),
            left_alone: Some(Named::Known(Refusal::Disabled)),
            left_out: [(Refusal::Cold, 2)].into(),
            page_out: Some(PageOutStatus { min_idle_ns: 9, stays: Some(Stays::Refaults), ..PageOutStatus::default() }),
            migrate: Some(MigrateStatus { back_bytes: 4096, ..MigrateStatus::default() }),
            bring_back: Some(BringBackStatus { asked_bytes: 8192, read_bytes: 4096 }),
            split: Some(SplitStatus { split: 7, unused_bytes: Some(4096), ..SplitStatus::default() }),
        });
        status.cgroups = vec![ReclaimStatus {
            cgroup: "/a".into(),
            left_bytes: 4096,
            stays: Some(Stays::Unwatched),
            ..ReclaimStatus::default()
        }];
        let text = serde_json::to_string(&status).unwrap();
        assert!(text.starts_with(r#"{"version":"#) && text.contains(r#""waiting":"free-blocks""#), "{text}");
        assert!(
            text.contains(r#""counters":{"collapsed":{"round-robin":7},"refused":{"no-huge-advice":3},"#),
            "{text}"
        );
        let goal = r#""intervals_goal":{"observed_bp":400,"min_interval_ns":1,"max_interval_ns":2,"aggregations":3}"#;
        assert!(text.contains(goal), "{text}");
        assert_eq!(serde_json::from_str::<Status>(&text).unwrap(), status);
    }

    #[test]
    fn a_status_of_another_version_is_read() {
        let earlier: Status =
            serde_json::from_str(r#"{"version": "0.0.1", "pid": 7, "targets": [{"pid": 8}]}"#).unwrap();
        assert_eq!((earlier.pid, earlier.targets[0].pid, earlier.hints.queued), (7, 8, 0));
        let later = r#"{"version": "9", "pid": 7, "mood": "fine", "waiting": "full-moon", "budgets": {"prayers": 3}, "intervals_goal": {"mood": 1},
            "cgroups": ["/b", {"cgroup": "/a", "stays": "by the moon"}],
            "targets": [{"pid": 8, "sampled": "by the moon", "left_alone": "cursed", "left_out": {"cold": 2, "cursed": 1}}]}"#;
        let later: Status = serde_json::from_str(later).unwrap();
        assert_eq!((later.waiting, later.budgets), (Some(Named::Other("full-moon".into())), None));
        assert_eq!((later.intervals_goal, &later.targets[0].sampled), (None, &None));
        assert_eq!((later.cgroups.len(), later.cgroups[0].cgroup.as_str(), later.cgroups[0].stays), (1, "/a", None));
        assert_eq!(later.targets[0].left_out, [(Refusal::Cold, 2)].into());
        serde_json::from_str::<Status>("{}").expect_err("whatever that is, it is no status");
    }
}
