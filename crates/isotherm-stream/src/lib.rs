//! What a monitor sends to programs that show it: snapshots over a Unix socket, one way.
//!
//! The monitor has privileges, so it should neither speak HTTP nor read what strangers send. It writes a [`Snapshot`] per
//! window to a socket ([`Broadcaster`]), and reads nothing from it. A program without privileges, such as `isotherm-serve`,
//! reads that ([`Reader`]) and answers the network.
//!
//! ```text
//! stream    = magic (8 bytes "isotherm"), major version (u16), minor version (u16), frame*
//! frame     = kind (u8), length of the body (u32), body       at most MAX_FRAME_BYTES
//! body      = kind 1, a snapshot: table*      kind 2, snapshots lost: count (u64)      others: skipped
//! table     = number (u16), length (u32), an Arrow IPC stream with one batch            unknown numbers: skipped
//! ```
//!
//! Numbers are little-endian. A change that an older reader can skip (a table, a column, a kind of frame) makes a new
//! minor version, and a change that it cannot skip makes a new major version. Columns have one of four types: `Int64`,
//! `Float64`, `Utf8`, `Boolean`. Columns other than keys may be missing, and read as 0, empty or unknown.
//!
//! Arrow, because the tables of a recording have the same columns, because a batch is validated as a whole, and because
//! other programs can read it. It is not compressed: both ends are on one machine.
//!
//! A reader that is slow loses snapshots. It gets [`Message::Lost`] with their number before the next one. The monitor
//! never waits for it.
//!
//! | module | |
//! |---|---|
//! | `rows` | the rows of a snapshot |
//! | `recorded` | a recorded snapshot as a monitor would have sent it |
//! | `reduced` | parts of a whole that shrinks: a sum over processes counts each page once |
//! | `columns` | values to Arrow columns, and back from columns that nobody vouches for |
//! | `tables` | the columns of each kind of row |
//! | `frame` | frames: [`encode`], and the checks of a snapshot that was received |
//! | `reader` | the receiving end |
//! | [`place`] | the path of a socket, which has one owner at a time |
//! | `group` | the number of a group by its name |
//! | `broadcast` | the sending end |

#![forbid(unsafe_code)]

mod broadcast;
mod columns;
mod error;
mod frame;
mod group;
pub mod place;
mod reader;
mod recorded;
mod reduced;
mod rows;
mod tables;

pub use broadcast::{Broadcaster, MAX_CLIENTS};
pub use error::{Error, Result};
pub use frame::{MAJOR, MAX_FRAME_BYTES, MAX_PAGES, MAX_ROWS, MINOR, encode, header};
pub use reader::{Message, Reader};
pub use recorded::{huge_by_regions, part_of};
pub use reduced::Reduced;
pub use rows::{ActionRow, EventRow, HostRow, IdleRow, MappingRow, PlanRow, ProcessRow, RegionRow, Snapshot};
pub use tables::MAX_TEXT_BYTES;
