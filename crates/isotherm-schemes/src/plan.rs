//! From heat, or the kernel's generations, to hints: which blocks of a process are worth a huge page, in which order. Pure;
//! [`crate::worker`] does it.
//!
//! What can be said from a snapshot alone is said here, so that a dry run tells it too: blocks that are huge already, too
//! cold, too sparse, or in memory that does not take huge pages. What only the moment can tell (a fork, a budget, the kernel's
//! refusal) is the worker's.

use crate::collapse::benefit::{BlockFacts, level_of};
use crate::outcome::Refusal;
use crate::queue::{Hint, Level, Origin};
use isotherm_heat::{Mapping, Ns, TargetId};
use isotherm_units::{AddrRange, BlockNo};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What is worth collapsing at all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// Pages that have to be present in a block, of 512.
    pub min_present: u16,
    /// Touches a second that a block has to have, see [`crate::collapse::benefit`].
    pub min_benefit_hz: f64,
    /// Also memory of files and shared memory, where the kernel may refuse.
    pub files: bool,
}

impl Default for Rules {
    /// 90% present; 50 touches a second: a tenth of the pages once a second.
    fn default() -> Rules {
        Rules { min_present: 460, min_benefit_hz: 50.0, files: false }
    }
}

/// What hints are made from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HintSource {
    /// The heat map.
    #[default]
    Heat,
    /// The generations of the kernel's multi-generation LRU.
    Mglru,
    /// Both: a block goes by the higher level.
    Both,
}

/// Hints of one process, the best first, and why the other blocks got none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Planned {
    /// In the order in which they should be given to the queue.
    pub hints: Vec<Hint>,
    /// Blocks left out, by reason.
    pub left_out: BTreeMap<Refusal, u64>,
}

/// The part of the blocks (one in so many) that may be unknown when the first hints are given, and how long that is waited for.
const FEW: usize = 20;
const LONG_ENOUGH: Ns = 30_000_000_000;

/// Whether enough is known to begin. The first looks at a large target take seconds; who begins with what was seen first
/// collapses twice as many blocks until most of the heat is covered.
pub fn is_time(unlooked: usize, blocks: usize, watched_ns: Ns) -> bool {
    unlooked * FEW <= blocks || watched_ns >= LONG_ENOUGH
}

/// The plan for a process by what hints are to come from.
pub fn plan(
    hints: HintSource,
    process: TargetId,
    mappings: &[Mapping],
    (heat, generations): (&[BlockFacts], &[BlockFacts]),
    rules: Rules,
    now: Ns,
) -> Planned {
    match hints {
        HintSource::Heat => by_heat(process, mappings, heat, rules, now),
        HintSource::Mglru => by_generation(process, mappings, generations, rules, now),
        HintSource::Both => by_either(process, mappings, heat, generations, rules, now),
    }
}

/// Hints for the hot blocks of `process`, by falling benefit. `mappings` and `facts` are in address order. O(n log n).
pub fn by_heat(process: TargetId, mappings: &[Mapping], facts: &[BlockFacts], rules: Rules, now: Ns) -> Planned {
    by_benefit(process, mappings, facts.iter().map(|f| (Origin::Heat, *f)), rules, now)
}

/// The same from the kernel's generations: blocks with most pages in the youngest come first. `facts` are those of
/// [`crate::collapse::benefit::of_generation`].
pub fn by_generation(process: TargetId, mappings: &[Mapping], facts: &[BlockFacts], rules: Rules, now: Ns) -> Planned {
    by_benefit(process, mappings, facts.iter().map(|f| (Origin::Mglru, *f)), rules, now)
}

/// The same from both: a block counts as what makes it hotter. Both are lower bounds in one unit.
pub fn by_either(
    process: TargetId,
    mappings: &[Mapping],
    heat: &[BlockFacts],
    generations: &[BlockFacts],
    rules: Rules,
    now: Ns,
) -> Planned {
    let mut hottest: BTreeMap<BlockNo, (Origin, BlockFacts)> =
        heat.iter().map(|f| (f.block, (Origin::Heat, *f))).collect();
    for facts in generations {
        let known = hottest.entry(facts.block).or_insert((Origin::Mglru, *facts));
        if facts.benefit_hz > known.1.benefit_hz {
            *known = (Origin::Mglru, *facts);
        }
    }
    by_benefit(process, mappings, hottest.into_values(), rules, now)
}

