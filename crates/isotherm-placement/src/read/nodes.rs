//! Which cache is in front of each node, and which node each frame is on.
//!
//! A memory-side cache serves the memory of its own node only, so frames compete with frames of their node.
//! `isotherm_host::placement_caches` reports the caches of the machine and the doubts about them. A cache in doubt is
//! used, and its doubts are reported. `/proc/zoneinfo` gives the node of a frame. It is read only if there are several
//! nodes: on a machine with one node every frame is on it.
//!
//! An *extended-linear* cache (Flat Memory Mode) is memory too. With N frames of near memory in front of N frames of
//! far memory, frames a and a + N share one place in near memory. That is still one place for each frame number modulo
//! N, so the cache has N colours and each has two frames of the node. If a node has more memory than that, such pairs
//! do not cover all of it, and frames reported as competing may not compete. The report lists that as a doubt.

use super::error::Error;
use crate::direct_mapped::{DirectMapped, Footprint};
use crate::placed::{Node, Placed};
use crate::report::PlacementCache;
use isotherm_host::{HostFacts, PlacementCache as ReportedCache, PlacementCaches, placement_caches};
use isotherm_sys::lru_gen::zones::Zones;
use isotherm_units::Bytes;
use std::path::Path;

/// An assumed cache, one in front of each node.
#[derive(Clone, Copy, Debug)]
pub struct Assumed<'a> {
    /// The cache.
    pub cache: DirectMapped,
    /// Where its size comes from, as the report shows it: the name of an option.
    pub by: &'a str,
}

/// The nodes of a machine with their caches, and other facts of the machine that a report shows.
#[derive(Clone, Debug)]
pub struct Machine {
    nodes: Vec<Node>,
    shuffle_on: Option<bool>,
}

impl Machine {
    /// The nodes that have memory. At least one of them has a cache: the assumed one, or the machine's.
    pub fn new(assumed: Option<Assumed<'_>>, facts: &HostFacts) -> Result<Machine, Error> {
        Ok(Machine { nodes: nodes(assumed, facts)?, shuffle_on: facts.shuffle.on })
    }

    /// Splits frames by their node. `proc` has the zones, which are read only if there are several nodes. A node that
    /// has a zone and was not listed is added, without a cache.
    pub fn place(self, footprint: Footprint, proc: &Path) -> Result<Placed, Error> {
        let placed = match <[Node; 1]>::try_from(self.nodes) {
            Ok([only]) => Placed::on_one(only, footprint),
            Err(several) => {
                let zones = Zones::read(proc).map_err(|source| Error::Zones { file: proc.join("zoneinfo"), source })?;
                // Each frame searches about ten zones, which costs little compared with finding the frame.
                Placed::on_several(several, footprint, |frame| zones.node_of(frame.0))
            }
        };
        Ok(Placed { shuffle_on: self.shuffle_on, ..placed })
    }
}

/// The nodes that have memory, by number. At least one of them has a cache: the assumed one, or the machine's. On a
/// machine that lists no nodes, all memory is on node 0.
fn nodes(assumed: Option<Assumed<'_>>, facts: &HostFacts) -> Result<Vec<Node>, Error> {
    let mut nodes: Vec<Node> = match facts.nodes.as_deref().unwrap_or_default() {
        [] => vec![Node::bare(0, None)],
        // A node can have CPUs and no memory.
        listed => listed.iter().filter(|n| n.memory != Some(Bytes(0))).map(|n| Node::bare(n.id, n.memory)).collect(),
    };
    if let [only] = &mut nodes[..] {
        only.memory = only.memory.or(facts.memory);
    }
    match assumed {
        Some(assumed) => assume(&mut nodes, assumed),
        None => take_the_machines(&mut nodes, &placement_caches(facts).unwrap_or_default())?,
    }
    Ok(nodes)
}

/// Puts an assumed cache in front of each node.
fn assume(nodes: &mut [Node], Assumed { cache, by }: Assumed<'_>) {
    let source = match nodes.len() {
        1 => by.to_owned(),
        several => format!("{by}, one for each of {several} nodes"),
    };
    for node in nodes {
        let reported = PlacementCache {
            size_bytes: cache.size(),
            colours: cache.frames(),
            modelled: true,
            source: source.clone(),
            extended_linear: false,
            doubts: Vec::new(),
        };
        node.cache = Some((cache, reported));
    }
}

fn take_the_machines(nodes: &mut [Node], caches: &PlacementCaches) -> Result<(), Error> {
    for node in nodes.iter_mut() {
        node.cache = of_node(node, &caches.direct)?;
        let unclear: Vec<String> =
            caches.unclear.iter().filter(|(id, _)| *id == node.id).map(|(_, cache)| cache.to_string()).collect();
        node.unclear = (!unclear.is_empty()).then(|| unclear.join("; "));
    }
    if nodes.iter().any(|node| node.cache.is_some()) {
        return Ok(());
    }
    match nodes.iter().find_map(|node| Some((node.id, node.unclear.as_ref()?))) {
        None => Err(Error::NoCache),
        Some((node, unclear)) => Err(Error::UnclearCache { node, unclear: unclear.clone() }),
    }
}

/// The cache of a node. If there are several levels, a cache without doubts comes first, then the level next to memory.
fn of_node(node: &Node, direct: &[ReportedCache]) -> Result<Option<(DirectMapped, PlacementCache)>, Error> {
    let of_node: Vec<&ReportedCache> = direct.iter().filter(|cache| cache.node == node.id).collect();
    let Some(reported) = of_node.iter().find(|cache| cache.is_sure()).or(of_node.first()) else { return Ok(None) };
    let size = Bytes::of_pages(reported.frames);
    let cache = DirectMapped::new(size).map_err(|source| Error::Cache { node: node.id, source })?;
    let mut doubts: Vec<String> = reported.doubts.iter().map(ToString::to_string).collect();
    let halves = size.0.saturating_mul(2);
    if let Some(memory) =
        node.memory.filter(|memory| reported.extended_linear && memory.0 > halves.saturating_add(halves / 8))
    {
        doubts.push(format!(
            "the node has {memory}, more than near and far memory of {size} each: some frames reported as competing do not compete"
        ));
    }
    let mut source = format!("memory-side cache of node {}", node.id);
    if of_node.len() > 1 {
        source += &format!(", level {}, one of {}", reported.level, of_node.len());
    }
    let reported = PlacementCache {
        size_bytes: size,
        colours: cache.frames(),
        modelled: false,
        source,
        extended_linear: reported.extended_linear,
        doubts,
    };
    Ok(Some((cache, reported)))
}
