//! The accumulator: snapshots in, rows and objects out.
//!
//! A snapshot says how the host was during its window, so it counts in each interval by the part of the window that lies there. What
//! happened (accesses to idle pages, page-out, errors) counts in the interval in which the window ends. Intervals follow the wall clock of the
//! host, because hosts are compared by it; what the clock does is not trusted:
//!
//! - A window is never longer than the monotonic time since the snapshot before, nor does it overlap the window before. So no interval is
//!   covered for longer than it lasts, whatever the clock does.
//! - A clock that is set back makes an interval come again whose rows were made. Its snapshots count as lost until the clock has caught up.
//!   If it was set back by more than [`MAX_BACK_NS`], it was wrong before: intervals begin anew, and some of them occur twice.
//! - How far the wall clock has moved from the monotonic one is in `clock_skew_ns`.

use crate::counters::{Counters, Steps};
use crate::error::Result;
use crate::hosts::Host;
use crate::interval::Interval;
use crate::moment;
use crate::objects::{Object, RowBatch};
use crate::service::{Rules, Services};
use crate::time::{HOUR_S, INTERVAL_NS, interval_of, seconds};
use isotherm_stream::Snapshot;
use std::collections::BTreeMap;

/// A clock that was set back by more than this was wrong before.
pub const MAX_BACK_NS: u64 = 3_600_000_000_000;
/// The longest window that is spread over intervals. Of a longer one, the end counts.
const MAX_WINDOW_NS: u64 = 3_600_000_000_000;

/// Limits of a [`Rollup`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Time before this is not covered, nanoseconds since the epoch: the end of the last interval that is in an object or a spool of an earlier
    /// run. 0 for none.
    pub after_unix_ns: u64,
    /// The most services and cgroups in an interval. Those beyond are one group of the service `(beyond)`. An hour of a group takes some
    /// 30 KB of memory.
    pub max_groups: usize,
    /// For how long an interval is kept open for a snapshot that is late, by [`Rollup::take_closed`]: after its end, or after the end of the
    /// window that reaches across it.
    pub grace_ns: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options { after_unix_ns: 0, max_groups: 4096, grace_ns: 60_000_000_000 }
    }
}

/// Adds snapshots of one host up.
///
/// Without a crash: [`push`](Rollup::push) each snapshot, and now and then [`take_closed`](Rollup::take_closed); at the end
/// [`finish`](Rollup::finish). To lose no more than five minutes in a crash: after each push, store the bytes of
/// [`rows_closed`](Rollup::rows_closed); delete those of an hour when its objects are stored; after a crash, [`restore`](Rollup::restore)
/// what is stored before the first push. The same rows give an object of the same name and contents, so it does not matter
/// where between these steps the crash came.
#[derive(Debug)]
pub struct Rollup {
    host: Host,
    services: Services,
    options: Options,
    counters: Counters,
    open: Option<Interval>,
    /// When the last window ended.
    last_end_unix_ns: Option<u64>,
    /// Up to when time is covered.
    covered_until_unix_ns: u64,
    /// How long the last window was that counted. The next one is expected to be as long.
    window_ns: u64,
    /// Of snapshots that do not count, for the next one that does.
    skew_left_ns: i64,
    /// Snapshots that were lost before an interval was open.
    lost: u64,
    /// Rows that are in no object yet, by hour.
    hours: BTreeMap<i64, Vec<RowBatch>>,
    /// Those of them that were not returned by [`Rollup::rows_closed`].
    fresh: Vec<RowBatch>,
}

impl Rollup {
    /// Of a host, without snapshots.
    pub fn new(host: Host, rules: Rules, options: Options) -> Rollup {
        Rollup {
            host,
            services: Services::new(rules),
            options,
            counters: Counters::default(),
            open: None,
            last_end_unix_ns: None,
            covered_until_unix_ns: 0,
            window_ns: 0,
            skew_left_ns: 0,
            lost: 0,
            hours: BTreeMap::new(),
            fresh: Vec::new(),
        }
    }

    /// Names services by other rules from the next snapshot on. The interval that is open then has rows by both.
    pub fn set_rules(&mut self, rules: Rules) {
        self.services = Services::new(rules);
    }