fn by_benefit(
    process: TargetId,
    mappings: &[Mapping],
    facts: impl Iterator<Item = (Origin, BlockFacts)>,
    rules: Rules,
    now: Ns,
) -> Planned {
    let mut planned = Planned::default();
    let mut worth: Vec<(f64, BlockNo, Level, Origin)> = Vec::new();
    for (origin, known) in facts {
        let level = level_of(known.benefit_hz).filter(|_| known.benefit_hz >= rules.min_benefit_hz);
        match (unfit(mappings, &known, rules), level) {
            (Some(refusal), _) => *planned.left_out.entry(refusal).or_default() += 1,
            (None, None) if known.measured == 0 => *planned.left_out.entry(Refusal::Unmeasured).or_default() += 1,
            (None, None) => *planned.left_out.entry(Refusal::Cold).or_default() += 1,
            (None, Some(level)) => worth.push((known.benefit_hz, known.block, level, origin)),
        }
    }
    // Equal benefits in address order: a plan is the same whenever it is made of the same facts.
    worth.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let hint = |(_, block, level, origin)| Hint { process, block, level, origin, since: now };
    planned.hints = worth.into_iter().map(hint).collect();
    planned
}

/// Hints for all blocks of `process` that can be collapsed, in address order, whatever their heat: the order in which khugepaged
/// walks.
pub fn round_robin(process: TargetId, mappings: &[Mapping], facts: &[BlockFacts], rules: Rules, now: Ns) -> Planned {
    let mut planned = Planned::default();
    for known in facts {
        match unfit(mappings, known, rules) {
            Some(refusal) => *planned.left_out.entry(refusal).or_default() += 1,
            None => planned.hints.push(Hint {
                process,
                block: known.block,
                level: Level::new(0),
                origin: Origin::RoundRobin,
                since: now,
            }),
        }
    }
    planned
}

fn unfit(mappings: &[Mapping], known: &BlockFacts, rules: Rules) -> Option<Refusal> {
    if known.huge {
        return Some(Refusal::AlreadyHuge);
    }
    if let Some(refusal) = unfit_mapping(mappings, known.block, rules.files) {
        return Some(refusal);
    }
    (known.present < rules.min_present).then_some(Refusal::Sparse)
}

/// Why the memory that `block` lies in takes no huge page; `None` if it may.
pub fn unfit_mapping(mappings: &[Mapping], block: BlockNo, files: bool) -> Option<Refusal> {
    let range = block.range();
    let at = mappings.partition_point(|m| m.range.end <= range.start);
    let Some(mapping) = mappings.get(at).filter(|m| m.range.start < range.end) else { return Some(Refusal::Unmapped) };
    if !holds(mapping.range, range) {
        return Some(Refusal::Straddles);
    }
    (!files && !is_anonymous(mapping)).then_some(Refusal::File)
}

fn holds(outer: AddrRange, inner: AddrRange) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

/// Private memory without a file behind it. Names in brackets are the kernel's for such memory.
pub(crate) fn is_anonymous(mapping: &Mapping) -> bool {
    mapping.perms.ends_with('p') && (mapping.name.is_empty() || mapping.name.starts_with('['))
}

