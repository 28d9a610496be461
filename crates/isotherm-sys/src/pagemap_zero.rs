//! The zero page and the huge zero page: the frames behind all memory that was read and never written.
//!
//! `pagemap` shows such pages as present like others, and thousands of them share one frame. Code that counts or weighs
//! frames must know them. `PAGEMAP_SCAN` has a category for them, but kernels before 6.7 lack it, and many later ones
//! miss the huge zero page. So we compare frames. The zero page is the frame that our own memory gets if it is only
//! read. The huge zero page is what `/proc/kpageflags` reports as such, looked up once per 2 MiB.

use crate::memory::{Memory, PageSize};
use crate::pagemap::{PageEntry, Pagemap};
use isotherm_units::{PAGES_PER_PMD, PMD_SIZE};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// `KPF_THP` and `KPF_ZERO_PAGE` of `linux/kernel-page-flags.h`. Only the huge zero page has both.
const HUGE_ZERO: u64 = 1 << 22 | 1 << 24;
const GROUP: u64 = PAGES_PER_PMD as u64;

/// Which frames are zero pages, as far as the kernel reports it.
#[derive(Debug, Default)]
pub struct ZeroFrames {
    /// The zero page; `None` if frames are hidden from us.
    small: Option<u64>,
    /// Whether these frames are the huge zero page, by frame number over 512.
    groups: HashMap<u64, bool>,
    /// The last group asked for: neighbouring pages often lie in the same one.
    last: Option<(u64, bool)>,
    /// `None` if it may not be read: then the huge zero page is known only if we could get one.
    flags: Option<File>,
}

impl ZeroFrames {
    /// Reads memory of our own that was never written, and asks `proc` which frames it has: about 100 microseconds.
    ///
    /// # Errors
    ///
    /// If there is no memory to map, or our own `pagemap` cannot be read.
    pub fn find(proc: &Path) -> io::Result<ZeroFrames> {
        let pagemap = Pagemap::open(proc, std::process::id())?;
        let small = frame_of_unwritten(&pagemap, PageSize::Small)?;
        let huge = frame_of_unwritten(&pagemap, PageSize::Huge)?.filter(|frame| Some(*frame) != small);
        let groups = huge.iter().map(|frame| (frame / GROUP, true)).collect();
        Ok(ZeroFrames { small, groups, last: None, flags: File::open(proc.join("kpageflags")).ok() })
    }

    /// Whether a page is a zero page: it was read and never written. The first call for each 2 MiB of memory costs a
    /// microsecond.
    pub fn has(&mut self, entry: PageEntry) -> bool {
        let Some(frame) = entry.frame() else { return false };
        self.small == Some(frame) || self.is_huge(frame / GROUP)
    }

    fn is_huge(&mut self, group: u64) -> bool {
        if let Some((last, is)) = self.last
            && last == group
        {
            return is;
        }
        let flags = self.flags.as_ref();
        let is = *self.groups.entry(group).or_insert_with(|| flags.is_some_and(|flags| is_huge_zero(flags, group)));
        self.last = Some((group, is));
        is
    }
}

/// Frames without flags, such as those of devices, are not zero pages.
fn is_huge_zero(flags: &File, group: u64) -> bool {
    let mut bytes = [0; 8];
    flags.read_exact_at(&mut bytes, group * GROUP * 8).is_ok() && u64::from_ne_bytes(bytes) & HUGE_ZERO == HUGE_ZERO
}

fn frame_of_unwritten(pagemap: &Pagemap, pages: PageSize) -> io::Result<Option<u64>> {
    let memory = Memory::anonymous(PMD_SIZE, pages)?;
    memory.read(0);
    Ok(pagemap.read(memory.range())?.first().and_then(|(_, entry)| entry.frame()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_was_only_read_is_zeros_and_what_was_written_is_not() {
        let proc = Path::new("/proc");
        let pagemap = Pagemap::open(proc, std::process::id()).unwrap();
        let mut zeros = ZeroFrames::find(proc).unwrap();
        if zeros.small.is_none() {
            let _ = writeln!(std::io::stderr(), "skipped: needs CAP_SYS_ADMIN, to see frames");
            return;
        }
        for size in [PageSize::Small, PageSize::Huge] {
            let memory = Memory::anonymous(PMD_SIZE, size).unwrap();
            (0..512).for_each(|page| assert_eq!(memory.read(page), 0));
            let entries = pagemap.read(memory.range()).unwrap();
            assert!(entries.iter().all(|(_, entry)| zeros.has(*entry)), "{size:?}");
            // The frame's own flags tell the same as what we got ourselves.
            if let Some(flags) = &zeros.flags {
                let frame = entries[0].1.frame().unwrap();
                assert_eq!(is_huge_zero(flags, frame / GROUP), Some(frame) != zeros.small, "{size:?}");
            }
            (0..512).for_each(|page| memory.write(page));
            let entries = pagemap.read(memory.range()).unwrap();
            assert!(!entries.iter().any(|(_, entry)| zeros.has(*entry)), "{size:?}");
        }
        assert!(!zeros.has(PageEntry::from_raw(0)) && !zeros.has(PageEntry::from_raw(1 << 63 | 1 << 54)));
    }
}
