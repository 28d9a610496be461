//! What a pool is to be.

use crate::backing::HugeSize;
use crate::detect::has_direct_mapped_cache;
use crate::error::Error;
use crate::housekeeping::Housekeeping;
use crate::pool::Pool;
use crate::shared::Shared;
use crate::source::Source;
use isotherm_frames::{Colouring, FrameNo, FrameRange, Shuffling, Tier, Watermarks, ZoneConfig};
use isotherm_units::{Bytes, PAGE_SHIFT};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::PathBuf;

/// Sets for so many CPUs at the most: more than Linux can be built for.
const MAX_CPUS: u32 = 1 << 16;

#[derive(Clone, Debug)]
enum Wanted {
    Anonymous,
    Memfd,
    Huge(HugeSize),
    Dax(PathBuf),
    Numbers,
}

/// What a pool is to be. Begin with one of the backings; the rest has defaults.
///
/// ```
/// use isotherm_pools::{Bytes, MigrateType, Order, PoolBuilder};
///
/// let pool = PoolBuilder::anonymous(Bytes::of_mib(64)).build()?;
/// let mut block = pool.alloc_zeroed(Order::HUGE, MigrateType::Movable)?;
/// block.as_mut_slice()[4096] = 7;
/// assert_eq!(block.as_slice().len(), 2 << 20);
/// # Ok::<(), isotherm_pools::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct PoolBuilder {
    wanted: Wanted,
    bytes: Bytes,
    span: Bytes,
    fall_back: bool,
    first_frame: FrameNo,
    shuffling: Shuffling,
    detected: Option<bool>,
    sysfs: PathBuf,
    colouring: Option<Colouring>,
    watermarks: Watermarks,
    seed: Option<u64>,
    cpus: Option<u32>,
    tier: Tier,
    housekeeping: Option<Housekeeping>,
}

impl PoolBuilder {
    fn of(wanted: Wanted, bytes: Bytes) -> PoolBuilder {
        PoolBuilder {
            wanted,
            bytes,
            span: Bytes(0),
            fall_back: false,
            first_frame: FrameNo(0),
            shuffling: Shuffling::default(),
            detected: None,
            sysfs: "/sys".into(),
            colouring: None,
            watermarks: Watermarks::default(),
            seed: None,
            cpus: None,
            tier: Tier::Best,
            housekeeping: None,
        }
    }

    /// `bytes` of private memory, which is had from the system as it is first touched. A multiple of 4 KiB.
    pub fn anonymous(bytes: Bytes) -> PoolBuilder {
        PoolBuilder::of(Wanted::Anonymous, bytes)
    }

    /// `bytes` of a memfd, which [`Pool::descriptor`] gives others to map: frame `f` is at `(f - first frame) * 4096` in it.
    pub fn memfd(bytes: Bytes) -> PoolBuilder {
        PoolBuilder::of(Wanted::Memfd, bytes)
    }

    /// `bytes` of huge pages, a multiple of their size. They are promised by the kernel when the pool is made, or there is an error:
    /// never small pages in silence.
    pub fn huge(bytes: Bytes, size: HugeSize) -> PoolBuilder {
        PoolBuilder::of(Wanted::Huge(size), bytes)
    }

    /// All of the DAX device `path`, such as `/dev/dax0.0`. What it held is overwritten by whoever gets the blocks.
    ///
    /// # Safety
    /// Nobody else may write to the device while a slice of a block is in use: references to memory that changes are undefined
    /// behaviour.
    #[expect(unsafe_code, reason = "others can reach the memory")]
    pub unsafe fn dax(path: impl Into<PathBuf>) -> PoolBuilder {
        PoolBuilder::of(Wanted::Dax(path.into()), Bytes(0))
    }

    /// Frame numbers for `bytes` of memory that is somewhere else, or nowhere.
    pub fn numbers(bytes: Bytes) -> PoolBuilder {
        PoolBuilder::of(Wanted::Numbers, bytes)
    }

    /// Addresses (and books, which stay untouched) for a pool that may grow to this size. Default: the size at the start. The span
    /// of a DAX device is its size.
    pub fn span(mut self, span: Bytes) -> PoolBuilder {
        self.span = span;
        self
    }

    /// The number of the first frame. Default: 0, numbers are offsets.
    ///
    /// For colours and page blocks to be those of physical memory it has to be the physical address divided by 4096: for a DAX device
    /// the file `resource` of it in sysfs, for a huge page of 1 GiB what `/proc/self/pagemap` says of it once it is touched.
    /// A pool is one range of numbers, so it cannot be right for memory that is scattered. A multiple of the page size of the backing.
    pub fn first_frame(mut self, frame: FrameNo) -> PoolBuilder {
        self.first_frame = frame;
        self
    }

    /// Whether free blocks are shuffled: `Some(true)` asks, `Some(false)` forbids, `None` (the default) leaves it to whether the
    /// machine has a direct-mapped memory-side cache.
    pub fn shuffle(mut self, shuffle: Option<bool>) -> PoolBuilder {
        self.shuffling = match shuffle {
            Some(true) => self.shuffling.asked(),
            Some(false) => self.shuffling.forbidden(),
            None => self.shuffling,
        };
        self
    }

