//! What hints save Redis: CPU of the server for each operation, with the daemon and without, and what it costs in latency and
//! memory; also while Redis saves (forks).
//!
//! Two servers with the same keys, of which only B gets hints, are loaded in turn by `redis::load`, in slices of a
//! second, A B B A: what the machine does to one it does to the other, so only ratios within a pair of slices are quoted. CPU is
//! the kernel's account of the server, not the time it took, which a generator or a neighbour on the same cores would change.
//! Many short slices and not few long ones, as what neighbours do comes and goes. The slices of a pair are the same commands.
//! Two servers that are treated alike have been seen to differ by up to three percent in a run, so the pairs are also measured
//! before the daemon starts, and `cpu_saved_since_pct` is what B saves relative to that.
//!
//! Needs the package redis-server, and `isotherm` next to this program.
//!
//! `--without-hints` leaves the daemon out: what is then said to be saved is the noise. `--quick` is a smoke test: 100,000 keys.

#[path = "../redis/mod.rs"]
mod redis;

use anyhow::Result;
use isotherm_bench::Log;
use redis::hints::{Hints, daemon_cpu_ns};
use redis::pairs::{measure_pairs, warm_up};
use redis::plan::{BEFORE_SEED, PAIR_SEED, Plan};
use redis::program::Dir;
use redis::saving::while_saving;
use redis::server::{Server, fill, resident, version};
use redis::table::{report_daemon, report_memory, report_pairs};
use std::time::Instant;

fn main() -> Result<()> {
    let plan = Plan::from_args(std::env::args().skip(1))?;
    let dir = Dir::new()?;
    let mut log = Log::new(plan.name());
    plan.check_memory()?;
    log.line(plan.describe());
    let mut servers = [Server::start("A", &dir.0, plan.keys)?, Server::start("B", &dir.0, plan.keys)?];
    log.line(version()?);
    fill(&mut servers, plan.keys)?;

    // Some load first, as filling leaves memory in a better order than it stays in.
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
