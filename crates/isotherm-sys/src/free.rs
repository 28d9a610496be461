//! How much memory is free, and how much of that in blocks large enough for huge pages. Read often.
//!
//! `/proc/buddyinfo` has a line for each zone of each node, with the number of free runs of 1, 2, 4, ... pages in it.
//! It shows what is available at once. It does not count pages on pcp lists, nor what compaction could free.

use crate::proc::meminfo;
use isotherm_units::{Bytes, PAGES_PER_PMD};
use std::io;
use std::path::Path;

/// The order of a block: a run of 2 to the power of this many pages.
const BLOCK_ORDER: usize = PAGES_PER_PMD.trailing_zeros() as usize;

/// The free runs of pages of one zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FreeZone {
    /// The NUMA node.
    pub node: u32,
    /// `DMA`, `DMA32`, `Normal`, `Movable`, ...
    pub zone: String,
    /// How many runs of 2^n pages are free, by n.
    pub counts: Vec<u64>,
}

impl FreeZone {
    fn parse(line: &str) -> Option<FreeZone> {
        // "Node 0, zone    DMA32      1      2 ..."
        let (node, rest) = line.strip_prefix("Node")?.split_once(", zone")?;
        let mut words = rest.split_ascii_whitespace();
        let zone = words.next()?.to_owned();
        let counts = words.map(|word| word.parse().ok()).collect::<Option<Vec<u64>>>()?;
        Some(FreeZone { node: node.trim().parse().ok()?, zone, counts })
    }

    /// How many blocks its free runs hold. A run of a higher order holds several.
    fn blocks(&self) -> u64 {
        let orders = self.counts.iter().zip(0u32..).skip(BLOCK_ORDER);
        orders.fold(0, |sum: u64, (count, order)| {
            let each = 1u64.checked_shl(order - PAGES_PER_PMD.trailing_zeros()).unwrap_or(u64::MAX);
            sum.saturating_add(count.saturating_mul(each))
        })
    }
}

/// The free runs of pages of all zones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FreeBlocks {
    /// As the kernel lists them.
    pub zones: Vec<FreeZone>,
}

impl FreeBlocks {
    /// Reads `buddyinfo` below `proc`. A truncated file is an error (`InvalidData`), and does not read as "nothing is
    /// free".
    pub fn read(proc: &Path) -> io::Result<FreeBlocks> {
        let path = proc.join("buddyinfo");
        let text = std::fs::read_to_string(&path)?;
        FreeBlocks::parse(&text).ok_or_else(|| {
            let (path, lines) = (path.display(), "lines of node, zone and as many counts each");
            let text: String = text.chars().take(160).collect();
            io::Error::new(io::ErrorKind::InvalidData, format!("{path}: expected {lines}, got {text:?}"))
        })
    }

    fn parse(text: &str) -> Option<FreeBlocks> {
        // The kernel ends each line. A truncated line would pass for a smaller number.
        let zones: Vec<FreeZone> = text.strip_suffix('\n')?.lines().map(FreeZone::parse).collect::<Option<_>>()?;
        let orders = zones.first()?.counts.len();
        (orders > 0 && zones.iter().all(|zone| zone.counts.len() == orders)).then_some(FreeBlocks { zones })
    }

    /// Free blocks of 2 MiB or more on one node, in blocks of 2 MiB.
    pub fn huge_pages_on(&self, node: u32) -> u64 {
        self.zones.iter().filter(|zone| zone.node == node).map(FreeZone::blocks).sum()
    }

    /// How many huge pages (2 MiB, order 9 of 4 KiB pages) could be allocated at once from free memory.
    ///
    /// `DMA32` and the zones above it count: user memory falls back to it, and on small machines it is most of the
    /// memory. `DMA` does not count. On x86 it is the first 16 MiB, which the kernel withholds from user memory as long
    /// as it can, so its blocks would be counted and never allocated. Where it is the only zone (aarch64 with all
    /// memory below 4 GiB), it does count.
    pub fn huge_pages(&self) -> u64 {
        let only_dma = self.zones.iter().all(|zone| zone.zone == "DMA");
        let usable = self.zones.iter().filter(|zone| only_dma || zone.zone != "DMA");
        usable.fold(0, |sum, zone| sum.saturating_add(zone.blocks()))
    }
}

/// Memory available to programs, and the total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Available {
    /// Memory available to programs without swapping, as the kernel estimates it (`MemAvailable`).
    pub available: Bytes,
    /// Memory of the machine (`MemTotal`).
    pub total: Bytes,
}

/// Percent of all memory that is free; page cache does not count as free. `None` if it cannot be read.
pub fn free_pct(proc: &Path) -> Option<f64> {
    let text = std::fs::read_to_string(proc.join("meminfo")).ok()?;
    let (free, all) = (meminfo(&text, "MemFree")?, meminfo(&text, "MemTotal")?);
    (all.0 > 0).then(|| free.0 as f64 / all.0 as f64 * 100.0)
}

/// Reads `meminfo` below `proc`; `None` if either is unknown.
pub fn available(proc: &Path) -> Option<Available> {
    let text = std::fs::read_to_string(proc.join("meminfo")).ok()?;
    Some(Available { available: meminfo(&text, "MemAvailable")?, total: meminfo(&text, "MemTotal")? })
}

/// Memory that was read from swap, or is being written to it, and is in both places (`SwapCached`). `None` if it cannot be read.
pub fn swap_cached(proc: &Path) -> Option<Bytes> {
    meminfo(&std::fs::read_to_string(proc.join("meminfo")).ok()?, "SwapCached")
}

