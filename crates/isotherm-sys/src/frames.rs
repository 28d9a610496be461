//! Which page frame backs each page of a mapping: the input of placement by frame and of conflict detection.
//!
//! A process normally cannot know this. [`Pagemap`] shows it page by page, with CAP_SYS_ADMIN. Hugetlb pages need one
//! read each, since a huge page is contiguous ([`HugetlbFrames`]). Of a device-DAX device, sysfs shows where its memory
//! begins ([`DaxFrames`]). For a pool whose owner knows none of this there is [`OffsetIsPhysical`]. They differ in how
//! far they can be trusted, so each describes in one line what its numbers are based on, and reports print that line.
//!
//! In a virtual machine all of this is about guest frames. Only the host knows where those lie.

use crate::pagemap::Pagemap;
use isotherm_units::{Addr, AddrRange, Bytes, FrameNo, FrameRange, PAGE_SIZE};
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why a frame is not available.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FrameError {
    /// Pages are present, but the kernel shows zeros for their frames.
    #[error(
        "{path}: frame numbers are hidden from us: they need CAP_SYS_ADMIN, in the first user namespace; run as root"
    )]
    Hidden {
        /// The pagemap.
        path: PathBuf,
    },
    /// A file could not be read.
    #[error("read {path}: {source}{}", as_root(source))]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A file does not have its documented format.
    #[error("read {path}: expected {expected}, got {got:?}")]
    Garbled {
        /// The file.
        path: PathBuf,
        /// What should be in it.
        expected: &'static str,
        /// What was there.
        got: String,
    },
    /// The page has no frame at the moment.
    #[error(
        "page {page} of the mapping is in no frame: it was never touched, or is swapped out; write to it, or lock it"
    )]
    NotPresent {
        /// Its index in the mapping.
        page: u64,
    },
    /// There is no such page.
    #[error("page {page} is past the end of the mapping, which has {pages}")]
    PastTheEnd {
        /// The index asked for.
        page: u64,
        /// The number of pages there are.
        pages: u64,
    },
    /// A mapping is not what the caller said.
    #[error("page {page} of the mapping does not lie in a huge page of {size}: map it with MAP_HUGETLB and that size")]
    NotHuge {
        /// Its index in the mapping.
        page: u64,
        /// The size of huge pages expected.
        size: Bytes,
    },
}

fn as_root(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::PermissionDenied { "; run as root" } else { "" }
}

/// Knows the frames of one mapping. Pages are counted from its start, from 0.
pub trait FrameSource {
    /// Number of pages of the mapping.
    fn pages(&self) -> u64;

    /// The frames of `pages`, in order; `None` for a page that has no frame at the moment. Frames can change right
    /// after the call, unless the memory is of a kind that stays in place. Through pagemap it takes about 14 ms per
    /// GiB.
    fn frames(&self, pages: Range<u64>) -> Result<Vec<Option<FrameNo>>, FrameError>;

    /// What the numbers are based on, in one line.
    fn describe(&self) -> String;

    /// The frame of the page that holds byte `offset` of the mapping.
    fn frame(&self, offset: u64) -> Result<FrameNo, FrameError> {
        let page = offset / PAGE_SIZE;
        let found = self.frames(page..page + 1)?;
        found.first().copied().flatten().ok_or(FrameError::NotPresent { page })
    }
}

/// Checks that the mapping has all of `pages`.
fn within(pages: &Range<u64>, all: u64) -> Result<(), FrameError> {
    if pages.end <= all { Ok(()) } else { Err(FrameError::PastTheEnd { page: pages.end - 1, pages: all }) }
}

/// Reads `/proc/PID/pagemap`, one entry for each page.
#[derive(Debug)]
pub struct PagemapFrames {
    pagemap: Pagemap,
    path: PathBuf,
    range: AddrRange,
}

impl PagemapFrames {
    /// The mapping `range` of process `pid` below `proc`. Parts of the range outside of mappings have no frame.
    pub fn open(proc: &Path, pid: u32, range: AddrRange) -> Result<PagemapFrames, FrameError> {
        let path = proc.join(pid.to_string()).join("pagemap");
        match Pagemap::open(proc, pid) {
            Ok(pagemap) => Ok(PagemapFrames { pagemap, path, range }),
            Err(source) => Err(FrameError::Read { path, source }),
        }
    }

