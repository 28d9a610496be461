//! A recording, or a made-up history, as a source: it answers from the history of regions, on a clock of its own.
//!
//! A page of a region with interval T is accessed at its own phase and every T after, so the engine sees what it would
//! have seen of such a process. It is used to try settings on recorded heat, and to test the schedule on histories that
//! no machine here could produce. Memory use follows the number of regions and huge ranges.

use crate::Error;
use isotherm_heat::source::{
    AccessSource, Accesses, Attached, BitsSink, Clear, Cleared, ClearedProcess, ClearedSink, Description, Layout,
    PageSource, Progress, SourceResult,
};
use isotherm_heat::{Clock, Granularity, Mapping, Mask, Ns, PmdBits, Snapshot, TargetId, VirtualClock};
use isotherm_units::{AddrRange, PAGES_PER_PMD, PageNo, PmdNo};
use std::collections::{BTreeMap, HashMap};

/// The history of one process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// Its name.
    pub comm: String,
    /// Its mappings.
    pub mappings: Vec<Mapping>,
    /// Consecutive spans of time, each with the ranges that were populated then.
    pub spans: Vec<Span>,
}

/// A span of time in which accesses did not change.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Span {
    /// When it ends; it begins where the one before ended, the first at 0.
    pub end: Ns,
    /// Populated ranges, in address order, with the interval of their pages; `None`: never accessed.
    pub ranges: Vec<(AddrRange, Option<Ns>)>,
}

impl History {
    fn span_at(&self, now: Ns) -> Option<&Span> {
        self.spans.iter().find(|s| now < s.end).or(self.spans.last())
    }

    /// Whether `page` was accessed after `since` and not after `until`.
    fn accessed(&self, page: PageNo, since: Ns, until: Ns) -> bool {
        let mut start = 0;
        for span in &self.spans {
            let (from, to) = (since.max(start), until.min(span.end));
            start = span.end;
            if from < to && interval_at(span, page).is_some_and(|t| has_access(page, t, from, to)) {
                return true;
            }
        }
        false
    }
}

fn interval_at(span: &Span, page: PageNo) -> Option<Ns> {
    let addr = page.addr();
    let index = span.ranges.partition_point(|(r, _)| r.end <= addr);
    span.ranges.get(index).filter(|(r, _)| r.contains(addr)).and_then(|(_, interval)| *interval)
}

/// Whether a time `phase + k * interval` lies in (from, to].
fn has_access(page: PageNo, interval: Ns, from: Ns, to: Ns) -> bool {
    let interval = interval.max(1);
    let phase = page.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) % interval;
    let count = |t: Ns| (t + interval - phase) / interval;
    count(to) > count(from)
}

/// The source. Its clock starts at 0 and is shared with the code that drives it.
#[derive(Debug)]
pub struct Replay {
    clock: VirtualClock,
    histories: BTreeMap<u32, (TargetId, History)>,
    cleared: HashMap<(u32, PmdNo), Ns>,
}

impl Replay {
    /// A source that plays `histories`.
    pub fn new(clock: VirtualClock, histories: impl IntoIterator<Item = (TargetId, History)>) -> Replay {
        let histories = histories.into_iter().map(|(id, h)| (id.pid, (id, h))).collect();
        Replay { clock, histories, cleared: HashMap::new() }
    }

    /// A source that plays a recording: between two snapshots, regions behave as the later one shows.
    pub fn of_recording(clock: VirtualClock, snapshots: &[Snapshot]) -> Replay {
        let mut histories: BTreeMap<TargetId, History> = BTreeMap::new();
        let start = snapshots.first().map_or(0, |s| s.start_unix_ns);
        for snapshot in snapshots {
            for target in snapshot.alive() {
                let history = histories.entry(target.id).or_default();
                history.comm.clone_from(&target.comm);
                history.mappings = target.mappings.to_vec();
                let end = snapshot.end_unix_ns.saturating_sub(start);
                let ranges = target.regions.iter().map(|r| (r.range, active_interval(r))).collect();
                history.spans.push(Span { end, ranges });
            }
        }
        Replay::new(clock, histories)
    }

    /// The processes that can be attached, with their names.
    pub fn targets(&self) -> impl Iterator<Item = (TargetId, &str)> {
        self.histories.values().map(|(id, h)| (*id, h.comm.as_str()))
    }

    /// How long the longest history lasts.
    pub fn duration(&self) -> Ns {
        self.histories.values().filter_map(|(_, h)| h.spans.last()).map(|s| s.end).max().unwrap_or(0)
    }

    fn history(&self, pid: u32) -> Result<&History, Error> {
        self.histories.get(&pid).map(|(_, h)| h).ok_or(Error::Gone(pid))
    }

