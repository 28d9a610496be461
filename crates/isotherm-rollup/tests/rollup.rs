//! Snapshots to rows: worked examples, clocks, crashes, and a naive model.

#[allow(dead_code, reason = "the other test uses what this one does not")]
mod support;

use isotherm_heat::Interval;
use isotherm_rollup::{Host, Object, Options, Rollup, RowBatch, Rules, Table};
use isotherm_stream::{ActionRow, IdleRow, ProcessRow, Snapshot};
use proptest::prelude::*;
use std::collections::BTreeMap;
use support::{Row, S, T0, add_memory, process, rows, snapshot};

fn rollup() -> Rollup {
    Rollup::new(Host::new("", "here", ""), Rules::default(), Options::default())
}

fn all(snapshots: &[Snapshot]) -> Vec<Object> {
    let mut rollup = rollup();
    snapshots.iter().for_each(|snapshot| rollup.push(snapshot));
    rollup.finish().unwrap()
}

fn only(rows: Vec<Row>) -> Row {
    assert_eq!(rows.len(), 1, "{rows:?}");
    rows.into_iter().next().unwrap()
}

/// The code of so many seconds.
fn code(seconds: u64) -> u8 {
    Interval::from_ns(seconds * S).code()
}

#[test]
fn means_are_weighted_by_time_and_windows_are_spread_over_intervals() {
    // 100 s of 10 pages and 300 s of 30 pages, of which the last 100 s are in the next interval.
    let objects = all(&[
        snapshot(0, 100, vec![process(1, "a", &[(40, 10)])]),
        snapshot(100, 400, vec![process(1, "a", &[(40, 30)])]),
    ]);
    let heat = rows(&objects, Table::Heat);
    let seen: Vec<_> =
        heat.iter().map(|row| (row.get("time") - T0.cast_signed(), row.get("code"), row.get("pages"))).collect();
    // (100 * 10 + 200 * 30) / 300 = 23.3
    assert_eq!(seen, [(0, 40, 23), (300, 40, 30)]);
    let hosts = rows(&objects, Table::Hosts);
    let covered: Vec<_> = hosts.iter().map(|row| (row.get("covered_ns"), row.get("snapshots"))).collect();
    assert_eq!(covered, [(300 * S.cast_signed(), 1), (100 * S.cast_signed(), 1)], "the second ends in the second");
    assert_eq!((hosts[0].get("resident_bytes"), hosts[0].text("hostname")), (23 * 4096, "here"));
    assert_eq!(hosts[0].get("monitor_cpu_ns") + hosts[1].get("monitor_cpu_ns"), 400 * 10_000_000);
    let wss = rows(&objects, Table::Wss);
    assert_eq!((wss[0].get("resident_bytes"), wss[0].get("resident_max_bytes")), (23 * 4096, 30 * 4096));
}

#[test]
fn working_sets_are_sums_of_the_rows_of_heat() {
    let heat = [(1, 7), (code(5), 10), (code(30), 20), (code(300), 40), (code(3000), 80), (code(9000), 160)];
    let row = only(rows(&all(&[snapshot(0, 300, vec![process(1, "a", &heat)])]), Table::Wss));
    let pages = |name: &str| row.get(name) / 4096;
    let sets = ["wss_10s_bytes", "wss_1m_bytes", "wss_10m_bytes", "wss_1h_bytes"].map(pages);
    assert_eq!((sets, pages("resident_bytes"), pages("unmeasured_bytes")), ([10, 30, 70, 150], 317, 7));
    assert_eq!(
        (row.get("processes"), row.get("covered_ns"), row.text("service")),
        (1, 300 * S.cast_signed(), "a.service")
    );
    assert!(!row.numbers.contains_key("limit_bytes") && !row.numbers.contains_key("swapped_bytes"), "not known");
}

