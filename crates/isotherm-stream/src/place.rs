//! The path of a socket, which has one owner at a time.
//!
//! A socket does not show whether it was left behind: between `bind` and `listen` a live one refuses connections too. So the
//! owner holds a lock on a file next to it for as long as it lives, and only the owner of the lock creates or removes the
//! socket. It has mode 0600 until its group is set, so at no moment may anybody else connect.

use crate::error::{Error, Result};
use rustix::fs::{FlockOperation, Mode, OFlags, fchmod, flock};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, lchown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The owner may connect, and the group if one was asked for: whatever other group the file has, its members were not named.
const OWN_MODE: u32 = 0o600;
const GROUP_MODE: u32 = 0o660;
const BACKLOG: i32 = 32;
/// Where groups are listed.
const GROUPS: &str = "/etc/group";

/// A path that we own. Dropping it removes the socket, if it is still ours, and then the lock.
#[derive(Debug)]
pub(crate) struct Place {
    path: PathBuf,
    lock_path: PathBuf,
    /// Unlocked when closed.
    _lock: File,
    /// Device and inode of the socket.
    socket: Option<(u64, u64)>,
}

impl Place {
    /// Listens at `path`, for our own user and `group` (a name or a number). Replaces a socket whose owner has ended.
    pub(crate) fn listen(path: &Path, group: Option<&str>) -> Result<(UnixListener, Place)> {
        let fault = |what: String| Error::Listen { path: path.to_owned(), what };
        let group = group.map(|name| group_id(name).map_err(fault)).transpose()?;
        let mut lock_path = OsString::from(path);
        lock_path.push(".lock");
        let lock_path = PathBuf::from(lock_path);
        let lock = lock(&lock_path).map_err(|what| fault(format!("lock {}: {what}", lock_path.display())))?;
        let mut place = Place { path: path.to_owned(), lock_path, _lock: lock, socket: None };
        let listener = place.bind(group).map_err(fault)?;
        Ok((listener, place))
    }

    fn bind(&mut self, group: Option<u32>) -> std::result::Result<UnixListener, String> {
        self.remove_dead()?;
        let step = |name: &'static str| move |error: io::Error| format!("{name}: {error}");
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(|error| step("open a socket")(error.into()))?;
        fchmod(&socket, Mode::RUSR | Mode::WUSR).map_err(|error| step("set its mode")(error.into()))?;
        let address = SocketAddrUnix::new(&self.path).map_err(|_| "the path is too long for a socket".to_owned())?;
        bind(&socket, &address).map_err(|error| format!("{error}; is its folder there, and writable?"))?;
        self.socket = fs::symlink_metadata(&self.path).ok().map(|file| identity(&file));
        if let Some(group) = group {
            let advice = "be root or a member of the group";
            lchown(&self.path, None, Some(group)).map_err(|error| format!("set its group: {error}; {advice}"))?;
        }
        listen(&socket, BACKLOG).map_err(|error| step("listen")(error.into()))?;
        let mode = if group.is_some() { GROUP_MODE } else { OWN_MODE };
        fs::set_permissions(&self.path, Permissions::from_mode(mode)).map_err(step("set its mode"))?;
        Ok(socket.into())
    }

    /// Removes a socket at which nobody listens.
    fn remove_dead(&self) -> std::result::Result<(), String> {
        let Ok(there) = fs::symlink_metadata(&self.path) else { return Ok(()) };
        if !there.file_type().is_socket() {
            return Err("a file that is no socket is there; give another path".into());
        }
        match UnixStream::connect(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                fs::remove_file(&self.path).map_err(|error| format!("remove the socket of one that has ended: {error}"))
            }
            Ok(_) => Err("another program listens there; stop it, or give another path".into()),
            Err(error) => Err(format!("a socket is there that cannot be tried: {error}; give another path")),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let there = fs::symlink_metadata(&self.path).ok().map(|file| identity(&file));
        if there.is_some() && there == self.socket {
            let _ = fs::remove_file(&self.path);
        }
        // While it is still locked: a process that opened it and locks it after us finds another file at its path.
        let _ = fs::remove_file(&self.lock_path);
    }
}

fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

/// Creates and locks the file at `path`.
fn lock(path: &Path) -> std::result::Result<File, String> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(0o600).custom_flags(flags);
    let file = options.open(path).map_err(|error| format!("{error}; is its folder there, and writable?"))?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| "another program holds it and listens; stop it, or give another path".to_owned())?;
    // Its owner may have removed it between our `open` and our lock.
    let is_there = |there: Metadata| file.metadata().is_ok_and(|ours| identity(&ours) == identity(&there));
    if !fs::symlink_metadata(path).is_ok_and(is_there) {
        return Err("its owner has just ended; try again".into());
    }
    Ok(file)
}

/// The number of a group. Read from the file and not through the C library, whose services would be loaded into a process
/// with privileges; a group that only they know is given by its number.
fn group_id(name: &str) -> std::result::Result<u32, String> {
    if let Ok(id) = name.parse() {
        return Ok(id);
    }
    let groups = fs::read_to_string(GROUPS).map_err(|error| format!("read {GROUPS}: {error}"))?;
    id_in(&groups, name).ok_or_else(|| format!("no group {name} in {GROUPS}; create it, or give its number"))
}

fn id_in(groups: &str, name: &str) -> Option<u32> {
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_found_by_its_whole_name() {
        let groups = "root:x:0:\nadm:x:4:syslog,me\nadmin:x:117:\nbroken\n";
        let ids = ["root", "adm", "admin", "ad", "broken", "me"].map(|name| id_in(groups, name));
        assert_eq!(ids, [Some(0), Some(4), Some(117), None, None, None]);
        assert_eq!(group_id("1234"), Ok(1234));
        assert!(group_id("no such group").unwrap_err().contains("give its number"));
    }

    #[test]
    fn a_dead_socket_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        drop(UnixListener::bind(&path).unwrap());
        let (_listener, place) = Place::listen(&path, None).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, OWN_MODE, "no group was named");
        let second = Place::listen(&path, None).unwrap_err().to_string();
        assert!(second.contains("another program"), "{second}");
        drop(place);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");

        let _foreign = UnixListener::bind(&path).unwrap();
        let third = Place::listen(&path, None).unwrap_err().to_string();
        assert!(third.contains("another program"), "{third}");
        assert!(path.exists());
    }

    #[test]
    fn what_is_no_socket_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        fs::write(&path, "a file").unwrap();
        assert!(Place::listen(&path, None).unwrap_err().to_string().contains("no socket"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "a file");
        let nowhere = Place::listen(&dir.path().join("no/s"), None).unwrap_err().to_string();
        assert!(nowhere.contains("is its folder there"), "{nowhere}");
    }

    #[test]
    fn a_socket_that_another_has_put_there_is_left_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let (_listener, place) = Place::listen(&path, None).unwrap();
        fs::remove_file(&path).unwrap();
        let _other = UnixListener::bind(&path).unwrap();
        drop(place);
        assert!(path.exists());
    }
}
