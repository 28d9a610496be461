//! Mounts of this thread's own namespace: [`unshare`] makes one, the others change it.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// `struct mount_attr` of `mount_setattr(2)`.
#[repr(C)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

const MOUNT_ATTR_RDONLY: u64 = 1;

/// Gives this thread, and those that it starts later, a copy of all mounts. Needs CAP_SYS_ADMIN.
pub fn unshare() -> io::Result<()> {
    // SAFETY: no pointers are passed. The file descriptors stay shared, and so does memory.
    checked(unsafe { libc::unshare(libc::CLONE_NEWNS) }.into())
}

/// From now on changes of the original mounts at and below `path` show up in the copies, and not the other way round.
pub fn receive_only(path: &Path) -> io::Result<()> {
    mount(path, libc::MS_REC | libc::MS_SLAVE)
}

/// Makes `path`, a file or a folder, a mount by itself, which can have attributes of its own. Mounts below it stay visible. The root of the
/// file system is a mount already.
pub fn bind_onto_itself(path: &Path) -> io::Result<()> {
    mount(path, libc::MS_BIND | libc::MS_REC)
}

/// Sets or clears read-only for the mount at `path`, and with `recursive` for all mounts below it. Since Linux 5.12.
pub fn set_read_only(path: &Path, read_only: bool, recursive: bool) -> io::Result<()> {
    let path = c_string(path)?;
    let (attr_set, attr_clr) = if read_only { (MOUNT_ATTR_RDONLY, 0) } else { (0, MOUNT_ATTR_RDONLY) };
    let attr = MountAttr { attr_set, attr_clr, propagation: 0, userns_fd: 0 };
    let flags = if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path ends with a zero byte, and the attributes are of the size that is passed. Both outlive the call.
    checked(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            flags,
            &raw const attr,
            size_of::<MountAttr>(),
        )
    })
}

fn mount(path: &Path, flags: libc::c_ulong) -> io::Result<()> {
    let path = c_string(path)?;
    // SAFETY: the path ends with a zero byte and outlives the call. With these flags the other pointers are not used.
    checked(unsafe { libc::mount(path.as_ptr(), path.as_ptr(), std::ptr::null(), flags, std::ptr::null()) }.into())
}

fn c_string(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}

fn checked(result: libc::c_long) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
