//! Settings of the monitor.

use crate::CLEAR_TICK;
use isotherm_heat::Ns;
use isotherm_heat::tune::{IntervalGoal, Tuning};
use isotherm_units::Bytes;

/// The goal by default.
pub const INTERVALS_GOAL: Tuning = Tuning {
    goal: IntervalGoal { observed_bp: 400, min_interval_ns: CLEAR_TICK, max_interval_ns: 1_000_000_000 },
    aggregations: 3,
};

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
    /// Each region of a sampled target is checked once in this time, if the budgets allow. With a goal: at first.
    pub sample_interval_ns: Ns,
    /// How that interval follows the accesses of each target. `None`: it stays as it is.
    pub intervals_goal: Option<Tuning>,
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
            intervals_goal: Some(INTERVALS_GOAL),
            max_slowdown_pct: 1.0,
            max_cpu_pct: 1.0,
            seed: 1,
        }
    }
}
