//! A process with a known access pattern, and the truth about it.
//!
//! `isotherm demo`, the live tests and the benchmarks start one as a child, monitor it like any other process, and
//! compare the result with what it did. The pattern ([`Pattern`]) is a pure function of its parameters, so both sides
//! know which pages are hot without communicating. A [`Store`] counts its accesses instead, in memory that both map
//! ([`Server`]). The child ([`fn@run`]) prints its address range and, every 50 ms, its
//! number of accesses and their CPU time. On standard input it accepts `heat FIRST COUNT` and `cool FIRST
//! COUNT`. It ends when standard input is closed.

#![forbid(unsafe_code)]

mod child;
mod counts;
mod draw;
mod good;
mod index;
mod pattern;
mod progress;
mod recent;
mod run;
mod score;
mod server;
mod store;

pub use child::Child;
pub use counts::PageCounts;
pub use good::GoodSince;
pub use index::Index;
pub use pattern::{Layout, Pattern};
pub use progress::Progress;
pub use recent::RecentCounts;
pub use run::{run, run_json};
pub use score::{NEAR, RateScore, Reported, score_amount, score_rates, unknown_pages};
pub use server::Server;
pub use store::{Keys, Reuse, Store};
