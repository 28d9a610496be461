//! How bits of a process are cleared whose memory comes back from swap: as a whole, and by advice again once that is over.
//!
//! Runs in a guest of the lab only (`ISOTHERM_LAB=1`) that has swap.

#![allow(missing_docs, reason = "no library")]

mod support;

use isotherm_heat::source::{AccessSource, Cleared, PageSource};
use isotherm_heat::{Mask, PmdBits};
use isotherm_sources::page_table::PageTable;
use isotherm_sys::free::Swap;
use isotherm_sys::proc::Proc;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use support::{Has, Toucher, skip};

const PMDS: u64 = 24;
/// Two thirds of it.
const LIMIT: &str = "32M";
/// The counts are read this often.
const LOOK_EVERY: Duration = Duration::from_secs(10);

#[test]
fn child_touches_as_told() {
    support::serve();
}

/// A cgroup with a limit, removed when dropped.
struct Limited(PathBuf);

impl Limited {
    fn with(pid: u32) -> Limited {
        let root = Proc::default().cgroups().unwrap().find("/").unwrap().dir;
        fs::write(root.join("cgroup.subtree_control"), "+memory").unwrap();
        let limited = Limited(root.join(format!("isotherm-test-{}-shortage", std::process::id())));
        fs::create_dir_all(&limited.0).unwrap();
        fs::write(limited.0.join("memory.max"), LIMIT).unwrap();
        fs::write(limited.0.join("cgroup.procs"), pid.to_string()).unwrap();
        limited
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Touches all of it, twice: what was touched last leaves no room for what was touched first.
fn touch_all(toucher: &mut Toucher) {
    for _ in 0..2 {
        toucher.order(&format!("touch 0 {}", toucher.range().len().pages()));
    }
}

/// Young pages of it.
fn young(source: &mut PageTable, toucher: &Toucher) -> u32 {
    let mut found = 0;
    let mut add = |bits| {
        if let Some(PmdBits::Pages { young, .. }) = bits {
            found += young.count();
        }
    };
    source.read(toucher.pid(), &toucher.pmds(), &mut |_, _, bits| add(bits)).unwrap();
    found
}

/// Clears all of it huge range by huge range. Returns how many pages that did not reach.
fn clear(source: &mut PageTable, toucher: &Toucher) -> u32 {
    let mut stuck = 0;
    source
        .clear(toucher.pid(), &toucher.pmds(), &mut |_, _, cleared| match cleared {
            Cleared::Except(pages) => stuck += pages.count(),
            Cleared::Refused => stuck += Mask::ALL.count(),
        })
        .unwrap();
    stuck
}

#[test]
fn what_comes_back_from_swap_is_cleared_with_the_process_and_by_advice_later() {
    let has_swap = Swap::read(Path::new("/proc")).is_some_and(|swap| swap.total.0 > 0);
    if std::env::var_os("ISOTHERM_LAB").is_none() || !has_swap {
        return skip("a guest of the lab with swap (ISOTHERM_LAB=1): it limits a cgroup's memory");
    }
    let mut source = match PageTable::open() {
        Ok(source) => source,
        Err(why) => return skip(&format!("the page-table source: {why}")),
    };
    let mut toucher = Toucher::start(Has { pmds: PMDS, huge: false, populated: false });
    let limited = Limited::with(toucher.pid());
    source.attach(toucher.pid()).unwrap();
    touch_all(&mut toucher);
    source.layout(toucher.pid()).unwrap();

    let before = young(&mut source, &toucher);
    assert!(before > 0, "reclaim has cleared the others");
    assert_eq!(
        (clear(&mut source, &toucher), young(&mut source, &toucher)),
        (before, before),
        "a part of it is in swap"
    );
    let all = toucher.pmds();
    assert_eq!(source.clear_process(toucher.pid(), &all, &all).unwrap().pmds, all);
    assert_eq!(young(&mut source, &toucher), 0);

    // It sleeps, so nothing comes back.
    std::thread::sleep(LOOK_EVERY);
    assert_eq!(clear(&mut source, &toucher), 0);
    let pages = toucher.range().len().pages();
    // clear_refs does not flush the TLB. Where nothing else has run on its CPU since, an access by an old entry would set no bit. To give
    // back so many pages that are there flushes all entries.
    toucher.order(&format!("drop {} 64", pages - 128));
    // One that is there. A page that has just come back waits in a batch of its CPU, where advice does not reach it.
    toucher.order(&format!("touch {} 1", pages - 1));
    assert!(young(&mut source, &toucher) > 0);
    assert_eq!((clear(&mut source, &toucher), young(&mut source, &toucher)), (0, 0), "by advice");

    std::thread::sleep(LOOK_EVERY);
    touch_all(&mut toucher);
    let before = young(&mut source, &toucher);
    assert!(before > 0, "reclaim has cleared the others");
    assert_eq!((clear(&mut source, &toucher), young(&mut source, &toucher)), (before, before), "pages come back");
    drop((toucher, limited));
}
