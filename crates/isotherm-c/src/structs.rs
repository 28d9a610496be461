//! The structures of the header. They grow at the end, and each begins with the size that the caller knows.

use crate::codes::{E2BIG, EINVAL, EOPNOTSUPP};
use isotherm_pools::{
    Backing, Bytes, Choice, Colouring, FrameNo, HugeSize, Order, PoolBuilder, PoolStats, Tier, Watermarks,
};
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::mem::{MaybeUninit, offset_of};
use std::os::unix::ffi::OsStrExt;
use std::{ptr, slice};

const ANONYMOUS: u32 = 0;
const MEMFD: u32 = 1;
const HUGE_2M: u32 = 2;
const HUGE_1G: u32 = 3;
const DAX: u32 = 4;
const NUMBERS: u32 = 5;

const SHUFFLE_IF_DETECTED: u32 = 0;
const SHUFFLE: u32 = 1;
const SHUFFLE_NEVER: u32 = 2;

const TIER_BEST: u32 = 0;
const TIER_RESTARTABLE: u32 = 1;
const TIER_LOCKED: u32 = 2;

const OR_ANONYMOUS: u32 = 1;
const CACHE_DETECTED: u32 = 2;

/// No structure will ever be larger than this; a larger size is invalid.
const LARGEST: u64 = 4096;
/// The size of every structure is a multiple of this, now and later. Any other size would end within a field.
const WORD: u64 = size_of::<u64>() as u64;

/// `struct isotherm_pool_options`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the header says what they are")]
pub struct Options {
    pub size: u64,
    pub bytes: u64,
    pub span_bytes: u64,
    pub first_frame: u64,
    pub backing: u32,
    pub flags: u32,
    pub shuffle: u32,
    pub colour_order: u32,
    pub colour_cache_bytes: u64,
    pub watermark_min: u64,
    pub watermark_low: u64,
    pub watermark_high: u64,
    pub seed: u64,
    pub device: *const c_char,
    pub cpus: u32,
    pub tier: u32,
}

/// `struct isotherm_pool_stats`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the header says what they are")]
pub struct Stats {
    pub size: u64,
    pub span_first: u64,
    pub span_frames: u64,
    pub present_frames: u64,
    pub free_frames: u64,
    pub isolated_frames: u64,
    pub free_blocks: [u64; 11],
    pub failed: u64,
    pub refused: u64,
    pub contended: u64,
    pub backing: u32,
    pub shuffled: u32,
    pub waiting_frames: u64,
    pub tier: u32,
    pub unused: u32,
}

/// An error code and a sentence.
type Refused = (c_int, String);

fn no(sentence: impl Into<String>) -> Refused {
    (EINVAL, sentence.into())
}

