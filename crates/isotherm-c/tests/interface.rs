//! The functions as a careless caller calls them: nulls, sizes of other versions, blocks given back wrongly, from many threads.

use isotherm::*;
use std::ffi::{CStr, c_void};
use std::mem::{offset_of, size_of};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

fn options() -> Options {
    Options {
        size: size_of::<Options>() as u64,
        bytes: 16 << 20,
        span_bytes: 0,
        first_frame: 0,
        backing: 0,
        flags: 0,
        shuffle: 0,
        colour_order: 0,
        colour_cache_bytes: 0,
        watermark_min: 0,
        watermark_low: 0,
        watermark_high: 0,
        seed: 0,
        device: null(),
        cpus: 0,
        tier: 0,
    }
}

const MEMFD: u32 = 1;
const DAX: u32 = 4;
const NUMBERS: u32 = 5;

/// A pool, or a number and a sentence.
fn open(options: &Options) -> Result<*mut CPool, (i32, String)> {
    let (mut pool, mut error) = (null_mut(), [0; 200]);
    // SAFETY: everything is as long as it says.
    let code = unsafe { isotherm_pool_open(options, &raw mut pool, error.as_mut_ptr(), error.len()) };
    if code == 0 {
        return Ok(pool);
    }
    assert!(pool.is_null());
    // SAFETY: it ends with a zero.
    let sentence = unsafe { CStr::from_ptr(error.as_ptr()) };
    Err((code, sentence.to_str().unwrap().to_owned()))
}

fn stats(pool: *mut CPool) -> Stats {
    // SAFETY: all zero is a value.
    let mut stats: Stats = unsafe { std::mem::zeroed() };
    stats.size = size_of::<Stats>() as u64;
    // SAFETY: the pool is open, the structure as long as it says.
    assert_eq!(unsafe { isotherm_pool_stats(pool, &raw mut stats) }, 0);
    stats
}

#[test]
fn blocks_come_and_go_by_frame_and_by_address() {
    let pool = open(&options()).unwrap();
    let (mut address, mut frame) = (null_mut(), 0);
    // SAFETY: the pool is open, places are writable, blocks are given back by who has them.
    unsafe {
        assert_eq!(isotherm_pool_alloc(pool, 0, 1, &raw mut address, &raw mut frame), 0);
        let mut other = 0;
        assert_eq!(isotherm_pool_frame_of(pool, address, &raw mut other), 0);
        assert_eq!(other, frame);
        let mut back: *mut c_void = null_mut();
        assert_eq!(isotherm_pool_address_of(pool, frame, &raw mut back), 0);
        assert_eq!(back, address);
        assert_eq!(isotherm_pool_free_address(pool, address.byte_add(8), 0), EFAULT, "not where it starts");
        assert_eq!(isotherm_pool_free(pool, frame, 1), EFAULT, "another order");
        assert_eq!(isotherm_pool_alloc_at(pool, frame, 0, 1), EBUSY);
        assert_eq!(isotherm_pool_free_address(pool, address, 0), 0);
        assert!([EALREADY, EFAULT].contains(&isotherm_pool_free_address(pool, address, 0)), "twice");
        assert_eq!(isotherm_pool_alloc_at(pool, 2048, 10, 0), 0);
        assert_eq!(isotherm_pool_free(pool, 2048, 10), 0);
        assert_eq!(isotherm_pool_free(pool, 1 << 40, 0), EFAULT);
        assert_eq!(isotherm_pool_alloc_at(pool, 1 << 40, 0, 0), EFAULT, "outside");
        assert_eq!(isotherm_pool_alloc_at(pool, 4096, 0, 0), EFAULT, "outside");
        assert_eq!(isotherm_pool_alloc_at(pool, 1, 1, 0), EINVAL, "unaligned");
        assert_eq!(isotherm_pool_alloc_at(pool, u64::MAX, 0, 0), EFAULT, "outside");
        let small = open(&Options { bytes: 37 << 12, ..options() }).unwrap();
        assert_eq!(isotherm_pool_alloc_at(small, 32, 3, 0), EFAULT, "in part outside");
        isotherm_pool_close(small);
        assert_eq!(isotherm_pool_address_of(pool, 4096, &raw mut back), EFAULT);
        assert_eq!(stats(pool).free_frames, 4096);
        isotherm_pool_close(pool);
    }
}

