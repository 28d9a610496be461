//! `isotherm events`: which events report accesses on this machine, and how useful one of them is for a running process.

use crate::args::source::ClearArg;
use crate::args::targets::TargetArgs;
use crate::args::usage::Usage;
use crate::args::values::{percent, positive_duration_ns};
use crate::commands::plan::Plan;
use crate::output;
use crate::privileges::Needs;
use crate::request;
use crate::sandbox::Uses;
use crate::watch::{CommandOutput, Started, Stop, selection};
use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use isotherm_heat::Ns;
use isotherm_heat::source::{AccessSource, ReportSource, SourceErrorKind};
use isotherm_host::HostRoots;
use isotherm_host::events::{self, Candidate, Kind, NamedEvent, PmuEvent};
use isotherm_monitor::{Follower, Selection};
use isotherm_sources::perf::{self, Evidence, Options, Perf, Tried, Verdict};
use isotherm_sys::clock;
use isotherm_sys::perf::Rate;
use isotherm_sys::proc::Proc;
use isotherm_view::human;
use serde::Serialize;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::time::Duration;

const MS: Ns = 1_000_000;
/// Mappings are listed this often, or less often, so that it takes at most one part in `LAYOUT_SHARE` of the time.
const LAYOUT_PAUSE: Ns = 500 * MS;
const LAYOUT_SHARE: u64 = 20;
/// How often processes are listed and samples are read.
const TICK: Duration = Duration::from_millis(100);

#[derive(Debug, Args)]
pub struct EventsArgs {
    #[command(subcommand)]
    pub what: EventsCommand,
}

#[derive(Debug, Subcommand)]
pub enum EventsCommand {
    /// The events that report accesses, and which of them this machine has
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Sample an event of running processes for some seconds: its rate, the share of useful samples, its cost
    Try(TryArgs),
}

#[derive(Debug, Args)]
pub struct TryArgs {
    /// The event: a name from `list`, PMU/term=value,.../ or `raw:TYPE:CONFIG[:CONFIG1[:CONFIG2[:CONFIG3]]]`
    pub event: String,
    /// How long
    #[arg(short, long, value_name = "TIME", default_value = "5s", value_parser = positive_duration_ns)]
    pub duration: u64,
    /// One sample every N events [default: depends on the event]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "sample_frequency")]
    pub sample_period: Option<u64>,
    /// Samples per second and processor
    #[arg(long, value_name = "HZ", value_parser = clap::value_parser!(u64).range(1..))]
    pub sample_frequency: Option<u64>,
    /// What interrupts may take of a core; over 100 lifts the limit
    #[arg(long, value_name = "PERCENT", default_value = "1", value_parser = percent)]
    pub max_slowdown: f64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub targets: TargetArgs,
}

impl EventsArgs {
    /// Returns the command. Fails if `try` has no targets.
    pub fn plan(self) -> Result<EventsCommand, Usage> {
        match &self.what {
            EventsCommand::Try(args) if args.targets.is_empty() => {
                Err(Usage("name processes to try it on: -p PID, --cgroup PATH, --all, or -- COMMAND".into()))
            }
            _ => Ok(self.what),
        }
    }
}

impl Plan for EventsCommand {
    fn needs(&self) -> Needs {
        match self {
            EventsCommand::List { .. } => Needs::Watching,
            EventsCommand::Try(args) => args.targets.needs(),
        }
    }

    fn run(&self) -> Result<()> {
        match self {
            EventsCommand::List { json } => list(*json),
            EventsCommand::Try(args) => try_event(args),
        }
    }
}

/// An event and its state on this machine.
#[derive(Serialize)]
struct Listed {
    name: String,
    what: String,
    state: &'static str,
    /// The numbers to open it with, one for each PMU that has it; or what is missing.
    detail: String,
}

/// Lists all candidate events.
pub fn list(json: bool) -> Result<()> {
    let listed: Vec<Listed> = events::list(&HostRoots::default()).into_iter().map(describe).collect();
    if json {
        return output::json(&listed);
    }
    let mut out = output::stdout();
    let width = listed.iter().map(|l| l.name.len()).max().unwrap_or(0);
    for l in &listed {
        writeln!(out, "{:<width$}  {:<11} {}", l.name, l.state, l.what)?;
        writeln!(out, "{:<width$}  {:<11} {}", "", "", human::printable(&l.detail))?;
    }
    writeln!(out, "\nTry one: isotherm events try EVENT -p PID")?;
    out.flush()?;
    Ok(())
}

