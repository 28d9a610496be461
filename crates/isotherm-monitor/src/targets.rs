//! Which processes are watched at the moment. New ones are attached, ended ones are reported once more and forgotten,
//! and what all share is distributed.

use crate::cpu::MAX_LISTING_PERIOD;
use crate::shared::doubt;
use crate::watched::TargetMonitor;
use crate::{Error, FIRST_PICTURE, Mode, Monitor};
use isotherm_heat::source::{SourceErrorKind, SourceResult};
use isotherm_heat::track::{Allotment, Room, Turn};
use isotherm_heat::{Clock, Ns, TargetId};
use isotherm_sys::proc::Identity;

/// The minimum time between two listings of mappings and processes.
const REFIT_TICK: Ns = 1_000_000_000;
/// The least time before a process that could not be attached at the moment is tried again.
const TRY_AGAIN: Ns = 10_000_000;
/// New processes that are attached at each listing even if the CPU budget is overspent by more than its credit.
const MIN_ATTACHED: usize = 16;
/// New processes in a listing up to which their first reads do not delay the next.
const MAX_NEW_UNCOUNTED: usize = 4;
/// What is watched whole may grow to this many times the size at which a new target is sampled.
const GROWN: usize = 2;
/// Minimum regions of a sampled target, however small its part of all that is sampled.
const MIN_REGIONS: usize = 16;

/// Totals of how targets are watched, updated while they are listed, since each target depends on all others.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    whole_pmds: usize,
    sampled: usize,
    sampled_pmds: usize,
}

impl Known {
    fn with(self, one: Known) -> Known {
        Known {
            whole_pmds: self.whole_pmds + one.whole_pmds,
            sampled: self.sampled + one.sampled,
            sampled_pmds: self.sampled_pmds + one.sampled_pmds,
        }
    }

    fn without(self, one: Known) -> Known {
        Known {
            whole_pmds: self.whole_pmds - one.whole_pmds,
            sampled: self.sampled - one.sampled,
            sampled_pmds: self.sampled_pmds - one.sampled_pmds,
        }
    }
}

impl<C: Clock> Monitor<C> {
    /// Lists processes and their mappings again.
    pub(crate) fn refit(&mut self, now: Ns) -> Result<(), Error> {
        let began = self.charge_cpu();
        let pids = match self.follower.current().map_err(Error::from) {
            Err(error) if error.is_shortage() => {
                self.note_shortage(&error);
                self.next_refit = self.clock.now() + REFIT_TICK;
                return Ok(());
            }
            pids => pids?,
        };
        self.declined.keep_listed(&pids);
        let all = self.refit_known(&pids, now);
        let (listed, known) = (self.clock.cpu(), self.watched.len());
        self.try_again = false;
        let first_error = self.attach_new(&pids, now, all);
        // The user named processes, and none of them can be watched: an error. A child that has already ended is not
        // reported.
        if let Some(error) = first_error
            .filter(|_| self.follower.is_named() && self.watched.is_empty() && !self.ever_watched && !self.try_again)
        {
            return Err(error);
        }
        self.ever_watched |= !self.watched.is_empty();
        self.allot();
        self.cpu.charge_bookkeeping(self.clock.cpu(), self.clock.now());
        // The first read of a new process happens once. But where there are ever more of them, listing waits for that too.
        let counted_to = if self.watched.len() <= known + MAX_NEW_UNCOUNTED { listed } else { self.clock.cpu() };
        let took = counted_to.saturating_sub(began);
        self.listing_took = took;
        let done = self.clock.now();
        let period = self.cpu.listing_period_ns(took, if self.try_again { TRY_AGAIN } else { REFIT_TICK }, done);
        // From its end, and not more than half of the time: it may have waited for a lock of a target.
        self.next_refit = done + period.max(done.saturating_sub(now).min(MAX_LISTING_PERIOD));
        Ok(())
    }

