//! What is watched instead of the machine: a recording that is played back, or a modelled host. Both run on clocks that jump.
//!
//! The modelled host takes the feature `model`, because it brings in a simulator that nothing else here needs.

#[cfg(feature = "model")]
mod model;
mod recording;
mod source;

use crate::args::targets::TargetArgs;
use crate::args::watching::WatchArgs;
use anyhow::Result;
pub use source::Played;

/// Opens what the arguments name. Returns `None` if that is the machine.
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
