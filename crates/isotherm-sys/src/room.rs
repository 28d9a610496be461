//! How many pages a NUMA node can still take without reclaim: what is free above the high watermarks of its zones.
//!
//! A page is moved to a node with an allocation that falls back to no other node. Below the watermarks it reclaims there, or fails, and the
//! kernel logs a report each time.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

/// Pages of user memory that each node can take now, by node. Reads `/proc/zoneinfo` below `proc`, which is longer with more CPUs: 50 us with two.
pub fn by_node(proc: &Path) -> io::Result<BTreeMap<u32, u64>> {
    fs::read_to_string(proc.join("zoneinfo")).map(|text| parse(&text))
}

fn parse(text: &str) -> BTreeMap<u32, u64> {
    let mut rooms = BTreeMap::new();
    let (mut node, mut free, mut high) = (None, 0, 0);
    for line in text.lines().map(str::trim_start) {
        if let Some(rest) = line.strip_prefix("Node ") {
            node = rest.split(',').next().and_then(|id| id.parse::<u32>().ok());
        } else if let Some(pages) = line.strip_prefix("pages free") {
            free = number(pages);
        } else if let Some(pages) = line.strip_prefix("high ") {
            high = number(pages);
        } else if let (Some(list), Some(node)) = (line.strip_prefix("protection:"), node) {
            // Kept back from user memory, which can take other zones too.
            let kept = list.split(|c: char| !c.is_ascii_digit()).map(number).max().unwrap_or(0);
            *rooms.entry(node).or_default() += free.saturating_sub(high + kept);
        }
    }
    rooms
}

fn number(text: &str) -> u64 {
    text.trim().parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "\
Node 0, zone      DMA
  pages free     3840
        min      10
        high     17
        protection: (0, 3018, 22218, 22218, 22218)
              high:     0
Node 0, zone   Normal
  pages free     5000
        high     1000
        protection: (0, 0, 0, 0, 0)
              high:     4000
  start_pfn:           1048576
Node 3, zone   Normal
  pages free     100
        high     250
        protection: (0, 0, 0, 0, 0)
Node 3, zone  Movable
  pages free     90
        high     32
        protection: (0, 0, 0, 0, 0)
";

    #[test]
    fn what_is_above_the_watermarks_and_not_kept_back_is_added_up() {
        assert_eq!(parse(TWO), [(0, 4000), (3, 58)].into());
        assert_eq!(parse(""), BTreeMap::new());
    }

    #[test]
    fn this_machine_has_less_room_than_free_memory() {
        let room: u64 = by_node(Path::new("/proc")).unwrap().values().sum();
        let free = crate::proc::meminfo(&fs::read_to_string("/proc/meminfo").unwrap(), "MemFree").unwrap();
        // Both change meanwhile.
        assert!(room > 0 && room <= free.pages() + (1 << 16), "{room} pages of {free}");
    }
}
