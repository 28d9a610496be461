//! What is known of the 512 pages of one block, in under two bytes a page.
//!
//! A *look* arms pages (their accessed bit was cleared) and reads them back at growing distances. The first read that finds an
//! armed page young bounds the time to its next access between the distance of the read before and its own; that is one
//! observation of its interval, and the page is no longer armed: until it is cleared again its bit says nothing new. A page
//! that stays armed has been idle ever since, and needs no second clear for that to remain known.
//!
//! For each page we keep the interval (a byte), whether it is armed (a bit), whether it is present (a bit), and when it was
//! armed: the number (half a byte) of one of the block's last eight clear times. When a ninth is needed, times that no armed
//! page refers to go first; then the one whose loss leaves the smallest gap as a ratio of ages, which costs little on a log scale.
//!
//! A block on a huge page has one accessed bit for everything; it is kept as such ([`HugeHeat`]), 24 bytes instead of 1,000.

use crate::{Interval, Mask};

/// Nanoseconds of monitor time.
pub type Ns = u64;

/// Clear times kept for a block.
const EPOCHS: usize = 8;
/// Unit of a stored clear time. 32 bits of it are kept, which tells times apart that are up to two years older than the newest clear,
/// however long the machine has been up.
const EPOCH_UNIT: Ns = 16_000_000;
/// An armed page that was never seen says nothing before it has been idle for this long.
pub const LEAST_IDLE: Ns = 1_000_000_000;
/// A page idle for longer than this that is touched is looked at again whatever was known of it.
const LONG_IDLE: Ns = 10_000_000_000;
/// An observation this many octaves off the estimate replaces it instead of being averaged in. A residual that much longer than
/// the interval comes by chance less than once in three thousand looks; one that much shorter does in one of ten or so, and the
/// next look corrects it.
const CHANGE_OCTAVES: f64 = 3.0;

/// What a read found in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockBits {
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
    /// Nothing is mapped any more.
    Gone,
}

/// What a read changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sighting {
    /// Armed units (pages, or the huge page) found young: each cost the target a slow page walk.
    pub retouched: u32,
    /// Pages whose estimate the sighting contradicts, or of which nothing was known: idle for long and touched now.
    pub surprising: u32,
    /// Pages that were idle for long and touched now, as their estimate lets expect.
    pub stirring: u32,
    /// Pages whose accessed bit was set when last read, and not cleared by us since.
    pub left_set: u32,
    /// Those of them whose bit is clear now: somebody else has cleared it.
    pub lost: u32,
}

impl Sighting {
    fn note(&mut self, pages: u32, surprise: Surprise) {
        match surprise {
            Surprise::None => {}
            Surprise::Weak => self.stirring += pages,
            Surprise::Strong => self.surprising += pages,
        }
    }
}

/// The middle of the interval that a residual between `lo` and `hi` speaks for.
///
/// A clear falls at a random moment between two accesses, so what remains to the next is on average shorter than the interval:
/// by a factor of 1.8 (accesses at random) to 2.7 (regular). We take 2. A read spaced twice the one before leaves a factor of 2
/// open, of which the geometric middle is taken; the first read has no lower bound but half of it.
pub(crate) fn estimate_octaves(lo: Ns, hi: Ns) -> f64 {
    let ms = |ns: Ns| (ns.max(1)) as f64 / 1e6;
    let lo = ms(lo.max(hi / 2));
    (lo * ms(hi)).sqrt().log2() + 1.0
}

/// How much a sighting says that only another look can tell what it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Surprise {
    None,
    /// Idle for long, and touched within the time that its interval allows: most probably nothing has changed.
    Weak,
    /// Idle for longer or shorter than its interval allows, or never seen before: it may have become hot just now.
    Strong,
}

/// Pages that are touched every second or two surprise nobody: they would use up all clears there are.
fn surprise(idle: Ns, old: Interval, observed: f64) -> Surprise {
    let is_off = old.octaves().is_none_or(|o| (o - observed).abs() >= CHANGE_OCTAVES);
    if idle > 4 * LEAST_IDLE && is_off {
        Surprise::Strong
    } else if idle > LONG_IDLE {
        Surprise::Weak
    } else {
        Surprise::None
    }
}

