//! The clock of housekeeping is set before anyone can fork within a pool. Its first call may be made once in a process, so this is the
//! only test of its own.

use isotherm_frames::housekeep::now_ns;
use isotherm_pools::{Bytes, PoolBuilder};
use std::time::{Duration, Instant};

/// Else a child of `while_quiet` could wait for ever for a first call that another thread of its parent had begun.
#[test]
fn building_a_pool_sets_the_clock_of_housekeeping() {
    let pool = PoolBuilder::numbers(Bytes::of_mib(4)).build().unwrap();
    let built = Instant::now();
    while built.elapsed() < Duration::from_millis(1) {
        std::hint::spin_loop();
    }
    assert!(now_ns() >= 1_000_000, "{} ns", now_ns());
    drop(pool);
}
