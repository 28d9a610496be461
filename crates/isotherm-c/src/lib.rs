//! The C interface: libisotherm. The header `include/isotherm.h` is its documentation; what is said there is not said again here.
//!
//! Each function turns what C gives into values that are certain to be right (no null, no order or type that there is not), calls the
//! pool, and turns the result into a number. No panic leaves: it would be [`codes::EBUG`]. What no library can check is left to the
//! caller: that pointers point to what the header says.

mod codes;
mod structs;

pub use codes::{
    E2BIG, EALREADY, EBUG, EBUSY, EEXIST, EFAULT, EFORKED, EINVAL, ENODEV, ENOMEM, EOPNOTSUPP, isotherm_strerror,
};
pub use structs::{Options, Stats};

use codes::code;
use isotherm_pools::{
    Error, FrameNo, FrameRange, Housekeeping, HousekeepingThread, Interval, MigrateType, Offline, Order, Pace, Pool,
};
use std::any::Any;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{ptr, slice};

/// Frames that are passed on at a time in bulk: their numbers have another type on the other side.
const BULK: usize = 256;

/// `isotherm_pool`.
#[derive(Debug)]
pub struct CPool {
    pool: Pool,
    /// The thread that keeps house for it, if one was asked for.
    housekeeping: Mutex<Option<HousekeepingThread>>,
}

impl CPool {
    fn housekeeping(&self) -> MutexGuard<'_, Option<HousekeepingThread>> {
        self.housekeeping.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Calls `act` and makes a number of what comes of it.
fn answer<T: From<c_int>>(act: impl FnOnce() -> Result<T, c_int>) -> T {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(Ok(value)) => value,
        Ok(Err(code)) => T::from(code),
        Err(_) => T::from(EBUG),
    }
}

/// What a panic says, for those who asked for a sentence.
fn bug(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("it says no more");
    format!("open a pool: a bug in the library: {text}")
}

/// The pool behind a pointer.
///
/// # Safety
/// It is null or of a pool that is open for as long as the result is used.
unsafe fn pool<'a>(pool: *const CPool) -> Result<&'a Pool, c_int> {
    // SAFETY: the caller says so.
    unsafe { pool.as_ref() }.map(|open| &open.pool).ok_or(EINVAL)
}

/// Where a result goes.
///
/// # Safety
/// It is null or may be written to while the result is used, and nobody else uses it.
unsafe fn place<'a, T>(at: *mut T) -> Result<&'a mut T, c_int> {
    // SAFETY: the caller says so.
    unsafe { at.as_mut() }.ok_or(EINVAL)
}

fn order(order: c_uint) -> Result<Order, c_int> {
    Order::new(order).ok_or(EINVAL)
}

fn migrate(migrate: c_uint) -> Result<MigrateType, c_int> {
    let index = usize::try_from(migrate).map_err(|_| EINVAL)?;
    MigrateType::ALL.get(index).copied().ok_or(EINVAL)
}

fn range(frame: u64, count: u64) -> Result<FrameRange, c_int> {
    let end = frame.checked_add(count).ok_or(EINVAL)?;
    Ok(FrameRange::new(FrameNo(frame), FrameNo(end)))
}

fn done(result: Result<(), Error>) -> Result<c_int, c_int> {
    result.map(|()| 0).map_err(|e| code(&e))
}

/// Whether a slice of `count` numbers can be.
fn check_count(frames: *const u64, count: usize) -> Result<(), c_int> {
    let bytes = count.checked_mul(size_of::<u64>()).and_then(|bytes| isize::try_from(bytes).ok());
    if frames.is_null() || bytes.is_none() { Err(EINVAL) } else { Ok(()) }
}

/// The version of this library.
#[unsafe(no_mangle)]
pub extern "C" fn isotherm_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Opens a pool.
///
/// # Safety
/// As in the header: `options` points to as many bytes as it says, `pool` to a pointer, `error` to `error_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isotherm_pool_open(
    options: *const Options,
    pool: *mut *mut CPool,
    error: *mut c_char,
    error_size: usize,
) -> c_int {
    answer(|| {
        // SAFETY: null, or writable, says the caller.
        let into = unsafe { place(pool) }?;
        *into = ptr::null_mut();
        let open = || {
            // SAFETY: null, or as long as its first field says, says the caller.
            let options = unsafe { Options::read(options) }?;
            // SAFETY: the device is null or a string, says the caller.
            unsafe { options.builder() }?.build().map_err(|e| (code(&e), e.to_string()))
        };
        let opened = catch_unwind(AssertUnwindSafe(open)).unwrap_or_else(|panic| Err((EBUG, bug(&*panic))));
        match opened {
            Ok(opened) => {
                let instead = opened.instead_of().map(Error::to_string).unwrap_or_default();
                // SAFETY: null, or that many bytes, says the caller.
                unsafe { tell(&instead, error, error_size) };
                *into = Box::into_raw(Box::new(CPool { pool: opened, housekeeping: Mutex::new(None) }));
                Ok(0)
            }
            Err((code, sentence)) => {
                // SAFETY: null, or that many bytes, says the caller.
                unsafe { tell(&sentence, error, error_size) };
                Err(code)
            }
        }
    })
}

