//! Views of snapshots: tables, heat maps (terminal, PNG, HTML) and the live terminal view.
//!
//! Reads `isotherm_heat::Snapshot`s from any source: the monitor, a recording, a test. The command line selects a view
//! and handles files and signals. Nothing is opened or read here, and output goes to a writer that the caller provides.
//! Only the session of [`top`] uses a terminal.
//!
//! Each view is first a model (a struct with numbers, in most cases serialisable) and then a drawing of it. So `--json`
//! and the text cannot disagree, and the numbers can be tested without reading pixels.

#![forbid(unsafe_code)]

pub mod heatmap;
pub mod human;
mod math;
pub mod placement;
pub mod tables;
mod text;
#[cfg(feature = "top")]
pub mod top;
pub mod vmstat;

pub use text::{TextStyle, write_wrapped};

#[cfg(test)]
#[path = "../examples/support/sample.rs"]
#[allow(dead_code, missing_docs, reason = "shared with the examples, each of which uses a part")]
mod sample;