impl Options {
    /// The caller's options, with zeros for fields that the caller does not know.
    ///
    /// # Safety
    /// `from` is null or points to as many bytes as its first eight bytes say.
    pub(crate) unsafe fn read(from: *const Options) -> Result<Options, Refused> {
        if from.is_null() {
            return Err(no("open a pool: no options"));
        }
        // SAFETY: the caller guarantees that the first field is readable.
        let given = unsafe { (&raw const (*from).size).read() };
        let least = offset_of!(Options, span_bytes) as u64;
        if !(least..=LARGEST).contains(&given) || !given.is_multiple_of(WORD) {
            return Err(no(format!("open a pool: options of {given} bytes; set size to sizeof(struct)")));
        }
        let known = size_of::<Options>();
        let given = usize::try_from(given).unwrap_or(known);
        // SAFETY: the caller guarantees `given` bytes.
        let bytes = unsafe { slice::from_raw_parts(from.cast::<u8>(), given) };
        if bytes.iter().skip(known).any(|&b| b != 0) {
            return Err((
                E2BIG,
                "open a pool: the options ask for what this version of the library does not know".into(),
            ));
        }
        let mut options = MaybeUninit::<Options>::zeroed();
        // SAFETY: at most the size of the structure is copied into it. All bytes are valid values, including the zeros
        // that are not overwritten.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), options.as_mut_ptr().cast(), given.min(known));
            Ok(options.assume_init())
        }
    }

    /// The options as a builder.
    ///
    /// # Safety
    /// The device is null or a string.
    pub(crate) unsafe fn builder(&self) -> Result<PoolBuilder, Refused> {
        if self.flags & !(OR_ANONYMOUS | CACHE_DETECTED) != 0 {
            return Err((E2BIG, format!("open a pool: unknown flags {:#x}", self.flags)));
        }
        // SAFETY: the caller guarantees a string or null.
        let builder = unsafe { self.backed() }?
            .span(Bytes(self.span_bytes))
            .first_frame(FrameNo(self.first_frame))
            .shuffle(self.shuffle()?)
            .tier(self.tier()?)
            .watermarks(self.watermarks());
        let builder = self.with_what_is_not_zero(builder);
        match self.colouring()? {
            Some(colouring) => Ok(builder.colouring(colouring)),
            None => Ok(builder),
        }
    }

    /// A builder for the backing.
    ///
    /// # Safety
    /// The device is null or a string.
    unsafe fn backed(&self) -> Result<PoolBuilder, Refused> {
        let bytes = Bytes(self.bytes);
        let builder = match self.backing {
            ANONYMOUS => PoolBuilder::anonymous(bytes),
            MEMFD => PoolBuilder::memfd(bytes),
            HUGE_2M => PoolBuilder::huge(bytes, HugeSize::Mib2),
            HUGE_1G => PoolBuilder::huge(bytes, HugeSize::Gib1),
            NUMBERS => PoolBuilder::numbers(bytes),
            DAX if self.device.is_null() => return Err(no("open a pool: device is not set")),
            DAX if bytes.0 != 0 => {
                return Err(no("open a pool: bytes is the size of the device for ISOTHERM_DAX; leave it 0"));
            }
            // SAFETY: the caller guarantees a string. No slice of a block of its memory is ever made here.
            DAX => unsafe { PoolBuilder::dax(OsStr::from_bytes(CStr::from_ptr(self.device).to_bytes())) },
            other => return Err((EOPNOTSUPP, format!("open a pool: unknown backing {other}"))),
        };
        if !self.device.is_null() && self.backing != DAX {
            return Err(no(format!(
                "open a pool: device is set but the backing is {}, not ISOTHERM_DAX",
                self.backing
            )));
        }
        Ok(builder)
    }

    fn shuffle(&self) -> Result<Option<bool>, Refused> {
        match self.shuffle {
            SHUFFLE_IF_DETECTED => Ok(None),
            SHUFFLE => Ok(Some(true)),
            SHUFFLE_NEVER => Ok(Some(false)),
            other => Err(no(format!("open a pool: shuffle is 0, 1 or 2, not {other}"))),
        }
    }

    fn tier(&self) -> Result<Tier, Refused> {
        match self.tier {
            TIER_BEST => Ok(Tier::Best),
            TIER_RESTARTABLE => Ok(Tier::Restartable),
            TIER_LOCKED => Ok(Tier::Locked),
            other => Err(no(format!("open a pool: tier is 0, 1 or 2, not {other}"))),
        }
    }

    /// Sets the options that the caller did not leave at zero; the others keep their defaults.
    fn with_what_is_not_zero(&self, mut builder: PoolBuilder) -> PoolBuilder {
        if self.flags & CACHE_DETECTED != 0 {
            builder = builder.cache_detected(true);
        }
        if self.flags & OR_ANONYMOUS != 0 {
            builder = builder.or_anonymous();
        }
        if self.cpus != 0 {
            builder = builder.cpus(self.cpus);
        }
        if self.seed != 0 {
            builder = builder.seed(self.seed);
        }
        builder
    }

    /// A watermark that is 0 equals the one before.
    fn watermarks(&self) -> Watermarks {
        let or = |value: u64, before: u64| if value == 0 { before } else { value };
        let low = or(self.watermark_low, self.watermark_min);
        Watermarks { min: self.watermark_min, low, high: or(self.watermark_high, low) }
    }

    fn colouring(&self) -> Result<Option<Colouring>, Refused> {
        if self.colour_cache_bytes == 0 {
            return Ok(None);
        }
        let granule = Order::new(self.colour_order)
            .ok_or_else(|| no(format!("open a pool: colour_order is at most 10, not {}", self.colour_order)))?;
        if !self.colour_cache_bytes.is_multiple_of(4 << 20) {
            return Err(no("open a pool: colour_cache_bytes is not a multiple of 4 MiB"));
        }
        let cache_frames = Bytes(self.colour_cache_bytes).pages();
        Ok(Some(Colouring { cache_frames, granule, choice: Choice::Exact }))
    }
}

impl Stats {
    pub(crate) fn of(stats: &PoolStats) -> Stats {
        let zone = &stats.zone;
        Stats {
            size: size_of::<Stats>() as u64,
            span_first: stats.span.start.0,
            span_frames: stats.span.len(),
            present_frames: zone.present,
            free_frames: stats.free(),
            isolated_frames: zone.isolated,
            free_blocks: zone.free_blocks.map(u64::from),
            failed: zone.events.failed,
            refused: zone.events.refused,
            contended: zone.contended,
            backing: match stats.backing {
                Backing::Anonymous => ANONYMOUS,
                Backing::Memfd => MEMFD,
                Backing::Huge(HugeSize::Mib2) => HUGE_2M,
                Backing::Huge(HugeSize::Gib1) => HUGE_1G,
                Backing::Dax => DAX,
                Backing::Numbers => NUMBERS,
            },
            shuffled: u32::from(zone.shuffle.is_on()),
            waiting_frames: stats.cached,
            tier: match stats.tier {
                Tier::Best => TIER_BEST,
                Tier::Restartable => TIER_RESTARTABLE,
                Tier::Locked => TIER_LOCKED,
            },
            unused: 0,
        }
    }

    /// Writes as many fields as the caller has room for, and stores their size. Fields that this library does not know
    /// become zero.
    ///
    /// # Safety
    /// `into` is null or points to as many bytes as its first eight bytes say.
    pub(crate) unsafe fn write(mut self, into: *mut Stats) -> Result<c_int, c_int> {
        if into.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: the caller guarantees that the first field is readable.
        let given = unsafe { (&raw const (*into).size).read() };
        if !(WORD..=LARGEST).contains(&given) || !given.is_multiple_of(WORD) {
            return Err(EINVAL);
        }
        let given = usize::try_from(given).map_err(|_| EINVAL)?;
        let known = given.min(size_of::<Stats>());
        self.size = known as u64;
        // SAFETY: the caller guarantees that `given` bytes are writable. `known` exceeds neither that nor the size of
        // the structure.
        unsafe {
            ptr::write_bytes(into.cast::<u8>(), 0, given);
            ptr::copy_nonoverlapping((&raw const self).cast::<u8>(), into.cast::<u8>(), known);
        }
        Ok(0)
    }
}
