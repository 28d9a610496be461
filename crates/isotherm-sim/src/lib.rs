//! A modelled host: terabytes of memory, processes and cgroups with given access rates, at no memory cost.
//!
//! `isotherm-monitor` runs on it as on a real machine: [`ModelSource`] answers for accessed bits, [`ModelClock`] charges what
//! each answer would cost. Other algorithms can be run on the same host beside it ([`PageProbe`] for those that ask page by
//! page, [`Physical`] for those that look at frames), and all of them be scored against the same truth ([`Host::score`]).
//!
//! Whether a page was accessed in a stretch of time is computed, never stored: from how its area is described, and a hash of
//! the page where something is random. So memory follows the number of areas, answers never contradict each other, and every
//! run is the same. `isotherm-sources` has a `Replay` that does something alike for recordings; it keeps simple spans, knows no
//! costs, and is made for histories that change, not for size.
//!
//! [`cpus`] is another simulation, of CPUs that drain their per-CPU lists of pages under a few zone locks. It shares nothing with the host
//! but the purpose: to try on a machine that is not there what would run on one that is.

#![forbid(unsafe_code)]

mod clock;
mod costs;
pub mod cpus;
mod describe;
mod error;
mod heat;
mod host;
mod masim;
mod mix;
mod physical;
mod pieces;
mod probe;
mod process;
mod quantity;
mod rhythm;
mod source;
mod truth;
mod view;

pub use clock::ModelClock;
pub use costs::{Costs, Counts, Work};
pub use error::{AreaFault, Error};
pub use heat::{Access, Heat, Phase};
pub use host::Host;
pub use masim::{MASIM_PID, Masim};
pub use physical::Physical;
pub use probe::PageProbe;
pub use process::{Area, Process};
pub use source::ModelSource;
pub use truth::{Claim, Scope, Truth};
