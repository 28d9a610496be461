//! Why a ring could not be opened, and what to do about it.
//!
//! The kernel has one number for many reasons: `EPERM` may be a setting, a missing capability, a seccomp filter or the
//! limit on locked memory. This module finds out which, and only after a failure. It reads the setting and our
//! capabilities, and tries an event on our own thread that nothing but a filter can refuse.

use super::attr::{self, Of};
use super::event::Event;
use super::sampling::{self, Rate};
use crate::caps;
use crate::descriptors;
use crate::proc;
use crate::rlimit;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why a ring could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// The kernel refused (`EACCES`, `EPERM`).
    #[error("sample {event}: permission denied: {why}")]
    Denied {
        /// The event.
        event: Event,
        /// The obstacle.
        why: Obstacle,
    },
    /// No such thread or process (`ESRCH`).
    #[error("sample {event}: the thread or process has ended")]
    Gone {
        /// The event.
        event: Event,
    },
    /// The event source refuses (`ENOENT`, `ENODEV`, `ENODATA`, `EOPNOTSUPP`, `EINVAL`).
    #[error(
        "sample {event}: the event source refuses: it is not on this machine, or not with these fields or at any precision \
         asked for"
    )]
    NoPmu {
        /// The event.
        event: Event,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// More samples a second than the kernel allows.
    #[error(
        "sample {event}: {asked} samples a second are more than kernel.perf_event_max_sample_rate allows, which is {most} at the \
         moment (the kernel lowers it when samples take too long): ask for fewer"
    )]
    TooFrequent {
        /// The event.
        event: Event,
        /// What was asked for.
        asked: u64,
        /// The setting.
        most: u64,
    },
    /// A counter that it needs belongs to somebody else (`EBUSY`).
    #[error("sample {event}: its counter is taken: a watchdog or another profiler has it pinned; end that one first")]
    Busy {
        /// The event.
        event: Event,
    },
    /// A ring of that size is more than may be locked in memory, even when halved down to eight pages.
    #[error(
        "sample {event}: {rings} ring(s), asked for with {bytes} bytes each, are more than may be locked in memory: {}; run as root \
         or with CAP_IPC_LOCK, raise `ulimit -l`, or ask for less", locked(*mlock_kb, *memlock)
    )]
    TooLarge {
        /// The event.
        event: Event,
        /// What was asked for, rounded up.
        bytes: usize,
        /// How many of them.
        rings: usize,
        /// `kernel.perf_event_mlock_kb`, if it can be read.
        mlock_kb: Option<u64>,
        /// `RLIMIT_MEMLOCK` in bytes; `None` is unlimited.
        memlock: Option<u64>,
    },
    /// Each thread needs a descriptor on each CPU, and fewer may be open (`EMFILE`, `ENFILE`).
    #[error(
        "sample {event}: {threads} thread(s) on {cpus} processor(s) need {needed} descriptors, and {limit} may be open: raise \
         `ulimit -n`, or run with CAP_PERFMON and sample the whole host, which takes one a processor"
    )]
    Descriptors {
        /// The event.
        event: Event,
        /// Threads, or 1 if no threads are sampled.
        threads: usize,
        /// CPUs.
        cpus: usize,
        /// All that are needed, in addition to those that are open already.
        needed: usize,
        /// `RLIMIT_NOFILE`, raised as far as permitted.
        limit: u64,
    },
    /// The cgroup cannot be sampled.
    #[error(
        "sample cgroup {}: it has to be a directory of the cgroup hierarchy with the perf_event controller, which is cgroup v2 \
         where v1 does not have it", path.display()
    )]
    Cgroup {
        /// Its directory.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The threads of the process could not be listed.
    #[error("list the threads to sample")]
    Threads(#[source] proc::Error),
    /// The list of online CPUs could not be read.
    #[error("read which processors are online from {}: expected a list such as 0-3,8", path.display())]
    Online {
        /// The file.
        path: PathBuf,
        /// The system's error; `InvalidData` for text that is no such list.
        #[source]
        source: io::Error,
    },
    /// The request contradicts itself.
    #[error("sample {event}: {what}")]
    Unfit {
        /// The event.
        event: Event,
        /// The contradiction.
        what: &'static str,
    },
    /// Any other failure.
    #[error("sample {event}")]
    Io {
        /// The event.
        event: Event,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}

/// What prevents an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// A setting of the kernel, and a capability that we lack: `kernel.perf_event_paranoid`, if it can be read.
    Paranoid(Option<i32>),
    /// Even an event on our own thread is refused, although it should be allowed.
    Filter,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::Filter => f.write_str(
                "a seccomp filter or a security module refuses perf_event_open, whatever the privileges: in a container, allow it in \
                 the seccomp profile, or run outside",
            ),
            Obstacle::Paranoid(level) => {
                match level {
                    Some(level) => write!(f, "kernel.perf_event_paranoid is {level}")?,
                    None => f.write_str("kernel.perf_event_paranoid cannot be read")?,
                }
                f.write_str(
                    " (-1 or 0 allows the whole host, up to 2 own processes in user space; 3 and 4, from patches of distributions, \
                     refuse everything without the capability): run as root or with CAP_PERFMON, outside of user namespaces",
                )
            }
        }
    }
}

fn locked(mlock_kb: Option<u64>, memlock: Option<u64>) -> String {
    let setting = mlock_kb.map_or("cannot be read".to_owned(), |kb| format!("is {kb} a processor"));
    let limit = memlock.map_or("unlimited".to_owned(), |bytes| format!("{} KiB", bytes >> 10));
    format!(
        "kernel.perf_event_mlock_kb {setting}, the limit of this process on top of that (RLIMIT_MEMLOCK) is {limit}"
    )
}

