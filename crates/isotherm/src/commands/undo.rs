//! `isotherm undo`: brings back what `collapse`, `split` and `run` have changed, by their journal: collapsed huge ranges are split, split
//! ones are collapsed. Of several acts on a huge range the first counts, since it says what was there before.
//!
//! It works on processes that are still there, and while nothing else goes on acting. What could not be brought back stays in the journal.

use crate::commands::plan::Plan;
use crate::journal::{OwnJournal, default_journal, is_there};
use crate::output;
use crate::privileges::Needs;
use crate::sandbox::Uses;
use crate::serving::{Answered, serve};
use crate::watch::Stop;
use anyhow::{Result, bail};
use clap::Args;
use isotherm_heat::TargetId;
use isotherm_schemes::collapse::{COLLAPSE, Collapse};
use isotherm_schemes::journal::{Act, Entry};
use isotherm_schemes::machine::Live;
use isotherm_schemes::split::{SPLIT, Split};
use isotherm_schemes::{Action, Budgets, Hint, Level, Origin, Outcome, Refusal, Worker};
use isotherm_sys::clock;
use isotherm_sys::proc::{MapEntry, Proc};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub struct UndoArgs {
    /// The journal [default: /run/isotherm/isotherm.journal of root, $XDG_RUNTIME_DIR/isotherm.journal of others]
    #[arg(long, value_name = "PATH")]
    pub journal: Option<PathBuf>,
    /// Only print what would be done
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What was done, and what is left.
#[derive(Debug, Default, Serialize)]
struct Report {
    dry_run: bool,
    /// Huge ranges that were collapsed, and are to be split.
    to_split: u64,
    /// Huge ranges that were split, and are to be collapsed.
    to_collapse: u64,
    /// Those brought back.
    split: u64,
    collapsed: u64,
    /// Those that are as they were already, or that are not there any more.
    moot: u64,
    /// Those that stay as they are, by reason. They stay in the journal.
    left: BTreeMap<Refusal, u64>,
    /// Those that were not tried in the end: a guard held them up.
    unserved: u64,
}

impl Plan for UndoArgs {
    fn needs(&self) -> Needs {
        Needs::Watching
    }

    fn run(&self) -> Result<()> {
        let path = self.journal.clone().map_or_else(default_journal, Ok)?;
        let mut report = Report { dry_run: self.dry_run, ..Report::default() };
        if path.exists() {
            self.undo_journal(&path, &mut report)?;
        } else {
            output::note(format_args!("{} is not there: nothing was done that could be undone", path.display()));
        }
        if self.json {
            output::json(&report)?;
            return report.check();
        }
        let mut out = output::stdout();
        report.write_text(&mut out)?;
        out.flush()?;
        report.check()
    }
}

impl UndoArgs {
    fn undo_journal(&self, path: &Path, report: &mut Report) -> Result<()> {
        let stop = Stop::on_signals()?;
        let Some(journal) = OwnJournal::open(path)? else {
            bail!(
                "{} is in use: something goes on acting; end it first (`isotherm status` finds an isotherm run)",
                path.display()
            );
        };
        Uses::nothing().collapsing().paging_out().enter();
        for entry in &journal.entries {
            *(if entry.act == Act::Collapse { &mut report.to_split } else { &mut report.to_collapse }) += 1;
        }
        if !self.dry_run {
            let left = undo(&journal.entries, report, &stop);
            journal.keep(&left)?;
        }
        Ok(())
    }
}

/// Pages that the kernel gave back come back too, so a process may grow, and nothing has to be present. Nothing is kept in
/// reserve: whatever fits is brought back.
fn budgets() -> Budgets {
    Budgets {
        per_second: 1000.0,
        cpu_pct: 100.0,
        stall_pct: 50.0,
        growth_pct: 1e6,
        min_present: 0,
        headroom_pct: 0.0,
        free_blocks: 0,
        cgroup_margin_pct: 0.0,
        ..Budgets::default()
    }
}

/// Brings back all that is in the journal. Returns what could not be brought back.
fn undo(entries: &[Entry], report: &mut Report, stop: &Stop) -> Vec<Entry> {
    let actions: Vec<Box<dyn Action<Live> + Send>> =
        vec![Box::new(Collapse { files: true }), Box::new(Split::default())];
    let mut worker = Worker::new(Live::new(), actions, budgets(), clock::monotonic_ns());
    let mut refused: BTreeMap<TargetId, Refusal> = BTreeMap::new();
    for process in entries.iter().map(|entry| entry.process).collect::<BTreeSet<_>>() {
        if let Err(refusal) = worker.admit(process, clock::monotonic_ns()) {
            refused.insert(process, refusal);
        }
    }
    let hints = entries.iter().filter(|entry| !refused.contains_key(&entry.process)).map(hint).collect();
    let Answered { answers, unserved, .. } = serve(&mut worker, hints, "undoing", stop);
    report.unserved = unserved as u64;
    let by_range: BTreeMap<_, &Entry> = entries.iter().map(|entry| (entry.range(), entry)).collect();
    let mut brought_back = BTreeSet::new();
    let mut note_left = |refusal: Refusal| *report.left.entry(refusal).or_default() += 1;
    entries.iter().filter_map(|entry| refused.get(&entry.process)).for_each(|refusal| note_left(*refusal));
    for answer in answers {
        let range = (answer.hint.process, answer.hint.pmd);
        match answer.outcome {
            Outcome::Done { .. } if answer.hint.action == SPLIT => report.split += 1,
            Outcome::Done { .. } => report.collapsed += 1,
            Outcome::Refused(refusal) if is_moot(refusal, by_range[&range]) => report.moot += 1,
            Outcome::Refused(refusal) => {
                note_left(refusal);
                continue;
            }
        }
        brought_back.insert(range);
    }
    entries.iter().filter(|entry| !brought_back.contains(&entry.range())).copied().collect()
}

/// Whether nothing is left to bring back.
fn is_moot(refusal: Refusal, entry: &Entry) -> bool {
    match refusal {
        Refusal::AlreadyHuge | Refusal::NotHuge => true,
        // Of what was split, all pages may be in swap. Where the program has unmapped some of it, there is no huge page to make.
        Refusal::Unmapped => entry.act == Act::Collapse || !is_mapped_whole(entry),
        Refusal::Straddles => entry.act == Act::Split && !is_mapped_whole(entry),
        Refusal::Gone => !is_there(entry),
        _ => false,
    }
}

/// Whether one mapping has all of the huge range. What cannot be read is taken to be there.
fn is_mapped_whole(entry: &Entry) -> bool {
    let range = entry.pmd.range();
    let has_all = |mapping: &MapEntry| mapping.range.start <= range.start && range.end <= mapping.range.end;
    Proc::default().maps(entry.process.pid).map_or(true, |maps| maps.iter().any(has_all))
}

fn hint(entry: &Entry) -> Hint {
    let action = if entry.act.undone_by() == Act::Split { SPLIT } else { COLLAPSE };
    Hint { process: entry.process, pmd: entry.pmd, action, level: Level::new(0), origin: Origin::External, since: 0 }
}

impl Report {
    /// Fails if something could not be brought back.
    fn check(&self) -> Result<()> {
        let left = self.left.values().sum::<u64>() + self.unserved;
        if left > 0 {
            bail!("{left} huge ranges could not be brought back, and stay in the journal");
        }
        Ok(())
    }

    fn write_text(&self, out: &mut dyn Write) -> Result<()> {
        let Report { to_split, to_collapse, .. } = self;
        if self.dry_run {
            writeln!(
                out,
                "{to_split} huge ranges were collapsed and would be split, {to_collapse} were split and would be collapsed"
            )?;
        } else {
            let Report { split, collapsed, moot, unserved, .. } = self;
            writeln!(
                out,
                "{split} of {to_split} collapsed huge ranges split, {collapsed} of {to_collapse} split ones collapsed; {moot} were as before, or are gone"
            )?;
            for (refusal, count) in &self.left {
                writeln!(out, "  left: {count:>7} huge ranges  {}", refusal.text())?;
            }
            if *unserved > 0 {
                writeln!(out, "  left: {unserved:>7} huge ranges  not tried: something held them up; try again")?;
            }
        }
        writeln!(
            out,
            "what was paged out comes back when it is accessed; what was moved between memory tiers stays there until it moves up for its heat"
        )?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_units::{Addr, PMD_SIZE, PmdNo};

    #[test]
    fn what_the_program_has_unmapped_is_not_left_to_bring_back() {
        let own = Proc::default().identity(std::process::id()).unwrap();
        let process = TargetId { pid: own.pid, start_ticks: own.start_ticks };
        let at = |pmd: PmdNo, act| Entry { process, image: None, pmd, act };
        // The lowest addresses are never mapped. Of this list, at least one huge range is.
        let memory = vec![1_u8; 4 * usize::try_from(PMD_SIZE).unwrap()];
        let mapped = Addr(memory.as_ptr() as u64).pmd().next();
        assert!(is_moot(Refusal::Unmapped, &at(PmdNo(0), Act::Split)));
        assert!(!is_moot(Refusal::Unmapped, &at(mapped, Act::Split)), "all of it may be in swap");
        assert!(is_moot(Refusal::Unmapped, &at(mapped, Act::Collapse)));
        assert!(is_moot(Refusal::Straddles, &at(PmdNo(0), Act::Split)));
        assert!(!is_moot(Refusal::Busy, &at(PmdNo(0), Act::Split)));
        drop(memory);
    }
}
