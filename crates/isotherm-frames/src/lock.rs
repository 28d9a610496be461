//! The lock of a zone: a word, a short spin, then sleep.
//!
//! It is our own because no library lock has all three properties that a zone needs. It works without std. A caller can
//! hold it across a `fork`, as pools do, so that a child finds no lock held by a thread that it does not have. It
//! counts how often it was found taken, which is how the periodic drain is judged. The lock is not fair: with more
//! threads than processors, the next thread of a fair queue may be one that is not running, and everyone waits for it.
//!
//! Taking a free lock is one compare-and-swap, releasing it one swap. A waiter spins on a taken lock a few hundred
//! times, about as long as it is usually held, and then asks the kernel to wait. Without std it continues to spin.

use core::cell::UnsafeCell;
use core::hint;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
#[cfg(not(all(loom, test)))]
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(all(loom, test))]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// An atomic word that stays a plain one under loom, where the words of locks are modelled.
type SyncU32 = core::sync::atomic::AtomicU32;

const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// Taken, and a thread may be asleep.
const AWAITED: u32 = 2;
#[cfg(not(all(loom, test)))]
const SPINS: u32 = 200;
/// In a loom model, one iteration shows all there is to know about spinning.
#[cfg(all(loom, test))]
const SPINS: u32 = 1;

/// The lock word, taken and released by hand.
#[derive(Debug, Default)]
pub(crate) struct RawLock {
    word: AtomicU32,
    contended: AtomicU64,
    #[cfg(all(loom, test))]
    sleepers: Sleepers,
}

impl RawLock {
    #[cfg(not(all(loom, test)))]
    pub(crate) const fn new() -> RawLock {
        RawLock { word: AtomicU32::new(FREE), contended: AtomicU64::new(0) }
    }

    #[cfg(all(loom, test))]
    pub(crate) fn new() -> RawLock {
        RawLock::default()
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
        // Acquire: pairs with the Release of `unlock`. A thread that has slept cannot know whether others still sleep,
        // so it sets `AWAITED`.
        while self.word.swap(AWAITED, Ordering::Acquire) != FREE {
            self.wait();
        }
    }

    #[inline]
    pub(crate) fn unlock(&self) {
        // Release: pairs with the Acquire of the next owner.
        if self.word.swap(FREE, Ordering::Release) == AWAITED {
            self.wake_one();
        }
    }

    /// How many times it was found taken by a thread that then waited.
    pub(crate) fn contended(&self) -> u64 {
        self.contended.load(Ordering::Relaxed)
    }
}

#[cfg(all(feature = "std", target_os = "linux", not(all(loom, test))))]
impl RawLock {
    fn wait(&self) {
        // SAFETY: the address is that of a live u32; a null time-out waits without limit. Any result is fine: the
        // caller checks the word again.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.word.as_ptr(),
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                AWAITED,
                core::ptr::null::<libc::timespec>(),
            );
        }
    }

    #[cold]
    fn wake_one(&self) {
        // SAFETY: the address is that of a live u32, and waking has no other effect.
        unsafe { libc::syscall(libc::SYS_futex, self.word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1) };
    }
}

#[cfg(all(not(all(feature = "std", target_os = "linux")), not(all(loom, test))))]
impl RawLock {
    fn wait(&self) {
        while self.word.load(Ordering::Relaxed) == AWAITED {
            hint::spin_loop();
        }
    }

    fn wake_one(&self) {}
}

/// Stands for the kernel in a loom model. For a waker, checking the word and going to sleep is one step. A wake-up
/// without a waiter is lost.
#[cfg(all(loom, test))]
#[derive(Debug, Default)]
struct Sleepers {
    queue: loom::sync::Mutex<()>,
    woken: loom::sync::Condvar,
}

#[cfg(all(loom, test))]
impl RawLock {
    fn wait(&self) {
        let queue = self.sleepers.queue.lock().unwrap();
        if self.word.load(Ordering::Relaxed) == AWAITED {
            drop(self.sleepers.woken.wait(queue).unwrap());
        }
    }

