//! Five minutes of a host as they fill up, and the rows that they become.
//!
//! Sums are of pages or bytes times nanoseconds, in integers, and divided once at the end. The division rounds running sums
//! ([`Means`]), not each figure: so rows of heat add up to the mean of the memory exactly, and the working sets, the memory of the
//! group and that of the host are sums of these rows.

use crate::columns::{Cell, Columns};
use crate::counters::Steps;
use crate::hosts::Host;
use crate::kinds::Kind;
use crate::moment::{GroupKey, GroupMoment, working_sets};
use crate::objects::RowBatch;
use crate::schema::Table;
use crate::service::Service;
use crate::time::seconds;
use isotherm_heat::Interval as Code;
use isotherm_stream::HostRow;
use isotherm_units::Bytes;
use std::collections::{BTreeMap, HashMap};

/// What is known of a group in the interval so far.
#[derive(Debug, Default)]
struct Group {
    covered_ns: u64,
    processes: u128,
    cells: BTreeMap<(u8, Kind), [u128; 2]>,
    idle: BTreeMap<u8, u128>,
    levels: BTreeMap<u8, [u128; 2]>,
    swapped: Option<u128>,
    limit_bytes: Option<u64>,
    charged: Option<[u128; 3]>,
    estimated: u128,
    max_bytes: [u64; 5],
    refaults: BTreeMap<u8, u64>,
    moved_bytes: [u64; 2],
}

impl Group {
    /// What was so for some time.
    fn add(&mut self, moment: &GroupMoment, ns: u64) {
        let weight = u128::from(ns);
        let times = |number: u64| u128::from(number) * weight;
        self.covered_ns += if moment.processes > 0 { ns } else { 0 };
        self.processes += times(moment.processes);
        for (key, pages) in &moment.cells {
            let sums = self.cells.entry(*key).or_default();
            sums.iter_mut().zip(pages).for_each(|(sum, pages)| *sum += times(*pages));
        }
        for (code, pages) in &moment.idle {
            *self.idle.entry(*code).or_default() += times(*pages);
        }
        for (level, ranges) in &moment.levels {
            let sums = self.levels.entry(*level).or_default();
            sums.iter_mut().zip(ranges).for_each(|(sum, ranges)| *sum += times(*ranges));
        }
        if let Some(bytes) = moment.swapped_bytes {
            self.swapped = Some(self.swapped.unwrap_or_default() + times(bytes));
        }
        if let Some(charged) = moment.charged_bytes {
            let sums = self.charged.get_or_insert_default();
            sums.iter_mut().zip(charged).for_each(|(sum, bytes)| *sum += times(bytes));
        }
        self.estimated += times(moment.estimated_pages);
        self.max_bytes.iter_mut().zip(moment.sizes()).for_each(|(max, bytes)| *max = bytes.max(*max));
    }

    /// What happened at a moment, and what does not depend on how long it was so.
    fn count(&mut self, moment: &GroupMoment) {
        self.limit_bytes = moment.limit_bytes.or(self.limit_bytes);
        for (code, pages) in &moment.refaults {
            let sum = self.refaults.entry(*code).or_default();
            *sum = sum.saturating_add(*pages);
        }
        for (sum, bytes) in self.moved_bytes.iter_mut().zip(moment.moved_bytes) {
            *sum = sum.saturating_add(bytes);
        }
    }
}

/// Means that add up: the running sum is rounded, to the nearest.
struct Means {
    covered_ns: u128,
    sum: u128,
    given: u64,
}

impl Means {
    fn over(covered_ns: u64) -> Means {
        Means { covered_ns: u128::from(covered_ns.max(1)), sum: 0, given: 0 }
    }

    fn next(&mut self, sum: u128) -> u64 {
        self.sum += sum;
        let until = (self.sum + self.covered_ns / 2) / self.covered_ns;
        let until = u64::try_from(until).unwrap_or(u64::MAX);
        until - std::mem::replace(&mut self.given, until)
    }

    /// The mean of one sum by itself.
    fn of(sum: u128, covered_ns: u64) -> u64 {
        Means::over(covered_ns).next(sum)
    }
}

