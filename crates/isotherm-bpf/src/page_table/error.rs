//! Why page tables cannot be read.

use std::io;

/// Why the page tables cannot be read here.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The program did not load.
    #[error("load the page-table reader into the kernel: {reason}; {advice}")]
    Load {
        /// The error of libbpf or the kernel.
        reason: String,
        /// What to do next.
        advice: &'static str,
    },
    /// An operation on the loaded program failed.
    #[error("{attempted}: {source}")]
    Io {
        /// What was attempted, on what.
        attempted: String,
        /// The system's error.
        source: io::Error,
    },
    /// Our own pages were not where the direct map should show them.
    #[error(
        "self-check of the page-table reader: {0}; this kernel lays out its direct map in a way this program does not know, \
         so the page-table source is disabled to avoid wrong results"
    )]
    SelfCheck(String),
    /// The same, where the kernel does not tell us the base of its direct map.
    #[error(
        "self-check of the page-table reader: {0}; the kernel hides the addresses of its symbols, and with them the base of \
         its direct map: run as root or give CAP_SYSLOG (while the sysctl kernel.kptr_restrict is 2 no process sees them)"
    )]
    Hidden(String),
}

impl Error {
    /// The same error, for a kernel that hides the addresses of its symbols from us.
    pub(super) fn with_hidden_symbols(self) -> Error {
        match self {
            Error::SelfCheck(found) => Error::Hidden(found),
            other => other,
        }
    }

    /// Converts libbpf's error from loading the program.
    pub(super) fn load(error: &libbpf_rs::Error) -> Error {
        Error::Load { reason: format!("{error:#}"), advice: load_advice(error) }
    }
}

fn load_advice(error: &libbpf_rs::Error) -> &'static str {
    match error.kind() {
        libbpf_rs::ErrorKind::PermissionDenied => {
            "run as root or give CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE; kernel lockdown 'confidentiality' forbids it altogether"
        }
        libbpf_rs::ErrorKind::NotFound => "the kernel needs CONFIG_DEBUG_INFO_BTF=y (/sys/kernel/btf/vmlinux)",
        _ => {
            "it takes Linux 5.17 or later with CONFIG_BPF_SYSCALL and CONFIG_DEBUG_INFO_BTF; `isotherm doctor` shows what is missing"
        }
    }
}
