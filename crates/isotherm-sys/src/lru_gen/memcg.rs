//! What the kernel counts: pages by memory cgroup, NUMA node and generation.

/// The pages of one memory cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memcg {
    /// The kernel's id for it. The id is reused once the cgroup is removed.
    pub id: u64,
    /// Its path inside the hierarchy. `/` is the root; empty where the kernel has no memory cgroups.
    pub path: String,
    /// Its pages by NUMA node.
    pub nodes: Vec<Node>,
}

/// The pages on one NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Number of the node.
    pub id: u32,
    /// The oldest first, with numbers one apart.
    pub generations: Vec<Generation>,
}

/// One generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation {
    /// Its number.
    pub number: u64,
    /// Time since it was created.
    pub age_ms: u64,
    /// Its pages of anonymous and shared memory, as far as they are counted yet.
    pub anon_pages: u64,
    /// Its pages of files.
    pub file_pages: u64,
}

impl Node {
    /// Numbers of the oldest and the youngest generation.
    pub fn span(&self) -> Option<(u64, u64)> {
        Some((self.generations.first()?.number, self.generations.last()?.number))
    }
}
