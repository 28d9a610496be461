//! The table of all metrics: the only place where a name, a type or a help text is written.

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A value that goes up and down.
    Gauge,
    /// A value that only goes up, until the server or the monitor starts anew. Its samples end in `_total`.
    Counter,
    /// Bytes in buckets, which go up and down: a gauge histogram of OpenMetrics.
    Histogram,
}

/// Of what there is a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// The machine and the monitor.
    Host,
    /// Each cgroup, up to [`MAX_CGROUPS`]. Those beyond are summed up as `beyond`, but for limits.
    EachCgroup,
    /// The largest cgroups. The others are summed up as `other`.
    LargestCgroups,
    /// Cgroups of which there is such a thing, up to [`MAX_CGROUPS`].
    SomeCgroups,
    /// The largest processes, with `--processes`.
    Processes,
}

/// The most cgroups with series of their own.
pub const MAX_CGROUPS: usize = 1000;
/// The most processes with series of their own.
pub const MAX_PROCESSES: usize = 1000;
/// Labels of every series of a cgroup. The last three are missing where the path does not name one.
pub const CGROUP_LABELS: [&str; 4] = ["cgroup", "unit", "pod_uid", "container_id"];
/// Labels of every series of a process.
pub const PROCESS_LABELS: [&str; 3] = ["pid", "comm", "cgroup"];

/// A metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name, without `_total`.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// The unit, with which the name ends; empty if it has none.
    pub unit: &'static str,
    /// Of what there is a series.
    pub of: Of,
    /// Labels besides those of the cgroup or process.
    pub labels: &'static [&'static str],
    /// One sentence.
    pub help: &'static str,
}

const fn gauge(name: &'static str, unit: &'static str, of: Of, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Gauge, unit, of, labels: &[], help }
}

const fn counter(name: &'static str, unit: &'static str, of: Of, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Counter, unit, of, labels: &[], help }
}

const fn with(metric: Metric, labels: &'static [&'static str]) -> Metric {
    Metric { labels, ..metric }
}

