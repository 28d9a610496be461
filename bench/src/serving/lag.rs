//! How old a snapshot is when a client has it: from the end of a window of `isotherm serve` to the overview that shows it.

use super::http::Events;
use super::{Server, quantile};
use crate::{Log, busy, start};
use anyhow::{Context, Result, ensure};
use isotherm_sys::clock;
use isotherm_workload::Pattern;

const SNAPSHOTS: usize = 30;
const NS_PER_MS: u64 = 1_000_000;

/// Measures it on a small process.
pub fn live_lag_s(log: &mut Log) -> Result<()> {
    let child = start(&Pattern { interval_ns: 50_000_000, ..busy(64, false) })?;
    let server = Server::watching(child.pid())?;
    let mut events = Events::listen(&server.at, &format!("{}api/live", server.base))?;
    let mut client = server.client();
    let (mut heard_s, mut shown_s) = (Vec::new(), Vec::new());
    for _ in 0..SNAPSHOTS {
        let at_ms = events.next()?["at_ms"].as_u64().context("an event has no at_ms")?;
        heard_s.push(since_s(at_ms));
        let newest_ms = server.newest_ms(&mut client)?.context("an event came before any overview")?;
        shown_s.push(since_s(at_ms));
        ensure!(newest_ms >= at_ms, "the overview is of {newest_ms}, and the event before it of {at_ms}");
    }
    log.line(format!("\nage of {SNAPSHOTS} snapshots of `isotherm serve`, s (a process of 64 MiB)"));
    log.line(format!("{:<26} {:>9} {:>9}", "", "p50", "max"));
    for (name, values) in [("event of api/live", &mut heard_s), ("overview after it", &mut shown_s)] {
        values.sort_by(f64::total_cmp);
        let [median, max] = [0.5, 1.0].map(|share| quantile(values, share).unwrap_or(f64::NAN));
        log.line(format!("{name:<26} {median:>9.4} {max:>9.4}"));
    }
    log.result("live_lag_s", quantile(&shown_s, 1.0).context("no snapshots came")?);
    Ok(())
}

/// Seconds from this time of the wall clock to now. The time was cut to whole milliseconds: up to one too much.
fn since_s(at_ms: u64) -> f64 {
    (clock::unix_ns() as f64 - (at_ms * NS_PER_MS) as f64) / 1e9
}
