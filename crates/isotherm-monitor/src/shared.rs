//! Pages that several targets map: counted once if their frames are known.
//!
//! Frames come from pagemap, at 14 ms per GiB, so only memory that can be shared is read: file mappings and shared
//! memory, and private memory at the same address in two targets, as after a fork. A GiB is read at a time, and the monitor does what else is due in
//! between.

use crate::watched::TargetMonitor;
use isotherm_heat::source::{AccessSource, SourceResult};
use isotherm_heat::{Mapping, Ns, TargetId};
use isotherm_units::{Addr, Perms, PmdNo};
use std::collections::HashMap;

/// Huge ranges whose frames are read in one piece: a GiB. Reads and clears of other memory wait meanwhile.
const PIECE: usize = 512;

/// A comparison that goes on, in the order of processes.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    seen: FrameSet,
    /// How many targets have a private mapping with this start.
    starts: HashMap<Addr, u32>,
    /// Processes that have not had their turn, the next one last.
    left: Vec<u32>,
    current: Option<Current>,
    /// For how long it has compared so far.
    pub took: Ns,
}

/// A process of which a part was compared.
#[derive(Debug)]
pub(crate) struct Current {
    id: TargetId,
    pmds: Vec<PmdNo>,
    done: usize,
    counts: Counts,
}

/// Pages of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    /// Counted for an earlier process.
    elsewhere: u64,
    /// Of which that is not known.
    unknown: u64,
}

/// Frames, a bit each, for every 2 MiB of memory that has any of them. Shared memory of a database may be most of a machine: 160 GiB are 42 million
/// frames, which take 9 MiB at best, and nowhere more than 75 MiB for each TiB of the machine, half as much again while the table grows. As numbers in
/// a table they took 600.
#[derive(Debug, Default)]
struct FrameSet(HashMap<u64, [u64; 8]>);

impl FrameSet {
    /// Whether it was not in it.
    fn insert(&mut self, frame: u64) -> bool {
        let words = self.0.entry(frame >> 9).or_default();
        let (word, bit) = (&mut words[(frame >> 6 & 7) as usize], 1 << (frame & 63));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }
}

/// Whether other processes may map its pages, by its kind.
pub(crate) fn is_shareable(mapping: &Mapping) -> bool {
    mapping.perms.contains(Perms::SHARED) || mapping.name.starts_with('/')
}

