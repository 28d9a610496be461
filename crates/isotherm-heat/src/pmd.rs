//! What is known of the 512 pages of one huge range, in under two bytes a page.
//!
//! An *access check* clears the accessed bit of pages and reads the bits back at growing distances. Until it is seen
//! accessed, such a page is *cleared*. The first read that finds a cleared page young bounds the
//! time to its next access: it lies between the distance of the previous read and the distance of this one. That is one
//! observation of the page's interval. After it the page is no longer cleared: its bit says nothing new until the next
//! clear. A page that stays cleared has been idle since the clear. It needs no second clear for that to remain known.
//!
//! Each page stores its interval (a byte), whether it is cleared (a bit), whether it is present (a bit), and when it
//! was cleared: the number (half a byte) of one of the huge range's last eight clear times. When a ninth is needed, the
//! times that no cleared page refers to are dropped first. After those goes the one whose loss leaves the smallest gap
//! as a ratio of ages, which costs little on a log scale.
//!
//! Huge ranges with one state for all their pages are in `uniform`. Between checks the others are packed (`packed`).

mod packed;
mod timing;

pub use packed::PackedHeat;
pub(crate) use timing::{Flags, Timing};

use crate::idle::IdleBefore;
use crate::survey::Sketch;
use crate::{Interval, Mask};

/// Nanoseconds of monitor time.
pub type Ns = u64;

/// Clear times kept for a huge range.
const EPOCHS: usize = 8;
/// Unit of a stored clear time. 32 bits are stored. They distinguish times up to two years older than the newest clear,
/// however long the machine has been up.
pub(crate) const EPOCH_UNIT: Ns = 16_000_000;
/// A cleared page that was never seen accessed says nothing before it has been idle for this long.
pub const MIN_IDLE: Ns = 1_000_000_000;
/// A page that was idle for longer than this and is now accessed is checked again, whatever was known of it.
const LONG_IDLE: Ns = 10_000_000_000;
/// An observation that differs from the estimate by this many octaves replaces it instead of being averaged in. A
/// residual that much longer than the interval comes by chance in fewer than one of three thousand checks. One that
/// much shorter comes in about one of ten, and the next check corrects it.
const CHANGE_OCTAVES: f64 = 3.0;

/// What a read found in a huge range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PmdBits {
    /// A table of pages.
    Pages {
        /// Accessed since last cleared.
        young: Mask,
        /// Present at all.
        present: Mask,
    },
    /// One huge page with one accessed bit.
    Huge {
        /// Accessed since last cleared.
        young: bool,
    },
    /// Nothing is mapped here any more.
    Gone,
}

/// What a read changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessesFound {
    /// Cleared units (pages, or the huge page) found young. Each cost the target a slow page walk.
    pub retouched: u32,
    /// Pages whose access contradicts their estimate, or of which nothing was known: long idle and now accessed.
    pub unexpected: u32,
    /// Pages that were long idle and are now accessed, as their estimate predicts.
    pub weakly_unexpected: u32,
    /// Pages whose accessed bit was set at the last read and that we have not cleared since.
    pub still_set: u32,
    /// Those of them whose bit is clear now: somebody else has cleared it.
    pub lost: u32,
    /// Pages came, and those of which nothing is known are a quarter of the present ones or more.
    pub renewed: bool,
    /// For how long those found young were known to be idle.
    pub idle_before: IdleBefore,
}

impl AccessesFound {
    pub(crate) fn note(&mut self, pages: u32, unexpected: Unexpected) {
        match unexpected {
            Unexpected::None => {}
            Unexpected::Weak => self.weakly_unexpected += pages,
            Unexpected::Strong => self.unexpected += pages,
        }
    }
}

/// Whether so many unmeasured pages of those present are too many to be estimated from the others: a quarter or more.
pub(crate) fn is_much(unmeasured: u64, present: u64) -> bool {
    unmeasured * 4 >= present
}