#[test]
fn time_without_processes_counts_as_0_so_that_restarts_add_up() {
    let pod =
        |n: u32, pages| ProcessRow { cgroup: format!("/g{n}"), comm: "java".into(), ..process(n, "x", &[(40, pages)]) };
    let objects = all(&[snapshot(0, 100, vec![pod(1, 300)]), snapshot(100, 300, vec![pod(2, 300)])]);
    let wss = rows(&objects, Table::Wss);
    let seen: Vec<_> = wss
        .iter()
        .map(|row| (row.text("cgroup"), row.get("resident_bytes") / 4096, row.get("covered_ns") / S.cast_signed()))
        .collect();
    assert_eq!(seen, [("/g1", 100, 100), ("/g2", 200, 200)]);
    assert!(wss.iter().all(|row| row.text("service") == "java" && row.get("resident_max_bytes") == 300 * 4096));
}

#[test]
fn kinds_come_from_mappings_and_codes_from_histograms() {
    let mut one = snapshot(0, 300, vec![process(1, "a", &[(40, 8), (60, 4)])]);
    add_memory(&mut one, 1, "[heap]", 10, 45);
    add_memory(&mut one, 1, "/lib/x.so", 2, 90);
    one.processes[0].swapped_bytes = Some(3 * 4096);
    let heat = rows(&all(&[one]), Table::Heat);
    let seen: Vec<_> = heat
        .iter()
        .map(|row| (row.text("kind"), row.get("code"), row.get("pages"), row.get("swapped_pages")))
        .collect();
    assert_eq!(seen, [("file", 60, 2, 0), ("heap", 40, 8, 0), ("heap", 60, 2, 0), ("other", 0, 0, 3)]);
}

#[test]
fn pages_of_several_processes_count_once() {
    let shared = ProcessRow { counted_elsewhere_pages: 60, ..process(2, "a", &[(40, 80), (60, 40)]) };
    let objects = all(&[snapshot(0, 300, vec![process(1, "a", &[(40, 80), (60, 40)]), shared])]);
    let row = only(rows(&objects, Table::Wss));
    assert_eq!((row.get("resident_bytes") / 4096, row.get("processes")), (180, 2));
}

#[test]
fn what_is_found_accessed_of_shared_pages_and_their_huge_ranges_count_once() {
    let huge = |pid| {
        let mut one = snapshot(0, 300, vec![process(pid, "a", &[(2, 1024)])]);
        add_memory(&mut one, pid, "[heap]", 1024, 2);
        one.idle = vec![IdleRow { pid, start_ticks: 0, interval: Interval::from_code(90), pages: 400 }];
        one
    };
    let ranges_and_refaults = |one: Snapshot| {
        let objects = all(&[one]);
        let ranges: i64 = rows(&objects, Table::HugeOpportunity).iter().map(|row| row.get("ranges")).sum();
        let pages: i64 = rows(&objects, Table::Refaults).iter().map(|row| row.get("pages")).sum();
        (ranges, pages)
    };
    let alone = ranges_and_refaults(huge(1));
    assert_eq!(alone, (2, 400));
    let (mut both, second) = (huge(1), huge(2));
    both.processes.push(ProcessRow { counted_elsewhere_pages: 1024, ..second.processes[0].clone() });
    both.regions.extend(second.regions);
    both.mappings.extend(second.mappings);
    both.idle.extend(second.idle);
    assert_eq!(ranges_and_refaults(both), alone, "all of its pages are those of the first");
}

