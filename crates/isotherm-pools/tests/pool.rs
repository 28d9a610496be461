//! Pools of every backing that this machine has: blocks, numbers, growing, shrinking, giving back.

use isotherm_host::placement_caches_below;
use isotherm_pools::{
    Backing, Block, Bytes, Colouring, Error, FrameNo, FrameRange, HugeSize, MigrateType, Offline, Order, Pool,
    PoolBuilder, Request, Switch, Tier, Urgency, Watermarks,
};
use isotherm_rng::Rng;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::thread;

const MOVABLE: MigrateType = MigrateType::Movable;

fn order(n: u32) -> Order {
    Order::new(n).unwrap()
}

fn frames(start: u64, count: u64) -> FrameRange {
    FrameRange::new(FrameNo(start), FrameNo(start + count))
}

fn seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs());
    std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(now)
}

/// In one piece, so that it is one line beside those of other threads.
fn skipped(needs: &str) {
    let _ = io::stderr().write_all(format!("skipped: needs {needs}\n").as_bytes());
}

/// Marks every page of a block as its own.
fn sign(block: &mut Block<'_>, word: u64) {
    for page in block.as_mut_slice().chunks_mut(4096) {
        page[..8].copy_from_slice(&word.to_le_bytes());
        page[4088..].copy_from_slice(&word.to_le_bytes());
    }
}

fn is_signed(block: &Block<'_>, word: u64) -> bool {
    let word = word.to_le_bytes();
    block.as_slice().chunks(4096).all(|page| page[..8] == word && page[4088..] == word)
}

