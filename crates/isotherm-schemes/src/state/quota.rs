//! The part of the state that keeps the quotas of schemes.
//!
//! What is hinted is reserved, and what was done is spent: for pages of a process when the worker's result is taken in, for files of a cgroup
//! when the kernel has taken them. A hint that has to wait reserves nothing, or one process that may not swap would hold up all others. What
//! finds no room in an interval gets no hint. So within a process what is worth most has to ask first, and of several processes each in turn.
//!
//! Collapses are spent as whole huge ranges. A hint from outside takes no heed of a quota, but is spent like others.

use super::State;
use crate::collapse::COLLAPSE;
use crate::migrate::Wanted;
use crate::outcome::Outcome;
use crate::queue::Hint;
use crate::quota::{HostMemory, QuotaStatus, Spending};
use crate::scheme::{Charge, Scheme};
use isotherm_heat::{Mask, Ns, TargetId};
use isotherm_units::{PAGES_PER_PMD, PmdNo};
use std::collections::BTreeMap;

/// Accounts by the place of the scheme in the table.
pub(super) type Quotas = BTreeMap<usize, Spending>;

/// The accounts of the schemes that are in the new table, too. Cgroups that are assigned to one do not make it another.
pub(super) fn carried_over(mut quotas: Quotas, old: &[Scheme], new: &[Scheme]) -> Quotas {
    let mut carried = Quotas::new();
    for (place, scheme) in new.iter().enumerate().filter(|(_, scheme)| scheme.quota.is_some()) {
        let is_same = |at: &usize| old.get(*at).is_some_and(|old| old.is_but_for_cgroups(scheme));
        let before = quotas.keys().copied().filter(is_same).min_by_key(|at| at.abs_diff(place));
        carried.extend(before.and_then(|at| Some((place, quotas.remove(&at)?))));
    }
    carried
}

impl State {
    /// Takes in how much memory of the host is free, and for how long something has waited for memory.
    pub fn note_memory(&mut self, host: HostMemory, now: Ns) {
        if let Some(free_pct) = host.free_pct {
            self.free_pct = free_pct;
        }
        for (place, scheme) in self.schemes.iter().enumerate() {
            let Some(quota) = scheme.quota else { continue };
            self.quotas.entry(place).or_insert_with(|| Spending::new(quota, now)).note(host, now);
        }
    }

    /// Whether a scheme has a quota.
    pub fn has_quotas(&self) -> bool {
        self.schemes.iter().any(|scheme| scheme.quota.is_some())
    }

    /// The place of the scheme that does this to a process. `None` if there is none.
    fn place_of(&self, process: TargetId, charge: Charge) -> Option<usize> {
        let place = self.actions.get(&process)?.by.of(charge);
        self.is_of(place, charge).then_some(place)
    }

    fn is_of(&self, place: usize, charge: Charge) -> bool {
        self.schemes.get(place).is_some_and(|scheme| scheme.action.charge() == Some(charge))
    }

    /// The account of that scheme, if it has a quota.
    fn account_of(&mut self, process: TargetId, charge: Charge) -> Option<&mut Spending> {
        let place = self.place_of(process, charge)?;
        self.quotas.get_mut(&place)
    }

    /// Whether nothing of a process leaves because so much memory is free as the goal of its scheme says.
    pub(super) fn is_enough_free(&mut self, process: TargetId) -> bool {
        self.account_of(process, Charge::PageOut).is_some_and(|account| account.is_enough_free())
    }

    /// How many pages of a process may be hinted to leave in this interval; `None` for as many as there are. What is not hinted any more is not
    /// reserved.
    pub(super) fn quota_left(&mut self, process: TargetId) -> Option<u64> {
        let place = self.place_of(process, Charge::PageOut)?;
        let State { quotas, targets, retry, .. } = self;
        let account = quotas.get_mut(&place)?;
        let keeper = targets.get(&process).and_then(|target| target.keeper.as_ref());
        let is_hinted = |pmd| keeper.is_some_and(|keeper| keeper.is_hinted(pmd)) && !retry.is_deferred(process, pmd);
        account.keep(process, is_hinted);
        let left = account.left_pages();
        if left == 0 {
            account.hold_up();
        }
        Some(left)
    }

    /// Sets pages of a huge range aside that is to be hinted. False if the quota has no room for it.
    fn reserve(&mut self, process: TargetId, pmd: PmdNo, charge: Charge, pages: u32) -> bool {
        self.retry.is_deferred(process, pmd)
            || self.account_of(process, charge).is_none_or(|account| account.reserve(process, pmd, pages))
    }

    /// Sets the idle pages of a huge range aside that is to be hinted.
    pub(super) fn reserve_idle(&mut self, process: TargetId, pmd: PmdNo) -> bool {
        let pages = self.idle.of(process, pmd).0.count();
        self.reserve(process, pmd, Charge::PageOut, pages)
    }

