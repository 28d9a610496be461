//! Advice for the services of one host, from its rows: limit and request, growth, huge pages, cold memory.
//!
//! Each piece of advice is a figure with its evidence, and a confidence that follows from how much time the rows cover. Where that is too
//! little, the advice is withheld and the reason stated: the working set of a quiet hour says nothing about the busy one.
//!
//! - *request*: what the service accesses within ten minutes, in 95 of 100 intervals.
//! - *limit*: all of its memory in 99 of 100 intervals, with a fifth in reserve, and what it grows by in a week; never less than it ever
//!   had: without swap that would have ended it.
//! - *limit with swap*: the same of the most that it accesses within an hour, for hosts on which the rest has somewhere to go. Withheld if too much
//!   of what is idle for an hour is accessed again (`refaults`).
//!
//! Rows are means over the time that the host is covered, so those of a service that ran for a part of it are scaled to the time in which it
//! ran: a job of a minute needs its memory in that minute.
//!
//! - *growth*: the median step from an hour to the same hour of the next day, so that a day curve does not count, and a restart now and then
//!   neither. A service that is restarted each day shows none.
//! - *huge pages*: memory that is accessed each second and lies on small pages.
//! - *cold memory*: what is idle for an hour, and how much of it is accessed again each minute. At up to 0.2% of the working set a minute,
//!   far memory at warehouse scale has left it out (Lagar-Cavilla et al., ASPLOS 2019).
//!
//! Pages of the cache that nobody has mapped are in no figure: nothing is known of their heat.

use crate::columns::Columns;
use crate::error::Result;
use crate::objects::{RowBatch, from_parquet};
use crate::schema::Table;
use crate::time::INTERVAL_NS;
use isotherm_heat::Interval;
use isotherm_units::Bytes;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Reserve of a limit over what was accessed, percent. With a quarter, four fifths of the limit were what was accessed, to the page, and
/// cost 2% more (`make bench-advise`): a part of the reserve was never of use.
const RESERVE_PCT: u64 = 20;
/// For how long growth is added to a limit, in days.
const GROWTH_DAYS: u64 = 7;
/// A service grows if it does by more than this in a day, percent of its memory.
const GROWTH_PCT: i64 = 2;
/// Steps from day to day without which no growth is stated: two days, with each hour.
const MIN_STEPS: usize = 24;
/// The share of an interval that has to be covered for it to count, percent.
const MIN_COVERED_PCT: u64 = 50;
/// Covered time from which on there is advice, hours.
const MIN_HOURS: u64 = 6;
/// Memory of which nothing is known, from which on no working set is stated, percent.
const MAX_UNMEASURED_PCT: u64 = 10;
/// What may come back each minute of memory that has left, in thousandths of a percent of the working set: 0.2%.
const MAX_BACK_MILLIPCT: u64 = 200;

/// How far to trust advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Confidence {
    /// Too little is covered: there is no advice.
    Withheld,
    /// Less than a day.
    Low,
    /// A day or more.
    Medium,
    /// A week or more.
    High,
}

impl Confidence {
    fn of(hours: u64, min_hours: u64) -> Confidence {
        match hours {
            _ if hours < min_hours => Confidence::Withheld,
            0..24 => Confidence::Low,
            24..168 => Confidence::Medium,
            _ => Confidence::High,
        }
    }
}

/// Advice for one service, over all of its cgroups on the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// The service.
    pub service: String,
    /// How far to trust it. If it is withheld, the figures of advice are unknown.
    pub confidence: Confidence,
    /// Why.
    pub because: String,
    /// Time that counts, in whole hours.
    pub covered_hours: u64,
    /// What to request.
    pub request_bytes: Option<u64>,
    /// What to limit it to.
    pub limit_bytes: Option<u64>,
    /// What to limit it to on a host with room in swap for what is idle. `None` also if too much of that is accessed again.
    pub limit_with_swap_bytes: Option<u64>,
    /// The evidence: percentiles over intervals.
    pub evidence: Evidence,
    /// What it grows by in a day, if it grows.
    pub growth_bytes_per_day: Option<u64>,
    /// Accessed each second, and on small pages.
    pub hot_not_huge_bytes: Option<u64>,
    /// Idle for an hour. `None` also if too much of it is accessed again.
    pub reclaimable_bytes: Option<u64>,
}

