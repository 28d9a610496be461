//! Parents and children: of all processes from `stat`, or of some from `/proc/PID/task/TID/children`, which many kernels lack.

use super::stat::Identity;
use super::{Proc, Result, parse_pids};
use std::collections::HashMap;

/// With fewer files to read than this, it is not looked up how many processes there are.
const MANY_FILES: u64 = 64;

impl Proc {
    /// Every process with its parent, read once. Processes that end meanwhile are skipped.
    pub fn family(&self) -> Result<Family> {
        self.family_among(&self.pids()?)
    }

    fn family_among(&self, pids: &[u32]) -> Result<Family> {
        let mut family = Family::default();
        for pid in pids {
            match self.stat(*pid) {
                Ok(stat) => family.add(stat.identity(), stat.ppid),
                Err(e) if e.is_gone() => {}
                Err(e) => return Err(e),
            }
        }
        Ok(family)
    }

    /// `roots` that exist, and all that descend from them, each with its parent. It may hold others too: where the kernel does not list
    /// children (`CONFIG_PROC_CHILDREN`), or it takes more files than there are processes, all processes are read.
    ///
    /// Otherwise it costs a small file for each thread, and one for each process, however many others there are. One of ours that loses its
    /// parent during the read may be missed, so what was found before should be among `roots`.
    pub fn family_of(&self, roots: &[u32]) -> Result<Family> {
        let mut family = Family::default();
        let mut todo: Vec<(u32, Option<u32>)> = roots.iter().map(|pid| (*pid, None)).collect();
        let (mut files, mut all) = (2 * roots.len() as u64, None);
        while let Some((pid, parent)) = todo.pop() {
            if family.identity(pid).is_some() {
                continue;
            }
            let stat = match self.stat(pid) {
                // Another process may have got the pid of a child since the child was listed.
                Ok(stat) if parent.is_none_or(|parent| parent == stat.ppid) => stat,
                Err(e) if !e.is_gone() => return Err(e),
                _ => continue,
            };
            files += stat.num_threads + if parent.is_some() { 2 } else { 0 };
            if files > MANY_FILES {
                let all = match &all {
                    Some(all) => all,
                    None => all.insert(self.pids()?),
                };
                if files > all.len() as u64 {
                    return self.family_among(all);
                }
            }
            family.add(stat.identity(), stat.ppid);
            match self.children_of_threads(pid) {
                Ok(Some(children)) => todo.extend(children.into_iter().map(|child| (child, Some(pid)))),
                Ok(None) => return self.family(),
                Err(e) if e.is_gone() => {}
                Err(e) => return Err(e),
            }
        }
        Ok(family)
    }

    /// The direct children of a process, in order of pid, zombies included.
    ///
    /// Reads `/proc/PID/task/TID/children` once per thread, since a child belongs to the thread that created it. On
    /// kernels without that file (`CONFIG_PROC_CHILDREN`) it reads all processes instead. A child that is created or
    /// ends meanwhile may be missed, and one that ends may hide another: read again before relying on the result.
    pub fn children(&self, pid: u32) -> Result<Vec<u32>> {
        match self.children_of_threads(pid)? {
            Some(children) => Ok(children),
            None => Ok(self.family()?.children(pid).to_vec()),
        }
    }

    /// The same; `None` if the kernel does not list them.
    fn children_of_threads(&self, pid: u32) -> Result<Option<Vec<u32>>> {
        let mut children = Vec::new();
        for thread in self.threads(pid)? {
            let path = self.path(pid, &format!("task/{thread}/children"));
            match self.read(&path) {
                Ok(text) => parse_pids(&text, &mut children).map_err(|e| e.at(&path, 1))?,
                // If the main thread has no such file, the kernel lacks it or the process has ended.
                Err(e) if e.is_gone() && thread == pid => return self.stat(pid).map(|_| None),
                // The thread has ended since. Its children belong to another thread now.
                Err(e) if e.is_gone() => {}
                Err(e) => return Err(e),
            }
        }
        children.sort_unstable();
        // A child that changes threads during the read appears twice.
        children.dedup();
        Ok(Some(children))
    }
}

/// Parents and children.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Family {
    children: HashMap<u32, Vec<u32>>,
    started: HashMap<u32, u64>,
}

impl Family {
    pub(super) fn add(&mut self, id: Identity, parent: u32) {
        self.children.entry(parent).or_default().push(id.pid);
        self.started.insert(id.pid, id.start_ticks);
    }

    /// The children of a process, in order of pid.
    pub fn children(&self, pid: u32) -> &[u32] {
        self.children.get(&pid).map_or(&[], Vec::as_slice)
    }

    /// The process with this id at the time of the read; `None` if there was none.
    pub fn identity(&self, pid: u32) -> Option<Identity> {
        self.started.get(&pid).map(|start_ticks| Identity { pid, start_ticks: *start_ticks })
    }

    /// `roots` and all that descend from them, sorted, each once.
    pub fn with_descendants(&self, roots: &[u32]) -> Vec<u32> {
        let mut found = std::collections::BTreeSet::new();
        let mut todo = roots.to_vec();
        while let Some(pid) = todo.pop() {
            // A pid can be reused during the read, which can even create a cycle: visit each pid once.
            if found.insert(pid) {
                todo.extend(self.children(pid));
            }
        }
        found.into_iter().collect()
    }
}
