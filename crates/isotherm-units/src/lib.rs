//! One newtype per unit of memory, and the only conversions between them.
//!
//! Every other crate uses these types, so a page number cannot be passed where an address is meant. They hold plain
//! `u64`s, cost nothing, and print short (`P0x1f`, `B0x3`) so that logs stay on one line.
//!
//! Pages are 4 KiB and huge ranges 2 MiB throughout: the granule of x86-64, and of aarch64 kernels with 4 KiB pages. The
//! sources refuse kernels with larger base pages at start-up, so nothing here half-supports them.

#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod human;
mod perms;

pub use perms::{NotPerms, Perms};

use core::fmt;
use serde::{Deserialize, Serialize};

/// log2 of the page size.
pub const PAGE_SHIFT: u32 = 12;
/// Bytes in a page.
pub const PAGE_SIZE: u64 = 1 << PAGE_SHIFT;
/// log2 of the huge range size: what one page table of 512 entries maps, and the size of a huge page.
pub const PMD_SHIFT: u32 = 21;
/// Bytes in a huge range.
pub const PMD_SIZE: u64 = 1 << PMD_SHIFT;
/// Pages in a huge range.
pub const PAGES_PER_PMD: usize = 1 << (PMD_SHIFT - PAGE_SHIFT);

const _: () = assert!(PAGES_PER_PMD == 512);

/// A virtual address, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Addr(pub u64);

/// A virtual page: the address divided by 4 KiB.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PageNo(pub u64);

/// A virtual huge range: the address divided by 2 MiB. One page table, or one huge page.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PmdNo(pub u64);

/// A page frame: a physical address, or a place in a pool that stands for one, divided by 4 KiB.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FrameNo(pub u64);

/// Frames from `start` up to `end`, exclusive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct FrameRange {
    /// First frame.
    pub start: FrameNo,
    /// One past the last frame.
    pub end: FrameNo,
}

/// A number of bytes. Displays in binary units: `512 B`, `4.0 KiB`, `1.5 GiB`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Addr {
    /// The page that holds this address.
    pub const fn page(self) -> PageNo {
        PageNo(self.0 >> PAGE_SHIFT)
    }

    /// The huge range that holds this address.
    pub const fn pmd(self) -> PmdNo {
        PmdNo(self.0 >> PMD_SHIFT)
    }
}

impl PageNo {
    /// The first address of the page.
    pub const fn addr(self) -> Addr {
        Addr(self.0 << PAGE_SHIFT)
    }

    /// The huge range that holds the page.
    pub const fn pmd(self) -> PmdNo {
        PmdNo(self.0 >> (PMD_SHIFT - PAGE_SHIFT))
    }

    /// The page's place within its huge range, 0 to 511.
    #[expect(clippy::cast_possible_truncation, reason = "masked to nine bits")]
    pub const fn index_in_pmd(self) -> usize {
        (self.0 as usize) & (PAGES_PER_PMD - 1)
    }
}

impl PmdNo {
    /// The first address of the huge range.
    pub const fn addr(self) -> Addr {
        Addr(self.0 << PMD_SHIFT)
    }

    /// The page at `index` (0 to 511) within the huge range.
    pub const fn page(self, index: usize) -> PageNo {
        PageNo((self.0 << (PMD_SHIFT - PAGE_SHIFT)) + index as u64)
    }

    /// The huge range after this one.
    pub const fn next(self) -> PmdNo {
        PmdNo(self.0 + 1)
    }

    /// The addresses of the huge range.
    pub const fn range(self) -> AddrRange {
        AddrRange { start: self.addr(), end: self.next().addr() }
    }
}

impl FrameNo {
    /// The frame `n` further up.
    #[must_use]
    pub const fn plus(self, n: u64) -> FrameNo {
        FrameNo(self.0 + n)
    }

    /// Whether it is the first of a huge range of 2^`order` frames.
    pub const fn is_aligned(self, order: u32) -> bool {
        self.0 & ((1 << order) - 1) == 0
    }
}

impl FrameRange {
    /// A range; `end < start` is taken as empty at `start`.
    pub const fn new(start: FrameNo, end: FrameNo) -> FrameRange {
        let end = if end.0 < start.0 { start } else { end };
        FrameRange { start, end }
    }

    /// How many frames.
    pub const fn len(self) -> u64 {
        self.end.0 - self.start.0
    }

    /// Whether nothing is in it.
    pub const fn is_empty(self) -> bool {
        self.start.0 >= self.end.0
    }

    /// Whether `frame` lies in it.
    pub const fn contains(self, frame: FrameNo) -> bool {
        self.start.0 <= frame.0 && frame.0 < self.end.0
    }

    /// Whether the two have a frame in common.
    pub const fn overlaps(self, other: FrameRange) -> bool {
        self.start.0 < other.end.0 && other.start.0 < self.end.0 && !self.is_empty() && !other.is_empty()
    }
}

impl Bytes {
    /// The bytes of `n` pages.
    pub const fn of_pages(n: u64) -> Bytes {
        Bytes(n << PAGE_SHIFT)
    }

