//! A zone: an allocator for the frames of one or more ranges.
//!
//! The zone never touches frames and need not be able to: they are numbers. The caller supplies memory for their
//! [`Metadata`](crate::Metadata): 9 bytes per frame, and a few more for placement. One lock protects the metadata of a
//! zone. Per-CPU lists ([`crate::pcp`]) stand in front of it, so most allocations do not take it. Every method here
//! may also be called from any thread while such lists are in use.
//!
//! Frame numbers keep their meaning: buddies, page blocks and colours follow them. So a zone over frames of physical
//! memory has physical page blocks. The span of a zone is fixed when it is created. Ranges within the span are added
//! ([`Zone::add`]) and removed ([`Zone::offline`]) while the zone is in use.
//!
//! | file | job |
//! |---|---|
//! | `alloc` | the zone: allocates and frees single blocks |
//! | `bulk` | many at once; refills and drains of per-CPU lists |
//! | `ranges`, `offline` | adding and removing frames |
//! | `shuffle`, `shuffling` | random order of the free lists, and whether it is wanted |
//! | `validate` | recomputes everything |
//! | `config`, `request`, `watermark` | configuration and requests, and why they fail |
//! | `metadata`, `take`, `lists` | what the lock protects: states and merging, which block is taken, the free lists |

mod alloc;
mod bulk;
mod config;
mod lists;
mod metadata;
mod offline;
mod ranges;
mod request;
mod shuffle;
mod shuffling;
mod take;
mod validate;
mod watermark;

pub use alloc::{Zone, ZoneStats};
pub(crate) use bulk::CHUNK;
pub use config::{ConfigError, MAX_FRAMES, ZoneConfig};
pub use metadata::Events;
pub use offline::{Offline, OfflineError};
pub use ranges::AddError;
pub use request::{AllocError, Request};
pub use shuffle::Shuffler;
pub use shuffling::{Shuffling, Switch};
pub use validate::Inconsistent;
pub use watermark::{Urgency, Watermarks};