impl RingError {
    /// Converts the kernel's error for an event that was to be opened.
    pub(super) fn from_io(event: Event, rate: Rate, source: io::Error) -> RingError {
        match source.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => RingError::Denied { event, why: obstacle(Path::new("/proc")) },
            // Without perf events this setting does not exist either.
            Some(libc::ENOSYS) if paranoid(Path::new("/proc")).is_some() => {
                RingError::Denied { event, why: Obstacle::Filter }
            }
            Some(libc::ESRCH) => RingError::Gone { event },
            Some(libc::EBUSY) => RingError::Busy { event },
            Some(libc::EINVAL) => too_frequent(event, rate).unwrap_or(RingError::NoPmu { event, source }),
            Some(libc::ENOENT | libc::ENODEV | libc::ENODATA | libc::EOPNOTSUPP) => RingError::NoPmu { event, source },
            _ => RingError::Io { event, source },
        }
    }

    /// The same for mapping the memory of `rings` rings.
    pub(super) fn from_map(event: Event, bytes: usize, rings: usize, source: io::Error) -> RingError {
        match source.raw_os_error() {
            Some(libc::EPERM | libc::ENOMEM) => RingError::TooLarge {
                event,
                bytes,
                rings,
                mlock_kb: setting(Path::new("/proc"), "perf_event_mlock_kb"),
                memlock: rlimit::soft(libc::RLIMIT_MEMLOCK),
            },
            _ => RingError::Io { event, source },
        }
    }
}

fn setting<T: std::str::FromStr>(proc: &Path, name: &str) -> Option<T> {
    std::fs::read_to_string(proc.join("sys/kernel").join(name)).ok()?.trim().parse().ok()
}

fn paranoid(proc: &Path) -> Option<i32> {
    setting(proc, "perf_event_paranoid")
}

/// The error for a frequency above the kernel's maximum.
pub(super) fn too_frequent(event: Event, rate: Rate) -> Option<RingError> {
    let Rate::Frequency(asked) = rate else { return None };
    let most = setting(Path::new("/proc"), "perf_event_max_sample_rate")?;
    (asked > most).then_some(RingError::TooFrequent { event, asked, most })
}

/// Up to this level all users may open events on their own threads in user space.
const OWN_ALLOWED: i32 = 2;

fn obstacle(proc: &Path) -> Obstacle {
    let level = paranoid(proc);
    let own = attr::open(sampling::dummy(), Of::Own, None, None);
    let refused = |e: &io::Error| matches!(e.raw_os_error(), Some(libc::EACCES | libc::EPERM | libc::ENOSYS));
    let allowed = level.is_some_and(|level| level <= OWN_ALLOWED) || caps::may_sample(proc) == Some(true);
    if allowed && own.is_err_and(|e| refused(&e)) { Obstacle::Filter } else { Obstacle::Paranoid(level) }
}

/// Opens a descriptor. If the limit prevents that, raises it as far as permitted and tries once more.
pub(super) fn with_room<T>(open: impl Fn() -> io::Result<T>) -> io::Result<T> {
    match open() {
        Err(e) if e.raw_os_error() == Some(libc::EMFILE) && descriptors::raise_limit() => open(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn error(errno: i32) -> RingError {
        RingError::from_io(Event::MINOR_FAULTS, Rate::Period(1), io::Error::from_raw_os_error(errno))
    }

    #[test]
    fn errors_say_what_to_do() {
        for errno in [libc::ENOENT, libc::ENODEV, libc::ENODATA, libc::EOPNOTSUPP, libc::EINVAL] {
            let text = error(errno).to_string();
            assert!(text.contains("minor page faults: the event source refuses"), "{text}");
        }
        assert!(error(libc::EBUSY).to_string().contains("pinned"));
        assert!(matches!(error(libc::ESRCH), RingError::Gone { .. }));
        assert!(matches!(error(libc::EIO), RingError::Io { .. }));
        let text = Obstacle::Paranoid(Some(4)).to_string();
        for word in ["perf_event_paranoid is 4", "3 and 4", "CAP_PERFMON"] {
            assert!(text.contains(word), "{word} in {text}");
        }
    }

    #[test]
    fn memory_that_may_not_be_locked_is_told_with_its_limits() {
        let large = |mlock_kb, memlock| RingError::TooLarge {
            event: Event::MAJOR_FAULTS,
            bytes: 1 << 26,
            rings: 2,
            mlock_kb,
            memlock,
        };
        let text = large(Some(516), Some(8 << 20)).to_string();
        for word in ["67108864", "perf_event_mlock_kb is 516", "8192 KiB", "CAP_IPC_LOCK", "ulimit -l", "2 ring(s)"] {
            assert!(text.contains(word), "{word} in {text}");
        }
        let text = large(None, None).to_string();
        assert!(text.contains("cannot be read") && text.contains("unlimited"), "{text}");
        let other = RingError::from_map(Event::MAJOR_FAULTS, 1, 1, io::Error::from_raw_os_error(libc::EINVAL));
        assert!(matches!(other, RingError::Io { .. }), "{other}");
    }

    #[test]
    fn a_frequency_beyond_the_limit_is_told_as_that() {
        let error = too_frequent(Event::CPU_CLOCK, Rate::Frequency(u64::MAX));
        if let Some(RingError::TooFrequent { most, .. }) = error {
            assert!(most > 0);
        } else {
            let _ = writeln!(std::io::stderr(), "skipped: needs kernel.perf_event_max_sample_rate");
        }
        assert!(too_frequent(Event::CPU_CLOCK, Rate::Period(u64::MAX)).is_none());
        assert!(too_frequent(Event::CPU_CLOCK, Rate::Frequency(1)).is_none());
    }
}