/// Copies a sentence, cut to what there is room for, with a zero at its end.
///
/// # Safety
/// `into` is null or has room for `size` bytes.
unsafe fn tell(sentence: &str, into: *mut c_char, size: usize) {
    if into.is_null() || size == 0 {
        return;
    }
    let room = sentence.len().min(size - 1);
    let len = (0..=room).rev().find(|&len| sentence.is_char_boundary(len)).unwrap_or(0);
    // SAFETY: `len` bytes and a zero are at most `size`; a string of ours overlaps nothing of the caller's.
    unsafe {
        ptr::copy_nonoverlapping(sentence.as_ptr(), into.cast(), len);
        into.add(len).write(0);
    }
}

/// Closes a pool.
///
/// # Safety
/// `pool` is null or was opened here, and is not used any more; nor are its blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isotherm_pool_close(pool: *mut CPool) {
    if pool.is_null() {
        return;
    }
    answer(|| {
        // SAFETY: made by `isotherm_pool_open` and closed once, says the caller.
        drop(unsafe { Box::from_raw(pool) });
        Ok(0)
    });
}

/// Hands out a block.
///
/// # Safety
/// `handle` is null or open; `address` and `frame` are null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isotherm_pool_alloc(
    handle: *mut CPool,
    wanted: c_uint,
    kind: c_uint,
    address: *mut *mut c_void,
    frame: *mut u64,
) -> c_int {
    answer(|| {
        // SAFETY: as the caller says; the two places are of different types, so they are not the same.
        let (pool, address, frame) = unsafe { (pool(handle)?, address.as_mut(), frame.as_mut()) };
        let (order, migrate) = (order(wanted)?, migrate(kind)?);
        if address.is_none() && frame.is_none() {
            return Err(EINVAL);
        }
        if address.is_some() && pool.address_of(pool.span().start).is_none() {
            return Err(EOPNOTSUPP);
        }
        let got = pool.alloc_frame(order, migrate).map_err(|e| code(&e))?;
        if let (Some(address), Some(start)) = (address, pool.address_of(got)) {
            *address = start.as_ptr().cast();
        }
        if let Some(frame) = frame {
            *frame = got.0;
        }
        Ok(0)
    })
}

/// Hands out the block that starts at `frame`.
///
/// # Safety
/// `handle` is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isotherm_pool_alloc_at(handle: *mut CPool, frame: u64, wanted: c_uint, kind: c_uint) -> c_int {
    answer(|| {
        // SAFETY: as the caller says.
        let pool = unsafe { pool(handle) }?;
        let (order, migrate) = (order(wanted)?, migrate(kind)?);
        let block = range(frame, u64::from(order.frames())).map_err(|_| EFAULT)?;
        // What begins in the pool and ends beyond it is not in use.
        if block.start.is_aligned(order.get()) && block.end > pool.span().end {
            return Err(EFAULT);
        }
        done(pool.alloc_frame_at(block.start, order, migrate))
    })
}

/// Hands out up to `count` blocks.
///
/// # Safety
/// `handle` is null or open; `frames` is null or has room for `count`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isotherm_pool_alloc_bulk(
    handle: *mut CPool,
    wanted: c_uint,
    kind: c_uint,
    frames: *mut u64,
    count: usize,
) -> i64 {
    answer(|| {
        // SAFETY: as the caller says.
        let pool = unsafe { pool(handle) }?;
        let (order, migrate) = (order(wanted)?, migrate(kind)?);
        check_count(frames, count)?;
        let mut done = 0;
        while done < count {
            let mut some = [FrameNo(0); BULK];
            let some = &mut some[..BULK.min(count - done)];
            let got = match pool.alloc_frames(order, migrate, some) {
                Ok(got) => got,
                Err(e) if done == 0 => return Err(code(&e)),
                Err(_) => break,
            };
            for (at, frame) in some[..got].iter().enumerate() {
                // SAFETY: `done + at` is below `count`, for which there is room.
                unsafe { frames.add(done + at).write(frame.0) };
            }
            done += got;
            if got < some.len() {
                break;
            }
        }
        i64::try_from(done).map_err(|_| EINVAL)
    })
}

