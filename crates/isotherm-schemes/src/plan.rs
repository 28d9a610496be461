//! From facts to hints: which huge ranges of a process are worth acting on, and in which order. Pure; [`crate::worker`]
//! performs the actions.
//!
//! A planner reads one type, [`TargetWindow`], whatever its source, and knows no action. A [`Planner`], which only
//! collapsing has so far, decides what a huge range is worth and what makes it unfit. Everything that facts alone can decide is decided here, so
//! that a dry run reports it too. What is only known at the moment of the try (a fork, a budget, a refusal by the
//! kernel) is up to the worker.

use crate::facts::{PmdFacts, TargetWindow};
use crate::outcome::Refusal;
use crate::queue::{ActionId, Hint, Level, Origin};
use isotherm_heat::{Mapping, Ns};
use isotherm_units::PmdNo;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The source of hints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HintSource {
    /// The heat map.
    #[default]
    Heat,
    /// The MGLRU generations.
    Mglru,
    /// Both: the higher level of a huge range counts.
    Both,
}

/// Hints of one process, the best first, and why the other huge ranges got none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Planned {
    /// In the order in which to queue them.
    pub hints: Vec<Hint>,
    /// Huge ranges without a hint, by reason.
    pub left_out: BTreeMap<Refusal, u64>,
}

impl Planned {
    pub(crate) fn leave_out(&mut self, refusal: Refusal) {
        *self.left_out.entry(refusal).or_default() += 1;
    }
}

/// The first hints wait until at most this part of the huge ranges (one in this many) is unchecked, or for this long.
const MAX_UNCHECKED_PART: usize = 20;
const MAX_START_WAIT: Ns = 30_000_000_000;

/// Whether enough is known to begin. The first access checks of a large target take seconds. Starting with the huge ranges
/// that are checked first would collapse twice as many blocks until most of the heat is covered.
pub fn is_ready(unchecked: usize, pmds: usize, watched_ns: Ns) -> bool {
    unchecked * MAX_UNCHECKED_PART <= pmds || watched_ns >= MAX_START_WAIT
}

/// How an action judges facts.
pub trait Planner {
    /// The action that hints are for.
    fn action(&self) -> ActionId;
    /// Why a huge range cannot be acted on, however hot it is.
    fn unfit(&self, mappings: &[Mapping], known: &PmdFacts) -> Option<Refusal>;
    /// What acting on a huge range would be worth, or why it is not worth it.
    fn worth(&self, known: &PmdFacts) -> Result<Worth, Refusal>;
}

/// What acting on a huge range is worth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Worth {
    /// The level of its hint.
    pub level: Level,
    /// Huge ranges with a higher value come first, also within a level.
    pub order: f64,
}

/// The plan for a process from the given source of hints: the huge ranges that are worth most come first. O(n log n).
pub fn plan(source: HintSource, planner: &impl Planner, window: &TargetWindow<'_>, now: Ns) -> Planned {
    match source {
        HintSource::Heat => by_heat(planner, window, now),
        HintSource::Mglru => by_generation(planner, window, now),
        HintSource::Both => by_either(planner, window, now),
    }
}

/// Hints from the heat map.
pub fn by_heat(planner: &impl Planner, window: &TargetWindow<'_>, now: Ns) -> Planned {
    by_worth(planner, window, window.facts.iter().map(|f| (Origin::Heat, *f)), now)
}

/// Hints from the MGLRU generations: huge ranges with most pages in the youngest generation count as the hottest.
pub fn by_generation(planner: &impl Planner, window: &TargetWindow<'_>, now: Ns) -> Planned {
    by_worth(planner, window, window.generations.iter().map(|f| (Origin::Mglru, *f)), now)
}

/// Hints from both: the higher benefit of a huge range counts. Both are lower bounds in the same unit.
pub fn by_either(planner: &impl Planner, window: &TargetWindow<'_>, now: Ns) -> Planned {
    let mut hottest: BTreeMap<PmdNo, (Origin, PmdFacts)> =
        window.facts.iter().map(|f| (f.pmd, (Origin::Heat, *f))).collect();
    for facts in &window.generations {
        let known = hottest.entry(facts.pmd).or_insert((Origin::Mglru, *facts));
        if facts.benefit_hz > known.1.benefit_hz {
            *known = (Origin::Mglru, *facts);
        }
    }
    by_worth(planner, window, hottest.into_values(), now)
}

fn by_worth(
    planner: &impl Planner,
    window: &TargetWindow<'_>,
    facts: impl Iterator<Item = (Origin, PmdFacts)>,
    now: Ns,
) -> Planned {
    let mut planned = Planned::default();
    let mut worth: Vec<(Worth, PmdNo, Origin)> = Vec::new();
    for (origin, known) in facts {
        let unfit = planner.unfit(&window.mappings, &known);
        match unfit.map_or_else(|| planner.worth(&known), Err) {
            Ok(found) => worth.push((found, known.pmd, origin)),
            Err(refusal) => planned.leave_out(refusal),
        }
    }
    // Sort equal ones by address, so that the same facts always give the same plan.
    worth.sort_by(|a, b| b.0.order.total_cmp(&a.0.order).then(a.1.cmp(&b.1)));
    let (process, action) = (window.id, planner.action());
    let hint = |(worth, pmd, origin): (Worth, PmdNo, Origin)| Hint {
        process,
        pmd,
        action,
        level: worth.level,
        origin,
        since: now,
    };
    planned.hints = worth.into_iter().map(hint).collect();
    planned
}

