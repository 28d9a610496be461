//! Configuration of a pool.

use crate::backing::{Backing, HugeSize};
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

/// Most CPUs that can have per-CPU lists: more than Linux can be built for.
const MAX_CPUS: u32 = 1 << 16;

#[derive(Clone, Debug)]
enum Wanted {
    Anonymous,
    Memfd,
    Huge(HugeSize),
    Dax(PathBuf),
    Numbers,
}

/// Configuration of a pool. Start with one of the backings; everything else has a default.
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

    /// `bytes` of private memory, which the system allocates when it is first touched. A multiple of 4 KiB.
    pub fn anonymous(bytes: Bytes) -> PoolBuilder {
        PoolBuilder::of(Wanted::Anonymous, bytes)
    }

    /// `bytes` of a memfd. Others can map its [`Pool::descriptor`]: frame `f` is at `(f - first frame) * 4096` in it.
    pub fn memfd(bytes: Bytes) -> PoolBuilder {
        PoolBuilder::of(Wanted::Memfd, bytes)
    }

    /// `bytes` of huge pages, a multiple of their size. The kernel reserves them when the pool is built. If it cannot,
    /// that is an error; small pages are never used silently.
    pub fn huge(bytes: Bytes, size: HugeSize) -> PoolBuilder {
        PoolBuilder::of(Wanted::Huge(size), bytes)
    }

    /// All of the DAX device `path`, such as `/dev/dax0.0`. Owners of blocks overwrite what it held.
    ///
    /// # Safety
    /// Nothing else may write to the device while a slice of a block is in use: references to memory that changes are
    /// undefined behaviour.
    #[expect(unsafe_code, reason = "others can reach the memory")]
    pub unsafe fn dax(path: impl Into<PathBuf>) -> PoolBuilder {
        PoolBuilder::of(Wanted::Dax(path.into()), Bytes(0))
    }

    /// Frame numbers for `bytes` of memory that is elsewhere, or does not exist.
    pub fn numbers(bytes: Bytes) -> PoolBuilder {
        PoolBuilder::of(Wanted::Numbers, bytes)
    }

    /// Reserves addresses and metadata for a pool that may grow to this size. Unused metadata stays untouched. Default:
    /// the initial size. The span of a DAX device is its size.
    pub fn span(mut self, span: Bytes) -> PoolBuilder {
        self.span = span;
        self
    }

    /// The number of the first frame. Default: 0, so numbers are offsets.
    ///
    /// For colours and page blocks of physical memory, this must be the physical address divided by 4096. The file
    /// `resource` of a DAX device in sysfs has that address; for a 1 GiB page, `/proc/self/pagemap` has the frame
    /// number once the page was touched. A pool is one range of numbers, so this cannot be right for scattered memory.
    /// Must be a multiple of the page size of the backing.
    pub fn first_frame(mut self, frame: FrameNo) -> PoolBuilder {
        self.first_frame = frame;
        self
    }

    /// Whether free blocks are shuffled: `Some(true)` requests it, `Some(false)` forbids it. With `None` (the default)
    /// they are shuffled if the machine has a direct-mapped memory-side cache.
    pub fn shuffle(mut self, shuffle: Option<bool>) -> PoolBuilder {
        self.shuffling = match shuffle {
            Some(true) => self.shuffling.asked(),
            Some(false) => self.shuffling.forbidden(),
            None => self.shuffling,
        };
        self
    }

    /// Whether the machine has a direct-mapped memory-side cache, for callers that know, for example from a timing
    /// probe. By default sysfs is read when the pool is built, and an entry is believed unless something contradicts it.
    pub fn cache_detected(mut self, detected: bool) -> PoolBuilder {
        self.detected = Some(detected);
        self
    }

    /// The root of sysfs, if it is not `/sys`.
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

    /// Frames that are reserved. `min` must be at most `low`, and `low` at most `high`. Default: none.
    pub fn watermarks(mut self, watermarks: Watermarks) -> PoolBuilder {
        self.watermarks = watermarks;
        self
    }

    /// Seed for random placement. Default: a new one for each pool.
    pub fn seed(mut self, seed: u64) -> PoolBuilder {
        self.seed = Some(seed);
        self
    }

    /// CPUs that have per-CPU lists: the highest possible number plus one, at most 65,536. Default: what the system
    /// reports. Threads on other CPUs go to the zone.
    pub fn cpus(mut self, cpus: u32) -> PoolBuilder {
        self.cpus = Some(cpus);
        self
    }

    /// What keeps threads apart on per-CPU lists. Default: restartable sequences if available, else locks.
    pub fn tier(mut self, tier: Tier) -> PoolBuilder {
        self.tier = tier;
        self
    }

    /// Starts a thread that periodically drains per-CPU lists that are too large or idle. Default: no thread; frames
    /// then stay on idle lists until an allocation finds nothing else. The thread ends with the pool. Its interval is
    /// at least [`Housekeeping::MIN_INTERVAL`].
    pub fn housekeeping(mut self, settings: Housekeeping) -> PoolBuilder {
        self.housekeeping = Some(settings);
        self
    }

    /// Uses small private pages if huge pages are not available. [`Pool::backing`] reports which are in use, and
    /// [`Pool::instead_of`] why. By default this is an error.
    pub fn or_anonymous(mut self) -> PoolBuilder {
        self.fall_back = true;
        self
    }

    /// Builds the pool.
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
        let is_fixed = source.backing == Backing::Dax;
        if bytes.0 == 0 || span < bytes || (is_fixed && span != bytes) {
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

    /// Checks what does not depend on the backing.
    fn check(&self, span: Bytes) -> Result<(), Error> {
        let (first, limits) = (self.first_frame, self.watermarks);
        if first.0.checked_add(span.pages()).is_none_or(|end| end > u64::MAX >> PAGE_SHIFT) {
            return Err(Error::FirstFrame { first, span });
        }
        if let Some(cpus) = self.cpus.filter(|&cpus| cpus > MAX_CPUS) {
            return Err(Error::Cpus { cpus, most: MAX_CPUS });
        }
        if limits.min > limits.low || limits.low > limits.high {
            return Err(Error::Watermarks(limits));
        }
        self.housekeeping.map_or(Ok(()), Housekeeping::check)
    }

    fn seed_or_random(&self) -> u64 {
        self.seed.unwrap_or_else(|| RandomState::new().build_hasher().finish())
    }
}
