//! The part of the state that takes idle files from memory cgroups: which, how much of each, and what came of it.
//!
//! The caller counts what is idle ([`State::found_idle_files`]), every few seconds. The thread of [`crate::reclaim::worker`] asks for it.

use super::State;
use crate::budgets::{Budgets, Wait};
use crate::page_out::watermarks::Watermarks;
use crate::reclaim::reclaimer::{Found, ReclaimStatus, Reclaimer, Taken};
use crate::scheme::ReclaimScheme;
use isotherm_heat::{Ns, TargetId};
use isotherm_sys::proc::{Cgroup, ReclaimCounts};
use isotherm_units::Bytes;
use std::collections::BTreeMap;

/// Pages that the kernel takes of a list at a time.
const LEAST: u64 = 32;

/// A cgroup of which files leave.
#[derive(Debug)]
struct Kept {
    cgroup: Cgroup,
    reclaimer: Reclaimer,
    /// The scheme that says so, by its place in the table. Of other schemes than before it is not known until the next count.
    scheme: Option<usize>,
}

/// Cgroups by path.
#[derive(Debug, Default)]
pub(super) struct Reclaims {
    of: BTreeMap<String, Kept>,
    /// The one that was served last, and the one before it. Those after the last come first.
    last: String,
    before: String,
}

impl Reclaims {
    fn of(&mut self, cgroup: &Cgroup) -> Option<&mut Reclaimer> {
        self.of.get_mut(&cgroup.path).map(|kept| &mut kept.reclaimer)
    }

    /// Takes in how much memory is free.
    pub(super) fn note_free(&mut self, free_pct: f64) {
        self.of.values_mut().for_each(|kept| kept.reclaimer.note_free(free_pct));
    }

    /// There are other schemes.
    pub(super) fn forget_schemes(&mut self) {
        self.of.values_mut().for_each(|kept| kept.scheme = None);
    }

    pub(super) fn status(&self) -> Vec<ReclaimStatus> {
        self.of.iter().map(|(path, kept)| kept.reclaimer.status(path)).collect()
    }
}

impl State {
    /// The budgets in force.
    pub fn budgets(&self) -> Budgets {
        self.budgets
    }

    /// The scheme that takes idle files of this process's cgroup, if one does.
    pub fn reclaims(&self, process: TargetId) -> Option<ReclaimScheme> {
        self.actions.get(&process)?.reclaims
    }

    /// The age from which on files of a cgroup are idle at present.
    pub fn reclaim_age(&mut self, cgroup: &Cgroup, scheme: ReclaimScheme, now: Ns) -> Ns {
        let ReclaimScheme { limits, place, .. } = scheme;
        let new = || Kept { cgroup: cgroup.clone(), reclaimer: Reclaimer::new(limits, now), scheme: None };
        let kept = self.reclaims.of.entry(cgroup.path.clone()).or_insert_with(new);
        // The settings may have been read again.
        kept.scheme = Some(place);
        kept.reclaimer.set_limits(limits, now);
        kept.reclaimer.age_ns()
    }

    /// Takes in what is idle in a cgroup.
    pub fn found_idle_files(&mut self, cgroup: &Cgroup, found: Found, marks: Option<Watermarks>, now: Ns) {
        let free_pct = self.free_pct;
        if let Some(reclaimer) = self.reclaims.of(cgroup) {
            reclaimer.found(found, (marks, free_pct), now);
        }
    }

    /// Forgets cgroups that are not among these: no process of theirs is left, or no scheme is for them.
    pub fn keep_cgroups(&mut self, is_kept: impl Fn(&str) -> bool) {
        self.reclaims.of.retain(|path, _| is_kept(path));
    }

