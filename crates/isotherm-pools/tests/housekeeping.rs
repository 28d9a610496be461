//! Pools that keep house by a thread of their own: what waits in sets goes back by itself, and the thread ends with the pool.

use isotherm_pools::{
    Bytes, FrameNo, Housekeeping, HousekeepingThread, Interval, MigrateType, Order, Pace, Pool, PoolBuilder, Tier,
};
use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const MOVABLE: MigrateType = MigrateType::Movable;
/// On any machine, however busy.
const LIMIT: Duration = Duration::from_secs(60);

/// Threads of pools are counted, so one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Threads of this process that keep house for a pool.
fn threads() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    tasks.filter(|task| fs::read_to_string(task.path().join("comm")).is_ok_and(|n| n == "isotherm-pool\n")).count()
}

/// Waits for what another thread does soon.
fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LIMIT, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

fn often() -> Housekeeping {
    Housekeeping { interval: Interval::from_ns(2_000_000).unwrap(), pace: Pace { idle_after: 3, most_deferrals: 8 } }
}

fn builder(tier: Tier) -> PoolBuilder {
    PoolBuilder::numbers(Bytes::of_mib(64)).tier(tier)
}

/// Leaves some frames in the set of the CPU that this thread is on.
fn use_some(pool: &Pool) {
    let frames: Vec<FrameNo> = (0..40).map(|_| pool.alloc_frame(Order::FRAME, MOVABLE).unwrap()).collect();
    // SAFETY: handed out just now, and nothing lies behind numbers.
    frames.into_iter().for_each(|frame| unsafe { pool.free_frame(frame, Order::FRAME) }.unwrap());
}

fn waiting(pool: &Pool) -> u64 {
    pool.stats().unwrap().waiting
}

#[test]
fn a_pool_left_alone_gives_back_what_idle_cpus_keep() {
    let _alone = alone();
    for tier in [Tier::Best, Tier::Locked] {
        let (with, without) = (builder(tier).housekeeping(often()), builder(tier));
        let (with, without) = (with.build().unwrap(), without.build().unwrap());
        // Again after it was idle: whoever has nothing is not looked after until he has something again.
        for _ in 0..2 {
            use_some(&with);
            wait_for("all of it has gone back", || waiting(&with) == 0);
        }
        use_some(&without);
        use_some(&with);
        wait_for("all of it has gone back once more", || waiting(&with) == 0);
        assert!(waiting(&without) > 0, "{tier:?}: nobody has told this one to");
        let stats = with.stats().unwrap();
        assert_eq!(stats.zone.free, stats.zone.present);
        with.validate().unwrap();
    }
}

#[test]
fn dropping_the_last_handle_ends_the_thread() {
    let _alone = alone();
    assert_eq!(threads(), 0);
    let pool = PoolBuilder::anonymous(Bytes::of_mib(8)).housekeeping(often()).build().unwrap();
    let (other, block) = (pool.clone(), pool.alloc(Order::FRAME, MOVABLE).unwrap().into_owned());
    // It names itself once it runs.
    wait_for("the thread runs", || threads() == 1);
    drop(pool);
    use_some(&other);
    wait_for("it works for the other handle", || waiting(&other) == 0);
    drop(other);
    assert_eq!(threads(), 1, "a block holds its pool");
    // Joined: it is gone at once, and not after a second, which is how long it may sleep.
    drop(block);
    assert_eq!(threads(), 0);
}

#[test]
fn a_thread_that_sleeps_for_long_ends_at_once() {
    let _alone = alone();
    let hour = Housekeeping { interval: Interval::from_ns(3_600_000_000_000).unwrap(), ..Housekeeping::default() };
    let pool = builder(Tier::Best).housekeeping(hour).build().unwrap();
    wait_for("the thread runs", || threads() == 1);
    let began = Instant::now();
    drop(pool);
    assert!(began.elapsed() < LIMIT && threads() == 0);
}

#[test]
fn a_pool_can_be_given_a_thread_later() {
    let _alone = alone();
    let pool = builder(Tier::Best).build().unwrap();
    use_some(&pool);
    let started: HousekeepingThread = pool.start_housekeeping(often()).unwrap();
    wait_for("all of it has gone back", || waiting(&pool) == 0);
    drop(started);
    assert_eq!(threads(), 0);
    use_some(&pool);
    // It holds what it works on: no pool needs to be left.
    let started = pool.start_housekeeping(often()).unwrap();
    drop(pool);
    drop(started);
    assert_eq!(threads(), 0);
}
