//! `isotherm rollup`: what a fleet keeps of a recording, as Parquet objects in a directory.
//!
//! [`isotherm_rollup`] makes the rows and the objects. Here a recording is read snapshot by snapshot, and objects are stored as hours end, so
//! memory does not grow with the recording. [`store`] puts each object at its path if nothing is there: a recording that is rolled up
//! twice is there once.

mod store;

use crate::commands::plan::Plan;
use crate::input;
use crate::output;
use crate::privileges::Needs;
use crate::sandbox;
use anyhow::{Context, Result, bail};
use clap::Args;
use isotherm_rollup::{Host, Object, Options, Rollup, Rules};
use isotherm_stream::Snapshot;
use isotherm_units::Bytes;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use store::Stored;

/// The longest settings file that is read.
const MAX_SETTINGS: Bytes = Bytes(1 << 20);

#[derive(Debug, Args)]
pub struct RollupArgs {
    /// Recording to read
    #[arg(value_name = "RECORDING", default_value = input::DEFAULT_RECORDING)]
    pub recording: PathBuf,
    /// Directory to write objects into, at v1/TABLE/date=YYYY-MM-DD/hour=HH/NAME.parquet; what is there already stays
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
    /// Name of the host that was recorded [default: this host, by its name and its machine id]
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// Machine id of the host that was recorded, as in its /etc/machine-id; only a key that is made from it is written
    #[arg(long, value_name = "ID", requires = "host", value_parser = machine_id)]
    pub machine_id: Option<String>,
    /// Take names and labels of services from this settings file, from its tables named service
    #[arg(long, value_name = "FILE")]
    pub settings: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl Plan for RollupArgs {
    fn needs(&self) -> Needs {
        Needs::Files
    }

    fn run(&self) -> Result<()> {
        run(self)
    }
}

/// What was done.
#[derive(Debug, Default, Serialize)]
struct Report {
    host: String,
    hostname: String,
    snapshots: u64,
    objects: Vec<ObjectReport>,
}

/// An object.
#[derive(Debug, Serialize)]
struct ObjectReport {
    table: &'static str,
    path: String,
    rows: usize,
    bytes: usize,
    stored: Stored,
}

impl Report {
    /// Fails if the store has other rows of the same hours: nothing is changed there.
    fn check(&self, dir: &Path) -> Result<()> {
        let differ: Vec<&ObjectReport> =
            self.objects.iter().filter(|object| object.stored == Stored::Differs).collect();
        let Some(first) = differ.first() else { return Ok(()) };
        bail!(
            "{} of {} objects are in {} already with other rows, and were left as they are: of a recording that had not ended yet, or with other --settings. \
             Remove them there to have these ({} is the first)",
            differ.len(),
            self.objects.len(),
            dir.display(),
            first.path
        );
    }
}

fn run(args: &RollupArgs) -> Result<()> {
    let host = host(args);
    let settings: Vec<&Path> = args.settings.iter().map(PathBuf::as_path).collect();
    sandbox::files_only(&[&[args.recording.as_path()], settings.as_slice()].concat(), &[&args.to]);
    let rules = args.settings.as_deref().map(rules).transpose()?.unwrap_or_default();
    let recording = input::open(&args.recording)?;
    if recording.is_empty() {
        bail!("roll up {}: it has no snapshots; was it stopped before its first window?", args.recording.display());
    }
    let mut report = Report { host: host.key.clone(), hostname: host.hostname.clone(), ..Report::default() };
    let mut rollup = Rollup::new(host, rules, Options { grace_ns: 0, ..Options::default() });
    let bar = output::counting(recording.len() as u64, "rolling up");
    for snapshot in recording.snapshots().undamaged(input::note_skipped) {
        let snapshot = Snapshot::of(recording.run(), &snapshot?);
        rollup.push(&snapshot);
        put(&args.to, rollup.take_closed(snapshot.host.end_unix_ns)?, &mut report)?;
        report.snapshots += 1;
        bar.inc(1);
    }
    put(&args.to, rollup.finish()?, &mut report)?;
    bar.finish_and_clear();
    if args.json {
        output::json(&report)?
    } else {
        text(&report, &args.to)?
    }
    report.check(&args.to)
}

/// One that is mistyped would be taken for none, and hosts of one name for one host.
fn machine_id(text: &str) -> Result<String, String> {
    if Host::is_machine_id(text) { Ok(text.to_owned()) } else { Err("it has 32 hexadecimal digits".into()) }
}

/// Whose recording it is. Without a name, ours.
fn host(args: &RollupArgs) -> Host {
    // The boot of a recording is not known.
    if let Some(name) = &args.host {
        return Host::new(args.machine_id.as_deref().unwrap_or_default(), name, "");
    }
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    Host::new(&fs::read_to_string("/etc/machine-id").unwrap_or_default(), &name, "")
}

fn rules(path: &Path) -> Result<Rules> {
    let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
    let text = input::short_text(file, path, MAX_SETTINGS)?;
    Rules::from_toml(&text).with_context(|| format!("use {}", path.display()))
}

fn put(dir: &Path, objects: Vec<Object>, report: &mut Report) -> Result<()> {
    for object in objects {
        let stored = store::put(dir, &object)?;
        report.objects.push(ObjectReport {
            table: object.table.name(),
            rows: object.rows,
            bytes: object.bytes.len(),
            path: object.path,
            stored,
        });
    }
    Ok(())
}

fn text(report: &Report, dir: &Path) -> Result<()> {
    let mut tables: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    for object in &report.objects {
        let sums = tables.entry(object.table).or_default();
        sums.iter_mut().zip([1, object.rows, object.bytes]).for_each(|(sum, more)| *sum += more);
    }
    let mut out = output::stdout();
    writeln!(out, "{:18}{:>8}{:>10}{:>12}", "TABLE", "OBJECTS", "ROWS", "SIZE")?;
    for (table, [objects, rows, bytes]) in tables {
        writeln!(out, "{table:18}{objects:>8}{rows:>10}{:>12}", Bytes(bytes as u64).to_string())?;
    }
    out.flush()?;
    let present = report.objects.iter().filter(|object| object.stored == Stored::Present).count();
    let (all, snapshots) = (report.objects.len(), report.snapshots);
    output::note(format_args!(
        "{snapshots} snapshots of {} in {all} objects below {}; {present} of them were there already",
        report.hostname,
        dir.display()
    ));
    Ok(())
}