    /// The next cgroup to ask, in turn.
    pub fn reclaim_due(&mut self, now: Ns) -> Option<Cgroup> {
        let Reclaims { of, last, .. } = &self.reclaims;
        let due = |(_, kept): &(&String, &Kept)| kept.reclaimer.is_due(now);
        let after = of.range::<String, _>((std::ops::Bound::Excluded(last), std::ops::Bound::Unbounded));
        let (path, kept) = after.chain(of.range(..=last.clone())).find(due)?;
        let (path, cgroup) = (path.clone(), kept.cgroup.clone());
        self.reclaims.before = std::mem::replace(&mut self.reclaims.last, path);
        Some(cgroup)
    }

    /// How much to ask for now. `None`: nothing.
    pub fn reclaim_step(&mut self, cgroup: &Cgroup, counts: ReclaimCounts, now: Ns) -> Option<Bytes> {
        let kept = self.reclaims.of.get_mut(&cgroup.path)?;
        let asked = kept.reclaimer.step(counts, now)?;
        let Some(account) = self.quotas.get_mut(&kept.scheme?) else { return Some(asked) };
        let left = Bytes::of_pages(account.left_pages());
        if left < asked {
            account.hold_up();
        }
        if left.0 == 0 {
            // It was not served, and is the first of the next interval.
            self.reclaims.last = self.reclaims.before.clone();
            return None;
        }
        // The kernel takes no fewer. What is too much the next intervals have less.
        Some(asked.min(left.max(Bytes::of_pages(LEAST))))
    }

    /// Takes in the result.
    pub fn reclaimed(&mut self, cgroup: &Cgroup, taken: Taken, now: Ns) {
        // Also of a cgroup that was forgotten in the meantime: it has left.
        self.of_ended.reclaimed_bytes += Bytes::of_pages(taken.left_pages).0;
        if let Some(kept) = self.reclaims.of.get_mut(&cgroup.path) {
            // In a dry run nothing leaves, and it goes on as if all of it had.
            let pages = if self.dry_run {
                kept.reclaimer.imagined(taken, now);
                taken.asked.pages()
            } else {
                kept.reclaimer.taken(taken, now);
                taken.left_pages
            };
            let account = kept.scheme.and_then(|place| self.quotas.get_mut(&place));
            account.into_iter().for_each(|account| account.spend(pages));
        }
    }

    /// Something holds a cgroup up until then. `None`: it was not there at the moment, as while its service is restarted, and is forgotten with its
    /// processes.
    pub fn reclaim_waits(&mut self, cgroup: &Cgroup, why: Option<Wait>, until: Ns) {
        if let Some(reclaimer) = self.reclaims.of(cgroup) {
            reclaimer.wait(why, until);
        }
    }

