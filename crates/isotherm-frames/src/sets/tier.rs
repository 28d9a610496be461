//! How shared sets keep threads apart.

/// How the shared sets keep threads apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Tier {
    /// Restartable sequences where there are any, else locks.
    #[default]
    Best,
    /// Restartable sequences, or an error.
    Restartable,
    /// A lock for each CPU that is tried.
    Locked,
}
