//! `struct perf_event_attr` and the system call that takes it, for counting and for sampling.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// `struct perf_event_attr` as of 6.3, `PERF_ATTR_SIZE_VER8`. Older kernels take a longer one than they know if what they do not know is 0.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct Attr {
    pub kind: u32,
    pub size: u32,
    pub config: u64,
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

/// Count threads and processes that are started later as well. A ring cannot be had with it across processors.
pub(crate) const INHERIT: u64 = 1 << 1;
pub(crate) const EXCLUDE_KERNEL: u64 = 1 << 5;
pub(crate) const EXCLUDE_HV: u64 = 1 << 6;
pub(crate) const USE_CLOCK: u64 = 1 << 25;

const FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;

/// Opens an event: of thread `tid`, or of all if `None`; on processor `cpu`, or on any if `None`. Not both may be `None`.
pub(crate) fn open(mut attr: Attr, tid: Option<u32>, cpu: Option<u32>) -> io::Result<OwnedFd> {
    let number = |n: Option<u32>| n.map_or(Ok(-1), libc::pid_t::try_from);
    let tid = number(tid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    let cpu: libc::c_int = number(cpu).map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))?;
    let no_group: libc::c_int = -1;
    attr.size = SIZE;
    // SAFETY: `attr` outlives the call and is as long as it says; the kernel only reads it.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, &raw const attr, tid, cpu, no_group, FLAG_FD_CLOEXEC) };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: `fd` was returned by the kernel just now and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
