//! Bounds between hot, warm, cold and idle.

use crate::args::usage::Usage;
use crate::args::values::positive_duration_ns;
use clap::Args;
use isotherm_heat::Thresholds;

/// Bounds between hot, warm, cold and idle.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Classes")]
pub struct ThresholdArgs {
    /// Hot: accessed at least this often
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = positive_duration_ns)]
    pub hot: u64,
    /// Warm: not hot, and at least this often
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = positive_duration_ns)]
    pub warm: u64,
    /// Cold: not warm, and at least this often; the rest is idle
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = positive_duration_ns)]
    pub cold: u64,
}

impl ThresholdArgs {
    /// The bounds, if they are in order.
    pub fn bounds(self) -> Result<Thresholds, Usage> {
        if self.hot > self.warm || self.warm > self.cold {
            return Err(Usage("--hot, --warm and --cold have to grow in this order".into()));
        }
        Ok(Thresholds { hot_ns: self.hot, warm_ns: self.warm, cold_ns: self.cold })
    }
}
