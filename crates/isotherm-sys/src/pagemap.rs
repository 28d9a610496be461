//! `/proc/PID/pagemap`: which pages are present, whose they are alone, and (with privilege) which frame each has.
//!
//! Costs about 14 ms a GiB, so it is read for the blocks in question only.

use isotherm_units::{AddrRange, PageNo};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// One page's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageEntry(u64);

impl PageEntry {
    /// The entry from its raw 64 bits.
    pub const fn from_raw(raw: u64) -> PageEntry {
        PageEntry(raw)
    }

    /// A frame is mapped.
    pub const fn is_present(self) -> bool {
        self.0 >> 63 & 1 == 1
    }

    /// No other process maps the frame (kernel 4.2 and later).
    pub const fn is_exclusive(self) -> bool {
        self.0 >> 56 & 1 == 1
    }

    /// Written to since soft-dirty was last cleared; always false where the kernel lacks it.
    pub const fn is_soft_dirty(self) -> bool {
        self.0 >> 55 & 1 == 1
    }

    /// File-backed or shared anonymous.
    pub const fn is_file(self) -> bool {
        self.0 >> 61 & 1 == 1
    }

    /// The frame number; `None` if absent, or hidden from us (it takes CAP_SYS_ADMIN).
    pub const fn frame(self) -> Option<u64> {
        let frame = self.0 & ((1 << 55) - 1);
        if self.is_present() && frame != 0 { Some(frame) } else { None }
    }
}

/// An open pagemap. It stays with the memory it was opened on: after an exec it reads as empty.
#[derive(Debug)]
pub struct Pagemap(File);

impl Pagemap {
    /// Opens the pagemap of `pid` below `proc`.
    pub fn open(proc: &Path, pid: u32) -> io::Result<Pagemap> {
        File::open(proc.join(pid.to_string()).join("pagemap")).map(Pagemap)
    }

    /// Reads the entries of the pages of `range`, in order. Pages past the end of the address space are left out.
    pub fn read(&self, range: AddrRange) -> io::Result<Vec<(PageNo, PageEntry)>> {
        let first = range.start.page().0;
        let count = range.end.page().0.saturating_sub(first);
        let mut bytes = vec![0; usize::try_from(count * 8).map_err(io::Error::other)?];
        let mut filled = 0;
        while filled < bytes.len() {
            match self.0.read_at(&mut bytes[filled..], first * 8 + filled as u64) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        bytes.truncate(filled);
        let entries =
            bytes.chunks_exact(8).map(|b| PageEntry(u64::from_ne_bytes(b.try_into().expect("chunks of eight"))));
        Ok((first..).map(PageNo).zip(entries).collect())
    }
}

/// Whether this kernel tracks soft-dirty pages: a page just written to says so, or the kernel cannot.
///
/// It decides whether writing `4` to `clear_refs` is a mere TLB flush (no) or write-protects the target's pages (yes).
pub fn kernel_has_soft_dirty() -> io::Result<bool> {
    let written = Box::new([1_u8; 8192]);
    let page = isotherm_units::Addr(std::hint::black_box(&*written).as_ptr().addr() as u64 + 4096).page();
    let entries = Pagemap::open(Path::new("/proc"), std::process::id())?
        .read(AddrRange::new(page.addr(), PageNo(page.0 + 1).addr()))?;
    Ok(entries.first().is_some_and(|(_, e)| e.is_soft_dirty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_units::Addr;

    #[test]
    fn bits_are_where_the_kernel_documents_them() {
        let e = PageEntry::from_raw(1 << 63 | 1 << 61 | 1 << 56 | 1 << 55 | 0x1234);
        assert!(e.is_present() && e.is_file() && e.is_exclusive() && e.is_soft_dirty());
        assert_eq!(e.frame(), Some(0x1234));
        assert_eq!(PageEntry::from_raw(0x1234).frame(), None, "swapped or absent");
        assert_eq!(PageEntry::from_raw(1 << 63).frame(), None, "hidden");
    }

    #[test]
    fn our_own_stack_is_present_and_ours() {
        let here = 7_u64;
        let page = Addr((&raw const here).addr() as u64).page();
        let map = Pagemap::open(Path::new("/proc"), std::process::id()).unwrap();
        let read = map.read(AddrRange::new(page.addr(), PageNo(page.0 + 1).addr())).unwrap();
        assert_eq!(read.len(), 1);
        assert!(read[0].0 == page && read[0].1.is_present() && read[0].1.is_exclusive());
        assert_eq!(std::hint::black_box(here), 7);
    }
}
