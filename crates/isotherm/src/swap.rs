//! Whether this machine has swap, without which no private memory can leave.

use isotherm_sys::free::Swap;
use std::path::Path;

/// What is missing, and what to do.
pub const MISSING: &str = "this machine has no swap, so no private memory can leave: add some (zram, a file, a partition) with mkswap and swapon";

/// Whether there is some. Unknown counts as yes: then the worker finds out.
pub fn is_there() -> bool {
    Swap::read(Path::new("/proc")).is_none_or(|swap| swap.total.0 > 0)
}
