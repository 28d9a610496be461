//! `isotherm serve`: how long a scrape takes, how old what it shows is, what it costs the process that is watched, how quick its page is
//! with a day of snapshots, and how large the server is.
//!
//! What is watched is compared with an exporter that reads `Referenced:` of `smaps` and writes `clear_refs`, as cAdvisor does for
//! `container_referenced_bytes` with `--referenced_reset_interval`. The page takes node, Chromium and `make setup-web`: without them its
//! figures are missing, and the run is not stored.

use anyhow::{Result, ensure};
use isotherm_bench::{Log, become_workload, only, serving, trials};

/// Measures something. Returns whether there was all that it takes.
type Part = fn(&mut Log) -> Result<bool>;

/// The parts, by name. `--only` selects those that contain its text.
const PARTS: [(&str, Part); 5] = [
    ("scrape", |log| serving::scrape(log).map(|()| true)),
    ("lag", |log| serving::live_lag_s(log).map(|()| true)),
    ("target", |log| serving::stalls(log, trials(5)).map(|()| true)),
    ("page", serving::page),
    ("size", size),
];

fn main() -> Result<()> {
    become_workload()?;
    let parts: Vec<_> = PARTS.into_iter().filter(|(name, _)| name.contains(&only())).collect();
    ensure!(!parts.is_empty(), "no part contains {:?}: give one of {:?}", only(), PARTS.map(|(name, _)| name));
    let mut log = Log::new("bench-serve");
    let mut is_complete = true;
    for (_, run) in parts {
        is_complete &= run(&mut log)?;
    }
    if is_complete { log.finish() } else { log.finish_incomplete() }
}

fn size(log: &mut Log) -> Result<bool> {
    let Some(mb) = serving::stripped_mb()? else {
        log.line("\nthe size of the server was not measured: needs strip (apt-get install binutils)");
        return Ok(false);
    };
    log.line(format!("\nisotherm-serve, stripped: {mb:.2} MB"));
    log.result("server_binary_mb", mb);
    Ok(true)
}
