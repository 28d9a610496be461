//! The C API: libisotherm. Its documentation is the header `include/isotherm.h` and is not repeated here.
//!
//! Each function validates the arguments from C (null pointers, orders, migrate types), calls the pool, and turns the
//! result into a number. No panic crosses the boundary: it becomes [`codes::EBUG`]. The caller guarantees what a
//! library cannot check: that pointers point to what the header requires.

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

/// Frames per chunk in bulk calls. The chunk converts between `u64` and `FrameNo`.
const BULK: usize = 256;

/// `isotherm_pool`.
#[derive(Debug)]
pub struct CPool {
    pool: Pool,
    /// The thread of the periodic drain, if one was requested.
    housekeeping: Mutex<Option<HousekeepingThread>>,
}

impl CPool {
    fn housekeeping(&self) -> MutexGuard<'_, Option<HousekeepingThread>> {
        self.housekeeping.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Calls `act` and turns its result into a number. A panic becomes `EBUG`.
fn answer<T: From<c_int>>(act: impl FnOnce() -> Result<T, c_int>) -> T {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(Ok(value)) => value,
        Ok(Err(code)) => T::from(code),
        Err(_) => T::from(EBUG),
    }
}

/// The text of a panic, for callers that asked for an error message.
fn bug(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    format!("open a pool: a bug in the library: {text}")
}

/// The pool behind a pointer.
///
/// # Safety
/// `pool` is null, or points to a pool that stays open for as long as the result is used.
unsafe fn pool<'a>(pool: *const CPool) -> Result<&'a Pool, c_int> {
    // SAFETY: guaranteed by the caller.
    unsafe { pool.as_ref() }.map(|open| &open.pool).ok_or(EINVAL)
}

/// The same, if it is not the pool of a parent.
///
/// # Safety
/// As of [`pool`].
unsafe fn own_pool<'a>(handle: *const CPool) -> Result<&'a Pool, c_int> {
    // SAFETY: guaranteed by the caller.
    let pool = unsafe { pool(handle) }?;
    pool.check().map_err(|e| code(&e))?;
    Ok(pool)
}

/// The place that a result is written to.
///
/// # Safety
/// `at` is null, or may be written to while the result is used, and nothing else uses it meanwhile.
unsafe fn place<'a, T>(at: *mut T) -> Result<&'a mut T, c_int> {
    // SAFETY: guaranteed by the caller.
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

/// Whether a slice of `count` numbers is possible.
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
/// As in the header: `options` points to as many bytes as its size field says, `pool` to a pointer, `error` to
/// `error_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isotherm_pool_open(
    options: *const Options,
    pool: *mut *mut CPool,
    error: *mut c_char,
    error_size: usize,
) -> c_int {
    answer(|| {
        // SAFETY: the caller guarantees that it is null or writable.
        let into = unsafe { place(pool) }.inspect_err(|_| {
            // SAFETY: the caller guarantees that it is null or has that many bytes.
            unsafe { tell("open a pool: there is no place for it, pool is null", error, error_size) };
        })?;
        *into = ptr::null_mut();
        let open = || {
            // SAFETY: the caller guarantees that it is null or as long as its first field says.
            let options = unsafe { Options::read(options) }?;
            // SAFETY: the caller guarantees that the device is null or a string.
            unsafe { options.builder() }?.build().map_err(|e| (code(&e), e.to_string()))
        };
        let opened = catch_unwind(AssertUnwindSafe(open)).unwrap_or_else(|panic| Err((EBUG, bug(&*panic))));
        match opened {
            Ok(opened) => {
                let instead = opened.instead_of().map(Error::to_string).unwrap_or_default();
                // SAFETY: the caller guarantees that it is null or has that many bytes.
                unsafe { tell(&instead, error, error_size) };
                *into = Box::into_raw(Box::new(CPool { pool: opened, housekeeping: Mutex::new(None) }));
                Ok(0)
            }
            Err((code, sentence)) => {
                // SAFETY: the caller guarantees that it is null or has that many bytes.
                unsafe { tell(&sentence, error, error_size) };
                Err(code)
            }
        }
    })
}

/// Copies a sentence, truncated to fit, and ends it with a zero.
///
/// # Safety
/// `into` is null or has room for `size` bytes.
unsafe fn tell(sentence: &str, into: *mut c_char, size: usize) {
    if into.is_null() || size == 0 {
        return;
    }
    let room = sentence.len().min(size - 1);
    let len = (0..=room).rev().find(|&len| sentence.is_char_boundary(len)).unwrap_or(0);
    // SAFETY: `len` bytes and a zero are at most `size`. Our string does not overlap the caller's memory.
    unsafe {
        ptr::copy_nonoverlapping(sentence.as_ptr(), into.cast(), len);
        into.add(len).write(0);
    }
}

