//! An mmapable BPF array, mapped into our memory.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

/// The elements of a `BPF_MAP_TYPE_ARRAY` with `BPF_F_MMAPABLE`, which the kernel lays out in steps of 8 bytes.
///
/// The program writes to it only while an iterator is read, which `Walker::pass` does under `&mut self`. Between passes
/// nothing else uses the memory.
#[derive(Debug)]
pub(super) struct MappedArray<T> {
    base: NonNull<T>,
    len: usize,
}

// SAFETY: the mapping is process-wide memory, used through `&self` and `&mut self` only.
unsafe impl<T: Send> Send for MappedArray<T> {}

impl<T: Copy> MappedArray<T> {
    pub(super) fn new(map: BorrowedFd<'_>, len: usize) -> io::Result<MappedArray<T>> {
        const { assert!(size_of::<T>().is_multiple_of(8), "array elements are padded to 8 bytes") };
        // SAFETY: a new shared mapping at an address of the kernel's choice replaces nothing; the result is checked below.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len * size_of::<T>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(MappedArray { base: NonNull::new(base.cast()).expect("mmap does not return null"), len })
    }

    pub(super) fn as_slice(&self) -> &[T] {
        // SAFETY: `base` maps `len` elements until drop; any bits are a valid `T` here (integers), and nothing writes
        // between passes.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as in `as_slice`, and `&mut self` makes it the only slice.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

impl<T> Drop for MappedArray<T> {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what `new` mapped, once; slices borrow `self` and are gone.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len * size_of::<T>()) };
    }
}
