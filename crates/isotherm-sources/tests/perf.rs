//! Sampled accesses on real processes: page faults anywhere, NUMA hint faults in the lab.

#![allow(missing_docs, reason = "no library")]

mod support;

use isotherm_heat::source::{AccessSource, ReportSource};
use isotherm_heat::{Access, Interval, Region, Snapshot};
use isotherm_monitor::{Follower, Monitor, Selection, Settings};
use isotherm_sources::RealClock;
use isotherm_sources::choose::{self, Request, Wanted};
use isotherm_sources::perf::{Options, Over, Perf};
use isotherm_sys::pagemap::Pagemap;
use isotherm_sys::perf::Rate;
use isotherm_sys::proc::Proc;
use isotherm_units::PAGES_PER_PMD;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;
use support::{Has, Toucher, skip};

const S: u64 = 1_000_000_000;

#[test]
fn child_touches_as_told() {
    support::serve();
}

/// Tests that listen to the whole host hear the others of this program, whose storms of faults would change their rate.
static HOST: RwLock<()> = RwLock::new(());

fn beside_others() -> RwLockReadGuard<'static, ()> {
    HOST.read().unwrap_or_else(PoisonError::into_inner)
}

fn alone() -> RwLockWriteGuard<'static, ()> {
    HOST.write().unwrap_or_else(PoisonError::into_inner)
}

/// Prints a figure past the test harness.
fn add(what: &str) {
    let _ = writeln!(std::io::stderr(), "perf: {what}");
}

/// Page faults, every one.
fn faults(over: Over) -> Options {
    Options { events: vec!["faults".into()], over, max_slowdown_pct: 1000.0, ..Options::default() }
}

/// The source, if this machine lets us have it.
fn open(options: &Options) -> Option<Perf> {
    match Perf::open(options) {
        Ok(perf) => Some(perf),
        Err(why) => {
            skip(&format!("perf events: {why}"));
            None
        }
    }
}

fn accesses(perf: &mut Perf, pid: u32) -> Vec<Access> {
    // Rings are read every 20 ms at the most.
    std::thread::sleep(Duration::from_millis(30));
    let mut all = Vec::new();
    perf.accesses(pid, &mut |access| all.push(access)).unwrap();
    all
}

fn untouched(pmds: u64) -> Has {
    Has { pmds, huge: false, populated: false }
}

#[test]
fn every_first_touch_of_a_child_is_told_with_its_address() {
    let _turn = beside_others();
    let Some(mut perf) = open(&faults(Over::Processes)) else { return };
    let mut child = Toucher::start(untouched(8));
    // The child may not have come to rest yet, and is sampled as soon as its events are open.
    let began = isotherm_sys::clock::monotonic_ns();
    perf.attach(child.pid()).unwrap();
    perf.layout(child.pid()).unwrap();
    assert_eq!(child.order("touch 100 3000"), 3000);
    let told = accesses(&mut perf, child.pid());
    let first = child.pmds()[0].page(0).0;
    let touched: BTreeSet<u64> = told.iter().map(|a| a.page.0.wrapping_sub(first)).filter(|p| *p < 8 * 512).collect();
    assert_eq!(touched, (100..3100).collect(), "each page, and no other of that memory");
    let now = isotherm_sys::clock::monotonic_ns();
    assert!(told.iter().all(|a| a.weight == 1 && (began..=now).contains(&a.at)));
    // A second touch is no fault; after being given back, it is a first one again.
    child.order("touch 100 3000");
    let again = accesses(&mut perf, child.pid());
    assert!(!again.iter().any(|a| (first..first + 4096).contains(&a.page.0)), "{} told", again.len());
    child.order("drop 100 10");
    child.order("touch 0 200");
    let third = accesses(&mut perf, child.pid());
    let touched: BTreeSet<u64> = third.iter().map(|a| a.page.0.wrapping_sub(first)).filter(|p| *p < 4096).collect();
    assert_eq!(touched, (0..110).collect());
    let reports = perf.reports();
    assert_eq!(reports.lost, 0, "{reports:?}");
    assert!(reports.events.abs_diff(reports.samples) <= 16, "counted as often as told: {reports:?}");
    let evidence = perf.evidence();
    assert!(evidence.inside >= 3010 && evidence.inside_share() > 0.95, "{evidence:?}");
}

