//! A recording in place of a monitor: all of its snapshots, thinned as live ones are, and then nothing more. What is damaged is left out.
//!
//! It has huge pages by region.

use crate::PROGRAM;
use crate::state::{Builder, State};
use anyhow::{Result, bail};
use isotherm_record::Recording;
use isotherm_stream::Snapshot as Sent;
use isotherm_systemd::{Priority, messages};

/// Reads a recording and publishes the view of its end.
pub fn show(recording: &Recording, builder: &mut Builder, state: &State) -> Result<()> {
    let mut last: Option<Sent> = None;
    let left_out = |error: &isotherm_record::Error| {
        messages::print(PROGRAM, Priority::Warning, &format!("left out: {error}"));
    };
    for snapshot in recording.snapshots().undamaged(left_out) {
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
