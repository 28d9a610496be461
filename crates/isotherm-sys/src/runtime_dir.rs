//! The directory for files that last until the next boot: root's, or the user's own.
//!
//! The socket of `isotherm run` and the locks on targets are in it. Each caller decides what to do if there is none.

use std::path::PathBuf;

/// Root's directory for such files.
const OF_ROOT: &str = "/run";

/// `/run` for root, whether a service or a login has started it. For other users it is `named`, which is
/// `XDG_RUNTIME_DIR`, or `otherwise` if that is not set.
pub fn of_user(uid: u32, named: Option<PathBuf>, otherwise: impl FnOnce() -> Option<PathBuf>) -> Option<PathBuf> {
    if uid == 0 { Some(PathBuf::from(OF_ROOT)) } else { named.or_else(otherwise) }
}

/// The directory that the system has named for this user (`XDG_RUNTIME_DIR`).
pub fn named() -> Option<PathBuf> {
    variable("XDG_RUNTIME_DIR")
}

/// A directory that an environment variable names; `None` if the variable is empty.
pub(crate) fn variable(key: &str) -> Option<PathBuf> {
    std::env::var_os(key).filter(|dir| !dir.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_has_one_place_and_others_theirs() {
        let of = |uid, named: Option<&str>, otherwise: Option<&str>| {
            of_user(uid, named.map(PathBuf::from), || otherwise.map(PathBuf::from))
        };
        assert_eq!(of(0, Some("/x"), Some("/y")), Some("/run".into()), "also in a login");
        assert_eq!(of(7, Some("/x"), Some("/y")), Some("/x".into()));
        assert_eq!((of(7, None, Some("/y")), of(7, None, None)), (Some("/y".into()), None));
        assert_eq!(variable("ISOTHERM_NO_SUCH_VARIABLE"), None);
    }
}