    fn wake_one(&self) {
        let _queue = self.sleepers.queue.lock().unwrap();
        self.sleepers.woken.notify_one();
    }
}

/// A value behind the lock.
#[derive(Debug)]
pub(crate) struct Lock<T> {
    raw: RawLock,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through `Held` only, and the lock gives one `Held` at a time; `T` moves between threads with it.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    #[cfg(not(all(loom, test)))]
    pub(crate) const fn new(value: T) -> Lock<T> {
        Lock { raw: RawLock::new(), value: UnsafeCell::new(value) }
    }

    #[inline]
    pub(crate) fn lock(&self) -> Held<'_, T> {
        self.raw.lock();
        Held { lock: self, value: PhantomData }
    }

    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Held<'_, T>> {
        self.raw.try_lock().then(|| Held { lock: self, value: PhantomData })
    }

    /// The lock without the value, for callers that hold it beyond a scope.
    pub(crate) const fn raw(&self) -> &RawLock {
        &self.raw
    }
}

/// The value, while the lock is held.
pub(crate) struct Held<'a, T> {
    lock: &'a Lock<T>,
    /// Sharing a `Held` between threads shares the value, so this restricts `Sync` to values that allow it.
    value: PhantomData<&'a mut T>,
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this is the only `Held`, and `Deref` ties the reference to its borrow.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this is the only `Held`, and it is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Held<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.raw.unlock();
    }
}

/// A lock word that is tried and never waited for. It is released by a plain store, so taking and releasing it costs
/// one locked instruction instead of two.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TryWord<'m>(pub(crate) &'m SyncU32);

impl<'m> TryWord<'m> {
    #[inline]
    pub(crate) fn try_lock(self) -> Option<Tried<'m>> {
        // Acquire: pairs with the Release in `Tried::drop`. Create `Tried` only if the word was free, because dropping
        // one releases the lock.
        (self.0.swap(TAKEN, Ordering::Acquire) == FREE).then(|| Tried(self.0))
    }

    /// Retries for a while. For rare callers; all others hold the lock for some ns only.
    pub(crate) fn try_long(self) -> Option<Tried<'m>> {
        for _ in 0..SPINS * 16 {
            if self.0.load(Ordering::Relaxed) == FREE
                && let Some(tried) = self.try_lock()
            {
                return Some(tried);
            }
            hint::spin_loop();
        }
        None
    }
}

/// A [`TryWord`] that is taken until this is dropped.
#[derive(Debug)]
pub(crate) struct Tried<'m>(&'m SyncU32);

impl Drop for Tried<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the Acquire of `try_lock`.
        self.0.store(FREE, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::thread;

    /// Told by which of two methods of one name is found: the inherent one needs `Sync`, the trait's does not.
    #[test]
    fn a_held_value_is_shared_between_threads_only_if_it_may_be() {
        struct Ask<T>(PhantomData<T>);
        trait Otherwise {
            fn is_shared(&self) -> bool {
                false
            }
        }
        impl<T> Otherwise for Ask<T> {}
        impl<T: Sync> Ask<T> {
            fn is_shared(&self) -> bool {
                true
            }
        }
        assert!(Ask(PhantomData::<Held<'static, u64>>).is_shared());
        assert!(!Ask(PhantomData::<Held<'static, core::cell::Cell<u64>>>).is_shared());
    }

    #[test]
    fn nothing_is_lost_between_threads() {
        let lock = Lock::new(0_u64);
        let times = if cfg!(miri) { 50 } else { 20_000 };
        thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| (0..times).for_each(|_| *lock.lock() += 1));
            }
        });
        assert_eq!(*lock.lock(), 4 * times);
    }

    #[test]
    fn what_is_tried_in_vain_stays_taken() {
        let word = SyncU32::new(FREE);
        let lock = TryWord(&word);
        let held = lock.try_lock();
        assert!(held.is_some() && lock.try_lock().is_none());
        assert!(lock.try_lock().is_none() && lock.try_long().is_none());
        drop(held);
        assert!(lock.try_lock().is_some());
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
