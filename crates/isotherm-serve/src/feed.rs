//! Reads what a monitor sends, in a thread of its own, and publishes a view for each snapshot.
//!
//! When the monitor ends, so does the server. Connecting again would take a socket that may connect to anything on the machine,
//! which the sandbox does not leave; a service manager starts the server again.

use crate::state::{Builder, State};
use isotherm_stream::{Message, Reader, Result};
use std::os::unix::net::UnixStream;

/// Reads until the stream ends.
pub fn follow(stream: UnixStream, builder: &mut Builder, state: &State) -> Result<()> {
    let mut reader = Reader::new(stream);
    while let Some(message) = reader.next()? {
        match message {
            Message::Snapshot(snapshot) => state.publish(builder.view(*snapshot)),
            Message::Lost(count) => builder.lose(count),
        }
    }
    Ok(())
}
