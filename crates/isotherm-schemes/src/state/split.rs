//! The part of the state that splits huge pages: which processes, what is asked for, and what becomes a hint.
//!
//! The caller watches; this decides. In each window, for each process: [`State::split_wants`] says what to find out, [`State::probe`] and
//! [`State::judge_split`] take that in. All of it belongs to one [`Splitter`] for each process.

use super::State;
use crate::collapse::COLLAPSE;
use crate::outcome::{Outcome, Refusal};
use crate::page_out::keeper::Stays;
use crate::queue::Hint;
use crate::split::rejoin::{self, REJOIN};
use crate::split::splitter::{Splitter, Wants};
use crate::split::{self, SPLIT, Splits};
use isotherm_heat::{Ns, Target, TargetId};
use isotherm_units::{Addr, PmdNo};
use std::collections::BTreeMap;

impl State {
    /// The same with what the worker has split.
    pub fn with_splits(self, splits: Splits) -> State {
        State { splits, ..self }
    }

    /// What to find out about a process of which huge pages are split, given why none may be, if so. In a dry run nothing is split, so probes
    /// would show nothing.
    pub fn split_wants(&mut self, process: TargetId, stays: Option<Stays>, now: Ns) -> Wants {
        self.take_in_split();
        let (false, Some(actions)) = (self.dry_run, self.actions.get(&process)) else { return Wants::Nothing };
        let limits = actions.splits;
        let target = self.targets.get_mut(&process).filter(|target| target.refused.is_none());
        let Some(target) = target else { return Wants::Nothing };
        let wants = match (limits, &mut target.splitter) {
            (Some(limits), splitter) => {
                let splitter = splitter.get_or_insert_with(|| Splitter::new(limits, now));
                // The settings may have been read again.
                splitter.set_limits(limits);
                splitter.wants(stays, now)
            }
            // No scheme splits it any more. It is forgotten when its probes are huge again.
            (None, Some(splitter)) => {
                splitter.end(now);
                Wants::Nothing
            }
            (None, None) => return Wants::Nothing,
        };
        let again = target.splitter.as_ref().map(Splitter::again).unwrap_or_default();
        if limits.is_none() && again.is_empty() {
            self.forget_split(process);
        }
        // They may have waited behind something else.
        again.into_iter().for_each(|pmd| _ = self.add(rejoin::hint(process, pmd, now)));
        wants
    }

    /// Forgets what was split of a process, but for what was given back.
    pub(super) fn forget_split(&mut self, process: TargetId) {
        let Some(splitter) = self.targets.get_mut(&process).and_then(|target| target.splitter.take()) else { return };
        self.of_ended.returned_bytes += splitter.status().returned_bytes;
    }

    /// Hints probes, of the huge pages of each mapping.
    pub fn probe(&mut self, process: TargetId, huge: BTreeMap<Addr, Vec<PmdNo>>, now: Ns) {
        let probes = self.splitter(process).map(|splitter| splitter.begin(huge, now)).unwrap_or_default();
        self.hint_split(process, &probes, now);
    }

    /// Takes in what is known of the pages at `known_at`, right after they were read, and hints what follows. `given_back` has the pages of
    /// each probe that hold nothing but zeros.
    pub fn judge_split(&mut self, process: TargetId, known: (&Target, Ns), given_back: &BTreeMap<PmdNo, u16>, now: Ns) {
        let of = |pmd: PmdNo| given_back.get(&pmd).copied().unwrap_or(0);
        let Some(judged) = self.splitter(process).map(|splitter| splitter.judge(known, of, now)) else { return };
        judged.collapse.iter().for_each(|pmd| _ = self.add(rejoin::hint(process, *pmd, now)));
        self.hint_split(process, &judged.split, now);
    }

    fn splitter(&mut self, process: TargetId) -> Option<&mut Splitter> {
        self.targets.get_mut(&process)?.splitter.as_mut()
    }

    fn splitter_of(&self, process: TargetId) -> Option<&Splitter> {
        self.targets.get(&process)?.splitter.as_ref()
    }

    fn hint_split(&mut self, process: TargetId, pmds: &[PmdNo], now: Ns) {
        for pmd in pmds {
            let hint = split::hint(process, *pmd, now);
            if !self.add(hint) {
                // Something else is about to be done to it.
                self.split_handled(&hint, Outcome::Refused(Refusal::Busy), now);
            }
        }
    }

