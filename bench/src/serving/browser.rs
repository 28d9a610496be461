//! The page with a day of snapshots: `web/test/measure.mjs` in Chromium, against the real server.
//!
//! The server keeps snapshots at distances that grow with their age. So that it holds about what it would hold after a day of snapshots a
//! second, the last [`FINE_MS`] come a second apart, and those before ten. They are written to a socket as fast as the server takes them:
//! a sender that does not wait would lose most. Then a snapshot comes every second, as from a monitor, and faster where the measurement asks
//! for many of them.

use super::model::Host;
use super::{Server, server_program, wait_until};
use crate::Log;
use anyhow::{Context, Result, bail, ensure};
use isotherm_sys::clock;
use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

const PROCESSES: u32 = 200;
const CGROUPS: u32 = 100;
/// Regions of the process that is shown: 4 GiB.
const SHOWN_REGIONS: u64 = 512;
const NS_PER_MS: u64 = 1_000_000;
const DAY_MS: u64 = 24 * 3_600_000;
const FINE_MS: u64 = 6_000_000;
const COARSE_WINDOW_MS: u64 = 10_000;
const WINDOW_MS: u64 = 1000;
/// How much later than the day the last snapshot may be: those that come quickly must not lie in the future.
const SPARE_MS: u64 = 1_200_000;
/// Between two snapshots where many are asked for.
const QUICK: Duration = Duration::from_millis(100);
const LIMIT: Duration = Duration::from_secs(900);

/// Figures of the page: as they are called by the script, and by us. `mb` are 1,000,000 bytes.
const FIGURES: [(&str, &str, f64); 6] = [
    ("map_complete_ms", "first_paint_ms_24h", 1.0),
    ("first_paint_ms", "first_text_ms_24h", 1.0),
    ("zoom_p95_ms", "zoom_p95_ms", 1.0),
    ("zoom_max_ms", "zoom_max_ms", 1.0),
    ("sharp_after_zoom_ms", "sharp_after_zoom_ms", 1.0),
    ("heap_after_600_snapshots_mib", "tab_heap_mb", 1.048_576),
];

/// Measures the page. Returns whether there was all that it takes.
pub fn page(log: &mut Log) -> Result<bool> {
    let script = web().join("test/measure.mjs");
    if let Some(missing) = missing() {
        log.line(format!("\nthe page was not measured: needs {missing}"));
        return Ok(false);
    }
    let dir = tempfile::tempdir().context("make a folder for a socket")?;
    let socket = dir.path().join("s");
    let listener = UnixListener::bind(&socket).with_context(|| format!("listen at {}", socket.display()))?;
    let mut command = Command::new(server_program()?);
    command.arg("--connect").arg(&socket);
    let server = Server::start(command)?;
    let mut feed = Feed::begin(&listener)?;
    let began = Instant::now();
    let snapshots = feed.day()?;
    let mut client = server.client();
    wait_until("the day to be shown", || Ok(server.newest_ms(&mut client)? == Some(feed.at_ms)))?;
    let overview = server.overview(&mut client)?.context("the server shows nothing any more")?;
    let first_ms = overview["range_ms"][0].as_u64().context("the overview has no range")?;
    ensure!(feed.at_ms - first_ms >= DAY_MS * 9 / 10, "the server holds only {} ms of the day", feed.at_ms - first_ms);
    log.line(format!(
        "\n24 h of {PROCESSES} processes in {snapshots} snapshots, taken in by the server in {:.0} s; {:.0} MiB resident then",
        began.elapsed().as_secs_f64(),
        resident_mib(server.process.id())?
    ));
    let mut node = Command::new("node");
    node.arg(script).args([server.url(), DAY_MS.to_string()]);
    let line = Script::start(node)?.result(&mut feed, log)?;
    let found = figures(&line);
    for (theirs, ours, factor) in FIGURES {
        let value = found.get(theirs).with_context(|| format!("measure.mjs has printed no {theirs}: {line}"))?;
        log.result(ours, value * factor);
    }
    Ok(true)
}

fn web() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../web")
}

/// What is not there.
fn missing() -> Option<&'static str> {
    let has_node = Command::new("node").arg("--version").stdout(Stdio::null()).status().is_ok_and(|s| s.success());
    let chromium = std::env::var_os("CHROMIUM").map_or_else(|| PathBuf::from("/usr/bin/chromium"), PathBuf::from);
    match () {
        () if !has_node => Some("node (apt-get install nodejs npm)"),
        () if !chromium.exists() => Some("chromium (apt-get install chromium, or set CHROMIUM to its path)"),
        () if !web().join("node_modules/playwright-core").is_dir() => Some("its packages (make setup-web)"),
        () => None,
    }
}

