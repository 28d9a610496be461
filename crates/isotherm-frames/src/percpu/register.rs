//! Where the C library has registered each thread, and `membarrier`, which restarts the sequences of another CPU.

use super::error::NoRseq;
use super::layout::Area;
use core::ffi::CStr;

/// Size in bytes of the first version of the area. It contains everything that the sequences use.
const AREA_SIZE: u32 = 20;

// From linux/membarrier.h.
const REGISTER_PRIVATE_EXPEDITED_RSEQ: libc::c_int = 1 << 8;
const PRIVATE_EXPEDITED_RSEQ: libc::c_int = 1 << 7;
const FLAG_CPU: libc::c_int = 1;

/// Where each thread's area is, if the C library registers its threads.
pub(super) fn area() -> Result<Area, NoRseq> {
    let (Some(offset), Some(size)) = (symbol(c"__rseq_offset"), symbol(c"__rseq_size")) else {
        return Err(NoRseq::NoSymbol);
    };
    // SAFETY: glibc declares `const unsigned int __rseq_size`, initialised before any code of the program runs.
    let size = unsafe { *size.cast::<u32>() };
    if size < AREA_SIZE {
        return Err(NoRseq::NotRegistered { size });
    }
    // SAFETY: glibc declares `const ptrdiff_t __rseq_offset`, likewise.
    Ok(Area { offset: unsafe { *offset.cast::<isize>() } })
}

/// Registers this process with the kernel, so that it may call [`restart`].
pub(super) fn allow_restarts() -> Result<(), NoRseq> {
    membarrier(REGISTER_PRIVATE_EXPEDITED_RSEQ, 0, 0).map_err(|errno| NoRseq::NoMembarrier { errno })
}

/// Restarts the sequence that a thread of this process may be in on `cpu`, with a full barrier there and here. On an
/// error, returns the positive `errno`.
pub(super) fn restart(_area: Area, cpu: u32) -> Result<(), i32> {
    // The flag came with the command, in Linux 5.10. It interrupts only that CPU, and only if it runs this process. On
    // a CPU that does not, the interrupted sequence restarts when its thread is scheduled again.
    membarrier(PRIVATE_EXPEDITED_RSEQ, FLAG_CPU, cpu)
}

/// The address of a symbol of the loaded libraries.
fn symbol(name: &CStr) -> Option<*const libc::c_void> {
    // SAFETY: the name ends with a nul; a lookup in what is loaded changes nothing.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!address.is_null()).then_some(address.cast_const())
}

fn membarrier(command: libc::c_int, flags: libc::c_int, cpu: u32) -> Result<(), i32> {
    // SAFETY: takes numbers only, and does not change memory.
    let result = unsafe { libc::syscall(libc::SYS_membarrier, command, flags, cpu) };
    if result == 0 {
        return Ok(());
    }
    Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL))
}