    /// Takes in what the worker has split.
    fn take_in_split(&mut self) {
        for (process, pmd, pages) in self.splits.take() {
            if let Some(splitter) = self.splitter(process) {
                splitter.gave_back(pmd, pages);
            }
        }
    }

    /// Takes in what a handled hint means for splitting.
    pub(super) fn split_handled(&mut self, hint: &Hint, outcome: Outcome, now: Ns) {
        let Some(splitter) = self.splitter(hint.process) else { return };
        match (hint.action, outcome) {
            (SPLIT, outcome) => splitter.split_handled(hint.pmd, outcome, now),
            (REJOIN, outcome) => splitter.again_handled(hint.pmd, outcome),
            (COLLAPSE, Outcome::Done { .. }) => splitter.collapsed(hint.pmd, now),
            _ => {}
        }
    }

    /// Whether a round still asks for a split.
    pub(super) fn asks_to_split(&self, hint: &Hint) -> bool {
        self.splitter_of(hint.process).is_some_and(|splitter| splitter.asks(hint.pmd))
    }

    /// Whether a huge range is a probe that is watched. What left of it would be missing when it is judged.
    pub(super) fn is_probe(&self, process: TargetId, pmd: PmdNo) -> bool {
        self.splitter_of(process).is_some_and(|splitter| splitter.is_watched(pmd))
    }

