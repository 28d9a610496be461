//! Exchange with damo: it reads what we write, we read what it writes, and both then say the same of the same memory.
//!
//! damo is looked for where `scripts/setup.sh test` puts it, and then on the path. Nothing here needs root.

mod support;

use isotherm_heat::{Cost, Granularity, Histogram, Interval, Region, RunInfo, Snapshot, TargetHeat, TargetId};
use isotherm_record::{Options, Recording, Writer};
use isotherm_units::{Addr, AddrRange, PAGE_SIZE};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{Ran, Stage, installed};

const SECOND: u64 = 1_000_000_000;
const MIB: u64 = 1 << 20;
const PID: u32 = 812;
const HEAP: u64 = 0x5555_5555_5000;
const STACK: u64 = 0x7fff_ff00_0000;

const WHAT: &str = "damo (pip install damo)";

fn damo() -> Option<PathBuf> {
    let venv = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/damo-venv/bin/damo");
    // damo itself asks `file` what a file is.
    let found = if venv.exists() { Some(venv) } else { installed("damo").then(|| "damo".into()) };
    found.filter(|_| installed("file"))
}

/// Runs damo with the words of `args`.
fn run(stage: &Stage, damo: &Path, args: &str) -> Ran {
    let mut command = Command::new(damo);
    command.args(args.split_whitespace());
    stage.start(command).end()
}

fn region(start: u64, mib: u64, rate_hz: f32, idle_s: u64) -> Region {
    let pages = mib * MIB / PAGE_SIZE;
    Region {
        range: AddrRange::new(Addr(start), Addr(start + mib * MIB)),
        resident_pages: pages,
        measured_pages: pages,
        huge_pages: 0,
        interval: Interval::from_octaves((1000.0 / f64::from(rate_hz)).log2()),
        rate_hz,
        age_ns: 30 * SECOND,
        idle_ns: idle_s * SECOND,
        sampled_pages: 0,
        estimated_pages: 0,
        hot_pages: None,
    }
}

/// Like the demo: a tenth of the heap hot, a bit warm, the rest idle. The hot part grows by 1 MiB each snapshot.
fn target(i: u64) -> TargetHeat {
    let hot = 10 + i;
    let warm = HEAP + hot * MIB;
    let idle = warm + 8 * MIB;
    let regions = vec![
        region(HEAP, hot, 25.0, 0),
        region(warm, 8, 0.5, 1),
        region(idle, 60, 0.001, 100),
        region(STACK, 1, 25.0, 0),
    ];
    let mut temperature = Histogram::default();
    regions.iter().for_each(|r| temperature.add(r.interval, r.resident_pages));
    TargetHeat {
        id: TargetId { pid: PID, start_ticks: 1234 },
        comm: "server".into(),
        cgroup: String::new(),
        exited: false,
        granularity: Granularity::Page,
        regions,
        mappings: [].into(),
        idle: temperature.clone(),
        temperature,
        counted_elsewhere_pages: 0,
        maybe_shared_pages: 0,
        unclearable_pages: 0,
        behind_huge: None,
        idle_by_mapping: Vec::new(),
        facts: Default::default(),
    }
}

/// A recording of ten snapshots of two seconds.
fn record(stage: &Stage, name: &str) {
    let run = RunInfo { window_ns: 2 * SECOND, source: "page-table".into(), ..RunInfo::default() };
    let mut writer = Writer::create(stage.path(name), &run, Options::default()).unwrap();
    let at = |i| (1_795_000_000 + 2 * i) * SECOND;
    for i in 0..10 {
        let (start_unix_ns, end_unix_ns) = (at(i), at(i + 1));
        writer.push(&Snapshot { start_unix_ns, end_unix_ns, targets: vec![target(i)], cost: Cost::default() }).unwrap();
    }
    writer.finish().unwrap();
}

/// Working sets over time, as we count them: damo counts, too.
fn our_wss(stage: &Stage, input: &str, interval: &str) -> Vec<u64> {
    let json = stage.json(&format!("report wss {input} --interval {interval} --json"));
    let points = json["report"]["total"]["points"].as_array().unwrap();
    points.iter().map(|p| p["counted_bytes"].as_u64().unwrap()).collect()
}

/// The same, as damo says them of a file.
fn damo_wss(stage: &Stage, damo: &Path, input: &str, count: u64) -> Vec<u64> {
    let args = format!(
        "report wss --input {input} --exclude_samples 0 --acc_thres {count} --sortby time --all_wss --raw_number"
    );
    let ran = run(stage, damo, &args).ended(0);
    let lines = ran.out.lines().filter(|l| !l.starts_with('#'));
    lines.filter_map(|l| l.split_whitespace().nth(1)?.replace(',', "").parse().ok()).collect()
}

