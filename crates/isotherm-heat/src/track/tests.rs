//! Trackers on a made-up source that fails in the middle of a list, or stops there because the target's map is busy.

use super::pages::PageTracker;
use super::sampled::SampledTracker;
use super::tracker::*;
use crate::moment::Moment;
use crate::source::{
    AccessSource, Accesses, Attached, BitsSink, Clear, Cleared, ClearedProcess, ClearedSink, Description, Layout,
    PageSource, Progress, SourceError, SourceErrorKind, SourceResult,
};
use crate::{Granularity, Mask, Ns, PmdBits, ReportedTarget, Sampling, Silence};
use isotherm_units::{Bytes, PmdNo};

const MS: Ns = 1_000_000;
const S: Ns = 1000 * MS;
const PID: u32 = 7;
/// A budget that is never used up.
const SAMPLING: Sampling =
    Sampling { max_regions: 1000, max_region: None, interval_ns: S, tuning: None, max_slowdown_pct: 1000.0 };
const TRACKING: Tracking = Tracking { sampling: SAMPLING, seed: 1 };

/// How far a call comes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Comes {
    ToTheEnd,
    /// An error after so many huge ranges.
    FailsAfter(usize),
    /// No more than so many now, which is no error.
    IsBusyAfter(usize),
}

/// A source that finds `young` pages in every huge range.
struct Partial {
    now: Ns,
    young: Mask,
    reads: Comes,
    clears: Comes,
    /// Huge ranges whose pages the target has freed.
    freed: Vec<PmdNo>,
    /// The huge ranges that the last call of each kind was about; taken by the test.
    read: Vec<PmdNo>,
    cleared: Vec<PmdNo>,
    /// What a clear of a huge range leaves, and how often the whole process was cleared.
    stuck: Mask,
    processes: usize,
}

impl Partial {
    fn new() -> Partial {
        let (reads, clears) = (Comes::ToTheEnd, Comes::ToTheEnd);
        let (read, cleared) = (Vec::new(), Vec::new());
        let (freed, stuck) = (Vec::new(), Mask::NONE);
        Partial { now: 0, young: Mask::ALL, reads, clears, freed, read, cleared, stuck, processes: 0 }
    }

    /// One step of a tracker at `now`, with what it cost.
    fn step<T>(&mut self, now: Ns, step: impl FnOnce(&mut Turn<'_>) -> SourceResult<T>) -> (SourceResult<T>, Spent) {
        self.now = now;
        let mut spent = Spent::default();
        let done = step(&mut Turn { source: self, pid: PID, now, spent: &mut spent });
        (done, spent)
    }

    /// The huge ranges that were asked about since the last time.
    fn asked(&mut self) -> Vec<PmdNo> {
        std::mem::take(&mut self.read)
    }
}

/// Answers about as many of `pmds` as it comes to.
fn answer(comes: Comes, pmds: &[PmdNo], mut each: impl FnMut(PmdNo)) -> SourceResult<Progress> {
    let answered = match comes {
        Comes::ToTheEnd => pmds.len(),
        Comes::FailsAfter(most) | Comes::IsBusyAfter(most) => most.min(pmds.len()),
    };
    pmds[..answered].iter().for_each(|pmd| each(*pmd));
    if matches!(comes, Comes::FailsAfter(_)) {
        return Err(SourceError::new(SourceErrorKind::Shortage, "no descriptor"));
    }
    Ok(Progress { answered, entries: answered as u64 * 512, ..Progress::default() })
}

impl AccessSource for Partial {
    fn describe(&self) -> Description {
        let (granularity, note) = (Granularity::Page, String::new());
        Description { name: "partial", granularity, accesses: Accesses::None, clears_others: false, note }
    }

    fn attach(&mut self, _: u32) -> SourceResult<Attached> {
        Err(SourceError::cannot("processes to attach"))
    }

    fn detach(&mut self, _: u32) {}

    fn layout(&mut self, _: u32) -> SourceResult<Layout> {
        Ok(Layout::default())
    }

