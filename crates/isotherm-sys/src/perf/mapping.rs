//! The memory of a ring, shared with the kernel. The kernel writes records at the head; we read at the tail.
//!
//! ```text
//!   control page        data: 2^n pages, used round and round
//!  |head|tail|...|  |...........tail#########head...........|
//! ```
//!
//! The data between tail and head is copied out in pieces that fit the CPU's cache. The tail moves with each piece,
//! before its first record is parsed, so the ring has room again early. Records in the copy never wrap around; a record
//! that is cut by the end of a piece is kept for the next.
//!
//! A drain ends with the data that was there when it began. A kernel that writes as fast as we read does not hold us
//! here.

use super::record::{Raw, Raws};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Offsets into `struct perf_event_mmap_page`.
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;

/// Longer than any record, so that each piece ends at least one.
const PIECE: usize = 64 << 10;

pub(super) fn page_size() -> usize {
    usize::try_from(crate::page_size()).unwrap_or(4096)
}

/// Bytes of data for a ring of at least `bytes`.
pub(super) fn data_len(bytes: usize, page: usize) -> usize {
    // If there is no such power of two, there is no such memory either, and the kernel will report that.
    bytes
        .div_ceil(page)
        .max(1)
        .checked_next_power_of_two()
        .and_then(|pages| pages.checked_mul(page))
        .unwrap_or(usize::MAX / 4)
}

/// Where the bytes from `tail` to `head` are in `len` bytes of data. Both only ever grow. The second part is after the
/// wrap.
fn parts(tail: u64, head: u64, len: usize) -> (Range<usize>, Range<usize>) {
    let unread = usize::try_from(head.wrapping_sub(tail)).unwrap_or(len).min(len);
    // `len` is a power of two, so the remainder is also right when the counters wrap.
    let start = usize::try_from(tail % len as u64).expect("less than a usize");
    let first = unread.min(len - start);
    (start..start + first, 0..unread - first)
}

/// The memory shared with the kernel.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<u8>,
    page: usize,
    data_len: usize,
}

// SAFETY: the mapping is process-wide memory; it does not matter which thread reads it.
unsafe impl Send for Mapping {}

impl Mapping {
    /// The ring of an event, of `data_len` bytes: 2^n pages, as the kernel requires.
    pub(super) fn new(fd: BorrowedFd<'_>, data_len: usize) -> io::Result<Mapping> {
        Mapping::map(fd.as_raw_fd(), libc::MAP_SHARED, data_len)
    }

    fn map(fd: libc::c_int, flags: libc::c_int, data_len: usize) -> io::Result<Mapping> {
        let page = page_size();
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the address is the kernel's choice, so no live mapping is replaced. The result is checked below.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), page + data_len, prot, flags, fd, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).expect("mmap does not return null");
        Ok(Mapping { start, page, data_len })
    }

