//! Follows the threads of a process, so that each is sampled on all CPUs, and none twice.
//!
//! A thread inherits the events of the thread that starts it, and the ring reports that (`PERF_RECORD_FORK`). The
//! report distinguishes a new thread that is sampled already from one that was started before its parent's events were
//! opened. But the events of a thread are opened one CPU after the other, and a child that it starts meanwhile inherits
//! only those that are open. The kernel does not report which: it reports a start at its end, and inheritance happens
//! some time before. So such a child is given up:
//!
//! ```text
//!   thread 7   ─┬──────────┬──────────────┬───────┬──────▶       doubt: a start by 7 that is reported in this time
//!        witness records   events open    all     7 seen at rest  inherits nothing, a part or all
//!               └────────── doubt ────────────────┘
//! ```
//!
//! If there is such a child, the events of its parent are closed. With them the kernel closes all events that any
//! thread has inherited from them. All these threads are then without events and wait for the next round. A start that
//! was under way when all events were open may be reported later. So the doubt lasts until the thread is seen asleep,
//! which it never is during a start.
//!
//! While threads are left without events, nothing waits for that: whatever a thread starts before its own events are
//! open is one more thread without events.
//!
//! What remains: a process may start threads faster than their parents' events can be opened. After [`LISTINGS`]
//! rounds, threads in doubt are left as they are, and may be missed on some CPUs for as long as they live. That is
//! better than sampling them twice, which would make them look hotter than others. The same holds for a start that is
//! delayed for longer than [`AT_REST_WITHIN`]. Threads can be sampled twice if their start was not reported, because
//! the ring was full, or because no descriptor or locked memory was left for a [`SidebandEvents`]. When a CPU comes online
//! again, children that threads start before their own events are open there are missed on that CPU.

use super::Rings;
use super::sideband::SidebandEvents;
use super::threads::Followed;
use crate::clock;
use crate::perf::error::RingError;
use crate::proc::Proc;
use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

/// The maximum number of rounds. A round lists the threads again while new ones come, or while some are in doubt.
const LISTINGS: u32 = 64;
/// Threads whose events are opened before the threads are listed again. The first round opens all of them.
const AT_A_TIME: usize = 8;
/// A new thread is visible a moment before its parent reports the start. If the kernel does not show whether the thread
/// has run since, that moment is assumed to last this long.
const REPORTED_WITHIN: Duration = Duration::from_millis(1);
/// Threads that keep a CPU busy are not seen asleep. After this time, the starts that were under way count as reported.
const AT_REST_WITHIN: Duration = Duration::from_millis(20);

impl Rings {
    /// Opens events for all threads of a process, until no new ones have come meanwhile.
    pub(super) fn follow(&mut self, pid: u32) -> Result<(), RingError> {
        if let Some(followed) = &mut self.process {
            followed.clear();
        }
        let listed = listed(pid)?;
        self.sample(pid, listed, None)?;
        if self.threads() == 0 { Err(RingError::Gone { event: self.plan.event() }) } else { Ok(()) }
    }

    /// Opens events for threads that have inherited none. To be sure of that takes two checks without losses in
    /// between.
    pub(super) fn catch_up(&mut self, listed: &[u32]) -> Result<usize, RingError> {
        let Some(pid) = self.process.as_ref().map(|followed| followed.id.pid) else { return Ok(0) };
        let mut unknown = self.unknown(listed);
        if !unknown.is_empty() {
            // Nothing more is taken out of the rings before the backlog is drained: it is as much as all rings hold.
            if !self.backlog.is_empty() {
                return Ok(0);
            }
            retain_reported(pid, &mut unknown);
            self.gather();
            unknown.retain(|tid| self.is_unknown(*tid));
        }
        let lost = self.tally.lost;
        let Some(followed) = &mut self.process else { return Ok(0) };
        if std::mem::replace(&mut followed.lost, lost) != lost {
            // The reports of their starts may be among the losses. To sample them twice would be worse than not at all.
            followed.ignore(unknown.drain(..));
        }
        let before = std::mem::replace(&mut followed.suspects, unknown.iter().copied().collect());
        unknown.retain(|tid| before.contains(tid));
        if unknown.is_empty() {
            return Ok(0);
        }
        let only = unknown.iter().copied().collect();
        self.sample(pid, unknown.clone(), Some(&only))?;
        Ok(unknown.iter().filter(|tid| !self.is_unknown(**tid)).count())
    }