/// What was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// The limit now, summed over its cgroups; `None` if any has none.
    pub limit_bytes: Option<u64>,
    /// Accessed within ten minutes, in half of the intervals.
    pub wss_10m_p50_bytes: u64,
    /// The same in 95 of 100.
    pub wss_10m_p95_bytes: u64,
    /// The most accessed within an hour, in 99 of 100.
    pub wss_1h_p99_bytes: u64,
    /// All memory, in 99 of 100.
    pub resident_p99_bytes: u64,
    /// Idle for an hour, on average.
    pub idle_1h_bytes: u64,
    /// Of memory that was idle for an hour, accessed again each minute.
    pub back_bytes_per_minute: u64,
}

/// An interval of a service.
#[derive(Clone, Copy, Debug, Default)]
struct Point {
    resident: u64,
    wss_10m: u64,
    wss_1h_max: u64,
    unmeasured: u64,
    /// The most that a cgroup of it had at any moment.
    resident_peak: u64,
    /// Time in which its cgroups had processes, summed.
    covered_ns: u64,
    limit: u64,
    is_unlimited: bool,
}

impl Point {
    /// The same by the time in which it ran, of an interval of which so much is covered. Cgroups that ran one after the other, as after a restart,
    /// are taken together: how much of their time was the same is not known.
    fn while_it_ran(self, host_covered_ns: u64) -> Point {
        let ran_ns = self.covered_ns.min(host_covered_ns).max(1);
        let scaled = |bytes: u64| {
            let whole = u128::from(bytes) * u128::from(host_covered_ns.max(1)) / u128::from(ran_ns);
            u64::try_from(whole).unwrap_or(u64::MAX)
        };
        let (resident, wss_10m) = (scaled(self.resident), scaled(self.wss_10m));
        Point { resident, wss_10m, unmeasured: scaled(self.unmeasured), ..self }
    }
}

/// How much of its memory nothing is known of, percent, over all intervals.
fn unmeasured_pct(points: &[(i64, Point)]) -> u64 {
    let sum = |of: fn(&Point) -> u64| points.iter().map(|(_, point)| u128::from(of(point))).sum::<u128>();
    // Both are scaled alike.
    let (unmeasured, resident) = (sum(|p| p.unmeasured), sum(|p| p.resident));
    u64::try_from(unmeasured * 100 / resident.max(1)).unwrap_or(u64::MAX)
}

#[derive(Debug, Default)]
struct Rows {
    points: BTreeMap<i64, Point>,
    hot_small_pages: u64,
    idle_pages: u64,
    back_pages: u64,
}

/// Collects the rows of one host.
#[derive(Debug)]
pub struct Advisor {
    /// Names of hosts by key.
    hosts: BTreeMap<String, String>,
    only: Option<String>,
    /// Covered time from which on there is advice, hours.
    min_hours: u64,
    /// Intervals, with the time that is covered.
    covered: BTreeMap<i64, u64>,
    /// Intervals of each host, and those that a host had twice: its clock was set back by hours. Rows of both would be added up.
    seen: BTreeMap<String, BTreeSet<i64>>,
    twice: BTreeSet<i64>,
    services: BTreeMap<String, Rows>,
}

impl Advisor {
    /// For the host of this key or name. Without one, for all hosts of the rows, as if they were one.
    pub fn new(only: Option<String>) -> Advisor {
        Advisor {
            hosts: BTreeMap::new(),
            only,
            min_hours: MIN_HOURS,
            covered: BTreeMap::new(),
            seen: BTreeMap::new(),
            twice: BTreeSet::new(),
            services: BTreeMap::new(),
        }
    }

