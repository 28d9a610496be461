//! Memory that is too large to look at whole: modelled hosts, and real processes sampled on request.

mod support;

use isotherm_sys::proc::Proc;
use serde_json::Value;
use std::fs;
use std::time::Duration;
use support::{Stage, alone, sees_pages, until, workload};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn cgroup<'a>(report: &'a Value, path: &str) -> &'a Value {
    let rows = report["report"]["cgroups"].as_array().unwrap();
    rows.iter().find(|r| r["path"] == path).unwrap_or_else(|| panic!("{path} is not in {report}"))
}

#[test]
#[cfg_attr(not(feature = "model"), ignore = "needs the feature `model`")]
fn a_cgroup_of_one_percent_of_two_tebibytes_is_resolved() {
    let stage = Stage::new();
    let ran = stage.isotherm("report cgroups --model 2tib -d 3m --max-regions 20000 --seed 1 --json").ended(0);
    let ran = ran.says("modelled host").says("is sampled").says("more than five minutes");
    let report = ran.json();
    let small = &cgroup(&report, "/tenants/small")["total"];
    let hot = small["hot_bytes"].as_u64().unwrap();
    assert!(hot.abs_diff(5 * GIB) < GIB / 4, "5 GiB of it are hot, not {}", hot as f64 / GIB as f64);
    let resident = small["resident_bytes"].as_u64().unwrap();
    assert!(resident.abs_diff(20 * GIB) < GIB / 4, "{resident}");
    assert_eq!(report["run"]["source"], "model");
}

/// A process of which a tenth is hot, in spans and scattered among what is idle; sampled, and whole with a budget that checks all of it.
#[test]
#[cfg_attr(not(feature = "model"), ignore = "needs the feature `model`")]
fn a_tebibyte_is_watched_in_less_than_200_mib() {
    let stage = Stage::new();
    fs::write(
        stage.path("host.toml"),
        "memory = \"1100 GiB\"\n[[process]]\npid = 7\ncomm = \"db\"\narea = [\n\
         { size = \"900 GiB\", heat = \"never\" },\n{ size = \"90 GiB\", heat = { every = \"50ms\" } },\n\
         { size = \"34 GiB\", heat = { scattered = { share = 0.3, hot = { every = \"100ms\" }, rest = \"never\" } } },\n]\n",
    )
    .unwrap();
    for mode in ["--mode sampled", "--mode whole --max-cpu 1000 --max-slowdown 1000"] {
        let mut record =
            stage.start_isotherm(&format!("record --model host.toml {mode} -d 1m --overwrite -o rec --seed 1"));
        let (pid, mut most) = (record.pid(), 0);
        let has_ended = until(Duration::from_secs(300), || {
            most = most.max(Proc::default().status(pid).ok().and_then(|status| status.rss).map_or(0, |rss| rss.0));
            record.has_ended()
        });
        assert!(has_ended, "{mode}");
        record.end().ended(0);
        println!("{mode}: {} MiB", most / MIB);
        assert!(most > MIB && most < 200 * MIB, "{mode}: {} MiB", most / MIB);
    }
}

#[test]
#[cfg_attr(not(feature = "model"), ignore = "needs the feature `model`")]
fn a_host_is_described_in_a_file() {
    let stage = Stage::new();
    fs::write(
        stage.path("host.toml"),
        "memory = \"64 GiB\"\n[[process]]\npid = 7\ncomm = \"db\"\ncgroup = \"/a/db\"\narea = [\n\
         { name = \"[heap]\", size = \"1 GiB\", heat = \"never\" },\n\
         { name = \"[heap]\", size = \"128 MiB\", heat = { every = \"50ms\" } },\n]\n",
    )
    .unwrap();
    let report = stage.json("report processes --model host.toml -d 1m --json");
    let row = &report["report"]["processes"][0];
    let hot = row["hot_bytes"].as_u64().unwrap();
    assert!(row["pid"] == 7 && hot.abs_diff(128 * MIB) < 4 * MIB, "{row}");
    stage.isotherm("report access --model host.toml --cgroup /a -d 1m").ended(0).prints("[heap]");
    stage.isotherm("record --model host.toml -d 30s -o rec").ended(0);
    stage.isotherm("report wss rec").ended(0).prints("working set");
}

#[test]
#[cfg_attr(not(feature = "model"), ignore = "needs the feature `model`")]
fn what_is_wrong_with_a_description_is_said() {
    let stage = Stage::new();
    let area = |size: &str| {
        format!("memory = \"1 GiB\"\n[[process]]\npid = 1\ncomm = \"a\"\narea = [{{ size = \"{size}\" }}]\n")
    };
    for (text, hint) in [
        ("memory = ", "not the description of a host"),
        ("memory = \"1 GiB\"\ncolour = 3\n", "colour"),
        (&area("0 B"), "host.toml"),
        (&area("much"), "much"),
        (&area("2 TiB"), "host.toml"),
    ] {
        fs::write(stage.path("host.toml"), text).unwrap();
        stage.isotherm("report access --model host.toml").ended(1).says(hint);
    }
    stage.refuses([
        ("report access --model none.toml", 1, "none.toml"),
        ("report access --model 2tib --cgroup /nowhere", 2, "/nowhere"),
        ("record --model 2tib -- sleep 1", 2, "cannot be used with"),
        ("record --model 2tib --source page-table", 2, "cannot be used with"),
    ]);
}