    /// Lists the mappings of watched processes. One that executes another program is dropped here, and attached again
    /// right after.
    fn refit_known(&mut self, pids: &[u32], now: Ns) -> Known {
        let alive = self.alive();
        let mut all = alive.iter().fold(Known::default(), |all, pid| all.with(self.known(*pid)));
        for pid in alive {
            let others = all.without(self.known(pid));
            if pids.binary_search(&pid).is_err() {
                self.end(pid);
            } else {
                let room = self.room_for_whole(others);
                self.step(pid, now, |w, turn| w.refit(room, turn));
                self.name_again(pid);
            }
            all = others.with(self.known(pid));
        }
        all
    }

    /// Starts to watch new processes; returns the first error.
    fn attach_new(&mut self, pids: &[u32], now: Ns, mut all: Known) -> Option<Error> {
        let mut first_error = None;
        let mut attached = 0;
        for pid in pids {
            if self.watched.contains_key(pid) || self.declined.holds(*pid, self.follower.meant(*pid), now) {
                continue;
            }
            if self.ever_watched && attached >= MIN_ATTACHED && self.cpu.is_deep_in_debt(now) {
                // The others at the next listing. At the start all are attached: a host is asked for as it is.
                break;
            }
            attached += 1;
            let failed = self.attach(*pid, now, self.room_for_whole(all));
            all = all.with(self.known(*pid));
            let is_short = failed.as_ref().is_some_and(Error::is_shortage);
            first_error = first_error.or(failed);
            if is_short {
                // The next would fail as well. They wait until others end, or until the limit is raised.
                break;
            }
        }
        first_error
    }

    /// Reports once that descriptors are short.
    fn note_shortage(&mut self, error: &dyn std::fmt::Display) {
        if !std::mem::replace(&mut self.reported_shortage, true) {
            self.news.push(format!("not all processes are watched yet: {error}"));
        }
    }

    /// The part of a target in the totals, which limit how much of the others may be watched whole.
    fn known(&self, pid: u32) -> Known {
        let of = |w: &TargetMonitor| {
            let extent = w.extent();
            let sampled_pmds = usize::try_from(w.sampled_pmds()).unwrap_or(usize::MAX);
            Known { whole_pmds: extent.whole_pmds, sampled: usize::from(extent.sampled.is_some()), sampled_pmds }
        };
        self.watched.get(&pid).filter(|w| !w.exited).map_or(Known::default(), of)
    }

    /// How many huge ranges a process may have to be watched whole, in addition to the others that are.
    fn room_for_whole(&self, others: Known) -> Room {
        let all = match self.settings.mode {
            Mode::Whole => return Room::UNLIMITED,
            Mode::Sampled => return Room::NONE,
            Mode::Auto => self.cpu.first_checks_in(FIRST_PICTURE),
        };
        let (new, grown) =
            (all.saturating_sub(others.whole_pmds), all.saturating_mul(GROWN).saturating_sub(others.whole_pmds));
        // Only where all others that are sampled can be, too.
        let again = new.saturating_sub(others.sampled_pmds);
        // All or nothing: first checks of whole targets would starve next to samples. One that is whole again stays so where it fits beside
        // what is sampled: a newcomer is for half a minute, and with no room for the others meanwhile all would be measured anew for ever.
        let (new_beside, begun) = if others.sampled == 0 { (new, grown) } else { (0, again) };
        Room { new: new_beside, begun, grown, again }
    }

