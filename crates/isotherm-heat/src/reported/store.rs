//! Counters of the pages in reports.
//!
//! Fed one report at a time, read in address order once a window. The cost must follow the number of reports only. The
//! target has a thousand times as many pages; its regions do not matter either.
//!
//! A report is appended to a log. When the log is full or the counters are read, the log is *settled*: it is sorted by
//! page (`sort`), reports of one page are added up, and the result is merged into the list of counters, which is in
//! address order. The merge is a pass over the list, so the log may grow with the list: every report pays for a
//! constant number of passes. The alternative was a hash table of pages. It answers for a single page at once, which
//! nobody asks for, and has to be sorted for the queries that exist. A report to a large table is a cache miss, and the
//! table needs its memory twice while it grows.
//!
//! If there are too many counters, some are drawn at random and stand for the others: [`Counters::thin`].
//!
//! Counters forget: [`Counters::forget`] scales all of them down, and drops those of which next to nothing is left.
//! Time does not matter otherwise: reports between two calls count alike, whenever they came. Sums are integers, so
//! they do not depend on the order of reports: clocks of processors differ, and their rings are drained one after the
//! other.

use super::{MAX_HALVINGS, lot, sort};
use crate::pmd::Ns;
use isotherm_units::{AddrRange, Bytes, PageNo};

/// Reports that the log takes before it is settled: 8 MiB with the space to sort it, used only if that many reports
/// come in the seconds between two snapshots. A quarter of it would fit a second-level cache, but merges more often and
/// is a fifth slower.
const LOG: usize = 1 << 18;
/// From this size of the list on, the log grows to a quarter of it, so that merging does not cost more than sorting.
const LIST_PER_LOG: usize = 4;
/// Sums are stored in units of 2^-12.
const FRACTION: u32 = 12;
const ONE: u64 = 1 << FRACTION;
/// A page with less than this left, in samples, is forgotten: one sample after five time constants.
const LEAST: u32 = 27;
/// Times are stored in units of 16.8 ms since [`Counters::counting_from`]: 32 bits last for two years of monitoring.
const TIME_SHIFT: u32 = 24;

/// One access that was reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// When it happened.
    pub at: Ns,
    /// The page.
    pub page: PageNo,
    /// How many events it stands for: the sampling period.
    pub weight: u32,
}

/// A report that is not settled yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Logged {
    pub page: u64,
    pub weight: u32,
    pub last: u32,
}

const _: () = assert!(size_of::<Logged>() == 16);

/// A page and the sums of its reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    pub page: u64,
    weight: u64,
    samples: u32,
    last: u32,
}

const _: () = assert!(size_of::<Entry>() == 24);

impl Entry {
    fn of(logged: &Logged) -> Entry {
        Entry {
            page: logged.page,
            weight: u64::from(logged.weight) << FRACTION,
            samples: 1 << FRACTION,
            last: logged.last,
        }
    }

    fn add(&mut self, other: &Entry) {
        self.weight = self.weight.saturating_add(other.weight);
        // Saturates at a million samples, which only decides how far to trust the weight.
        self.samples = self.samples.saturating_add(other.samples);
        self.last = self.last.max(other.last);
    }

    pub fn samples(&self) -> f64 {
        f64::from(self.samples) / ONE as f64
    }
}

/// What is left of the reports of one page, or of the pages of a region.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Count {
    /// Events that they stand for. Old events count less.
    pub weight: f64,
    /// Their number. Old reports count less.
    pub samples: f64,
    /// Time of the last one, to 17 ms.
    pub last: Ns,
}

impl Count {
    /// Adds what is known of another page.
    pub fn add(&mut self, other: Count) {
        self.weight += other.weight;
        self.samples += other.samples;
        self.last = self.last.max(other.last);
    }
}

/// Counters of the pages in reports. Other pages cost nothing.
///
/// About 30 ns a report, from the report to being read in address order (`bench-events`). 24 bytes a page, the same
/// again during a merge, and up to 8 MiB of log.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Start of the time scale, in its unit: a machine may have been up for longer than 32 bits last.
    begin: u64,
    log: Vec<Logged>,
    /// Where the log is sorted.
    spare: Vec<Logged>,
    /// In address order, each page at most once.
    list: Vec<Entry>,
    /// Where the list is merged.
    merged: Vec<Entry>,
}

impl Counters {
    /// No counters yet, and no memory.
    pub fn new() -> Counters {
        Counters::default()
    }

    /// Like [`Counters::new`], for reports at `now` or later. An earlier report counts as of `now`.
    pub fn counting_from(now: Ns) -> Counters {
        Counters { begin: now >> TIME_SHIFT, ..Counters::default() }
    }

