//! What is watched whole and what is sampled, as processes grow, fork and end. Time is virtual.

mod support;

use isotherm_heat::source::{BitsSink, Cleared, ClearedProcess, ClearedSink, PageSource, Progress, SourceResult};
use isotherm_heat::{Clock, Mask, Ns, PmdBits, VirtualClock};
use isotherm_monitor::{Follower, Mode, Monitor, Selection, Settings};
use isotherm_sys::proc::Proc;
use isotherm_units::PmdNo;
use std::sync::atomic::AtomicBool;
use support::MadeUp;

const S: Ns = 1_000_000_000;
/// 1% of a core checks 60,000 huge ranges once in five minutes.
const PARENT: u64 = 32_768;

/// Pages that nobody accesses.
struct Idle(VirtualClock);

impl PageSource for Idle {
    fn read(&mut self, _: u32, pmds: &[PmdNo], sink: &mut BitsSink<'_>) -> SourceResult<Progress> {
        let now = self.0.now();
        pmds.iter().for_each(|pmd| sink(now, *pmd, Some(PmdBits::Huge { young: false })));
        Ok(Progress { answered: pmds.len(), ..Progress::default() })
    }

    fn clear(&mut self, _: u32, pmds: &[PmdNo], sink: &mut ClearedSink<'_>) -> SourceResult<Progress> {
        let now = self.0.now();
        pmds.iter().for_each(|pmd| sink(now, *pmd, Cleared::Except(Mask::NONE)));
        Ok(Progress { answered: pmds.len(), ..Progress::default() })
    }

    fn clear_process(&mut self, _: u32, _: &[PmdNo], _: &[PmdNo]) -> SourceResult<ClearedProcess> {
        Ok(support::nothing_cleared(self.0.now()))
    }
}

struct Scene(Monitor<VirtualClock>);

impl Scene {
    fn of(mode: Mode, pids: &[u32], pmds: fn(u32, Ns) -> u64) -> Scene {
        let time = VirtualClock::default();
        let follower = Follower::new(&Selection::OfSource(pids.to_vec()), Proc::default()).unwrap();
        let settings = Settings { mode, ..Settings::default() };
        let clock = time.clone();
        let pmds = Box::new(move |pid| pmds(pid, clock.now()));
        let source = MadeUp { pmds, ..MadeUp::of(Idle(time.clone()), 0) };
        Scene(Monitor::new(Box::new(source), follower, time, settings))
    }

    /// Whether these are watched whole at that time.
    fn whole_at(&mut self, time: Ns, pids: &[u32]) -> Vec<bool> {
        self.0.watch(time, &AtomicBool::new(false)).unwrap();
        pids.iter().map(|pid| self.0.pages_of(*pid).is_some()).collect()
    }
}

#[test]
fn a_child_that_is_forked_for_a_while_leaves_its_parent_as_it_is_and_small_ones_are_whole_again_after_it() {
    // 1: the parent. 2: the child, from 35 to 50 s. 3: one that begins beside the child.
    let sizes = |pid, now: Ns| match (pid, now / S) {
        (1, _) => PARENT,
        (2, 35..50) => PARENT,
        (3, 40..) => 50,
        _ => 0,
    };
    let mut scene = Scene::of(Mode::Auto, &[1, 2, 3], sizes);
    assert_eq!(scene.whole_at(34 * S, &[1]), [true]);
    assert_eq!(
        scene.whole_at(39 * S, &[1, 2]),
        [true, false],
        "both together are too many to be checked once in five minutes"
    );
    assert_eq!(scene.whole_at(48 * S, &[1, 2, 3]), [true, false, false], "all that is new is sampled");
    assert_eq!(scene.whole_at(100 * S, &[1, 2, 3]), [true, true, true]);
}

#[test]
fn what_begins_beside_a_large_target_is_sampled_with_it() {
    let mut scene = Scene::of(Mode::Auto, &[1, 2], |pid, _| if pid == 1 { 50_000 } else { 1_000_000 });
    assert_eq!(
        scene.whole_at(3 * S, &[1, 2]),
        [false, false],
        "first checks of one and samples of the other would starve"
    );
}

#[test]
fn a_target_that_grows_beyond_twice_what_can_be_checked_is_sampled_until_it_has_shrunk() {
    let sizes = |_, now: Ns| match now / S {
        0..10 => PARENT,
        10..20 => 120_000,
        20..30 => 120_001,
        30..40 => 60_001,
        40..100 => 60_000,
        _ => 0,
    };
    let mut scene = Scene::of(Mode::Auto, &[1], sizes);
    for (s, whole) in [(9, true), (19, true), (29, false), (39, false), (65, false), (90, true)] {
        assert_eq!(scene.whole_at(s * S, &[1]), [whole], "after {s} s");
    }
}

#[test]
fn several_that_are_sampled_are_whole_again_when_all_of_them_can_be() {
    let sizes = |_, now: Ns| if now < 20 * S { 40_000 } else { 30_000 };
    let mut scene = Scene::of(Mode::Auto, &[1, 2], sizes);
    assert_eq!(scene.whole_at(10 * S, &[1, 2]), [false, false], "both have begun");
    assert_eq!(scene.whole_at(80 * S, &[1, 2]), [true, true]);
    let three = |_, now: Ns| if now < 20 * S { 61_000 } else { 25_000 };
    let mut scene = Scene::of(Mode::Auto, &[1, 2, 3], three);
    assert_eq!(scene.whole_at(100 * S, &[1, 2, 3]), [false, false, false], "75,000 are too many");
}

/// As when a shell starts ten seconds after the child of a large server has ended.
#[test]
fn one_that_begins_while_others_wait_to_be_whole_again_does_not_send_them_back() {
    let sizes = |pid, now: Ns| match (pid, now / S) {
        (3, ..30) => 0,
        (3, _) => 50,
        (_, ..20) => 40_000,
        _ => 25_000,
    };
    let mut scene = Scene::of(Mode::Auto, &[1, 2, 3], sizes);
    assert_eq!(scene.whole_at(40 * S, &[1, 2, 3]), [false, false, false]);
    for second in [54, 57, 59] {
        assert_eq!(scene.whole_at(second * S, &[1, 2, 3]), [true, true, false], "after {second} s");
    }
    assert_eq!(scene.whole_at(75 * S, &[1, 2, 3]), [true, true, true]);
}

#[test]
fn what_is_to_be_sampled_stays_so() {
    let mut scene = Scene::of(Mode::Sampled, &[1], |_, _| 10);
    assert_eq!(scene.whole_at(100 * S, &[1]), [false]);
}
