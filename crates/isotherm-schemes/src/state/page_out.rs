//! The part of the state that keeps at paging out: which processes, what is read for it, and what becomes a hint.
//!
//! The caller watches; this decides. In each window, for each process: [`State::out_in`] names what to read, [`State::come_back`] takes
//! that in, [`State::page_out_age`] says whether to look for idle pages, [`State::choose_idle`] names what to read once more, and
//! [`State::hint_idle`] hints what is still idle. All of it belongs to one [`Keeper`] for each process.

use super::{REST, State};
use crate::collapse::COLLAPSE;
use crate::outcome::{Outcome, Refusal};
use crate::page_out::keeper::{Keeper, SEARCH, Stays};
use crate::page_out::refaults::Found;
use crate::page_out::{self, IdleWindow, PAGE_OUT};
use crate::queue::{ActionId, Hint, Origin};
use crate::scheme::Charge;
use crate::split::rejoin::REJOIN;
use isotherm_heat::{Ns, TargetId};
use isotherm_units::PmdNo;

/// How long a huge range gets no hint after one to page out. The next of its pages may be idle for long enough soon.
pub(super) fn rest_after(outcome: Outcome) -> Ns {
    match outcome {
        // What was read too long ago is read once more.
        Outcome::Done { .. } | Outcome::Refused(Refusal::Accessed | Refusal::Unmeasured) => SEARCH,
        Outcome::Refused(_) => REST,
    }
}

/// Most huge ranges of a process that are hinted at a time: 2 GiB.
const MAX_HINTED: f64 = 1024.0;
/// Huge ranges are read for a quota as if so many of their pages were idle: most have more.
const FEW: u64 = 64;

impl State {
    /// Huge ranges of a process to read, because pages of them have left. `None` if no scheme pages it out.
    pub fn out_in(&mut self, process: TargetId, now: Ns) -> Option<Vec<PmdNo>> {
        self.take_in_left(now);
        let Some(limits) = self.actions.get(&process)?.pages_out else {
            self.stay(process);
            return self.out_without_scheme(process);
        };
        let target = self.targets.get_mut(&process)?;
        let keeper = target.keeper.get_or_insert_with(|| Keeper::new(limits, now));
        // The settings may have been read again.
        keeper.set_limits(limits, now);
        Some(keeper.out_in())
    }

    /// The same of a process that no scheme pages out any more. What has left and come back goes on being counted.
    fn out_without_scheme(&mut self, process: TargetId) -> Option<Vec<PmdNo>> {
        let target = self.targets.get_mut(&process)?;
        let keeper = target.keeper.as_mut()?;
        if keeper.is_unused() {
            target.keeper = None;
            return None;
        }
        keeper.stop();
        Some(keeper.out_in())
    }

    /// Takes in what the worker has paged out.
    pub(super) fn take_in_left(&mut self, now: Ns) {
        for (process, pmd, pages) in self.idle.take_left() {
            self.spend(process, pmd, Charge::PageOut, u64::from(pages.count()));
            if let Some(keeper) = self.keeper(process) {
                keeper.leave(pmd, pages, now);
            }
        }
    }

    pub(super) fn keeper(&mut self, process: TargetId) -> Option<&mut Keeper> {
        self.targets.get_mut(&process)?.keeper.as_mut()
    }

    /// Takes in what was found in huge ranges of a process that are out, and its working set of a minute.
    pub fn come_back(&mut self, process: TargetId, working_set_pages: u64, now: Ns, found: impl Fn(PmdNo) -> Found) {
        if let Some(keeper) = self.keeper(process) {
            keeper.come_back(working_set_pages, now, found);
        }
        self.hint_following(process, now);
    }

    /// The age at which pages of a process leave. `None` if none may at the moment, for this reason or another.
    pub fn page_out_age(&mut self, process: TargetId, stays: Option<Stays>, now: Ns) -> Option<Ns> {
        let actions = self.actions.get(&process)?;
        actions.pages_out?;
        let marks = actions.watermarks;
        let enough_free = self.is_enough_free(process).then_some(Stays::EnoughFree);
        let target = self.targets.get_mut(&process).filter(|target| target.refused.is_none())?;
        let keeper = target.keeper.as_mut()?;
        let is_active = keeper.is_active(marks, self.free_pct);
        let age = keeper.age_ns(stays.or((!is_active).then_some(Stays::Watermarks)).or(enough_free), now);
        if age.is_none() {
            self.stay(process);
        }
        age
    }