    /// Takes in a report. Usually O(1). Once in 262,144 reports or more, these are settled, which takes some
    /// milliseconds.
    #[inline]
    pub fn report(&mut self, access: Access) {
        #[expect(clippy::cast_possible_truncation, reason = "32 bits last two years")]
        let last = (access.at >> TIME_SHIFT).saturating_sub(self.begin) as u32;
        self.log.push(Logged { page: access.page.0, weight: access.weight, last });
        if self.log.len() >= LOG {
            self.settle_if_large();
        }
    }

    #[cold]
    fn settle_if_large(&mut self) {
        if self.log.len() >= self.list.len() / LIST_PER_LOG {
            self.settle();
        }
    }

    /// Merges the log into the list: O(both).
    pub fn settle(&mut self) {
        if self.log.is_empty() {
            return;
        }
        sort::by_page(&mut self.log, &mut self.spare);
        self.merged.clear();
        self.merged.reserve(self.list.len() + self.log.len());
        let mut old = self.list.as_slice();
        for same in self.log.chunk_by(|a, b| a.page == b.page) {
            let mut sum = Entry::of(&same[0]);
            same[1..].iter().for_each(|logged| sum.add(&Entry::of(logged)));
            let before = old.iter().take_while(|e| e.page < sum.page).count();
            self.merged.extend_from_slice(&old[..before]);
            old = &old[before..];
            if let Some((known, rest)) = old.split_first().filter(|(e, _)| e.page == sum.page) {
                sum.add(known);
                old = rest;
            }
            self.merged.push(sum);
        }
        self.merged.extend_from_slice(old);
        std::mem::swap(&mut self.list, &mut self.merged);
        self.log.clear();
    }

    /// Scales every sum by `keep` (0 to 1), and forgets pages of which next to nothing is left. O(pages known).
    pub fn forget(&mut self, keep: f64) {
        self.settle();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of 2^32")]
        let keep = (keep.clamp(0.0, 1.0) * 4_294_967_296.0) as u64;
        let kept = |sum: u64| (u128::from(sum) * u128::from(keep) + (1 << 31)) >> 32;
        self.list.retain_mut(|entry| {
            // The share is at most one, so the result fits the old type.
            entry.weight = u64::try_from(kept(entry.weight)).unwrap_or(u64::MAX);
            entry.samples = u32::try_from(kept(u64::from(entry.samples))).unwrap_or(u32::MAX);
            entry.samples >= LEAST
        });
        // Frees memory that a burst needed.
        let need = self.list.len().max(LOG);
        give_back(&mut self.list, 2 * need);
        give_back(&mut self.merged, 2 * need);
        give_back(&mut self.log, need);
        give_back(&mut self.spare, need);
    }

    /// Leaves about `most` pages, drawn at random. The sums over the pages of a region stay right in the mean. `salt`
    /// must differ each time. Returns h if one sample in 2^h is left: of later reports, one in 2^h is to be taken in,
    /// with 2^h times its weight. O(pages known), a few times.
    ///
    /// A page on which a sample or more is left keeps its weight. The other pages have a fraction of a sample, because
    /// they are old or because of h. The fraction is the probability with which the page is kept. A page that is kept
    /// then counts as one whole sample, and its weight grows accordingly. So the pages that stand for the dropped ones
    /// are spread as those were. No page seems to have more samples than it has. If few pages were kept with the
    /// samples of many, each would be taken for a hot one.
    pub fn thin(&mut self, most: usize, salt: u64) -> u32 {
        self.settle();
        let left = |halvings| {
            let sum: u64 = self.list.iter().map(|e| u64::from(e.samples).min(ONE << halvings)).sum();
            sum >> halvings >> FRACTION
        };
        let halvings = (0..MAX_HALVINGS).find(|h| left(*h) <= most as u64).unwrap_or(MAX_HALVINGS);
        let whole = ONE << halvings;
        self.list.retain_mut(|entry| {
            let samples = u64::from(entry.samples);
            if samples >= whole {
                entry.samples >>= halvings;
                return true;
            }
            let weight = u128::from(entry.weight) * u128::from(whole) / u128::from(samples.max(1));
            entry.weight = u64::try_from(weight).unwrap_or(u64::MAX);
            entry.samples = 1 << FRACTION;
            // The random number is uniform over 2^64, so its upper bits are uniform below `whole`.
            lot(entry.page, salt) >> (64 - halvings - FRACTION) < samples
        });
        halvings
    }

