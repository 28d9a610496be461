//! Where the C library has registered each thread, and the kernel's help to restart the sequences of another CPU.

use super::NoRseq;
use super::arch::cpu_id;
use core::ffi::CStr;

/// Bytes of the first version of the area: what the sequences use is all in it.
const AREA_SIZE: u32 = 20;

// From linux/membarrier.h.
const REGISTER_PRIVATE_EXPEDITED_RSEQ: libc::c_int = 1 << 8;
const PRIVATE_EXPEDITED_RSEQ: libc::c_int = 1 << 7;
const FLAG_CPU: libc::c_int = 1;

/// That the threads of this process are registered, and where.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(super) struct Registration {
    /// Bytes from the thread pointer to the area.
    pub(super) offset: isize,
}

impl Registration {
    pub(super) fn find() -> Result<Registration, NoRseq> {
        let (Some(offset), Some(size)) = (symbol(c"__rseq_offset"), symbol(c"__rseq_size")) else {
            return Err(NoRseq::NoSymbol);
        };
        // SAFETY: glibc declares `const unsigned int __rseq_size`, initialised before any code of the program runs.
        let size = unsafe { *size.cast::<u32>() };
        if size < AREA_SIZE {
            return Err(NoRseq::NotRegistered { size });
        }
        // SAFETY: glibc declares `const ptrdiff_t __rseq_offset`, likewise.
        let registration = Registration { offset: unsafe { *offset.cast::<isize>() } };
        let cpu_id = registration.cpu_id();
        if cpu_id < 0 {
            return Err(NoRseq::ThreadNotRegistered { cpu_id });
        }
        membarrier(REGISTER_PRIVATE_EXPEDITED_RSEQ, 0, 0).map_err(|errno| NoRseq::NoMembarrier { errno })?;
        Ok(registration)
    }

    /// This thread's CPU, negative where the thread is not registered.
    #[inline]
    pub(super) fn cpu_id(self) -> i32 {
        // SAFETY: every thread has an area at this offset, registered or not, since `__rseq_size` says that there are
        // areas.
        unsafe { cpu_id(self.offset) }
    }

    /// Restarts the sequence that a thread of this process may be in on `cpu`; a full barrier there and here. A
    /// positive `errno` when the kernel refuses.
    pub(super) fn restart(self, cpu: u32) -> Result<(), i32> {
        // The flag came with the command, in Linux 5.10. It interrupts that CPU only, and only if it runs this process:
        // on a CPU that does not, whatever sequence was left there is restarted when its thread comes back.
        membarrier(PRIVATE_EXPEDITED_RSEQ, FLAG_CPU, cpu)
    }
}

/// The address of what the program's libraries call `name`.
fn symbol(name: &CStr) -> Option<*const libc::c_void> {
    // SAFETY: the name ends with a nul; looking it up in what is loaded changes nothing.
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