#[test]
fn what_a_child_does_before_it_is_noticed_is_told_too() {
    let _turn = beside_others();
    let Some(mut perf) = open(&faults(Over::Descendants)) else { return };
    let mut child = Toucher::start(untouched(4));
    child.order("touch 0 2048");
    perf.attach(child.pid()).unwrap();
    let first = child.pmds()[0].page(0).0;
    let told = accesses(&mut perf, child.pid());
    let touched: BTreeSet<u64> = told.iter().map(|a| a.page.0.wrapping_sub(first)).filter(|p| *p < 2048).collect();
    assert_eq!(touched.len(), 2048, "of {} told", told.len());
    // Its start as well: the loader, the program's own data.
    assert!(told.len() > 2048 + 50, "{}", told.len());
}

#[test]
fn the_host_as_a_whole_tells_the_same_and_only_of_whom_is_asked() {
    let _turn = alone();
    let Some(mut perf) = open(&faults(Over::Host)) else { return };
    let (mut child, mut other) = (Toucher::start(untouched(4)), Toucher::start(untouched(4)));
    perf.attach(child.pid()).unwrap();
    child.order("touch 0 1000");
    other.order("touch 0 2000");
    let first = child.pmds()[0].page(0).0;
    let told = accesses(&mut perf, child.pid());
    let touched: BTreeSet<u64> = told.iter().map(|a| a.page.0.wrapping_sub(first)).filter(|p| *p < 2048).collect();
    assert_eq!(touched, (0..1000).collect());
    assert!(told.len() < 1200, "{} told", told.len());
}

fn watch(source: Box<dyn AccessSource>, pid: u32, seconds: u64) -> (Snapshot, Vec<String>) {
    watch_until(source, pid, seconds, |_, _| false)
}

/// Watches for so long, or until what is seen and told is enough.
fn watch_until(
    source: Box<dyn AccessSource>,
    pid: u32,
    seconds: u64,
    is_enough: impl Fn(&Snapshot, &[String]) -> bool,
) -> (Snapshot, Vec<String>) {
    let selection = Selection::Pids { pids: vec![pid], children: false };
    let follower = Follower::new(&selection, Proc::default()).unwrap();
    let settings = Settings { max_cpu_pct: 1000.0, ..Settings::default() };
    let mut monitor = Monitor::new(source, follower, RealClock, settings);
    let mut news = Vec::new();
    let mut second = 0;
    loop {
        monitor.watch(monitor.now() + S, &AtomicBool::new(false)).unwrap();
        news.extend(monitor.news());
        let snapshot = monitor.snapshot(0);
        second += 1;
        if second == seconds || is_enough(&snapshot, &news) {
            return (snapshot, news);
        }
    }
}

fn is_called_useless(_: &Snapshot, news: &[String]) -> bool {
    news.iter().any(|n| n.contains("of no use here"))
}

#[test]
fn more_samples_than_the_budget_allows_are_made_fewer_and_that_is_told() {
    let _turn = beside_others();
    let options = Options { max_slowdown_pct: 0.1, ..faults(Over::Processes) };
    let Some(perf) = open(&options) else { return };
    let mut child = Toucher::start(untouched(1));
    let pid = child.pid();
    child.begin("fault 6000");
    let (snapshot, news) = watch(Box::new(perf), pid, 5);
    let told: Vec<_> = news.iter().filter(|n| n.contains("more than the budget allows")).collect();
    assert!(!told.is_empty(), "{news:?}");
    let cost = snapshot.cost;
    assert!(cost.events > 4 * cost.samples, "{cost:?}");
    assert!(cost.samples_lost * 20 < cost.events, "{cost:?}");
    add(&format!("{} events, {} samples, {} lost; {}", cost.events, cost.samples, cost.samples_lost, told[0]));
}

