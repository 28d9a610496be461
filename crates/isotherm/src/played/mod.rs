//! What is watched instead of the machine: a recording being played back, or a modelled host. Both on clocks that jump.
//!
//! The modelled host is behind the feature `model`: it brings a simulator, which nothing else here needs.

#[cfg(feature = "model")]
mod model;
mod recording;
mod source;

use crate::args::targets::TargetArgs;
use crate::args::watching::WatchArgs;
use anyhow::Result;
pub use source::Played;

/// What was asked for; `None` if that is the machine.
pub fn open(targets: &TargetArgs, args: &WatchArgs) -> Result<Option<Played>> {
    if let Some(path) = &args.replay {
        return recording::open(targets, path).map(Some);
    }
    #[cfg(feature = "model")]
    if let Some(path) = &args.model {
        return model::open(targets, path).map(Some);
    }
    Ok(None)
}
