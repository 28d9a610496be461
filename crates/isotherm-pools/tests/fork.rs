//! Real forks: who goes on with a pool, and who is told that it is not his.

use isotherm_pools::{
    Bytes, Error, FrameNo, FrameRange, Housekeeping, Interval, MigrateType, Order, Pool, PoolBuilder, Tier,
};
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const MOVABLE: MigrateType = MigrateType::Movable;

/// What a child found, by its exit status. `look` must not panic.
fn in_child(look: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child calls `look` and `_exit` and nothing that other threads could hold a lock of for ever: the C library keeps
    // its own allocator usable in children.
    match unsafe { libc::fork() } {
        0 => {
            let status = if look() { 0 } else { 1 };
            // SAFETY: ends the child without running what belongs to the parent.
            unsafe { libc::_exit(status) }
        }
        child => found(child),
    }
}

fn found(child: libc::pid_t) -> bool {
    assert!(child > 0, "fork: {}", std::io::Error::last_os_error());
    let mut status = 0;
    // SAFETY: waits for our own child.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "the child ended by signal {}", libc::WTERMSIG(status));
    libc::WEXITSTATUS(status) == 0
}

fn is_refused<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::Forked))
}

fn pools() -> [Pool; 3] {
    let size = Bytes::of_mib(8);
    [PoolBuilder::anonymous(size), PoolBuilder::memfd(size), PoolBuilder::numbers(size)].map(|b| b.build().unwrap())
}

#[test]
fn a_child_is_told_that_the_pool_is_not_its_own() {
    for pool in pools() {
        let frame = pool.alloc_frame(Order::FRAME, MOVABLE).unwrap();
        let block = pool.alloc(Order::FRAME, MOVABLE);
        let told = in_child(|| {
            let answers = [
                is_refused(pool.alloc_frame(Order::FRAME, MOVABLE)),
                is_refused(pool.alloc(Order::FRAME, MOVABLE)),
                is_refused(pool.alloc_bulk(Order::FRAME, MOVABLE, 3)),
                is_refused(pool.stats()),
                is_refused(pool.check()),
                is_refused(pool.trim()),
                is_refused(pool.grow(pool.span())),
                is_refused(pool.shrink(pool.span())),
                is_refused(pool.while_quiet(|| ())),
                // SAFETY: it is refused.
                is_refused(unsafe { pool.free_frame(frame, Order::FRAME) }),
            ];
            // Neither of them touches what is the parent's.
            drop(block);
            drop(pool.clone());
            answers == [true; 10]
        });
        assert!(told, "{:?}", pool.backing());
        assert!(pool.alloc_frame(Order::FRAME, MOVABLE).is_ok(), "the parent goes on");
        pool.validate().unwrap();
    }
}

#[test]
fn a_child_may_drop_the_pool() {
    for pool in pools() {
        let backing = pool.backing();
        let mut held = Some((pool.clone(), pool.alloc(Order::FRAME, MOVABLE).map(|b| b.into_owned()).ok()));
        drop(pool);
        assert!(in_child(|| held.take().is_some()));
        let (pool, block) = held.unwrap();
        if let Some(mut block) = block {
            block.as_mut_slice()[0] = 1;
        }
        assert!(pool.alloc_frame(Order::FRAME, MOVABLE).is_ok(), "{backing:?}");
    }
}

#[test]
fn shared_memory_is_not_mapped_in_children() {
    let pool = PoolBuilder::memfd(Bytes::of_mib(8)).span(Bytes::of_mib(16)).build().unwrap();
    pool.grow(isotherm_pools::FrameRange::new(isotherm_pools::FrameNo(2048), isotherm_pools::FrameNo(4096))).unwrap();
    let addresses = [0, 3000].map(|f| pool.address_of(isotherm_pools::FrameNo(f)).unwrap());
    let mapped = |address: std::ptr::NonNull<u8>| {
        let mut page = 0;
        // SAFETY: mincore writes one byte, and fails where nothing is mapped.
        unsafe { libc::mincore(address.as_ptr().cast(), 4096, &raw mut page) == 0 }
    };
    assert!(addresses.iter().all(|&a| mapped(a)));
    assert!(in_child(|| addresses.iter().all(|&a| !mapped(a))));
}

