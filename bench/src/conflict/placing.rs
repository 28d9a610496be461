//! A zone for each kind of placement, and an owner's frames in it. There is no memory behind the frames: placement
//! needs only numbers.

use super::CACHE_FRAMES;
use anyhow::{Context, Result};
use isotherm_frames::{
    Choice, Colouring, FrameNo, FrameRange, Metadata, MigrateType, Order, Shuffling, Zone, ZoneConfig,
};
use isotherm_placement::direct_mapped::{Conflict, DirectMapped};

/// How a zone places frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placing {
    /// In order: what the kernel does without a shuffle.
    InOrder,
    /// Blocks of 4 MiB are shuffled when they are added, and put at a random end of their list when they are freed.
    Shuffled,
    /// Of four random free frames, the one with the least used colour.
    BestOf4,
    /// Always a frame of the least used colour.
    Coloured,
}

impl Placing {
    /// A zone over `range` for a cache of [`CACHE_FRAMES`].
    pub fn config(self, range: FrameRange, seed: u64) -> ZoneConfig {
        let exact = Colouring::exact(CACHE_FRAMES);
        let (shuffle, colouring) = match self {
            Placing::InOrder => (None, None),
            Placing::Shuffled => (Some(true), None),
            Placing::BestOf4 => (None, Some(Colouring { choice: Choice::BestOf(4), ..exact })),
            Placing::Coloured => (None, Some(exact)),
        };
        ZoneConfig { shuffle: Shuffling::from_option(shuffle), colouring, seed, ..ZoneConfig::new(range) }
    }
}

/// The first `frames` frames.
pub fn frames_from_zero(frames: u64) -> FrameRange {
    FrameRange::new(FrameNo(0), FrameNo(frames))
}

/// Memory for the metadata of a zone.
pub fn books(config: &ZoneConfig) -> Result<Vec<u8>> {
    Ok(vec![0; config.metadata_bytes()?])
}

/// A zone in which all frames of its span are free and movable. [`books`] creates `books`.
pub fn zone<'m>(config: &ZoneConfig, books: &'m mut [u8]) -> Result<Zone<'m>> {
    let zone = Zone::new(config, Metadata::zeroed(books))?;
    zone.add(config.span, MigrateType::Movable)?;
    Ok(zone)
}

/// Takes frames one by one until `owned` has `frames` of them, as a process does that touches its pages in order.
pub fn grow(zone: &Zone<'_>, owned: &mut Vec<FrameNo>, frames: u64) -> Result<()> {
    while (owned.len() as u64) < frames {
        let frame = zone
            .alloc(Order::FRAME, MigrateType::Movable)
            .with_context(|| format!("an owner's frame {} of {frames}: give the machine more memory", owned.len()))?;
        owned.push(frame);
    }
    Ok(())
}

/// The share of accesses that are conflict misses if all frames are accessed equally often.
pub fn rate(cache: DirectMapped, frames: impl IntoIterator<Item = FrameNo>) -> f64 {
    weighted_rate(cache, frames.into_iter().map(|frame| (frame, 1.0)))
}

/// The same for frames that are accessed with these weights.
pub fn weighted_rate(cache: DirectMapped, frames: impl IntoIterator<Item = (FrameNo, f64)>) -> f64 {
    let mut conflict = Conflict::new(cache);
    frames.into_iter().for_each(|(frame, weight)| conflict.add(frame, weight));
    conflict.finish().rate().unwrap_or_default()
}
