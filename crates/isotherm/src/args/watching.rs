//! How to watch: source, budgets, regions, window. The same group for every command that watches.
//!
//! [`crate::watch`] makes a monitor of it.

use crate::args::sampling::SamplingArgs;
use crate::args::source::{ClearArg, SourceArg};
use crate::args::values::{percent, positive_duration_ns, size, window_ns};
use clap::{Args, ValueEnum};
use isotherm_units::Bytes;
use std::path::PathBuf;

/// How to watch.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Watching")]
pub struct WatchArgs {
    /// Where access reports come from
    #[arg(long, value_enum, default_value_t)]
    pub source: SourceArg,
    /// How accessed bits are cleared; anything but auto needs the page-table source
    #[arg(long, value_enum, default_value_t, value_name = "WAY", conflicts_with = "replay")]
    pub clear: ClearArg,
    /// Watch this recording (or file of damo) being played back instead of the machine: its processes, or those named, as
    /// fast as it computes
    #[arg(long, value_name = "RECORDING", conflicts_with_all = ["source", "all", "cgroup", "command"])]
    pub replay: Option<PathBuf>,
    /// Watch a modelled host instead of the machine, as described in this file, or `2tib`: one that comes with isotherm. No real
    /// memory is looked at; what looking would cost is charged
    #[cfg(feature = "model")]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["source", "replay", "command", "events", "perf_event"])]
    pub model: Option<PathBuf>,
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// Allowed slow-down of each target, percent of one core; over 100 lifts the limit
    #[arg(long, value_name = "PERCENT", default_value = "1", value_parser = percent)]
    pub max_slowdown: f64,
    /// Allowed CPU of the monitor, percent of one core; over 100 lifts the limit [default: 1, with `referenced` 5]
    #[arg(long, env = "ISOTHERM_MAX_CPU", hide_env_values = true, value_name = "PERCENT", value_parser = percent)]
    pub max_cpu: Option<f64>,
    /// How much of a process is looked at
    #[arg(long, value_enum, default_value_t)]
    pub mode: ModeArg,
    /// At most this many regions for each process; for all together of those that are sampled
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub max_regions: u32,
    /// No region of a sampled process is larger than this, as far as --max-regions allows [default: no such bound]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub max_region: Option<Bytes>,
    /// Each region of a sampled process is looked at once in this time, if the budgets allow
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = positive_duration_ns)]
    pub sample_interval: u64,
    /// Draw the order of looks from this seed, to repeat a run [default: one from the operating system]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Watch also what another isotherm watches: each then takes accesses from the other, and finds less than there is
    #[arg(long)]
    pub beside: bool,
    /// Time between two snapshots
    #[arg(short, long, value_name = "TIME", value_parser = window_ns)]
    pub window: Option<u64>,
}

impl WatchArgs {
    /// Whether the machine is watched as a whole, so that no targets are named.
    pub fn is_of_machine(&self) -> bool {
        self.source.is_machine() || self.sampling.is_physical()
    }

    /// Whether something else than the machine is watched.
    pub fn is_played(&self) -> bool {
        #[cfg(feature = "model")]
        if self.model.is_some() {
            return true;
        }
        self.replay.is_some()
    }
}

/// How much of a process is scanned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ModeArg {
    /// Whole, as long as all that is watched can be looked at once in five minutes at the allowed CPU; sampled beyond
    #[default]
    Auto,
    /// Every page
    Whole,
    /// A 2 MiB block here and there in each region: cost follows --max-regions, not the size of memory
    Sampled,
}