    fn look(&self, pid: u32, pmd: PmdNo, now: Ns) -> Result<PmdBits, Error> {
        let history = self.history(pid)?;
        let Some(span) = history.span_at(now) else { return Ok(PmdBits::Gone) };
        let cleared = self.cleared.get(&(pid, pmd)).copied();
        let (mut young, mut present) = (Mask::NONE, Mask::NONE);
        for index in 0..PAGES_PER_PMD {
            let page = pmd.page(index);
            let at = span.ranges.partition_point(|(r, _)| r.end <= page.addr());
            if span.ranges.get(at).is_none_or(|(r, _)| !r.contains(page.addr())) {
                continue;
            }
            present.set(index);
            // Never cleared: young since it was populated.
            if cleared.is_none_or(|since| history.accessed(page, since, now)) {
                young.set(index);
            }
        }
        Ok(if present.is_empty() { PmdBits::Gone } else { PmdBits::Pages { young, present } })
    }
}

/// The interval of a region that is being accessed; `None` if only its idle time is known.
fn active_interval(region: &isotherm_heat::Region) -> Option<Ns> {
    let interval = region.interval.ns()?;
    (region.idle_ns < interval.saturating_mul(3) / 4 || region.idle_ns < 1_000_000_000).then_some(interval)
}

impl AccessSource for Replay {
    fn describe(&self) -> Description {
        Description {
            name: "replay",
            granularity: Granularity::Page,
            accesses: Accesses::None,
            clears_others: false,
            note: "a recording played back: each page of a region as hot as the region was".into(),
        }
    }

    fn attach(&mut self, pid: u32) -> SourceResult<Attached> {
        let known = self.histories.get(&pid).ok_or(Error::Gone(pid))?;
        Ok(Attached::here(known.0, known.1.comm.clone()))
    }

    fn detach(&mut self, pid: u32) {
        self.cleared.retain(|(p, _), _| *p != pid);
    }

    fn layout(&mut self, pid: u32) -> SourceResult<Layout> {
        let now = self.clock.now();
        let history = self.history(pid)?;
        if history.spans.last().is_none_or(|s| now > s.end) {
            return Err(Error::Gone(pid).into());
        }
        let mut pmds: Vec<PmdNo> =
            history.span_at(now).map_or(Vec::new(), |s| s.ranges.iter().flat_map(|(r, _)| r.pmds()).collect());
        pmds.dedup();
        Ok(Layout { pmds, mappings: history.mappings.clone(), ..Layout::default() })
    }

    fn as_pages(&mut self) -> Option<&mut dyn PageSource> {
        Some(self)
    }
}

impl PageSource for Replay {
    fn read(&mut self, pid: u32, pmds: &[PmdNo], sink: &mut BitsSink<'_>) -> SourceResult<Progress> {
        let now = self.clock.now();
        for pmd in pmds {
            sink(now, *pmd, Some(self.look(pid, *pmd, now)?));
        }
        let entries = (pmds.len() * PAGES_PER_PMD) as u64;
        Ok(Progress { answered: pmds.len(), entries, ..Progress::default() })
    }

    fn clear(&mut self, pid: u32, pmds: &[PmdNo], sink: &mut ClearedSink<'_>) -> SourceResult<Progress> {
        self.history(pid)?;
        let now = self.clock.now();
        for pmd in pmds {
            self.cleared.insert((pid, *pmd), now);
            sink(now, *pmd, Cleared::Except(Mask::NONE));
        }
        Ok(Progress { answered: pmds.len(), ..Progress::default() })
    }

    fn clear_process(&mut self, pid: u32, _: &[PmdNo], all: &[PmdNo]) -> SourceResult<ClearedProcess> {
        self.clear(pid, all, &mut |_, _, _| {})?;
        let clear = Clear { at: self.clock.now(), stall_ns: 0, flushed: true };
        Ok(ClearedProcess { clear, pmds: all.to_vec(), partly: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_units::Addr;

    #[test]
    fn a_page_is_accessed_once_an_interval_at_its_own_phase() {
        for page in [0, 1, 77, 0x7f12_3456] {
            let hits = (0..1000_u64).filter(|t| has_access(PageNo(page), 100, *t, t + 1)).count();
            assert_eq!(hits, 10, "page {page}");
            assert!(has_access(PageNo(page), 100, 500, 600), "any whole interval holds one");
        }
    }

    #[test]
    fn bits_are_young_until_cleared_and_after_the_next_access() {
        let range = AddrRange::new(Addr(0), Addr(1 << 21));
        let history =
            History { spans: vec![Span { end: 1_000_000, ranges: vec![(range, Some(1000))] }], ..History::default() };
        let clock = VirtualClock::default();
        let id = TargetId { pid: 1, start_ticks: 0 };
        let mut replay = Replay::new(clock.clone(), [(id, history)]);
        let young = |r: &mut Replay| {
            let mut count = 0;
            r.read(1, &[PmdNo(0)], &mut |_, _, bits| {
                if let Some(PmdBits::Pages { young, .. }) = bits {
                    count = young.count();
                }
            })
            .unwrap();
            count
        };
        assert_eq!(young(&mut replay), 512, "never cleared");
        replay.clear(1, &[PmdNo(0)], &mut |_, _, _| {}).unwrap();
        assert_eq!(young(&mut replay), 0);
        clock.sleep_until(500);
        let half = young(&mut replay);
        assert!((200..312).contains(&half), "half an interval, half the pages: {half}");
        clock.sleep_until(1000);
        assert_eq!(young(&mut replay), 512);
    }
}
