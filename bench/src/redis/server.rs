//! A Redis server: starts it, fills it, loads it for a slice of time, and makes it save.

use super::load::{Load, ask};
use super::plan::FILL_SEED;
use super::slice::Slice;
use anyhow::{Context, Result, ensure};
use isotherm_bench::cpu::Cpu;
use isotherm_bench::program::{Program, free_port, start_redis, until};
use isotherm_sys::clock;
use isotherm_sys::proc::Proc;
use isotherm_units::Bytes;
use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Enough for 3 GB to a slow disk.
pub const SAVED_WITHIN: Duration = Duration::from_secs(300);

/// A Redis server and the connections to it.
pub struct Server {
    name: &'static str,
    program: Program,
    port: u16,
    pub dir: PathBuf,
    load: Load,
}

impl Server {
    /// Starts one on a free port of this machine only. It writes nothing to disk unless asked to save.
    pub fn start(name: &'static str, dir: &Path, keys: u32) -> Result<Server> {
        let dir = dir.join(name);
        fs::create_dir(&dir).with_context(|| format!("create {}", dir.display()))?;
        let port = free_port()?;
        let program = start_redis(port, &[], &dir, dir.join("log"))?;
        let load = Load::connect(port, keys)?;
        Ok(Server { name, program, port, dir, load })
    }

    pub fn pid(&self) -> u32 {
        self.program.pid()
    }

    /// Loads it for a while.
    pub fn slice(&mut self, seed: u64, length: Duration) -> Result<Slice> {
        let (began, own, before) = (Instant::now(), clock::thread_cpu_ns(), Cpu::of(self.pid())?);
        let run = self.load.run(seed, length).with_context(|| format!("load server {}", self.name))?;
        let (took, after) = (began.elapsed(), Cpu::of(self.pid())?);
        let mut batch_ns = run.batch_ns;
        batch_ns.sort_unstable();
        let generator_ns = (clock::thread_cpu_ns() - own) as f64;
        Ok(Slice { operations: run.operations as f64, took, cpu: after.since(before), generator_ns, batch_ns })
    }

    /// Starts to save in a child.
    pub fn save(&self) -> Result<()> {
        let answer = ask(self.port, "BGSAVE")?;
        ensure!(
            answer.starts_with("+Background saving started"),
            "asked for BGSAVE, server {} says {answer}",
            self.name
        );
        Ok(())
    }

    fn is_saving(&self) -> Result<bool> {
        let info = ask(self.port, "INFO persistence")?;
        ensure!(info.contains("rdb_last_bgsave_status:ok"), "a BGSAVE failed: {}", self.program.said());
        Ok(info.contains("rdb_bgsave_in_progress:1"))
    }

    /// Waits for the end of a save, deletes the dump, and returns its size.
    pub fn saved(&self) -> Result<Bytes> {
        let ended = until(SAVED_WITHIN, || Ok(!self.is_saving()?))?;
        ensure!(ended, "a BGSAVE is not done after {SAVED_WITHIN:?}");
        let dump = self.dir.join("dump.rdb");
        let size = fs::metadata(&dump).with_context(|| format!("find {}", dump.display()))?.len();
        fs::remove_file(&dump).with_context(|| format!("delete {}", dump.display()))?;
        Ok(Bytes(size))
    }
}

/// The version that the server reports.
pub fn version() -> Result<String> {
    let output = Command::new("redis-server").arg("--version").output().context("ask redis-server for its version")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

pub fn fill(servers: &mut [Server; 2], keys: u32) -> Result<()> {
    let terminal = std::io::stderr().is_terminal();
    for server in servers {
        let (name, mut reported) = (server.name, 0);
        let tell = |set: u32| {
            if terminal && (set >= reported + 100_000 || set == keys) {
                reported = set;
                eprint!("\rfilling server {name}: {set} of {keys} keys");
            }
        };
        server.load.fill(FILL_SEED, tell).with_context(|| format!("fill server {name}"))?;
        if terminal {
            eprintln!();
        }
        let size = ask(server.port, "DBSIZE")?;
        ensure!(size.trim() == format!(":{keys}"), "filled with {keys} keys, server {name} has {}", size.trim());
    }
    Ok(())
}

/// Resident bytes of each.
pub fn resident(servers: &[Server; 2]) -> Result<[u64; 2]> {
    let mut bytes = [0; 2];
    for (server, bytes) in servers.iter().zip(&mut bytes) {
        let status = Proc::default().status(server.pid()).context("read the memory of a server")?;
        *bytes = status.rss.context("a server without memory")?.0;
    }
    Ok(bytes)
}
