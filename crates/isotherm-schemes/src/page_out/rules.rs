//! Which pages may leave: the planner's side of paging out.
//!
//! A page leaves if it is known to be idle for the age, by its own accessed bit: cleared, and found clear since. Estimates and
//! expected intervals do not count. Only private memory without a file: its pages have no other place to come back from than
//! swap, and nobody else maps them.

use super::PAGE_OUT;
use crate::facts::private_pages;
use crate::outcome::Refusal;
use crate::plan::Planned;
use crate::queue::{Hint, Level, Origin};
use isotherm_heat::{Interval, Mapping, Mask, Ns, Target, TargetId};
use isotherm_units::PmdNo;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::ops::Range;

/// Memory at the lowest rate that is worth a collapse by default has the level above.
const HIGHEST_LEVEL: u8 = 10;

/// Which pages leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// They have been idle for this long at least.
    pub min_idle_ns: Ns,
}

/// Idle pages of one huge range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdlePmd {
    /// The huge range.
    pub pmd: PmdNo,
    /// Its pages that have been idle for the age or longer.
    pub pages: Mask,
    /// The shortest time for which one of them has been idle.
    pub idle: Interval,
}

/// What is idle in one process.
#[derive(Clone, Debug)]
pub struct IdleWindow<'a> {
    /// The process.
    pub id: TargetId,
    /// Its command name.
    pub comm: Cow<'a, str>,
    /// Its mappings, in address order.
    pub mappings: Cow<'a, [Mapping]>,
    /// Huge ranges with idle pages, in address order.
    pub idle: Vec<IdlePmd>,
}

/// The idle pages of a target that is watched page by page. Costs the same as [`Target::for_each_pmd`].
pub fn idle_pages(rules: Rules, target: &Target, now: Ns) -> Vec<IdlePmd> {
    idle_pages_within(rules, target, PmdNo(0)..PmdNo(u64::MAX), now)
}

/// Those of neighbouring huge ranges. Its cost is by what is known of them: they may be far more than there is memory.
pub fn idle_pages_within(rules: Rules, target: &Target, pmds: Range<PmdNo>, now: Ns) -> Vec<IdlePmd> {
    let age = Interval::from_ns(rules.min_idle_ns);
    let mut found = Vec::new();
    target.for_pmds_in(pmds, now, |pmd, view| {
        let mut of = IdlePmd { pmd, pages: Mask::NONE, idle: Interval::LONGEST };
        for run in view.runs.iter().filter(|run| run.cleared && !run.estimated && run.idle >= age) {
            of.pages = of.pages | run.indices().collect();
            of.idle = of.idle.min(run.idle);
        }
        if !of.pages.is_empty() && !view.unclearable {
            found.push(of);
        }
    });
    found
}

/// Those of some huge ranges.
pub fn idle_pages_in(rules: Rules, target: &Target, pmds: &[PmdNo], now: Ns) -> Vec<IdlePmd> {
    pmds.iter().flat_map(|pmd| idle_pages_within(rules, target, *pmd..pmd.next(), now)).collect()
}

/// The plan for a process, the longest idle first, and the pages that may leave of each huge range in it. O(n log n).
pub fn plan(window: &IdleWindow<'_>, now: Ns) -> (Planned, Vec<(PmdNo, Mask)>) {
    let mut planned = Planned::default();
    let mut fit = Vec::new();
    for known in &window.idle {
        let pages = known.pages & private_pages(&window.mappings, known.pmd);
        if pages.is_empty() {
            planned.leave_out(Refusal::File);
        } else {
            fit.push(IdlePmd { pages, ..*known });
        }
    }
    fit.sort_by_key(|f| (Reverse(f.idle), Reverse(f.pages.count()), f.pmd));
    planned.hints = fit.iter().map(|f| hint(window.id, f, now)).collect();
    (planned, fit.into_iter().map(|f| (f.pmd, f.pages)).collect())
}

