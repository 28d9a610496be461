//! The memory for a zone's metadata, which the caller supplies. It is cut into arrays of atomics.
//!
//! The atomics are read and written relaxed. Under a lock they cost what plain words cost. The few that are read without
//! it (the state of a frame, before it is freed) are not data races. So everything except the cutting is safe code.
//! Bytes that were not cleared can lead to wrong answers but not to undefined behaviour, because every index is checked.

use core::mem::{align_of, size_of};
use core::slice;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Bytes for a zone's metadata.
#[derive(Debug)]
pub struct Metadata<'m>(&'m mut [u8]);

impl<'m> Metadata<'m> {
    /// Clears `bytes` first. For memory that may hold something.
    pub fn cleared(bytes: &'m mut [u8]) -> Metadata<'m> {
        bytes.fill(0);
        Metadata(bytes)
    }

    /// For memory that is known to be all zero, such as a fresh mapping. It then stays untouched where there are no
    /// frames. If it is not zero, the zone gives wrong answers or panics.
    pub const fn zeroed(bytes: &'m mut [u8]) -> Metadata<'m> {
        Metadata(bytes)
    }

    /// Its length in bytes.
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether its length is 0.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The neighbours of a free block in its list, as the indices of their first frames.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Link {
    pub(crate) next: AtomicU32,
    pub(crate) prev: AtomicU32,
}

/// A type that memory of any content can be viewed as, shared.
///
/// # Safety
/// Every bit pattern is valid, and a shared reference allows nothing but atomic access.
pub(crate) unsafe trait Plain {}
// SAFETY: any eight bits are an `AtomicU8`.
unsafe impl Plain for AtomicU8 {}
// SAFETY: any 16 bits are an `AtomicU16`.
unsafe impl Plain for AtomicU16 {}
// SAFETY: any 32 bits are an `AtomicU32`.
unsafe impl Plain for AtomicU32 {}
// SAFETY: any 64 bits are an `AtomicU64`.
unsafe impl Plain for AtomicU64 {}
// SAFETY: two `AtomicU32` without padding.
unsafe impl Plain for Link {}

/// Upper bound of the bytes that `count` of `T` take, with padding for alignment.
pub(crate) const fn bytes_for<T>(count: usize) -> usize {
    count.saturating_mul(size_of::<T>()).saturating_add(align_of::<T>() - 1)
}

impl<'m> Metadata<'m> {
    /// Cuts `count` of `T` off the front; `None` if they do not fit.
    pub(crate) fn take<T: Plain>(&mut self, count: usize) -> Option<&'m [T]> {
        let bytes = core::mem::take(&mut self.0);
        let skip = bytes.as_ptr().align_offset(align_of::<T>());
        let needed = skip.checked_add(count.checked_mul(size_of::<T>())?)?;
        let (mine, rest) = bytes.split_at_mut_checked(needed)?;
        self.0 = rest;
        let start: *const T = mine.get_mut(skip..)?.as_mut_ptr().cast_const().cast();
        // SAFETY: `mine` was borrowed exclusively for 'm and is given up here, so nothing else refers to it. From `skip`
        // on it is aligned and holds `count` of `T`. Any bytes are a valid `Plain`, which consists of atomics only.
        Some(unsafe { slice::from_raw_parts(start, count) })
    }
}

#[inline]
pub(crate) fn get8(words: &[AtomicU8], at: u32) -> u8 {
    words[at as usize].load(Ordering::Relaxed)
}

#[inline]
pub(crate) fn set8(words: &[AtomicU8], at: u32, value: u8) {
    words[at as usize].store(value, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_aligned_and_apart() {
        let mut bytes = [7_u8; 64];
        let mut metadata = Metadata::cleared(&mut bytes[1..]);
        let first = metadata.take::<AtomicU8>(3).unwrap();
        let second = metadata.take::<AtomicU64>(2).unwrap();
        let third = metadata.take::<Link>(1).unwrap();
        assert_eq!(second.as_ptr().align_offset(8), 0);
        first[2].store(0xff, Ordering::Relaxed);
        second[1].store(u64::MAX, Ordering::Relaxed);
        assert_eq!(second[0].load(Ordering::Relaxed), 0);
        assert_eq!(third[0].next.load(Ordering::Relaxed), 0);
        assert!(metadata.take::<AtomicU64>(100).is_none());
        assert!(metadata.take::<AtomicU64>(usize::MAX).is_none());
    }

    #[test]
    fn what_is_asked_for_is_enough_wherever_it_lies() {
        for offset in 0..8 {
            let mut bytes = vec![0_u8; offset + bytes_for::<AtomicU64>(5) + bytes_for::<AtomicU32>(3)];
            let mut metadata = Metadata::zeroed(&mut bytes[offset..]);
            assert!(metadata.take::<AtomicU64>(5).is_some() && metadata.take::<AtomicU32>(3).is_some(), "{offset}");
        }
    }
}