/// The middle of the interval that a residual between `lo` and `hi` suggests.
///
/// A clear falls at a random moment between two accesses, so the time left to the next one is on average shorter than
/// the interval: by a factor of 1.8 (random accesses) to 2.7 (regular accesses). We use 2. A read at twice the distance
/// of the previous one leaves a factor of 2 open, of which we take the geometric middle. The first read has no lower
/// bound, so half of it is used; and so it is where reads were farther apart, which makes those intervals longer by a factor of 1.4 on average.
pub(crate) fn estimate_octaves(lo: Ns, hi: Ns) -> f64 {
    let ms = |ns: Ns| (ns.max(1)) as f64 / 1e6;
    let lo = ms(lo.max(hi / 2));
    (lo * ms(hi)).sqrt().log2() + 1.0
}

/// Whether an access is unexpected, so that only another check can show what it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unexpected {
    None,
    /// Long idle, and accessed within the time that its interval allows: most probably nothing has changed.
    Weak,
    /// Idle for longer or shorter than its interval allows, or never seen before: it may have become hot just now.
    Strong,
}

/// Pages accessed every second or two are never unexpected: they would use up all clears.
pub(crate) fn unexpected(idle: Ns, old: Interval, observed: f64) -> Unexpected {
    let is_off = old.octaves().is_none_or(|o| (o - observed).abs() >= CHANGE_OCTAVES);
    if idle > 4 * MIN_IDLE && is_off {
        Unexpected::Strong
    } else if idle > LONG_IDLE {
        Unexpected::Weak
    } else {
        Unexpected::None
    }
}

/// The interval of a page measured as `known` that has been idle for `idle` since it was cleared.
///
/// If the idle time is within the interval, the measured interval stays. If it is longer, it stands for the interval; and from eight times the
/// interval on, the old interval no longer holds.
pub(crate) fn effective(known: Interval, idle: Interval) -> Interval {
    if !idle.is_measured() {
        known
    } else if !known.is_measured() || idle >= known.extrapolated() {
        idle.extrapolated()
    } else {
        known.max(idle)
    }
}

pub(crate) fn updated(old: Interval, observed: f64) -> Interval {
    match old.octaves() {
        Some(o) if (o - observed).abs() < CHANGE_OCTAVES => Interval::from_octaves((o + observed) / 2.0),
        _ => Interval::from_octaves(observed),
    }
}

/// Neighbouring pages of a huge range of which the same is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Index of the first page within the huge range.
    pub first: u16,
    /// Number of pages.
    pub pages: u16,
    /// The effective access interval.
    pub interval: Interval,
    /// Time since last seen accessed.
    pub idle: Interval,
    /// They are one huge page.
    pub huge: bool,
    /// No access was found since its accessed bits were cleared. Of other pages, `idle` is what to expect: they are accessed at their
    /// interval.
    pub cleared: bool,
    /// Interval and idle time are assumed from neighbouring memory: the pages were not checked yet.
    pub estimated: bool,
}

impl Run {
    /// No pages yet, of which this interval is known, and since when they are idle if they are cleared.
    fn of(known: Interval, idle: Option<Interval>) -> Run {
        let interval = idle.map_or(known, |idle| effective(known, idle));
        let (idle, cleared) = (idle.unwrap_or(known), idle.is_some());
        Run { first: 0, pages: 0, interval, idle, huge: false, cleared, estimated: false }
    }

    /// Indices of its pages within the huge range.
    pub fn indices(self) -> std::ops::Range<usize> {
        usize::from(self.first)..usize::from(self.first + self.pages)
    }

    /// Whether its interval follows from idle time alone. Its pages were never seen accessed then, and are assumed to
    /// be as cold as that suggests ([`Interval::extrapolated`]).
    pub fn is_extrapolated(self) -> bool {
        self.idle.is_measured() && self.interval >= self.idle.extrapolated()
    }
}

/// Appends a run, or lengthens the last one if `run` continues it.
fn push_run(out: &mut Vec<Run>, run: Run) {
    match out.last_mut() {
        Some(last)
            if last.first + last.pages == run.first
                && (last.interval, last.idle, last.cleared) == (run.interval, run.idle, run.cleared) =>
        {
            last.pages += run.pages;
        }
        _ => out.push(run),
    }
}

