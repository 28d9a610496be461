//! The shipper without threads, sockets and clocks: what happens when a snapshot comes, time passes, or an object was sent.
//!
//! Its only edge is the spool, which is a folder. Rows are made by [`Roll`], so that tests can do without snapshots.

use crate::clock::Skew;
use crate::fault;
use crate::plan::{Moment, Planner};
use crate::spool::{self, Fate, Header, Made, ObjectId, Spool};
use crate::status::{Status, Trouble};
use crate::store::{self, Put};
use isotherm_rng::Rng;
use isotherm_rollup::rollup::MAX_BACK_NS;
use isotherm_stream::Snapshot;
use isotherm_systemd::Priority;
use std::collections::BTreeMap;

/// Nanoseconds of an hour.
pub const HOUR_NS: u64 = 3_600_000_000_000;
/// An hour that is over by the clock is closed when nothing was added to it for this long: its last batch may be late. One that is later, as of
/// windows of more than five minutes, becomes objects of its own.
const GRACE_NS: u64 = 360_000_000_000;
/// How often the clocks are compared, at least.
const CLOCKS_NS: u64 = 60_000_000_000;

/// Rows of some minutes of one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Whose they are, and of which hour.
    pub header: Header,
    /// They are the last of their hour.
    pub ends_hour: bool,
    /// When they end, nanoseconds since the epoch.
    pub end_unix_ns: u64,
    /// The rows, as [`Roll::objects`] takes them.
    pub bytes: Vec<u8>,
}

/// Makes rows of snapshots, and objects of rows.
pub trait Roll {
    /// Adds a snapshot. Returns what is complete now.
    fn push(&mut self, snapshot: Snapshot) -> Result<Vec<Batch>, String>;
    /// What is complete at this time of the wall clock, although no snapshot has come since.
    fn closed(&mut self, now_unix_ns: u64) -> Result<Vec<Batch>, String>;
    /// So many snapshots are missing before the next.
    fn lost(&mut self, snapshots: u64);
    /// What there is of rows that are not complete: no more snapshots come.
    fn finish(&mut self) -> Result<Vec<Batch>, String>;
    /// The objects of batches, by nothing but these arguments.
    fn objects(sequence: u64, header: &Header, batches: Vec<Vec<u8>>) -> Result<Vec<Made>, Failed>;
    /// Whether a batch can be read. An error says why not.
    fn check(batch: &[u8]) -> Result<(), String>;
}

/// Why an hour could not be closed.
#[derive(Debug)]
pub enum Failed {
    /// The spool failed. It is tried again.
    Spool(spool::Error),
    /// Its batches make no objects, and never will.
    Batches(String),
}

impl From<spool::Error> for Failed {
    fn from(error: spool::Error) -> Failed {
        Failed::Spool(error)
    }
}

/// The objects of the batches of an hour that can be read. Why others cannot be goes into `unreadable`: they may be damaged, or of a version with
/// other columns. The hour fails if none can be read.
fn objects_of_readable<R: Roll>(
    (sequence, header): (u64, &Header),
    batches: Vec<Vec<u8>>,
    unreadable: &mut Vec<String>,
) -> Result<Vec<Made>, Failed> {
    let failed = match R::objects(sequence, header, batches.clone()) {
        Err(Failed::Batches(why)) => Failed::Batches(why),
        made_or_tried_again => return made_or_tried_again,
    };
    let (mut readable, mut wrong) = (Vec::new(), Vec::new());
    for batch in batches {
        match R::check(&batch) {
            Ok(()) => readable.push(batch),
            Err(why) => wrong.push(why),
        }
    }
    if readable.is_empty() || wrong.is_empty() {
        return Err(failed);
    }
    let made = R::objects(sequence, header, readable)?;
    *unreadable = wrong;
    Ok(made)
}

