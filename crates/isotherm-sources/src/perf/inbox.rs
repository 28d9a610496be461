//! Samples sorted by process: what comes out of the rings until the monitor asks for it.
//!
//! A ring holds samples of whatever ran: of processes that are watched, of others, and of processes that will be watched in a moment,
//! when somebody has noticed that they were started. The first touches of a new process are among those, so what nobody claims is
//! kept for a while. Each sample is taken once only: a process has one listener, and what another one hears of it is dropped.

use super::options::PHYSICAL_PID;
use super::verdict::Evidence;
use isotherm_heat::{Access, Ns};
use isotherm_sys::perf::Sample;
use isotherm_sys::perf::ibs;
use isotherm_units::{Addr, AddrRange};
use std::collections::{BTreeMap, VecDeque};

/// Samples of unknown processes are kept for so long.
const UNCLAIMED_NS: Ns = 3_000_000_000;
const MOST_UNCLAIMED: usize = 1 << 17;
/// Addresses kept to be judged by the next list of mappings.
const MOST_UNPLACED: usize = 1 << 12;
/// And those of known ones, as long as nobody asks: at the usual rates, for minutes.
const MOST_WAITING: usize = 1 << 22;
/// Addresses from here on are the kernel's, on every 64-bit machine.
const KERNEL: u64 = 1 << 63;

/// Which listener has heard a sample.
pub(super) type ListenerId = u32;

/// Where the address of a sample is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decoding {
    /// Samples are AMD's, of any operation: the registers say whether it was an access.
    pub ibs: bool,
    /// Physical addresses are wanted, and all samples belong to one target.
    pub physical: bool,
}

/// What a sample says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Address(u64),
    NoAddress,
    NoAccess,
}

impl Decoding {
    fn address(self, sample: &Sample<'_>) -> Said {
        if self.ibs {
            let Some(access) = ibs::decode(sample.raw).filter(|a| a.load || a.store) else { return Said::NoAccess };
            let told = if self.physical { access.physical } else { access.linear };
            return told.map_or(Said::NoAccess, Said::Address);
        }
        match if self.physical { sample.phys_addr } else { sample.addr } {
            0 => Said::NoAddress,
            addr => Said::Address(addr),
        }
    }
}

/// What waits for one process.
#[derive(Debug)]
struct Queue {
    listener: ListenerId,
    /// Where it has memory, sorted and disjoint.
    spans: Vec<AddrRange>,
    waiting: Vec<(Access, Addr)>,
    /// What was handed over of its first seconds: should it turn out that it has executed another program meanwhile, and so is to
    /// be watched anew, what that one did is in here.
    early: Vec<(Access, Addr)>,
    /// Until when that is.
    early_until: Ns,
    /// Addresses outside of all spans: there may be newer mappings than those listed.
    unplaced: Vec<Addr>,
    /// Samples since the last time that they were handed over, those that tell of no access included.
    interrupts: u64,
}

/// A sample of a process that is not watched, or not yet.
#[derive(Clone, Copy, Debug)]
struct Unclaimed {
    listener: ListenerId,
    pid: u32,
    access: Access,
    addr: Addr,
}

/// All that waits.
#[derive(Debug)]
pub(super) struct Inbox {
    decoding: Decoding,
    queues: BTreeMap<u32, Queue>,
    unclaimed: VecDeque<Unclaimed>,
    /// The process of the last sample: mostly that of the next as well. Samples without an address are counted for those watched only.
    evidence: Evidence,
    /// Samples dropped here because nobody came for them.
    dropped: u64,
    /// Events that the samples stand for.
    weighed: u64,
}

impl Inbox {
    pub fn new(decoding: Decoding) -> Inbox {
        Inbox {
            decoding,
            queues: BTreeMap::new(),
            unclaimed: VecDeque::new(),
            evidence: Evidence::default(),
            dropped: 0,
            weighed: 0,
        }
    }

