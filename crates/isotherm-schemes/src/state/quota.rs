//! The part of the state that keeps the quotas of schemes.
//!
//! A hint is charged when its turn comes: its pages are set aside, and what was done of them is spent when the worker's result is taken in; for
//! files of a cgroup, when the kernel has taken them. So the queue decides who is first, and what is refused costs nothing. What finds no room waits
//! for the next interval. Pages that leave are set aside when they are hinted already, because before that they are read once more: no more is
//! read than may leave. A hint that has to wait sets nothing aside, or one process that may not swap would hold up all others.
//!
//! Collapses are spent as whole huge ranges. A hint from outside takes no heed of a quota, but is spent like others.

use super::State;
use crate::collapse::COLLAPSE;
use crate::migrate::MIGRATE;
use crate::outcome::Outcome;
use crate::page_out::PAGE_OUT;
use crate::queue::{Hint, Origin};
use crate::quota::{HostMemory, QuotaStatus, Spending};
use crate::scheme::{Charge, Scheme};
use isotherm_heat::{Mask, Ns, TargetId};
use isotherm_units::{PAGES_PER_PMD, PmdNo};
use std::collections::BTreeMap;

/// Intervals begin with windows: until the next one, what waits for an interval that is over comes again after this.
const SOON: Ns = 100_000_000;

/// Accounts by the place of the scheme in the table.
pub(super) type Quotas = BTreeMap<usize, Spending>;

