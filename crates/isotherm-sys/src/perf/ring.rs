//! A perf ring: the kernel writes records at the head, we read at the tail.
//!
//! ```text
//!   control page        data: 2^n pages, used round and round
//!  |head|tail|...|  |...........tail#########head...........|
//! ```
//!
//! What is between tail and head is copied out and the tail is moved at once, so that the ring has room again before the first
//! record is looked at, and the records in the copy never wrap around.

use super::attr::{self, Attr, EXCLUDE_HV, EXCLUDE_KERNEL, USE_CLOCK};
use super::event::Event;
use super::sample::{Fields, Sample};
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One thread, on whatever processor it runs. Threads that it starts are not sampled.
    Thread(u32),
    /// All threads, while they run on one processor. Takes `CAP_PERFMON`.
    Cpu(u32),
}

/// How an event is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// The event.
    pub event: Event,
    /// One sample every so many events.
    pub period: u64,
    /// What a sample holds.
    pub fields: Fields,
    /// Leave out what happens in the kernel: allowed to everybody, for threads of their own.
    pub user_only: bool,
}

/// Why there is no ring.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// The kernel refused (`EACCES`, `EPERM`).
    #[error("sample {event}: permission denied: run as root or with CAP_PERFMON")]
    Denied {
        /// The event.
        event: Event,
    },
    /// No such thread (`ESRCH`).
    #[error("sample {event}: the thread has ended")]
    Gone {
        /// The event.
        event: Event,
    },
    /// No event source here that samples it (`ENOENT`, `ENODEV`, `EOPNOTSUPP`).
    #[error("sample {event}: nothing on this machine samples it")]
    NoPmu {
        /// The event.
        event: Event,
    },
    /// A ring of that size is more than may be locked in memory.
    #[error(
        "sample {event}: a ring of {bytes} bytes is more than may be locked in memory; run as root, or raise \
         kernel.perf_event_mlock_kb"
    )]
    TooLarge {
        /// The event.
        event: Event,
        /// What was asked for, rounded up.
        bytes: usize,
    },
    /// Any other failure.
    #[error("sample {event}")]
    Io {
        /// The event.
        event: Event,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

impl RingError {
    fn from_io(event: Event, source: io::Error) -> RingError {
        match source.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => RingError::Denied { event },
            Some(libc::ESRCH) => RingError::Gone { event },
            Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP) => RingError::NoPmu { event },
            _ => RingError::Io { event, source },
        }
    }
}

/// Offsets into `struct perf_event_mmap_page`.
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;

/// Samples of one event. Sampling starts when it is opened and ends when it is dropped.
#[derive(Debug)]
pub struct Ring {
    /// The control page and the data behind it. Unmapped before `event` is closed: fields are dropped in this order.
    mapping: Mapping,
    event: File,
    fields: Fields,
    copy: Vec<u8>,
    lost: u64,
}

impl Ring {
    /// Opens an event with a ring of at least `bytes`. The kernel wants a power of two of pages: it is rounded up to that.
    pub fn open(sampling: Sampling, scope: Scope, bytes: usize) -> Result<Ring, RingError> {
        let event = sampling.event;
        let attr = Attr {
            kind: event.kind,
            config: event.config,
            config1: event.config1,
            config2: event.config2,
            config3: event.config3,
            sample_period: sampling.period.max(1),
            sample_type: sampling.fields.bits(),
            flags: EXCLUDE_HV | USE_CLOCK | if sampling.user_only { EXCLUDE_KERNEL } else { 0 },
            clock: libc::CLOCK_MONOTONIC,
            ..Attr::default()
        };
        let (tid, cpu) = match scope {
            Scope::Thread(tid) => (Some(tid), None),
            Scope::Cpu(cpu) => (None, Some(cpu)),
        };
        let fd = attr::open(attr, tid, cpu).map_err(|e| RingError::from_io(event, e))?;
        let page = page_size();
        let len = data_len(bytes, page);
        let mapping = Mapping::new(fd.as_raw_fd(), page, len).map_err(|e| match e.raw_os_error() {
            Some(libc::EPERM | libc::ENOMEM) => RingError::TooLarge { event, bytes: len },
            _ => RingError::from_io(event, e),
        })?;
        Ok(Ring { mapping, event: File::from(fd), fields: sampling.fields, copy: Vec::new(), lost: 0 })
    }

