//! Which processes are watched: named ones with their children, those of a cgroup, or all, as they come and go.
//!
//! A process id is reused once its process has ended. So a named process and its children are also identified by their
//! start time. If another process gets the id, neither it nor its children are watched.

use isotherm_sys::proc::{self, Cgroup, Identity, Proc};
use std::collections::{BTreeMap, BTreeSet};

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
    /// Targets of a source that are no processes of this machine: those of a recording or a model, or physical memory.
    OfSource(Vec<u32>),
    /// The processes of a cgroup and its descendants, by its path as the user typed it.
    Cgroup(String),
    /// Every process with memory of its own, except us.
    All,
}

/// Lists the processes of a [`Selection`] repeatedly.
#[derive(Debug)]
pub struct Follower {
    proc: Proc,
    of: Of,
    myself: u32,
}

#[derive(Debug)]
enum Of {
    Pids { named: BTreeSet<u32>, known: BTreeMap<u32, Known>, children: bool },
    Source(BTreeSet<u32>),
    Cgroup(Cgroup),
    All,
}

/// Which process a pid means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// The process that started then.
    Started(u64),
    /// There was no such process when it was named. This is reported when it is attached.
    Absent,
}

impl Follower {
    /// Resolves a selection. A missing cgroup is an error; a missing pid is reported when it is attached.
    pub fn new(selection: &Selection, proc: Proc) -> proc::Result<Follower> {
        let of = match selection {
            Selection::Pids { pids, children } => {
                let started = |pid| proc.identity(pid).map_or(Known::Absent, |id| Known::Started(id.start_ticks));
                let known: BTreeMap<u32, Known> = pids.iter().map(|pid| (*pid, started(*pid))).collect();
                Of::Pids { named: known.keys().copied().collect(), known, children: *children }
            }
            Selection::OfSource(pids) => Of::Source(pids.iter().copied().collect()),
            Selection::Cgroup(path) => Of::Cgroup(proc.cgroups()?.find(path)?),
            Selection::All => Of::All,
        };
        Ok(Follower { proc, of, myself: std::process::id() })
    }

    /// Whether the processes were named one by one, so that one that cannot be watched is an error and is not skipped.
    pub fn is_named(&self) -> bool {
        matches!(self.of, Of::Pids { .. } | Of::Source(_))
    }

    /// Whether the user named this very process.
    pub fn was_named(&self, pid: u32) -> bool {
        match &self.of {
            Of::Pids { named, .. } | Of::Source(named) => named.contains(&pid),
            Of::Cgroup(_) | Of::All => false,
        }
    }

    /// Whether the process that was attached as `pid` and started at `start_ticks` is the one that `pid` means here.
    pub fn means(&self, pid: u32, start_ticks: u64) -> bool {
        match &self.of {
            Of::Pids { known, .. } => known.get(&pid) == Some(&Known::Started(start_ticks)),
            Of::Source(_) | Of::Cgroup(_) | Of::All => true,
        }
    }

    /// Start time of the process that `pid` means, if it is known before the process is attached.
    pub fn meant(&self, pid: u32) -> Option<u64> {
        match &self.of {
            Of::Pids { known, .. } => match known.get(&pid)? {
                Known::Started(start_ticks) => Some(*start_ticks),
                Known::Absent => None,
            },
            Of::Source(_) | Of::Cgroup(_) | Of::All => None,
        }
    }

    /// Whether the targets are processes of this machine.
    pub fn is_of_machine(&self) -> bool {
        !matches!(self.of, Of::Source(_))
    }

    /// The current processes. A named one stays listed after its end, until [`Follower::ended`].
    pub fn current(&mut self) -> proc::Result<Vec<u32>> {
        let pids = match &mut self.of {
            Of::Pids { named, known, children: false } => {
                known.retain(|pid, who| named.contains(pid) && !is_another(*who, self.proc.identity(*pid).ok()));
                known.keys().copied().collect()
            }
            Of::Pids { named, known, children: true } => {
                let ours: Vec<u32> = known.keys().copied().collect();
                follow(known, named, &self.proc.family_of(&ours)?);
                known.keys().copied().collect()
            }
            Of::Source(pids) => pids.iter().copied().collect(),
            Of::Cgroup(cgroup) => match cgroup.processes() {
                Err(e) if e.is_gone() => Vec::new(),
                other => other?,
            },
            Of::All => self.proc.pids()?,
        };
        let myself = if self.is_of_machine() { Some(self.myself) } else { None };
        Ok(pids.into_iter().filter(|pid| Some(*pid) != myself).collect())
    }