    /// Takes back rows that [`Rollup::rows_closed`] returned before a crash. Their time is not covered again.
    pub fn restore(&mut self, batch: RowBatch) {
        let end_unix_ns = u64::try_from(batch.time_s()).unwrap_or_default() * 1_000_000_000 + INTERVAL_NS;
        self.options.after_unix_ns = self.options.after_unix_ns.max(end_unix_ns);
        self.hours.entry(batch.hour_s()).or_default().push(batch);
    }

    /// Adds a snapshot. Intervals that end before its window does are closed.
    pub fn push(&mut self, snapshot: &Snapshot) {
        let end_unix_ns = snapshot.host.end_unix_ns;
        let steps = self.counters.step(snapshot);
        let skew_ns = self.skew_left_ns.saturating_add(self.skew_ns(end_unix_ns, &steps));
        self.skew_left_ns = 0;
        if !self.begin_at(end_unix_ns) {
            self.lost(1);
            self.skew_left_ns = skew_ns;
            self.last_end_unix_ns = Some(end_unix_ns);
            return;
        }
        let groups = moment::groups_of(snapshot, &mut self.services, &steps.by_process);
        let (host, max_groups) = (&snapshot.host, self.options.max_groups);
        let mut at = self.window_start(host.start_unix_ns, end_unix_ns, steps.elapsed_ns);
        self.last_end_unix_ns = Some(end_unix_ns);
        self.covered_until_unix_ns = self.covered_until_unix_ns.max(end_unix_ns);
        self.window_ns = end_unix_ns.saturating_sub(host.start_unix_ns).min(longest(steps.elapsed_ns));
        loop {
            let open = self.open_for(at.min(end_unix_ns));
            let until = end_unix_ns.min(open.start_unix_ns.saturating_add(INTERVAL_NS));
            open.cover((host, &groups), until.saturating_sub(at), max_groups);
            // A window that ends with an interval has happened in it.
            if until == end_unix_ns {
                open.count((host, &groups), &steps, max_groups);
                open.skew(skew_ns);
                break;
            }
            at = until;
        }
    }

    /// Snapshots were lost before the next one.
    pub fn lost(&mut self, count: u64) {
        let lost = self.open.as_mut().map_or(&mut self.lost, |open| &mut open.lost);
        *lost = lost.saturating_add(count);
    }

    /// Rows of intervals that were closed since this was last called, one batch for each table with rows.
    pub fn rows_closed(&mut self) -> Vec<RowBatch> {
        std::mem::take(&mut self.fresh)
    }

    /// Rows of intervals that are over at the time `now_unix_ns` of the wall clock, as [`rows_closed`](Rollup::rows_closed) returns them. They are
    /// forgotten here: for a program that makes objects of what it has stored, by [`Object::all_of`].
    pub fn take_rows(&mut self, now_unix_ns: u64) -> Vec<RowBatch> {
        self.close_if_over(now_unix_ns);
        self.hours.clear();
        self.rows_closed()
    }

    /// All rows that are left, likewise. The open interval is closed as it is.
    pub fn finish_rows(&mut self) -> Vec<RowBatch> {
        self.close();
        self.take_rows(0)
    }

    /// Objects of the hours that are over, at the time `now_unix_ns` of the wall clock. An interval that is over is closed, even if no
    /// snapshot has come since.
    ///
    /// Fails if rows cannot be written as Parquet. They are then tried again.
    pub fn take_closed(&mut self, now_unix_ns: u64) -> Result<Vec<Object>> {
        self.close_if_over(now_unix_ns);
        let open_hour_s = self.open.as_ref().map(|open| hour_of(open.start_unix_ns));
        let is_done = |hour_s: i64| match open_hour_s {
            Some(open) => hour_s != open,
            None => {
                self.is_over(u64::try_from(hour_s).unwrap_or_default() * 1_000_000_000, 12 * INTERVAL_NS, now_unix_ns)
            }
        };
        let hours: Vec<i64> = self.hours.keys().copied().filter(|hour_s| is_done(*hour_s)).collect();
        self.objects_of(&hours)
    }

