//! `isotherm zone-lock`: when `vmstat_update` runs on each CPU, whether CPUs contend for zone locks, and what to do about it.
//!
//! [`isotherm_bpf::vmstat`] observes the kernel. [`isotherm_vmstat`] analyses the result and [`isotherm_view::vmstat`] draws it; both are
//! pure. This module only sets for how long to observe: for a duration, which Ctrl-C ends early.

use crate::args::color::ColorArgs;
use crate::args::values::positive_duration_ns;
use crate::commands::plan::Plan;
use crate::output;
use crate::privileges::Needs;
use crate::sandbox::Uses;
use crate::watch::Stop;
use anyhow::Result;
use clap::Args;
use isotherm_bpf::vmstat::{Machine, Observer, Symbols, symbols};
use isotherm_host::{Area, Finding, State};
use isotherm_sys::clock;
use isotherm_vmstat::{Observed, Runs, SeenWaiters, VmstatReport};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

const MS: u64 = 1_000_000;
/// How often runs are read and signals are checked.
const TICK: Duration = Duration::from_millis(100);

#[derive(Debug, Args)]
pub struct ZoneLockArgs {
    /// How long to watch; Ctrl-C ends it early, with the results so far
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

impl Plan for ZoneLockArgs {
    fn needs(&self) -> Needs {
        Needs::Watching
    }

    fn run(&self) -> Result<()> {
        run(self)
    }
}

fn run(args: &ZoneLockArgs) -> Result<()> {
    let stop = Stop::on_signals()?.or_on_closed_output()?;
    let symbols = symbols()?;
    let machine = this_machine();
    let mut observer = Observer::open(&symbols)?;
    Uses::nothing().bpf_maps().enter();
    let seen = watch(&mut observer, machine, &symbols, args.duration, &stop)?;
    let report = VmstatReport::of(&seen);
    if args.json {
        return output::json(&report);
    }
    let mut style = output::terminal_style(args.color);
    if let Some(width) = args.width {
        style.text.width = usize::from(width);
    }
    let mut out = output::stdout();
    isotherm_view::vmstat::write_text(&report, &mut out, &style)?;
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
    let bar = output::progress(Some(duration_ns), "watching vmstat_update");
    let mut runs = Runs::default();
    loop {
        let passed = clock::monotonic_ns() - from_ns;
        if passed >= duration_ns || stop.is_set() {
            break;
        }
        bar.set_position(passed / MS);
        std::thread::sleep(TICK.min(Duration::from_nanos(duration_ns - passed)));
        runs.extend(observer.drain()?);
    }
    bar.finish_and_clear();
    let waits = match observer.unseen() {
        Some(why) => Err(why.to_owned()),
        None => Ok(observer.waits(symbols, machine.seen)?),
    };
    Ok(Observed {
        from_ns,
        to_ns: clock::monotonic_ns(),
        online: machine.online,
        isolated: machine.isolated,
        // 1 s is the kernel's default. Only kernels without sysctls do not report the interval.
        interval_s: machine.interval_s.unwrap_or(1),
        runs,
        lost_runs: observer.lost_runs(),
        waits,
    })
}

fn this_machine() -> Machine {
    Machine::read(Path::new("/proc"), Path::new("/sys"))
}

/// Whether this works here, for `isotherm doctor`. Tries it, which takes about 100 ms and changes nothing.
pub fn finding() -> Finding {
    let opened = symbols().and_then(|symbols| Observer::open(&symbols));
    let (state, detail) = match &opened {
        Ok(observer) => {
            let waits = match observer.unseen() {
                Some(why) => format!("waits for zone locks cannot be observed: {why}"),
                None => match this_machine().seen {
                    SeenWaiters::NotTheFirst => "waits for zone locks, except for the first waiter of each".to_owned(),
                    SeenWaiters::Every => "waits for zone locks".to_owned(),
                    SeenWaiters::Nobody => "no waits for zone locks: this guest's locks have no queue".to_owned(),
                    SeenWaiters::Unknown => "waits for zone locks, as far as the kernel reports them".to_owned(),
                },
            };
            (State::Present, format!("isotherm zone-lock observes the drain of pcp lists, and {waits}"))
        }
        Err(error) => (State::Absent, format!("isotherm zone-lock: {error}")),
    };
    Finding { area: Area::Memory, name: "zone-lock", state, detail, advice: String::new() }
}
