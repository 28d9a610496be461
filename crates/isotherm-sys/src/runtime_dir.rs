//! The directory for files that last until the next boot: root's, or the user's own.
//!
//! The socket of `isotherm run` and the locks on targets both lie there. What they do without one differs, so each says so itself.

use std::path::PathBuf;

/// Where the system keeps such files of root.
const OF_ROOT: &str = "/run";

/// `/run` for root, whether a service or a login has started it; `named`, which is `XDG_RUNTIME_DIR`, for others, and `otherwise` where
/// that is not set.
pub fn of_user(uid: u32, named: Option<PathBuf>, otherwise: impl FnOnce() -> Option<PathBuf>) -> Option<PathBuf> {
    if uid == 0 { Some(PathBuf::from(OF_ROOT)) } else { named.or_else(otherwise) }
}

/// What the system has named for this user (`XDG_RUNTIME_DIR`).
pub fn named() -> Option<PathBuf> {
    variable("XDG_RUNTIME_DIR")
}

/// A directory that a variable of the environment names; one that is empty names none.
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
