//! The multi-generation LRU on a real kernel: run in the lab, where ageing a cgroup is nobody else's business.

#![allow(missing_docs, reason = "no library")]

mod support;

use isotherm_heat::PmdBits;
use isotherm_heat::source::{AccessSource, PageSource};
use isotherm_sources::mglru::{Mglru, interval_of};
use isotherm_sources::page_table::{ClearBy, PageTable};
use isotherm_sys::clock;
use isotherm_sys::lru_gen::LruGen;
use std::io::Write;
use std::path::Path;
use std::time::Duration;
use support::{Has, Toucher, skip};

/// 64 MiB.
const PMDS: u64 = 32;
const PASSES: u32 = 20;

/// Prints a figure past the test harness.
fn add(what: &str) {
    let _ = writeln!(std::io::stderr(), "mglru: {what}");
}

/// Whether this is a machine on which we may age.
fn is_lab() -> bool {
    if std::env::var_os("ISOTHERM_LAB").is_none() {
        skip("the lab (ISOTHERM_LAB=1): aging reaches other processes of the cgroup");
        return false;
    }
    if let Err(why) = LruGen::open(Path::new("/sys")) {
        skip(&format!("MGLRU: {why}"));
        return false;
    }
    true
}

fn toucher(huge: bool) -> Toucher {
    Toucher::start(Has { pmds: PMDS, huge, populated: true })
}

#[test]
fn child_touches_as_told() {
    support::serve();
}