fn describe(candidate: Candidate) -> Listed {
    let (name, what) = (candidate.name.to_string(), candidate.what.to_string());
    let event = match candidate.found {
        Ok(event) => event,
        Err(error) => return Listed { name, what, state: "absent", detail: error.to_string() },
    };
    if event.kind == Kind::Spe {
        return Listed { name, what, state: "not decoded", detail: numbers(&event) };
    }
    let options = Options { events: vec![name.clone()], ..Options::default() };
    let roots = HostRoots::default();
    // The files only show that it should work. Sampling our own accesses shows whether it does.
    let tried = match perf::choose(&roots, &options, false) {
        Ok(chosen) => perf::try_out(&roots, &chosen, false),
        Err(error) => Tried::Useless(error.to_string()),
    };
    let numbers = numbers(&event);
    match tried {
        Tried::Works => Listed { name, what, state: "works", detail: numbers },
        Tried::Silent => Listed {
            name,
            what,
            state: "opens",
            detail: format!("{numbers}; our own accesses do not trigger it, so it could not be verified"),
        },
        Tried::Useless(error) => Listed { name, what, state: "refused", detail: format!("{numbers}; {error}") },
    }
}

fn numbers(event: &NamedEvent) -> String {
    let part = |p: &PmuEvent| {
        let leader = p.leader.map(|l| format!(" behind {l}")).unwrap_or_default();
        format!("{}: {}{leader}", p.pmu, p.event)
    };
    event.parts.iter().map(part).collect::<Vec<_>>().join(", ")
}

/// The result of trying an event.
#[derive(Serialize)]
struct Outcome {
    event: String,
    source_note: String,
    seconds: f64,
    processes: usize,
    /// CPU time of the processes, percent of one core.
    target_cpu_pct: f64,
    events_per_s: f64,
    samples_per_s: f64,
    /// Shares of the samples of these processes.
    in_mappings_pct: f64,
    outside_pct: f64,
    kernel_pct: f64,
    no_address_pct: f64,
    no_access_pct: f64,
    lost: u64,
    /// Distinct pages that were sampled.
    pages: usize,
    /// Our CPU time for reading samples and managing the event, percent of one core.
    reading_cpu_pct: f64,
    /// CPU time that interrupts take from the processes, at the published cost of each.
    slowdown_pct: f64,
    verdict: &'static str,
    advice: String,
}

fn try_event(args: &TryArgs) -> Result<()> {
    let stop = Stop::on_signals()?.or_on_closed_output()?;
    let rate = args.sample_period.map(Rate::Period).or(args.sample_frequency.map(Rate::Frequency));
    let options = Options {
        events: vec![args.event.clone()],
        rate,
        over: request::over(&args.targets),
        max_slowdown_pct: args.max_slowdown,
        ..Options::default()
    };
    let mut perf = Perf::open(&options)?;
    let started = Started::of(&args.targets.command, CommandOutput::OnStderr)?;
    let of_command =
        || Selection::Pids { pids: started.iter().map(Started::pid).collect(), children: !args.targets.no_children };
    let mut follower = Follower::new(&selection(&args.targets).unwrap_or_else(of_command), Proc::default())?;
    let uses = Uses::of_source("perf", ClearArg::Auto).perf_events();
    if started.is_some() { uses.ending_a_command() } else { uses }.enter();
    let mut trial = Trial::new(&mut perf);
    let bar = output::progress(Some(args.duration), "trying it");
    let began = clock::monotonic_ns();
    while clock::monotonic_ns() < began + args.duration && !stop.is_set() {
        trial.step(&mut follower)?;
        bar.set_position((clock::monotonic_ns() - began) / MS);
        std::thread::sleep(TICK);
    }
    trial.step(&mut follower)?;
    bar.finish_and_clear();
    let tried = trial.result(&args.event, clock::monotonic_ns() - began);
    output::report(args.json, &tried, |out| Ok(tried.write_text(out)?))
}

/// Processes that are sampled for a while.
struct Trial<'a> {
    perf: &'a mut Perf,
    attached: BTreeSet<u32>,
    pages: BTreeSet<u64>,
    /// Processes that cannot be sampled.
    refused: BTreeSet<u32>,
    cpu_ns: u64,
    next_layout: Ns,
}

