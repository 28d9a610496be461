//! A source with its clock.

use isotherm_heat::Clock;
use isotherm_heat::source::AccessSource;

/// A source with its clock.
pub struct Played {
    pub source: Box<dyn AccessSource>,
    pub clock: Box<dyn Clock>,
    /// The processes to watch.
    pub pids: Vec<u32>,
    /// Wall time at which it begins.
    pub begin_unix_ns: u64,
}