/// An interval that is not over.
#[derive(Debug, Default)]
pub(crate) struct Interval {
    /// Its start.
    pub start_unix_ns: u64,
    /// The time of its first snapshot.
    since_unix_ns: Option<u64>,
    covered_ns: u64,
    snapshots: u64,
    pub lost: u64,
    groups: HashMap<GroupKey, Group>,
    monitor_cpu_ns: u64,
    read_errors: u64,
    slowdown_pct_ns: f64,
    clock_skew_ns: i64,
    actions: BTreeMap<(String, String), [u64; 2]>,
    host: HostRow,
}

impl Interval {
    pub(crate) fn new(start_unix_ns: u64) -> Interval {
        Interval { start_unix_ns, ..Interval::default() }
    }

    /// Whether nothing has happened in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.covered_ns == 0 && self.snapshots == 0 && self.lost == 0
    }

    /// For so long the host was as in this snapshot.
    pub(crate) fn cover(&mut self, (host, groups): (&HostRow, &Groups), ns: u64, max_groups: usize) {
        if ns == 0 {
            return;
        }
        self.since_unix_ns.get_or_insert(host.end_unix_ns);
        self.host = host.clone();
        self.covered_ns += ns;
        self.slowdown_pct_ns += host.slowdown_pct * as_f64(ns);
        for (key, moment) in groups {
            self.group(key, max_groups).add(moment, ns);
        }
    }

    /// A snapshot ended in this interval.
    pub(crate) fn count(&mut self, (host, groups): (&HostRow, &Groups), steps: &Steps, max_groups: usize) {
        self.since_unix_ns.get_or_insert(host.end_unix_ns);
        self.host = host.clone();
        self.snapshots += 1;
        self.monitor_cpu_ns += steps.monitor_cpu_ns;
        self.read_errors = self.read_errors.saturating_add(steps.read_errors);
        for (key, moment) in groups {
            self.group(key, max_groups).count(moment);
        }
        for (key, step) in &steps.by_action {
            let sums = self.actions.entry(key.clone()).or_default();
            sums.iter_mut().zip(step).for_each(|(sum, step)| *sum = sum.saturating_add(*step));
        }
    }

    /// The wall clock has moved by so much more than the monotonic one.
    pub(crate) fn skew(&mut self, ns: i64) {
        self.clock_skew_ns = self.clock_skew_ns.saturating_add(ns);
    }

    /// Its group; a common one for what is beyond the limit.
    fn group(&mut self, key: &GroupKey, max_groups: usize) -> &mut Group {
        if self.groups.len() < max_groups || self.groups.contains_key(key) {
            return self.groups.entry(key.clone()).or_default();
        }
        let service = Service { name: BEYOND.into(), ..Service::default() };
        self.groups.entry(GroupKey { service, cgroup: String::new() }).or_default()
    }

    /// Its rows by table, without tables that have none.
    pub(crate) fn close(self, host: &Host) -> Vec<RowBatch> {
        let since_unix_ns = self.since_unix_ns.unwrap_or(self.start_unix_ns);
        let time_s = seconds(self.start_unix_ns);
        let mut rows = Rows::new(host, time_s, self.covered_ns);
        let mut groups: Vec<_> = self.groups.iter().collect();
        groups.sort_by(|(a, _), (b, _)| (&a.service.name, &a.cgroup).cmp(&(&b.service.name, &b.cgroup)));
        for (key, group) in groups {
            rows.group(key, group);
        }
        rows.actions(&self);
        rows.host(host, &self);
        let tables = Table::ALL.into_iter().zip(rows.tables).filter(|(_, columns)| columns.rows() > 0);
        tables.map(|(table, columns)| RowBatch::new(table, time_s, since_unix_ns, columns)).collect()
    }
}

/// The groups of a snapshot.
pub(crate) type Groups = HashMap<GroupKey, GroupMoment>;

/// The service of groups beyond the limit.
pub(crate) const BEYOND: &str = "(beyond)";

/// The rows of an interval as they are made.
struct Rows<'a> {
    tables: Vec<Columns>,
    host: &'a str,
    time: i64,
    covered_ns: u64,
    resident_bytes: u64,
    unmeasured_bytes: u64,
    estimated: u128,
    refaulted_bytes: u64,
}

