//! What answers are made of: the newest view of everything, replaced as a whole when a snapshot arrives.
//!
//! One thread makes views ([`Builder`], driven by `feed`). Requests take the newest one and keep it as long as they need, without
//! a lock on what it holds. What all clients get alike, the text of a scrape and the overview, is made once per view.

use crate::groups::{Group, Groups};
use crate::history::History;
use crate::layout::Layout;
use crate::metrics::render::{Extent, Input, Scrape};
use crate::moment::Moment;
use axum::body::Bytes;
use isotherm_heat::TargetId;
use isotherm_stream::{ActionRow, EventRow, HostRow, PlanRow, Snapshot};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use tokio::sync::broadcast;

/// Events that are kept.
const MAX_EVENTS: usize = 200;
/// Views that a slow listener may miss before it is informed of the newest only.
const MAX_UNREAD: usize = 4;

/// Everything that is known after a snapshot.
#[derive(Debug)]
pub struct View {
    /// Moments, the oldest first. There is at least one.
    pub moments: Vec<Arc<Moment>>,
    /// Layouts of the processes in them.
    pub layouts: HashMap<TargetId, Arc<Layout>>,
    /// The machine and the monitor.
    pub host: HostRow,
    /// Cgroups, the largest first.
    pub groups: Vec<Group>,
    /// What was done.
    pub actions: Vec<ActionRow>,
    /// What actions would do.
    pub plan: Vec<PlanRow>,
    /// What happened, the newest last.
    pub events: Vec<EventRow>,
    /// Snapshots that were lost.
    pub lost: u64,
    /// It comes from a recording and does not change.
    pub is_recording: bool,
    /// The text of a scrape.
    pub scrape: Scrape,
    /// The overview as JSON, once somebody has asked for it.
    pub overview: OnceLock<Bytes>,
}

impl View {
    /// The newest moment.
    pub fn newest(&self) -> &Arc<Moment> {
        self.moments.last().unwrap_or_else(|| unreachable!("a view is made from a snapshot"))
    }
}

/// What has arrived: its time, and the ids of its processes.
#[derive(Clone, Debug)]
pub struct Arrived {
    /// The time of the snapshot, milliseconds since the epoch.
    pub at_ms: u64,
    /// Its processes.
    pub ids: Arc<[TargetId]>,
}

/// What requests and the feed share.
#[derive(Debug)]
pub struct State {
    view: RwLock<Option<Arc<View>>>,
    arrivals: broadcast::Sender<Arrived>,
}

impl Default for State {
    fn default() -> State {
        State { view: RwLock::default(), arrivals: broadcast::Sender::new(MAX_UNREAD) }
    }
}

impl State {
    /// The newest view; `None` before the first snapshot.
    pub fn view(&self) -> Option<Arc<View>> {
        self.view.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the view, and informs those who wait for one.
    pub fn publish(&self, view: View) {
        let newest = view.newest();
        let ids = newest.processes.iter().map(|process| process.id).collect();
        let arrived = Arrived { at_ms: newest.at_ms, ids };
        *self.view.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(view));
        // Nobody may listen.
        let _ = self.arrivals.send(arrived);
    }

    /// News of every view from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<Arrived> {
        self.arrivals.subscribe()
    }
}

/// Makes views from snapshots, in order of time.
#[derive(Debug)]
pub struct Builder {
    history: History,
    groups: Groups,
    events: VecDeque<EventRow>,
    extent: Extent,
    is_recording: bool,
    arrived: u64,
    lost: u64,
}

impl Builder {
    /// Keeps at most `max_bytes` of moments.
    pub fn new(max_bytes: usize, extent: Extent, is_recording: bool) -> Builder {
        Builder {
            history: History::new(max_bytes),
            groups: Groups::default(),
            events: VecDeque::new(),
            extent,
            is_recording,
            arrived: 0,
            lost: 0,
        }
    }

    /// Snapshots were lost before the next one.
    pub fn lose(&mut self, snapshots: u64) {
        self.lost = self.lost.saturating_add(snapshots);
    }

    /// Keeps a snapshot without a view of it: others follow at once.
    pub fn keep(&mut self, snapshot: &mut Snapshot) -> Vec<Group> {
        self.arrived += 1;
        let moment = Moment::of(snapshot, self.history.newest().map(|moment| &**moment));
        self.history.push(Arc::new(moment));
        for event in std::mem::take(&mut snapshot.events) {
            // It comes with each snapshot for a while.
            if !self.events.contains(&event) {
                self.events.push_back(event);
            }
        }
        let surplus = self.events.len().saturating_sub(MAX_EVENTS);
        self.events.drain(..surplus);
        self.groups.of(snapshot)
    }

    /// Keeps a snapshot. The view with it.
    pub fn view(&mut self, mut snapshot: Snapshot) -> View {
        let groups = self.keep(&mut snapshot);
        let moments = self.history.moments();
        let newest = moments.last().cloned().unwrap_or_default();
        let scrape = Scrape::of(
            &Input {
                host: &snapshot.host,
                groups: &groups,
                moment: &newest,
                actions: &snapshot.actions,
                snapshots: [self.arrived, self.lost],
            },
            self.extent,
        );
        View {
            moments,
            layouts: self.history.layouts(),
            host: snapshot.host,
            groups,
            actions: snapshot.actions,
            plan: snapshot.plan,
            events: self.events.iter().cloned().collect(),
            lost: self.lost,
            is_recording: self.is_recording,
            scrape,
            overview: OnceLock::new(),
        }
    }
}
