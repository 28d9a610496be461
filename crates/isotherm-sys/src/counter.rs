//! Counting events of a process with `perf_event_open(2)`, mainly TLB misses. The caller chooses the events.
//!
//! A [`Counter`] counts one event in all threads of a process. Each thread that exists when it is opened gets a
//! descriptor. Threads that they start later are counted with them (`inherit`). It counts and never samples, so the
//! process pays only for the switching of counters. Misses inside of the kernel count too: huge pages also save those
//! that the kernel incurs on behalf of the process.
//!
//! A CPU counts few events at once. If more are asked for, the kernel multiplexes them and reports for how long each
//! was counted. Counts are scaled by that.

pub use crate::perf::Event;
use crate::perf::attr::{self, Attr, EXCLUDE_HV, INHERIT, Of, Reading};
use crate::proc::{self, Proc};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

/// Why an event cannot be counted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CounterError {
    /// No CPU event source, or it has no such event (`ENOENT`, `ENODEV`, `EOPNOTSUPP`). Usual in virtual machines.
    #[error("count {event} of process {pid}: no hardware PMU here that counts it")]
    NoPmu {
        /// The process.
        pid: u32,
        /// The event.
        event: Event,
    },
    /// The kernel refused (`EACCES`, `EPERM`).
    #[error(
        "count {event} of process {pid}: permission denied: needs CAP_PERFMON, or kernel.perf_event_paranoid at 1 or less \
         for a process that we may ptrace"
    )]
    Denied {
        /// The process.
        pid: u32,
        /// The event.
        event: Event,
    },
    /// The process has ended (`ESRCH`).
    #[error("count events of process {pid}: it has ended")]
    Gone {
        /// The process.
        pid: u32,
    },
    /// Its threads could not be listed.
    #[error("list the threads to count events of")]
    Threads(#[source] proc::Error),
    /// Any other failure. `EMFILE`: the process has more threads than we may have descriptors.
    #[error("count {event} of process {pid}")]
    Io {
        /// The process.
        pid: u32,
        /// The event.
        event: Event,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}

impl CounterError {
    fn from_io(pid: u32, event: Event, source: io::Error) -> CounterError {
        match source.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP) => CounterError::NoPmu { pid, event },
            Some(libc::EACCES | libc::EPERM) => CounterError::Denied { pid, event },
            Some(libc::ESRCH) => CounterError::Gone { pid },
            _ => CounterError::Io { pid, event, source },
        }
    }
}

/// What was counted since the counter was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// How often it happened, scaled up for the time it was not counted; `None` if it was never counted although the
    /// process ran. A scaled count may decrease a little from one read to the next.
    pub events: Option<u64>,
    /// How long the threads ran, as a sum in nanoseconds.
    pub enabled_ns: u64,
    /// For how much of that the event was counted.
    pub running_ns: u64,
}

/// One event, counted in all threads of a process until dropped.
#[derive(Debug)]
pub struct Counter {
    threads: Vec<File>,
}

impl Counter {
    /// Starts to count `event` in all threads of process `pid`. Threads and processes that these start afterwards are
    /// counted with them. A thread is missed if it is started by another thread whose counter is not open yet.
    pub fn open(pid: u32, event: Event) -> Result<Counter, CounterError> {
        let listed = Proc::default().threads(pid).map_err(|e| match e {
            e if e.is_gone() => CounterError::Gone { pid },
            e => CounterError::Threads(e),
        })?;
        let mut threads = Vec::with_capacity(listed.len());
        for tid in listed {
            match open_thread(tid, event) {
                Ok(fd) => threads.push(File::from(fd)),
                // It has ended since it was listed.
                Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {}
                Err(e) => return Err(CounterError::from_io(pid, event, e)),
            }
        }
        if threads.is_empty() { Err(CounterError::Gone { pid }) } else { Ok(Counter { threads }) }
    }

    /// What was counted so far, also of threads that have ended since.
    pub fn read(&self) -> io::Result<Count> {
        let threads = self.threads.iter().map(attr::read).collect::<io::Result<Vec<Reading>>>()?;
        Ok(sum(&threads))
    }
}

/// Scales each thread by its own times. A thread that was never counted adds its time only, so that the reader sees it.
fn sum(threads: &[Reading]) -> Count {
    let mut count = Count::default();
    let mut events: u64 = 0;
    for thread in threads {
        count.enabled_ns = count.enabled_ns.saturating_add(thread.enabled_ns);
        count.running_ns = count.running_ns.saturating_add(thread.running_ns);
        let scaled = match thread.running_ns {
            0 => u128::from(thread.value),
            running => u128::from(thread.value) * u128::from(thread.enabled_ns.max(running)) / u128::from(running),
        };
        events = events.saturating_add(u64::try_from(scaled).unwrap_or(u64::MAX));
    }
    count.events = (count.running_ns > 0 || count.enabled_ns == 0).then_some(events);
    count
}