#[test]
fn what_happened_is_summed() {
    let at = |start, end, bytes: u64| {
        let row = ProcessRow { left_bytes: bytes, refaulted_bytes: bytes / 4, ..process(1, "a", &[(40, 1)]) };
        let mut one = snapshot(start, end, vec![row]);
        one.idle = vec![IdleRow { pid: 1, start_ticks: 0, interval: Interval::from_code(90), pages: 5 }];
        one.actions =
            vec![ActionRow { action: "page-out".into(), result: "done".into(), huge_ranges: bytes / 100, bytes }];
        one
    };
    let objects = all(&[at(0, 100, 1000), at(100, 200, 1400), at(200, 300, 1400)]);
    let refault = only(rows(&objects, Table::Refaults));
    assert_eq!((refault.get("code"), refault.get("pages")), (90, 15));
    let wss = only(rows(&objects, Table::Wss));
    assert_eq!((wss.get("left_bytes"), wss.get("refaulted_bytes")), (1400, 350), "the monitor had just started");
    let action = only(rows(&objects, Table::Actions));
    let sums = ["huge_ranges", "bytes", "refaulted_bytes"].map(|name| action.get(name));
    assert_eq!((action.text("action"), sums), ("page-out", [14, 1400, 350]));
}

#[test]
fn a_clock_that_is_set_back_covers_no_time_twice() {
    let mut rollup = rollup();
    let mut at = |start_s: u64, end_s: u64, elapsed_s: u64| {
        let mut one = snapshot(start_s, end_s, vec![process(1, "a", &[(40, 10)])]);
        one.host.elapsed_ns = elapsed_s * S;
        // It grows as well, or this would be another monitor.
        one.host.monitor_cpu_ns = elapsed_s * S / 100;
        rollup.push(&one);
    };
    at(3600, 3700, 100);
    at(3700, 4000, 400);
    // Ten minutes back: the interval of 3300 is over.
    at(3400, 3500, 500);
    at(3800, 3950, 650);
    at(3950, 4200, 900);
    let hosts = rows(&rollup.finish().unwrap(), Table::Hosts);
    let seen: Vec<_> =
        hosts.iter().map(|row| (row.get("time") - T0.cast_signed(), row.get("covered_ns") / S.cast_signed())).collect();
    assert_eq!(seen, [(3600, 300), (3900, 300)]);
    assert_eq!(hosts[1].get("lost_snapshots"), 1);
    assert_eq!(
        hosts.iter().map(|row| row.get("clock_skew_ns")).sum::<i64>(),
        -300 * S.cast_signed(),
        "ten minutes back and five forward, whichever of them count"
    );
}

#[test]
fn a_clock_that_was_wrong_by_years_begins_anew() {
    let year = 365 * 86_400;
    let mut rollup = rollup();
    for (start_s, elapsed_s) in [(year, 300), (0, 600), (300, 900)] {
        let mut one = snapshot(start_s, start_s + 300, vec![process(1, "a", &[(40, 10)])]);
        one.host.elapsed_ns = elapsed_s * S;
        rollup.push(&one);
    }
    let hosts = rows(&rollup.finish().unwrap(), Table::Hosts);
    let times: Vec<_> = hosts.iter().map(|row| row.get("time") - T0.cast_signed()).collect();
    assert_eq!(times, [0, 300, year.cast_signed()]);
    assert!(hosts.iter().all(|row| row.get("covered_ns") == 300 * S.cast_signed()));
}

#[test]
fn a_window_in_which_the_clock_jumps_covers_what_passed() {
    let mut rollup = rollup();
    rollup.push(&snapshot(0, 10, vec![process(1, "a", &[(40, 10)])]));
    // An hour forward within ten seconds.
    let mut one = snapshot(10, 3620, vec![process(1, "a", &[(40, 10)])]);
    one.host.elapsed_ns = 20 * S;
    rollup.push(&one);
    let hosts = rows(&rollup.finish().unwrap(), Table::Hosts);
    let seen: Vec<_> = hosts
        .iter()
        .map(|row| (row.get("covered_ns") / S.cast_signed(), row.get("clock_skew_ns") / S.cast_signed()))
        .collect();
    assert_eq!(seen, [(10, 0), (10, 3600)]);
}