    /// Whether a huge range may be hinted to be collapsed, and the quota has room for it, which is set aside then.
    pub(super) fn has_room_for_collapse(&mut self, hint: &Hint) -> bool {
        self.may_be_hinted(hint) && self.reserve(hint.process, hint.pmd, Charge::Collapse, PAGES_PER_PMD as u32)
    }

    /// Adds the hint for which room was set aside.
    pub(super) fn add_collapse(&mut self, hint: Hint) {
        if !self.add(hint) && self.queue.contains(hint.process, hint.pmd).is_none() {
            self.release_of(hint.process, hint.pmd, Charge::Collapse);
        }
    }

    /// What of the wanted pages of a process the quotas have room for: the hottest move up first.
    pub(super) fn within_quotas(&mut self, process: TargetId, wanted: &[Wanted]) -> Vec<Wanted> {
        const BOTH: [Charge; 2] = [Charge::Promote, Charge::Demote];
        let mut wanted = wanted.to_vec();
        if BOTH.into_iter().all(|charge| self.account_of(process, charge).is_none()) {
            return wanted;
        }
        wanted.sort_by(|a, b| b.hz.total_cmp(&a.hz));
        for each in &mut wanted {
            if self.resting_moves.contains_key(&(process, each.pmd)) {
                continue;
            }
            if !each.hot.is_empty() && !self.reserve(process, each.pmd, Charge::Promote, each.hot.count()) {
                (each.hot, each.hz) = (Mask::NONE, 0.0);
            }
            if !each.idle.is_empty() && !self.reserve(process, each.pmd, Charge::Demote, each.idle.count()) {
                each.idle = Mask::NONE;
            }
        }
        wanted.retain(|each| !(each.hot | each.idle).is_empty());
        wanted
    }

    /// What of a process is set aside for moves and is not hinted, is not set aside any more.
    pub(super) fn release_unhinted(&mut self, process: TargetId) {
        let State { schemes, quotas, queue, in_hand, .. } = self;
        let is_hinted = |pmd| queue.contains(process, pmd).is_some() || *in_hand == Some((process, pmd));
        for (place, account) in quotas {
            let charge = schemes.get(*place).and_then(|scheme| scheme.action.charge());
            if matches!(charge, Some(Charge::Promote | Charge::Demote)) {
                account.keep(process, is_hinted);
            }
        }
    }

    /// The accounts of all schemes that do this.
    fn accounts_of(&mut self, charge: Charge) -> impl Iterator<Item = &mut Spending> {
        let State { schemes, quotas, .. } = self;
        let is_of = move |place: usize| schemes.get(place).is_some_and(|scheme| scheme.action.charge() == Some(charge));
        quotas.iter_mut().filter(move |(place, _)| is_of(**place)).map(|(_, account)| account)
    }

    /// A huge range is not hinted any more, or waits. Its hint may be of a scheme that is not in force any more.
    pub(super) fn release(&mut self, process: TargetId, pmd: PmdNo) {
        self.quotas.values_mut().for_each(|account| _ = account.release(process, pmd));
    }

    /// The same for one charge. Returns the pages that were set aside.
    pub(super) fn release_of(&mut self, process: TargetId, pmd: PmdNo, charge: Charge) -> u64 {
        self.accounts_of(charge).map(|account| u64::from(account.release(process, pmd))).sum()
    }

    /// No huge range of a process is hinted any more.
    pub(super) fn release_all(&mut self, process: TargetId) {
        self.quotas.values_mut().for_each(|account| account.keep(process, |_| false));
    }

    /// None is hinted to leave any more.
    pub(super) fn release_idle(&mut self, process: TargetId) {
        self.accounts_of(Charge::PageOut).for_each(|account| account.keep(process, |_| false));
    }

    /// Takes in what a handled hint means for the quotas, after what has left and moved. It is spent before it is released, so that it counts at
    /// each moment.
    pub(super) fn quota_handled(&mut self, hint: &Hint, outcome: Outcome) {
        let (process, pmd) = (hint.process, hint.pmd);
        let is_done = matches!(outcome, Outcome::Done { .. });
        if is_done && hint.action == COLLAPSE {
            self.spend(process, pmd, Charge::Collapse, PAGES_PER_PMD as u64);
        } else if is_done && self.dry_run {
            // Nothing leaves or moves: what was set aside counts.
            for charge in [Charge::PageOut, Charge::Promote, Charge::Demote] {
                let aside = self.release_of(process, pmd, charge);
                self.spend(process, pmd, charge, aside);
            }
        }
        self.release(process, pmd);
    }

