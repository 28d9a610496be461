//! Signals by which a service manager, or a terminal, asks a daemon to end.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::pipe;
use std::io;
use std::os::unix::net::UnixStream;

/// Handles SIGINT and SIGTERM from now on: each writes a byte to what is returned, which does not block. A daemon calls this before its sandbox
/// and its runtime; a signal that comes before those is kept in the stream.
pub fn end_signals() -> io::Result<UnixStream> {
    let (read, write) = UnixStream::pair()?;
    read.set_nonblocking(true)?;
    for signal in [SIGINT, SIGTERM] {
        pipe::register(signal, write.try_clone()?)?;
    }
    Ok(read)
}
