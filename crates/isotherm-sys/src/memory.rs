//! Memory of our own for experiments: the self-check, the demonstration's workload, tests and benchmarks.

use isotherm_units::{Addr, AddrRange, PAGE_SIZE, PMD_SIZE};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// The page size of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageSize {
    /// 4 KiB pages for good, regardless of the system's THP setting. They cannot be collapsed either.
    Small,
    /// As the system is set, which means 4 KiB pages where THP is on `madvise` or `never`. They can be collapsed.
    Default,
    /// Huge pages, if the kernel has them free at the first touch.
    Huge,
}

/// A private or shared mapping whose start is aligned to 2 MiB. Unmapped on drop.
#[derive(Debug)]
pub struct Memory {
    mapped: NonNull<u8>,
    mapped_len: usize,
    start: NonNull<AtomicU64>,
    len: usize,
}

// SAFETY: the mapping is process-wide memory and only reached through atomics.
unsafe impl Send for Memory {}
// SAFETY: as above: concurrent access through atomics is defined.
unsafe impl Sync for Memory {}

const WORDS_PER_PAGE: usize = 512;

impl Memory {
    /// Maps `len` bytes of untouched anonymous memory, rounded up to whole huge ranges.
    pub fn anonymous(len: u64, pages: PageSize) -> io::Result<Memory> {
        let memory = Memory::map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1)?;
        let advice = match pages {
            PageSize::Small => libc::MADV_NOHUGEPAGE,
            PageSize::Default => return Ok(memory),
            PageSize::Huge => libc::MADV_HUGEPAGE,
        };
        // SAFETY: advises exactly our own mapping. A kernel without huge pages refuses, which does no harm.
        unsafe { libc::madvise(memory.start.as_ptr().cast(), memory.len, advice) };
        Ok(memory)
    }

    /// Maps `len` bytes of hugetlb pages of 2 MiB, rounded up to whole ones. Fails unless these and one more are free.
    pub fn hugetlb(len: u64) -> io::Result<Memory> {
        // Reserved, unlike the others: a touch that finds no free page would kill the process.
        Memory::map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | libc::MAP_HUGE_2MB, -1)
    }

    /// Maps the first `len` bytes of `file`, shared with every process that maps it. The file has to be at least `len` long,
    /// rounded up to whole huge ranges.
    pub fn shared(file: &File, len: u64) -> io::Result<Memory> {
        // The addresses of a mapping are aligned to a huge range, and differ between processes. So the file goes to the aligned
        // start: mapped together with what is skipped, each process would find another part of the file there.
        let memory = Memory::anonymous(len, PageSize::Default)?;
        // SAFETY: this replaces exactly our own mapping, to which there are no references yet.
        let mapped = unsafe {
            libc::mmap(
                memory.start.as_ptr().cast(),
                memory.len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_FIXED,
                file.as_raw_fd(),
                0,
            )
        };
        if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(memory) }
    }

    fn map(len: u64, flags: libc::c_int, fd: libc::c_int) -> io::Result<Memory> {
        let to_usize = |n: u64| usize::try_from(n).map_err(io::Error::other);
        let len = to_usize(len.next_multiple_of(PMD_SIZE))?;
        let pmd = to_usize(PMD_SIZE)?;
        // One huge range more than asked, so that an aligned start fits:
        //
        //   mapped          start                        start + len
        //   |--- < 2 MiB ---|------------- len -----------|-- rest --|
        let mapped_len = len + pmd;
        // SAFETY: a new mapping at an address of the kernel's choice replaces nothing; the result is checked.
        let mapped =
            unsafe { libc::mmap(std::ptr::null_mut(), mapped_len, libc::PROT_READ | libc::PROT_WRITE, flags, fd, 0) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mapped: NonNull<u8> = NonNull::new(mapped.cast()).expect("mmap does not return null");
        let skip = mapped.as_ptr().addr().next_multiple_of(pmd) - mapped.as_ptr().addr();
        // SAFETY: `skip` is less than one huge range and `len + pmd` bytes are mapped, so `len` bytes from there lie within.
        let start = unsafe { mapped.add(skip) }.cast();
        Ok(Memory { mapped, mapped_len, start, len })
    }

    /// Its address range.
    pub fn range(&self) -> AddrRange {
        let start = self.start.as_ptr().addr() as u64;
        AddrRange::new(Addr(start), Addr(start + self.len as u64))
    }

    /// Number of pages.
    pub fn pages(&self) -> usize {
        self.words().len() / WORDS_PER_PAGE
    }

    /// All of it, in words.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: `len` bytes from `start` are mapped for as long as `self` lives, zeroed or written through atomics, and
        // aligned to a huge range.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len / size_of::<AtomicU64>()) }
    }

    /// Writes to page `index`. A store, and no addition: an emulator that executes processors in one thread makes that a load and a store, which
    /// are two page faults.
    pub fn write(&self, index: usize) {
        self.words()[index * WORDS_PER_PAGE].store(1, Ordering::Relaxed);
    }

    /// Reads from page `index`.
    pub fn read(&self, index: usize) -> u64 {
        self.words()[index * WORDS_PER_PAGE].load(Ordering::Relaxed)
    }

    /// Writes to every page once.
    pub fn populate(&self) {
        for page in 0..self.pages() {
            self.words()[page * WORDS_PER_PAGE].store(page as u64, Ordering::Relaxed);
        }
    }

    /// Locks it in memory.
    pub fn lock(&self) -> io::Result<()> {
        // SAFETY: locks exactly our own mapping.
        if unsafe { libc::mlock(self.start.as_ptr().cast(), self.len) } == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Returns `count` pages from `index` on to the system.
    pub fn discard(&self, index: usize, count: usize) {
        let start = index.min(self.pages());
        let count = count.min(self.pages() - start);
        let page = usize::try_from(PAGE_SIZE).expect("4096");
        // SAFETY: the range was cut to our own mapping; discarded pages read as zeros afterwards, a valid value of the atomics.
        unsafe {
            libc::madvise(self.start.as_ptr().cast::<u8>().add(start * page).cast(), count * page, libc::MADV_DONTNEED)
        };
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what `map` mapped, once; slices borrow `self` and are gone.
        unsafe { libc::munmap(self.mapped.as_ptr().cast(), self.mapped_len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_and_discarding_gives_zeros() {
        let m = Memory::anonymous(3 << 20, PageSize::Small).unwrap();
        assert_eq!((m.pages(), m.range().start.0 % PMD_SIZE), (1024, 0));
        m.populate();
        m.write(7);
        assert_eq!((m.read(7), m.read(1023)), (1, 1023));
        m.discard(7, 1);
        assert_eq!((m.read(7), m.read(8)), (0, 8));
    }

    #[test]
    fn shared_memory_is_the_start_of_its_file_wherever_it_is_mapped() {
        // Linux 6.7 and later align mappings of most other file systems by themselves.
        let file = tempfile::tempfile_in("/dev/shm").or_else(|_| tempfile::tempfile()).unwrap();
        file.set_len(PMD_SIZE).unwrap();
        // Other mappings of odd sizes in between, so that the alignment skips a different number of pages each time.
        let mut between = Vec::new();
        let mapped: Vec<Memory> = (0..8)
            .map(|no| {
                between.push(Vec::<u8>::with_capacity((1 << 20) + 4096 * (no + 1)));
                let shared = Memory::shared(&file, 4096).unwrap();
                shared.write(no);
                shared
            })
            .collect();
        for no in 0..8 {
            assert_eq!(file_word(&file, no), 1, "page {no}");
            assert!(mapped.iter().all(|shared| shared.read(no) == 1), "page {no}");
        }
    }

    fn file_word(file: &File, page: usize) -> u64 {
        use std::os::unix::fs::FileExt;
        let mut word = [0; 8];
        file.read_exact_at(&mut word, page as u64 * 4096).unwrap();
        u64::from_ne_bytes(word)
    }
}
