//! Cold memory in a guest of the lab: a store whose hot memory wanders, idle heaps beside it, and the ways to page out what is cold.
//!
//! Everything here changes settings of the kernel, and so runs in guests only.

pub mod evict;
pub mod loss;
pub mod scene;
pub mod ways;

use anyhow::{Context, Result};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Writes a value to a file of the kernel.
fn set(path: impl AsRef<Path>, value: impl ToString) -> Result<()> {
    let (path, value) = (path.as_ref(), value.to_string());
    fs::write(path, &value).with_context(|| format!("write {value:?} to {}", path.display()))
}

/// Waits by the guest's clock.
pub fn wait(seconds: f64) {
    std::thread::sleep(Duration::from_secs_f64(seconds));
}