#[test]
fn nulls_and_values_that_cannot_be_are_errors() {
    let pool = open(&options()).unwrap();
    let (mut address, mut frame) = (null_mut(), 0);
    // SAFETY: nulls are what this is about; the rest is as it should be.
    unsafe {
        assert_eq!(isotherm_pool_open(null(), null_mut(), null_mut(), 0), EINVAL);
        let mut error = [1; 100];
        assert_eq!(isotherm_pool_open(null(), null_mut(), error.as_mut_ptr(), error.len()), EINVAL);
        assert!(CStr::from_ptr(error.as_ptr()).to_str().unwrap().contains("pool is null"));
        let mut opened = pool;
        assert_eq!(isotherm_pool_open(null(), &raw mut opened, null_mut(), 0), EINVAL);
        assert!(opened.is_null());
        assert_eq!(isotherm_pool_alloc(null_mut(), 0, 0, &raw mut address, &raw mut frame), EINVAL);
        assert_eq!(isotherm_pool_alloc(pool, 0, 0, null_mut(), null_mut()), EINVAL);
        assert_eq!(isotherm_pool_alloc(pool, 11, 0, null_mut(), &raw mut frame), EINVAL);
        assert_eq!(isotherm_pool_alloc(pool, 0, 3, null_mut(), &raw mut frame), EINVAL);
        assert_eq!(isotherm_pool_alloc_at(pool, 0, u32::MAX, 0), EINVAL);
        assert_eq!(isotherm_pool_alloc_bulk(pool, 0, 0, null_mut(), 4), i64::from(EINVAL));
        assert_eq!(isotherm_pool_alloc_bulk(pool, 0, 0, &raw mut frame, usize::MAX), i64::from(EINVAL));
        assert_eq!(isotherm_pool_free(null_mut(), 0, 0), EINVAL);
        assert_eq!(isotherm_pool_free_address(pool, null_mut(), 0), EINVAL);
        assert_eq!(isotherm_pool_free_address(pool, (&raw mut frame).cast(), 0), EFAULT, "no address of the pool");
        assert_eq!(isotherm_pool_free_bulk(pool, null(), 1, 0), EINVAL);
        assert_eq!(isotherm_pool_address_of(pool, 0, null_mut()), EINVAL);
        assert_eq!(isotherm_pool_frame_of(pool, null(), &raw mut frame), EINVAL);
        assert_eq!(isotherm_pool_grow(pool, u64::MAX, 2), EINVAL);
        assert_eq!(isotherm_pool_grow(null_mut(), 0, 2), EINVAL);
        assert_eq!(isotherm_pool_shrink(null_mut(), 0, 2), EINVAL);
        assert_eq!(isotherm_pool_keep(null_mut(), 0, 2), EINVAL);
        assert_eq!(isotherm_pool_trim(null_mut()), i64::from(EINVAL));
        assert_eq!(isotherm_pool_drain(null_mut()), i64::from(EINVAL));
        assert_eq!(isotherm_pool_stats(pool, null_mut()), EINVAL);
        assert_eq!(isotherm_pool_descriptor(null_mut()), EINVAL);
        assert_eq!(isotherm_pool_fork(null_mut()), i64::from(EINVAL));
        isotherm_pool_close(null_mut());
        assert_eq!(stats(pool).free_frames, 4096);
        isotherm_pool_close(pool);
    }
}