    /// The same with advice from so many covered hours on, for who knows that these were busy ones. It is of low confidence.
    pub fn with_min_hours(self, min_hours: u64) -> Advisor {
        Advisor { min_hours, ..self }
    }

    /// Tables of which rows are used. Those of hosts come first: without them nothing is covered.
    pub const TABLES: [Table; 5] = [Table::Hosts, Table::Wss, Table::Heat, Table::Idle, Table::Refaults];

    /// Adds rows.
    pub fn add(&mut self, batch: &RowBatch) {
        self.add_columns(batch.table(), batch.columns());
    }

    /// Adds the rows of a stored object.
    pub fn add_object(&mut self, bytes: Vec<u8>) -> Result<()> {
        let (table, columns, _) = from_parquet(bytes)?;
        self.add_columns(table, &columns);
        Ok(())
    }

    /// Keys and names of the hosts that were found.
    pub fn hosts(&self) -> &BTreeMap<String, String> {
        &self.hosts
    }

    fn add_columns(&mut self, table: Table, rows: &Columns) {
        for row in 0..rows.rows() {
            let number = |name: &str| rows.number(name, row).unwrap_or_default().max(0).cast_unsigned();
            let (time, host) = (rows.number("time", row).unwrap_or_default(), rows.text("host", row));
            if table == Table::Hosts {
                let name = rows.text("hostname", row);
                self.hosts.entry(host.to_owned()).or_insert_with(|| name.to_owned());
                if !self.is_wanted(host) {
                    continue;
                }
                if !self.seen.entry(host.to_owned()).or_default().insert(time) {
                    self.twice.insert(time);
                }
                let covered = self.covered.entry(time).or_default();
                *covered = number("covered_ns").max(*covered);
                continue;
            }
            if !self.is_wanted(host) {
                continue;
            }
            let service = rows.text("service", row);
            if !self.services.contains_key(service) {
                self.services.insert(service.to_owned(), Rows::default());
            }
            let Some(of) = self.services.get_mut(service) else { continue };
            let code = || Interval::from_code(u8::try_from(number("code")).unwrap_or(u8::MAX));
            let is_old = || code() >= Interval::from_ns(3_600_000_000_000);
            match table {
                Table::Wss => {
                    let point = of.points.entry(time).or_default();
                    point.resident += number("resident_bytes");
                    point.wss_10m += number("wss_10m_bytes");
                    point.wss_1h_max += number("wss_1h_max_bytes");
                    point.unmeasured += number("unmeasured_bytes");
                    point.resident_peak = point.resident_peak.max(number("resident_max_bytes"));
                    point.covered_ns += number("covered_ns");
                    let limit = rows.number("limit_bytes", row);
                    point.limit += limit.unwrap_or_default().max(0).cast_unsigned();
                    point.is_unlimited |= limit.is_none();
                }
                Table::Heat if code().is_hot() => {
                    of.hot_small_pages += number("pages").saturating_sub(number("huge_pages"));
                }
                Table::Idle if is_old() => of.idle_pages += number("pages"),
                Table::Refaults if is_old() => of.back_pages += number("pages"),
                _ => {}
            }
        }
    }

    fn is_wanted(&self, host: &str) -> bool {
        let Some(only) = &self.only else { return true };
        host == only || self.hosts.get(host) == Some(only)
    }

    /// Advice for each service, the largest first.
    pub fn advice(&self) -> Vec<Advice> {
        let mut all: Vec<Advice> = self.services.iter().map(|(name, rows)| self.of_service(name, rows)).collect();
        all.sort_by_key(|advice| std::cmp::Reverse(advice.evidence.resident_p99_bytes));
        all
    }