    /// Takes all records out of the ring, oldest first. What is not looked at is dropped.
    pub fn drain(&mut self) -> Records<'_> {
        self.mapping.take(&mut self.copy);
        self.lost += Records { rest: &self.copy, fields: self.fields }.map(|r| r.lost()).sum::<u64>();
        Records { rest: &self.copy, fields: self.fields }
    }

    /// Samples that the kernel says it had no room for, in the records drained so far.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// How often the event has happened, by the kernel's own count: what samples and losses should come to.
    pub fn count(&self) -> io::Result<u64> {
        let mut value = [0; 8];
        (&self.event).read_exact(&mut value)?;
        Ok(u64::from_ne_bytes(value))
    }
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// A sample.
    Sample(Sample<'a>),
    /// So many samples had no room.
    Lost(u64),
    /// Something else, or a sample that cannot be understood: its type.
    Other(u32),
}

impl Record<'_> {
    fn lost(&self) -> u64 {
        if let Record::Lost(n) = self { *n } else { 0 }
    }
}

const RECORD_LOST: u32 = 2;
const RECORD_SAMPLE: u32 = 9;
/// Type (4 bytes), misc (2), size of the whole record (2).
const HEADER: usize = 8;

/// The records of one drain.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
    fields: Fields,
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        let (header, _) = self.rest.split_first_chunk::<HEADER>()?;
        let [a, b, c, d, _, _, lo, hi] = *header;
        let kind = u32::from_ne_bytes([a, b, c, d]);
        let size = usize::from(u16::from_ne_bytes([lo, hi]));
        // The kernel writes whole records only; a size that cannot be would have us read on from nowhere.
        if size < HEADER || size > self.rest.len() {
            self.rest = &[];
            return None;
        }
        let (record, rest) = self.rest.split_at(size);
        self.rest = rest;
        let body = &record[HEADER..];
        Some(match kind {
            RECORD_SAMPLE => Sample::parse(self.fields, body).map_or(Record::Other(kind), Record::Sample),
            RECORD_LOST => lost_samples(body).map_or(Record::Other(kind), Record::Lost),
            other => Record::Other(other),
        })
    }
}

/// Behind the event's id.
fn lost_samples(body: &[u8]) -> Option<u64> {
    Some(u64::from_ne_bytes(*body.get(8..)?.first_chunk()?))
}

fn page_size() -> usize {
    usize::try_from(crate::page_size()).unwrap_or(4096)
}

/// Bytes of data for a ring of at least `bytes`.
fn data_len(bytes: usize, page: usize) -> usize {
    bytes.div_ceil(page).max(1).next_power_of_two() * page
}

/// Where in `len` bytes of data the bytes from `tail` to `head` are: both only ever grow. The second part is behind the wrap.
fn parts(tail: u64, head: u64, len: usize) -> (Range<usize>, Range<usize>) {
    let unread = usize::try_from(head.wrapping_sub(tail)).unwrap_or(len).min(len);
    // `len` is a power of two, so the remainder is right also when the counters wrap.
    let start = usize::try_from(tail % len as u64).expect("less than a usize");
    let first = unread.min(len - start);
    (start..start + first, 0..unread - first)
}

/// The memory shared with the kernel.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    page: usize,
    data_len: usize,
}

