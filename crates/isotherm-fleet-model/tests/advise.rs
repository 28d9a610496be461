//! Advice for modelled hosts, compared with what is true of their services.

use isotherm_fleet_model::host::{Flaw, Modelled, Span};
use isotherm_fleet_model::truth::Row;
use isotherm_rollup::advise::{Advice, Advisor, Confidence};
use isotherm_rollup::{Object, Table};
use std::collections::BTreeMap;

const DAY_S: u64 = 86_400;
const SEED: u64 = 1;

fn run(number: u64, days: u64) -> (Vec<Advice>, BTreeMap<String, Row>, u64, Vec<Object>) {
    let start_s = 20_500 * DAY_S;
    let span = Span { start_s, end_s: start_s + days * DAY_S };
    let mut objects = Vec::new();
    let mut put = |object: Object| {
        objects.push(object);
        Ok(())
    };
    let truth = Modelled::new(SEED, number, span).run(SEED, span, &mut put).unwrap();
    let mut advisor = Advisor::new(None);
    for table in Advisor::TABLES {
        for object in objects.iter().filter(|object| object.table == table) {
            advisor.add_object(object.bytes.clone()).unwrap();
        }
    }
    let rows = truth.rows().into_iter().map(|row| (row.service.clone(), row)).collect();
    (advisor.advice(), rows, span.end_s - span.start_s, objects)
}

fn near(found: u64, truth: u64, share: f64) -> bool {
    found.abs_diff(truth) as f64 <= truth as f64 * share + f64::from(1 << 20)
}

#[test]
fn advice_is_near_the_truth() {
    let (advice, truth, ..) = run(0, 4);
    assert_eq!((Flaw::of(0), advice.len()), (Flaw::None, truth.len()), "seed {SEED}");
    for one in &advice {
        let row = &truth[&one.service];
        assert_eq!(one.confidence, Confidence::Medium, "{one:?}");
        // Intervals in which it was deployed count here, and not in the truth.
        assert!(near(one.evidence.wss_10m_p50_bytes, row.wss_10m_p50_bytes, 0.08), "seed {SEED}: {one:?} {row:?}");
        assert!(near(one.request_bytes.unwrap(), row.wss_10m_p95_bytes, 0.08), "seed {SEED}: {one:?} {row:?}");
        assert!(one.limit_bytes.unwrap() > row.resident_p99_bytes, "seed {SEED}: {one:?} {row:?}");
        assert!(
            one.limit_with_swap_bytes.is_none_or(|limit| limit > row.wss_10m_p99_bytes),
            "seed {SEED}: {one:?} {row:?}"
        );
        assert!(near(one.hot_not_huge_bytes.unwrap(), row.hot_not_huge_bytes, 0.15), "seed {SEED}: {one:?} {row:?}");
        // What leaks faster than it may, and is not deployed more often than it takes to see it.
        if let Some(growth) = one.growth_bytes_per_day {
            assert!(row.leaks && near(growth, row.leak_bytes_per_day, 0.5), "seed {SEED}: {one:?} {row:?}");
        }
    }
    let log_agent = advice.iter().find(|one| one.service == "log-agent.service").unwrap();
    assert!(log_agent.growth_bytes_per_day.is_some(), "seed {SEED}: {log_agent:?}");
}

#[test]
fn advice_is_withheld_where_little_is_covered() {
    let is_thin = |number: &u64| Flaw::of(*number) == Flaw::Thin;
    let mut advice = (0..100).filter(is_thin).map(|number| run(number, 1).0);
    let advice =
        advice.find(|advice| advice.iter().all(|one| one.covered_hours < 6)).expect("a host with little coverage");
    for one in &advice {
        assert_eq!((one.confidence, one.limit_bytes, one.request_bytes), (Confidence::Withheld, None, None));
        assert!(one.because.contains("at least 6 are needed"), "seed {SEED}: {one:?}");
    }
}

/// The same fleet each time: what reports are compared with does not change by itself.
#[test]
fn a_host_is_the_same_each_time_and_all_of_its_time_is_there() {
    let (.., seconds, objects) = run(1, 1);
    assert_eq!(objects, run(1, 1).3, "seed {SEED}");
    assert!(objects.len() <= 200, "{} objects a day", objects.len());
    let rows: usize = objects.iter().filter(|object| object.table == Table::Hosts).map(|object| object.rows).sum();
    assert_eq!(rows as u64, seconds / 300);
}

/// After a clock was set back by hours, an hour comes a second time, of a time that it was not.
#[test]
fn an_interval_that_a_host_had_twice_does_not_count() {
    let (once, _, _, objects) = run(0, 4);
    let half = objects.iter().filter(|object| object.table == Table::Hosts).count() / 2;
    let mut advisor = Advisor::new(None);
    for table in Advisor::TABLES {
        let of_table: Vec<&Object> = objects.iter().filter(|object| object.table == table).collect();
        let again = &of_table[half.min(of_table.len())..];
        for object in of_table.iter().chain(again) {
            advisor.add_object(object.bytes.clone()).unwrap();
        }
    }
    let others: BTreeMap<String, Advice> =
        advisor.advice().into_iter().map(|advice| (advice.service.clone(), advice)).collect();
    for one in &once {
        let other = &others[&one.service];
        assert!(other.covered_hours < one.covered_hours, "{one:?} {other:?}");
        assert!(other.evidence.resident_p99_bytes <= one.evidence.resident_p99_bytes * 3 / 2, "{one:?} {other:?}");
    }
}