#[test]
fn objects_of_an_hour_come_when_it_is_over() {
    let mut rollup = rollup();
    for n in 0..12 {
        rollup.push(&snapshot(n * 300, n * 300 + 300, vec![process(1, "a", &[(40, 10)])]));
    }
    assert_eq!(rollup.take_closed((T0 + 3600) * S).unwrap(), [], "a snapshot may still come");
    let objects = rollup.take_closed((T0 + 3660) * S).unwrap();
    assert_eq!(rows(&objects, Table::Hosts).len(), 12);
    assert_eq!(rollup.finish().unwrap(), []);
}

/// An interval waits for the window that reaches across its end, however long windows are. If no more come, it does not wait for ever.
#[test]
fn long_windows_are_covered_although_time_passes_between_them() {
    let mut rollup = rollup();
    let mut objects = Vec::new();
    // Windows of ten minutes that begin and end within intervals; the clock is read each minute.
    for n in 0..6 {
        let start_s = 120 + n * 600;
        for minute in 1..10 {
            objects.extend(rollup.take_closed((T0 + start_s + minute * 60) * S).unwrap());
        }
        rollup.push(&snapshot(start_s, start_s + 600, vec![process(1, "a", &[(40, 10)])]));
    }
    // The last one ended at 3720; the next one would at 4320, and may be a minute late.
    objects.extend(rollup.take_closed((T0 + 4379) * S).unwrap());
    assert!(!rows(&objects, Table::Hosts).iter().any(|row| row.get("time") == T0.cast_signed() + 3600));
    objects.extend(rollup.take_closed((T0 + 4380) * S).unwrap());
    objects.extend(rollup.finish().unwrap());
    let hosts = rows(&objects, Table::Hosts);
    let covered: i64 = hosts.iter().map(|row| row.get("covered_ns")).sum();
    assert_eq!(covered, 3600 * S.cast_signed());
}

#[test]
fn lost_snapshots_are_counted_in_the_interval_in_which_they_are_reported() {
    let mut rollup = rollup();
    rollup.lost(2);
    rollup.push(&snapshot(0, 10, vec![]));
    rollup.lost(3);
    let host = only(rows(&rollup.finish().unwrap(), Table::Hosts));
    assert_eq!((host.get("lost_snapshots"), host.get("snapshots")), (5, 1));
}

#[test]
fn groups_beyond_the_limit_are_one() {
    let options = Options { max_groups: 2, ..Options::default() };
    let mut rollup = Rollup::new(Host::default(), Rules::default(), options);
    let many = (0..5).map(|n| process(n, &format!("s{n}"), &[(40, 10)])).collect();
    rollup.push(&snapshot(0, 300, many));
    let objects = rollup.finish().unwrap();
    let wss = rows(&objects, Table::Wss);
    assert_eq!(wss.len(), 3);
    assert_eq!((wss[0].text("service"), wss[0].get("resident_bytes") / 4096), ("(beyond)", 30));
}

/// Whatever was spooled and restored, objects are those of a run without a crash; what was in the open interval is lost.
#[test]
fn after_a_crash_spooled_rows_give_the_objects_that_they_would_have_given() {
    let of = |n: u64| snapshot(n * 60, n * 60 + 60, vec![process(1, "a", &[(40, n + 1), (60, 3)])]);
    let mut whole = rollup();
    (0..40).for_each(|n| whole.push(&of(n)));
    let expected = whole.finish().unwrap();
    let mut first = rollup();
    let mut spool: Vec<Vec<u8>> = Vec::new();
    for n in 0..20 {
        first.push(&of(n));
        spool.extend(first.rows_closed().iter().map(|batch| batch.to_bytes().unwrap()));
    }
    drop(first);
    // Killed after 20 minutes. The interval from 15 minutes on was open, as its last window ends with it.
    let mut second = rollup();
    for bytes in spool {
        second.restore(RowBatch::from_bytes(bytes).unwrap());
    }
    (15..40).for_each(|n| second.push(&of(n)));
    let found = second.finish().unwrap();
    let names = |objects: &[Object]| objects.iter().map(|object| object.path.clone()).collect::<Vec<_>>();
    assert_eq!(names(&found), names(&expected));
    for table in [Table::Heat, Table::Wss] {
        assert_eq!(rows(&found, table), rows(&expected, table));
    }
    assert!(RowBatch::from_bytes(vec![1, 2, 3]).unwrap_err().to_string().contains("delete them"));
}

