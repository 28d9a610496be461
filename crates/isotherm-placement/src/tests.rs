//! Frames of machines with several nodes, as their files tell of them, and how colours are folded.

use crate::compute::{Drawing, report};
use crate::direct_mapped::{CacheError, DirectMapped, Footprint};
use crate::placed::FrameOwners;
use crate::progress::Unattended;
use crate::rates::SHUFFLES;
use crate::read::{Assumed, Error, Machine as Nodes};
use crate::report::{PlacementRates, PlacementReport};
use isotherm_host::{HostFacts, HostRoots};
use isotherm_units::{Bytes, FrameNo, PAGE_SIZE};
use std::fs;

/// A machine's files: two nodes of 1 GiB, frames 1 to 262,143 and 262,144 to 524,287.
struct Machine(tempfile::TempDir);

impl Machine {
    fn two_nodes() -> Machine {
        let machine = Machine(tempfile::tempdir().unwrap());
        let zone = |node, zone, spanned, first| {
            format!("Node {node}, zone {zone}\n  pages free 3\n        spanned  {spanned}\n  start_pfn:  {first}\n")
        };
        let zones = [zone(0, "DMA", 4095, 1), zone(0, "DMA32", 258_048, 4096), zone(1, "Normal", 262_144, 262_144)];
        machine.write("proc/zoneinfo", &zones.concat()).node(0, 1 << 20).node(1, 1 << 20)
    }

