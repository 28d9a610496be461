//! What hints save Redis: CPU of the server for each operation, with the daemon and without, and the cost in latency
//! and memory. Also measured while Redis saves (forks).
//!
//! Two servers have the same keys, and only B gets hints. `redis::load` loads them in alternation, in slices of a
//! second, A B B A. The machine affects both equally, so only ratios within a pair of slices are quoted. CPU is the
//! kernel's account of the server, not elapsed time, which a generator or a neighbour on the same cores would change.
//! There are many short slices instead of few long ones, because the load of neighbours comes and goes. The slices of a
//! pair run the same commands. Two servers without any difference have differed by up to three percent in a run. So the
//! pairs are also measured before the daemon starts, and `cpu_saved_since_pct` is what B saves relative to that.
//!
//! Needs the package redis-server, and `isotherm` in the directory of this program.
//!
//! `--without-hints` runs no daemon: the reported saving is then the noise. `--quick` is a smoke test with 100,000
//! keys.

#[path = "../redis/mod.rs"]
mod redis;

use anyhow::Result;
use clap::Parser;
use isotherm_bench::Log;
use isotherm_bench::program::Dir;
use redis::hints::{Hints, daemon_cpu_ns};
use redis::pairs::{measure_pairs, warm_up};
use redis::plan::{BEFORE_SEED, Options, PAIR_SEED, Plan};
use redis::saving::while_saving;
use redis::server::{Server, fill, resident, version};
use redis::table::{report_daemon, report_memory, report_pairs};
use std::time::Instant;

fn main() -> Result<()> {
    let plan = Plan::of(Options::parse());
    let dir = Dir::new()?;
    let mut log = Log::new(plan.name());
    plan.check_memory()?;
    log.line(plan.describe());
    let mut servers = [Server::start("A", &dir.0, plan.keys)?, Server::start("B", &dir.0, plan.keys)?];
    log.line(version()?);
    fill(&mut servers, plan.keys)?;

    // Some load first, because filling leaves memory in a better order than it keeps.
    warm_up(&plan, &mut servers, None)?;
    let equal = measure_pairs(&plan, &mut servers, BEFORE_SEED)?;
    let before = resident(&servers)?;
    let hints = if plan.hints { Some(Hints::start(servers[1].pid(), &dir.0)?) } else { None };
    log.line(warm_up(&plan, &mut servers, hints.as_ref())?);
    let (began, daemon_before) = (Instant::now(), daemon_cpu_ns(hints.as_ref())?);
    let pairs = measure_pairs(&plan, &mut servers, PAIR_SEED)?;
    let daemon_ns = daemon_cpu_ns(hints.as_ref())? - daemon_before;
    report_pairs(&mut log, &equal, &pairs);
    report_daemon(&mut log, hints.as_ref(), daemon_ns, began.elapsed(), &pairs)?;
    report_memory(&mut log, &servers, before)?;
    while_saving(&plan, &mut log, &mut servers, hints.as_ref())?;
    log.finish()
}
