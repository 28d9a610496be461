//! The parts of bench-redis.
//!
//! | module | job |
//! |---|---|
//! | [`plan`] | what to do, from the arguments |
//! | [`load`] | the load generator: speaks to a server |
//! | [`mod@slice`] | the work of a server in a stretch of load |
//! | [`server`] | a Redis server |
//! | [`hints`] | the daemon |
//! | [`pairs`] | alternating slices of both servers |
//! | [`saving`] | the same while they save |
//! | [`table`] | the results |

pub mod hints;
pub mod load;
pub mod pairs;
pub mod plan;
pub mod saving;
pub mod server;
pub mod slice;
pub mod table;