/// What a shipper knows.
#[derive(Debug)]
pub struct Shipper<R> {
    roll: R,
    spool: Spool,
    planner: Planner<ObjectId>,
    random: Rng,
    status: Status,
    skew: Skew,
    /// When a batch was last added to an hour, or the program started. By sequence number.
    touched_ns: BTreeMap<u64, u64>,
    /// What people should read, not yet printed.
    notes: Vec<(Priority, String)>,
}

impl<R: Roll> Shipper<R> {
    /// A shipper of a spool, all that waits in which is planned. `planner` has no objects yet; `seed` is of the waits after failures.
    pub fn new(roll: R, spool: Spool, planner: Planner<ObjectId>, seed: u64, now: Moment) -> Shipper<R> {
        let mut shipper = Shipper {
            roll,
            spool,
            planner,
            random: Rng::new(seed),
            status: Status::default(),
            skew: Skew::default(),
            touched_ns: BTreeMap::new(),
            notes: Vec::new(),
        };
        shipper.skew.observe(now);
        let waiting: Vec<ObjectId> = shipper.spool.ready().map(|(id, _)| id.clone()).collect();
        shipper.plan(waiting, now);
        // It was killed between the last batch of an hour and its objects.
        for sequence in shipper.spool.complete_hours(HOUR_NS) {
            shipper.close(sequence, now);
        }
        for sequence in shipper.spool.open_hours().map(|(sequence, ..)| sequence) {
            shipper.touched_ns.insert(sequence, now.mono_ns);
        }
        shipper
    }

    /// What makes its rows.
    pub fn roll(&mut self) -> &mut R {
        &mut self.roll
    }

    /// A snapshot has come.
    pub fn snapshot(&mut self, snapshot: Snapshot, now: Moment) {
        self.status.last_snapshot_unix_ns = snapshot.host.end_unix_ns;
        let batches = self.roll.push(snapshot);
        self.keep(batches, now);
    }

    /// Snapshots were lost.
    pub fn lost(&mut self, snapshots: u64) {
        self.roll.lost(snapshots);
        self.status.lost_snapshots = self.status.lost_snapshots.saturating_add(snapshots);
    }

    /// A monitor answers, or the reason why none does.
    pub fn monitor(&mut self, ended: Option<String>, now: Moment) {
        let was = std::mem::replace(&mut self.status.monitor_trouble, ended);
        match (&was, &self.status.monitor_trouble) {
            (None, Some(why)) => self.notes.push((Priority::Warning, format!("{why}; trying again"))),
            (Some(_), None) => self.notes.push((Priority::Notice, "a monitor sends again".into())),
            _ => {}
        }
        if was.is_some() != self.status.monitor_trouble.is_some() {
            self.status.monitor_since_unix_ns = now.wall_ns;
        }
    }

    /// Time has passed: closes intervals and hours that are over, and compares the clocks.
    pub fn tick(&mut self, now: Moment) {
        let batches = self.roll.closed(now.wall_ns);
        self.keep(batches, now);
        if let Some(step) = self.skew.observe(now) {
            self.notes.push(clock_was_set(step));
        }
        self.close_where(now, |header, touched_ns| {
            let grace_is_over = now.mono_ns.saturating_sub(touched_ns) >= GRACE_NS;
            grace_is_over && is_over(header.hour, now.wall_ns.saturating_sub(GRACE_NS))
        });
    }

    /// Closes all hours that are over by the clock, without waiting for late batches.
    pub fn close_past_hours(&mut self, now: Moment) {
        self.close_where(now, |header, _| is_over(header.hour, now.wall_ns));
    }

    /// Keeps what there is of the open rows: the program ends.
    pub fn finish(&mut self, now: Moment) {
        let batches = self.roll.finish();
        self.keep(batches, now);
    }

    fn keep(&mut self, batches: Result<Vec<Batch>, String>, now: Moment) {
        match batches {
            Ok(batches) => batches.iter().for_each(|batch| self.keep_batch(batch, now)),
            Err(why) => self.trouble(format!("make rows: {why}"), now),
        }
    }

