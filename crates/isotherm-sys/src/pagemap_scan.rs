//! Whether a block is mapped as one huge page, by the `PAGEMAP_SCAN` ioctl (Linux 6.7 and later).
//!
//! `pagemap` itself does not tell, and `smaps` tells it for whole mappings and at the cost of reading all of them.

use crate::pagemap::Pagemap;
use isotherm_units::BlockNo;
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
const PAGE_IS_HUGE: u64 = 1 << 6;

impl Pagemap {
    /// Whether one huge page maps all of `block`. `None` on kernels before 6.7, which cannot tell. About a microsecond.
    pub fn is_huge(&self, block: BlockNo) -> io::Result<Option<bool>> {
        let range = block.range();
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
    fn small_pages_are_not_huge_and_a_huge_page_is() {
        let pagemap = Pagemap::open(Path::new("/proc"), std::process::id()).unwrap();
        let small = Memory::anonymous(1, PageSize::Small).unwrap();
        small.populate();
        let is_small = pagemap.is_huge(small.range().start.block()).unwrap();
        if is_small.is_none() {
            let _ = writeln!(std::io::stderr(), "skipped: needs PAGEMAP_SCAN (Linux 6.7)");
            return;
        }
        assert_eq!(is_small, Some(false));
        let huge = Memory::anonymous(1, PageSize::Huge).unwrap();
        huge.populate();
        if pagemap.is_huge(huge.range().start.block()).unwrap() != Some(true) {
            let _ = writeln!(std::io::stderr(), "skipped: needs a free huge page");
        }
    }
}