    /// What is queued to leave stays.
    fn stay(&mut self, process: TargetId) {
        self.idle.forget(process);
        self.release_idle(process);
        let hinted = self.keeper(process).map(Keeper::take_hinted).unwrap_or_default();
        hinted.into_iter().for_each(|pmd| self.unqueue(process, pmd, PAGE_OUT));
    }

    /// Takes the hint for a huge range out of the queue, if it is from heat and for this action.
    fn unqueue(&mut self, process: TargetId, pmd: PmdNo, action: ActionId) {
        let queued = self.queue.get(process, pmd).filter(|hint| hint.action == action && hint.origin == Origin::Heat);
        if let Some(hint) = queued {
            self.queue.remove(process, pmd);
            self.retry.dropped(&hint);
        }
    }

    /// The same, and of what is deferred.
    pub(super) fn withdraw(&mut self, process: TargetId, pmd: PmdNo, action: ActionId) {
        self.unqueue(process, pmd, action);
        self.retry.drop_deferred(process, pmd, action);
    }

    /// Whether it is time to look for idle pages in all of a process.
    pub fn is_search_due(&mut self, process: TargetId, now: Ns) -> bool {
        self.keeper(process).is_some_and(|keeper| keeper.is_search_due(now))
    }

    /// Takes in what a search has found.
    pub fn found_idle(&mut self, window: &IdleWindow<'_>, now: Ns) {
        let hints = page_out::plan(window, now).0.hints;
        let free: Vec<PmdNo> =
            hints.iter().map(|hint| hint.pmd).filter(|pmd| self.may_leave(window.id, *pmd)).collect();
        if let Some(keeper) = self.keeper(window.id) {
            keeper.found(free, now);
        }
    }

    fn collapse_first(&self, process: TargetId) -> bool {
        self.actions.get(&process).is_some_and(|actions| actions.collapse_first)
    }

    /// Whether a huge range is neither resting nor wanted by a scheme that comes first.
    fn may_leave(&self, process: TargetId, pmd: PmdNo) -> bool {
        let is_resting = self.resting.contains(process, pmd);
        let is_wanted = self.collapse_first(process) && self.is_worth_collapsing(process, pmd);
        !is_resting && !is_wanted && !self.is_probe(process, pmd)
    }

    /// Huge ranges of a process to read once more before [`State::hint_idle`], in address order.
    pub fn choose_idle(&mut self, process: TargetId, window_ns: Ns) -> Vec<PmdNo> {
        // Twice what can be served, since many are left alone.
        let served = self.budgets.per_second * window_ns as f64 / 1e9;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a thousand at most")]
        let most = (2.0 * served).clamp(1.0, MAX_HINTED) as usize;
        let by_quota = self.quota_left(process).map(|pages| usize::try_from(pages.div_ceil(FEW)).unwrap_or(usize::MAX));
        let Some(keeper) = self.keeper(process) else { return Vec::new() };
        // What is hinted already is read again, and may leave.
        let most = by_quota.map_or(most, |more| most.min(keeper.hinted().saturating_add(more)));
        keeper.choose(most)
    }

    /// Hints what is still idle of the huge ranges that were chosen. Pages of others do not leave from now on.
    pub fn hint_idle(&mut self, window: &IdleWindow<'_>, now: Ns) {
        let (planned, pages) = page_out::plan(window, now);
        self.idle.replace(window.id, pages, now);
        let collapse_first = self.collapse_first(window.id);
        let mut without_room = Vec::new();
        for hint in planned.hints {
            // Pages of a probe may have become idle since the search.
            if self.is_probe(hint.process, hint.pmd) {
                continue;
            }
            if !collapse_first {
                // It may be queued for a collapse, or wait for one, since before anything was known to be idle.
                self.withdraw(hint.process, hint.pmd, COLLAPSE);
            }
            if !self.has_room(&hint, now) {
                without_room.push(hint.pmd);
                continue;
            }
            let is_new = self.add(hint);
            let Some(keeper) = self.keeper(window.id) else { continue };
            if is_new {
                keeper.hint(hint.pmd);
            } else if !keeper.is_hinted(hint.pmd) {
                self.release_of(hint.process, hint.pmd, Charge::PageOut);
            }
        }
        if let Some(keeper) = self.keeper(window.id) {
            keeper.put_back(&without_room);
        }
    }

