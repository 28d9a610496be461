//! `isotherm advise`: limits, requests, huge pages and cold memory for the services of one host, from a recording or from rollups.
//!
//! The arithmetic is in [`isotherm_rollup::advise`]. A recording is rolled up on the way, so that both inputs give the same advice of the same
//! memory.

use crate::args::usage::Usage;
use crate::commands::plan::Plan;
use crate::input;
use crate::output;
use crate::privileges::Needs;
use crate::sandbox;
use anyhow::{Context, Result, bail};
use clap::Args;
use isotherm_rollup::advise::{Advice, Advisor, Confidence};
use isotherm_rollup::{Host, Object, Options, Rollup, Rules, Table};
use isotherm_stream::Snapshot;
use isotherm_units::Bytes;
use isotherm_view::human;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub struct AdviseArgs {
    /// Recording, or directory that `isotherm rollup` has written to
    #[arg(value_name = "INPUT", default_value = input::DEFAULT_RECORDING)]
    pub input: PathBuf,
    /// Of rollups of several hosts, only this one: its name or its key
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl Plan for AdviseArgs {
    fn needs(&self) -> Needs {
        Needs::Files
    }

    fn run(&self) -> Result<()> {
        run(self)
    }
}

fn run(args: &AdviseArgs) -> Result<()> {
    sandbox::files_only(&[&args.input], &[]);
    let rollups = args.input.join("v1");
    let advisor = if rollups.is_dir() { of_rollups(&rollups, args)? } else { of_recording(args)? };
    let advice = advisor.advice();
    if advice.is_empty() {
        bail!("advise on {}: it has no services; is --host one of its hosts?", args.input.display());
    }
    if args.json { output::json(&advice) } else { text(&advice) }
}

fn of_recording(args: &AdviseArgs) -> Result<Advisor> {
    if args.host.is_some() {
        return Err(Usage("--host is for rollups: a recording is of one host".into()).into());
    }
    let recording = input::open(&args.input)?;
    let host = Host::new("", "recorded", "");
    let mut rollup = Rollup::new(host, Rules::default(), Options { grace_ns: 0, ..Options::default() });
    let mut advisor = Advisor::new(None);
    let add = |advisor: &mut Advisor, objects: Vec<Object>| -> Result<()> {
        // An hour of hosts comes before the other tables of the hour.
        objects.into_iter().try_for_each(|object| Ok(advisor.add_object(object.bytes)?))
    };
    let bar = output::counting(recording.len() as u64, "reading");
    for snapshot in recording.snapshots().undamaged(input::note_skipped) {
        let snapshot = Snapshot::of(recording.run(), &snapshot?);
        rollup.push(&snapshot);
        add(&mut advisor, rollup.take_closed(snapshot.host.end_unix_ns)?)?;
        bar.inc(1);
    }
    add(&mut advisor, rollup.finish()?)?;
    bar.finish_and_clear();
    Ok(advisor)
}

fn of_rollups(dir: &Path, args: &AdviseArgs) -> Result<Advisor> {
    if dir.join("_manifests").exists() {
        bail!(
            "advise on {}: its objects were compacted, which this command does not read; use the rollups of the host",
            dir.display()
        );
    }
    let mut advisor = Advisor::new(args.host.clone());
    for table in Advisor::TABLES {
        let mut objects = Vec::new();
        list(&dir.join(table.name()), &mut objects)?;
        objects.sort();
        let bar = output::counting(objects.len() as u64, table.name());
        for path in objects {
            let bytes = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
            advisor.add_object(bytes).with_context(|| format!("read {}", path.display()))?;
            bar.inc(1);
        }
        bar.finish_and_clear();
        if table == Table::Hosts {
            check_is_one(&advisor, args.host.as_deref())?;
        }
    }
    Ok(advisor)
}

/// Fails where several hosts are meant: all that there are, or clones of one name. Their memory would be added up.
fn check_is_one(advisor: &Advisor, name: Option<&str>) -> Result<(), Usage> {
    let hosts = advisor.hosts();
    let Some(name) = name else {
        let first = hosts.values().next().filter(|_| hosts.len() > 1);
        let several = |first| format!("these are rollups of {} hosts: name one, such as --host {first}", hosts.len());
        return first.map_or(Ok(()), |first| Err(Usage(several(first))));
    };
    let keys: Vec<&str> = hosts.iter().filter(|(_, of)| *of == name).map(|(key, _)| key.as_str()).collect();
    if keys.len() > 1 && !hosts.contains_key(name) {
        return Err(Usage(format!(
            "{} hosts have the name {name}: give --host one of {}",
            keys.len(),
            keys.join(", ")
        )));
    }
    Ok(())
}

/// Objects below a directory, which is that of a table: by date, then by hour. A table without rows has none.
fn list(dir: &Path, objects: &mut Vec<PathBuf>) -> Result<()> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.with_context(|| format!("list {}", dir.display()))?,
    };
    for entry in entries {
        let path = entry.with_context(|| format!("list {}", dir.display()))?.path();
        if path.is_dir() {
            list(&path, objects)?;
        } else if path.extension().is_some_and(|extension| extension == "parquet") {
            objects.push(path);
        }
    }
    Ok(())
}

fn text(advice: &[Advice]) -> Result<()> {
    let mut out = output::stdout();
    let shown = |bytes: Option<u64>| bytes.map_or("-".to_owned(), |bytes| Bytes(bytes).to_string());
    writeln!(
        out,
        "{:32}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}{:>14}{:>12}  CONFIDENCE",
        "SERVICE", "LIMIT NOW", "LIMIT", "WITH SWAP", "REQUEST", "WSS P50", "IDLE 1h", "HOT, NO HUGE", "GROWTH/DAY"
    )?;
    for one in advice {
        let confidence = match one.confidence {
            Confidence::Withheld => "withheld",
            Confidence::Low => "low",
            Confidence::Medium => "medium",
            Confidence::High => "high",
        };
        writeln!(
            out,
            "{:32}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}{:>14}{:>12}  {confidence}: {}",
            human::printable(&one.service),
            shown(one.evidence.limit_bytes),
            shown(one.limit_bytes),
            shown(one.limit_with_swap_bytes),
            shown(one.request_bytes),
            shown(Some(one.evidence.wss_10m_p50_bytes)),
            shown(Some(one.evidence.idle_1h_bytes)),
            shown(one.hot_not_huge_bytes),
            shown(one.growth_bytes_per_day),
            one.because
        )?;
    }
    out.flush()?;
    Ok(())
}
