//! What a process does with its memory that accessed bits do not show, by its descriptors and by what it maps: a KVM guest, an
//! io_uring, page faults that it handles itself.

use super::error::Result;
use super::root::Proc;
use std::fs;

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

/// Name of the descriptor of an io_uring, and of one that handles page faults in user space.
const IO_URING: &[u8] = b"anon_inode:[io_uring]";
const USERFAULTFD: &[u8] = b"anon_inode:[userfaultfd]";

/// What the descriptors of a process show of its memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// It runs a KVM guest: it has a descriptor of a VM, or of a vCPU.
    pub guest: bool,
    /// It has an io_uring, whose buffers the kernel may use at any time.
    pub io_uring: bool,
    /// It handles page faults itself, of its own memory or of another process.
    pub userfaultfd: bool,
}

impl Held {
    fn note(&mut self, name: &[u8]) {
        self.guest |= GUEST_DESCRIPTORS.iter().any(|guest| name.starts_with(guest));
        self.io_uring |= name == IO_URING;
        self.userfaultfd |= name == USERFAULTFD;
    }
}

impl Proc {
    /// What the open descriptors of a process show, up to [`MAX_DESCRIPTORS`] of them. Costs one to two microseconds each. Needs ptrace read access.
    pub fn held(&self, pid: u32) -> Result<Held> {
        let dir = self.path(pid, "fd");
        let entries = fs::read_dir(&dir).map_err(|e| self.error(&dir, e))?;
        let mut held = Held::default();
        for entry in entries.flatten().take(MAX_DESCRIPTORS) {
            // A descriptor may have been closed since.
            if let Ok(target) = fs::read_link(entry.path()) {
                held.note(target.as_os_str().as_encoded_bytes());
            }
        }
        Ok(held)
    }

    /// Whether a process holds a KVM guest. As [`Proc::held`].
    pub fn holds_guest(&self, pid: u32) -> Result<bool> {
        self.held(pid).map(|held| held.guest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_known_by_their_names() {
        let of = |name: &str| {
            let mut held = Held::default();
            held.note(name.as_bytes());
            held
        };
        assert_eq!(of("anon_inode:kvm-vcpu:3"), Held { guest: true, ..Held::default() });
        assert_eq!(of("anon_inode:[io_uring]"), Held { io_uring: true, ..Held::default() });
        assert_eq!(of("anon_inode:[userfaultfd]"), Held { userfaultfd: true, ..Held::default() });
        assert_eq!([of("/x/anon_inode:[io_uring]"), of("anon_inode:[eventfd]")], [Held::default(); 2]);
    }

    #[test]
    fn a_guest_is_known_by_the_mapping_of_a_processor() {
        assert!(maps_guest(["[heap]", "anon_inode:kvm-vcpu:0"]));
        // The guest itself is a descriptor and is not mapped.
        assert!(!maps_guest(["", "/dev/kvm", "anon_inode:kvm-vm", "/x/anon_inode:kvm-vcpu:0"]));
        assert!(!maps_guest([]));
    }
}
