//! On memory of our own, with the kernel as witness.

use super::*;
use isotherm_sys::memory::{Memory, PageSize};
use isotherm_sys::pagemap::Pagemap;
use isotherm_units::PMD_SIZE;
use std::io::{self, Write};
use std::path::Path;

/// A thread that maps memory would keep the other test from an answer.
static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[test]
fn folios_have_the_frames_that_pagemap_tells() {
    let _turn = TURN.lock();
    let Ok(mut walker) = Walker::open() else {
        let _ = writeln!(io::stderr(), "skipped: needs the page-table reader (root)");
        return;
    };
    assert!(walker.knows_folios(), "a struct page that we do not know: see find_page_layout");
    let memory = Memory::anonymous(2 * PMD_SIZE, PageSize::Small).unwrap();
    let pmd = memory.range().start.pmd();
    (0..512).step_by(3).for_each(|page| memory.write(page));
    let entries = Pagemap::open(Path::new("/proc"), std::process::id()).unwrap().read(pmd.range()).unwrap();
    let (pass, folios) = walker.folios(std::process::id(), &[pmd.addr(), pmd.next().addr()]).unwrap();
    let folios: Vec<_> = folios.collect();
    assert_eq!((pass.done, pass.read_errors), (2, 0));
    assert_eq!([folios[0].0, folios[1].0], [Kind::Pages, Kind::None]);
    for ((page, entry), folio) in entries.iter().zip(folios[0].1) {
        assert_eq!(folio.frame, entry.frame().unwrap_or(0), "{page:?}");
        // Some flag is set of every page that is in use, if only the node's or that it is up to date.
        assert!(folio.frame == 0 || folio.flags != 0, "{page:?}");
    }
}

#[test]
fn the_reader_opens_while_another_thread_maps_memory() {
    let _turn = TURN.lock();
    if Walker::open().is_err() {
        let _ = writeln!(io::stderr(), "skipped: needs the page-table reader (root)");
        return;
    }
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                let memory = Memory::anonymous(64 * PMD_SIZE, PageSize::Small).unwrap();
                (0..memory.pages()).step_by(512).for_each(|page| memory.write(page));
            }
        });
        let opened: Vec<_> = (0..20).map(|_| Walker::open().map(drop)).collect();
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        opened.into_iter().for_each(|opened| opened.unwrap());
    });
}