/// A huge range of small pages.
#[derive(Clone, Debug)]
pub struct PageHeat {
    cleared: Mask,
    present: Mask,
    intervals: [Interval; 512],
    /// Index into `epochs` for each page, two to a byte.
    epoch_of: [u8; 256],
    epochs: [u32; EPOCHS],
    epochs_len: u8,
    /// Exact time of the newest clear, that of `epochs[epochs_len - 1]`.
    cleared_at: Ns,
    last_read: Ns,
}

const _: () = assert!(size_of::<PageHeat>() <= 960);

impl PageHeat {
    /// A huge range of which only the present pages are known.
    pub fn new(present: Mask) -> PageHeat {
        PageHeat {
            cleared: Mask::NONE,
            present,
            intervals: [Interval::UNMEASURED; 512],
            epoch_of: [0; 256],
            epochs: [0; EPOCHS],
            epochs_len: 0,
            cleared_at: 0,
            last_read: 0,
        }
    }

    /// Notes that it was read at `now`, and nothing was found.
    pub(crate) fn read_at(&mut self, now: Ns) {
        self.last_read = now;
    }

    /// Takes in a read at `now`.
    pub fn read(&mut self, now: Ns, young: Mask, present: Mask) -> AccessesFound {
        let came = !(present & !self.present).is_empty();
        if present != self.present {
            self.change_present(present);
        }
        let accessed = young & self.cleared;
        let renewed = came && self.is_renewed();
        let mut found = AccessesFound { retouched: accessed.count(), renewed, ..AccessesFound::default() };
        let lost = self.lost(young, &mut found);
        let mut by_epoch = [0_u16; EPOCHS];
        for page in accessed.iter() {
            let epoch = self.epoch(page);
            by_epoch[epoch % EPOCHS] += 1;
            let since = self.epoch_time(epoch);
            let hi = now.saturating_sub(since);
            let observed = estimate_octaves(self.last_read.saturating_sub(since), hi);
            let old = self.intervals[page];
            found.note(1, unexpected(hi, old, observed));
            self.intervals[page] = updated(old, observed);
        }
        found.idle_before = self.idle_before(by_epoch);
        self.cleared = self.cleared & !accessed;
        self.last_read = now;
        if !lost.is_empty() {
            // The bits are clear now, so a later access means as much as after a clear of ours.
            self.set_cleared(now, lost);
        }
        found
    }

    /// Whether nothing is known of much of it.
    fn is_renewed(&self) -> bool {
        let unknown = self.uncleared().iter().filter(|page| !self.intervals[*page].is_measured()).count();
        is_much(unknown as u64, u64::from(self.present.count()))
    }

    /// For how long so many pages of each epoch were known to be idle.
    fn idle_before(&self, by_epoch: [u16; EPOCHS]) -> IdleBefore {
        let found = (0..EPOCHS).zip(by_epoch).filter(|(_, pages)| *pages > 0);
        IdleBefore::of(found.map(|(epoch, pages)| (self.last_read.saturating_sub(self.epoch_time(epoch)), pages)))
    }

    /// Pages whose accessed bit we left set and that are no longer young. Unmeasured pages do not count: we know
    /// nothing of their bit.
    fn lost(&self, young: Mask, found: &mut AccessesFound) -> Mask {
        let uncleared = self.uncleared();
        let gone = uncleared & !young;
        let lost: Mask = gone.iter().filter(|page| self.intervals[*page].is_measured()).collect();
        found.lost = lost.count();
        found.still_set = (uncleared & young).count() + found.lost;
        lost
    }

    fn change_present(&mut self, present: Mask) {
        let fresh = present & !self.present;
        for page in fresh.iter() {
            self.intervals[page] = Interval::UNMEASURED;
        }
        self.cleared = self.cleared & present & !fresh;
        self.present = present;
    }

    /// Notes that the accessed bits of `pages` were cleared at `now`. Pages cleared before keep their clear time: they
    /// are still idle since then.
    pub fn set_cleared(&mut self, now: Ns, pages: Mask) {
        let fresh = pages & self.present & !self.cleared;
        let epoch = self.push_epoch(now);
        for page in fresh.iter() {
            self.set_epoch(page, epoch);
        }
        self.cleared = self.cleared | fresh;
        self.cleared_at = now;
        self.last_read = now;
    }

