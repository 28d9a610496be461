//! Facts of the machine that matter for the periodic drain of per-CPU lists: CPUs, settings, locks.

use super::spinlocks::seen_waiters;
use isotherm_sys::cpus::list_numbers;
use isotherm_sys::files::Tree;
use isotherm_vmstat::SeenWaiters;
use std::path::Path;

/// CPUs and settings. Nothing is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// CPUs online, by number; empty if the kernel does not report them.
    pub online: Vec<u32>,
    /// Those of them that vmstat_shepherd skips: isolated from the scheduler or without ticks.
    pub isolated: Vec<u32>,
    /// `vm.stat_interval`, seconds between two runs on a CPU; `None` if it cannot be read.
    pub interval_s: Option<u32>,
    /// Which waiters for a spinlock are reported. Read from the CPU, whatever the roots are.
    pub seen: SeenWaiters,
}

impl Machine {
    /// Reads six small files below `proc` and `sys`, which are `/proc` and `/sys` except in tests.
    pub fn read(proc: &Path, sys: &Path) -> Machine {
        let (proc, sys) = (Tree::at(proc), Tree::at(sys));
        let cpus = |name: &str| {
            let list: Option<String> = sys.number(&format!("devices/system/cpu/{name}"));
            list.and_then(|list| list_numbers(&list)).unwrap_or_default()
        };
        let online = cpus("online");
        // `nohz_full` reads "(null)" if there are none.
        let mut isolated = [cpus("isolated"), cpus("nohz_full")].concat();
        isolated.sort_unstable();
        isolated.dedup();
        isolated.retain(|cpu| online.contains(cpu));
        let command_line: String = proc.number("cmdline").unwrap_or_default();
        Machine {
            seen: seen_waiters(cpus("possible").len(), &command_line),
            interval_s: proc.number("sys/vm/stat_interval"),
            online,
            isolated,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_what_is_missing_is_unknown() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("sys/devices/system/cpu/online", "0-3,6\n");
        write("sys/devices/system/cpu/isolated", "3,5\n");
        write("sys/devices/system/cpu/nohz_full", "(null)\n");
        write("proc/sys/vm/stat_interval", "10\n");
        let machine = Machine::read(&dir.path().join("proc"), &dir.path().join("sys"));
        assert_eq!((machine.online, machine.isolated), (vec![0, 1, 2, 3, 6], vec![3]));
        assert_eq!(machine.interval_s, Some(10));
        let machine = Machine::read(&dir.path().join("none"), &dir.path().join("none"));
        assert_eq!((machine.online.len(), machine.interval_s), (0, None));
    }
}
