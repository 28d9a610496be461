//! How often the pages of a process are accessed: page by page where that is known, by region where it is not.
//!
//! A page counts as often accessed as its interval says. One that was never seen accessed counts as never accessed: that it may be, every
//! few minutes, is a guess, and as many guesses as a process has cold pages would outweigh what is known.

use super::args::PlacementArgs;
use crate::input::Recorded;
use crate::output;
use crate::watch::{Stop, Watching};
use anyhow::{Result, bail};
use isotherm_heat::{Region, Run, Target, TargetHeat};
use isotherm_sys::proc::Proc;
use isotherm_units::PageNo;
use isotherm_view::human;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

const WINDOW_NS: u64 = 2_000_000_000;
/// A region whose mean interval is so many times its mean idle time consists of pages that were never seen.
const GUESSED: u64 = 4;

/// A process, and what is known of its heat.
#[derive(Clone, Debug)]
pub struct Heated {
    pub pid: u32,
    /// When it started; `None` if that is not known.
    pub start_ticks: Option<u64>,
    pub comm: String,
    /// Whether the user named it, so that it must not be left out.
    pub named: bool,
    /// `None` if heat was not asked for.
    pub heat: Option<Heat>,
}

impl Heated {
    /// A process of which nothing is known.
    pub fn of(pid: u32) -> Heated {
        Heated { pid, start_ticks: None, comm: String::new(), named: false, heat: None }
    }
}

/// Pages of one rate.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Span {
    first: u64,
    end: u64,
    rate_hz: f32,
}

/// Accesses a second of the pages of a process whose heat is known.
#[derive(Clone, Debug, Default)]
pub struct Heat {
    /// In order, disjoint.
    spans: Vec<Span>,
}

impl Heat {
    fn push(&mut self, first: u64, end: u64, rate_hz: f32) {
        match self.spans.last_mut() {
            Some(last) if last.end == first && last.rate_hz.to_bits() == rate_hz.to_bits() => last.end = end,
            _ if first < end => self.spans.push(Span { first, end, rate_hz }),
            _ => {}
        }
    }

    /// By page.
    fn of_pages(target: &Target, now: u64) -> Heat {
        let mut heat = Heat::default();
        target.for_each_block(now, |block, view| {
            for run in view.runs {
                if let Some(rate) = rate_of(run) {
                    let first = block.page(usize::from(run.first)).0;
                    heat.push(first, first + u64::from(run.pages), rate);
                }
            }
        });
        heat
    }

    /// By region: each page at the mean of those that were measured.
    fn of_regions(regions: &[Region]) -> Heat {
        let mut heat = Heat::default();
        for region in regions.iter().filter(|r| r.measured_pages > 0) {
            let guessed = region.interval.ns().is_some_and(|ns| ns > GUESSED * region.idle_ns.max(1));
            let rate = if guessed { 0.0 } else { region.rate_hz };
            heat.push(region.range.start.page().0, region.range.end.page().0, rate);
        }
        heat
    }

    /// Accesses a second of a page; `None` if none is known. Pages are to be asked for in order: `at` is where the last was.
    pub fn rate_at(&self, page: PageNo, at: &mut usize) -> Option<f32> {
        while self.spans.get(*at).is_some_and(|span| span.end <= page.0) {
            *at += 1;
        }
        self.spans.get(*at).filter(|span| span.first <= page.0).map(|span| span.rate_hz)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a rate needs no more digits")]
fn rate_of(run: &Run) -> Option<f32> {
    if !run.interval.is_measured() {
        return None;
    }
    let guessed = run.idle.is_measured() && run.interval >= run.idle.extrapolated();
    Some(if guessed { 0.0 } else { run.interval.rate_hz() as f32 })
}

/// Watches for a while, and tells how. A command that was started lives as long as what is returned last.
pub fn watched(args: &PlacementArgs, ns: u64, stop: &Stop) -> Result<(Vec<Heated>, String, Watching)> {
    let mut watching = Watching::begin(&args.targets, &args.watch, WINDOW_NS)?;
    output::note(&watching.run.source_note);
    let bar = output::progress(Some(ns), "watching");
    let mut known: BTreeMap<u32, Heated> = BTreeMap::new();
    watching.windows(Some(ns), stop, &bar, |monitor, snapshot| {
        known.clear();
        for target in snapshot.targets.iter().filter(|t| !t.exited) {
            let heat = match monitor.pages_of(target.id.pid) {
                Some(pages) => Heat::of_pages(pages, monitor.now()),
                None => Heat::of_regions(&target.regions),
            };
            known.insert(target.id.pid, heated(target, heat, args.targets.pids.contains(&target.id.pid)));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    watching.tell_refused();
    if stop.is_set() {
        bail!("stopped before frames were read");
    }
    if known.is_empty() {
        bail!("nothing was watched to the end: no process with memory of its own is left");
    }
    let told = format!("watched for {}, {}", human::duration(ns), watching.run.source);
    Ok((known.into_values().collect(), told, watching))
}

/// Reads the last snapshot of a recording in which something was alive, and tells which that was. Its processes have to be running still.
pub fn recorded(path: &Path, pids: &[u32]) -> Result<(Vec<Heated>, String)> {
    let recorded = Recorded::read(path)?;
    let wanted = |t: &&TargetHeat| !t.exited && (pids.is_empty() || pids.contains(&t.id.pid));
    let Some(last) = recorded.snapshots.iter().rev().find(|s| s.targets.iter().any(|t| wanted(&t))) else {
        bail!("{}: none of the processes named is in it", path.display());
    };
    let proc = Proc::default();
    let mut known = Vec::new();
    for target in last.targets.iter().filter(wanted) {
        let named = pids.contains(&target.id.pid);
        let mut process = heated(target, Heat::of_regions(&target.regions), named);
        // Files of damo do not tell when a process started.
        process.start_ticks = process.start_ticks.filter(|ticks| *ticks > 0);
        // Others may have ended since, as long as one is left.
        process.named |= last.targets.iter().filter(wanted).count() == 1;
        if process.comm.is_empty() {
            process.comm = proc.stat(target.id.pid).map(|stat| stat.comm).unwrap_or_default();
        }
        known.push(process);
    }
    let told = format!("{}, snapshot of {} UTC", path.display(), human::utc(last.end_unix_ns));
    Ok((known, told))
}

fn heated(target: &TargetHeat, heat: Heat, named: bool) -> Heated {
    let start_ticks = Some(target.id.start_ticks);
    Heated { pid: target.id.pid, start_ticks, comm: target.comm.clone(), named, heat: Some(heat) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_looked_up_in_order() {
        let mut heat = Heat::default();
        for (first, end, rate) in [(10, 12, 1.0), (12, 14, 1.0), (14, 14, 9.0), (20, 21, 0.0), (30, 40, 5.0)] {
            heat.push(first, end, rate);
        }
        assert_eq!(heat.spans.len(), 3, "alike neighbours are one: {heat:?}");
        let mut at = 0;
        let rates: Vec<Option<f32>> =
            [9, 10, 13, 14, 20, 25, 35, 39, 40].map(|page| heat.rate_at(PageNo(page), &mut at)).into();
        assert_eq!(rates, [None, Some(1.0), Some(1.0), None, Some(0.0), None, Some(5.0), Some(5.0), None]);
    }
}
