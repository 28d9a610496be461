//! What `isotherm serve` costs and how quick it is: parts of `bench-serve`.
//!
//! The real programs run as children, and requests are written byte by byte, so that nothing of a client's library is in what is measured.
//!
//! | module | |
//! |---|---|
//! | `http` | requests to a server, and events that it sends |
//! | `model` | snapshots of processes that are none |
//! | `scrape` | how long Prometheus waits, and what it gets |
//! | `lag` | how old the newest snapshot is when a client has it |
//! | `target`, `stalls` | what being watched does to a process, next to an exporter that writes `clear_refs` |
//! | `browser` | the page with a day of snapshots |
//! | `binary` | the size of the program |

mod binary;
mod browser;
mod http;
mod lag;
mod model;
mod scrape;
mod stalls;
pub(crate) mod target;

pub use binary::stripped_mb;
pub use browser::page;
pub use lag::live_lag_s;
pub use scrape::scrape;
pub use stalls::stalls;

use crate::daemon::isotherm;
use anyhow::{Context, Result, ensure};
use http::Client;
use isotherm_sys::proc::Proc;
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// How long an event may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// Of `utime` in `/proc/PID/stat`, on every architecture that Isotherm runs on.
const TICKS_PER_S: f64 = 100.0;
const POLL: Duration = Duration::from_millis(20);

/// A program that serves, at a free port of this machine only. It ends when this value is dropped.
#[derive(Debug)]
struct Server {
    process: Child,
    /// `ADDR:PORT`.
    at: String,
    /// The path of its token, with a slash at each end.
    base: String,
    _stdout: BufReader<ChildStdout>,
}

impl Server {
    /// Starts `isotherm serve` on a process, at its defaults.
    fn watching(pid: u32) -> Result<Server> {
        let mut command = isotherm();
        command.args(["serve", "-p", &pid.to_string()]).stderr(Stdio::null());
        Server::start(command)
    }

    /// Starts a program with this and an address to listen at, and waits until it has printed its own.
    fn start(mut command: Command) -> Result<Server> {
        command.args(["--listen", "127.0.0.1:0"]).stdout(Stdio::piped());
        let name = command.get_program().to_string_lossy().into_owned();
        let doing = || format!("start {name}: have `make build` and `make build-serve` been run?");
        let mut process = command.spawn().with_context(doing)?;
        let mut stdout = BufReader::new(process.stdout.take().context("its output is piped")?);
        let mut line = String::new();
        stdout.read_line(&mut line)?;
        let address = line.trim().strip_prefix("listening on http://").and_then(|address| address.split_once('/'));
        let Some((at, base)) = address.map(|(at, base)| (at.to_owned(), format!("/{base}"))) else {
            let _ = process.kill();
            let status = process.wait()?;
            anyhow::bail!("{name} does not listen ({status}): it printed {line:?}");
        };
        Ok(Server { process, at, base, _stdout: stdout })
    }

    fn client(&self) -> Client {
        Client::new(&self.at)
    }

    fn url(&self) -> String {
        format!("http://{}{}", self.at, self.base)
    }

    /// What it shows of everything; `None` before the first snapshot.
    fn overview(&self, client: &mut Client) -> Result<Option<Value>> {
        let answer = client.get(&format!("{}api/overview", self.base), &[])?;
        if answer.status == 503 {
            return Ok(None);
        }
        ensure!(answer.status == 200, "read the overview: status {}", answer.status);
        serde_json::from_slice(&answer.body).context("read the overview")
    }

    /// The time of the newest snapshot that it shows, milliseconds since the epoch; `None` before the first.
    fn newest_ms(&self, client: &mut Client) -> Result<Option<u64>> {
        Ok(self.overview(client)?.and_then(|overview| overview["at_ms"].as_u64()))
    }

    /// CPU time of the program and of its children so far, s.
    fn cpu_s(&self) -> Result<f64> {
        let (proc, own) = (Proc::default(), self.process.id());
        let mut ticks = 0;
        for pid in proc.children(own)?.into_iter().chain([own]) {
            let stat = proc.stat(pid)?;
            ticks += stat.utime + stat.stime;
        }
        Ok(ticks as f64 / TICKS_PER_S)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // `isotherm serve` ends its own child then.
        let _ = Command::new("kill").args(["-INT", &self.process.id().to_string()]).status();
        let _ = self.process.wait();
    }
}

/// The server program of the same build.
fn server_program() -> Result<PathBuf> {
    Ok(std::env::current_exe().context("find our own program")?.with_file_name("isotherm-serve"))
}

/// Waits until something is so.
fn wait_until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    while !is_so()? {
        ensure!(Instant::now() < until, "waited {} s for {what}", PATIENCE.as_secs());
        std::thread::sleep(POLL);
    }
    Ok(())
}

/// The value below which this share of `sorted` lies: of 100 values and 0.99, the 99th.
fn quantile<T: Copy>(sorted: &[T], share: f64) -> Option<T> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place within a list")]
    let place = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(place.max(1).min(sorted.len()).checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_one_of_the_values() {
        let values: Vec<u32> = (1..=200).collect();
        assert_eq!([0.0, 0.5, 0.99, 1.0].map(|share| quantile(&values, share)), [1, 100, 198, 200].map(Some));
        assert_eq!(quantile(&[7], 0.99), Some(7));
        assert_eq!(quantile::<u8>(&[], 0.5), None);
    }
}
