//! Parents and children of all processes, read at once.

use super::stat::Identity;
use std::collections::HashMap;

/// Parents and children. Built from `stat` and not from `/proc/PID/task/TID/children`, which many kernels lack.
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
