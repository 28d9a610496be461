//! Signals: a thread of the library takes none of the program's signals.
//!
//! A thread inherits the mask of the one that creates it, and the kernel delivers a process's signal to any thread that
//! does not block it. In a program with one thread, a handler expects to run on that thread: to interrupt its `poll`,
//! or not to run while the pool's own thread holds per-CPU lists. So all signals are blocked while `housekeeping`
//! creates its thread, which keeps that mask. This includes faults. The program cannot handle faults of that thread,
//! and a blocked fault ends the process as if there were no handler.
//!
//! Besides `memory`, this is the only file with system calls.

#![expect(unsafe_code, reason = "a mask of signals is set here")]

use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr;

/// Blocks all signals in this thread until it is dropped. Signals that arrive meanwhile are delivered then.
#[derive(Debug)]
pub(crate) struct AllBlocked {
    before: libc::sigset_t,
    /// A signal mask belongs to a thread, so this must stay in the thread.
    _not_send: PhantomData<*const ()>,
}

impl AllBlocked {
    pub(crate) fn new() -> io::Result<AllBlocked> {
        // The C library fills in no more of a set than the kernel has signals, so zero the rest from the start.
        let (mut all, mut before) = (MaybeUninit::zeroed(), MaybeUninit::zeroed());
        // SAFETY: writes to our own set; fails only for a null pointer.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        // SAFETY: reads the set that was just filled, and writes the old mask to our own.
        let errno = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
        if errno != 0 {
            return Err(io::Error::from_raw_os_error(errno));
        }
        // SAFETY: integers, all of them initialised: to zero at first, then by the call, which succeeded.
        Ok(AllBlocked { before: unsafe { before.assume_init() }, _not_send: PhantomData })
    }
}

impl Drop for AllBlocked {
    fn drop(&mut self) {
        // SAFETY: reads our own set, in the thread whose mask it was. It fails only for an invalid first argument.
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
