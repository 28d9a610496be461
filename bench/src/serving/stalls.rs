//! What a process that is watched has to wait for, next to one whose `referenced_bytes` an exporter reads.
//!
//! That exporter does what cAdvisor does for `container_referenced_bytes` with `--referenced_reset_interval`: it adds up `Referenced:` of
//! `smaps` when it is scraped, and then clears all accessed bits by writing 1 to `clear_refs`, which holds the address space for writing.
//!
//! One process is unwatched, watched by `isotherm serve` and read by the exporter in turns, so that all see the same machine. Each round
//! begins with another of the three. Of each phase the latency counts that one batch in a thousand exceeds, and of the phases of a kind
//! their median: a pause of the machine itself in one of them must not decide. The worst batches are printed too.

use super::http::Connections;
use super::target::{Phase, Target};
use super::{Server, wait_until};
use crate::{Log, median, pages_that_fit};
use anyhow::{Context, Result, ensure};
use isotherm_sys::clear_refs::{self, Clear};
use isotherm_sys::clock;
use isotherm_sys::proc::Proc;
use std::time::{Duration, Instant};

/// 8 GiB, or as much as fits.
const MAX_PAGES: usize = 8 << 18;
const SCRAPE_EVERY: Duration = Duration::from_secs(10);
/// Three scrapes.
const PHASE: Duration = Duration::from_secs(32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watcher {
    Nobody,
    Ours,
    Exporter,
}

const WATCHERS: [Watcher; 3] = [Watcher::Nobody, Watcher::Ours, Watcher::Exporter];

impl Watcher {
    fn name(self) -> &'static str {
        match self {
            Watcher::Nobody => "unwatched",
            Watcher::Ours => "isotherm serve",
            Watcher::Exporter => "clear_refs exporter",
        }
    }
}

/// A phase, and the CPU time of its watcher.
#[derive(Clone, Copy, Debug)]
struct Watched {
    phase: Phase,
    /// Percent of one CPU, the start included.
    cpu_pct: f64,
}

/// The phases of each watcher.
type Phases = [Vec<Watched>; WATCHERS.len()];

/// Measures it, `rounds` times each.
pub fn stalls(log: &mut Log, rounds: usize) -> Result<()> {
    let pages = pages_that_fit(MAX_PAGES)?;
    let mut target = Target::start(pages)?;
    log.line(format!(
        "\na process that touches random pages of {:.1} GiB and faults one in, {rounds} phases of {} s for each watcher\nus; wall: all of a batch; held: without waiting for a CPU; latency: from when a batch was due to its end, one due in twice the time of one",
        pages as f64 / 262_144.0,
        PHASE.as_secs()
    ));
    let columns = ["wall", "held", "latency"]
        .into_iter()
        .flat_map(|of| ["p50", "p99.9", "worst"].map(|which| format!("{of} {which}")));
    let titles: String = columns.map(|title| format!("{title:>14}")).collect();
    log.line(format!("{:<26} {:>9}{titles}{:>12}", "", "batches", "its CPU %"));
    let mut phases = Phases::default();
    for round in 0..rounds {
        for turn in 0..WATCHERS.len() {
            let place = (round + turn) % WATCHERS.len();
            let watched = watched(&mut target, WATCHERS[place], pages)?;
            row(log, WATCHERS[place].name(), &watched);
            phases[place].push(watched);
        }
    }
    report(log, &phases)
}

fn row(log: &mut Log, name: &str, watched: &Watched) {
    let Watched { phase: Phase { batches, wall, held, latency }, cpu_pct } = watched;
    let times: String = [wall, held, latency]
        .iter()
        .flat_map(|times| [times.median_us, times.p999_us, times.worst_us])
        .map(|us| format!("{us:>14.1}"))
        .collect();
    log.line(format!("{name:<26} {batches:>9}{times}{cpu_pct:>12.2}"));
}

/// A phase with this watcher, from before it starts.
fn watched(target: &mut Target, watcher: Watcher, pages: usize) -> Result<Watched> {
    target.phase()?;
    let until = Instant::now() + PHASE;
    let cpu_s = match watcher {
        Watcher::Nobody => {
            sleep_until(until);
            0.0
        }
        Watcher::Ours => serve(target.pid(), pages, until)?,
        Watcher::Exporter => export(target.pid(), pages, until)?,
    };
    Ok(Watched { phase: target.phase()?, cpu_pct: cpu_s / PHASE.as_secs_f64() * 100.0 })
}

fn sleep_until(until: Instant) {
    std::thread::sleep(until.saturating_duration_since(Instant::now()));
}