    /// Whether the machine has a direct-mapped memory-side cache, for those who know, as from a probe of its timing. Otherwise sysfs
    /// is asked when the pool is built, and an entry that nothing speaks against is believed.
    pub fn cache_detected(mut self, detected: bool) -> PoolBuilder {
        self.detected = Some(detected);
        self
    }

    /// Where sysfs is, if not at `/sys`.
    pub fn sysfs(mut self, root: impl Into<PathBuf>) -> PoolBuilder {
        self.sysfs = root.into();
        self
    }

    /// Whether free blocks will be shuffled, and why.
    fn decided(&self) -> Shuffling {
        if self.detected.unwrap_or_else(|| has_direct_mapped_cache(&self.sysfs)) {
            self.shuffling.detected()
        } else {
            self.shuffling
        }
    }

    /// Places blocks for a direct-mapped cache.
    pub fn colouring(mut self, colouring: Colouring) -> PoolBuilder {
        self.colouring = Some(colouring);
        self
    }

    /// Frames that are kept back: `min` is at most `low`, and that at most `high`. Default: none.
    pub fn watermarks(mut self, watermarks: Watermarks) -> PoolBuilder {
        self.watermarks = watermarks;
        self
    }

    /// Seed of what is random in placing. Default: another one for each pool.
    pub fn seed(mut self, seed: u64) -> PoolBuilder {
        self.seed = Some(seed);
        self
    }

    /// CPUs that get a set of their own: the highest number that is possible, plus one. Default: what the system says. Threads on
    /// others go to the zone. 65,536 at the most.
    pub fn cpus(mut self, cpus: u32) -> PoolBuilder {
        self.cpus = Some(cpus);
        self
    }

    /// How the sets keep threads apart. Default: restartable sequences where there are any, else locks.
    pub fn tier(mut self, tier: Tier) -> PoolBuilder {
        self.tier = tier;
        self
    }

    /// A thread of the pool's own that gives back what its sets keep too much, and what CPUs that have become idle left in theirs.
    /// Default: none; what waits in a set stays there until an allocation finds nothing else. The thread ends with the pool. Its interval is
    /// at least [`Housekeeping::MIN_INTERVAL`].
    pub fn housekeeping(mut self, settings: Housekeeping) -> PoolBuilder {
        self.housekeeping = Some(settings);
        self
    }

    /// Private small pages if huge pages cannot be had; [`Pool::backing`] tells which it became, and
    /// [`Pool::instead_of`] why. Default: no, that is an error.
    pub fn or_anonymous(mut self) -> PoolBuilder {
        self.fall_back = true;
        self
    }

    /// Makes the pool.
    pub fn build(&self) -> Result<Pool, Error> {
        let made = self.source().and_then(|(source, bytes)| self.pool(source, bytes));
        match made {
            Err(cause @ (Error::HugePages { .. } | Error::NoHugeSize { .. })) if self.fall_back => {
                self.pool(Source { instead_of: Some(cause), ..Source::anonymous() }, self.bytes)
            }
            made => made,
        }
    }

    fn source(&self) -> Result<(Source, Bytes), Error> {
        let source = match &self.wanted {
            Wanted::Anonymous => Source::anonymous(),
            Wanted::Memfd => Source::memfd()?,
            Wanted::Huge(size) => Source::huge(*size)?,
            Wanted::Dax(path) => return Source::dax(path),
            Wanted::Numbers => Source::numbers(),
        };
        Ok((source, self.bytes))
    }

    fn pool(&self, source: Source, bytes: Bytes) -> Result<Pool, Error> {
        let span = if self.span.0 == 0 { bytes } else { self.span };
        if bytes.0 == 0 || span < bytes {
            return Err(Error::Span { bytes, span });
        }
        self.check(span)?;
        let unit = source.unit;
        let first = Bytes::of_pages(self.first_frame.0);
        let parts = [("the size of the pool", bytes), ("its span", span), ("the address of its first frame", first)];
        if let Some((what, value)) = parts.into_iter().find(|(_, value)| !value.0.is_multiple_of(unit.0)) {
            return Err(Error::Unaligned { what, value, unit });
        }
        let config = ZoneConfig {
            watermarks: self.watermarks,
            shuffle: self.decided(),
            colouring: self.colouring,
            seed: self.seed_or_random(),
            ..ZoneConfig::new(FrameRange::new(self.first_frame, self.first_frame.plus(span.pages())))
        };
        Pool::new(Shared::new(source, &config, bytes, self.cpus, self.tier)?, self.housekeeping)
    }

    /// What does not depend on the backing.
    fn check(&self, span: Bytes) -> Result<(), Error> {
        let (first, marks) = (self.first_frame, self.watermarks);
        if first.0.checked_add(span.pages()).is_none_or(|end| end > u64::MAX >> PAGE_SHIFT) {
            return Err(Error::FirstFrame { first, span });
        }
        if let Some(cpus) = self.cpus.filter(|&cpus| cpus > MAX_CPUS) {
            return Err(Error::Cpus { cpus, most: MAX_CPUS });
        }
        if marks.min > marks.low || marks.low > marks.high {
            return Err(Error::Watermarks(marks));
        }
        self.housekeeping.map_or(Ok(()), Housekeeping::check)
    }

    fn seed_or_random(&self) -> u64 {
        self.seed.unwrap_or_else(|| RandomState::new().build_hasher().finish())
    }
}
