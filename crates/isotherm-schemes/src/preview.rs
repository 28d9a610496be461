//! What actions would do to a process, by mapping: for a picture of it, while nothing is done.
//!
//! It takes the planners of the actions, at the rules of their commands, and the heat of one window. What only shows at the moment of
//! the try (a limit, a fork, a refusal by the kernel) it does not know: a dry run of the command does. Nothing is queued.
//!
//! For `split`, what lies behind a huge page is known from before it was huge; probes, as the command makes them, would change the
//! process.

use crate::collapse::{COLLAPSE, Rules};
use crate::facts::TargetWindow;
use crate::outcome::Refusal;
use crate::page_out::{IdleWindow, PAGE_OUT, plan as plan_page_out};
use crate::plan::by_heat;
use crate::queue::ActionId;
use crate::split::SPLIT;
use isotherm_heat::{Interval, Mapping, Ns, Target};
use isotherm_units::{Addr, Bytes, PAGES_PER_PMD, PMD_SIZE, PmdNo};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Mappings that are listed for an action. Others are joined.
const MAX_MAPPINGS: usize = 32;
/// A huge page is split where at least this part of it (one in this many) is unused: that of the command.
const MIN_UNUSED_PART: usize = 2;

/// What an action would do to the huge ranges of a mapping, or why it would do nothing to some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preview {
    /// The action.
    pub action: ActionId,
    /// Where the mapping begins. `None`: several mappings.
    pub mapping: Option<Addr>,
    /// Huge ranges.
    pub huge_ranges: u64,
    /// Memory that would become huge, leave, or be returned.
    pub bytes: Bytes,
    /// Why nothing would be done to them.
    pub why_not: Option<Refusal>,
}

/// A huge page behind which most pages are unused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hidden {
    /// The huge range.
    pub pmd: PmdNo,
    /// Its pages that would not be accessed within the age, as they were before it was huge.
    pub unused_pages: u16,
}

/// Huge pages of which at least half would be unused for the age, by what was known of their pages. Costs the same as
/// [`Target::for_each_pmd`].
pub fn hidden_in(target: &Target, min_idle_ns: Ns, now: Ns) -> Vec<Hidden> {
    let age = Interval::from_ns(min_idle_ns);
    let mut found = Vec::new();
    target.for_each_pmd(now, |pmd, view| {
        let (Some(behind), Some(run)) = (view.behind, view.runs.first().filter(|run| run.huge)) else { return };
        let unused = behind.estimated(now, run.interval).filter(|(interval, _)| *interval >= age);
        let unused_pages: u16 = unused.map(|(_, pages)| pages).sum();
        if usize::from(unused_pages) * MIN_UNUSED_PART >= PAGES_PER_PMD {
            found.push(Hidden { pmd, unused_pages });
        }
    });
    found
}

/// What would be done: for each action the mappings with most memory first, and then why nothing would be done to others. O(n log n)
/// in the number of huge ranges.
pub fn preview(window: &TargetWindow<'_>, idle: &IdleWindow<'_>, hidden: &[Hidden], now: Ns) -> Vec<Preview> {
    let mut previews = Vec::new();
    let collapses = by_heat(&Rules::default(), window, now);
    let hot = collapses.hints.iter().map(|hint| (hint.pmd, PMD_SIZE));
    previews.extend(by_mapping(COLLAPSE, &window.mappings, hot));
    previews.extend(left_out(COLLAPSE, collapses.left_out));
    let (leaving, masks) = plan_page_out(idle, now);
    let cold = masks.iter().map(|(pmd, pages)| (*pmd, Bytes::of_pages(u64::from(pages.count())).0));
    previews.extend(by_mapping(PAGE_OUT, &window.mappings, cold));
    previews.extend(left_out(PAGE_OUT, leaving.left_out));
    let unused = hidden.iter().map(|of| (of.pmd, Bytes::of_pages(u64::from(of.unused_pages)).0));
    previews.extend(by_mapping(SPLIT, &window.mappings, unused));
    previews
}

/// That an action would do nothing to a process, and why.
pub fn refused(action: ActionId, why_not: Refusal) -> Preview {
    Preview { action, mapping: None, huge_ranges: 0, bytes: Bytes(0), why_not: Some(why_not) }
}

fn by_mapping(action: ActionId, mappings: &[Mapping], pmds: impl Iterator<Item = (PmdNo, u64)>) -> Vec<Preview> {
    let mut sums: BTreeMap<Option<Addr>, (u64, u64)> = BTreeMap::new();
    for (pmd, bytes) in pmds {
        let mapping = Mapping::first_in(mappings, pmd.range()).map(|mapping| mapping.range.start);
        let sum = sums.entry(mapping).or_default();
        *sum = (sum.0 + 1, sum.1 + bytes);
    }
    let row =
        |(mapping, (huge_ranges, bytes))| Preview { action, mapping, huge_ranges, bytes: Bytes(bytes), why_not: None };
    let mut rows: Vec<Preview> = sums.into_iter().map(row).collect();
    rows.sort_by_key(|row| Reverse(row.bytes));
    let others = rows.split_off(rows.len().min(MAX_MAPPINGS));
    let joined = others.into_iter().reduce(|sum, row| Preview {
        mapping: None,
        huge_ranges: sum.huge_ranges + row.huge_ranges,
        bytes: Bytes(sum.bytes.0 + row.bytes.0),
        ..sum
    });
    rows.extend(joined.map(|row| Preview { mapping: None, ..row }));
    rows
}

fn left_out(action: ActionId, reasons: BTreeMap<Refusal, u64>) -> impl Iterator<Item = Preview> {
    reasons.into_iter().map(move |(why_not, huge_ranges)| Preview { huge_ranges, ..refused(action, why_not) })
}

