//! Metrics for Prometheus: one table of what there is ([`table`]), and from it the text of a scrape ([`render`]), the page of
//! the reference, the dashboard and the alerts ([`assets`]).
//!
//! The text is rendered when a snapshot arrives, in both formats, plain and compressed. A scrape copies bytes, so it costs the
//! same however many processes there are, and two Prometheus servers get the same.
//!
//! The text is written by hand and not by a library of metrics: those keep values in registries from scrape to scrape, and a
//! cgroup that has ended would stay. Here, each text has what the snapshot has.

pub mod assets;
pub mod render;
pub mod table;
pub mod text;