    /// Forgets a process that has ended.
    pub fn ended(&mut self, pid: u32) {
        match &mut self.of {
            Of::Pids { known, .. } => drop(known.remove(&pid)),
            Of::Source(pids) => drop(pids.remove(&pid)),
            Of::Cgroup(_) | Of::All => {}
        }
    }
}

/// Whether a process that was known is now another one.
fn is_another(known: Known, now: Option<Identity>) -> bool {
    matches!((known, now), (Known::Started(then), Some(id)) if id.start_ticks != then)
}

/// Updates from the current processes: forgets ids that now mean others, and children that have ended; adds new
/// children. A known child stays when its parent ends and it is handed to init.
fn follow(known: &mut BTreeMap<u32, Known>, named: &BTreeSet<u32>, family: &proc::Family) {
    known.retain(|pid, who| match family.identity(*pid) {
        Some(id) => !is_another(*who, Some(id)),
        None => named.contains(pid),
    });
    let is_there = |(pid, who): (&u32, &Known)| match (who, family.identity(*pid)) {
        (Known::Started(_), Some(_)) => Some(*pid),
        _ => None,
    };
    let roots: Vec<u32> = known.iter().filter_map(is_there).collect();
    for pid in family.with_descendants(&roots) {
        if let Some(id) = family.identity(pid) {
            known.entry(pid).or_insert(Known::Started(id.start_ticks));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

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
        assert_eq!(
            follower.current().unwrap(),
            found,
            "an orphan stays ours; the end of a process that was named is for the monitor to report"
        );
        let orphan = found.into_iter().find(|p| *p != shell.id()).unwrap();
        let _ = std::process::Command::new("kill").arg(orphan.to_string()).status();
        follower.ended(orphan);
        follower.ended(shell.id());
        assert!(!follower.current().unwrap().contains(&orphan));
    }

    #[test]
    fn all_leaves_us_out() {
        let mut follower = Follower::new(&Selection::All, Proc::default()).unwrap();
        assert!(!follower.current().unwrap().contains(&std::process::id()));
    }

    /// Makes a process in a made-up `/proc`, or puts another in its place.
    fn process(root: &Path, pid: u32, parent: u32, start_ticks: u64) {
        // A kernel that does not list children.
        fs::create_dir_all(root.join(format!("{pid}/task/{pid}"))).unwrap();
        let zeros = "0 ".repeat(40);
        let stat = format!("{pid} (x) S {parent} {}{start_ticks} {zeros}\n", "0 ".repeat(17));
        fs::write(root.join(pid.to_string()).join("stat"), stat).unwrap();
    }

    fn following(root: &Path, children: bool) -> Follower {
        Follower::new(&Selection::Pids { pids: vec![100], children }, Proc::at(root)).unwrap()
    }

    #[test]
    fn a_stranger_with_the_pid_of_an_ended_child_is_not_ours_nor_are_its_children() {
        let dir = tempfile::tempdir().unwrap();
        process(dir.path(), 100, 1, 10);
        process(dir.path(), 101, 100, 11);
        let mut follower = following(dir.path(), true);
        assert_eq!(follower.current().unwrap(), [100, 101]);
        // 101 ends without ever being attached; another process of init's gets its number and has a child.
        process(dir.path(), 101, 1, 50);
        process(dir.path(), 102, 101, 51);
        assert_eq!(follower.current().unwrap(), [100]);
        assert!(!follower.means(101, 50));
        // A real child with that number is ours.
        fs::remove_dir_all(dir.path().join("102")).unwrap();
        process(dir.path(), 101, 100, 60);
        assert_eq!(follower.current().unwrap(), [100, 101]);
        assert!(follower.means(101, 60) && !follower.means(101, 50));
    }

    #[test]
    fn a_stranger_with_the_pid_that_was_named_is_not_meant() {
        for children in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            process(dir.path(), 100, 1, 10);
            let mut follower = following(dir.path(), children);
            assert_eq!(follower.current().unwrap(), [100]);
            process(dir.path(), 100, 1, 20);
            process(dir.path(), 105, 100, 21);
            assert_eq!(follower.current().unwrap(), [] as [u32; 0], "children: {children}");
        }
    }

    #[test]
    fn targets_of_a_source_are_no_processes_of_this_machine() {
        let myself = std::process::id();
        let mut follower = Follower::new(&Selection::OfSource(vec![1, myself]), Proc::default()).unwrap();
        assert_eq!(follower.current().unwrap().len(), 2);
        assert!(follower.means(1, 0) && follower.was_named(1) && !follower.is_of_machine());
    }
}