    /// Present pages that are not cleared: a clear would give new information about them.
    pub fn uncleared(&self) -> Mask {
        self.present & !self.cleared
    }

    /// Present pages.
    pub fn present(&self) -> Mask {
        self.present
    }

    /// Cleared pages: not seen accessed since their clear.
    pub fn cleared(&self) -> Mask {
        self.cleared
    }

    /// Whether it was cleared for the first time so shortly before the last read that no page counts as idle.
    pub(crate) fn is_in_first_second(&self) -> bool {
        self.epochs_len > 0 && !self.cleared.is_empty() && self.last_read.saturating_sub(self.epoch_time(0)) < MIN_IDLE
    }

    /// What a first check has shown. `None` while it is too short for a page to count as idle, or if it did not reach the
    /// pages.
    pub(crate) fn sketch(&self) -> Option<Sketch> {
        if self.epochs_len == 0 || self.is_in_first_second() {
            return None;
        }
        let (mut accessed, mut octaves) = (0, 0.0);
        for page in self.present.iter() {
            if let Some(interval) = self.intervals[page].octaves() {
                accessed += 1;
                octaves += interval;
            }
        }
        let never_accessed = (self.cleared & self.present).count();
        let is_reached = accessed + never_accessed >= self.present.count();
        is_reached.then(|| Sketch::new(self.present.count(), accessed, octaves))
    }

    /// Of the pages that are not cleared: how many have the interval `bound` or a shorter one, and how many are not measured.
    pub fn expected_retouches(&self, bound: Interval) -> (u32, u32) {
        let mut counts = (0, 0);
        for page in self.uncleared().iter() {
            let interval = self.intervals[page];
            counts.0 += u32::from(interval.is_measured() && interval <= bound);
            counts.1 += u32::from(!interval.is_measured());
        }
        counts
    }

    /// How many pages were hot at the newest clear, and have been idle for so long since that they are not any more. What was idle before that
    /// clear, too, says nothing new.
    pub(crate) fn cooled(&self) -> u32 {
        let Some(newest) = usize::from(self.epochs_len).checked_sub(1) else { return 0 };
        let idle = self.idle_codes(self.last_read)[newest];
        let has_cooled = |page: &usize| {
            let known = self.intervals[*page];
            self.epoch(*page) == newest && known.is_hot() && idle >= known.extrapolated()
        };
        u32::try_from(self.cleared.iter().filter(has_cooled).count()).unwrap_or(u32::MAX)
    }

    /// When it was cleared last.
    pub(crate) fn cleared_at(&self) -> Ns {
        self.cleared_at
    }

    /// The effective interval and idle time of the present pages at `now`, as runs of equal pages in order.
    ///
    /// A cleared page that has been idle for longer than its interval allows is as cold as that suggests
    /// ([`Interval::extrapolated`]). It is known to be idle until the last read, not until `now`. The idle time of a
    /// page that is not cleared is its interval: it was seen accessed, and is expected to be accessed further.
    ///
    /// Snapshots ask for every huge range. Most of a large memory consists of equal pages, so 64 equal pages in a row are
    /// detected together. That takes about 0.1 us a huge range, and 2 us where no two pages are alike.
    pub fn runs(&self, now: Ns, out: &mut Vec<Run>) {
        let idle_codes = self.idle_codes(now.min(self.last_read));
        for word in 0..8 {
            let (present, cleared) = (self.present.0[word], self.cleared.0[word]);
            if present == 0 {
                continue;
            }
            let first = word * 64;
            if present == u64::MAX && self.is_uniform(word, cleared) {
                push_run(out, self.run_of(first, cleared & 1 == 1, &idle_codes, 64));
                continue;
            }
            let mut left = present;
            while left != 0 {
                let bit = left.trailing_zeros() as usize;
                left &= left - 1;
                push_run(out, self.run_of(first + bit, cleared >> bit & 1 == 1, &idle_codes, 1));
            }
        }
    }

    fn run_of(&self, page: usize, cleared: bool, idle_codes: &[Interval; 16], pages: u16) -> Run {
        #[expect(clippy::cast_possible_truncation, reason = "below 512")]
        let first = page as u16;
        let idle = cleared.then(|| idle_codes[self.epoch(page)]);
        Run { first, pages, ..Run::of(self.intervals[page], idle) }
    }

