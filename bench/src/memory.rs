//! The memory that a monitor takes for each page of its target: the growth of its RSS between two sizes of target.
//!
//! Each monitor runs in a process of its own, which is this program started again: freed memory of an earlier case would hide
//! what a later one takes. The workload is started here, because its reports take memory as well.
//!
//! Which pages of the program itself and of its libraries a monitor has touched is chance, and comes to tens of KiB more or less. So it
//! touches all of them before its RSS is read.

use crate::{RealClock, monitor_of, own_rss, pages_that_fit, start};
use anyhow::{Context, Result};
use isotherm_heat::Ns;
use isotherm_monitor::Settings;
use isotherm_sys::clock;
use isotherm_sys::proc::Proc;
use isotherm_units::PAGE_SIZE;
use isotherm_workload::Pattern;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::thread;

pub(crate) const MONITOR: &str = "--monitor";
const S: Ns = 1_000_000_000;
const SMALL_PAGES: usize = 1 << 18;
const LARGE_PAGES: usize = 12 << 18;
/// Every page of the small target is checked many times within a part of this.
const LONGEST_SMALL_S: u64 = 20;

/// RSS of a monitor, in bytes, of a small and a large target.
#[derive(Clone, Copy, Debug)]
pub struct Growth {
    /// Of a target of 1 GiB.
    pub small: u64,
    /// Of one of 12 GiB, or of as much as fits.
    pub large: u64,
    pages: usize,
}

impl Growth {
    /// Measures it for the targets that `of` makes of a number of pages, after `seconds`; the small one after 20 at the latest. Both side
    /// by side: it is their memory that counts, not their time.
    pub fn measure(of: impl Fn(usize) -> Pattern, seconds: u64) -> Result<Growth> {
        let large_pages = pages_that_fit(LARGE_PAGES + SMALL_PAGES)?.saturating_sub(SMALL_PAGES);
        anyhow::ensure!(large_pages > SMALL_PAGES, "there is not enough free memory for a target of more than 1 GiB");
        let (of_small, of_large) = (of(SMALL_PAGES), of(large_pages));
        let (small, large) = thread::scope(|scope| {
            let small = scope.spawn(|| rss_with(&of_small, seconds.min(LONGEST_SMALL_S)));
            let large = rss_with(&of_large, seconds);
            (small.join().expect("it does not panic"), large)
        });
        let (small, large) = (small?, large?);
        Ok(Growth { small, large, pages: large_pages - SMALL_PAGES })
    }

    /// Bytes for each page of the target.
    pub fn bytes_per_page(&self) -> f64 {
        (self.large as f64 - self.small as f64) / self.pages as f64
    }
}

impl std::fmt::Display for Growth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mib = |bytes: u64| bytes as f64 / 1_048_576.0;
        let gib = (self.pages + SMALL_PAGES) as f64 / 262_144.0;
        write!(f, "{:.1} MiB for 1 GiB, {:.1} MiB for {gib:.1} GiB", mib(self.small), mib(self.large))?;
        write!(f, ": {:.2} bytes a page", self.bytes_per_page())
    }
}

fn rss_with(pattern: &Pattern, seconds: u64) -> Result<u64> {
    let child = start(pattern)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args([MONITOR, &child.pid().to_string(), &seconds.to_string()]).stderr(Stdio::inherit());
    let output = command.output().context("start a monitor")?;
    anyhow::ensure!(output.status.success(), "the monitor failed ({})", output.status);
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

/// Runs as such a monitor: monitors the workload, and prints its own RSS.
pub(crate) fn run(mut args: impl Iterator<Item = String>) -> Result<()> {
    let pid: u32 = args.next().context("no process")?.parse()?;
    let seconds: u64 = args.next().context("no time")?.parse()?;
    let mut monitor = monitor_of(vec![pid], RealClock, Settings::default())?;
    let end = monitor.now() + seconds * S;
    while monitor.now() < end {
        let until = (monitor.now() + 2 * S).min(end);
        monitor.watch(until, &AtomicBool::new(false))?;
        let snapshot = monitor.snapshot(clock::unix_ns());
        anyhow::ensure!(!snapshot.targets.is_empty(), "the target is gone");
    }
    touch_files()?;
    println!("{}", own_rss()?);
    Ok(())
}

/// Reads all that this process has mapped of files, so that it is resident.
fn touch_files() -> Result<()> {
    let memory = File::open("/proc/self/mem").context("open our own memory")?;
    let mut page = vec![0; usize::try_from(PAGE_SIZE)?];
    for mapping in Proc::default().maps(std::process::id())?.iter().filter(|mapping| !mapping.is_anonymous()) {
        for start in (mapping.range.start.0..mapping.range.end.0).step_by(page.len()) {
            // What lies behind the end of a file cannot be read, and is not resident.
            let _ = memory.read_exact_at(&mut page, start);
        }
    }
    Ok(())
}