    /// A cgroup cannot be asked, and is asked once more then.
    pub fn cannot_reclaim(&mut self, cgroup: &Cgroup, until: Ns) {
        if let Some(reclaimer) = self.reclaims.of(cgroup) {
            reclaimer.cannot_be_asked(until);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collapse::Rules;
    use crate::page_out::brake::Limits;
    use crate::quota::HostMemory;
    use isotherm_sys::proc::CgroupKind;
    use std::path::PathBuf;

    const S: Ns = 1_000_000_000;
    const LIMITS: Limits = Limits { min_idle_ns: 60 * S, max_refaults_pct: 0.2 };
    const SCHEME: ReclaimScheme = ReclaimScheme { limits: LIMITS, watermarks: None, place: 0 };

    fn cgroup(path: &str) -> Cgroup {
        Cgroup { kind: CgroupKind::Unified, dir: PathBuf::from("/sys/fs/cgroup").join(&path[1..]), path: path.into() }
    }

    #[test]
    fn cgroups_are_asked_in_turn_and_forgotten_with_their_processes() {
        let mut state = State::new(Rules::default(), Budgets::default());
        let found = Found { idle_pages: 1 << 20, working_set_pages: 1 << 20, ..Found::default() };
        for path in ["/a", "/b", "/c"] {
            assert_eq!(state.reclaim_age(&cgroup(path), SCHEME, S), 60 * S);
            state.found_idle_files(&cgroup(path), found, None, S);
        }
        let served: Vec<String> = (0..4).map(|_| state.reclaim_due(S).unwrap().path).collect();
        assert_eq!(served, ["/a", "/b", "/c", "/a"]);
        state.keep_cgroups(|path| path == "/b");
        assert_eq!((state.reclaim_due(S).unwrap().path, state.reclaims.status().len()), ("/b".to_owned(), 1));
        let longer = ReclaimScheme { limits: Limits { min_idle_ns: 90 * S, ..LIMITS }, ..SCHEME };
        assert_eq!(state.reclaim_age(&cgroup("/b"), longer, S), 90 * S, "the settings were read again");
    }

    #[test]
    fn what_has_left_is_counted_also_of_cgroups_that_are_gone() {
        let mut state = State::new(Rules::default(), Budgets::default());
        state.reclaim_age(&cgroup("/a"), SCHEME, S);
        for _ in 0..2 {
            state.reclaimed(&cgroup("/a"), Taken { left_pages: 10, ..Taken::default() }, S);
            state.keep_cgroups(|_| false);
        }
        assert_eq!((state.status().totals.reclaimed_bytes, state.status().cgroups.len()), (20 << 12, 0));
    }

    #[test]
    fn a_dry_run_goes_on_as_if_what_it_asks_for_had_left() {
        let mut state = State::new(Rules::default(), Budgets::default());
        state.dry_run = true;
        let file = Bytes(1 << 30);
        let counts = ReclaimCounts { file, mapped: file, charged: file, ..ReclaimCounts::default() };
        let found = Found { idle_pages: 1 << 15, working_set_pages: 1 << 17, ..Found::default() };
        for second in 1..=20 {
            let now = second * S;
            state.reclaim_age(&cgroup("/a"), SCHEME, now);
            state.found_idle_files(&cgroup("/a"), found, None, now);
            if state.reclaim_due(now).is_some()
                && let Some(asked) = state.reclaim_step(&cgroup("/a"), counts, now)
            {
                state.reclaimed(&cgroup("/a"), Taken { asked, left_pages: 0, cpu_ns: 1 }, now);
            }
        }
        let status = state.status().cgroups[0].clone();
        assert_eq!(status.left_bytes, 0);
        // 128 MiB are idle, and a third of an age has passed.
        assert!((128 << 20..180 << 20).contains(&status.asked_bytes), "{}", status.asked_bytes >> 20);
    }

    #[test]
    fn a_quota_is_for_all_cgroups_of_its_scheme() {
        let text = "action = \"reclaim\"\ncgroups = [\"/\"]\nquota = { size = \"24MiB\" }";
        let scheme = crate::scheme::Scheme::new(toml::from_str(text).unwrap()).unwrap();
        let state = State::new(Rules::default(), Budgets::default());
        let mut state = state.with_schemes(vec![scheme], crate::page_out::IdlePages::default());
        state.note_memory(HostMemory::default(), S);
        let file = Bytes(1 << 30);
        let counts = ReclaimCounts { file, mapped: file, charged: file, ..ReclaimCounts::default() };
        let found = Found { idle_pages: 1 << 17, working_set_pages: 1 << 17, ..Found::default() };
        let step = |state: &mut State, path: &str, now: Ns| {
            state.reclaim_age(&cgroup(path), SCHEME, now);
            state.found_idle_files(&cgroup(path), found, None, now);
            let asked = state.reclaim_step(&cgroup(path), counts, now).unwrap_or_default();
            let taken = Taken { asked, left_pages: asked.pages(), cpu_ns: 1 };
            state.reclaimed(&cgroup(path), taken, now);
            asked.0 >> 20
        };
        assert_eq!(["/a", "/b", "/c"].map(|path| step(&mut state, path, S)), [16, 8, 0]);
        state.note_memory(HostMemory::default(), 2 * S);
        assert_eq!(["/c", "/a"].map(|path| step(&mut state, path, 2 * S)), [16, 8]);
        let quota = state.status().quotas[0].clone();
        assert_eq!((quota.scheme, quota.spent_bytes, quota.used_up), (1, 24 << 20, 2));
    }
}