    /// Begins to keep samples of `pid` that `listener` hears, with those it has heard lately, or that one has which is not among those
    /// `open` any more.
    pub fn open(&mut self, pid: u32, listener: ListenerId, open: &[ListenerId], now: Ns) {
        let mine = |u: &Unclaimed| u.pid == pid && (u.listener == listener || !open.contains(&u.listener));
        let waiting: Vec<_> = self.unclaimed.iter().filter(|u| mine(u)).map(|u| (u.access, u.addr)).collect();
        self.unclaimed.retain(|u| u.pid != pid);
        let early_until = waiting.first().map_or(now, |(access, _)| access.at) + UNCLAIMED_NS;
        let (spans, early, unplaced) = (Vec::new(), Vec::new(), Vec::new());
        self.queues.insert(pid, Queue { listener, spans, waiting, early, early_until, unplaced, interrupts: 0 });
    }

    /// From now on `pid` is heard by another listener. What waits is kept.
    pub fn moved(&mut self, pid: u32, listener: ListenerId) {
        if let Some(queue) = self.queues.get_mut(&pid) {
            queue.listener = listener;
        }
    }

    /// Forgets `pid`, which has ended. Returns the listener it had.
    pub fn forget(&mut self, pid: u32) -> Option<ListenerId> {
        self.unclaimed.retain(|u| u.pid != pid);
        self.queues.remove(&pid).map(|queue| queue.listener)
    }

    /// Closes `pid`, which may be opened again: what it has done lately is kept for that. Returns the listener it had.
    pub fn close(&mut self, pid: u32) -> Option<ListenerId> {
        let Queue { listener, early, waiting, .. } = self.queues.remove(&pid)?;
        for (access, addr) in early.into_iter().chain(waiting) {
            self.keep(Unclaimed { listener, pid, access, addr });
        }
        Some(listener)
    }

    /// The listener that hears `pid`.
    pub fn listener_of(&self, pid: u32) -> Option<ListenerId> {
        self.queues.get(&pid).map(|queue| queue.listener)
    }

    /// Whether a listener is still heard for anybody.
    pub fn is_heard(&self, listener: ListenerId) -> bool {
        self.queues.values().any(|queue| queue.listener == listener)
    }

    /// Takes in where `pid` has memory: sorted ranges.
    pub fn set_spans(&mut self, pid: u32, ranges: impl Iterator<Item = AddrRange>) {
        let Some(queue) = self.queues.get_mut(&pid) else { return };
        queue.spans.clear();
        for range in ranges {
            match queue.spans.last_mut() {
                Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
                _ => queue.spans.push(range),
            }
        }
        for addr in std::mem::take(&mut queue.unplaced) {
            let place = if span_of(&queue.spans, addr).is_some() {
                &mut self.evidence.inside
            } else {
                &mut self.evidence.outside
            };
            *place += 1;
        }
    }

    /// Takes in a sample.
    pub fn take(&mut self, listener: ListenerId, sample: &Sample<'_>) {
        self.weighed += sample.period.max(1);
        let pid = if self.decoding.physical { PHYSICAL_PID } else { sample.pid };
        let mut queue = self.queues.get_mut(&pid);
        if let Some(queue) = &mut queue {
            if queue.listener != listener {
                return;
            }
            queue.interrupts += 1;
        }
        let addr = match self.decoding.address(sample) {
            Said::Address(addr) if addr < KERNEL => Addr(addr),
            said => {
                if queue.is_some() {
                    self.evidence.count(said);
                }
                return;
            }
        };
        let weight = u32::try_from(sample.period.max(1)).unwrap_or(u32::MAX);
        let access = Access { at: sample.time, page: addr.page(), weight };
        match queue {
            Some(queue) if queue.waiting.len() < MOST_WAITING => queue.waiting.push((access, addr)),
            Some(_) => self.dropped += 1,
            None => self.keep(Unclaimed { listener, pid, access, addr }),
        }
    }

    fn keep(&mut self, sample: Unclaimed) {
        while self.unclaimed.len() >= MOST_UNCLAIMED
            || self.unclaimed.front().is_some_and(|old| old.access.at + UNCLAIMED_NS < sample.access.at)
        {
            self.unclaimed.pop_front();
        }
        self.unclaimed.push_back(sample);
    }

