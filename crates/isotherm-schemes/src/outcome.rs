//! What can come of a hint, each told apart from the others, and how often each did.

use crate::named::{known_actions, known_counts};
use crate::queue::Origin;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Why a block was left as it is. One enum for all actions, since most reasons hold for any: which of them an action can meet is its own
/// affair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Refusal {
    /// It is a huge page.
    AlreadyHuge,
    /// Touched too seldom to be worth it.
    Cold,
    /// Nothing is known of its heat yet.
    Unmeasured,
    /// Too few of its pages are present: it would grow.
    Sparse,
    /// The process has grown as much as it may.
    Growth,
    /// Its pages are shared with another process, since a fork: it would be copied.
    Shared,
    /// Nothing is mapped there.
    Unmapped,
    /// A mapping begins or ends within it.
    Straddles,
    /// Memory of a file, or shared memory.
    File,
    /// The program said MADV_NOHUGEPAGE.
    NoHugeAdvice,
    /// The program has switched huge pages off for itself: prctl(PR_SET_THP_DISABLE).
    Disabled,
    /// The process runs a KVM guest, whose accesses are not seen: nothing is known of what is hot.
    Guest,
    /// Hugetlb or device memory.
    Special,
    /// Pages of it are write-protected through userfaultfd: by a snapshot in progress, or to track writes.
    UserfaultWp,
    /// Pages of it are missing, and their faults are somebody's to serve, through userfaultfd: the kernel does not fill them in.
    UserfaultMissing,
    /// The kernel refused for a reason it does not tell, in all tries; or did nothing.
    Ineligible,
    /// Its pages could not be locked or isolated, in several tries.
    Busy,
    /// The kernel refused to charge the cgroup for it, in several tries.
    NoCharge,
    /// The memory cgroup, or one above it, is so near its limit that a collapse could do harm.
    CgroupLimit,
    /// Processes of the memory cgroup wait for memory.
    CgroupPressure,
    /// No free huge page, in several tries.
    NoHugePage,
    /// It takes CAP_SYS_NICE and the right to trace the process.
    Denied,
    /// The process has ended, or executes another program.
    Gone,
    /// The user did not name this process.
    NotNamed,
    /// Another error of the kernel.
    Error,
}

impl Refusal {
    /// A few words for people.
    pub fn text(self) -> &'static str {
        match self {
            Refusal::AlreadyHuge => "huge already",
            Refusal::Cold => "too cold",
            Refusal::Unmeasured => "heat not known yet",
            Refusal::Sparse => "too sparse (it would grow)",
            Refusal::Growth => "growth limit of the process reached",
            Refusal::Shared => "shared since a fork (it would be copied)",
            Refusal::Unmapped => "nothing mapped",
            Refusal::Straddles => "a mapping begins or ends within",
            Refusal::File => "memory of a file, or shared memory",
            Refusal::NoHugeAdvice => "MADV_NOHUGEPAGE",
            Refusal::Guest => "the process runs a KVM guest, whose accesses are not seen",
            Refusal::Disabled => "huge pages switched off by the program (PR_SET_THP_DISABLE)",
            Refusal::Special => "hugetlb or device memory",
            Refusal::UserfaultWp => "pages write-protected through userfaultfd",
            Refusal::UserfaultMissing => "pages missing, which are served through userfaultfd",
            Refusal::Ineligible => "refused by the kernel, as it is while no page of it is writable",
            Refusal::Busy => "pages busy, several times",
            Refusal::NoCharge => "the kernel refused to charge the memory cgroup, several times",
            Refusal::CgroupLimit => "the memory cgroup is near its limit",
            Refusal::CgroupPressure => "memory pressure in the cgroup",
            Refusal::NoHugePage => "no free huge page, several times",
            Refusal::Denied => "not permitted (CAP_SYS_NICE)",
            Refusal::Gone => "process gone",
            Refusal::NotNamed => "process not named",
            Refusal::Error => "another error",
        }
    }
}

/// What became of a hint in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// It was done, and the process has grown by so many pages.
    Done {
        /// Pages that were not there before, or were shared.
        grown: u16,
    },
    /// It was left as it is.
    Refused(Refusal),
}

/// How often what came of hints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// Blocks to which something was done, by what the action calls them and by the origin of the hint. In JSON each action's name is
    /// a key of its own, beside the others.
    #[serde(flatten, deserialize_with = "known_actions")]
    pub done: BTreeMap<Cow<'static, str>, BTreeMap<Origin, u64>>,
    /// Hints that came to nothing, by reason.
    #[serde(deserialize_with = "known_counts")]
    pub refused: BTreeMap<Refusal, u64>,
    /// Times a hint was put off because of something that passes.
    pub put_off: u64,
    /// Pages by which processes have grown.
    pub grown_pages: u64,
    /// Time on the wall spent in actions: the bound on how long targets were held up by them.
    pub stall_ns: u64,
    /// The longest of them.
    pub longest_stall_ns: u64,
    /// CPU time of the worker: actions, and what was read before and after them and for hints that were refused.
    pub cpu_ns: u64,
}

impl Counters {
    /// Nothing done yet, by actions that call what they have done so.
    pub fn of_actions(names: impl IntoIterator<Item = &'static str>) -> Counters {
        let done = names.into_iter().map(|name| (name.into(), BTreeMap::new())).collect();
        Counters { done, ..Counters::default() }
    }

    /// Notes what came of a hint for an action that calls what it has done `name`.
    pub fn note(&mut self, name: &'static str, origin: Origin, outcome: Outcome) {
        match outcome {
            Outcome::Done { grown } => {
                *self.done.entry(name.into()).or_default().entry(origin).or_default() += 1;
                self.grown_pages += u64::from(grown);
            }
            Outcome::Refused(refusal) => *self.refused.entry(refusal).or_default() += 1,
        }
    }

    /// By the origin of the hint, blocks to which was done what is called `name`.
    pub fn of(&self, name: &str) -> BTreeMap<Origin, u64> {
        self.done.get(name).cloned().unwrap_or_default()
    }

    /// Their sum.
    pub fn all(&self, name: &str) -> u64 {
        self.done.get(name).map_or(0, |by_origin| by_origin.values().sum())
    }

    /// Blocks to which anything was done.
    pub fn all_done(&self) -> u64 {
        self.done.values().flat_map(BTreeMap::values).sum()
    }
}
