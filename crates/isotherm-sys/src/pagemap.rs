//! `/proc/PID/pagemap`: which pages are present, which are mapped exclusively, and (with privilege) the frame of each.
//!
//! Reading costs about 14 ms per GiB, so callers read only the huge ranges they need.

use isotherm_units::{AddrRange, PAGES_PER_PMD, PageNo, PmdNo};
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

    /// Written to since soft-dirty was last cleared. Always false on kernels without soft-dirty.
    pub const fn is_soft_dirty(self) -> bool {
        self.0 >> 55 & 1 == 1
    }

    /// Write-protected through userfaultfd, for snapshots or to track writes. Kernel 5.14 and later; always false
    /// before.
    pub const fn is_userfault_wp(self) -> bool {
        self.0 >> 57 & 1 == 1
    }

    /// Neither present nor empty: swapped out, under migration, poisoned, or a guard page.
    pub const fn is_swapped(self) -> bool {
        self.0 >> 62 & 1 == 1
    }

    /// A guard page of `MADV_GUARD_INSTALL`, which looks swapped out as well. Since Linux 6.15; 0 before.
    pub const fn is_guard(self) -> bool {
        self.0 >> 58 & 1 == 1
    }

    /// File-backed or shared anonymous.
    pub const fn is_file(self) -> bool {
        self.0 >> 61 & 1 == 1
    }

    /// The frame number; `None` if the page is absent, or if the number is hidden (it takes CAP_SYS_ADMIN).
    pub const fn frame(self) -> Option<u64> {
        let frame = self.0 & ((1 << 55) - 1);
        if self.is_present() && frame != 0 { Some(frame) } else { None }
    }
}

/// Counts of a huge range's pages by kind, 0 to 512 each. One page can count in several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PmdPages {
    /// Mapped to a frame, the zero page included.
    pub present: u16,
    /// Present, and mapped by no other process. The zero page never is.
    pub exclusive: u16,
    /// Swapped out, under migration, poisoned, or a guard page.
    pub swapped: u16,
    /// File-backed or shared anonymous. Copies of a private file mapping are not.
    pub file: u16,
    /// Write-protected through userfaultfd, present or not.
    pub userfault_wp: u16,
}

/// An open pagemap. It stays bound to the memory it was opened on: after an exec it reads as empty.
#[derive(Debug)]
pub struct Pagemap(pub(crate) File);

impl Pagemap {
    /// Opens the pagemap of `pid` below `proc`.
    pub fn open(proc: &Path, pid: u32) -> io::Result<Pagemap> {
        File::open(proc.join(pid.to_string()).join("pagemap")).map(Pagemap)
    }

    /// Whether the memory it was opened on still exists. It becomes false once every process that uses the memory has
    /// ended or has called exec, and it stays false. So everything read before a call that returned true is complete.
    /// Takes under a microsecond.
    pub fn is_there(&self) -> io::Result<bool> {
        // Page 0 lies below the end of every address space. The kernel reports it as absent where nothing is mapped.
        let mut first = [0; 8];
        Ok(self.fill(&mut first, 0)? == first.len())
    }

    /// Reads the entries of the pages of `range`, in order. Pages past the end of the address space are skipped, and
    /// all pages are skipped once the memory is gone. So a short result for a range that user programs had mapped means
    /// that the memory is gone.
    pub fn read(&self, range: AddrRange) -> io::Result<Vec<(PageNo, PageEntry)>> {
        let first = range.start.page().0;
        let count = range.end.page().0.saturating_sub(first);
        let mut bytes = vec![0; usize::try_from(count * 8).map_err(io::Error::other)?];
        let filled = self.fill(&mut bytes, first)?;
        Ok((first..).map(PageNo).zip(entries(&bytes[..filled])).collect())
    }

    /// Counts the pages of `pmd` by kind, with one read of 4 KiB and no allocation. All 0 past the end of the address
    /// space, and after an exec.
    pub fn pmd(&self, pmd: PmdNo) -> io::Result<PmdPages> {
        let mut bytes = [0; 8 * PAGES_PER_PMD];
        let filled = self.fill(&mut bytes, pmd.page(0).0)?;
        let mut pages = PmdPages::default();
        for entry in entries(&bytes[..filled]) {
            pages.present += u16::from(entry.is_present());
            pages.exclusive += u16::from(entry.is_exclusive());
            pages.swapped += u16::from(entry.is_swapped());
            pages.file += u16::from(entry.is_file());
            pages.userfault_wp += u16::from(entry.is_userfault_wp());
        }
        Ok(pages)
    }