/// Closes a pool.
///
/// # Safety
/// `pool` is null or was opened here. Neither it nor its blocks are used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isotherm_pool_close(pool: *mut CPool) {
    if pool.is_null() {
        return;
    }
    answer(|| {
        // SAFETY: made by `isotherm_pool_open`; the caller guarantees that it is closed only once.
        drop(unsafe { Box::from_raw(pool) });
        Ok(0)
    });
}

/// Allocates a block.
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
        // SAFETY: guaranteed by the caller. The two places have different types, so they are not the same.
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

/// Allocates the block that starts at `frame`.
///
/// # Safety
/// `handle` is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isotherm_pool_alloc_at(handle: *mut CPool, frame: u64, wanted: c_uint, kind: c_uint) -> c_int {
    answer(|| {
        // SAFETY: guaranteed by the caller.
        let pool = unsafe { pool(handle) }?;
        let (order, migrate) = (order(wanted)?, migrate(kind)?);
        let block = range(frame, u64::from(order.frames())).map_err(|_| EFAULT)?;
        // A block that begins in the pool and ends beyond it is not in use, but invalid.
        if block.start.is_aligned(order.get()) && block.end > pool.span().end {
            return Err(EFAULT);
        }
        done(pool.alloc_frame_at(block.start, order, migrate))
    })
}

/// Allocates up to `count` blocks.
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
        // SAFETY: guaranteed by the caller.
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
                // SAFETY: `done + at` is less than `count`, and `frames` has room for `count`.
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

/// Frees a block by its first frame.
///
/// # Safety
/// `handle` is null or open; the caller owns the block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isotherm_pool_free(handle: *mut CPool, frame: u64, wanted: c_uint) -> c_int {
    answer(|| {
        // SAFETY: guaranteed by the caller.
        let pool = unsafe { pool(handle) }?;
        let order = order(wanted)?;
        // SAFETY: guaranteed by the caller.
        done(unsafe { pool.free_frame(FrameNo(frame), order) })
    })
}

/// Frees a block by its address.
///
/// # Safety
/// `handle` is null or open; the caller owns the block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isotherm_pool_free_address(handle: *mut CPool, address: *mut c_void, wanted: c_uint) -> c_int {
    answer(|| {
        // SAFETY: guaranteed by the caller.
        let pool = unsafe { pool(handle) }?;
        let order = order(wanted)?;
        let frame = frame_of(pool, address)?;
        // A block starts at the start of a frame, never within one.
        if pool.address_of(frame).is_none_or(|start| start.as_ptr().cast() != address) {
            return Err(EFAULT);
        }
        // SAFETY: guaranteed by the caller.
        done(unsafe { pool.free_frame(frame, order) })
    })
}

/// Frees many blocks.
///
/// # Safety
/// `handle` is null or open; `frames` is null or has `count` entries; the caller owns the blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isotherm_pool_free_bulk(
    handle: *mut CPool,
    frames: *const u64,
    count: usize,
    wanted: c_uint,
) -> c_int {
    answer(|| {
        // SAFETY: guaranteed by the caller.
        let pool = unsafe { pool(handle) }?;
        let order = order(wanted)?;
        check_count(frames, count)?;
        // SAFETY: the caller guarantees `count` entries, and `check_count` has checked that many are possible.
        let frames = unsafe { slice::from_raw_parts(frames, count) };
        let mut first = Ok(0);
        for chunk in frames.chunks(BULK) {
            let mut some = [FrameNo(0); BULK];
            for (frame, number) in some.iter_mut().zip(chunk) {
                *frame = FrameNo(*number);
            }
            // SAFETY: guaranteed by the caller.
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
        // SAFETY: guaranteed by the caller.
        let (pool, address) = unsafe { (own_pool(handle)?, place(address)?) };
        *address = pool.address_of(FrameNo(frame)).ok_or(EFAULT)?.as_ptr().cast();
        Ok(0)
    })
}

/// The frame that contains an address.
///
/// # Safety
/// `handle` is null or open; `frame` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isotherm_pool_frame_of(handle: *mut CPool, address: *const c_void, frame: *mut u64) -> c_int {
    answer(|| {
        // SAFETY: guaranteed by the caller.
        let (pool, frame) = unsafe { (own_pool(handle)?, place(frame)?) };
        *frame = frame_of(pool, address)?.0;
        Ok(0)
    })
}