impl<'a> Rows<'a> {
    fn new(host: &'a Host, time_s: i64, covered_ns: u64) -> Rows<'a> {
        Rows {
            tables: Table::ALL.into_iter().map(Columns::new).collect(),
            host: &host.key,
            time: time_s.saturating_mul(1_000_000),
            covered_ns,
            resident_bytes: 0,
            unmeasured_bytes: 0,
            estimated: 0,
            refaulted_bytes: 0,
        }
    }

    fn push<const N: usize>(&mut self, table: Table, row: [Cell<'_>; N]) {
        if let Some(place) = Table::ALL.iter().position(|other| *other == table) {
            self.tables[place].push(row);
        }
    }

    fn group(&mut self, key: &GroupKey, group: &Group) {
        let by_code = self.heat(key, group);
        self.wss(key, group, &by_code);
        let head = self.head(key);
        let [time, host, service, cgroup] = head;
        let mut means = Means::over(self.covered_ns);
        for (code, sum) in &group.idle {
            let pages = means.next(*sum);
            if pages > 0 {
                let code = Cell::Int(u64::from(*code));
                self.push(Table::Idle, [time, host, service, cgroup, code, Cell::Int(pages)]);
            }
        }
        for (code, pages) in &group.refaults {
            let code = Cell::Int(u64::from(*code));
            self.push(Table::Refaults, [time, host, service, cgroup, code, Cell::Int(*pages)]);
        }
        let mut means = [(); 2].map(|()| Means::over(self.covered_ns));
        for (level, sums) in &group.levels {
            let [small, huge] = [means[0].next(sums[0]), means[1].next(sums[1])];
            if small + huge > 0 {
                let row =
                    [time, host, service, cgroup, Cell::Int(u64::from(*level)), Cell::Int(small), Cell::Int(huge)];
                self.push(Table::HugeOpportunity, row);
            }
        }
        self.estimated += group.estimated;
        self.refaulted_bytes = self.refaulted_bytes.saturating_add(group.moved_bytes[1]);
    }

    fn head<'k>(&self, key: &'k GroupKey) -> [Cell<'k>; 4]
    where
        'a: 'k,
    {
        [Cell::Time(self.time), Cell::Text(self.host), Cell::Text(&key.service.name), Cell::Text(&key.cgroup)]
    }

    /// Rows of heat, and pages by code as these have them.
    fn heat(&mut self, key: &GroupKey, group: &Group) -> BTreeMap<u8, u64> {
        let [time, host, service, cgroup] = self.head(key);
        let swapped_pages = Means::of(group.swapped.unwrap_or_default() / 4096, self.covered_ns);
        let zero = Cell::Int(0);
        if swapped_pages > 0 {
            let kind = Cell::Text(Kind::Other.name());
            let row = [time, host, service, cgroup, kind, zero, zero, zero, Cell::Int(swapped_pages)];
            self.push(Table::Heat, row);
        }
        let mut by_code = BTreeMap::new();
        let mut means = Means::over(self.covered_ns);
        for ((code, kind), [small, huge]) in &group.cells {
            let [small, huge] = [means.next(*small), means.next(*huge)];
            if small + huge == 0 {
                continue;
            }
            *by_code.entry(*code).or_default() += small + huge;
            let (kind, code) = (Cell::Text(kind.name()), Cell::Int(u64::from(*code)));
            let row = [time, host, service, cgroup, kind, code, Cell::Int(small + huge), Cell::Int(huge), zero];
            self.push(Table::Heat, row);
        }
        by_code
    }

    fn wss(&mut self, key: &GroupKey, group: &Group, by_code: &BTreeMap<u8, u64>) {
        let [time, host, service, cgroup] = self.head(key);
        let bytes = |pages: u64| Bytes::of_pages(pages).0;
        let resident = bytes(by_code.values().sum());
        let unmeasured = bytes(by_code.get(&Code::UNMEASURED.code()).copied().unwrap_or_default());
        let sets = working_sets(by_code.iter().map(|(code, pages)| (*code, *pages))).map(bytes);
        // Rounding may take a mean a page beyond the maximum.
        let sizes = [resident, sets[0], sets[1], sets[2], sets[3]];
        let max: [u64; 5] = std::array::from_fn(|at| group.max_bytes[at].max(sizes[at]));
        let mean = |sum: u128| Means::of(sum, self.covered_ns);
        let charged = |at: usize| Cell::Nullable(group.charged.map(|sums| mean(sums[at])));
        let row = [
            time,
            host,
            service,
            cgroup,
            Cell::Text(&key.service.labels),
            Cell::Int(mean(group.processes)),
            Cell::Int(group.covered_ns),
            Cell::Int(resident),
            Cell::Int(max[0]),
            Cell::Int(sets[0]),
            Cell::Int(sets[1]),
            Cell::Int(sets[2]),
            Cell::Int(sets[3]),
            Cell::Int(max[1]),
            Cell::Int(max[2]),
            Cell::Int(max[3]),
            Cell::Int(max[4]),
            Cell::Int(unmeasured),
            Cell::Nullable(group.swapped.map(mean)),
            Cell::Nullable(group.limit_bytes),
            Cell::Nullable(key.service.request_bytes),
            charged(0),
            charged(1),
            charged(2),
            Cell::Int(group.moved_bytes[0]),
            Cell::Int(group.moved_bytes[1]),
        ];
        self.push(Table::Wss, row);
        self.resident_bytes += resident;
        self.unmeasured_bytes += unmeasured;
    }

    fn actions(&mut self, interval: &Interval) {
        let (time, host) = (Cell::Time(self.time), Cell::Text(self.host));
        for ((action, result), [huge_ranges, bytes]) in &interval.actions {
            // What came back is counted by process, and had left by page-out.
            let is_page_out = action == "page-out" && result == "done";
            let refaulted = if is_page_out { std::mem::take(&mut self.refaulted_bytes) } else { 0 };
            self.action((time, host), (action, result), [*huge_ranges, *bytes, refaulted]);
        }
        let refaulted = std::mem::take(&mut self.refaulted_bytes);
        if refaulted > 0 {
            self.action((time, host), ("page-out", "done"), [0, 0, refaulted]);
        }
    }

    fn action(&mut self, (time, host): (Cell<'_>, Cell<'_>), (action, result): (&str, &str), sums: [u64; 3]) {
        let [huge_ranges, bytes, refaulted] = sums.map(Cell::Int);
        self.push(Table::Actions, [time, host, Cell::Text(action), Cell::Text(result), huge_ranges, bytes, refaulted]);
    }

    fn host(&mut self, host: &Host, interval: &Interval) {
        let last = &interval.host;
        let hostname = if host.hostname.is_empty() { &last.hostname } else { &host.hostname };
        let estimated = Bytes::of_pages(Means::of(self.estimated, self.covered_ns)).0;
        let slowdown_pct = interval.slowdown_pct_ns / as_f64(self.covered_ns.max(1));
        let row = [
            Cell::Time(self.time),
            Cell::Text(self.host),
            Cell::Text(hostname),
            Cell::Text(&host.machine_id),
            Cell::Text(&host.boot_id),
            Cell::Text(&last.kernel),
            Cell::Text(&last.version),
            Cell::Text(&last.source),
            Cell::Text(&last.cpu),
            Cell::Int(last.cpus.into()),
            Cell::Int(last.memory_bytes),
            Cell::Int(self.covered_ns),
            Cell::Int(interval.snapshots),
            Cell::Int(interval.lost),
            Cell::Int(self.resident_bytes),
            Cell::Int(self.unmeasured_bytes),
            Cell::Int(estimated),
            Cell::Int(interval.monitor_cpu_ns),
            Cell::Int(interval.read_errors),
            Cell::Float(slowdown_pct),
            Cell::Signed(interval.clock_skew_ns),
        ];
        self.push(Table::Hosts, row);
    }
}

#[expect(clippy::cast_precision_loss, reason = "a time to weigh with: the last digits do not count")]
fn as_f64(ns: u64) -> f64 {
    ns as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_add_up_to_the_mean_of_the_sum() {
        // Of 10 ns: 4, 4 and 4 page-nanoseconds are 0.4, 0.8 and 1.2 pages in running sums.
        let mut means = Means::over(10);
        assert_eq!([4, 4, 4].map(|sum| means.next(sum)), [0, 1, 0]);
        assert_eq!((Means::of(15, 10), Means::of(14, 10), Means::of(5, 0)), (2, 1, 5));
    }
}
