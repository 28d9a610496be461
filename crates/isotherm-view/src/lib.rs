//! Faces over snapshots: tables, heat maps (terminal, PNG, HTML) and the live terminal view.
//!
//! Reads `isotherm_heat::Snapshot`s, whoever made them: the monitor, a recording, a test. The command line chooses among the
//! faces and owns files and signals; here nothing is opened or read, output goes to a writer that the caller gives. Only the
//! session of [`top`] touches a terminal.
//!
//! Each face is a model first (a struct with numbers, most of them serialisable) and a drawing of it second, so that `--json`
//! and the text can not disagree, and so that the numbers can be tested without reading pixels.

#![forbid(unsafe_code)]

pub mod heatmap;
pub mod human;
mod math;
pub mod placement;
pub mod tables;
mod text;
pub mod top;
pub mod vmstat;

pub use text::TextStyle;

#[cfg(test)]
#[path = "../examples/support/sample.rs"]
#[allow(dead_code, missing_docs, reason = "shared with the examples, each of which uses a part")]
mod sample;
