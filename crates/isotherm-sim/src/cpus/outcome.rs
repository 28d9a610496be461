//! What was counted.

/// Acquisitions of the lock by one kind of those who want it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Waits {
    /// How often the lock was taken.
    pub acquisitions: u64,
    /// How many of those had to wait. One that was tried in vain is none of them: see [`Outcome::defers`].
    pub contended: u64,
    /// How long, all together.
    pub wait_ns: u64,
    /// The longest of them.
    pub max_wait_ns: u64,
}

impl Waits {
    pub(super) fn add(&mut self, wait_ns: u64) {
        self.acquisitions += 1;
        self.contended += u64::from(wait_ns > 0);
        self.wait_ns += wait_ns;
        self.max_wait_ns = self.max_wait_ns.max(wait_ns);
    }

    /// Both together.
    pub fn and(self, other: Waits) -> Waits {
        Waits {
            acquisitions: self.acquisitions + other.acquisitions,
            contended: self.contended + other.contended,
            wait_ns: self.wait_ns + other.wait_ns,
            max_wait_ns: self.max_wait_ns.max(other.max_wait_ns),
        }
    }

    /// Of those that waited; 0 if none did.
    pub fn mean_wait_ns(&self) -> f64 {
        if self.contended == 0 { 0.0 } else { self.wait_ns as f64 / self.contended as f64 }
    }
}

/// The shortest and the longest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// In ns.
    pub shortest_ns: u64,
    /// In ns.
    pub longest_ns: u64,
}

impl Extent {
    pub(super) fn widen(extent: &mut Option<Extent>, ns: u64) {
        let before = extent.unwrap_or(Extent { shortest_ns: ns, longest_ns: ns });
        *extent = Some(Extent { shortest_ns: before.shortest_ns.min(ns), longest_ns: before.longest_ns.max(ns) });
    }

    /// By how much any of them is off `ns`, as a share of it.
    pub fn worst_error(&self, ns: u64) -> f64 {
        self.shortest_ns.abs_diff(ns).max(self.longest_ns.abs_diff(ns)) as f64 / ns as f64
    }
}

/// What came of a herd, over all nodes and CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Acquisitions by housekeeping, also by those who take a CPU offline.
    pub housekeeping: Waits,
    /// Acquisitions by the foreground.
    pub foreground: Waits,
    /// How often housekeeping found the lock taken and came back later.
    pub defers: u64,
    /// Runs of housekeeping, those that found nothing included.
    pub runs: u64,
    /// CPUs that the shepherd kicked.
    pub kicks: u64,
    /// Runs that were not at an instant of the CPU's own, but at one that the shepherd's kick gave.
    pub kicked_runs: u64,
    /// Chunks that runs found.
    pub chunks_found: u64,
    /// Chunks that were drained; as many, in the end.
    pub chunks_drained: u64,
    /// Those of them that were drained by whoever took the CPU offline.
    pub chunks_left_behind: u64,
    /// From one run of a CPU to its next, from due to due: what the schedule says. Between two that follow each other
    /// without a run at a kick's instant, and without the CPU having been offline. `None` if there are none.
    pub due_intervals: Option<Extent>,
    /// The same from start to start: with the latencies.
    pub start_intervals: Option<Extent>,
    /// The length of a hold, the median, that waits are counted in.
    pub hold_ns: u64,
}

impl Outcome {
    /// Housekeeping and foreground.
    pub fn all(&self) -> Waits {
        self.housekeeping.and(self.foreground)
    }

    /// The longest wait in holds. A median hold: see [`Holds::median_ns`](super::Holds::median_ns).
    pub fn max_wait_holds(&self) -> f64 {
        self.all().max_wait_ns as f64 / self.hold_ns.max(1) as f64
    }
}