#[test]
fn time_of_an_earlier_run_is_not_covered_again() {
    let options = Options { after_unix_ns: (T0 + 300) * S, ..Options::default() };
    let mut rollup = Rollup::new(Host::default(), Rules::default(), options);
    rollup.push(&snapshot(100, 200, vec![process(1, "a", &[(40, 10)])]));
    rollup.push(&snapshot(200, 400, vec![process(1, "a", &[(40, 10)])]));
    let host = only(rows(&rollup.finish().unwrap(), Table::Hosts));
    assert_eq!(
        (host.get("time") - T0.cast_signed(), host.get("covered_ns"), host.get("lost_snapshots")),
        (300, 100 * S.cast_signed(), 1)
    );
}

#[test]
fn what_is_cut_or_changed_is_refused_or_read() {
    let mut rollup = rollup();
    rollup.push(&snapshot(0, 600, vec![process(1, "a", &[(40, 10), (60, 3)]), process(2, "b", &[(50, 7)])]));
    let batch = rollup.rows_closed().into_iter().find(|batch| batch.table() == Table::Heat).unwrap();
    let bytes = batch.to_bytes().unwrap();
    let back = RowBatch::from_bytes(bytes.clone()).unwrap();
    assert_eq!(
        (back.table(), back.rows(), back.time_s(), back.hour_s()),
        (Table::Heat, 3, T0.cast_signed(), T0.cast_signed())
    );
    for end in (0..bytes.len()).step_by(7) {
        assert!(RowBatch::from_bytes(bytes[..end].to_vec()).is_err(), "{end} of {}", bytes.len());
    }
    // Hides the messages of panics that are caught. Up to the footer, whose lengths the decoder believes.
    std::panic::set_hook(Box::new(|_| {}));
    let (_, tail) = bytes.split_at(bytes.len() - 8);
    let footer = usize::try_from(u32::from_le_bytes(tail[..4].try_into().unwrap())).unwrap() + 8;
    for at in 0..bytes.len() - footer {
        let mut changed = bytes.clone();
        changed[at] ^= 0x55;
        if let Ok(read) = RowBatch::from_bytes(changed) {
            assert!(read.rows() <= 3, "byte {at}");
        }
    }
}

/// A window: seconds since the last one ended, its length, and pages by process and code.
type Window = (u64, u64, Vec<(u8, u8, u64)>);

fn windows() -> impl Strategy<Value = Vec<Window>> {
    let heat = prop::collection::vec((0_u8..4, 1_u8..12, 1_u64..1000), 0..12);
    prop::collection::vec((prop_oneof![4 => Just(0), 1 => 0_u64..700], 1_u64..400, heat), 1..30)
}

