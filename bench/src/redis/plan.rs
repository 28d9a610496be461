//! What to do, from the arguments: how many keys, how long, with hints or without. Also the seeds, which are the same
//! for all runs.

use super::load::{CONNECTIONS, PIPELINE, VALUE_BYTES};
use anyhow::{Context, Result, ensure};
use clap::Parser;
use isotherm_units::Bytes;
use std::fs;
use std::time::Duration;

/// First seeds of the commands. Each stretch of load uses the next seed.
pub const FILL_SEED: u64 = 1_000;
pub const WARM_UP_SEED: u64 = 2_000;
pub const BEFORE_SEED: u64 = 3_000;
pub const PAIR_SEED: u64 = 3_500;
pub const SAVE_SEED: u64 = 4_000;

/// Memory of a server per key: the value in jemalloc's class of 1,280 bytes, key, object, entry, bucket.
pub const BYTES_A_KEY: u64 = 1_400;

/// Options of the command line.
#[derive(Parser)]
pub struct Options {
    /// Collapse nothing, so that all differences are noise
    #[arg(long)]
    without_hints: bool,
    /// A few seconds in place of minutes
    #[arg(long)]
    quick: bool,
}

/// What to do, from the arguments.
pub struct Plan {
    pub keys: u32,
    pub slice: Duration,
    pub pairs: usize,
    /// How long a server is loaded while it saves: a save of 3 GB takes far longer than a slice.
    pub save: Duration,
    /// Maximum length of the warm-up.
    pub warm_up: Duration,
    pub hints: bool,
    quick: bool,
}

impl Plan {
    pub fn of(Options { without_hints, quick }: Options) -> Plan {
        let hints = !without_hints;
        let (seconds, ms) = (Duration::from_secs, Duration::from_millis);
        let full = Plan {
            keys: 3_000_000,
            slice: seconds(1),
            pairs: 45,
            save: seconds(9),
            warm_up: seconds(180),
            hints,
            quick,
        };
        let short =
            Plan { keys: 100_000, slice: ms(500), pairs: 3, save: seconds(1), warm_up: seconds(3), hints, quick };
        if quick { short } else { full }
    }

    /// Each kind of run has its own name, so that no result overwrites another.
    pub fn name(&self) -> &'static str {
        match (self.quick, self.hints) {
            (false, true) => "bench-redis",
            (false, false) => "bench-redis-without-hints",
            (true, true) => "bench-redis-quick",
            (true, false) => "bench-redis-quick-without-hints",
        }
    }

    pub fn describe(&self) -> String {
        let range = f64::from(self.keys);
        format!(
            "{} keys of {VALUE_BYTES} bytes, GET and SET 1:1, Gaussian (median {:.0}, deviation {:.0}), pipeline {PIPELINE}, \
             {CONNECTIONS} connections\n{} pairs of slices of {} s, A B B A, before and after; hints for B: {}; seeds from {FILL_SEED} (fill), \
             {WARM_UP_SEED} (warm-up), {BEFORE_SEED} and {PAIR_SEED} (pairs), {SAVE_SEED} (saves)",
            self.keys,
            range * 2.0 / 3.0,
            range / 20.0,
            self.pairs,
            self.slice.as_secs_f64(),
            if self.hints { "yes" } else { "no, so all differences are noise" }
        )
    }

    /// Room for two servers, of which one forks and has nearly all of its memory copied, and a reserve.
    pub fn check_memory(&self) -> Result<()> {
        let needed = Bytes(u64::from(self.keys) * BYTES_A_KEY * 3 + (1 << 30));
        let text = fs::read_to_string("/proc/meminfo").context("read /proc/meminfo")?;
        let kib = |line: &str| line.strip_prefix("MemAvailable:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok();
        let available = Bytes(1024 * text.lines().find_map(kib).context("no MemAvailable in /proc/meminfo")?);
        ensure!(available >= needed, "two servers need {needed} of memory, and {available} are available");
        Ok(())
    }
}
