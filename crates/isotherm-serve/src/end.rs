//! When the server is asked to end: by a signal, and by the end of its parent.
//!
//! SIGINT and SIGTERM ([`isotherm_systemd::end_signals`]) end it with code 0.

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use std::os::unix::net::UnixStream;
use tokio::io::AsyncReadExt;

/// Has the kernel send SIGTERM when the parent ends. Returns whether it has ended already: its id is not `parent` any more.
/// Where `parent` is unknown (0), the parent of an orphan is taken to be process 1.
pub fn with_parent(parent: i32) -> Result<bool> {
    let doing = "ask the kernel for a signal at the end of the parent: start the server without --ends-with-parent";
    set_parent_process_death_signal(Some(Signal::TERM)).context(doing)?;
    let now = getppid().map_or(0, Pid::as_raw_pid);
    Ok(if parent == 0 { now == 1 } else { now != parent })
}

/// Waits for the first of these signals.
pub async fn first(signals: UnixStream) -> Result<()> {
    let mut stream = tokio::net::UnixStream::from_std(signals).context("wait for signals")?;
    stream.read_u8().await.context("wait for signals")?;
    Ok(())
}