    /// Hands over what waits for `pid`, in the order in which it was heard. Times after `now`, by the clock of another processor,
    /// are taken to be now. Returns how often it was interrupted since the last call.
    pub fn hand_over(&mut self, pid: u32, now: Ns, sink: &mut dyn FnMut(Access)) -> u64 {
        let Some(queue) = self.queues.get_mut(&pid) else { return 0 };
        if now > queue.early_until + UNCLAIMED_NS {
            // Too late for it to be another program that it has begun with.
            queue.early = Vec::new();
        }
        let mut last = AddrRange::default();
        for (access, addr) in queue.waiting.drain(..) {
            if !last.contains(addr) {
                last = span_of(&queue.spans, addr).unwrap_or_default();
            }
            if !last.is_empty() {
                self.evidence.inside += 1;
            } else if queue.unplaced.len() < MOST_UNPLACED {
                queue.unplaced.push(addr);
            }
            if access.at <= queue.early_until && queue.early.len() < MOST_UNCLAIMED {
                queue.early.push((access, addr));
            }
            sink(Access { at: access.at.min(now), ..access });
        }
        std::mem::take(&mut queue.interrupts)
    }

    /// What the samples of watched processes were, so far; those that still wait are left out.
    pub fn evidence(&self) -> Evidence {
        self.evidence
    }

    /// Samples that nobody came for.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Events that all samples so far stand for.
    pub fn weighed(&self) -> u64 {
        self.weighed
    }
}

impl Evidence {
    fn count(&mut self, said: Said) {
        match said {
            Said::Address(_) => self.kernel += 1,
            Said::NoAddress => self.no_address += 1,
            Said::NoAccess => self.no_access += 1,
        }
    }
}