/// The accounts of the schemes that are in the new table, too. Neither cgroups that are assigned to one nor limits of its action make it another: an
/// edit of these must not fill up what was spent.
pub(super) fn carried_over(mut quotas: Quotas, old: &[Scheme], new: &[Scheme]) -> Quotas {
    let mut carried = Quotas::new();
    for (place, scheme) in new.iter().enumerate().filter(|(_, scheme)| scheme.quota.is_some()) {
        let is_same = |at: &usize| old.get(*at).is_some_and(|old| old.shares_account(scheme));
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
            self.reclaims.note_free(free_pct);
        }
        for (place, scheme) in self.schemes.iter().enumerate() {
            let Some(quota) = scheme.quota.filter(|_| scheme.left_out.is_none()) else { continue };
            self.quotas.entry(place).or_insert_with(|| Spending::new(quota, now)).note(host, now);
        }
    }

    /// Whether a scheme has a quota.
    pub fn has_quotas(&self) -> bool {
        self.schemes.iter().any(|scheme| scheme.quota.is_some() && scheme.left_out.is_none())
    }

    /// The place of the scheme that does this to a process. `None` if there is none.
    fn place_of(&self, process: TargetId, charge: Charge) -> Option<usize> {
        self.actions.get(&process)?.by.of(charge)
    }

    /// The account of that scheme, if it has a quota.
    fn account_of(&mut self, process: TargetId, charge: Charge) -> Option<&mut Spending> {
        let place = self.place_of(process, charge)?;
        self.quotas.get_mut(&place)
    }

    /// How many pages of a process may be taken in this interval; without a quota as many as there are.
    pub(super) fn left_of(&mut self, process: TargetId, charge: Charge) -> u64 {
        self.account_of(process, charge).map_or(u64::MAX, |account| account.left_pages())
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

    /// Sets aside what the hint whose turn it is may take. If there is no room for any of it, when to come again.
    pub(super) fn charge(&mut self, hint: &Hint, now: Ns) -> Result<(), Ns> {
        let (process, pmd) = (hint.process, hint.pmd);
        match hint.action {
            _ if hint.origin == Origin::External => Ok(()),
            COLLAPSE => self.set_aside(process, pmd, (Charge::Collapse, Mask::ALL.count()), now),
            PAGE_OUT => {
                let pages = self.idle.of(process, pmd).0.count();
                self.set_aside(process, pmd, (Charge::PageOut, pages), now)
            }
            MIGRATE => self.charge_moves(process, pmd, now),
            _ => Ok(()),
        }
    }

    /// The same for the idle pages of a huge range that is to be hinted. One that is deferred is charged when it comes back.
    pub(super) fn has_room(&mut self, hint: &Hint, now: Ns) -> bool {
        self.retry.is_deferred_for(hint.process, hint.pmd, hint.action) || self.charge(hint, now).is_ok()
    }

    /// Whether there is any room for what a hint asks for. Nothing is set aside.
    pub(super) fn has_quota_left(&self, hint: &Hint) -> bool {
        let charges: &[Charge] = match hint.action {
            COLLAPSE => &[Charge::Collapse],
            PAGE_OUT => &[Charge::PageOut],
            MIGRATE => match self.movable.wanted(hint.process, hint.pmd) {
                Some(wanted) if wanted.idle.is_empty() => &[Charge::Promote],
                Some(wanted) if wanted.hot.is_empty() => &[Charge::Demote],
                _ => &[Charge::Promote, Charge::Demote],
            },
            _ => &[],
        };
        let mut places = charges.iter().filter_map(|charge| self.place_of(hint.process, *charge)).peekable();
        let has_left = |place| self.quotas.get(&place).is_none_or(|account| account.left_pages() > 0);
        hint.origin == Origin::External || places.peek().is_none() || places.any(has_left)
    }

    /// Of a huge range of which pages should move both ways, those for which there is room do.
    fn charge_moves(&mut self, process: TargetId, pmd: PmdNo, now: Ns) -> Result<(), Ns> {
        let Some(wanted) = self.movable.wanted(process, pmd) else { return Ok(()) };
        let mut left = wanted;
        let mut first_end = None;
        for (charge, pages) in [(Charge::Promote, &mut left.hot), (Charge::Demote, &mut left.idle)] {
            if let Err(end) = self.set_aside(process, pmd, (charge, pages.count()), now) {
                *pages = Mask::NONE;
                first_end = Some(first_end.map_or(end, |first: Ns| first.min(end)));
            }
        }
        match first_end {
            Some(end) if (left.hot | left.idle).is_empty() => Err(end),
            Some(_) => {
                self.movable.restrict(process, left);
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn set_aside(&mut self, process: TargetId, pmd: PmdNo, (charge, pages): (Charge, u32), now: Ns) -> Result<(), Ns> {
        if pages == 0 {
            return Ok(());
        }
        let Some(place) = self.place_of(process, charge) else {
            // After the schemes have changed it is not known until the next window which of them the process is of.
            let may_have_quota = !self.actions.contains_key(&process) && self.has_quota(charge);
            return if may_have_quota { Err(now + SOON) } else { Ok(()) };
        };
        let Some(quota) = self.schemes.get(place).and_then(|scheme| scheme.quota) else { return Ok(()) };
        // The settings may have been read again since the last window.
        let account = self.quotas.entry(place).or_insert_with(|| Spending::new(quota, now));
        if account.reserve(process, pmd, pages) { Ok(()) } else { Err(account.ends().max(now + SOON)) }
    }

    /// Whether any scheme that does this has a quota.
    fn has_quota(&self, charge: Charge) -> bool {
        self.schemes.iter().any(|scheme| scheme.quota.is_some() && scheme.action.charge() == Some(charge))
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
        } else if is_done && self.dry_run && hint.action == PAGE_OUT {
            // Nothing leaves: what was set aside counts. What would have moved was noted as moved.
            let aside = self.release_of(process, pmd, Charge::PageOut);
            self.spend(process, pmd, Charge::PageOut, aside);
        }
        self.release(process, pmd);
    }

    /// Pages of a huge range were collapsed, have moved or have left. They are of the account that has set them aside: other schemes may be in
    /// force by now.
    pub(super) fn spend(&mut self, process: TargetId, pmd: PmdNo, charge: Charge, pages: u64) {
        let aside = self.accounts_of(charge).find(|account| account.has_reserved(process, pmd));
        if let Some(account) = aside {
            account.spend(pages);
        } else if let Some(account) = self.account_of(process, charge) {
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
    use crate::budgets::Wait;
    use crate::collapse::Rules;
    use crate::migrate::{Movable, Moves, Wanted};
    use crate::named::Named;
    use crate::outcome::Refusal;
    use crate::page_out::IdlePages;
    use crate::queue::Level;
    use crate::retry::Handled;
    use crate::state::Report;
    use crate::{Budgets, Counters, PmdFacts, TargetWindow};
    use isotherm_heat::Mapping;
    use isotherm_units::{AddrRange, Bytes};
    use std::collections::BTreeSet;

    const PAGE_OUT: &str = "action = \"page-out\"\nprocesses = [\"db\"]\nquota = { size = \"2MiB\" }";
    const RECLAIM: &str = "action = \"reclaim\"\ncgroups = [\"/x\"]\nquota = { size = \"4MiB\" }";
    const COLLAPSES: &str = "action = \"collapse\"\nquota = { size = \"4MiB\" }";
    const COLLAPSES_BY_THE_HOUR: &str = "action = \"collapse\"\nquota = { size = \"4MiB\", every = \"1h\" }";
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
                let Some((hint, tries)) = self.state.take(now) else { continue };
                served.push((hint.process.pid, hint.pmd.0));
                self.settle(hint, tries, Handled::Done(DONE), now);
            }
            served
        }

        fn settle(&mut self, hint: Hint, tries: u8, handled: Handled, now: Ns) {
            let report = Report { handled, counters: Counters::default(), paused_for: None, cgroup_wait: None };
            self.state.settle(hint, tries, report, now);
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
        let limits = format!("{PAGE_OUT}\nmin_idle = \"9m\"");
        assert_eq!(spent(&[&limits, RECLAIM]), [(1, 100), (2, 200)], "what was spent stays so when a limit is edited");
        let other = limits.replace("2MiB", "3MiB");
        assert_eq!(spent(&[&other, "action = \"collapse\""]), [(1, 0)], "another quota begins anew");
    }

    #[test]
    fn a_quota_of_collapses_is_spent_on_the_hottest_first_of_all_processes() {
        let mut scene = Scene::new(&[COLLAPSES]);
        scene.window(1, S);
        scene.window(2, S);
        assert_eq!(scene.serve(S), [(1, 9), (2, 9)], "two huge ranges a second");
        assert_eq!(scene.spent(), [1024]);
        scene.window(2, S + S / 2);
        assert_eq!(scene.serve(S + S / 2), [], "not in the same second");
        assert_eq!(scene.state.status().waiting, Some(Named::Known(Wait::Quota)));
        scene.window(1, 2 * S);
        assert_eq!(scene.serve(2 * S), [(1, 8), (2, 8)]);
        assert_eq!(scene.serve(2 * S + S / 2), []);
        scene.window(2, 3 * S);
        assert_eq!(scene.serve(3 * S), [(1, 7), (2, 7)]);
        assert_eq!(scene.state.status().quotas[0].used_up, 3);
    }

    #[test]
    fn what_had_to_wait_for_something_else_keeps_to_the_quota_too() {
        let mut scene = Scene::new(&[COLLAPSES]);
        for second in 1..=10 {
            scene.window(1, second * S);
            scene.state.due(second * S).unwrap_or_default();
            while let Some((hint, tries)) = scene.state.take(second * S) {
                scene.settle(hint, tries, Handled::Later((second + 1) * S, Wait::Fork), second * S);
            }
        }
        assert_eq!(scene.spent(), [0]);
        let mut served = Vec::new();
        for second in 11..=15 {
            scene.window(1, second * S);
            served.push(scene.serve(second * S));
        }
        // The highest level begins with the fourth.
        let level = |served: &Vec<(u32, u64)>| served.iter().map(|(_, pmd)| (*pmd).min(3)).collect::<Vec<_>>();
        assert_eq!(served.iter().map(level).collect::<Vec<_>>(), [[3, 3], [3, 3], [3, 3], [3, 2], [1, 0]]);
        assert_eq!(served.concat().into_iter().collect::<BTreeSet<_>>().len(), 10, "each once");
    }

    #[test]
    fn what_waits_for_a_quota_that_is_gone_waits_no_more_if_a_scheme_still_asks_for_it() {
        for (schemes_then, expected) in [("action = \"collapse\"", 8), (PAGE_OUT, 0)] {
            let mut scene = Scene::new(&[COLLAPSES_BY_THE_HOUR]);
            scene.window(1, S);
            assert_eq!(scene.serve(S), [(1, 9), (1, 8)]);
            scene.state.set_schemes(schemes(&[schemes_then]));
            assert_eq!(scene.serve(S), [], "not before it is known which scheme is for it");
            scene.window(1, 2 * S);
            assert_eq!(scene.serve(2 * S).len(), expected, "{schemes_then}");
        }
    }

    #[test]
    fn a_quota_that_is_new_holds_for_what_is_queued() {
        let mut scene = Scene::new(&["action = \"collapse\""]);
        scene.window(1, S);
        scene.state.set_schemes(schemes(&[COLLAPSES]));
        scene.state.set_cgroup(process(1), "db", "/app");
        assert_eq!(scene.serve(S), [(1, 9), (1, 8)]);
    }

    #[test]
    fn between_a_change_of_the_schemes_and_the_next_window_nothing_is_done_beside_the_quota() {
        let mut scene = Scene::new(&[COLLAPSES]);
        scene.window(1, S);
        scene.state.set_schemes(schemes(&[COLLAPSES]));
        assert_eq!(scene.serve(S), [], "all ten otherwise, and none of them counted");
        scene.window(1, 2 * S);
        assert_eq!((scene.serve(2 * S), scene.spent()), (vec![(1, 9), (1, 8)], vec![1024]));
    }

    #[test]
    fn a_hint_from_outside_takes_no_heed_of_a_quota_and_is_spent_by_its_own_scheme() {
        let mut scene = Scene::new(&[COLLAPSES]);
        scene.window(1, S);
        scene.serve(S);
        assert_eq!(scene.state.hint(1, PmdNo(20).range(), Level::new(31), S), Ok(1));
        assert_eq!((scene.serve(S), scene.spent()), (vec![(1, 20)], vec![3 * 512]));
        // The next second has that much less.
        scene.window(1, 2 * S);
        assert_eq!(scene.serve(2 * S), [(1, 7)]);
        // Nor is it spent by the scheme of another process.
        let mut scene = Scene::new(&[&format!("{COLLAPSES}\nprocesses = [\"web\"]"), PAGE_OUT]);
        scene.window(1, S);
        assert_eq!(scene.state.hint(1, PmdNo(20).range(), Level::new(31), S), Ok(1));
        assert_eq!((scene.serve(S), scene.spent()), (vec![(1, 20)], vec![0, 0]));
    }

    #[test]
    fn pages_that_move_keep_to_the_quota_of_their_direction() {
        let up = "action = \"promote\"\nquota = { size = \"2MiB\", every = \"5s\" }";
        let down = "action = \"demote\"\nmin_idle = \"1m\"";
        let mut scene = Scene::new(&[down, up]);
        scene.window(1, S);
        scene.state.forget_hints(process(1));
        let wanted = |pmd, hz| Wanted { pmd: PmdNo(pmd), hot: Mask::ALL, idle: Mask::NONE, hz };
        let idle = Wanted { pmd: PmdNo(3), hot: Mask::NONE, idle: Mask::ALL, hz: 0.0 };
        // The hottest is in fast memory already.
        let found = [wanted(1, 5.0), wanted(2, 900.0), wanted(4, 90.0), wanted(5, 5000.0), idle];
        let up_of = |pmd: u64| (pmd, Moves { promote: Mask::ALL, demote: Mask::NONE });
        let mut seen = Vec::new();
        let mut spent = Vec::new();
        for second in [1, 6, 11, 16] {
            let now = second * S;
            scene.state.note_memory(HostMemory::default(), now);
            scene.state.hint_movable(process(1), &found, 10.0, now);
            while scene.state.due(now).is_ok() {
                let Some((hint, tries)) = scene.state.take(now) else { break };
                let outcome = match hint.pmd.0 {
                    // Also what has moved before.
                    pmd if pmd == 5 || seen.contains(&pmd) => Outcome::Refused(Refusal::InPlace),
                    3 => DONE,
                    pmd => {
                        seen.push(pmd);
                        let (pmd, moves) = up_of(pmd);
                        scene.movable.note(process(1), PmdNo(pmd), moves);
                        DONE
                    }
                };
                scene.settle(hint, tries, Handled::Done(outcome), now);
            }
            spent.push(scene.spent());
        }
        assert_eq!(seen, [2, 4, 1], "the hottest first, and what is in place holds up nothing");
        assert_eq!(spent, [[512], [512], [512], [0]], "of the one with a quota");
    }

    #[test]
    fn what_waits_for_the_quota_of_one_direction_moves_in_the_other() {
        let down = "action = \"demote\"\nmin_idle = \"1m\"\nquota = { size = \"2MiB\", every = \"1h\" }";
        let mut scene = Scene::new(&["action = \"promote\"", down]);
        scene.window(1, S);
        let idle = |pmd| Wanted { pmd: PmdNo(pmd), hot: Mask::NONE, idle: Mask::ALL, hz: 0.0 };
        let hot = |pmd| Wanted { pmd: PmdNo(pmd), hot: Mask::ALL, idle: Mask::NONE, hz: 900.0 };
        scene.state.hint_movable(process(1), &[idle(1), idle(2), idle(3)], 10.0, S);
        let (hint, tries) = scene.state.take(S).unwrap();
        scene.movable.note(process(1), hint.pmd, Moves { promote: Mask::NONE, demote: Mask::ALL });
        scene.settle(hint, tries, Handled::Done(DONE), S);
        assert_eq!((scene.serve(S), scene.spent()), (vec![], vec![512]));
        scene.state.hint_movable(process(1), &[hot(3), idle(2)], 10.0, 6 * S);
        assert_eq!(scene.serve(6 * S), [(1, 3)], "not after an hour only, nor behind what is idle");
        assert!(scene.state.retry.is_deferred_for(process(1), PmdNo(2), MIGRATE));
    }

    #[test]
    fn what_would_wait_for_the_quota_of_its_direction_takes_the_place_of_nothing() {
        let quota = |size| format!("quota = {{ size = \"{size}\", every = \"1h\" }}");
        let up = format!("action = \"promote\"\n{}", quota("2MiB"));
        let down = format!("action = \"demote\"\nmin_idle = \"1m\"\n{}", quota("1GiB"));
        let mut scene = Scene::new(&[&up, &down, COLLAPSES_BY_THE_HOUR]);
        scene.window(1, S);
        assert_eq!(scene.serve(S), [(1, 9), (1, 8)], "seven and below wait");
        let hot = |pmd| Wanted { pmd: PmdNo(pmd), hot: Mask::ALL, idle: Mask::NONE, hz: 900.0 };
        scene.state.hint_movable(process(1), &[hot(20)], 10.0, S);
        let (hint, tries) = scene.state.take(S).unwrap();
        scene.movable.note(process(1), hint.pmd, Moves { promote: Mask::ALL, demote: Mask::NONE });
        scene.settle(hint, tries, Handled::Done(DONE), S);
        scene.state.hint_movable(process(1), &[hot(7)], 10.0, 6 * S);
        assert!(scene.state.retry.is_deferred_for(process(1), PmdNo(7), COLLAPSE), "nothing more goes up");
    }

    #[test]
    fn a_hint_from_outside_for_what_waits_for_a_quota_is_served() {
        let mut scene = Scene::new(&[COLLAPSES_BY_THE_HOUR]);
        scene.window(1, S);
        assert_eq!(scene.serve(S), [(1, 9), (1, 8)]);
        assert_eq!(scene.state.hint(1, PmdNo(7).range(), Level::new(31), S), Ok(1));
        assert_eq!(scene.serve(S), [(1, 7)]);
    }

    #[test]
    fn what_another_program_has_asked_for_gives_way_to_no_other_action() {
        let mut scene = Scene::new(&["action = \"promote\""]);
        scene.window(1, S);
        scene.state.forget_hints(process(1));
        assert_eq!(scene.state.hint(1, PmdNo(7).range(), Level::new(1), S), Ok(1));
        let hot = Wanted { pmd: PmdNo(7), hot: Mask::ALL, idle: Mask::NONE, hz: 900.0 };
        scene.state.hint_movable(process(1), &[hot], 10.0, S);
        let (hint, _) = scene.state.take(S).unwrap();
        assert_eq!((hint.action, hint.origin), (COLLAPSE, Origin::External));
    }

    #[test]
    fn nothing_is_done_by_the_heat_of_before_once_watching_begins_anew() {
        let mut scene = Scene::new(&["action = \"collapse\"", "action = \"promote\""]);
        scene.window(1, S);
        let hot = Wanted { pmd: PmdNo(30), hot: Mask::ALL, idle: Mask::NONE, hz: 900.0 };
        scene.state.hint_movable(process(1), &[hot], 10.0, S);
        scene.state.begin();
        let mut left = Vec::new();
        while let Some((hint, tries)) = scene.state.take(S) {
            left.push((hint.action, scene.movable.wanted(process(1), hint.pmd)));
            scene.settle(hint, tries, Handled::Done(DONE), S);
        }
        assert!(left.iter().all(|(action, wanted)| *action == MIGRATE && wanted.is_none()), "{left:?}");
        scene.window(1, 2 * S);
        assert!(!scene.serve(2 * S).is_empty());
    }

    #[test]
    fn of_a_huge_range_of_both_kinds_what_has_room_moves() {
        let table = ["action = \"promote\"\nquota = { size = \"64KiB\" }", "action = \"demote\"\nmin_idle = \"1m\""];
        let mut scene = Scene::new(&table);
        scene.window(1, S);
        scene.state.forget_hints(process(1));
        let both = |pmd| Wanted { pmd: PmdNo(pmd), hot: (0..16).collect(), idle: (100..200).collect(), hz: 5.0 };
        scene.state.hint_movable(process(1), &[both(1), both(2)], 10.0, S);
        for hot in [both(1).hot, Mask::NONE] {
            let (hint, tries) = scene.state.take(S).unwrap();
            let left = scene.movable.wanted(process(1), hint.pmd).unwrap();
            assert_eq!((left.hot, left.idle), (hot, both(1).idle));
            let moves = Moves { promote: left.hot, demote: left.idle };
            scene.movable.note(process(1), hint.pmd, moves);
            scene.settle(hint, tries, Handled::Done(DONE), S);
        }
        assert_eq!(scene.spent(), [16]);
    }

    #[test]
    fn in_a_dry_run_what_would_be_done_is_spent() {
        let mut scene = Scene::new(&[COLLAPSES, "action = \"promote\"\nquota = { size = \"2MiB\" }"]);
        scene.state.describe("s", true, false, crate::plan::HintSource::Heat);
        scene.window(1, S);
        let wanted = Wanted { pmd: PmdNo(30), hot: (0..100).collect(), idle: Mask::NONE, hz: 5.0 };
        scene.state.hint_movable(process(1), &[wanted], 10.0, S);
        let mut served = 0;
        while let Some((hint, tries)) = scene.state.take(S) {
            if hint.action == MIGRATE {
                scene.movable.note(process(1), hint.pmd, Moves { promote: wanted.hot, demote: Mask::NONE });
            }
            scene.settle(hint, tries, Handled::Done(DONE), S);
            served += 1;
        }
        assert_eq!((served, scene.spent()), (3, vec![1024, 100]));
    }
}