#[test]
fn refusals_to_open_say_why() {
    let device = c"/dev/null";
    for (options, code, says) in [
        (Options { bytes: 0, ..options() }, EINVAL, "neither may be 0"),
        (Options { bytes: 4095, ..options() }, EINVAL, "4095 bytes is not a multiple of 4.0 KiB"),
        (Options { bytes: u64::MAX - 4095, ..options() }, ENOMEM, "reserve 16.0 EiB"),
        (Options { bytes: u64::MAX - 4095, backing: MEMFD, ..options() }, ENOMEM, "reserve 16.0 EiB"),
        (Options { first_frame: u64::MAX, ..options() }, EINVAL, "a lower first frame"),
        (Options { cpus: u32::MAX, ..options() }, EINVAL, "the limit is 65536"),
        (Options { watermark_min: 9, watermark_low: 8, ..options() }, EINVAL, "at least the one before"),
        (Options { device: device.as_ptr(), ..options() }, EINVAL, "device is set"),
        (Options { size: 44, ..options() }, EINVAL, "set size to sizeof(struct)"),
        (Options { backing: 9, ..options() }, EOPNOTSUPP, "unknown backing 9"),
        (Options { flags: 64, ..options() }, E2BIG, "unknown flags 0x40"),
        (Options { shuffle: 3, ..options() }, EINVAL, "shuffle is 0, 1 or 2"),
        (Options { tier: 3, ..options() }, EINVAL, "tier is 0, 1 or 2"),
        (Options { colour_cache_bytes: 1 << 20, ..options() }, EINVAL, "multiple of 4 MiB"),
        (Options { colour_cache_bytes: 4 << 20, colour_order: 11, ..options() }, EINVAL, "colour_order"),
        (Options { backing: DAX, ..options() }, EINVAL, "device is not set"),
        (Options { backing: DAX, device: device.as_ptr(), ..options() }, EINVAL, "leave it 0"),
        (
            Options { backing: DAX, device: device.as_ptr(), bytes: 0, ..options() },
            ENODEV,
            "/dev/null: not a DAX device",
        ),
        (Options { size: 8, ..options() }, EINVAL, "set size to sizeof(struct)"),
        (Options { size: 5000, ..options() }, EINVAL, "set size to sizeof(struct)"),
    ] {
        let (got, sentence) = open(&options).unwrap_err();
        assert_eq!(got, code, "{sentence}");
        assert!(sentence.contains(says), "{sentence}");
    }
    // A sentence is cut to the room there is.
    let (mut pool, mut error) = (null_mut(), [1; 8]);
    // SAFETY: everything is as long as it says.
    unsafe { isotherm_pool_open(&Options { bytes: 0, ..options() }, &raw mut pool, error.as_mut_ptr(), 6) };
    assert_eq!(error.map(|c| u8::try_from(c).unwrap()), *b"a poo\0\x01\x01");
}

#[test]
fn structures_of_other_versions() {
    #[repr(C)]
    struct Larger {
        options: Options,
        more: u64,
    }
    let size = size_of::<Larger>() as u64;
    let mut larger = Larger { options: Options { size, ..options() }, more: 0 };
    let mut pool = null_mut();
    // SAFETY: the structure is as long as it says.
    let mut open_larger =
        |larger: &Larger| unsafe { isotherm_pool_open((&raw const *larger).cast(), &raw mut pool, null_mut(), 0) };
    assert_eq!(open_larger(&larger), 0);
    larger.more = 1;
    assert_eq!(open_larger(&larger), E2BIG);
    // One that ends after the fields of an older version: the others count as zero.
    let older = Options { size: offset_of!(Options, shuffle) as u64, shuffle: 77, ..options() };
    let pool = open(&older).unwrap();
    let mut older = Stats { size: offset_of!(Stats, free_blocks) as u64, failed: 77, ..stats(pool) };
    // SAFETY: the structure is longer than it says.
    assert_eq!(unsafe { isotherm_pool_stats(pool, &raw mut older) }, 0);
    assert_eq!((older.present_frames, older.failed), (4096, 77), "nothing is written beyond what it says");
    #[repr(C)]
    struct LargerStats {
        stats: Stats,
        more: u64,
    }
    let size = size_of::<LargerStats>() as u64;
    let mut newer = LargerStats { stats: Stats { size, ..older }, more: 1 };
    // SAFETY: the structure is as long as it says.
    assert_eq!(unsafe { isotherm_pool_stats(pool, (&raw mut newer).cast()) }, 0);
    assert_eq!((newer.stats.size, newer.more), (size_of::<Stats>() as u64, 0), "what was filled");
    // SAFETY: as above.
    unsafe {
        for size in [4, 12, 5000] {
            older.size = size;
            assert_eq!(isotherm_pool_stats(pool, &raw mut older), EINVAL);
        }
        isotherm_pool_close(pool);
    }
}