/// The share of the heat in `facts` that lies on huge pages; `None` where nothing is hot.
///
/// `was` knows the benefit of blocks from before they became huge. It holds until their one bit says that they are touched less
/// often than that.
pub fn heat_on_huge(facts: &[BlockFacts], was: &BTreeMap<BlockNo, f64>) -> Option<f64> {
    let benefit = |f: &BlockFacts| match was.get(&f.block).filter(|_| f.huge) {
        Some(hz) => hz.min(f.benefit_hz),
        None => f.benefit_hz,
    };
    let all: f64 = facts.iter().map(benefit).sum();
    let huge: f64 = facts.iter().filter(|f| f.huge).map(benefit).sum();
    // The sum of nothing is -0.0, which would be printed.
    (all > 0.0).then(|| huge / all + 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collapse::benefit::of_generation;
    use isotherm_units::Addr;

    const PROCESS: TargetId = TargetId { pid: 7, start_ticks: 70 };

    fn mapping(first: u64, last: u64, name: &str, perms: &str) -> Mapping {
        let range = AddrRange::new(BlockNo(first).addr(), BlockNo(last).addr());
        Mapping { range, name: name.into(), perms: perms.into() }
    }

    fn facts(block: u64, present: u16, benefit_hz: f64) -> BlockFacts {
        BlockFacts { block: BlockNo(block), present, measured: present, huge: false, benefit_hz }
    }

    #[test]
    fn the_hottest_come_first_and_each_other_block_has_a_reason() {
        let mut half = mapping(20, 22, "", "rw-p");
        half.range.end = Addr(half.range.end.0 - 4096);
        let mappings =
            [mapping(0, 10, "[heap]", "rw-p"), mapping(10, 12, "/lib/x.so", "r-xp"), mapping(12, 14, "", "rw-s"), half];
        let known = [
            facts(1, 512, 100.0),
            facts(2, 512, 5000.0),
            facts(3, 100, 9000.0),
            facts(4, 512, 1.0),
            BlockFacts { huge: true, ..facts(5, 512, 100.0) },
            BlockFacts { measured: 0, ..facts(6, 512, 0.0) },
            facts(7, 512, 5000.0),
            facts(11, 512, 100.0),
            facts(13, 512, 100.0),
            facts(21, 511, 100.0),
            facts(30, 512, 100.0),
        ];
        let planned = by_heat(PROCESS, &mappings, &known, Rules::default(), 5);
        assert_eq!(planned.hints.iter().map(|h| h.block.0).collect::<Vec<_>>(), [2, 7, 1]);
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
        let block =
            |block, present, young| of_generation(BlockNo(block), present, false, present, young, 1_000_000_000);
        let known = [block(1, 512, 60), block(2, 512, 500), block(3, 512, 0), block(4, 100, 100)];
        let planned = by_generation(PROCESS, &[mapping(0, 10, "", "rw-p")], &known, Rules::default(), 5);
        let hints: Vec<_> = planned.hints.iter().map(|h| (h.block.0, h.level.get(), h.origin)).collect();
        assert_eq!(hints, [(2, 17, Origin::Mglru), (1, 11, Origin::Mglru)]);
        assert_eq!(planned.left_out, [(Refusal::Cold, 1), (Refusal::Sparse, 1)].into());
        let heat = [facts(1, 512, 4000.0), facts(2, 512, 0.0), facts(3, 512, 0.0), facts(5, 512, 60.0)];
        let planned = by_either(PROCESS, &[mapping(0, 10, "", "rw-p")], &heat, &known, Rules::default(), 5);
        let hints: Vec<_> = planned.hints.iter().map(|h| (h.block.0, h.origin)).collect();
        assert_eq!(hints, [(1, Origin::Heat), (2, Origin::Mglru), (5, Origin::Heat)], "the hotter of two");
        assert_eq!(planned.left_out, [(Refusal::Cold, 1), (Refusal::Sparse, 1)].into(), "each block once");
    }

    #[test]
    fn it_is_time_when_nearly_all_is_known_or_after_half_a_minute() {
        let s = 1_000_000_000;
        assert!(
            !is_time(101, 2000, 5 * s) && is_time(100, 2000, 5 * s) && is_time(2000, 2000, 30 * s) && is_time(0, 0, 0)
        );
    }

    #[test]
    fn round_robin_takes_what_fits_in_address_order() {
        let planned = round_robin(
            PROCESS,
            &[mapping(0, 10, "", "rw-p")],
            &[facts(1, 512, 0.0), facts(2, 10, 9.0), facts(3, 512, 9.0)],
            Rules::default(),
            0,
        );
        assert_eq!(
            planned.hints.iter().map(|h| (h.block.0, h.origin)).collect::<Vec<_>>(),
            [(1, Origin::RoundRobin), (3, Origin::RoundRobin)]
        );
    }

    #[test]
    fn the_share_of_heat_on_huge_pages_uses_what_was_known_before() {
        let huge = BlockFacts { huge: true, ..facts(1, 512, 51_200.0) };
        let known = [huge, facts(2, 512, 1000.0)];
        assert_eq!(
            heat_on_huge(&known, &BTreeMap::new()),
            Some(51_200.0 / 52_200.0),
            "as if all its pages were touched"
        );
        assert_eq!(heat_on_huge(&known, &[(BlockNo(1), 3000.0)].into()), Some(0.75));
        let cooled = [BlockFacts { benefit_hz: 0.0, ..huge }, facts(2, 512, 1000.0)];
        assert_eq!(heat_on_huge(&cooled, &[(BlockNo(1), 3000.0)].into()), Some(0.0), "it was hot, and is not any more");
        assert_eq!(heat_on_huge(&[], &BTreeMap::new()), None);
        let none = heat_on_huge(&known[1..], &BTreeMap::new()).map(|share| format!("{share:.1}"));
        assert_eq!(none.as_deref(), Some("0.0"), "and not -0.0");
    }
}