/// Calls `scrape` every ten seconds, for the first time after two.
fn scrapes(until: Instant, mut scrape: impl FnMut() -> Result<()>) -> Result<()> {
    let mut next = Instant::now() + Duration::from_secs(2);
    while next < until {
        sleep_until(next);
        scrape()?;
        next += SCRAPE_EVERY;
    }
    sleep_until(until);
    Ok(())
}

/// `isotherm serve` at its defaults, and scrapes of it. Returns the CPU time of both its processes, s.
fn serve(pid: u32, pages: usize, until: Instant) -> Result<f64> {
    let server = Server::watching(pid)?;
    // The server closes connections that are idle for 10 s: as long as between two scrapes.
    let mut client = server.client().with(Connections::New);
    wait_until("the first snapshot", || Ok(server.newest_ms(&mut client)?.is_some()))?;
    let path = format!("{}metrics", server.base);
    let mut resident = 0.0;
    scrapes(until, || {
        let answer = client.get(&path, &[("Accept-Encoding", "identity")])?;
        let text = String::from_utf8(answer.body).context("read a scrape")?;
        let memory = text.lines().filter(|line| line.starts_with("isotherm_memory_bytes{"));
        resident = memory.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum();
        Ok(())
    })?;
    ensure!(resident >= pages as f64 * 4096.0, "isotherm serve has seen only {resident} bytes of the process");
    server.cpu_s()
}

/// Reads and clears the referenced memory of a process. Returns the CPU time that it took, s.
fn export(pid: u32, pages: usize, until: Instant) -> Result<f64> {
    let (proc, before) = (Proc::default(), clock::thread_cpu_ns());
    let mut referenced = 0;
    scrapes(until, || {
        referenced = 0;
        for mapping in proc.smaps(pid)? {
            referenced += mapping?.usage.referenced.0;
        }
        clear_refs::clear(proc.root(), pid, Clear::All).context("write clear_refs of our own child")
    })?;
    // It touches almost every page in ten seconds.
    ensure!(referenced > pages as u64 * 4096 / 10, "the exporter has seen only {referenced} bytes referenced");
    Ok((clock::thread_cpu_ns() - before) as f64 / 1e9)
}

fn report(log: &mut Log, phases: &Phases) -> Result<()> {
    let of = |pick: fn(&Watched) -> f64| phases.each_ref().map(|all| median(&all.iter().map(pick).collect::<Vec<_>>()));
    let (worst, latency) = (of(|watched| watched.phase.held.worst_us), of(|watched| watched.phase.latency.p999_us));
    let figures: [(&str, [f64; 3]); 5] = [
        ("wall p99.9", of(|watched| watched.phase.wall.p999_us)),
        ("held p99.9", of(|watched| watched.phase.held.p999_us)),
        ("held worst", worst),
        ("latency p99.9", latency),
        ("latency worst", of(|watched| watched.phase.latency.worst_us)),
    ];
    log.line(format!(
        "\n{:<26} {:>12} {:>15} {:>20} {:>22}",
        "medians of phases, us", "unwatched", "isotherm serve", "clear_refs exporter", "ours beyond / theirs"
    ));
    for (name, [nobody, ours, theirs]) in figures {
        let ratio = beyond(nobody, ours, theirs).map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.5}"));
        log.line(format!("{name:<26} {nobody:>12.1} {ours:>15.1} {theirs:>20.1} {ratio:>22}"));
    }
    let ratio = |[nobody, ours, theirs]: [f64; 3]| {
        let doing = "the exporter did not delay the process at all: there is nothing to compare with";
        beyond(nobody, ours, theirs).context(doing)
    };
    log.result("worst_target_ms_vs_clear_refs_exporter", ratio(latency)?);
    log.result("target_p999_ms_unwatched", latency[0] / 1000.0);
    log.result("target_p999_ms", latency[1] / 1000.0);
    log.result("target_p999_ms_clear_refs_exporter", latency[2] / 1000.0);
    log.result("worst_batch_vs_clear_refs_exporter", ratio(worst)?);
    let [_, ours, theirs] = of(|watched| watched.cpu_pct);
    log.result("serve_cpu_pct", ours);
    log.result("clear_refs_exporter_cpu_pct", theirs);
    Ok(())
}

/// What one adds to being unwatched, as a share of what the other adds.
fn beyond(nobody: f64, ours: f64, theirs: f64) -> Option<f64> {
    (theirs > nobody).then(|| (ours - nobody).max(0.0) / (theirs - nobody))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_is_compared() {
        assert_eq!(beyond(10.0, 12.0, 30.0), Some(0.1));
        assert_eq!(beyond(10.0, 9.0, 30.0), Some(0.0), "less than unwatched is noise");
        assert_eq!(beyond(10.0, 12.0, 10.0), None);
    }
}
