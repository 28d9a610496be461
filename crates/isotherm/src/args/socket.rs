//! The default of `--socket`: where a daemon listens and its clients connect.

use anyhow::{Context, Result};
use isotherm_sys::runtime_dir;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Where a daemon listens and its clients connect by default.
pub fn default_socket() -> Result<PathBuf> {
    runtime_file("isotherm.sock", "--socket")
}

/// The path of a file of this name where root and users keep what is of running programs. `option` is for another path. Makes root's folder
/// if it is not there; if it cannot, an error of the caller's names the path.
pub fn runtime_file(name: &str, option: &str) -> Result<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    let dir = runtime_dir(uid, runtime_dir::named(), Path::is_dir);
    let dir = dir.with_context(|| format!("give the path of {name} with {option}"))?;
    if uid == 0 && !dir.is_dir() {
        let _ = DirBuilder::new().mode(0o755).create(&dir);
    }
    Ok(dir.join(name))
}

/// For root a folder in /run, whether systemd or a login started it: a service may write to no other. For users, their own runtime directory.
fn runtime_dir(uid: u32, named: Option<PathBuf>, is_dir: impl Fn(&Path) -> bool) -> Result<PathBuf> {
    // This directory also exists for a user whose service was started without the variable.
    let of_login = || Some(PathBuf::from(format!("/run/user/{uid}"))).filter(|dir| is_dir(dir));
    runtime_dir::of_user(uid, named, of_login)
        .map(|dir| if uid == 0 { dir.join("isotherm") } else { dir })
        .with_context(|| format!("XDG_RUNTIME_DIR is not set and there is no /run/user/{uid}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_roots_in_run_and_a_users_in_its_own_directory() {
        let dir_of = |uid, dir: Option<&str>, is_dir: bool| runtime_dir(uid, dir.map(PathBuf::from), |_| is_dir);
        for dir in [None, Some("/run/user/0")] {
            assert_eq!(dir_of(0, dir, true).unwrap(), Path::new("/run/isotherm"), "by systemd or from a login");
        }
        assert_eq!(dir_of(7, Some("/x"), false).unwrap(), Path::new("/x"));
        assert_eq!(dir_of(7, None, true).unwrap(), Path::new("/run/user/7"));
        let error = dir_of(7, None, false).unwrap_err().to_string();
        assert!(error.contains("/run/user/7"), "{error}");
    }
}
