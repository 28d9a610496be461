//! `clear_refs` and `smaps`, once a second: what a script can do without any monitor.
//!
//! `smaps` counts the referenced pages of each mapping and does not say which they are. A mapping counts as hot if more than half
//! of its resident pages were referenced within the second. So a large mapping of which a tenth is hot is idle as a whole: neither
//! precision nor recall by page can be had from it, however long one waits.

use super::S;
use super::peers::Peer;
use anyhow::{Context, Result};
use isotherm_heat::{Clock as _, Ns};
use isotherm_sources::RealClock;
use isotherm_sys::clear_refs::{self, Clear};
use isotherm_sys::proc::{Proc, Usage};
use isotherm_units::AddrRange;

/// Between a clear and the read that follows.
const PERIOD: Ns = S;

/// A process whose accessed bits are cleared as a whole.
#[derive(Debug)]
pub(super) struct Referenced {
    proc: Proc,
    pid: u32,
    longest_stall_ns: Ns,
}

impl Referenced {
    pub fn new(pid: u32) -> Referenced {
        Referenced { proc: Proc::default(), pid, longest_stall_ns: 0 }
    }
}

impl Peer for Referenced {
    fn next_picture(&mut self, until: Ns) -> Result<Option<Vec<AddrRange>>> {
        let began = RealClock.now();
        if began >= until {
            return Ok(None);
        }
        clear_refs::clear(self.proc.root(), self.pid, Clear::All).context("write clear_refs of the workload")?;
        // The kernel holds the mmap lock for writing from the begin to the end of this call.
        self.longest_stall_ns = self.longest_stall_ns.max(RealClock.now() - began);
        RealClock.sleep_until(began + PERIOD);
        let mut hot = Vec::new();
        for entry in self.proc.smaps(self.pid)? {
            let entry = entry?;
            if is_hot(&entry.usage) {
                hot.push(entry.map.range);
            }
        }
        Ok(Some(hot))
    }

    fn longest_stall_ns(&self) -> Option<Ns> {
        Some(self.longest_stall_ns)
    }
}

fn is_hot(usage: &Usage) -> bool {
    2 * usage.referenced.0 > usage.rss.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_units::Bytes;

    #[test]
    fn a_mapping_is_hot_if_more_than_half_of_it_was_referenced() {
        let usage = |rss, referenced| Usage { rss: Bytes(rss), referenced: Bytes(referenced), ..Usage::default() };
        assert!(is_hot(&usage(8192, 8192)) && is_hot(&usage(12_288, 8192)));
        assert!(!is_hot(&usage(8192, 4096)) && !is_hot(&usage(0, 0)));
    }
}
