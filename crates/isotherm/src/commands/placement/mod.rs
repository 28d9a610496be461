//! `isotherm placement`: how much the frames of real processes would miss in a direct-mapped memory-side cache, at their current place
//! and at others.
//!
//! Turns options into the input of `isotherm_placement`, shows progress, and prints the report. [`heat`] provides the heat, because
//! watching and recordings belong to this program. No frame is moved.

pub mod args;
mod heat;
mod late;

use crate::args::usage::Usage;
use crate::commands::plan::Plan;
use crate::output;
use crate::privileges::Needs;
use crate::sandbox::Uses;
use crate::watch::{Stop, selection};
use anyhow::{Context, Result, anyhow};
use args::PlacementArgs;
use isotherm_host::{HostFacts, HostRoots};
use isotherm_monitor::Follower;
use isotherm_placement::compute::{self, Drawing};
use isotherm_placement::direct_mapped::DirectMapped;
use isotherm_placement::heat::Process;
use isotherm_placement::read::{self, Assumed, Listed, Machine};
use isotherm_sys::proc::Proc;
use isotherm_sys::random;
use isotherm_units::{Bytes, PAGE_SIZE};
use isotherm_view::placement::{picture_grid, write_text};
use late::Late;
use std::io::Write;
use std::path::Path;

/// How long heat is watched by default.
const WATCHED_NS: u64 = 10_000_000_000;
const CACHE_SIZE: &str = "--cache-size";

impl PlacementArgs {
    /// Returns the arguments if they go together.
    pub fn plan(self) -> Result<PlacementArgs, Usage> {
        check(&self).map(|()| self)
    }
}

impl Plan for PlacementArgs {
    fn needs(&self) -> Needs {
        self.targets.needs()
    }

    fn run(&self) -> Result<()> {
        run(self)
    }
}

fn run(args: &PlacementArgs) -> Result<()> {
    let facts = HostFacts::read(&HostRoots::default(), PAGE_SIZE);
    let proc = Proc::default();
    let machine = machine(args.cache_size, &facts)?;
    read::check_visible(&proc)?;
    let stop = Stop::on_signals()?.or_on_closed_output()?;
    let (processes, weighed_by, _watching) = match wanted_heat(args) {
        None => {
            Uses::frames().enter();
            (resident(args, &proc)?, None, None)
        }
        Some(Wanted::Recording(path)) => {
            Uses::frames().enter();
            let (processes, weighted_by) = heat::recorded(path, &args.targets.pids)?;
            (processes, Some(weighted_by), None)
        }
        Some(Wanted::Watched(ns)) => {
            let (processes, weighted_by, watching) = heat::watched(args, ns, &stop)?;
            (processes, Some(weighted_by), Some(watching))
        }
    };
    let (footprint, whose) = read::collect(&processes, weighed_by, &mut Late::new("reading frames", &stop))?;
    let placed = machine.place(footprint, proc.root())?;
    let style = output::terminal_style(args.color);
    let (columns, rows) = picture_grid(style.text);
    let drawing = Drawing { seed: args.watch.seed.unwrap_or_else(random::seed), columns, rows };
    let report = compute::report(whose, placed, drawing, &mut Late::new("drawing placements", &stop))?;
    if args.json {
        return output::json(&report);
    }
    let mut out = output::stdout();
    write_text(&report, &mut out, &style)?;
    out.flush()?;
    Ok(())
}

/// Checks what clap cannot check.
fn check(args: &PlacementArgs) -> Result<(), Usage> {
    if args.watch.is_played() || args.watch.is_of_machine() {
        return Err(Usage(
            "frames are those of running processes: name them, without --replay, --model or physical sources".into(),
        ));
    }
    if args.targets.is_empty() && args.from.is_none() {
        return Err(Usage("name whose frames: -p PID, --cgroup PATH, --all, or -- COMMAND with --watch TIME".into()));
    }
    if !args.targets.command.is_empty() && args.watch_for.is_none() {
        return Err(Usage(
            "a command has no frames yet when it starts: give the time that it runs first with --watch".into(),
        ));
    }
    if args.watch.sampling.is_given() && args.watch_for.is_none() && !args.heat {
        return Err(Usage("events are sampled for heat: add --watch TIME".into()));
    }
    Ok(())
}