    /// A mapping of our own process.
    pub fn own(range: AddrRange) -> Result<PagemapFrames, FrameError> {
        PagemapFrames::open(Path::new("/proc"), std::process::id(), range)
    }

    fn addr(&self, page: u64) -> Addr {
        Addr(self.range.start.0 + page * PAGE_SIZE)
    }
}

impl FrameSource for PagemapFrames {
    fn pages(&self) -> u64 {
        self.range.len().0 / PAGE_SIZE
    }

    fn frames(&self, pages: Range<u64>) -> Result<Vec<Option<FrameNo>>, FrameError> {
        within(&pages, self.pages())?;
        let read = self.pagemap.read(AddrRange::new(self.addr(pages.start), self.addr(pages.end)));
        let read = read.map_err(|source| FrameError::Read { path: self.path.clone(), source })?;
        let mut frames = Vec::with_capacity(read.len());
        for (_, entry) in read {
            // A present page always has a frame other than 0; frame 0 belongs to the firmware.
            if entry.is_present() && entry.frame().is_none() {
                return Err(FrameError::Hidden { path: self.path.clone() });
            }
            frames.push(entry.frame().map(FrameNo));
        }
        // There are no entries past the end of the address space, nor for a process that has ended.
        frames.resize(usize::try_from(pages.end - pages.start).unwrap_or(frames.len()), None);
        Ok(frames)
    }

    fn describe(&self) -> String {
        format!("frame numbers of {}, as they are now", self.path.display())
    }
}

/// Reads `/proc/PID/pagemap`, one entry for each huge page. Hugetlb pages stay where they are.
#[derive(Debug)]
pub struct HugetlbFrames {
    small: PagemapFrames,
    size: Bytes,
}

impl HugetlbFrames {
    /// A mapping of hugetlb pages of `size` each, a power of two of 4 KiB or more. `range` has to be aligned to it.
    pub fn open(proc: &Path, pid: u32, range: AddrRange, size: Bytes) -> Result<HugetlbFrames, FrameError> {
        let aligned = |addr: Addr| addr.0.is_multiple_of(size.0);
        if !size.0.is_power_of_two() || size.0 < PAGE_SIZE || !aligned(range.start) || !aligned(range.end) {
            return Err(FrameError::NotHuge { page: 0, size });
        }
        Ok(HugetlbFrames { small: PagemapFrames::open(proc, pid, range)?, size })
    }

    /// A mapping of our own process.
    pub fn own(range: AddrRange, size: Bytes) -> Result<HugetlbFrames, FrameError> {
        HugetlbFrames::open(Path::new("/proc"), std::process::id(), range, size)
    }
}

impl FrameSource for HugetlbFrames {
    fn pages(&self) -> u64 {
        self.small.pages()
    }

    fn frames(&self, pages: Range<u64>) -> Result<Vec<Option<FrameNo>>, FrameError> {
        within(&pages, self.pages())?;
        let each = self.size.0 / PAGE_SIZE;
        let mut frames = Vec::new();
        let mut page = pages.start;
        while page < pages.end {
            let first = page - page % each;
            let end = pages.end.min(first + each);
            let head = self.small.frames(first..first + 1)?.first().copied().flatten();
            if head.is_some_and(|head| !head.0.is_multiple_of(each)) {
                return Err(FrameError::NotHuge { page: first, size: self.size });
            }
            frames.extend((page..end).map(|page| head.map(|head| head.plus(page - first))));
            page = end;
        }
        Ok(frames)
    }

    fn describe(&self) -> String {
        format!("frame numbers of {}, one for each huge page of {}", self.small.path.display(), self.size)
    }
}

/// An extent of a DAX device: the pages of the device from `first` on lie in `frames`.
#[derive(Clone, Copy, Debug)]
struct Extent {
    first: u64,
    frames: FrameRange,
}

/// Reads sysfs for a device-DAX device. Its memory is mapped directly and stays in place.
#[derive(Debug)]
pub struct DaxFrames {
    dir: PathBuf,
    extents: Vec<Extent>,
    /// Page of the device at which the mapping begins, and its length.
    first: u64,
    pages: u64,
}

