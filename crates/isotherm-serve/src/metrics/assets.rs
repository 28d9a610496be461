//! Files that are made from the table of metrics and committed: a dashboard, alert rules, and the page of the reference.
//!
//! A test checks that the committed ones are current; `UPDATE_ASSETS=1 cargo test -p isotherm-serve --test assets` writes them.

use super::table::{
    ACTIONS, CGROUP_LIMIT, HOT_SMALL, IDLE_AGE, LAST_SNAPSHOT, LOST_SNAPSHOTS, MEMORY, MONITOR_CPU, MONITOR_CPU_BUDGET,
    PAGED_OUT, REFAULTED, SLOWDOWN, SLOWDOWN_BUDGET, UNMEASURED, WINDOW, WORKING_SET,
};
use super::table::{ALL, CGROUP_LABELS, Kind, MAX_CGROUPS, MAX_PROCESSES, Metric, Of, PROCESS_LABELS};
use crate::args::{Args, Print};
use clap::CommandFactory;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// The text of a file.
pub fn text(what: Print) -> String {
    match what {
        Print::Dashboard => dashboard(),
        Print::Rules => rules(),
        Print::MetricsPage => page(),
        Print::ManPage => man_page(),
    }
}

/// The manual page. It is of section 8: people start the server by `isotherm serve`, and service managers by itself.
fn man_page() -> String {
    let man = clap_mangen::Man::new(Args::command()).section("8").manual("Isotherm Manual");
    let mut page = Vec::new();
    let written = man.source(format!("isotherm {}", env!("CARGO_PKG_VERSION"))).render(&mut page);
    written.expect("a vector takes any page");
    String::from_utf8_lossy(&page).into_owned()
}

/// One alert.
struct Alert {
    name: &'static str,
    expr: String,
    wait: &'static str,
    severity: &'static str,
    summary: &'static str,
    description: &'static str,
}

/// Sums of [`MEMORY`] over classes and page sizes. Nobody can page out or limit the cgroup of all others.
fn memory_of(class: &str) -> String {
    format!("sum without (class, page_size) ({}{{cgroup!=\"other\"{class}}})", MEMORY.name)
}

/// By which series of one host are joined: names of hosts are unique in a cluster, and alerts are routed by the others. A pod that was replaced is
/// found, too.
const BY_HOST: &str = "by (cluster, namespace, job, instance)";
/// Heat of guests is never known.
const NO_GUESTS: &str = "cgroup!~\"/machine.slice/machine-qemu.*\"";

fn capacity_alerts() -> [Alert; 3] {
    let (wss, limit) = (WORKING_SET.name, CGROUP_LIMIT.name);
    [
        Alert {
            name: "IsothermWorkingSetNearLimit",
            expr: format!("{wss}{{window=\"1m\"}} / ignoring (window) {limit} > 0.9"),
            wait: "10m",
            severity: "warning",
            summary: "Working set of {{ $labels.cgroup }} on {{ $labels.instance }} is near its memory limit",
            description: "{{ $value | humanizePercentage }} of the limit, which is its own or one above it (that others may share), is accessed every minute. Little is left to reclaim: raise the limit, or move load away.",
        },
        Alert {
            name: "IsothermLargeColdShare",
            expr: format!(
                "{} / {} > 0.7 and {} > 1073741824",
                memory_of(",class=\"idle\""),
                memory_of(""),
                memory_of("")
            ),
            wait: "1h",
            severity: "info",
            summary: "Most memory of {{ $labels.cgroup }} on {{ $labels.instance }} is cold",
            description: "{{ $value | humanizePercentage }} of its resident memory has been accessed less often than every minute, for an hour. It could be paged out, or its limit lowered.",
        },
        Alert {
            name: "IsothermRefaults",
            // 64 pages a minute are allowed however small the working set. The ceiling itself is by process.
            expr: format!(
                "60 * rate({0}[5m]) / ignoring (window) {wss}{{window=\"1m\"}} > 0.002 and 60 * rate({0}[5m]) > 262144",
                REFAULTED.sample_name()
            ),
            wait: "5m",
            severity: "warning",
            summary: "Memory of {{ $labels.cgroup }} on {{ $labels.instance }} comes back after it was paged out",
            description: "{{ $value | humanizePercentage }} of the working set comes back each minute. isotherm status shows of which process, and whether page-out has stopped for it; a longer min_idle avoids it.",
        },
    ]
}

