//! Signals by which a service manager, or a terminal, asks a daemon to end, or to read its settings again.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;
use std::io::{self, IsTerminal as _};
use std::os::unix::net::UnixStream;

/// Handles SIGINT and SIGTERM from now on: each writes a byte to what is returned, which does not block. A daemon calls this before its sandbox
/// and its runtime; a signal that comes before those is kept in the stream.
pub fn end_signals() -> io::Result<UnixStream> {
    bytes_for(&[SIGINT, SIGTERM])
}

/// Handles SIGHUP in the same way, as the request to read settings again. `None` for a program that was started at a terminal: there it says
/// that the terminal has gone, which ends the program.
pub fn reload_signals() -> io::Result<Option<UnixStream>> {
    let at_terminal = io::stdin().is_terminal() || io::stdout().is_terminal() || io::stderr().is_terminal();
    if at_terminal { Ok(None) } else { bytes_for(&[SIGHUP]).map(Some) }
}

fn bytes_for(signals: &[i32]) -> io::Result<UnixStream> {
    let (read, write) = UnixStream::pair()?;
    read.set_nonblocking(true)?;
    for signal in signals {
        pipe::register(*signal, write.try_clone()?)?;
    }
    Ok(read)
}
