//! Acting on another process through its pidfd with `process_madvise`: clearing accessed bits (`MADV_COLD`),
//! collapsing a huge range into a huge page (`MADV_COLLAPSE`), paging out (`MADV_PAGEOUT`), and reading from swap (`MADV_WILLNEED`).
//!
//! A pidfd names one process for good, so nothing here can hit a later process with the same pid. It stays valid
//! through an exec, though. A caller that advises on addresses of one program has to check that the process still runs
//! it.

use isotherm_units::{Addr, AddrRange, Bytes, PAGE_SIZE, PMD_SIZE, PmdNo};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The most ranges the kernel takes in one call (UIO_MAXIOV).
pub const MAX_RANGES: usize = 1024;

/// Why the kernel did not collapse a huge range.
///
/// The kernel chooses the errors of this advice so that the caller knows what to do next (`madvise_collapse_errno` in
/// `mm/khugepaged.c`): retry at once, retry later, or give up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CollapseError {
    /// `EAGAIN`: a page is locked, pinned or off its LRU list at the moment. A retry is likely to work.
    #[error("collapse a huge range: a page of it is busy (EAGAIN)")]
    Busy,
    /// `EBUSY`: its cgroup has no room for the memory, and a retry may work later. Or pages are missing in memory that
    /// is registered with userfaultfd.
    #[error(
        "collapse a huge range: its cgroup has no room for a huge page, or userfaultfd serves its missing pages (EBUSY)"
    )]
    NoCharge,
    /// `ENOMEM`: there is no free huge page, even after compaction, or part of the huge range is not mapped.
    #[error("collapse a huge range: no huge page is free, or part of it is not mapped (ENOMEM)")]
    NoHugePage,
    /// `EINVAL`: this huge range cannot become a huge page as things are. Huge pages are forbidden for the mapping
    /// (`MADV_NOHUGEPAGE`) or the process (prctl), or it is hugetlb, a stack or device memory, or its file has no
    /// support, or none of it was ever touched. Kernels without `MADV_COLLAPSE` (before 6.1), without it for other
    /// processes, or without huge pages return it too.
    #[error("collapse a huge range: the kernel cannot make a huge page of this mapping (EINVAL)")]
    Refused,
    /// `ESRCH`: the process has ended, or has no memory any more.
    #[error("collapse a huge range: the process has ended (ESRCH)")]
    Gone,
    /// `EPERM` or `EACCES`: it needs CAP_SYS_NICE, and the right to ptrace the process.
    #[error(
        "collapse a huge range: permission denied: needs CAP_SYS_NICE, and CAP_SYS_PTRACE for other users' processes"
    )]
    Denied,
    /// Another errno; 0 if the kernel stopped before the end of the huge range and returned none.
    #[error("collapse a huge range: {}", other_errno(*.0))]
    Other(i32),
}

impl CollapseError {
    fn from_errno(errno: i32) -> CollapseError {
        match errno {
            libc::EAGAIN => CollapseError::Busy,
            libc::EBUSY => CollapseError::NoCharge,
            libc::ENOMEM => CollapseError::NoHugePage,
            libc::EINVAL => CollapseError::Refused,
            libc::ESRCH => CollapseError::Gone,
            // EPERM is a missing capability, EACCES a refused ptrace.
            libc::EPERM | libc::EACCES => CollapseError::Denied,
            other => CollapseError::Other(other),
        }
    }
}

fn other_errno(errno: i32) -> String {
    if errno == 0 { "the kernel stopped half way".to_owned() } else { io::Error::from_raw_os_error(errno).to_string() }
}

/// A process, named for good.
#[derive(Debug)]
pub struct PidFd {
    fd: OwnedFd,
    pid: u32,
}

