//! Snapshots for programs that show them: what a monitor leaves at a second socket, one way, after each window.
//!
//! [`isotherm_stream`] has the format and the socket. [`rows`] fills its rows from a snapshot and from what is known of pages, [`changes`] finds
//! out what has happened since the last one, [`plans`] what actions would do. Nothing of it is done while nobody listens, and what it costs is in the monitor's budget.

mod changes;
mod plans;
mod rows;

use crate::output;
use crate::privileges::as_user;
use anyhow::{Context, Result};
use changes::Changes;
use isotherm_heat::{Clock, Ns, RunInfo, Snapshot};
use isotherm_monitor::Monitor;
use isotherm_schemes::state::Status;
use isotherm_stream::{Broadcaster, EventRow, HostRow, IdleRow, MappingRow, RegionRow};
use plans::Plans;
use std::collections::{BTreeMap, VecDeque};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Events that are sent with a snapshot, and for how long each is.
const MAX_EVENTS: usize = 200;
const EVENT_TTL: Ns = 60_000_000_000;
/// Rows of regions, and of what else there is for parts of processes. With more than twice as many, none of a snapshot could be sent. Sums of
/// processes have all of them in any case.
const MAX_SENT_ROWS: usize = isotherm_stream::MAX_ROWS / 2;
/// Bytes of the names of mappings, a path of a file each.
const MAX_NAME_BYTES: usize = isotherm_stream::MAX_FRAME_BYTES / 4;

/// Sends snapshots.
#[derive(Debug)]
pub struct Publisher {
    broadcaster: Broadcaster,
    /// That a snapshot could not be sent was said.
    has_failed: bool,
    /// That a part of one was left out was said.
    has_cut: bool,
    counters: Counters,
    run: RunInfo,
    hostname: String,
    changes: Changes,
    events: VecDeque<EventRow>,
    plans: Plans,
}

impl Publisher {
    /// To all who connect to a socket at `path`: our own user, root and `group`.
    pub fn listen(path: &Path, group: Option<&str>) -> Result<Publisher> {
        let broadcaster = as_user(|| {
            Broadcaster::open(path, group)
                .with_context(|| format!("send snapshots to those who connect to {}", path.display()))
        })?;
        Ok(Publisher::over(broadcaster))
    }

    /// To the one at the other end.
    pub fn to(end: UnixStream) -> Result<Publisher> {
        Ok(Publisher::over(Broadcaster::over(end).context("send snapshots to the server")?))
    }

    fn over(broadcaster: Broadcaster) -> Publisher {
        let hostname = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Publisher {
            broadcaster,
            has_failed: false,
            has_cut: false,
            counters: Counters::default(),
            run: RunInfo::default(),
            hostname,
            changes: Changes::default(),
            events: VecDeque::new(),
            plans: Plans::default(),
        }
    }

    /// What follows is from this run.
    pub fn of_run(&mut self, run: &RunInfo) {
        self.run = run.clone();
    }

    /// Whether somebody listens.
    pub fn is_heard(&self) -> bool {
        self.broadcaster.clients() > 0
    }

    /// Sends a snapshot, if somebody listens, with what `status` says was done to memory. The first failure is said: it is no reason to
    /// stop.
    pub fn publish(&mut self, monitor: &mut Monitor<Box<dyn Clock>>, snapshot: &Snapshot, status: Option<&Status>) {
        if !self.is_heard() {
            return;
        }
        let sent = self.send(monitor, snapshot, status);
        if let Err(error) = sent.context("send a snapshot")
            && !std::mem::replace(&mut self.has_failed, true)
        {
            output::warn(format_args!("{error:#}"));
        }
    }

    /// What has happened in the last minute. A reader that was slow, or has just come, gets what others have.
    fn events(
        &mut self,
        snapshot: &Snapshot,
        status: Option<&Status>,
        refused: &BTreeMap<u32, String>,
    ) -> Vec<EventRow> {
        self.events.extend(self.changes.since(snapshot, status, refused));
        let surplus = self.events.len().saturating_sub(MAX_EVENTS);
        let old = |event: &EventRow| event.at_unix_ns.saturating_add(EVENT_TTL) <= snapshot.end_unix_ns;
        let over = surplus.max(self.events.iter().take_while(|event| old(event)).count());
        self.events.drain(..over);
        self.events.iter().cloned().collect()
    }

