//! Which cache each node's frames are held against, and on which node a frame lies.
//!
//! A memory-side cache serves the memory of its own node only, so frames compete with frames of their node. What the machine says of its
//! caches is `isotherm_sys::host::placement_caches`, which knows what is in doubt; a cache in doubt is used, and its doubts are told.
//! Which node a frame lies on is `/proc/zoneinfo`'s to say, and is asked only where there are several: on a machine with one node every
//! frame is on it.
//!
//! An *extended-linear* cache (Flat Memory Mode) is memory too. With N frames of near memory in front of as many of far memory, frames a
//! and a + N take turns in the near one: still one place for each frame number modulo N, so its colours are N and each has two frames of
//! the node. Where a node has more memory than that, such pairs do not make up all of it, and frames that are told as competing may not:
//! that is told as a doubt.

use crate::cli::Usage;
use anyhow::{Context, Result, bail};
use isotherm_placement::direct_mapped::{DirectMapped, Footprint};
use isotherm_sys::host::{HostFacts, PlacementCache as ToldCache, PlacementCaches, placement_caches};
use isotherm_sys::lru_gen::zones::Zones;
use isotherm_units::Bytes;
use isotherm_view::placement::PlacementCache;
use std::collections::BTreeMap;
use std::path::Path;

/// What to do without a cache.
const MODEL: &str = "model one with --cache-size, as in --cache-size 16GiB";

/// A node, and what is in front of its memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub id: u32,
    /// `None` if the kernel does not say.
    pub memory: Option<Bytes>,
    pub cache: Option<(DirectMapped, PlacementCache)>,
    /// A cache that it has and that frames cannot be held against.
    pub unclear: Option<String>,
}

/// The nodes that have memory, by number; at least one of them has a cache: as asked for, or the machine's. On a machine that lists no
/// nodes all memory is node 0.
pub fn nodes(asked: Option<Bytes>, facts: &HostFacts) -> Result<Vec<Node>> {
    let bare = |id, memory| Node { id, memory, cache: None, unclear: None };
    let mut nodes: Vec<Node> = match facts.nodes.as_deref().unwrap_or_default() {
        [] => vec![bare(0, None)],
        // Processors alone make a node too.
        listed => listed.iter().filter(|n| n.memory != Some(Bytes(0))).map(|n| bare(n.id, n.memory)).collect(),
    };
    if let [only] = &mut nodes[..] {
        only.memory = only.memory.or(facts.memory);
    }
    match asked {
        Some(size) => model(&mut nodes, size)?,
        None => take_the_machines(&mut nodes, &placement_caches(facts).unwrap_or_default())?,
    }
    Ok(nodes)
}

/// One of that size in front of each.
fn model(nodes: &mut [Node], size: Bytes) -> Result<(), Usage> {
    let cache = DirectMapped::new(size).map_err(|why| Usage(format!("--cache-size: {why}")))?;
    let source = match nodes.len() {
        1 => "--cache-size".to_owned(),
        several => format!("--cache-size, one for each of {several} nodes"),
    };
    for node in nodes {
        let told = PlacementCache {
            size_bytes: size,
            colours: cache.frames(),
            modelled: true,
            source: source.clone(),
            extended_linear: false,
            doubts: Vec::new(),
        };
        node.cache = Some((cache, told));
    }
    Ok(())
}

fn take_the_machines(nodes: &mut [Node], caches: &PlacementCaches) -> Result<()> {
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
        None => bail!("this machine tells of no memory-side cache that is direct-mapped; {MODEL}"),
        Some((id, unclear)) => bail!(
            "of no memory-side cache that this machine tells of it is known that it is direct-mapped and of which size (node {id}: \
             {unclear}); `isotherm doctor --probe-cache` may find out; {MODEL}"
        ),
    }
}

/// The cache of a node: of several levels the one next to memory, a sure one first.
fn of_node(node: &Node, direct: &[ToldCache]) -> Result<Option<(DirectMapped, PlacementCache)>> {
    let of_node: Vec<&ToldCache> = direct.iter().filter(|cache| cache.node == node.id).collect();
    let Some(told) = of_node.iter().find(|cache| cache.is_sure()).or(of_node.first()) else { return Ok(None) };
    let size = Bytes::of_pages(told.frames);
    let cache = DirectMapped::new(size).with_context(|| format!("take the memory-side cache of node {}", node.id))?;
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

/// What lies where.
#[derive(Debug, Default)]
pub struct Split {
    /// By node, with all that were listed.
    pub nodes: Vec<(Node, Footprint)>,
    /// In no zone, or in zones of several nodes.
    pub unknown: Footprint,
}

/// Splits frames by the node that they lie on. `proc` has the zones, which are read only if there are several nodes; a node that has a
/// zone and was not listed is added, without a cache.
pub fn split(footprint: Footprint, nodes: Vec<Node>, proc: &Path) -> Result<Split> {
    let several = match <[Node; 1]>::try_from(nodes) {
        Ok([only]) => return Ok(Split { nodes: vec![(only, footprint)], unknown: Footprint::default() }),
        Err(several) => several,
    };
    let zones = Zones::read(proc)
        .with_context(|| format!("read {}, which tells the node of a frame", proc.join("zoneinfo").display()))?;
    // Some ten zones are gone through for each frame, which is little next to finding it.
    let mut parts = footprint.split(|frame| zones.node_of(frame.0));
    let unknown = parts.remove(&None).unwrap_or_default();
    let mut all: BTreeMap<u32, (Node, Footprint)> =
        several.into_iter().map(|node| (node.id, (node, Footprint::default()))).collect();
    for (id, part) in parts.into_iter().filter_map(|(id, part)| Some((id?, part))) {
        let unlisted = Node { id, memory: None, cache: None, unclear: None };
        all.entry(id).or_insert((unlisted, Footprint::default())).1 = part;
    }
    Ok(Split { nodes: all.into_values().collect(), unknown })
}
