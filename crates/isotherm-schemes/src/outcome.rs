//! What can come of a hint, each told apart from the others, and how often each did.

use crate::named::known_counts;
use crate::queue::Origin;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Why a block was not collapsed.
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
    /// It is a huge page now, and the process has grown by so many pages.
    Collapsed {
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
    /// Blocks collapsed, by the origin of the hint.
    #[serde(deserialize_with = "known_counts")]
    pub collapsed: BTreeMap<Origin, u64>,
    /// Hints that came to nothing, by reason.
    #[serde(deserialize_with = "known_counts")]
    pub refused: BTreeMap<Refusal, u64>,
    /// Times a hint was put off because of something that passes.
    pub put_off: u64,
    /// Pages by which processes have grown.
    pub grown_pages: u64,
    /// Time on the wall spent in collapses: the bound on how long targets were held up by them.
    pub stall_ns: u64,
    /// The longest of them.
    pub longest_stall_ns: u64,
    /// CPU time of the worker: collapses, and what was read before and after them and for hints that were refused.
    pub cpu_ns: u64,
}

impl Counters {
    /// Notes what came of a hint.
    pub fn note(&mut self, origin: Origin, outcome: Outcome) {
        match outcome {
            Outcome::Collapsed { grown } => {
                *self.collapsed.entry(origin).or_default() += 1;
                self.grown_pages += u64::from(grown);
            }
            Outcome::Refused(refusal) => *self.refused.entry(refusal).or_default() += 1,
        }
    }

    /// Blocks collapsed in all.
    pub fn all_collapsed(&self) -> u64 {
        self.collapsed.values().sum()
    }
}
