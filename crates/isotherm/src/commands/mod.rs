//! One module a command.

pub mod demo;
pub mod doctor;
pub mod record;
pub mod report;
pub mod top;
