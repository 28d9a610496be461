//! Where actions happen.

mod cgroup;
mod live;

pub use cgroup::CgroupState;
pub use live::*;
