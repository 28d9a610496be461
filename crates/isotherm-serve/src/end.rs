//! When the server is asked to end: by a signal, and by the end of its parent.
//!
//! SIGINT and SIGTERM end it with code 0. They write a byte into a pair of sockets, which is made before the sandbox and before
//! the runtime. A signal that comes between the two is kept in it.

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use signal_hook::consts::{SIGINT, SIGTERM};
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

/// Signals that ask the server to end.
#[derive(Debug)]
pub struct Signals(UnixStream);

impl Signals {
    /// Handles them from now on.
    pub fn handled() -> Result<Signals> {
        let (read, write) = UnixStream::pair().context("handle signals")?;
        read.set_nonblocking(true).context("handle signals")?;
        for signal in [SIGINT, SIGTERM] {
            let write = write.try_clone().context("handle signals")?;
            signal_hook::low_level::pipe::register(signal, write).context("handle signals")?;
        }
        Ok(Signals(read))
    }

    /// Waits for the first.
    pub async fn first(self) -> Result<()> {
        let mut stream = tokio::net::UnixStream::from_std(self.0).context("wait for signals")?;
        stream.read_u8().await.context("wait for signals")?;
        Ok(())
    }
}
