//! Mappings: the system calls of this crate, and what makes them safe to use.
//!
//! They are not in `isotherm-sys`, where the system calls of other crates are. That crate brings the BPF loader and its
//! C libraries, which users of this one should not have to build.
//!
//! A [`Span`] first reserves addresses without access and puts memory behind parts of them later. So memory that a pool
//! grows by is where its frame numbers say.

#![expect(unsafe_code, reason = "mappings and descriptors are made here")]

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// libc does not have it for every target. The number is the same on all that do not define their own.
const MADV_DONTNEED_LOCKED: libc::c_int = 24;
/// A memfd that cannot be made executable (Linux 6.3).
const MFD_NOEXEC_SEAL: libc::c_uint = 8;

const READ_WRITE: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

fn map_new(len: usize, protection: libc::c_int) -> io::Result<NonNull<u8>> {
    map_anywhere(len, protection, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, (-1, 0))
}

/// A new mapping of the descriptor from that offset on; of none if it is -1.
fn map_anywhere(
    len: usize,
    protection: libc::c_int,
    flags: libc::c_int,
    (fd, offset): (libc::c_int, libc::off_t),
) -> io::Result<NonNull<u8>> {
    // SAFETY: a new mapping at an address that the kernel chooses replaces nothing; the result is checked.
    let mapped = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, fd, offset) };
    match NonNull::new(mapped.cast()) {
        Some(start) if mapped != libc::MAP_FAILED => Ok(start),
        _ => Err(io::Error::last_os_error()),
    }
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Private anonymous memory, zero until written to. Unmapped on drop.
#[derive(Debug)]
pub(crate) struct Private {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread; its contents are reached through `&mut self` or atomics.
unsafe impl Send for Private {}
// SAFETY: as above.
unsafe impl Sync for Private {}

impl Private {
    pub(crate) fn new(len: usize) -> io::Result<Private> {
        let len = len.max(1);
        Ok(Private { start: map_new(len, READ_WRITE)?, len })
    }

    /// All of it; zero at the first call.
    ///
    /// # Safety
    /// Call it once. The result must not be used after `self` is dropped.
    pub(crate) unsafe fn bytes(&self) -> &'static mut [u8] {
        // SAFETY: `len` bytes from `start` are mapped and initialised (zero) until `self` is dropped. The caller calls
        // this once, so nothing else refers to them.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what `new` mapped, once. As `bytes` requires, no reference into it remains.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

const HERE: u32 = 1;
/// The kernel's value in a child.
const WIPED: u32 = 0;

/// A page that distinguishes a process from its children, because the kernel wipes it in children.
#[derive(Debug)]
pub(crate) struct ForkDetector(Private);

impl ForkDetector {
    pub(crate) fn new() -> io::Result<ForkDetector> {
        let page = Private::new(1)?;
        // SAFETY: advises exactly the page mapped above; madvise rounds the length up to it.
        checked(unsafe { libc::madvise(page.start.as_ptr().cast(), page.len, libc::MADV_WIPEONFORK) })?;
        let mark = ForkDetector(page);
        mark.set();
        Ok(mark)
    }

    fn word(&self) -> &AtomicU32 {
        // SAFETY: the page is mapped for as long as `self` lives, is aligned, and is reached only here, as an atomic.
        unsafe { AtomicU32::from_ptr(self.0.start.as_ptr().cast()) }
    }

    /// Whether this is the process that set the mark last.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        self.word().load(Ordering::Relaxed) != WIPED
    }

