//! Which processes are watched: named ones with their children, a cgroup's, or all; as they come and go.

use isotherm_sys::proc::{self, Cgroup, Proc};
use std::collections::BTreeSet;

/// What the user asked to watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// These processes and, if `children`, those that descend from them.
    Pids {
        /// Process ids.
        pids: Vec<u32>,
        /// Whether to follow children.
        children: bool,
    },
    /// The processes of a cgroup and of those below it, by path as a user would type it.
    Cgroup(String),
    /// Every process with memory of its own, but us.
    All,
}

/// Lists the processes of a [`Selection`], again and again.
#[derive(Debug)]
pub struct Follower {
    proc: Proc,
    of: Of,
    myself: u32,
}

#[derive(Debug)]
enum Of {
    Pids { named: BTreeSet<u32>, known: BTreeSet<u32>, children: bool },
    Cgroup(Cgroup),
    All,
}

impl Follower {
    /// Resolves a selection. A cgroup that is not there is an error; a pid that is not shows when it is attached.
    pub fn new(selection: &Selection, proc: Proc) -> proc::Result<Follower> {
        let of = match selection {
            Selection::Pids { pids, children } => {
                let named: BTreeSet<u32> = pids.iter().copied().collect();
                Of::Pids { known: named.clone(), named, children: *children }
            }
            Selection::Cgroup(path) => Of::Cgroup(proc.cgroups()?.find(path)?),
            Selection::All => Of::All,
        };
        Ok(Follower { proc, of, myself: std::process::id() })
    }

    /// Whether the processes were named one by one, so that one that cannot be watched is an error and not just left out.
    pub fn is_named(&self) -> bool {
        matches!(self.of, Of::Pids { .. })
    }

    /// Whether the user named this very process.
    pub fn was_named(&self, pid: u32) -> bool {
        matches!(&self.of, Of::Pids { named, .. } if named.contains(&pid))
    }

    /// The processes there are now.
    pub fn current(&mut self) -> proc::Result<Vec<u32>> {
        let pids = match &mut self.of {
            Of::Pids { known, children: false, .. } => known.iter().copied().collect(),
            Of::Pids { known, children: true, .. } => {
                let roots: Vec<u32> = known.iter().copied().collect();
                // Once found, a child stays ours when its parent ends and it is handed to init.
                known.extend(self.proc.family()?.with_descendants(&roots));
                known.iter().copied().collect()
            }
            Of::Cgroup(cgroup) => match cgroup.processes() {
                Err(e) if e.is_gone() => Vec::new(),
                other => other?,
            },
            Of::All => self.proc.pids()?,
        };
        Ok(pids.into_iter().filter(|pid| *pid != self.myself).collect())
    }

    /// Forgets a process that has ended.
    pub fn ended(&mut self, pid: u32) {
        if let Of::Pids { known, .. } = &mut self.of {
            known.remove(&pid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_found_and_kept() {
        let mut shell = std::process::Command::new("sh").args(["-c", "sleep 60 & wait"]).spawn().unwrap();
        let selection = Selection::Pids { pids: vec![shell.id()], children: true };
        let mut follower = Follower::new(&selection, Proc::default()).unwrap();
        let mut found = Vec::new();
        for _ in 0..200 {
            found = follower.current().unwrap();
            if found.len() == 2 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert_eq!(found.len(), 2, "the shell and its sleep");
        shell.kill().unwrap();
        shell.wait().unwrap();
        assert_eq!(follower.current().unwrap().len(), 2, "an orphan stays ours");
        let orphan = found.into_iter().find(|p| *p != shell.id()).unwrap();
        let _ = std::process::Command::new("kill").arg(orphan.to_string()).status();
        follower.ended(orphan);
        assert!(!follower.current().unwrap().contains(&orphan));
    }

    #[test]
    fn all_leaves_us_out() {
        let mut follower = Follower::new(&Selection::All, Proc::default()).unwrap();
        assert!(!follower.current().unwrap().contains(&std::process::id()));
    }
}
