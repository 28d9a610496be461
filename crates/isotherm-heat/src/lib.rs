//! Heat: what is known of each page, what to look at next, and the snapshot made of it.
//!
//! Asks whatever implements the traits of [`source`] (`isotherm-sources`, a modelled host, a test), is driven by `isotherm-monitor`
//! through [`track`], and read by faces, recordings and planners. Pure: time and randomness are arguments, nothing here does I/O, so that
//! every decision can be replayed in a test.

#![forbid(unsafe_code)]

mod block;
mod budget;
mod clock;
mod cover;
mod due;
mod interval;
mod mapping;
mod mask;
mod merge;
mod regions;
mod reported;
mod sampled;
mod score;
mod snapshot;
pub mod source;
mod target;
mod tiles;
mod told;
pub mod track;
pub mod tune;
mod view;

pub use block::{BlockBits, HugeHeat, LEAST_IDLE, Ns, PageHeat, Run, Sighting};
pub use budget::{Bucket, RETOUCH_NS};
pub use clock::{Clock, VirtualClock};
pub use cover::cover;
pub use interval::{Histogram, Interval, STEPS_PER_OCTAVE};
pub use isotherm_rng::Rng;
pub use mapping::MappingBits;
pub(crate) use mapping::{MappingTarget, Next};
pub use mask::Mask;
pub use regions::RegionBuilder;
pub use reported::{Access, Count, Counters, ReportedTarget, Resident, Silence};
pub(crate) use reported::{raise_rates, summarize_fused};
pub(crate) use sampled::SampledTarget;
pub use sampled::Sampling;
pub use score::Score;
pub use snapshot::{
    CgroupMemory, Classes, Cost, Granularity, Mapping, Region, RunInfo, Snapshot, TargetFacts, TargetHeat, TargetId,
    Thresholds,
};
pub(crate) use target::CREDIT_S;
pub use target::{BlockHeat, FIRST_READ, HORIZON, Tally, Target, View, Watch};
pub use tiles::{Tile, Tiles};
pub use told::ToldRegion;
pub(crate) use told::ToldRegions;
pub(crate) use view::summarize_after;
pub use view::{Since, Summary, summarize};
