//! What a day of one host costs to ship: a modelled day of snapshots through the stream's reader, the rollup, the spool and a local store.
//!
//! The snapshots are those of the services of `isotherm-fleet-model`, each of them as several processes. They are made and encoded
//! before they are timed. CPU time is that of the whole process in between: decoding, adding up, Parquet, and writing and syncing files. A
//! remote store costs TLS and HTTP too, which this does not have.
//!
//! usage: day [--window-s N] [--every-s N] [--processes N] [--hours N]

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use isotherm_fleet_model::catalog::SERVICES;
use isotherm_fleet_model::service::Running;
use isotherm_rollup::Host;
use isotherm_rollup::service::Rules;
use isotherm_ship::plan::{Moment, Planner, Settings};
use isotherm_ship::rows::Rows;
use isotherm_ship::shipper::{HOUR_NS, Shipper};
use isotherm_ship::spool::Spool;
use isotherm_ship::store::{self, Store, To};
use isotherm_stream::{HostRow, Message, Reader, Snapshot, encode, header};
use rustix::time::{ClockId, clock_gettime};
use std::path::Path;
use std::time::Duration;

/// 2026-11-24 00:00:00 UTC.
const DAY_S: u64 = 1_795_478_400;
const SECOND_NS: u64 = 1_000_000_000;

#[derive(Debug, Parser)]
struct Args {
    /// The time between two snapshots, seconds
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=300))]
    window_s: u64,
    /// Snapshots that come more often than this are joined, seconds
    #[arg(long, default_value_t = 60)]
    every_s: u64,
    /// Processes on the host
    #[arg(long, default_value_t = 15)]
    processes: u32,
    /// Hours to replay; figures are scaled to a day
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u64).range(1..=24))]
    hours: u64,
}

/// The host and its clock.
struct Model {
    services: Vec<Running>,
    window_s: u64,
}

impl Model {
    fn new(args: &Args) -> Model {
        let service = |(number, template)| Running::new(template, u64::from(number), 1000 + number, seconds(DAY_S));
        let services = (0..args.processes).zip(SERVICES.iter().cycle()).map(service).collect();
        Model { services, window_s: args.window_s }
    }

    /// The window that ends so many seconds after the start of the day.
    fn snapshot(&mut self, end_s: u64) -> Snapshot {
        let end_unix_ns = (DAY_S + end_s) * SECOND_NS;
        let host = HostRow {
            start_unix_ns: end_unix_ns - self.window_s * SECOND_NS,
            end_unix_ns,
            hostname: "node".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            source: "page-table".into(),
            kernel: "6.12".into(),
            cpus: 32,
            memory_bytes: 128 << 30,
            elapsed_ns: end_s * SECOND_NS,
            monitor_cpu_ns: end_s * SECOND_NS / 100,
            slowdown_pct: 0.8,
            ..HostRow::default()
        };
        let mut snapshot = Snapshot { host, ..Snapshot::default() };
        for service in &mut self.services {
            service.advance(seconds(DAY_S + end_s));
            service.add_to(&mut snapshot, seconds(DAY_S + end_s), seconds(self.window_s));
        }
        snapshot
    }
}

#[expect(clippy::cast_precision_loss, reason = "seconds of this century")]
fn seconds(s: u64) -> f64 {
    s as f64
}

/// A shipper to a folder, on the clock of the model.
struct Shipping {
    shipper: Shipper<Rows>,
    store: Store,
    runtime: tokio::runtime::Runtime,
    cpu: Cpu,
}

/// CPU time of the process by what it was for, nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Cpu {
    /// Reading snapshots from the stream.
    reading: u64,
    /// Adding them up, and the rows of five minutes: Parquet, the spool.
    adding: u64,
    /// Objects of an hour, and puts.
    sending: u64,
}

impl Shipping {
    fn new(folder: &Path, every_s: u64) -> Result<Shipping> {
        let host = Host::new("0123456789abcdef0123456789abcdef", "node", "11111111222243338444555555555555");
        let spool = Spool::open(&folder.join("spool"), 256 << 20)?;
        let store =
            Store::open(&To::Folder(folder.join("store")), &store::Settings::default(), Duration::from_secs(60))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let plan = Settings {
            spread: Duration::from_secs(600),
            concurrency: 2,
            backoff: Duration::from_secs(2),
            max_backoff: Duration::from_secs(600),
        };
        let now = Moment { mono_ns: 0, wall_ns: DAY_S * SECOND_NS };
        let shipper = Shipper::new(
            Rows::new(host, Rules::default(), 0, Duration::from_secs(every_s)),
            spool,
            Planner::new(plan, 1 << 63),
            1,
            now,
        );
        Ok(Shipping { shipper, store, runtime, cpu: Cpu::default() })
    }

