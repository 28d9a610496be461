//! The source against a naive model: one bit for each page, set by walking through time in small steps.

use isotherm_heat::Clock;
use isotherm_heat::source::{AccessSource, Attached, PageSource};
use isotherm_heat::{Ns, PmdBits};
use isotherm_sim::{Access, Area, Heat, Host, ModelClock, ModelSource, Phase, Process};
use isotherm_sim::{Costs, Counts, PageProbe};
use isotherm_units::{Addr, AddrRange, Bytes, PAGE_SIZE, PMD_SIZE, PageNo, PmdNo};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const PID: u32 = 7;
const BASE: u64 = 1 << 40;
const PMD: u64 = BASE / PMD_SIZE;
/// Work costs nothing here, so that the naive model needs no idea of it.
const FREE: Costs = Costs {
    read_table_ns: 0,
    read_huge_ns: 0,
    clear_pmd_ns: 0,
    clear_huge_ns: 0,
    clear_refs_page_ns: 0,
    list_mapping_ns: 0,
    prepare_page_ns: 0,
    check_page_ns: 0,
};

fn pages(first: u64, count: u64) -> AddrRange {
    AddrRange::new(Addr(BASE + first * PAGE_SIZE), Addr(BASE + (first + count) * PAGE_SIZE))
}

fn host(areas: Vec<Area>) -> Arc<Host> {
    let process = areas.into_iter().fold(Process::new(PID, "p").cgroup("/a/b"), Process::area);
    Arc::new(Host::new(Bytes::of_mib(64), vec![process]).unwrap())
}

fn attached(host: &Arc<Host>, costs: Costs) -> (ModelSource, ModelClock) {
    let clock = ModelClock::new(costs);
    let mut source = ModelSource::new(host.clone(), clock.clone());
    source.attach(PID).unwrap();
    (source, clock)
}

fn read(source: &mut ModelSource, pmd: PmdNo) -> PmdBits {
    let mut bits = PmdBits::Gone;
    let progress = source.read(PID, &[pmd], &mut |_, b, found| match found {
        Some(found) if b == pmd => bits = found,
        other => panic!("{b:?}: {other:?}"),
    });
    assert_eq!(progress.unwrap().answered, 1);
    bits
}

/// Bits set page by page, 50 ns at a time.
struct Naive {
    host: Arc<Host>,
    young: BTreeSet<u64>,
    now: Ns,
}

impl Naive {
    fn advance(&mut self, to: Ns) {
        while self.now < to {
            let next = to.min(self.now + 50);
            let all = self.host.processes()[0].areas.iter();
            for area in all {
                for page in area.range.start.page().0..area.range.end.page().0 {
                    let bearer = if area.huge { page & !511 } else { page };
                    if self.host.accessed(PID, PageNo(bearer), self.now, next) {
                        self.young.insert(page);
                    }
                }
            }
            self.now = next;
        }
    }

    fn clear(&mut self, pmd: PmdNo) {
        self.young.retain(|page| PageNo(*page).pmd() != pmd);
    }

    fn read(&self, pmd: PmdNo) -> PmdBits {
        let areas = &self.host.processes()[0].areas;
        let is_in = |page: u64, huge| areas.iter().any(|a| a.huge == huge && a.range.contains(PageNo(page).addr()));
        let indices = || (0..512).map(|i| (i, pmd.page(i).0));
        if is_in(pmd.page(0).0, true) {
            return PmdBits::Huge { young: self.young.contains(&pmd.page(0).0) };
        }
        let present = indices().filter(|(_, page)| is_in(*page, false)).map(|(i, _)| i).collect();
        let young = indices().filter(|(_, page)| self.young.contains(page)).map(|(i, _)| i).collect();
        if present == isotherm_heat::Mask::NONE { PmdBits::Gone } else { PmdBits::Pages { young, present } }
    }
}

fn access() -> impl Strategy<Value = Access> {
    prop_oneof![Just(Access::Never), (1_u64..3000).prop_map(Access::Every), (1_u64..3000).prop_map(Access::Poisson),]
}

