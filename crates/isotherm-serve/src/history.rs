//! The moments that are kept: all of the last minutes, and fewer the longer they lie back.
//!
//! Level 0 has every snapshot of the last ten minutes. When more have come, the oldest ten become one moment of level 1
//! ([`crate::merge`]), and so on: each level reaches back ten times as far, with the same number of moments. Beyond the limit
//! of memory, merging begins earlier, and in the end the oldest moments go.
//!
//! One thread writes. Readers get a list of shared moments that does not change ([`History::moments`]).

use crate::footprint::Footprint;
use crate::layout::Layout;
use crate::merge::merge;
use crate::moment::{Moment, Process};
use isotherm_heat::TargetId;
use std::collections::{HashMap, VecDeque};
use std::mem::size_of;
use std::sync::Arc;

/// How far back level 0 reaches.
const FULL_MS: u64 = 600_000;
/// How many moments become one.
const MERGED: usize = 10;
/// Each level reaches back ten times as far as the one before. The last one: 70 days.
const LEVELS: usize = 5;

/// How long a layout only grows. Making it anew takes all moments of a process, and gives addresses other places.
const REBUILD_MS: u64 = 600_000;

/// Moments within a limit of memory.
#[derive(Debug)]
pub struct History {
    levels: [VecDeque<Arc<Moment>>; LEVELS],
    footprint: Footprint,
    max_bytes: usize,
    layouts: HashMap<TargetId, Known>,
    /// Bytes of the layouts.
    layout_bytes: usize,
}

/// The layout of a process, and when it was last there.
#[derive(Clone, Debug)]
struct Known {
    layout: Arc<Layout>,
    seen_ms: u64,
    /// When it was last made from all moments.
    rebuilt_ms: u64,
}

impl Known {
    fn bytes(&self) -> usize {
        size_of::<(TargetId, Known)>() + self.layout.bytes()
    }
}

impl History {
    /// An empty one that takes at most `max_bytes`.
    pub fn new(max_bytes: usize) -> History {
        let (footprint, layouts) = (Footprint::default(), HashMap::new());
        History { levels: Default::default(), footprint, max_bytes, layouts, layout_bytes: 0 }
    }

    /// Adds the newest moment. Those that are not earlier go: the clock was set back, and times would mean two moments.
    pub fn push(&mut self, moment: Arc<Moment>) {
        for level in 0..LEVELS {
            while self.levels[level].back().is_some_and(|later| later.at_ms >= moment.at_ms) {
                self.levels[level].pop_back().iter().for_each(|later| self.footprint.remove(later));
            }
        }
        for process in &moment.processes {
            let known = self.layout_with(process, moment.at_ms);
            self.layouts.insert(process.id, known);
        }
        let now_ms = moment.at_ms;
        self.add(0, moment);
        self.age(now_ms);
        self.retain_layouts();
        self.fit();
    }

    /// The memory that it takes.
    fn bytes(&self) -> usize {
        self.footprint.bytes() + self.layout_bytes
    }

    /// Removes the layouts of processes that are in no moment any more.
    fn retain_layouts(&mut self) {
        let oldest = self.levels.iter().rev().find_map(VecDeque::front);
        // A process of a merged moment may have ended before that moment did.
        let oldest_ms = oldest.map_or(0, |moment| moment.start_ms);
        self.layouts.retain(|_, known| known.seen_ms >= oldest_ms);
        self.layout_bytes = self.layouts.values().map(Known::bytes).sum();
    }

    /// The layout of a process, with what it uses now. If that changes it, memory that no moment shows any more goes, too.
    fn layout_with(&self, process: &Process, now_ms: u64) -> Known {
        let used = process.used();
        let before = self.layouts.get(&process.id);
        let same = before.filter(|known| known.layout.has(used.clone()));
        if let Some(known) = same {
            return Known { seen_ms: now_ms, ..known.clone() };
        }
        let lasts = |known: &&Known| now_ms.saturating_sub(known.rebuilt_ms) < REBUILD_MS;
        if let Some(known) = before.filter(lasts) {
            return Known { layout: Layout::with(Some(&known.layout), used), seen_ms: now_ms, ..*known };
        }
        let moments = self.levels.iter().rev().flatten();
        let layout = moments
            .filter_map(|moment| moment.process(process.id))
            .fold(None, |layout, process| Some(Layout::with(layout.as_ref(), process.used())));
        Known { layout: Layout::with(layout.as_ref(), used), seen_ms: now_ms, rebuilt_ms: now_ms }
    }

    /// All moments, the oldest first.
    pub fn moments(&self) -> Vec<Arc<Moment>> {
        self.levels.iter().rev().flatten().cloned().collect()
    }

    /// The layouts of all processes that are in them.
    pub fn layouts(&self) -> HashMap<TargetId, Arc<Layout>> {
        self.layouts.iter().map(|(id, known)| (*id, Arc::clone(&known.layout))).collect()
    }

    /// The newest moment.
    pub fn newest(&self) -> Option<&Arc<Moment>> {
        self.levels.iter().find_map(VecDeque::back)
    }

