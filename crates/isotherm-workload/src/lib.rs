//! A process with a known access pattern, and the truth about it.
//!
//! `isotherm demo`, the live tests and the benchmarks start one as a child, watch it as any other process, and compare what was
//! seen with what it did. The pattern ([`Pattern`]) is a pure function of its parameters, so both sides know which pages are
//! hot without talking about it. The child ([`run`]) says where its memory lies and, every 50 ms, how much it has done
//! and how much CPU that took; on its standard input it takes `heat FIRST COUNT`, and ends when that is closed.

#![forbid(unsafe_code)]

mod child;
mod index;
mod pattern;
mod run;

pub use child::{Child, Progress};
pub use index::Index;
pub use pattern::{Layout, Pattern};
pub use run::run;