fn hint(process: TargetId, known: &IdlePmd, now: Ns) -> Hint {
    // A level for each doubling of the idle time from 8 s on, below those of memory that is worth a collapse: cold memory can wait.
    let octaves = known.idle.step().map_or(0, |step| step / isotherm_heat::STEPS_PER_OCTAVE);
    let level = Level::new(octaves.saturating_sub(13).min(HIGHEST_LEVEL));
    Hint { process, pmd: known.pmd, action: PAGE_OUT, level, origin: Origin::Heat, since: now }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_heat::{PmdBits, Watch};
    use isotherm_units::{AddrRange, PageNo};

    const S: Ns = 1_000_000_000;
    const ID: TargetId = TargetId { pid: 1, start_ticks: 1 };

    fn mapping(pages: std::ops::Range<u64>, name: &str, perms: &str) -> Mapping {
        let range = AddrRange::new(PageNo(pages.start).addr(), PageNo(pages.end).addr());
        Mapping { range, name: name.into(), perms: perms.parse().unwrap() }
    }

    fn bits(young: std::ops::Range<usize>) -> PmdBits {
        PmdBits::Pages { young: young.collect(), present: Mask::ALL }
    }

    #[test]
    fn a_page_is_idle_by_its_own_bit_and_from_its_own_clear_on() {
        let mut target = Target::new(0, Watch { max_slowdown_pct: 1000.0, scan_period_ns: S }, 1);
        let pmds = [PmdNo(1), PmdNo(2)];
        target.refit(&pmds);
        for pmd in pmds {
            target.read(0, pmd, bits(0..0));
        }
        target.cleared(S, pmds[0], Mask::NONE);
        target.read(31 * S, pmds[0], bits(5..10));
        target.cleared(31 * S, pmds[0], Mask::NONE);
        target.read(50 * S, pmds[0], bits(0..0));
        let idle = |min_idle_s, at| idle_pages(Rules { min_idle_ns: min_idle_s * S }, &target, at);
        let accessed: Mask = (5..10).collect();
        let [short, long] = [idle(15, 50 * S), idle(40, 50 * S)];
        assert_eq!((short.len(), short[0].pages, short[0].idle), (1, Mask::ALL, Interval::from_ns(19 * S)));
        assert_eq!((long[0].pages, long[0].idle), (Mask::ALL & !accessed, Interval::from_ns(49 * S)));
        assert_eq!(idle(60, 100 * S), [], "nothing is known of the time since the last read");
    }

    #[test]
    fn only_private_memory_without_a_file_leaves_and_the_longest_idle_first() {
        let mappings = vec![
            mapping(512..600, "", "rw-p"),
            mapping(600..700, "/lib/x.so", "rw-p"),
            mapping(700..1536, "[heap]", "rw-p"),
            mapping(1536..2048, "", "rw-s"),
            mapping(2048..2560, "[vvar]", "r--p"),
        ];
        let idle = |pmd, idle_s, pages| IdlePmd { pmd: PmdNo(pmd), pages, idle: Interval::from_ns(idle_s * S) };
        let few: Mask = (80..100).collect();
        let window = IdleWindow {
            id: ID,
            comm: "a".into(),
            mappings: mappings.into(),
            idle: vec![idle(1, 20, few), idle(2, 90, Mask::ALL), idle(3, 500, Mask::ALL), idle(4, 500, Mask::ALL)],
        };
        let (planned, pages) = plan(&window, 7);
        let hints: Vec<_> = planned.hints.iter().map(|h| (h.pmd.0, h.level.get(), h.action, h.since)).collect();
        assert_eq!(hints, [(2, 3, PAGE_OUT, 7), (1, 1, PAGE_OUT, 7)]);
        assert_eq!(pages, [(PmdNo(2), Mask::ALL), (PmdNo(1), (80..88).collect())]);
        assert_eq!(planned.left_out, [(Refusal::File, 2)].into());
    }
}
