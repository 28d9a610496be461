//! The size of the server program, as a package would have it.

use super::server_program;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::process::Command;

/// Megabytes (1,000,000 bytes) of the program without symbols. `None` without `strip`.
pub fn stripped_mb() -> Result<Option<f64>> {
    let program = server_program()?;
    let dir = tempfile::tempdir().context("make a folder for a copy of the server")?;
    let copy = dir.path().join("isotherm-serve");
    fs::copy(&program, &copy)
        .with_context(|| format!("copy {}: has `make build-serve` been run?", program.display()))?;
    let status = match Command::new("strip").arg(&copy).status() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        status => status.context("run strip")?,
    };
    ensure!(status.success(), "strip {}: {status}", copy.display());
    let bytes = fs::metadata(&copy).with_context(|| format!("read the size of {}", copy.display()))?.len();
    Ok(Some(bytes as f64 / 1e6))
}
