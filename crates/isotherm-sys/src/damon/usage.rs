//! Who uses DAMON, as far as sysfs and kernel threads show. Read before anything is written, and by `isotherm doctor`.

use crate::files::Tree;
use crate::proc::Proc;
use crate::roots::HostRoots;

/// Who uses the kernel's DAMON. Nothing is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Whether its sysfs files are there.
    pub sysfs: Option<bool>,
    /// `nr_kdamonds`: kdamonds that somebody has set up, running or not.
    pub kdamonds: Option<u64>,
    /// How many of those are on.
    pub running: u64,
    /// Kernel modules that use it and are on: `damon_reclaim`, `damon_lru_sort`, `damon_stat`.
    pub modules: Vec<String>,
    /// Kernel threads named `kdamond`: users that are visible nowhere else. `None` where kernel threads are not
    /// visible.
    pub threads: Option<u64>,
}

impl Usage {
    /// Whether somebody uses it. A kdamond that is set up but off counts: changing its settings would take it over.
    pub fn in_use(&self) -> Option<bool> {
        let used =
            self.kdamonds.is_some_and(|n| n > 0) || !self.modules.is_empty() || self.threads.is_some_and(|n| n > 0);
        match (used, self.sysfs) {
            (true, _) => Some(true),
            // "No users found" is an answer only if kernel threads are visible, or sysfs is.
            (false, Some(false)) => Some(false),
            (false, _) => self.kdamonds.map(|_| false),
        }
    }

    /// Reads it again. Host facts are read once, but this one changes whenever somebody starts DAMON.
    pub fn read_tree(roots: &HostRoots) -> Usage {
        Usage::read(&Proc::at(&roots.proc), &Tree::at(&roots.sys))
    }

    /// Who uses it, as far as known.
    pub fn users(&self) -> String {
        let mut users = Vec::new();
        if !self.modules.is_empty() {
            let names: Vec<String> = self.modules.iter().map(|m| format!("the kernel module {m}")).collect();
            users.push(names.join(" and "));
        }
        if let Some(set_up @ 1..) = self.kdamonds {
            users.push(format!("somebody through sysfs ({set_up} set up, {} running)", self.running));
        }
        match self.threads {
            Some(threads @ 1..) if users.is_empty() => {
                users.push(format!("{threads} kernel threads that show nowhere else"))
            }
            _ => {}
        }
        if users.is_empty() { "no user found".to_owned() } else { users.join(", and ") }
    }

    /// Reads it below these two roots.
    pub fn read(proc: &Proc, sys: &Tree<'_>) -> Usage {
        const DIR: &str = "kernel/mm/damon/admin/kdamonds";
        const MODULES: [&str; 3] = ["damon_reclaim", "damon_lru_sort", "damon_stat"];
        let on = |id: &u32| sys.text(&format!("{DIR}/{id}/state")).as_deref() == Some("on");
        let enabled = |module: &&str| sys.yes(&format!("module/{module}/parameters/enabled")) == Some(true);
        Usage {
            sysfs: sys.exists("kernel/mm/damon/admin"),
            kdamonds: sys.number(&format!("{DIR}/nr_kdamonds")),
            running: sys.numbered(DIR, "").unwrap_or_default().iter().filter(|id| on(id)).count() as u64,
            modules: MODULES.iter().filter(|module| enabled(module)).map(|&module| module.to_owned()).collect(),
            threads: kdamond_threads(proc),
        }
    }
}

/// Counts the kernel threads of DAMON; `None` in a pid namespace, where no kernel threads are visible.
fn kdamond_threads(proc: &Proc) -> Option<u64> {
    let stats = proc.pids().ok()?.into_iter().filter_map(|pid| proc.stat(pid).ok());
    let kernel: Vec<_> = stats.filter(|stat| stat.is_kernel_thread()).collect();
    let count = kernel.iter().filter(|stat| stat.comm.starts_with("kdamond")).count() as u64;
    (!kernel.is_empty()).then_some(count)
}
