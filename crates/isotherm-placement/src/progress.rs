//! Progress reports of long operations, and a way to stop them.

/// Receives the progress of operations that take seconds: reading the frames of many processes, drawing many
/// placements.
///
/// A trait instead of a progress bar, so that this crate neither draws nor handles signals.
pub trait Progress {
    /// An operation of `steps` steps begins.
    fn begin(&mut self, steps: u64);

    /// One step is done.
    fn step(&mut self);

    /// All steps are done.
    fn end(&mut self);

    /// Whether to stop early. Checked before each step, and within long ones.
    fn is_stopped(&self) -> bool;
}

/// Stopped before everything was computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stopped before all placements were drawn")]
pub struct Stopped;

/// Ignores progress and never stops.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unattended;

impl Progress for Unattended {
    fn begin(&mut self, _: u64) {}

    fn step(&mut self) {}

    fn end(&mut self) {}

    fn is_stopped(&self) -> bool {
        false
    }
}
