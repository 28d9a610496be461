//! What is true of the services of the fleet, to compare reports with.

use crate::catalog::{Layout, Template};
use crate::service::Moment;
use crate::spread::whole;
use serde::Serialize;
use std::collections::BTreeMap;

/// What is true of one service, over all hosts and the whole time.
#[derive(Clone, Debug, Default)]
pub struct ServiceTruth {
    /// Bytes accessed within ten minutes: of each host and interval in which it ran throughout. Kept as `f32`: seven digits.
    wss_10m: Vec<f32>,
    resident: Vec<f32>,
    /// The sum over hosts of bytes, of each interval.
    sums: Moment,
    intervals: u64,
    hosts: u64,
    limit_bytes: u64,
}

/// By name of the template.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    services: BTreeMap<&'static str, (Option<&'static Template>, ServiceTruth)>,
}

impl Truth {
    /// A host has this service, with this limit.
    pub fn add_host(&mut self, template: &'static Template, limit_bytes: Option<u64>) {
        let (of, truth) = self.services.entry(template.name).or_default();
        *of = Some(template);
        truth.hosts += 1;
        truth.limit_bytes += limit_bytes.unwrap_or_default();
    }

    /// How it was in an interval: the mean of moments.
    pub fn add_interval(&mut self, template: &'static Template, moments: &[Moment]) {
        let (_, truth) = self.services.entry(template.name).or_default();
        let mean = |of: fn(&Moment) -> f64| moments.iter().map(of).sum::<f64>() / count(moments.len());
        truth.wss_10m.push(single(mean(|m| m.wss_10m)));
        truth.resident.push(single(mean(|m| m.resident)));
        truth.sums.hot_not_huge += mean(|m| m.hot_not_huge);
        truth.sums.cold_10m += mean(|m| m.cold_10m);
        truth.sums.cold_1h += mean(|m| m.cold_1h);
        truth.sums.swapped += mean(|m| m.swapped);
        truth.intervals += 1;
    }

    /// Adds that of other hosts.
    pub fn merge(&mut self, other: Truth) {
        for (name, (template, theirs)) in other.services {
            let (of, mine) = self.services.entry(name).or_default();
            *of = of.or(template);
            mine.wss_10m.extend(theirs.wss_10m);
            mine.resident.extend(theirs.resident);
            mine.sums.hot_not_huge += theirs.sums.hot_not_huge;
            mine.sums.cold_10m += theirs.sums.cold_10m;
            mine.sums.cold_1h += theirs.sums.cold_1h;
            mine.sums.swapped += theirs.sums.swapped;
            mine.intervals += theirs.intervals;
            mine.hosts += theirs.hosts;
            mine.limit_bytes += theirs.limit_bytes;
        }
    }

    /// The rows of `truth.json`.
    pub fn rows(self) -> Vec<Row> {
        self.services.into_values().filter_map(|(template, truth)| Some(row(template?, truth))).collect()
    }
}

/// A service in `truth.json`.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// As the tables have it.
    pub service: String,
    /// Hosts that run it.
    pub hosts: u64,
    /// Host-intervals of five minutes in which it ran throughout, whether or not the host was watched.
    pub intervals: u64,
    /// Percentiles over host-intervals of the memory accessed within ten minutes.
    pub wss_10m_p50_bytes: u64,
    /// Likewise.
    pub wss_10m_p95_bytes: u64,
    /// Likewise.
    pub wss_10m_p99_bytes: u64,
    /// The same of all its memory.
    pub resident_p50_bytes: u64,
    /// Likewise.
    pub resident_p99_bytes: u64,
    /// The mean limit of a host's instance.
    pub limit_bytes: Option<u64>,
    /// Means over its intervals, of one instance: not accessed within ten minutes.
    pub cold_10m_bytes: u64,
    /// Not accessed within an hour.
    pub cold_1h_bytes: u64,
    /// Accessed within a second, and on small pages.
    pub hot_not_huge_bytes: u64,
    /// In swap.
    pub swapped_bytes: u64,
    /// Whether it leaks: grows by a share of its size each day until it is restarted.
    pub leaks: bool,
    /// What one instance leaks each day.
    pub leak_bytes_per_day: u64,
    /// Whether the limit is more than twice the 99th percentile of the memory accessed within ten minutes.
    pub over_provisioned: bool,
}

