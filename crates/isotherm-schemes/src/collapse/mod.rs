//! Making huge pages of hot blocks.

pub mod benefit;
