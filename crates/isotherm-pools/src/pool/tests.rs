use super::*;
use crate::PoolBuilder;
use isotherm_units::Bytes;

fn frames(start: u64, end: u64) -> FrameRange {
    FrameRange::new(FrameNo(start), FrameNo(end))
}

/// A pool of two ranges whose memfd is exchanged for what gives nothing back.
fn stubborn() -> Pool {
    let mut pool = PoolBuilder::memfd(Bytes::of_mib(8)).span(Bytes::of_mib(16)).build().unwrap();
    pool.grow(frames(2048, 4096)).unwrap();
    Arc::get_mut(&mut pool.0.shared).unwrap().source.file = Some(std::fs::File::open("/dev/null").unwrap());
    pool
}

#[test]
fn what_the_system_will_not_take_back_stays() {
    let pool = stubborn();
    assert!(matches!(pool.shrink(frames(1024, 3072)), Err(Error::System { .. })));
    let stats = pool.stats().unwrap();
    assert_eq!((stats.zone.present, stats.free(), stats.zone.isolated), (4096, 4096, 0));
    let mut block = pool.alloc_at(FrameNo(2048), Order::MAX, MigrateType::Movable).unwrap();
    block.as_mut_slice().fill(1);
    drop(block);
    assert!(pool.shrink(frames(1024, 3072)).is_err(), "it is in the ranges again");
    assert!(pool.trim().is_err());
    assert_eq!(pool.stats().unwrap().free(), 4096);
    pool.validate().unwrap();
}

#[test]
fn an_allocation_waits_for_a_block_that_is_passing() {
    let pool = PoolBuilder::anonymous(Bytes::of_mib(4)).build().unwrap();
    pool.trim().unwrap();
    // As `trim` does it, only slower.
    let trimming = pool.0.trimming();
    pool.0.frames.zone().alloc_at(FrameNo(0), Order::MAX, MigrateType::Movable).unwrap();
    let hasty = Request { no_wait: true, ..Request::new(Order::MAX, MigrateType::Movable) };
    assert!(matches!(pool.request(hasty), Err(Error::Alloc(AllocError::Locked(_)))));
    std::thread::scope(|s| {
        let cached = s.spawn(|| pool.alloc(Order::MAX, MigrateType::Movable).map(drop));
        // Until it has failed for the first time.
        while pool.0.frames.zone().stats().events.failed < 3 {
            std::thread::yield_now();
        }
        pool.0.frames.zone().free(FrameNo(0), Order::MAX).unwrap();
        drop(trimming);
        cached.join().unwrap().unwrap();
    });
    assert!(pool.request(hasty).is_ok());
}
