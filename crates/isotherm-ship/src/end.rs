//! Signals that ask the program to end: SIGINT and SIGTERM. They write a byte into a pair of sockets, which is made before the sandbox and
//! before the runtime, so that one that comes in between is kept.

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::os::unix::net::UnixStream;
use tokio::io::AsyncReadExt;

/// Signals that ask the program to end.
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
