//! What has to be there before anything is watched: checked at the start, and again when the settings are read again.

use super::args::RunArgs;
use super::config::Config;
use super::{host, migrate, page_out, reclaim, split};
use crate::daemon::need_collapse;
use crate::output;
use crate::swap;
use anyhow::{Result, bail};

/// What the actions need of the kernel and of the machine.
pub fn actions(args: &RunArgs, config: &Config) -> Result<()> {
    if makes_huge(config) {
        need_collapse()?;
    }
    page_out::check(args, config)?;
    migrate::check(args, config)?;
    split::check(args, config)?;
    reclaim::check(args, config)?;
    host::check(config)?;
    if config.pages_out() && !config.dry_run && !swap::is_there() {
        if config.only_pages_out() {
            bail!(swap::MISSING);
        }
        output::warn(swap::MISSING);
    }
    Ok(())
}

/// Whether memory is collapsed. Probes that are split are, again. To count what would be collapsed takes nothing of the kernel.
pub fn makes_huge(config: &Config) -> bool {
    (config.collapses() || config.splits()) && !config.dry_run
}
