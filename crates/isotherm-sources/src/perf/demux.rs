//! Sorts samples by process, and holds them until the monitor asks for them.
//!
//! A ring holds samples of everything that ran: of monitored processes, of others, and of new processes that will be
//! monitored as soon as they are noticed. The first touches of a new process are among those, so samples that no target
//! claims are kept for a while. Each sample is used once only: a process has one listener, and samples of it from
//! others are dropped.

use super::options::PHYSICAL_PID;
use super::verdict::Evidence;
use isotherm_heat::{Access, Ns};
use isotherm_sys::perf::Sample;
use isotherm_sys::perf::ibs;
use isotherm_units::{Addr, AddrRange};
use std::collections::{BTreeMap, VecDeque};

/// Samples of unknown processes are kept for this long.
const UNCLAIMED_NS: Ns = 3_000_000_000;
const MAX_UNCLAIMED: usize = 1 << 17;
/// Addresses kept until the next list of mappings can explain them.
const MAX_UNPLACED: usize = 1 << 12;
/// Samples of known processes, as long as nobody asks for them: at the usual rates, for minutes.
const MAX_WAITING: usize = 1 << 22;
/// Addresses from here on are the kernel's, on every 64-bit machine.
const KERNEL: u64 = 1 << 63;

/// The listener that received a sample.
pub(super) type ListenerId = u32;

/// Which address of a sample is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decoding {
    /// Samples are of AMD's IBS, of any operation: the registers show whether it was an access.
    pub ibs: bool,
    /// Physical addresses are wanted, and all samples belong to one target.
    pub physical: bool,
}

/// The address in a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SampleAddress {
    Address(u64),
    NoAddress,
    NoAccess,
}

impl Decoding {
    fn address(self, sample: &Sample<'_>) -> SampleAddress {
        if self.ibs {
            let Some(access) = ibs::decode(sample.raw).filter(|a| a.load || a.store) else {
                return SampleAddress::NoAccess;
            };
            let address = if self.physical { access.physical } else { access.linear };
            return address.map_or(SampleAddress::NoAccess, SampleAddress::Address);
        }
        match if self.physical { sample.phys_addr } else { sample.addr } {
            0 => SampleAddress::NoAddress,
            addr => SampleAddress::Address(addr),
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
    /// Samples of its first seconds that were already handed over. If it turns out to have executed another program
    /// meanwhile, it is attached again, and the samples of that program are in here.
    early: Vec<(Access, Addr)>,
    /// When that time ends.
    early_until: Ns,
    /// Addresses outside of all spans: there may be newer mappings than those listed.
    unplaced: Vec<Addr>,
    /// Samples since the last hand-over, those without an access included.
    interrupts: u64,
}

/// A sample of a process that is not monitored, or not yet.
#[derive(Clone, Copy, Debug)]
struct Unclaimed {
    listener: ListenerId,
    pid: u32,
    access: Access,
    addr: Addr,
}

/// All samples that wait.
#[derive(Debug)]
pub(super) struct SampleDemux {
    decoding: Decoding,
    queues: BTreeMap<u32, Queue>,
    unclaimed: VecDeque<Unclaimed>,
    /// Counts by kind. Samples without an address are counted for monitored processes only.
    evidence: Evidence,
    /// Samples dropped here because nobody asked for them.
    dropped: u64,
    /// Events that the samples stand for.
    weighed: u64,
}

impl SampleDemux {
    pub fn new(decoding: Decoding) -> SampleDemux {
        SampleDemux {
            decoding,
            queues: BTreeMap::new(),
            unclaimed: VecDeque::new(),
            evidence: Evidence::default(),
            dropped: 0,
            weighed: 0,
        }
    }

    /// Starts to keep samples of `pid` from `listener`, including the recent ones, and recent ones from listeners that
    /// are not among those `open` any more.
    pub fn open(&mut self, pid: u32, listener: ListenerId, open: &[ListenerId], now: Ns) {
        let mine = |u: &Unclaimed| u.pid == pid && (u.listener == listener || !open.contains(&u.listener));
        let waiting: Vec<_> = self.unclaimed.iter().filter(|u| mine(u)).map(|u| (u.access, u.addr)).collect();
        self.unclaimed.retain(|u| u.pid != pid);
        let early_until = waiting.first().map_or(now, |(access, _)| access.at) + UNCLAIMED_NS;
        let (spans, early, unplaced) = (Vec::new(), Vec::new(), Vec::new());
        self.queues.insert(pid, Queue { listener, spans, waiting, early, early_until, unplaced, interrupts: 0 });
    }

    /// From now on `listener` samples `pid`. Waiting samples are kept.
    pub fn moved(&mut self, pid: u32, listener: ListenerId) {
        if let Some(queue) = self.queues.get_mut(&pid) {
            queue.listener = listener;
        }
    }

    /// Forgets `pid`, which has ended. Returns its listener.
    pub fn forget(&mut self, pid: u32) -> Option<ListenerId> {
        self.unclaimed.retain(|u| u.pid != pid);
        self.queues.remove(&pid).map(|queue| queue.listener)
    }

    /// Closes `pid`, which may be opened again: its recent samples are kept for that. Returns its listener.
    pub fn close(&mut self, pid: u32) -> Option<ListenerId> {
        let Queue { listener, early, waiting, .. } = self.queues.remove(&pid)?;
        for (access, addr) in early.into_iter().chain(waiting) {
            self.keep(Unclaimed { listener, pid, access, addr });
        }
        Some(listener)
    }

    /// The listener that samples `pid`.
    pub fn listener_of(&self, pid: u32) -> Option<ListenerId> {
        self.queues.get(&pid).map(|queue| queue.listener)
    }

    /// Whether a listener is still used for any process.
    pub fn is_in_use(&self, listener: ListenerId) -> bool {
        self.queues.values().any(|queue| queue.listener == listener)
    }

    /// Sets where `pid` has memory: sorted ranges.
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

    /// Sorts a sample.
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
            SampleAddress::Address(addr) if addr < KERNEL => Addr(addr),
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
            Some(queue) if queue.waiting.len() < MAX_WAITING => queue.waiting.push((access, addr)),
            Some(_) => self.dropped += 1,
            None => self.keep(Unclaimed { listener, pid, access, addr }),
        }
    }