impl DaxFrames {
    /// A mapping of `len` bytes of the device `name` (such as `dax0.0`) from byte `offset` on. `sys` is the mount point
    /// of sysfs. Only root can read where the device lies.
    pub fn open(sys: &Path, name: &str, offset: u64, len: Bytes) -> Result<DaxFrames, FrameError> {
        let dir = sys.join("bus/dax/devices").join(name);
        let mut extents = Vec::new();
        // Since 5.10 a device may consist of several pieces, which are listed separately.
        while dir.join(format!("mapping{}", extents.len())).is_dir() {
            extents.push(DaxFrames::piece(&dir.join(format!("mapping{}", extents.len())))?);
        }
        if extents.is_empty() {
            let (start, size) = (number(&dir.join("resource"))?, number(&dir.join("size"))?);
            extents.push(Extent { first: 0, frames: frames(&dir.join("resource"), start, size)? });
        }
        Ok(DaxFrames { dir, extents, first: offset / PAGE_SIZE, pages: len.pages() })
    }

    fn piece(dir: &Path) -> Result<Extent, FrameError> {
        let start = number(&dir.join("start"))?;
        // Inclusive: the last byte, not the one after it.
        let end = number(&dir.join("end"))?;
        let size = end.checked_sub(start).and_then(|len| len.checked_add(1)).unwrap_or(0);
        // Counted in base pages, despite the name.
        Ok(Extent { first: number(&dir.join("page_offset"))?, frames: frames(&dir.join("start"), start, size)? })
    }
}

/// Frames of `size` bytes of physical memory from `start` on, as read from `path`.
fn frames(path: &Path, start: u64, size: u64) -> Result<FrameRange, FrameError> {
    let fits = start != 0 && start.is_multiple_of(PAGE_SIZE) && size != 0 && start.checked_add(size).is_some();
    if !fits {
        return Err(FrameError::Garbled {
            path: path.to_owned(),
            expected: "the physical address of a page, with memory from there on",
            got: format!("{size} bytes at {start:#x}"),
        });
    }
    let start = FrameNo(start / PAGE_SIZE);
    Ok(FrameRange::new(start, start.plus(size / PAGE_SIZE)))
}

/// The number in a file, decimal or hexadecimal with `0x`.
fn number(path: &Path) -> Result<u64, FrameError> {
    let text = fs::read_to_string(path).map_err(|source| FrameError::Read { path: path.to_owned(), source })?;
    let text = text.trim();
    let parsed = text.strip_prefix("0x").map_or_else(|| text.parse().ok(), |hex| u64::from_str_radix(hex, 16).ok());
    parsed.ok_or_else(|| FrameError::Garbled {
        path: path.to_owned(),
        expected: "a number",
        got: text.chars().take(40).collect(),
    })
}

impl FrameSource for DaxFrames {
    fn pages(&self) -> u64 {
        self.pages
    }

    fn frames(&self, pages: Range<u64>) -> Result<Vec<Option<FrameNo>>, FrameError> {
        within(&pages, self.pages)?;
        let of = |page: u64| {
            let page = self.first.checked_add(page)?;
            let holds = |extent: &&Extent| page.checked_sub(extent.first).is_some_and(|i| i < extent.frames.len());
            let extent = self.extents.iter().find(holds)?;
            Some(extent.frames.start.plus(page - extent.first))
        };
        Ok(pages.map(of).collect())
    }

    fn describe(&self) -> String {
        let pieces = self.extents.len();
        let pieces = if pieces == 1 { "one piece".to_owned() } else { format!("{pieces} pieces") };
        format!("the physical addresses of {}, in {pieces}", self.dir.display())
    }
}

/// Uses the offset in the mapping as the physical address. This is right for contiguous memory, where only differences
/// count. Otherwise the numbers describe a machine that is not this one.
#[derive(Clone, Copy, Debug)]
pub struct OffsetIsPhysical {
    /// The frame of the first page.
    pub first: FrameNo,
    /// Length of the mapping.
    pub len: Bytes,
}

impl FrameSource for OffsetIsPhysical {
    fn pages(&self) -> u64 {
        self.len.pages()
    }

    fn frames(&self, pages: Range<u64>) -> Result<Vec<Option<FrameNo>>, FrameError> {
        within(&pages, self.pages())?;
        Ok(pages.map(|page| Some(self.first.plus(page))).collect())
    }

    fn describe(&self) -> String {
        format!("places in the mapping, taken for frames from {} on: not those of this machine", self.first.0)
    }
}

#[cfg(test)]
mod tests;