fn row(template: &Template, mut truth: ServiceTruth) -> Row {
    let per_interval = |sum: f64| whole(sum / as_f64(truth.intervals.max(1)));
    let limit_bytes = (truth.limit_bytes > 0).then(|| truth.limit_bytes / truth.hosts.max(1));
    let cold = (per_interval(truth.sums.cold_10m), per_interval(truth.sums.cold_1h));
    let (hot_not_huge_bytes, swapped_bytes) = (per_interval(truth.sums.hot_not_huge), per_interval(truth.sums.swapped));
    let [p50, p95, p99] = percentiles(&mut truth.wss_10m, [50, 95, 99]);
    let [resident_p50_bytes, resident_p99_bytes] = percentiles(&mut truth.resident, [50, 99]);
    Row {
        service: service_name(template),
        hosts: truth.hosts,
        intervals: truth.intervals,
        wss_10m_p50_bytes: p50,
        wss_10m_p95_bytes: p95,
        wss_10m_p99_bytes: p99,
        resident_p50_bytes,
        resident_p99_bytes,
        limit_bytes,
        cold_10m_bytes: cold.0,
        cold_1h_bytes: cold.1,
        hot_not_huge_bytes,
        swapped_bytes,
        leaks: template.leak_per_day > 0.0,
        leak_bytes_per_day: whole(template.leak_per_day * template.size_mib * 1_048_576.0),
        over_provisioned: limit_bytes.is_some_and(|limit| limit > 2 * p99),
    }
}

/// As the rules name it that `isotherm_rollup` has without settings.
pub fn service_name(template: &Template) -> String {
    match template.layout {
        Layout::Unit => format!("{}.service", template.name),
        Layout::Instances => format!("{}@.service", template.name),
        Layout::Pod => format!("pod/{}", template.name.chars().take(15).collect::<String>()),
    }
}

/// The smallest value that so many percent of the values do not exceed.
fn percentiles<const N: usize>(values: &mut [f32], percents: [usize; N]) -> [u64; N] {
    values.sort_by(f32::total_cmp);
    percents.map(|percent| {
        let rank = (values.len() * percent).div_ceil(100).max(1);
        values.get(rank - 1).map_or(0, |value| whole(f64::from(*value)))
    })
}

#[expect(clippy::cast_possible_truncation, reason = "seven digits are enough")]
fn single(bytes: f64) -> f32 {
    bytes as f32
}

#[expect(clippy::cast_precision_loss, reason = "a number of intervals")]
fn as_f64(number: u64) -> f64 {
    number as f64
}

fn count(number: usize) -> f64 {
    as_f64(number.max(1) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::SERVICES;

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let mut values: Vec<f32> = (1_u16..=200).rev().map(f32::from).collect();
        assert_eq!(percentiles(&mut values, [50, 95, 99]), [100, 190, 198]);
        assert_eq!(percentiles(&mut [], [50]), [0]);
    }

    #[test]
    fn hosts_add_up() {
        let moment = |wss_10m| Moment { wss_10m, resident: 2.0 * wss_10m, cold_10m: 4.0, ..Moment::default() };
        let mut all = Truth::default();
        for wss in [10.0, 30.0] {
            let mut truth = Truth::default();
            truth.add_host(&SERVICES[2], Some(100));
            truth.add_interval(&SERVICES[2], &[moment(wss), moment(wss + 2.0)]);
            all.merge(truth);
        }
        let rows = all.rows();
        let row = &rows[0];
        assert_eq!((row.service.as_str(), row.hosts, row.intervals), ("node-exporter.service", 2, 2));
        assert_eq!((row.wss_10m_p50_bytes, row.wss_10m_p99_bytes, row.cold_10m_bytes), (11, 31, 4));
        assert_eq!((row.limit_bytes, row.over_provisioned, row.leaks), (Some(100), true, false));
    }
}
