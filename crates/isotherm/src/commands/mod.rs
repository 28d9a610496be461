//! One module a command.

pub mod collapse;
pub mod convert;
pub mod demo;
pub mod doctor;
pub mod events;
pub mod herd;
pub mod hint;
pub mod placement;
pub mod probe_cache;
pub mod record;
pub mod report;
pub mod run;
pub mod status;
pub mod top;