fn health_alerts() -> [Alert; 4] {
    [
        Alert {
            name: "IsothermDown",
            expr: "up{job=\"isotherm\"} == 0".into(),
            wait: "5m",
            severity: "critical",
            summary: "Isotherm on {{ $labels.instance }} does not answer",
            description: "Scrapes have failed for five minutes: the server or its monitor has ended or never had a window, or the token or the certificate is wrong. The page of targets in Prometheus has the answer.",
        },
        Alert {
            name: "IsothermMonitorBlind",
            expr: format!(
                "sum {BY_HOST} ({}{{{NO_GUESTS}}}) / sum {BY_HOST} ({}{{{NO_GUESTS}}}) > 0.5",
                UNMEASURED.name, MEMORY.name
            ),
            wait: "30m",
            severity: "warning",
            summary: "Isotherm knows little of the memory of {{ $labels.instance }}",
            description: "The heat of {{ $value | humanizePercentage }} of the memory is not known. Raise --max-cpu, or watch fewer processes. Of KVM guests and hugetlb pages it is never known; isotherm doctor names what else is missing.",
        },
        Alert {
            name: "IsothermNoSnapshots",
            // Where scrapes fail, the series ends: that is the other alert's.
            expr: format!(
                "time() - max {BY_HOST} ({}) > 120 + 2 * max {BY_HOST} ({})",
                LAST_SNAPSHOT.name, WINDOW.name
            ),
            wait: "1m",
            severity: "critical",
            summary: "Isotherm on {{ $labels.instance }} sends no snapshots",
            description: "The newest snapshot is {{ $value | humanizeDuration }} old: the monitor is stopped or waits, its snapshots are too large to send, or the clock of the host is wrong.",
        },
        Alert {
            name: "IsothermSnapshotsLost",
            expr: format!("increase({}[10m]) > 0", LOST_SNAPSHOTS.sample_name()),
            wait: "0m",
            severity: "info",
            summary: "Snapshots of {{ $labels.instance }} were lost",
            description: "The server was too slow for some snapshots of the last ten minutes, or they were too large to send. Lower --max-regions, or use longer windows.",
        },
    ]
}

fn rules() -> String {
    let mut out = String::from(
        "# Alert rules for Prometheus, made from the table of metrics: isotherm-serve --print rules\ngroups:\n  - name: isotherm\n    rules:\n",
    );
    for alert in capacity_alerts().iter().chain(&health_alerts()) {
        let _ = write!(
            out,
            "      - alert: {}\n        expr: '{}'\n        for: {}\n        labels:\n          severity: {}\n        annotations:\n          summary: '{}'\n          description: '{}'\n",
            alert.name, alert.expr, alert.wait, alert.severity, alert.summary, alert.description
        );
    }
    out
}