    fn keep(&mut self, sample: Unclaimed) {
        while self.unclaimed.len() >= MAX_UNCLAIMED
            || self.unclaimed.front().is_some_and(|old| old.access.at + UNCLAIMED_NS < sample.access.at)
        {
            self.unclaimed.pop_front();
        }
        self.unclaimed.push_back(sample);
    }

    /// Hands over what waits for `pid`, in order of arrival. Times after `now`, by the clock of another CPU, become
    /// `now`. Returns how often the process was interrupted since the last call.
    pub fn hand_over(&mut self, pid: u32, now: Ns, sink: &mut dyn FnMut(Access)) -> u64 {
        let Some(queue) = self.queues.get_mut(&pid) else { return 0 };
        if now > queue.early_until + UNCLAIMED_NS {
            // The first seconds are over, and any exec in them would be known by now.
            queue.early = Vec::new();
        }
        let mut last = AddrRange::default();
        for (access, addr) in queue.waiting.drain(..) {
            if !last.contains(addr) {
                last = span_of(&queue.spans, addr).unwrap_or_default();
            }
            if !last.is_empty() {
                self.evidence.inside += 1;
            } else if queue.unplaced.len() < MAX_UNPLACED {
                queue.unplaced.push(addr);
            }
            if access.at <= queue.early_until && queue.early.len() < MAX_UNCLAIMED {
                queue.early.push((access, addr));
            }
            sink(Access { at: access.at.min(now), ..access });
        }
        std::mem::take(&mut queue.interrupts)
    }

    /// Evidence from the samples of monitored processes so far, without those that still wait.
    pub fn evidence(&self) -> Evidence {
        self.evidence
    }

    /// Samples that nobody asked for.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Events that all samples so far stand for.
    pub fn weighed(&self) -> u64 {
        self.weighed
    }
}

