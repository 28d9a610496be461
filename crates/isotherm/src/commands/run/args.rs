//! The arguments of `isotherm run`. They are in a separate file, because `config` combines them with the settings file.

use crate::args::budgets::BudgetArgs;
use crate::args::hints::HintsArg;
use crate::args::targets::TargetArgs;
use crate::args::values::positive_duration_ns;
use crate::args::watching::WatchArgs;
use clap::Args;
use std::path::PathBuf;

#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// Settings (TOML); options on the command line override them. SIGHUP reads them again
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub targets: TargetArgs,
    #[command(flatten)]
    pub watch: WatchArgs,
    /// End after this time [default: until Ctrl-C, or the targets end]
    #[arg(short, long, value_name = "TIME", value_parser = positive_duration_ns)]
    pub duration: Option<u64>,
    /// Only count what would be done
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// With nothing hot left, go through the rest by address, as khugepaged does
    #[arg(long)]
    pub round_robin: bool,
    /// Where hints come from [default: heat]
    #[arg(long, value_enum, value_name = "ORIGIN", conflicts_with = "replay")]
    pub hints: Option<HintsArg>,
    /// Where `isotherm status` and `isotherm hint` find this one [default: /run/isotherm/isotherm.sock of root, $XDG_RUNTIME_DIR/isotherm.sock of others]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Send snapshots to those who connect to a socket at this path, such as `isotherm-serve` [default: send none]
    #[arg(long, value_name = "PATH")]
    pub stream: Option<PathBuf>,
    /// The group that may connect there, beside root and our own user
    #[arg(long, value_name = "GROUP")]
    pub stream_group: Option<String>,
    /// Record into this directory what is seen, as `isotherm record` does, and what is done to each process
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
    /// Replace a recording that is already there
    #[arg(long, requires = "record")]
    pub overwrite: bool,
    /// Where to note what is done, for `isotherm undo` [default: /run/isotherm/isotherm.journal of root, $XDG_RUNTIME_DIR/isotherm.journal of others]
    #[arg(long, value_name = "PATH")]
    pub journal: Option<PathBuf>,
    /// A command that prints how much work the targets have done so far: CPU per unit is reported before and after
    #[arg(long, value_name = "COMMAND")]
    pub work: Option<String>,
    /// Print the summary as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub budgets: BudgetArgs,
}
