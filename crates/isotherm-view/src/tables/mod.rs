//! Reports as text and as data: access, working set, histogram, processes, cgroups, cold memory, refaults, cost.
//!
//! Every report is built from snapshots into a plain struct that can be serialised (field names include the unit). The
//! text is drawn only from that struct. `crate::text` lays out the columns and drops them in order of rank. Text shows
//! sizes and durations with a unit in the cell, because they span twelve orders of magnitude. A column with one unit
//! has it in its heading.

mod access;
mod caveats;
mod classes;
mod cold;
mod cost;
mod histogram;
mod refaults;
mod target;
mod wss;

pub use access::{AccessOptions, AccessRegion, AccessReport, AccessTarget, SortBy};
pub use caveats::{Caveats, CaveatsOf, Concerned};
#[cfg(feature = "top")]
pub(crate) use classes::{CGROUP_MEMORY, LastColumns, class_table, total_of};
pub use classes::{CgroupReport, CgroupRow, HeatSum, ProcessReport, ProcessRow};
pub use cold::{COLD_AGES_NS, ColdAge, ColdBy, ColdReport, ColdRow};
pub use cost::CostSummary;
pub use histogram::{Bin, HistogramGroup, HistogramOptions, HistogramReport};
pub use refaults::{REFAULT_AGES_NS, RefaultAge, RefaultOptions, RefaultReport, RefaultTarget};
pub use wss::{PERCENTILES, Percentile, WssOptions, WssPoint, WssReport, WssSeries};
