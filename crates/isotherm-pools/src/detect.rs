//! Detects a direct-mapped memory-side cache, in which frames compete. If the machine reports one, blocks are shuffled.
//!
//! `isotherm doctor` reads the same files to explain them and lists every doubt. This module only needs one answer, and
//! no dependency that a C program would have to link. A test compares the two. Files that are absent or garbled or
//! contradict each other are not believed.

use std::fs;
use std::path::Path;

const PAGE_SIZE: u64 = 4096;

/// Whether a node below `sys` (`/sys`) has a direct-mapped memory-side cache that nothing contradicts.
pub(crate) fn has_direct_mapped_cache(sys: &Path) -> bool {
    let Ok(nodes) = fs::read_dir(sys.join("devices/system/node")) else { return false };
    nodes.flatten().filter(|node| numbered(&node.file_name(), "node").is_some()).any(|node| node_has_one(&node.path()))
}

fn node_has_one(node: &Path) -> bool {
    let Ok(entries) = fs::read_dir(node.join("memory_side_cache")) else { return false };
    let levels: Vec<(u64, bool)> = entries
        .flatten()
        .filter_map(|entry| Some((numbered(&entry.file_name(), "index")?, is_direct(&entry.path(), memory_of(node)))))
        .collect();
    // If a level is listed twice, its entries contradict each other.
    levels.iter().any(|(level, direct)| *direct && levels.iter().filter(|(other, _)| other == level).count() == 1)
}

fn is_direct(cache: &Path, memory: Option<u64>) -> bool {
    let Some(size) = number(&cache.join("size")).filter(|size| *size > 0 && size.is_multiple_of(PAGE_SIZE)) else {
        return false;
    };
    // Flat memory modes count near memory as separate memory (bit 0). Kernels before 6.15 have no such file.
    let mode = cache.join("address_mode");
    let extended = match number(&mode) {
        Some(bits) => bits & 1 == 1,
        None if mode.exists() => return false,
        None => false,
    };
    // MemTotal excludes what the kernel took at boot, so allow an eighth more.
    let fits = extended || memory.is_none_or(|memory| size <= memory.saturating_add(memory / 8));
    fits && number(&cache.join("indexing")) == Some(0)
}

/// The node's memory in bytes.
fn memory_of(node: &Path) -> Option<u64> {
    let text = fs::read_to_string(node.join("meminfo")).ok()?;
    let line = text.lines().find(|line| line.contains("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().rev().nth(1)?.parse().ok()?;
    kib.checked_mul(1024)
}

/// A number in a file, decimal or hexadecimal after `0x`.
fn number(path: &Path) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn numbered(name: &std::ffi::OsStr, prefix: &str) -> Option<u64> {
    name.to_str()?.strip_prefix(prefix)?.parse().ok()
}