/// The memory that an action would act on.
pub fn total(previews: &[Preview], action: ActionId) -> Bytes {
    Bytes(previews.iter().filter(|row| row.action == action).map(|row| row.bytes.0).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::PmdFacts;
    use crate::page_out::IdlePmd;
    use isotherm_heat::{Mask, PmdBits, TargetId, Watch};
    use isotherm_units::AddrRange;

    const S: Ns = 1_000_000_000;
    const ID: TargetId = TargetId { pid: 1, start_ticks: 1 };

    fn mapping(pmds: std::ops::Range<u64>, name: &str) -> Mapping {
        let range = AddrRange::new(PmdNo(pmds.start).range().start, PmdNo(pmds.end).range().start);
        Mapping { range, name: name.into(), perms: "rw-p".parse().unwrap() }
    }

    fn hot(pmd: u64, benefit_hz: f64) -> PmdFacts {
        PmdFacts { pmd: PmdNo(pmd), present: 512, measured: 512, huge: false, benefit_hz }
    }

    fn window(mappings: &[Mapping], facts: Vec<PmdFacts>) -> TargetWindow<'_> {
        TargetWindow { id: ID, comm: "x".into(), mappings: mappings.into(), facts, generations: vec![] }
    }

    fn idle_window(mappings: &[Mapping], idle: Vec<IdlePmd>) -> IdleWindow<'_> {
        IdleWindow { id: ID, comm: "x".into(), mappings: mappings.into(), idle }
    }

    #[test]
    fn each_action_has_its_mappings_and_what_it_leaves_out() {
        let mappings = [mapping(10..20, "[heap]"), mapping(30..40, ""), mapping(50..60, "/lib/x.so")];
        let huge = PmdFacts { huge: true, ..hot(12, 900.0) };
        let facts = vec![hot(10, 900.0), huge, hot(13, 1.0), hot(31, 900.0), hot(32, 100.0)];
        let idle =
            |pmd, pages| IdlePmd { pmd: PmdNo(pmd), pages: (0..pages).collect(), idle: Interval::from_ns(99 * S) };
        let idle = vec![idle(13, 512), idle(33, 3), idle(50, 512)];
        let hidden = [Hidden { pmd: PmdNo(12), unused_pages: 300 }];
        let all = preview(&window(&mappings, facts), &idle_window(&mappings, idle), &hidden, 0);
        let row = |action, pmd: u64, huge_ranges, bytes| Preview {
            action,
            mapping: Some(PmdNo(pmd).range().start),
            huge_ranges,
            bytes: Bytes(bytes),
            why_not: None,
        };
        let expected = [
            row(COLLAPSE, 30, 2, 4 << 20),
            row(COLLAPSE, 10, 1, 2 << 20),
            Preview { huge_ranges: 1, ..refused(COLLAPSE, Refusal::AlreadyHuge) },
            Preview { huge_ranges: 1, ..refused(COLLAPSE, Refusal::Cold) },
            row(PAGE_OUT, 10, 1, 2 << 20),
            row(PAGE_OUT, 30, 1, 3 * 4096),
            Preview { huge_ranges: 1, ..refused(PAGE_OUT, Refusal::File) },
            row(SPLIT, 10, 1, 300 * 4096),
        ];
        assert_eq!(all, expected);
        assert_eq!(total(&all, COLLAPSE), Bytes(6 << 20));
    }

    #[test]
    fn of_many_mappings_the_largest_are_listed_and_none_is_lost() {
        let mappings: Vec<Mapping> = (0..100).map(|at| mapping(10 * at..10 * at + 9, "")).collect();
        let facts = (0..100).flat_map(|at| (0..=at % 8).map(move |n| hot(10 * at + n, 900.0))).collect::<Vec<_>>();
        let pmds = facts.len() as u64;
        let all = preview(&window(&mappings, facts), &idle_window(&mappings, vec![]), &[], 0);
        assert_eq!(all.len(), MAX_MAPPINGS + 1);
        assert!(all[..MAX_MAPPINGS].is_sorted_by_key(|row| Reverse(row.bytes)) && all[0].huge_ranges == 8);
        assert_eq!(all.last().unwrap().mapping, None);
        assert_eq!(all.iter().map(|row| row.huge_ranges).sum::<u64>(), pmds);
        assert_eq!(total(&all, COLLAPSE), Bytes(pmds * PMD_SIZE));
    }

    #[test]
    fn a_huge_page_hides_what_was_idle_before_it_was_huge() {
        let mut target = Target::new(0, Watch { max_slowdown_pct: 1000.0, scan_period_ns: S }, 1);
        // Of one, 100 pages are in use, of the other 300.
        let pmds = [(PmdNo(1), 100), (PmdNo(2), 300)];
        target.refit(&pmds.map(|(pmd, _)| pmd));
        for second in 0..120 {
            for (pmd, used) in pmds {
                let young: Mask = if second == 0 { Mask::NONE } else { (0..used).collect() };
                target.read(second * S, pmd, PmdBits::Pages { young, present: Mask::ALL });
                target.cleared(second * S, pmd, Mask::NONE);
            }
        }
        assert_eq!(hidden_in(&target, 60 * S, 120 * S), [], "nothing is huge yet");
        for second in 120..123 {
            for (pmd, _) in pmds {
                target.read(second * S, pmd, PmdBits::Huge { young: true });
                target.cleared(second * S, pmd, Mask::NONE);
            }
        }
        let hidden = hidden_in(&target, 60 * S, 123 * S);
        assert_eq!(hidden, [Hidden { pmd: PmdNo(1), unused_pages: 412 }]);
    }
}