#[test]
fn many_at_once() {
    let pool = open(&Options { backing: MEMFD, ..options() }).unwrap();
    let mut frames = vec![0_u64; 5000];
    // SAFETY: the pool is open, there is room for what is asked, blocks are given back by who has them.
    unsafe {
        assert_eq!(isotherm_pool_alloc_bulk(pool, 0, 1, frames.as_mut_ptr(), frames.len()), 4096);
        assert_eq!(isotherm_pool_alloc_bulk(pool, 0, 1, frames.as_mut_ptr(), 1), i64::from(ENOMEM));
        let mut sorted = frames[..4096].to_vec();
        sorted.sort_unstable();
        assert!(sorted.iter().copied().eq(0..4096));
        frames[7] = frames[8];
        assert_ne!(isotherm_pool_free_bulk(pool, frames.as_ptr(), 4096, 0), 0);
        assert_eq!(stats(pool).free_frames, 4095, "all but the one that was there twice");
        isotherm_pool_close(pool);
    }
}

#[test]
fn a_pool_grows_and_shrinks_and_gives_back() {
    let pool = open(&Options { span_bytes: 32 << 20, backing: MEMFD, ..options() }).unwrap();
    // SAFETY: the pool is open, blocks are given back by who has them.
    unsafe {
        assert_eq!(isotherm_pool_grow(pool, 4000, 200), EEXIST);
        assert_eq!(isotherm_pool_grow(pool, 4096, 8192), EINVAL);
        assert_eq!(isotherm_pool_grow(pool, 4096, 4096), 0);
        assert_eq!(isotherm_pool_alloc_at(pool, 5000, 0, 0), 0);
        assert_eq!(isotherm_pool_shrink(pool, 4096, 4096), EBUSY);
        assert_eq!(isotherm_pool_keep(pool, 4096, 4096), 0);
        assert_eq!(isotherm_pool_shrink(pool, 4096, 4096), EBUSY);
        assert_eq!(isotherm_pool_free(pool, 5000, 0), 0);
        assert_eq!(isotherm_pool_shrink(pool, 4096, 4096), 0);
        assert_eq!(isotherm_pool_shrink(pool, 4096, 4096), EINVAL);
        assert_eq!(isotherm_pool_shrink(pool, 0, u64::MAX), EINVAL, "beyond the span");
        assert_eq!(stats(pool).present_frames, 4096);
        assert_eq!(isotherm_pool_trim(pool), 16 << 20);
        assert!(isotherm_pool_descriptor(pool) > 2);
        isotherm_pool_close(pool);
    }
}

#[test]
fn numbers_have_no_address() {
    let pool = open(&Options { backing: NUMBERS, first_frame: 1 << 30, shuffle: 1, seed: 7, ..options() }).unwrap();
    let (mut address, mut frame) = (null_mut(), 0);
    // SAFETY: the pool is open, places are writable.
    unsafe {
        assert_eq!(isotherm_pool_alloc(pool, 0, 1, &raw mut address, &raw mut frame), EOPNOTSUPP);
        assert_eq!(stats(pool).free_frames, 4096, "nothing was handed out");
        assert_eq!(isotherm_pool_alloc(pool, 0, 1, null_mut(), &raw mut frame), 0);
        assert!(frame >= 1 << 30);
        assert_eq!(isotherm_pool_descriptor(pool), EOPNOTSUPP);
        assert_eq!(stats(pool).shuffled, 1);
        isotherm_pool_close(pool);
    }
}

