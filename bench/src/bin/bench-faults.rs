//! The cost of page-fault samples: a child that does little else than fault, in alternation sampled with a period of 1
//! and not sampled.
//!
//! The child touches each page of fresh anonymous memory and frees all of it, for a fixed number of passes a round. The
//! reader drains the rings every few milliseconds, and checks the address and the process of each sample. A round is
//! correct if each page was sampled once per pass, unless the kernel had no room, and if every event that the kernel
//! counted was either sampled or lost.
//!
//! This is the worst case: every event is a sample, and a fault is as cheap as faults get. With a longer period, the
//! child pays for fewer samples.

use anyhow::{Context, Result, ensure};
use isotherm_bench::{Log, median, spread, take_no_options};
use isotherm_sys::clock;
use isotherm_sys::memory::{Memory, PageSize};
use isotherm_sys::perf::{Event, Fields, Part, Rate, Record, Rings, Sampling, Totals, Whom};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

const FAULTING: &str = "--faulting";
const ROUNDS: usize = 15;
const MIB: u64 = 16;
const PAGES: u64 = MIB * 256;
/// Passes per round.
const PASSES: u64 = 50;
/// Room for the samples of one processor in about a second.
const RING_BYTES: usize = 8 << 20;
const DRAIN_EVERY: Duration = Duration::from_millis(5);

fn main() -> Result<()> {
    if std::env::args().nth(1).as_deref() == Some(FAULTING) {
        return fault();
    }
    take_no_options();
    let mut log = Log::new("bench-faults");
    let mut child = Child::start()?;
    let (mut plain, mut sampled) = (Vec::new(), Vec::new());
    child.round(None)?;
    for _ in 0..ROUNDS {
        plain.push(child.round(None)?);
        // Opened and closed outside the timed part.
        let mut rings = Rings::open(Path::new("/sys"), &parts(), &Whom::Process(child.process.id()), RING_BYTES)?;
        sampled.push(child.round(Some(&mut rings))?);
    }
    child.end()?;
    tell(&mut log, &plain, &sampled)?;
    log.finish()
}

fn parts() -> [Part; 2] {
    let fields = Fields::TID | Fields::TIME | Fields::ADDR | Fields::PERIOD;
    let part = |event| Part::everywhere(Sampling::new(event, Rate::Period(1), fields));
    [part(Event::MINOR_FAULTS), part(Event::MAJOR_FAULTS)]
}

/// One round.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    wall_ns: u64,
    child_cpu_ns: u64,
    reader_cpu_ns: u64,
    /// Samples of the child's pages.
    own: u64,
    totals: Totals,
}

const FAULTS: u64 = PAGES * PASSES;

impl Round {
    fn check(&self) -> Result<()> {
        let Totals { counted, samples, lost, malformed, .. } = self.totals;
        ensure!(malformed == 0, "{malformed} records could not be understood");
        ensure!(counted >= FAULTS && counted >= samples, "the kernel counted {counted} of {FAULTS} faults");
        ensure!(lost > 0 || (counted == samples && self.own == FAULTS), "{self:?}: samples are missing");
        Ok(())
    }
}

