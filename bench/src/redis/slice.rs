//! The work of a server in a stretch of load.

use isotherm_bench::cpu::Cpu;
use std::time::Duration;

/// The work of one server in one stretch of load.
pub struct Slice {
    pub operations: f64,
    pub took: Duration,
    pub cpu: Cpu,
    /// CPU time of the load generator.
    pub generator_ns: f64,
    /// Sorted.
    pub batch_ns: Vec<u64>,
}

impl Slice {
    pub fn total(&self) -> f64 {
        self.cpu.total_ns / self.operations
    }

    pub fn user(&self) -> f64 {
        self.cpu.user_ns / self.operations
    }

    pub fn system(&self) -> f64 {
        self.cpu.system_ns / self.operations
    }

    pub fn p99(&self) -> f64 {
        milliseconds(&self.batch_ns, 990)
    }

    pub fn operations_a_second(&self) -> f64 {
        self.operations / self.took.as_secs_f64()
    }

    /// A time as a percentage of the slice.
    pub fn percent(&self, ns: f64) -> f64 {
        100.0 * ns / self.took.as_nanos() as f64
    }
}

/// The value that `per_mille` of 1,000 values do not exceed.
pub fn milliseconds(sorted_ns: &[u64], per_mille: usize) -> f64 {
    sorted_ns.get(sorted_ns.len().saturating_sub(1) * per_mille / 1000).map_or(f64::NAN, |ns| *ns as f64 / 1e6)
}