#[test]
fn a_quiet_fork_goes_on_with_a_copy() {
    let pool = PoolBuilder::anonymous(Bytes::of_mib(8)).build().unwrap();
    let mut block = pool.alloc(Order::FRAME, MOVABLE).unwrap();
    block.as_mut_slice()[0] = 1;
    // SAFETY: as for `in_child`.
    let child = pool.while_quiet(|| unsafe { libc::fork() }).unwrap();
    if child == 0 {
        let good = goes_on(&pool, &mut block.as_mut_slice()[0]);
        drop(block);
        // SAFETY: ends the child.
        unsafe { libc::_exit(if good { 0 } else { 1 }) };
    }
    assert!(found(child));
    assert_eq!(block.as_slice()[0], 1, "the child wrote to its own copy");
    assert_eq!(pool.stats().unwrap().free(), 2047);
}

fn goes_on(pool: &Pool, byte: &mut u8) -> bool {
    let was = std::mem::replace(byte, 2);
    let used = pool.alloc_bulk(Order::FRAME, MOVABLE, 100).is_ok_and(|blocks| blocks.len() == 100);
    was == 1 && used && pool.validate().is_ok() && pool.stats().is_ok_and(|s| s.free() == 2047)
}

#[test]
fn a_quiet_fork_of_shared_memory_is_told_all_the_same() {
    let pool = PoolBuilder::memfd(Bytes::of_mib(8)).build().unwrap();
    // SAFETY: as for `in_child`.
    let child = pool.while_quiet(|| unsafe { libc::fork() }).unwrap();
    if child == 0 {
        let told = is_refused(pool.alloc(Order::FRAME, MOVABLE));
        // SAFETY: ends the child.
        unsafe { libc::_exit(if told { 0 } else { 1 }) };
    }
    assert!(found(child));
}

/// The tiers that there are here.
fn tiers() -> impl Iterator<Item = PoolBuilder> {
    let of = |tier| PoolBuilder::anonymous(Bytes::of_mib(4)).tier(tier);
    [of(Tier::Restartable), of(Tier::Locked)].into_iter().filter(|wanted| match wanted.build() {
        Err(Error::PcpLists(why)) => {
            let _ = io::stderr().write_all(format!("skipped: needs {why}\n").as_bytes());
            false
        }
        _ => true,
    })
}

/// Takes every frame that there is: whether the books are right and no frame came twice.
fn takes_all(pool: &Pool) -> bool {
    let mut seen = vec![false; 1024];
    while let Ok(frame) = pool.alloc_frame(Order::FRAME, MOVABLE) {
        let Ok(index) = usize::try_from(frame.0) else { return false };
        if std::mem::replace(&mut seen[index], true) {
            return false;
        }
    }
    pool.validate().is_ok() && seen.iter().filter(|&&s| s).count() > 512
}

/// Children that are born while others are in the pool find it in order, and no block twice.
#[test]
fn quiet_forks_beside_busy_threads() {
    for wanted in tiers() {
        let pool = wanted.build().unwrap();
        let stop = AtomicBool::new(false);
        let ended_well = thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        drop(pool.alloc_bulk(Order::FRAME, MOVABLE, 70));
                        let few: Vec<_> = (0..40).map(|_| pool.alloc(Order::FRAME, MOVABLE)).collect();
                        drop(pool.alloc(Order::new(3).unwrap(), MigrateType::Unmovable));
                        drop(few);
                    }
                });
            }
            let ended_well = (0..20).all(|_| {
                // SAFETY: as for `in_child`.
                let child = pool.while_quiet(|| unsafe { libc::fork() }).unwrap();
                if child == 0 {
                    let good = takes_all(&pool);
                    // SAFETY: ends the child.
                    unsafe { libc::_exit(if good { 0 } else { 1 }) };
                }
                found(child)
            });
            stop.store(true, Ordering::Relaxed);
            ended_well
        });
        assert!(ended_well, "{wanted:?}");
        pool.validate().unwrap();
        assert_eq!(pool.stats().unwrap().free(), 1024);
    }
}

