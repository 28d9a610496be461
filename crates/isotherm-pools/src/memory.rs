//! Mappings: the system calls of this crate, and what makes them safe to use.
//!
//! Not in `isotherm-sys`, the home of system calls: that crate brings the BPF loader and its C libraries with it, which someone who
//! wants memory for his program should not have to build.
//!
//! A [`Span`] reserves addresses first, without access, and puts memory behind parts of them later, so that what a pool grows by
//! lies where its frame numbers say.

#![expect(unsafe_code, reason = "mappings and descriptors are made here")]

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

/// Not in libc for every target: the number is the same on all that have no numbers of their own.
const MADV_DONTNEED_LOCKED: libc::c_int = 24;
/// A memfd that cannot be made executable (Linux 6.3).
const MFD_NOEXEC_SEAL: libc::c_uint = 8;

const READ_WRITE: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

fn map_new(len: usize, protection: libc::c_int) -> io::Result<NonNull<u8>> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice replaces nothing; the result is checked.
    let mapped = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0) };
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

// SAFETY: the mapping belongs to the process, not to a thread; what is in it is reached through `&mut self` or atomics.
unsafe impl Send for Private {}
// SAFETY: as above.
unsafe impl Sync for Private {}

impl Private {
    pub(crate) fn new(len: usize) -> io::Result<Private> {
        let len = len.max(1);
        Ok(Private { start: map_new(len, READ_WRITE)?, len })
    }

    /// All of it, zero if this is the first call.
    ///
    /// # Safety
    /// To be called once, and what came of it must be gone before `self` is dropped.
    pub(crate) unsafe fn bytes(&self) -> &'static mut [u8] {
        // SAFETY: `len` bytes from `start` are mapped and initialised (zero) until `self` is dropped; the caller calls this once,
        // so nobody else has them.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what `new` mapped, once; nobody has a reference into it any more, as `bytes` demands.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

const HERE: u32 = 1;
/// What the kernel leaves in a child.
const WIPED: u32 = 0;

/// A page that tells a process from its children: the kernel wipes it in them.
#[derive(Debug)]
pub(crate) struct ForkMark(Private);

impl ForkMark {
    pub(crate) fn new() -> io::Result<ForkMark> {
        let page = Private::new(1)?;
        // SAFETY: advises exactly the page mapped above; madvise rounds the length up to it.
        checked(unsafe { libc::madvise(page.start.as_ptr().cast(), page.len, libc::MADV_WIPEONFORK) })?;
        let mark = ForkMark(page);
        mark.set();
        Ok(mark)
    }

    fn word(&self) -> &AtomicU32 {
        // SAFETY: the page is mapped for as long as `self` lives, aligned, and reached only here, as an atomic.
        unsafe { AtomicU32::from_ptr(self.0.start.as_ptr().cast()) }
    }

    /// Whether this is the process that set the mark last.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        self.word().load(Ordering::Relaxed) != WIPED
    }

    /// Makes this the process.
    pub(crate) fn set(&self) {
        self.word().store(HERE, Ordering::Relaxed);
    }
}

/// Addresses of which parts have memory behind them.
#[derive(Debug)]
pub(crate) struct Span {
    mapped: NonNull<u8>,
    mapped_len: usize,
    start: NonNull<u8>,
    len: usize,
    /// There if children do not get the mapping: tells whether it is here.
    hidden: Option<ForkMark>,
}

// SAFETY: the mapping belongs to the process, not to a thread; who may reach what in it is for those to say who call `bytes`.
unsafe impl Send for Span {}
// SAFETY: as above.
unsafe impl Sync for Span {}

impl Span {
    /// Reserves `len` bytes whose start is `phase` above a multiple of `align`. `len` and `phase` are multiples of a page, `align`
    /// is a power of two above both a page and `phase`. Children do not get it if it is `hidden`.
    pub(crate) fn reserve(len: usize, align: usize, phase: usize, hidden: bool) -> io::Result<Span> {
        // So much more than asked that a start of that kind is among the first `align` bytes:
        //
        //   mapped            start = phase (mod align)    start + len
        //   |---- < align ----|------------ len ------------|-- rest --|
        let mapped_len = len.checked_add(align).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        let mapped = map_new(mapped_len, libc::PROT_NONE)?;
        let skip = phase.wrapping_sub(mapped.as_ptr().addr()) & (align - 1);
        // SAFETY: `skip` is less than `align`, so `len` bytes from there lie within the mapping.
        let start = unsafe { mapped.add(skip) };
        let mut span = Span { mapped, mapped_len, start, len, hidden: None };
        if hidden {
            span.hidden = Some(ForkMark::new()?);
            span.hide(mapped, mapped_len)?;
        }
        Ok(span)
    }

    /// Keeps a part away from children.
    fn hide(&self, start: NonNull<u8>, len: usize) -> io::Result<()> {
        // SAFETY: advises a part of our own mapping; only what children get changes.
        checked(unsafe { libc::madvise(start.as_ptr().cast(), len, libc::MADV_DONTFORK) })
    }

    fn at(&self, offset: usize, len: usize) -> io::Result<NonNull<u8>> {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: `offset` lies within the mapping, as was just checked.
        Ok(unsafe { self.start.add(offset) })
    }

