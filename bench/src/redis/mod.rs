//! What bench-redis is made of.
//!
//! | module | job |
//! |---|---|
//! | [`plan`] | what to do, by the arguments |
//! | [`load`] | the load generator: speaks to a server |
//! | [`program`] | programs that are started and ended |
//! | [`slice`] | what a server did in a stretch of load, and its CPU time |
//! | [`server`] | a Redis server |
//! | [`hints`] | the daemon |
//! | [`pairs`] | slices of both servers in turn |
//! | [`saving`] | the same while they save |
//! | [`table`] | what came of it |

pub mod hints;
pub mod load;
pub mod pairs;
pub mod plan;
pub mod program;
pub mod saving;
pub mod server;
pub mod slice;
pub mod table;
