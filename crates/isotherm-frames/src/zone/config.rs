//! Configuration of a zone, and the memory that its metadata needs.

use super::shuffling::Shuffling;
use super::watermark::Watermarks;
use crate::colour::Colouring;
use crate::memory::{Link, bytes_for};
use crate::{FrameNo, FrameRange, Order, PAGE_BLOCK_ORDER};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
use thiserror::Error;

/// Most frames that a zone can span: 8 TiB.
pub const MAX_FRAMES: u64 = 1 << 31;

/// Configuration of a zone.
#[derive(Clone, Copy, Debug)]
pub struct ZoneConfig {
    /// Frames that can ever belong to it. Rounded outwards to multiples of 1,024 frames.
    pub span: FrameRange,
    /// Free frames that are reserved.
    pub watermarks: Watermarks,
    /// Whether free blocks are shuffled.
    pub shuffle: Shuffling,
    /// A direct-mapped cache to place frames for.
    pub colouring: Option<Colouring>,
    /// Seed for random placement. The same seed and the same calls give the same frames.
    pub seed: u64,
}

impl ZoneConfig {
    /// A zone over `span` without watermarks, shuffling or colouring.
    pub fn new(span: FrameRange) -> ZoneConfig {
        ZoneConfig { span, watermarks: Watermarks::default(), shuffle: Shuffling::default(), colouring: None, seed: 0 }
    }

    /// Bytes of metadata that a zone with this configuration needs.
    ///
    /// If they were zero, they stay untouched where there are no frames. So a mapping may be larger than what becomes resident.
    pub fn metadata_bytes(&self) -> Result<usize, ConfigError> {
        let (_, frames) = self.checked_span()?;
        let page_blocks = frames >> PAGE_BLOCK_ORDER;
        Ok(bytes_for::<AtomicU64>(1)
            + bytes_for::<Link>(frames)
            + bytes_for::<Link>(page_blocks)
            + bytes_for::<AtomicU8>(frames)
            + bytes_for::<AtomicU8>(page_blocks)
            + bytes_for::<AtomicU32>(page_blocks)
            + self.colouring.map_or(0, |c| c.metadata_bytes(frames)))
    }

    /// The first frame and the number of frames, both multiples of the largest block.
    pub(super) fn checked_span(&self) -> Result<(FrameNo, usize), ConfigError> {
        let largest = u64::from(Order::MAX.frames());
        if self.span.is_empty() {
            return Err(ConfigError::EmptySpan(self.span));
        }
        let start = self.span.start.0 & !(largest - 1);
        let end = self.span.end.0.checked_next_multiple_of(largest).ok_or(ConfigError::SpanTooLarge(self.span))?;
        let frames = usize::try_from(end - start).map_err(|_| ConfigError::SpanTooLarge(self.span))?;
        if end - start > MAX_FRAMES {
            return Err(ConfigError::SpanTooLarge(self.span));
        }
        if let Some(colouring) = &self.colouring {
            colouring.check(end - start).map_err(ConfigError::Colouring)?;
        }
        Ok((FrameNo(start), frames))
    }
}

/// Why a zone could not be created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The span is empty.
    #[error("a zone over {0:?}: the span is empty; give an end above its start")]
    EmptySpan(FrameRange),
    /// The span has more than [`MAX_FRAMES`].
    #[error("a zone over {0:?}: more than 2^31 frames (8 TiB); make several zones")]
    SpanTooLarge(FrameRange),
    /// The metadata is too small.
    #[error("a zone with {given} bytes of metadata: it needs {needed}; see ZoneConfig::metadata_bytes")]
    MetadataTooSmall {
        /// Bytes given.
        given: usize,
        /// Bytes needed.
        needed: usize,
    },
    /// The colouring is not possible.
    #[error("colouring a zone: {0}")]
    Colouring(&'static str),
}
