//! The parts of bench-first: how soon a picture of a process is good, for our monitor and for its peers.
//!
//! | module | job |
//! |---|---|
//! | `workload` | the process, which of its pages are hot, and spans of it that turn hot or cold |
//! | `ours` | our monitor at its defaults |
//! | `peers` | what a peer has to do, and the same measurements for any of them |
//! | `damon` | a peer: DAMON's algorithm ([`crate::adaptive`]) |
//! | `referenced` | a peer: `clear_refs` and `smaps` |
//! | `picture` | what a picture was like; the table that compares them |
//! | `figures` | figures of all trials |
//!
//! All are scored by page against the same truth, with the same threshold ([`HOT_NS`]). A picture is good from when it stays
//! good: in all later snapshots of the next [`STABLE`] at least.

mod damon;
mod figures;
mod ours;
mod peers;
mod picture;
mod referenced;
mod workload;

pub use figures::Figures;
pub use ours::{OurPicture, Ours, Until};
pub use peers::{PEERS, Peer, PeerKeys, PeerTrial};
pub use picture::{Comparison, Picture};
pub use workload::{Span, Workload};

use isotherm_heat::Ns;

const S: Ns = 1_000_000_000;
/// A page accessed at least once in this time is hot.
pub const HOT_NS: Ns = S;
/// Between two snapshots of ours that are scored. Peers are scored whenever they have a new picture.
const EVERY: Ns = S / 2;
/// A picture of ours that has stayed exact for so long is final: nothing in it is unmeasured or estimated. The same is taken for
/// a good picture where exactness is not asked, and for a good one of a peer.
pub const STABLE: Ns = 10 * S;
/// Ours ends if its picture is not exact by then.
pub const LONGEST: Ns = 90 * S;
/// A peer ends if its picture is not good by then.
pub const PEER_LONGEST: Ns = 30 * S;
/// From the start of our monitor until memory turns hot or cold, at least.
pub const SETTLED: Ns = 60 * S;
/// Ours has this long to find a span that has turned.
const LONGEST_TURN: Ns = 120 * S;
/// And a peer this long.
pub const PEER_LONGEST_TURN: Ns = 20 * S;

fn seconds(ns: Ns) -> f64 {
    ns as f64 / 1e9
}
