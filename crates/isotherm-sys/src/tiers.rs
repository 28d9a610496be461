//! Memory tiers: which NUMA nodes are fast, which are slow, and where a page of one would go.
//!
//! The kernel sorts nodes into tiers by what the firmware says of their latency (`/sys/devices/virtual/memory_tiering`, Linux 6.1). Where
//! it does not, or puts all of them into one, nodes with CPUs are taken for fast and nodes without for slow: memory that is attached
//! otherwise has no CPUs. Within a tier, the nearest node is taken.

use crate::cpus::list_numbers;
use crate::files::Tree;
use crate::proc::meminfo;
use isotherm_units::Bytes;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The tiers of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tiers {
    sys: PathBuf,
    /// Nodes with memory, the fastest tier first.
    tiers: Vec<Vec<u32>>,
    /// How far each node is from the others, by their numbers.
    distances: BTreeMap<u32, Vec<u32>>,
}

impl Tiers {
    /// Reads them below `sys`. Nodes that cannot be read are left out.
    pub fn read(sys: &Path) -> Tiers {
        let tree = Tree::at(sys);
        let nodes = with_memory(&tree);
        let by_kernel = kernel_tiers(&tree, &nodes);
        let tiers = if by_kernel.len() > 1 { by_kernel } else { by_cpus(&tree, &nodes) };
        let order = tree.numbered("devices/system/node", "node").unwrap_or_default();
        let of = |node: u32| Some((node, distances_of(&tree, node, &order)?));
        Tiers { sys: sys.to_owned(), tiers, distances: nodes.into_iter().filter_map(of).collect() }
    }

    /// Nodes by tier, the fastest first.
    pub fn nodes(&self) -> &[Vec<u32>] {
        &self.tiers
    }

    /// Whether there is a slower tier than the first.
    pub fn are_several(&self) -> bool {
        self.tiers.len() > 1
    }

    /// Whether a node is in the fastest tier.
    pub fn is_fast(&self, node: u32) -> bool {
        self.tiers.first().is_some_and(|tier| tier.contains(&node))
    }

    /// Where pages of a node may go that are not in use: the nodes of the next tier, the nearest first.
    pub fn below(&self, node: u32) -> Vec<u32> {
        let at = self.tiers.iter().position(|tier| tier.contains(&node));
        self.nearest(node, at.and_then(|at| self.tiers.get(at + 1)))
    }

    /// Where pages of a node may go that are in use: the nodes of the fastest tier, the nearest first. None if they are there.
    pub fn fastest_near(&self, node: u32) -> Vec<u32> {
        self.nearest(node, self.tiers.first().filter(|_| !self.is_fast(node)))
    }

    fn nearest(&self, node: u32, nodes: Option<&Vec<u32>>) -> Vec<u32> {
        let distances = self.distances.get(&node);
        let far = |to: &u32| distances.and_then(|d| d.get(usize::try_from(*to).ok()?)).copied().unwrap_or(u32::MAX);
        let mut sorted = nodes.cloned().unwrap_or_default();
        sorted.sort_by_key(|to| (far(to), *to));
        sorted
    }

    /// Free and all memory of a node, as of now.
    pub fn free_of(&self, node: u32) -> Option<(Bytes, Bytes)> {
        let text = Tree::at(&self.sys).text(&format!("devices/system/node/node{node}/meminfo"))?;
        Some((meminfo(&text, "MemFree")?, meminfo(&text, "MemTotal")?))
    }

    /// Free and all memory of the fastest tier, as of now.
    pub fn free_of_fast(&self) -> Option<(Bytes, Bytes)> {
        let nodes = self.tiers.first()?;
        let all: Option<Vec<(Bytes, Bytes)>> = nodes.iter().map(|node| self.free_of(*node)).collect();
        let sum = |of: fn(&(Bytes, Bytes)) -> u64| all.as_ref().map(|all| Bytes(all.iter().map(of).sum()));
        sum(|(free, _)| free.0).zip(sum(|(_, total)| total.0))
    }
}

fn with_memory(tree: &Tree<'_>) -> Vec<u32> {
    let listed = tree.text("devices/system/node/has_memory").and_then(|list| list_numbers(&list));
    listed.or_else(|| tree.numbered("devices/system/node", "node")).unwrap_or_default()
}

fn kernel_tiers(tree: &Tree<'_>, nodes: &[u32]) -> Vec<Vec<u32>> {
    const DIR: &str = "devices/virtual/memory_tiering";
    let numbers = tree.numbered(DIR, "memory_tier").unwrap_or_default();
    // The lower the number, the less the latency.
    let of = |no: u32| tree.text(&format!("{DIR}/memory_tier{no}/nodelist")).and_then(|list| list_numbers(&list));
    let tiers = numbers.into_iter().filter_map(of);
    let known = tiers.map(|tier| tier.into_iter().filter(|node| nodes.contains(node)).collect::<Vec<_>>());
    known.filter(|tier| !tier.is_empty()).collect()
}

