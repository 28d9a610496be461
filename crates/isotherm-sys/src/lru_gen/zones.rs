//! Which NUMA node a frame is on, from `/proc/zoneinfo`: generations are numbered node by node.

use std::path::Path;
use std::{fs, io};

/// Ranges of frames with their nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zones {
    /// First frame, first frame after, node; sorted.
    ranges: Vec<(u64, u64, u32)>,
}

impl Zones {
    /// Reads them below `proc`. Memory hot-added later is unknown.
    pub fn read(proc: &Path) -> io::Result<Zones> {
        fs::read_to_string(proc.join("zoneinfo")).map(|text| Zones::parse(&text))
    }

    fn parse(text: &str) -> Zones {
        let mut ranges = Vec::new();
        let (mut node, mut spanned) = (None, 0);
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            match (words.next(), words.next()) {
                (Some("Node"), Some(id)) => (node, spanned) = (id.trim_end_matches(',').parse().ok(), 0),
                (Some("spanned"), Some(count)) => spanned = count.parse().unwrap_or(0),
                (Some("start_pfn:"), Some(first)) => {
                    if let (Some(node), Ok(first), 1..) = (node, first.parse::<u64>(), spanned) {
                        ranges.push((first, first + spanned, node));
                    }
                }
                _ => {}
            }
        }
        ranges.sort_unstable();
        Zones { ranges }
    }

    /// The node of `frame`; `None` if it is in no zone, or in zones of several nodes.
    pub fn node_of(&self, frame: u64) -> Option<u32> {
        let mut holding = self.ranges.iter().filter(|(first, end, _)| (*first..*end).contains(&frame));
        let &(_, _, node) = holding.next()?;
        holding.all(|(_, _, other)| *other == node).then_some(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_on_the_node_whose_zone_spans_them() {
        let zones = Zones::parse(include_str!("zoneinfo.txt"));
        let nodes =
            [0, 1, 4095, 4096, 524_255, 524_256, 1_048_576, 1_572_863, 1_572_864].map(|frame| zones.node_of(frame));
        assert_eq!(nodes, [None, Some(0), Some(0), Some(0), Some(0), None, Some(1), Some(1), None]);
        assert_eq!(Zones::parse("").node_of(1), None);
    }

    #[test]
    fn nodes_that_interleave_are_unknown() {
        let zones = Zones { ranges: vec![(0, 100, 0), (50, 80, 1)] };
        assert_eq!([10, 60, 90].map(|frame| zones.node_of(frame)), [Some(0), None, Some(0)]);
    }
}
