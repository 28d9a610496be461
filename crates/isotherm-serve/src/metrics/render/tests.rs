//! Texts of made-up hosts: they parse, their classes add up, and nothing of an earlier snapshot is in them.

use super::*;
use crate::groups::Groups;
use isotherm_stream::{ProcessRow, Snapshot};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

type Labels = BTreeMap<String, String>;

/// A sample as a reader of the formats sees it.
#[derive(Debug)]
struct Sample {
    name: String,
    labels: Labels,
    value: f64,
}

/// Reads a text strictly: every line is a comment or a sample, and samples of a family follow its head.
fn parse(text: &str) -> Vec<Sample> {
    let mut family = String::new();
    let mut samples = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            family = rest.split(' ').next().unwrap().trim_end_matches("_total").to_owned();
        } else if !line.starts_with('#') {
            let sample = sample(line);
            assert!(sample.name.starts_with(&family), "{} after the head of {family}", sample.name);
            samples.push(sample);
        }
    }
    samples
}

fn sample(line: &str) -> Sample {
    let end = line.find(['{', ' ']).unwrap();
    let (name, mut rest) = line.split_at(end);
    let mut labels = Labels::new();
    while let Some(label) = rest.strip_prefix(['{', ',']) {
        let (key, value) = label.split_once("=\"").unwrap();
        let mut text = String::new();
        let mut chars = value.char_indices();
        let end = loop {
            match chars.next().unwrap() {
                (_, '\\') => text.push(match chars.next().unwrap().1 {
                    'n' => '\n',
                    other => other,
                }),
                (end, '"') => break end,
                (_, other) => text.push(other),
            }
        };
        assert!(labels.insert(key.to_owned(), text).is_none(), "{key} twice");
        rest = &value[end + 1..];
    }
    let value = rest.trim_start_matches('}').strip_prefix(' ').unwrap().parse().unwrap();
    Sample { name: name.to_owned(), labels, value }
}

fn process(pid: u32, cgroup: &str, pages: u64) -> ProcessRow {
    let heat = vec![(1, pages), (20, 2 * pages), (90, pages), (200, 3 * pages)];
    ProcessRow {
        pid,
        cgroup: cgroup.into(),
        comm: "work\"er\n\\".into(),
        heat: heat.clone().into(),
        heat_huge: vec![(20, pages)].into(),
        idle: heat.into(),
        estimated_pages: pages,
        cgroup_limit_bytes: Some(1 << 30),
        ..ProcessRow::default()
    }
}

fn texts(processes: Vec<ProcessRow>, extent: Extent) -> [String; 2] {
    let snapshot = Snapshot { processes, ..Snapshot::default() };
    let groups = Groups::default().of(&snapshot);
    let moment = Moment::of(&snapshot, None);
    let input = Input { host: &snapshot.host, groups: &groups, moment: &moment, actions: &[], snapshots: [3, 1] };
    let scrape = Scrape::of(&input, extent);
    [Format::Prometheus, Format::OpenMetrics].map(|format| {
        let text = String::from_utf8(scrape.text(format, false).to_vec()).unwrap();
        let mut unpacked = String::new();
        std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&*scrape.text(format, true)), &mut unpacked)
            .unwrap();
        assert_eq!(text, unpacked);
        text
    })
}

fn sum(samples: &[Sample], name: &str, with: &[(&str, &str)]) -> f64 {
    let has = |sample: &&Sample| with.iter().all(|(key, value)| sample.labels.get(*key).is_some_and(|v| v == value));
    samples.iter().filter(|sample| sample.name == name).filter(has).map(|sample| sample.value).sum()
}