/// The interval of a page measured as `known` that has been idle for `idle` since it was cleared.
///
/// Idle for no longer than it may be: as measured. Much longer: whatever it was, it is not that any more.
fn effective(known: Interval, idle: Interval) -> Interval {
    if !idle.is_measured() {
        known
    } else if !known.is_measured() || idle >= known.extrapolated() {
        idle.extrapolated()
    } else {
        known.max(idle)
    }
}

fn updated(old: Interval, observed: f64) -> Interval {
    match old.octaves() {
        Some(o) if (o - observed).abs() < CHANGE_OCTAVES => Interval::from_octaves((o + observed) / 2.0),
        _ => Interval::from_octaves(observed),
    }
}

/// When something is next to be done with a block, and how fast that backs off. Decided in `target`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timing {
    pub next_read: Ns,
    /// Time of the live entry in the queue of clears; 0: none.
    pub next_arm: Ns,
    /// Reads since the clear: the next is at twice the distance.
    pub step: u8,
    /// log2 of seconds to the next routine look.
    pub backoff: u8,
    /// Retouches expected and not yet seen or given up.
    pub reserved: u16,
    pub urgent: bool,
    /// Was cleared at least once.
    pub looked: bool,
    /// Cannot be cleared: hugetlb, or shared in a way nothing here reaches.
    pub unclearable: bool,
    /// Some of its pages may have been cleared with others since the last read.
    pub partly_cleared: bool,
}

/// Neighbouring pages of a block of which the same is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Index of the first within the block.
    pub first: u16,
    /// How many.
    pub pages: u16,
    /// The effective access interval.
    pub interval: Interval,
    /// Time since last seen.
    pub idle: Interval,
    /// They are one huge page.
    pub huge: bool,
}

impl Run {
    /// Indices of its pages within the block.
    pub fn indices(self) -> std::ops::Range<usize> {
        usize::from(self.first)..usize::from(self.first + self.pages)
    }

    /// Whether its interval follows from idle time alone: its pages were never seen accessed, and are taken to be as cold as that suggests
    /// ([`Interval::extrapolated`]).
    pub fn is_extrapolated(self) -> bool {
        self.idle.is_measured() && self.interval >= self.idle.extrapolated()
    }
}

/// Appends a run, or lengthens the last if it goes on.
fn push_run(out: &mut Vec<Run>, run: Run) {
    match out.last_mut() {
        Some(last)
            if last.first + last.pages == run.first && (last.interval, last.idle) == (run.interval, run.idle) =>
        {
            last.pages += run.pages;
        }
        _ => out.push(run),
    }
}

/// A block of small pages.
#[derive(Clone, Debug)]
pub struct PageHeat {
    armed: Mask,
    present: Mask,
    intervals: [Interval; 512],
    /// Index into `epochs` for each page, two to a byte.
    epoch_of: [u8; 256],
    epochs: [u32; EPOCHS],
    epochs_len: u8,
    /// Exact time of the newest clear, that of `epochs[epochs_len - 1]`.
    armed_at: Ns,
    last_read: Ns,
}

const _: () = assert!(size_of::<PageHeat>() <= 960);

impl PageHeat {
    /// A block of which nothing is known but which pages are there.
    pub fn new(present: Mask) -> PageHeat {
        PageHeat {
            armed: Mask::NONE,
            present,
            intervals: [Interval::UNMEASURED; 512],
            epoch_of: [0; 256],
            epochs: [0; EPOCHS],
            epochs_len: 0,
            armed_at: 0,
            last_read: 0,
        }
    }

    /// Takes in a read at `now`.
    pub fn read(&mut self, now: Ns, young: Mask, present: Mask) -> Sighting {
        if present != self.present {
            self.change_present(present);
        }
        let sighted = young & self.armed;
        let mut sighting = Sighting { retouched: sighted.count(), ..Sighting::default() };
        let lost = self.lost(young, &mut sighting);
        for page in sighted.iter() {
            let since = self.armed_since(page);
            let hi = now.saturating_sub(since);
            let observed = estimate_octaves(self.last_read.saturating_sub(since), hi);
            let old = self.intervals[page];
            sighting.note(1, surprise(hi, old, observed));
            self.intervals[page] = updated(old, observed);
        }
        self.armed = self.armed & !sighted;
        self.last_read = now;
        if !lost.is_empty() {
            // The bits are clear now: an access found from here on means as much as after a clear of ours.
            self.arm(now, lost);
        }
        sighting
    }

