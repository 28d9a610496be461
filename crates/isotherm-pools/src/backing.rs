//! What can back the frames of a pool.

use isotherm_units::Bytes;
use std::fmt;
use std::path::{Path, PathBuf};

/// Huge page sizes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HugeSize {
    /// 2 MiB.
    Mib2,
    /// 1 GiB.
    Gib1,
}

impl HugeSize {
    /// The size in bytes.
    pub const fn bytes(self) -> Bytes {
        match self {
            HugeSize::Mib2 => Bytes(2 << 20),
            HugeSize::Gib1 => Bytes(1 << 30),
        }
    }

    pub(crate) const fn flags(self) -> libc::c_uint {
        match self {
            HugeSize::Mib2 => libc::MFD_HUGETLB | libc::MFD_HUGE_2MB,
            HugeSize::Gib1 => libc::MFD_HUGETLB | libc::MFD_HUGE_1GB,
        }
    }

    /// The sysfs directory of the kernel's pool of these pages.
    pub(crate) fn directory(self, sys: &Path) -> PathBuf {
        sys.join(format!("kernel/mm/hugepages/hugepages-{}kB", self.bytes().0 >> 10))
    }
}

impl fmt::Display for HugeSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            HugeSize::Mib2 => "2 MiB",
            HugeSize::Gib1 => "1 GiB",
        })
    }
}

/// What backs the frames of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Backing {
    /// Private memory of this process.
    Anonymous,
    /// A memfd, which others can map.
    Memfd,
    /// A memfd of huge pages.
    Huge(HugeSize),
    /// A DAX device.
    Dax,
    /// Nothing: frame numbers only.
    Numbers,
}

impl Backing {
    /// Whether other processes can see what is written to it. After a fork, the child is one of them.
    pub const fn is_shared(self) -> bool {
        matches!(self, Backing::Memfd | Backing::Huge(_) | Backing::Dax)
    }
}