#[test]
fn an_event_without_addresses_is_named_within_seconds() {
    let _turn = beside_others();
    // The CPU clock: it happens all the time, and is no access.
    let raw = "1000 0 1 0 0 0".parse().unwrap();
    let Some(perf) = open(&Options { raw: Some(raw), ..Options::default() }) else { return };
    let mut child = Toucher::start(untouched(1));
    child.order("spin 0 512 1");
    // An emulator takes longer.
    let (_, news) = watch_until(Box::new(perf), child.pid(), 15, is_called_useless);
    assert!(news.iter().any(|n| n.contains("of no use here: its samples carry no address")), "{news:?}");
}

#[test]
fn an_event_that_never_happens_is_named_within_seconds() {
    let _turn = beside_others();
    // Emulation faults: no processor of ours has any.
    let raw = "1000 0 1 8 0 0".parse().unwrap();
    let Some(perf) = open(&Options { raw: Some(raw), ..Options::default() }) else { return };
    let mut child = Toucher::start(untouched(1));
    child.order("spin 0 512 1");
    let (_, news) = watch_until(Box::new(perf), child.pid(), 15, is_called_useless);
    assert!(news.iter().any(|n| n.contains("of no use here: it does not happen")), "{news:?}");
}

#[test]
fn page_tables_and_samples_together_say_who_knew_what() {
    let _turn = beside_others();
    let request = Request { wanted: Wanted::PageTable, perf: faults(Over::Processes), ..Request::default() };
    let source = match choose::open_request(&request) {
        Ok(source) => source,
        Err(why) => return skip(&format!("the page-table source and perf events: {why}")),
    };
    assert_eq!(source.describe().name, "page-table+perf");
    let mut child = Toucher::start(Has { pmds: 8, huge: false, populated: true });
    let pid = child.pid();
    // Two huge ranges are accessed all the time, which no page fault tells.
    child.order("spin 512 1024 1");
    // A huge range is faulted again and again, which is too fast for bits. What of it is there is known some time after that.
    let (memory, pmd) = (child.range(), child.pmds()[4].range());
    let of_pmd = |snapshot: &Snapshot| {
        let inside = |r: &&Region| r.range.intersect(pmd).is_some_and(|both| both.len().0 > pmd.len().0 / 2);
        snapshot.targets[0].regions.iter().find(inside).copied()
    };
    let is_known = |snapshot: &Snapshot, _: &[String]| of_pmd(snapshot).is_some_and(|r| r.sampled_pages >= 500);
    let refaulting = std::thread::spawn(move || {
        let rounds = child.order("refault 2048 512 5000");
        (child, rounds)
    });
    std::thread::sleep(Duration::from_millis(200));
    let watching = |source| watch_until(source, pid, 30, |s, n| s.cost.elapsed_ns > 7 * S && is_known(s, n));
    let (snapshot, _) = watching(source);
    let (_child, rounds) = refaulting.join().unwrap();
    let target = &snapshot.targets[0];
    let hot_bits: u64 = target
        .regions
        .iter()
        .filter(|r| {
            r.range.intersect(memory).is_some()
                && r.sampled_pages == 0
                && r.interval.is_measured()
                && r.interval <= Interval::from_ns(S)
        })
        .map(|r| r.resident_pages)
        .sum();
    assert!((900..1200).contains(&hot_bits), "{hot_bits} pages hot by their bits: {:?}", target.regions);
    let found = of_pmd(&snapshot);
    let region = found.unwrap_or_else(|| panic!("{pmd:?} is not among {:?}", target.regions));
    // Each page is touched once a round, over all the time that was listened.
    let expected_hz = rounds as f64 / (snapshot.cost.elapsed_ns as f64 / 1e9);
    let off = f64::from(region.rate_hz) / expected_hz;
    assert!(region.sampled_pages >= 500 && (0.7..1.4).contains(&off), "{expected_hz} Hz in truth: {region:?}");
    assert!(snapshot.cost.samples > 10_000, "{:?}", snapshot.cost);
}