    /// Pages that we have left with their accessed bit set and that have it no more. A page never measured has had no bit that we know of.
    fn lost(&self, young: Mask, sighting: &mut Sighting) -> Mask {
        let unarmed = self.unarmed();
        let gone = unarmed & !young;
        let lost: Mask = gone.iter().filter(|page| self.intervals[*page].is_measured()).collect();
        sighting.lost = lost.count();
        sighting.left_set = (unarmed & young).count() + sighting.lost;
        lost
    }

    fn change_present(&mut self, present: Mask) {
        let fresh = present & !self.present;
        for page in fresh.iter() {
            self.intervals[page] = Interval::UNMEASURED;
        }
        self.armed = self.armed & present & !fresh;
        self.present = present;
    }

    /// Notes that the accessed bits of `pages` were cleared at `now`. Pages armed before stay as they are: still idle since then.
    pub fn arm(&mut self, now: Ns, pages: Mask) {
        let fresh = pages & self.present & !self.armed;
        let epoch = self.push_epoch(now);
        for page in fresh.iter() {
            self.set_epoch(page, epoch);
        }
        self.armed = self.armed | fresh;
        self.armed_at = now;
        self.last_read = now;
    }

    /// Present pages that are not armed: what a clear would teach something about.
    pub fn unarmed(&self) -> Mask {
        self.present & !self.armed
    }

    /// Present pages.
    pub fn present(&self) -> Mask {
        self.present
    }

    /// Armed pages: cleared and not seen since.
    pub fn armed(&self) -> Mask {
        self.armed
    }

    /// Of the unarmed pages, how many are known to be touched at least every `within`, and how many are not measured.
    pub fn expected_retouches(&self, within: Ns) -> (u32, u32) {
        let bound = Interval::from_ns(within);
        let mut counts = (0, 0);
        for page in self.unarmed().iter() {
            let interval = self.intervals[page];
            counts.0 += u32::from(interval.is_measured() && interval <= bound);
            counts.1 += u32::from(!interval.is_measured());
        }
        counts
    }

    /// The effective interval and idle time of the present pages at `now`, as runs of equal pages in order.
    ///
    /// An armed page that has been idle for longer than its interval allows is as cold as that suggests
    /// ([`Interval::extrapolated`]). It is known to be idle until the last read, not until `now`. Idle time of an unarmed page is its interval: it was seen, and is expected to go on. Snapshots ask for every block, so 64 equal pages in a row, which most
    /// of a large memory consists of, are recognised as such: about 0.1 us a block then, 2 us where no two pages are alike.
    pub fn runs(&self, now: Ns, out: &mut Vec<Run>) {
        let idle_codes = self.idle_codes(now.min(self.last_read));
        for word in 0..8 {
            let (present, armed) = (self.present.0[word], self.armed.0[word]);
            if present == 0 {
                continue;
            }
            let first = word * 64;
            if present == u64::MAX && self.is_uniform(word, armed) {
                push_run(out, self.run_of(first, armed & 1 == 1, &idle_codes, 64));
                continue;
            }
            let mut left = present;
            while left != 0 {
                let bit = left.trailing_zeros() as usize;
                left &= left - 1;
                push_run(out, self.run_of(first + bit, armed >> bit & 1 == 1, &idle_codes, 1));
            }
        }
    }

    fn run_of(&self, page: usize, armed: bool, idle_codes: &[Interval; 16], pages: u16) -> Run {
        let known = self.intervals[page];
        let idle = if armed { idle_codes[self.epoch(page)] } else { known };
        #[expect(clippy::cast_possible_truncation, reason = "below 512")]
        let first = page as u16;
        let interval = if armed { effective(known, idle) } else { known };
        Run { first, pages, interval, idle, huge: false }
    }

    /// Whether all 64 pages of a word are known to be alike.
    fn is_uniform(&self, word: usize, armed: u64) -> bool {
        let alike = |bytes: &[u8]| bytes.iter().all(|b| *b == bytes[0]);
        let intervals = &self.intervals[word * 64..word * 64 + 64];
        let same_interval = intervals.iter().all(|i| *i == intervals[0]);
        let epochs = &self.epoch_of[word * 32..word * 32 + 32];
        let same_epoch = || alike(epochs) && epochs[0] >> 4 == epochs[0] & 15;
        same_interval && (armed == 0 || armed == u64::MAX && same_epoch())
    }

