//! Advice against the truth: a service whose memory is limited to what was advised goes on at the same price, and with less it does not.
//!
//! Runs only in a guest of the lab (`make bench-advise` boots one): it limits memory cgroups, and needs swap. The guest's processor is
//! executed by instruction count, and its clock skips idle time, as for bench-cold.
//!
//! For each seed, on a store with cold keys and an idle heap beside it, in a cgroup of their own:
//!
//! ```text
//!   0 s                   WARM_S                 WATCHED_S          then three times, SETTLED_S + MEASURED_S each
//!   isotherm record       what was recorded      no limit           memory.max as advised (WITH SWAP), 80% of it, 64% of it
//!                         counts from here on    (for MEASURED_S)   instructions an operation over those without a limit
//! ```
//!
//! 80% is a little less than the working set, since advice has a fifth in reserve; 64% is three quarters of it. What is recorded before `WARM_S` does not count: until
//! then nothing can be known to be idle for an hour. In rows of a week the 99th percentile leaves it out.

// What other benches of cold memory use of it is not used here.
#[allow(dead_code)]
#[path = "../cold/mod.rs"]
mod cold;

use anyhow::{Context, Result, ensure};
use cold::scene::{HEAP_PAGES, Load, STORE_PAGES, Scene};
use cold::wait;
use isotherm_bench::daemon::isotherm;
use isotherm_bench::neighbours::{Neighbour, Neighbours};
use isotherm_bench::{Log, become_workload, median, need_lab, spread, trials};
use isotherm_record::Recording;
use isotherm_rollup::advise::{Advice, Advisor};
use isotherm_rollup::{Host, Options, Rollup, Rules};
use isotherm_stream::Snapshot;
use std::fs;
use std::path::Path;
use std::process::Stdio;

const RECORDING: &str = "/tmp/advise.isotherm";
const SECOND_NS: u64 = 1_000_000_000;
/// Memory that is idle for an eighth of an hour is taken to be idle for an hour: ten minutes, to be in whole intervals.
const WARM_S: u64 = 600;
const WATCHED_S: u64 = 2400;
const SETTLED_S: f64 = 30.0;
const MEASURED_S: u64 = 60;
/// Operations of the store a second.
const PER_S: f64 = 5000.0;
/// Parts of the limit that is advised, percent.
const PARTS_PCT: [u64; 3] = [100, 80, 64];

/// What came of one seed.
#[derive(Debug)]
struct Came {
    advised_mib: f64,
    /// What the store has used by its own count while it was watched.
    used_mib: f64,
    /// Instructions an operation, percent more than without a limit, by part.
    costs_pct: [f64; PARTS_PCT.len()],
    refaults: [f64; PARTS_PCT.len()],
}

fn main() -> Result<()> {
    become_workload()?;
    need_lab("bench-advise", "limits memory cgroups")?;
    let mut log = Log::new("bench-advise");
    let trials = trials(3);
    log.line(format!(
        "a store of {} MiB with cold keys, {PER_S} operations a second, and an idle heap of {} MiB; {trials} seeds; watched for {} min, of which the first \
         {} do not count",
        STORE_PAGES >> 8,
        HEAP_PAGES >> 8,
        WATCHED_S / 60,
        WARM_S / 60
    ));
    log.line("under emulation, by instruction count: CPU time is the number of instructions");
    let _neighbours = Neighbours::start(Neighbour::Dozes)?;
    let mut all = Vec::new();
    for seed in 1..=trials as u64 {
        let came = run(seed * 100).with_context(|| format!("seed {seed}"))?;
        log.line(format!(
            "seed {seed}  advised {:.1} MiB, used {:.1} MiB; instructions an operation at 100, 80 and 64% of it: {} % more; refaults a minute: {}",
            came.advised_mib,
            came.used_mib,
            came.costs_pct.map(|cost| format!("{cost:.2}")).join(", "),
            came.refaults.map(|count| format!("{count:.0}")).join(", "),
        ));
        all.push(came);
    }
    for (at, (part, key)) in PARTS_PCT.iter().zip(["cost_pct", "cost_at_80_pct", "cost_at_64_pct"]).enumerate() {
        let costs: Vec<f64> = all.iter().map(|came| came.costs_pct[at]).collect();
        log.line(format!("{part}% of what is advised: {} % more instructions an operation", spread(&costs)));
        log.result(key, median(&costs));
    }
    let of = |what: &dyn Fn(&Came) -> f64| -> Vec<f64> { all.iter().map(what).collect() };
    log.result("advised_mib", median(&of(&|came| came.advised_mib)));
    log.result("advised_over_used", median(&of(&|came| came.advised_mib / came.used_mib)));
    log.result("refaults_min", median(&of(&|came| came.refaults[0])));
    log.result("refaults_at_80_min", median(&of(&|came| came.refaults[1])));
    log.result("refaults_at_64_min", median(&of(&|came| came.refaults[2])));
    log.finish()
}

