//! Whatever snapshots go in come out, finished or not.

use crate::{place, samples};
use isotherm_heat::*;
use isotherm_record::{Options, Recording, Writer};
use isotherm_units::{Addr, AddrRange, Bytes};
use proptest::collection::{btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use std::time::Duration;

fn ranges() -> impl Strategy<Value = AddrRange> {
    (any::<u64>(), any::<u64>()).prop_map(|(start, end)| AddrRange::new(Addr(start), Addr(end)))
}

fn intervals() -> impl Strategy<Value = Interval> {
    any::<u8>().prop_map(Interval::from_code)
}

fn histograms() -> impl Strategy<Value = Histogram> {
    // The sum of 256 such counts has room in 64 bits.
    vec((any::<u8>(), 0..1_u64 << 50), 0..6).prop_map(Histogram::from)
}

fn regions() -> impl Strategy<Value = Region> {
    let pages = (any::<u64>(), any::<u64>(), any::<u64>());
    (ranges(), pages, intervals(), any::<f32>(), (any::<[u64; 4]>(), any::<Option<u64>>())).prop_map(
        |(
            range,
            (resident_pages, measured_pages, huge_pages),
            interval,
            rate_hz,
            ([age_ns, idle_ns, sampled_pages, estimated_pages], hot_pages),
        )| {
            Region {
                range,
                resident_pages,
                measured_pages,
                huge_pages,
                interval,
                rate_hz,
                age_ns,
                idle_ns,
                sampled_pages,
                estimated_pages,
                hot_pages,
            }
        },
    )
}

fn mappings() -> impl Strategy<Value = Mapping> {
    // Few names and addresses, so that sets repeat and repeat nearly.
    (0..3_u64, "[ab]{0,1}", any::<bool>()).prop_map(|(start, name, shared)| Mapping {
        range: AddrRange::new(Addr(start), Addr(5)),
        name,
        perms: if shared { "rw-s" } else { "rw-p" }.parse().unwrap(),
    })
}

fn targets() -> impl Strategy<Value = TargetHeat> {
    let all = (bare_targets(), facts(), option::of(behind_huge()));
    all.prop_map(|(target, facts, behind_huge)| TargetHeat { facts, behind_huge, ..target })
}

fn behind_huge() -> impl Strategy<Value = PagesBehindHuge> {
    let all = (histograms(), 1..=u64::MAX, any::<u64>());
    all.prop_map(|(temperature, pages, age_ns)| PagesBehindHuge { temperature, pages, age_ns })
}

fn bare_targets() -> impl Strategy<Value = TargetHeat> {
    let texts = ("\\PC{0,4}", "\\PC{0,4}", any::<bool>(), any::<bool>());
    let lists = (vec(regions(), 0..4), vec(mappings(), 0..3), histograms(), histograms());
    (texts, lists, any::<[u64; 3]>()).prop_map(|((comm, cgroup, exited, fine), lists, pages)| TargetHeat {
        id: TargetId { pid: 0, start_ticks: 0 },
        comm,
        cgroup,
        exited,
        granularity: if fine { Granularity::Page } else { Granularity::Mapping },
        regions: lists.0,
        mappings: lists.1.into(),
        temperature: lists.2,
        idle: lists.3,
        counted_elsewhere_pages: pages[0],
        maybe_shared_pages: pages[1],
        unclearable_pages: pages[2],
        behind_huge: None,
        idle_by_mapping: Vec::new(),
        facts: TargetFacts::default(),
    })
}

fn facts() -> impl Strategy<Value = TargetFacts> {
    let (memory, bytes) = (any::<Option<[u64; 4]>>(), any::<[Option<u64>; 2]>());
    let acted = any::<Option<[u64; 6]>>();
    (any::<u64>(), any::<bool>(), memory, bytes, acted).prop_map(
        |(cleared_by_others_pages, runs_guest, memory, bytes, acted)| TargetFacts {
            cleared_by_others_pages,
            runs_guest,
            swapped: bytes[0].map(Bytes),
            cgroup_limit: bytes[1].map(Bytes),
            cgroup_memory: memory.map(|of| {
                let [anon, file, slab, swap] = of.map(Bytes);
                CgroupMemory { anon, file, slab, swap }
            }),
            acted: acted.map(|of| {
                let [left_bytes, out_bytes, refaulted_bytes, demoted_bytes, promoted_bytes, returned_bytes] =
                    of.map(Bytes);
                Acted { left_bytes, out_bytes, refaulted_bytes, demoted_bytes, promoted_bytes, returned_bytes }
            }),
        },
    )
}

fn snapshots() -> impl Strategy<Value = Snapshot> {
    // Few processes, so that they come and go.
    let ids = btree_set((0..3_u32, 0..2_u64), 0..5);
    let cost = (any::<[u64; 10]>(), any::<f64>()).prop_map(|(n, slowdown_pct)| Cost {
        elapsed_ns: n[0],
        monitor_cpu_ns: n[1],
        pages_read: n[2],
        pages_cleared: n[3],
        pages_retouched: n[4],
        slowdown_pct,
        longest_hold_ns: n[5],
        read_errors: n[6],
        samples: n[7],
        samples_lost: n[8],
        events: n[9],
    });
    (any::<u64>(), any::<u64>(), ids, vec(targets(), 5), cost).prop_map(|(start, end, ids, targets, cost)| Snapshot {
        start_unix_ns: start,
        end_unix_ns: end,
        targets: ids
            .into_iter()
            .zip(targets)
            .map(|((pid, start_ticks), target)| TargetHeat {
                id: TargetId { pid: u32::MAX - pid, start_ticks },
                ..target
            })
            .collect(),
        cost,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn what_was_written_is_read(all in vec(snapshots(), 0..8), max_rows in 0..80_usize, finish: bool) {
        let (_parent, path) = place();
        let options = Options { max_rows, flush_interval: Duration::MAX, ..Options::default() };
        let mut writer = Writer::create(&path, &samples::run(), options).unwrap();
        for snapshot in &all {
            writer.push(snapshot).unwrap();
        }
        let kept = usize::try_from(writer.kept()).unwrap();
        let expected = if finish {
            writer.finish().unwrap();
            &all[..]
        } else {
            drop(writer);
            &all[..kept]
        };
        let recording = Recording::open(&path).unwrap();
        prop_assert_eq!(recording.read_all().unwrap(), expected);
    }
}

/// Larger than a batch of rows and than a row group.
#[test]
fn a_long_recording_streams() {
    let (_parent, path) = place();
    let mut writer =
        Writer::create(&path, &samples::run(), Options { max_rows: 30_000, ..Options::default() }).unwrap();
    let wide = |i: u64| {
        let mut snapshot = samples::snapshot(i);
        snapshot.start_unix_ns = 0;
        snapshot.end_unix_ns = 0;
        let region = snapshot.targets[0].regions[0];
        snapshot.targets[0].regions = (0..700).map(|age_ns| Region { age_ns, ..region }).collect();
        snapshot
    };
    for i in 0..250 {
        writer.push(&wide(i)).unwrap();
    }
    assert!(writer.kept() > 200);
    writer.finish().unwrap();
    let mut count = 0;
    for (i, snapshot) in (0..).zip(Recording::open(&path).unwrap().snapshots()) {
        assert_eq!(snapshot.unwrap(), wide(i));
        count += 1;
    }
    assert_eq!(count, 250);
}
