//! The frames of a pool: per-CPU sets in front of a zone, and the mappings that their books lie in, which become resident where frames
//! are.
//!
//! Callers use the sets as they are; here is only what takes both the sets and the zone behind them.

use crate::error::Error;
use crate::memory::Private;
use isotherm_frames::{
    AllocError, FrameNo, FrameRange, Metadata, MigrateType, Offline, OfflineError, Request, Sets, SetsConfig, Tier,
    Zone, ZoneConfig,
};
use std::fs;
use std::thread::available_parallelism;

/// Sets and a zone with their books. They do not leave this crate: what they borrow lives as long as the last field, not for ever.
#[derive(Debug)]
pub(crate) struct Frames {
    sets: Sets<'static>,
    /// After what borrows them: fields are dropped in order.
    _books: [Private; 2],
}

/// Memory for books, to be lent to what is in the same [`Frames`].
fn books(bytes: usize) -> Result<(Private, Metadata<'static>), Error> {
    let books = Private::new(bytes).map_err(|e| Error::system(format!("map {bytes} bytes for books"), e))?;
    #[expect(unsafe_code, reason = "the books and what borrows them are owned together")]
    // SAFETY: called once for this mapping; what borrows it is dropped before it, as the order of the fields of `Frames` says, or here
    // if it is not made, and nothing gets at the bytes but through `Frames`, which lends its fields for less than its own life.
    let memory = unsafe { books.bytes() };
    Ok((books, Metadata::zeroed(memory)))
}

impl Frames {
    /// A zone of which `range` is free, behind sets for `cpus` CPUs.
    pub(crate) fn new(config: &ZoneConfig, range: FrameRange, cpus: Option<u32>, tier: Tier) -> Result<Frames, Error> {
        let (zone_books, metadata) = books(config.metadata_bytes()?)?;
        let zone = Zone::new(config, metadata)?;
        zone.add(range, MigrateType::Movable)?;
        let config = SetsConfig { tier, ..SetsConfig::new(cpus.unwrap_or_else(possible_cpus)) };
        let (set_books, metadata) = books(config.metadata_bytes(&zone))?;
        let sets = Sets::new(zone, &config, metadata)?;
        Ok(Frames { sets, _books: [zone_books, set_books] })
    }

    /// What hands them out.
    #[inline]
    pub(crate) fn sets(&self) -> &Sets<'static> {
        &self.sets
    }

    /// The zone behind.
    pub(crate) fn zone(&self) -> &Zone<'static> {
        self.sets.zone()
    }

    /// From the zone, after emptying the sets if it has none, unless the request does not wait.
    pub(crate) fn request(&self, request: Request) -> Result<FrameNo, AllocError> {
        self.zone().request(request).or_else(|error| {
            if request.no_wait || self.sets.drain_all() == 0 { Err(error) } else { self.zone().request(request) }
        })
    }

    /// Takes a range away, also from the sets.
    pub(crate) fn offline(&self, range: FrameRange) -> Result<Offline, OfflineError> {
        match self.zone().offline(range)? {
            Offline::Pending { in_sets: 1.., .. } => {
                self.sets.drain_all();
                self.zone().offline(range)
            }
            outcome => Ok(outcome),
        }
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
