//! On memory of our own, with the kernel as witness.

use super::*;
use isotherm_rng::Rng;
use isotherm_sys::clear_refs::{self, Clear};
use isotherm_sys::clock;
use isotherm_sys::memory::{Memory, PageSize};
use isotherm_sys::pagemap::Pagemap;
use isotherm_units::{AddrRange, PMD_SIZE};
use std::io::{self, Write};
use std::path::Path;

/// A thread that maps memory would keep the other test from an answer.
static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// Allows or forbids accesses to `pages`. A page that may not be accessed has bit 8 in place of bit 0, as under NUMA balancing.
fn allow(pages: AddrRange, protection: i32) {
    let start = std::ptr::with_exposed_provenance_mut(usize::try_from(pages.start.0).unwrap());
    // SAFETY: the range is within memory of the test, whose pages are not accessed while they may not be.
    let result = unsafe { libc::mprotect(start, usize::try_from(pages.len().0).unwrap(), protection) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

/// Bits of the pages for which `is_in` says so.
fn pages(mut is_in: impl FnMut(usize) -> bool) -> [u64; 8] {
    std::array::from_fn(|word| (0..64).filter(|bit| is_in(word * 64 + bit)).map(|bit| 1 << bit).sum())
}

fn has(bits: &[u64; 8], page: usize) -> bool {
    bits[page / 64] >> (page % 64) & 1 == 1
}

fn opened(walker: Result<Walker, Error>) -> Option<Walker> {
    if walker.is_err() {
        let _ = writeln!(io::stderr(), "skipped: needs the page-table reader (root)");
    }
    walker.ok()
}

fn seed() -> u64 {
    let given = std::env::var("BPF_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(clock::unix_ns);
    let _ = writeln!(io::stderr(), "BPF_SEED={seed}");
    seed
}

#[test]
fn bits_are_those_of_random_pages_accessible_or_not_and_pages_that_were_only_read_are_none() {
    let _turn = TURN.lock();
    let Some(mut walker) = opened(Walker::open()) else { return };
    let (me, mut rng) = (std::process::id(), Rng::new(seed()));
    for _ in 0..20 {
        let memory = Memory::anonymous(PMD_SIZE, PageSize::Small).unwrap();
        let pmd = memory.range().start.pmd();
        let of_4 = 1 + rng.below(4);
        let present = pages(|_| rng.below(4) < of_4);
        for page in (0..512).filter(|page| has(&present, *page)) {
            memory.write(page);
        }
        // The zero page, whose bits stay set for ever.
        let of_4 = rng.below(5);
        for page in (0..512).filter(|page| !has(&present, *page) && rng.below(4) < of_4) {
            assert_eq!(memory.read(page), 0);
        }
        clear_refs::clear(Path::new("/proc"), me, Clear::All).unwrap();
        // Flushes the TLB, without which the processor would not set the bits of pages again.
        allow(pmd.range(), libc::PROT_NONE);
        allow(pmd.range(), libc::PROT_READ | libc::PROT_WRITE);
        let young = pages(|page| has(&present, page) && rng.below(4) < 2);
        for page in (0..512).filter(|page| has(&young, *page)) {
            let _ = memory.read(page);
        }
        for page in (0..512).filter(|_| rng.below(4) == 0) {
            allow(AddrRange::new(pmd.page(page).addr(), pmd.page(page + 1).addr()), libc::PROT_NONE);
        }
        let (pass, answers) = walker.pass(me, Op::Pmds, &[pmd.addr()]).unwrap();
        assert_eq!((pass.done, pass.read_errors), (1, 0));
        assert_eq!((answers[0].kind(), answers[0].b, answers[0].a), (Kind::Pages, present, young));
        // The answer to Op::Tables for the same memory: this huge range has a table.
        let (_, answers) = walker.pass(me, Op::Tables, &[pmd.addr()]).unwrap();
        assert!(has(&answers[0].b, usize::try_from(pmd.0 % 512).unwrap()), "{:?}", answers[0]);
    }
}

#[test]
fn a_huge_range_that_was_only_read_has_no_pages() {
    let _turn = TURN.lock();
    let Some(mut walker) = opened(Walker::open()) else { return };
    let memory = Memory::anonymous(2 * PMD_SIZE, PageSize::Huge).unwrap();
    let pmd = memory.range().start.pmd();
    let (read, written) = (0, 512);
    assert_eq!(memory.read(read), 0);
    memory.write(written);
    let (pass, answers) = walker.pass(std::process::id(), Op::Pmds, &[pmd.addr(), pmd.next().addr()]).unwrap();
    assert_eq!((pass.done, pass.read_errors), (2, 0));
    // Where the machine makes no huge pages, there is a table, of the zero page.
    let is_empty = answers[0].kind() == Kind::None || answers[0].kind() == Kind::Pages && answers[0].b == [0; 8];
    assert!(is_empty, "{:?}", answers[0]);
    assert!(matches!(answers[1].kind(), Kind::Leaf2M | Kind::Pages), "{:?}", answers[1]);
}

#[test]
fn folios_have_the_frames_that_pagemap_tells() {
    let _turn = TURN.lock();
    let Some(mut walker) = opened(Walker::open_with_folios()) else { return };
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
    if opened(Walker::open()).is_none() {
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