    fn add(&mut self, level: usize, moment: Arc<Moment>) {
        self.footprint.add(&moment);
        self.levels[level].push_back(moment);
    }

    fn remove_oldest(&mut self, level: usize) -> Option<Arc<Moment>> {
        let moment = self.levels[level].pop_front()?;
        self.footprint.remove(&moment);
        Some(moment)
    }

    /// Merges what is older than its level reaches back.
    fn age(&mut self, now_ms: u64) {
        let mut reach_ms = FULL_MS;
        for level in 0..LEVELS {
            let is_old = |moment: &Arc<Moment>| moment.at_ms.saturating_add(reach_ms) < now_ms;
            while self.levels[level].get(MERGED - 1).is_some_and(is_old) {
                self.merge_oldest(level);
            }
            reach_ms = reach_ms.saturating_mul(10);
        }
    }

    /// Merges, and in the end drops, until the rest fits. The newest stays.
    fn fit(&mut self) {
        while self.bytes() > self.max_bytes {
            // The lowest level with enough moments has most of the memory.
            if let Some(level) = (0..LEVELS - 1).find(|level| self.levels[*level].len() >= 2 * MERGED) {
                self.merge_oldest(level);
                continue;
            }
            let Some(level) = (0..LEVELS).rev().find(|level| !self.levels[*level].is_empty()) else { return };
            if level == 0 && self.levels[0].len() == 1 {
                return;
            }
            self.remove_oldest(level);
            self.retain_layouts();
        }
    }

    /// The oldest moments of a level become one of the next; those of the last go.
    fn merge_oldest(&mut self, level: usize) {
        let oldest: Vec<Arc<Moment>> = (0..MERGED).filter_map(|_| self.remove_oldest(level)).collect();
        if level + 1 < LEVELS && !oldest.is_empty() {
            self.add(level + 1, Arc::new(merge(&oldest)));
        }
    }
}

