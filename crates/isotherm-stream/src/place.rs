//! The path of a socket, which has one owner at a time. For the stream, and for the control socket of `isotherm run`.
//!
//! A socket does not show whether it is stale: between `bind` and `listen` a live one refuses connections, as a stale one does. So the
//! owner holds a lock, on a file next to the socket, for as long as it lives. The kernel releases the lock when the process ends. Only the
//! holder of the lock creates or removes the socket. The mode is set before `bind`, which applies it to the new file. So there is no
//! moment in which other users could connect.

use rustix::fs::{FlockOperation, Mode, OFlags, fchmod, flock, open};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with};
use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, lchown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often to try again because an owner ended while we took its lock. More than a few in a row are no coincidence.
const TRIES: u32 = 100;
/// One who listens accepts within milliseconds.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The owner may connect, and the group if one was asked for: whatever other group the file has, its members were not named.
const GROUP_MODE: u32 = 0o660;

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

/// Why a path cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// Another process owns it or answers there.
    #[error("another program listens there; stop it, or give another path")]
    Occupied,
    /// What is there would have to be removed, and is no socket.
    #[error("a file that is no socket is there; give another path")]
    NoSocket,
    /// The lock could not be taken.
    #[error("lock {}: {error}", path.display())]
    Lock {
        /// The file that is locked.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The socket could not be made.
    #[error("{what}: {error}")]
    Socket {
        /// What was attempted.
        what: &'static str,
        /// What the system said.
        error: io::Error,
    },
}

type Result<T> = std::result::Result<T, PlaceError>;

/// The error of a step, from either library.
fn step<E: Into<io::Error>>(what: &'static str) -> impl Fn(E) -> PlaceError {
    move |error| PlaceError::Socket { what, error: error.into() }
}

impl Place {
    /// Listens at `path`, for our own user and the group of this number, with so many connections in the queue. Replaces a socket left behind
    /// by a crash. Fails if another process owns the path or answers there.
    pub fn listen(path: &Path, group: Option<u32>, backlog: i32) -> Result<(UnixListener, Place)> {
        let mut place = Place::take(path)?;
        let listener = place.bind(group, backlog)?;
        Ok((listener, place))
    }

    fn take(path: &Path) -> Result<Place> {
        let mut name = OsString::from(path);
        name.push(".lock");
        let beside = PathBuf::from(name);
        match lock(&beside) {
            Ok(Some(lock)) => Ok(Place { path: path.to_owned(), beside, _lock: lock, socket: None }),
            Ok(None) => Err(PlaceError::Occupied),
            Err(error) => Err(PlaceError::Lock { path: beside, error }),
        }
    }

    fn bind(&mut self, group: Option<u32>, backlog: i32) -> Result<UnixListener> {
        self.remove_stale()?;
        let socket = unix_socket().map_err(step("open a socket"))?;
        fchmod(&socket, Mode::RUSR | Mode::WUSR).map_err(step("set the mode of the socket"))?;
        let address = SocketAddrUnix::new(&self.path).map_err(step("take the path for a socket"))?;
        bind(&socket, &address).map_err(step("bind the socket"))?;
        let there = fs::symlink_metadata(&self.path).map_err(step("find the socket"))?;
        self.socket = Some(identity(&there));
        if let Some(group) = group {
            let doing = "set its group, which takes CAP_CHOWN or a member of it (SupplementaryGroups= in a unit)";
            lchown(&self.path, None, Some(group)).map_err(step(doing))?;
        }
        listen(&socket, backlog).map_err(step("listen"))?;
        if group.is_some() {
            // The umask takes from the mode that `bind` applies.
            self.set_mode(GROUP_MODE).map_err(step("set the mode of the socket"))?;
        }
        Ok(socket.into())
    }

    /// Sets the mode of the socket that we have made. Where others can write to the folder, it may have been exchanged for a link.
    fn set_mode(&self, mode: u32) -> io::Result<()> {
        let there = File::from(open(&self.path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?);
        if Some(identity(&there.metadata()?)) != self.socket {
            return Err(io::Error::other("another file has taken its place"));
        }
        fs::set_permissions(format!("/proc/self/fd/{}", there.as_raw_fd()), Permissions::from_mode(mode))
    }

    /// Removes a socket at which nobody listens.
    fn remove_stale(&self) -> Result<()> {
        let Ok(there) = fs::symlink_metadata(&self.path) else { return Ok(()) };
        if !there.file_type().is_socket() {
            return Err(PlaceError::NoSocket);
        }
        // A live socket without a lock belongs to an older version or to another program.
        if answers(&self.path) {
            return Err(PlaceError::Occupied);
        }
        fs::remove_file(&self.path).map_err(step("remove the socket left there"))
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

fn answers(path: &Path) -> bool {
    match connect_within(path, TIMEOUT) {
        Ok(_) => true,
        // Its queue is full, so a process listens.
        // Nor does it mean that nobody listens if we may not connect: another user's socket.
        Err(error) => !matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound),
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
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_socket_is_its_owners_alone_from_the_first_moment() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let (_listener, place) = Place::listen(&path, None, 128).unwrap();
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
    fn the_mode_of_what_a_link_in_its_place_leads_to_stays() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("s"), dir.path().join("other"));
        let (_listener, place) = Place::listen(&path, None, 128).unwrap();
        place.set_mode(GROUP_MODE).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, GROUP_MODE);
        fs::write(&other, "").unwrap();
        fs::set_permissions(&other, Permissions::from_mode(0o600)).unwrap();
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        assert!(place.set_mode(GROUP_MODE).unwrap_err().to_string().contains("another file"));
        fs::remove_file(&path).unwrap();
        fs::rename(&other, &path).unwrap();
        assert!(place.set_mode(GROUP_MODE).is_err());
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
                        let taken = Place::listen(&path, None, 128);
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
    fn a_dead_socket_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        drop(UnixListener::bind(&path).unwrap());
        let (_listener, place) = Place::listen(&path, None, 32).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "no group was named");
        let second = Place::listen(&path, None, 32).unwrap_err().to_string();
        assert!(second.contains("another program"), "{second}");
        drop(place);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");

        let _foreign = UnixListener::bind(&path).unwrap();
        let third = Place::listen(&path, None, 32).unwrap_err().to_string();
        assert!(third.contains("another program"), "{third}");
        assert!(path.exists());
    }

    #[test]
    fn what_is_no_socket_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        fs::write(&path, "a file").unwrap();
        assert!(Place::listen(&path, None, 32).unwrap_err().to_string().contains("no socket"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "a file");
    }

    #[test]
    fn a_socket_that_another_has_put_there_is_left_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let (_listener, place) = Place::listen(&path, None, 32).unwrap();
        fs::remove_file(&path).unwrap();
        let _other = UnixListener::bind(&path).unwrap();
        drop(place);
        assert!(path.exists());
    }
}
