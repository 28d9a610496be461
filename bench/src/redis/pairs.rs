//! Alternating slices of both servers: first until the daemon is done, and then those that are compared.

use super::hints::Hints;
use super::plan::{Plan, WARM_UP_SEED};
use super::server::Server;
use super::slice::Slice;
use anyhow::Result;
use std::time::{Duration, Instant};

/// The longest warm-up when there is no daemon.
const UNHINTED_WARM_UP: Duration = Duration::from_secs(20);
/// The daemon is done when it has collapsed nothing for this long.
const SETTLED: Duration = Duration::from_secs(10);

/// Loads both servers in alternation until the daemon has collapsed everything worthwhile, or the time is up. Returns
/// which.
pub fn warm_up(plan: &Plan, servers: &mut [Server; 2], hints: Option<&Hints>) -> Result<String> {
    let began = Instant::now();
    let (mut collapsed, mut since) = (0, began);
    let mut seed = WARM_UP_SEED;
    // Without a daemon, the warm-up only has to wait until values have moved about.
    let longest = if hints.is_some() { plan.warm_up } else { plan.warm_up.min(UNHINTED_WARM_UP) };
    while began.elapsed() < longest {
        seed += 1;
        for server in &mut *servers {
            server.slice(seed, plan.slice)?;
        }
        let Some(hints) = hints else { continue };
        let now = hints.status()?.collapsed;
        if now != collapsed {
            (collapsed, since) = (now, Instant::now());
        } else if collapsed > 0 && since.elapsed() >= SETTLED {
            // More than zero: the first access checks take a while, in which nothing is collapsed either.
            break;
        }
    }
    let took = format!("warm-up: {:.0} s", began.elapsed().as_secs_f64());
    Ok(match hints {
        Some(_) => format!(
            "{took}, {collapsed} huge ranges collapsed, the last {:.0} s before its end",
            since.elapsed().as_secs_f64()
        ),
        None => took,
    })
}

/// Slices of A and B. They alternate in who begins, so that a steady drift does not favour one.
pub fn measure_pairs(plan: &Plan, servers: &mut [Server; 2], seed: u64) -> Result<Vec<[Slice; 2]>> {
    let [a, b] = servers;
    let mut pairs = Vec::new();
    for pair in 0..plan.pairs {
        let seed = seed + pair as u64;
        pairs.push(if pair % 2 == 0 {
            let first = a.slice(seed, plan.slice)?;
            [first, b.slice(seed, plan.slice)?]
        } else {
            let first = b.slice(seed, plan.slice)?;
            [a.slice(seed, plan.slice)?, first]
        });
    }
    Ok(pairs)
}