    fn keep_batch(&mut self, batch: &Batch, now: Moment) {
        match self.spool.append(&batch.header, batch.end_unix_ns, &batch.bytes) {
            Err(error) => self.trouble(format!("{error}; five minutes of rows are lost"), now),
            Ok(appended) => {
                self.drop_objects(&appended.dropped, now);
                if appended.is_lost {
                    self.trouble("the spool is full: five minutes of rows are lost; raise --spool-size".into(), now);
                } else {
                    self.status.last_batch_end_unix_ns = batch.end_unix_ns;
                }
            }
        }
        let open =
            self.spool.open_hours().find(|(_, header, _)| **header == batch.header).map(|(sequence, ..)| sequence);
        let Some(sequence) = open else { return };
        self.touched_ns.insert(sequence, now.mono_ns);
        if batch.ends_hour {
            self.close(sequence, now);
        }
        // Rows come in the order of time. Of a later hour there are some where the clock was set back since; by it that hour may be over in years.
        self.close_where(now, |header, _| header.hour > batch.header.hour);
    }

    fn drop_objects(&mut self, dropped: &[ObjectId], now: Moment) {
        dropped.iter().for_each(|id| self.planner.remove(id));
        if let Some(last) = dropped.last() {
            let what =
                format!("the spool is full: {} objects were dropped unsent, the last of them {last}", dropped.len());
            self.trouble(what, now);
        }
    }

    /// Closes the open hours of which this holds: it is given the header, and when rows were last added (monotonic).
    fn close_where(&mut self, now: Moment, is_done: impl Fn(&Header, u64) -> bool) {
        let touched_ns = |sequence| self.touched_ns.get(&sequence).copied().unwrap_or(0);
        let done: Vec<u64> = self
            .spool
            .open_hours()
            .filter(|(sequence, header, _)| is_done(header, touched_ns(*sequence)))
            .map(|(sequence, ..)| sequence)
            .collect();
        done.into_iter().for_each(|sequence| self.close(sequence, now));
    }

    fn close(&mut self, sequence: u64, now: Moment) {
        fault::point("hour.over");
        let mut unreadable = Vec::new();
        match self.spool.close_hour(sequence, |sequence, header, batches| {
            objects_of_readable::<R>((sequence, header), batches, &mut unreadable)
        }) {
            Ok(closed) => {
                self.plan(closed.objects, now);
                self.note_unreadable(&unreadable, now);
                if closed.damaged > 0 {
                    let what =
                        format!("read the batches of an hour: {} are damaged on the disk of the spool", closed.damaged);
                    self.trouble(format!("{what}; their rows are lost"), now);
                }
            }
            Err(Failed::Spool(error)) => {
                // Not with the next snapshot: all rows of the hour were read and encoded for nothing.
                self.touched_ns.insert(sequence, now.mono_ns);
                return self.trouble(format!("{error}; the hour is closed later"), now);
            }
            Err(Failed::Batches(why)) => {
                let discarded = self.spool.discard_hour(sequence);
                self.trouble(format!("make objects of an hour: {why}; its rows are lost"), now);
                if let Err(error) = discarded {
                    self.trouble(error.to_string(), now);
                }
            }
        }
        self.touched_ns.remove(&sequence);
        let dropped = self.spool.shrink();
        self.drop_objects(&dropped, now);
    }

    /// Counts batches that were left out, and reports them with the first reason.
    fn note_unreadable(&mut self, unreadable: &[String], now: Moment) {
        let Some(why) = unreadable.first() else { return };
        let count = unreadable.len() as u64;
        let noted = self.spool.note_lost(count);
        self.trouble(format!("make objects of an hour: {why}; the rows of {count} batches are lost"), now);
        if let Err(error) = noted {
            self.trouble(error.to_string(), now);
        }
    }

    fn plan(&mut self, objects: Vec<ObjectId>, now: Moment) {
        for id in objects {
            let hash = crate::hash(id.path.as_bytes());
            self.planner.add(id, hash, now);
        }
    }

