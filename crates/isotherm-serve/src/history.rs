//! The moments that are kept: all of the last minutes, and fewer the longer they lie back.
//!
//! Level 0 has every snapshot of the last ten minutes. When more have come, the oldest ten become one moment of level 1
//! ([`crate::merge`]), and so on: each level reaches back ten times as far, with the same number of moments. Beyond the limit
//! of memory, merging begins earlier, and in the end the oldest moments go.
//!
//! One thread writes. Readers get a list of shared moments that does not change ([`History::moments`]).

use crate::layout::Layout;
use crate::merge::merge;
use crate::moment::Moment;
use isotherm_heat::TargetId;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// How far back level 0 reaches.
const FULL_MS: u64 = 600_000;
/// How many moments become one.
const MERGED: usize = 10;
/// Each level reaches back ten times as far as the one before. The last one: 70 days.
const LEVELS: usize = 5;

/// Moments within a limit of memory.
#[derive(Debug)]
pub struct History {
    levels: [VecDeque<Arc<Moment>>; LEVELS],
    bytes: usize,
    max_bytes: usize,
    layouts: HashMap<TargetId, Known>,
}

/// The layout of a process, and when it was last there.
#[derive(Clone, Debug)]
struct Known {
    layout: Arc<Layout>,
    seen_ms: u64,
}

impl History {
    /// An empty one that takes at most `max_bytes`.
    pub fn new(max_bytes: usize) -> History {
        History { levels: Default::default(), bytes: 0, max_bytes, layouts: HashMap::new() }
    }

    /// Adds the newest moment. Those that are not earlier go: the clock was set back, and times would mean two moments.
    pub fn push(&mut self, moment: Arc<Moment>) {
        for level in 0..LEVELS {
            while self.levels[level].back().is_some_and(|later| later.at_ms >= moment.at_ms) {
                self.bytes -= self.levels[level].pop_back().map_or(0, |later| later.bytes());
            }
        }
        for process in &moment.processes {
            let known = self.layouts.get(&process.id).map(|known| &known.layout);
            let used = process.regions.iter().map(|region| region.range);
            let layout = Layout::with(known, used);
            self.layouts.insert(process.id, Known { layout, seen_ms: moment.at_ms });
        }
        let now_ms = moment.at_ms;
        self.add(0, moment);
        self.age(now_ms);
        self.fit();
        let oldest = self.moments().first().map_or(0, |moment| moment.at_ms);
        self.layouts.retain(|_, known| known.seen_ms >= oldest);
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
        self.bytes += moment.bytes();
        self.levels[level].push_back(moment);
    }

    fn remove_oldest(&mut self, level: usize) -> Option<Arc<Moment>> {
        let moment = self.levels[level].pop_front()?;
        self.bytes -= moment.bytes();
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
        while self.bytes > self.max_bytes {
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

/// The moment that shows `at_ms`: the newest that is not later, or the oldest.
pub fn moment_at(moments: &[Arc<Moment>], at_ms: u64) -> Option<&Arc<Moment>> {
    let after = moments.partition_point(|moment| moment.at_ms <= at_ms);
    moments.get(after.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sums::Sum;

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
            assert!(history.bytes <= 50 * one);
        }
        assert_eq!(history.newest().unwrap().at_ms, 100_000_000);
        let reach_s = (100_000_000 - history.moments()[0].start_ms) / 1000;
        assert!(reach_s > 1000, "reaches back {reach_s} s with 50 moments");
        let mut tiny = History::new(1);
        (0..5).for_each(|second| tiny.push(moment(second)));
        assert_eq!(tiny.moments().len(), 1);
    }

    #[test]
    fn a_moment_is_found_by_time_and_a_clock_that_was_set_back_replaces_what_came_later() {
        let mut history = History::new(usize::MAX);
        (0..9).for_each(|second| history.push(moment(second)));
        history.push(moment(4));
        let moments = history.moments();
        assert_eq!(moments.len(), 5);
        assert_eq!(history.bytes, moments.iter().map(|moment| moment.bytes()).sum::<usize>());
        let at = |ms| moment_at(&moments, ms).unwrap().at_ms;
        assert_eq!([at(0), at(1000), at(2999), at(3000), at(99_999)], [1000, 1000, 2000, 3000, 5000]);
        assert!(moment_at(&[], 7).is_none());
    }
}