    /// Reads entries from page `first` on until `bytes` is full or there are no more; returns the bytes read.
    fn fill(&self, bytes: &mut [u8], first: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < bytes.len() {
            match self.0.read_at(&mut bytes[filled..], first * 8 + filled as u64) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(filled)
    }
}

fn entries(bytes: &[u8]) -> impl Iterator<Item = PageEntry> {
    bytes.chunks_exact(8).map(|b| PageEntry(u64::from_ne_bytes(b.try_into().expect("chunks of eight"))))
}

/// Whether this kernel tracks soft-dirty pages: writes to a page of our own and reads its soft-dirty bit.
///
/// The answer decides what writing `4` to `clear_refs` does: flush the TLB only (no soft-dirty), or write-protect the
/// target's pages too (soft-dirty).
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
    use crate::memory::{Memory, PageSize};
    use isotherm_units::{Addr, PMD_SIZE};
    use std::io::{Read, Write};
    use std::process::{Child, Command, Stdio};

    #[test]
    fn bits_are_where_the_kernel_documents_them() {
        let e = PageEntry::from_raw(1 << 63 | 1 << 61 | 1 << 56 | 1 << 55 | 0x1234);
        assert!(PageEntry::from_raw(1 << 62).is_swapped() && !e.is_swapped());
        assert!(PageEntry::from_raw(1 << 62 | 1 << 58).is_guard() && !PageEntry::from_raw(1 << 62).is_guard());
        assert!(PageEntry::from_raw(1 << 57).is_userfault_wp() && !e.is_userfault_wp());
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

    /// A child with memory of its own. Until a process that was started by vfork executes its program, it uses the memory of its parent, and the
    /// kernel lets the parent go on a moment before that.
    fn echoing() -> Child {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.as_mut().unwrap().write_all(b"!").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        child
    }

    #[test]
    fn memory_that_is_gone_is_told_from_what_is_past_the_end() {
        let mut child = echoing();
        let map = Pagemap::open(Path::new("/proc"), child.id()).unwrap();
        let (first, past) = (Addr(0).pmd().range(), PmdNo(u64::MAX >> 24).range());
        let counts = || [first, past].map(|range| map.read(range).unwrap().len());
        assert!(map.is_there().unwrap() && counts() == [512, 0]);
        child.kill().unwrap();
        child.wait().unwrap();
        // While another test reads the files of all processes, the memory may be held a moment longer.
        let gone = (0..2000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            !map.is_there().unwrap()
        });
        assert!(gone && counts() == [0, 0]);
    }

    #[test]
    fn a_huge_range_counts_its_pages_by_kind() {
        let map = Pagemap::open(Path::new("/proc"), std::process::id()).unwrap();
        let memory = Memory::anonymous(PMD_SIZE, PageSize::Small).unwrap();
        let pmd = memory.range().start.pmd();
        assert_eq!(map.pmd(pmd).unwrap(), PmdPages::default(), "untouched");
        (0..100).for_each(|page| memory.write(page));
        // Reading maps the page of zeros, which everybody shares.
        (100..150).for_each(|page| assert_eq!(memory.read(page), 0));
        let pages = map.pmd(pmd).unwrap();
        // A page may have been swapped out since.
        assert_eq!((pages.present + pages.swapped, pages.exclusive + pages.swapped, pages.file), (150, 100, 0));

        let file = tempfile::tempfile().unwrap();
        file.set_len(2 * PMD_SIZE).unwrap();
        let shared = Memory::shared(&file, PMD_SIZE).unwrap();
        shared.populate();
        let pages = map.pmd(shared.range().start.pmd()).unwrap();
        assert!(pages.present > 0 && pages.file == pages.present, "{pages:?}");
        assert_eq!(map.pmd(PmdNo(u64::MAX >> 24)).unwrap(), PmdPages::default(), "past the end");
    }

    #[test]
    fn a_huge_range_agrees_with_its_entries() {
        let map = Pagemap::open(Path::new("/proc"), std::process::id()).unwrap();
        let memory = Memory::anonymous(PMD_SIZE, PageSize::Default).unwrap();
        (0..512).step_by(3).for_each(|page| memory.write(page));
        let (pages, entries) = (map.pmd(memory.range().start.pmd()).unwrap(), map.read(memory.range()).unwrap());
        let count = |is: fn(PageEntry) -> bool| entries.iter().filter(|(_, e)| is(*e)).count();
        assert_eq!(usize::from(pages.present), count(PageEntry::is_present));
        assert_eq!(usize::from(pages.exclusive), count(PageEntry::is_exclusive));
    }
}