    /// Opens events for these threads, and for those that have come meanwhile or are in doubt: for all, or only for
    /// those in `only`.
    fn sample(&mut self, pid: u32, mut new: Vec<u32>, only: Option<&HashSet<u32>>) -> Result<(), RingError> {
        let mut batch = Batch::new(pid);
        self.followed(Followed::begin);
        for round in 1..=LISTINGS {
            self.open_threads(&new, &mut batch)?;
            batch.update(|tid| self.settled(tid));
            let mut listed = listed(pid)?;
            listed.retain(|tid| !batch.ended.contains(tid) && only.is_none_or(|only| only.contains(tid)));
            // Checked before the rings are read. The parent may have been delayed for long before its report.
            new = self.unknown(&listed);
            retain_reported(pid, &mut new);
            if round == LISTINGS {
                self.followed(Followed::accept);
            }
            let all_clear = self.judge();
            if all_clear && batch.awake.is_empty() && self.unknown(&listed).is_empty() {
                break;
            }
            new.retain(|tid| self.is_unknown(*tid));
            // The youngest first: they are the least likely to start others before their events are open. And few at a
            // time, since the list gets old while they are opened.
            new.reverse();
            new.truncate(AT_A_TIME);
            if new.is_empty() {
                std::thread::sleep(REPORTED_WITHIN);
            }
        }
        self.followed(Followed::end);
        Ok(())
    }

    fn open_threads(&mut self, tids: &[u32], batch: &mut Batch) -> Result<(), RingError> {
        for tid in tids {
            // From an earlier round: how long it has been awake since then does not matter in this one.
            batch.awake.retain(|(other, _)| other != tid);
            if !self.open_thread(*tid, tids.len().max(self.threads()))? {
                batch.ended.insert(*tid);
            } else if batch.is_awake(*tid) {
                batch.awake.push((*tid, clock::monotonic_ns()));
            } else {
                self.settled(*tid);
            }
        }
        Ok(())
    }

    fn settled(&mut self, tid: u32) {
        let now = clock::monotonic_ns();
        self.followed(|followed| followed.settled(tid, now));
    }

    /// Opens events for a thread and starts to sample it at once; none if it has ended. Returns whether it has events.
    fn open_thread(&mut self, tid: u32, threads: usize) -> Result<bool, RingError> {
        let from = clock::monotonic_ns();
        let sideband = match SidebandEvents::of(tid) {
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => return Ok(false),
            // Without one, the reports in the rings have to suffice.
            sideband => sideband.ok(),
        };
        let is_open = self.open_everywhere(tid, threads)?;
        self.followed(|followed| {
            if is_open {
                followed.opened(tid, from);
            }
            if let Some(sideband) = sideband {
                sideband.drain(|raw| followed.record_start(raw));
            }
        });
        if !is_open {
            // It may have started others meanwhile.
            self.close(&HashSet::from([tid]));
        }
        Ok(is_open)
    }

    fn open_everywhere(&mut self, tid: u32, threads: usize) -> Result<bool, RingError> {
        for at in 0..self.slots.len() {
            let before = self.slots[at].events.len();
            match self.open_on(at, Some(tid)).and_then(|()| self.slots[at].enable_from(before, self.plan.event())) {
                Err(refused) if refused.is(libc::ESRCH) => return Ok(false),
                other => other.map_err(|refused| self.error(refused, threads))?,
            }
        }
        Ok(true)
    }

    /// Reads all rings and closes the events of threads that have started others in doubt. Returns whether there were
    /// none.
    fn judge(&mut self) -> bool {
        // Reports after this time may be incomplete: earlier ones may still be in rings that were read before.
        let until = clock::monotonic_ns();
        self.gather();
        let doubtful = self.process.as_mut().map(|followed| followed.judge(until)).unwrap_or_default();
        if !doubtful.is_empty() {
            self.close(&doubtful);
        }
        doubtful.is_empty()
    }

    /// Closes the events of these threads, and of all that have inherited them.
    fn close(&mut self, tids: &HashSet<u32>) {
        let share = self.share();
        let is_theirs = |tid: Option<u32>| tid.is_some_and(|tid| tids.contains(&tid));
        self.slots.iter_mut().for_each(|slot| slot.close_if(share, &mut self.closed, |opened| is_theirs(opened.tid)));
    }

