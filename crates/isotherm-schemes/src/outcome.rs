//! The possible results of a hint, and how many times each occurred.

use crate::named::{known_actions, known_counts};
use crate::queue::Origin;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Why nothing was done to a huge range. One enum for all actions, because most reasons apply to any. Not every action can
/// meet all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Refusal {
    /// It is a huge page.
    AlreadyHuge,
    /// It is no huge page.
    NotHuge,
    /// This kernel does not tell whether it is a huge page.
    CannotTell,
    /// Accessed too seldom to be worth it.
    Cold,
    /// Nothing is known about its heat yet.
    Unmeasured,
    /// Its pages are in the tier where they belong.
    InPlace,
    /// None of its pages is in swap.
    NotSwapped,
    /// Fast memory is full.
    NoFastMemory,
    /// Too few of its pages are present: it would grow.
    Sparse,
    /// The process has grown as much as the budget allows.
    Growth,
    /// Its pages are shared with another process, since a fork: it would be copied.
    Shared,
    /// Nothing is mapped there.
    Unmapped,
    /// A mapping begins or ends within it.
    Straddles,
    /// File-backed or shared memory.
    File,
    /// The program set MADV_NOHUGEPAGE.
    NoHugeAdvice,
    /// The program has disabled huge pages for itself by prctl(PR_SET_THP_DISABLE).
    Disabled,
    /// The process runs a KVM guest, whose accesses are not seen: its hot memory is unknown.
    Guest,
    /// Hugetlb or device memory.
    Special,
    /// Some of its pages are write-protected through userfaultfd, by a snapshot in progress or to track writes.
    UserfaultWp,
    /// Some of its pages are missing, and userfaultfd serves their faults: the kernel does not fill them in.
    UserfaultMissing,
    /// The kernel refused without a reason in all tries, or reported success and did nothing.
    Ineligible,
    /// Its pages were accessed since they were found idle.
    Accessed,
    /// Something else clears its accessed bits too, so what looks idle may not be.
    ClearedByOthers,
    /// Locked in memory by mlock, or hugetlb or device memory.
    Locked,
    /// The process has pinned memory for a device.
    Pinned,
    /// The process has an io_uring, whose buffers the kernel may be using.
    IoUring,
    /// The process handles page faults in user space.
    Userfault,
    /// Another process traces it.
    Traced,
    /// Its core is being dumped.
    DumpsCore,
    /// Its pages could not be locked or isolated, in several tries.
    Busy,
    /// A forked copy of the process was alive all the time.
    Fork,
    /// The kernel refused to charge the cgroup for it, in several tries.
    NoCharge,
    /// The memory cgroup, or an ancestor, is so near its limit that a collapse could do harm.
    CgroupLimit,
    /// Processes of the memory cgroup wait for memory.
    CgroupPressure,
    /// No free huge page, in several tries.
    NoHugePage,
    /// The journal could not be written, so it could not be undone.
    NoJournal,
    /// CAP_SYS_NICE or ptrace access to the process is missing.
    Denied,
    /// The process has ended, or executes another program.
    Gone,
    /// The user did not name this process.
    NotNamed,
    /// Another error of the kernel.
    Error,
}

impl Refusal {
    /// Whether none of the memory of the process may leave, and not only this huge range.
    pub fn is_of_the_process(self) -> bool {
        use Refusal::{DumpsCore, Guest, IoUring, Pinned, Traced, Userfault};
        matches!(self, Guest | IoUring | Userfault | Pinned | DumpsCore | Traced)
    }