/// Swap of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swap {
    /// Swap that is not in use (`SwapFree`).
    pub free: Bytes,
    /// All of it (`SwapTotal`). 0 if there is none.
    pub total: Bytes,
}

impl Swap {
    /// Reads `meminfo` below `proc`; `None` if either is unknown.
    pub fn read(proc: &Path) -> Option<Swap> {
        let text = std::fs::read_to_string(proc.join("meminfo")).ok()?;
        Some(Swap { free: meminfo(&text, "SwapFree")?, total: meminfo(&text, "SwapTotal")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO_NODES: &str = "\
Node 0, zone      DMA      0      0      0      0      0      0      0      0      1      1      3 
Node 0, zone    DMA32      1      2      4      2      5      4      3      3      4      2    752 
Node 0, zone   Normal   1024    582    400    223     75     27      9      5      3      7      0 
Node 1, zone   Normal      9      0      0      0      0      0      0      0      8      0     10 
Node 1, zone  Movable      0      0      0      0      0      0      0      0      0      1      1 
";

    #[test]
    fn free_blocks_are_counted_over_all_zones_but_dma() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(FreeBlocks::read(dir.path()).unwrap_err().kind(), io::ErrorKind::NotFound);
        std::fs::write(dir.path().join("buddyinfo"), TWO_NODES).unwrap();
        let free = FreeBlocks::read(dir.path()).unwrap();
        let zones: Vec<_> = free.zones.iter().map(|zone| (zone.node, &*zone.zone, zone.counts.len())).collect();
        assert_eq!(zones, [(0, "DMA", 11), (0, "DMA32", 11), (0, "Normal", 11), (1, "Normal", 11), (1, "Movable", 11)]);
        assert_eq!((free.zones[1].counts[0], free.zones[1].counts[10]), (1, 752));
        // Order 10 holds two blocks.
        assert_eq!(free.huge_pages(), (2 + 2 * 752) + 7 + 2 * 10 + (1 + 2));
    }

    #[test]
    fn swap_is_none_or_so_much() {
        let dir = tempfile::tempdir().unwrap();
        let read = |text: &str| {
            std::fs::write(dir.path().join("meminfo"), text).unwrap();
            Swap::read(dir.path())
        };
        let known = Swap { free: Bytes(3 << 10), total: Bytes(8 << 10) };
        assert_eq!(read("MemTotal: 9 kB\nSwapTotal:       8 kB\nSwapFree:        3 kB\n"), Some(known));
        assert_eq!(
            (read("SwapTotal: 0 kB\nSwapFree: 0 kB\n"), read("SwapTotal: 8 kB\n")),
            (Some(Swap::default()), None)
        );
    }

    #[test]
    fn dma_counts_where_there_is_nothing_else() {
        let line = TWO_NODES.lines().next().unwrap();
        assert_eq!(FreeBlocks::parse(&format!("{line}\n")).unwrap().huge_pages(), 7);
    }

    #[test]
    fn what_is_cut_short_is_unknown() {
        for len in 0..TWO_NODES.len() {
            let free = FreeBlocks::parse(&TWO_NODES[..len]);
            // Whole lines are not distinguished from a machine with fewer zones.
            assert!(free.is_none() || TWO_NODES[..len].ends_with('\n'), "{:?}", &TWO_NODES[..len]);
        }
        for text in ["", "\n", "Node 0, zone DMA\n", "Node x, zone DMA 1\n", "Node 0, zone DMA 1 x\n", "Node 0, 1 2\n"]
        {
            assert_eq!(FreeBlocks::parse(text), None, "{text:?}");
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("buddyinfo"), "Node 0, zo").unwrap();
        let error = FreeBlocks::read(dir.path()).unwrap_err();
        assert!(error.to_string().contains("buddyinfo: expected lines"), "{error}");
        let uneven = "Node 0, zone DMA 1 2\nNode 0, zone Normal 1\n";
        assert_eq!(FreeBlocks::parse(uneven), None);
    }

    #[test]
    fn smaller_and_larger_orders_than_usual() {
        assert_eq!(FreeBlocks::parse("Node 0, zone Normal 1 2 3\n").unwrap().huge_pages(), 0);
        let many = format!("Node 0, zone Normal{}\n", " 18446744073709551615".repeat(80));
        assert_eq!(FreeBlocks::parse(&many).unwrap().huge_pages(), u64::MAX);
    }

    #[test]
    fn available_memory_is_read_or_unknown() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(available(dir.path()), None);
        let text = "MemTotal:       24684092 kB\nMemFree:        13540440 kB\nMemAvailable:   13735040 kB\n";
        std::fs::write(dir.path().join("meminfo"), text).unwrap();
        let expected = Available { available: Bytes(13_735_040 << 10), total: Bytes(24_684_092 << 10) };
        assert_eq!(available(dir.path()), Some(expected));
        // Before 3.14, or cut short.
        for text in ["MemTotal:       24684092 kB\nMemFree: 1 kB\n", "MemTotal: 1 kB\nMemAvailable:   137"] {
            std::fs::write(dir.path().join("meminfo"), text).unwrap();
            assert_eq!(available(dir.path()), None);
        }
    }

    #[test]
    fn this_machine_has_some() {
        let proc = Path::new("/proc");
        assert!(!FreeBlocks::read(proc).unwrap().zones.is_empty());
        let memory = available(proc).unwrap();
        assert!(Bytes(0) < memory.available && memory.available <= memory.total, "{memory:?}");
    }
}
