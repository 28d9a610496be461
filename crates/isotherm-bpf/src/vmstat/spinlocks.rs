//! Which waiters for a spinlock this kernel tells of.
//!
//! The tracepoint stands where a waiter joins the queue of a queued spinlock. Who comes first while the lock is held does not
//! join: it sets one bit of the lock and spins on it. In a guest the kernel may do without the queue altogether (a lock that is
//! tested and set), which tells of nobody; or, if the hypervisor can wake a processor that waits, put every waiter into it.

use serde::Serialize;

/// How a waiter for a spinlock waits, as far as can be told from the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spinlocks {
    /// Queued: the tracepoint tells of the second waiter of a lock and those after, never of the first.
    Queued,
    /// Queued, by a guest whose hypervisor helps: the tracepoint tells of every waiter.
    Paravirtual,
    /// Tested and set, by a guest whose hypervisor does not help: the tracepoint tells of no waiter.
    TestAndSet,
    /// Not known for this processor or hypervisor.
    Unknown,
}

/// What a guest is told by its hypervisor, as far as it decides how spinlocks wait.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    /// The signature of the hypervisor; none on bare metal.
    hypervisor: Option<[u8; 12]>,
    /// KVM can wake a processor that waits for a lock.
    unhalt: bool,
    /// KVM says that each virtual processor has a real one to itself.
    dedicated: bool,
    /// One processor, or `nopvspin` on the kernel's command line.
    declined: bool,
}

impl Spinlocks {
    /// Those of the running kernel. `cpus`: possible processors; `command_line`: the kernel's.
    pub fn of_this_kernel(cpus: usize, command_line: &str) -> Spinlocks {
        let declined = cpus < 2 || command_line.split_ascii_whitespace().any(|word| word == "nopvspin");
        match told(declined) {
            Some(told) => judge(told),
            None if cfg!(target_arch = "aarch64") => Spinlocks::Queued,
            None => Spinlocks::Unknown,
        }
    }
}

/// As Linux decides on x86 with CONFIG_PARAVIRT_SPINLOCKS.
fn judge(told: Told) -> Spinlocks {
    match told.hypervisor.as_ref() {
        None => Spinlocks::Queued,
        Some(b"KVMKVMKVM\0\0\0") if !told.unhalt => Spinlocks::TestAndSet,
        Some(b"KVMKVMKVM\0\0\0") if told.dedicated || told.declined => Spinlocks::Queued,
        Some(b"KVMKVMKVM\0\0\0") => Spinlocks::Paravirtual,
        Some(b"TCGTCGTCGTCG" | b"VMwareVMware") => Spinlocks::TestAndSet,
        // Xen and Hyper-V help or do not, by settings that a guest's programs do not see.
        Some(_) => Spinlocks::Unknown,
    }
}

#[cfg(target_arch = "x86_64")]
fn told(declined: bool) -> Option<Told> {
    use std::arch::x86_64::__cpuid;
    const HYPERVISOR: u32 = 1 << 31;
    const PV_UNHALT: u32 = 1 << 7;
    const REALTIME: u32 = 1 << 0;
    if __cpuid(1).ecx & HYPERVISOR == 0 {
        return Some(Told { declined, ..Told::default() });
    }
    let name = __cpuid(0x4000_0000);
    let mut signature = [0; 12];
    for (bytes, word) in signature.chunks_exact_mut(4).zip([name.ebx, name.ecx, name.edx]) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    let features = __cpuid(0x4000_0001);
    Some(Told {
        hypervisor: Some(signature),
        unhalt: features.eax & PV_UNHALT != 0,
        dedicated: features.edx & REALTIME != 0,
        declined,
    })
}

#[cfg(not(target_arch = "x86_64"))]
fn told(_: bool) -> Option<Told> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_hypervisor_tells_decides() {
        let kvm = Told { hypervisor: Some(*b"KVMKVMKVM\0\0\0"), unhalt: true, ..Told::default() };
        for (told, expected) in [
            (Told::default(), Spinlocks::Queued),
            (kvm, Spinlocks::Paravirtual),
            (Told { unhalt: false, ..kvm }, Spinlocks::TestAndSet),
            (Told { dedicated: true, ..kvm }, Spinlocks::Queued),
            (Told { declined: true, ..kvm }, Spinlocks::Queued),
            (Told { declined: true, unhalt: false, ..kvm }, Spinlocks::TestAndSet),
            (Told { hypervisor: Some(*b"TCGTCGTCGTCG"), ..kvm }, Spinlocks::TestAndSet),
            (Told { hypervisor: Some(*b"Microsoft Hv"), ..kvm }, Spinlocks::Unknown),
        ] {
            assert_eq!(judge(told), expected, "{told:?}");
        }
    }
}
