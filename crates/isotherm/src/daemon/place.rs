//! The path at which a daemon listens. It has one owner at a time.
//!
//! A socket does not show whether it is stale: between `bind` and `listen` a live one refuses connections, as a stale one does. So the
//! owner holds a lock, on a file next to the socket, for as long as it lives. The kernel releases the lock when the process ends. Only the
//! holder of the lock creates or removes the socket. The mode is set before `bind`, which applies it to the new file. So there is no
//! moment in which other users could connect.

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, Mode, OFlags, fchmod, flock};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with};
use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The kernel's own bound is `net.core.somaxconn`.
const BACKLOG: i32 = 128;
/// How often to try again because an owner ended while we took its lock. More than a few in a row are no coincidence.
const TRIES: u32 = 100;
/// A live daemon accepts within milliseconds.
const TIMEOUT: Duration = Duration::from_secs(1);

/// A path that we own. Dropping it removes the socket, if that is still ours, and releases the lock.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    beside: PathBuf,
    /// Unlocked when closed.
    _lock: File,
    /// Device and inode of the socket.
    socket: Option<(u64, u64)>,
}

impl Place {
    /// Listens at `path`. Replaces a socket left behind by a crash. Fails if another process owns the path or answers there.
    pub fn listen(path: &Path) -> Result<(UnixListener, Place)> {
        let mut place = Place::take(path)?;
        let listener = place.bind().with_context(|| format!("listen at {}", path.display()))?;
        Ok((listener, place))
    }

    fn take(path: &Path) -> Result<Place> {
        let mut name = OsString::from(path);
        name.push(".lock");
        let beside = PathBuf::from(name);
        let doing = || format!("listen at {}: lock {}", path.display(), beside.display());
        let Some(lock) = lock(&beside).with_context(doing)? else { return Err(occupied(path)) };
        Ok(Place { path: path.to_owned(), beside, _lock: lock, socket: None })
    }

    fn bind(&mut self) -> Result<UnixListener> {
        if let Ok(there) = fs::symlink_metadata(&self.path) {
            if !there.file_type().is_socket() {
                bail!("{} is there and is no socket: give another --socket", self.path.display());
            }
            // A live socket without a lock belongs to an older version or to another program.
            if answers(&self.path) {
                return Err(occupied(&self.path));
            }
            fs::remove_file(&self.path).context("remove the socket left there")?;
        }
        let socket = unix_socket()?;
        fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        bind(&socket, &SocketAddrUnix::new(&self.path)?)?;
        self.socket = Some(identity(&fs::symlink_metadata(&self.path)?));
        listen(&socket, BACKLOG)?;
        Ok(socket.into())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let there = fs::symlink_metadata(&self.path).ok().map(|m| identity(&m));
        if there.is_some() && there == self.socket {
            let _ = fs::remove_file(&self.path);
        }
        // Removed while still locked. A process that opened this file and locks it after us finds another file, or none, at its path.
        let _ = fs::remove_file(&self.beside);
    }
}

/// Locks the file at `path`; `None` if another process holds the lock.
fn lock(path: &Path) -> io::Result<Option<File>> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    for _ in 0..TRIES {
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).mode(0o600).custom_flags(flags).open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        // Its owner may have removed it between our `open` and our lock.
        if fs::symlink_metadata(path).is_ok_and(|there| file.metadata().is_ok_and(|m| identity(&m) == identity(&there)))
        {
            return Ok(Some(file));
        }
    }
    Err(io::Error::other("it is removed again and again: what else uses it?"))
}

fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

fn occupied(path: &Path) -> anyhow::Error {
    anyhow::anyhow!(
        "another isotherm run answers at {}: ask it with `isotherm status`, or give this one another --socket",
        path.display()
    )
}

fn answers(path: &Path) -> bool {
    match connect_within(path, TIMEOUT) {
        Ok(_) => true,
        // Its queue is full, so a process listens.
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    }
}

fn unix_socket() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

/// Connects to the socket at `path`. Fails with `WouldBlock` if that takes longer than `time`, as it does when nobody accepts. Later reads
/// and writes have the same time limit and error.
pub fn connect_within(path: &Path, time: Duration) -> io::Result<UnixStream> {
    let socket = unix_socket()?;
    set_socket_timeout(&socket, Timeout::Send, Some(time))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(time))?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_socket_is_its_owners_alone_from_the_first_moment() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let (_listener, place) = Place::listen(&path).unwrap();
        for file in [&path, &place.beside] {
            assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600, "{file:?}");
        }
        drop(place);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
        // Made by hand, to see the mode before anything else could set it.
        let socket = unix_socket().unwrap();
        fchmod(&socket, Mode::RUSR | Mode::WUSR).unwrap();
        bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn one_of_two_that_start_at_once_listens() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        for round in 0..300 {
            // As a crash leaves it, in every second round.
            if round % 2 == 0 {
                drop(UnixListener::bind(&path).unwrap());
            }
            let (start, tried) = (Barrier::new(2), Barrier::new(2));
            let listening = AtomicUsize::new(0);
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        start.wait();
                        let taken = Place::listen(&path);
                        if taken.is_ok() {
                            listening.fetch_add(1, Ordering::Relaxed);
                        }
                        tried.wait();
                        if taken.is_ok() {
                            connect_within(&path, TIMEOUT).unwrap();
                        }
                    });
                }
            });
            assert_eq!(listening.into_inner(), 1, "round {round}");
            assert!(!path.exists());
        }
    }

    #[test]
    fn a_socket_that_another_has_put_there_is_left_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let (_listener, place) = Place::listen(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let _other = UnixListener::bind(&path).unwrap();
        drop(place);
        assert!(path.exists());
        let error = format!("{:#}", Place::listen(&path).unwrap_err());
        assert!(error.contains("another isotherm run"), "{error}");
    }

    #[test]
    fn a_full_queue_is_not_taken_for_a_socket_left_behind_and_holds_up_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let socket = unix_socket().unwrap();
        bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        listen(&socket, 0).unwrap();
        let _first = connect_within(&path, TIMEOUT).unwrap();
        let error = connect_within(&path, Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        let error = format!("{:#}", Place::listen(&path).unwrap_err());
        assert!(error.contains("another isotherm run"), "{error}");
    }
}
