//! Where the kernel's files are: readers take their roots, so that tests run on made-up machines.

use std::path::PathBuf;

/// Where the kernel's files are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRoots {
    /// `/proc`.
    pub proc: PathBuf,
    /// `/sys`.
    pub sys: PathBuf,
    /// `/boot`, for the kernel's configuration.
    pub boot: PathBuf,
}

impl Default for HostRoots {
    fn default() -> HostRoots {
        HostRoots { proc: "/proc".into(), sys: "/sys".into(), boot: "/boot".into() }
    }
}
