//! The kernel's DAMON for real: hot memory is found, others are left alone, sysfs is afterwards as it was.
//!
//! Runs in a guest of the lab only, where `ISOTHERM_LAB=1` is set: there is one DAMON in a machine, and on a real one it is
//! somebody's. A main of its own, since the program also runs as the workload and as an Isotherm that is killed.

use isotherm_heat::source::{AccessSource, Aggregation, Attached, RegionSource, SourceError};
use isotherm_heat::{Clock, Granularity, KernelRegion, Ns, TargetId};
use isotherm_monitor::{Follower, Monitor, Selection, Settings};
use isotherm_sources::RealClock;
use isotherm_sources::damon::{Damon, Space};
use isotherm_sys::clock;
use isotherm_sys::damon::Attributes;
use isotherm_sys::proc::Proc;
use isotherm_units::AddrRange;
use isotherm_workload::{Child, Layout, Pattern};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

const MS: Ns = 1_000_000;
const S: Ns = 1_000_000_000;
const DAMON: &str = "/sys/kernel/mm/damon/admin";
const PAGES: usize = 16_384;
const HOT_PAGES: usize = 4096;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    match args.get(1).map(String::as_str) {
        Some("workload") => isotherm_workload::run(&serde_json::from_str(&args[2]).unwrap()).unwrap(),
        Some("spin") => spin(),
        Some("hold") => hold(args[2].parse().unwrap()),
        _ if std::env::var("ISOTHERM_LAB").as_deref() == Ok("1") => all(),
        _ => eprintln!("skipped: needs a guest of the lab (ISOTHERM_LAB=1), as it starts the kernel's DAMON"),
    }
}

fn all() {
    let tests: [(&str, fn()); 8] = [
        ("a_hot_span_is_found", a_hot_span_is_found),
        ("targets_come_and_go", targets_come_and_go),
        ("a_monitor_makes_snapshots_of_it", a_monitor_makes_snapshots_of_it),
        ("physical_memory_is_told_whole", physical_memory_is_told_whole),
        ("a_second_one_is_refused", a_second_one_is_refused),
        ("what_a_killed_one_left_is_cleaned_up", what_a_killed_one_left_is_cleaned_up),
        ("whoever_else_uses_it_is_left_alone", whoever_else_uses_it_is_left_alone),
        ("what_is_gone_is_a_normal_event", what_is_gone_is_a_normal_event),
    ];
    if !Path::new(DAMON).exists() {
        let refused = Damon::open(Space::Processes, Attributes::default()).map(drop).unwrap_err().to_string();
        assert!(refused.contains("CONFIG_DAMON_SYSFS=y"), "{refused}");
        return eprintln!("skipped: needs a kernel with DAMON: {refused}");
    }
    let before = tree();
    let mut failed = 0;
    for (name, test) in tests {
        // As other test binaries print it, for whatever reads the results of all.
        println!("test {name} ... ");
        let ran = std::panic::catch_unwind(|| {
            test();
            assert_eq!(tree(), before, "{name}: sysfs is as before");
        });
        println!("test {name} ... {}", if ran.is_ok() { "ok" } else { "FAILED" });
        failed += u32::from(ran.is_err());
    }
    println!("{} tests, {failed} failed", tests.len());
    std::process::exit(if failed == 0 { 0 } else { 101 });
}