/// A machine on which the kernel makes hint faults, and that is ours to load.
fn makes_hint_faults() -> bool {
    let number = |path: &str| std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u32>().ok());
    if number("/proc/sys/kernel/numa_balancing").unwrap_or(0) == 0 {
        skip("NUMA balancing on several nodes");
        return false;
    }
    true
}

#[test]
fn hint_faults_alone_find_the_hot_span() {
    let _turn = beside_others();
    if !makes_hint_faults() {
        return;
    }
    let Some(perf) = open(&faults(Over::Processes)) else { return };
    // Threads on both nodes: what a single thread has on its own node is left alone by the kernel.
    const PMDS: u64 = 64;
    let (first, count) = (20 * PAGES_PER_PMD as u64, 8 * PAGES_PER_PMD as u64);
    let mut child = Toucher::start(Has { pmds: PMDS, huge: false, populated: true });
    child.order(&format!("spin {first} {count} 2"));
    let (snapshot, news) = watch(Box::new(perf), child.pid(), 40);
    let hot = |page: u64| (first..first + count).contains(&page);
    let base = child.pmds()[0].page(0).0;
    let (mut found, mut right) = (0_u64, 0_u64);
    for region in &snapshot.targets[0].regions {
        // Touched about once a scan of the kernel, which is once in a second to a minute.
        let Some(inside) = region.range.intersect(child.range()) else { continue };
        if region.interval <= Interval::from_ns(20 * S) && region.interval.is_measured() {
            let pages = inside.start.page().0 - base..inside.end.page().0 - base;
            found += pages.end - pages.start;
            right += pages.filter(|page| hot(*page)).count() as u64;
        }
    }
    let (precision, recall) = (right as f64 / found.max(1) as f64, right as f64 / count as f64);
    add(&format!(
        "hint faults of {} MiB, {} hot: precision {precision:.4}, recall {recall:.4}, {} samples, {} lost",
        PMDS * 2,
        count * 4 / 1024,
        snapshot.cost.samples,
        snapshot.cost.samples_lost
    ));
    assert!(precision > 0.9 && recall > 0.9, "{news:?} {:?}", snapshot.targets[0].regions);
}

#[test]
fn a_longer_period_counts_for_more() {
    let _turn = beside_others();
    let Some(mut perf) = open(&Options { rate: Some(Rate::Period(10)), ..faults(Over::Processes) }) else { return };
    let mut child = Toucher::start(untouched(8));
    perf.attach(child.pid()).unwrap();
    child.order("touch 0 4000");
    let told = accesses(&mut perf, child.pid());
    let weight: u64 = told.iter().map(|a| u64::from(a.weight)).sum();
    assert!((3900..4200).contains(&weight) && told.len() < 500, "{} samples weigh {weight}", told.len());
}

#[test]
fn ten_thousand_threads_are_listened_to_as_a_host_or_refused_with_a_number() {
    let _turn = alone();
    let Some(mut host) = open(&faults(Over::Host)) else { return };
    let mut child = Toucher::start(untouched(1));
    let threads = child.order("threads 10000");
    host.attach(child.pid()).unwrap();
    child.order("touch 0 512");
    assert_eq!(touched(&mut host, &child).len(), 512);
    // Each thread by itself takes a descriptor for each processor and kind of fault.
    let Some(mut each) = open(&faults(Over::Processes)) else { return };
    let began = std::time::Instant::now();
    match each.attach(child.pid()) {
        Ok(_) => {
            child.order("drop 0 512");
            child.order("touch 0 512");
            assert!(accesses(&mut each, child.pid()).len() >= 512);
        }
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains("descriptors") && text.contains("ulimit -n"), "{text}");
        }
    }
    add(&format!("{threads} threads one by one: {:.1} s", began.elapsed().as_secs_f64()));
}