/// Hints for all huge ranges that are fit, in address order, whatever their heat: the order in which khugepaged scans.
pub fn round_robin(planner: &impl Planner, window: &TargetWindow<'_>, now: Ns) -> Planned {
    let mut planned = Planned::default();
    let (process, action) = (window.id, planner.action());
    for known in &window.facts {
        match planner.unfit(&window.mappings, known) {
            Some(refusal) => planned.leave_out(refusal),
            None => planned.hints.push(Hint {
                process,
                pmd: known.pmd,
                action,
                level: Level::new(0),
                origin: Origin::RoundRobin,
                since: now,
            }),
        }
    }
    planned
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collapse::Rules;
    use crate::collapse::benefit::{Generation, of_generation};
    use isotherm_heat::TargetId;
    use isotherm_units::{Addr, AddrRange};

    const PROCESS: TargetId = TargetId { pid: 7, start_ticks: 70 };

    fn mapping(first: u64, last: u64, name: &str, perms: &str) -> Mapping {
        let range = AddrRange::new(PmdNo(first).addr(), PmdNo(last).addr());
        Mapping { range, name: name.into(), perms: perms.parse().unwrap() }
    }

    fn facts(pmd: u64, present: u16, benefit_hz: f64) -> PmdFacts {
        PmdFacts { pmd: PmdNo(pmd), present, measured: present, huge: false, benefit_hz }
    }

    fn window(mappings: &[Mapping], heat: &[PmdFacts], generations: &[PmdFacts]) -> TargetWindow<'static> {
        TargetWindow {
            id: PROCESS,
            comm: "a".into(),
            mappings: mappings.to_vec().into(),
            facts: heat.to_vec(),
            generations: generations.to_vec(),
        }
    }

    #[test]
    fn the_hottest_come_first_and_each_other_huge_range_has_a_reason() {
        let mut half = mapping(20, 22, "", "rw-p");
        half.range.end = Addr(half.range.end.0 - 4096);
        let mappings =
            [mapping(0, 10, "[heap]", "rw-p"), mapping(10, 12, "/lib/x.so", "r-xp"), mapping(12, 14, "", "rw-s"), half];
        let known = [
            facts(1, 512, 100.0),
            facts(2, 512, 5000.0),
            facts(3, 100, 9000.0),
            facts(4, 512, 1.0),
            PmdFacts { huge: true, ..facts(5, 512, 100.0) },
            PmdFacts { measured: 0, ..facts(6, 512, 0.0) },
            facts(7, 512, 5000.0),
            facts(11, 512, 100.0),
            facts(13, 512, 100.0),
            facts(21, 511, 100.0),
            facts(30, 512, 100.0),
        ];
        let planned = by_heat(&Rules::default(), &window(&mappings, &known, &[]), 5);
        assert_eq!(planned.hints.iter().map(|h| h.pmd.0).collect::<Vec<_>>(), [2, 7, 1]);
        assert!(planned.hints.iter().all(|h| h.process == PROCESS && h.origin == Origin::Heat && h.since == 5));
        let left: Vec<_> = planned.left_out.iter().map(|(r, n)| (*r, *n)).collect();
        let mut expected = [
            (Refusal::Sparse, 1),
            (Refusal::Cold, 1),
            (Refusal::AlreadyHuge, 1),
            (Refusal::Unmeasured, 1),
            (Refusal::File, 2),
            (Refusal::Straddles, 1),
            (Refusal::Unmapped, 1),
        ];
        expected.sort_unstable();
        assert_eq!(left, expected);
    }

    #[test]
    fn generations_give_hints_by_the_number_of_young_pages() {
        let pmd = |pmd, present, young| {
            of_generation(Generation { pmd: PmdNo(pmd), present, huge: false, known: present, young }, 1_000_000_000)
        };
        let known = [pmd(1, 512, 60), pmd(2, 512, 500), pmd(3, 512, 0), pmd(4, 100, 100)];
        let planned = by_generation(&Rules::default(), &window(&[mapping(0, 10, "", "rw-p")], &[], &known), 5);
        let hints: Vec<_> = planned.hints.iter().map(|h| (h.pmd.0, h.level.get(), h.origin)).collect();
        assert_eq!(hints, [(2, 17, Origin::Mglru), (1, 11, Origin::Mglru)]);
        assert_eq!(planned.left_out, [(Refusal::Cold, 1), (Refusal::Sparse, 1)].into());
        let heat = [facts(1, 512, 4000.0), facts(2, 512, 0.0), facts(3, 512, 0.0), facts(5, 512, 60.0)];
        let planned = by_either(&Rules::default(), &window(&[mapping(0, 10, "", "rw-p")], &heat, &known), 5);
        let hints: Vec<_> = planned.hints.iter().map(|h| (h.pmd.0, h.origin)).collect();
        assert_eq!(hints, [(1, Origin::Heat), (2, Origin::Mglru), (5, Origin::Heat)], "the hotter of two");
        assert_eq!(planned.left_out, [(Refusal::Cold, 1), (Refusal::Sparse, 1)].into(), "each huge range once");
    }

    #[test]
    fn it_is_time_when_nearly_all_is_known_or_after_half_a_minute() {
        let s = 1_000_000_000;
        assert!(
            !is_ready(101, 2000, 5 * s)
                && is_ready(100, 2000, 5 * s)
                && is_ready(2000, 2000, 30 * s)
                && is_ready(0, 0, 0)
        );
    }

    #[test]
    fn round_robin_takes_what_fits_in_address_order() {
        let planned = round_robin(
            &Rules::default(),
            &window(&[mapping(0, 10, "", "rw-p")], &[facts(1, 512, 0.0), facts(2, 10, 9.0), facts(3, 512, 9.0)], &[]),
            0,
        );
        assert_eq!(
            planned.hints.iter().map(|h| (h.pmd.0, h.origin)).collect::<Vec<_>>(),
            [(1, Origin::RoundRobin), (3, Origin::RoundRobin)]
        );
    }
}
