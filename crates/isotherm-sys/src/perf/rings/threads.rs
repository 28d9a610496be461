//! State of the threads of a process: which are sampled, by whose events, and which thread started which.
//!
//! It decides and makes no system calls: [`super::following`] opens, waits and closes, and reports the results here.
//!
//! A thread counts as sampled by its own events, or by those it has inherited from another thread, directly or through
//! others. When those are closed, all its heirs are without events. While events are being opened (a [`Round`]),
//! reports of starts are collected and evaluated later, in order of time: a start is reported on the CPU where it
//! happens, and the rings of different CPUs are read one by one.

use crate::perf::error::RingError;
use crate::perf::record::{Raw, Start};
use crate::proc::{Identity, Proc};
use std::collections::{HashMap, HashSet};

/// The process whose threads are sampled.
#[derive(Debug)]
pub(super) struct Followed {
    pub id: Identity,
    /// Threads that are sampled, and the owner of the events: the thread itself, or the one it has inherited from.
    known: HashMap<u32, u32>,
    round: Option<Round>,
    /// Whether a thread was started since the events were opened.
    pub inherited: bool,
    /// Threads that were unknown at the last check.
    pub suspects: HashSet<u32>,
    /// Losses up to that check. After a loss, some starts may be unreported.
    pub lost: u64,
}

/// State while events are being opened.
#[derive(Debug, Default)]
struct Round {
    /// By thread for which events were opened: what it starts in that time inherits none, some or all of them.
    in_doubt: HashMap<u32, Doubt>,
    starts: Vec<Start>,
}

#[derive(Clone, Copy, Debug)]
struct Doubt {
    from: u64,
    until: u64,
}

impl Followed {
    pub(super) fn new(id: Identity) -> Followed {
        Followed { id, known: HashMap::new(), round: None, inherited: false, suspects: HashSet::new(), lost: 0 }
    }

