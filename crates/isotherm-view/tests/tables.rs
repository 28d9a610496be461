//! Every table as text at three widths and as JSON, kept as snapshots.

use isotherm_heat::{Snapshot, Thresholds};
use isotherm_view::TextStyle;
use isotherm_view::tables::{
    AccessOptions, AccessReport, CgroupReport, ColdBy, ColdReport, HistogramOptions, HistogramReport, ProcessReport,
    RefaultOptions, RefaultReport, SortBy, WssOptions, WssReport,
};
use std::io::{self, Write};
use unicode_width::UnicodeWidthStr;

#[path = "../examples/support/sample.rs"]
#[allow(dead_code, missing_docs, reason = "shared with the examples, each of which uses a part")]
mod sample;

fn text(width: usize, write: impl Fn(&mut dyn Write, TextStyle) -> io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out, TextStyle { width, ascii: false }).unwrap();
    let text = String::from_utf8(out).unwrap();
    for line in text.lines() {
        assert!(line.width() <= width, "{width}: {line}");
        assert_eq!(line, line.trim_end());
        assert!(!line.contains('\x1b'), "{line}");
    }
    text
}

/// A small series: three seconds with all targets in the middle one, one of them with a hostile name.
fn few() -> Vec<Snapshot> {
    let mut series = sample::series(3);
    for snapshot in &mut series {
        snapshot.targets[0].regions.truncate(6);
        snapshot.targets[0].comm = "evil\x1b[2Jname".to_owned();
    }
    series
}

macro_rules! snapshots_of {
    ($name:literal, $report:expr) => {
        let report = $report;
        for width in [20, 80, 200] {
            insta::assert_snapshot!(
                concat!($name, "_").to_owned() + &width.to_string(),
                text(width, |out, style| report.write_text(out, style))
            );
        }
        insta::assert_snapshot!(concat!($name, "_json"), serde_json::to_string_pretty(&report).unwrap());
    };
}

#[test]
fn access() {
    let options = AccessOptions { sort: SortBy::Heat, ..AccessOptions::default() };
    snapshots_of!("access", AccessReport::build(&few()[1], &options));
}

#[test]
fn wss() {
    snapshots_of!("wss", WssReport::build(&few(), &WssOptions::default()));
}

#[test]
fn histogram() {
    snapshots_of!("histogram", HistogramReport::build(&few()[1], &HistogramOptions { per_target: false }));
}

#[test]
fn processes() {
    snapshots_of!("processes", ProcessReport::build(&few()[1], Thresholds::default()));
}

#[test]
fn cgroups() {
    snapshots_of!("cgroups", CgroupReport::build(&few()[1], Thresholds::default()));
}

#[test]
fn cold_memory() {
    let mut minutes = few();
    minutes[1].cost.elapsed_ns = 700 * sample::SECOND;
    let last = &minutes[1];
    snapshots_of!("cold_by_process", ColdReport::build(last, ColdBy::Process));
    snapshots_of!("cold_by_cgroup", ColdReport::build(last, ColdBy::Cgroup));
    snapshots_of!("cold_by_mapping", ColdReport::build(last, ColdBy::Mapping));
}

#[test]
fn refaults() {
    snapshots_of!("refaults", RefaultReport::build(&sample::series(90), RefaultOptions { max_pct: 1.0 }));
}

#[test]
fn nothing_at_all_is_a_report_too_at_any_width() {
    let empty = sample::snapshot(1, vec![]);
    for width in [0, 1, 2, 7, 20, 80, usize::MAX] {
        text(width, |out, s| AccessReport::build(&empty, &AccessOptions::default()).write_text(out, s));
        text(width, |out, s| WssReport::build::<Snapshot>(&[], &WssOptions::default()).write_text(out, s));
        text(width, |out, s| HistogramReport::build(&empty, &HistogramOptions::default()).write_text(out, s));
        text(width, |out, s| ProcessReport::build(&empty, Thresholds::default()).write_text(out, s));
        text(width, |out, s| CgroupReport::build(&empty, Thresholds::default()).write_text(out, s));
        for by in [ColdBy::Process, ColdBy::Cgroup, ColdBy::Mapping] {
            text(width, |out, s| ColdReport::build(&empty, by).write_text(out, s));
        }
        text(width, |out, s| RefaultReport::build::<Snapshot>(&[], RefaultOptions::default()).write_text(out, s));
    }
}

#[test]
fn no_width_breaks_a_full_report() {
    let series = sample::series(12);
    let last = &series[6];
    for width in 0..130 {
        text(width, |out, s| AccessReport::build(last, &AccessOptions::default()).write_text(out, s));
        text(width, |out, s| WssReport::build(&series, &WssOptions::default()).write_text(out, s));
        text(width, |out, s| HistogramReport::build(last, &HistogramOptions { per_target: true }).write_text(out, s));
        text(width, |out, s| ProcessReport::build(last, Thresholds::default()).write_text(out, s));
        text(width, |out, s| CgroupReport::build(last, Thresholds::default()).write_text(out, s));
        for by in [ColdBy::Process, ColdBy::Cgroup, ColdBy::Mapping] {
            text(width, |out, s| ColdReport::build(last, by).write_text(out, s));
        }
        text(width, |out, s| RefaultReport::build(&series, RefaultOptions::default()).write_text(out, s));
    }
}
