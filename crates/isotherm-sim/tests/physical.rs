//! The physical view: every page has a frame, and no frame two pages.

use isotherm_heat::Clock;
use isotherm_sim::{Area, Error, Heat, Host, ModelClock, PageProbe, Process};
use isotherm_units::{Addr, AddrRange, Bytes, PAGE_SIZE, PMD_SIZE, PageNo};
use std::collections::BTreeMap;
use std::sync::Arc;

fn pages(first: u64, count: u64) -> AddrRange {
    AddrRange::new(Addr(first * PAGE_SIZE), Addr((first + count) * PAGE_SIZE))
}

fn host() -> Host {
    let a = Process::new(1, "a")
        .area(Area::new(pages(1 << 20, 777), Heat::every(1_000_000)))
        .area(Area::new(pages(1 << 21, 1024), Heat::never()).huge())
        .area(Area::new(pages(1 << 22, 1500), Heat::never()));
    let b = Process::new(2, "b").area(Area::new(pages(1 << 20, 3000), Heat::never()));
    Host::new(Bytes::of_mib(37), vec![a, b]).unwrap()
}

#[test]
fn pages_and_frames_map_both_ways() {
    let host = host();
    for chunk in [2, 4, 8].map(Bytes::of_mib) {
        let physical = host.physical(chunk, 5).unwrap();
        let frames = physical.range().len().pages();
        assert_eq!(frames, Bytes::of_mib(37 / (chunk.0 >> 20) * (chunk.0 >> 20)).pages());
        let mut seen = BTreeMap::new();
        for process in host.processes() {
            for page in process.areas.iter().flat_map(|a| a.range.start.page().0..a.range.end.page().0) {
                let frame = physical.frame_of(process.pid, PageNo(page)).unwrap();
                assert!(frame < frames);
                assert_eq!(physical.page_of(frame), Some((process.pid, PageNo(page))));
                assert_eq!(seen.insert(frame, page), None);
            }
        }
        let used = (0..frames + 99).filter(|f| physical.page_of(*f).is_some()).count();
        assert_eq!(used, seen.len(), "all other frames are free");
        assert_eq!(physical.frame_of(1, PageNo(5)), None);
        assert_eq!(physical.frame_of(3, PageNo(1 << 20)), None);
    }
}

#[test]
fn huge_pages_lie_on_whole_huge_ranges() {
    let physical = host().physical(Bytes(PMD_SIZE), 5).unwrap();
    for pmd in [1 << 21, (1 << 21) + 512] {
        let first = physical.frame_of(1, PageNo(pmd)).unwrap();
        assert_eq!(first % 512, 0);
        assert_eq!(physical.frame_of(1, PageNo(pmd + 511)), Some(first + 511));
    }
}

#[test]
fn ranges_of_frames_tile_what_is_used() {
    let host = host();
    let physical = host.physical(Bytes::of_mib(2), 5).unwrap();
    let end = physical.range().len().pages();
    for cuts in [vec![0, end], vec![0, 5, 5, 511, 512, 700, 5000, end], (0..=end).step_by(97).chain([end]).collect()] {
        let mut found = Vec::new();
        for cut in cuts.windows(2) {
            for (pid, range) in physical.pages_in(pages(cut[0], cut[1] - cut[0])) {
                assert!(!range.is_empty());
                for page in range.start.page().0..range.end.page().0 {
                    let frame = physical.frame_of(pid, PageNo(page)).unwrap();
                    assert!((cut[0]..cut[1]).contains(&frame));
                    found.push((pid, page));
                }
            }
        }
        let all = found.len();
        found.sort_unstable();
        found.dedup();
        assert_eq!((found.len(), all), (6301, 6301));
    }
}

#[test]
fn frames_are_probed_as_the_pages_in_them() {
    let host = Arc::new(host());
    let physical = host.physical(Bytes::of_mib(2), 5).unwrap();
    let clock = ModelClock::default();
    let probe = PageProbe::new(host, clock.clone());
    let at = probe.prepare();
    clock.sleep_until(5_000_000);
    let hit = |pid, page| probe.check_frame(&physical, physical.frame_of(pid, PageNo(page)).unwrap(), at);
    assert!(hit(1, (1 << 20) + 9) && !hit(2, (1 << 20) + 9));
    let free = (0..9000).find(|f| physical.page_of(*f).is_none()).unwrap();
    assert!(!probe.check_frame(&physical, free, at));
}

#[test]
fn a_chunk_that_cannot_be_is_refused() {
    let host = host();
    let refused = |chunk| host.physical(Bytes(chunk), 5).unwrap_err();
    let text = "chunks of 3.0 MiB: a power of two is needed, at least 2.0 MiB here, and at most the memory of 37.0 MiB";
    assert_eq!(refused(3 << 20).to_string(), text);
    assert!(matches!(refused(4096), Error::Chunk { .. }), "there are huge pages");
    assert!(matches!(refused(64 << 20), Error::Chunk { .. }));
    let full = Process::new(1, "a").area(Area::new(pages(0, 9 * 256), Heat::never()));
    let full = Host::new(Bytes::of_mib(9), vec![full]).unwrap();
    let text = "processes use 9.0 MiB, the host has 8.0 MiB";
    assert_eq!(full.physical(Bytes::of_mib(4), 5).unwrap_err().to_string(), text, "in whole chunks");
}

#[test]
fn two_terabytes_are_laid_out_at_the_cost_of_their_areas() {
    let host = Host::two_tib();
    let physical = host.physical(Bytes::of_mib(2), 1).unwrap();
    let used: u64 = physical.pages_in(physical.range()).map(|(_, range)| range.len().0).sum();
    assert_eq!(Bytes(used), Bytes(host.processes().iter().map(|p| p.size().0).sum()));
}