    /// Number of settled pages: see [`Counters::settle`].
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether nothing is known of any page.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty() && self.log.is_empty()
    }

    /// Memory held.
    pub fn bytes(&self) -> Bytes {
        let logs = (self.log.capacity() + self.spare.capacity()) * size_of::<Logged>();
        let lists = (self.list.capacity() + self.merged.capacity()) * size_of::<Entry>();
        Bytes((logs + lists) as u64)
    }

    /// What is known of one page. O(log pages), plus a scan of the reports that are not settled.
    pub fn get(&self, page: PageNo) -> Option<Count> {
        let settled = self.list.binary_search_by_key(&page.0, |e| e.page).ok().map(|at| self.list[at]);
        let logged = self.log.iter().filter(|l| l.page == page.0).map(Entry::of);
        let sum = settled.into_iter().chain(logged).reduce(|mut sum, more| {
            sum.add(&more);
            sum
        });
        sum.map(|entry| self.count_of(&entry))
    }

    /// Every page of which something is known, in address order. O(reports since the last time, and pages known).
    pub fn sorted(&mut self) -> impl ExactSizeIterator<Item = (PageNo, Count)> + '_ {
        self.settle();
        self.list.iter().map(|entry| (PageNo(entry.page), self.count_of(entry)))
    }

    /// Sums by region, for regions that are sorted and disjoint. Calls `each` in order with the index of a region in
    /// the slice, the number of its pages with reports, and their sum. Regions without reports are skipped without
    /// being visited: O(pages known, and hit regions times the logarithm of those skipped).
    pub fn by_region(&mut self, regions: &[AddrRange], mut each: impl FnMut(usize, u64, Count)) {
        self.settle();
        let mut left = self.list.as_slice();
        let mut no = 0;
        while let Some(entry) = left.first() {
            let addr = PageNo(entry.page).addr();
            no += gallop(&regions[no..], |r| r.end <= addr);
            let Some(region) = regions.get(no) else { return };
            let outside = gallop(left, |e| PageNo(e.page).addr() < region.start);
            left = &left[outside..];
            let inside = left.iter().take_while(|e| PageNo(e.page).addr() < region.end).count();
            if inside > 0 {
                let mut sum = Count::default();
                left[..inside].iter().for_each(|e| sum.add(self.count_of(e)));
                each(no, inside as u64, sum);
            }
            left = &left[inside..];
        }
    }

    /// The counts of an entry.
    pub(super) fn count_of(&self, entry: &Entry) -> Count {
        Count {
            weight: entry.weight as f64 / ONE as f64,
            samples: entry.samples(),
            last: (self.begin + u64::from(entry.last)) << TIME_SHIFT,
        }
    }

    /// The settled entries, in address order.
    pub(super) fn list(&self) -> &[Entry] {
        &self.list
    }
}

/// Shrinks the vector to `need` if it has room for more than twice that.
fn give_back<T>(items: &mut Vec<T>, need: usize) {
    if items.capacity() > 2 * need {
        items.truncate(need);
        items.shrink_to(need);
    }
}

