//! Every way in which a few threads can meet at the lock, under the memory model: `make loom`.
//!
//! The lock is compiled into this test from its source, on loom's atomics, with a model of the kernel's waiting below it. A wake-up
//! that can be lost is found as a deadlock, an ordering that is too weak as two accesses to the value that nothing orders.

#![cfg(loom)]

#[path = "../src/lock.rs"]
#[allow(dead_code, reason = "the word alone is what is looked at")]
mod lock;

use lock::RawLock;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

/// A value that only the lock protects.
#[derive(Default)]
struct Guarded {
    lock: RawLock,
    value: UnsafeCell<u32>,
}

// SAFETY: that this is so is what loom checks: each access to `value` is told to it.
unsafe impl Sync for Guarded {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Guarded {}

impl Guarded {
    /// Adds one, with the lock held.
    fn add(&self) {
        // SAFETY: the lock is held by this thread, or loom says that it is not.
        self.value.with_mut(|value| unsafe { *value += 1 });
    }

    fn locked(&self) {
        self.lock.lock();
        self.add();
        self.lock.unlock();
    }
}

/// `threads` threads beside this one, each of which takes the lock `times` times; all of it happens.
fn everyone_gets_it(threads: u32, times: u32, preemptions: Option<usize>) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = preemptions;
    model.check(move || {
        let guarded = Arc::new(Guarded::default());
        let others: Vec<_> = (0..threads)
            .map(|_| {
                let guarded = Arc::clone(&guarded);
                thread::spawn(move || (0..times).for_each(|_| guarded.locked()))
            })
            .collect();
        (0..times).for_each(|_| guarded.locked());
        others.into_iter().for_each(|other| other.join().unwrap());
        guarded.lock.lock();
        // SAFETY: the lock is held by this thread.
        assert_eq!(guarded.value.with(|value| unsafe { *value }), (threads + 1) * times);
        guarded.lock.unlock();
    });
}

#[test]
fn two_threads_in_every_order() {
    everyone_gets_it(1, 2, None);
}

/// The third is the one that a wake-up can be lost to. Thread switches at places of no choice of theirs are limited to 3.
#[test]
fn three_threads_in_most_orders() {
    everyone_gets_it(2, 1, Some(3));
}

#[test]
fn who_will_not_wait_goes_away_or_has_it() {
    loom::model(|| {
        let guarded = Arc::new(Guarded::default());
        let other = {
            let guarded = Arc::clone(&guarded);
            thread::spawn(move || {
                let got = guarded.lock.try_lock();
                if got {
                    guarded.add();
                    guarded.lock.unlock();
                }
                got
            })
        };
        guarded.locked();
        let got = other.join().unwrap();
        assert!(guarded.lock.try_lock(), "nobody has it any more");
        // SAFETY: the lock is held by this thread.
        assert_eq!(guarded.value.with(|value| unsafe { *value }), 1 + u32::from(got));
        guarded.lock.unlock();
    });
}