    /// Replaces what is behind a part. It is not yet kept away from children.
    fn replace(
        &self,
        (offset, len): (usize, usize),
        protection: libc::c_int,
        flags: libc::c_int,
        fd: libc::c_int,
    ) -> io::Result<()> {
        let start = self.at(offset, len)?;
        let file_offset = if fd < 0 { 0 } else { libc::off_t::try_from(offset).map_err(io::Error::other)? };
        // SAFETY: replaces a part of our own reservation, as `at` checked; that nobody uses what was there is what the callers
        // demand. The result is checked.
        let mapped =
            unsafe { libc::mmap(start.as_ptr().cast(), len, protection, flags | libc::MAP_FIXED, fd, file_offset) };
        if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Puts memory behind a part: that of `file` at the same offset, or memory of its own. On an error there is none.
    ///
    /// Of a span that is hidden, a plain `fork` by another thread between mapping and hiding gives the child this part of the mapping,
    /// shared. No call is open to the child that would hand it out, but stray writes of its would reach the parent.
    ///
    /// # Safety
    /// There must be no reference into that part.
    pub(crate) unsafe fn back(&self, part: (usize, usize), file: Option<&File>) -> io::Result<()> {
        match file {
            Some(file) => self.replace(part, READ_WRITE, libc::MAP_SHARED, file.as_raw_fd())?,
            None => {
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
                self.replace(part, READ_WRITE, flags, -1)?;
            }
        }
        self.hide_part(part).inspect_err(|_| {
            // SAFETY: just mapped, and nobody was told.
            let _ = unsafe { self.unback(part) };
        })
    }

    fn hide_part(&self, (offset, len): (usize, usize)) -> io::Result<()> {
        if self.hidden.is_some() { self.hide(self.at(offset, len)?, len) } else { Ok(()) }
    }

    /// Takes the memory behind a part away; the addresses stay reserved.
    ///
    /// # Safety
    /// There must be no reference into that part.
    pub(crate) unsafe fn unback(&self, part: (usize, usize)) -> io::Result<()> {
        self.replace(part, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1)?;
        // Without it a child gets addresses that nobody can use: no harm, and no reason to fail.
        let _ = self.hide_part(part);
        Ok(())
    }

    /// Gives memory of our own behind a part back to the system: it is zero from then on.
    ///
    /// # Safety
    /// There must be no reference into that part, which is backed, but not by a file.
    pub(crate) unsafe fn discard(&self, (offset, len): (usize, usize)) -> io::Result<()> {
        let start = self.at(offset, len)?;
        // SAFETY: advises a part of our own mapping that nobody refers to.
        let advise = |advice| checked(unsafe { libc::madvise(start.as_ptr().cast(), len, advice) });
        match advise(libc::MADV_DONTNEED) {
            // What the kernel says of memory that is locked; there is an advice of its own for that since Linux 5.18.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => advise(MADV_DONTNEED_LOCKED).map_err(|_| {
                io::Error::other("the kernel gives back no memory that is locked (mlock, mlockall); munlock it first")
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
        // SAFETY: unmaps exactly what `reserve` mapped, once; whoever has blocks of it holds the pool, and with it `self`.
        unsafe { libc::munmap(self.mapped.as_ptr().cast(), self.mapped_len) };
    }
}

/// A memfd that nobody can make shorter, nor seal further: a seal against growing or writing, from whoever has the descriptor, would
/// break growing, shrinking and trimming. Where the kernel can, it is not executable.
pub(crate) fn memfd(name: &CStr, flags: libc::c_uint) -> io::Result<File> {
    let flags = flags | libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    let file = create_memfd(name, flags | MFD_NOEXEC_SEAL).or_else(|error| match error.raw_os_error() {
        Some(libc::EINVAL) => create_memfd(name, flags),
        _ => Err(error),
    })?;
    // SAFETY: fcntl with a descriptor of our own and an integer.
    checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL) })?;
    Ok(file)
}

fn create_memfd(name: &CStr, flags: libc::c_uint) -> io::Result<File> {
    // SAFETY: the name is a string that ends with a zero and outlives the call.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel returned it just now and nobody else has it.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// Makes a memfd longer. Above the limit of the process for the size of files the kernel would send SIGXFSZ, which ends it: that is
/// looked at first.
pub(crate) fn set_len(file: &File, len: u64) -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: getrlimit writes to a structure of ours.
    checked(unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) })?;
    if limit.rlim_cur != libc::RLIM_INFINITY && len > limit.rlim_cur {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    if libc::off_t::try_from(len).is_err() {
        return Err(io::Error::from_raw_os_error(libc::ENOMEM));
    }
    file.set_len(len)
}

/// Gives a part of a memfd back to the system: it is zero from then on.
///
/// # Safety
/// There must be no reference to that part in any mapping of this process.
pub(crate) unsafe fn punch(file: &File, (offset, len): (usize, usize)) -> io::Result<()> {
    let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
    let len = libc::off_t::try_from(len).map_err(io::Error::other)?;
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: fallocate with a descriptor of our own and integers; nobody refers to what changes.
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
