//! The path of the control socket: [`isotherm_stream::place`], with errors that name the option of `isotherm run`.

use crate::privileges::as_user;
use anyhow::{Result, anyhow};
use isotherm_stream::place::{Place, PlaceError};
use std::os::unix::net::UnixListener;
use std::path::Path;

/// The kernel's own bound is `net.core.somaxconn`.
const BACKLOG: i32 = 128;

/// Listens at `path`, for our own user. Replaces a socket left behind by a crash. Fails if another process owns the path or answers there.
pub fn listen(path: &Path) -> Result<(UnixListener, Place)> {
    as_user(|| Ok(Place::listen(path, None, BACKLOG)))?.map_err(|error| match error {
        PlaceError::Occupied => anyhow!(
            "another isotherm run answers at {}: ask it with `isotherm status`, or give this one another --socket",
            path.display()
        ),
        PlaceError::NoSocket => anyhow!("{} is there and is no socket: give another --socket", path.display()),
        error => anyhow!(error).context(format!("listen at {}", path.display())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_stream::place::connect_within;
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, socket};
    use std::fs;
    use std::io;
    use std::time::Duration;

    const TIMEOUT: Duration = Duration::from_secs(1);

    #[test]
    fn a_socket_that_another_has_put_there_is_left_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let (_listener, place) = listen(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let _other = UnixListener::bind(&path).unwrap();
        drop(place);
        assert!(path.exists());
        let error = format!("{:#}", listen(&path).unwrap_err());
        assert!(error.contains("another isotherm run"), "{error}");
    }

    #[test]
    fn a_full_queue_is_not_taken_for_a_socket_left_behind_and_holds_up_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let socket = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&socket, 0).unwrap();
        let _first = connect_within(&path, TIMEOUT).unwrap();
        let error = connect_within(&path, Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        let error = format!("{:#}", listen(&path).unwrap_err());
        assert!(error.contains("another isotherm run"), "{error}");
    }
}
