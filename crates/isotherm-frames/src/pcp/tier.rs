//! What keeps threads apart on shared lists.

/// What keeps threads apart on shared lists.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Tier {
    /// Restartable sequences if available, else locks.
    #[default]
    Best,
    /// Restartable sequences, or an error.
    Restartable,
    /// One lock for each CPU, tried and not waited for.
    Locked,
}