    fn as_pages(&mut self) -> Option<&mut dyn PageSource> {
        Some(self)
    }
}

impl PageSource for Partial {
    fn read(&mut self, _: u32, pmds: &[PmdNo], sink: &mut BitsSink<'_>) -> SourceResult<Progress> {
        self.read.extend(pmds);
        let (now, bits) = (self.now, PmdBits::Pages { young: self.young, present: Mask::ALL });
        let of = |pmd: PmdNo| if self.freed.contains(&pmd) { PmdBits::Gone } else { bits };
        answer(self.reads, pmds, |pmd| sink(now, pmd, Some(of(pmd))))
    }

    fn clear(&mut self, _: u32, pmds: &[PmdNo], sink: &mut ClearedSink<'_>) -> SourceResult<Progress> {
        let (now, cleared, stuck) = (self.now, &mut self.cleared, self.stuck);
        answer(self.clears, pmds, |pmd| {
            cleared.push(pmd);
            sink(now, pmd, Cleared::Except(stuck));
        })
    }

    fn clear_process(&mut self, _: u32, _: &[PmdNo], all: &[PmdNo]) -> SourceResult<ClearedProcess> {
        self.processes += 1;
        let clear = Clear { at: self.now, ..Clear::default() };
        Ok(ClearedProcess { clear, pmds: all.to_vec(), ..ClearedProcess::default() })
    }
}

fn pmds(numbers: std::ops::Range<u64>) -> Vec<PmdNo> {
    numbers.map(PmdNo).collect()
}

fn layout(numbers: std::ops::Range<u64>) -> Layout {
    Layout { pmds: pmds(numbers), ..Layout::default() }
}

/// A plan, to the microsecond that is kept of it.
fn planned(at: Ns) -> Option<Ns> {
    Some(Moment::of(at).ns())
}

/// A tracker that knows huge ranges 0 to 3. Their first clears are due within a second.
fn four_pages(source: &mut Partial) -> PageTracker {
    let mut tracker = PageTracker::new(0, TRACKING, None);
    source.step(0, |turn| tracker.refit(layout(0..4), turn)).0.unwrap();
    assert_eq!((source.asked(), tracker.extent().whole_pmds), (pmds(0..4), 4));
    tracker
}

/// The same, cleared at one second: read again 10 ms later.
fn four_cleared_pages(source: &mut Partial) -> PageTracker {
    let mut tracker = four_pages(source);
    let (cleared, spent) = source.step(S, |turn| tracker.clear_due(ClearQuota::each(CLEAR_BATCH), turn));
    assert_eq!((cleared.unwrap(), spent.pmds_cleared, source.asked()), (4, 4, vec![]), "nothing is lost by a clear");
    assert_eq!(tracker.next_read(), planned(S + 10 * MS));
    tracker
}

/// The caller takes what a huge range costs from how long [`Tracker::clear_due`] takes.
#[test]
fn a_whole_process_is_cleared_by_a_step_of_its_own() {
    let mut source = Partial { stuck: Mask::ALL, ..Partial::new() };
    let mut tracker = four_pages(&mut source);
    for s in 1..5 {
        source.step(s * S, |turn| tracker.clear_due(ClearQuota::each(CLEAR_BATCH), turn)).0.unwrap();
    }
    assert_eq!((source.cleared.len(), source.processes), (4, 0));
    source.step(5 * S, |turn| tracker.clear_process(turn)).0.unwrap();
    assert_eq!(source.processes, 1);
}

/// Each clear reaches the 40 pages that no other process maps, which are accessed all the time.
#[test]
fn a_whole_process_is_cleared_for_what_lies_beside_pages_that_each_clear_reaches() {
    let mut source = Partial { stuck: !(0..40).collect::<Mask>(), ..Partial::new() };
    let mut tracker = four_pages(&mut source);
    for s in 1..8 {
        source.step(s * S, |turn| tracker.clear_due(ClearQuota::each(CLEAR_BATCH), turn)).0.unwrap();
        source.step(s * S + 20 * MS, |turn| tracker.read_due(turn)).0.unwrap();
    }
    assert!(source.cleared.len() >= 8, "each is cleared again: {:?}", source.cleared);
    source.step(8 * S, |turn| tracker.clear_process(turn)).0.unwrap();
    assert_eq!(source.processes, 1);
}

/// 100 huge ranges in use, of which four have stuck pages: 51,200 pages are touched again after a clear of the process, 20 ms of the target's time.
#[test]
fn clears_of_a_whole_process_keep_to_the_budget_of_all_that_they_reach() {
    let sampling = Sampling { max_slowdown_pct: 0.01, ..SAMPLING };
    let (mut source, mut tracker) = (Partial::new(), PageTracker::new(0, Tracking { sampling, seed: 1 }, None));
    source.step(0, |turn| tracker.refit(layout(0..100), turn)).0.unwrap();
    source.stuck = Mask::ALL;
    source.step(S, |turn| tracker.clear_due(ClearQuota::each(4), turn)).0.unwrap();
    let mut cleared = Vec::new();
    for second in 5..300 {
        let before = source.processes;
        source.step(second * S, |turn| tracker.read_due(turn)).0.unwrap();
        source.step(second * S, |turn| tracker.clear_process(turn)).0.unwrap();
        cleared.extend((source.processes > before).then_some(second));
    }
    assert!(cleared.len() == 2 && cleared[1] - cleared[0] > 210, "{cleared:?}");
}

#[test]
fn memory_that_was_freed_while_hot_is_found_by_the_fall_of_rss() {
    let mut source = Partial::new();
    let mut tracker = four_cleared_pages(&mut source);
    source.step(S + 10 * MS, |turn| tracker.read_due(turn)).0.unwrap();
    assert_eq!(source.asked(), pmds(0..4));
    let next = tracker.next_read();
    assert!(next > Some(2 * S) && next < Some(5 * S), "hot: read soon for what has changed, and not before {next:?}");
    source.freed = pmds(1..3);
    // Reclaim has cleared the bits of the others, which says nothing of another monitor.
    source.young = Mask::NONE;
    let mut list = |source: &mut Partial, rss_mib| {
        let layout = Layout { rss: Some(Bytes::of_mib(rss_mib)), ..layout(0..4) };
        source.step(2 * S, |turn| tracker.refit(layout, turn)).0.unwrap();
        (source.asked(), tracker.extent().whole_pmds)
    };
    assert_eq!(list(&mut source, 64), (vec![], 4));
    source.reads = Comes::IsBusyAfter(0);
    assert_eq!(list(&mut source, 40), (pmds(0..4), 4), "busy");
    source.reads = Comes::IsBusyAfter(2);
    assert_eq!(list(&mut source, 40), (pmds(0..4), 3));
    source.reads = Comes::ToTheEnd;
    // Huge range 1 has a table, and was forgotten: it is read as a new one.
    assert_eq!(list(&mut source, 40), (pmds(1..4), 2));
    assert_eq!(list(&mut source, 40), (pmds(1..3), 2), "at the end");
    assert_eq!(list(&mut source, 40), (pmds(1..3), 2), "and nothing more but for the new ones");
    assert_eq!(tracker.tally().lost, 0);
}

#[test]
fn new_huge_ranges_that_could_not_be_read_are_new_again() {
    let mut source = Partial { reads: Comes::FailsAfter(1), ..Partial::new() };
    let mut tracker = PageTracker::new(0, TRACKING, None);
    let (failed, spent) = source.step(0, |turn| tracker.refit(layout(0..3), turn));
    assert!(failed.unwrap_err().is_shortage() && spent == Spent::default());
    assert_eq!((source.asked(), tracker.extent().whole_pmds), (pmds(0..3), 1));
    source.reads = Comes::IsBusyAfter(1);
    let (busy, spent) = source.step(MS, |turn| tracker.refit(layout(0..3), turn));
    busy.unwrap();
    assert_eq!((source.asked(), tracker.extent().whole_pmds, spent.pages_read), (pmds(1..3), 2, 512));
    source.reads = Comes::ToTheEnd;
    source.step(2 * MS, |turn| tracker.refit(layout(0..3), turn)).0.unwrap();
    assert_eq!((source.asked(), tracker.extent().whole_pmds), (pmds(2..3), 3));
}

#[test]
fn pages_whose_read_was_cut_short_are_read_again_ten_ms_later() {
    for comes in [Comes::FailsAfter(1), Comes::IsBusyAfter(1)] {
        let mut source = Partial::new();
        let mut tracker = four_cleared_pages(&mut source);
        source.reads = comes;
        let (read, _) = source.step(S + 10 * MS, |turn| tracker.read_due(turn));
        assert_eq!((read.is_err(), source.asked()), (comes == Comes::FailsAfter(1), pmds(0..4)), "{comes:?}");
        assert_eq!(tracker.tally().retouched, 512, "{comes:?}: what was answered counts");
        assert_eq!(tracker.next_read(), planned(S + 20 * MS), "{comes:?}");
        source.reads = Comes::ToTheEnd;
        source.step(S + 15 * MS, |turn| tracker.read_due(turn)).0.unwrap();
        assert_eq!(source.asked(), [], "{comes:?}: not yet");
        // Huge range 0 has been seen accessed: its bits say nothing new.
        source.step(S + 20 * MS, |turn| tracker.read_due(turn)).0.unwrap();
        assert_eq!((source.asked(), tracker.tally().retouched), (pmds(1..4), 4 * 512), "{comes:?}");
    }
}

#[test]
fn pages_whose_first_clear_failed_are_cleared_at_the_next_turn() {
    let mut source = Partial::new();
    let mut tracker = four_pages(&mut source);
    source.clears = Comes::FailsAfter(1);
    let mut clear = |source: &mut Partial, now: Ns| {
        let (done, spent) = source.step(now, |turn| tracker.clear_due(ClearQuota::each(CLEAR_BATCH), turn));
        (done.ok(), spent.pmds_cleared, std::mem::take(&mut source.cleared))
    };
    assert_eq!(clear(&mut source, S), (None, 1, pmds(0..1)));
    source.clears = Comes::ToTheEnd;
    assert_eq!(clear(&mut source, S + 9 * MS), (Some(3), 3, pmds(1..4)));
    assert_eq!(clear(&mut source, S + 10 * MS), (Some(0), 0, vec![]), "once");
}

/// Before a clear, what was accessed until then is read: what cannot be read is not cleared.
#[test]
fn pages_that_cannot_be_read_are_not_cleared_and_their_turn_comes_again() {
    for (comes, cleared) in [(Comes::FailsAfter(1), 0..0), (Comes::IsBusyAfter(1), 0..1)] {
        let mut source = Partial { young: [0].into_iter().collect(), ..Partial::new() };
        let mut tracker = four_cleared_pages(&mut source);
        source.cleared.clear();
        source.step(S + 10 * MS, |turn| tracker.read_due(turn)).0.unwrap();
        source.asked();
        let mut clear = |source: &mut Partial, now: Ns| {
            let (done, _) = source.step(now, |turn| tracker.clear_due(ClearQuota::each(CLEAR_BATCH), turn));
            (done.is_err(), source.asked(), std::mem::take(&mut source.cleared))
        };
        // Two seconds after the first clear, the next; one page of each huge range was accessed since, the others were not.
        source.reads = comes;
        let is_error = comes == Comes::FailsAfter(1);
        assert_eq!(clear(&mut source, 3 * S), (is_error, pmds(0..4), pmds(cleared.clone())), "{comes:?}");
        source.reads = Comes::ToTheEnd;
        let rest = pmds(cleared.end..4);
        assert_eq!(clear(&mut source, 3 * S + 10 * MS), (false, rest.clone(), rest), "{comes:?}");
    }
}

#[test]
fn samples_whose_read_was_cut_short_are_read_again_ten_ms_later() {
    for comes in [Comes::FailsAfter(1), Comes::IsBusyAfter(1)] {
        let mut source = Partial::new();
        let mut tracker = SampledTracker::new(0, TRACKING, None);
        source.step(0, |turn| tracker.refit(layout(0..4096), turn)).0.unwrap();
        assert_eq!(source.asked(), [], "nothing is read of what was not cleared");
        assert_eq!(
            source
                .step(0, |turn| tracker.clear_due(ClearQuota { urgent: 16, ..ClearQuota::default() }, turn))
                .0
                .unwrap(),
            0
        );
        source.step(0, |turn| tracker.clear_due(ClearQuota::each(CLEAR_BATCH), turn)).0.unwrap();
        let chosen = std::mem::take(&mut source.cleared);
        assert!(chosen.len() > 2, "{chosen:?}");
        source.reads = comes;
        let (read, _) = source.step(10 * MS, |turn| tracker.read_due(turn));
        assert_eq!((read.is_err(), source.asked()), (comes == Comes::FailsAfter(1), chosen.clone()), "{comes:?}");
        assert_eq!((tracker.tally().retouched, tracker.next_read()), (512, Some(20 * MS)), "{comes:?}");
        source.reads = Comes::ToTheEnd;
        // In the first all pages were accessed: that check has ended.
        source.step(20 * MS, |turn| tracker.read_due(turn)).0.unwrap();
        assert_eq!(source.asked(), chosen[1..], "{comes:?}");
        assert_eq!(tracker.tally().retouched, chosen.len() as u64 * 512, "{comes:?}: none is lost");
    }
}

#[test]
fn pages_are_outgrown_beyond_what_may_be_checked_and_beyond_more_once_they_are_known() {
    let room = Room { new: 64, begun: 128, grown: 128, again: 48 };
    let mut source = Partial::new();
    let mut begun = PageTracker::new(0, TRACKING, Some(Box::new(ReportedTarget::new(0, Silence::Cold))));
    assert!(begun.outgrown(64, room, 0).is_none(), "exactly whole");
    let sampled = begun.outgrown(65, room, 0).expect("more than that from the start");
    assert_eq!((sampled.granularity(), sampled.has_reports()), (Granularity::Region, true), "reports go on");
    let mut known = four_pages(&mut source);
    assert!(
        known.outgrown(65, room, 0).is_none() && known.outgrown(128, room, 0).is_none(),
        "exactly what it may grow to"
    );
    let sampled = known.outgrown(129, room, 0).expect("more than that");
    assert_eq!((sampled.granularity(), sampled.has_reports()), (Granularity::Region, false));
    assert!(known.outgrown(usize::MAX, Room::UNLIMITED, 0).is_none());
    // Beside one that is sampled.
    let beside = Room { new: 0, begun: 0, ..room };
    let mut checked = four_cleared_pages(&mut source);
    assert!(checked.outgrown(4, beside, 30 * S).is_none(), "all of it was checked");
    assert!(checked.outgrown(4, beside, 29 * S).is_some(), "it has begun with the other");
    assert!(known.outgrown(4, beside, 30 * S).is_some(), "first checks and samples would starve each other");
}

#[test]
fn a_sampled_target_that_could_be_watched_whole_for_a_while_is() {
    const S: Ns = 1_000 * MS;
    let room = Room { new: 64, begun: 128, grown: 128, again: 48 };
    let mut begun = PageTracker::new(0, TRACKING, Some(Box::new(ReportedTarget::new(0, Silence::Cold))));
    let mut sampled = begun.outgrown(65, room, 0).expect("more than may be checked");
    assert!(sampled.outgrown(48, room, S).is_none() && sampled.outgrown(48, room, 30 * S).is_none(), "29 s");
    assert!(
        sampled.outgrown(49, room, 31 * S).is_none() && sampled.outgrown(48, room, 32 * S).is_none(),
        "it begins anew"
    );
    assert!(sampled.outgrown(48, room, 61 * S).is_none());
    let whole = sampled.outgrown(48, room, 62 * S).expect("after 30 s");
    assert_eq!((whole.granularity(), whole.has_reports()), (Granularity::Page, true), "reports go on");
    let mut wanted = begun.outgrown(1, Room::NONE, 0).expect("as asked for");
    assert!((0..200).all(|s| wanted.outgrown(0, Room::NONE, s * S).is_none()), "and stays so, even without memory");
}

#[test]
fn a_part_of_the_batch_is_dealt_and_never_none_of_it() {
    // Of a batch of 64: a third is 21.3.
    for (most, share, dealt) in [
        (64, 1.0, 64),
        (64, 0.5, 32),
        (64, 1.0 / 3.0, 21),
        (64, 0.015, 1),
        (64, 0.0, 1),
        (10, 0.5, 10),
        (10, 0.125, 8),
        (500, 1.0, 64),
        (0, 1.0, 0),
    ] {
        assert_eq!(ClearQuota::each(most).dealt(share), ClearQuota::each(dealt), "{most}, {share}");
    }
    let urgent = ClearQuota { urgent: 20, first: 0, routine: 0 };
    assert_eq!((urgent.dealt(0.5), urgent.has_planned()), (urgent, false));
}
