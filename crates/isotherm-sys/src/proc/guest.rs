//! Whether a process runs a KVM guest, by its descriptors or by what it maps.

use super::error::Result;
use super::root::Proc;
use std::fs;
use std::path::PathBuf;

/// Names of the descriptors of a guest and of its vCPUs.
const GUEST_DESCRIPTORS: [&[u8]; 2] = [b"anon_inode:kvm-vm", b"anon_inode:kvm-vcpu"];
/// Name of the mappings of vCPUs in `maps`: every VMM maps the area that it shares with the kernel for each vCPU.
const GUEST_MAPPING: &str = "anon_inode:kvm-vcpu";
/// Limit on the descriptors that are read.
const MAX_DESCRIPTORS: usize = 16_384;

/// Whether a process with mappings of these names runs a guest: one of them belongs to a vCPU.
pub fn maps_guest<'a>(names: impl IntoIterator<Item = &'a str>) -> bool {
    names.into_iter().any(|name| name.starts_with(GUEST_MAPPING))
}

impl Proc {
    /// Whether a process holds a KVM guest: a descriptor of a VM, or of a vCPU. Reads its open descriptors, up to
    /// [`MAX_DESCRIPTORS`]. Costs one to two microseconds each, once in the life of a process. Needs ptrace read
    /// access.
    pub fn holds_guest(&self, pid: u32) -> Result<bool> {
        let dir = self.path(pid, "fd");
        let entries = fs::read_dir(&dir).map_err(|e| self.error(&dir, e))?;
        let is_guest =
            |target: PathBuf| GUEST_DESCRIPTORS.iter().any(|d| target.as_os_str().as_encoded_bytes().starts_with(d));
        Ok(entries.flatten().take(MAX_DESCRIPTORS).any(|entry| fs::read_link(entry.path()).is_ok_and(is_guest)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_is_known_by_the_mapping_of_a_processor() {
        assert!(maps_guest(["[heap]", "anon_inode:kvm-vcpu:0"]));
        // The guest itself is a descriptor and is not mapped.
        assert!(!maps_guest(["", "/dev/kvm", "anon_inode:kvm-vm", "/x/anon_inode:kvm-vcpu:0"]));
        assert!(!maps_guest([]));
    }
}