fn tell(log: &mut Log, plain: &[Round], sampled: &[Round]) -> Result<()> {
    sampled.iter().try_for_each(Round::check)?;
    let each = |rounds: &[Round], f: &dyn Fn(&Round) -> f64| rounds.iter().map(f).collect::<Vec<f64>>();
    let cpu = |r: &Round| r.child_cpu_ns as f64 / FAULTS as f64;
    let wall = |r: &Round| r.wall_ns as f64 / FAULTS as f64;
    log.line(format!(
        "\n{MIB} MiB touched and freed {PASSES} times a round, {FAULTS} faults; {ROUNDS} alternating rounds: median (min to max)"
    ));
    log.line(format!("{:<14} {:>30} {:>30}", "child", "CPU, ns a fault", "time, ns a fault"));
    for (name, rounds) in [("not sampled", plain), ("sampled", sampled)] {
        let [cpu, wall] = [spread(&each(rounds, &cpu)), spread(&each(rounds, &wall))];
        log.line(format!("{name:<14} {cpu:>30} {wall:>30}"));
    }
    // Consecutive rounds are compared, because the load of the machine changes within seconds.
    let costs: Vec<f64> = plain.iter().zip(sampled).map(|(plain, sampled)| cpu(sampled) - cpu(plain)).collect();
    let reader = each(sampled, &|r| r.reader_cpu_ns as f64 / r.totals.samples.max(1) as f64);
    let rate = each(sampled, &|r| r.totals.samples as f64 / (r.wall_ns as f64 / 1e9));
    let sum = |f: fn(&Totals) -> u64| sampled.iter().map(|r| f(&r.totals)).sum::<u64>();
    let (counted, samples, lost) = (sum(|t| t.counted), sum(|t| t.samples), sum(|t| t.lost));
    // From the kernel's count, because losses at the end of a round are not reported.
    let lost_pct = 100.0 * (counted - samples) as f64 / counted as f64;
    log.line(format!("\nsampling costs the child, ns of CPU a fault: {}", spread(&costs)));
    log.line(format!("reader, ns of CPU a sample: {}", spread(&reader)));
    log.line(format!("samples a second: {}", spread(&rate)));
    log.line(format!("counted {counted}, sampled {samples}, reported lost {lost}: {lost_pct:.4}% lost"));
    log.result("samples_per_s", median(&rate));
    log.result("lost_pct", lost_pct);
    log.result("cpu_ns_per_sample", median(&reader));
    log.result("child_cost_ns_per_fault", median(&costs));
    Ok(())
}

/// The child, from the reader's side. Killed on drop.
struct Child {
    process: std::process::Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    memory: std::ops::Range<u64>,
}

impl Child {
    fn start() -> Result<Child> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut process = command.arg(FAULTING).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = process.stdin.take();
        let lines = heard(process.stdout.take().context("no output")?);
        let mut child = Child { process, input, lines, memory: 0..0 };
        let start = numbers(&child.lines.recv().context("the child did not start")?)?[0];
        child.memory = start..start + PAGES * 4096;
        Ok(child)
    }

    /// One round of the child, and all its samples.
    fn round(&mut self, mut rings: Option<&mut Rings>) -> Result<Round> {
        let mut round = Round::default();
        self.input.as_mut().context("it was ended")?.write_all(b"go\n")?;
        let said = loop {
            match self.lines.recv_timeout(DRAIN_EVERY) {
                Ok(said) => break said,
                Err(RecvTimeoutError::Timeout) => self.drain(&mut rings, &mut round),
                Err(e) => return Err(e).context("the child has ended"),
            }
        };
        self.drain(&mut rings, &mut round);
        let said = numbers(&said)?;
        (round.wall_ns, round.child_cpu_ns) = (said[0], said[1]);
        round.totals = rings.map(|rings| rings.totals()).unwrap_or_default();
        Ok(round)
    }

    fn drain(&self, rings: &mut Option<&mut Rings>, round: &mut Round) {
        let Some(rings) = rings else { return };
        let (pid, memory) = (self.process.id(), &self.memory);
        let began = clock::thread_cpu_ns();
        let mut own = 0;
        rings.drain(|record| {
            if let Record::Sample(sample) = record {
                own += u64::from(sample.pid == pid && memory.contains(&sample.addr));
            }
        });
        round.reader_cpu_ns += clock::thread_cpu_ns() - began;
        round.own += own;
    }

    fn end(mut self) -> Result<()> {
        self.input = None;
        ensure!(self.process.wait()?.success(), "the child failed");
        Ok(())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn heard(output: ChildStdout) -> Receiver<String> {
    let (send, lines) = channel();
    std::thread::spawn(move || {
        BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| send.send(line))
    });
    lines
}

fn numbers(line: &str) -> Result<Vec<u64>> {
    let numbers = line.split(' ').map(str::parse).collect::<Result<Vec<u64>, _>>();
    numbers.with_context(|| format!("the child said {line:?}"))
}

/// The child: one round for each line of input.
fn fault() -> Result<()> {
    let memory = Memory::anonymous(MIB << 20, PageSize::Small)?;
    println!("{}", memory.range().start.0);
    let mut line = String::new();
    while std::io::stdin().read_line(&mut line)? > 0 {
        let (wall, cpu) = (clock::monotonic_ns(), clock::thread_cpu_ns());
        for _ in 0..PASSES {
            (0..memory.pages()).for_each(|page| memory.write(page));
            memory.discard(0, memory.pages());
        }
        println!("{} {}", clock::monotonic_ns() - wall, clock::thread_cpu_ns() - cpu);
    }
    Ok(())
}
