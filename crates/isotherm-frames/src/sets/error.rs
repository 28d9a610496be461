//! Why there are no sets.

use crate::percpu::NoRseq;
use thiserror::Error;

/// Why there are no sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum SetsError {
    /// No CPUs.
    #[error("per-CPU sets for no CPU: give the highest CPU number that is possible, plus one")]
    NoCpus,
    /// The metadata does not suffice.
    #[error("per-CPU sets with {given} bytes of metadata: they need {needed}; see SetsConfig::metadata_bytes")]
    MetadataTooSmall {
        /// Bytes given.
        given: usize,
        /// Bytes needed.
        needed: usize,
    },
    /// Restartable sequences were asked for and there are none.
    #[error("per-CPU sets by restartable sequences: {0}; ask for Tier::Best or Tier::Locked")]
    NoRseq(NoRseq),
}
