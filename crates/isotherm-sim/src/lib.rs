//! A modelled host: terabytes of memory, processes and cgroups with given access rates, at no memory cost.
//!
//! `isotherm-monitor` runs on it as on a real machine: [`ModelSource`] returns accessed bits, and [`ModelClock`]
//! charges the cost of each answer. Other algorithms can run on the same host ([`PageProbe`] for those that check
//! single pages, [`Physical`] for those that check frames). All of them can be scored against the same truth
//! ([`Host::score`]).
//!
//! Whether a page was accessed in a stretch of time is computed and never stored. It follows from the description of
//! its area, and from a hash of the page where something is random. So memory grows with the number of areas, answers
//! never contradict each other, and every run is the same. `isotherm-sources` has a similar `Replay` for recordings.
//! That one stores simple spans, has no costs, and is made for histories that change rather than for size.
//!
//! [`cpus`] is a separate simulation, of CPUs that drain their pcp lists under a few zone locks. It has the same
//! purpose: to test code for a machine that is not available.

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