    /// Takes out all records, oldest first. `scratch` holds the copy, so that many rings can share one.
    pub(super) fn drain(&mut self, scratch: &mut Vec<u8>, mut each: impl FnMut(Raw<'_>)) {
        scratch.clear();
        let (tail, head) = self.unread();
        if tail == head {
            return;
        }
        let mut at = tail;
        while at != head {
            at = self.take(at, head, scratch);
            let mut raws = Raws::new(scratch);
            raws.by_ref().for_each(&mut each);
            if raws.is_broken() {
                // The start of the next record is unknown.
                self.counter(DATA_TAIL).store(head, Ordering::Release);
                return each(Raw::Broken);
            }
            let done = scratch.len() - raws.rest().len();
            scratch.drain(..done);
        }
        // The kernel writes whole records only.
        if !scratch.is_empty() {
            each(Raw::Broken);
        }
    }

    /// Appends everything there is to `to`, for later.
    pub(super) fn save(&mut self, to: &mut Vec<u8>) {
        let (mut at, head) = self.unread();
        while at != head {
            at = self.take(at, head, to);
        }
    }

    /// Tail and head. They are further apart than the ring's length only if something else has written to them.
    fn unread(&self) -> (u64, u64) {
        // Acquire: pairs with the kernel's store after it has written the records.
        let head = self.counter(DATA_HEAD).load(Ordering::Acquire);
        let tail = self.counter(DATA_TAIL).load(Ordering::Relaxed);
        let most = self.data_len as u64;
        (if head.wrapping_sub(tail) > most { head.wrapping_sub(most) } else { tail }, head)
    }

    /// Copies a piece of what lies between `tail` and `head`, frees its room and returns the new tail.
    fn take(&mut self, tail: u64, head: u64, copy: &mut Vec<u8>) -> u64 {
        let until = tail.wrapping_add(head.wrapping_sub(tail).min(PIECE as u64));
        let (first, second) = parts(tail, until, self.data_len);
        copy.reserve(first.len() + second.len());
        self.copy_part(first, copy);
        self.copy_part(second, copy);
        // Release: pairs with the kernel's load before it writes there. By then our reads are done.
        self.counter(DATA_TAIL).store(until, Ordering::Release);
        until
    }

    fn copy_part(&self, part: Range<usize>, copy: &mut Vec<u8>) {
        assert!(part.end <= self.data_len && part.len() <= copy.capacity() - copy.len());
        // SAFETY: `part` is within the data, which begins a page behind the start; it lies between tail and head, where the
        // kernel does not write. The room in `copy` was checked above, and the two do not overlap.
        unsafe {
            let from = self.start.add(self.page + part.start);
            std::ptr::copy_nonoverlapping(from.as_ptr(), copy.as_mut_ptr().add(copy.len()), part.len());
            copy.set_len(copy.len() + part.len());
        }
    }

    /// One of the two counters in the control page.
    fn counter(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the control page is mapped for as long as `self` lives, `offset` is within it and a multiple of eight, and both
        // sides access it as one word.
        unsafe { self.start.add(offset).cast::<AtomicU64>().as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what `map` mapped, once; nothing borrowed from it outlives `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.page + self.data_len) };
    }
}

/// A ring that tests write to in the kernel's stead.
#[cfg(test)]
impl Mapping {
    /// `data_len` is a power of two. Both counters begin at `tail`.
    pub(super) fn made_up(data_len: usize, tail: u64) -> Mapping {
        let mapping = Mapping::map(-1, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, data_len).unwrap();
        mapping.counter(DATA_HEAD).store(tail, Ordering::Relaxed);
        mapping.counter(DATA_TAIL).store(tail, Ordering::Relaxed);
        mapping
    }

    /// Writes at the head, if there is room.
    pub(super) fn write(&mut self, bytes: &[u8]) -> bool {
        let head = self.counter(DATA_HEAD).load(Ordering::Relaxed);
        let tail = self.counter(DATA_TAIL).load(Ordering::Relaxed);
        let room = self.data_len as u64 - head.wrapping_sub(tail);
        if bytes.len() as u64 > room {
            return false;
        }
        let until = head.wrapping_add(bytes.len() as u64);
        let (first, second) = parts(head, until, self.data_len);
        let (start, end) = bytes.split_at(first.len());
        for (part, bytes) in [(first, start), (second, end)] {
            // SAFETY: `part` is within the data and as long as `bytes`; nobody else has the mapping.
            unsafe {
                let to = self.start.add(self.page + part.start);
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len());
            }
        }
        self.counter(DATA_HEAD).store(until, Ordering::Relaxed);
        true
    }

    /// Moves the head without writing: what no kernel does.
    pub(super) fn set_head(&mut self, head: u64) {
        self.counter(DATA_HEAD).store(head, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_has_a_power_of_two_of_pages() {
        for (bytes, pages) in
            [(0, 1), (1, 1), (4096, 1), (4097, 2), (3 * 4096, 4), (1 << 20, 256), ((1 << 20) + 1, 512)]
        {
            assert_eq!(data_len(bytes, 4096), pages * 4096, "{bytes}");
        }
        assert!(data_len(usize::MAX, 4096) > 1 << 60, "no overflow");
    }

    #[test]
    fn counters_wrap_as_well() {
        assert_eq!(parts(u64::MAX - 7, 8, 64), (56..64, 0..8));
        assert_eq!(parts(40, 104, 64), (40..64, 0..40), "full");
        assert_eq!(parts(40, 40, 64), (40..40, 0..0), "empty");
    }

    #[test]
    fn a_head_that_cannot_be_is_no_reason_to_read_beyond_the_ring_or_for_ever() {
        for head in [1 << 20, u64::MAX, 63, 1 << 63] {
            let mut ring = Mapping::made_up(4096, 64);
            ring.set_head(head);
            let mut broken = 0;
            ring.drain(&mut Vec::new(), |raw| broken += u32::from(raw == Raw::Broken));
            assert_eq!(broken, 1, "all zeros: no record is so short");
            ring.drain(&mut Vec::new(), |raw| panic!("{raw:?} again"));
        }
    }
}
