//! Snapshots for programs that show them: what a monitor leaves at a second socket, one way, after each window.
//!
//! [`isotherm_stream`] has the format and the socket. [`rows`] fills its rows from a snapshot and from what is known of pages, [`changes`] finds
//! out what has happened since the last one, [`plans`] what actions would do. Nothing of it is done while nobody listens, and what it costs is in the monitor's budget.

mod changes;
mod plans;
mod rows;

use crate::output;
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
const MOST_ROWS: usize = isotherm_stream::MAX_ROWS / 2;

/// Sends snapshots.
#[derive(Debug)]
pub struct Publisher {
    broadcaster: Broadcaster,
    /// That a snapshot could not be sent was said.
    has_failed: bool,
    /// That a part of one was left out was said.
    has_cut: bool,
    clocks: Clocks,
    run: RunInfo,
    hostname: String,
    changes: Changes,
    events: VecDeque<EventRow>,
    plans: Plans,
}

impl Publisher {
    /// To all who connect to a socket at `path`: our own user, root and `group`.
    pub fn listen(path: &Path, group: Option<&str>) -> Result<Publisher> {
        let broadcaster = Broadcaster::open(path, group)
            .with_context(|| format!("send snapshots to those who connect to {}", path.display()))?;
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
            clocks: Clocks::default(),
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
        let [elapsed_ns, monitor_cpu_ns] = self.clocks.go_on([host.elapsed_ns, host.monitor_cpu_ns]);
        let mut sent = isotherm_stream::Snapshot {
            host: HostRow { elapsed_ns, monitor_cpu_ns, ..host },
            processes: processes.collect(),
            actions: status.map(rows::actions).unwrap_or_default(),
            events,
            plan: self.plans.of(monitor, snapshot),
            ..isotherm_stream::Snapshot::default()
        };
        for target in snapshot.targets.iter().filter(|target| !target.exited) {
            sent.regions.extend(RegionRow::of(target));
            sent.mappings.extend(MappingRow::of(target));
            sent.idle.extend(IdleRow::of(target));
        }
        let cut = [
            cut(&mut sent.regions, MOST_ROWS),
            cut(&mut sent.mappings, MOST_ROWS),
            cut(&mut sent.idle, MOST_ROWS),
            cut(&mut sent.plan, MOST_ROWS),
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

/// Time and CPU time of one monitor after the other. New settings begin another one, whose clocks begin at 0, while what was done to memory goes
/// on being counted: who adds up steps takes clocks that fall for another program, and would count all of that once more.
#[derive(Debug, Default)]
struct Clocks {
    before: [u64; 2],
    last: [u64; 2],
}

impl Clocks {
    fn go_on(&mut self, now: [u64; 2]) -> [u64; 2] {
        if now.iter().zip(self.last).any(|(now, last)| *now < last) {
            self.before = sum(self.before, self.last);
        }
        self.last = now;
        sum(self.before, now)
    }
}

fn sum(a: [u64; 2], b: [u64; 2]) -> [u64; 2] {
    [a[0].saturating_add(b[0]), a[1].saturating_add(b[1])]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clocks_of_a_monitor_go_on_from_those_of_the_one_before() {
        let mut clocks = Clocks::default();
        assert_eq!([[5, 1], [9, 3]].map(|now| clocks.go_on(now)), [[5, 1], [9, 3]]);
        assert_eq!([[1, 1], [2, 2]].map(|now| clocks.go_on(now)), [[10, 4], [11, 5]], "another monitor");
        assert_eq!(clocks.go_on([3, 1]), [14, 6], "and another, which was opened at less cost");
    }

    #[test]
    fn of_too_many_rows_the_first_are_sent() {
        let mut rows: Vec<u32> = (0..5).collect();
        assert!(!cut(&mut rows, 5) && rows.len() == 5);
        assert!(cut(&mut rows, 3));
        assert_eq!(rows, [0, 1, 2]);
    }
}
