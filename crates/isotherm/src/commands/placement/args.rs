//! The arguments of `isotherm placement`.

use crate::args::color::ColorArgs;
use crate::args::targets::TargetArgs;
use crate::args::values::{positive_duration_ns, size};
use crate::args::watching::WatchArgs;
use clap::Args;
use isotherm_units::Bytes;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct PlacementArgs {
    #[command(flatten)]
    pub targets: TargetArgs,
    /// Model a direct-mapped cache of this size [default: the cache that this machine reports]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub cache_size: Option<Bytes>,
    /// Weigh each page by how often it is accessed: watched for ten seconds, or according to --from or --watch
    #[arg(long)]
    pub heat: bool,
    /// Weigh pages by the last snapshot of this recording (or file of damo); its processes, or those named
    #[arg(long, value_name = "RECORDING", conflicts_with_all = ["all", "cgroup", "command", "watch_for"])]
    pub from: Option<PathBuf>,
    /// Weigh pages by watching live for this long
    #[arg(long = "watch", value_name = "TIME", value_parser = positive_duration_ns)]
    pub watch_for: Option<u64>,
    #[command(flatten)]
    pub watch: WatchArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub color: ColorArgs,
}
