//! The kernel's own monitor, DAMON, through sysfs: set up, started, and afterwards as it was found.
//!
//! `isotherm-sources` asks for one [`Kdamond`] and reads what it finds from the `damon_aggregated` tracepoint. What the files
//! mean is told in the kernel's `admin-guide/mm/damon/usage`.
//!
//! # Whose it is
//!
//! DAMON has no notion of an owner: whoever writes `nr_kdamonds` throws away everybody's settings. So the rules are ours:
//!
//! - Nothing is written while anybody else uses it in any way that can be seen: a kernel thread of it, a directory set up in
//!   sysfs though it be off, a module (`damon_stat`, `damon_reclaim`, `damon_lru_sort`) that is enabled.
//! - One Isotherm at a time: a lock on `damon.lock` in the state directory, which the kernel releases when we end, however.
//! - What we are about to set up is first written to `damon.state` beside it, file by file, with the boot it belongs to and the
//!   kernel thread that was started. When we end, also by an error, all is undone. If we are killed, it stays, and the next start
//!   finds the lock free and the record there: sysfs is cleaned up if, and only if, it shows what the record says. A thread
//!   that runs has to be the one in the record, by pid and start time. Anything else is somebody else's by now, and is left.

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
    /// Where the lock and the record are kept. Has to forget at boot, or to be the same for all who use this kernel.
    pub state: PathBuf,
}

impl Default for Places {
    fn default() -> Places {
        Places { roots: HostRoots::default(), state: "/run/isotherm".into() }
    }
}