/// How many of the first items are `before` something, if all of those come first. Logarithmic in that number, not in
/// the total.
pub(super) fn gallop<T>(items: &[T], before: impl Fn(&T) -> bool) -> usize {
    let mut step = 1;
    while items.get(step - 1).is_some_and(&before) {
        step *= 2;
    }
    let from = step / 2;
    from + items[from..items.len().min(step)].partition_point(before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_units::{Addr, PAGE_SIZE};

    const S: Ns = 1_000_000_000;

    fn access(page: u64, weight: u32) -> Access {
        Access { at: S, page: PageNo(page), weight }
    }

    fn pages(from: u64, to: u64) -> AddrRange {
        AddrRange::new(Addr(from * PAGE_SIZE), Addr(to * PAGE_SIZE))
    }

    #[test]
    fn reports_add_up_by_page_whether_settled_or_not() {
        let mut c = Counters::new();
        assert_eq!((c.bytes(), c.is_empty()), (Bytes(0), true));
        for (page, weight) in [(9, 100), (3, 7), (9, 50)] {
            c.report(access(page, weight));
        }
        let nine = |c: &Counters| c.get(PageNo(9)).map(|n| (n.weight, n.samples));
        assert_eq!((nine(&c), c.get(PageNo(4))), (Some((150.0, 2.0)), None));
        assert_eq!(c.sorted().map(|(page, n)| (page.0, n.weight)).collect::<Vec<_>>(), [(3, 7.0), (9, 150.0)]);
        c.report(access(9, 1));
        assert_eq!((nine(&c), c.len()), (Some((151.0, 3.0)), 2));
    }

    #[test]
    fn the_last_report_of_a_page_is_the_latest_not_the_last_to_come() {
        let mut c = Counters::new();
        for at in [5 * S, 9 * S, 2 * S] {
            c.report(Access { at, ..access(1, 1) });
        }
        let last = c.get(PageNo(1)).unwrap().last;
        assert!((9 * S - 17_000_000..=9 * S).contains(&last), "{last}");
    }

    #[test]
    fn the_last_report_is_known_on_a_machine_that_has_been_up_for_years() {
        let up = 900 * 86_400 * S;
        let mut c = Counters::counting_from(up);
        c.report(Access { at: up + 5 * S, ..access(1, 1) });
        let last = c.get(PageNo(1)).unwrap().last;
        assert!((up + 5 * S - 17_000_000..=up + 5 * S).contains(&last), "{last}");
        assert_eq!(c.sorted().next().map(|(_, n)| n.last), Some(last));
    }

    #[test]
    fn what_is_forgotten_goes() {
        let mut c = Counters::new();
        c.report(access(1, 1000));
        for _ in 0..100 {
            c.report(access(2, 1));
        }
        c.forget(0.5);
        assert_eq!((c.get(PageNo(1)).unwrap().weight, c.get(PageNo(2)).unwrap().samples), (500.0, 50.0));
        // 2^-8 of a sample is less than e^-5.
        (0..7).for_each(|_| c.forget(0.5));
        assert_eq!((c.get(PageNo(1)), c.len()), (None, 1));
        c.forget(0.0);
        assert!(c.is_empty());
    }

    #[test]
    fn thinning_keeps_the_sums_of_regions_and_hot_pages() {
        let mut c = Counters::new();
        // A page of four with a sample, half of them old; one in 100 with 64, of another weight.
        for page in (0..400_000).step_by(4) {
            c.report(access(page, 10_007));
        }
        c.forget(0.25);
        for page in (2..400_000).step_by(4) {
            c.report(access(page, 10_007));
        }
        for page in (1..400_000).step_by(100) {
            (0..64).for_each(|_| c.report(access(page, 77)));
        }
        let regions: Vec<AddrRange> = (0..4).map(|no| pages(no * 100_000, (no + 1) * 100_000)).collect();
        let sums = |c: &mut Counters| {
            let mut all = Vec::new();
            c.by_region(&regions, |_, _, sum| all.push(sum));
            all
        };
        let hot =
            |c: &Counters| (1..400_000).step_by(100).all(|page| c.get(PageNo(page)).is_some_and(|n| n.samples >= 1.0));
        let before = sums(&mut c);
        let mut halvings = 0;
        // The second time more is taken from what was raised before.
        for (salt, most) in [(1, 60_000), (2, 15_000)] {
            halvings += c.thin(most, salt);
            assert!((most / 3..most + most / 50).contains(&c.len()), "{} of {most}", c.len());
            assert!(hot(&c));
            for (was, is) in before.iter().zip(sums(&mut c)) {
                assert!((is.weight / was.weight - 1.0).abs() < 0.06, "{was:?}, {is:?}");
                let samples = is.samples * f64::from(1 << halvings);
                assert!((samples / was.samples - 1.0).abs() < 0.06, "{was:?}, {is:?}");
            }
        }
        assert!(halvings > 0);
        assert_eq!(Counters::new().thin(10, 1), 0);
    }

    #[test]
    fn only_regions_that_were_hit_are_told() {
        let mut c = Counters::new();
        for page in [5, 5, 7, 12, 40, 41, 90] {
            c.report(access(page, 10));
        }
        // A gap from 13 to 40, and nothing from 50 on.
        let regions = [pages(0, 5), pages(5, 6), pages(6, 10), pages(10, 13), pages(13, 30), pages(40, 50)];
        let mut told = Vec::new();
        c.by_region(&regions, |no, pages, sum| told.push((no, pages, sum.samples, sum.weight)));
        assert_eq!(told, [(1, 1, 2.0, 20.0), (2, 1, 1.0, 10.0), (3, 1, 1.0, 10.0), (5, 2, 2.0, 20.0)]);
        c.by_region(&[], |_, _, _| panic!("no regions"));
    }

    #[test]
    fn galloping_finds_what_searching_finds() {
        for len in 0..70 {
            let items: Vec<usize> = (0..len).collect();
            for first in 0..=len {
                assert_eq!(gallop(&items, |i| *i < first), first);
            }
        }
    }

    #[test]
    fn memory_of_200_000_pages_is_bounded_and_given_back() {
        let mut c = Counters::new();
        let mut rng = crate::Rng::new(1);
        for _ in 0..200_000 {
            c.report(access(rng.below(26_200_000), 10_007));
        }
        c.settle();
        assert!((198_000..200_000).contains(&c.len()), "{}", c.len());
        assert!(c.bytes() < Bytes::of_mib(24), "{:?}", c.bytes());
        (0..16).for_each(|_| {
            (0..400_000).for_each(|_| c.report(access(rng.below(26_200_000), 10_007)));
        });
        assert!(c.len() > 4_000_000);
        c.forget(0.0);
        assert!(c.bytes() < Bytes::of_mib(64), "{:?}", c.bytes());
    }
}
