//! A recorded snapshot as a monitor would have sent it.
//!
//! A recording has no pages to ask, so what was done to memory is unknown. Which pages lie on huge pages is known by region:
//! [`huge_by_regions`] counts them at the mean interval of their region, and [`part_of`] fits them to the histogram of the process. A
//! monitor does the same where a process is watched by region.

use crate::rows::{HostRow, IdleRow, MappingRow, ProcessRow, RegionRow, Snapshot};
use isotherm_heat::{self as heat, Histogram, Interval, RunInfo, TargetHeat};

impl Snapshot {
    /// A recorded snapshot of a run.
    pub fn of(run: &RunInfo, snapshot: &heat::Snapshot) -> Snapshot {
        let targets = &snapshot.targets;
        let process = |target: &TargetHeat| {
            let row = ProcessRow::of(target);
            ProcessRow { heat_huge: part_of(&row.heat, &huge_by_regions(target)), ..row }
        };
        Snapshot {
            host: HostRow::of(run, snapshot),
            processes: targets.iter().map(process).collect(),
            regions: targets.iter().flat_map(RegionRow::of).collect(),
            mappings: targets.iter().flat_map(MappingRow::of).collect(),
            idle: targets.iter().flat_map(IdleRow::of).collect(),
            ..Snapshot::default()
        }
    }
}

/// Pages on huge pages, at the mean intervals of their regions; where small pages were known before the huge page, at the intervals that they had.
pub fn huge_by_regions(target: &TargetHeat) -> Histogram {
    let mut huge = Histogram::default();
    target.regions.iter().for_each(|region| huge.add(region.interval, region.huge_pages));
    let Some(behind) = &target.behind_huge else { return huge };
    let (bits, estimate) = (&target.temperature, &behind.temperature);
    let by_bits = part_of(bits, &huge);
    let mut huge = Histogram::default();
    for interval in (1..=u8::MAX).map(Interval::from_code) {
        // What differs between the two lies on huge pages.
        huge.add(interval, (by_bits.at(interval) + estimate.at(interval)).saturating_sub(bits.at(interval)));
    }
    huge
}

/// `wanted` as a part of `all`: at no interval more pages than there are. The two are of moments that lie a little apart, and in the
/// meantime idle pages have grown colder. What does not fit at its interval is counted at the next where it does.
pub fn part_of(all: &Histogram, wanted: &Histogram) -> Histogram {
    let mut part = Histogram::default();
    let mut over = 0;
    // Towards cold first: later means idle for longer.
    for code in 1..=u8::MAX {
        let interval = Interval::from_code(code);
        let asked = over + wanted.at(interval);
        let fits = asked.min(all.at(interval));
        part.add(interval, fits);
        over = asked - fits;
    }
    for code in (1..=u8::MAX).rev() {
        let interval = Interval::from_code(code);
        let fits = over.min(all.at(interval) - part.at(interval));
        part.add(interval, fits);
        over -= fits;
    }
    part
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_units::{Addr, AddrRange};

    fn histogram(pages: &[(u64, u64)]) -> Histogram {
        let mut histogram = Histogram::default();
        pages.iter().for_each(|(ms, pages)| histogram.add(Interval::from_ns(ms * 1_000_000), *pages));
        histogram
    }

    fn target(temperature: Histogram) -> TargetHeat {
        TargetHeat {
            id: heat::TargetId { pid: 7, start_ticks: 5 },
            comm: "qemu".into(),
            cgroup: String::new(),
            exited: false,
            granularity: heat::Granularity::Page,
            regions: Vec::new(),
            mappings: Vec::new().into(),
            temperature,
            idle: histogram(&[(60_000, 1003)]),
            counted_elsewhere_pages: 0,
            maybe_shared_pages: 0,
            unclearable_pages: 0,
            behind_huge: None,
            idle_by_mapping: Vec::new(),
            facts: heat::TargetFacts::default(),
        }
    }

    fn seen(target: &TargetHeat) -> ProcessRow {
        let snapshot = heat::Snapshot {
            start_unix_ns: 0,
            end_unix_ns: 1,
            targets: vec![target.clone()],
            cost: heat::Cost::default(),
        };
        Snapshot::of(&RunInfo::default(), &snapshot).processes.remove(0)
    }

    #[test]
    fn what_a_guest_accesses_is_unknown_and_not_idle() {
        let mut target = target(histogram(&[(10, 3), (60_000, 1000)]));
        assert_eq!(seen(&target).heat.at(Interval::from_ns(60_000_000_000)), 1000);
        target.facts.runs_guest = true;
        let row = seen(&target);
        assert_eq!((row.heat.at(Interval::UNMEASURED), row.heat.resident()), (1003, 1003));
        assert_eq!((row.idle.at(Interval::UNMEASURED), row.idle.resident()), (1003, 1003));
    }

    #[test]
    fn a_picture_of_a_guest_shows_no_cold_memory() {
        let mut target = target(histogram(&[(60_000, 512)]));
        target.regions.push(heat::Region { interval: Interval::from_ns(60_000_000_000), idle_ns: 7, ..region() });
        let sent = |target: &TargetHeat| RegionRow::of(target).next().unwrap().region;
        assert_eq!(sent(&target), target.regions[0]);
        target.facts.runs_guest = true;
        let unseen = sent(&target);
        assert_eq!((unseen.resident_pages, unseen.huge_pages, unseen.range), (512, 512, region().range));
        assert_eq!((unseen.measured_pages, unseen.hot(), unseen.interval), (0, 0, Interval::UNMEASURED));
    }

    fn region() -> heat::Region {
        heat::Region {
            range: AddrRange::new(Addr(0), Addr(2 << 20)),
            resident_pages: 512,
            measured_pages: 512,
            huge_pages: 512,
            interval: Interval::from_ns(10_000_000),
            rate_hz: 100.0,
            age_ns: 0,
            idle_ns: 0,
            sampled_pages: 0,
            estimated_pages: 0,
            hot_pages: Some(512),
        }
    }

    /// As a monitor sends it: by bits all 512 would be hot.
    #[test]
    fn pages_behind_a_huge_page_count_as_they_did_before_it() {
        // 300 small pages are hot.
        let mut target = target(histogram(&[(10, 512 + 300), (60_000, 191)]));
        target.regions.push(region());
        assert_eq!(seen(&target).heat_huge, histogram(&[(10, 512)]));
        let temperature = histogram(&[(10, 20 + 300), (60_000, 492 + 191)]);
        target.behind_huge = Some(heat::PagesBehindHuge { temperature: temperature.clone(), pages: 512, age_ns: 1 });
        let row = seen(&target);
        assert_eq!((row.heat, row.heat_huge), (temperature, histogram(&[(10, 20), (60_000, 492)])));
    }

    #[test]
    fn a_part_is_never_more_than_the_whole() {
        let all = histogram(&[(10, 100), (1000, 50), (60_000, 512)]);
        assert_eq!(part_of(&all, &histogram(&[(10, 60), (60_000, 512)])), histogram(&[(10, 60), (60_000, 512)]));
        // It was warmer when it was counted: it has grown colder since.
        assert_eq!(part_of(&all, &histogram(&[(50_000, 512)])), histogram(&[(60_000, 512)]));
        // Or hotter.
        assert_eq!(part_of(&all, &histogram(&[(90_000, 20)])), histogram(&[(60_000, 20)]));
        assert_eq!(part_of(&all, &histogram(&[(10, 9999)])), all, "there is no more");
    }
}
