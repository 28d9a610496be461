//! The input of a report: a recording, or snapshots from watching for a while.

use crate::args::input::InputArgs;
use crate::args::usage::Usage;
use crate::input::{DEFAULT_RECORDING, Recorded, keep_last};
use crate::output;
use crate::sandbox::{self, Uses};
use crate::watch::{Stop, Watching};
use anyhow::Result;
use isotherm_heat::{RunInfo, Snapshot};
use isotherm_view::tables::{Caveats, CaveatsOf};
use isotherm_view::{TextStyle, human, write_wrapped};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::Path;

/// What a report is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// All snapshots.
    All,
    /// The last one in which a target was alive.
    Last,
    /// That one; live, with all regions of processes that are checked page by page.
    LastWithAllRegions,
}

/// Snapshots, and the run that made them.
pub struct Input {
    /// Those that the report takes. There is one at least.
    pub snapshots: Vec<Snapshot>,
    pub run: RunInfo,
    /// Of all snapshots.
    pub caveats: Caveats,
    is_recorded: bool,
}

impl Input {
    /// Reads the recording, or watches. The report is printed, or written to `file`. If it is printed, watching ends when nobody reads
    /// standard output any more.
    pub fn get(args: &InputArgs, file: Option<&Path>, takes: Takes) -> Result<Input> {
        let input = if args.is_recorded() {
            Input::recorded(args.recording.as_deref(), file, takes)
        } else {
            Input::live(args, file, takes)
        }?;
        if input.snapshots.iter().all(|s| s.targets.is_empty()) {
            anyhow::bail!("nothing was watched: no process with memory of its own was found");
        }
        Ok(input)
    }

    fn recorded(path: Option<&Path>, file: Option<&Path>, takes: Takes) -> Result<Input> {
        let default = Path::new(DEFAULT_RECORDING);
        if path.is_none() && !default.exists() {
            let usage = format!(
                "nothing to report: there is no {DEFAULT_RECORDING}/ here; name a recording, or what to watch: -p PID, --cgroup \
                 PATH, --all, or -- COMMAND"
            );
            return Err(Usage(usage).into());
        }
        let path = path.unwrap_or(default);
        sandbox::files_only(&[path], file.as_slice());
        let mut seen = CaveatsOf::default();
        let Recorded { run, snapshots } = if takes == Takes::All {
            let recorded = Recorded::read(path)?;
            recorded.snapshots.iter().for_each(|snapshot| seen.add(snapshot));
            recorded
        } else {
            Recorded::read_last(path, is_alive, |snapshot| seen.add(snapshot))?
        };
        Ok(Input { snapshots, run, caveats: seen.caveats(), is_recorded: true })
    }

    fn live(args: &InputArgs, file: Option<&Path>, takes: Takes) -> Result<Input> {
        file.map_or(Ok(()), output::can_write)?;
        let stop = Stop::on_signals()?;
        let stop = if file.is_none() { stop.or_on_closed_output()? } else { stop };
        // Twenty columns for a heat map. At least 0.5 s, so that a snapshot costs less than the access checks between two.
        let window = (args.duration_ns() / 20).clamp(500_000_000, 5_000_000_000);
        let uses = file.into_iter().fold(Uses::nothing(), Uses::writing);
        let mut watching = Watching::begin(&args.targets, &args.watch, window, uses)?;
        output::note(&watching.run.source_note);
        // A replay runs to its end, unless it is said for how long.
        let duration = if args.watch.replay.is_some() { args.duration } else { Some(args.duration_ns()) };
        let bar = output::progress(duration, "watching");
        let (mut snapshots, mut seen) = (Vec::new(), CaveatsOf::default());
        watching.snapshots(duration, &stop, &bar, |snapshot| {
            seen.add(&snapshot);
            if takes == Takes::All {
                snapshots.push(snapshot);
            } else {
                keep_last(&mut snapshots, snapshot, is_alive);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        watching.report_refused();
        if takes == Takes::LastWithAllRegions {
            let targets = snapshots.last_mut().into_iter().flat_map(|snapshot| &mut snapshot.targets);
            for target in targets {
                // In the place of those that a snapshot has room for.
                if let Some(regions) = watching.monitor.all_regions_of(target.id.pid) {
                    target.regions = regions;
                }
            }
        }
        let caveats = seen.caveats();
        Ok(Input { snapshots, run: watching.run, caveats, is_recorded: false })
    }

    /// What a recording was made with, and what that cannot show. Live, it is said at the start.
    pub fn source_line(&self) -> Option<String> {
        let note = &self.run.source_note;
        (self.is_recorded && !note.is_empty()).then(|| format!("source: {}", human::printable(note)))
    }

    /// Writes that line, if there is one.
    pub fn write_source(&self, out: &mut dyn Write, style: TextStyle) -> io::Result<()> {
        self.source_line().map_or(Ok(()), |line| write_wrapped(out, &line, style))
    }

    /// The last snapshot in which a target was alive.
    pub fn last(&self) -> &Snapshot {
        let last_alive = self.snapshots.iter().rev().find(|snapshot| is_alive(snapshot));
        last_alive.or(self.snapshots.last()).expect("checked when made")
    }
}

fn is_alive(snapshot: &Snapshot) -> bool {
    snapshot.alive().next().is_some()
}