/// The moment that shows `at_ms`, as tiles do: the first whose window ends after it, or the last.
pub fn moment_at(moments: &[Arc<Moment>], at_ms: u64) -> Option<&Arc<Moment>> {
    let ended = moments.partition_point(|moment| moment.at_ms <= at_ms);
    moments.get(ended).or(moments.last())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sums::Sum;
    use isotherm_heat::{Interval, Mapping, Region};
    use isotherm_stream::{HostRow, MappingRow, ProcessRow, RegionRow, Snapshot};
    use isotherm_units::{Addr, AddrRange, PMD_SIZE};

    /// One moment a second.
    fn moment(second: u64) -> Arc<Moment> {
        let total = Sum { small: [second, 0, 0, 0, 0], ..Sum::default() };
        Arc::new(Moment { start_ms: second * 1000, at_ms: second * 1000 + 1000, total, ..Moment::default() })
    }

    #[test]
    fn ten_minutes_are_kept_in_full_and_hours_thinned() {
        let mut history = History::new(usize::MAX);
        (0..7 * 3600).for_each(|second| history.push(moment(second)));
        let moments = history.moments();
        let lens = [0, 1, 2].map(|level| history.levels[level].len());
        assert!((601..=610).contains(&lens[0]), "{lens:?}");
        // Of 6,000 seconds, those that level 0 does not have.
        assert!((530..=560).contains(&lens[1]), "{lens:?}");
        assert_eq!(lens[0] + 10 * lens[1] + 100 * lens[2], 7 * 3600);
        assert!(moments.windows(2).all(|two| two[0].at_ms == two[1].start_ms), "no gap and no overlap");
        assert_eq!((moments[0].start_ms, history.newest().unwrap().at_ms), (0, 7 * 3_600_000));
        // The mean of seconds 0 to 99, in two roundings.
        assert!((48..=50).contains(&moments[0].total.small[0]), "{}", moments[0].total.small[0]);
    }

    #[test]
    fn memory_has_a_limit_and_the_newest_stays() {
        let one = moment(0).bytes();
        let mut history = History::new(50 * one);
        for second in 0..100_000 {
            history.push(moment(second));
            assert!(history.bytes() <= 50 * one);
        }
        assert_eq!(history.newest().unwrap().at_ms, 100_000_000);
        let reach_s = (100_000_000 - history.moments()[0].start_ms) / 1000;
        assert!(reach_s > 1000, "reaches back {reach_s} s with 50 moments");
        let mut tiny = History::new(1);
        (0..5).for_each(|second| tiny.push(moment(second)));
        assert_eq!(tiny.moments().len(), 1);
    }

    /// A snapshot of one process with mappings and regions, each of a huge range that lies apart.
    fn snapshot(second: u64, names: impl Iterator<Item = String>, regions: u64) -> Snapshot {
        let range = |n: u64| AddrRange::new(Addr(2 * n * PMD_SIZE), Addr((2 * n + 1) * PMD_SIZE));
        let mappings = (0..).zip(names).map(|(n, name)| MappingRow {
            pid: 1,
            start_ticks: 1,
            mapping: Mapping { range: range(n), name, perms: "rw-p".parse().unwrap() },
        });
        let region = |n| Region {
            range: range(n),
            resident_pages: 1,
            measured_pages: 0,
            huge_pages: 0,
            interval: Interval::UNMEASURED,
            rate_hz: 0.0,
            age_ns: 0,
            idle_ns: 0,
            sampled_pages: 0,
            estimated_pages: 0,
            hot_pages: None,
        };
        let [start_unix_ns, end_unix_ns] = [second, second + 1].map(|second| second * 1_000_000_000);
        Snapshot {
            host: HostRow { start_unix_ns, end_unix_ns, ..HostRow::default() },
            processes: vec![ProcessRow { pid: 1, start_ticks: 1, ..ProcessRow::default() }],
            mappings: mappings.collect(),
            regions: (0..regions).map(|n| RegionRow { pid: 1, start_ticks: 1, region: region(n) }).collect(),
            ..Snapshot::default()
        }
    }

    fn push(history: &mut History, snapshot: &Snapshot) {
        let moment = Moment::of(snapshot, history.newest().map(|moment| &**moment));
        history.push(Arc::new(moment));
    }

    #[test]
    fn shared_mappings_count_once_until_the_last_moment_with_them_goes() {
        let named = |second, name: &str| snapshot(second, (0..10).map(|_| name.repeat(1000)), 0);
        let mut history = History::new(usize::MAX);
        push(&mut history, &named(0, "a"));
        let one = history.bytes();
        // Ten names of 1,000 bytes.
        assert!((10_000..12_500).contains(&one), "{one}");
        push(&mut history, &named(1, "a"));
        let two = history.bytes();
        assert!(two - one < 1000, "{one} bytes for one moment, {two} for two");
        push(&mut history, &named(2, "b"));
        assert!((10_000..12_500).contains(&(history.bytes() - two)), "{two}, then {}", history.bytes());
        // The clock is set back: all three give way to one.
        push(&mut history, &named(0, "c"));
        assert_eq!((history.moments().len(), history.bytes()), (1, one));
    }

    #[test]
    fn mappings_that_change_and_layouts_are_within_the_limit() {
        let max = 180_000;
        let mut history = History::new(max);
        for second in 0..100 {
            // 100 names of a hundred bytes, all new: 16 kB a moment, of which about ten fit.
            push(&mut history, &snapshot(second, (0..100).map(|n| format!("{second:050}{n:050}")), 0));
            assert!(history.bytes() <= max);
        }
        assert!((5..=12).contains(&history.moments().len()), "{}", history.moments().len());
        // A layout of 1,000 spans takes 24 kB, and its regions 56 kB a moment: two fit with it, three without.
        let mut history = History::new(max);
        (0..3).for_each(|second| push(&mut history, &snapshot(second, std::iter::empty(), 1000)));
        assert_eq!(history.layout_bytes / 1000, 24);
        assert!(history.bytes() <= max && history.moments().len() == 2);
        assert!(history.footprint.bytes() * 3 / 2 < max, "the layout makes the difference");
    }

    /// The spans of a process that uses another huge range in each minute.
    fn spans_of_one_that_moves(mut history: History) -> usize {
        for minute in 0..100 {
            let mut sent = snapshot(minute * 60, std::iter::empty(), 1);
            sent.regions[0].region.range =
                AddrRange::new(Addr(2 * minute * PMD_SIZE), Addr((2 * minute + 1) * PMD_SIZE));
            push(&mut history, &sent);
            let (layout, used) = (&history.layouts().into_values().next().unwrap(), sent.regions[0].region.range);
            assert!(layout.has(std::iter::once(used)));
        }
        history.layouts().into_values().next().unwrap().spans.len()
    }

    #[test]
    fn spans_that_no_moment_shows_go_after_a_while() {
        assert_eq!(spans_of_one_that_moves(History::new(usize::MAX)), 100, "all are shown");
        // Only the newest moment fits. A layout made in minute 90 has its huge range, that of the moment before, and the nine
        // that came until minute 99.
        assert_eq!(spans_of_one_that_moves(History::new(1)), 11);
    }

    #[test]
    fn a_moment_is_found_by_time_and_a_clock_that_was_set_back_replaces_what_came_later() {
        let mut history = History::new(usize::MAX);
        (0..9).for_each(|second| history.push(moment(second)));
        history.push(moment(4));
        let moments = history.moments();
        assert_eq!(moments.len(), 5);
        assert_eq!(history.bytes(), moments.iter().map(|moment| moment.bytes()).sum::<usize>());
        let at = |ms| moment_at(&moments, ms).unwrap().at_ms;
        // Second 2 is shown by the window that ends with it, not by the one before.
        assert_eq!([at(0), at(999), at(1000), at(2999), at(3000)], [1000, 1000, 2000, 3000, 4000]);
        assert_eq!([at(4999), at(5000), at(99_999)], [5000; 3]);
        assert!(moment_at(&[], 7).is_none());
    }
}