/// Random blocks, each with a content of its own: no two have memory in common.
fn exercise(pool: &Pool) {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let mut held: Vec<(Block<'_>, u64)> = Vec::new();
    let largest = pool.stats().unwrap().zone.present / 8;
    for step in 0..600_u64 {
        if rng.below(3) > 0 {
            let wanted = order(u32::try_from(rng.below(8)).unwrap());
            if u64::from(wanted.frames()) > largest {
                continue;
            }
            if let Ok(mut block) = pool.alloc(wanted, MigrateType::ALL[usize::try_from(rng.below(3)).unwrap()]) {
                assert_eq!(block.as_slice().len(), 4096 << wanted.get());
                assert_eq!(block.as_slice().as_ptr().addr() % block.as_slice().len(), 0, "seed {seed}: aligned");
                sign(&mut block, step);
                held.push((block, step));
            }
        } else if !held.is_empty() {
            let at = usize::try_from(rng.below(held.len() as u64)).unwrap();
            let (block, word) = held.swap_remove(at);
            assert!(is_signed(&block, word), "seed {seed}: {block:?}");
        }
    }
    for (block, word) in &held {
        assert!(is_signed(block, *word), "seed {seed}: {block:?}");
    }
    drop(held);
    pool.validate().unwrap();
    let stats = pool.stats().unwrap();
    assert_eq!(stats.free(), stats.zone.present, "seed {seed}");
}

#[test]
fn blocks_of_anonymous_memory_are_apart() {
    exercise(&PoolBuilder::anonymous(Bytes::of_mib(16)).build().unwrap());
}

#[test]
fn blocks_of_a_memfd_are_apart() {
    exercise(&PoolBuilder::memfd(Bytes::of_mib(16)).build().unwrap());
}

#[test]
fn blocks_of_a_shuffled_and_coloured_pool_far_up_are_apart() {
    let pool = PoolBuilder::anonymous(Bytes::of_mib(16))
        .first_frame(FrameNo((1 << 36) + 512))
        .shuffle(Some(true))
        .colouring(Colouring::exact(2048))
        .build()
        .unwrap();
    assert!(pool.stats().unwrap().zone.shuffle.is_on());
    exercise(&pool);
}

#[test]
fn an_odd_size_is_used_whole() {
    let pool = PoolBuilder::anonymous(Bytes(37 << 12)).first_frame(FrameNo(5)).build().unwrap();
    let mut blocks: Vec<Block<'_>> = std::iter::from_fn(|| pool.alloc_zeroed(order(0), MOVABLE).ok()).collect();
    assert_eq!(blocks.len(), 37);
    for (block, n) in blocks.iter_mut().zip(0..) {
        sign(block, n);
    }
    assert!(blocks.iter().zip(0..).all(|(block, n)| is_signed(block, n)));
}

#[test]
fn huge_pages_or_an_error_that_says_where_they_come_from() {
    for size in [HugeSize::Mib2, HugeSize::Gib1] {
        let bytes = Bytes(2 * size.bytes().0);
        match PoolBuilder::huge(bytes, size).build() {
            Ok(pool) => {
                assert_eq!(pool.backing(), Backing::Huge(size));
                exercise(&pool);
                assert_eq!(pool.trim().unwrap(), Bytes(0));
            }
            Err(error @ Error::HugePages { wanted: 2, .. }) => {
                let kib = size.bytes().0 >> 10;
                let file = format!("/sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages");
                assert!(error.to_string().contains(&file), "{error}");
                skipped(&format!("two free huge pages of {size}"));
            }
            Err(Error::NoHugeSize { .. }) => {
                skipped(&format!("huge pages of {size}"));
            }
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn small_pages_in_their_place_only_if_asked() {
    let directory = Path::new("/sys/kernel/mm/hugepages/hugepages-2048kB");
    let count = |file| fs::read_to_string(directory.join(file)).ok().and_then(|n| n.trim().parse::<u64>().ok());
    if count("nr_overcommit_hugepages").unwrap_or(0) > 0 {
        return skipped("a kernel that makes no huge pages on demand");
    }
    let wanted = PoolBuilder::huge(Bytes((count("free_hugepages").unwrap_or(0) + 8) << 21), HugeSize::Mib2);
    assert!(matches!(wanted.build(), Err(Error::HugePages { .. } | Error::NoHugeSize { .. })));
    let pool = wanted.or_anonymous().build().unwrap();
    assert_eq!(pool.backing(), Backing::Anonymous);
    assert!(matches!(pool.instead_of(), Some(Error::HugePages { .. } | Error::NoHugeSize { .. })), "the cause is told");
    assert!(PoolBuilder::anonymous(Bytes::of_mib(2)).build().unwrap().instead_of().is_none());
    sign(&mut pool.alloc(Order::MAX, MOVABLE).unwrap(), 1);
}

#[test]
fn a_dax_device() {
    let Some(path) = std::env::var_os("ISOTHERM_TEST_DAX") else {
        return skipped("a DAX device to overwrite, named by ISOTHERM_TEST_DAX");
    };
    // SAFETY: whoever names it in the environment has it to himself.
    let pool = unsafe { PoolBuilder::dax(path) }.build().unwrap();
    exercise(&pool);
}

#[test]
fn what_is_no_device_is_refused() {
    // SAFETY: none of them is opened.
    let refused = |path: &str| unsafe { PoolBuilder::dax(path) }.build().unwrap_err().to_string();
    assert!(refused("/dev/null").contains("/dev/null: not a DAX device: another kind of device"));
    assert!(refused("/proc/self/exe").contains("not a character device"));
    assert!(refused("/nowhere/dax").contains("open /nowhere/dax"));
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    for (wanted, says) in [
        (PoolBuilder::anonymous(Bytes(0)), "neither may be 0"),
        (PoolBuilder::anonymous(Bytes(4095)), "the size of the pool: 4095 bytes is not a multiple of 4.0 KiB"),
        (PoolBuilder::anonymous(Bytes::of_mib(2)).span(Bytes::of_mib(1)), "at least as large"),
        (PoolBuilder::huge(Bytes::of_mib(3), HugeSize::Mib2), "not a multiple of 2.0 MiB"),
        (PoolBuilder::huge(Bytes::of_mib(4), HugeSize::Mib2).first_frame(FrameNo(1)), "its first frame"),
        (PoolBuilder::numbers(Bytes::of_mib(2)).first_frame(FrameNo(u64::MAX >> 12)), "a lower first frame"),
        (PoolBuilder::numbers(Bytes(16 << 40)), "2^31 frames"),
        (PoolBuilder::numbers(Bytes::of_mib(4)).cpus(0), "for no CPU"),
        (PoolBuilder::numbers(Bytes::of_mib(4)).cpus(u32::MAX), "4294967295 CPUs: the limit is 65536"),
        (PoolBuilder::anonymous(Bytes(u64::MAX - 4095)), "reserve 16.0 EiB of addresses"),
        (
            PoolBuilder::numbers(Bytes::of_mib(4)).watermarks(Watermarks { min: 9, low: 8, high: 10 }),
            "min 9, low 8 and high 10: each has to be",
        ),
        (
            PoolBuilder::numbers(Bytes::of_mib(4)).watermarks(Watermarks { min: 7, low: 8, high: 1 }),
            "min 7, low 8 and high 1: each has to be",
        ),
    ] {
        let error = wanted.build().unwrap_err().to_string();
        assert!(error.contains(says), "{wanted:?}: {error}");
    }
}

#[test]
fn fresh_memory_is_zero_and_used_memory_is_when_asked() {
    let pool = PoolBuilder::anonymous(Bytes::of_mib(2)).build().unwrap();
    let mut block = pool.alloc(Order::HUGE, MOVABLE).unwrap();
    assert!(block.as_slice().iter().all(|&b| b == 0));
    block.as_mut_slice().fill(9);
    drop(block);
    let block = pool.alloc(Order::HUGE, MOVABLE).unwrap();
    assert!(block.as_slice().iter().all(|&b| b == 9), "nobody pays for clearing unasked");
    drop(block);
    assert!(pool.alloc_zeroed(Order::HUGE, MOVABLE).unwrap().as_slice().iter().all(|&b| b == 0));
}

#[test]
fn an_empty_pool_says_what_is_left() {
    let pool = PoolBuilder::anonymous(Bytes(3 << 12)).build().unwrap();
    let _pair = pool.alloc(order(1), MOVABLE).unwrap();
    let error = pool.alloc(order(1), MOVABLE).unwrap_err().to_string();
    assert!(error.contains("order 1: no free block; free blocks by order: [1, 0, 0,"), "{error}");
    let error = pool.alloc_bulk(order(2), MOVABLE, 4).unwrap_err().to_string();
    assert!(error.contains("order 2: no free block"), "{error}");
}

#[test]
fn watermarks_keep_frames_for_urgent_requests() {
    let watermarks = Watermarks { min: 8, low: 16, high: 24 };
    let pool = PoolBuilder::anonymous(Bytes(64 << 12)).watermarks(watermarks).build().unwrap();
    let held: Vec<_> = std::iter::from_fn(|| pool.alloc(order(0), MOVABLE).ok()).collect();
    assert_eq!(held.len(), 56);
    assert!(pool.request(Request { urgency: Urgency::Critical, ..Request::default() }).is_ok());
}

#[test]
fn a_request_gets_what_waits_in_sets() {
    let pool = PoolBuilder::anonymous(Bytes(64 << 12)).build().unwrap();
    drop((0..64).map(|_| pool.alloc(order(0), MOVABLE).unwrap()).collect::<Vec<_>>());
    let _rest = pool.alloc_bulk(order(0), MOVABLE, usize::try_from(pool.stats().unwrap().zone.free).unwrap()).unwrap();
    let cached = pool.stats().unwrap().cached;
    assert!(cached > 0);
    let hasty = Request { no_wait: true, ..Request::default() };
    assert!(pool.request(hasty).is_err(), "a request that does not wait drains no lists");
    assert!(pool.request(Request::default()).is_ok());
}

#[test]
fn blocks_in_bulk_come_back_together_or_one_by_one() {
    let pool = PoolBuilder::memfd(Bytes::of_mib(4)).build().unwrap();
    let blocks = pool.alloc_bulk(order(0), MOVABLE, 1000).unwrap();
    assert_eq!((blocks.len(), blocks.frames().len(), blocks.order()), (1000, 1000, order(0)));
    assert_eq!(pool.stats().unwrap().free(), 24);
    let mut rest = pool.alloc_bulk(order(0), MOVABLE, 1000).unwrap();
    assert_eq!(rest.len(), 24, "as many as there are");
    drop(blocks);
    let mut one = rest.next().unwrap();
    sign(&mut one, 77);
    drop(rest);
    assert_eq!(pool.stats().unwrap().free(), 1023);
    assert!(is_signed(&one, 77));
    drop(one);
    assert!(pool.alloc_bulk(order(0), MOVABLE, 0).unwrap().is_empty());
    assert_eq!(pool.alloc_bulk(order(1), MOVABLE, usize::MAX).unwrap().len(), 512);
    let large = PoolBuilder::anonymous(Bytes::of_mib(512)).build().unwrap();
    let mut frames = large.alloc_bulk(order(0), MOVABLE, 100_000).unwrap().frames().to_vec();
    frames.sort_unstable();
    frames.dedup();
    assert_eq!(frames.len(), 100_000, "more than at a time");
    assert_eq!(large.alloc_bulk(order(0), MOVABLE, 200_000).unwrap().len(), 128 << 10);
    pool.validate().unwrap();
}

#[test]
fn a_block_of_ones_choice() {
    let pool = PoolBuilder::anonymous(Bytes::of_mib(4)).build().unwrap();
    let block = pool.alloc_at(FrameNo(64), order(4), MOVABLE).unwrap();
    assert_eq!((block.frame(), block.order()), (FrameNo(64), order(4)));
    let error = pool.alloc_at(FrameNo(64), order(4), MOVABLE).unwrap_err().to_string();
    assert!(error.contains("at F0x40"), "{error}");
    assert_eq!(pool.frame_of(&raw const block.as_slice()[5000]), Some(FrameNo(65)));
    assert_eq!(pool.address_of(FrameNo(64)).unwrap().as_ptr().cast_const(), block.as_slice().as_ptr());
    assert_eq!(pool.address_of(FrameNo(1024)), None);
}

#[test]
fn numbers_are_given_back_once() {
    let pool = PoolBuilder::anonymous(Bytes::of_mib(4)).build().unwrap();
    let frame = pool.alloc_frame(order(3), MOVABLE).unwrap();
    // SAFETY: the frames were handed out here and nobody has blocks of them.
    let free = |frame, order| unsafe { pool.free_frame(frame, order) };
    assert!(matches!(free(frame, order(2)), Err(Error::Free(_))), "another order");
    free(frame, order(3)).unwrap();
    let error = free(frame, order(3)).unwrap_err().to_string();
    assert!(error.contains("it is free already") || error.contains("no first frame"), "{error}");
    assert!(free(FrameNo(1 << 30), order(0)).unwrap_err().to_string().contains("not a frame of this zone"));
    let mut many = [FrameNo(0); 10];
    assert_eq!(pool.alloc_frames(order(0), MOVABLE, &mut many).unwrap(), 10);
    many[3] = many[4];
    // SAFETY: as above; one is there twice.
    assert!(unsafe { pool.free_frames(&many, order(0)) }.is_err());
    pool.validate().unwrap();
    assert_eq!(pool.stats().unwrap().free(), 1023, "the one that was left out");
}

#[test]
fn a_block_becomes_a_number_and_a_block_again() {
    let pool = PoolBuilder::anonymous(Bytes::of_mib(4)).build().unwrap();
    let mut block = pool.alloc(order(1), MOVABLE).unwrap();
    sign(&mut block, 3);
    let (frame, order) = block.into_raw();
    assert_eq!(pool.stats().unwrap().free(), 1022);
    // SAFETY: it was just made a number, and nobody else has it.
    let block = unsafe { pool.block(frame, order) }.unwrap();
    assert!(is_signed(&block, 3));
    drop(block);
    assert_eq!(pool.stats().unwrap().free(), 1024);
}

#[test]
fn owned_blocks_keep_the_pool_and_go_to_other_threads() {
    let pool = PoolBuilder::anonymous(Bytes::of_mib(4)).build().unwrap();
    let mut block = pool.alloc(order(0), MOVABLE).unwrap().into_owned();
    assert_eq!(pool.stats().unwrap().free(), 1023);
    let again = pool.clone();
    drop(pool);
    let other = thread::spawn(move || {
        sign(&mut block, 5);
        block
    });
    let block = other.join().unwrap();
    assert!(is_signed(&block, 5));
    drop(block);
    assert_eq!(again.stats().unwrap().free(), 1024);
}

#[test]
fn threads_share_a_pool() {
    for tier in [Tier::Best, Tier::Locked] {
        let pool = PoolBuilder::anonymous(Bytes::of_mib(16)).tier(tier).build().unwrap();
        thread::scope(|s| {
            (0..4).for_each(|n| {
                drop(s.spawn({
                    let pool = &pool;
                    move || exercise_some(pool, n)
                }))
            })
        });
        pool.validate().unwrap();
        assert_eq!(pool.stats().unwrap().free(), 4096);
        pool.drain().unwrap();
        let stats = pool.stats().unwrap();
        assert_eq!((stats.cached, stats.zone.free, stats.zone.free_blocks[10]), (0, 4096, 4));
        assert_eq!(stats.zone.events.wrong_state, 0);
    }
}

fn exercise_some(pool: &Pool, thread: u64) {
    for round in 0..400 {
        let word = thread << 32 | u64::from(round);
        let mut blocks = pool.alloc_bulk(order(round % 4), MOVABLE, 20).unwrap();
        let mut kept = vec![blocks.next().unwrap()];
        kept.extend((0..30).map(|_| pool.alloc(order(round % 2), MOVABLE).unwrap()));
        kept.iter_mut().for_each(|block| sign(block, word));
        drop(blocks);
        assert!(kept.iter().all(|block| is_signed(block, word)));
    }
}

#[test]
fn numbers_without_memory() {
    let pool =
        PoolBuilder::numbers(Bytes(64 << 30)).span(Bytes(4 << 40)).first_frame(FrameNo(1 << 35)).build().unwrap();
    assert!(matches!(pool.alloc(order(0), MOVABLE), Err(Error::NoMemory)));
    assert!(matches!(pool.alloc_bulk(order(0), MOVABLE, 3), Err(Error::NoMemory)));
    let frame = pool.alloc_frame(Order::MAX, MOVABLE).unwrap();
    assert!(pool.span().contains(frame) && frame.is_aligned(10));
    assert_eq!(pool.address_of(frame), None);
    // SAFETY: there is no memory.
    unsafe { pool.free_frame(frame, Order::MAX) }.unwrap();
    assert_eq!(pool.stats().unwrap().free(), 16 << 20);
}

#[test]
fn a_pool_grows_within_its_span_and_shrinks() {
    for wanted in [PoolBuilder::anonymous(Bytes::of_mib(4)), PoolBuilder::memfd(Bytes::of_mib(4))] {
        let pool = wanted.span(Bytes::of_mib(16)).build().unwrap();
        let second = frames(1024, 1024);
        assert!(pool.grow(frames(1000, 100)).unwrap_err().to_string().contains("F0x3e8 is present already"));
        assert!(pool.grow(frames(4000, 100)).unwrap_err().to_string().contains("outside the span"));
        assert!(pool.grow(frames(2000, 0)).is_err());
        for beyond in [FrameRange::new(FrameNo(0), FrameNo(u64::MAX)), frames(0, 4097)] {
            assert!(matches!(pool.shrink(beyond), Err(Error::OutsideSpan { .. })), "nothing is cut to fit");
            assert!(matches!(pool.keep(beyond), Err(Error::OutsideSpan { .. })));
        }
        pool.grow(second).unwrap();
        exercise(&pool);
        let mut block = pool.alloc_at(FrameNo(1500), order(0), MOVABLE).unwrap();
        sign(&mut block, 8);
        assert_eq!(pool.shrink(second).unwrap(), Offline::Pending { in_use: 1, in_lists: 0 });
        assert!(is_signed(&block, 8), "a block in use keeps its memory");
        pool.keep(second).unwrap();
        assert_eq!(pool.stats().unwrap().free(), 2047);
        assert_ne!(pool.shrink(second).unwrap(), Offline::Done);
        drop(block);
        assert_eq!(pool.shrink(second).unwrap(), Offline::Done);
        assert_eq!(pool.stats().unwrap().zone.present, 1024);
        assert!(pool.shrink(second).is_err());
        // What comes again is zero.
        pool.grow(second).unwrap();
        let block = pool.alloc_at(FrameNo(1024), Order::MAX, MOVABLE).unwrap();
        assert!(block.as_slice().iter().all(|&b| b == 0), "{:?}", pool.backing());
        drop(block);
        exercise(&pool);
    }
}

#[test]
fn what_was_refused_by_the_zone_has_no_memory_left_behind() {
    let pool = PoolBuilder::memfd(Bytes::of_mib(4))
        .span(Bytes::of_mib(12))
        .colouring(Colouring { granule: Order::HUGE, ..Colouring::exact(2048) })
        .build()
        .unwrap();
    // Half a granule.
    assert!(matches!(pool.grow(frames(1024, 256)), Err(Error::Add(_))));
    pool.grow(frames(1024, 512)).unwrap();
    exercise(&pool);
}

/// Pages of a block that are resident.
fn resident(pool: &Pool, frame: FrameNo, pages: usize) -> usize {
    let mut found = vec![0_u8; pages];
    let address = pool.address_of(frame).unwrap().as_ptr().cast();
    // SAFETY: mincore writes a byte for each page of the range, and reads nothing.
    assert_eq!(unsafe { libc::mincore(address, pages * 4096, found.as_mut_ptr()) }, 0);
    found.iter().filter(|&&b| b & 1 == 1).count()
}

#[test]
fn trimming_gives_free_memory_back_and_leaves_the_rest() {
    for wanted in [PoolBuilder::anonymous(Bytes::of_mib(12)), PoolBuilder::memfd(Bytes::of_mib(12))] {
        let pool = wanted.build().unwrap();
        // All of it is touched; then one page is in use, whose 2 MiB stay.
        let all = pool.alloc_bulk(Order::MAX, MOVABLE, 3).unwrap();
        all.for_each(|mut block| sign(&mut block, 1));
        let mut kept = pool.alloc_at(FrameNo(1024), order(0), MOVABLE).unwrap();
        sign(&mut kept, 6);
        assert_eq!(pool.trim().unwrap(), Bytes::of_mib(10));
        assert!(is_signed(&kept, 6));
        assert_eq!([0, 1536, 2048].map(|f| resident(&pool, FrameNo(f), 512)), [0; 3], "{:?}", pool.backing());
        assert_eq!(resident(&pool, FrameNo(1024), 1), 1);
        drop(kept);
        pool.validate().unwrap();
        assert_eq!(pool.trim().unwrap(), Bytes::of_mib(12));
        assert!(pool.alloc(Order::MAX, MOVABLE).unwrap().as_slice().iter().all(|&b| b == 0));
    }
}

#[test]
fn trimming_leaves_free_blocks_shuffled() {
    let seed = seed();
    let pool = PoolBuilder::anonymous(Bytes::of_mib(256)).shuffle(Some(true)).seed(seed).build().unwrap();
    let drawn = || pool.alloc_bulk(Order::MAX, MOVABLE, 64).unwrap().frames().to_vec();
    let neighbours = |frames: &[FrameNo]| frames.windows(2).filter(|f| f[0].0.abs_diff(f[1].0) == 1024).count();
    pool.trim().unwrap();
    let frames = drawn();
    assert_eq!(frames.len(), 64);
    // Two of 64 are to be expected.
    assert!(neighbours(&frames) < 16, "seed {seed}: {frames:?}");
}

#[test]
fn what_is_printed_of_pools_and_blocks_is_short() {
    let pool = PoolBuilder::anonymous(Bytes::of_mib(64)).build().unwrap();
    let block = pool.alloc(order(3), MOVABLE).unwrap();
    let blocks = pool.alloc_bulk(order(0), MOVABLE, 2).unwrap();
    for (printed, says) in [
        (format!("{pool:?}"), "Anonymous"),
        (format!("{block:?}"), "frame"),
        (format!("{blocks:?}"), "frames"),
        (format!("{:?}", pool.alloc(order(3), MOVABLE).unwrap().into_owned()), "order"),
    ] {
        assert!(printed.contains(says) && printed.len() < 120, "{printed}");
    }
}

#[test]
fn a_descriptor_shows_the_same_memory() {
    let pool = PoolBuilder::memfd(Bytes::of_mib(4)).first_frame(FrameNo(4096)).build().unwrap();
    let mut block = pool.alloc_at(FrameNo(4096 + 300), order(2), MOVABLE).unwrap();
    // SAFETY: nothing is written through it while there is a slice.
    let file = File::from(unsafe { pool.descriptor() }.unwrap().as_fd().try_clone_to_owned().unwrap());
    block.as_mut_slice()[..5].copy_from_slice(b"frame");
    let mut read = [0; 5];
    file.read_exact_at(&mut read, 300 * 4096).unwrap();
    assert_eq!(&read, b"frame");
    file.write_all_at(b"guest", 300 * 4096).unwrap();
    assert_eq!(&block.as_slice()[..5], b"guest");
    assert!(file.set_len(4096).is_err(), "nobody pulls memory away");
    assert_eq!(file.metadata().unwrap().size(), 4 << 20);
    let private = PoolBuilder::anonymous(Bytes::of_mib(4)).build().unwrap();
    // SAFETY: there is none.
    assert!(unsafe { private.descriptor() }.is_none());
}

#[test]
fn shuffling_follows_the_user_first() {
    let is_on = |wanted: PoolBuilder| wanted.build().unwrap().stats().unwrap().zone.shuffle.is_on();
    let nothing = tempfile::tempdir().unwrap();
    let plain = || PoolBuilder::numbers(Bytes::of_mib(64)).sysfs(nothing.path());
    assert!(!is_on(plain()));
    assert!(is_on(plain().shuffle(Some(true))));
    assert!(is_on(plain().shuffle(None).cache_detected(true)));
    assert!(!is_on(plain().cache_detected(false)));
    assert!(!is_on(plain().cache_detected(true).shuffle(Some(false))));
    assert!(!is_on(plain().shuffle(Some(false)).cache_detected(true)));
}

/// A node with a memory-side cache, as sysfs shows it.
fn node_with_cache(files: &[(&str, &str)]) -> tempfile::TempDir {
    let sys = tempfile::tempdir().unwrap();
    let cache = sys.path().join("devices/system/node/node0/memory_side_cache/index1");
    fs::create_dir_all(&cache).unwrap();
    fs::write(sys.path().join("devices/system/node/node0/meminfo"), "Node 0 MemTotal: 1048576 kB\n").unwrap();
    for (file, text) in files {
        fs::write(cache.join(file), text).unwrap();
    }
    sys
}

#[test]
fn shuffling_is_on_where_the_machine_tells_of_a_direct_mapped_cache() {
    let good = [("size", "268435456\n"), ("line_size", "64\n"), ("indexing", "0\n"), ("write_policy", "0\n")];
    let is_on = |sys: &tempfile::TempDir, shuffle| {
        let wanted = PoolBuilder::numbers(Bytes::of_mib(64)).sysfs(sys.path()).shuffle(shuffle);
        let switch = wanted.build().unwrap().stats().unwrap().zone.shuffle.switch;
        // What `isotherm doctor` makes of the same files.
        let told = placement_caches_below(sys.path()).unwrap_or_default();
        let told = told.direct.iter().any(|cache| cache.is_sure());
        assert!(shuffle.is_some() || told == (switch == Switch::Detected), "doctor says {told}, {switch:?} here");
        switch
    };
    let cached = node_with_cache(&good);
    assert_eq!(is_on(&cached, None), Switch::Detected);
    assert_eq!(is_on(&cached, Some(true)), Switch::Requested);
    assert_eq!(is_on(&cached, Some(false)), Switch::ForcedOff);
    // Associative, absent, garbled, and contradicting itself: larger than the memory behind it.
    let with = |file: &str, text: &'static str| {
        let files = good.map(|(name, was)| (name, if name == file { text } else { was }));
        node_with_cache(&files)
    };
    assert_eq!(is_on(&with("indexing", "1\n"), None), Switch::Off);
    assert_eq!(is_on(&with("indexing", "direct\n"), None), Switch::Off);
    assert_eq!(is_on(&with("size", "0\n"), None), Switch::Off);
    assert_eq!(is_on(&with("size", "99999999999\n"), None), Switch::Off);
    assert_eq!(is_on(&with("size", "268435457\n"), None), Switch::Off);
    assert_eq!(is_on(&node_with_cache(&good[..2]), None), Switch::Off);
    // In a flat memory mode the cache may be as large as the memory, or larger.
    let flat = |mode| {
        let large = [("size", "99999997952\n"), ("indexing", "0\n"), ("line_size", "64\n"), ("write_policy", "0\n")];
        node_with_cache(&[&large[..], &[("address_mode", mode)]].concat())
    };
    assert_eq!(is_on(&flat("0x1\n"), None), Switch::Detected);
    assert_eq!(is_on(&flat("0\n"), None), Switch::Off);
    assert_eq!(is_on(&flat("none\n"), None), Switch::Off);
    let twice = node_with_cache(&good);
    let index = twice.path().join("devices/system/node/node0/memory_side_cache/index01");
    fs::create_dir(&index).unwrap();
    good.iter().for_each(|(file, text)| fs::write(index.join(file), text).unwrap());
    assert_eq!(is_on(&twice, None), Switch::Off);
    assert_eq!(is_on(&tempfile::tempdir().unwrap(), None), Switch::Off);
}

/// On a machine that has such a cache, nothing needs to be said.
#[test]
fn this_machines_cache_is_found() {
    let caches = placement_caches_below(Path::new("/sys")).unwrap_or_default().direct;
    let Some(cache) = caches.iter().find(|cache| cache.is_sure()) else {
        let _ = writeln!(std::io::stderr(), "skipped: needs a direct-mapped memory-side cache");
        return;
    };
    let pool = PoolBuilder::anonymous(Bytes::of_mib(64)).colouring(Colouring::exact(cache.frames)).build().unwrap();
    assert_eq!(pool.stats().unwrap().zone.shuffle.switch, Switch::Detected);
    let off = PoolBuilder::anonymous(Bytes::of_mib(64)).shuffle(Some(false)).build().unwrap();
    assert_eq!(off.stats().unwrap().zone.shuffle.switch, Switch::ForcedOff);
}

#[test]
fn a_seed_gives_the_same_frames() {
    let drawn = |seed| {
        let pool = PoolBuilder::numbers(Bytes::of_mib(256)).shuffle(Some(true)).seed(seed).build().unwrap();
        (0..64).map(|_| pool.alloc_frame(Order::MAX, MOVABLE).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(drawn(4), drawn(4));
    assert_ne!(drawn(4), drawn(5));
}