/// Starts to count in one thread, on any CPU.
fn open_thread(tid: u32, event: Event) -> io::Result<OwnedFd> {
    let attr = Attr {
        kind: event.kind,
        config: event.config,
        read_format: attr::FORMAT_TOTAL_TIMES,
        flags: INHERIT | EXCLUDE_HV,
        ..Attr::default()
    };
    attr::open(attr, Of::Thread(tid), None, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Memory, PageSize};
    use std::io::Write;
    use std::process::Stdio;

    fn skipped(why: &str) {
        let _ = io::stderr().write_all(format!("skipped: needs {why}\n").as_bytes());
    }

    /// Opens, or says aloud why not and returns `None`: a container may forbid it.
    fn page_faults(pid: u32) -> Option<Counter> {
        match Counter::open(pid, Event::PAGE_FAULTS) {
            Err(e @ (CounterError::Denied { .. } | CounterError::Io { .. })) => {
                skipped(&format!("perf_event_open ({e})"));
                None
            }
            opened => Some(opened.unwrap()),
        }
    }

    #[test]
    fn the_page_faults_of_all_threads_are_counted() {
        let Some(counter) = page_faults(std::process::id()) else { return };
        let before = counter.read().unwrap();
        let memory = Memory::anonymous(4 << 20, PageSize::Small).unwrap();
        (0..512).for_each(|page| memory.write(page));
        let own = counter.read().unwrap();
        assert!(own.events.unwrap() >= before.events.unwrap() + 512, "{before:?} {own:?}");
        assert!(own.enabled_ns > before.enabled_ns && own.running_ns == own.enabled_ns, "{own:?}");
        // A thread that starts after the counter was opened.
        std::thread::scope(|scope| scope.spawn(|| (512..1024).for_each(|page| memory.write(page))).join().unwrap());
        let later = counter.read().unwrap();
        assert!(later.events.unwrap() >= own.events.unwrap() + 512, "{own:?} {later:?}");
    }

    #[test]
    fn another_process_is_counted_past_its_end() {
        let mut command = std::process::Command::new("sh");
        let mut child = command.args(["-c", "read x; sleep 0; sleep 0"]).stdin(Stdio::piped()).spawn().unwrap();
        let Some(counter) = page_faults(child.id()) else {
            child.kill().unwrap();
            child.wait().unwrap();
            return;
        };
        child.stdin.take().unwrap().write_all(b"go\n").unwrap();
        child.wait().unwrap();
        assert!(counter.read().unwrap().events.unwrap() > 0);
        assert!(matches!(Counter::open(child.id(), Event::PAGE_FAULTS), Err(CounterError::Gone { .. })));
    }

    #[test]
    fn a_count_is_scaled_by_the_time_it_was_counted() {
        let reading = |value, enabled_ns, running_ns| Reading { value, enabled_ns, running_ns };
        let cases: [(&[Reading], Option<u64>); 8] = [
            (&[], Some(0)),
            (&[reading(7, 100, 100)], Some(7)),
            (&[reading(7, 100, 50), reading(3, 10, 10)], Some(17)),
            (&[reading(0, 0, 0)], Some(0)),
            (&[reading(0, 100, 0)], None),
            (&[reading(0, 100, 0), reading(5, 100, 100)], Some(5)),
            (&[reading(7, 50, 100)], Some(7)),
            (&[reading(u64::MAX, u64::MAX, 1)], Some(u64::MAX)),
        ];
        for (threads, events) in cases {
            assert_eq!(sum(threads).events, events, "{threads:?}");
        }
        let count = sum(&[reading(7, 100, 50), reading(3, 10, 10)]);
        assert_eq!((count.enabled_ns, count.running_ns), (110, 60));
    }

    #[test]
    fn errors_say_what_is_missing() {
        let error = |errno| CounterError::from_io(7, Event::DTLB_LOAD_MISSES, io::Error::from_raw_os_error(errno));
        for errno in [libc::ENOENT, libc::ENODEV, libc::EOPNOTSUPP] {
            assert!(matches!(error(errno), CounterError::NoPmu { pid: 7, .. }));
        }
        for errno in [libc::EACCES, libc::EPERM] {
            let text = error(errno).to_string();
            assert!(text.contains("CAP_PERFMON") && text.contains("perf_event_paranoid"), "{text}");
        }
        assert!(matches!(error(libc::ESRCH), CounterError::Gone { pid: 7 }));
        assert!(matches!(error(libc::EMFILE), CounterError::Io { .. }));
        assert!(matches!(Counter::open(u32::MAX, Event::PAGE_FAULTS), Err(CounterError::Gone { .. })));
    }
}