    /// Pages of a huge range were collapsed, have moved or have left. They are of the account that has set them aside: other schemes may be in
    /// force by now.
    pub(super) fn spend(&mut self, process: TargetId, pmd: PmdNo, charge: Charge, pages: u64) {
        let has_reserved =
            |(place, account): &(&usize, &Spending)| self.is_of(**place, charge) && account.has_reserved(process, pmd);
        let aside = self.quotas.iter().find(has_reserved).map(|(place, _)| *place);
        let place = aside.or_else(|| self.place_of(process, charge));
        if let Some(account) = place.and_then(|place| self.quotas.get_mut(&place)) {
            account.spend(pages);
        }
    }

    pub(super) fn quota_status(&self) -> Vec<QuotaStatus> {
        self.quotas.iter().map(|(place, account)| account.status(place + 1)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collapse::Rules;
    use crate::migrate::{Movable, Moves};
    use crate::page_out::IdlePages;
    use crate::queue::Level;
    use crate::retry::Handled;
    use crate::state::Report;
    use crate::{Budgets, Counters, PmdFacts, TargetWindow};
    use isotherm_heat::Mapping;
    use isotherm_units::{AddrRange, Bytes};

    const PAGE_OUT: &str = "action = \"page-out\"\nprocesses = [\"db\"]\nquota = { size = \"2MiB\" }";
    const RECLAIM: &str = "action = \"reclaim\"\ncgroups = [\"/x\"]\nquota = { size = \"4MiB\" }";
    const COLLAPSES: &str = "action = \"collapse\"\nquota = { size = \"4MiB\" }";
    const S: Ns = 1_000_000_000;
    const DONE: Outcome = Outcome::Done { grown: 0 };

    fn schemes(table: &[&str]) -> Vec<Scheme> {
        table.iter().map(|text| Scheme::new(toml::from_str(text).unwrap()).unwrap()).collect()
    }

    fn process(pid: u32) -> TargetId {
        TargetId { pid, start_ticks: 10 }
    }

    struct Scene {
        state: State,
        movable: Movable,
    }

    impl Scene {
        fn new(table: &[&str]) -> Scene {
            let movable = Movable::default();
            let state = State::new(Rules::default(), Budgets::default()).with_movable(movable.clone());
            Scene { state: state.with_schemes(schemes(table), IdlePages::default()), movable }
        }

        /// A window of a process with ten small huge ranges of which each is hotter than the one before.
        fn window(&mut self, pid: u32, now: Ns) {
            let range = AddrRange::new(PmdNo(0).addr(), PmdNo(10).addr());
            let mapping = Mapping { range, name: String::new(), perms: "rw-p".parse().unwrap() };
            let facts = (0..10_u32).map(|n| PmdFacts {
                pmd: PmdNo(u64::from(n)),
                present: 512,
                measured: 512,
                huge: false,
                benefit_hz: 9000.0 * f64::from(1 << n),
            });
            let window = TargetWindow {
                id: process(pid),
                comm: "db".into(),
                mappings: vec![mapping].into(),
                facts: facts.collect(),
                generations: Vec::new(),
            };
            self.state.note_memory(HostMemory::default(), now);
            self.state.set_cgroup(process(pid), "db", "/app");
            self.state.feed(&window, Bytes(1 << 30), now);
        }

        /// Serves all hints: each is done. Returns processes and huge ranges.
        fn serve(&mut self, now: Ns) -> Vec<(u32, u64)> {
            let mut served = Vec::new();
            while self.state.due(now).is_ok() {
                let Some((hint, tries)) = self.state.take() else { break };
                served.push((hint.process.pid, hint.pmd.0));
                let handled = Handled::Done(DONE);
                let report = Report { handled, counters: Counters::default(), paused_for: None, cgroup_wait: None };
                self.state.settle(hint, tries, report, now);
            }
            served
        }

        /// Pages that are spent by each quota in this window.
        fn spent(&self) -> Vec<u64> {
            self.state.status().quotas.iter().map(|quota| quota.spent_bytes >> 12).collect()
        }
    }

    #[test]
    fn accounts_stay_with_their_schemes_when_the_table_changes() {
        let mut state = Scene::new(&[PAGE_OUT, RECLAIM]).state;
        state.note_memory(HostMemory::default(), 1);
        state.quotas.values_mut().zip([100, 200]).for_each(|(account, pages)| account.spend(pages));
        let mut spent = |table: &[&str]| {
            state.set_schemes(schemes(table));
            state.note_memory(HostMemory::default(), 2);
            state.status().quotas.iter().map(|quota| (quota.scheme, quota.spent_bytes >> 12)).collect::<Vec<_>>()
        };
        assert_eq!(spent(&["action = \"collapse\"", PAGE_OUT, RECLAIM]), [(2, 100), (3, 200)]);
        assert_eq!(spent(&[RECLAIM, PAGE_OUT]), [(1, 200), (2, 100)]);
        let other = PAGE_OUT.replace("2MiB", "3MiB");
        assert_eq!(spent(&[&other, "action = \"collapse\""]), [(1, 0)], "another quota begins anew");
    }

    #[test]
    fn a_quota_of_collapses_is_spent_on_the_hottest_first_and_each_process_has_its_turn() {
        let mut scene = Scene::new(&[COLLAPSES]);
        scene.window(1, S);
        scene.window(2, S);
        assert_eq!(scene.serve(S), [(1, 9), (1, 8)], "two huge ranges a second, and nothing for the other process");
        assert_eq!(scene.spent(), [1024]);
        scene.window(2, S + S / 2);
        assert_eq!(scene.serve(S + S / 2), [], "not in the same second");
        scene.window(2, 2 * S);
        scene.window(1, 2 * S);
        assert_eq!(scene.serve(2 * S), [(2, 9), (2, 8)]);
        // What is hinted and not served yet is set aside, once.
        scene.window(1, 3 * S);
        scene.window(1, 3 * S);
        scene.window(2, 3 * S);
        assert_eq!(scene.serve(3 * S), [(1, 7), (1, 6)]);
        assert_eq!(scene.state.status().quotas[0].used_up, 3);
    }

    #[test]
    fn a_hint_from_outside_takes_no_heed_of_a_quota_and_is_spent() {
        let mut scene = Scene::new(&[COLLAPSES]);
        scene.window(1, S);
        scene.serve(S);
        assert_eq!(scene.state.hint(1, PmdNo(20).range(), Level::new(31), S), Ok(1));
        assert_eq!((scene.serve(S), scene.spent()), (vec![(1, 20)], vec![3 * 512]));
        // The next second has that much less.
        scene.window(1, 2 * S);
        assert_eq!(scene.serve(2 * S), [(1, 7)]);
    }

    #[test]
    fn what_is_not_hinted_any_more_is_not_set_aside() {
        let mut scene = Scene::new(&[COLLAPSES, PAGE_OUT]);
        scene.window(1, S);
        assert_eq!(scene.state.queue.len(), 2);
        scene.state.forget_hints(process(1));
        scene.window(2, S);
        assert_eq!(scene.serve(S), [(2, 9), (2, 8)]);
        // A quota of paging out is another.
        assert_eq!(scene.spent(), [1024, 0]);
    }

    #[test]
    fn pages_that_move_keep_to_the_quota_of_their_direction() {
        let up = "action = \"promote\"\nquota = { size = \"2MiB\" }";
        let down = "action = \"demote\"\nmin_idle = \"1m\"";
        let mut scene = Scene::new(&[down, up]);
        scene.window(1, S);
        let wanted = |pmd, hz| Wanted { pmd: PmdNo(pmd), hot: Mask::ALL, idle: Mask::NONE, hz };
        let idle = Wanted { pmd: PmdNo(3), hot: Mask::NONE, idle: Mask::ALL, hz: 0.0 };
        let found = [wanted(1, 5.0), wanted(2, 9.0), idle];
        scene.state.hint_movable(process(1), &found, 10.0, S);
        assert_eq!(scene.state.queue.len(), 2, "the hottest, and what goes down");
        scene.movable.note(process(1), PmdNo(2), Moves { promote: Mask::ALL, demote: Mask::NONE });
        scene.movable.note(process(1), PmdNo(3), Moves { promote: Mask::NONE, demote: Mask::ALL });
        assert_eq!(scene.serve(S), [(1, 2), (1, 3)]);
        assert_eq!(scene.spent(), [512], "of the one with a quota");
        scene.state.hint_movable(process(1), &found, 10.0, S + S / 2);
        assert_eq!(scene.serve(S + S / 2), []);
        scene.state.note_memory(HostMemory::default(), 2 * S);
        scene.state.hint_movable(process(1), &found, 10.0, 2 * S);
        assert_eq!(scene.serve(2 * S), [(1, 1)]);
        // Nothing has moved.
        assert_eq!(scene.spent(), [0]);
    }

    #[test]
    fn in_a_dry_run_what_would_be_done_is_spent() {
        let mut scene = Scene::new(&[COLLAPSES, "action = \"promote\"\nquota = { size = \"2MiB\" }"]);
        scene.state.describe("s", true, false, crate::plan::HintSource::Heat);
        scene.window(1, S);
        let wanted = Wanted { pmd: PmdNo(30), hot: (0..100).collect(), idle: Mask::NONE, hz: 5.0 };
        scene.state.hint_movable(process(1), &[wanted], 10.0, S);
        assert_eq!(scene.serve(S).len(), 3);
        assert_eq!(scene.spent(), [1024, 100]);
    }
}
