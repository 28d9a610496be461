//! The counters of a simulation.

/// Acquisitions of the lock by one kind of user.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Waits {
    /// How often the lock was taken.
    pub acquisitions: u64,
    /// How many of those had to wait. Failed attempts are not counted here: see [`Outcome::defers`].
    pub contended: u64,
    /// Total time waited.
    pub wait_ns: u64,
    /// The longest wait.
    pub max_wait_ns: u64,
}

impl Waits {
    pub(super) fn add(&mut self, wait_ns: u64) {
        self.acquisitions += 1;
        self.contended += u64::from(wait_ns > 0);
        self.wait_ns += wait_ns;
        self.max_wait_ns = self.max_wait_ns.max(wait_ns);
    }

    /// The sum of both.
    pub fn and(self, other: Waits) -> Waits {
        Waits {
            acquisitions: self.acquisitions + other.acquisitions,
            contended: self.contended + other.contended,
            wait_ns: self.wait_ns + other.wait_ns,
            max_wait_ns: self.max_wait_ns.max(other.max_wait_ns),
        }
    }

    /// Mean wait of the acquisitions that waited; 0 if none did.
    pub fn mean_wait_ns(&self) -> f64 {
        if self.contended == 0 { 0.0 } else { self.wait_ns as f64 / self.contended as f64 }
    }
}

/// The shortest and the longest interval.
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

    /// The largest difference to `ns`, as a share of it.
    pub fn worst_error(&self, ns: u64) -> f64 {
        self.shortest_ns.abs_diff(ns).max(self.longest_ns.abs_diff(ns)) as f64 / ns as f64
    }
}

/// The result of a simulation, over all nodes and CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Acquisitions by drains, including the drain of a CPU that goes offline.
    pub housekeeping: Waits,
    /// Acquisitions by the foreground.
    pub foreground: Waits,
    /// How often a drain found the lock taken and retried later.
    pub defers: u64,
    /// Runs, including those that found nothing to drain.
    pub runs: u64,
    /// CPUs that the shepherd kicked.
    pub kicks: u64,
    /// Runs whose due time was set by a kick of the shepherd.
    pub kicked_runs: u64,
    /// Chunks that runs found.
    pub chunks_found: u64,
    /// Chunks that were drained; in the end, as many as were found.
    pub chunks_drained: u64,
    /// Those of them that were drained when their CPU went offline.
    pub chunks_left_behind: u64,
    /// Time between consecutive runs of a CPU, from due time to due time, as the schedule sets it. Pairs with a kicked
    /// run or an offline period between them do not count. `None` if there are none.
    pub due_intervals: Option<Extent>,
    /// The same from start to start, which includes the latencies.
    pub start_intervals: Option<Extent>,
    /// The median hold time. Waits are counted in it.
    pub hold_ns: u64,
}

impl Outcome {
    /// Drains and foreground together.
    pub fn all(&self) -> Waits {
        self.housekeeping.and(self.foreground)
    }

    /// The longest wait, in median holds: see [`Holds::median_ns`](super::Holds::median_ns).
    pub fn max_wait_holds(&self) -> f64 {
        self.all().max_wait_ns as f64 / self.hold_ns.max(1) as f64
    }
}
