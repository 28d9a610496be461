//! Our capabilities, and whether they count.

use crate::files::Tree;
use std::path::Path;

/// A capability, by its bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Cap {
    /// Open files of other users.
    DacOverride = 1,
    /// Read files of other users.
    DacReadSearch = 2,
    /// Read other users' processes.
    SysPtrace = 19,
    /// Everything that has no capability of its own.
    SysAdmin = 21,
    /// Give advice about the memory of other processes.
    SysNice = 23,
    /// Exceed limits on resources.
    SysResource = 24,
    /// See kernel addresses.
    Syslog = 34,
    /// Measure performance, and trace.
    Perfmon = 38,
    /// Load BPF programs.
    Bpf = 39,
}

impl Cap {
    /// The name as in capabilities(7).
    pub const fn name(self) -> &'static str {
        match self {
            Cap::DacOverride => "CAP_DAC_OVERRIDE",
            Cap::DacReadSearch => "CAP_DAC_READ_SEARCH",
            Cap::SysPtrace => "CAP_SYS_PTRACE",
            Cap::SysAdmin => "CAP_SYS_ADMIN",
            Cap::SysNice => "CAP_SYS_NICE",
            Cap::SysResource => "CAP_SYS_RESOURCE",
            Cap::Syslog => "CAP_SYSLOG",
            Cap::Perfmon => "CAP_PERFMON",
            Cap::Bpf => "CAP_BPF",
        }
    }
}

/// A set of capabilities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caps(pub u64);

impl Caps {
    /// Our effective capabilities; `None` if the kernel does not report them.
    pub fn effective(proc: &Tree<'_>) -> Option<Caps> {
        let status = proc.text("self/status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
        u64::from_str_radix(line.trim(), 16).ok().map(Caps)
    }

    /// All capabilities.
    pub const ALL: Caps = Caps(u64::MAX);

    /// Whether it holds `cap` itself.
    pub const fn has(self, cap: Cap) -> bool {
        (self.0 >> cap as u8) & 1 == 1
    }

    /// Whether it permits what `cap` is for: `CAP_SYS_ADMIN` covers the two that were split from it, and who may write any file may read it.
    pub const fn allows(self, cap: Cap) -> bool {
        self.has(cap)
            || (matches!(cap, Cap::Bpf | Cap::Perfmon) && self.has(Cap::SysAdmin))
            || (matches!(cap, Cap::DacReadSearch) && self.has(Cap::DacOverride))
    }

    /// The same set without one.
    #[must_use]
    pub const fn without(self, cap: Cap) -> Caps {
        Caps(self.0 & !(1 << cap as u8))
    }
}

/// Whether we are in the first user namespace. In any other, capabilities count for little: the kernel checks for them
/// in the first.
pub fn initial_user_namespace(proc: &Tree<'_>) -> Option<bool> {
    let map = proc.text("self/uid_map")?;
    let words: Vec<&str> = map.split_ascii_whitespace().collect();
    Some(words == ["0", "0", "4294967295"])
}

/// Whether we may open any perf event, regardless of the settings; `None` if our capabilities are unknown.
pub fn may_sample(proc: &Path) -> Option<bool> {
    let proc = Tree::at(proc);
    let initial = initial_user_namespace(&proc)?;
    Some(initial && Caps::effective(&proc)?.allows(Cap::Perfmon))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_take_the_capability_in_the_first_user_namespace() {
        let dir = tempfile::tempdir().unwrap();
        let sampling = |uid_map: Option<&str>, effective: &str| {
            let own = dir.path().join("self");
            let _ = std::fs::remove_dir_all(&own);
            std::fs::create_dir(&own).unwrap();
            std::fs::write(own.join("status"), format!("Name:\tx\nCapEff:\t{effective}\n")).unwrap();
            if let Some(map) = uid_map {
                std::fs::write(own.join("uid_map"), map).unwrap();
            }
            may_sample(dir.path())
        };
        let first = Some("         0          0 4294967295\n");
        assert_eq!(sampling(first, "0000004000000000"), Some(true), "CAP_PERFMON");
        assert_eq!(sampling(first, "0000000000200000"), Some(true), "CAP_SYS_ADMIN stands in for it");
        assert_eq!(sampling(first, "0000008000000000"), Some(false), "CAP_BPF");
        assert_eq!(sampling(Some("0 1000 1\n"), "000001ffffffffff"), Some(false), "another namespace");
        assert_eq!((sampling(None, "000001ffffffffff"), sampling(first, "?")), (None, None), "unknown");
    }
}
