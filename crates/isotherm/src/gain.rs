//! Reads and prints what collapsing has gained: resident memory, TLB misses, CPU time and work done. The arithmetic is in
//! [`isotherm_schemes::gain`].

use crate::stop::Stop;
use crate::work::runner::Runner;
use anyhow::Result;
use isotherm_host::tlb::DtlbCounter;
use isotherm_schemes::gain::{Gain, Measured, Reading};
use isotherm_sys::clock;
use isotherm_sys::proc::{Identity, Proc};
use isotherm_units::Bytes;
use std::io::{self, Write};
use std::time::Duration;

/// Measures a fixed set of processes.
pub struct Probe {
    processes: Vec<Process>,
    proc: Proc,
    misses: Vec<DtlbCounter>,
    misses_note: Option<String>,
}

/// One of them.
struct Process {
    identity: Identity,
    /// CPU time up to the last reading: it stays in the sum when the process has ended.
    cpu_ticks: u64,
}

impl Probe {
    /// Starts counting.
    pub fn start(pids: impl Iterator<Item = u32>) -> Probe {
        let pids: Vec<u32> = pids.collect();
        let (mut misses, mut misses_note) = (Vec::new(), None);
        for pid in &pids {
            match DtlbCounter::open(*pid) {
                Ok(counter) => misses.push(counter),
                Err(error) => misses_note = Some(error.to_string()),
            }
        }
        let proc = Proc::default();
        let known = pids.iter().filter_map(|pid| Some(proc.stat(*pid).ok()?.identity()));
        let processes = known.map(|identity| Process { identity, cpu_ticks: 0 }).collect();
        Probe { processes, proc, misses, misses_note }
    }

    /// Whether TLB misses can be counted.
    pub fn counts_misses(&self) -> bool {
        !self.misses.is_empty()
    }

    /// Why TLB misses cannot be counted.
    pub fn misses_note(&self) -> Option<String> {
        self.misses_note.clone()
    }

    /// Measures amounts, and rates over `time`. Waits for `time`, or until `stop` is set. `work` runs the user's command.
    pub fn measure(&mut self, mut work: Option<&mut Runner>, time: Duration, stop: &Stop) -> Result<Measured> {
        let begin = self.reading(work.as_deref_mut(), || stop.is_set())?;
        stop.sleep(time);
        let end = self.reading(work, || stop.is_set())?;
        Ok(Measured::between(&begin, &end))
    }

    /// Reads the counters, and the work done if `work` can run its command. Omits the work if `is_over` returns true before that has ended.
    pub fn reading(&mut self, work: Option<&mut Runner>, is_over: impl Fn() -> bool) -> Result<Reading> {
        let mut reading = Reading { at: clock::monotonic_ns(), ..Reading::default() };
        for process in &mut self.processes {
            let pid = process.identity.pid;
            // Another may have its pid by now.
            if let Some(stat) = self.proc.stat(pid).ok().filter(|stat| stat.identity() == process.identity) {
                process.cpu_ticks = stat.utime + stat.stime;
                reading.rss.0 += self.proc.status(pid).ok().and_then(|s| s.rss).unwrap_or_default().0;
            }
            reading.cpu_ticks += process.cpu_ticks;
        }
        if self.counts_misses() {
            reading.misses = Some(self.misses.iter().filter_map(|c| c.read().ok()?.events()).sum());
        }
        if let Some(runner) = work {
            reading.work = runner.units(is_over)?;
        }
        Ok(reading)
    }
}

/// Writes the gain as a few lines of text.
pub fn tell(gain: &Gain, out: &mut dyn Write) -> io::Result<()> {
    let share = |s: Option<f64>| s.map_or("unknown".to_owned(), |s| format!("{:.1}%", s * 100.0));
    writeln!(out, "heat on huge pages: {} -> {}", share(gain.heat_on_huge_before), share(gain.heat_on_huge_after))?;
    if let (Some(before), Some(after)) = (gain.rss_bytes_before, gain.rss_bytes_after) {
        writeln!(out, "resident memory: {} -> {}", Bytes(before), Bytes(after))?;
    }
    match (gain.dtlb_misses_per_s_before, gain.dtlb_misses_per_s_after, &gain.dtlb_note) {
        (Some(before), Some(after), _) => {
            writeln!(out, "dTLB misses: {:.3} M/s -> {:.3} M/s", before / 1e6, after / 1e6)?;
        }
        (_, _, Some(note)) => writeln!(out, "dTLB misses: not measured: {note}")?,
        _ => {}
    }
    if let (Some(before), Some(after)) = (gain.cpu_us_per_unit_before, gain.cpu_us_per_unit_after) {
        writeln!(
            out,
            "CPU per unit of work: {before:.3} us -> {after:.3} us ({:+.1}%)",
            100.0 * (after / before - 1.0)
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn the_cpu_time_of_a_process_that_has_ended_stays_in_the_sum() {
        // It works for a tick and more, and then waits for a line that never comes.
        let mut child = Command::new("sh")
            .args(["-c", "i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done; echo done; read line"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut probe = Probe::start([child.id()].into_iter());
        let mut done = [0; 5];
        io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut done).unwrap();
        let mut reading = || probe.reading(None, || false).unwrap();
        let before = reading();
        assert!(before.cpu_ticks > 0 && before.rss.0 > 0, "{before:?}");
        child.kill().unwrap();
        child.wait().unwrap();
        let after = reading();
        assert_eq!((after.cpu_ticks, after.rss.0), (before.cpu_ticks, 0));
    }
}
