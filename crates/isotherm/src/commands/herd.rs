//! `isotherm herd`: when the kernel's housekeeping runs on each CPU, whether CPUs meet on zone locks, and what to do.
//!
//! Watches through [`isotherm_sys::herd`], which says what is seen and how; what follows from it is worked out and shown by
//! [`isotherm_view::herd`], which is pure. Here is only the time between: a duration, ended early by Ctrl-C.

use crate::args::color::ColorArgs;
use crate::args::values::positive_duration_ns;
use crate::commands::plan::Plan;
use crate::output;
use crate::privileges::Needs;
use crate::watch::Stop;
use anyhow::Result;
use clap::Args;
use isotherm_sys::clock;
use isotherm_sys::herd::{self, Machine, Observer, Spinlocks, Symbols};
use isotherm_sys::host::{Area, Finding, HostRoots, State};
use isotherm_view::herd::{Cause, HerdReport, Observed, Run, Told, Wait, Waits};
use std::io::Write;
use std::time::Duration;

const MS: u64 = 1_000_000;
/// Runs are taken in, and signals heard, this often.
const TICK: Duration = Duration::from_millis(100);

#[derive(Debug, Args)]
pub struct HerdArgs {
    /// How long to watch; Ctrl-C ends it early, with what was seen
    #[arg(short, long, value_name = "TIME", default_value = "10s", value_parser = positive_duration_ns)]
    pub duration: u64,
    /// Columns to draw in [default: those of the terminal, or 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(20..))]
    pub width: Option<u16>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub color: ColorArgs,
}

impl Plan for HerdArgs {
    fn needs(&self) -> Needs {
        Needs::Watching
    }

    fn run(&self) -> Result<()> {
        run(self)
    }
}

fn run(args: &HerdArgs) -> Result<()> {
    let stop = Stop::on_signals()?.or_when_unread()?;
    let symbols = herd::symbols()?;
    let machine = Machine::read(&HostRoots::default());
    let mut observer = Observer::open(&symbols)?;
    let seen = watch(&mut observer, machine, &symbols, args.duration, &stop)?;
    let report = HerdReport::of(&seen);
    if args.json {
        return output::json(&report);
    }
    let mut style = output::terminal_style(args.color);
    if let Some(width) = args.width {
        style.text.width = usize::from(width);
    }
    let mut out = output::stdout();
    report.write_text(&mut out, &style)?;
    out.flush()?;
    Ok(())
}

fn watch(
    observer: &mut Observer,
    machine: Machine,
    symbols: &Symbols,
    duration_ns: u64,
    stop: &Stop,
) -> Result<Observed> {
    let from_ns = clock::monotonic_ns();
    let bar = output::progress(Some(duration_ns), "watching housekeeping");
    let (mut runs, mut shepherds) = (Vec::new(), 0);
    loop {
        let passed = clock::monotonic_ns() - from_ns;
        if passed >= duration_ns || stop.is_set() {
            break;
        }
        bar.set_position(passed / MS);
        std::thread::sleep(TICK.min(Duration::from_nanos(duration_ns - passed)));
        let more = observer.drain()?;
        runs.extend(more.updates.into_iter().map(told_run));
        shepherds += more.shepherds.len() as u64;
    }
    bar.finish_and_clear();
    let waits = match observer.unseen() {
        Some(why) => Err(why.to_owned()),
        None => Ok(told_waits(observer.waits()?, symbols, machine.spinlocks)),
    };
    Ok(Observed {
        from_ns,
        to_ns: clock::monotonic_ns(),
        online: machine.online,
        isolated: machine.isolated,
        // What it is unless it was changed; only kernels without a table of settings do not say.
        interval_s: machine.interval_s.unwrap_or(1),
        runs,
        shepherds,
        lost_runs: observer.lost_runs(),
        waits,
    })
}

fn told_run(run: herd::Run) -> Run {
    let cause = match run.cause {
        herd::Cause::Timer => Cause::Timer,
        herd::Cause::Shepherd => Cause::Shepherd,
        herd::Cause::Unknown => Cause::Unknown,
    };
    Run { cpu: run.cpu, start_ns: run.start_ns, end_ns: run.end_ns, jiffies: run.jiffies, cause }
}

fn told_waits(waits: herd::Waits, symbols: &Symbols, spinlocks: Spinlocks) -> Waits {
    let name = |address: &u64| symbols.function(*address).map_or_else(|| format!("{address:#x}"), str::to_owned);
    let told = |wait: herd::Wait| Wait {
        functions: wait.stack.iter().map(name).collect(),
        node: wait.node,
        zone: wait.zone,
        updating: wait.updating,
        beside: wait.beside,
        count: wait.count,
        total_ns: wait.total_ns,
        max_ns: wait.max_ns,
    };
    Waits {
        by_place: waits.by_caller.into_iter().map(told).collect(),
        spins: waits.spins,
        lost: waits.lost,
        told: match spinlocks {
            Spinlocks::Queued => Told::NotTheFirst,
            Spinlocks::Paravirtual => Told::Every,
            Spinlocks::TestAndSet => Told::Nobody,
            Spinlocks::Unknown => Told::Unknown,
        },
    }
}

/// Whether it works here, for `isotherm doctor`: it is tried, which takes about 100 ms and changes nothing.
pub fn finding() -> Finding {
    let opened = herd::symbols().and_then(|symbols| Observer::open(&symbols));
    let (state, detail) = match &opened {
        Ok(observer) => {
            let waits = match observer.unseen() {
                Some(why) => format!("waits for zone locks are not seen: {why}"),
                None => match Machine::read(&HostRoots::default()).spinlocks {
                    Spinlocks::Queued => "waits for zone locks, but for the first waiter of each".to_owned(),
                    Spinlocks::Paravirtual => "waits for zone locks".to_owned(),
                    Spinlocks::TestAndSet => "no waits for zone locks: this guest's locks have no queue".to_owned(),
                    Spinlocks::Unknown => "waits for zone locks, as far as they are told".to_owned(),
                },
            };
            (State::Present, format!("isotherm herd sees housekeeping of per-CPU sets, and {waits}"))
        }
        Err(error) => (State::Absent, format!("isotherm herd: {error}")),
    };
    Finding { area: Area::Memory, name: "herd", state, detail, advice: String::new() }
}