    /// Interval code of the idle time for pages armed in each epoch; unmeasured while it is too short to tell.
    fn idle_codes(&self, now: Ns) -> [Interval; 16] {
        let mut codes = [Interval::UNMEASURED; 16];
        for (index, code) in codes.iter_mut().enumerate().take(usize::from(self.epochs_len)) {
            let idle = now.saturating_sub(self.epoch_time(index));
            if idle >= LEAST_IDLE {
                *code = Interval::from_ns(idle);
            }
        }
        codes
    }

    /// How long an armed page is known to have been idle at `now`; `None` if it is not armed.
    pub fn idle_ns(&self, page: usize, now: Ns) -> Option<Ns> {
        self.armed.has(page).then(|| now.min(self.last_read).saturating_sub(self.armed_since(page)))
    }

    fn armed_since(&self, page: usize) -> Ns {
        self.epoch_time(self.epoch(page))
    }

    fn epoch_time(&self, index: usize) -> Ns {
        if index + 1 == usize::from(self.epochs_len) {
            self.armed_at
        } else {
            let older = stored_epoch(self.armed_at).wrapping_sub(self.epochs[index]);
            (self.armed_at / EPOCH_UNIT).saturating_sub(Ns::from(older)) * EPOCH_UNIT
        }
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

    /// Drops the clear times that no armed page refers to or, if all are in use, the one least missed.
    #[expect(clippy::cast_possible_truncation, reason = "at most eight epochs")]
    fn make_room(&mut self, now: Ns) {
        let mut used = [false; 16];
        for page in self.armed.iter() {
            used[self.epoch(page)] = true;
        }
        if used[..EPOCHS].iter().all(|u| *u) {
            used[self.least_missed(now)] = false;
        }
        // A page of a dropped time moves to the next later kept one: idle time is understated, never made up.
        let mut kept = 0;
        let mut new_index = [0_u8; 16];
        for index in 0..EPOCHS {
            new_index[index] = kept as u8;
            if used[index] {
                self.epochs[kept] = self.epochs[index];
                kept += 1;
            }
        }
        for page in self.armed.iter() {
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

/// A clear time as it is kept: the low bits of its number of units.
#[expect(clippy::cast_possible_truncation, reason = "read back relative to the newest clear")]
fn stored_epoch(at: Ns) -> u32 {
    (at / EPOCH_UNIT) as u32
}

/// A block on one huge page.
#[derive(Clone, Copy, Debug)]
pub struct HugeHeat {
    interval: Interval,
    armed: bool,
    armed_at: Ns,
    last_read: Ns,
}

impl HugeHeat {
    /// A huge page of which nothing is known.
    pub fn new() -> HugeHeat {
        HugeHeat { interval: Interval::UNMEASURED, armed: false, armed_at: 0, last_read: 0 }
    }

    /// Takes in a read at `now`.
    pub fn read(&mut self, now: Ns, young: bool) -> Sighting {
        let sighted = young && self.armed;
        let mut sighting = Sighting { retouched: u32::from(sighted), ..Sighting::default() };
        let left_set = !self.armed && self.interval.is_measured();
        sighting.left_set = 512 * u32::from(left_set);
        sighting.lost = 512 * u32::from(left_set && !young);
        if sighted {
            let hi = now.saturating_sub(self.armed_at);
            let observed = estimate_octaves(self.last_read.saturating_sub(self.armed_at), hi);
            sighting.note(512, surprise(hi, self.interval, observed));
            self.interval = updated(self.interval, observed);
            self.armed = false;
        }
        self.last_read = now;
        if sighting.lost > 0 {
            self.arm(now);
        }
        sighting
    }

    /// Notes that the accessed bit was cleared at `now`.
    pub fn arm(&mut self, now: Ns) {
        if !self.armed {
            self.armed = true;
            self.armed_at = now;
            self.last_read = now;
        }
    }

    /// Whether it is armed.
    pub fn is_armed(&self) -> bool {
        self.armed
    }

    /// The one run that it is.
    pub fn run(&self, now: Ns) -> Run {
        let interval = self.effective(now);
        let idle = self.idle_ns(now).map_or(interval, Interval::from_ns);
        Run { first: 0, pages: 512, interval, idle, huge: true }
    }

    /// The effective interval, as in [`PageHeat::runs`].
    pub fn effective(&self, now: Ns) -> Interval {
        match self.idle_ns(now) {
            Some(idle) if idle >= LEAST_IDLE => effective(self.interval, Interval::from_ns(idle)),
            _ => self.interval,
        }
    }

    /// How long it is known to have been idle; `None` if it is not armed.
    pub fn idle_ns(&self, now: Ns) -> Option<Ns> {
        self.armed.then(|| now.min(self.last_read).saturating_sub(self.armed_at))
    }
}

impl Default for HugeHeat {
    fn default() -> HugeHeat {
        HugeHeat::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            Run { first: 0, pages: 1, interval, idle, huge: false }.is_extrapolated()
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
        b.arm(S, Mask::ALL);
        for at in [10, 20, 40] {
            assert_eq!(b.read(S + at * MS, Mask::NONE, Mask::ALL), Sighting::default());
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
        b.arm(0, Mask::ALL);
        b.read(10 * MS, only(&[3]), Mask::ALL);
        b.arm(S, Mask::ALL);
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
        b.arm(0, Mask::ALL);
        let first = b.read(600 * S, only(&[5]), Mask::ALL);
        assert_eq!((first.retouched, first.surprising), (1, 1));
        b.arm(601 * S, Mask::ALL);
        b.read(601 * S + 10 * MS, only(&[5]), Mask::ALL);
        assert!(effective(&b, 602 * S)[5].ns().unwrap() < 30 * MS);
    }

    #[test]
    fn pages_that_come_and_go_start_anew() {
        let mut b = PageHeat::new(Mask::ALL);
        b.arm(0, Mask::ALL);
        b.read(10 * MS, only(&[5]), Mask::ALL);
        b.read(20 * MS, Mask::NONE, !only(&[5]));
        assert_eq!(effective(&b, 2 * S)[5], Interval::ABSENT);
        b.read(3 * S, only(&[5]), Mask::ALL);
        assert_eq!(effective(&b, 9 * S)[5], Interval::UNMEASURED);
        assert_eq!(b.unarmed(), only(&[5]));
    }

    #[test]
    fn idle_times_are_right_on_a_machine_that_has_been_up_for_years() {
        // 32 bits of the unit are 795 days: the clears fall on both sides of that.
        let wraps = (1_u64 << 32) * EPOCH_UNIT;
        let up = wraps - 40 * S;
        let mut b = PageHeat::new(Mask::ALL);
        for (page, after) in [(0, 0), (1, 60), (2, 70)] {
            b.arm(up + after * S, only(&[page]));
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
        b.arm(S, only(&[1, 2, 3]));
        assert_eq!(b.read(2 * S, only(&[1, 2, 9]), Mask::ALL).lost, 0);
        // 1 and 2 were seen and stay set until somebody clears them; 9 was never cleared by us, and 3 is armed.
        let found = b.read(3 * S, only(&[1]), Mask::ALL);
        assert_eq!((found.lost, found.left_set), (1, 2));
        assert_eq!(b.read(4 * S, only(&[1]), Mask::ALL).lost, 0, "once");
        assert_eq!(b.idle_ns(2, 4 * S), Some(S), "idle since it was found clear");
        assert_eq!(b.read(5 * S, only(&[1, 2]), Mask::ALL).retouched, 1);
        assert_eq!(b.read(6 * S, only(&[1, 2]), only(&[1])).lost, 0, "not present any more");
        let mut huge = HugeHeat::new();
        assert_eq!(huge.read(S, false).lost, 0, "never cleared by us");
        huge.arm(S);
        huge.read(2 * S, true);
        assert_eq!((huge.read(3 * S, false).lost, huge.read(4 * S, false).lost), (512, 0));
    }

    #[test]
    fn many_clears_keep_idle_times_within_the_spacing_of_what_is_merged() {
        // Each second one page is touched and the block cleared again; the others stay idle from their own first clear on.
        let mut b = PageHeat::new(Mask::ALL);
        b.arm(0, Mask::ALL);
        for s in 1..100_u64 {
            let page = usize::try_from(s).unwrap();
            b.read(s * S - 1, only(&[page]), Mask::ALL);
            b.arm(s * S, Mask::ALL);
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

    #[test]
    fn a_huge_page_is_one_unit() {
        let mut h = HugeHeat::new();
        h.arm(0);
        assert_eq!(h.read(10 * MS, false).retouched, 0);
        assert_eq!(h.read(20 * MS, true).retouched, 1);
        assert!(h.effective(10 * S).ns().unwrap() < 40 * MS);
        h.arm(10 * S);
        h.read(30 * S, false);
        assert_eq!(h.effective(30 * S), Interval::from_ns(160 * S));
    }
}