    /// What the program does with the bytes of a snapshot.
    fn take(&mut self, bytes: &[u8], now: Moment) -> Result<()> {
        let began = cpu_now();
        let message = Reader::new(bytes).next()?;
        let read = cpu_now();
        let Some(Message::Snapshot(snapshot)) = message else { bail!("no snapshot came back") };
        self.shipper.snapshot(*snapshot, now);
        self.cpu.reading += read - began;
        self.cpu.adding += cpu_now() - read;
        self.pass(now)
    }

    fn pass(&mut self, now: Moment) -> Result<()> {
        let began = cpu_now();
        self.shipper.tick(now);
        for (id, bytes) in self.shipper.to_send(now) {
            let put = self.runtime.block_on(self.store.put(&id.path, bytes));
            self.shipper.put(&id, put, now);
        }
        self.cpu.sending += cpu_now() - began;
        let notes: Vec<String> = self.shipper.notes().into_iter().map(|(_, note)| note).collect();
        ensure!(notes.is_empty(), "the shipper complained: {}", notes.join("; "));
        Ok(())
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    let folder = tempfile::tempdir().context("make a folder")?;
    let mut model = Model::new(&args);
    let mut shipping = Shipping::new(folder.path(), args.every_s)?;
    let (mut received, mut regions) = (0, 0);
    for end_s in (args.window_s..=args.hours * 3600).step_by(usize::try_from(args.window_s)?) {
        let snapshot = model.snapshot(end_s);
        regions = snapshot.regions.len();
        let bytes = [header().to_vec(), encode(&snapshot)?].concat();
        received += bytes.len() as u64;
        shipping.take(&bytes, Moment { mono_ns: end_s * SECOND_NS, wall_ns: (DAY_S + end_s) * SECOND_NS })?;
    }
    // The last hour is over, and its objects are due.
    for minutes in 1..=90 {
        let after_ns = args.hours * HOUR_NS + minutes * 60 * SECOND_NS;
        shipping.pass(Moment { mono_ns: after_ns, wall_ns: DAY_S * SECOND_NS + after_ns })?;
    }
    ensure!(shipping.shipper.is_idle(), "something still waits");
    let (objects, bytes) = objects_below(&folder.path().join("store"))?;
    let counts = shipping.shipper.counts();
    ensure!(
        (counts.sent_objects, counts.sent_bytes) == (objects, bytes),
        "sent {counts:?}, and {objects} objects of {bytes} bytes are there"
    );
    report(&args, (shipping.cpu, objects, bytes), (received, regions));
    Ok(())
}

fn report(args: &Args, (cpu, objects, bytes): (Cpu, u64, u64), (received, regions): (u64, usize)) {
    let a_day = |n: u64| seconds(n) * 24.0 / seconds(args.hours);
    println!(
        "{} hours, a snapshot every {} s of {} processes with {regions} regions, {:.0} kB each",
        args.hours,
        args.window_s,
        args.processes,
        seconds(received) / seconds(args.hours * 3600 / args.window_s) / 1e3,
    );
    let cpu_ns = cpu.reading + cpu.adding + cpu.sending;
    let (cpu_s, puts, bytes) = (a_day(cpu_ns) / 1e9, a_day(objects), a_day(bytes));
    for (name, ns) in
        [("reading the stream", cpu.reading), ("adding up, and rows", cpu.adding), ("objects and puts", cpu.sending)]
    {
        println!("{name}: {:.2} s a day", a_day(ns) / 1e9);
    }
    let missed = |is: f64, aim: f64| if is <= aim { "" } else { ", missed" };
    println!("{cpu_s:.2} s of CPU time a day (aim 5{})", missed(cpu_s, 5.0));
    println!("{puts:.0} puts a day (aim 200{})", missed(puts, 200.0));
    println!("{:.2} MB a day (aim 5{})", bytes / 1e6, missed(bytes, 5e6));
    println!("RESULT upload_cpu_s_per_host_day={cpu_s:.2} puts_per_host_day={puts:.0} bytes_per_host_day={bytes:.0}");
}

/// CPU time of this process.
fn cpu_now() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * SECOND_NS + u64::try_from(time.tv_nsec).unwrap_or(0)
}

fn objects_below(folder: &Path) -> Result<(u64, u64)> {
    let (mut objects, mut bytes) = (0, 0);
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            let below = objects_below(&entry.path())?;
            (objects, bytes) = (objects + below.0, bytes + below.1);
        } else {
            (objects, bytes) = (objects + 1, bytes + entry.metadata()?.len());
        }
    }
    Ok((objects, bytes))
}