fn spin(time: Duration) {
    let began = std::time::Instant::now();
    while began.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Page faults of a process so far.
fn faults_of(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(')').unwrap().1.split_ascii_whitespace().nth(7).unwrap().parse().unwrap()
}

/// Young pages by huge range, of the huge ranges of the child's memory.
fn young(source: &mut PageTable, toucher: &Toucher) -> Vec<u32> {
    let mut found = Vec::new();
    source
        .read(toucher.pid(), &toucher.pmds(), &mut |_, _, bits| match bits {
            Some(PmdBits::Pages { young, .. }) => found.push(young.count()),
            other => panic!("{other:?}"),
        })
        .unwrap();
    found
}

#[test]
fn what_is_missing_is_named() {
    // Only looks, so it may be asked anywhere.
    if LruGen::open(Path::new("/sys")).is_ok() {
        return skip("a kernel without MGLRU, or that has it off");
    }
    let refused = [PageTable::open_clearing(ClearBy::Mglru).map(drop), Mglru::open().map(drop)];
    for error in refused.map(|result| result.unwrap_err().to_string()) {
        assert!(error.contains("MGLRU cannot be used: ") && error.contains("; "), "{error}");
    }
}

#[test]
fn aging_clears_accessed_bits_and_what_is_touched_after_is_young() {
    if !is_lab() {
        return;
    }
    let mut source = PageTable::open_clearing(ClearBy::Mglru).unwrap();
    let mut toucher = toucher(false);
    source.attach(toucher.pid()).unwrap();
    source.layout(toucher.pid()).unwrap();
    let all = toucher.pmds();
    assert_eq!(young(&mut source, &toucher).iter().sum::<u32>(), 512 * 32, "just populated");
    let began = clock::monotonic_ns();
    let cleared = source.clear_process(toucher.pid(), &[], &all).unwrap();
    let cost = (cleared.clear.at - began) as f64 / (512.0 * 32.0);
    let left: u32 = young(&mut source, &toucher).iter().sum();
    add(&format!(
        "aging took {cost:.0} ns a page, cleared {} of {} bits, {} of 32 huge ranges",
        512 * 32 - left,
        512 * 32,
        cleared.pmds.len()
    ));
    assert_eq!(cleared.pmds, all);
    assert!(left <= 512 * 32 / 50, "{left} pages still young");
    // Two whole huge ranges and a quarter of a third.
    toucher.order("touch 2560 1024");
    toucher.order("touch 10240 128");
    let after = young(&mut source, &toucher);
    let hot: Vec<usize> = (0..32).filter(|i| after[*i] > 64).collect();
    add(&format!("touched huge ranges 5, 6 and a part of 20; young pages: {after:?}"));
    assert_eq!(hot, [5, 6, 20]);
    assert!(after[5] == 512 && after[6] == 512 && (128..140).contains(&after[20]));
}

#[test]
fn page_faults_do_not_wait_for_aging() {
    if !is_lab() {
        return;
    }
    // The part of its page faults that the child gets done while a clear of its 64 MiB goes on: 0 if all wait, 1 if none does.
    let part_done = |by| {
        let mut source = PageTable::open_clearing(by).unwrap();
        let mut toucher = toucher(false);
        let pid = toucher.pid();
        source.attach(pid).unwrap();
        source.layout(pid).unwrap();
        let all = toucher.pmds();
        toucher.begin("fault 3000");
        std::thread::sleep(Duration::from_millis(300));
        let (mut during, mut besides) = ((0, 0), (0, 0));
        let measured = |sums: &mut (u64, u64), what: &mut dyn FnMut()| {
            let (faults, began) = (faults_of(pid), clock::monotonic_ns());
            what();
            sums.0 += faults_of(pid) - faults;
            sums.1 += clock::monotonic_ns() - began;
        };
        for _ in 0..PASSES {
            measured(&mut during, &mut || drop(source.clear_process(pid, &all, &all).unwrap()));
            // Spinning, not sleeping: in a guest two busy processors may be slower than one.
            measured(&mut besides, &mut || spin(Duration::from_millis(20)));
        }
        toucher.answer();
        let rate = |(faults, ns): (u64, u64)| faults as f64 / ns as f64;
        (rate(during) / rate(besides), during.1 as f64 / 1e6 / f64::from(PASSES))
    };
    let (refs, refs_ms) = part_done(ClearBy::Refs);
    let (aging, aging_ms) = part_done(ClearBy::Mglru);
    add(&format!(
        "of its page faults the child gets {:.0}% done during clear_refs ({refs_ms:.1} ms), {:.0}% during aging ({aging_ms:.1} ms)",
        refs * 100.0,
        aging * 100.0
    ));
    // From 6.4 on most page faults take a lock of their mapping only, and wait for neither. How much slower two busy processors of a
    // guest are than one varies too much to ask for more.
    assert!(aging > 0.02, "page faults wait for aging");
}

#[test]
fn generations_tell_what_was_touched_between_two_agings() {
    if !is_lab() {
        return;
    }
    let mut mglru = match Mglru::open() {
        Ok(mglru) => mglru,
        Err(why) => return skip(&format!("generations of pages: {why}")),
    };
    add(&format!("the generation is at bits {} to {}", mglru.shift(), mglru.shift() + 2));
    let mut toucher = toucher(false);
    mglru.age(&[toucher.pid()]).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    toucher.order("touch 0 1024");
    toucher.order("touch 15360 512");
    mglru.age(&[toucher.pid()]).unwrap();
    let mut young = Vec::new();
    let mut known = 0_u32;
    let began = clock::monotonic_ns();
    mglru
        .generations(toucher.pid(), &toucher.pmds(), &mut |ages| {
            known += u32::from(ages.known());
            young.push((ages.pmd.0 - toucher.range().start.pmd().0, ages.within(1)));
        })
        .unwrap();
    let cost = (clock::monotonic_ns() - began) as f64 / (512.0 * 32.0);
    add(&format!("reading generations took {cost:.0} ns a page; known {known} of {}; within 1: {young:?}", 512 * 32));
    let hot: Vec<u64> = young.iter().filter(|(_, pages)| *pages > 256).map(|(pmd, _)| *pmd).collect();
    assert_eq!(hot, [0, 1, 30]);
    assert!(young.iter().all(|(_, pages)| *pages == 512 || *pages < 64) && known > 512 * 32 * 49 / 50);
    let interval = interval_of(&mglru.memcg(toucher.pid()).unwrap()).unwrap();
    assert!(interval >= Duration::from_millis(200) && interval < Duration::from_secs(60), "{interval:?}");
}

#[test]
fn a_huge_page_has_one_generation() {
    if !is_lab() {
        return;
    }
    let Ok(mut mglru) = Mglru::open() else { return skip("generations of pages") };
    // Another process: what our own TLB holds would hide the touch, for aging does not flush it.
    let mut toucher = toucher(true);
    mglru.age(&[toucher.pid()]).unwrap();
    toucher.order("touch 512 1");
    mglru.age(&[toucher.pid()]).unwrap();
    let mut seen = Vec::new();
    let first = toucher.pmds();
    mglru.generations(toucher.pid(), &first[..3], &mut |ages| seen.push((ages.huge, ages.within(1)))).unwrap();
    add(&format!("three huge pages, the second touched: {seen:?}"));
    if seen.iter().any(|(huge, _)| !huge) {
        return skip("free huge pages");
    }
    assert_eq!(seen, [(true, 0), (true, 512), (true, 0)]);
}
