//! For how long memory has to be idle, and how long that is watched for.

use crate::args::usage::Usage;
use crate::args::values::positive_duration_ns;
use clap::Args;

/// Watched for longer than the age by at least this.
const MIN_LONGER_NS: u64 = 10_000_000_000;

#[derive(Clone, Copy, Debug, Args)]
pub struct IdleArgs {
    /// Memory counts as idle that no access was found to for this long
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = positive_duration_ns)]
    pub idle: u64,
    /// How long to watch before acting on what is idle [default: a quarter longer than --idle, and 10 s longer at least]
    #[arg(short, long, value_name = "TIME", value_parser = positive_duration_ns)]
    pub duration: Option<u64>,
}

impl IdleArgs {
    /// How long to watch where nothing depends on what is idle, in nanoseconds.
    pub fn any_duration_ns(&self) -> u64 {
        let longer = (self.idle / 4).max(MIN_LONGER_NS);
        self.duration.unwrap_or(self.idle.saturating_add(longer))
    }

    /// How long to watch, in nanoseconds. Fails if nothing can be known to be idle by then.
    pub fn duration_ns(&self) -> Result<u64, Usage> {
        let duration = self.any_duration_ns();
        if duration <= self.idle {
            return Err(Usage(
                "watch longer than --idle: nothing can be known to be idle for that long before".to_owned(),
            ));
        }
        Ok(duration)
    }
}