fn span_of(spans: &[AddrRange], addr: Addr) -> Option<AddrRange> {
    let after = spans.partition_point(|span| span.end <= addr);
    spans.get(after).filter(|span| span.contains(addr)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_units::PageNo;

    const S: Ns = 1_000_000_000;

    fn inbox() -> Inbox {
        Inbox::new(Decoding { ibs: false, physical: false })
    }

    fn sample(pid: u32, time: Ns, addr: u64) -> Sample<'static> {
        Sample { pid, time, addr, period: 3, ..Sample::default() }
    }

    fn pages_of(inbox: &mut Inbox, pid: u32) -> Vec<u64> {
        let mut pages = Vec::new();
        inbox.hand_over(pid, 100 * S, &mut |access| pages.push(access.page.0));
        pages
    }

    #[test]
    fn what_a_process_did_before_it_was_watched_is_not_lost() {
        let mut inbox = inbox();
        inbox.take(1, &sample(7, S, 0x1000));
        inbox.take(1, &sample(8, 2 * S, 0x2000));
        inbox.take(1, &sample(7, 3 * S, 0x3000));
        inbox.open(7, 1, &[1, 2], S);
        inbox.take(1, &sample(7, 4 * S, 0x4000));
        assert_eq!(pages_of(&mut inbox, 7), [1, 3, 4]);
        // For a while: eight's is too old by now.
        inbox.take(1, &sample(9, 6 * S, 0x1000));
        inbox.open(8, 1, &[1, 2], S);
        assert_eq!(pages_of(&mut inbox, 8), [0_u64; 0]);
    }

    #[test]
    fn what_a_program_did_that_was_executed_meanwhile_is_handed_over_again() {
        let mut inbox = inbox();
        inbox.open(7, 1, &[1, 2], S);
        inbox.take(1, &sample(7, 2 * S, 0x1000));
        inbox.take(1, &sample(7, 4 * S + 1, 0x5000));
        assert_eq!(pages_of(&mut inbox, 7), [1, 5]);
        inbox.take(1, &sample(7, 5 * S, 0x6000));
        inbox.close(7);
        inbox.open(7, 1, &[1, 2], 5 * S);
        assert_eq!(pages_of(&mut inbox, 7), [1, 6], "of its first seconds, and what still waited");
        inbox.close(7);
        inbox.open(7, 2, &[1, 2], 6 * S);
        assert_eq!(pages_of(&mut inbox, 7), [0_u64; 0], "another listener heard that, and hears it still");
        inbox.close(7);
        inbox.take(1, &sample(7, 6 * S, 0x7000));
        inbox.open(7, 3, &[3], 6 * S);
        assert_eq!(pages_of(&mut inbox, 7), [7], "the one that heard it is closed");
        inbox.forget(7);
        inbox.open(7, 3, &[3], 6 * S);
        assert_eq!(pages_of(&mut inbox, 7), [0_u64; 0], "another process of that number");
    }

    #[test]
    fn a_sample_heard_twice_is_taken_once() {
        let mut inbox = inbox();
        inbox.take(1, &sample(7, S, 0x1000));
        inbox.open(7, 2, &[1, 2], S);
        inbox.take(1, &sample(7, S, 0x1000));
        inbox.take(2, &sample(7, S, 0x1000));
        assert_eq!(pages_of(&mut inbox, 7), [1]);
        assert_eq!((inbox.is_heard(1), inbox.is_heard(2)), (false, true));
        assert_eq!((inbox.close(7), inbox.close(7)), (Some(2), None));
    }

    #[test]
    fn addresses_are_judged_by_where_they_are() {
        let mut inbox = inbox();
        inbox.open(7, 1, &[1, 2], S);
        let span = |start: u64, end: u64| AddrRange::new(Addr(start), Addr(end));
        inbox.set_spans(7, [span(0x1000, 0x2000), span(0x2000, 0x3000), span(0x8000, 0x9000)].into_iter());
        for addr in [0x1000, 0x2fff, 0x3000, 0x8000, 0x7000, 0x9000, 0, 1 << 63, u64::MAX] {
            inbox.take(1, &sample(7, S, addr));
        }
        inbox.take(1, &sample(8, S, 0));
        assert_eq!(inbox.evidence().samples(), 3, "the rest waits to be handed over");
        assert_eq!(pages_of(&mut inbox, 7).len(), 6, "those outside too");
        // What is outside may be in a mapping that is newer than the list: that is judged by the next list.
        let told = inbox.evidence();
        assert_eq!((told.inside, told.outside, told.kernel, told.no_address), (3, 0, 2, 1));
        inbox.set_spans(7, [span(0x7000, 0x8000)].into_iter());
        let told = inbox.evidence();
        assert_eq!((told.inside, told.outside, told.kernel, told.no_address), (4, 2, 2, 1));
        assert_eq!(inbox.weighed(), 30, "of all, whoever they belong to");
    }

    #[test]
    fn the_clock_of_another_processor_does_not_lead_into_the_future() {
        let mut inbox = inbox();
        inbox.open(7, 1, &[1, 2], S);
        inbox.take(1, &sample(7, 500 * S, 0x1000));
        let mut told = None;
        inbox.hand_over(7, 100 * S, &mut |access| told = Some(access));
        assert_eq!(told, Some(Access { at: 100 * S, page: PageNo(1), weight: 3 }));
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut inbox = inbox();
        for i in 0..MOST_UNCLAIMED as u64 + 5 {
            inbox.take(1, &sample(7, S, 0x1000 * (i + 1)));
        }
        inbox.open(7, 1, &[1, 2], S);
        let pages = pages_of(&mut inbox, 7);
        assert_eq!((pages.len(), pages[0]), (MOST_UNCLAIMED, 6), "the oldest go first");
    }

    #[test]
    fn physical_samples_belong_to_the_machine() {
        let mut inbox = Inbox::new(Decoding { ibs: false, physical: true });
        inbox.open(PHYSICAL_PID, 1, &[1], S);
        inbox.take(1, &Sample { phys_addr: 0x5000, ..sample(7, S, 0x1000) });
        inbox.take(1, &sample(7, S, 0x1000));
        assert_eq!(pages_of(&mut inbox, PHYSICAL_PID), [5]);
        assert_eq!(inbox.evidence().no_address, 1);
    }

    #[test]
    fn operations_that_access_nothing_are_no_accesses() {
        let mut inbox = Inbox::new(Decoding { ibs: true, physical: false });
        inbox.open(7, 1, &[1, 2], S);
        inbox.take(1, &sample(7, S, 0x1000));
        assert_eq!((inbox.evidence().no_access, pages_of(&mut inbox, 7).len()), (1, 0), "no registers came with it");
    }
}