    /// A short description.
    pub fn text(self) -> &'static str {
        match self {
            Refusal::AlreadyHuge => "already huge",
            Refusal::NotHuge => "no huge page",
            Refusal::CannotTell => "this kernel does not tell whether it is a huge page (PAGEMAP_SCAN, Linux 6.7)",
            Refusal::Cold => "too cold",
            Refusal::Unmeasured => "heat not known yet",
            Refusal::InPlace => "already in the right tier",
            Refusal::NotSwapped => "nothing of it is in swap",
            Refusal::NoFastMemory => "no fast memory is free",
            Refusal::Sparse => "too sparse (it would grow)",
            Refusal::Growth => "growth limit of the process reached",
            Refusal::Shared => "shared since a fork (it would be copied)",
            Refusal::Unmapped => "nothing mapped",
            Refusal::Straddles => "a mapping begins or ends within",
            Refusal::File => "file-backed or shared memory",
            Refusal::NoHugeAdvice => "MADV_NOHUGEPAGE",
            Refusal::Guest => "the process runs a KVM guest, whose accesses are not seen",
            Refusal::Disabled => "huge pages disabled by the program (PR_SET_THP_DISABLE)",
            Refusal::Special => "hugetlb or device memory",
            Refusal::UserfaultWp => "pages write-protected through userfaultfd",
            Refusal::UserfaultMissing => "missing pages that are served through userfaultfd",
            Refusal::Ineligible => "refused by the kernel; most likely no page is writable",
            Refusal::Accessed => "accessed since it was found idle",
            Refusal::ClearedByOthers => "something else clears its accessed bits, so what looks idle may not be",
            Refusal::Locked => "locked in memory (mlock), hugetlb or device memory",
            Refusal::Pinned => "the process has pinned memory for a device (VmPin)",
            Refusal::IoUring => "the process has an io_uring, whose buffers the kernel may be using",
            Refusal::Userfault => "the process handles page faults itself (userfaultfd)",
            Refusal::Traced => "another process traces it",
            Refusal::DumpsCore => "its core is being dumped",
            Refusal::Busy => "pages busy, several times",
            Refusal::Fork => "a forked copy of the process is alive",
            Refusal::NoCharge => "the kernel refused to charge the memory cgroup, several times",
            Refusal::CgroupLimit => "the memory cgroup is near its limit",
            Refusal::CgroupPressure => "memory pressure in the cgroup",
            Refusal::NoHugePage => "no free huge page, several times",
            Refusal::NoJournal => "the journal cannot be written, so it could not be undone",
            Refusal::Denied => "not permitted (CAP_SYS_NICE; in a container also the seccomp profile)",
            Refusal::Gone => "process has ended",
            Refusal::NotNamed => "process not named",
            Refusal::Error => "another error",
        }
    }
}

/// The final result of a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// It was done, and the process has grown by this many pages.
    Done {
        /// Pages that were absent before, or were shared.
        grown: u16,
    },
    /// Nothing was done.
    Refused(Refusal),
}

/// Counters of the results of hints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// Huge ranges on which an action succeeded, by the action's name for that and by the origin of the hint. In JSON, each
    /// action's name is a key next to the other fields.
    #[serde(flatten, deserialize_with = "known_actions")]
    pub done: BTreeMap<Cow<'static, str>, BTreeMap<Origin, u64>>,
    /// Dropped hints, by reason.
    #[serde(deserialize_with = "known_counts")]
    pub refused: BTreeMap<Refusal, u64>,
    /// Times that a hint was deferred because of a temporary obstacle.
    pub put_off: u64,
    /// Pages by which processes have grown.
    pub grown_pages: u64,
    /// Pages that have left memory.
    pub left_pages: u64,
    /// Elapsed time spent in actions: an upper bound of the time for which they stalled targets.
    pub stall_ns: u64,
    /// The longest of these times.
    pub longest_stall_ns: u64,
    /// CPU time of the worker: actions, and the reads before and after them, also for refused hints.
    pub cpu_ns: u64,
}

impl Counters {
    /// Counters at zero, for actions with these names.
    pub fn of_actions(names: impl IntoIterator<Item = &'static str>) -> Counters {
        let done = names.into_iter().map(|name| (name.into(), BTreeMap::new())).collect();
        Counters { done, ..Counters::default() }
    }

    /// Counts the result of a hint for the action that is counted under `name`.
    pub fn note(&mut self, name: &'static str, origin: Origin, outcome: Outcome) {
        match outcome {
            Outcome::Done { grown } => {
                *self.done.entry(name.into()).or_default().entry(origin).or_default() += 1;
                self.grown_pages += u64::from(grown);
            }
            Outcome::Refused(refusal) => *self.refused.entry(refusal).or_default() += 1,
        }
    }

    /// Successes that are counted under `name`, by the origin of the hint.
    pub fn of(&self, name: &str) -> BTreeMap<Origin, u64> {
        self.done.get(name).cloned().unwrap_or_default()
    }

    /// Their sum.
    pub fn all(&self, name: &str) -> u64 {
        self.done.get(name).map_or(0, |by_origin| by_origin.values().sum())
    }

    /// Huge ranges on which any action succeeded.
    pub fn all_done(&self) -> u64 {
        self.done.values().flat_map(BTreeMap::values).sum()
    }
}
