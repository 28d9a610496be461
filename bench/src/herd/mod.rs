//! The parts of bench-herd.
//!
//! | module | job |
//! |---|---|
//! | [`timed`] | how long the real allocator holds its lock for a chunk |
//! | [`rows`] | the machines and schedules that are compared |
//! | [`table`] | runs them, and prints the results |
//! | [`sensitivity`] | the same with other assumptions |

pub mod rows;
pub mod sensitivity;
pub mod table;
pub mod timed;