/// Takes a block back by its first frame.
///
/// # Safety
/// `handle` is null or open; nobody else has the block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isotherm_pool_free(handle: *mut CPool, frame: u64, wanted: c_uint) -> c_int {
    answer(|| {
        // SAFETY: as the caller says.
        let pool = unsafe { pool(handle) }?;
        let order = order(wanted)?;
        // SAFETY: as the caller says.
        done(unsafe { pool.free_frame(FrameNo(frame), order) })
    })
}

/// Takes a block back by its address.
///
/// # Safety
/// `handle` is null or open; nobody else has the block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isotherm_pool_free_address(handle: *mut CPool, address: *mut c_void, wanted: c_uint) -> c_int {
    answer(|| {
        // SAFETY: as the caller says.
        let pool = unsafe { pool(handle) }?;
        let order = order(wanted)?;
        let frame = frame_of(pool, address)?;
        // Within a frame is not where a block starts.
        if pool.address_of(frame).is_none_or(|start| start.as_ptr().cast() != address) {
            return Err(EFAULT);
        }
        // SAFETY: as the caller says.
        done(unsafe { pool.free_frame(frame, order) })
    })
}

/// Takes many blocks back.
///
/// # Safety
/// `handle` is null or open; `frames` is null or has `count`; nobody else has the blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isotherm_pool_free_bulk(
    handle: *mut CPool,
    frames: *const u64,
    count: usize,
    wanted: c_uint,
) -> c_int {
    answer(|| {
        // SAFETY: as the caller says.
        let pool = unsafe { pool(handle) }?;
        let order = order(wanted)?;
        check_count(frames, count)?;
        // SAFETY: `count` numbers are there, says the caller, and that many can be.
        let frames = unsafe { slice::from_raw_parts(frames, count) };
        let mut first = Ok(0);
        for chunk in frames.chunks(BULK) {
            let mut some = [FrameNo(0); BULK];
            for (frame, number) in some.iter_mut().zip(chunk) {
                *frame = FrameNo(*number);
            }
            // SAFETY: as the caller says.
            first = first.and(done(unsafe { pool.free_frames(&some[..chunk.len()], order) }));
        }
        first
    })
}

fn frame_of(pool: &Pool, address: *const c_void) -> Result<FrameNo, c_int> {
    if address.is_null() {
        return Err(EINVAL);
    }
    pool.frame_of(address.cast()).ok_or(EFAULT)
}

/// The address of a frame.
///
/// # Safety
/// `handle` is null or open; `address` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isotherm_pool_address_of(handle: *mut CPool, frame: u64, address: *mut *mut c_void) -> c_int {
    answer(|| {
        // SAFETY: as the caller says.
        let (pool, address) = unsafe { (pool(handle)?, place(address)?) };
        *address = pool.address_of(FrameNo(frame)).ok_or(EFAULT)?.as_ptr().cast();
        Ok(0)
    })
}

/// The frame that an address lies in.
///
/// # Safety
/// `handle` is null or open; `frame` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isotherm_pool_frame_of(handle: *mut CPool, address: *const c_void, frame: *mut u64) -> c_int {
    answer(|| {
        // SAFETY: as the caller says.
        let (pool, frame) = unsafe { (pool(handle)?, place(frame)?) };
        *frame = frame_of(pool, address)?.0;
        Ok(0)
    })
}

/// Puts memory behind frames.
///
/// # Safety
/// `handle` is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isotherm_pool_grow(handle: *mut CPool, frame: u64, count: u64) -> c_int {
    answer(|| {
        // SAFETY: as the caller says.
        let pool = unsafe { pool(handle) }?;
        done(pool.grow(range(frame, count)?))
    })
}

/// Takes frames out of the pool.
///
/// # Safety
/// `handle` is null or open; blocks in the range that were given back are not used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isotherm_pool_shrink(handle: *mut CPool, frame: u64, count: u64) -> c_int {
    answer(|| {
        // SAFETY: as the caller says.
        let pool = unsafe { pool(handle) }?;
        match pool.shrink(range(frame, count)?) {
            Ok(Offline::Done) => Ok(0),
            Ok(Offline::Pending { .. }) => Err(EBUSY),
            Err(e) => Err(code(&e)),
        }
    })
}