    fn send(
        &mut self,
        monitor: &Monitor<Box<dyn Clock>>,
        snapshot: &Snapshot,
        status: Option<&Status>,
    ) -> isotherm_stream::Result<()> {
        let events = self.events(snapshot, status, monitor.refused());
        let processes = snapshot.targets.iter().map(|target| {
            let pages = monitor.pages_of(target.id.pid).map(|pages| (pages, monitor.now()));
            rows::process(target, (pages, monitor.sampled_extent_of(target.id.pid).is_some()))
        });
        let host = rows::host(&self.run, &self.hostname, snapshot, monitor.unchecked());
        let mut sent = isotherm_stream::Snapshot {
            host: self.counters.go_on(host),
            processes: processes.collect(),
            actions: status.map(rows::actions).unwrap_or_default(),
            events,
            plan: self.plans.of(monitor, snapshot),
            ..isotherm_stream::Snapshot::default()
        };
        for target in snapshot.alive() {
            sent.regions.extend(RegionRow::of(target));
            sent.mappings.extend(MappingRow::of(target));
            sent.idle.extend(IdleRow::of(target));
        }
        let cut = [
            cut(&mut sent.regions, MAX_SENT_ROWS),
            cut(&mut sent.mappings, MAX_SENT_ROWS),
            cut(&mut sent.idle, MAX_SENT_ROWS),
            cut(&mut sent.plan, MAX_SENT_ROWS),
            cut_names(&mut sent.mappings, MAX_NAME_BYTES),
        ];
        if cut.contains(&true) && !std::mem::replace(&mut self.has_cut, true) {
            output::warn(
                "too many regions to be shown: those of the last processes are left out; --max-regions lowers their number",
            );
        }
        self.broadcaster.publish(&sent)
    }
}

/// Leaves out what is beyond `most` rows. Returns whether there was any.
fn cut<R>(rows: &mut Vec<R>, most: usize) -> bool {
    let is_over = rows.len() > most;
    rows.truncate(most);
    is_over
}

/// The same for mappings whose names would take more than `most` bytes together.
fn cut_names(mappings: &mut Vec<MappingRow>, most: usize) -> bool {
    let mut bytes = 0_usize;
    let fits = mappings.iter().take_while(|row| {
        bytes = bytes.saturating_add(row.mapping.name.len());
        bytes <= most
    });
    let fits = fits.count();
    cut(mappings, fits)
}

/// What is counted since a monitor began, of one monitor after the other. New settings begin another one, whose counters begin at 0, while what was
/// done to memory goes on being counted: who adds up steps takes time that falls for another program, and would count all of that once more.
#[derive(Debug, Default)]
struct Counters {
    before: [u64; COUNTERS],
    last: [u64; COUNTERS],
}

const COUNTERS: usize = 7;

impl Counters {
    /// The row with the counters of those before added.
    fn go_on(&mut self, mut host: HostRow) -> HostRow {
        let mut all = counters_of(&mut host);
        let now = all.each_ref().map(|counter| **counter);
        // Time and CPU time.
        if now.iter().zip(self.last).take(2).any(|(now, last)| *now < last) {
            self.before.iter_mut().zip(self.last).for_each(|(before, last)| *before += last);
        }
        self.last = now;
        all.iter_mut().zip(self.before).for_each(|(counter, before)| **counter += before);
        host
    }
}

fn counters_of(host: &mut HostRow) -> [&mut u64; COUNTERS] {
    [
        &mut host.elapsed_ns,
        &mut host.monitor_cpu_ns,
        &mut host.read_errors,
        &mut host.pages_read,
        &mut host.pages_cleared,
        &mut host.pages_retouched,
        &mut host.samples_lost,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_heat::Mapping;

    #[test]
    fn the_counters_of_a_monitor_go_on_from_those_of_the_one_before() {
        let mut counters = Counters::default();
        let mut shown = |elapsed_ns, monitor_cpu_ns, read_errors| {
            let host = counters.go_on(HostRow { elapsed_ns, monitor_cpu_ns, read_errors, ..HostRow::default() });
            [host.elapsed_ns, host.monitor_cpu_ns, host.read_errors]
        };
        assert_eq!([shown(5, 1, 0), shown(9, 3, 2)], [[5, 1, 0], [9, 3, 2]]);
        assert_eq!([shown(1, 1, 0), shown(2, 2, 1)], [[10, 4, 2], [11, 5, 3]], "another monitor");
        assert_eq!(shown(3, 1, 0), [14, 6, 3], "and another, which was opened at less cost");
    }

    #[test]
    fn of_too_many_rows_the_first_are_sent() {
        let mut rows: Vec<u32> = (0..5).collect();
        assert!(!cut(&mut rows, 5) && rows.len() == 5);
        assert!(cut(&mut rows, 3));
        assert_eq!(rows, [0, 1, 2]);
        let row = |name: &str| {
            let (range, perms) = (isotherm_units::AddrRange::default(), isotherm_units::Perms::READ);
            MappingRow { pid: 1, start_ticks: 1, mapping: Mapping { range, name: name.into(), perms } }
        };
        let mut rows = vec![row("/a"), row("/bc"), row("/d")];
        assert!(!cut_names(&mut rows, 7) && rows.len() == 3);
        assert!(cut_names(&mut rows, 6) && rows.len() == 2);
    }
}