fn by_cpus(tree: &Tree<'_>, nodes: &[u32]) -> Vec<Vec<u32>> {
    let has_cpu =
        |node: &u32| tree.text(&format!("devices/system/node/node{node}/cpulist")).is_some_and(|l| !l.is_empty());
    let (fast, slow): (Vec<u32>, Vec<u32>) = nodes.iter().partition(|node| has_cpu(node));
    [fast, slow].into_iter().filter(|tier| !tier.is_empty()).collect()
}

/// The distances of a node, by the number of the other node. The file has one number for each node that is there.
fn distances_of(tree: &Tree<'_>, node: u32, order: &[u32]) -> Option<Vec<u32>> {
    let text = tree.text(&format!("devices/system/node/node{node}/distance"))?;
    let mut all = vec![u32::MAX; usize::try_from(order.last()? + 1).ok()?];
    for (to, distance) in order.iter().zip(text.split_whitespace()) {
        *all.get_mut(usize::try_from(*to).ok()?)? = distance.parse().ok()?;
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join("devices").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    const NODES: [(&str, &str); 8] = [
        ("system/node/node0/cpulist", "0-3\n"),
        ("system/node/node0/distance", "10 20 17 28\n"),
        ("system/node/node1/cpulist", "4-7\n"),
        ("system/node/node1/distance", "20 10 28 17\n"),
        ("system/node/node2/cpulist", "\n"),
        ("system/node/node2/distance", "17 28 10 28\n"),
        ("system/node/node5/cpulist", "\n"),
        ("system/node/node5/distance", "28 17 28 10\n"),
    ];

    #[test]
    fn a_page_goes_to_the_nearest_node_of_the_next_tier_and_back_to_the_fastest() {
        let dir = machine(&NODES);
        let tiers = Tiers::read(dir.path());
        assert_eq!(tiers.nodes(), [vec![0, 1], vec![2, 5]], "by CPUs");
        assert_eq!([0, 1, 2, 9].map(|node| tiers.below(node)), [vec![2, 5], vec![5, 2], vec![], vec![]]);
        assert_eq!([5, 2, 0].map(|node| tiers.fastest_near(node)), [vec![1, 0], vec![0, 1], vec![]]);
        assert!(tiers.are_several() && tiers.is_fast(1) && !tiers.is_fast(2));
    }

    #[test]
    fn the_kernels_tiers_go_before_cpus() {
        let tiering = [
            ("virtual/memory_tiering/memory_tier22/nodelist", "5\n"),
            ("virtual/memory_tiering/memory_tier4/nodelist", "0-1\n"),
            ("virtual/memory_tiering/memory_tier30/nodelist", "2\n"),
            ("virtual/memory_tiering/memory_tier31/nodelist", "\n"),
        ];
        let dir = machine(&[&NODES[..], &tiering[..]].concat());
        let tiers = Tiers::read(dir.path());
        assert_eq!(tiers.nodes(), [vec![0, 1], vec![5], vec![2]]);
        assert_eq!((tiers.below(0), tiers.below(5), tiers.fastest_near(2)), (vec![5], vec![2], vec![0, 1]));
    }

    #[test]
    fn what_is_free_on_fast_nodes_is_added_up_and_unknown_if_one_is() {
        let meminfo = |node, free| format!("Node {node} MemTotal: 1000 kB\nNode {node} MemFree: {free} kB\n");
        let (first, second) = (meminfo(0, 100), meminfo(1, 300));
        let free = [("system/node/node0/meminfo", first.as_str()), ("system/node/node1/meminfo", second.as_str())];
        let dir = machine(&[&NODES[..], &free[..]].concat());
        let kib = |kib: u64| Bytes(kib << 10);
        assert_eq!(Tiers::read(dir.path()).free_of_fast(), Some((kib(400), kib(2000))));
        let dir = machine(&[&NODES[..], &free[..1]].concat());
        assert_eq!(Tiers::read(dir.path()).free_of_fast(), None);
    }

    #[test]
    fn a_machine_with_one_node_or_none_has_nothing_below() {
        let dir = machine(&NODES[..2]);
        let tiers = Tiers::read(dir.path());
        assert!(!tiers.are_several() && tiers.below(0).is_empty() && tiers.is_fast(0));
        assert!(!Tiers::read(Path::new("/nonexistent")).are_several());
    }
}