#[test]
fn what_cannot_be_sampled_so_is_refused() {
    Stage::new().refuses([
        ("record -p 1 --sample-interval 0s", 2, "longer than nothing"),
        ("record -p 1 --mode some", 2, "sampled"),
        ("record -p 1 --intervals-goal 4%", 2, "4%,3,200ms,1s, or off"),
        ("record -p 1 --intervals-goal 4%,3,50ms,1s", 2, "every 200ms"),
    ]);
}

#[test]
#[cfg_attr(not(feature = "model"), ignore = "needs the feature `model`")]
fn an_interval_shorter_than_looks_are_begun_is_said_to_be() {
    let stage = Stage::new();
    let args = "report access --model 2tib --mode sampled --sample-interval 1us -d 5s";
    stage.isotherm(args).ended(0).says("--sample-interval").says("200ms");
}

#[test]
#[cfg_attr(not(feature = "model"), ignore = "needs the feature `model`")]
fn a_recording_has_the_goal_of_its_intervals() {
    let stage = Stage::new();
    let run = |options: &str, name: &str| {
        stage.isotherm(&format!("record --model 2tib -d 2s -w 1s -o {name} {options}")).ended(0);
        stage.json(&format!("report processes {name} --json"))["run"].clone()
    };
    let tuned = run("", "tuned");
    let goal = &tuned["intervals_goal"];
    assert!(tuned["sample_interval_ns"] == 1_000_000_000_u64 && goal["observed_bp"] == 400, "{tuned}");
    assert!(goal["min_interval_ns"] == 200_000_000 && goal["aggregations"] == 3, "{tuned}");
    let fixed = run("--sample-interval 2s", "fixed");
    assert!(fixed["sample_interval_ns"] == 2_000_000_000_u64 && fixed["intervals_goal"].is_null(), "{fixed}");
    stage.refuses([(
        "record --model 2tib --sample-interval 2s --intervals-goal 4%,3,200ms,1s",
        2,
        "change one of them",
    )]);
}

#[test]
fn the_interval_of_a_real_process_is_tuned_and_shown_in_the_status() {
    need!(sees_pages(), "the page-table source");
    let _turn = alone();
    let stage = Stage::new();
    let child = workload(512);
    let run = format!("run -n --mode sampled --max-regions 60 --socket s.sock -p {}", child.pid());
    let status = || stage.json("status --json --socket s.sock");
    let sampled = || status()["targets"][0]["sampled"].clone();
    {
        // How far the CPU budget affords it depends on the machine.
        let mut tuned = stage.start_isotherm(&format!("{run} --max-cpu 101 --max-slowdown 101"));
        tuned.until_it_says("status at");
        // A tenth of it is hot: more than 4% is accessed within any interval.
        let is_shortest = || sampled()["interval_ns"] == 200_000_000;
        assert!(until(Duration::from_secs(60), is_shortest), "{:#}", status());
        assert!(
            sampled()["regions"].as_u64().unwrap() <= 60 && sampled()["aggregated_in_ns"].is_u64(),
            "{}",
            sampled()
        );
        assert_eq!(status()["intervals_goal"]["max_interval_ns"], 1_000_000_000);
        let text = stage.isotherm("status --socket s.sock").ended(0);
        text.prints("sampled processes follow the goal 4%,3,200ms,1s").prints("every 200 ms");
        tuned.signal("TERM");
        tuned.end().ended(0);
    }
    let mut fixed = stage.start_isotherm(&format!("{run} --sample-interval 300ms"));
    fixed.until_it_says("status at");
    assert!(until(Duration::from_secs(60), || sampled()["aggregated_in_ns"].is_u64()), "{:#}", status());
    let now = status();
    assert!(now["intervals_goal"].is_null() && now["targets"][0]["sampled"]["interval_ns"] == 300_000_000, "{now:#}");
    stage.isotherm("status --socket s.sock").ended(0).prints("every 300 ms");
}

#[test]
fn a_real_process_is_sampled_on_request() {
    need!(sees_pages(), "the page-table source");
    let _turn = alone();
    let stage = Stage::new();
    let child = workload(512);
    let args = format!("report processes --mode sampled --max-regions 60 -d 12s --json -p {}", child.pid());
    let ran = stage.isotherm(&args).ended(0).says("is sampled").never_says("more than five minutes");
    let report = ran.json();
    let rows = report["report"]["processes"].as_array().unwrap();
    let row = rows.iter().find(|r| r["pid"] == child.pid()).unwrap();
    let hot = row["hot_bytes"].as_u64().unwrap() as f64 / MIB as f64;
    assert!((38.0..66.0).contains(&hot), "51 MiB are hot, not {hot:.1}: {row}");
    let resident = row["resident_bytes"].as_u64().unwrap() as f64 / MIB as f64;
    assert!((500.0..540.0).contains(&resident), "{resident:.1} MiB: {row}");
    stage.isotherm(&format!("report access --mode sampled -d 3s -p {}", child.pid())).ended(0).prints("seen by region");
}
