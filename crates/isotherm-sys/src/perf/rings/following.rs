//! Follows the threads of a process: each is to be sampled on all processors, and none twice.
//!
//! A thread inherits the events of the one that starts it, and that is told in the ring (`PERF_RECORD_FORK`): this is
//! how a new thread which is sampled already is told from one that was started before its parent's turn came. But the
//! events of a thread are opened one processor after the other, and what it starts meanwhile inherits only those that
//! are there. Which they are nobody tells: the start is told at the end of it, and inherited is somewhere before. So
//! such a child is given up, not understood:
//!
//! ```text
//!   thread 7   ─┬──────────┬──────────────┬───────┬──────▶       doubt: what 7 is told to have started in this time
//!        witness listens   events open    all     7 seen at rest  inherits nothing, a part or all
//!               └────────── doubt ────────────────┘
//! ```
//!
//! If there is one, the events of its parent are closed, with which the kernel closes all that were inherited from
//! them, by whomever; then all of them are without, and have their turn in the next round. A start that was under way
//! when all events were open may be told later: so the doubt lasts until the thread is seen asleep, which it never is
//! on the way.
//!
//! Nothing waits for that while threads are left without events: one that starts another before its turn has come is
//! too late.
//!
//! What remains: after [`LISTINGS`] rounds, in a process that starts threads faster than their parents' events are
//! opened, what is in doubt stays as it is, and threads may be missed on some processors for as long as they live:
//! rather that than sampled twice, which would make them look hotter than others. The same goes for a start that is
//! held up for longer than [`AT_REST_WITHIN`]. Threads can be sampled twice where their start was not told: because the
//! ring was full, or because there was no descriptor or locked memory left for a [`Witness`]. When a processor comes
//! back later, what threads start before their turn has come is missed on that processor.

use super::Rings;
use super::threads::Followed;
use super::witness::Witness;
use crate::clock;
use crate::perf::error::RingError;
use crate::proc::Proc;
use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

/// So often threads are listed again while new ones come, or some are in doubt.
const LISTINGS: u32 = 64;
/// Threads whose events are opened before threads are listed again; the first time it is all there are.
const AT_A_TIME: usize = 8;
/// A new thread is to be seen a moment before its parent says that it was started. Where it cannot be told whether the
/// thread has run since, that moment is taken to be as long as this.
const TOLD_WITHIN: Duration = Duration::from_millis(1);
/// Threads that use a processor are not seen asleep: after this, what they had begun to start is taken to be told.
const AT_REST_WITHIN: Duration = Duration::from_millis(20);

impl Rings {
    /// Opens events for all threads of a process, until no more have come meanwhile.
    pub(super) fn follow(&mut self, pid: u32) -> Result<(), RingError> {
        if let Some(followed) = &mut self.process {
            followed.clear();
        }
        let listed = listed(pid)?;
        self.sample(pid, listed, None)?;
        if self.threads() == 0 { Err(RingError::Gone { event: self.plan.event() }) } else { Ok(()) }
    }

