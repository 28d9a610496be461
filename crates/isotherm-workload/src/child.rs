//! The parent's side: starts a workload and reads its reports.

use crate::Progress;
use isotherm_heat::Ns;
use isotherm_units::{Addr, AddrRange};
use serde::Serialize;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{self, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

/// A running workload. It ends when this value is dropped, and also when the parent is killed, because its standard
/// input closes.
#[derive(Debug)]
pub struct Child {
    process: process::Child,
    memory: AddrRange,
    progress: Arc<Mutex<Vec<Progress>>>,
}

impl Child {
    /// Starts `command` and waits until all its memory is populated. The command has to call [`crate::run_json`] with
    /// its last argument.
    pub fn start(mut command: Command, pattern: &impl Serialize) -> io::Result<Child> {
        let json = serde_json::to_string(pattern).map_err(io::Error::other)?;
        let mut process = command.arg(json).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut lines = BufReader::new(process.stdout.take().expect("piped")).lines();
        let first = lines.next().transpose()?.unwrap_or_default();
        let Some(memory) = parse_memory(&first) else {
            let status = process.wait()?;
            return Err(io::Error::other(format!("the workload did not start ({status}); it said {first:?}")));
        };
        let progress = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&progress);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Some(p) = Progress::parse(&line) {
                    heard.lock().unwrap_or_else(PoisonError::into_inner).push(p);
                }
            }
        });
        Ok(Child { process, memory, progress })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Its address range.
    pub fn memory(&self) -> AddrRange {
        self.memory
    }

    /// Makes `count` pages from page `first` hot as well, from now on.
    pub fn heat(&mut self, first: usize, count: usize) -> io::Result<()> {
        writeln!(self.process.stdin.as_mut().expect("piped"), "heat {first} {count}")
    }

    /// Does not access `count` pages from page `first` any more, from now on.
    pub fn cool(&mut self, first: usize, count: usize) -> io::Result<()> {
        writeln!(self.process.stdin.as_mut().expect("piped"), "cool {first} {count}")
    }

    /// All reports so far.
    pub fn progress(&self) -> Vec<Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The share of the time between two moments (monotonic) in which it did not run: it was blocked, or waited for a
    /// CPU.
    pub fn off_cpu_share(&self, from: Ns, to: Ns) -> Option<f64> {
        self.speed(from, to).map(|(cpus, _)| 1.0 - cpus)
    }

    /// How many CPUs it used between two moments (monotonic), and accesses or operations a second.
    pub fn speed(&self, from: Ns, to: Ns) -> Option<(f64, f64)> {
        let (first, last) = self.between(from, to)?;
        let passed = last.at.checked_sub(first.at).filter(|ns| *ns > 0)? as f64;
        let accesses = last.accesses.checked_sub(first.accesses)? as f64;
        Some(((last.cpu_ns - first.cpu_ns) as f64 / passed, accesses * 1e9 / passed))
    }

    /// CPU time per access between two moments (monotonic); `None` if there are too few reports.
    pub fn cpu_ns_per_access(&self, from: Ns, to: Ns) -> Option<f64> {
        let (first, last) = self.between(from, to)?;
        let accesses = last.accesses.checked_sub(first.accesses).filter(|n| *n > 0)?;
        Some((last.cpu_ns - first.cpu_ns) as f64 / accesses as f64)
    }

    /// The first and the last report between two moments.
    fn between(&self, from: Ns, to: Ns) -> Option<(Progress, Progress)> {
        let heard = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let mut within = heard.iter().filter(|p| from <= p.at && p.at <= to);
        let first = *within.next()?;
        Some((first, within.next_back().copied().unwrap_or(first)))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // The child may be doing anything, and none of it is needed any more.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn parse_memory(line: &str) -> Option<AddrRange> {
    let mut words = line.strip_prefix("memory ")?.split(' ').map(str::parse);
    Some(AddrRange::new(Addr(words.next()?.ok()?), Addr(words.next()?.ok()?)))
}
