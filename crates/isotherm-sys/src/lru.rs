//! Drains the per-CPU batches in which pages wait between their first touch and an LRU list.
//!
//! `MADV_COLD` skips pages that are on no LRU list. So the last pages that a CPU has populated (up to 30, 14 on older kernels)
//! cannot be cleared, and would look like the hottest of all. Once `MADV_COLLAPSE` has found that a mapping may have huge pages, it drains
//! all batches, whatever it does afterwards, and queues work only on CPUs whose batches hold pages. So we ask for the
//! collapse of one page of our own, a range in which no huge page fits.

use isotherm_units::{PAGE_SIZE, PMD_SIZE};
use std::io;

/// Room for one whole huge range and never for two, at any address.
const LEN: u64 = 2 * PMD_SIZE - PAGE_SIZE;

/// Drains the batches of all CPUs. Takes about a tenth of a millisecond. An error where the kernel has no
/// `MADV_COLLAPSE` (before 6.1) or no huge pages.
pub fn drain_batches() -> io::Result<()> {
    let (len, pmd, page) = (to_usize(LEN)?, to_usize(PMD_SIZE)?, to_usize(PAGE_SIZE)?);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice replaces nothing; the result is checked.
    let mapped = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if mapped == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let to_aligned = mapped.addr().next_multiple_of(pmd) - mapped.addr();
    // A mapping that was never touched is refused early, so one end of it is touched. That end lies in no whole huge range,
    // so that no huge page is allocated.
    let touched = if to_aligned == 0 { len - page } else { 0 };
    // SAFETY: within the mapping, which is ours alone and writable.
    unsafe { mapped.cast::<u8>().add(touched).write_volatile(1) };
    // SAFETY: one page within the mapping: too little to collapse, so the advice changes nothing in it.
    let advised = unsafe { libc::madvise(mapped.cast::<u8>().add(to_aligned).cast(), page, libc::MADV_COLLAPSE) };
    let outcome = if advised == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: unmaps exactly what was mapped above.
    unsafe { libc::munmap(mapped, len) };
    outcome
}

fn to_usize(n: u64) -> io::Result<usize> {
    usize::try_from(n).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Memory, PageSize};
    use crate::pagemap::Pagemap;
    use std::fs::File;
    use std::io::Write;
    use std::os::unix::fs::FileExt;
    use std::path::Path;
    use std::sync::Barrier;

    /// The CPUs that this thread may use.
    fn allowed() -> Vec<usize> {
        // SAFETY: plain data for which zeros are valid, filled by the call.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: writes at most the size given.
        unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
        // SAFETY: the index is below the size of the set.
        (0..1024).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) }).collect()
    }

    /// Pins the calling thread.
    fn pin(cpu: usize) {
        // SAFETY: plain data for which zeros are valid.
        let mut one: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: the index is that of a CPU there is.
        unsafe { libc::CPU_SET(cpu, &mut one) };
        // SAFETY: reads the set given.
        let pinned = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const one) };
        assert_eq!(pinned, 0);
    }

    /// Whether the first page of `memory` is on an LRU list: bit 5 of its flags (admin-guide/mm/pagemap).
    fn on_lru(flags: &File, memory: &Memory) -> Option<bool> {
        let pagemap = Pagemap::open(Path::new("/proc"), std::process::id()).ok()?;
        let (_, entry) = *pagemap.read(memory.range()).ok()?.first()?;
        let mut word = [0; 8];
        flags.read_exact_at(&mut word, entry.frame()? * 8).ok()?;
        Some(u64::from_ne_bytes(word) >> 5 & 1 == 1)
    }

    #[test]
    fn draining_puts_pages_that_another_cpu_has_just_populated_on_an_lru_list() {
        let Ok(flags) = File::open("/proc/kpageflags") else {
            let _ = writeln!(std::io::stderr(), "skipped: needs /proc/kpageflags (root)");
            return;
        };
        let &[first, second, ..] = allowed().as_slice() else {
            let _ = writeln!(std::io::stderr(), "skipped: needs two CPUs");
            return;
        };
        let mut seen_waiting = 0;
        for _ in 0..20 {
            let memory = Memory::anonymous(1, PageSize::Small).unwrap();
            let barrier = Barrier::new(2);
            std::thread::scope(|scope| {
                // It stays until all is seen: a thread that ends empties the batch of its CPU.
                scope.spawn(|| {
                    pin(first);
                    memory.write(0);
                    barrier.wait();
                    barrier.wait();
                });
                pin(second);
                barrier.wait();
                let before = on_lru(&flags, &memory);
                drain_batches().unwrap();
                let after = on_lru(&flags, &memory);
                barrier.wait();
                assert_eq!(after, Some(true), "before: {before:?}");
                seen_waiting += u32::from(before == Some(false));
            });
        }
        // Something else may have emptied the batch now and then, but not each time.
        assert!(seen_waiting > 0);
    }
}
