//! What a fleet keeps of a host: rows of five minutes by service, as Parquet objects.
//!
//! [`Rollup`] takes the snapshots of a monitor, live from its stream or from a recording, and gives rows and objects back. The tables
//! are in [`schema`] and, for those who query, in `docs/reference/rollups.md`. Nothing here has a clock, reads a file or sends
//! anything: a program that does so stores the objects at their paths, each only if nothing is there yet.
//!
//! Rows have no addresses, no command lines and no paths of files. They add up over hosts without error: heat codes are a fixed
//! scale, and pages are integers.
//!
//! | module | |
//! |---|---|
//! | [`schema`] | the tables |
//! | [`service`] | which service a process belongs to |
//! | [`hosts`] | the key of a host |
//! | [`rollup`] | the accumulator: time, gaps, clocks |
//! | `counters` | counters since the monitor's start, as differences |
//! | `moment` | one snapshot by service and cgroup |
//! | `kinds` | pages by code and kind of memory |
//! | `interval` | five minutes as they fill up, and their rows |
//! | `columns` | rows as columns |
//! | [`objects`] | rows to Parquet, paths and names |
//! | [`advise`] | advice for the services of one host, from its rows |
//! | [`time`] | intervals and hours in UTC |

#![forbid(unsafe_code)]

pub mod advise;
mod columns;
mod counters;
mod error;
pub mod hosts;
mod interval;
mod kinds;
mod moment;
pub mod objects;
pub mod rollup;
pub mod schema;
pub mod service;
pub mod time;

pub use error::{Error, Result};
pub use hosts::Host;
pub use objects::{Object, RowBatch};
pub use rollup::{Options, Rollup};
pub use schema::Table;
pub use service::{RuleSettings, Rules, Service};
