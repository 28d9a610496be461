//! Which cache each node's frames are held against, and on which node a frame lies.
//!
//! A memory-side cache serves the memory of its own node only, so frames compete with frames of their node. What the machine says of its
//! caches is `isotherm_host::placement_caches`, which knows what is in doubt; a cache in doubt is used, and its doubts are told.
//! Which node a frame lies on is `/proc/zoneinfo`'s to say, and is asked only where there are several: on a machine with one node every
//! frame is on it.
//!
//! An *extended-linear* cache (Flat Memory Mode) is memory too. With N frames of near memory in front of as many of far memory, frames a
//! and a + N take turns in the near one: still one place for each frame number modulo N, so its colours are N and each has two frames of
//! the node. Where a node has more memory than that, such pairs do not make up all of it, and frames that are told as competing may not:
//! that is told as a doubt.

use super::error::Error;
use crate::direct_mapped::{DirectMapped, Footprint};
use crate::placed::{Node, Placed};
use crate::report::PlacementCache;
use isotherm_host::{HostFacts, PlacementCache as ToldCache, PlacementCaches, placement_caches};
use isotherm_sys::lru_gen::zones::Zones;
use isotherm_units::Bytes;
use std::path::Path;

/// A cache that is only assumed, one in front of each node.
#[derive(Clone, Copy, Debug)]
pub struct Assumed<'a> {
    /// The cache.
    pub cache: DirectMapped,
    /// What its size comes from, as the report shows it: the name of an option.
    pub by: &'a str,
}

/// The nodes of a machine with their caches, and what else of it a report shows.
#[derive(Clone, Debug)]
pub struct Machine {
    nodes: Vec<Node>,
    shuffle_on: Option<bool>,
}

impl Machine {
    /// The nodes that have memory; at least one of them has a cache: the one assumed, or the machine's.
    pub fn new(assumed: Option<Assumed<'_>>, facts: &HostFacts) -> Result<Machine, Error> {
        Ok(Machine { nodes: nodes(assumed, facts)?, shuffle_on: facts.shuffle.on })
    }

    /// Splits frames by the node that they lie on. `proc` has the zones, which are read only if there are several nodes; a node that has
    /// a zone and was not listed is added, without a cache.
    pub fn place(self, footprint: Footprint, proc: &Path) -> Result<Placed, Error> {
        let placed = match <[Node; 1]>::try_from(self.nodes) {
            Ok([only]) => Placed::on_one(only, footprint),
            Err(several) => {
                let zones = Zones::read(proc).map_err(|source| Error::Zones { file: proc.join("zoneinfo"), source })?;
                // Some ten zones are gone through for each frame, which is little next to finding it.
                Placed::on_several(several, footprint, |frame| zones.node_of(frame.0))
            }
        };
        Ok(Placed { shuffle_on: self.shuffle_on, ..placed })
    }
}

/// The nodes that have memory, by number; at least one of them has a cache: as asked for, or the machine's. On a machine that lists no
/// nodes all memory is node 0.
fn nodes(assumed: Option<Assumed<'_>>, facts: &HostFacts) -> Result<Vec<Node>, Error> {
    let mut nodes: Vec<Node> = match facts.nodes.as_deref().unwrap_or_default() {
        [] => vec![Node::bare(0, None)],
        // Processors alone make a node too.
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

/// One in front of each.
fn assume(nodes: &mut [Node], Assumed { cache, by }: Assumed<'_>) {
    let source = match nodes.len() {
        1 => by.to_owned(),
        several => format!("{by}, one for each of {several} nodes"),
    };
    for node in nodes {
        let told = PlacementCache {
            size_bytes: cache.size(),
            colours: cache.frames(),
            modelled: true,
            source: source.clone(),
            extended_linear: false,
            doubts: Vec::new(),
        };
        node.cache = Some((cache, told));
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

/// The cache of a node: of several levels the one next to memory, a sure one first.
fn of_node(node: &Node, direct: &[ToldCache]) -> Result<Option<(DirectMapped, PlacementCache)>, Error> {
    let of_node: Vec<&ToldCache> = direct.iter().filter(|cache| cache.node == node.id).collect();
    let Some(told) = of_node.iter().find(|cache| cache.is_sure()).or(of_node.first()) else { return Ok(None) };
    let size = Bytes::of_pages(told.frames);
    let cache = DirectMapped::new(size).map_err(|source| Error::Cache { node: node.id, source })?;
    let mut doubts: Vec<String> = told.doubts.iter().map(ToString::to_string).collect();
    let halves = size.0.saturating_mul(2);
    if let Some(memory) =
        node.memory.filter(|memory| told.extended_linear && memory.0 > halves.saturating_add(halves / 8))
    {
        doubts.push(format!(
            "the node has {memory}, more than near and far memory of {size} each: not all frames that are told as competing do"
        ));
    }
    let mut source = format!("memory-side cache of node {}", node.id);
    if of_node.len() > 1 {
        source += &format!(", level {}, one of {}", told.level, of_node.len());
    }
    let told = PlacementCache {
        size_bytes: size,
        colours: cache.frames(),
        modelled: false,
        source,
        extended_linear: told.extended_linear,
        doubts,
    };
    Ok(Some((cache, told)))
}
