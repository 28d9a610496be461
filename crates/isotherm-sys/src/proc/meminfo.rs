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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_machine_and_of_a_node() {
        let text = "MemTotal:       24576000 kB\nSwapTotal:      0 kB\nNode 0 MemFree:  12 kB\nHugePages_Total:  7\n";
        assert_eq!(meminfo(text, "MemTotal"), Some(Bytes(24_576_000 << 10)));
        assert_eq!((meminfo(text, "SwapTotal"), meminfo(text, "MemFree")), (Some(Bytes(0)), Some(Bytes(12 << 10))));
        // No size, not there, too large, and the end of another key.
        assert_eq!(
            (meminfo(text, "HugePages_Total"), meminfo(text, "Dirty"), meminfo(text, "Total")),
            (None, None, None)
        );
        assert_eq!(meminfo("MemTotal: 18446744073709551615 kB\n", "MemTotal"), None);
    }
}