macro_rules! metrics {
    ($($(#[$doc:meta])* $constant:ident = $metric:expr;)*) => {
        $($(#[$doc])* #[allow(missing_docs)] pub const $constant: Metric = $metric;)*
        /// All of them, in the order of the text.
        pub const ALL: &[Metric] = &[$($constant),*];
    };
}

metrics! {
    MEMORY = with(
        gauge("isotherm_memory_bytes", "bytes", Of::LargestCgroups, "Resident memory by how often it is accessed: hot at least every second, warm every 10 s, cold every minute, idle less often, unmeasured not known yet. The classes add up to what is resident."),
        &["class", "page_size"],
    );
    WORKING_SET = with(
        gauge("isotherm_working_set_bytes", "bytes", Of::LargestCgroups, "Memory that is accessed at least once in a window. Cgroups that are not among the largest have the window 1m only. In that window, `beyond` takes the place of `other`."),
        &["window"],
    );
    HOT_SMALL = gauge("isotherm_hot_small_bytes", "bytes", Of::LargestCgroups, "Hot memory on small pages: what huge pages would help.");
    UNMEASURED = gauge("isotherm_unmeasured_bytes", "bytes", Of::EachCgroup, "Resident memory whose heat is not known yet. `beyond` takes the place of `other`.");
    ESTIMATED = gauge("isotherm_estimated_bytes", "bytes", Of::LargestCgroups, "Memory of the classes that was not checked itself yet, and counts like checked memory around it.");
    SWAPPED = gauge("isotherm_swapped_bytes", "bytes", Of::LargestCgroups, "Memory of the processes that is swapped out, where it is known.");
    PROCESSES = gauge("isotherm_processes", "", Of::LargestCgroups, "Processes that are watched.");
    IDLE_AGE = Metric {
        name: "isotherm_idle_age_seconds",
        kind: Kind::Histogram,
        unit: "seconds",
        of: Of::LargestCgroups,
        labels: &[],
        help: "Time since memory was last seen accessed. What is counted are bytes: a bucket holds the bytes that were accessed within its bound, so it goes up and down.",
    };
    CGROUP_MEMORY = with(
        gauge("isotherm_cgroup_memory_bytes", "bytes", Of::LargestCgroups, "What the kernel charges a cgroup and those below it for. There is no sum of the others, because cgroups contain each other."),
        &["kind"],
    );
    CGROUP_LIMIT = gauge("isotherm_cgroup_limit_bytes", "bytes", Of::EachCgroup, "The lowest memory limit (`memory.max`, `memory.high`) of a cgroup and those above it, where there is one. Several cgroups may share it.");
    PAGED_OUT = gauge("isotherm_paged_out_bytes", "bytes", Of::SomeCgroups, "Memory that a scheme has paged out and that is not back, where there is any.");
    REFAULTED = counter("isotherm_refaulted_bytes", "bytes", Of::SomeCgroups, "Memory that came back after a scheme had paged it out, where there was any.");
    ACTIONS = with(
        counter("isotherm_actions", "", Of::Host, "Huge ranges on which an action was done (`would` in a dry run), or was not and for which reason. Refusals are counted for all actions together, as `any`."),
        &["action", "result"],
    );
    ACTION_BYTES = with(
        counter("isotherm_action_bytes", "bytes", Of::Host, "Memory on which an action was done, or in a dry run would have been (not of `split` and `reclaim`). Of `split` it is what was given back; of `reclaim` there are bytes only, and no huge ranges."),
        &["action", "result"],
    );
    SLOWDOWN = gauge("isotherm_slowdown_ratio", "ratio", Of::Host, "Estimated slow-down of the process that was slowed most, as a share of one core, in the mean over the time for which it is or was watched: it falls only when the monitor starts anew.");
    SLOWDOWN_BUDGET = gauge("isotherm_slowdown_budget_ratio", "ratio", Of::Host, "The slow-down that the monitor may cause.");
    MONITOR_CPU = counter("isotherm_monitor_cpu_seconds", "seconds", Of::Host, "CPU time of watching, as `--max-cpu` limits it. That of actions is not in it.");
    MONITOR_CPU_BUDGET = gauge("isotherm_monitor_cpu_budget_ratio", "ratio", Of::Host, "The CPU time that the monitor may use, as a share of one core.");
    MONITORED = counter("isotherm_monitored_seconds", "seconds", Of::Host, "Time since the monitor started.");
    HUGE_RANGES = gauge("isotherm_huge_ranges", "", Of::Host, "2 MiB ranges of the watched memory, or regions where a process is sampled.");
    UNCHECKED = gauge("isotherm_unchecked_huge_ranges", "", Of::Host, "Those of them that were not checked for accesses yet.");
    PAGES_READ = counter("isotherm_pages_read", "", Of::Host, "Page-table entries read.");
    PAGES_CLEARED = counter("isotherm_pages_cleared", "", Of::Host, "Page-table entries whose accessed bit was cleared.");
    PAGES_RETOUCHED = counter("isotherm_pages_retouched", "", Of::Host, "Cleared page-table entries that were accessed again, each with a page walk.");
    READ_ERRORS = counter("isotherm_read_errors", "", Of::Host, "Reads of page tables that failed.");
    SAMPLES_LOST = counter("isotherm_samples_lost", "", Of::Host, "Sampled accesses that were lost.");
    SNAPSHOTS = counter("isotherm_snapshots", "", Of::Host, "Snapshots that have arrived.");
    LOST_SNAPSHOTS = counter("isotherm_lost_snapshots", "", Of::Host, "Snapshots that the monitor has not sent because the server was slow, or because they were too large.");
    LAST_SNAPSHOT = gauge("isotherm_last_snapshot_timestamp_seconds", "seconds", Of::Host, "When the newest snapshot was taken.");
    WINDOW = gauge("isotherm_window_seconds", "seconds", Of::Host, "The time that the newest snapshot is of.");
    HOST_MEMORY = gauge("isotherm_host_memory_bytes", "bytes", Of::Host, "Memory of the machine.");
    BUILD_INFO = with(
        gauge("isotherm_build_info", "", Of::Host, "1; the labels name the version of the monitor, its source of accesses and the kernel."),
        &["version", "source", "kernel"],
    );
    PROCESS_MEMORY = with(
        gauge("isotherm_process_memory_bytes", "bytes", Of::Processes, "Resident memory of a process by class, shared pages included."),
        &["class"],
    );
    PROCESS_WORKING_SET = with(
        gauge("isotherm_process_working_set_bytes", "bytes", Of::Processes, "Memory of a process that is accessed at least once in a window."),
        &["window"],
    );
}

impl Metric {
    /// The name of its samples.
    pub fn sample_name(&self) -> String {
        match self.kind {
            Kind::Counter => format!("{}_total", self.name),
            Kind::Gauge | Kind::Histogram => self.name.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_follow_the_conventions() {
        let names: BTreeSet<&str> = ALL.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), ALL.len());
        for metric in ALL {
            assert!(metric.name.starts_with("isotherm_") && metric.help.ends_with('.'), "{}", metric.name);
            assert!(metric.unit.is_empty() || metric.name.ends_with(metric.unit), "{}", metric.name);
            assert!(["", "bytes", "seconds", "ratio"].contains(&metric.unit), "a base unit: {}", metric.name);
            assert!(!metric.name.ends_with("_total") && !metric.help.contains(['"', '\\', '\n']), "{}", metric.name);
        }
    }
}