fn of_window(start: u64, end: u64, heat: &[(u8, u8, u64)]) -> Snapshot {
    let mut processes: BTreeMap<u8, Vec<(u8, u64)>> = BTreeMap::new();
    heat.iter().for_each(|(pid, code, pages)| processes.entry(*pid).or_default().push((*code * 20, *pages)));
    // Two processes of each of two services.
    let row = |(pid, heat): (u8, Vec<(u8, u64)>)| process(pid.into(), ["a", "b"][usize::from(pid % 2)], &heat);
    snapshot(start, end, processes.into_iter().map(row).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Each second by itself: which window covers it, and which pages there are. proptest prints the input that failed.
    #[test]
    fn rows_are_those_of_a_count_second_by_second(windows in windows()) {
        let mut rollup = rollup();
        let mut pages: BTreeMap<(u64, String, i64), u64> = BTreeMap::new();
        let mut covered: BTreeMap<u64, u64> = BTreeMap::new();
        let mut at = 0;
        for (gap, length, heat) in &windows {
            let (start, end) = (at + gap, at + gap + length);
            at = end;
            let one = of_window(start, end, heat);
            for second in start..end {
                *covered.entry(second / 300).or_default() += 1;
                for row in &one.processes {
                    for (code, n) in row.heat.iter() {
                        let service = format!("{}.service", row.comm);
                        *pages.entry((second / 300, service, code.code().into())).or_default() += n;
                    }
                }
            }
            rollup.push(&one);
        }
        let objects = rollup.finish().unwrap();
        let hosts = rows(&objects, Table::Hosts);
        let of = |row: &Row| u64::try_from(row.get("time")).unwrap() / 300 - T0 / 300;
        let found: BTreeMap<u64, u64> = hosts.iter().map(|row| (of(row), row.get("covered_ns").cast_unsigned() / S)).collect();
        prop_assert_eq!(&found, &covered);
        let mut sums: BTreeMap<(u64, String), i64> = BTreeMap::new();
        let mut found: BTreeMap<(u64, String, i64), i64> = BTreeMap::new();
        for row in rows(&objects, Table::Heat) {
            let service = row.text("service").to_owned();
            *sums.entry((of(&row), service.clone())).or_default() += row.get("pages");
            *found.entry((of(&row), service, row.get("code"))).or_default() += row.get("pages");
        }
        for (key, sum) in &pages {
            let found = found.remove(key).unwrap_or_default().cast_unsigned();
            // Rounded as running sums: less than one page off.
            prop_assert!((found * covered[&key.0]).abs_diff(*sum) <= covered[&key.0], "{:?}: {} {}", key, found, sum);
        }
        prop_assert!(found.is_empty(), "{:?}", found);
        let mut by_service: BTreeMap<(u64, String), u64> = BTreeMap::new();
        pages.iter().for_each(|((at, service, _), sum)| *by_service.entry((*at, service.clone())).or_default() += sum);
        for (key, sum) in by_service {
            let covered = covered[&key.0];
            prop_assert_eq!(sums.get(&key).copied().unwrap_or_default().cast_unsigned(), (2 * sum + covered) / (2 * covered));
        }
        let residents: i64 = rows(&objects, Table::Wss).iter().map(|row| row.get("resident_bytes")).sum();
        prop_assert_eq!(residents, sums.values().sum::<i64>() * 4096);
        prop_assert_eq!(residents, hosts.iter().map(|row| row.get("resident_bytes")).sum::<i64>());
    }

    /// Clocks that go anywhere: no panic, no interval covered for longer than it lasts, and times go on unless they were wrong by an hour.
    #[test]
    fn no_clock_covers_more_than_there_is(
        moves in prop::collection::vec((-9000_i64..9000, -500_i64..500, 0_u64..500), 1..40),
    ) {
        let mut rollup = rollup();
        let (mut now, mut elapsed) = (1_000_000_i64, 0);
        for (jump, window, passed) in moves {
            elapsed += passed;
            now += i64::try_from(passed).unwrap() + if jump.abs() < 4500 { jump / 10 } else { jump };
            let now = now.cast_unsigned();
            let mut one = snapshot(now.saturating_add_signed(-window), now, vec![process(1, "a", &[(40, 10)])]);
            one.host.elapsed_ns = elapsed * S;
            one.host.monitor_cpu_ns = elapsed;
            rollup.push(&one);
            rollup.take_closed(one.host.end_unix_ns).unwrap();
        }
        let hosts = rows(&rollup.finish().unwrap(), Table::Hosts);
        for row in &hosts {
            prop_assert!((0..=300 * S.cast_signed()).contains(&row.get("covered_ns")), "{:?}", row);
            prop_assert_eq!(row.get("time") % 300, 0);
        }
    }
}
