//! What placement gains in a direct-mapped memory-side cache, and what it costs. The frames come from the allocator of
//! `isotherm-frames`: in order, shuffled, and coloured, on a fresh machine and on one that has been up for a while.
//!
//! Frames are only numbers here, without memory behind them. The allocator is the real one. The behaviour of the cache
//! is computed ([`isotherm_placement::direct_mapped`]; checked against a simulated cache), and only the costs at the
//! end are times. Everything except those follows from `--seed`.

#[path = "../conflict/mod.rs"]
mod conflict;

use anyhow::Result;
use clap::Parser;
use conflict::{Options, contrived, costs, heap, table};
use isotherm_bench::Log;

fn main() -> Result<()> {
    let options = Options::parse();
    let mut log = Log::new("bench-conflict");
    log.line(format!(
        "seed {}; cache of 1 GiB; an aged machine: {} operations of four owners, an eighth of memory left in use",
        options.seed, options.operations
    ));
    table::print(&mut log, &options)?;
    contrived::print(&mut log, &options)?;
    heap::print(&mut log, &options)?;
    costs::shuffling(&mut log, &options)?;
    costs::refilling(&mut log, &options)?;
    log.finish()
}
