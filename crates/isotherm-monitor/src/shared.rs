//! Pages that several targets map: counted once if their frames are known.
//!
//! Frames come from pagemap, at 14 ms per GiB, so only memory that can be shared is read: file mappings and shared
//! memory, and private memory at the same address in two targets, as after a fork. A GiB is read at a time, and the monitor does what else is due in
//! between.
//!
//! A page counts for the process that started first of those that map it: it outlives most of the others. Where it ends nonetheless, the others go
//! on without the pages it stood for until the next comparison, so these are doubtful then ([`doubt`]).

use crate::watched::TargetMonitor;
use isotherm_heat::source::{AccessSource, SourceResult};
use isotherm_heat::{Mapping, Ns, TargetId};
use isotherm_units::{Addr, Perms, PmdNo};
use std::collections::HashMap;

/// Huge ranges whose frames are read in one piece: a GiB. Reads and clears of other memory wait meanwhile.
const PIECE: usize = 512;

/// A comparison that goes on, in the order in which the processes have started.
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
    pmds: ShareablePmds,
    done: usize,
    counts: Counts,
}

/// Huge ranges whose pages may be shared.
#[derive(Debug, Default, PartialEq, Eq)]
struct ShareablePmds {
    /// Those of files and shared memory, in order, and then those of private memory only, in order.
    all: Vec<PmdNo>,
    /// How many are the first.
    of_files: usize,
}

impl ShareablePmds {
    /// The piece that begins at `done`, which is of one kind, and whether that is files and shared memory.
    fn piece(&self, done: usize) -> (&[PmdNo], bool) {
        let is_of_files = done < self.of_files;
        let end = if is_of_files { self.of_files } else { self.all.len() };
        (&self.all[done..end.min(done + PIECE)], is_of_files)
    }
}

/// Pages of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Counted for it, of files and shared memory: later processes may map them too, and leave them out.
    pub first: u64,
    /// Counted for an earlier process.
    pub elsewhere: u64,
    /// Of which that is not known.
    pub unknown: u64,
}

/// A process has ended for which `first` pages were counted. Nobody knows which of them others map, until the next comparison: each of the others
/// counts so many itself again, as pages that may be shared.
pub(crate) fn doubt<'a>(others: impl Iterator<Item = &'a mut TargetMonitor>, first: u64) {
    for Counts { elsewhere, unknown, .. } in others.map(|other| &mut other.shared) {
        let doubtful = first.min(*elsewhere);
        *elsewhere -= doubtful;
        *unknown += doubtful;
    }
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
        let mut started: Vec<TargetId> = Vec::new();
        for watched in targets {
            started.push(watched.id);
            for mapping in watched.mappings.iter().filter(|m| !is_shareable(m)) {
                *new.starts.entry(mapping.range.start).or_default() += 1;
            }
        }
        started.sort_by_key(|id| std::cmp::Reverse((id.start_ticks, id.pid)));
        new.left = started.into_iter().map(|id| id.pid).collect();
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
            let pmds = self.shareable_pmds(&watched.mappings, &target.all_pmds());
            Current { id: watched.id, pmds, done: 0, counts: Counts::default() }
        });
        let pid = watched.id.pid;
        if let Some(counts) = self.piece(current, |pmds, each| source.shared_frames(pid, pmds, each))? {
            (watched.shared, watched.is_compared) = (counts, true);
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
        let (pmds, is_of_files) = current.pmds.piece(current.done);
        let counts = &mut current.counts;
        let finds_them = frames_of(pmds, &mut |frame| match frame {
            Some(frame) if !self.seen.insert(frame) => counts.elsewhere += 1,
            Some(_) => counts.first += u64::from(is_of_files),
            None => counts.unknown += 1,
        })?;
        if !finds_them {
            // It stays one that was not compared: all that may be shared counts as that.
            return Ok(None);
        }
        current.done += pmds.len();
        if current.done == current.pmds.all.len() {
            return Ok(Some(current.counts));
        }
        self.current = Some(current);
        Ok(None)
    }

    /// Huge ranges that touch a mapping whose pages may be shared. Both lists are sorted.
    fn shareable_pmds(&self, mappings: &[Mapping], pmds: &[PmdNo]) -> ShareablePmds {
        let is_in_two = |m: &Mapping| self.starts.get(&m.range.start).is_some_and(|n| *n > 1);
        let (of_files, private): (Vec<&Mapping>, Vec<&Mapping>) =
            mappings.iter().filter(|m| is_shareable(m) || is_in_two(m)).partition(|m| is_shareable(m));
        let mut all = touching(&of_files, pmds);
        let of_files = all.len();
        let mut of_private = touching(&private, pmds);
        of_private.retain(|pmd| all.binary_search(pmd).is_err());
        all.append(&mut of_private);
        ShareablePmds { all, of_files }
    }
}

/// Those of `pmds` that touch one of `mappings`. Both lists are sorted.
fn touching(mappings: &[&Mapping], pmds: &[PmdNo]) -> Vec<PmdNo> {
    let mut at = 0;
    let touches = |pmd: &&PmdNo| {
        at += mappings[at..].partition_point(|m| m.range.end <= pmd.addr());
        mappings.get(at).is_some_and(|m| m.range.start < pmd.next().addr())
    };
    pmds.iter().filter(touches).copied().collect()
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
            let all: Vec<PmdNo> = pmds.map(PmdNo).collect();
            // The last 700 are private.
            let pmds = ShareablePmds { of_files: all.len().saturating_sub(700), all };
            Current { id, pmds, done: 0, counts: Counts::default() }
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
            found.extend(counts.unwrap().map(|counts| (pid, counts.first, counts.elsewhere, counts.unknown)));
        }
        assert_eq!(found, [(1, 324 * 512, 0, 0), (2, 68 * 448, 768 * 512, 768 * 64), (3, 0, 0, 0)]);
        assert_eq!(pieces, [324, 512, 188, 512, 324, 512, 188, 0]);
        assert!(comparison.is_over());
    }

    #[test]
    fn what_cannot_be_found_is_not_taken_for_nothing() {
        let current = Current {
            id: TargetId { pid: 1, start_ticks: 1 },
            pmds: ShareablePmds { all: (0..1024).map(PmdNo).collect(), of_files: 1024 },
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
        let pmds = [9, 10, 11, 12, 20, 21, 22, 29, 30, 31, 32].map(PmdNo);
        let found = frames.shareable_pmds(&mappings, &pmds);
        assert_eq!(found, ShareablePmds { all: [30, 31, 20, 21].map(PmdNo).to_vec(), of_files: 2 });
    }
}
