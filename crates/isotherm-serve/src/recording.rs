//! A recording in place of a monitor: all of its snapshots, thinned as live ones are, and then nothing more.
//!
//! A recording has no swap and no limits, so these are unknown, and it has huge pages by region.

use crate::state::{Builder, State};
use anyhow::{Result, bail};
use isotherm_record::Recording;
use isotherm_stream::Snapshot as Sent;

/// Reads a recording and publishes the view of its end.
pub fn show(recording: &Recording, builder: &mut Builder, state: &State) -> Result<()> {
    let mut last: Option<Sent> = None;
    for snapshot in recording.snapshots() {
        let next = Sent::of(recording.run(), &snapshot?);
        if let Some(mut before) = last.replace(next) {
            builder.keep(&mut before);
        }
    }
    let Some(last) = last else {
        bail!("show {}: it has no snapshots; was it stopped before its first window?", recording.path().display());
    };
    state.publish(builder.view(last));
    Ok(())
}
