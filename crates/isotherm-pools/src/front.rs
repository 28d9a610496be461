//! What hands out the frames of a pool: per-CPU sets in front of a zone, whose books lie in mappings of their own that become resident
//! where frames are.
//!
//! The one place that knows what stands between a pool and its zone.

use crate::Error;
use crate::memory::Private;
use isotherm_frames::{
    AllocError, FrameNo, FrameRange, FreeError, Metadata, MigrateType, Offline, OfflineError, Order, Request, Sets,
    SetsConfig, Tier, Zone, ZoneConfig,
};
use std::fs;
use std::thread::available_parallelism;

/// Sets and a zone with their books. They do not leave this crate: what they borrow lives as long as the last field, not for ever.
#[derive(Debug)]
pub(crate) struct Front {
    sets: Sets<'static>,
    /// After what borrows them: fields are dropped in order.
    _books: [Private; 2],
}

/// Memory for books, to be lent to what is in the same [`Front`].
fn books(bytes: usize) -> Result<(Private, Metadata<'static>), Error> {
    let books = Private::new(bytes).map_err(|e| Error::system(format!("map {bytes} bytes for books"), e))?;
    #[expect(unsafe_code, reason = "the books and what borrows them are owned together")]
    // SAFETY: called once for this mapping; what borrows it is dropped before it, as the order of the fields of `Front` says, or here
    // if it is not made, and nothing gets at the bytes but through `Front`, which lends its fields for less than its own life.
    let memory = unsafe { books.bytes() };
    Ok((books, Metadata::zeroed(memory)))
}

impl Front {
    /// A zone of which `range` is free, behind sets for `cpus` CPUs.
    pub(crate) fn new(config: &ZoneConfig, range: FrameRange, cpus: Option<u32>, tier: Tier) -> Result<Front, Error> {
        let (zone_books, metadata) = books(config.metadata_bytes()?)?;
        let zone = Zone::new(config, metadata)?;
        zone.add(range, MigrateType::Movable)?;
        let config = SetsConfig { tier, ..SetsConfig::new(cpus.unwrap_or_else(possible_cpus)) };
        let (set_books, metadata) = books(config.metadata_bytes(&zone))?;
        let sets = Sets::new(zone, &config, metadata)?;
        Ok(Front { sets, _books: [zone_books, set_books] })
    }

    pub(crate) fn zone(&self) -> &Zone<'static> {
        self.sets.zone()
    }

    pub(crate) fn tier(&self) -> Tier {
        self.sets.tier()
    }

    #[inline]
    pub(crate) fn alloc(&self, order: Order, migrate: MigrateType) -> Result<FrameNo, AllocError> {
        self.sets.alloc(order, migrate)
    }

    pub(crate) fn alloc_at(&self, frame: FrameNo, order: Order, migrate: MigrateType) -> Result<(), AllocError> {
        self.sets.alloc_at(frame, order, migrate)
    }

    /// From the zone, after emptying the sets if it has none, unless the request does not wait.
    pub(crate) fn request(&self, request: Request) -> Result<FrameNo, AllocError> {
        self.zone().request(request).or_else(|error| {
            if request.no_wait || self.drain() == 0 { Err(error) } else { self.zone().request(request) }
        })
    }

    pub(crate) fn alloc_bulk(&self, order: Order, migrate: MigrateType, frames: &mut [FrameNo]) -> usize {
        self.sets.alloc_bulk(order, migrate, frames)
    }

    #[inline]
    pub(crate) fn free(&self, frame: FrameNo, order: Order) -> Result<(), FreeError> {
        self.sets.free(frame, order)
    }

    #[inline]
    pub(crate) fn free_unique(&self, frame: FrameNo, order: Order) -> Result<(), FreeError> {
        self.sets.free_unique(frame, order)
    }

    pub(crate) fn free_bulk(&self, frames: &[FrameNo], order: Order) -> Result<(), FreeError> {
        self.sets.free_bulk(frames, order)
    }

    /// Takes a range away, also from the sets.
    pub(crate) fn offline(&self, range: FrameRange) -> Result<Offline, OfflineError> {
        match self.zone().offline(range)? {
            Offline::Pending { in_sets: 1.., .. } => {
                self.drain();
                self.zone().offline(range)
            }
            outcome => Ok(outcome),
        }
    }

    /// Gives what waits in the sets back to the zone: how many frames.
    pub(crate) fn drain(&self) -> u64 {
        self.sets.drain_all()
    }

    /// Runs `act` while nobody else is in the sets or the zone.
    pub(crate) fn while_quiet<T>(&self, act: impl FnOnce() -> T) -> T {
        self.sets.while_quiet(act)
    }

    /// Frames that wait in the sets.
    pub(crate) fn waiting(&self) -> u64 {
        (0..self.sets.cpus()).map(|cpu| self.sets.waiting(cpu)).sum()
    }
}

/// The highest CPU number that is possible, plus one.
fn possible_cpus() -> u32 {
    let listed = fs::read_to_string("/sys/devices/system/cpu/possible").ok().and_then(|list| past_last(&list));
    let counted = || available_parallelism().ok().and_then(|n| u32::try_from(n.get()).ok());
    listed.or_else(counted).unwrap_or(1)
}

/// One past the last number of a list such as `0-3,8-11`.
fn past_last(list: &str) -> Option<u32> {
    list.trim().rsplit([',', '-']).next()?.parse::<u32>().ok()?.checked_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_end_with_the_last() {
        for (list, past) in [("0\n", Some(1)), ("0-127\n", Some(128)), ("0,2-5,9", Some(10)), ("", None), ("all", None)]
        {
            assert_eq!(past_last(list), past, "{list:?}");
        }
        assert!(possible_cpus() >= 1);
    }
}