    /// Withdraws a page-out in favour of a collapse if the scheme that collapses comes first, or if the last read found no idle page. A page-out may
    /// wait for swap for ever.
    pub(super) fn make_way(&mut self, process: TargetId, pmd: PmdNo) {
        let is_hinted = |keeper: &mut Keeper| keeper.is_hinted(pmd);
        let gives_way = self.collapse_first(process) || self.idle.of(process, pmd).0.is_empty();
        if gives_way && self.keeper(process).is_some_and(is_hinted) {
            self.withdraw(process, pmd, PAGE_OUT);
            self.no_longer_hinted(process, pmd);
        }
    }

    /// Notes that a huge range has no hint any more, whatever became of it.
    pub(super) fn no_longer_hinted(&mut self, process: TargetId, pmd: PmdNo) {
        self.release(process, pmd);
        if let Some(keeper) = self.keeper(process) {
            keeper.handled(pmd);
        }
    }

    /// Whether a huge range may be collapsed, as far as other actions go: not if it was split a short time ago, or if pages of it leave or are
    /// out, and the scheme that says so comes first.
    pub(super) fn may_collapse(&self, process: TargetId, pmd: PmdNo, now: Ns) -> bool {
        if self.is_kept_small(process, pmd, now) {
            return false;
        }
        let keeper = self.targets.get(&process).and_then(|target| target.keeper.as_ref());
        self.collapse_first(process) || keeper.is_none_or(|keeper| !keeper.is_after(pmd))
    }