enum Wanted<'a> {
    Recording(&'a Path),
    Watched(u64),
}

fn wanted_heat(args: &PlacementArgs) -> Option<Wanted<'_>> {
    match (&args.from, args.watch_for) {
        (Some(path), _) => Some(Wanted::Recording(path)),
        (None, Some(ns)) => Some(Wanted::Watched(ns)),
        (None, None) => args.heat.then_some(Wanted::Watched(WATCHED_NS)),
    }
}

/// The nodes of this machine, behind a cache of the given size or behind its own. If there is neither, the error names the option that
/// models a cache.
fn machine(cache_size: Option<Bytes>, facts: &HostFacts) -> Result<Machine> {
    let assumed = cache_size.map(DirectMapped::new).transpose();
    let assumed = assumed.map_err(|why| Usage(format!("{CACHE_SIZE}: {why}")))?;
    let assumed = assumed.map(|cache| Assumed { cache, by: CACHE_SIZE });
    Machine::new(assumed, facts).map_err(|error| {
        let model = format!("model one with {CACHE_SIZE}, as in {CACHE_SIZE} 16GiB");
        match error {
            read::Error::NoCache => anyhow!("{error}; {model}"),
            read::Error::UnclearCache { .. } => {
                anyhow!("{error}; `isotherm doctor --probe-cache` may find out; {model}")
            }
            other => other.into(),
        }
    })
}

/// The selected processes, without heat.
fn resident(args: &PlacementArgs, proc: &Proc) -> Result<Vec<Process>> {
    let selection = selection(&args.targets).context("a command is watched")?;
    let mut follower = Follower::new(&selection, proc.clone())?;
    let pids = follower.current()?;
    let listed = pids.into_iter().map(|pid| Listed { pid, named: follower.was_named(pid) });
    Ok(read::resident(listed, follower.is_named(), proc)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_size_that_no_cache_has_is_wrong_usage() {
        for wrong in [0, 4095, 5000] {
            let error = machine(Some(Bytes(wrong)), &HostFacts::default()).unwrap_err();
            assert!(error.is::<Usage>() && error.to_string().starts_with("--cache-size: "), "{wrong}: {error}");
        }
    }

    #[test]
    fn without_a_cache_it_says_how_to_model_or_find_one() {
        let root = tempfile::tempdir().unwrap();
        let why = || {
            let [proc, sys, boot] = ["proc", "sys", "boot"].map(|dir| root.path().join(dir));
            machine(None, &HostFacts::read(&HostRoots { proc, sys, boot }, PAGE_SIZE)).unwrap_err().to_string()
        };
        let none = "this machine reports no direct-mapped memory-side cache; \
                    model one with --cache-size, as in --cache-size 16GiB";
        assert_eq!(why(), none);
        let node = root.path().join("sys/devices/system/node/node0");
        let cache = node.join("memory_side_cache/index1");
        fs::create_dir_all(&cache).unwrap();
        fs::write(node.join("meminfo"), "Node 0 MemTotal:       1048576 kB\n").unwrap();
        for (file, text) in [("size", "0\n"), ("indexing", "0\n"), ("line_size", "64\n"), ("write_policy", "0\n")] {
            fs::write(cache.join(file), text).unwrap();
        }
        let unclear = why();
        assert!(unclear.starts_with("no memory-side cache of this machine is known"), "{unclear}");
        let end =
            "); `isotherm doctor --probe-cache` may find out; model one with --cache-size, as in --cache-size 16GiB";
        assert!(unclear.contains("(node 0: ") && unclear.ends_with(end), "{unclear}");
    }
}