/// A chart: its title, its unit in Grafana, and its lines with their names.
type Chart = (&'static str, &'static str, Vec<(String, &'static str)>);

/// The filter of the dashboard's variables.
const CHOSEN: &str = "instance=~\"$instance\",cgroup=~\"$cgroup\"";
const CHOSEN_HOST: &str = "instance=~\"$instance\"";
/// The name of a line of a cgroup.
const OF_CGROUP: &str = "{{instance}} {{cgroup}}";

fn charts() -> impl Iterator<Item = Chart> {
    charts_of_memory().into_iter().chain(charts_of_monitor())
}

fn charts_of_memory() -> Vec<Chart> {
    let memory = MEMORY.name;
    let (wss, hot_small) = (WORKING_SET.name, HOT_SMALL.name);
    let by_age = format!("sum by (le) ({}_bucket{{{CHOSEN}}})", IDLE_AGE.name);
    vec![
        ("Memory by class", "bytes", vec![(format!("sum by (class) ({memory}{{{CHOSEN}}})"), "{{class}}")]),
        ("Working set by window", "bytes", vec![(format!("sum by (window) ({wss}{{{CHOSEN}}})"), "{{window}}")]),
        ("Largest working sets, 1 m", "bytes", vec![(format!("topk(10, {wss}{{window=\"1m\",{CHOSEN}}})"), OF_CGROUP)]),
        (
            "Working set as a share of the limit",
            "percentunit",
            vec![(
                format!(
                    "topk(10, {wss}{{window=\"1m\",{CHOSEN}}} / ignoring (window) {}{{{CHOSEN}}})",
                    CGROUP_LIMIT.name
                ),
                OF_CGROUP,
            )],
        ),
        ("Hot memory on small pages", "bytes", vec![(format!("topk(10, {hot_small}{{{CHOSEN}}})"), OF_CGROUP)]),
        ("Memory accessed within", "bytes", vec![(by_age, "{{le}} s")]),
        (
            "Paged out, and what comes back",
            "bytes",
            vec![
                (format!("sum({}{{{CHOSEN}}})", PAGED_OUT.name), "paged out"),
                (
                    format!("60 * sum(rate({}{{{CHOSEN}}}[$__rate_interval]))", REFAULTED.sample_name()),
                    "back, a minute",
                ),
            ],
        ),
    ]
}

fn charts_of_monitor() -> Vec<Chart> {
    let memory = MEMORY.name;
    vec![
        (
            "Actions",
            "short",
            vec![(
                format!("sum by (action, result) (rate({}{{{CHOSEN_HOST}}}[$__rate_interval]))", ACTIONS.sample_name()),
                "{{action}}: {{result}}",
            )],
        ),
        (
            "What monitoring costs",
            "percentunit",
            vec![
                (format!("topk(10, {}{{{CHOSEN_HOST}}})", SLOWDOWN.name), "{{instance}}: slow-down, worst so far"),
                (format!("max({}{{{CHOSEN_HOST}}})", SLOWDOWN_BUDGET.name), "slow-down, allowed"),
                (
                    format!("topk(10, rate({}{{{CHOSEN_HOST}}}[$__rate_interval]))", MONITOR_CPU.sample_name()),
                    "{{instance}}: CPU",
                ),
                (format!("max({}{{{CHOSEN_HOST}}})", MONITOR_CPU_BUDGET.name), "CPU, allowed"),
            ],
        ),
        (
            "What is not known",
            "percentunit",
            vec![(format!("sum({}{{{CHOSEN_HOST}}}) / sum({memory}{{{CHOSEN_HOST}}})", UNMEASURED.name), "unmeasured")],
        ),
    ]
}

fn dashboard() -> String {
    let source = json!({ "type": "prometheus", "uid": "${datasource}" });
    let panels: Vec<Value> = (0_u32..).zip(charts()).map(|(number, chart)| panel(number, chart, &source)).collect();
    let variable = |name: &str, of: &str| {
        let query = format!("label_values({of}, {name})");
        json!({
            "name": name, "type": "query", "datasource": source, "query": query, "refresh": 2,
            "includeAll": true, "multi": true, "allValue": ".*", "current": { "text": "All", "value": "$__all" },
        })
    };
    let cgroups = format!("{}{{{CHOSEN_HOST},window=\"1m\"}}", WORKING_SET.name);
    let dashboard = json!({
        "title": "Isotherm", "uid": "isotherm", "schemaVersion": 39, "version": 1, "editable": true,
        "tags": ["memory"], "refresh": "30s", "time": { "from": "now-3h", "to": "now" }, "panels": panels,
        "templating": { "list": [
            { "name": "datasource", "type": "datasource", "query": "prometheus" },
            // A host without targets can be chosen, too.
            variable("instance", LAST_SNAPSHOT.name), variable("cgroup", &cgroups),
        ] },
    });
    format!("{dashboard:#}\n")
}

fn panel(number: u32, (title, unit, lines): Chart, source: &Value) -> Value {
    let is_stacked = title == "Memory by class";
    let targets: Vec<Value> = ('A'..)
        .zip(lines)
        .map(|(id, (expr, name))| json!({ "refId": id, "expr": expr, "legendFormat": name, "datasource": source }))
        .collect();
    json!({
        "id": number + 1, "type": "timeseries", "title": title, "datasource": source, "targets": targets,
        "gridPos": { "x": number % 2 * 12, "y": number / 2 * 8, "w": 12, "h": 8 },
        "fieldConfig": { "overrides": [], "defaults": { "unit": unit, "min": 0, "custom": {
            "fillOpacity": if is_stacked { 60 } else { 0 },
            "stacking": { "mode": if is_stacked { "normal" } else { "none" } },
        } } },
    })
}

fn page() -> String {
    let mut out = String::from(
        "# Metrics\n\n`isotherm-serve` answers scrapes at `/metrics` ([guide](../guide/serve.md)). This page is made from the table that also makes the text of a scrape:\n`UPDATE_ASSETS=1 cargo test -p isotherm-serve --test assets`.\n\n",
    );
    let _ = write!(
        out,
        "Series of cgroups have the label `cgroup`, and `unit`, `pod_uid`, `container_id` where the path names them. The `--top` largest (50) have all\nseries; the others are summed up as `cgroup=\"other\"`. Up to {MAX_CGROUPS} have a working set of a minute, a limit and unmeasured memory of their own;\nworking set and unmeasured memory of those beyond are summed up as `cgroup=\"beyond\"`, so that the series of a metric and a window never count a\ncgroup twice. A cgroup has the processes that are in it, not those of cgroups below; each page counts once. A series ends with its cgroup.\n\n| metric | type | labels | |\n|---|---|---|---|\n"
    );
    for metric in ALL {
        let kind = match metric.kind {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
            Kind::Histogram => "histogram (OpenMetrics: gauge histogram)",
        };
        let labels: Vec<String> = labels_of(metric).map(|label| format!("`{label}`")).collect();
        let labels = if labels.is_empty() { "-".to_owned() } else { labels.join(" ") };
        let _ = writeln!(out, "| `{}` | {kind} | {labels} | {} |", metric.sample_name(), metric.help);
    }
    let _ = write!(
        out,
        "\nSeries of processes need `--processes`; at most {MAX_PROCESSES} have them. Memory that was paged out or came back is that of the {MAX_CGROUPS} cgroups. The sum and the count of the\nhistogram are `_gsum` (byte-seconds) and `_gcount` (bytes) in OpenMetrics, which Prometheus asks for, and `_sum` and `_count` in the plain text;\n`histogram_quantile` takes its buckets as they are. A counter of actions begins with the first of them. Alert rules and a dashboard are in `dashboards/`.\n"
    );
    out
}

/// The labels of a metric. Those that only some series have are not listed.
fn labels_of(metric: &Metric) -> impl Iterator<Item = &'static str> {
    let of: &[&str] = match metric.of {
        Of::Host => &[],
        Of::EachCgroup | Of::LargestCgroups | Of::SomeCgroups => &CGROUP_LABELS[..1],
        Of::Processes => &PROCESS_LABELS,
    };
    let bound: &[&str] = if metric.kind == Kind::Histogram { &["le"] } else { &[] };
    of.iter().chain(metric.labels).chain(bound).copied()
}
