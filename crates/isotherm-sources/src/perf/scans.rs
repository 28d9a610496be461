//! When NUMA balancing last scanned a process, for the page faults that result from it.
//!
//! NUMA balancing takes the access rights from a process's memory in scans, a second to a minute apart, and slows down
//! by itself if there is nothing to gain. After a scan each page faults once, at its next access. Until the next scan
//! it does not fault again, however hot it is. So silence after the last scan proves nothing, and time counts as
//! observed only up to that scan. Otherwise all memory would seem to cool down whenever the kernel pauses. It follows
//! that no page is reported hotter than scans are frequent. A scan may go through a process and change nothing, since
//! it skips what it considers well placed. So the number of changed pages is checked as well, which the kernel counts
//! only for all processes together.

use isotherm_heat::Ns;
use isotherm_sys::clock;
use isotherm_sys::proc::Proc;
use std::collections::BTreeMap;

const CHECK_PAUSE: Ns = 500_000_000;
/// The checks take no more than this part of the time, however many processes there are.
const CHECK_SHARE: u64 = 500;

/// A process that is scanned.
#[derive(Clone, Copy, Debug)]
struct Scanned {
    /// Scans so far; `None` if they are not reported: then it counts as scanned all the time.
    count: Option<u64>,
    at: Ns,
}

/// The scans of all processes that are sampled.
#[derive(Debug, Default)]
pub(super) struct Scans {
    of: BTreeMap<u32, Scanned>,
    updates: Option<u64>,
    check_at: Ns,
}

impl Scans {
    pub fn open(&mut self, proc: &Proc, pid: u32, now: Ns) {
        self.of.insert(pid, Scanned { count: proc.numa_scans(pid), at: now });
    }

    pub fn close(&mut self, pid: u32) {
        self.of.remove(&pid);
    }

    /// Checks for scans since the last time.
    pub fn update(&mut self, proc: &Proc, now: Ns) {
        if now < self.check_at {
            return;
        }
        let began = clock::thread_cpu_ns();
        let updates = proc.numa_updates();
        let changed = updates.is_none() || updates != std::mem::replace(&mut self.updates, updates);
        if !changed {
            // No scan has changed anything in any process.
            self.check_at = now + CHECK_PAUSE;
            return;
        }
        for (pid, scanned) in &mut self.of {
            // A process that has ended keeps its count.
            let count = proc.numa_scans(*pid);
            if scanned.count.is_none() || count.is_some() && count != scanned.count {
                *scanned = Scanned { count, at: now };
            }
        }
        self.check_at = now + CHECK_PAUSE.max((clock::thread_cpu_ns() - began) * CHECK_SHARE);
    }

    /// The time up to which `pid` was observed; `now`, if nothing is known of its scans.
    pub fn observed_until(&self, pid: u32, now: Ns) -> Ns {
        self.of.get(&pid).filter(|s| s.count.is_some()).map_or(now, |s| s.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const S: Ns = 1_000_000_000;

    #[test]
    fn time_is_listened_to_up_to_the_last_scan() {
        let dir = tempfile::tempdir().unwrap();
        let proc = Proc::at(dir.path());
        let scans = |pid: u32, count: u64| {
            fs::create_dir_all(dir.path().join(pid.to_string())).unwrap();
            fs::write(dir.path().join(format!("{pid}/sched")), format!("mm->numa_scan_seq : {count}\n")).unwrap();
        };
        scans(7, 3);
        let mut s = Scans::default();
        s.open(&proc, 7, S);
        s.open(&proc, 8, S);
        s.update(&proc, 2 * S);
        assert_eq!((s.observed_until(7, 2 * S), s.observed_until(8, 2 * S)), (S, 2 * S), "none, and not known");
        scans(7, 4);
        s.update(&proc, 2 * S + 1);
        assert_eq!(s.observed_until(7, 3 * S), S, "not looked at all the time");
        s.update(&proc, 3 * S);
        let updates = |pages: u64| fs::write(dir.path().join("vmstat"), format!("numa_pte_updates {pages}\n")).unwrap();
        updates(100);
        s.update(&proc, 8 * S);
        scans(7, 5);
        s.update(&proc, 9 * S);
        assert_eq!(s.observed_until(7, 9 * S), 3 * S, "the last scan has changed nothing");
        updates(200);
        scans(7, 6);
        s.update(&proc, 10 * S);
        assert_eq!(s.observed_until(7, 10 * S), 10 * S);
        fs::remove_dir_all(dir.path().join("7")).unwrap();
        s.update(&proc, 11 * S);
        assert_eq!(s.observed_until(7, 11 * S), 10 * S, "it has ended");
        s.close(7);
        assert_eq!(s.observed_until(7, 11 * S), 11 * S);
    }
}