fn run(seed: u64) -> Result<Came> {
    let mut scene = Scene::start(seed, Load { heaps: 1, per_s: Some(PER_S) })?;
    scene.truth();
    record(&scene)?;
    let used_pages = scene.truth().used_pages();
    let advice = advice()?;
    let advised = advice.limit_with_swap_bytes.with_context(|| format!("no limit with swap: {}", advice.because))?;
    wait(MEASURED_S as f64);
    let without = scene.cpu_ns_per_operation(MEASURED_S * SECOND_NS)?;
    let (mut costs_pct, mut refaults) = ([0.0; PARTS_PCT.len()], [0.0; PARTS_PCT.len()]);
    for (at, part) in PARTS_PCT.into_iter().enumerate() {
        let limit = advised / 100 * part;
        let file = scene.cgroup.file("memory.max");
        fs::write(&file, limit.to_string()).with_context(|| format!("write {limit} to {}", file.display()))?;
        wait(SETTLED_S);
        let before = scene.refaults()?;
        wait(MEASURED_S as f64);
        refaults[at] = (scene.refaults()? - before) as f64;
        costs_pct[at] = (scene.cpu_ns_per_operation(MEASURED_S * SECOND_NS)? / without - 1.0) * 100.0;
    }
    Ok(Came { advised_mib: advised as f64 / 1_048_576.0, used_mib: used_pages as f64 / 256.0, costs_pct, refaults })
}

/// Watches all processes of the scene for [`WATCHED_S`].
fn record(scene: &Scene) -> Result<()> {
    let _ = fs::remove_dir_all(RECORDING);
    let mut command = isotherm();
    command.args(["record", "-d", &format!("{WATCHED_S}s"), "--window", "5s", "-o", RECORDING]);
    for pid in scene.pids() {
        command.args(["-p", &pid.to_string()]);
    }
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    ensure!(status.success(), "isotherm record: {status}");
    Ok(())
}

/// Advice for the service, from the rows that `isotherm advise` would make of the recording, but for its beginning.
fn advice() -> Result<Advice> {
    let recording = Recording::open(Path::new(RECORDING))?;
    let mut rollup =
        Rollup::new(Host::new("", "guest", ""), Rules::default(), Options { grace_ns: 0, ..Options::default() });
    let mut begins_ns = None;
    for snapshot in recording.snapshots() {
        let snapshot = Snapshot::of(recording.run(), &snapshot?);
        let begins_ns = *begins_ns.get_or_insert(snapshot.host.start_unix_ns);
        if snapshot.host.start_unix_ns - begins_ns >= WARM_S * SECOND_NS {
            rollup.push(&snapshot);
        }
    }
    let mut advisor = Advisor::new(None).with_min_hours(0);
    for object in rollup.finish()? {
        advisor.add_object(object.bytes)?;
    }
    let mut all = advisor.advice();
    ensure!(all.len() == 1, "advice for {} services, not one", all.len());
    all.pop().context("no advice")
}
