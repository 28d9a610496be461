//! Whether a huge range is mapped as one huge page, and where a sparse mapping has pages, by the `PAGEMAP_SCAN` ioctl (Linux
//! 6.7 and later).
//!
//! `pagemap` itself does not show the first. `smaps` shows it for whole mappings, at the cost of reading all of them.
//! `pagemap` shows the second page by page, even for terabytes that a program has reserved and never touched.

use crate::pagemap::Pagemap;
use isotherm_units::{Addr, AddrRange, PmdNo};
use std::io;
use std::os::fd::AsRawFd;

/// `struct pm_scan_arg` of `linux/fs.h`.
#[repr(C)]
#[derive(Default)]
struct ScanArg {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region` of `linux/fs.h`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

const _: () = assert!(size_of::<ScanArg>() == 96 && size_of::<PageRegion>() == 24);

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: libc::c_ulong = 0xc060_6610;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_SWAPPED: u64 = 1 << 4;
const PAGE_IS_HUGE: u64 = 1 << 6;
/// Ranges asked for in one call.
const STRETCHES: usize = 256;

impl Pagemap {
    /// The first ranges within `range` where pages are present or swapped out, in order and disjoint, and the address
    /// up to which the scan went: the end of `range`, or where to continue. `None` on kernels before 6.7, which lack
    /// the ioctl. The kernel skips areas without page tables, so a sparse terabyte takes well below a millisecond.
    pub fn populated(&self, range: AddrRange) -> io::Result<Option<(Vec<AddrRange>, Addr)>> {
        let mut found = [PageRegion::default(); STRETCHES];
        let mut arg = ScanArg {
            size: size_of::<ScanArg>() as u64,
            start: range.start.0,
            end: range.end.0,
            vec: found.as_mut_ptr().expose_provenance() as u64,
            vec_len: STRETCHES as u64,
            category_anyof_mask: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
            return_mask: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
            ..ScanArg::default()
        };
        // SAFETY: the kernel reads and writes one ScanArg and at most STRETCHES PageRegions; all are borrowed for the call, have the
        // layout it expects (asserted above), and hold plain integers.
        let stretches = unsafe { libc::ioctl(self.0.as_raw_fd(), PAGEMAP_SCAN, &raw mut arg) };
        let Ok(stretches) = usize::try_from(stretches) else {
            let error = io::Error::last_os_error();
            return if error.raw_os_error() == Some(libc::ENOTTY) { Ok(None) } else { Err(error) };
        };
        let ranges = found.iter().take(stretches).map(|r| AddrRange::new(Addr(r.start), Addr(r.end)));
        // Where the scan stopped. If the list was not filled, there is nothing more.
        let until = if stretches == STRETCHES { arg.walk_end.max(range.start.0) } else { range.end.0 };
        Ok(Some((ranges.collect(), Addr(until.min(range.end.0)))))
    }

    /// Whether one huge page maps all of `pmd`. `None` on kernels before 6.7, which lack the ioctl. About a
    /// microsecond.
    pub fn is_huge(&self, pmd: PmdNo) -> io::Result<Option<bool>> {
        let range = pmd.range();
        let mut found = [PageRegion::default(); 1];
        let mut arg = ScanArg {
            size: size_of::<ScanArg>() as u64,
            start: range.start.0,
            end: range.end.0,
            vec: found.as_mut_ptr().expose_provenance() as u64,
            vec_len: 1,
            category_mask: PAGE_IS_HUGE,
            return_mask: PAGE_IS_HUGE,
            ..ScanArg::default()
        };
        // SAFETY: the kernel reads and writes one ScanArg and at most one PageRegion; both are borrowed for the call, have the
        // layout it expects (asserted above), and hold plain integers.
        let regions = unsafe { libc::ioctl(self.0.as_raw_fd(), PAGEMAP_SCAN, &raw mut arg) };
        if regions < 0 {
            let error = io::Error::last_os_error();
            return if error.raw_os_error() == Some(libc::ENOTTY) { Ok(None) } else { Err(error) };
        }
        Ok(Some(regions == 1 && found[0].start <= range.start.0 && found[0].end >= range.end.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Memory, PageSize};
    use std::io::Write;
    use std::path::Path;

    #[test]
    fn stretches_are_where_pages_are() {
        let pagemap = Pagemap::open(Path::new("/proc"), std::process::id()).unwrap();
        // 64 GiB, of which every third page of a few is there, and one far behind.
        let memory = Memory::anonymous(64 << 30, PageSize::Small).unwrap();
        let touched: Vec<usize> = (0..1000).map(|i| i * 3).chain([memory.pages() - 1]).collect();
        touched.iter().for_each(|page| memory.write(*page));
        let (mut from, mut found) = (memory.range().start, Vec::new());
        while from < memory.range().end {
            let Some((stretches, until)) = pagemap.populated(AddrRange::new(from, memory.range().end)).unwrap() else {
                let _ = writeln!(std::io::stderr(), "skipped: needs PAGEMAP_SCAN (Linux 6.7)");
                return;
            };
            assert!(until > from, "it goes on");
            found.extend(stretches);
            from = until;
        }
        let first = memory.range().start.page().0;
        let expected: Vec<u64> = touched.iter().map(|page| first + *page as u64).collect();
        let pages: Vec<u64> = found.iter().flat_map(|r| r.start.page().0..r.end.page().0).collect();
        assert_eq!(pages, expected);
    }

    #[test]
    fn small_pages_are_not_huge_and_a_huge_page_is() {
        let pagemap = Pagemap::open(Path::new("/proc"), std::process::id()).unwrap();
        let small = Memory::anonymous(1, PageSize::Small).unwrap();
        small.populate();
        let is_small = pagemap.is_huge(small.range().start.pmd()).unwrap();
        if is_small.is_none() {
            let _ = writeln!(std::io::stderr(), "skipped: needs PAGEMAP_SCAN (Linux 6.7)");
            return;
        }
        assert_eq!(is_small, Some(false));
        let huge = Memory::anonymous(1, PageSize::Huge).unwrap();
        huge.populate();
        if pagemap.is_huge(huge.range().start.pmd()).unwrap() != Some(true) {
            let _ = writeln!(std::io::stderr(), "skipped: needs a free huge page");
        }
    }
}