    /// Makes this process the one that set the mark last.
    pub(crate) fn set(&self) {
        self.word().store(HERE, Ordering::Relaxed);
    }
}

/// A range of addresses, parts of which have memory behind them.
#[derive(Debug)]
pub(crate) struct Span {
    mapped: NonNull<u8>,
    mapped_len: usize,
    start: NonNull<u8>,
    len: usize,
    /// Present if children do not get the mapping. Shows whether this process has it.
    hidden: Option<ForkDetector>,
    /// A part of the addresses is no longer reserved, and may be anybody's.
    has_hole: AtomicBool,
}

// SAFETY: the mapping belongs to the process, not to a thread. Callers of `address` control who accesses what in it.
unsafe impl Send for Span {}
// SAFETY: as above.
unsafe impl Sync for Span {}

impl Span {
    /// Reserves `len` bytes that start `phase` bytes above a multiple of `align`. `len` and `phase` are multiples of a
    /// page. `align` is a power of two that is larger than a page and than `phase`. If `hidden`, children do not get
    /// the mapping.
    pub(crate) fn reserve(len: usize, align: usize, phase: usize, hidden: bool) -> io::Result<Span> {
        // Map more than requested, so that one of the first `align` bytes is such a start:
        //
        //   mapped            start = phase (mod align)    start + len
        //   |---- < align ----|------------ len ------------|-- rest --|
        let mapped_len = len.checked_add(align).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        let mapped = map_new(mapped_len, libc::PROT_NONE)?;
        let skip = phase.wrapping_sub(mapped.as_ptr().addr()) & (align - 1);
        // SAFETY: `skip` is less than `align`, so `len` bytes from there lie within the mapping.
        let start = unsafe { mapped.add(skip) };
        let mut span = Span { mapped, mapped_len, start, len, hidden: None, has_hole: AtomicBool::new(false) };
        if hidden {
            span.hidden = Some(ForkDetector::new()?);
            span.hide(mapped, mapped_len)?;
        }
        Ok(span)
    }

    /// Hides a part from children.
    fn hide(&self, start: NonNull<u8>, len: usize) -> io::Result<()> {
        // SAFETY: advises a part of our own mapping; only what children get changes.
        checked(unsafe { libc::madvise(start.as_ptr().cast(), len, libc::MADV_DONTFORK) })
    }

    /// The start of a part. There is none once some of the addresses may be of another mapping: nothing may change that.
    fn at(&self, offset: usize, len: usize) -> io::Result<NonNull<u8>> {
        if self.has_hole.load(Ordering::Relaxed) {
            return Err(io::Error::other("a part of the reserved addresses was lost to another mapping"));
        }
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: `offset` lies within the mapping, as was just checked.
        Ok(unsafe { self.start.add(offset) })
    }

    /// Replaces what is behind a part. Children can still get it: hide it afterwards. On an error the part is reserved, and has no memory.
    fn replace(
        &self,
        part: (usize, usize),
        protection: libc::c_int,
        flags: libc::c_int,
        fd: libc::c_int,
    ) -> io::Result<()> {
        self.map_over(part, protection, flags, fd).inspect_err(|_| self.reserve_again(part))
    }

    /// Reserves a part that may not be reserved any more. `MAP_FIXED` first unmaps what was there, and the kernel leaves a gap if the new mapping
    /// fails after that: another thread's mapping could come into it, and the next change of the pool would replace that.
    fn reserve_again(&self, (offset, len): (usize, usize)) {
        let Ok(start) = self.at(offset, len) else { return };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: replaces nothing. The result is checked.
        let mapped = unsafe { libc::mmap(start.as_ptr().cast(), len, libc::PROT_NONE, flags, -1, 0) };
        if mapped == start.as_ptr().cast() {
            // If this fails, a child gets addresses that no one can use.
            let _ = self.hide_part((offset, len));
            return;
        }
        let error = io::Error::last_os_error();
        if mapped != libc::MAP_FAILED {
            // SAFETY: what was just mapped, elsewhere, by a kernel before 4.17, which knows no such flag.
            unsafe { libc::munmap(mapped, len) };
        }
        // Something is there. It is what was there before, unless another thread was that fast.
        let is_there = mapped == libc::MAP_FAILED && error.raw_os_error() == Some(libc::EEXIST);
        self.has_hole.fetch_or(!is_there, Ordering::Relaxed);
    }