    /// The time of an interval that is covered, if that is enough of it.
    fn well_covered(&self, time: i64) -> Option<u64> {
        self.covered.get(&time).copied().filter(|covered| *covered >= INTERVAL_NS * MIN_COVERED_PCT / 100)
    }

    fn of_service(&self, name: &str, rows: &Rows) -> Advice {
        let points: Vec<(i64, Point)> = rows
            .points
            .iter()
            .filter(|(time, _)| !self.twice.contains(time))
            .filter_map(|(time, point)| Some((*time, point.while_it_ran(self.well_covered(*time)?))))
            .collect();
        let covered_hours = points.len() as u64 / 12;
        let unmeasured_pct = unmeasured_pct(&points);
        let is_known = unmeasured_pct <= MAX_UNMEASURED_PCT;
        let confidence = if is_known { Confidence::of(covered_hours, self.min_hours) } else { Confidence::Withheld };
        let is_given = confidence != Confidence::Withheld;
        let watched_ns = rows.points.keys().filter_map(|time| self.covered.get(time)).sum();
        let evidence = evidence(rows, &points, watched_ns);
        let growth_bytes_per_day = growth(&points);
        let limit_over =
            |bytes: u64| bytes / 100 * (100 + RESERVE_PCT) + growth_bytes_per_day.unwrap_or_default() * GROWTH_DAYS;
        // That of one cgroup, or of all of them in an interval: which of their maxima were at the same moment is not known.
        let resident_peak =
            points.iter().map(|(_, point)| point.resident_peak.max(point.resident)).max().unwrap_or_default();
        let back_millipct = evidence.back_bytes_per_minute.saturating_mul(100_000) / evidence.wss_10m_p50_bytes.max(1);
        let may_leave = back_millipct <= MAX_BACK_MILLIPCT;
        let because = match () {
            () if !is_known => {
                format!(
                    "{unmeasured_pct}% of its memory are unmeasured, {MAX_UNMEASURED_PCT}% at most may be: allow the monitor more CPU"
                )
            }
            () if !is_given => format!("{covered_hours} h are covered, at least {} are needed", self.min_hours),
            () if !may_leave => format!(
                "{covered_hours} h are covered; of memory idle for 1 h, {} a minute is accessed again",
                Bytes(evidence.back_bytes_per_minute)
            ),
            () => format!("{covered_hours} h are covered"),
        };
        let mean = |pages: u64| Bytes::of_pages(pages / (rows.points.len() as u64).max(1)).0;
        Advice {
            service: name.to_owned(),
            confidence,
            because,
            covered_hours,
            request_bytes: is_given.then_some(evidence.wss_10m_p95_bytes),
            limit_bytes: is_given.then(|| limit_over(evidence.resident_p99_bytes).max(resident_peak)),
            limit_with_swap_bytes: (is_given && may_leave).then(|| limit_over(evidence.wss_1h_p99_bytes)),
            growth_bytes_per_day,
            hot_not_huge_bytes: is_given.then(|| mean(rows.hot_small_pages)),
            reclaimable_bytes: (is_given && may_leave).then_some(evidence.idle_1h_bytes),
            evidence,
        }
    }
}

/// `watched_ns` is the time of all intervals that is covered: what came back was seen in it, and nothing of what came back besides.
fn evidence(rows: &Rows, points: &[(i64, Point)], watched_ns: u64) -> Evidence {
    let sorted = |of: fn(&Point) -> u64| {
        let mut values: Vec<u64> = points.iter().map(|(_, point)| of(point)).collect();
        values.sort_unstable();
        values
    };
    let (wss_10m, wss_1h, resident) = (sorted(|p| p.wss_10m), sorted(|p| p.wss_1h_max), sorted(|p| p.resident));
    let intervals = (rows.points.len() as u64).max(1);
    let last = points.last().map(|(_, point)| *point).unwrap_or_default();
    Evidence {
        limit_bytes: (!last.is_unlimited && last.limit > 0).then_some(last.limit),
        wss_10m_p50_bytes: percentile(&wss_10m, 50),
        wss_10m_p95_bytes: percentile(&wss_10m, 95),
        wss_1h_p99_bytes: percentile(&wss_1h, 99),
        resident_p99_bytes: percentile(&resident, 99),
        idle_1h_bytes: Bytes::of_pages(rows.idle_pages / intervals).0,
        back_bytes_per_minute: per_minute(Bytes::of_pages(rows.back_pages).0, watched_ns),
    }
}

