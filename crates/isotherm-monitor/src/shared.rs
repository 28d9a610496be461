//! Pages that several targets map: counted once if their frames are known.
//!
//! Frames come from pagemap, at 14 ms per GiB, so only memory that can be shared is read: file mappings and shared
//! memory, and private memory at the same address in two targets, as after a fork.

use crate::watched::TargetMonitor;
use isotherm_heat::Mapping;
use isotherm_heat::source::{AccessSource, SourceResult};
use isotherm_units::{Addr, Perms, PmdNo};
use std::collections::{HashMap, HashSet};

/// Frames counted so far, in the order of targets. Memory use follows the number of shared pages.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    seen: HashSet<u64>,
    /// How many targets have a private mapping with this start.
    starts: HashMap<Addr, u32>,
}

/// Whether other processes may map its pages, by its kind.
pub(crate) fn is_shareable(mapping: &Mapping) -> bool {
    mapping.perms.contains(Perms::SHARED) || mapping.name.starts_with('/')
}

impl Frames {
    /// Prepares to count the pages of `targets`.
    pub fn among<'a>(targets: impl Iterator<Item = &'a TargetMonitor>) -> Frames {
        let mut frames = Frames::default();
        for mapping in targets.flat_map(|w| &w.mappings).filter(|m| !is_shareable(m)) {
            *frames.starts.entry(mapping.range.start).or_default() += 1;
        }
        frames
    }

    /// Counts the shared pages of one more target: those already counted for another, and those for which that is
    /// unknown.
    pub fn count(&mut self, watched: &mut TargetMonitor, source: &mut dyn AccessSource) -> SourceResult<()> {
        let (Some(target), Some(source)) = (watched.tracker.pages(), source.as_pages()) else { return Ok(()) };
        let pmds = self.shareable_pmds(&watched.mappings, target.all_pmds());
        let (mut elsewhere, mut unknown) = (0, 0);
        source.shared_frames(watched.id.pid, &pmds, &mut |frame| match frame {
            Some(frame) => elsewhere += u64::from(!self.seen.insert(frame)),
            None => unknown += 1,
        })?;
        watched.counted_elsewhere_pages = elsewhere;
        watched.maybe_shared_pages = unknown;
        watched.is_compared = true;
        Ok(())
    }

    /// Huge ranges that touch a mapping whose pages may be shared. Both lists are sorted.
    fn shareable_pmds(&self, mappings: &[Mapping], pmds: Vec<PmdNo>) -> Vec<PmdNo> {
        let shareable: Vec<&Mapping> = mappings
            .iter()
            .filter(|m| is_shareable(m) || self.starts.get(&m.range.start).is_some_and(|n| *n > 1))
            .collect();
        let mut at = 0;
        let touches = |pmd: &PmdNo| {
            at += shareable[at..].partition_point(|m| m.range.end <= pmd.addr());
            shareable.get(at).is_some_and(|m| m.range.start < pmd.next().addr())
        };
        pmds.into_iter().filter(touches).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_units::AddrRange;

    #[test]
    fn private_memory_is_asked_about_only_where_two_targets_have_it() {
        let mapping = |start: u64, name: &str| Mapping {
            range: AddrRange::new(PmdNo(start).addr(), PmdNo(start + 2).addr()),
            name: name.into(),
            perms: Perms::READ.union(Perms::WRITE),
        };
        let mappings = [mapping(10, ""), mapping(20, ""), mapping(30, "/lib/x")];
        let mut frames = Frames::default();
        frames.starts.insert(PmdNo(10).addr(), 1);
        frames.starts.insert(PmdNo(20).addr(), 2);
        let pmds = [9, 10, 11, 12, 20, 21, 22, 29, 30, 31, 32].map(PmdNo).to_vec();
        assert_eq!(frames.shareable_pmds(&mappings, pmds), [20, 21, 30, 31].map(PmdNo));
    }
}