    /// Whole MiB, for arithmetic in tests and tables.
    pub const fn of_mib(n: u64) -> Bytes {
        Bytes(n << 20)
    }

    /// How many whole pages fit.
    pub const fn pages(self) -> u64 {
        self.0 >> PAGE_SHIFT
    }
}

/// Addresses from `start` up to `end`, exclusive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct AddrRange {
    /// First address.
    pub start: Addr,
    /// One past the last address.
    pub end: Addr,
}

impl AddrRange {
    /// A range; `end < start` is taken as empty at `start`.
    pub const fn new(start: Addr, end: Addr) -> AddrRange {
        let end = if end.0 < start.0 { start } else { end };
        AddrRange { start, end }
    }

    /// Its length.
    pub const fn len(self) -> Bytes {
        Bytes(self.end.0 - self.start.0)
    }

    /// Whether nothing is in it.
    pub const fn is_empty(self) -> bool {
        self.start.0 >= self.end.0
    }

    /// Whether `addr` lies in it.
    pub const fn contains(self, addr: Addr) -> bool {
        self.start.0 <= addr.0 && addr.0 < self.end.0
    }

    /// The part that two ranges have in common, if any.
    pub fn intersect(self, other: AddrRange) -> Option<AddrRange> {
        let both = AddrRange::new(self.start.max(other.start), self.end.min(other.end));
        (!both.is_empty()).then_some(both)
    }

    /// Every huge range that overlaps the range.
    pub fn pmds(self) -> impl Iterator<Item = PmdNo> {
        let last = if self.is_empty() { self.start.pmd().0 } else { (self.end.0 - 1) / PMD_SIZE + 1 };
        (self.start.pmd().0..last).map(PmdNo)
    }
}

macro_rules! debug_as {
    ($type:ty, $prefix:literal) => {
        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{:#x}"), self.0)
            }
        }
    };
}
debug_as!(Addr, "A");
debug_as!(PageNo, "P");
debug_as!(PmdNo, "B");
debug_as!(FrameNo, "F");

impl fmt::Debug for FrameRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}..{:?}", self.start, self.end)
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Debug for AddrRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}..{:#x}", self.start.0, self.end.0)
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}B", self.0)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1024 {
            return f.pad(&alloc::format!("{} B", self.0));
        }
        #[expect(clippy::cast_precision_loss, reason = "shown with four digits at the most")]
        let mut value = self.0 as f64 / 1024.0;
        let mut unit = 0;
        // 999.95 would print as 1000.0: move up a unit before the rounding does.
        while value >= 999.95 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        f.pad(&alloc::format!("{value:.1} {}", UNITS[unit]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_have_the_kernels_values() {
        let a = Addr(0x7f12_3456_789a);
        assert_eq!(a.page(), PageNo(0x7_f123_4567));
        assert_eq!(a.pmd(), PmdNo(0x7f12_3456_789a >> 21));
        assert_eq!(a.page().pmd(), a.pmd());
        assert_eq!(a.pmd().page(a.page().index_in_pmd()), a.page());
    }

    #[test]
    fn frames_are_counted_and_aligned() {
        let range = FrameRange::new(FrameNo(0x400), FrameNo(0x800));
        assert_eq!(range.len(), 0x400);
        assert!(range.contains(FrameNo(0x7ff)) && !range.contains(FrameNo(0x800)));
        assert!(range.start.is_aligned(10) && !range.start.is_aligned(11));
        assert!(range.overlaps(FrameRange::new(FrameNo(0x7ff), FrameNo(0x900))));
        assert!(!range.overlaps(FrameRange::new(range.end, FrameNo(0x900))));
        assert!(!range.overlaps(FrameRange::new(FrameNo(0x500), FrameNo(0x500))));
        assert!(FrameRange::new(FrameNo(5), FrameNo(1)).is_empty());
        assert_eq!(format!("{range:?}"), "F0x400..F0x800");
    }

    #[test]
    fn a_range_lists_every_huge_range_it_touches() {
        let r = AddrRange::new(Addr(PMD_SIZE - 1), Addr(2 * PMD_SIZE + 1));
        assert_eq!(r.pmds().collect::<Vec<_>>(), [PmdNo(0), PmdNo(1), PmdNo(2)]);
        let whole = AddrRange::new(Addr(PMD_SIZE), Addr(2 * PMD_SIZE));
        assert_eq!(whole.pmds().collect::<Vec<_>>(), [PmdNo(1)]);
        assert_eq!(AddrRange::new(Addr(5), Addr(5)).pmds().count(), 0);
        assert_eq!(AddrRange::new(Addr(u64::MAX - 1), Addr(u64::MAX)).pmds().count(), 1);
    }

    #[test]
    fn bytes_print_in_the_unit_a_person_would_choose() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (4096, "4.0 KiB"),
            (1 << 20, "1.0 MiB"),
            ((1 << 30) - 1, "1.0 GiB"),
            (3 << 29, "1.5 GiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }
}