fn steady() -> impl Strategy<Value = Heat> {
    prop_oneof![
        access().prop_map(Heat::Uniform),
        (0.0..1.0, access(), access()).prop_map(|(share, hot, rest)| Heat::Scattered { share, hot, rest }),
        (1_u64..2000, 0.01..1.0).prop_map(|(peak, sigma)| Heat::Gaussian { peak, sigma, coldest: 1_000_000 }),
    ]
}

fn heat() -> impl Strategy<Value = Heat> {
    let phases = prop::collection::vec((1_u64..900, steady()), 1..4).prop_map(|list| {
        let mut until = 0;
        let follow = |(time, heat)| {
            until += time;
            Phase { until, heat }
        };
        Heat::Phases(list.into_iter().map(follow).collect())
    });
    prop_oneof![3 => steady(), 1 => phases]
}

#[derive(Clone, Debug)]
enum Step {
    Wait(Ns),
    Clear(u64),
    Read(u64),
    ClearAll,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1_u64..600).prop_map(Step::Wait),
        3 => (0_u64..4).prop_map(Step::Clear),
        6 => (0_u64..4).prop_map(Step::Read),
        1 => Just(Step::ClearAll),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn bits_are_what_a_bit_for_each_page_would_be(
        heats in prop::collection::vec((heat(), 0_u64..300, 1_u64..500), 1..4),
        huge in heat(),
        steps in prop::collection::vec(step(), 1..24),
    ) {
        // Areas with gaps between them in huge ranges 0 to 2; a huge one in huge range 3.
        let mut next = 0;
        let mut areas = Vec::new();
        for (heat, gap, len) in heats {
            let first = next + gap;
            next = (first + len).min(3 * 512);
            areas.extend((first < next).then(|| Area::new(pages(first, next - first), heat)));
        }
        areas.push(Area::new(pages(3 * 512, 512), huge).huge());
        let host = host(areas);
        let (mut source, clock) = attached(&host, FREE);
        let mut naive = Naive { host: host.clone(), young: BTreeSet::new(), now: 0 };
        // Everything was touched when it was populated.
        let all = host.processes()[0].areas.iter().flat_map(|a| a.range.start.page().0..a.range.end.page().0);
        naive.young.extend(all);
        let mut now = 0;
        for step in steps {
            match step {
                Step::Wait(time) => {
                    now += time;
                    naive.advance(now);
                    clock.sleep_until(now);
                }
                Step::Clear(pmd) => {
                    naive.clear(PmdNo(PMD + pmd));
                    source.clear(PID, &[PmdNo(PMD + pmd)], &mut |_, _, _| {}).unwrap();
                }
                Step::Read(pmd) => {
                    let pmd = PmdNo(PMD + pmd);
                    prop_assert_eq!(read(&mut source, pmd), naive.read(pmd));
                }
                Step::ClearAll => {
                    (0..4).for_each(|b| naive.clear(PmdNo(PMD + b)));
                    source.clear_process(PID, &[], &[]).unwrap();
                }
            }
        }
    }
}

#[test]
fn the_layout_has_each_huge_range_once_and_does_not_tell_where_heat_changes() {
    let heap = |first, count, heat| Area::new(pages(first, count), heat).named("[heap]");
    let host = host(vec![
        heap(5, 600, Heat::never()),
        heap(605, 7, Heat::every(1_000_000)),
        heap(700, 1, Heat::never()),
        Area::new(pages(2048, 512), Heat::never()).named("[heap]").huge(),
        Area::new(pages(2560, 512), Heat::never()),
    ]);
    let (mut source, clock) = attached(&host, Costs::default());
    let layout = source.layout(PID).unwrap();
    assert_eq!(layout.pmds, [0, 1, 4, 5].map(|b| PmdNo(PMD + b)));
    let mappings: Vec<_> = layout.mappings.iter().map(|m| (m.range, m.name.as_str())).collect();
    let heap = |first, count| (pages(first, count), "[heap]");
    assert_eq!(mappings, [heap(5, 607), heap(700, 1), heap(2048, 512), (pages(2560, 512), "")]);
    assert_eq!(clock.counts(), Counts { mappings_listed: 4, tables_read: 1, ..Counts::default() });
}