/// A handle that other threads may use.
#[derive(Clone, Copy)]
struct Shared(*mut CPool);
// SAFETY: the interface says that any thread may call it.
unsafe impl Send for Shared {}

#[test]
fn any_thread_may_call() {
    let pool = Shared(open(&options()).unwrap());
    let threads: Vec<_> = (0..4)
        .map(|n| {
            thread::spawn(move || {
                let pool = pool;
                for round in 0..2000 {
                    let mut address: *mut c_void = null_mut();
                    // SAFETY: the pool is open until all have ended; the block is this thread's.
                    unsafe {
                        assert_eq!(isotherm_pool_alloc(pool.0, 0, n % 3, &raw mut address, null_mut()), 0);
                        let word = address.cast::<u64>();
                        word.write(u64::from(n) << 32 | round);
                        assert_eq!(word.read(), u64::from(n) << 32 | round);
                        assert_eq!(isotherm_pool_free_address(pool.0, address, 0), 0);
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    assert_eq!(stats(pool.0).free_frames, 4096);
    // SAFETY: nobody uses it any more.
    unsafe { isotherm_pool_close(pool.0) };
}

/// What a child says by its exit status; forked by `fork`.
fn child_says(fork: impl FnOnce() -> i64, says: impl FnOnce() -> bool) -> bool {
    match fork() {
        0 => {
            let status = if says() { 0 } else { 1 };
            // SAFETY: ends the child.
            unsafe { libc::_exit(status) }
        }
        pid => {
            let pid = libc::pid_t::try_from(pid).unwrap();
            let mut status = 0;
            // SAFETY: waits for our own child.
            assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
            libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
        }
    }
}

#[test]
fn a_child_goes_on_only_where_it_may() {
    let private = open(&options()).unwrap();
    let shared = open(&Options { backing: MEMFD, ..options() }).unwrap();
    let alloc = |pool| {
        let mut frame = 0;
        // SAFETY: the pool is open.
        unsafe { isotherm_pool_alloc(pool, 0, 0, null_mut(), &raw mut frame) }
    };
    // SAFETY: the children call the library and `_exit`.
    let fork = || i64::from(unsafe { libc::fork() });
    assert!(child_says(fork, || alloc(private) == EFORKED && alloc(shared) == EFORKED));
    // SAFETY: as above.
    let quiet = |pool| move || unsafe { isotherm_pool_fork(pool) };
    assert!(child_says(quiet(private), || alloc(private) == 0 && alloc(shared) == EFORKED));
    assert!(child_says(quiet(shared), || alloc(shared) == EFORKED));
    let mut address = null_mut();
    // SAFETY: the pool is open.
    assert_eq!(unsafe { isotherm_pool_address_of(shared, 0, &raw mut address) }, 0);
    // SAFETY: the children have the pool, and only ask.
    let each = || unsafe {
        let mut frame = 0;
        isotherm_pool_address_of(shared, 0, &raw mut address) == EFORKED
            && isotherm_pool_frame_of(shared, address, &raw mut frame) == EFORKED
            && isotherm_pool_descriptor(shared) == EFORKED
    };
    assert!(child_says(fork, each));
    // SAFETY: the last calls for both.
    unsafe {
        isotherm_pool_close(private);
        isotherm_pool_close(shared);
    }
}

/// The lock of the exchange is not the pool's, and another thread may hold it at the instant of the fork.
#[test]
fn a_child_may_change_housekeeping_that_others_were_changing() {
    let pool = Shared(open(&Options { backing: NUMBERS, ..options() }).unwrap());
    let over = AtomicBool::new(false);
    let ended_well = thread::scope(|s| {
        for _ in 0..2 {
            // An interval of 0 does nothing but exchange.
            let over = &over;
            s.spawn(move || {
                let pool = pool;
                while !over.load(Ordering::Relaxed) {
                    // SAFETY: the pool is open.
                    assert_eq!(unsafe { isotherm_pool_housekeeping(pool.0, 0, 0, 0) }, 0);
                }
            });
        }
        // SAFETY: the children call the library and `_exit`.
        let fork = || unsafe { isotherm_pool_fork(pool.0) };
        let ended_well = (0..50).all(|_| {
            child_says(fork, || {
                // SAFETY: a child that waits for ever is ended by a signal.
                unsafe { libc::alarm(60) };
                // SAFETY: the pool is open, and the child's own.
                unsafe { isotherm_pool_housekeeping(pool.0, 1_000_000_000, 3, 8) == 0 }
            })
        });
        over.store(true, Ordering::Relaxed);
        ended_well
    });
    assert!(ended_well);
    // SAFETY: its last call.
    unsafe { isotherm_pool_close(pool.0) };
}

#[test]
fn every_result_has_words() {
    for code in [0, 5, EINVAL, EFORKED, -1, i32::MIN] {
        // SAFETY: a string that lives for ever.
        let text = unsafe { CStr::from_ptr(isotherm_strerror(code)) };
        assert!(!text.is_empty(), "{code}");
    }
    // SAFETY: as above.
    assert_eq!(unsafe { CStr::from_ptr(isotherm_version()) }.to_str(), Ok(env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_pool_keeps_house_by_itself_until_it_is_told_not_to_or_closed() {
    const MS: u64 = 1_000_000;
    let pool = open(&Options { backing: NUMBERS, ..options() }).unwrap();
    let use_some = || {
        let mut frames = [0; 8];
        for frame in &mut frames {
            // SAFETY: the pool is open, the place writable.
            assert_eq!(unsafe { isotherm_pool_alloc(pool, 0, 1, null_mut(), frame) }, 0);
        }
        // SAFETY: the pool is open, and nobody else has the blocks.
        frames.into_iter().for_each(|frame| assert_eq!(unsafe { isotherm_pool_free(pool, frame, 0) }, 0));
    };
    let wait_until_nothing_waits = || {
        let began = std::time::Instant::now();
        while stats(pool).waiting_frames > 0 {
            assert!(began.elapsed().as_secs() < 60, "what idle CPUs keep does not go back");
            thread::sleep(std::time::Duration::from_millis(1));
        }
    };
    use_some();
    // SAFETY: null, and an open pool.
    assert_eq!(unsafe { isotherm_pool_housekeeping(null_mut(), MS, 3, 8) }, EINVAL);
    for too_often in [1, MS / 10 - 1] {
        // SAFETY: the pool is open.
        assert_eq!(unsafe { isotherm_pool_housekeeping(pool, too_often, 3, 8) }, EINVAL);
    }
    // SAFETY: the pool is open.
    assert_eq!(unsafe { isotherm_pool_housekeeping(pool, MS, 3, 8) }, 0);
    wait_until_nothing_waits();
    // SAFETY: the pool is open.
    assert_eq!(unsafe { isotherm_pool_housekeeping(pool, 2 * MS, 1, 0) }, 0);
    use_some();
    wait_until_nothing_waits();
    // SAFETY: the pool is open.
    assert_eq!(unsafe { isotherm_pool_housekeeping(pool, 0, 0, 0) }, 0);
    use_some();
    assert!(stats(pool).waiting_frames > 0);
    // And closed with a thread that would sleep for an hour.
    // SAFETY: the pool is open.
    assert_eq!(unsafe { isotherm_pool_housekeeping(pool, 3_600_000 * MS, 3, 8) }, 0);
    // SAFETY: its last call.
    unsafe { isotherm_pool_close(pool) };
}