#[test]
fn physical_addresses_are_those_of_the_frames() {
    let _turn = alone();
    let options = Options { physical: true, ..faults(Over::Host) };
    let Some(mut perf) = open(&options) else { return };
    perf.attach(Perf::PHYSICAL).unwrap();
    perf.layout(Perf::PHYSICAL).unwrap();
    let mut child = Toucher::start(untouched(4));
    child.order("touch 0 2048");
    let told: BTreeSet<u64> = accesses(&mut perf, Perf::PHYSICAL).iter().map(|a| a.page.0).collect();
    let pagemap = Pagemap::open(Path::new("/proc"), child.pid()).unwrap();
    let entries = pagemap.read(child.range()).unwrap();
    let frames: BTreeSet<u64> = entries.iter().filter_map(|(_, entry)| entry.frame()).collect();
    if frames.is_empty() {
        return skip("frame numbers (CAP_SYS_ADMIN)");
    }
    assert_eq!(frames.len(), 2048);
    assert!(frames.is_subset(&told), "{} of {} are missing", frames.difference(&told).count(), frames.len());
    assert!(perf.attach(child.pid()).unwrap_err().to_string().contains("name no process"));
}

#[test]
fn a_processor_may_go_offline_and_come_back() {
    let _turn = beside_others();
    if std::env::var_os("ISOTHERM_LAB").is_none() {
        return skip("the lab (ISOTHERM_LAB=1): it takes a processor offline");
    }
    let online = Path::new("/sys/devices/system/cpu/cpu1/online");
    if !online.exists() {
        return skip("a second processor");
    }
    let Some(mut perf) = open(&faults(Over::Processes)) else { return };
    let mut child = Toucher::start(untouched(4));
    perf.attach(child.pid()).unwrap();
    let mut found = BTreeSet::new();
    let mut news = Vec::new();
    for (round, state) in ["0", "1"].into_iter().enumerate() {
        std::fs::write(online, state).unwrap();
        // Processors are looked at once a second, in an emulator more seldom.
        for _ in 0..200 {
            found.extend(touched(&mut perf, &child));
            news.extend(perf.news());
            if news.len() > round {
                break;
            }
        }
        child.order(&format!("touch {} 1000", 1000 * round));
        found.extend(touched(&mut perf, &child));
    }
    assert_eq!(found, (0..2000).collect());
    assert_eq!(news, ["processor 1 went offline", "processor 1 came online"]);
}

/// Pages of the child that were told of, as indices.
fn touched(perf: &mut Perf, child: &Toucher) -> BTreeSet<u64> {
    let (first, pages) = (child.pmds()[0].page(0).0, child.range().len().pages());
    accesses(perf, child.pid()).iter().map(|a| a.page.0.wrapping_sub(first)).filter(|p| *p < pages).collect()
}

#[test]
fn a_process_that_ends_while_the_rate_is_changed_takes_nothing_with_it() {
    let _turn = alone();
    for over in [Over::Processes, Over::Descendants, Over::Host] {
        let options = Options { max_slowdown_pct: 0.1, ..faults(over.clone()) };
        let Some(mut perf) = open(&options) else { return };
        let (mut busy, short, mut other) =
            (Toucher::start(untouched(1)), Toucher::start(untouched(1)), Toucher::start(untouched(8)));
        let pids = [busy.pid(), short.pid(), other.pid()];
        for pid in pids {
            perf.attach(pid).unwrap();
        }
        // Nobody has noticed yet that it has ended.
        drop(short);
        busy.begin("fault 20000");
        let mut news = Vec::new();
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(100));
            for pid in pids {
                perf.accesses(pid, &mut |_| {}).unwrap();
            }
            news.extend(perf.news());
        }
        assert!(news.iter().any(|n| n.contains("more than the budget allows")), "{over:?}: {news:?}");
        assert!(
            !news.iter().any(|n| n.contains("could not be changed") || n.contains("no more")),
            "{over:?}: {news:?}"
        );
        other.order("touch 0 4096");
        let told = touched(&mut perf, &other).len();
        assert!((10..2000).contains(&told), "{over:?}: {told} of 4096 touched, at {:?}", perf.rate());
    }
}