    /// Distributes what all targets share: the time for background scans, and the regions of sampled targets, by their
    /// size.
    fn allot(&mut self) {
        // Those that have ended are kept until the next snapshot.
        let alive = || self.watched.values().filter(|w| !w.exited);
        let whole = alive().map(|w| w.extent().whole_pmds).sum();
        // Regions of sampled targets that wait are no huge ranges, and no part of these.
        let unchecked = alive().filter(|w| w.extent().sampled.is_none()).map(|w| w.tracker.unchecked()).sum();
        let all: u64 = alive().map(TargetMonitor::sampled_pmds).sum();
        let regions = alive().filter_map(|w| w.extent().sampled).map(|sampled| sampled.regions).sum();
        self.cpu.note_unchecked(whole, unchecked);
        let scan_period_ns = self.cpu.scan_period_ns(whole, self.clock.now());
        let affordable_interval_ns = self.cpu.affordable_interval_ns(regions, self.clock.now());
        let (max, least) = (self.settings.max_regions, MIN_REGIONS.min(self.settings.max_regions));
        for watched in self.watched.values_mut() {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a usize")]
            let share = (max as f64 * watched.sampled_pmds() as f64 / all.max(1) as f64) as usize;
            let sampled_regions = share.max(least);
            watched.tracker.allot(Allotment { scan_period_ns, sampled_regions, affordable_interval_ns });
        }
    }

    pub(crate) fn alive(&self) -> Vec<u32> {
        self.watched.iter().filter(|(_, w)| !w.exited).map(|(pid, _)| *pid).collect()
    }

    /// Starts to watch a process; returns the error if it cannot be watched.
    fn attach(&mut self, pid: u32, now: Ns, room: Room) -> Option<Error> {
        match self.try_attach(pid, now, room) {
            Ok((mut watched, of_source)) => {
                // The first read of everything happens once and does not count as bookkeeping.
                self.charge_cpu();
                watched.is_here = of_source.is_none();
                watched.cgroup = of_source.or_else(|| Some(self.names_of(watched.id)?.1)).unwrap_or_default();
                watched.runs_guest |= self.follower.is_of_machine() && self.proc.holds_guest(pid).unwrap_or(false);
                self.watched.insert(pid, watched);
                self.declined.forget(pid);
                None
            }
            Err(error) => {
                self.source.0.detach(pid);
                self.decline(pid, now, &error);
                Some(error)
            }
        }
    }

    /// The process, and its cgroup if only the source knows it.
    fn try_attach(&mut self, pid: u32, now: Ns, room: Room) -> Result<(TargetMonitor, Option<String>), Error> {
        let mut attached = self.source.0.attach(pid)?;
        let (id, cgroup) = (attached.id, attached.cgroup.take());
        self.admit(id)?;
        let mut watched = TargetMonitor::new(attached, &self.source.0.describe(), now, &self.settings);
        let mut turn = Turn { source: &mut *self.source.0, pid, now, spent: &mut self.spent };
        watched.refit(room, &mut turn).inspect_err(|_| self.release(id))?;
        Ok((watched, cgroup))
    }

    /// Checks that an attached process may be watched: it is the one that was meant, and no other monitor watches it.
    fn admit(&self, id: TargetId) -> Result<(), Error> {
        if !self.follower.means(id.pid, id.start_ticks) {
            return Err(Error::Gone(id.pid));
        }
        let Some(locks) = &self.locks else { return Ok(()) };
        let failed = |source| Error::Lock { pid: id.pid, source };
        locks.claim(identity(id)).map_err(failed)?.map_err(|holder| Error::Watched {
            pid: id.pid,
            holder: holder.pid,
            command: holder.command,
        })
    }

    pub(crate) fn release(&self, id: TargetId) {
        if let Some(locks) = &self.locks {
            locks.release(identity(id));
        }
    }

    fn decline(&mut self, pid: u32, now: Ns, error: &Error) {
        match error.kind() {
            // In the middle of an exec, for example: it exists, and is tried again at once.
            SourceErrorKind::Busy | SourceErrorKind::Replaced => self.try_again = true,
            SourceErrorKind::Shortage => self.note_shortage(error),
            SourceErrorKind::Gone | SourceErrorKind::Failed => {
                // Kernel threads, and children that ended before they were attached, are not reported.
                let is_news = !error.is_gone() || self.follower.was_named(pid);
                self.declined.note(pid, self.follower.meant(pid), now, is_news.then(|| error.to_string()));
            }
        }
    }

