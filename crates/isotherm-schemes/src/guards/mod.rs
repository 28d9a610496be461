//! What holds an action up for now.

pub(crate) mod cgroups;