/// Calls a shrink off.
///
/// # Safety
/// `handle` is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isotherm_pool_keep(handle: *mut CPool, frame: u64, count: u64) -> c_int {
    answer(|| {
        // SAFETY: as the caller says.
        let pool = unsafe { pool(handle) }?;
        done(pool.keep(range(frame, count)?))
    })
}

/// Gives free memory back to the system.
///
/// # Safety
/// `handle` is null or open; blocks that were given back are not used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isotherm_pool_trim(handle: *mut CPool) -> i64 {
    answer(|| {
        // SAFETY: as the caller says.
        let pool = unsafe { pool(handle) }?;
        let bytes = pool.trim().map_err(|e| code(&e))?;
        i64::try_from(bytes.0).map_err(|_| EBUG)
    })
}

/// Gives what waits in per-CPU sets back.
///
/// # Safety
/// `handle` is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isotherm_pool_drain(handle: *mut CPool) -> i64 {
    answer(|| {
        // SAFETY: as the caller says.
        let pool = unsafe { pool(handle) }?;
        let frames = pool.drain().map_err(|e| code(&e))?;
        i64::try_from(frames).map_err(|_| EBUG)
    })
}

/// Starts, changes or ends the thread that keeps house.
///
/// # Safety
/// `handle` is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isotherm_pool_housekeeping(
    handle: *mut CPool,
    interval_ns: u64,
    idle_after: c_uint,
    max_deferrals: c_uint,
) -> c_int {
    answer(|| {
        // SAFETY: as the caller says.
        let open = unsafe { handle.as_ref() }.ok_or(EINVAL)?;
        open.pool.check().map_err(|e| code(&e))?;
        let pace = Pace { idle_after, most_deferrals: max_deferrals };
        let start = |interval| open.pool.start_housekeeping(Housekeeping { interval, pace });
        let started = Interval::from_ns(interval_ns).map(start).transpose().map_err(|e| code(&e))?;
        // What was there ends after it has been exchanged, so the lock is held for no longer than that.
        let before = std::mem::replace(&mut *open.housekeeping(), started);
        drop(before);
        Ok(0)
    })
}

/// What a pool is at this moment.
///
/// # Safety
/// `handle` is null or open; `stats` is null or has as many bytes as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isotherm_pool_stats(handle: *mut CPool, stats: *mut Stats) -> c_int {
    answer(|| {
        // SAFETY: as the caller says.
        let pool = unsafe { pool(handle) }?;
        let now = pool.stats().map_err(|e| code(&e))?;
        // SAFETY: as the caller says.
        unsafe { Stats::of(&now).write(stats) }
    })
}

/// The descriptor of the memory.
///
/// # Safety
/// `handle` is null or open; what is written through the descriptor is for the caller to keep apart.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isotherm_pool_descriptor(handle: *mut CPool) -> c_int {
    answer(|| {
        // SAFETY: as the caller says. No slice of a block is ever made here.
        unsafe { pool(handle)?.descriptor() }.map(|fd| fd.as_raw_fd()).ok_or(EOPNOTSUPP)
    })
}

/// Forks while nobody is in the pool.
///
/// # Safety
/// `handle` is null or open; what may be done in the child is for the caller to know, as after any fork.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isotherm_pool_fork(handle: *mut CPool) -> i64 {
    answer(|| {
        // SAFETY: as the caller says.
        let open = unsafe { handle.as_ref() }.ok_or(EINVAL)?;
        // A child of a plain fork is refused before it waits for a lock whose owner it may not have.
        open.pool.check().map_err(|e| code(&e))?;
        // Or the child may get the lock from a thread that it does not have. Taken before those of the pool, by nobody who has one of them.
        let _exchanging = open.housekeeping();
        // SAFETY: what the child may do is the caller's to know; on its way back from here it takes no lock that others may hold.
        match open.pool.while_quiet(|| unsafe { libc::fork() }).map_err(|e| code(&e))? {
            -1 => Err(-std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EAGAIN)),
            pid => Ok(i64::from(pid)),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bug_has_a_sentence() {
        let panic = |act: fn()| bug(&*catch_unwind(act).unwrap_err());
        let n = std::hint::black_box(7);
        assert_eq!(bug(&format!("number {n}")), "open a pool: a bug in the library: number 7");
        assert_eq!(panic(|| std::panic::resume_unwind(Box::new("why"))), "open a pool: a bug in the library: why");
        assert!(panic(|| std::panic::resume_unwind(Box::new(5))).ends_with("it says no more"));
    }
}