    /// Takes in what a handled hint means for paging out.
    pub(super) fn page_out_handled(&mut self, hint: &Hint, outcome: Outcome, now: Ns) {
        let Some(keeper) = self.keeper(hint.process) else { return };
        keeper.handled(hint.pmd);
        match outcome {
            Outcome::Done { .. } if matches!(hint.action, COLLAPSE | REJOIN) => keeper.brought_back(hint.pmd),
            Outcome::Refused(refusal) if hint.action == PAGE_OUT && refusal.is_of_the_process() => {
                keeper.must_stay(now + REST);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budgets::Wait;
    use crate::collapse::Rules;
    use crate::named::Named;
    use crate::page_out::IdlePages;
    use crate::page_out::IdlePmd;
    use crate::quota::HostMemory;
    use crate::retry::Handled;
    use crate::scheme::Scheme;
    use crate::state::Report;
    use crate::{Budgets, Counters, PmdFacts, TargetWindow};
    use isotherm_heat::{Interval, Mapping, Mask};
    use isotherm_units::{AddrRange, Bytes};

    const S: Ns = 1_000_000_000;
    const A: TargetId = TargetId { pid: 1, start_ticks: 10 };
    /// Pages of the working set: two of a thousand are 200.
    const SET: u64 = 100_000;
    const DONE: Outcome = Outcome::Done { grown: 0 };

    fn free(free_pct: f64) -> HostMemory {
        HostMemory { free_pct: Some(free_pct), ..HostMemory::default() }
    }

    fn mappings() -> Vec<Mapping> {
        let range = AddrRange::new(PmdNo(0).addr(), PmdNo(100).addr());
        vec![Mapping { range, name: String::new(), perms: "rw-p".parse().unwrap() }]
    }

    /// Windows of one process, with these schemes.
    struct Scene {
        state: State,
        idle: IdlePages,
        now: Ns,
    }

    impl Scene {
        fn new(schemes: &[&str]) -> Scene {
            let idle = IdlePages::default();
            let scheme = |text: &&str| Scheme::new(toml::from_str(text).unwrap()).unwrap();
            let state = State::new(Rules::default(), Budgets::default());
            let state = state.with_schemes(schemes.iter().map(scheme).collect(), idle.clone());
            Scene { state, idle, now: 100 * S }
        }

        /// A window in which these huge ranges are hot, and then those idle. Returns the age at which pages leave.
        fn window(&mut self, hot: &[u64], idle: &[u64], present: Mask) -> Option<Ns> {
            self.now += 6 * S;
            let facts =
                |pmd: &u64| PmdFacts { pmd: PmdNo(*pmd), present: 512, measured: 512, huge: false, benefit_hz: 9000.0 };
            let window = TargetWindow {
                id: A,
                comm: "db".into(),
                mappings: mappings().into(),
                facts: hot.iter().map(facts).collect(),
                generations: Vec::new(),
            };
            self.state.set_cgroup(A, "db", "/app");
            self.state.feed(&window, Bytes(1 << 30), self.now);
            self.state.out_in(A, self.now)?;
            self.state.come_back(A, SET, self.now, |_| Found::Present(present));
            let age = self.state.page_out_age(A, None, self.now)?;
            let known = |pmd: &u64| IdlePmd { pmd: PmdNo(*pmd), pages: Mask::ALL, idle: Interval::from_ns(age) };
            let window =
                |pmds: Vec<IdlePmd>| IdleWindow { id: A, comm: "db".into(), mappings: mappings().into(), idle: pmds };
            if self.state.is_search_due(A, self.now) {
                self.state.found_idle(&window(idle.iter().map(known).collect()), self.now);
            }
            let chosen = self.state.choose_idle(A, S);
            self.state.hint_idle(&window(chosen.iter().map(|pmd| known(&pmd.0)).collect()), self.now);
            Some(age)
        }

        /// Serves all hints; each idle page leaves.
        fn serve(&mut self) -> Vec<(u8, u64)> {
            let mut served = Vec::new();
            while self.state.due(self.now).is_ok() {
                let Some((hint, tries)) = self.state.take(self.now) else { break };
                if hint.action == PAGE_OUT {
                    self.idle.leave(A, hint.pmd, Mask::ALL);
                }
                served.push((hint.action.0, hint.pmd.0));
                self.settle(hint, tries, Handled::Done(DONE));
            }
            served.sort_unstable();
            served
        }

        /// The next hint has to wait for a minute.
        fn defer(&mut self, why: Wait) {
            let (hint, tries) = self.state.take(self.now).unwrap();
            self.settle(hint, tries, Handled::Later(self.now + 60 * S, why));
        }

        fn settle(&mut self, hint: Hint, tries: u8, handled: Handled) {
            let report = Report { handled, counters: Counters::default(), paused_for: None, cgroup_wait: None };
            self.state.settle(hint, tries, report, self.now);
        }

        fn page_out(&self) -> serde_json::Value {
            serde_json::to_value(&self.state.status().targets[0].page_out).unwrap()
        }
    }

    const PAGE_OUT_DB: &str = "action = \"page-out\"\nprocesses = [\"db\"]\nmin_idle = \"1m\"";
    const COLLAPSE_ALL: &str = "action = \"collapse\"";

    #[test]
    fn what_waits_for_the_quota_of_one_scheme_does_not_keep_another_from_it() {
        let collapse = "action = \"collapse\"\nquota = { size = \"2MiB\", every = \"1h\" }";
        let mut scene = Scene::new(&[collapse, PAGE_OUT_DB]);
        scene.window(&[1, 2], &[], Mask::NONE);
        assert_eq!(scene.serve(), [(COLLAPSE.0, 1)]);
        scene.window(&[], &[2], Mask::NONE);
        assert_eq!(scene.serve(), [(PAGE_OUT.0, 2)], "not after an hour only");
    }

    #[test]
    fn what_would_have_to_wait_for_a_quota_takes_the_place_of_nothing_that_waits() {
        let quota = "quota = { size = \"2MiB\", every = \"1h\" }";
        let collapse = format!("action = \"collapse\"\n{quota}");
        let mut scene = Scene::new(&[&collapse, &format!("{PAGE_OUT_DB}\n{quota}")]);
        scene.state.note_memory(free(50.0), scene.now);
        scene.window(&[1, 2, 3], &[4], Mask::NONE);
        assert_eq!(scene.serve(), [(COLLAPSE.0, 1), (PAGE_OUT.0, 4)]);
        let waits = |scene: &Scene| [2, 3].map(|pmd| scene.state.retry.is_deferred_for(A, PmdNo(pmd), COLLAPSE));
        assert_eq!(waits(&scene), [true, true]);
        let idle = Hint {
            process: A,
            pmd: PmdNo(2),
            action: PAGE_OUT,
            level: crate::queue::Level::new(1),
            origin: Origin::Heat,
            since: scene.now,
        };
        assert!(!scene.state.add(idle) && waits(&scene) == [true, true], "both quotas are used up");
        assert!(
            scene.state.add(Hint { origin: Origin::External, ..idle }),
            "which does not hold for those from outside"
        );
    }

    #[test]
    fn what_waits_to_leave_and_has_turned_hot_is_collapsed() {
        let mut scene = Scene::new(&[PAGE_OUT_DB, COLLAPSE_ALL]);
        scene.window(&[], &[1, 2], Mask::NONE);
        (0..2).for_each(|_| scene.defer(Wait::CgroupSwap));
        scene.window(&[2], &[], Mask::NONE);
        assert_eq!(scene.serve(), [], "it was idle when it was read last");
        // The first is idle as before.
        scene.idle.replace(A, [(PmdNo(1), Mask::ALL)], scene.now);
        scene.window(&[2], &[], Mask::NONE);
        assert_eq!(scene.serve(), [(COLLAPSE.0, 2)]);
        assert!(scene.state.retry.is_deferred_for(A, PmdNo(1), PAGE_OUT));
    }

    #[test]
    fn a_quota_limits_what_is_hinted_in_an_interval() {
        // Three huge ranges in the six seconds of a window.
        let mut scene = Scene::new(&[&format!("{PAGE_OUT_DB}\nquota = {{ size = \"6MiB\", every = \"6s\" }}")]);
        let mut idle: Vec<u64> = (1..=8).collect();
        let mut left = Vec::new();
        for _ in 0..3 {
            scene.state.note_memory(free(50.0), scene.now + 6 * S);
            scene.window(&[], &idle, Mask::NONE);
            let served = scene.serve();
            idle.retain(|pmd| !served.contains(&(PAGE_OUT.0, *pmd)));
            left.push(served.len());
        }
        assert_eq!(left, [3, 3, 2]);
        let quota = scene.state.status().quotas[0].clone();
        assert_eq!((quota.scheme, quota.size_bytes, quota.spent_bytes, quota.used_up), (1, 6 << 20, 4 << 20, 2));
        // In a dry run, what would have left counts.
        scene.state.describe("", true, false, crate::plan::HintSource::Heat);
        scene.state.note_memory(free(50.0), scene.now + 6 * S);
        scene.window(&[], &[9, 10], Mask::NONE);
        let spent = |scene: &Scene| scene.state.status().quotas[0].spent_bytes;
        let (hint, tries) = scene.state.take(scene.now).unwrap();
        scene.settle(hint, tries, Handled::Done(DONE));
        assert_eq!(spent(&scene), 2 << 20);
        scene.state.describe("", false, false, crate::plan::HintSource::Heat);
        scene.serve();
        // What is hinted and not served counts.
        let idle: Vec<u64> = (11..=20).collect();
        for _ in 0..2 {
            scene.state.note_memory(free(50.0), scene.now + 6 * S);
            scene.window(&[], &idle, Mask::NONE);
        }
        assert_eq!(scene.serve().len(), 3);
        // What has to wait reserves nothing, or it would hold up all others.
        scene.state.note_memory(free(50.0), scene.now + 6 * S);
        scene.window(&[], &[31, 32, 33, 34, 35, 36], Mask::NONE);
        (0..3).for_each(|_| scene.defer(Wait::CgroupSwap));
        scene.state.note_memory(free(50.0), scene.now + 6 * S);
        scene.window(&[], &[31, 32, 33, 34, 35, 36], Mask::NONE);
        let queued: Vec<u64> = scene.state.queue.snapshot().iter().map(|hint| hint.pmd.0).collect();
        assert_eq!(queued, [34, 35, 36]);
        assert_eq!(scene.serve(), [34, 35, 36].map(|pmd| (PAGE_OUT.0, pmd)));
        // When these can leave, the wait of the others is over; the quota is used up.
        assert_eq!(scene.state.status().waiting, Some(Named::Known(Wait::Quota)));
        scene.state.note_memory(free(50.0), scene.now + 6 * S);
        scene.now += 6 * S;
        assert_eq!(scene.serve(), [31, 32, 33].map(|pmd| (PAGE_OUT.0, pmd)));
        // Nothing leaves any more, and what was set aside is free again.
        scene.state.note_memory(free(50.0), scene.now + 12 * S);
        scene.state.note_memory(free(50.0), scene.now + 18 * S);
        scene.state.note_memory(free(50.0), scene.now + 6 * S);
        scene.window(&[], &idle, Mask::NONE);
        scene.state.page_out_age(A, Some(Stays::NoSwap), scene.now);
        scene.state.note_memory(free(50.0), scene.now + 6 * S);
        scene.window(&[], &idle, Mask::NONE);
        assert_eq!(scene.serve().len(), 3);
    }

    #[test]
    fn of_two_schemes_the_first_has_the_huge_range() {
        let (collapse, page_out) = (COLLAPSE.0, PAGE_OUT.0);
        for (schemes, expected) in [
            ([PAGE_OUT_DB, COLLAPSE_ALL], vec![(collapse, 1), (page_out, 2), (page_out, 3)]),
            ([COLLAPSE_ALL, PAGE_OUT_DB], vec![(collapse, 1), (collapse, 2), (page_out, 3)]),
        ] {
            let mut scene = Scene::new(&schemes);
            // The first is queued before anything is known to be idle.
            scene.window(&[1], &[], Mask::ALL);
            let first = scene.serve();
            scene.window(&[2], &[2, 3], Mask::NONE);
            // What is both is hinted by the scheme that comes first.
            let mut served = [first, scene.serve()].concat();
            served.sort_unstable();
            assert_eq!(served, expected, "{schemes:?}");
        }
    }

    #[test]
    fn what_leaves_is_counted_when_it_comes_back_and_stops_what_is_queued() {
        let mut scene = Scene::new(&[PAGE_OUT_DB]);
        assert_eq!(scene.window(&[7], &[1, 2], Mask::ALL), Some(60 * S));
        assert_eq!(scene.serve(), [(PAGE_OUT.0, 1), (PAGE_OUT.0, 2)], "no scheme collapses");
        assert_eq!(scene.window(&[], &[1, 2, 3], Mask::NONE), Some(60 * S));
        assert_eq!(scene.page_out()["out_bytes"], 4 << 20, "{:#}", scene.page_out());
        // It is hinted, and before it is served too much comes back: 512 pages of 200 that may.
        assert_eq!(scene.window(&[], &[3], (0..256).collect()), None);
        assert_eq!(scene.serve(), []);
        let reported = scene.page_out();
        assert_eq!(
            (&reported["stays"], &reported["refaulted_bytes"]),
            (&"refaults".into(), &(2 << 20).into()),
            "{reported:#}"
        );
        assert_eq!((&reported["left_bytes"], &reported["out_bytes"]), (&(4 << 20).into(), &(2 << 20).into()));
        assert_eq!(reported["min_idle_ns"], 120 * S);
        // A process that has ended takes all of it along.
        scene.state.keep(&[]);
        assert_eq!(scene.state.out_in(A, scene.now), None);
    }

    #[test]
    fn what_is_out_is_counted_when_it_comes_back_though_its_scheme_is_gone() {
        let mut scene = Scene::new(&[PAGE_OUT_DB]);
        scene.window(&[7], &[1, 2], Mask::ALL);
        scene.serve();
        scene.state.set_schemes(Vec::new());
        assert_eq!(scene.window(&[], &[1, 2, 3], Mask::NONE), None);
        let reported = scene.page_out();
        assert_eq!((&reported["stays"], &reported["out_bytes"]), (&"no-scheme".into(), &(4 << 20).into()));
        assert_eq!(scene.window(&[], &[3], Mask::ALL), None);
        assert_eq!(scene.serve(), [], "nothing more leaves");
        let reported = scene.page_out();
        assert_eq!((&reported["out_bytes"], &reported["refaulted_bytes"]), (&0.into(), &(4 << 20).into()));
        // Of a process of which nothing has left, nothing is kept.
        let mut scene = Scene::new(&[PAGE_OUT_DB]);
        scene.window(&[7], &[], Mask::ALL);
        scene.state.set_schemes(Vec::new());
        scene.window(&[7], &[], Mask::ALL);
        assert_eq!(scene.page_out(), serde_json::Value::Null);
    }

    #[test]
    fn what_is_likely_to_follow_is_asked_back_at_once_if_a_scheme_says_so() {
        let (page_out, bring_back) = (PAGE_OUT.0, crate::bring_back::BRING_BACK.0);
        for (schemes, expected) in
            [(vec![PAGE_OUT_DB], vec![]), (vec![PAGE_OUT_DB, "action = \"bring-back\""], vec![(bring_back, 1)])]
        {
            let mut scene = Scene::new(&schemes);
            scene.window(&[], &[1], Mask::ALL);
            assert_eq!(scene.serve(), [(page_out, 1)]);
            // Out and not resting any more, so it is idle and hinted once more: then a part of it comes back.
            scene.window(&[], &[], Mask::NONE);
            scene.window(&[], &[1], (0..100).collect());
            assert_eq!(scene.serve(), expected, "{schemes:?}");
            scene.window(&[], &[], (0..200).collect());
            assert_eq!(scene.serve(), [], "once");
        }
        // What had to wait, for I/O of a backup as it may be, is not read in when nobody wants it any more; nor if no scheme says so.
        for (waits_s, with_scheme, expected) in
            [(9, true, vec![(bring_back, 1)]), (11, true, vec![]), (9, false, vec![])]
        {
            let mut scene = Scene::new(&[PAGE_OUT_DB, "action = \"bring-back\""]);
            scene.window(&[], &[1], Mask::ALL);
            assert_eq!(scene.serve(), [(page_out, 1)]);
            scene.window(&[], &[], (0..100).collect());
            scene.now += waits_s * S;
            if !with_scheme {
                scene.state.set_schemes(vec![Scheme::new(toml::from_str(PAGE_OUT_DB).unwrap()).unwrap()]);
                scene.state.set_cgroup(A, "db", "/app");
            }
            assert_eq!(scene.serve(), expected, "{waits_s} s, {with_scheme}");
        }
        // Where other pages of it wait to leave, they stay.
        let mut scene = Scene::new(&[PAGE_OUT_DB, "action = \"bring-back\""]);
        scene.window(&[], &[1], Mask::ALL);
        assert_eq!(scene.serve(), [(page_out, 1)]);
        scene.window(&[], &[1], Mask::NONE);
        scene.defer(Wait::Fork);
        scene.window(&[], &[], (0..100).collect());
        assert_eq!(scene.serve(), [(bring_back, 1)]);
    }

    #[test]
    fn between_watermarks_it_is_active_and_says_so_if_not() {
        let mut scene = Scene::new(&[&format!("{PAGE_OUT_DB}\nwatermarks = {{ high = 50.0, mid = 40.0, low = 5.0 }}")]);
        scene.state.note_memory(free(45.0), scene.now);
        assert_eq!(scene.window(&[], &[1], Mask::ALL), None);
        assert_eq!(scene.page_out()["stays"], "watermarks");
        scene.state.note_memory(free(39.0), scene.now);
        assert_eq!(scene.window(&[], &[1], Mask::ALL), Some(60 * S));
        assert_eq!(scene.page_out()["stays"], serde_json::Value::Null);
        scene.state.note_memory(free(51.0), scene.now);
        assert_eq!((scene.window(&[], &[1], Mask::ALL), scene.serve()), (None, vec![]), "what is queued stays");
    }

    #[test]
    fn schemes_that_are_read_again_are_in_force_from_the_next_window_on() {
        let mut scene = Scene::new(&[PAGE_OUT_DB]);
        assert_eq!(scene.window(&[], &[1], Mask::ALL), Some(60 * S));
        let other = PAGE_OUT_DB.replace("1m", "5m");
        scene.state.set_schemes(vec![Scheme::new(toml::from_str(&other).unwrap()).unwrap()]);
        assert_eq!(scene.window(&[], &[1], Mask::ALL), Some(300 * S));
        assert_eq!(scene.page_out()["min_idle_ns"], 300 * S);
        scene.state.set_schemes(vec![Scheme::collapse_all()]);
        assert_eq!(scene.window(&[], &[1], Mask::ALL), None);
        assert_eq!(scene.serve(), [], "what was queued stays");
        assert_eq!(scene.page_out(), serde_json::Value::Null);
    }

    #[test]
    fn what_is_queued_for_a_scheme_that_collapses_no_more_is_not_collapsed() {
        let mut scene = Scene::new(&[COLLAPSE_ALL]);
        scene.window(&[1, 2], &[], Mask::ALL);
        assert_eq!(scene.state.hint(1, PmdNo(5).range(), crate::Level::new(31), scene.now), Ok(1));
        scene.state.set_schemes(vec![Scheme::new(toml::from_str(PAGE_OUT_DB).unwrap()).unwrap()]);
        scene.window(&[], &[], Mask::ALL);
        assert_eq!(scene.serve(), [(COLLAPSE.0, 5)], "only what was asked for from outside");
    }

    #[test]
    fn what_all_that_is_left_waits_for_is_reported_until_it_comes_back() {
        let mut scene = Scene::new(&[PAGE_OUT_DB]);
        scene.window(&[], &[1], Mask::ALL);
        scene.defer(Wait::CgroupSwap);
        assert_eq!(scene.state.due(scene.now), Err(scene.now + 60 * S));
        assert_eq!(scene.state.status().waiting, Some(Named::Known(Wait::CgroupSwap)));
        scene.now += 60 * S;
        assert_eq!((scene.state.due(scene.now), scene.state.status().waiting), (Ok(()), None), "it is served");
    }

    #[test]
    fn what_was_read_too_long_ago_is_read_again_soon() {
        let rests = |refusal| rest_after(Outcome::Refused(refusal));
        assert_eq!(
            (rests(Refusal::Unmeasured), rests(Refusal::Accessed), rests(Refusal::Shared)),
            (SEARCH, SEARCH, REST)
        );
    }

    #[test]
    fn a_hint_from_outside_is_collapsed_and_what_it_brings_back_is_no_refault() {
        let mut scene = Scene::new(&[PAGE_OUT_DB]);
        scene.window(&[], &[1, 2], Mask::ALL);
        assert_eq!(scene.serve(), [(PAGE_OUT.0, 1), (PAGE_OUT.0, 2)]);
        assert_eq!(scene.state.hint(1, PmdNo(5).range(), crate::Level::new(31), scene.now), Ok(1));
        scene.window(&[], &[5], Mask::NONE);
        assert_eq!(scene.serve(), [(COLLAPSE.0, 5)], "whatever the schemes say");
        scene.now += 61 * S;
        assert_eq!(scene.state.hint(1, PmdNo(1).range(), crate::Level::new(31), scene.now), Ok(1));
        assert_eq!(scene.serve(), [(COLLAPSE.0, 1)]);
        scene.window(&[], &[], Mask::NONE);
        let reported = scene.page_out();
        assert_eq!(
            (&reported["refaulted_bytes"], &reported["out_bytes"]),
            (&0.into(), &(2 << 20).into()),
            "{reported:#}"
        );
    }

    #[test]
    fn a_process_whose_memory_has_to_stay_is_left_alone_for_a_while() {
        let mut scene = Scene::new(&[PAGE_OUT_DB]);
        scene.window(&[], &[1], Mask::ALL);
        let hint = scene.state.take(scene.now).unwrap().0;
        let handled = Handled::Done(Outcome::Refused(Refusal::IoUring));
        let report = Report { handled, counters: Counters::default(), paused_for: None, cgroup_wait: None };
        scene.state.settle(hint, 0, report, scene.now);
        assert_eq!(scene.window(&[], &[2], Mask::ALL), None);
        assert_eq!(scene.page_out()["stays"], "must-stay");
        scene.now += 60 * S;
        assert_eq!(scene.window(&[], &[2], Mask::ALL), Some(60 * S));
    }
}
