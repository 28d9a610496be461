//! Heat: what is known of each page, what to check next, and the snapshot made of it.
//!
//! Asks any implementation of the traits in [`source`] (`isotherm-sources`, a modelled host, a test).
//! `isotherm-monitor` drives it through [`track`]; frontends, recordings and planners read it. Pure: time and
//! randomness are arguments, and nothing here does I/O, so a test can replay every decision.

#![forbid(unsafe_code)]

mod behind_huge;
mod budget;
mod clock;
mod cover;
mod due;
mod idle;
mod interval;
mod kernel_regions;
mod mapping;
mod mask;
mod merge;
mod moment;
mod pmd;
mod pmd_heat;
mod pmd_map;
mod regions;
mod reported;
mod sampled;
mod score;
mod snapshot;
pub mod source;
mod survey;
mod target;
mod tiles;
pub mod track;
pub mod tune;
mod uniform;
mod view;
mod working_set;

pub use behind_huge::BehindHuge;
pub use budget::{Bucket, Class, RETOUCH_NS, Shares};
pub use clock::{Beside, Clock, VirtualClock};
pub use cover::cover;
pub use idle::{IdleBefore, IdleStep, MappingIdle};
pub use interval::{Histogram, Interval, STEPS_PER_OCTAVE};
pub use isotherm_rng::Rng;
pub use kernel_regions::KernelRegion;
pub(crate) use kernel_regions::KernelRegions;
pub use mapping::MappingBits;
pub(crate) use mapping::{MappingTarget, Next};
pub use mask::Mask;
pub use pmd::{AccessesFound, MIN_IDLE, Ns, PackedHeat, PageHeat, PmdBits, Run};
pub use pmd_heat::PmdHeat;
pub use regions::{PastRegion, RegionBuilder};
pub use reported::{Access, Count, Counters, ReportedTarget, Resident, Silence};
pub(crate) use reported::{raise_rates, summarize_fused};
pub(crate) use sampled::SampledTarget;
pub use sampled::Sampling;
pub use score::Score;
pub use snapshot::{
    Acted, CgroupMemory, Classes, Cost, Granularity, Mapping, PagesBehindHuge, Region, RunInfo, Snapshot, TargetFacts,
    TargetHeat, TargetId, Thresholds, is_mostly_estimated, is_mostly_measured,
};
pub(crate) use target::CREDIT_S;
pub use target::{FIRST_READ, HORIZON, Tally, Target, View, Watch};
pub use tiles::{Tile, Tiles};
pub use uniform::{HugeHeat, UntouchedHeat};
pub(crate) use view::summarize_after;
pub use view::{Since, Summary, summarize};

/// The example of the README, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