fn resident_mib(pid: u32) -> Result<f64> {
    let status = isotherm_sys::proc::Proc::default().status(pid)?;
    Ok(status.rss.unwrap_or_default().0 as f64 / 1_048_576.0)
}

/// Numbers of a RESULT line.
fn figures(line: &str) -> HashMap<&str, f64> {
    let pairs = line.split(' ').filter_map(|pair| pair.split_once('='));
    pairs.filter_map(|(key, value)| Some((key, value.parse().ok()?))).collect()
}

/// A monitor that is none.
#[derive(Debug)]
struct Feed {
    host: Host,
    stream: UnixStream,
    /// The end of the last snapshot.
    at_ms: u64,
}

impl Feed {
    fn begin(listener: &UnixListener) -> Result<Feed> {
        let (mut stream, _) = listener.accept().context("wait for the server to connect")?;
        stream.write_all(&isotherm_stream::header())?;
        let at_ms = clock::unix_ns() / NS_PER_MS - DAY_MS - SPARE_MS;
        Ok(Feed { host: Host::new(PROCESSES, CGROUPS, SHOWN_REGIONS), stream, at_ms })
    }

    fn send(&mut self, window_ms: u64) -> Result<()> {
        let end_ms = self.at_ms + window_ms;
        let snapshot = self.host.snapshot(self.at_ms, end_ms);
        self.stream.write_all(&isotherm_stream::encode(&snapshot)?).context("send the server a snapshot")?;
        self.at_ms = end_ms;
        Ok(())
    }

    /// Returns the number of snapshots.
    fn day(&mut self) -> Result<u64> {
        let coarse = (DAY_MS - FINE_MS) / COARSE_WINDOW_MS;
        let fine = FINE_MS / WINDOW_MS;
        (0..coarse).try_for_each(|_| self.send(COARSE_WINDOW_MS))?;
        (0..fine).try_for_each(|_| self.send(WINDOW_MS))?;
        Ok(coarse + fine)
    }
}

/// The script, and the lines that it prints. It ends with this value.
#[derive(Debug)]
struct Script {
    process: Child,
    lines: Receiver<String>,
}

impl Script {
    fn start(mut command: Command) -> Result<Script> {
        let mut process = command.stdout(Stdio::piped()).spawn().context("run node")?;
        let stdout: ChildStdout = process.stdout.take().context("its output is piped")?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            for line in lines {
                // Nobody waits for it if the measurement has failed.
                let _ = sender.send(line);
            }
        });
        Ok(Script { process, lines })
    }

    /// Its RESULT line, without that word. Sends a snapshot a second until then, and as many quickly as it asks for by `next N`.
    fn result(mut self, feed: &mut Feed, log: &mut Log) -> Result<String> {
        let until = Instant::now() + LIMIT;
        let (mut quick, mut result) = (0_u64, None);
        while Instant::now() < until {
            let pause = if quick > 0 { QUICK } else { Duration::from_millis(WINDOW_MS) };
            match self.lines.recv_timeout(pause) {
                Ok(line) => {
                    if let Some(count) = line.strip_prefix("next ") {
                        quick = count.parse().with_context(|| format!("measure.mjs asks for {line:?}"))?;
                        continue;
                    }
                    result = line.strip_prefix("RESULT ").map(str::to_owned).or(result);
                    log.line(line.replacen("RESULT ", "measure.mjs: ", 1));
                }
                Err(RecvTimeoutError::Timeout) => {
                    feed.send(WINDOW_MS)?;
                    quick = quick.saturating_sub(1);
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.process.wait()?;
                    ensure!(status.success(), "measure.mjs failed ({status}); what it printed says why");
                    return result.context("measure.mjs has printed no RESULT line");
                }
            }
        }
        bail!("measure.mjs has not ended after {} s", LIMIT.as_secs())
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_with_numbers() {
        let found = figures("zoom_p95_ms=12.5 requests=7 (Chromium 1, 7 loads) x=y");
        assert_eq!((found.get("zoom_p95_ms"), found.get("requests"), found.len()), (Some(&12.5), Some(&7.0), 2));
    }
}