    /// Opens events for threads that have inherited none. To be sure of that takes two looks without losses between
    /// them.
    pub(super) fn catch_up(&mut self, listed: &[u32]) -> Result<usize, RingError> {
        let Some(pid) = self.process.as_ref().map(|followed| followed.id.pid) else { return Ok(0) };
        let mut unknown = self.unknown(listed);
        if !unknown.is_empty() {
            // Before what was taken out is drained, no more is: it is as much as all rings hold.
            if !self.backlog.is_empty() {
                return Ok(0);
            }
            retain_told(pid, &mut unknown);
            self.gather();
            unknown.retain(|tid| self.is_unknown(*tid));
        }
        let lost = self.tally.lost;
        let Some(followed) = &mut self.process else { return Ok(0) };
        if std::mem::replace(&mut followed.lost, lost) != lost {
            // It may have been told that they were started. Twice would be worse than not at all.
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

    /// Opens events for these threads and for those that have come meanwhile or are in doubt: of all, or of `only`
    /// some.
    fn sample(&mut self, pid: u32, mut new: Vec<u32>, only: Option<&HashSet<u32>>) -> Result<(), RingError> {
        let mut batch = Batch::new(pid);
        self.followed(Followed::begin);
        for round in 1..=LISTINGS {
            self.open_threads(&new, &mut batch)?;
            batch.look(|tid| self.settled(tid));
            let mut listed = listed(pid)?;
            listed.retain(|tid| !batch.ended.contains(tid) && only.is_none_or(|only| only.contains(tid)));
            // Looked at before the rings are. The parent may have been held up for long on its way to say it.
            new = self.unknown(&listed);
            retain_told(pid, &mut new);
            if round == LISTINGS {
                self.followed(Followed::accept);
            }
            let all_clear = self.judge();
            if all_clear && batch.awake.is_empty() && self.unknown(&listed).is_empty() {
                break;
            }
            new.retain(|tid| self.is_unknown(*tid));
            // The youngest first: they are the least likely to have started others by the time it is done. And few at a
            // time, as the list grows old while they are opened.
            new.reverse();
            new.truncate(AT_A_TIME);
            if new.is_empty() {
                std::thread::sleep(TOLD_WITHIN);
            }
        }
        self.followed(Followed::end);
        Ok(())
    }

    fn open_threads(&mut self, tids: &[u32], batch: &mut Batch) -> Result<(), RingError> {
        for tid in tids {
            // Of an earlier turn of its: that it has been awake for long since then says nothing of this one.
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

    /// Opens events for a thread, which starts to be sampled at once; none if it has ended. Says whether there are any.
    fn open_thread(&mut self, tid: u32, threads: usize) -> Result<bool, RingError> {
        let from = clock::monotonic_ns();
        let witness = match Witness::of(tid) {
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => return Ok(false),
            // Without one, what the rings tell has to do.
            witness => witness.ok(),
        };
        let is_open = self.open_everywhere(tid, threads)?;
        self.followed(|followed| {
            if is_open {
                followed.opened(tid, from);
            }
            if let Some(witness) = witness {
                witness.tell(|raw| followed.hear(raw));
            }
        });
        if !is_open {
            // It may have started others in the middle of it.
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

    /// Reads all rings and closes the events of threads that have started others in doubt. Says whether there was none.
    fn judge(&mut self) -> bool {
        // What is told later may be read without what came before, from a ring whose turn was earlier.
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
    /// That they have ended is no help: threads that could stand in for each other exchange their events when one makes
    /// room for the other on a processor, so that the event we have opened may have ended with an heir, and the heir's
    /// lives on.
    pub(super) fn heirs(&self) -> Option<u32> {
        let followed = self.process.as_ref()?;
        let own: HashSet<u32> = self.slots.iter().flat_map(|slot| &slot.events).filter_map(|e| e.tid).collect();
        let is_other = |tid: u32| !own.contains(&tid);
        let there_are = || Proc::default().threads(followed.id.pid).unwrap_or_default().into_iter().any(is_other);
        // With a loss, it may not have been told.
        (followed.inherited || self.tally.lost > 0 || there_are()).then_some(followed.id.pid)
    }

    /// The threads of the process, and whether it is still the same; those that have ended are forgotten.
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

/// Leaves those of whose start a ring was told by now, if it ever is: not before a thread has run.
fn retain_told(pid: u32, tids: &mut Vec<u32>) {
    let (proc, own) = (Proc::default(), std::process::id());
    // Where we ourselves are said not to have run, nobody is ever said to have.
    if proc.has_run(own, own) == Some(true) {
        tids.retain(|tid| proc.has_run(pid, *tid) == Some(true));
    } else if !tids.is_empty() {
        std::thread::sleep(TOLD_WITHIN);
    }
}

/// What is seen of threads while their events are opened.
#[derive(Debug)]
struct Batch {
    pid: u32,
    /// The thread that asks, which is never seen asleep, and starts nobody.
    own: Option<u32>,
    /// Threads that were not seen at rest since their events were opened, and when that was.
    awake: Vec<(u32, u64)>,
    /// Threads that had ended. The first of a process stays listed.
    ended: HashSet<u32>,
}

impl Batch {
    fn new(pid: u32) -> Batch {
        let own = || Path::new("/proc/thread-self").read_link().ok()?.file_name()?.to_str()?.parse().ok();
        Batch { pid, own: own(), awake: Vec::new(), ended: HashSet::new() }
    }

    /// Whether a thread may be about to start another: it is running, or waits in the kernel for a lock or for memory.
    fn is_awake(&self, tid: u32) -> bool {
        self.own != Some(tid) && matches!(Proc::default().thread_state(self.pid, tid), Ok('R' | 'D'))
    }

    /// Names those that are at rest by now, or awake for so long that it has another reason.
    fn look(&mut self, mut at_rest: impl FnMut(u32)) {
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
