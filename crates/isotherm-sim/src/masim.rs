//! Hosts of one process with a known amount of hot memory, after MASIM, the memory access simulator that was used to
//! measure DAMON and Telescope: 1, 10 and 100 GB with a tenth hot, and 5 TB with 10 GB hot.

use crate::error::Error;
use crate::heat::Heat;
use crate::host::Host;
use crate::mix::mix;
use crate::process::{Area, Process, range_at};
use isotherm_heat::Ns;
use isotherm_units::{Bytes, PAGE_SIZE};

/// The process of these hosts.
pub const MASIM_PID: u32 = 1000;
/// Not aligned to a huge range. An even page number, for [`Masim::slots`].
const START: u64 = 0x7a31_2345_6000;
/// Default sweep rate of hot memory, in bytes per second: the memory bandwidth of a server.
const SWEEP_BYTES_PER_S: u64 = 50_000_000_000;

/// Describes such a host; [`Masim::host`] makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Masim {
    /// Memory of the process; rounded down to pages.
    pub total: Bytes,
    /// Hot part of it; rounded down to pages.
    pub hot: Bytes,
    /// Number of hot spans. Their sizes differ by up to a factor of three.
    pub spans: usize,
    /// Each hot page is accessed once in this many ns.
    pub interval: Ns,
}

impl Masim {
    /// One hot span, swept at 50 GB/s: 10 GB takes 200 ms, so a page of it is found accessed in one of forty samples of
    /// 5 ms.
    pub fn new(total: Bytes, hot: Bytes) -> Masim {
        let sweep_ns = u128::from(hot.0) * 1_000_000_000 / u128::from(SWEEP_BYTES_PER_S);
        Masim { total, hot, spans: 1, interval: Ns::try_from(sweep_ns).unwrap_or(Ns::MAX).max(1) }
    }

    /// The same with the hot memory in `n` spans.
    #[must_use]
    pub fn spans(mut self, n: usize) -> Masim {
        self.spans = n;
        self
    }

    /// The same with another interval, in ns.
    #[must_use]
    pub fn every(mut self, interval: Ns) -> Masim {
        self.interval = interval;
        self
    }

    /// The host: the process [`MASIM_PID`] in cgroup `/masim`, with an eighth more memory than it uses.
    pub fn host(&self) -> Result<Host, Error> {
        let (total, hot, spans) = (self.total.pages(), self.hot.pages(), self.spans);
        // At least two pages for each span, and as many cold ones, so that cold pages can be on both sides of each
        // span.
        if hot + 2 * spans as u64 > total || hot < 2 * spans as u64 || spans == 0 {
            return Err(Error::HotDoesNotFit { hot: self.hot, spans, total: self.total });
        }
        let mut process = Process::new(MASIM_PID, "masim").cgroup("/masim");
        let mut next = START;
        let mut push = |pages: u64, heat: Heat| {
            if pages > 0 {
                let range = range_at(next, pages * PAGE_SIZE);
                next = range.end.0;
                process.areas.push(Area::new(range, heat));
            }
        };
        for (cold_before, hot, cold_after) in self.slots(total, hot) {
            push(cold_before, Heat::never());
            push(hot, Heat::every(self.interval));
            push(cold_after, Heat::never());
        }
        Host::new(Bytes(self.total.0 + self.total.0 / 8), vec![process])
    }

    /// Cuts memory into one slot for each span. The sizes of slots and spans are proportional to a weight drawn by
    /// hash. The span is placed near the middle of its slot. Returns pages: cold, hot, cold.
    fn slots(&self, total: u64, hot: u64) -> Vec<(u64, u64, u64)> {
        let weight = |i: usize| 512 + mix(i as u64 + 1) % 1024;
        let all: u64 = (0..self.spans).map(weight).sum();
        let (mut total_left, mut hot_left, mut weight_left) = (total, hot, all);
        let mut slots = Vec::new();
        for i in 0..self.spans {
            let slot = share(total_left, weight(i), weight_left);
            let span = share(hot_left, weight(i), weight_left).min(slot);
            let slack = slot - span;
            // A quarter to three quarters of the free pages come before the span. The span begins at an odd page, so
            // that it is not aligned to any larger power of two.
            let before = slack / 4 + mix(!(i as u64)) % (slack / 2 + 1);
            let begin = total - total_left + before;
            let before = (before + (begin + 1) % 2).min(slack);
            slots.push((before, span, slack - before));
            total_left -= slot;
            hot_left -= span;
            weight_left -= weight(i);
        }
        slots
    }
}

#[expect(clippy::cast_possible_truncation, reason = "no more than `of`")]
fn share(of: u64, weight: u64, weights: u64) -> u64 {
    (u128::from(of) * u128::from(weight) / u128::from(weights)) as u64
}

impl Host {
    /// One process of `total` bytes with `hot` of it hot, in one span near the middle: the default [`Masim`].
    pub fn masim(total: Bytes, hot: Bytes) -> Result<Host, Error> {
        Masim::new(total, hot).host()
    }

    /// The same with the hot memory in `n` spans.
    pub fn masim_spans(total: Bytes, hot: Bytes, n: usize) -> Result<Host, Error> {
        Masim::new(total, hot).spans(n).host()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::truth::Scope;

    #[test]
    fn the_hosts_of_the_published_table_are_as_said() {
        const GB: u64 = 1_000_000_000;
        for (total, hot) in [(GB, GB / 10), (10 * GB, GB), (100 * GB, 10 * GB), (5000 * GB, 10 * GB)] {
            for spans in [1, 7, 100] {
                let host = Host::masim_spans(Bytes(total), Bytes(hot), spans).unwrap();
                let truth = host.truth(Scope::Host, 0);
                assert_eq!(truth.total().pages(), Bytes(total).pages());
                assert_eq!(truth.within(1 << 40).pages(), Bytes(hot).pages());
                let areas = &host.processes()[0].areas;
                let hot: Vec<&Area> = areas.iter().filter(|a| a.heat != Heat::never()).collect();
                assert_eq!(hot.len(), spans);
                assert!(hot.iter().all(|a| a.range.start.page().0 % 2 == 1), "not at a power of two");
                let lens = hot.iter().map(|a| a.range.len().0);
                assert!(spans == 1 || lens.clone().max() > lens.min(), "sizes differ");
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mib = Bytes::of_mib;
        assert!(Host::masim(mib(1), mib(2)).is_err());
        assert!(Host::masim_spans(mib(1), Bytes::of_pages(5), 3).is_err());
        assert!(Host::masim_spans(mib(1), Bytes::of_pages(6), 3).is_ok());
        assert!(Host::masim_spans(mib(1), mib(0), 0).is_err());
    }
}