    fn map_over(
        &self,
        (offset, len): (usize, usize),
        protection: libc::c_int,
        flags: libc::c_int,
        fd: libc::c_int,
    ) -> io::Result<()> {
        let start = self.at(offset, len)?;
        let file_offset = if fd < 0 { 0 } else { libc::off_t::try_from(offset).map_err(io::Error::other)? };
        // SAFETY: replaces a part of our own reservation, as `at` checked. The callers guarantee that nothing uses what
        // was there. The result is checked.
        let mapped =
            unsafe { libc::mmap(start.as_ptr().cast(), len, protection, flags | libc::MAP_FIXED, fd, file_offset) };
        if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Puts memory behind a part: that of `file` at the same offset, or private memory. On an error there is none.
    ///
    /// In a hidden span, a plain `fork` by another thread can come between mapping and hiding. The child then shares
    /// this part of the mapping. No call in the child can allocate from it, but stray writes of the child would reach
    /// the parent.
    ///
    /// # Safety
    /// There must be no reference into that part.
    pub(crate) unsafe fn back(&self, part: (usize, usize), file: Option<&File>) -> io::Result<()> {
        match file {
            Some(file) => self.replace(part, READ_WRITE, libc::MAP_SHARED, file.as_raw_fd())?,
            // What is reserved is private memory already. Where the kernel commits no more than there is, this fails and unmaps nothing.
            None => self.open_up(part)?,
        }
        self.hide_part(part).inspect_err(|_| {
            // SAFETY: just mapped, and no one knows about it yet.
            let _ = unsafe { self.unback(part) };
        })
    }

    /// Makes a part of the reservation readable and writable.
    fn open_up(&self, (offset, len): (usize, usize)) -> io::Result<()> {
        let start = self.at(offset, len)?;
        // SAFETY: a part of our own reservation, to which nothing refers.
        checked(unsafe { libc::mprotect(start.as_ptr().cast(), len, READ_WRITE) })
    }

    fn hide_part(&self, (offset, len): (usize, usize)) -> io::Result<()> {
        if self.hidden.is_some() { self.hide(self.at(offset, len)?, len) } else { Ok(()) }
    }

    /// Removes the memory behind a part; the addresses stay reserved.
    ///
    /// # Safety
    /// There must be no reference into that part.
    pub(crate) unsafe fn unback(&self, part: (usize, usize)) -> io::Result<()> {
        self.replace(part, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1)?;
        // If this fails, a child gets addresses that no one can use. That is harmless and no reason to fail.
        let _ = self.hide_part(part);
        Ok(())
    }

    /// Returns private memory behind a part to the system: it is zero from then on.
    ///
    /// # Safety
    /// There must be no reference into that part. It must be backed, but not by a file.
    pub(crate) unsafe fn discard(&self, (offset, len): (usize, usize)) -> io::Result<()> {
        let start = self.at(offset, len)?;
        // SAFETY: advises a part of our own mapping that nothing refers to.
        let advise = |advice| checked(unsafe { libc::madvise(start.as_ptr().cast(), len, advice) });
        match advise(libc::MADV_DONTNEED) {
            // The kernel's error for locked memory, which has its own advice since Linux 5.18.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => advise(MADV_DONTNEED_LOCKED).map_err(|_| {
                io::Error::other("the kernel cannot return memory that is locked (mlock, mlockall); munlock it first")
            }),
            done => done,
        }
    }

    /// The address of an offset, which must be below the length.
    #[inline]
    pub(crate) fn address(&self, offset: usize) -> NonNull<u8> {
        debug_assert!(offset < self.len, "offset {offset} in a span of {}", self.len);
        // SAFETY: every frame number is checked against the span before it becomes an offset, so it lies within the mapping.
        unsafe { self.start.add(offset) }
    }

    /// The offset of an address.
    pub(crate) fn offset(&self, address: *const u8) -> Option<usize> {
        let offset = address.addr().wrapping_sub(self.start.as_ptr().addr());
        (offset < self.len).then_some(offset)
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        // A child does not have the mapping; something else may be there.
        if self.hidden.as_ref().is_some_and(|mark| !mark.is_here()) {
            return;
        }
        // What another thread has mapped in the middle must stay.
        if self.has_hole.load(Ordering::Relaxed) {
            return;
        }
        // SAFETY: unmaps exactly what `reserve` mapped, once. Owners of blocks hold the pool, and with it `self`.
        unsafe { libc::munmap(self.mapped.as_ptr().cast(), self.mapped_len) };
    }
}

/// Reserves huge pages for a part of a file. Fails where there are too few, and replaces nothing then. They belong to the file, and stay reserved when this
/// mapping of them is gone.
pub(crate) fn reserve_huge_pages(file: &File, (offset, len): (usize, usize)) -> io::Result<()> {
    let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
    let mapped = map_anywhere(len, READ_WRITE, libc::MAP_SHARED, (file.as_raw_fd(), offset))?;
    // SAFETY: unmaps exactly what was just mapped, which nobody knows of.
    checked(unsafe { libc::munmap(mapped.as_ptr().cast(), len) })
}