/// All files of DAMON with what is in them.
fn tree() -> BTreeMap<String, String> {
    fn walk(dir: &Path, found: &mut BTreeMap<String, String>) {
        for entry in fs::read_dir(dir).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                found.insert(path.display().to_string(), "directory".into());
                walk(&path, found);
            } else {
                found.insert(path.display().to_string(), fs::read_to_string(&path).unwrap_or_default());
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(Path::new(DAMON), &mut found);
    found
}

fn kdamond(file: &str) -> String {
    fs::read_to_string(format!("{DAMON}/kdamonds/{file}")).unwrap_or_default().trim().to_owned()
}

fn write(file: &str, value: &str) {
    fs::write(format!("{DAMON}/kdamonds/{file}"), value).unwrap();
}

fn pattern(seed: u64) -> Pattern {
    Pattern {
        pages: PAGES,
        hot_pages: HOT_PAGES,
        layout: Layout::Span,
        interval_ns: 0,
        huge: false,
        shared: None,
        faults: false,
        seed,
    }
}

/// Busy processes, as many as there are processors.
///
/// An emulated processor keeps translations for as long as no other process runs on it, far more of them than a real TLB holds;
/// and DAMON, which flushes nothing, sees no access to what is kept. With neighbours, processes take turns every few milliseconds.
struct Neighbours(Vec<std::process::Child>);

impl Neighbours {
    fn new() -> Neighbours {
        let start =
            |_| Command::new(std::env::current_exe().unwrap()).arg("spin").stdin(Stdio::piped()).spawn().unwrap();
        Neighbours((0..std::thread::available_parallelism().unwrap().get()).map(start).collect())
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        for process in &mut self.0 {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Until standard input is closed.
fn spin() {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_line(&mut String::new());
        std::process::exit(0);
    });
    loop {
        std::hint::spin_loop();
    }
}

fn workload(seed: u64) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg("workload");
    Child::start(command, &pattern(seed)).unwrap()
}

fn open(space: Space) -> Damon {
    Damon::open(space, Attributes::default()).unwrap()
}

/// What was told last, and when.
fn read(source: &mut Damon, pid: u32) -> (Ns, Vec<KernelRegion>) {
    let Aggregation { at, regions } = source.regions(pid).unwrap().unwrap_or_default();
    (at, regions)
}

/// Reads until something was told.
fn wait_for(source: &mut Damon, pid: u32) -> Vec<KernelRegion> {
    for _ in 0..200 {
        let (_, told) = read(source, pid);
        if !told.is_empty() {
            return told;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("nothing was told of process {pid}");
}

/// Shares of the hot pages that are in regions told as hot, and of those told as hot that are.
fn recall_and_precision(memory: AddrRange, hot: &[bool], told: &[KernelRegion]) -> (f64, f64) {
    let (mut hits, mut said) = (0, 0);
    for region in told.iter().filter(|r| r.interval().ns().is_some_and(|ns| ns <= S)) {
        let Some(inside) = region.range.intersect(memory) else { continue };
        for page in inside.start.page().0..inside.end.page().0 {
            said += 1;
            hits += usize::from(hot[usize::try_from(page - memory.start.page().0).unwrap()]);
        }
    }
    let all = hot.iter().filter(|h| **h).count();
    (hits as f64 / all as f64, hits as f64 / f64::max(f64::from(said), 1.0))
}

fn cpu_ticks(pid: u32) -> u64 {
    Proc::default().stat(pid).map_or(0, |s| s.utime + s.stime)
}

fn a_hot_span_is_found() {
    let child = workload(7);
    let _neighbours = Neighbours::new();
    let mut source = open(Space::Processes);
    let Attached { id, comm, .. } = source.attach(child.pid()).unwrap();
    assert_eq!((id.pid, comm.is_empty()), (child.pid(), false));
    let layout = source.layout(child.pid()).unwrap();
    assert!(layout.pmds.is_empty() && layout.mappings.iter().any(|m| m.range.contains(child.memory().start)));
    wait_for(&mut source, child.pid());
    let hot = pattern(7).hot();
    let (began, cpu) = (clock::monotonic_ns(), clock::thread_cpu_ns());
    let (mut recalls, mut precisions, mut lengths, mut last) = (Vec::new(), Vec::new(), Vec::new(), 0);
    let mut regions = 0;
    while clock::monotonic_ns() < began + 15 * S {
        std::thread::sleep(Duration::from_millis(200));
        let (at, told) = read(&mut source, child.pid());
        if at == last || clock::monotonic_ns() < began + 5 * S {
            continue;
        }
        let (recall, precision) = recall_and_precision(child.memory(), &hot, &told);
        recalls.push(recall);
        precisions.push(precision);
        lengths.push(told[0].aggregation_ns as f64 / 1e6);
        (last, regions) = (at, told.len());
        let resident: u64 =
            told.iter().filter(|r| r.range.intersect(child.memory()).is_some()).map(|r| r.resident_pages).sum();
        assert!(resident.abs_diff(PAGES as u64) < PAGES as u64 / 10, "{resident} of {PAGES} pages resident");
    }
    let passed = (clock::monotonic_ns() - began) as f64 / 1e9;
    let thread = source.thread().unwrap();
    println!(
        "  hot span: mean recall {:.3}, precision {:.3} over {} reads; {regions} regions; aggregation {:.1} ms; lost {:?}",
        mean(&recalls),
        mean(&precisions),
        recalls.len(),
        mean(&lengths),
        source.lost(),
    );
    println!(
        "  cost: kdamond {:.2}% of a core since its start, we {:.2}%",
        cpu_ticks(thread) as f64 / passed,
        (clock::thread_cpu_ns() - cpu) as f64 / 1e7 / passed
    );
    assert!(mean(&recalls) > 0.5 && mean(&precisions) > 0.5);
    assert_eq!(source.lost().0, 0);
    source.close().unwrap();
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn targets_come_and_go() {
    let (first, second) = (workload(1), workload(2));
    let mut source = open(Space::Processes);
    source.attach(first.pid()).unwrap();
    source.layout(first.pid()).unwrap();
    wait_for(&mut source, first.pid());
    let thread = source.thread().unwrap();
    source.attach(second.pid()).unwrap();
    source.layout(second.pid()).unwrap();
    let told = wait_for(&mut source, second.pid());
    assert!(told.iter().any(|r| r.range.intersect(second.memory()).is_some()), "{told:?}");
    assert_eq!(source.thread(), Some(thread), "added to what runs");
    let gone = first.pid();
    drop(first);
    source.detach(gone);
    std::thread::sleep(Duration::from_millis(300));
    assert!(!read(&mut source, second.pid()).1.is_empty(), "the other goes on");
    assert_eq!(source.thread(), Some(thread), "and nothing begins anew for that");
    let third = workload(3);
    source.attach(third.pid()).unwrap();
    source.layout(third.pid()).unwrap();
    // One that has ended is in the way, so this waits for the pause between restarts.
    let began = clock::monotonic_ns();
    wait_for(&mut source, third.pid());
    println!("  a third target behind one that has ended: told after {} ms", (clock::monotonic_ns() - began) / MS);
    assert_ne!(source.thread(), Some(thread));
    wait_for(&mut source, second.pid());
    let stopped = (second.pid(), third.pid());
    drop((second, third));
    source.detach(stopped.0);
    source.detach(stopped.1);
    std::thread::sleep(Duration::from_secs(2));
    let fourth = workload(4);
    source.attach(fourth.pid()).unwrap();
    source.layout(fourth.pid()).unwrap();
    wait_for(&mut source, fourth.pid());
}

fn a_monitor_makes_snapshots_of_it() {
    let child = workload(5);
    let _neighbours = Neighbours::new();
    let selection = Selection::Pids { pids: vec![child.pid()], children: false };
    let follower = Follower::new(&selection, Proc::default()).unwrap();
    let cpu = clock::thread_cpu_ns();
    let mut monitor = Monitor::new(Box::new(open(Space::Processes)), follower, RealClock, Settings::default());
    monitor.watch(RealClock.now() + 8 * S, &AtomicBool::new(false)).unwrap();
    let snapshot = monitor.snapshot(0);
    let target = &snapshot.targets[0];
    assert_eq!((target.granularity, target.exited), (Granularity::Region, false));
    let (resident, hot) = (target.temperature.resident(), target.temperature.within_ns(S));
    println!(
        "  snapshot: {} regions, {} pages resident, {hot} hot of {HOT_PAGES}; slow-down {:.2}%, monitor {:.2}% of a core",
        target.regions.len(),
        resident,
        snapshot.cost.slowdown_pct,
        (snapshot.cost.monitor_cpu_ns - cpu) as f64 / 1e7 / (snapshot.cost.elapsed_ns as f64 / 1e9)
    );
    assert!(resident > PAGES as u64 * 9 / 10 && resident < PAGES as u64 * 12 / 10);
    assert!(hot > HOT_PAGES as u64 / 2, "{hot}");
    assert!(target.regions.windows(2).all(|r| r[0].range.end <= r[1].range.start));
    assert!(!target.mappings.is_empty());
}

fn physical_memory_is_told_whole() {
    let _busy = workload(6);
    let _neighbours = Neighbours::new();
    let mut source = open(Space::Physical);
    let Attached { id, comm, .. } = source.attach(Damon::PHYSICAL).unwrap();
    assert_eq!((id, comm.as_str()), (TargetId { pid: 0, start_ticks: 0 }, "paddr"));
    let ram: u64 = source.layout(0).unwrap().mappings.iter().map(|m| m.range.len().pages()).sum();
    wait_for(&mut source, 0);
    let mut most = 0;
    for _ in 0..40 {
        std::thread::sleep(Duration::from_millis(200));
        let told = read(&mut source, 0).1;
        most = most.max(told.iter().filter(|r| r.nr_accesses > 0).map(|r| r.resident_pages).sum());
    }
    let told = read(&mut source, 0).1;
    let pages: u64 = told.iter().map(|r| r.resident_pages).sum();
    println!("  paddr: {} regions over {pages} of {ram} pages, up to {most} of them accessed", told.len());
    assert_eq!(pages, ram);
    assert!(most > 0);
    assert!(source.attach(1).is_err(), "no process");
    source.close().unwrap();
}

/// Uses DAMON on a process until killed.
fn hold(pid: u32) {
    let mut source = open(Space::Processes);
    source.attach(pid).unwrap();
    source.layout(pid).unwrap();
    wait_for(&mut source, pid);
    println!("holding");
    loop {
        std::thread::sleep(Duration::from_secs(60));
    }
}

fn holder(pid: u32) -> std::process::Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let mut holder = command.args(["hold", &pid.to_string()]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "holding\n");
    holder
}

fn refusal() -> String {
    let before = tree();
    let refused = Damon::open(Space::Processes, Attributes::default()).map(drop).unwrap_err().to_string();
    assert_eq!(tree(), before, "nothing is changed by asking");
    println!("  {refused}");
    refused
}

fn a_second_one_is_refused() {
    let child = workload(7);
    let mut holder = holder(child.pid());
    let refused = refusal();
    assert!(refused.contains(&format!("another Isotherm (process {})", holder.id())), "{refused}");
    assert_eq!(kdamond("0/state"), "on", "the first goes on");
    holder.kill().unwrap();
    holder.wait().unwrap();
    drop(open(Space::Processes));
}

fn what_a_killed_one_left_is_cleaned_up() {
    let child = workload(7);
    let mut holder = holder(child.pid());
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert_eq!((kdamond("nr_kdamonds"), kdamond("0/state")), ("1".into(), "on".into()), "left behind");
    let mut source = open(Space::Processes);
    assert_eq!(kdamond("0/state"), "off");
    source.attach(child.pid()).unwrap();
    source.layout(child.pid()).unwrap();
    wait_for(&mut source, child.pid());
    source.close().unwrap();
    assert_eq!(kdamond("nr_kdamonds"), "0");
    // One that is killed, and whose kdamond somebody else starts again: that is theirs.
    let mut holder = self::holder(child.pid());
    holder.kill().unwrap();
    holder.wait().unwrap();
    write("0/state", "off");
    write("0/state", "on");
    assert!(refusal().contains("somebody through sysfs (1 set up, 1 running)"));
    write("0/state", "off");
    write("nr_kdamonds", "0");
}

fn whoever_else_uses_it_is_left_alone() {
    write("nr_kdamonds", "2");
    assert!(refusal().contains("somebody through sysfs (2 set up, 0 running)"));
    write("nr_kdamonds", "0");
    let module = "/sys/module/damon_reclaim/parameters/enabled";
    fs::write(module, "Y").unwrap();
    assert!(refusal().contains("the kernel module damon_reclaim"));
    fs::write(module, "N").unwrap();
}

fn what_is_gone_is_a_normal_event() {
    let child = workload(7);
    let pid = child.pid();
    let mut source = open(Space::Processes);
    source.attach(pid).unwrap();
    source.layout(pid).unwrap();
    wait_for(&mut source, pid);
    drop(child);
    let errors = [source.layout(pid).map(drop).unwrap_err(), source.regions(pid).map(drop).unwrap_err()];
    assert!(errors.iter().all(SourceError::is_gone), "{errors:?}");
    source.detach(pid);
    source.detach(pid);
    assert!(source.attach(pid).unwrap_err().is_gone());
    let kernel = source.attach(2).unwrap_err();
    assert!(kernel.is_gone() && kernel.to_string().contains("has no user memory"), "a kernel thread: {kernel}");
}
