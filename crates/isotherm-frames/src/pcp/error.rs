//! Errors when creating per-CPU lists.

use crate::percpu::NoRseq;
use thiserror::Error;

/// Why per-CPU lists could not be created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum PcpError {
    /// The number of CPUs is 0.
    #[error("per-CPU lists for no CPU: give the highest possible CPU number plus one")]
    NoCpus,
    /// The metadata is too small.
    #[error("per-CPU lists with {given} bytes of metadata: they need {needed}; see PcpConfig::metadata_bytes")]
    MetadataTooSmall {
        /// Bytes given.
        given: usize,
        /// Bytes needed.
        needed: usize,
    },
    /// Restartable sequences were requested but are not available.
    #[error("per-CPU lists by restartable sequences: {0}; use Tier::Best or Tier::Locked")]
    NoRseq(NoRseq),
}
