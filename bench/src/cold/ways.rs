//! The ways to page out: `isotherm run`, `memory.reclaim` of the cgroup by size, a scheme of the kernel's DAMON on the same processes,
//! and the same on all memory, which is what DAMON_RECLAIM does. Each of the others is given the amount that ours has paged out.
//!
//! DAMON_RECLAIM itself does nothing on Debian's 6.12.117: it sets its scheme up in one context and then copies an empty one over it.
//! So its scheme is set up here, by the files of DAMON, with its pattern and its priorities (the oldest first).

use super::scene::Scene;
use super::set;
use anyhow::{Context, Result};
use isotherm_bench::daemon::Daemon;
use std::fs;
use std::path::Path;

const DAMON: &str = "/sys/kernel/mm/damon/admin/kdamonds";
/// A quota of DAMON is for this long: for all of a run.
const QUOTA_MS: u64 = 1_000_000_000;

/// A way to page out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Nothing leaves.
    None,
    /// `isotherm run`.
    Ours,
    /// `memory.reclaim`.
    BySize,
    /// DAMON's scheme `pageout` on the processes.
    Damos,
    /// The same on all memory.
    DamonReclaim,
}

impl Way {
    /// All of them. Ours is before those that page out as much.
    pub const ALL: [Way; 5] = [Way::None, Way::Ours, Way::BySize, Way::Damos, Way::DamonReclaim];

    /// What the table calls it.
    pub fn text(self) -> &'static str {
        match self {
            Way::None => "nothing",
            Way::Ours => "isotherm run",
            Way::BySize => "memory.reclaim by size",
            Way::Damos => "DAMOS pageout",
            Way::DamonReclaim => "DAMON_RECLAIM's scheme",
        }
    }

    /// Starts it. What is idle for `age_s` may leave, and by the kernel's ways no more than `bytes`.
    pub fn start(self, scene: &Scene, age_s: u64, bytes: u64) -> Result<Working> {
        Ok(match self {
            Way::None | Way::BySize => Working::Nothing,
            Way::Ours => Working::Ours(Daemon::start(
                &scene.pids(),
                &format!("[[scheme]]\naction = \"page-out\"\nmin_idle = \"{age_s}s\"\n"),
            )?),
            Way::Damos => {
                start_damon(&Space::Of(&scene.pids()), age_s, bytes)?;
                Working::Damon
            }
            Way::DamonReclaim => {
                start_damon(&Space::Physical, age_s, bytes)?;
                Working::Damon
            }
        })
    }
}

/// A way at work. What was changed of the kernel is set back when this value is dropped.
#[derive(Debug)]
pub enum Working {
    Nothing,
    Ours(Daemon),
    Damon,
}

impl Drop for Working {
    fn drop(&mut self) {
        if matches!(self, Working::Damon) {
            let _ = set(format!("{DAMON}/0/state"), "off").and_then(|()| set(format!("{DAMON}/nr_kdamonds"), 0));
        }
    }
}

/// Has the kernel reclaim so many bytes of anonymous memory of the cgroup. Returns what has left.
pub fn reclaim_by_size(scene: &Scene, bytes: u64) -> Result<u64> {
    let before = scene.swapped()?;
    for _ in 0..20 {
        let left = scene.swapped()?.saturating_sub(before);
        if left + 64 * 4096 >= bytes {
            break;
        }
        // It fails where it could not reclaim all; some of it has left then.
        let _ = fs::write(scene.cgroup.file("memory.reclaim"), format!("{} swappiness=200", bytes - left));
    }
    Ok(scene.swapped()?.saturating_sub(before))
}

/// Samples and aggregations of DAMON. At its defaults, a twentieth of both, a page that is accessed ten times a second is seen in one
/// sample of twenty, and looks idle.
const SAMPLE_US: u64 = 100_000;
const AGGREGATION_US: u64 = 2_000_000;

/// What DAMON watches.
enum Space<'a> {
    /// The memory of these processes.
    Of(&'a [u32]),
    /// All memory, as DAMON_RECLAIM does, with its priorities.
    Physical,
}

/// Starts a scheme that pages out what was not accessed for the age, until so many bytes have left.
fn start_damon(space: &Space<'_>, age_s: u64, bytes: u64) -> Result<()> {
    let kdamonds = Path::new(DAMON);
    set(kdamonds.join("nr_kdamonds"), 1)?;
    set(kdamonds.join("0/contexts/nr_contexts"), 1)?;
    let context = kdamonds.join("0/contexts/0");
    set(context.join("monitoring_attrs/intervals/sample_us"), SAMPLE_US)?;
    set(context.join("monitoring_attrs/intervals/aggr_us"), AGGREGATION_US)?;
    set_space(&context, space)?;
    set(context.join("schemes/nr_schemes"), 1)?;
    let scheme = context.join("schemes/0");
    set(scheme.join("action"), "pageout")?;
    let age = age_s * 1_000_000 / AGGREGATION_US;
    for (what, min, max) in [("sz", 4096, u64::MAX >> 1), ("nr_accesses", 0, 0), ("age", age, u64::from(u32::MAX))] {
        set(scheme.join(format!("access_pattern/{what}/min")), min)?;
        set(scheme.join(format!("access_pattern/{what}/max")), max)?;
    }
    set(scheme.join("quotas/bytes"), bytes)?;
    set(scheme.join("quotas/reset_interval_ms"), QUOTA_MS)?;
    // The oldest first.
    set(scheme.join("quotas/weights/age_permil"), 1000)?;
    set(kdamonds.join("0/state"), "on")
}

fn set_space(context: &Path, space: &Space<'_>) -> Result<()> {
    let targets = context.join("targets");
    match space {
        Space::Of(pids) => {
            set(context.join("operations"), "vaddr")?;
            set(targets.join("nr_targets"), pids.len())?;
            pids.iter().enumerate().try_for_each(|(no, pid)| set(targets.join(format!("{no}/pid_target")), pid))
        }
        Space::Physical => {
            let (start, end) = largest_ram()?;
            set(context.join("operations"), "paddr")?;
            set(targets.join("nr_targets"), 1)?;
            set(targets.join("0/regions/nr_regions"), 1)?;
            set(targets.join("0/regions/0/start"), start)?;
            set(targets.join("0/regions/0/end"), end)
        }
    }
}

/// First address of the largest range of memory, and the first address after it.
fn largest_ram() -> Result<(u64, u64)> {
    let text = fs::read_to_string("/proc/iomem")?;
    let ranges = text.lines().filter_map(|line| {
        let (start, end) = line.strip_suffix(" : System RAM")?.split_once('-')?;
        Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()? + 1))
    });
    ranges.max_by_key(|(start, end)| end - start).context("no System RAM in /proc/iomem")
}