#[test]
fn the_largest_have_all_series_others_three_and_the_rest_is_summed() {
    let processes = (0..1200_u32).map(|n| process(n, &format!("/c{n}"), 2000 - u64::from(n))).collect();
    let [text, _] = texts(processes, Extent { top: 10, processes: false });
    let samples = parse(&text);
    let cgroups = |name: &str| {
        let of = samples
            .iter()
            .filter(|sample| sample.name == name && sample.labels.get("window").is_none_or(|w| w == "1m"));
        of.map(|sample| sample.labels["cgroup"].as_str()).collect::<BTreeSet<_>>().len()
    };
    assert_eq!(cgroups("isotherm_memory_bytes"), 11);
    assert_eq!(cgroups("isotherm_working_set_bytes"), 1001, "a thousand, and the other two hundred");
    assert_eq!((cgroups("isotherm_unmeasured_bytes"), cgroups("isotherm_cgroup_limit_bytes")), (1001, 1000));
    // Pages of all processes: 2000 + 1999 + ... + 801, and of the ten largest 2000 + ... + 1991. Each has seven times as many.
    let all = (2000 + 801) * 1200 / 2;
    assert_eq!(sum(&samples, "isotherm_memory_bytes", &[]), f64::from(all * 7) * 4096.0);
    let others = f64::from(all - (2000 + 1991) * 10 / 2);
    assert_eq!(sum(&samples, "isotherm_memory_bytes", &[("cgroup", "other")]), others * 7.0 * 4096.0);
    assert_eq!(sum(&samples, "isotherm_unmeasured_bytes", &[]), f64::from(all) * 4096.0);
    assert_eq!(sum(&samples, "isotherm_estimated_bytes", &[]), f64::from(all) * 4096.0);
    // Of the 200 smallest: 1000 + ... + 801.
    let beyond = |name| sum(&samples, name, &[("cgroup", "beyond")]);
    assert_eq!(beyond("isotherm_unmeasured_bytes"), f64::from((1000 + 801) * 200 / 2) * 4096.0);
    assert_eq!(beyond("isotherm_memory_bytes"), 0.0);
    let in_window = |window| sum(&samples, "isotherm_working_set_bytes", &[("window", window), ("cgroup", "other")]);
    assert!(in_window("1m") == 0.0 && in_window("10s") > 0.0);
    let unlimited = sum(&samples, "isotherm_working_set_bytes", &[("window", "1m"), ("cgroup", "/c500")]);
    assert_eq!(unlimited, 3.0 * 1500.0 * 4096.0, "2 of 7 hot, 1 of 7 accessed every 2 s");
    assert!(!text.contains("isotherm_process_"));
}

#[test]
fn a_series_ends_with_its_cgroup_and_labels_come_from_the_path() {
    let extent = Extent { top: 50, processes: true };
    let [before, _] = texts(vec![process(1, "/system.slice/a.service", 5), process(2, "", 5)], extent);
    let [after, _] = texts(vec![process(2, "", 5)], extent);
    assert!(before.contains("{cgroup=\"/system.slice/a.service\",unit=\"a.service\""));
    assert!(!after.contains("a.service") && after.contains("{cgroup=\"unknown\","));
    assert!(after.contains(
        "isotherm_process_memory_bytes{pid=\"2\",comm=\"work\\\"er\\n\\\\\",cgroup=\"unknown\",class=\"hot\"} 40960"
    ));
}

#[test]
fn open_metrics_has_units_and_an_end() {
    let [_, text] = texts(vec![process(1, "/a", 5)], Extent { top: 5, processes: true });
    assert!(text.ends_with("\n# EOF\n") && text.contains("# UNIT isotherm_memory_bytes bytes\n"));
    assert!(text.contains("# TYPE isotherm_snapshots counter\nisotherm_snapshots_total 3\n"));
    parse(&text);
}

proptest! {
    #[test]
    fn texts_parse_and_classes_add_up_to_what_is_resident(
        rows in prop::collection::vec((0_usize..6, "[ -~äß\\n]{0,12}", prop::collection::vec((1_u8..=255, 0_u64..1 << 30), 0..20), 0_u64..1 << 31), 0..12),
        top in 0_usize..8,
    ) {
        let cgroups = ["", "/", "/a\"b", "/c\\d", "/e\nf", "/kubepods/pod0f1c2d3e-4a5b-6c7d-8e9f-a0b1c2d3e4f5"];
        let processes: Vec<ProcessRow> = (0..).zip(&rows).map(|(pid, (cgroup, comm, heat, elsewhere))| ProcessRow {
            pid,
            comm: comm.clone(),
            cgroup: cgroups[*cgroup].into(),
            heat: heat.clone().into(),
            idle: heat.clone().into(),
            counted_elsewhere_pages: *elsewhere,
            ..ProcessRow::default()
        }).collect();
        let kept = processes.iter().map(|row| row.heat.resident().saturating_sub(row.counted_elsewhere_pages) * 4096);
        let resident: u64 = kept.sum();
        for text in texts(processes, Extent { top, processes: true }) {
            let samples = parse(&text);
            // Below 2^53, so floats are exact.
            prop_assert_eq!(sum(&samples, "isotherm_memory_bytes", &[]), as_f64(resident));
            let keys: BTreeSet<String> = samples.iter().map(|sample| format!("{} {:?}", sample.name, sample.labels)).collect();
            prop_assert_eq!(keys.len(), samples.len(), "no series twice");
        }
    }
}
