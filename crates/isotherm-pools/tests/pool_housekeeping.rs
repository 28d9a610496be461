//! Pools that drain their pcp lists by a thread of their own: what idle lists cache goes back by itself, and the thread ends with the pool.

use isotherm_pools::{
    Bytes, Error, FrameNo, Housekeeping, HousekeepingThread, Interval, MigrateType, Order, Pace, Pool, PoolBuilder,
    Tier,
};
use std::fs;
use std::path::{Path, PathBuf};
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

/// Threads of this process that keep house for a pool: their directories in `/proc`.
fn tasks() -> Vec<PathBuf> {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten().map(|task| task.path());
    tasks.filter(|task| fs::read_to_string(task.join("comm")).is_ok_and(|n| n == "isotherm-pool\n")).collect()
}

/// How many.
fn threads() -> usize {
    tasks().len()
}

/// The signals that a thread blocks; the lowest bit is signal 1.
fn blocked(task: &Path) -> u64 {
    let status = fs::read_to_string(task.join("status")).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap()
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
    Housekeeping { interval: Interval::from_ns(2_000_000).unwrap(), pace: Pace { idle_after: 3, max_deferrals: 8 } }
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

fn cached(pool: &Pool) -> u64 {
    pool.stats().unwrap().cached
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
            wait_for("all of it has gone back", || cached(&with) == 0);
        }
        use_some(&without);
        use_some(&with);
        wait_for("all of it has gone back once more", || cached(&with) == 0);
        assert!(cached(&without) > 0, "{tier:?}: nobody has told this one to");
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
    wait_for("it works for the other handle", || cached(&other) == 0);
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
fn a_thread_that_would_never_sleep_is_refused() {
    let _alone = alone();
    let every = |ns| Housekeeping { interval: Interval::from_ns(ns).unwrap(), ..Housekeeping::default() };
    let shortest = Housekeeping::MIN_INTERVAL.ns();
    assert_eq!(shortest, 100_000, "as the guide and the header of the C interface say");
    let pool = builder(Tier::Best).build().unwrap();
    for ns in [1, shortest - 1] {
        let refused = [
            builder(Tier::Best).housekeeping(every(ns)).build().map(drop),
            pool.start_housekeeping(every(ns)).map(drop),
        ];
        for error in refused.map(Result::unwrap_err) {
            assert!(matches!(error, Error::Interval { interval, .. } if interval.ns() == ns), "{error}");
            assert!(error.to_string().contains("100000 ns is the shortest"), "{error}");
        }
    }
    assert_eq!(threads(), 0);
    drop(pool.start_housekeeping(every(shortest)).unwrap());
}

/// Else a handler of the program might run on it: in one that had a single thread, where only that one expects it.
#[test]
fn the_thread_takes_no_signal_of_the_program() {
    let _alone = alone();
    let this = Path::new("/proc/thread-self");
    let before = blocked(this);
    let pool = builder(Tier::Best).housekeeping(often()).build().unwrap();
    wait_for("the thread runs", || threads() == 1);
    // Nobody can block SIGKILL and SIGSTOP; the C library keeps 32 and 33, in some 34, for itself.
    let not_ours = [9, 19, 32, 33, 34].into_iter().fold(0, |mask, signal| mask | 1 << (signal - 1));
    assert_eq!(blocked(&tasks()[0]) | not_ours, u64::MAX);
    assert_eq!(blocked(this), before, "whoever builds a pool takes signals as before");
    drop(pool);
}

#[test]
fn a_pool_can_be_given_a_thread_later() {
    let _alone = alone();
    let pool = builder(Tier::Best).build().unwrap();
    use_some(&pool);
    let started: HousekeepingThread = pool.start_housekeeping(often()).unwrap();
    wait_for("all of it has gone back", || cached(&pool) == 0);
    drop(started);
    assert_eq!(threads(), 0);
    use_some(&pool);
    // It holds what it works on: no pool needs to be left.
    let started = pool.start_housekeeping(often()).unwrap();
    drop(pool);
    drop(started);
    assert_eq!(threads(), 0);
}