fn per_minute(bytes: u64, watched_ns: u64) -> u64 {
    let a_minute = u128::from(bytes) * 60_000_000_000 / u128::from(watched_ns.max(1));
    if watched_ns == 0 { 0 } else { u64::try_from(a_minute).unwrap_or(u64::MAX) }
}

/// The smallest value that so many percent of the values do not exceed; 0 of none.
fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

const HOUR_US: i64 = 3_600_000_000;

/// Bytes a day, if it grows: the median step between the mean memory of an hour and that of the same hour a day later.
fn growth(points: &[(i64, Point)]) -> Option<u64> {
    let mut hours: BTreeMap<i64, [i64; 2]> = BTreeMap::new();
    for (time, point) in points {
        let [sum, count] = hours.entry(time.div_euclid(HOUR_US)).or_default();
        *sum += i64::try_from(point.resident).unwrap_or(i64::MAX / 64);
        *count += 1;
    }
    let means: BTreeMap<i64, i64> = hours.into_iter().map(|(hour, [sum, count])| (hour, sum / count.max(1))).collect();
    let mut steps: Vec<i64> = means.iter().filter_map(|(hour, mean)| Some(means.get(&(hour + 24))? - mean)).collect();
    if steps.len() < MIN_STEPS {
        return None;
    }
    steps.sort_unstable();
    let mut sizes: Vec<i64> = means.into_values().collect();
    sizes.sort_unstable();
    let a_day = steps[steps.len() / 2];
    let grows = a_day > sizes[sizes.len() / 2] / 100 * GROWTH_PCT && a_day > 0;
    grows.then_some(a_day.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(hours: i64, resident: impl Fn(i64) -> u64) -> Vec<(i64, Point)> {
        let point = |n: i64| Point { resident: resident(n / 12), ..Point::default() };
        (0..hours * 12).map(|n| (n * 300_000_000, point(n))).collect()
    }

    #[test]
    fn growth_is_the_median_step_from_day_to_day() {
        // 10 of 1000 each hour, with a restart after 60 hours.
        let leaks = |hour: i64| 1000 + 10 * (hour % 60).cast_unsigned();
        assert_eq!(growth(&points(96, leaks)), Some(240));
        assert_eq!(growth(&points(47, leaks)), None, "23 steps");
        assert_eq!(growth(&points(96, |_| 1000)), None);
        // A day curve: up for twelve hours and down for twelve.
        let curve = |hour: i64| 1000 + 50 * (hour % 24 - 12).unsigned_abs();
        assert_eq!(growth(&points(72, curve)), None);
    }

    /// A week of a host that is covered all the time, and of a service on it that has this each interval.
    fn a_week(of: impl Fn(i64) -> Point) -> Advice {
        let mut advisor = Advisor::new(None);
        let mut rows = Rows::default();
        for n in 0..168 * 12 {
            advisor.covered.insert(n * 300_000_000, INTERVAL_NS);
            rows.points.insert(n * 300_000_000, of(n));
        }
        advisor.of_service("a", &rows)
    }

    const GIB: u64 = 1 << 30;

    fn steady(resident: u64, covered_ns: u64) -> Point {
        let (wss, peak) = (resident, resident);
        Point { resident, wss_10m: wss, wss_1h_max: wss, resident_peak: peak, covered_ns, ..Point::default() }
    }

    #[test]
    fn a_job_of_a_minute_needs_its_memory_in_that_minute() {
        // 5 GiB for 60 of 300 s are a mean of 1 GiB.
        let advice = a_week(|_| Point { resident_peak: 5 * GIB, ..steady(GIB, INTERVAL_NS / 5) });
        assert_eq!((advice.confidence, advice.request_bytes), (Confidence::High, Some(5 * GIB)));
        assert_eq!(advice.limit_bytes.map(|bytes| bytes / (GIB / 100)), Some(600), "and a fifth");
        // Restarted in each interval, under another name each time.
        let restarted = a_week(|_| steady(GIB, INTERVAL_NS));
        assert_eq!(restarted.request_bytes, Some(GIB));
    }

    #[test]
    fn a_limit_is_never_below_what_there_was() {
        // Ten minutes of 4 GiB each night are less than one of 100 intervals.
        let night = |n: i64| if n % 288 < 2 { steady(4 * GIB, INTERVAL_NS) } else { steady(GIB, INTERVAL_NS) };
        let advice = a_week(night);
        assert_eq!((advice.evidence.resident_p99_bytes, advice.request_bytes), (GIB, Some(GIB)));
        assert_eq!(advice.limit_bytes, Some(4 * GIB));
        // Ten cgroups with a tenth of it each.
        let of_ten = |n: i64| Point { resident_peak: night(n).resident / 10, ..night(n) };
        assert_eq!(a_week(of_ten).limit_bytes, Some(4 * GIB));
        // What is over that leaves for swap then.
        assert_eq!(advice.limit_with_swap_bytes.map(|bytes| bytes / (GIB / 100)), Some(120));
    }

    #[test]
    fn no_working_set_is_stated_of_memory_that_is_not_measured() {
        let part = |unmeasured| a_week(move |_| Point { unmeasured, wss_10m: GIB, ..steady(10 * GIB, INTERVAL_NS) });
        let unknown = part(6 * GIB);
        assert_eq!(
            (unknown.confidence, unknown.request_bytes, unknown.limit_bytes),
            (Confidence::Withheld, None, None)
        );
        assert!(unknown.because.contains("60% of its memory"), "{}", unknown.because);
        assert_eq!(part(GIB).confidence, Confidence::High);
        // A job of a minute: both are means over five.
        let job = a_week(|_| Point { unmeasured: 45 * GIB, ..steady(100 * GIB, INTERVAL_NS / 5) });
        assert_eq!(job.confidence, Confidence::Withheld);
        assert!(job.because.contains("45% of its memory"), "{}", job.because);
    }

    #[test]
    fn what_came_back_is_by_the_time_that_was_watched() {
        let of = |watched_ns: u64| {
            let mut advisor = Advisor::new(None);
            let mut rows = Rows { back_pages: 12 * 256, ..Rows::default() };
            for n in 0..12 {
                advisor.covered.insert(n * 300_000_000, watched_ns);
                rows.points.insert(n * 300_000_000, steady(GIB, INTERVAL_NS));
            }
            advisor.of_service("a", &rows).evidence.back_bytes_per_minute
        };
        // A MiB in five minutes, or in one.
        assert_eq!([INTERVAL_NS, INTERVAL_NS / 5, 0].map(of), [(1 << 20) / 5, 1 << 20, 0]);
    }

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let values: Vec<u64> = (1..=200).collect();
        assert_eq!([50, 95, 99].map(|percent| percentile(&values, percent)), [100, 190, 198]);
        assert_eq!(percentile(&[], 99), 0);
    }

    #[test]
    fn confidence_follows_from_covered_time() {
        use Confidence::{High, Low, Medium, Withheld};
        assert_eq!(
            [0, 5, 6, 23, 24, 167, 168].map(|hours| Confidence::of(hours, MIN_HOURS)),
            [Withheld, Withheld, Low, Low, Medium, Medium, High]
        );
        assert_eq!([0, 23, 168].map(|hours| Confidence::of(hours, 0)), [Low, Low, High]);
    }
}