    /// Whether all 64 pages of a word are known to be alike.
    fn is_uniform(&self, word: usize, cleared: u64) -> bool {
        let alike = |bytes: &[u8]| bytes.iter().all(|b| *b == bytes[0]);
        let intervals = &self.intervals[word * 64..word * 64 + 64];
        let same_interval = intervals.iter().all(|i| *i == intervals[0]);
        let epochs = &self.epoch_of[word * 32..word * 32 + 32];
        let same_epoch = || alike(epochs) && epochs[0] >> 4 == epochs[0] & 15;
        same_interval && (cleared == 0 || cleared == u64::MAX && same_epoch())
    }

    /// Interval code of the idle time for pages cleared at each epoch. Unmeasured while the idle time is too short.
    fn idle_codes(&self, now: Ns) -> [Interval; 16] {
        let mut codes = [Interval::UNMEASURED; 16];
        for (index, code) in codes.iter_mut().enumerate().take(usize::from(self.epochs_len)) {
            *code = idle_code(now.saturating_sub(self.epoch_time(index)));
        }
        codes
    }

    /// How long a cleared page is known to have been idle at `now`. `None` if it is not cleared.
    pub fn idle_ns(&self, page: usize, now: Ns) -> Option<Ns> {
        self.cleared.has(page).then(|| now.min(self.last_read).saturating_sub(self.cleared_since(page)))
    }

    fn cleared_since(&self, page: usize) -> Ns {
        self.epoch_time(self.epoch(page))
    }

    fn epoch_time(&self, index: usize) -> Ns {
        epoch_time(self.cleared_at, self.epochs[index], index + 1 == usize::from(self.epochs_len))
    }

    fn epoch(&self, page: usize) -> usize {
        usize::from(self.epoch_of[page / 2] >> (page % 2 * 4) & 15)
    }

    fn set_epoch(&mut self, page: usize, epoch: u8) {
        let shift = page % 2 * 4;
        let byte = &mut self.epoch_of[page / 2];
        *byte = *byte & !(15 << shift) | epoch << shift;
    }

    fn push_epoch(&mut self, now: Ns) -> u8 {
        if usize::from(self.epochs_len) == EPOCHS {
            self.make_room(now);
        }
        let index = self.epochs_len;
        self.epochs[usize::from(index)] = stored_epoch(now);
        self.epochs_len += 1;
        index
    }

    /// Drops the clear times that no cleared page refers to or, if all are in use, the one missed least.
    #[expect(clippy::cast_possible_truncation, reason = "at most eight epochs")]
    fn make_room(&mut self, now: Ns) {
        let mut used = [false; 16];
        for page in self.cleared.iter() {
            used[self.epoch(page)] = true;
        }
        if used[..EPOCHS].iter().all(|u| *u) {
            used[self.least_missed(now)] = false;
        }
        // Pages of a dropped time move to the next later time. So idle time is understated, never overstated.
        let mut kept = 0;
        let mut new_index = [0_u8; 16];
        for index in 0..EPOCHS {
            new_index[index] = kept as u8;
            if used[index] {
                self.epochs[kept] = self.epochs[index];
                kept += 1;
            }
        }
        for page in self.cleared.iter() {
            self.set_epoch(page, new_index[self.epoch(page)]);
        }
        self.epochs_len = kept as u8;
    }

    /// The clear time whose loss leaves the smallest gap, as a ratio of ages. Never the oldest or the newest.
    fn least_missed(&self, now: Ns) -> usize {
        let age = |i: usize| now.saturating_sub(self.epoch_time(i)).max(1) as f64;
        let gap = |i: &usize| age(*i - 1) / age(*i + 1);
        (1..EPOCHS - 1).min_by(|a, b| gap(a).total_cmp(&gap(b))).unwrap_or(1)
    }
}

/// A clear time as stored: the low bits of its number of units.
#[expect(clippy::cast_possible_truncation, reason = "read back relative to the newest clear")]
fn stored_epoch(at: Ns) -> u32 {
    (at / EPOCH_UNIT) as u32
}

