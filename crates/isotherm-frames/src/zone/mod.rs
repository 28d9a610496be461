//! A zone: frames of one or more ranges, and everything that can be asked of them.
//!
//! The zone does not touch the frames it hands out, and need not be able to: they are numbers. What it knows of them is in the
//! [`Metadata`](crate::Metadata) that the caller gives it, 9 bytes a frame and a few for placing them. One lock protects the books of a zone;
//! per-CPU sets ([`crate::sets`]) stand in front of it so that most allocations never see it, and every method here is safe to call
//! from any thread beside them.
//!
//! Frame numbers keep their meaning: buddies, page blocks and colours are those of the numbers given, so a zone over frames of
//! physical memory has physical page blocks. Its span is fixed when it is made; ranges within it come ([`Zone::add`]) and go
//! ([`Zone::offline`]) while it is in use.
//!
//! | file | job |
//! |---|---|
//! | `alloc` | the zone: one block handed out or taken back |
//! | `bulk` | many at once, and what per-CPU sets take and give back |
//! | `ranges`, `offline` | frames that come and go |
//! | `shuffle`, `shuffling` | random order of the free lists, and whether it is wanted |
//! | `validate` | everything recomputed |
//! | `config`, `request`, `watermark` | what is asked for, and why it is refused |
//! | `books`, `take`, `lists` | what the lock protects: states and merging, which block is taken, the free lists |

mod alloc;
mod books;
mod bulk;
mod config;
mod lists;
mod offline;
mod ranges;
mod request;
mod shuffle;
mod shuffling;
mod take;
mod validate;
mod watermark;

pub use alloc::{Zone, ZoneStats};
pub use books::Events;
pub(crate) use bulk::CHUNK;
pub use config::{ConfigError, MOST_FRAMES, ZoneConfig};
pub use offline::{Offline, OfflineError};
pub use ranges::AddError;
pub use request::{AllocError, Request};
pub use shuffle::Shuffler;
pub use shuffling::{Shuffling, Switch};
pub use validate::Inconsistent;
pub use watermark::{Urgency, Watermarks};
