//! Signals: a thread of the library takes none that are meant for the program.
//!
//! A thread begins with the mask of the one that makes it, and the kernel gives a signal of the process to any thread that does not
//! block it. In a program with one thread a handler expects to run on that one: to interrupt its `poll`, or not to run while a pool's
//! own thread has a set. So all signals are blocked while `housekeeping` makes its thread, which keeps that mask. Faults too: none
//! of that thread's is the program's to handle, and one that is blocked ends the process as if there were no handler.
//!
//! Beside `memory`, the other file with system calls.

#![expect(unsafe_code, reason = "a mask of signals is set here")]

use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr;

/// All signals are blocked in this thread until it is dropped. What arrives meanwhile is delivered then.
#[derive(Debug)]
pub(crate) struct AllBlocked {
    before: libc::sigset_t,
    /// A mask is a thread's own, so this stays in the thread.
    _not_send: PhantomData<*const ()>,
}

impl AllBlocked {
    pub(crate) fn new() -> io::Result<AllBlocked> {
        // The C library fills in no more of a set than the kernel has signals, so the rest is zero from the start.
        let (mut all, mut before) = (MaybeUninit::zeroed(), MaybeUninit::zeroed());
        // SAFETY: writes to a set of ours; that fails for a null pointer only.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        // SAFETY: reads the set that was just filled, and writes the mask so far to one of ours.
        let errno = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
        if errno != 0 {
            return Err(io::Error::from_raw_os_error(errno));
        }
        // SAFETY: integers, all of them set: zero at first, then by the call, which had no error.
        Ok(AllBlocked { before: unsafe { before.assume_init() }, _not_send: PhantomData })
    }
}

impl Drop for AllBlocked {
    fn drop(&mut self) {
        // SAFETY: reads a set of ours, in the thread whose mask it was. It fails for a first argument other than the three only.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Of this thread, as the kernel says it.
    fn mask() -> u64 {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap()
    }

    fn is_blocked(signal: libc::c_int) -> bool {
        mask() & 1 << (signal - 1) != 0
    }

    #[test]
    fn the_mask_is_afterwards_what_it_was_before() {
        let before = mask();
        let outer = AllBlocked::new().unwrap();
        let all = mask();
        assert!([libc::SIGTERM, libc::SIGPROF, libc::SIGSEGV, libc::SIGRTMAX()].into_iter().all(is_blocked));
        drop(AllBlocked::new().unwrap());
        assert_eq!(mask(), all, "blocked before, blocked after");
        drop(outer);
        assert_eq!(mask(), before);
    }
}
