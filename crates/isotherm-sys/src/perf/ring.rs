//! One ring for one event, on one thread or one CPU: for the tracepoints of a kernel thread, and for trials.
//!
//! [`super::Rings`] handles several events, CPUs or threads. [`super::mapping`] holds the memory of the ring.

use super::attr::{self, Of, Reading};
use super::error::RingError;
use super::mapping::{Mapping, data_len, page_size};
use super::record::{Record, Tally};
use super::sample::Fields;
use super::sampling::Sampling;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// What is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One thread, on any CPU. Threads that it starts are not sampled.
    Thread(u32),
    /// All threads, while they run on one CPU. Needs `CAP_PERFMON`.
    Cpu(u32),
}

/// Samples of one event. Sampling starts when it is opened and ends when it is dropped.
#[derive(Debug)]
pub struct Ring {
    /// The control page and the data behind it. Unmapped before `event` is closed: fields are dropped in this order.
    mapping: Mapping,
    event: File,
    _leader: Option<OwnedFd>,
    fields: Fields,
    /// The period, if the kernel is not asked for it; see [`Sampling::period_is_known`].
    period: Option<u64>,
    scratch: Vec<u8>,
    tally: Tally,
}

impl Ring {
    /// Opens an event with a ring of at least `bytes`, rounded up to a power of two of pages, as the kernel requires.
    ///
    /// Uses the highest precision that was asked for, and nothing less. [`super::Rings`] tries lower ones.
    pub fn open(sampling: Sampling, scope: Scope, bytes: usize) -> Result<Ring, RingError> {
        let (event, rate) = (sampling.event, sampling.rate);
        let (of, cpu) = match scope {
            Scope::Thread(tid) => (Of::Thread(tid), None),
            Scope::Cpu(cpu) => (Of::All, Some(cpu)),
        };
        let (sampling, period) = asked(sampling);
        let leader = sampling.leader_attr().map(|attr| attr::open(attr, of, cpu, None)).transpose();
        let leader = leader.map_err(|e| RingError::from_io(sampling.leader.unwrap_or(event), rate, e))?;
        let fd = attr::open(sampling.attr(sampling.most_precise), of, cpu, leader.as_ref().map(OwnedFd::as_fd));
        let fd = fd.map_err(|e| RingError::from_io(event, rate, e))?;
        let len = data_len(bytes, page_size());
        let mapping = Mapping::new(fd.as_fd(), len).map_err(|e| RingError::from_map(event, len, 1, e))?;
        let (fields, tally) = (sampling.fields, Tally::default());
        Ok(Ring { mapping, event: File::from(fd), _leader: leader, fields, period, scratch: Vec::new(), tally })
    }

    /// Takes all records out of the ring, oldest first.
    pub fn drain(&mut self, mut each: impl FnMut(Record<'_>)) {
        let Ring { mapping, fields, period, scratch, tally, .. } = self;
        mapping.drain(scratch, |raw| {
            let mut record = raw.record(*fields);
            tally.count(&record);
            fill_in(&mut record, *period);
            each(record);
        });
    }

    /// Samples that had no room, as the kernel has reported in the records drained so far.
    pub fn lost(&self) -> u64 {
        self.tally.lost
    }

    /// How often the event has happened, by the kernel's own count. Samples and losses should add up to it.
    pub fn count(&self) -> io::Result<u64> {
        let Reading { value, .. } = attr::read(&self.event)?;
        Ok(value)
    }
}

/// What to ask the kernel for, and the period to fill in if the kernel is not asked for it.
pub(super) fn asked(sampling: Sampling) -> (Sampling, Option<u64>) {
    let known = sampling.period_is_known().filter(|_| sampling.fields.contains(Fields::PERIOD));
    match known {
        Some(_) => (Sampling { fields: sampling.fields.without(Fields::PERIOD), ..sampling }, known),
        None => (sampling, None),
    }
}

#[inline]
pub(super) fn fill_in(record: &mut Record<'_>, period: Option<u64>) {
    if let (Record::Sample(sample), Some(period)) = (record, period) {
        sample.period = period;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Memory, PageSize};
    use crate::perf::{Event, Rate};
    use std::io::Write;

    /// Opens a ring on our own thread, or says aloud why not: a container may forbid it.
    fn page_faults(bytes: usize) -> Option<Ring> {
        let fields = Fields::TID | Fields::TIME | Fields::ADDR;
        let sampling = Sampling { user_only: true, ..Sampling::new(Event::PAGE_FAULTS, Rate::Period(1), fields) };
        // SAFETY: gettid takes nothing and returns a number.
        let tid = u32::try_from(unsafe { libc::gettid() }).unwrap();
        match Ring::open(sampling, Scope::Thread(tid), bytes) {
            Err(e @ (RingError::Denied { .. } | RingError::Io { .. } | RingError::TooLarge { .. })) => {
                let _ = io::stderr().write_all(format!("skipped: needs perf_event_open ({e})\n").as_bytes());
                None
            }
            opened => Some(opened.unwrap()),
        }
    }

    #[test]
    fn every_page_fault_of_a_thread_is_sampled_with_its_address() {
        let Some(mut ring) = page_faults(256 << 10) else { return };
        let memory = Memory::anonymous(2 << 20, PageSize::Small).unwrap();
        let mut pages = vec![false; memory.pages()];
        let mut samples = 0_u64;
        // More than the ring holds at once: it wraps.
        for round in 0..40 {
            let began = crate::clock::monotonic_ns();
            memory.discard(0, memory.pages());
            (0..memory.pages()).for_each(|page| memory.write(page));
            let ended = crate::clock::monotonic_ns();
            ring.drain(|record| {
                let Record::Sample(sample) = record else { panic!("round {round}: {record:?}") };
                samples += 1;
                if memory.range().contains(isotherm_units::Addr(sample.addr)) {
                    assert!((began..=ended).contains(&sample.time), "{began} {ended} {sample:?}");
                    assert_eq!(sample.pid, std::process::id());
                    pages[usize::try_from((sample.addr - memory.range().start.0) / 4096).unwrap()] = true;
                }
            });
            assert!(std::mem::take(&mut pages).iter().all(|p| *p), "round {round}: a page is missing");
            pages = vec![false; memory.pages()];
        }
        // The last faults may be our own, in between.
        let count = ring.count().unwrap();
        let mut later = 0_u64;
        ring.drain(|_| later += 1);
        assert!(samples >= 40 * 512, "{samples}");
        assert!((samples + later).abs_diff(count) <= later + 4 && ring.lost() == 0, "{samples} + {later}, {count}");
    }

    #[test]
    fn what_had_no_room_is_told() {
        let Some(mut ring) = page_faults(4096) else { return };
        let memory = Memory::anonymous(2 << 20, PageSize::Small).unwrap();
        let samples = |ring: &mut Ring| {
            let mut samples = 0_u64;
            ring.drain(|r| samples += u64::from(matches!(r, Record::Sample(_))));
            samples
        };
        memory.populate();
        let first = samples(&mut ring);
        // The loss is reported with the first record that has room again.
        memory.discard(0, 10);
        (0..10).for_each(|page| memory.write(page));
        let second = samples(&mut ring);
        let (count, lost) = (ring.count().unwrap(), ring.lost());
        assert!(first < 512 && lost > 0, "{first} samples, {lost} lost");
        assert!(count.abs_diff(first + second + lost) <= 8, "{first} + {second} + {lost}, counted {count}");
    }
}