    /// Objects to send now, with their contents. Each comes back in [`Shipper::put`].
    pub fn to_send(&mut self, now: Moment) -> Vec<(ObjectId, Vec<u8>)> {
        let mut send = Vec::new();
        for id in self.planner.take(now.mono_ns) {
            match self.spool.lend(&id) {
                Ok(bytes) => send.push((id, bytes)),
                Err(error) => {
                    if error.is_missing() {
                        // Somebody has removed it.
                        self.planner.done(&id);
                        let _ = self.spool.settle(&id, Fate::Dropped);
                    } else {
                        self.planner.failed(&id, now.mono_ns, |limit| self.random.below(limit));
                    }
                    self.trouble(error.to_string(), now);
                }
            }
        }
        send
    }

    /// What became of an object that was to be sent.
    pub fn put(&mut self, id: &ObjectId, put: store::Result<Put>, now: Moment) {
        match put {
            Ok(put) => {
                fault::point("put.answered");
                let already = put == Put::AlreadyThere;
                if let Err(error) = self.spool.settle(id, Fate::Sent { already }) {
                    self.trouble(error.to_string(), now);
                }
                if self.planner.failures() > 0 {
                    self.notes.push((Priority::Notice, "the store takes objects again".into()));
                }
                self.planner.done(id);
                self.status.last_sent_unix_ns = now.wall_ns;
            }
            Err(error) => {
                self.spool.release(id);
                self.planner.failed(id, now.mono_ns, |limit| self.random.below(limit));
                self.status.failed_puts = self.status.failed_puts.saturating_add(1);
                let first = self.planner.failures() == 1;
                self.status.last_error = Some(Trouble { at_unix_ns: now.wall_ns, what: error.to_string() });
                if first {
                    self.notes.push((Priority::Warning, format!("{error}; it is kept and tried again")));
                }
            }
        }
    }

    /// How long nothing has to be done, if nothing comes.
    pub fn wait_ns(&self, now: Moment) -> u64 {
        let wake = self.planner.wake_ns().map_or(u64::MAX, |at| at.saturating_sub(now.mono_ns));
        wake.min(CLOCKS_NS)
    }

    /// Failed tries since the last success.
    pub fn failures(&self) -> u32 {
        self.planner.failures()
    }

    /// Whether nothing is left to send.
    pub fn is_idle(&self) -> bool {
        self.planner.is_idle()
    }

    /// What the program shows of itself.
    pub fn status(&mut self, now: Moment) -> &Status {
        self.status.failures_in_a_row = self.planner.failures();
        let wait = self.planner.wake_ns().map(|at| at.saturating_sub(now.mono_ns));
        self.status.next_try_unix_ns = wait.map(|wait| now.wall_ns.saturating_add(wait));
        self.status.clock = self.skew.clone();
        self.status.at_unix_ns = now.wall_ns;
        &self.status
    }

    /// What the spool remembers.
    pub fn counts(&self) -> &spool::Counts {
        self.spool.counts()
    }

    /// Lines for people, since the last call. Rows and objects that are lost are warnings, as is what keeps others from being sent.
    pub fn notes(&mut self) -> Vec<(Priority, String)> {
        std::mem::take(&mut self.notes)
    }

    fn trouble(&mut self, what: String, now: Moment) {
        self.notes.push((Priority::Warning, what.clone()));
        self.status.last_error = Some(Trouble { at_unix_ns: now.wall_ns, what });
    }
}

/// Whether an hour has ended.
fn is_over(hour: u64, wall_ns: u64) -> bool {
    wall_ns >= hour.saturating_add(1).saturating_mul(HOUR_NS)
}

/// What becomes of rows after the wall clock was set by so much.
fn clock_was_set(step_ns: i64) -> (Priority, String) {
    let by = format!("by {:.1} s", seconds(step_ns));
    if step_ns < 0 && step_ns.unsigned_abs() <= MAX_BACK_NS {
        let what = format!("the wall clock was set {by}; there are no rows until it has caught up");
        return (Priority::Warning, what);
    }
    (Priority::Notice, format!("the wall clock was set {by}; rows since then have its time"))
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn seconds(ns: i64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests;
