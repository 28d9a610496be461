//! A modelled fleet: rollups of many hosts and days, written by the real writer, and the truth to compare reports with.
//!
//! `isotherm-sim` models the accessed bits of single pages, which a monitor then checks. That takes a minute for a minute of a host, and a
//! fleet has years of them. Here services are described by how the intervals of their pages are spread, and snapshots are made from
//! that. Everything follows from a seed and the time, so that each run is the same.
//!
//! | module | |
//! |---|---|
//! | [`catalog`] | the services |
//! | [`spread`] | pages spread over the scale of codes |
//! | [`service`] | a service on a host, from moment to moment |
//! | [`host`] | a host with its flaws, and its days |
//! | [`truth`] | what is true of services |

#![forbid(unsafe_code)]

pub mod catalog;
pub mod host;
pub mod service;
pub mod spread;
pub mod truth;