/// A memfd that cannot be made shorter or sealed further. A seal against growing or writing, by any holder of the
/// descriptor, would break growing, shrinking and trimming. If the kernel supports it, the memfd is not executable.
pub(crate) fn memfd(name: &CStr, flags: libc::c_uint) -> io::Result<File> {
    let flags = flags | libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    let file = create_memfd(name, flags | MFD_NOEXEC_SEAL).or_else(|error| match error.raw_os_error() {
        Some(libc::EINVAL) => create_memfd(name, flags),
        _ => Err(error),
    })?;
    // SAFETY: fcntl with our own descriptor and an integer.
    checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL) })?;
    Ok(file)
}

fn create_memfd(name: &CStr, flags: libc::c_uint) -> io::Result<File> {
    // SAFETY: the name is a string that ends with a zero and outlives the call.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned it, and nothing else uses it.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// Extends a memfd. First checks the process's file size limit: above it, the kernel would send SIGXFSZ, which ends the
/// process.
pub(crate) fn set_len(file: &File, len: u64) -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: getrlimit writes to our own structure.
    checked(unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) })?;
    if limit.rlim_cur != libc::RLIM_INFINITY && len > limit.rlim_cur {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    if libc::off_t::try_from(len).is_err() {
        return Err(io::Error::from_raw_os_error(libc::ENOMEM));
    }
    file.set_len(len)
}