impl<'a> Trial<'a> {
    fn new(perf: &'a mut Perf) -> Trial<'a> {
        Trial {
            perf,
            attached: BTreeSet::new(),
            pages: BTreeSet::new(),
            refused: BTreeSet::new(),
            cpu_ns: 0,
            next_layout: 0,
        }
    }

    fn step(&mut self, follower: &mut Follower) -> Result<()> {
        for pid in follower.current()? {
            if self.attached.contains(&pid) {
                continue;
            }
            match self.perf.attach(pid) {
                Ok(_) => {
                    self.attached.insert(pid);
                }
                Err(error) if follower.was_named(pid) => return Err(error).context("sample it"),
                // A kernel thread, or a process that has just ended.
                Err(error) if error.is_gone() => {}
                Err(error) => {
                    if self.refused.insert(pid) {
                        output::note(format_args!("process {pid} is skipped: {error}"));
                    }
                }
            }
        }
        self.refresh_layouts();
        for pid in self.attached.clone() {
            let began = clock::thread_cpu_ns();
            self.perf.accesses(pid, &mut |access| {
                self.pages.insert(access.page.0);
            })?;
            self.cpu_ns += clock::thread_cpu_ns() - began;
        }
        for sentence in self.perf.news() {
            output::note(sentence);
        }
        Ok(())
    }

    /// Reads the mappings of the processes, so that sampled addresses can be classified. Rate-limited, because it is expensive.
    fn refresh_layouts(&mut self) {
        let now = clock::monotonic_ns();
        if now < self.next_layout {
            return;
        }
        for pid in self.attached.clone() {
            // One that has ended keeps its samples, and one that executes another program has other mappings.
            if let Err(error) = self.perf.layout(pid)
                && error.kind() == SourceErrorKind::Replaced
            {
                self.attach_again(pid);
            }
        }
        // The CPU time of a process can be read while it is there.
        self.perf.evidence();
        self.next_layout = now + LAYOUT_PAUSE.max((clock::monotonic_ns() - now) * LAYOUT_SHARE);
    }

    fn attach_again(&mut self, pid: u32) {
        self.perf.detach(pid);
        if self.perf.attach(pid).is_ok() {
            let _ = self.perf.layout(pid);
        } else {
            // The next step tries again.
            self.attached.remove(&pid);
        }
    }

    fn result(&mut self, event: &str, took: Ns) -> Outcome {
        let evidence = Evidence { observed_ns: took, ..self.perf.evidence() };
        let seconds = took as f64 / 1e9;
        let of_all = |n: u64| 100.0 * n as f64 / evidence.samples().max(1) as f64;
        let reports = self.perf.reports();
        let samples_per_s = evidence.samples() as f64 / seconds;
        let (verdict, advice) = match evidence.verdict() {
            Verdict::Useful => ("useful", String::new()),
            Verdict::TooEarly => ("too-early", "try for longer, or while the processes are busy".to_owned()),
            Verdict::Useless(why) => (why.name(), format!("{why}; {}", why.advice())),
        };
        Outcome {
            event: event.to_owned(),
            source_note: self.perf.describe().note,
            seconds,
            processes: self.attached.len(),
            target_cpu_pct: 100.0 * evidence.target_cpu_ns as f64 / took.max(1) as f64,
            events_per_s: reports.events as f64 / seconds,
            samples_per_s,
            in_mappings_pct: of_all(evidence.inside),
            outside_pct: of_all(evidence.outside),
            kernel_pct: of_all(evidence.kernel),
            no_address_pct: of_all(evidence.no_address),
            no_access_pct: of_all(evidence.no_access),
            lost: reports.lost,
            pages: self.pages.len(),
            reading_cpu_pct: 100.0 * self.cpu_ns as f64 / took.max(1) as f64,
            slowdown_pct: perf::cost_pct(samples_per_s),
            verdict,
            advice,
        }
    }
}

impl Outcome {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let shares = [
            (self.in_mappings_pct, "in mappings"),
            (self.outside_pct, "outside of them"),
            (self.kernel_pct, "of the kernel"),
            (self.no_address_pct, "without address"),
            (self.no_access_pct, "no access"),
        ];
        let shares: Vec<String> = shares
            .iter()
            .filter(|(pct, what)| *pct > 0.0 || *what == "in mappings")
            .map(|(pct, what)| format!("{}% {what}", human::percent(*pct)))
            .collect();
        let lost = if self.lost > 0 { format!(", {} lost", self.lost) } else { String::new() };
        writeln!(out, "event      {}", human::printable(&self.event))?;
        writeln!(out, "           {}", human::printable(&self.source_note))?;
        writeln!(
            out,
            "sampled    {:.1} s of {} process{}, which used {}% of a core",
            self.seconds,
            self.processes,
            if self.processes == 1 { "" } else { "es" },
            human::percent(self.target_cpu_pct)
        )?;
        writeln!(
            out,
            "rate       {:.0} events/s, {:.0} samples/s of these processes{lost}",
            self.events_per_s, self.samples_per_s
        )?;
        writeln!(out, "addresses  {}; {} distinct pages", shares.join(", "), self.pages)?;
        writeln!(
            out,
            "cost       {}% slow-down at {} ns a sample (published, not measured); reading takes {}% of a core",
            human::percent(self.slowdown_pct),
            perf::SAMPLE_NS,
            human::percent(self.reading_cpu_pct)
        )?;
        let advice = if self.advice.is_empty() { String::new() } else { format!(": {}", self.advice) };
        writeln!(out, "verdict    {}{advice}", self.verdict)
    }
}
