//! Processes beside what is measured, one for each processor.
//!
//! An emulated processor keeps every translation until another process runs on it. DAMON does not flush what it clears, and finds no access
//! to pages whose translation is kept. On a machine that is worth watching, other processes run.

use anyhow::Result;
use std::io;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The argument with which this program is started again as one, and what follows it.
pub(crate) const NEIGHBOUR: &str = "--neighbour";
/// Between two moments in which one that dozes runs.
const NAP: Duration = Duration::from_millis(2);

/// What a neighbour does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Neighbour {
    /// It is busy all the time.
    Spins,
    /// It runs for a moment, 500 times a second.
    Dozes,
}

/// Neighbours that run. They end when this value is dropped.
#[derive(Debug)]
pub struct Neighbours(Vec<Child>);

impl Neighbours {
    /// Starts one for each processor.
    pub fn start(kind: Neighbour) -> Result<Neighbours> {
        let program = std::env::current_exe()?;
        let kind = if kind == Neighbour::Spins { "spins" } else { "dozes" };
        let mut all = Neighbours(Vec::new());
        for _ in 0..std::thread::available_parallelism()?.get() {
            all.0.push(Command::new(&program).args([NEIGHBOUR, kind]).stdin(Stdio::piped()).spawn()?);
        }
        Ok(all)
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        for process in &mut self.0 {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Is one until standard input is closed.
pub(crate) fn be(kind: Option<&str>) -> ! {
    std::thread::spawn(|| {
        let _ = io::stdin().read_line(&mut String::new());
        std::process::exit(0);
    });
    loop {
        if kind == Some("spins") { std::hint::spin_loop() } else { std::thread::sleep(NAP) }
    }
}