/// What waits in a set of the parent's is the child's to take, from whatever CPU.
#[test]
fn a_child_empties_the_sets_that_it_was_born_with() {
    for wanted in tiers() {
        let pool = wanted.build().unwrap();
        drop(pool.alloc(Order::FRAME, MOVABLE).unwrap());
        assert!(pool.stats().unwrap().cached > 0);
        // SAFETY: as for `in_child`.
        let child = pool.while_quiet(|| unsafe { libc::fork() }).unwrap();
        if child == 0 {
            let good = takes_all(&pool) && pool.stats().is_ok_and(|s| s.free() == 0);
            // SAFETY: ends the child.
            unsafe { libc::_exit(if good { 0 } else { 1 }) };
        }
        assert!(found(child), "{wanted:?}");
    }
}

#[test]
fn running_a_program_changes_nothing() {
    let pool = PoolBuilder::memfd(Bytes::of_mib(8)).build().unwrap();
    assert!(std::process::Command::new("true").status().unwrap().success());
    assert!(pool.alloc(Order::FRAME, MOVABLE).is_ok());
}

#[test]
fn a_limit_for_the_size_of_files_is_an_error_and_no_signal() {
    let refused = in_child(|| {
        let limit = libc::rlimit { rlim_cur: 6 << 20, rlim_max: 6 << 20 };
        // SAFETY: reads a structure of ours; the limit is the child's.
        let set = unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) } == 0;
        let too_long = |result: Result<(), Error>| match result {
            Err(Error::System { source, .. }) => source.raw_os_error() == Some(libc::EFBIG),
            _ => false,
        };
        let Ok(pool) = PoolBuilder::memfd(Bytes::of_mib(4)).span(Bytes::of_mib(8)).build() else { return false };
        let more = FrameRange::new(FrameNo(1024), FrameNo(2048));
        set && too_long(pool.grow(more))
            && too_long(PoolBuilder::memfd(Bytes::of_mib(8)).build().map(drop))
            && pool.alloc_zeroed(Order::MAX, MOVABLE).is_ok()
    });
    assert!(refused);
}

/// It may have held the bell at the fork, so the child does not even look whether that was rung.
#[test]
fn a_child_may_print_the_thread_that_it_does_not_have() {
    let pool = PoolBuilder::numbers(Bytes::of_mib(8)).build().unwrap();
    let often = Housekeeping { interval: Housekeeping::MIN_INTERVAL, ..Housekeeping::default() };
    let started = pool.start_housekeeping(often).unwrap();
    assert!(format!("{started:?}").contains("is_over: false"));
    assert!(in_child(|| format!("{started:?}").contains("is_over: true")));
}

/// The thread is the parent's: the child must neither wait for it nor ring for it.
#[test]
fn a_child_of_a_pool_with_housekeeping_may_drop_it_and_start_its_own() {
    let often = Housekeeping { interval: Interval::from_ns(100_000).unwrap(), ..Housekeeping::default() };
    let pool = PoolBuilder::anonymous(Bytes::of_mib(8)).housekeeping(often).build().unwrap();
    for _ in 0..20 {
        // One that is refused, dropped by the child alone.
        let mut held = Some(pool.clone());
        assert!(in_child(|| {
            let refused = held.as_ref().is_some_and(|pool| is_refused(pool.start_housekeeping(often)));
            drop(held.take());
            refused
        }));
        // And one that goes on there: until `act` returns in the child, only that is forked.
        // SAFETY: as in `in_child`.
        let forked = pool.while_quiet(|| unsafe { libc::fork() }).unwrap();
        if forked == 0 {
            let works = pool.alloc_frame(Order::FRAME, MOVABLE).is_ok();
            let started = pool.start_housekeeping(often).map(drop).is_ok();
            drop(pool);
            // SAFETY: ends the child without running what belongs to the parent.
            unsafe { libc::_exit(if works && started { 0 } else { 1 }) }
        }
        assert!(found(forked));
        assert!(pool.alloc(Order::FRAME, MOVABLE).is_ok(), "the parent goes on");
    }
    pool.validate().unwrap();
}
