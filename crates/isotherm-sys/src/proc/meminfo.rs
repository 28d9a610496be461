//! `/proc/meminfo`, and that of a NUMA node.

use isotherm_units::Bytes;

/// A line of `/proc/meminfo`, or of a node's (which begins with `Node 0 `).
pub fn meminfo(text: &str, key: &str) -> Option<Bytes> {
    text.lines().find_map(|line| {
        let (head, value) = line.split_once(':')?;
        if head.rsplit(' ').next() != Some(key) {
            return None;
        }
        let kilobytes: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kilobytes.checked_mul(1024).map(Bytes)
    })
}