    fn write(self, path: &str, text: &str) -> Machine {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    fn node(self, id: u32, kilobytes: u64) -> Machine {
        let file = format!("sys/devices/system/node/node{id}/meminfo");
        self.write(&file, &format!("Node {id} MemTotal:       {kilobytes} kB\n"))
    }

    /// With a cache in front of a node, direct-mapped and of so many frames; `files` have other words than such a one.
    fn cache(mut self, node: u32, level: u32, frames: u64, files: &[(&str, &str)]) -> Machine {
        let size = (frames * 4096).to_string();
        let usual = [("size", &*size), ("indexing", "0"), ("line_size", "64"), ("write_policy", "0")];
        for (file, text) in usual.iter().chain(files) {
            let dir = format!("sys/devices/system/node/node{node}/memory_side_cache/index{level}");
            self = self.write(&format!("{dir}/{file}"), &format!("{text}\n"));
        }
        self
    }

    fn nodes(&self, assumed: Option<Bytes>) -> Result<Nodes, Error> {
        let [proc, sys, boot] = ["proc", "sys", "boot"].map(|dir| self.0.path().join(dir));
        let assumed = assumed.map(|size| Assumed { cache: DirectMapped::new(size).unwrap(), by: "--cache-size" });
        Nodes::new(assumed, &HostFacts::read(&HostRoots { proc, sys, boot }, PAGE_SIZE))
    }

    fn report(&self, assumed: Option<Bytes>, footprint: Footprint) -> Result<PlacementReport, Error> {
        let whose = FrameOwners { pages: footprint.frames(), ..FrameOwners::default() };
        let placed = self.nodes(assumed)?.place(footprint, &self.0.path().join("proc"))?;
        Ok(report(whose, placed, Drawing { seed: 1, columns: 10, rows: 4 }, &mut Unattended).unwrap())
    }

    fn why_not(&self) -> String {
        self.nodes(None).unwrap_err().with_causes()
    }
}

/// So many frames from each of those on.
fn frames(firsts: &[u64], count: u64) -> Footprint {
    Footprint::uniform(firsts.iter().flat_map(|first| (*first..first + count).map(FrameNo)))
}

fn pct(rates: Option<PlacementRates>) -> Option<f64> {
    rates.map(|rates| (rates.placed_pct * 1000.0).round() / 1000.0)
}

/// First frame of node 1.
const HIGH: u64 = 262_144;

#[test]
fn frames_compete_in_the_cache_of_their_node_only() {
    let machine = Machine::two_nodes().cache(0, 1, 1024, &[]);
    // 100 pairs on node 0; 300 frames on node 1 and 1 on none, of the same colours.
    let mut all: Vec<(FrameNo, f32)> = frames(&[1024, 4096], 100).iter().collect();
    all.extend(frames(&[HIGH, HIGH + 1024, HIGH + 2048], 100).iter());
    all.push((FrameNo(600_000), 1.0));
    let report = machine.report(None, Footprint::uniform(all.into_iter().map(|(frame, _)| frame))).unwrap();
    let [near, far] = &report.nodes[..] else { panic!("{:?}", report.nodes) };
    assert_eq!((near.node, near.frames, near.colours_used, pct(near.rates)), (0, 200, 100, Some(50.0)));
    let cache = near.cache.as_ref().unwrap();
    assert!(cache.colours == 1024 && !cache.modelled && cache.doubts.is_empty() && !cache.extended_linear, "{cache:?}");
    assert_eq!(cache.source, "memory-side cache of node 0");
    assert_eq!((far.node, far.frames, far.cache.is_none(), far.rates, far.picture.len()), (1, 300, true, None, 0));
    assert_eq!((report.frames, report.unknown_node_frames), (501, 1));
    assert_eq!((near.memory_bytes, far.memory_bytes), (Bytes(1 << 30), Bytes(1 << 30)));
    assert_eq!(pct(report.rates), Some(50.0), "of what is behind a cache");
    assert!((report.behind_cache_pct.unwrap() - 200.0 / 501.0 * 100.0).abs() < 1e-9);
    let parts: f64 = report.nodes.iter().filter_map(|node| node.accesses_pct).sum();
    assert!((parts - 500.0 / 501.0 * 100.0).abs() < 1e-9, "{parts}");
}

#[test]
fn each_node_has_a_cache_of_its_own_size_and_the_total_goes_by_accesses() {
    let machine = Machine::two_nodes().cache(0, 1, 1024, &[]).cache(1, 1, 4096, &[]);
    // On both nodes frames 1,024 apart: they compete on node 0 only.
    let report = machine.report(None, frames(&[1024, 2048, HIGH, HIGH + 1024, HIGH + 2048, HIGH + 3072], 50)).unwrap();
    let told: Vec<_> = report.nodes.iter().map(|n| (n.cache.as_ref().unwrap().colours, pct(n.rates))).collect();
    assert_eq!(told, [(1024, Some(50.0)), (4096, Some(0.0))]);
    let total = report.rates.unwrap();
    assert_eq!((pct(Some(total)), report.behind_cache_pct), (Some(16.667), Some(100.0)));
    assert!(total.shuffled.draws == SHUFFLES && total.shuffled.min_pct <= total.shuffled.max_pct, "{total:?}");
    let mean = report.nodes.iter().map(|n| n.rates.unwrap().shuffled.mean_pct * n.frames as f64 / 300.0).sum::<f64>();
    assert!((total.shuffled.mean_pct - mean).abs() < 1e-9, "{total:?}");
    // Heat counts, not frames: node 0 has nothing that is accessed.
    let cold = frames(&[1024, 2048], 50).iter().map(|(frame, _)| (frame, 0.0)).collect::<Vec<_>>();
    let hot = frames(&[HIGH, HIGH + 4096], 50);
    let report = machine.report(None, Footprint::weighted(cold.into_iter().chain(hot.iter()))).unwrap();
    assert_eq!((report.nodes[0].rates, pct(report.nodes[1].rates), pct(report.rates)), (None, Some(50.0), Some(50.0)));
}

#[test]
fn a_size_asked_for_is_modelled_on_each_node_and_has_to_be_whole_pages() {
    let machine = Machine::two_nodes().cache(0, 1, 1024, &[]);
    let report = machine.report(Some(Bytes(8192)), frames(&[2, HIGH], 2)).unwrap();
    for node in &report.nodes {
        let cache = node.cache.as_ref().unwrap();
        assert!(cache.modelled && cache.colours == 2 && pct(node.rates) == Some(0.0), "{node:?}");
        assert_eq!(cache.source, "--cache-size, one for each of 2 nodes");
    }
    for wrong in [0, 4095, 5000] {
        let why = DirectMapped::new(Bytes(wrong)).unwrap_err();
        assert!(matches!(why, CacheError::TooSmall(_) | CacheError::NotPages(_)), "{wrong}: {why}");
    }
}

#[test]
fn one_node_has_all_frames_and_needs_no_zones() {
    // Processors alone are no node here.
    let machine = Machine(tempfile::tempdir().unwrap()).node(3, 1 << 20).node(4, 0);
    let report = machine.report(Some(Bytes(8192)), frames(&[0, 1 << 40], 2)).unwrap();
    let [node] = &report.nodes[..] else { panic!("{:?}", report.nodes) };
    assert_eq!((node.node, node.frames, pct(node.rates), report.unknown_node_frames), (3, 4, Some(50.0), 0));
    assert_eq!(node.cache.as_ref().unwrap().source, "--cache-size");
    // Nor does one whose kernel lists no nodes.
    let bare = Machine(tempfile::tempdir().unwrap()).write("proc/meminfo", "MemTotal:  2097152 kB\n");
    let report = bare.report(Some(Bytes(8192)), frames(&[7], 1)).unwrap();
    assert_eq!((report.nodes[0].node, report.nodes[0].memory_bytes), (0, Bytes(2 << 30)));
    assert!(bare.why_not().contains("memory-side cache"), "{}", bare.why_not());
    // With two, zones are needed, and one that was not listed has its frames counted.
    let machine = Machine::two_nodes().node(2, 1 << 20);
    fs::remove_dir_all(machine.0.path().join("sys/devices/system/node/node1")).unwrap();
    let report = machine.report(Some(Bytes(8192)), frames(&[2, HIGH], 2)).unwrap();
    let told: Vec<_> = report.nodes.iter().map(|n| (n.node, n.frames, n.cache.is_some())).collect();
    assert_eq!(told, [(0, 2, true), (1, 2, false), (2, 0, true)]);
    fs::remove_file(machine.0.path().join("proc/zoneinfo")).unwrap();
    let why = machine.report(Some(Bytes(8192)), frames(&[2], 2)).unwrap_err().with_causes();
    assert!(why.contains("proc/zoneinfo, which gives the node of a frame"), "{why}");
}

#[test]
fn a_cache_in_doubt_is_used_and_its_doubts_are_told() {
    // Larger than its node; and of two levels, the sure one.
    let machine = Machine::two_nodes()
        .cache(0, 1, 1 << 20, &[])
        .cache(1, 1, 1024, &[("address_mode", "linear")])
        .cache(1, 2, 2048, &[]);
    let report = machine.report(None, frames(&[1024, HIGH], 10)).unwrap();
    let [first, second] = [0, 1].map(|node: usize| report.nodes[node].cache.clone().unwrap());
    assert!(first.colours == 1 << 20 && first.doubts == ["larger than the node's memory (1.0 GiB)"], "{first:?}");
    assert!(second.colours == 2048 && second.doubts.is_empty(), "{second:?}");
    assert_eq!(second.source, "memory-side cache of node 1, level 2, one of 2");
}

#[test]
fn what_is_not_known_to_be_direct_mapped_is_told_and_not_used() {
    let none = Machine::two_nodes().why_not();
    assert!(none.contains("memory-side cache"), "{none}");
    let associative = Machine::two_nodes().cache(0, 1, 1024, &[("indexing", "1")]).why_not();
    assert!(associative.contains("no direct-mapped memory-side cache"), "{associative}");
    for files in [[("indexing", "2")], [("size", "0")], [("size", "4097")]] {
        let machine = Machine::two_nodes().cache(1, 1, 1024, &files);
        let why = machine.why_not();
        assert!(why.contains("node 1: "), "{why}");
        assert!(matches!(machine.nodes(None), Err(Error::UnclearCache { node: 1, .. })), "{why}");
        // Beside one that is known it is no reason to fail.
        let machine = machine.cache(0, 1, 1024, &[]);
        let report = machine.report(None, frames(&[1024, HIGH], 10)).unwrap();
        assert!(report.nodes[0].cache.is_some() && report.nodes[0].unclear.is_none());
        assert!(report.nodes[1].cache.is_none() && report.nodes[1].unclear.is_some(), "{:?}", report.nodes[1]);
    }
}

#[test]
fn near_and_far_memory_of_an_extended_linear_cache_take_turns() {
    // 512 MiB each: all of the node's memory. Frames a and a + N compete, others do not.
    let half = 131_072;
    let machine = Machine::two_nodes().cache(1, 1, half, &[("address_mode", "0x1")]);
    let report = machine.report(None, frames(&[HIGH, HIGH + half, HIGH + 1000], 100)).unwrap();
    let node = &report.nodes[1];
    let cache = node.cache.as_ref().unwrap();
    assert!(cache.extended_linear && cache.colours == half && cache.doubts.is_empty(), "{cache:?}");
    assert_eq!((node.colours_used, pct(node.rates)), (200, Some(33.333)));
    assert_eq!(node.colours_by_frames.iter().map(|c| (c.frames, c.colours)).collect::<Vec<_>>(), [(1, 100), (2, 100)]);
    // A node with other memory too.
    let machine = Machine::two_nodes().cache(1, 1, 1024, &[("address_mode", "0x1")]);
    let report = machine.report(None, frames(&[HIGH], 10)).unwrap();
    let doubts = &report.nodes[1].cache.as_ref().unwrap().doubts;
    assert!(doubts.len() == 1 && doubts[0].contains("more than near and far memory of 4.0 MiB each"), "{doubts:?}");
}
