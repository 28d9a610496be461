//! The parts of `isotherm run` other than the monitor and the state that its threads share ([`isotherm_schemes::state`]): the socket for
//! status and hints ([`socket`]).
//!
//! `isotherm run` has four threads. The first watches and gives hints once per window. The second serves hints, the third answers
//! requests, and the fourth measures the gain. With `--stream` a fifth sends snapshots. One mutex guards the shared state. No thread makes a system call while it holds the mutex:
//! a collapse can take seconds, and answers must not wait for it.

mod place;
pub mod socket;

use anyhow::{Result, bail};
use isotherm_host::{HostFacts, HostRoots};

/// Fails where the kernel is known not to have MADV_COLLAPSE.
pub fn need_collapse() -> Result<()> {
    let host = HostFacts::read(&HostRoots::default(), isotherm_units::PAGE_SIZE);
    if host.kernel_since(6, 1) == Some(false) || host.thp.present == Some(false) {
        bail!(
            "this kernel cannot collapse memory on request: it takes Linux 6.1 with CONFIG_TRANSPARENT_HUGEPAGE; see `isotherm doctor`"
        );
    }
    Ok(())
}
