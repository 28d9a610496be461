//! Recordings: heat stored on disk as Parquet, so that a crash loses only seconds and any data tool can read it.
//!
//! [`Writer`] stores the snapshots of `isotherm-heat`. [`Recording`] reads them back for replay and reports. A
//! recording is a directory of segments, each with one file per table. [`schema`] describes their contents and when a
//! segment counts.
//!
//! There are segments and not one growing file because Parquet writes its footer last: a file whose writer was killed
//! holds nothing. So the writer holds at most `flush_interval` in memory. A file that it has renamed into place is not
//! changed again until [`Writer::finish`] has written a complete copy next to it. The crate reads no clock: time comes
//! with the snapshots.
//!
//! [`damo`] reads and writes recordings in the format of DAMON's own tool, for exchange with its users.
//!
//! ```
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("run");
//! use isotherm_heat::{Cost, RunInfo, Snapshot};
//! use isotherm_record::{Options, Recording, Writer};
//!
//! let mut writer = Writer::create(&path, &RunInfo::default(), Options::default())?;
//! writer.push(&Snapshot { start_unix_ns: 0, end_unix_ns: 100, targets: vec![], cost: Cost::default() })?;
//! writer.finish()?;
//!
//! let recording = Recording::open(&path)?;
//! assert_eq!(recording.len(), 1);
//! assert!(recording.notes().is_empty());
//! # Ok::<(), isotherm_record::Error>(())
//! ```

#![forbid(unsafe_code)]

mod allowance;
mod compact;
mod cursor;
pub mod damo;
mod encode;
mod error;
mod footer;
mod pages;
mod publish;
mod reader;
pub mod schema;
mod segment;
mod storage;
mod thrift;
mod tiers;
mod undamaged;
mod writer;

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod samples;

pub use error::{Error, Result};
pub use reader::{Recording, Snapshots};
pub use writer::{Options, Summary, Writer, is_recording};

/// The example of the README, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