// SAFETY: the mapping is process-wide memory; moving who reads it to another thread changes nothing.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(fd: libc::c_int, page: usize, data_len: usize) -> io::Result<Mapping> {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: `fd` is a perf event and the length is 1 + 2^n pages, as it wants; the address is the kernel's choice, so no
        // live mapping is replaced. The result is checked below.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), page + data_len, prot, libc::MAP_SHARED, fd, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).expect("mmap does not return null");
        Ok(Mapping { start, page, data_len })
    }

    /// One of the two counters in the control page.
    fn counter(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the control page is mapped for as long as `self` lives, `offset` is within it and a multiple of eight, and both
        // sides access it as one word.
        unsafe { self.start.add(offset).cast::<AtomicU64>().as_ref() }
    }

    /// Copies out what is unread, and gives its room back.
    fn take(&self, copy: &mut Vec<u8>) {
        copy.clear();
        // Acquire: pairs with the kernel's store after it has written the records.
        let head = self.counter(DATA_HEAD).load(Ordering::Acquire);
        let tail = self.counter(DATA_TAIL).load(Ordering::Relaxed);
        let (first, second) = parts(tail, head, self.data_len);
        copy.reserve(first.len() + second.len());
        self.copy_part(first, copy);
        self.copy_part(second, copy);
        // Release: the kernel, which loads it before it writes there, finds us done with reading.
        self.counter(DATA_TAIL).store(head, Ordering::Release);
    }

    fn copy_part(&self, part: Range<usize>, copy: &mut Vec<u8>) {
        assert!(part.end <= self.data_len && part.len() <= copy.capacity() - copy.len());
        // SAFETY: `part` is within the data, which begins a page behind the start; it lies between tail and head, where the
        // kernel does not write. The room in `copy` was checked above, and the two do not overlap.
        unsafe {
            let from = self.start.add(self.page + part.start);
            std::ptr::copy_nonoverlapping(from.as_ptr(), copy.as_mut_ptr().add(copy.len()), part.len());
            copy.set_len(copy.len() + part.len());
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what `new` mapped, once; nothing borrowed from it outlives `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.page + self.data_len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Memory, PageSize};
    use std::io::Write;

    fn record(kind: u32, body: &[u8]) -> Vec<u8> {
        let size = u16::try_from(HEADER + body.len()).unwrap();
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend([0, 0]);
        bytes.extend(size.to_ne_bytes());
        bytes.extend(body);
        bytes
    }

    /// What a ring of `len` bytes gives back that was written to from `tail` on, whatever lies where it ends.
    fn through_ring(bytes: &[u8], tail: u64, len: usize) -> Vec<u8> {
        let mut data = vec![0xee; len];
        for (i, byte) in bytes.iter().enumerate() {
            data[usize::try_from((tail + i as u64) % len as u64).unwrap()] = *byte;
        }
        let (first, second) = parts(tail, tail + bytes.len() as u64, len);
        [&data[first], &data[second]].concat()
    }

    #[test]
    fn records_come_back_whole_wherever_they_wrap() {
        let lost = [1_u64.to_ne_bytes(), 5_u64.to_ne_bytes()].concat();
        let bytes = [record(RECORD_SAMPLE, &77_u64.to_ne_bytes()), record(RECORD_LOST, &lost), record(3, &[])].concat();
        for tail in (0..256).step_by(8) {
            let copy = through_ring(&bytes, tail, 64);
            let records: Vec<Record<'_>> = Records { rest: &copy, fields: Fields::TIME }.collect();
            let sample = Sample { time: 77, ..Sample::default() };
            assert_eq!(records, [Record::Sample(sample), Record::Lost(5), Record::Other(3)], "from {tail}");
        }
        let full: Vec<u8> = (0..64).collect();
        assert_eq!(through_ring(&full, 40, 64), full);
        assert_eq!(parts(u64::MAX - 7, 8, 64), (56..64, 0..8), "counters wrap as well");
    }

    #[test]
    fn a_record_that_cannot_be_ends_the_list() {
        let mut short = record(RECORD_SAMPLE, &[0; 4]);
        let parse = |bytes: &[u8]| {
            Records { rest: bytes, fields: Fields::TIME }.map(|r| matches!(r, Record::Other(_))).collect::<Vec<_>>()
        };
        assert_eq!(parse(&short), [true], "too short for its fields");
        short[6..8].copy_from_slice(&0_u16.to_ne_bytes());
        assert_eq!(parse(&short), [false; 0], "no size");
        short[6..8].copy_from_slice(&600_u16.to_ne_bytes());
        assert_eq!(parse(&short), [false; 0], "longer than what there is");
    }

    #[test]
    fn a_ring_has_a_power_of_two_of_pages() {
        for (bytes, pages) in
            [(0, 1), (1, 1), (4096, 1), (4097, 2), (3 * 4096, 4), (1 << 20, 256), ((1 << 20) + 1, 512)]
        {
            assert_eq!(data_len(bytes, 4096), pages * 4096, "{bytes}");
        }
    }

    /// Opens a ring on our own thread, or says aloud why not: a container may forbid it.
    fn page_faults(bytes: usize) -> Option<Ring> {
        let sampling = Sampling {
            event: Event::PAGE_FAULTS,
            period: 1,
            fields: Fields::TID | Fields::TIME | Fields::ADDR,
            user_only: true,
        };
        // SAFETY: gettid takes nothing and returns a number.
        let tid = u32::try_from(unsafe { libc::gettid() }).unwrap();
        match Ring::open(sampling, Scope::Thread(tid), bytes) {
            Err(e @ (RingError::Denied { .. } | RingError::Io { .. } | RingError::TooLarge { .. })) => {
                let _ = writeln!(io::stderr(), "skipped: needs perf_event_open ({e})");
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
        let mut samples = 0;
        // More than the ring holds at once: it wraps.
        for round in 0..40 {
            let began = crate::clock::monotonic_ns();
            memory.discard(0, memory.pages());
            (0..memory.pages()).for_each(|page| memory.write(page));
            let ended = crate::clock::monotonic_ns();
            for record in ring.drain() {
                let Record::Sample(sample) = record else { panic!("round {round}: {record:?}") };
                samples += 1;
                if memory.range().contains(isotherm_units::Addr(sample.addr)) {
                    assert!((began..=ended).contains(&sample.time), "{began} {ended} {sample:?}");
                    assert_eq!(sample.pid, std::process::id());
                    pages[usize::try_from((sample.addr - memory.range().start.0) / 4096).unwrap()] = true;
                }
            }
            assert!(std::mem::take(&mut pages).iter().all(|p| *p), "round {round}: a page is missing");
            pages = vec![false; memory.pages()];
        }
        // The last faults may be our own, in between.
        let count = ring.count().unwrap();
        let later = ring.drain().count() as u64;
        assert!(samples >= 40 * 512, "{samples}");
        assert!((samples + later).abs_diff(count) <= later + 4 && ring.lost() == 0, "{samples} + {later}, {count}");
    }

    #[test]
    fn what_had_no_room_is_told() {
        let Some(mut ring) = page_faults(4096) else { return };
        let memory = Memory::anonymous(2 << 20, PageSize::Small).unwrap();
        memory.populate();
        let first = ring.drain().filter(|r| matches!(r, Record::Sample(_))).count() as u64;
        // The loss is told with the first record that has room again.
        memory.discard(0, 10);
        (0..10).for_each(|page| memory.write(page));
        let second = ring.drain().filter(|r| matches!(r, Record::Sample(_))).count() as u64;
        let (count, lost) = (ring.count().unwrap(), ring.lost());
        assert!(first < 512 && lost > 0, "{first} samples, {lost} lost");
        assert!(count.abs_diff(first + second + lost) <= 8, "{first} + {second} + {lost}, counted {count}");
    }
}