    /// The name and the cgroup of a process; `None` if it is not of this machine, as in a replay. Reads two small files.
    fn names_of(&mut self, id: TargetId) -> Option<(String, String)> {
        let stat = self.proc.stat(id.pid).ok().filter(|stat| stat.start_ticks == id.start_ticks)?;
        let membership = self.proc.membership(id.pid).ok()?;
        self.cgroups.note(&self.proc, &membership);
        Some((stat.comm, membership.memory_path().unwrap_or_default().to_owned()))
    }

    /// Takes in the name and the cgroup that a process has now: schemes are for those, and a process may be moved to keep one off. What
    /// cannot be read stays as it was.
    fn name_again(&mut self, pid: u32) {
        let id = self.watched.get(&pid).filter(|w| !w.exited && w.is_here).map(|w| w.id);
        let names = id.and_then(|id| self.names_of(id));
        if let (Some(names), Some(watched)) = (names, self.watched.get_mut(&pid)) {
            (watched.comm, watched.cgroup) = names;
        }
    }

    /// Marks a process as ended; it is reported once more, in the next snapshot.
    fn end(&mut self, pid: u32) {
        let now = self.clock.now();
        if let Some(watched) = self.watched.get_mut(&pid) {
            watched.exited = true;
            // Its last accesses. Its end is known, so an error means nothing else.
            let mut turn = Turn { source: &mut *self.source.0, pid, now, spent: &mut self.spent };
            let _ = watched.take_accesses(&mut turn);
            let (id, first) = (watched.id, watched.shared.first);
            self.release(id);
            self.doubt(first);
        }
        self.source.0.detach(pid);
        self.follower.ended(pid);
        if self.alive().len() == 1 {
            self.forget_shared();
        }
    }

    /// A process for which so many shared pages were counted is there no more.
    fn doubt(&mut self, first: u64) {
        doubt(self.watched.values_mut().filter(|w| !w.exited), first);
    }

    /// Runs `f` on one process. The end of the process, or another program in its place, is a normal outcome.
    pub(crate) fn step(
        &mut self,
        pid: u32,
        now: Ns,
        f: impl FnOnce(&mut TargetMonitor, &mut Turn<'_>) -> SourceResult<()>,
    ) {
        let Some(watched) = self.watched.get_mut(&pid) else { return };
        let mut turn = Turn { source: &mut *self.source.0, pid, now, spent: &mut self.spent };
        let Err(error) = f(watched, &mut turn) else { return };
        match error.kind() {
            // Nothing was learned and nothing is lost; the next turn tries again.
            SourceErrorKind::Busy => {}
            SourceErrorKind::Shortage => self.note_shortage(&error),
            SourceErrorKind::Replaced => self.replace(pid),
            SourceErrorKind::Gone => self.end(pid),
            SourceErrorKind::Failed => {
                let (now, why) = (self.clock.now(), error.to_string());
                // It is tried again, and may fail again for the same reason.
                if self.declined.reasons().get(&pid) != Some(&why) {
                    self.news.push(format!("process {pid} is no longer watched: {why}"));
                }
                self.declined.note(pid, self.follower.meant(pid), now, Some(why));
                self.end(pid);
            }
        }
    }

    /// The process executes another program: all that was known is about memory that no longer exists.
    fn replace(&mut self, pid: u32) {
        if let Some(comparison) = &mut self.comparison {
            comparison.forget(pid);
        }
        self.source.0.detach(pid);
        if let Some(watched) = self.watched.remove(&pid) {
            self.release(watched.id);
            self.doubt(watched.shared.first);
            self.ended.add(&watched, self.clock.now());
        }
        // At once, but not each time that a program executes another: all targets are listed.
        let at = self.clock.now().max(self.next_hurried_refit);
        if at < self.next_refit {
            self.next_refit = at;
            self.next_hurried_refit = at + self.cpu.hurried_listing_period_ns(self.listing_took, TRY_AGAIN);
        }
    }
}

/// The identity of the same process, as locks use it.
fn identity(id: TargetId) -> Identity {
    Identity { pid: id.pid, start_ticks: id.start_ticks }
}
