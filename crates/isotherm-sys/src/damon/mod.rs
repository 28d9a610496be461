//! The kernel's own monitor, DAMON, through sysfs: set up, started, and restored afterwards.
//!
//! `isotherm-sources` asks for one [`Kdamond`] and reads its results from the `damon_aggregated` tracepoint. The
//! kernel's `admin-guide/mm/damon/usage` documents the files.
//!
//! # Ownership
//!
//! DAMON has no notion of an owner: any process that writes `nr_kdamonds` discards everybody's settings. So we keep to
//! these rules:
//!
//! - Nothing is written while any other use is visible: a DAMON kernel thread, a directory set up in sysfs (even if it
//!   is off), or an enabled module (`damon_stat`, `damon_reclaim`, `damon_lru_sort`).
//! - One Isotherm at a time. Each locks `damon.lock` in the state directory, and the kernel releases the lock when the
//!   holder ends for any reason.
//! - Each setup is first written to `damon.state` next to the lock: file by file, with the boot id and the kernel
//!   thread that was started. When we end, on an error too, all is undone. If we are killed, the setup stays. The next
//!   start then finds the lock free and the record in place. It cleans up sysfs if, and only if, sysfs matches the
//!   record; a running thread must match the recorded pid and start time. Anything else belongs to somebody else by now
//!   and is not touched.

mod error;
#[cfg(test)]
mod fake;
mod kdamond;
mod lock;
mod ram;
mod record;
mod settings;
mod sysfs;
#[cfg(test)]
mod tests;
mod usage;

pub use error::Error;
pub use kdamond::{Kdamond, available};
pub use ram::system_ram;
pub use settings::{Attributes, Goal, Operations, Target};
pub use usage::Usage;

use crate::roots::HostRoots;
use std::path::PathBuf;

/// Where everything is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// `/proc` and `/sys`.
    pub roots: HostRoots,
    /// The directory of the lock and the record. It must be cleared at boot, or be the same for all users of this
    /// kernel.
    pub state: PathBuf,
}

impl Default for Places {
    fn default() -> Places {
        Places { roots: HostRoots::default(), state: "/run/isotherm".into() }
    }
}