/// The clear time that `stored` stands for, of which `cleared_at` is the last.
fn epoch_time(cleared_at: Ns, stored: u32, is_last: bool) -> Ns {
    if is_last {
        return cleared_at;
    }
    let older = stored_epoch(cleared_at).wrapping_sub(stored);
    (cleared_at / EPOCH_UNIT).saturating_sub(Ns::from(older)) * EPOCH_UNIT
}

/// The interval code of an idle time. Unmeasured while it is too short.
pub(crate) fn idle_code(idle: Ns) -> Interval {
    if idle >= MIN_IDLE { Interval::from_ns(idle) } else { Interval::UNMEASURED }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HugeHeat;

    const MS: Ns = 1_000_000;
    const S: Ns = 1_000_000_000;

    /// Interval by page, from runs, which have to be in order and disjoint.
    fn effective(b: &PageHeat, now: Ns) -> [Interval; 512] {
        let mut runs = Vec::new();
        b.runs(now, &mut runs);
        assert!(runs.is_sorted_by(|a, b| a.indices().end <= b.indices().start));
        let mut out = [Interval::ABSENT; 512];
        for run in runs {
            out[run.indices()].fill(run.interval);
        }
        out
    }

    #[test]
    fn a_run_is_extrapolated_from_eight_times_its_idle_time_on() {
        let is = |interval_s, idle: Interval| {
            let interval = Interval::from_ns(interval_s * S);
            Run { first: 0, pages: 1, interval, idle, huge: false, cleared: true, estimated: false }.is_extrapolated()
        };
        let idle = Interval::from_ns(S);
        assert_eq!([is(7, idle), is(8, idle), is(9, idle)], [false, true, true]);
        assert!(!is(8, Interval::UNMEASURED) && !is(8, Interval::ABSENT), "nothing is known of its idle time");
    }

    fn only(pages: &[usize]) -> Mask {
        pages.iter().copied().collect()
    }

    #[test]
    fn the_first_young_read_bounds_the_interval() {
        let mut b = PageHeat::new(Mask::ALL);
        b.read(S, Mask::ALL, Mask::ALL);
        b.set_cleared(S, Mask::ALL);
        for at in [10, 20, 40] {
            assert_eq!(b.read(S + at * MS, Mask::NONE, Mask::ALL), AccessesFound::default());
        }
        assert_eq!(b.read(S + 80 * MS, only(&[7]), Mask::ALL).retouched, 1);
        // Between 40 and 80 ms remained: middle 56.6 ms, times 2.
        let ms = effective(&b, S + 80 * MS)[7].ns().unwrap() as f64 / 1e6;
        assert!((105.0..122.0).contains(&ms), "{ms}");
        assert_eq!(effective(&b, S + 80 * MS)[8], Interval::UNMEASURED, "80 ms of idleness say nothing yet");
        assert_eq!(b.read(S + 90 * MS, only(&[7]), Mask::ALL).retouched, 0, "not armed: no second observation");
    }

    #[test]
    fn an_armed_page_is_as_cold_as_its_idleness_suggests() {
        let mut b = PageHeat::new(Mask::ALL);
        b.set_cleared(0, Mask::ALL);
        b.read(10 * MS, only(&[3]), Mask::ALL);
        b.set_cleared(S, Mask::ALL);
        b.read(9 * S, Mask::NONE, Mask::ALL);
        let at = effective(&b, 9 * S);
        assert_eq!(effective(&b, 99 * S), at, "nothing is known of the time since the last read");
        assert_eq!(at[4], Interval::from_ns(72 * S), "idle since the first clear: the second changes nothing");
        assert_eq!(at[3], Interval::from_ns(64 * S), "hot once, idle since the second");
        assert_eq!((b.idle_ns(4, 9 * S), b.idle_ns(3, 9 * S)), (Some(9 * S), Some(8 * S)));
    }

    #[test]
    fn a_page_that_turns_hot_is_hot_after_one_look() {
        let mut b = PageHeat::new(Mask::ALL);
        b.set_cleared(0, Mask::ALL);
        let first = b.read(600 * S, only(&[5]), Mask::ALL);
        assert_eq!((first.retouched, first.unexpected), (1, 1));
        b.set_cleared(601 * S, Mask::ALL);
        b.read(601 * S + 10 * MS, only(&[5]), Mask::ALL);
        assert!(effective(&b, 602 * S)[5].ns().unwrap() < 30 * MS);
    }

    #[test]
    fn pages_that_come_and_go_start_anew() {
        let mut b = PageHeat::new(Mask::ALL);
        b.set_cleared(0, Mask::ALL);
        b.read(10 * MS, only(&[5]), Mask::ALL);
        b.read(20 * MS, Mask::NONE, !only(&[5]));
        assert_eq!(effective(&b, 2 * S)[5], Interval::ABSENT);
        b.read(3 * S, only(&[5]), Mask::ALL);
        assert_eq!(effective(&b, 9 * S)[5], Interval::UNMEASURED);
        assert_eq!(b.uncleared(), only(&[5]));
    }

    #[test]
    fn idle_times_are_right_on_a_machine_that_has_been_up_for_years() {
        // 32 bits of the unit are 795 days: the clears fall on both sides of that.
        let wraps = (1_u64 << 32) * EPOCH_UNIT;
        let up = wraps - 40 * S;
        let mut b = PageHeat::new(Mask::ALL);
        for (page, after) in [(0, 0), (1, 60), (2, 70)] {
            b.set_cleared(up + after * S, only(&[page]));
        }
        b.read(up + 100 * S, Mask::NONE, Mask::ALL);
        let idle = |page| b.idle_ns(page, up + 100 * S).unwrap() as f64 / 1e9;
        for (page, seconds) in [(0, 100.0), (1, 40.0), (2, 30.0)] {
            assert!((idle(page) - seconds).abs() < 0.1, "page {page}: {}", idle(page));
        }
    }

    #[test]
    fn a_bit_that_somebody_else_has_cleared_is_noticed_once_and_measured_from_then_on() {
        let mut b = PageHeat::new(Mask::ALL);
        b.set_cleared(S, only(&[1, 2, 3]));
        assert_eq!(b.read(2 * S, only(&[1, 2, 9]), Mask::ALL).lost, 0);
        // 1 and 2 were seen and stay set until somebody clears them; 9 was never cleared by us, and 3 is armed.
        let found = b.read(3 * S, only(&[1]), Mask::ALL);
        assert_eq!((found.lost, found.still_set), (1, 2));
        assert_eq!(b.read(4 * S, only(&[1]), Mask::ALL).lost, 0, "once");
        assert_eq!(b.idle_ns(2, 4 * S), Some(S), "idle since it was found clear");
        assert_eq!(b.read(5 * S, only(&[1, 2]), Mask::ALL).retouched, 1);
        assert_eq!(b.read(6 * S, only(&[1, 2]), only(&[1])).lost, 0, "not present any more");
        let mut huge = HugeHeat::new();
        assert_eq!(huge.read(S, false).lost, 0, "never cleared by us");
        huge.set_cleared(S);
        huge.read(2 * S, true);
        assert_eq!((huge.read(3 * S, false).lost, huge.read(4 * S, false).lost), (512, 0));
    }

    #[test]
    fn many_clears_keep_idle_times_within_the_spacing_of_what_is_merged() {
        // Each second one page is touched and the huge range cleared again; the others stay idle from their own first clear on.
        let mut b = PageHeat::new(Mask::ALL);
        b.set_cleared(0, Mask::ALL);
        for s in 1..100_u64 {
            let page = usize::try_from(s).unwrap();
            b.read(s * S - 1, only(&[page]), Mask::ALL);
            b.set_cleared(s * S, Mask::ALL);
        }
        b.read(100 * S, Mask::NONE, Mask::ALL);
        assert_eq!(b.idle_ns(500, 100 * S), Some(100 * S), "the oldest time is never merged away");
        for page in 1..100 {
            let truth = 100 - page as u64;
            let got = b.idle_ns(page, 100 * S).unwrap() as f64 / S as f64;
            assert!(got <= truth as f64 + 0.02, "page {page}: idle for {truth} s, said {got} s: never overstated");
            assert!(got >= truth as f64 * 0.33 - 0.02, "page {page}: idle for {truth} s, said {got} s");
        }
    }
}
