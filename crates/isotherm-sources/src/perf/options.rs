//! What a user may set: which event, how often, for which targets.

use isotherm_host::events::RawEvent;
use isotherm_sys::perf::Rate;
use std::path::PathBuf;

/// The pid that stands for physical memory.
pub(crate) const PHYSICAL_PID: u32 = 0;

/// What is sampled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Over {
    /// Each process that is attached, with the threads it has and will start. Takes a descriptor for each thread and
    /// CPU.
    #[default]
    Processes,
    /// Processes that we start, from their first instruction on, by events that they inherit.
    Descendants,
    /// The processes of a cgroup, by its directory in the hierarchy of the perf_event controller.
    Cgroup(PathBuf),
    /// Everything, with one descriptor per CPU. Needs `CAP_PERFMON`.
    Host,
}

/// What to sample and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Events by name; empty for the best there is.
    pub events: Vec<String>,
    /// An event by its numbers, instead of names.
    pub raw: Option<RawEvent>,
    /// How often; `None`: the default of the event.
    pub rate: Option<Rate>,
    /// Physical addresses, of the whole machine: there is one target, [`Perf::PHYSICAL`](super::Perf::PHYSICAL).
    pub physical: bool,
    /// What is sampled.
    pub over: Over,
    /// The share of a core that interrupts may take, in percent. Over 100: no limit.
    pub max_slowdown_pct: f64,
}

impl Options {
    /// Whether samples are taken by physical address.
    pub(super) fn is_physical(&self) -> bool {
        self.physical || self.raw.is_some_and(|raw| raw.physical)
    }
}

impl Default for Options {
    fn default() -> Options {
        let over = Over::default();
        Options { events: Vec::new(), raw: None, rate: None, physical: false, over, max_slowdown_pct: 1.0 }
    }
}