#[test]
fn another_program_in_a_process_has_its_first_touches_told_when_it_is_attached_again() {
    let _turn = beside_others();
    let Some(mut perf) = open(&faults(Over::Processes)) else { return };
    let mut child = Toucher::start(untouched(4));
    perf.attach(child.pid()).unwrap();
    child.order("touch 0 500");
    // Handed over already, as the monitor does before it finds out; then as after an exec.
    let before = touched(&mut perf, &child);
    perf.detach(child.pid());
    perf.attach(child.pid()).unwrap();
    assert_eq!((before.len(), touched(&mut perf, &child)), (500, before));
}

#[test]
fn many_processes_are_listened_to_as_a_host() {
    let _turn = alone();
    for _ in 0..3 {
        let Some(perf) = open(&faults(Over::Processes)) else { return };
        if Perf::open(&faults(Over::Host)).is_err() {
            return skip("CAP_PERFMON");
        }
        if listen_to_many_as_a_host(perf) {
            return;
        }
    }
    skip("a machine on which no sample is lost");
}

/// Listens to so many processes that the host is sampled instead. Of a busy one samples may be lost, which is counted, and from then on
/// fewer are taken, which weigh more. Returns whether none were lost: then all first touches are known to have been told.
fn listen_to_many_as_a_host(mut perf: Perf) -> bool {
    let mut children: Vec<Toucher> = (0..20).map(|_| Toucher::start(untouched(1))).collect();
    children.iter().for_each(|child| drop(perf.attach(child.pid()).unwrap()));
    assert!(perf.news().iter().any(|n| n.contains("the whole host is sampled from here on")));
    let mut told = Vec::new();
    let mut is_every = true;
    for child in &mut children {
        told.push(first_touches(&mut perf, child));
        is_every &= perf.rate() == Rate::Period(1);
    }
    let reports = perf.reports();
    // Counters are as of now, and rings were read some milliseconds ago, in which others have faulted. Where to ask counters takes long, as in an
    // emulator, they are older; but nothing is sampled twice.
    let few = |pages: u64| 1000 + pages / 20;
    let (late, counted) = (reports.events.saturating_sub(reports.samples), reports.events.max(20 * 512));
    assert!(!is_every || late < few(reports.events), "{reports:?}");
    assert!(!is_every || reports.samples < counted + few(counted), "{reports:?}");
    if !is_every || reports.lost > 0 {
        return false;
    }
    let all: BTreeSet<u64> = (0..512).collect();
    for (no, told) in told.iter().enumerate() {
        assert_eq!(*told, all, "child {no} of {}: {reports:?}", children.len());
    }
    true
}

/// Lets the child touch its 512 pages, with a whole host heard beside it. Returns those that were told.
fn first_touches(perf: &mut Perf, child: &mut Toucher) -> BTreeSet<u64> {
    child.order("touch 0 512");
    let first = child.pmds()[0].page(0).0;
    let mut told = accesses(perf, child.pid());
    told.retain(|access| (first..first + 512).contains(&access.page.0));
    let weight: u64 = told.iter().map(|access| u64::from(access.weight)).sum();
    let Rate::Period(period) = perf.rate() else { panic!("{:?}", perf.rate()) };
    // Which of the faults on a processor is the one in `period` is chance.
    let chance = if period == 1 { 0 } else { 128 + period * 8 };
    assert!((1..=512 + chance).contains(&weight), "{weight} told, one in {period}");
    told.iter().map(|access| access.page.0 - first).collect()
}