fn hot_bytes(stage: &Stage, input: &str) -> Value {
    stage.json(&format!("report processes {input} --json"))["report"]["processes"][0]["hot_bytes"].clone()
}

// --- Without damo

#[test]
fn a_recording_comes_back_from_damos_format() {
    let stage = Stage::new();
    record(&stage, "rec");
    let told = stage.isotherm("convert rec damon.data").ended(0).says("10 snapshots of 1 process").says("lost: ");
    told.says("up to 60.0 MiB accessed less than every 4s");
    stage.isotherm("convert damon.data back").ended(0).says("10 snapshots of 1 process in back");
    let back = Recording::open(stage.path("back")).unwrap();
    assert_eq!((back.len(), back.run().source.as_str()), (10, "page-table"));
    let last = back.read_all().unwrap().pop().unwrap().targets.remove(0);
    assert_eq!((last.id, last.comm.as_str()), (target(9).id, "server"));
    for (is, was) in last.regions.iter().zip(target(9).regions) {
        assert_eq!((is.range, is.resident_pages), (was.range, was.resident_pages));
        assert!((is.rate_hz - was.rate_hz).abs() <= 0.25, "{is:?} {was:?}");
    }
    for input in ["rec", "damon.data", "back"] {
        assert_eq!(hot_bytes(&stage, input), 20 * MIB, "{input}");
    }
    stage.isotherm("report heatmap damon.data -o map.png").ended(0);
    stage.isotherm("report wss --replay damon.data").ended(0).prints("working set");
}

#[test]
fn what_is_there_is_only_replaced_if_asked() {
    let stage = Stage::new();
    record(&stage, "rec");
    stage.isotherm("convert rec damon.data").ended(0);
    stage.isotherm("convert rec damon.data").ended(1).says("overwrite");
    stage.isotherm("convert rec damon.data --overwrite --aggregation 10s").ended(0).says("2 snapshots");
    stage.isotherm("convert damon.data rec").ended(1).says("overwrite");
    stage.isotherm("convert damon.data rec --overwrite").ended(0);
    assert_eq!(Recording::open(stage.path("rec")).unwrap().len(), 2);
}

#[test]
fn convert_says_what_it_cannot_do() {
    let stage = Stage::new();
    record(&stage, "rec");
    fs::write(stage.path("notes.txt"), "not heat").unwrap();
    stage.refuses([
        ("convert rec", 2, "<OUTPUT>"),
        ("convert rec out --sample 5ms --aggregation 1ms", 2, "--aggregation"),
        ("convert rec out --sample 0s", 2, "longer than nothing"),
        ("convert rec out --only 99", 1, "process 99 was not recorded"),
        ("convert nowhere out", 1, "nowhere"),
        ("convert rec no/such/place", 1, "no/such/place"),
        ("convert notes.txt out", 1, "neither zlib nor JSON"),
        ("report wss notes.txt", 1, "not a directory"),
    ]);
    for command in ["convert notes.txt out", "report wss notes.txt"] {
        stage.isotherm(command).ended(1).says("notes.txt");
    }
    assert!(!stage.path("out").exists());
    stage.isotherm(&format!("convert rec out --only {PID}")).ended(0);
}

#[test]
fn a_file_with_more_memory_than_there_can_be_is_not_played_back() {
    let stage = Stage::new();
    let line =
        |at| format!("x 1 [0] {at}.5: damon:damon_aggregated: target_id=0 nr_regions=1 0-9223372036854775808: 1 0\n");
    fs::write(stage.path("all"), [line(1), line(2)].concat()).unwrap();
    stage.isotherm("report wss --replay all").ended(1).says("without --replay");
    stage.isotherm("report wss all").ended(0);
}

// --- With damo

#[test]
fn damo_says_the_same_of_what_we_recorded() {
    let stage = Stage::new();
    let Some(damo) = damo() else { return support::skip(WHAT) };
    record(&stage, "rec");
    stage.isotherm("convert rec damon.data").ended(0);
    // Hot: once a second, two counts of two seconds. Any access at all: one count, of half a second's rate and more.
    let hot = damo_wss(&stage, &damo, "damon.data", 2);
    assert_eq!(hot, our_wss(&stage, "rec", "1s"));
    assert_eq!(hot, (0..10).map(|i| (11 + i) * MIB).collect::<Vec<_>>());
    assert_eq!(damo_wss(&stage, &damo, "damon.data", 1), our_wss(&stage, "rec", "4s"));

    // Regions: rate and age in damo's words.
    let access = run(&stage, &damo, "report access --input damon.data").ended(0);
    access.prints("size 19.000 MiB").prints("access 25 hz").prints("age 30 s").prints("sample 5 ms, aggr 2 s");
    // Idle for 100 s.
    let idle = run(&stage, &damo, "report access --input damon.data --style recency-sz-hist").ended(0);
    idle.prints("[1 m 30.000 s, 1 m 40.000 s) 60.000 MiB");
    run(&stage, &damo, "report heatmap --input damon.data --resol 5 40").ended(0).prints("x-axis: space");
    run(&stage, &damo, "report record_info --input damon.data").ended(0).prints("target_id: 812");
}

