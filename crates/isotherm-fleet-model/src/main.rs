//! `isotherm-fleet-model`: writes the rollups of a modelled fleet, and `truth.json` beside them.

use anyhow::{Context, Result, anyhow, bail};
use clap::Parser;
use isotherm_fleet_model::host::{Flaw, Modelled, Span};
use isotherm_fleet_model::truth::Truth;
use isotherm_rollup::time::day_of;
use isotherm_rollup::{Object, Table};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Write the rollups of a modelled fleet as Parquet objects, and the truth about its services
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Number of hosts
    #[arg(long, default_value_t = 200)]
    hosts: u64,
    /// Number of days
    #[arg(long, default_value_t = 7)]
    days: u64,
    /// Another seed makes other hosts
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The first day, in UTC
    #[arg(long, value_name = "YYYY-MM-DD", default_value = "2026-11-01")]
    start: String,
    /// Directory to write into; it is made if it is not there
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
}

/// What was written.
#[derive(Clone, Debug, Default, Serialize)]
struct Written {
    objects: u64,
    bytes: u64,
    rows: u64,
    bytes_by_table: BTreeMap<&'static str, u64>,
    rows_by_table: BTreeMap<&'static str, u64>,
}

impl Written {
    fn add(&mut self, table: Table, rows: u64, bytes: u64) {
        self.objects += 1;
        self.bytes += bytes;
        self.rows += rows;
        *self.bytes_by_table.entry(table.name()).or_default() += bytes;
        *self.rows_by_table.entry(table.name()).or_default() += rows;
    }

    fn merge(&mut self, other: Written) {
        self.objects += other.objects;
        self.bytes += other.bytes;
        self.rows += other.rows;
        for (table, bytes) in other.bytes_by_table {
            *self.bytes_by_table.entry(table).or_default() += bytes;
        }
        for (table, rows) in other.rows_by_table {
            *self.rows_by_table.entry(table).or_default() += rows;
        }
    }
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if arguments.hosts == 0 || arguments.days == 0 {
        bail!("--hosts and --days have to be at least 1");
    }
    let first_day = day_of(&arguments.start)
        .and_then(|day| u64::try_from(day).ok())
        .ok_or_else(|| anyhow!("--start {}: not a date since 1970 as YYYY-MM-DD", arguments.start))?;
    let span = Span { start_s: first_day * 86_400, end_s: (first_day + arguments.days) * 86_400 };
    let (truth, written) = write_fleet(&arguments, span)?;
    let host_days = arguments.hosts * arguments.days;
    let path = arguments.to.join("truth.json");
    let flaws: BTreeMap<String, String> = (0..arguments.hosts)
        .filter(|number| Flaw::of(*number) != Flaw::None)
        .map(|number| (Modelled::new(arguments.seed, number, span).hostname(), format!("{:?}", Flaw::of(number))))
        .collect();
    let page = serde_json::json!({
        "seed": arguments.seed,
        "start": arguments.start,
        "days": arguments.days,
        "hosts": arguments.hosts,
        "written": written,
        "flaws": flaws,
        "services": truth.rows(),
    });
    fs::write(&path, serde_json::to_vec_pretty(&page)?).with_context(|| format!("write {}", path.display()))?;
    println!(
        "RESULT fleet-model hosts={} days={} objects={} rows={} bytes={} bytes_per_host_day={} objects_per_host_day={}",
        arguments.hosts,
        arguments.days,
        written.objects,
        written.rows,
        written.bytes,
        written.bytes / host_days,
        written.objects / host_days
    );
    Ok(())
}

/// All hosts, one at a time on each CPU: the memory is that of an hour of rows for each.
fn write_fleet(arguments: &Arguments, span: Span) -> Result<(Truth, Written)> {
    let next = AtomicU64::new(0);
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let work = || -> Result<(Vec<(u64, Truth)>, Written)> {
        let (mut truths, mut written) = (Vec::new(), Written::default());
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= arguments.hosts {
                return Ok((truths, written));
            }
            let host = Modelled::new(arguments.seed, number, span);
            let mut put = |object: Object| {
                written.add(object.table, object.rows as u64, object.bytes.len() as u64);
                store(&arguments.to, &object)
            };
            truths.push((number, host.run(arguments.seed, span, &mut put)?));
        }
    };
    let results = thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| bail!("a thread panicked")))
            .collect::<Vec<_>>()
    });
    let (mut truths, mut written) = (Vec::new(), Written::default());
    for result in results {
        let (some, bytes) = result?;
        truths.extend(some);
        written.merge(bytes);
    }
    // In the order of hosts, so that sums of numbers are the same on any number of CPUs.
    truths.sort_by_key(|(number, _)| *number);
    let mut truth = Truth::default();
    truths.into_iter().for_each(|(_, one)| truth.merge(one));
    Ok((truth, written))
}

fn store(dir: &Path, object: &Object) -> Result<()> {
    let path = dir.join(&object.path);
    let write = || {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&path, &object.bytes)
    };
    write().with_context(|| format!("write {}", path.display()))
}