    pub(super) fn of(pid: u32, gone: impl Fn() -> RingError) -> Result<Followed, RingError> {
        match Proc::default().identity(pid) {
            Err(e) if e.is_gone() => Err(gone()),
            id => Ok(Followed::new(id.map_err(RingError::Threads)?)),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    pub(super) fn is_unknown(&self, tid: u32) -> bool {
        !self.known.contains_key(&tid)
    }

    pub(super) fn retain(&mut self, is_there: impl Fn(u32) -> bool) {
        self.known.retain(|tid, _| is_there(*tid));
    }

    /// No thread is sampled any more.
    pub(super) fn clear(&mut self) {
        self.known.clear();
        self.inherited = false;
    }

    /// Treats these threads as known, so that no events are opened for them.
    pub(super) fn ignore(&mut self, tids: impl IntoIterator<Item = u32>) {
        self.known.extend(tids.into_iter().map(|tid| (tid, tid)));
    }

    #[inline]
    pub(super) fn record_start(&mut self, raw: Raw<'_>) {
        let Some(start) = raw.started().filter(|start| start.pid == self.id.pid) else { return };
        self.inherited = true;
        match &mut self.round {
            Some(round) => round.starts.push(start),
            None => self.inherit(start),
        }
    }

    /// Only a thread with events reports a start. If their owner is unknown, the record of that is still in another
    /// ring.
    fn inherit(&mut self, start: Start) {
        let owner = self.known.get(&start.parent).copied().unwrap_or(start.parent);
        self.known.entry(start.tid).or_insert(owner);
    }

    /// Events are about to be opened.
    pub(super) fn begin(&mut self) {
        self.round = Some(Round::default());
    }

    /// All events of a thread are open; before `from`, none was.
    pub(super) fn opened(&mut self, tid: u32, from: u64) {
        self.known.insert(tid, tid);
        if let Some(round) = &mut self.round {
            round.in_doubt.insert(tid, Doubt { from, until: u64::MAX });
        }
    }

    /// Starts that were under way in a thread while its events were opened have been reported before `at`.
    pub(super) fn settled(&mut self, tid: u32, at: u64) {
        if let Some(doubt) = self.round.as_mut().and_then(|round| round.in_doubt.get_mut(&tid)) {
            doubt.until = at;
        }
    }

    /// From now on all children count as sampled, though maybe on some CPUs only.
    pub(super) fn accept(&mut self) {
        let doubts = self.round.iter_mut().flat_map(|round| round.in_doubt.values_mut());
        doubts.for_each(|doubt| doubt.until = doubt.from);
    }

    /// Evaluates all reports up to `until`. Returns the threads that have started others in doubt. Their events have to
    /// be closed, and neither they nor any of their heirs count as sampled any more.
    pub(super) fn judge(&mut self, until: u64) -> HashSet<u32> {
        let mut doubtful = HashSet::new();
        let Some(mut round) = self.round.take() else { return doubtful };
        round.starts.sort_by_key(|start| start.at);
        let ready = round.starts.partition_point(|start| start.at <= until);
        for start in round.starts.drain(..ready) {
            match round.in_doubt.get(&start.parent) {
                // There was nothing to inherit then.
                Some(doubt) if start.at < doubt.from => {}
                Some(doubt) if start.at < doubt.until => drop(doubtful.insert(start.parent)),
                // The reporting thread had inherited events that have been closed since.
                _ if self.is_unknown(start.parent) => {}
                _ => self.inherit(start),
            }
        }
        self.known.retain(|_, owner| !doubtful.contains(owner));
        round.in_doubt.retain(|tid, _| !doubtful.contains(tid));
        self.round = Some(round);
        doubtful
    }

    /// The round is over.
    pub(super) fn end(&mut self) {
        let starts = self.round.take().map(|round| round.starts).unwrap_or_default();
        starts.into_iter().for_each(|start| self.inherit(start));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::record::Raws;

    const PID: u32 = 100;

    fn followed() -> Followed {
        let mut followed = Followed::new(Identity { pid: PID, start_ticks: 0 });
        followed.begin();
        followed
    }

    /// A record as the kernel writes it.
    fn drain(followed: &mut Followed, at: u64, parent: u32, tid: u32) {
        let mut bytes = [7_u32, 32 << 16, PID, PID, tid, parent].map(u32::to_ne_bytes).concat();
        bytes.extend(at.to_ne_bytes());
        Raws::new(&bytes).for_each(|raw| followed.record_start(raw));
    }

    fn known(followed: &Followed) -> Vec<(u32, u32)> {
        let mut known: Vec<_> = followed.known.iter().map(|(tid, owner)| (*tid, *owner)).collect();
        known.sort_unstable();
        known
    }

    #[test]
    fn what_is_started_in_doubt_is_forgotten_with_its_parent_and_its_own_children() {
        let mut followed = followed();
        followed.opened(1, 100);
        followed.settled(1, 200);
        followed.opened(2, 100);
        followed.settled(2, 200);
        // The child's own child is reported first: it was on another processor.
        drain(&mut followed, 160, 5, 6);
        drain(&mut followed, 150, 1, 5);
        drain(&mut followed, 300, 1, 7);
        drain(&mut followed, 300, 2, 8);
        drain(&mut followed, 310, 8, 9);
        assert_eq!(followed.judge(400), HashSet::from([1]));
        assert_eq!(known(&followed), [(2, 2), (8, 2), (9, 2)]);
        // What heirs of closed events tell late, and what was reported before they were opened anew, says nothing.
        followed.opened(1, 500);
        followed.settled(1, 600);
        drain(&mut followed, 450, 1, 10);
        drain(&mut followed, 610, 7, 11);
        drain(&mut followed, 610, 1, 12);
        assert!(followed.judge(700).is_empty());
        assert_eq!(known(&followed), [(1, 1), (2, 2), (8, 2), (9, 2), (12, 1)]);
    }

    #[test]
    fn what_is_told_later_than_all_rings_were_read_waits() {
        let mut followed = followed();
        followed.opened(1, 100);
        followed.settled(1, 200);
        drain(&mut followed, 320, 5, 6);
        assert!(followed.judge(300).is_empty());
        drain(&mut followed, 310, 1, 5);
        assert!(followed.judge(400).is_empty());
        assert_eq!(known(&followed), [(1, 1), (5, 1), (6, 1)]);
        drain(&mut followed, 500, 6, 7);
        followed.end();
        drain(&mut followed, 600, 7, 8);
        assert_eq!(known(&followed), [(1, 1), (5, 1), (6, 1), (7, 1), (8, 1)]);
    }

    #[test]
    fn in_the_end_doubts_are_accepted_and_no_thread_gets_events_twice() {
        let mut followed = followed();
        followed.opened(1, 100);
        followed.opened(2, 100);
        drain(&mut followed, 150, 1, 2);
        drain(&mut followed, 160, 1, 3);
        followed.accept();
        assert!(followed.judge(200).is_empty());
        assert_eq!(known(&followed), [(1, 1), (2, 2), (3, 1)]);
    }
}