/// Returns a part of a memfd to the system: it is zero from then on.
///
/// # Safety
/// There must be no reference to that part in any mapping of this process.
pub(crate) unsafe fn punch(file: &File, (offset, len): (usize, usize)) -> io::Result<()> {
    let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
    let len = libc::off_t::try_from(len).map_err(io::Error::other)?;
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: fallocate with our own descriptor and integers; nothing refers to what changes.
    checked(unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, len) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_starts_where_it_is_asked_to() {
        for (align, phase) in [(4 << 20, 0), (4 << 20, 12 << 10), (1 << 30, 6 << 20)] {
            let span = Span::reserve(8 << 20, align, phase, false).unwrap();
            assert_eq!(span.address(0).as_ptr().addr() % align, phase);
            assert_eq!(span.offset(span.address(4097).as_ptr()), Some(4097));
            assert_eq!(span.offset(span.address(0).as_ptr().wrapping_add(8 << 20)), None);
            assert_eq!(span.offset(span.address(0).as_ptr().wrapping_sub(1)), None);
        }
    }

    #[test]
    fn parts_are_within_the_span() {
        let span = Span::reserve(2 << 20, 4 << 20, 0, false).unwrap();
        assert!(span.at(1 << 20, 1 << 20).is_ok());
        assert!(span.at(1 << 20, (1 << 20) + 1).is_err());
        assert!(span.at(usize::MAX, 2).is_err());
    }

    /// Whether all of these addresses are mapped: the kernel says ENOMEM of those that are not.
    fn is_reserved(start: NonNull<u8>, len: usize) -> bool {
        let mut resident = vec![0_u8; len.div_ceil(4096)];
        // SAFETY: asks about addresses, and writes a byte for each page to a vector of that length.
        unsafe { libc::mincore(start.as_ptr().cast(), len, resident.as_mut_ptr()) == 0 }
    }

    /// Whether children do not get the mapping that has this address.
    fn is_kept_from_children(address: NonNull<u8>) -> bool {
        let (smaps, address) = (std::fs::read_to_string("/proc/self/smaps").unwrap(), address.as_ptr().addr());
        let mut is_in_it = false;
        for line in smaps.lines() {
            let range = line.split(' ').next().and_then(|word| word.split_once('-'));
            if let Some((start, end)) = range {
                let bound = |text| usize::from_str_radix(text, 16).ok();
                is_in_it = bound(start).zip(bound(end)).is_some_and(|(start, end)| (start..end).contains(&address));
            }
            if is_in_it && line.starts_with("VmFlags:") {
                return line.split(' ').any(|flag| flag == "dc");
            }
        }
        panic!("{address:#x} is not mapped");
    }

    #[test]
    fn addresses_stay_reserved_where_no_memory_comes_behind_them() {
        // More huge pages than any machine has.
        let part = (2 << 20, 1 << 45);
        let Ok(file) = memfd(c"isotherm-test", libc::MFD_HUGETLB) else {
            let _ = io::Write::write_all(&mut io::stderr(), b"skipped: needs memfds of huge pages\n");
            return;
        };
        set_len(&file, part.1 as u64 * 2).unwrap();
        for hidden in [false, true] {
            let span = Span::reserve(part.1 + (4 << 20), 4 << 20, 0, hidden).unwrap();
            let middle = span.at(part.0 + part.1 / 2, 1 << 20).unwrap();
            let is_left = |failed: io::Result<()>| (failed.is_err(), is_reserved(middle, 1 << 20));
            assert_eq!(is_left(reserve_huge_pages(&file, part)), (true, true));
            // Where the pages went after that.
            let replaced = span.replace(part, READ_WRITE, libc::MAP_SHARED, file.as_raw_fd());
            assert_eq!(is_left(replaced), (true, true));
            assert_eq!(is_kept_from_children(middle), hidden);
            assert!(!span.has_hole.load(Ordering::Relaxed));
        }
    }

    #[test]
    fn where_an_address_was_lost_nothing_is_changed_any_more() {
        let span = Span::reserve(2 << 20, 4 << 20, 0, false).unwrap();
        span.has_hole.store(true, Ordering::Relaxed);
        let part = (0, 1 << 20);
        // SAFETY: nobody refers to it.
        let changes = unsafe { [span.back(part, None), span.unback(part), span.discard(part)] };
        assert!(changes.into_iter().all(|change| change.unwrap_err().to_string().contains("lost to another mapping")));
    }

    #[test]
    fn a_memfd_cannot_be_made_shorter() {
        let file = memfd(c"isotherm-test", 0).unwrap();
        file.set_len(8192).unwrap();
        assert!(file.set_len(4096).is_err());
        set_len(&file, 16384).unwrap();
        assert_eq!(set_len(&file, u64::MAX).unwrap_err().raw_os_error(), Some(libc::ENOMEM));
    }

    #[test]
    fn a_memfd_takes_no_more_seals() {
        let file = memfd(c"isotherm-test", 0).unwrap();
        for seal in [libc::F_SEAL_GROW, libc::F_SEAL_FUTURE_WRITE] {
            // SAFETY: fcntl with a descriptor of our own and an integer.
            let sealed = checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seal) });
            assert_eq!(sealed.unwrap_err().raw_os_error(), Some(libc::EPERM));
        }
        file.set_len(4096).unwrap();
    }

    #[test]
    fn a_memfd_is_not_executable_where_the_kernel_can() {
        use std::os::unix::fs::PermissionsExt;
        if create_memfd(c"isotherm-test", MFD_NOEXEC_SEAL).is_err() {
            let _ = io::Write::write_all(&mut io::stderr(), b"skipped: needs MFD_NOEXEC_SEAL (Linux 6.3)\n");
            return;
        }
        let file = memfd(c"isotherm-test", 0).unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o111, 0);
        assert!(file.set_permissions(std::fs::Permissions::from_mode(0o755)).is_err());
    }

    #[test]
    fn locked_memory_is_given_back() {
        let span = Span::reserve(2 << 20, 4 << 20, 0, false).unwrap();
        let part = (0, 1 << 20);
        // SAFETY: nobody refers to it.
        unsafe { span.back(part, None) }.unwrap();
        let start = span.address(0).as_ptr();
        // SAFETY: it is mapped, and locking moves nothing.
        if unsafe { libc::mlock(start.cast(), part.1) } != 0 {
            let _ = io::Write::write_all(&mut io::stderr(), b"skipped: needs a MiB that may be locked\n");
            return;
        }
        // SAFETY: it is mapped, and nobody else knows of it.
        unsafe { start.write(7) };
        // SAFETY: as above.
        match unsafe { span.discard(part) } {
            // SAFETY: as above.
            Ok(()) => assert_eq!(unsafe { start.read() }, 0),
            Err(error) => assert!(error.to_string().contains("mlock"), "{error}"),
        }
    }
}