#[test]
fn we_say_the_same_of_what_damo_wrote() {
    let stage = Stage::new();
    let Some(damo) = damo() else { return support::skip(WHAT) };
    record(&stage, "rec");
    stage.isotherm("convert rec damon.data").ended(0);
    for form in ["json_compressed", "json", "perf_script"] {
        let convert = format!("convert_record_format --record_file damon.data --output_file {form} --format {form}");
        run(&stage, &damo, &convert).ended(0);
        assert_eq!(our_wss(&stage, form, "1s"), our_wss(&stage, "rec", "1s"), "{form}");
        assert_eq!(hot_bytes(&stage, form), 20 * MIB, "{form}");
    }
    // Five snapshots in one: counts add up, rates stay.
    run(&stage, &damo, "adjust -i damon.data -o adjusted --aggregate_interval 10000000 --skip 0").ended(0);
    stage.isotherm("convert adjusted longer").ended(0).says("2 snapshots of 1 process");
    let snapshots = Recording::open(stage.path("longer")).unwrap().read_all().unwrap();
    let hottest = snapshots[1].targets[0].regions.iter().map(|r| r.rate_hz).fold(0.0, f32::max);
    assert_eq!(hottest, 25.0);
    let total = our_wss(&stage, "longer", "1s");
    // What was warm at first and grew hot in part is all hot to damo: 10 + 8 + 1 MiB, 15 + 8 + 1 MiB.
    assert_eq!(total, [19 * MIB, 24 * MIB]);
}

#[test]
fn schemes_of_damo_become_settings_and_go_back() {
    let stage = Stage::new();
    let schemes = r#"[{"action": "pageout", "access_pattern": {"sz_bytes": {"min": "min", "max": "max"},
        "nr_accesses": {"min": "0 %", "max": "0 %"}, "age": {"min": "2 m", "max": "max"}},
        "quotas": {"time_ms": "10 ms", "sz_bytes": "1.000 GiB", "reset_interval_ms": "10 s", "goals": [
            {"metric": "some_mem_psi_us", "nid": null, "target_value": "10,000", "current_value": "0"}]},
        "filters": [{"filter_type": "memcg", "matching": true, "allow": true, "memcg_path": "/app.slice"}]}]"#;
    std::fs::write(stage.path("damos.json"), schemes).unwrap();
    stage.isotherm("convert damos.json s.toml").ended(0).says("scheme 1: the quota of time is lost");
    let settings = std::fs::read_to_string(stage.path("s.toml")).unwrap();
    assert!(settings.contains("action = \"page-out\"") && settings.contains("min_idle = \"2m\""), "{settings}");
    assert!(settings.contains("cgroups = [\"/app.slice\"]"), "{settings}");
    assert!(settings.contains("size = \"1024MiB\"") && settings.contains("pressure = 0.1"), "{settings}");
    stage.isotherm("convert damos.json s.toml").ended(1).says("--overwrite");
    stage.isotherm("convert s.toml back.json").ended(0);
    stage.isotherm("convert back.json again.toml").ended(0);
    assert_eq!(std::fs::read_to_string(stage.path("again.toml")).unwrap(), settings);
    std::fs::write(stage.path("damos.json"), schemes.replace("pageout", "lru_prio")).unwrap();
    stage.isotherm("convert damos.json t.toml").ended(1).says("scheme 1").says("lru_prio");
    let quota = "--damos_quota_space 1G --damos_quota_interval 10s --damos_quota_goal some_mem_psi_us 10ms";
    let line = format!(
        "damo start 812 --damos_action pageout --damos_access_rate 0% 0% --damos_age 2m max \\\n --damos_filter allow memcg /app.slice {quota}\n"
    );
    std::fs::write(stage.path("start.sh"), line).unwrap();
    stage.isotherm("convert start.sh by-line.toml").ended(0).says("the target \"812\"").says("-p");
    assert_eq!(std::fs::read_to_string(stage.path("by-line.toml")).unwrap(), settings);
    let more = format!("{settings}\n[targets]\ncgroup = \"/app.slice\"\n[budgets]\nper_second = 1.0\n");
    std::fs::write(stage.path("more.toml"), more).unwrap();
    let converted = stage.isotherm("convert more.toml more.json").ended(0);
    converted.says("[targets] is lost").says("[budgets] is lost").says("max_refaults is lost");
    std::fs::write(stage.path("none.toml"), "[targets]\npids = [1]\n").unwrap();
    stage.isotherm("convert none.toml t.json").ended(1).says("no [[scheme]]");
}