/// `range` without the last page of user space, which the kernel reserves, with four and with five levels of page
/// tables. The kernel refuses a whole range that ends there, and without address randomization every stack lies in that
/// last huge range.
fn below_top(range: AddrRange) -> AddrRange {
    match range.end.0 {
        end @ (0x8000_0000_0000 | 0x100_0000_0000_0000) => AddrRange::new(range.start, Addr(end - PAGE_SIZE)),
        _ => range,
    }
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl PidFd {
    /// Opens process `pid`. Fails with `ESRCH` if there is none.
    pub fn open(pid: u32) -> io::Result<PidFd> {
        let pid_t = libc::pid_t::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
        // SAFETY: pidfd_open takes two integers and returns a new descriptor or -1.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid_t, 0) };
        let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the kernel has just returned `fd`, and it has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(PidFd { fd, pid })
    }

    /// The pid it was opened with.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether the process has ended, zombies that nobody has waited for included.
    pub fn has_exited(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid pollfd, no waiting.
        unsafe { libc::poll(&raw mut poll, 1, 0) > 0 }
    }

    /// Clears the accessed bits of `ranges` with `MADV_COLD`, at most [`MAX_RANGES`] of them.
    ///
    /// Takes the mmap read lock, flushes the TLB, and deactivates pages. Ranges have to be 2 MiB-aligned where there may be large folios, or
    /// these are split. The kernel silently skips pages that several processes map. Returns the bytes advised: less
    /// than asked if a later range was refused (locked, hugetlb, unmapped), an error if the first was.
    pub fn advise_cold(&self, ranges: &[AddrRange]) -> io::Result<u64> {
        let below = ranges.iter().take(MAX_RANGES).map(|r| below_top(*r));
        let vectors: Vec<libc::iovec> = below.map(|r| vector(r.start, r.len())).collect();
        self.advise(&vectors, Advice::Cold)
    }

    /// Collapses `pmd` into one huge page with `MADV_COLLAPSE`, at once and regardless of the system's THP setting.
    ///
    /// Pages that are swapped out or not in the page cache are read in, and pages never touched are filled with zeros.
    /// Count them first with [`crate::pagemap::Pagemap::pmd`]. The kernel compacts memory if it finds no huge page,
    /// which takes milliseconds. It drains the LRU batches of all CPUs. It holds the target's mmap lock for writing
    /// while it copies: page faults of the target wait for that.
    ///
    /// The kernel also returns `Ok` for a huge range that is huge already. It does so for a huge range that two mappings share,
    /// too, where it skips each part and does nothing: ask only for huge ranges that lie within one mapping. There is no
    /// timeout: the call returns when the kernel is done.
    pub fn collapse(&self, pmd: PmdNo) -> Result<(), CollapseError> {
        match self.advise(&[vector(pmd.addr(), Bytes(PMD_SIZE))], Advice::Collapse) {
            Ok(PMD_SIZE) => Ok(()),
            Ok(_) => Err(CollapseError::Other(0)),
            Err(e) => Err(CollapseError::from_errno(e.raw_os_error().unwrap_or(0))),
        }
    }

    /// Whether the mapping that `pmd` begins in takes huge pages at all. Gives the same advice for one page: the
    /// kernel checks the mapping, finds that no huge page fits, and does nothing. [`CollapseError::Refused`] if the
    /// mapping does not take them (`MADV_NOHUGEPAGE`, hugetlb, devices, a process that has switched huge pages off).
    ///
    /// It drains the LRU batches of all CPUs, as a refused [`PidFd::collapse`] has just done. `smaps` would show more,
    /// but walks all page tables of the process with its mmap lock held.
    pub fn takes_huge_pages(&self, pmd: PmdNo) -> Result<(), CollapseError> {
        match self.advise(&[vector(pmd.addr(), Bytes(PAGE_SIZE))], Advice::Collapse) {
            Ok(_) => Ok(()),
            Err(e) => Err(CollapseError::from_errno(e.raw_os_error().unwrap_or(0))),
        }
    }

    /// Pages out the private pages of `ranges` with `MADV_PAGEOUT`, at most [`MAX_RANGES`] of them, whether or not they were accessed.
    ///
    /// Returns the bytes advised, as [`PidFd::advise_cold`]. That says nothing about what has moved: without swap it is nothing, and
    /// the kernel silently skips pages that are locked, being written, or mapped by others. Read back with
    /// [`crate::pagemap::Pagemap`]. Takes the mmap lock for reading, and 9 us a page with zram (of the caller's CPU time).
    pub fn page_out(&self, ranges: &[AddrRange]) -> io::Result<u64> {
        let vectors: Vec<libc::iovec> = ranges.iter().take(MAX_RANGES).map(|r| vector(r.start, r.len())).collect();
        self.advise(&vectors, Advice::PageOut)
    }

    /// Reads the pages of `ranges` that are in swap into the swap cache with `MADV_WILLNEED`, at most [`MAX_RANGES`] of them. Pages of a
    /// file are read into the page cache.
    ///
    /// Returns the bytes advised, as [`PidFd::advise_cold`]. Page tables do not change: a page that was read still counts as swapped, and
    /// the next access is a minor fault. Takes the mmap lock for reading. The kernel starts to read and does not wait, but for devices
    /// without a queue, such as zram.
    pub fn will_need(&self, ranges: &[AddrRange]) -> io::Result<u64> {
        let vectors: Vec<libc::iovec> = ranges.iter().take(MAX_RANGES).map(|r| vector(r.start, r.len())).collect();
        self.advise(&vectors, Advice::WillNeed)
    }

    /// Returns the bytes advised: less than asked if a later vector failed, an error if the first did.
    fn advise(&self, vectors: &[libc::iovec], advice: Advice) -> io::Result<u64> {
        // SAFETY: the vectors outlive the call. Only the kernel uses the addresses in them, and no advice here
        // changes the contents of memory, even of our own.
        let advised = unsafe {
            libc::syscall(
                libc::SYS_process_madvise,
                self.fd.as_raw_fd(),
                vectors.as_ptr(),
                vectors.len(),
                advice as libc::c_int,
                0,
            )
        };
        u64::try_from(advised).map_err(|_| io::Error::last_os_error())
    }
}

/// Advice that does not change the contents of memory. No other can be given from here.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
enum Advice {
    Cold = libc::MADV_COLD,
    Collapse = libc::MADV_COLLAPSE,
    PageOut = libc::MADV_PAGEOUT,
    WillNeed = libc::MADV_WILLNEED,
}

/// A range of addresses as the kernel takes it.
fn vector(start: Addr, len: Bytes) -> libc::iovec {
    libc::iovec {
        iov_base: std::ptr::without_provenance_mut(usize::try_from(start.0).unwrap_or(usize::MAX)),
        iov_len: usize::try_from(len.0).unwrap_or(usize::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Memory, PageSize};
    use crate::pagemap::Pagemap;
    use std::io::Write;
    use std::path::Path;

    #[test]
    fn a_pid_that_is_not_there_is_esrch() {
        for pid in [u32::MAX, 4_194_304] {
            assert_eq!(PidFd::open(pid).unwrap_err().raw_os_error(), Some(libc::ESRCH), "pid {pid}");
        }
    }

    #[test]
    fn a_zombie_counts_as_exited_and_a_live_child_does_not() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let fd = PidFd::open(child.id()).unwrap();
        assert!(!fd.has_exited());
        child.kill().unwrap();
        for _ in 0..200 {
            if fd.has_exited() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert!(fd.has_exited(), "killed, not yet waited for");
        child.wait().unwrap();
    }

    #[test]
    fn unmapped_ranges_are_refused() {
        let me = PidFd::open(std::process::id()).unwrap();
        let nowhere = AddrRange::new(Addr(0x20_0000), Addr(0x40_0000));
        assert!(me.advise_cold(&[nowhere]).is_err());
        let last = AddrRange::new(Addr(0x7fff_ffe0_0000), Addr(0x8000_0000_0000));
        assert_eq!(below_top(last).end, Addr(0x7fff_ffff_f000));
        assert_eq!(below_top(nowhere), nowhere);
    }

    fn pagemap(pid: u32) -> Pagemap {
        Pagemap::open(Path::new("/proc"), pid).unwrap()
    }

    /// Whether `pmd` of process `pid` is a huge page; `None`, said aloud, if the kernel cannot tell. Not from smaps: mappings of
    /// two tests that lie side by side are one there.
    fn is_huge(pid: u32, pmd: PmdNo) -> Option<bool> {
        let huge = pagemap(pid).is_huge(pmd).unwrap();
        if huge.is_none() {
            let _ = writeln!(io::stderr(), "skipped: needs PAGEMAP_SCAN (Linux 6.7)");
        }
        huge
    }

    /// Tries again while pages are busy, which other tests can cause; `None`, said aloud, if no huge page was to be had.
    fn collapse(of: &PidFd, pmd: PmdNo) -> Option<()> {
        let mut outcome = of.collapse(pmd);
        for _ in 0..50 {
            if outcome != Err(CollapseError::Busy) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
            outcome = of.collapse(pmd);
        }
        if matches!(outcome, Err(CollapseError::NoHugePage | CollapseError::NoCharge)) {
            let _ = io::stderr().write_all(format!("skipped: needs a free huge page ({outcome:?})\n").as_bytes());
            return None;
        }
        outcome.unwrap();
        Some(())
    }

    /// A copy of this process that does nothing. Killed on drop.
    struct Forked(libc::pid_t);

    impl Forked {
        /// Forks; the copy writes to every page of `memory` first, so that it has pages of its own.
        fn that_writes(memory: &Memory) -> Forked {
            // SAFETY: the child of a program with threads may do only what takes no lock: it writes to memory, sleeps, and is
            // killed.
            let pid = unsafe { libc::fork() };
            assert!(pid >= 0, "fork: {}", io::Error::last_os_error());
            if pid == 0 {
                // SAFETY: integers only. Should the test be killed, the child goes with the thread that made it.
                unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
                memory.populate();
                memory.write(0);
                loop {
                    // SAFETY: takes nothing and returns when a signal was handled.
                    unsafe { libc::pause() };
                }
            }
            Forked(pid)
        }

        fn pid(&self) -> u32 {
            u32::try_from(self.0).unwrap()
        }
    }

    impl Drop for Forked {
        fn drop(&mut self) {
            // SAFETY: two integers; the child has not been waited for, so the pid is still its.
            unsafe { libc::kill(self.0, libc::SIGKILL) };
            // SAFETY: waits for our own child and wants no status.
            unsafe { libc::waitpid(self.0, std::ptr::null_mut(), 0) };
        }
    }

    #[test]
    fn a_huge_range_of_our_own_becomes_huge_and_keeps_what_it_holds() {
        let memory = Memory::anonymous(PMD_SIZE, PageSize::Default).unwrap();
        memory.populate();
        let (me, pmd) = (PidFd::open(std::process::id()).unwrap(), memory.range().start.pmd());
        if collapse(&me, pmd).is_some() {
            assert_ne!(is_huge(me.pid(), pmd), Some(false));
            assert!((0..memory.pages()).all(|page| memory.read(page) == page as u64));
            assert_eq!(me.collapse(pmd), Ok(()), "already huge");
        }
    }

    #[test]
    fn a_huge_range_of_another_process_becomes_huge_there_and_not_here() {
        let memory = Memory::anonymous(PMD_SIZE, PageSize::Default).unwrap();
        let pmd = memory.range().start.pmd();
        let copy = Forked::that_writes(&memory);
        let other = PidFd::open(copy.pid()).unwrap();
        // Until it has touched its memory, there is nothing to collapse.
        let pagemap = pagemap(copy.pid());
        for _ in 0..500 {
            if pagemap.pmd(pmd).unwrap().present == 512 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let before = is_huge(std::process::id(), pmd);
        if collapse(&other, pmd).is_some() {
            assert_ne!(is_huge(copy.pid(), pmd), Some(false));
            assert_eq!(is_huge(std::process::id(), pmd), before);
        }
    }

    #[test]
    fn refusals_are_told_apart() {
        let me = PidFd::open(std::process::id()).unwrap();
        let small = Memory::anonymous(PMD_SIZE, PageSize::Small).unwrap();
        small.populate();
        assert_eq!(me.collapse(small.range().start.pmd()), Err(CollapseError::Refused), "MADV_NOHUGEPAGE");
        let unmapped = me.collapse(PmdNo(1)).unwrap_err();
        assert!(matches!(unmapped, CollapseError::NoHugePage | CollapseError::Refused), "{unmapped:?}");
        // Past the end of what user programs have, and the last there is: nothing is computed that overflows.
        assert!(me.collapse(PmdNo(1 << 47 >> 21)).is_err());
        assert!(me.collapse(PmdNo(u64::MAX >> 21)).is_err());
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let gone = PidFd::open(child.id()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(gone.collapse(PmdNo(1)), Err(CollapseError::Gone));
    }

    #[test]
    fn a_mapping_that_takes_no_huge_pages_is_told_from_a_huge_range_that_cannot_be_one() {
        let me = PidFd::open(std::process::id()).unwrap();
        let forbidden = Memory::anonymous(PMD_SIZE, PageSize::Small).unwrap();
        forbidden.populate();
        let refused = forbidden.range().start.pmd();
        assert_eq!(me.takes_huge_pages(refused), Err(CollapseError::Refused));
        // Far enough from both ends for no neighbour to touch it. Of the others one page is there, so that the mapping is set up.
        let memory = Memory::anonymous(1 << 30, PageSize::Default).unwrap();
        memory.write(0);
        let pmd = PmdNo(memory.range().start.pmd().0 + 200);
        assert_eq!(me.collapse(pmd), Err(CollapseError::Refused), "untouched");
        assert_eq!(me.takes_huge_pages(pmd), Ok(()));
        assert_eq!(pagemap(me.pid()).pmd(pmd).unwrap().present, 0, "nothing was done");
    }

    #[test]
    fn a_huge_range_that_two_mappings_share_is_passed_over_in_silence() {
        let memory = Memory::anonymous(3 * PMD_SIZE, PageSize::Default).unwrap();
        memory.populate();
        let (me, shared) = (PidFd::open(std::process::id()).unwrap(), memory.range().start.pmd().next());
        let middle: *mut u8 = std::ptr::without_provenance_mut(usize::try_from(shared.page(256).addr().0).unwrap());
        // SAFETY: the second half of our own mapping; whether a fork copies it is nothing to the memory itself.
        let split = unsafe { libc::madvise(middle.cast(), 3 << 20, libc::MADV_DONTFORK) };
        assert_eq!(split, 0);
        assert_eq!(me.collapse(shared), Ok(()));
        assert_ne!(is_huge(me.pid(), shared), Some(true));
    }

    #[test]
    fn an_errno_is_told_by_what_to_do_about_it() {
        for (errno, error, words) in [
            (libc::EAGAIN, CollapseError::Busy, "busy"),
            (libc::EBUSY, CollapseError::NoCharge, "cgroup"),
            (libc::ENOMEM, CollapseError::NoHugePage, "no huge page is free"),
            (libc::EINVAL, CollapseError::Refused, "cannot make a huge page"),
            (libc::ESRCH, CollapseError::Gone, "ended"),
            (libc::EPERM, CollapseError::Denied, "CAP_SYS_NICE"),
            (libc::EACCES, CollapseError::Denied, "CAP_SYS_PTRACE"),
            (libc::ENOSYS, CollapseError::Other(libc::ENOSYS), "not implemented"),
            (0, CollapseError::Other(0), "half way"),
        ] {
            assert_eq!(CollapseError::from_errno(errno), error);
            assert!(error.to_string().contains(words), "{error}");
        }
    }

    #[test]
    fn one_page_is_enough_to_fill_the_rest_with_zeros_and_none_is_not() {
        let memory = Memory::anonymous(1 << 30, PageSize::Default).unwrap();
        let me = PidFd::open(std::process::id()).unwrap();
        // Far enough from both ends for no neighbour to touch it.
        let (index, pmd) = (200 * 512, PmdNo(memory.range().start.pmd().0 + 200));
        assert_eq!(me.collapse(pmd), Err(CollapseError::Refused), "untouched");
        memory.write(index);
        if collapse(&me, pmd).is_some() {
            assert_eq!(pagemap(me.pid()).pmd(pmd).unwrap().present, 512);
            assert_eq!((memory.read(index), memory.read(index + 511)), (1, 0));
        }
    }
}
