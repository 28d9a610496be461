//! Who waits for something long: hears how far it is, and may end it.

/// Heard by what takes seconds: reading the frames of many processes, drawing many placements.
///
/// A trait and no bar, so that this crate neither draws nor knows signals.
pub trait Progress {
    /// So many steps begin.
    fn begin(&mut self, steps: u64);

    /// One of them is done.
    fn step(&mut self);

    /// All are done.
    fn end(&mut self);

    /// Whether to end early. Asked before each step, and within long ones.
    fn is_stopped(&self) -> bool;
}

/// It was asked to end before all was computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stopped before all placements were drawn")]
pub struct Stopped;

/// Nobody waits.
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
