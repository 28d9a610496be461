//! `struct perf_event_attr`, the system call that takes it, and the operations on its descriptor, for counting and for
//! sampling.

use crate::descriptors;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `struct perf_event_attr` as of 6.3, `PERF_ATTR_SIZE_VER8`. Older kernels accept a longer struct than theirs if the
/// rest is 0.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Attr {
    pub kind: u32,
    pub size: u32,
    pub config: u64,
    /// The period, or the frequency with [`FREQUENCY`].
    pub sample_period: u64,
    pub sample_type: u64,
    pub read_format: u64,
    pub flags: u64,
    pub wakeup: u32,
    pub bp_type: u32,
    pub config1: u64,
    pub config2: u64,
    pub branch_sample_type: u64,
    pub sample_regs_user: u64,
    pub sample_stack_user: u32,
    pub clock: i32,
    pub sample_regs_intr: u64,
    pub aux_watermark: u32,
    pub sample_max_stack: u16,
    pub reserved_2: u16,
    pub aux_sample_size: u32,
    pub reserved_3: u32,
    pub sig_data: u64,
    pub config3: u64,
}

const SIZE: u32 = 136;
const _: () = assert!(size_of::<Attr>() == SIZE as usize);

/// Opened, but does not count before [`enable`].
pub(crate) const DISABLED: u64 = 1 << 0;
/// Count threads and processes that are started later, too. Such an event can have a ring only if it is bound to one
/// CPU.
pub(crate) const INHERIT: u64 = 1 << 1;
pub(crate) const EXCLUDE_KERNEL: u64 = 1 << 5;
pub(crate) const EXCLUDE_HV: u64 = 1 << 6;
/// `sample_period` is a frequency.
pub(crate) const FREQUENCY: u64 = 1 << 10;
/// Report when a thread is started.
pub(crate) const TASK: u64 = 1 << 13;
/// Where `precise_ip` begins: two bits.
pub(crate) const PRECISE_SHIFT: u32 = 15;
pub(crate) const USE_CLOCK: u64 = 1 << 25;
/// With [`INHERIT`]: threads, but not processes. Since 5.13.
pub(crate) const INHERIT_THREAD: u64 = 1 << 35;

/// `PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING`, which [`read`] expects.
pub(crate) const FORMAT_TOTAL_TIMES: u64 = 1 | 2;

const FLAG_PID_CGROUP: libc::c_ulong = 1 << 2;
const FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;

// From `_IO('$', n)` and `_IOW('$', n, __u64)`.
const IOC_ENABLE: libc::c_ulong = 0x2400;
const IOC_DISABLE: libc::c_ulong = 0x2401;
const IOC_PERIOD: libc::c_ulong = 0x4008_2404;
const IOC_SET_OUTPUT: libc::c_ulong = 0x2405;

/// Whose events are counted or sampled.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Of<'a> {
    /// All tasks.
    All,
    /// The calling thread.
    Own,
    Thread(u32),
    /// All tasks in the cgroup whose directory this is.
    Cgroup(BorrowedFd<'a>),
}

/// Opens an event on CPU `cpu`, or on any CPU if `None`, which is for threads only; in the group of `leader`, if any.
pub(crate) fn open(
    mut attr: Attr,
    of: Of<'_>,
    cpu: Option<u32>,
    leader: Option<BorrowedFd<'_>>,
) -> io::Result<OwnedFd> {
    let (pid, flags) = match of {
        Of::All => (-1, 0),
        Of::Own => (0, 0),
        Of::Thread(tid) => (libc::pid_t::try_from(tid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?, 0),
        Of::Cgroup(dir) => (dir.as_raw_fd(), FLAG_PID_CGROUP),
    };
    let cpu: libc::c_int =
        cpu.map_or(Ok(-1), libc::c_int::try_from).map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))?;
    let group: libc::c_int = leader.map_or(-1, |fd| fd.as_raw_fd());
    attr.size = SIZE;
    let flags = flags | FLAG_FD_CLOEXEC;
    // SAFETY: `attr` outlives the call and has the size that it states; the kernel only reads it.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, &raw const attr, pid, cpu, group, flags) };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the kernel has just returned `fd`, and it has no other owner.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // Events take a descriptor per thread and CPU. They must not use up those needed to monitor and to write files.
    if descriptors::leaves_reserve(&fd) { Ok(fd) } else { Err(io::Error::from_raw_os_error(libc::EMFILE)) }
}

/// Starts what was opened with [`DISABLED`].
pub(crate) fn enable(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: this request takes a number, and `fd` is open.
    done(unsafe { libc::ioctl(fd.as_raw_fd(), IOC_ENABLE, 0) })
}

/// Stops an event, and those that threads have inherited of it. Nothing is counted or sampled from here on.
pub(crate) fn disable(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: this request takes a number, and `fd` is open.
    done(unsafe { libc::ioctl(fd.as_raw_fd(), IOC_DISABLE, 0) })
}

/// Redirects the samples of `fd` to the ring of `ring`, which is on the same CPU.
pub(crate) fn set_output(fd: BorrowedFd<'_>, ring: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: this request takes a descriptor as a number, and both are open.
    done(unsafe { libc::ioctl(fd.as_raw_fd(), IOC_SET_OUTPUT, ring.as_raw_fd()) })
}

/// Changes the period, or the frequency if it was opened with [`FREQUENCY`]. Threads that have inherited the event keep
/// theirs.
pub(crate) fn set_period(fd: BorrowedFd<'_>, period: u64) -> io::Result<()> {
    // SAFETY: this request reads a word of eight bytes, which outlives the call, and `fd` is open.
    done(unsafe { libc::ioctl(fd.as_raw_fd(), IOC_PERIOD, &raw const period) })
}

fn done(answer: libc::c_int) -> io::Result<()> {
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The values of one descriptor, in the layout of [`FORMAT_TOTAL_TIMES`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    pub value: u64,
    pub enabled_ns: u64,
    pub running_ns: u64,
}

/// Reads an event that was opened with [`FORMAT_TOTAL_TIMES`].
pub(crate) fn read(mut file: &File) -> io::Result<Reading> {
    let mut words = [[0; 8]; 3];
    file.read_exact(words.as_flattened_mut())?;
    let [value, enabled_ns, running_ns] = words.map(u64::from_ne_bytes);
    Ok(Reading { value, enabled_ns, running_ns })
}