    pub(super) fn unknown(&self, listed: &[u32]) -> Vec<u32> {
        listed.iter().copied().filter(|tid| self.is_unknown(*tid)).collect()
    }

    pub(super) fn is_unknown(&self, tid: u32) -> bool {
        self.process.as_ref().is_some_and(|followed| followed.is_unknown(tid))
    }

    fn followed(&mut self, then: impl FnOnce(&mut Followed)) {
        if let Some(followed) = &mut self.process {
            then(followed);
        }
    }

    /// The process, if it has or had threads that inherited events.
    ///
    /// It makes no difference that they have ended. Threads with equal events exchange them when one replaces the other
    /// on a CPU. So the event that we have opened may have ended with an heir, while the heir's event lives on.
    pub(super) fn heirs(&self) -> Option<u32> {
        let followed = self.process.as_ref()?;
        let own: HashSet<u32> = self.slots.iter().flat_map(|slot| &slot.events).filter_map(|e| e.tid).collect();
        let is_other = |tid: u32| !own.contains(&tid);
        let there_are = || Proc::default().threads(followed.id.pid).unwrap_or_default().into_iter().any(is_other);
        // With a loss, a start may be unreported.
        (followed.inherited || self.tally.lost > 0 || there_are()).then_some(followed.id.pid)
    }

    /// The threads of the process, and whether it has ended. Threads that have ended are forgotten.
    pub(super) fn listed_again(&mut self) -> (Vec<u32>, bool) {
        let Some(followed) = &mut self.process else { return (Vec::new(), false) };
        let proc = Proc::default();
        if proc.is_alive(followed.id).is_ok_and(|alive| !alive) {
            followed.retain(|_| false);
            return (Vec::new(), true);
        }
        let listed = proc.threads(followed.id.pid).unwrap_or_default();
        followed.retain(|tid| listed.binary_search(&tid).is_ok());
        (listed, false)
    }
}

/// The threads of a process; none if it has ended.
fn listed(pid: u32) -> Result<Vec<u32>, RingError> {
    match Proc::default().threads(pid) {
        Err(e) if e.is_gone() => Ok(Vec::new()),
        listed => listed.map_err(RingError::Threads),
    }
}

/// Retains the threads whose start has been reported by now, if it ever is. It is not certain before a thread has run.
fn retain_reported(pid: u32, tids: &mut Vec<u32>) {
    let (proc, own) = (Proc::default(), std::process::id());
    // If the kernel shows that we have not run, it does not maintain this for any thread.
    if proc.has_run(own, own) == Some(true) {
        tids.retain(|tid| proc.has_run(pid, *tid) == Some(true));
    } else if !tids.is_empty() {
        std::thread::sleep(REPORTED_WITHIN);
    }
}

/// State of threads while their events are opened.
#[derive(Debug)]
struct Batch {
    pid: u32,
    /// The calling thread, which is never seen asleep and starts no others.
    own: Option<u32>,
    /// Threads not seen at rest since their events were opened, and since when.
    awake: Vec<(u32, u64)>,
    /// Threads that had ended. The main thread of a process stays listed.
    ended: HashSet<u32>,
}

impl Batch {
    fn new(pid: u32) -> Batch {
        let own = || Path::new("/proc/thread-self").read_link().ok()?.file_name()?.to_str()?.parse().ok();
        Batch { pid, own: own(), awake: Vec::new(), ended: HashSet::new() }
    }

    /// Whether a thread may be about to start another: it runs, or waits in the kernel for a lock or for memory.
    fn is_awake(&self, tid: u32) -> bool {
        self.own != Some(tid) && matches!(Proc::default().thread_state(self.pid, tid), Ok('R' | 'D'))
    }

    /// Reports threads that are at rest by now, or awake for so long that there must be another reason.
    fn update(&mut self, mut at_rest: impl FnMut(u32)) {
        let now = clock::monotonic_ns();
        let is_long = |since: u64| u128::from(now.saturating_sub(since)) > AT_REST_WITHIN.as_nanos();
        for (tid, since) in std::mem::take(&mut self.awake) {
            if self.is_awake(tid) && !is_long(since) {
                self.awake.push((tid, since));
            } else {
                at_rest(tid);
            }
        }
    }
}