/// Adds frames to the pool, with memory.
///
/// # Safety
/// `handle` is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isotherm_pool_grow(handle: *mut CPool, frame: u64, count: u64) -> c_int {
    answer(|| {
        // SAFETY: guaranteed by the caller.
        let pool = unsafe { pool(handle) }?;
        done(pool.grow(range(frame, count)?))
    })
}

/// Removes frames from the pool.
///
/// # Safety
/// `handle` is null or open; freed blocks in the range are not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isotherm_pool_shrink(handle: *mut CPool, frame: u64, count: u64) -> c_int {
    answer(|| {
        // SAFETY: guaranteed by the caller.
        let pool = unsafe { pool(handle) }?;
        match pool.shrink(range(frame, count)?) {
            Ok(Offline::Done) => Ok(0),
            Ok(Offline::Pending { .. }) => Err(EBUSY),
            Err(e) => Err(code(&e)),
        }
    })
}

/// Cancels a shrink.
///
/// # Safety
/// `handle` is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isotherm_pool_keep(handle: *mut CPool, frame: u64, count: u64) -> c_int {
    answer(|| {
        // SAFETY: guaranteed by the caller.
        let pool = unsafe { pool(handle) }?;
        done(pool.keep(range(frame, count)?))
    })
}

/// Returns free memory to the system.
///
/// # Safety
/// `handle` is null or open; freed blocks are not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isotherm_pool_trim(handle: *mut CPool) -> i64 {
    answer(|| {
        // SAFETY: guaranteed by the caller.
        let pool = unsafe { pool(handle) }?;
        let bytes = pool.trim().map_err(|e| code(&e))?;
        i64::try_from(bytes.0).map_err(|_| EBUG)
    })
}

/// Returns the frames on per-CPU lists to the zone.
///
/// # Safety
/// `handle` is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isotherm_pool_drain(handle: *mut CPool) -> i64 {
    answer(|| {
        // SAFETY: guaranteed by the caller.
        let pool = unsafe { pool(handle) }?;
        let frames = pool.drain().map_err(|e| code(&e))?;
        i64::try_from(frames).map_err(|_| EBUG)
    })
}

/// Starts, changes or ends the thread of the periodic drain.
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
        // SAFETY: guaranteed by the caller.
        let open = unsafe { handle.as_ref() }.ok_or(EINVAL)?;
        open.pool.check().map_err(|e| code(&e))?;
        let pace = Pace { idle_after, max_deferrals };
        let start = |interval| open.pool.start_housekeeping(Housekeeping { interval, pace });
        let started = Interval::from_ns(interval_ns).map(start).transpose().map_err(|e| code(&e))?;
        // The old thread is ended after the exchange, so that the lock is not held while waiting for it.
        let before = std::mem::replace(&mut *open.housekeeping(), started);
        drop(before);
        Ok(0)
    })
}

/// Fills in the state of a pool at this moment.
///
/// # Safety
/// `handle` is null or open; `stats` is null or has as many bytes as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isotherm_pool_stats(handle: *mut CPool, stats: *mut Stats) -> c_int {
    answer(|| {
        // SAFETY: guaranteed by the caller.
        let pool = unsafe { pool(handle) }?;
        let now = pool.stats().map_err(|e| code(&e))?;
        // SAFETY: guaranteed by the caller.
        unsafe { Stats::of(&now).write(stats) }
    })
}

/// The descriptor of the memory.
///
/// # Safety
/// `handle` is null or open; the caller prevents conflicting writes through the descriptor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isotherm_pool_descriptor(handle: *mut CPool) -> c_int {
    answer(|| {
        // SAFETY: guaranteed by the caller. No slice of a block is ever made here.
        unsafe { own_pool(handle)?.descriptor() }.map(|fd| fd.as_raw_fd()).ok_or(EOPNOTSUPP)
    })
}

/// Forks while no thread is in a call for the pool.
///
/// # Safety
/// `handle` is null or open; the caller knows what is allowed in the child, as after any fork.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isotherm_pool_fork(handle: *mut CPool) -> i64 {
    answer(|| {
        // SAFETY: guaranteed by the caller.
        let open = unsafe { handle.as_ref() }.ok_or(EINVAL)?;
        // The child of a plain fork is refused before it waits for a lock, whose owner it may not have.
        open.pool.check().map_err(|e| code(&e))?;
        // Held across the fork: else the child may inherit the lock as held by a thread that it does not have. Taken
        // before the locks of the pool; no thread that holds one of those takes this one.
        let _exchanging = open.housekeeping();
        // SAFETY: the caller knows what is allowed in the child. On its way back from here, the child takes no lock
        // that other threads may hold.
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
        assert!(panic(|| std::panic::resume_unwind(Box::new(5))).ends_with("no message"));
    }
}
