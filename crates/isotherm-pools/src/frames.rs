//! The frames of a pool: per-CPU lists in front of a zone, and the mappings that hold their metadata. The metadata
//! becomes resident where there are frames.
//!
//! Callers use the lists directly. This module only contains what needs both the lists and the zone.

use crate::error::Error;
use crate::memory::Private;
use isotherm_frames::{
    AllocError, FrameNo, FrameRange, Metadata, MigrateType, Offline, OfflineError, PcpConfig, PcpLists, Request, Tier,
    Zone, ZoneConfig,
};
use std::fs;
use std::thread::available_parallelism;

/// Per-CPU lists and a zone, with their metadata. They do not leave this crate: what they borrow lives only as long as
/// the last field.
#[derive(Debug)]
pub(crate) struct Frames {
    pcp: PcpLists<'static>,
    /// After what borrows it: fields are dropped in order.
    _metadata: [Private; 2],
}

/// Memory for metadata, lent to what is in the same [`Frames`].
fn metadata_mapping(bytes: usize) -> Result<(Private, Metadata<'static>), Error> {
    let metadata_mapping =
        Private::new(bytes).map_err(|e| Error::system(format!("map {bytes} bytes for metadata"), e))?;
    #[expect(unsafe_code, reason = "the metadata and what borrows it are owned together")]
    // SAFETY: called once for this mapping. What borrows it is dropped first: by the order of the fields of `Frames`,
    // or here if `Frames` is not created. The bytes are only reached through `Frames`, which lends its fields for less
    // than its own life.
    let memory = unsafe { metadata_mapping.bytes() };
    Ok((metadata_mapping, Metadata::zeroed(memory)))
}

impl Frames {
    /// A zone in which `range` is free, behind per-CPU lists for `cpus` CPUs.
    pub(crate) fn new(config: &ZoneConfig, range: FrameRange, cpus: Option<u32>, tier: Tier) -> Result<Frames, Error> {
        let (zone_mapping, metadata) = metadata_mapping(config.metadata_bytes()?)?;
        let zone = Zone::new(config, metadata)?;
        zone.add(range, MigrateType::Movable)?;
        let config = PcpConfig { tier, ..PcpConfig::new(cpus.unwrap_or_else(possible_cpus)) };
        let (list_mapping, metadata) = metadata_mapping(config.metadata_bytes(&zone))?;
        let pcp = PcpLists::new(zone, &config, metadata)?;
        Ok(Frames { pcp, _metadata: [zone_mapping, list_mapping] })
    }

    /// The lists to allocate from.
    #[inline]
    pub(crate) fn pcp(&self) -> &PcpLists<'static> {
        &self.pcp
    }

    /// The zone behind the lists.
    pub(crate) fn zone(&self) -> &Zone<'static> {
        self.pcp.zone()
    }

    /// Allocates from the zone. If it has none, drains the lists and tries again, unless the request does not wait.
    pub(crate) fn request(&self, request: Request) -> Result<FrameNo, AllocError> {
        self.pcp.request(request)
    }

    /// Removes a range, also from the per-CPU lists.
    pub(crate) fn offline(&self, range: FrameRange) -> Result<Offline, OfflineError> {
        match self.zone().offline(range)? {
            Offline::Pending { in_lists: 1.., .. } => {
                self.pcp.drain_all();
                self.zone().offline(range)
            }
            outcome => Ok(outcome),
        }
    }

    /// Frames that are cached on per-CPU lists.
    pub(crate) fn cached(&self) -> u64 {
        (0..self.pcp.cpus()).map(|cpu| self.pcp.cached(cpu)).sum()
    }
}

/// The highest possible CPU number plus one.
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
