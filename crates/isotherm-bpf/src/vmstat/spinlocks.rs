//! Which waiters for a spinlock this kernel reports.
//!
//! The tracepoint is where a waiter joins the queue of a queued spinlock. The first waiter does not join: it sets one
//! bit of the lock and spins on it. In a guest the kernel may use a test-and-set lock without a queue, which reports no
//! waiter. Or, if the hypervisor can wake a waiting vCPU, the kernel may put every waiter into the queue.

use isotherm_vmstat::SeenWaiters;

/// What the CPU reports about a guest's hypervisor, as far as it determines how spinlocks wait.
#[derive(Clone, Copy, Debug, Default)]
struct Processor {
    /// The signature of the hypervisor; none on bare metal.
    hypervisor: Option<[u8; 12]>,
    /// KVM can wake a vCPU that waits for a lock.
    unhalt: bool,
    /// KVM reports that each vCPU has a physical CPU to itself.
    dedicated: bool,
    /// One CPU, or `nopvspin` on the kernel's command line.
    declined: bool,
}

/// Which waiters the running kernel reports. `cpus`: number of possible CPUs; `command_line`: the kernel's.
pub(super) fn seen_waiters(cpus: usize, command_line: &str) -> SeenWaiters {
    let declined = cpus < 2 || command_line.split_ascii_whitespace().any(|word| word == "nopvspin");
    match processor(declined) {
        Some(processor) => judge(processor),
        None if cfg!(target_arch = "aarch64") => SeenWaiters::NotTheFirst,
        None => SeenWaiters::Unknown,
    }
}

/// The decision of Linux on x86 with CONFIG_PARAVIRT_SPINLOCKS.
fn judge(processor: Processor) -> SeenWaiters {
    match processor.hypervisor.as_ref() {
        None => SeenWaiters::NotTheFirst,
        Some(b"KVMKVMKVM\0\0\0") if !processor.unhalt => SeenWaiters::Nobody,
        Some(b"KVMKVMKVM\0\0\0") if processor.dedicated || processor.declined => SeenWaiters::NotTheFirst,
        Some(b"KVMKVMKVM\0\0\0") => SeenWaiters::Every,
        Some(b"TCGTCGTCGTCG" | b"VMwareVMware") => SeenWaiters::Nobody,
        // Xen and Hyper-V may help or not, by settings that the guest's programs cannot read.
        Some(_) => SeenWaiters::Unknown,
    }
}

#[cfg(target_arch = "x86_64")]
fn processor(declined: bool) -> Option<Processor> {
    use std::arch::x86_64::__cpuid;
    const HYPERVISOR: u32 = 1 << 31;
    const PV_UNHALT: u32 = 1 << 7;
    const REALTIME: u32 = 1 << 0;
    if __cpuid(1).ecx & HYPERVISOR == 0 {
        return Some(Processor { declined, ..Processor::default() });
    }
    let name = __cpuid(0x4000_0000);
    let mut signature = [0; 12];
    for (bytes, word) in signature.chunks_exact_mut(4).zip([name.ebx, name.ecx, name.edx]) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    let features = __cpuid(0x4000_0001);
    Some(Processor {
        hypervisor: Some(signature),
        unhalt: features.eax & PV_UNHALT != 0,
        dedicated: features.edx & REALTIME != 0,
        declined,
    })
}

#[cfg(not(target_arch = "x86_64"))]
fn processor(_: bool) -> Option<Processor> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_hypervisor_tells_decides() {
        let kvm = Processor { hypervisor: Some(*b"KVMKVMKVM\0\0\0"), unhalt: true, ..Processor::default() };
        for (processor, expected) in [
            (Processor::default(), SeenWaiters::NotTheFirst),
            (kvm, SeenWaiters::Every),
            (Processor { unhalt: false, ..kvm }, SeenWaiters::Nobody),
            (Processor { dedicated: true, ..kvm }, SeenWaiters::NotTheFirst),
            (Processor { declined: true, ..kvm }, SeenWaiters::NotTheFirst),
            (Processor { declined: true, unhalt: false, ..kvm }, SeenWaiters::Nobody),
            (Processor { hypervisor: Some(*b"TCGTCGTCGTCG"), ..kvm }, SeenWaiters::Nobody),
            (Processor { hypervisor: Some(*b"Microsoft Hv"), ..kvm }, SeenWaiters::Unknown),
        ] {
            assert_eq!(judge(processor), expected, "{processor:?}");
        }
    }
}