impl Comparison {
    /// Prepares to compare the pages of `targets`.
    pub fn among<'a>(targets: impl Iterator<Item = &'a TargetMonitor>) -> Comparison {
        let mut new = Comparison::default();
        for watched in targets {
            new.left.push(watched.id.pid);
            for mapping in watched.mappings.iter().filter(|m| !is_shareable(m)) {
                *new.starts.entry(mapping.range.start).or_default() += 1;
            }
        }
        new.left.reverse();
        new
    }

    /// Whether all have had their turn.
    pub fn is_over(&self) -> bool {
        self.left.is_empty() && self.current.is_none()
    }

    /// The process whose turn it is, and what was counted of it. If it is gone by now, so is that.
    pub fn turn(&mut self) -> Option<(u32, Option<Current>)> {
        match self.current.take() {
            Some(current) => Some((current.id.pid, Some(current))),
            None => Some((self.left.pop()?, None)),
        }
    }

    /// Another program takes the place of this process, or it has ended.
    pub fn forget(&mut self, pid: u32) {
        self.current.take_if(|current| current.id.pid == pid);
    }

    /// Counts the shared pages of one more piece of a process: those already counted for another, and those for which that is unknown.
    pub fn count(
        &mut self,
        current: Option<Current>,
        watched: &mut TargetMonitor,
        source: &mut dyn AccessSource,
    ) -> SourceResult<()> {
        let (Some(target), Some(source)) = (watched.tracker.pages(), source.as_pages()) else { return Ok(()) };
        if watched.exited {
            return Ok(());
        }
        let current = current.filter(|current| current.id == watched.id).unwrap_or_else(|| {
            let pmds = self.shareable_pmds(&watched.mappings, target.all_pmds());
            Current { id: watched.id, pmds, done: 0, counts: Counts::default() }
        });
        let pid = watched.id.pid;
        if let Some(counts) = self.piece(current, |pmds, each| source.shared_frames(pid, pmds, each))? {
            (watched.counted_elsewhere_pages, watched.maybe_shared_pages) = (counts.elsewhere, counts.unknown);
            watched.is_compared = true;
        }
        Ok(())
    }

    /// Counts one more piece by what `frames_of` reads, which returns whether it can find such pages. Returns what all of them came to once it was
    /// the last.
    fn piece(
        &mut self,
        mut current: Current,
        frames_of: impl FnOnce(&[PmdNo], &mut dyn FnMut(Option<u64>)) -> SourceResult<bool>,
    ) -> SourceResult<Option<Counts>> {
        let end = current.pmds.len().min(current.done + PIECE);
        let counts = &mut current.counts;
        let finds_them = frames_of(&current.pmds[current.done..end], &mut |frame| match frame {
            Some(frame) => counts.elsewhere += u64::from(!self.seen.insert(frame)),
            None => counts.unknown += 1,
        })?;
        if !finds_them {
            // It stays one that was not compared: all that may be shared counts as that.
            return Ok(None);
        }
        current.done = end;
        if end == current.pmds.len() {
            return Ok(Some(current.counts));
        }
        self.current = Some(current);
        Ok(None)
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
    use isotherm_heat::Rng;
    use isotherm_units::AddrRange;

    #[test]
    fn a_frame_is_new_once() {
        let mut frames = FrameSet::default();
        let mut naive = std::collections::HashSet::new();
        let mut rng = Rng::new(3);
        for _ in 0..20_000 {
            // Some far apart, some side by side.
            let frame = rng.below(4) << 30 | rng.below(3) << 9 | rng.below(1 << 11);
            assert_eq!(frames.insert(frame), naive.insert(frame), "{frame:#x}");
        }
        assert!(frames.0.len() < 40 && naive.len() > 5_000, "{} of {}", frames.0.len(), naive.len());
    }

    /// Three processes of 2, 3 and no GiB: the second maps the last 1.5 GiB of the first, and memory of its own, of which a page in eight is not
    /// known.
    #[test]
    fn what_is_counted_in_pieces_is_what_is_counted_at_once() {
        let current = |pid, pmds: std::ops::Range<u64>| {
            let id = TargetId { pid, start_ticks: 1 };
            Current { id, pmds: pmds.map(PmdNo).collect(), done: 0, counts: Counts::default() }
        };
        let mut comparison = Comparison { left: vec![3, 2, 1], ..Comparison::default() };
        let (mut found, mut pieces) = (Vec::new(), Vec::new());
        while let Some((pid, begun)) = comparison.turn() {
            let begun = begun.unwrap_or_else(|| match pid {
                1 => current(1, 0..1024),
                2 => current(2, 256..1792),
                _ => current(3, 0..0),
            });
            let counts = comparison.piece(begun, |pmds, each| {
                pieces.push(pmds.len());
                let frames = pmds.iter().flat_map(|pmd| (0..512).map(|page| pmd.0 << 9 | page));
                frames.for_each(|frame| each((frame < 1024 << 9 || frame % 8 > 0).then_some(frame)));
                Ok(true)
            });
            found.extend(counts.unwrap().map(|counts| (pid, counts.elsewhere, counts.unknown)));
        }
        assert_eq!(found, [(1, 0, 0), (2, 768 * 512, 768 * 64), (3, 0, 0)]);
        assert_eq!(pieces, [512, 512, 512, 512, 512, 0]);
        assert!(comparison.is_over());
    }

    #[test]
    fn what_cannot_be_found_is_not_taken_for_nothing() {
        let current = Current {
            id: TargetId { pid: 1, start_ticks: 1 },
            pmds: (0..1024).map(PmdNo).collect(),
            done: 0,
            counts: Counts::default(),
        };
        let mut comparison = Comparison::default();
        assert_eq!(comparison.piece(current, |_, _| Ok(false)).unwrap(), None);
        assert!(comparison.is_over(), "it is the turn of the next");
    }

    #[test]
    fn private_memory_is_asked_about_only_where_two_targets_have_it() {
        let mapping = |start: u64, name: &str| Mapping {
            range: AddrRange::new(PmdNo(start).addr(), PmdNo(start + 2).addr()),
            name: name.into(),
            perms: Perms::READ.union(Perms::WRITE),
        };
        let mappings = [mapping(10, ""), mapping(20, ""), mapping(30, "/lib/x")];
        let mut frames = Comparison::default();
        frames.starts.insert(PmdNo(10).addr(), 1);
        frames.starts.insert(PmdNo(20).addr(), 2);
        let pmds = [9, 10, 11, 12, 20, 21, 22, 29, 30, 31, 32].map(PmdNo).to_vec();
        assert_eq!(frames.shareable_pmds(&mappings, pmds), [20, 21, 30, 31].map(PmdNo));
    }
}
