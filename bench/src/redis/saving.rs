//! The servers while one of their children saves, in the order A B B A.

use super::hints::Hints;
use super::plan::{BYTES_A_KEY, Plan, SAVE_SEED};
use super::server::{SAVED_WITHIN, Server};
use super::slice::milliseconds;
use anyhow::{Context, Result};
use isotherm_bench::Log;
use isotherm_units::Bytes;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Measures latency while a child of the server saves, and whether the daemon pauses.
pub fn while_saving(plan: &Plan, log: &mut Log, servers: &mut [Server; 2], hints: Option<&Hints>) -> Result<()> {
    let needed = Bytes(u64::from(plan.keys) * BYTES_A_KEY * 3 / 2);
    let free = free_space(&servers[0].dir)?;
    if free < needed {
        log.line(format!("BGSAVE: skipped: a dump needs {needed}, and {free} are free in the temporary directory"));
        return Ok(());
    }
    let (mut batch_ns, mut paused, mut size) = ([Vec::new(), Vec::new()], None, Bytes(0));
    for (turn, index) in [0, 1, 1, 0].into_iter().enumerate() {
        let server = &mut servers[index];
        let seed = SAVE_SEED + turn as u64;
        let (slice, pause) = while_asking_for_pause(hints, || {
            server.save()?;
            server.slice(seed, plan.save)
        })?;
        batch_ns[index].extend(slice.batch_ns);
        // A pause while A saves is not counted: the daemon does not monitor A.
        if index == 1 {
            paused = paused.or(pause);
        }
        size = server.saved()?;
    }
    batch_ns.iter_mut().for_each(|ns| ns.sort_unstable());
    let [a, b] = [0, 1].map(|i| milliseconds(&batch_ns[i], 990));
    let pause = hints.map(|_| format!("; the daemon: {}", paused.as_deref().unwrap_or("not paused")));
    let longest = |i: usize| milliseconds(&batch_ns[i], 1000);
    log.line(format!(
        "with BGSAVE ({size}): p99 of batches A {a:.2} ms, B {b:.2} ms, longest {:.0} and {:.0} ms{}",
        longest(0),
        longest(1),
        pause.unwrap_or_default()
    ));
    log.result("bgsave_p99_ratio", b / a);
    if hints.is_some() {
        log.result("bgsave_paused", f64::from(u8::from(paused.is_some())));
    }
    Ok(())
}

/// Runs `what`, and polls the daemon meanwhile, because a save may end before `what` does. Returns why the daemon was
/// paused, if it was.
fn while_asking_for_pause<T>(hints: Option<&Hints>, what: impl FnOnce() -> Result<T>) -> Result<(T, Option<String>)> {
    let Some(hints) = hints else { return Ok((what()?, None)) };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let mut paused = None;
            let end = Instant::now() + SAVED_WITHIN;
            // Continues to the end even if paused, so that A and B are polled equally often.
            while !done.load(Ordering::Relaxed) && Instant::now() < end {
                paused = paused.or(hints.status()?.paused);
                sleep(Duration::from_millis(500));
            }
            anyhow::Ok(paused)
        });
        let result = what();
        done.store(true, Ordering::Relaxed);
        let paused = asking.join().expect("no panic")?;
        Ok((result?, paused))
    })
}

/// The free space that `df` reports, because the standard library does not offer it.
fn free_space(dir: &Path) -> Result<Bytes> {
    let output = Command::new("df").args(["--output=avail", "-B1"]).arg(dir).output().context("run df")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let bytes = text.lines().nth(1).and_then(|line| line.trim().parse().ok());
    Ok(Bytes(bytes.with_context(|| format!("no free space in what df says of {}: {text}", dir.display()))?))
}
