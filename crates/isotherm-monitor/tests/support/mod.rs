//! What made-up sources have in common: one process with a row of blocks.

#![allow(dead_code, reason = "each test binary uses its own part of this")]

use isotherm_heat::{Granularity, Mapping, Ns, TargetId};
use isotherm_sources::{Accesses, ClearedProcess, Description, Layout};
use isotherm_units::{AddrRange, BlockNo};

/// A source that sees pages and clears no others.
pub fn description(accesses: Accesses) -> Description {
    let (granularity, note) = (Granularity::Page, String::new());
    Description { name: "made-up", granularity, accesses, clears_others: false, note }
}

pub fn attached(pid: u32) -> (TargetId, String) {
    (TargetId { pid, start_ticks: 1 }, "made-up".into())
}

/// So many blocks in one mapping.
pub fn layout(blocks: u64) -> Layout {
    let range = AddrRange::new(BlockNo(1000).addr(), BlockNo(1000 + blocks).addr());
    let mappings = vec![Mapping { range, name: String::new(), perms: String::new() }];
    Layout { blocks: (1000..1000 + blocks).map(BlockNo).collect(), mappings, resident: Vec::new() }
}

/// A clear of the whole process that was not needed.
pub fn nothing_cleared(at: Ns) -> ClearedProcess {
    ClearedProcess { at, stall_ns: 0, flushed: true, blocks: Vec::new(), partly: Vec::new() }
}
