//! How to watch: source, budgets, regions, window. The same group for every command that watches.
//!
//! [`crate::watch`] makes a monitor of it.

use crate::args::intervals::IntervalArgs;
use crate::args::sampling::SamplingArgs;
use crate::args::source::{ClearArg, SourceArg};
use crate::args::usage::Usage;
use crate::args::values::{percent, size, window_ns};
use clap::{Args, ValueEnum};
use isotherm_units::Bytes;
use std::path::PathBuf;

/// The default of `--max-slowdown`.
const DEFAULT_MAX_SLOWDOWN_PCT: f64 = 1.0;

const DEFAULT_MAX_REGIONS: u32 = 1000;
/// Options for sources that see pages.
const FOR_PAGES: [&str; 4] = ["--mode", "--max-region", "--sample-interval", "--intervals-goal"];
/// The variable that limits the CPU of each command, as `--max-cpu` does.
pub const MAX_CPU: &str = "ISOTHERM_MAX_CPU";

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
    /// Watch a replay of this recording (or file of damo) instead of the machine: its processes, or those named, as
    /// fast as it computes
    #[arg(long, value_name = "RECORDING", conflicts_with_all = ["source", "all", "cgroup", "command"])]
    pub replay: Option<PathBuf>,
    /// Watch a modelled host instead of the machine, as described in this file, or the built-in `2tib`. No real
    /// memory is accessed; the cost that access checks would have is charged
    #[cfg(feature = "model")]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["source", "replay", "command", "events", "perf_event"])]
    pub model: Option<PathBuf>,
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// Allowed slow-down of each target, percent of one core; over 100 lifts the limit [default: 1]
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub max_slowdown: Option<f64>,
    /// Allowed CPU of the monitor, percent of one core; over 100 lifts the limit [default: 1, with `referenced` 5]
    #[arg(long, env = MAX_CPU, hide_env_values = true, value_name = "PERCENT", value_parser = percent)]
    pub max_cpu: Option<f64>,
    /// How much of a process is checked
    #[arg(long, value_enum, default_value_t)]
    pub mode: ModeArg,
    /// At most this many regions for each process; sampled processes share one such limit
    #[arg(long, value_name = "N", default_value_t = DEFAULT_MAX_REGIONS, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub max_regions: u32,
    /// No region of a sampled process is larger than this, as far as --max-regions allows [default: no such bound]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub max_region: Option<Bytes>,
    #[command(flatten)]
    pub intervals: IntervalArgs,
    /// Draw the order of access checks from this seed, to repeat a run [default: one from the operating system]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Also watch what another isotherm watches: each then clears bits that the other needs, and finds fewer accesses
    #[arg(long)]
    pub beside: bool,
    /// Time between two snapshots [default: 1s for run, serve, reclaim, split and migrate; 2s for record, top, collapse and placement; of reports
    /// a twentieth of --duration, 500ms to 5s]
    #[arg(short, long, value_name = "TIME", value_parser = window_ns)]
    pub window: Option<u64>,
}

impl WatchArgs {
    /// The first of these options that was given, if any. A limit on CPU that is in the environment is for all commands.
    pub fn given(&self, limits_cpu_by_environment: bool) -> Option<&'static str> {
        self.all_given(limits_cpu_by_environment).next()
    }

    /// The first option that was given, if any; not by the environment, which is for all commands.
    pub fn given_by_hand(&self) -> Option<&'static str> {
        self.given(std::env::var_os(MAX_CPU).is_some())
    }

    /// Fails if it is said how to watch where nothing is watched: `instead` says what happens.
    pub fn check_unused(&self, instead: &str) -> Result<(), Usage> {
        self.given_by_hand()
            .map_or(Ok(()), |option| Err(Usage(format!("{option} is for watching, and {instead}: leave it out"))))
    }

    /// The first option that was given, if any, of those that only a source which sees pages takes.
    pub fn for_pages(&self) -> Option<&'static str> {
        self.all_given(true).find(|option| FOR_PAGES.contains(option))
    }

    fn all_given(&self, limits_cpu_by_environment: bool) -> impl Iterator<Item = &'static str> {
        let options = [
            ("--source", self.source != SourceArg::default()),
            ("--clear", self.clear != ClearArg::default()),
            ("--event", self.sampling.is_given()),
            ("--max-slowdown", self.max_slowdown.is_some()),
            ("--max-cpu", self.max_cpu.is_some() && !limits_cpu_by_environment),
            ("--mode", self.mode != ModeArg::default()),
            ("--max-regions", self.max_regions != DEFAULT_MAX_REGIONS),
            ("--max-region", self.max_region.is_some()),
            ("--sample-interval", self.intervals.sample_interval.is_some()),
            ("--intervals-goal", self.intervals.intervals_goal.is_some()),
            ("--seed", self.seed.is_some()),
            ("--beside", self.beside),
            ("--window", self.window.is_some()),
        ];
        options.into_iter().filter(|(_, is_given)| *is_given).map(|(option, _)| option)
    }

    /// The allowed slow-down of each target, in percent of one core.
    pub fn max_slowdown_pct(&self) -> f64 {
        self.max_slowdown.unwrap_or(DEFAULT_MAX_SLOWDOWN_PCT)
    }

    /// Whether the machine is watched as a whole, so that no targets are named.
    pub fn is_of_machine(&self) -> bool {
        self.source.is_machine() || self.sampling.is_physical()
    }

    /// Whether a recording or a modelled host is watched instead of the machine.
    pub fn is_played(&self) -> bool {
        #[cfg(feature = "model")]
        if self.model.is_some() {
            return true;
        }
        self.replay.is_some()
    }

    /// Why memory that is in use may look idle with these arguments, and what to do instead.
    pub fn unfit_for_idle(&self) -> Option<&'static str> {
        if self.is_played() {
            return Some("it acts on what is idle now: watch processes of this machine, without --replay and --model");
        }
        let hidden = "with --beside another monitor hides accesses, and memory that is in use may look idle: end the other, and leave out --beside";
        self.beside.then_some(hidden)
    }
}

/// How much of a process is scanned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ModeArg {
    /// Whole if all watched memory can be checked once in five minutes at the allowed CPU; sampled otherwise
    #[default]
    Auto,
    /// Every page
    Whole,
    /// One random huge range of each region at a time: the cost depends on --max-regions, not on the size of memory
    Sampled,
}
