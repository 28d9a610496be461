//! The lock of a zone: a word, a short spin, then sleep.
//!
//! Our own, because three things are asked of it that locks of libraries do not have together: it exists without std, a caller can
//! hold it across a `fork` (pools do, so that a child finds no lock held by a thread it does not have), and it counts how often
//! someone found it taken, which is what housekeeping is judged by. Not fair: a queue of threads in order is poison when there are
//! more threads than processors, since the next in line may be the one that does not run.
//!
//! Taking a free lock is one compare-and-swap, releasing it one swap. A taken one is watched for a few hundred turns, about what a
//! section lasts, before the kernel is asked to wait; without std there is no one to ask and it spins on.

use core::cell::UnsafeCell;
use core::hint;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// Taken, and someone may sleep.
const AWAITED: u32 = 2;
const SPINS: u32 = 200;

/// The word itself, taken and released by hand.
#[derive(Debug, Default)]
pub(crate) struct RawLock {
    word: AtomicU32,
    contended: AtomicU64,
}

impl RawLock {
    pub(crate) const fn new() -> RawLock {
        RawLock { word: AtomicU32::new(FREE), contended: AtomicU64::new(0) }
    }

    #[inline]
    pub(crate) fn try_lock(&self) -> bool {
        // Acquire: pairs with the Release of `unlock`.
        self.word.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline]
    pub(crate) fn lock(&self) {
        if !self.try_lock() {
            self.lock_slow();
        }
    }

    #[cold]
    fn lock_slow(&self) {
        self.contended.fetch_add(1, Ordering::Relaxed);
        for _ in 0..SPINS {
            if self.word.load(Ordering::Relaxed) == FREE && self.try_lock() {
                return;
            }
            hint::spin_loop();
        }
        // Acquire: pairs with the Release of `unlock`. Whoever has slept cannot know whether others still do, so says they may.
        while self.word.swap(AWAITED, Ordering::Acquire) != FREE {
            wait(&self.word, AWAITED);
        }
    }

    #[inline]
    pub(crate) fn unlock(&self) {
        // Release: pairs with the Acquire of whoever takes it next.
        if self.word.swap(FREE, Ordering::Release) == AWAITED {
            wake_one(&self.word);
        }
    }

    /// How often it was found taken by someone who then waited.
    pub(crate) fn contended(&self) -> u64 {
        self.contended.load(Ordering::Relaxed)
    }
}

#[cfg(all(feature = "std", target_os = "linux"))]
fn wait(word: &AtomicU32, expected: u32) {
    // SAFETY: the address is that of a live u32; a null time-out waits without limit. Any result is right: the caller looks again.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            expected,
            core::ptr::null::<libc::timespec>(),
        );
    }
}

#[cfg(all(feature = "std", target_os = "linux"))]
#[cold]
fn wake_one(word: &AtomicU32) {
    // SAFETY: the address is that of a live u32, and waking has no other effect.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1) };
}

#[cfg(not(all(feature = "std", target_os = "linux")))]
fn wait(word: &AtomicU32, expected: u32) {
    while word.load(Ordering::Relaxed) == expected {
        hint::spin_loop();
    }
}

#[cfg(not(all(feature = "std", target_os = "linux")))]
fn wake_one(_: &AtomicU32) {}

/// A value behind the lock.
#[derive(Debug)]
pub(crate) struct Lock<T> {
    raw: RawLock,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through `Held` only, and the lock gives one `Held` at a time; `T` moves between threads with it.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Lock<T> {
        Lock { raw: RawLock::new(), value: UnsafeCell::new(value) }
    }

    #[inline]
    pub(crate) fn lock(&self) -> Held<'_, T> {
        self.raw.lock();
        Held { lock: self }
    }

    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Held<'_, T>> {
        self.raw.try_lock().then(|| Held { lock: self })
    }

    /// The lock without the value, for those who hold it over something that is no scope.
    pub(crate) const fn raw(&self) -> &RawLock {
        &self.raw
    }
}

/// The value, while the lock is held.
pub(crate) struct Held<'a, T> {
    lock: &'a Lock<T>,
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this `Held` is the only one there is, and borrows hand the value out.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this `Held` is the only one there is, and is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Held<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.raw.unlock();
    }
}

/// A value that is taken or left, never waited for. Released by a plain store, so a turn costs one locked instruction instead of two.
#[derive(Debug)]
pub(crate) struct TryLock<T> {
    taken: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through `Tried` only, of which there is one at a time; `T` moves between threads with it.
unsafe impl<T: Send> Sync for TryLock<T> {}

impl<T> TryLock<T> {
    pub(crate) const fn new(value: T) -> TryLock<T> {
        TryLock { taken: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }

    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Tried<'_, T>> {
        // Acquire: pairs with the Release in `Tried::drop`.
        // Made only if it was free: dropping one releases the lock.
        (self.taken.swap(TAKEN, Ordering::Acquire) == FREE).then(|| Tried { lock: self })
    }

    /// Tries for a while: for those who come seldom, against those who hold it for some ns.
    pub(crate) fn try_long(&self) -> Option<Tried<'_, T>> {
        for _ in 0..SPINS * 16 {
            if self.taken.load(Ordering::Relaxed) == FREE
                && let Some(tried) = self.try_lock()
            {
                return Some(tried);
            }
            hint::spin_loop();
        }
        None
    }
}

/// The value of a [`TryLock`], while it is taken.
pub(crate) struct Tried<'a, T> {
    lock: &'a TryLock<T>,
}

impl<T> Deref for Tried<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this `Tried` is the only one there is, and borrows hand the value out.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Tried<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this `Tried` is the only one there is, and is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Tried<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the Acquire of `try_lock`.
        self.lock.taken.store(FREE, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn nothing_is_lost_between_threads() {
        let lock = Lock::new(0_u64);
        thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| (0..20_000).for_each(|_| *lock.lock() += 1));
            }
        });
        assert_eq!(*lock.lock(), 80_000);
    }

    #[test]
    fn what_is_tried_in_vain_stays_taken() {
        let lock = TryLock::new(1);
        let held = lock.try_lock();
        assert!(held.is_some() && lock.try_lock().is_none());
        assert!(lock.try_lock().is_none() && lock.try_long().is_none());
        drop(held);
        assert_eq!(lock.try_lock().map(|n| *n), Some(1));
    }

    #[test]
    fn a_taken_lock_is_not_taken_again_and_sleepers_wake() {
        let lock = Lock::new(());
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        thread::scope(|s| {
            let sleepers: Vec<_> = (0..3).map(|_| s.spawn(|| drop(lock.lock()))).collect();
            while lock.raw().contended() < 3 {
                thread::yield_now();
            }
            drop(held);
            for sleeper in sleepers {
                sleeper.join().unwrap();
            }
        });
        assert!(lock.try_lock().is_some());
    }
}
