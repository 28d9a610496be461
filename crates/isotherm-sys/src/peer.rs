//! Who is at the other end of a Unix socket.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};

/// The user of the process that connected, at the time it connected. Its pid is not used: it is 0 outside of our pid
/// namespace.
pub fn uid(stream: impl AsFd) -> io::Result<u32> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = libc::socklen_t::try_from(size_of::<libc::ucred>()).map_err(io::Error::other)?;
    let fd = stream.as_fd().as_raw_fd();
    // SAFETY: SO_PEERCRED writes at most `len` bytes, the size of `peer`, and every bit pattern is a valid `ucred`.
    let failed =
        unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut peer).cast(), &raw mut len) };
    if failed == 0 { Ok(peer.uid) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_peer_of_our_own_pair_is_us() {
        let (one, other) = UnixStream::pair().unwrap();
        // SAFETY: geteuid takes nothing and returns an integer.
        let own = unsafe { libc::geteuid() };
        assert_eq!((uid(&one).unwrap(), uid(&other).unwrap()), (own, own));
        assert!(uid(tempfile::tempfile().unwrap()).is_err(), "a file is no socket");
    }
}
