//! What `isotherm run` is made of, besides the monitor and the state that its threads share ([`isotherm_schemes::state`]): the socket
//! for status and hints ([`socket`]).
//!
//! Four threads: the first watches and gives hints once a window, the second serves them, the third answers, the fourth measures
//! what is gained. One mutex guards all that they share. Nobody makes a system call while holding it: a collapse can take
//! seconds, and answers do not wait for it.

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
