//! Mappings whose pages other processes map as well. Advice silently skips such pages, so the mappings are remembered.

use isotherm_heat::Ns;
use isotherm_sys::proc::{MapEntry, Perms};

/// How long a mapping counts as shared after its pages were last found to be.
const SHARED_FOR: Ns = 60_000_000_000;

/// A mapping with pages that several processes map, and when that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SharedMapping {
    dev: (u32, u32),
    inode: u64,
    offset: u64,
    perms: Perms,
    found_at: Ns,
}

impl SharedMapping {
    pub(super) fn of(mapping: &MapEntry, found_at: Ns) -> SharedMapping {
        let MapEntry { dev, inode, offset, perms, .. } = *mapping;
        SharedMapping { dev, inode, offset, perms, found_at }
    }

    /// Whether this still holds for `mapping`: it is the same memory, and was found not long ago.
    pub(super) fn holds_for(&self, mapping: &MapEntry, now: Ns) -> bool {
        *self == SharedMapping::of(mapping, self.found_at) && now.saturating_sub(self.found_at) < SHARED_FOR
    }
}