#[test]
fn what_is_asked_is_charged_and_takes_time() {
    let host = host(vec![
        Area::new(pages(0, 1024), Heat::every(10_000_000)),
        Area::new(pages(1024, 512), Heat::every(10_000_000)).huge(),
    ]);
    let (mut source, clock) = attached(&host, Costs::default());
    let pmds = [0, 1, 2, 9].map(|b| PmdNo(PMD + b));
    let mut times = BTreeMap::new();
    source.clear(PID, &pmds, &mut |at, pmd, _| assert!(times.insert(pmd, at).is_none())).unwrap();
    assert_eq!(times.into_values().collect::<Vec<_>>(), [43_000, 86_000, 98_000, 98_000], "done one after another");
    let progress = source.read(PID, &pmds, &mut |_, _, _| {}).unwrap();
    assert_eq!((progress.answered, progress.entries), (4, 1025));
    let cost = 98_000 + 2 * 1978 + 800;
    assert_eq!((clock.now(), clock.cpu()), (cost, cost));
    let counts = Counts { tables_read: 2, huge_read: 1, pmds_cleared: 2, huge_cleared: 1, ..Counts::default() };
    assert_eq!(clock.counts(), counts);
    let cleared = source.clear_process(PID, &[], &pmds).unwrap();
    assert_eq!((cleared.clear.stall_ns, cleared.clear.flushed), (1025 * 41, true));
}

#[test]
fn a_huge_range_is_forgotten_once_all_of_it_is_young_again() {
    let host = host(vec![Area::new(pages(0, 512), Heat::every(1_000_000)), Area::new(pages(512, 512), Heat::never())]);
    let (mut source, clock) = attached(&host, Costs::default());
    let pmds = [0, 1].map(|b| PmdNo(PMD + b));
    source.clear(PID, &pmds, &mut |_, _, _| {}).unwrap();
    assert_eq!(source.pmds_remembered(), 2);
    clock.sleep_until(5_000_000);
    source.read(PID, &pmds, &mut |_, _, _| {}).unwrap();
    assert_eq!(source.pmds_remembered(), 1);
    source.detach(PID);
    assert_eq!(source.pmds_remembered(), 0);
}

#[test]
fn only_processes_that_are_there_and_attached_answer() {
    let host = host(vec![Area::new(pages(0, 1), Heat::never())]);
    let mut source = ModelSource::new(host, ModelClock::default());
    assert!(source.attach(8).is_err_and(|e| e.is_gone()));
    assert!(source.layout(PID).is_err_and(|e| e.is_gone()));
    let Attached { id, comm, cgroup } = source.attach(PID).unwrap();
    assert_eq!((id.pid, id.start_ticks, comm.as_str()), (PID, 1, "p"));
    assert_eq!(cgroup.as_deref(), Some("/a/b"));
    assert_eq!(source.describe().name, "model");
}

#[test]
fn a_probe_sees_a_page_as_often_as_its_interval_says() {
    // 5 ms samples of pages accessed every 20 ms: one in four.
    for heat in [Heat::every(20_000_000), Heat::poisson(20_000_000)] {
        let expected = if heat == Heat::every(20_000_000) { 0.25 } else { 1.0 - (-0.25_f64).exp() };
        let host = host(vec![Area::new(pages(0, 4096), heat)]);
        let clock = ModelClock::new(FREE);
        let probe = PageProbe::new(host, clock.clone());
        let mut hits = 0;
        for sample in 0..200_u64 {
            let page = |i: u64| PageNo(pages(0, 1).start.page().0 + (i * 769 + sample * 31) % 4096);
            let prepared: Vec<Ns> = (0..50).map(|_| probe.prepare()).collect();
            clock.sleep_until((sample + 1) * 5_000_000);
            hits += prepared.iter().zip(0..).filter(|(at, i)| probe.check(PID, page(*i), **at)).count();
        }
        let share = hits as f64 / 10_000.0;
        assert!((share - expected).abs() < 0.02, "{share}, not {expected}");
        assert_eq!((clock.counts().page_clears, clock.counts().page_checks), (10_000, 10_000));
        assert!(!probe.check(PID, PageNo(0), 0), "nothing is there");
    }
}
