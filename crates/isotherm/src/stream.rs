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
use isotherm_stream::{Broadcaster, EventRow, IdleRow, MappingRow, RegionRow};
use plans::Plans;
use std::collections::{BTreeMap, VecDeque};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Events that are sent with a snapshot, and for how long each is.
const MAX_EVENTS: usize = 200;
const EVENT_TTL: Ns = 60_000_000_000;

/// Sends snapshots.
#[derive(Debug)]
pub struct Publisher {
    broadcaster: Broadcaster,
    /// That a snapshot could not be sent was said.
    has_failed: bool,
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
        let mut sent = isotherm_stream::Snapshot {
            host: rows::host(&self.run, &self.hostname, snapshot, monitor.unchecked()),
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
        self.broadcaster.publish(&sent)
    }
}
