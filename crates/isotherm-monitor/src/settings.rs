//! Settings of the monitor.

use isotherm_heat::Ns;
use isotherm_units::Bytes;

/// How much of a target is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// All of it, as long as the first check of all targets takes no more than five minutes at the allowed CPU.
    #[default]
    Auto,
    /// Every huge range.
    Whole,
    /// A few huge ranges in each of a bounded number of regions: the cost does not follow the size of memory.
    Sampled,
}

/// Settings of the monitor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// How much of a target is checked.
    pub mode: Mode,
    /// The maximum number of regions of one target; of all sampled targets together. At least 1.
    pub max_regions: usize,
    /// No region of a sampled target is larger than this, as far as `max_regions` allows.
    pub max_region: Option<Bytes>,
    /// Each region of a sampled target is checked once in this time, if the budgets allow.
    pub sample_interval_ns: Ns,
    /// Slow-down allowed to each target, in percent of one core. Over 100: no limit.
    pub max_slowdown_pct: f64,
    /// CPU allowed to the monitor, in percent of one core. Over 100: no limit.
    pub max_cpu_pct: f64,
    /// Orders the first checks. The same seed and history give the same checks.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            mode: Mode::Auto,
            max_regions: 1000,
            max_region: None,
            sample_interval_ns: 1_000_000_000,
            max_slowdown_pct: 1.0,
            max_cpu_pct: 1.0,
            seed: 1,
        }
    }
}