    /// Objects of all that is left. The open interval is closed as it is. An earlier object of the same hour stays valid.
    pub fn finish(&mut self) -> Result<Vec<Object>> {
        self.close();
        let hours: Vec<i64> = self.hours.keys().copied().collect();
        self.objects_of(&hours)
    }

    fn close_if_over(&mut self, now_unix_ns: u64) {
        if self.open.as_ref().is_some_and(|open| self.is_over(self.complete_at(open), 0, now_unix_ns)) {
            self.close();
        }
    }

    /// When all windows of the open interval have ended: at its end, or with a window that began in it and ends later.
    fn complete_at(&self, open: &Interval) -> u64 {
        let end = open.start_unix_ns.saturating_add(INTERVAL_NS);
        let is_covered = self.covered_until_unix_ns >= end;
        if is_covered { end } else { end.max(self.covered_until_unix_ns.saturating_add(self.window_ns)) }
    }

    fn is_over(&self, start: u64, length: u64, now_unix_ns: u64) -> bool {
        start.saturating_add(length).saturating_add(self.options.grace_ns) <= now_unix_ns
    }

    fn objects_of(&mut self, hours: &[i64]) -> Result<Vec<Object>> {
        let mut objects = Vec::new();
        for hour_s in hours {
            objects.extend(Object::all_of(&self.host, self.hours.get(hour_s).map_or(&[], Vec::as_slice))?);
        }
        // What is in an object needs no spool.
        self.hours.retain(|hour_s, _| !hours.contains(hour_s));
        self.fresh.retain(|batch| !hours.contains(&batch.hour_s()));
        Ok(objects)
    }

    /// By how much more the wall clock has moved since the last snapshot.
    fn skew_ns(&self, end_unix_ns: u64, steps: &Steps) -> i64 {
        let moved = self.last_end_unix_ns.zip(steps.elapsed_ns);
        moved.map_or(0, |(last, elapsed)| end_unix_ns.wrapping_sub(last).cast_signed().saturating_sub_unsigned(elapsed))
    }

    /// Whether a snapshot that ends then counts. Closes what the clock has left for good.
    fn begin_at(&mut self, end_unix_ns: u64) -> bool {
        let begin = self.open.as_ref().map_or(self.options.after_unix_ns, |open| open.start_unix_ns);
        // One that ends exactly there is of the interval before.
        if end_unix_ns > begin || begin == 0 {
            return true;
        }
        let is_far = begin - end_unix_ns > MAX_BACK_NS;
        if is_far {
            self.close();
            self.options.after_unix_ns = 0;
            self.last_end_unix_ns = None;
            self.covered_until_unix_ns = 0;
        }
        is_far
    }

    /// From when on a window counts.
    fn window_start(&self, start_unix_ns: u64, end_unix_ns: u64, elapsed_ns: Option<u64>) -> u64 {
        let mut start =
            start_unix_ns.max(end_unix_ns.saturating_sub(longest(elapsed_ns))).max(self.options.after_unix_ns);
        start = start.max(self.covered_until_unix_ns);
        if let Some(open) = &self.open {
            start = start.max(open.start_unix_ns);
        }
        start.min(end_unix_ns)
    }

    /// The interval of a moment, which is not before the open one.
    fn open_for(&mut self, unix_ns: u64) -> &mut Interval {
        let start = interval_of(unix_ns);
        if self.open.as_ref().is_some_and(|open| open.start_unix_ns < start) {
            self.close();
        }
        let lost = std::mem::take(&mut self.lost);
        let open = self.open.get_or_insert_with(|| Interval::new(start));
        open.lost = open.lost.saturating_add(lost);
        open
    }

    fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        self.options.after_unix_ns = open.start_unix_ns.saturating_add(INTERVAL_NS);
        if open.is_empty() {
            return;
        }
        for batch in open.close(&self.host) {
            self.fresh.push(batch.clone());
            self.hours.entry(batch.hour_s()).or_default().push(batch);
        }
    }
}

/// The longest that a window can be, this long after the snapshot before.
fn longest(elapsed_ns: Option<u64>) -> u64 {
    elapsed_ns.unwrap_or(u64::MAX).min(MAX_WINDOW_NS)
}

fn hour_of(unix_ns: u64) -> i64 {
    seconds(unix_ns).div_euclid(HOUR_S) * HOUR_S
}