impl Evidence {
    fn count(&mut self, said: SampleAddress) {
        match said {
            SampleAddress::Address(_) => self.kernel += 1,
            SampleAddress::NoAddress => self.no_address += 1,
            SampleAddress::NoAccess => self.no_access += 1,
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

    fn demux() -> SampleDemux {
        SampleDemux::new(Decoding { ibs: false, physical: false })
    }

    fn sample(pid: u32, time: Ns, addr: u64) -> Sample<'static> {
        Sample { pid, time, addr, period: 3, ..Sample::default() }
    }

    fn pages_of(demux: &mut SampleDemux, pid: u32) -> Vec<u64> {
        let mut pages = Vec::new();
        demux.hand_over(pid, 100 * S, &mut |access| pages.push(access.page.0));
        pages
    }

    #[test]
    fn what_a_process_did_before_it_was_watched_is_not_lost() {
        let mut demux = demux();
        demux.take(1, &sample(7, S, 0x1000));
        demux.take(1, &sample(8, 2 * S, 0x2000));
        demux.take(1, &sample(7, 3 * S, 0x3000));
        demux.open(7, 1, &[1, 2], S);
        demux.take(1, &sample(7, 4 * S, 0x4000));
        assert_eq!(pages_of(&mut demux, 7), [1, 3, 4]);
        // For a while: eight's is too old by now.
        demux.take(1, &sample(9, 6 * S, 0x1000));
        demux.open(8, 1, &[1, 2], S);
        assert_eq!(pages_of(&mut demux, 8), [0_u64; 0]);
    }

    #[test]
    fn what_a_program_did_that_was_executed_meanwhile_is_handed_over_again() {
        let mut demux = demux();
        demux.open(7, 1, &[1, 2], S);
        demux.take(1, &sample(7, 2 * S, 0x1000));
        demux.take(1, &sample(7, 4 * S + 1, 0x5000));
        assert_eq!(pages_of(&mut demux, 7), [1, 5]);
        demux.take(1, &sample(7, 5 * S, 0x6000));
        demux.close(7);
        demux.open(7, 1, &[1, 2], 5 * S);
        assert_eq!(pages_of(&mut demux, 7), [1, 6], "of its first seconds, and what still waited");
        demux.close(7);
        demux.open(7, 2, &[1, 2], 6 * S);
        assert_eq!(pages_of(&mut demux, 7), [0_u64; 0], "another listener heard that, and hears it still");
        demux.close(7);
        demux.take(1, &sample(7, 6 * S, 0x7000));
        demux.open(7, 3, &[3], 6 * S);
        assert_eq!(pages_of(&mut demux, 7), [7], "the one that heard it is closed");
        demux.forget(7);
        demux.open(7, 3, &[3], 6 * S);
        assert_eq!(pages_of(&mut demux, 7), [0_u64; 0], "another process of that number");
    }

    #[test]
    fn a_sample_heard_twice_is_taken_once() {
        let mut demux = demux();
        demux.take(1, &sample(7, S, 0x1000));
        demux.open(7, 2, &[1, 2], S);
        demux.take(1, &sample(7, S, 0x1000));
        demux.take(2, &sample(7, S, 0x1000));
        assert_eq!(pages_of(&mut demux, 7), [1]);
        assert_eq!((demux.is_in_use(1), demux.is_in_use(2)), (false, true));
        assert_eq!((demux.close(7), demux.close(7)), (Some(2), None));
    }

    #[test]
    fn addresses_are_judged_by_where_they_are() {
        let mut demux = demux();
        demux.open(7, 1, &[1, 2], S);
        let span = |start: u64, end: u64| AddrRange::new(Addr(start), Addr(end));
        demux.set_spans(7, [span(0x1000, 0x2000), span(0x2000, 0x3000), span(0x8000, 0x9000)].into_iter());
        for addr in [0x1000, 0x2fff, 0x3000, 0x8000, 0x7000, 0x9000, 0, 1 << 63, u64::MAX] {
            demux.take(1, &sample(7, S, addr));
        }
        demux.take(1, &sample(8, S, 0));
        assert_eq!(demux.evidence().samples(), 3, "the rest waits to be handed over");
        assert_eq!(pages_of(&mut demux, 7).len(), 6, "those outside too");
        // What is outside may be in a mapping that is newer than the list: that is judged by the next list.
        let reported = demux.evidence();
        assert_eq!((reported.inside, reported.outside, reported.kernel, reported.no_address), (3, 0, 2, 1));
        demux.set_spans(7, [span(0x7000, 0x8000)].into_iter());
        let reported = demux.evidence();
        assert_eq!((reported.inside, reported.outside, reported.kernel, reported.no_address), (4, 2, 2, 1));
        assert_eq!(demux.weighed(), 30, "of all, whoever they belong to");
    }

    #[test]
    fn the_clock_of_another_processor_does_not_lead_into_the_future() {
        let mut demux = demux();
        demux.open(7, 1, &[1, 2], S);
        demux.take(1, &sample(7, 500 * S, 0x1000));
        let mut reported = None;
        demux.hand_over(7, 100 * S, &mut |access| reported = Some(access));
        assert_eq!(reported, Some(Access { at: 100 * S, page: PageNo(1), weight: 3 }));
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut demux = demux();
        for i in 0..MAX_UNCLAIMED as u64 + 5 {
            demux.take(1, &sample(7, S, 0x1000 * (i + 1)));
        }
        demux.open(7, 1, &[1, 2], S);
        let pages = pages_of(&mut demux, 7);
        assert_eq!((pages.len(), pages[0]), (MAX_UNCLAIMED, 6), "the oldest go first");
    }

    #[test]
    fn physical_samples_belong_to_the_machine() {
        let mut demux = SampleDemux::new(Decoding { ibs: false, physical: true });
        demux.open(PHYSICAL_PID, 1, &[1], S);
        demux.take(1, &Sample { phys_addr: 0x5000, ..sample(7, S, 0x1000) });
        demux.take(1, &sample(7, S, 0x1000));
        assert_eq!(pages_of(&mut demux, PHYSICAL_PID), [5]);
        assert_eq!(demux.evidence().no_address, 1);
    }

    #[test]
    fn operations_that_access_nothing_are_no_accesses() {
        let mut demux = SampleDemux::new(Decoding { ibs: true, physical: false });
        demux.open(7, 1, &[1, 2], S);
        demux.take(1, &sample(7, S, 0x1000));
        assert_eq!((demux.evidence().no_access, pages_of(&mut demux, 7).len()), (1, 0), "no registers came with it");
    }
}