    /// Whether a huge range may be collapsed, as far as splitting goes: not if it was split a short time ago.
    pub(super) fn is_kept_small(&self, process: TargetId, pmd: PmdNo, now: Ns) -> bool {
        self.splitter_of(process).is_some_and(|splitter| !splitter.may_collapse(pmd, now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collapse::Rules;
    use crate::page_out::IdlePages;
    use crate::retry::Handled;
    use crate::scheme::Scheme;
    use crate::state::Report;
    use crate::{Budgets, Counters, PmdFacts, TargetWindow};
    use isotherm_heat::{Mapping, Mask, PmdBits, Watch};
    use isotherm_units::{AddrRange, Bytes};

    const S: Ns = 1_000_000_000;
    const A: TargetId = TargetId { pid: 1, start_ticks: 10 };

    fn scheme(text: &str) -> Scheme {
        Scheme::new(toml::from_str(text).unwrap()).unwrap()
    }

    /// A window in which huge range 3 is small, and is hot or not.
    fn window(state: &mut State, hot: bool, now: Ns) {
        let range = AddrRange::new(PmdNo(0).addr(), PmdNo(100).addr());
        let mappings = vec![Mapping { range, name: String::new(), perms: "rw-p".parse().unwrap() }];
        let facts = vec![PmdFacts {
            pmd: PmdNo(3),
            present: 512,
            measured: 512,
            huge: false,
            benefit_hz: if hot { 9000.0 } else { 0.0 },
        }];
        let window =
            TargetWindow { id: A, comm: "db".into(), mappings: mappings.into(), facts, generations: Vec::new() };
        state.feed(&window, Bytes(1 << 30), now);
    }

    /// Serves all hints: they are done. Returns actions and huge ranges.
    fn serve(state: &mut State, splits: &Splits, now: Ns) -> Vec<(u8, u64)> {
        let mut served = Vec::new();
        while state.due(now).is_ok() {
            let Some((hint, tries)) = state.take(now) else { break };
            if hint.action == SPLIT {
                splits.note(A, hint.pmd, 7);
            }
            served.push((hint.action.0, hint.pmd.0));
            let handled = Handled::Done(Outcome::Done { grown: 0 });
            let report = Report { handled, counters: Counters::default(), paused_for: None, cgroup_wait: None };
            state.settle(hint, tries, report, now);
        }
        served
    }

    /// A process of 16 huge pages of which this many pages are in use, after probes were split and watched.
    fn probed(used: usize) -> (State, Splits, Ns, Target) {
        let splits = Splits::default();
        let schemes = ["action = \"split\"\nmin_idle = \"10s\"", "action = \"collapse\""].map(scheme);
        let state = State::new(Rules::default(), Budgets::default()).with_splits(splits.clone());
        let mut state = state.with_schemes(schemes.to_vec(), IdlePages::default());
        window(&mut state, false, S);
        assert_eq!(state.split_wants(A, None, S), Wants::Nothing);
        assert_eq!(state.split_wants(A, None, 11 * S), Wants::HugePages);
        state.probe(A, [(Addr(0), (0..16).map(PmdNo).collect())].into(), 11 * S);
        let served = serve(&mut state, &splits, 11 * S);
        assert_eq!(served.len(), 4, "{served:?}");
        assert!(matches!(state.split_wants(A, None, 11 * S), Wants::Read(_)));
        let mut pages = Target::new(0, Watch { max_slowdown_pct: 1000.0, scan_period_ns: S }, 1);
        let probes: Vec<u64> = served.iter().map(|(_, pmd)| *pmd).collect();
        for second in 11..=31 {
            for pmd in (0..16).map(PmdNo) {
                // Of each probe, seven pages are given back.
                let present: Mask = (0..505).collect();
                let young = (0..used).collect::<Mask>() & present;
                let small = PmdBits::Pages { young, present };
                pages.read(
                    second * S,
                    pmd,
                    if probes.contains(&pmd.0) { small } else { PmdBits::Huge { young: true } },
                );
                pages.cleared(second * S, pmd, Mask::NONE);
            }
        }
        (state, splits, 31 * S, pages)
    }

    #[test]
    fn probes_of_what_is_in_use_are_collapsed_again() {
        let (mut state, splits, now, pages) = probed(500);
        assert!(matches!(state.split_wants(A, None, now), Wants::Judgement { .. }));
        state.judge_split(A, (&pages, now), &BTreeMap::new(), now);
        let again = serve(&mut state, &splits, now);
        assert!(again.len() == 4 && again.iter().all(|(action, _)| *action == REJOIN.0), "{again:?}");
        let status = state.status().targets[0].split.clone().unwrap();
        assert_eq!((status.probes, status.collapsed_again, status.split), (4, 4, 0));
        assert_eq!(
            (state.split_wants(A, None, now + S), serve(&mut state, &splits, now + S)),
            (Wants::Nothing, vec![])
        );
    }

    #[test]
    fn what_is_split_is_not_collapsed_for_ten_minutes() {
        let (mut state, splits, now, pages) = probed(20);
        let probe = (0..16).find(|pmd| state.is_probe(A, PmdNo(*pmd))).unwrap();
        assert!(state.is_kept_small(A, PmdNo(probe), now + 60 * S), "a probe is not collapsed, however hot it is");
        assert!(matches!(state.split_wants(A, None, now), Wants::Judgement { .. }));
        state.judge_split(A, (&pages, now), &[(PmdNo(probe), 100)].into(), now);
        let others = serve(&mut state, &splits, now);
        assert!(others.len() == 12 && others.iter().all(|(action, _)| *action == SPLIT.0), "{others:?}");
        assert_eq!(state.split_wants(A, None, now), Wants::Nothing);
        let status = state.status();
        let split = status.targets[0].split.clone().unwrap();
        // Seven pages with each split, and no more of a probe than were given back with it.
        let returned = (12 * 7 + 7) << 12;
        assert_eq!((split.split, split.returned_bytes, status.totals.returned_bytes), (16, returned, returned));
        window(&mut state, true, now + 300 * S);
        assert_eq!(serve(&mut state, &splits, now + 300 * S), []);
        window(&mut state, true, now + 800 * S);
        assert_eq!(serve(&mut state, &splits, now + 800 * S), [(COLLAPSE.0, 3)]);
    }

    #[test]
    fn hints_of_a_round_that_has_ended_are_not_served() {
        let (mut state, splits, now, pages) = probed(20);
        assert!(matches!(state.split_wants(A, None, now), Wants::Judgement { .. }));
        state.judge_split(A, (&pages, now), &BTreeMap::new(), now);
        assert_eq!(state.split_wants(A, Some(Stays::ClearedByOthers), now), Wants::Nothing);
        assert_eq!(serve(&mut state, &splits, now), [], "what looked unused may not have been");
    }

    #[test]
    fn without_the_scheme_probes_are_collapsed_and_nothing_is_reported() {
        let (mut state, splits, now, _) = probed(20);
        state.set_schemes(vec![Scheme::collapse_all()]);
        assert_eq!(state.split_wants(A, None, now), Wants::Nothing);
        assert!(state.status().targets[0].split.is_some(), "the schemes are in force with the next window");
        window(&mut state, false, now);
        assert_eq!(state.split_wants(A, None, now), Wants::Nothing);
        assert_eq!(serve(&mut state, &splits, now).len(), 4);
        assert_eq!(state.split_wants(A, None, now), Wants::Nothing);
        assert!(state.status().targets[0].split.is_none());
    }
}
