//! Which page frame holds which page of a mapping: what placing by frames, and telling conflicts, start from.
//!
//! A process is not meant to know. [`Pagemap`] tells those who have CAP_SYS_ADMIN, page by page; hugetlb pages need one
//! look for each, since a huge page lies in one piece ([`HugetlbFrames`]); a device-DAX device says where its memory
//! begins ([`DaxFrames`]); and for a pool whose owner knows nothing of the kind there is [`OffsetIsPhysical`]. They
//! differ in what they may be believed, so each says in a line what it goes by: reports print it.
//!
//! In a virtual machine all of this is about the guest's frames. Where those lie is the host's to know.

use crate::pagemap::Pagemap;
use isotherm_units::{Addr, AddrRange, Bytes, FrameNo, FrameRange, PAGE_SIZE};
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why no frame is told.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FrameError {
    /// Pages are there, and the kernel shows zeros for their frames.
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
    /// A file holds something else than the kernel documents.
    #[error("read {path}: expected {expected}, got {got:?}")]
    Garbled {
        /// The file.
        path: PathBuf,
        /// What should be in it.
        expected: &'static str,
        /// What is.
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
    /// A mapping is not what it was said to be.
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

    /// The frames of `pages`, in order; `None` for a page that is in none at the moment. Frames can change as soon as
    /// they are told, unless the memory is of a kind that stays. From pagemap it takes about 14 ms a GiB.
    fn frames(&self, pages: Range<u64>) -> Result<Vec<Option<FrameNo>>, FrameError>;

    /// What the numbers go by, in a line.
    fn describe(&self) -> String;

    /// The frame of the page that holds byte `offset` of the mapping.
    fn frame(&self, offset: u64) -> Result<FrameNo, FrameError> {
        let page = offset / PAGE_SIZE;
        let told = self.frames(page..page + 1)?;
        told.first().copied().flatten().ok_or(FrameError::NotPresent { page })
    }
}

/// `pages`, if the mapping has them all.
fn within(pages: &Range<u64>, all: u64) -> Result<(), FrameError> {
    if pages.end <= all { Ok(()) } else { Err(FrameError::PastTheEnd { page: pages.end - 1, pages: all }) }
}

/// From `/proc/PID/pagemap`, an entry for each page.
#[derive(Debug)]
pub struct PagemapFrames {
    pagemap: Pagemap,
    path: PathBuf,
    range: AddrRange,
}

impl PagemapFrames {
    /// Of the mapping `range` of process `pid` below `proc`. What the range covers besides mappings is in no frame.
    pub fn open(proc: &Path, pid: u32, range: AddrRange) -> Result<PagemapFrames, FrameError> {
        let path = proc.join(pid.to_string()).join("pagemap");
        match Pagemap::open(proc, pid) {
            Ok(pagemap) => Ok(PagemapFrames { pagemap, path, range }),
            Err(source) => Err(FrameError::Read { path, source }),
        }
    }

    /// Of a mapping of our own.
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
            // A present page always has a frame other than 0, which belongs to the firmware.
            if entry.is_present() && entry.frame().is_none() {
                return Err(FrameError::Hidden { path: self.path.clone() });
            }
            frames.push(entry.frame().map(FrameNo));
        }
        // Past the end of the address space, and of a process that has ended, there are no entries.
        frames.resize(usize::try_from(pages.end - pages.start).unwrap_or(frames.len()), None);
        Ok(frames)
    }

    fn describe(&self) -> String {
        format!("frame numbers of {}, as they are now", self.path.display())
    }
}

/// From `/proc/PID/pagemap`, with one look for each huge page. Hugetlb pages stay where they are.
#[derive(Debug)]
pub struct HugetlbFrames {
    small: PagemapFrames,
    size: Bytes,
}

impl HugetlbFrames {
    /// Of a mapping of hugetlb pages of `size` each, a power of two of 4 KiB or more, to which `range` has to be
    /// aligned.
    pub fn open(proc: &Path, pid: u32, range: AddrRange, size: Bytes) -> Result<HugetlbFrames, FrameError> {
        let aligned = |addr: Addr| addr.0.is_multiple_of(size.0);
        if !size.0.is_power_of_two() || size.0 < PAGE_SIZE || !aligned(range.start) || !aligned(range.end) {
            return Err(FrameError::NotHuge { page: 0, size });
        }
        Ok(HugetlbFrames { small: PagemapFrames::open(proc, pid, range)?, size })
    }

    /// Of a mapping of our own.
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

/// A piece of a DAX device: pages of the device from `first` on lie in `frames`.
#[derive(Clone, Copy, Debug)]
struct Extent {
    first: u64,
    frames: FrameRange,
}

/// From what sysfs tells of a device-DAX device: its memory is mapped as it is, and stays.
#[derive(Debug)]
pub struct DaxFrames {
    dir: PathBuf,
    extents: Vec<Extent>,
    /// Page of the device at which the mapping begins, and its length.
    first: u64,
    pages: u64,
}

impl DaxFrames {
    /// Of a mapping of `len` bytes of the device `name` (such as `dax0.0`) from byte `offset` on. `sys` is where sysfs
    /// is. What says where the device lies is readable for root only.
    pub fn open(sys: &Path, name: &str, offset: u64, len: Bytes) -> Result<DaxFrames, FrameError> {
        let dir = sys.join("bus/dax/devices").join(name);
        let mut extents = Vec::new();
        // Since 5.10 a device may be in several pieces, which are listed apart.
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
        // The last byte, and not the one after it.
        let end = number(&dir.join("end"))?;
        let size = end.checked_sub(start).and_then(|len| len.checked_add(1)).unwrap_or(0);
        // Counted in base pages, for all the name says.
        Ok(Extent { first: number(&dir.join("page_offset"))?, frames: frames(&dir.join("start"), start, size)? })
    }
}

/// Frames of `size` bytes of physical memory from `start` on, which `path` has told.
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

/// Takes the place in the mapping for the physical one. Right for memory that lies in one piece, where only differences
/// count; otherwise what is told is about a machine that is not this one.
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
