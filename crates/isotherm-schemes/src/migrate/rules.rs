//! Which pages should be in fast memory, and which in slow.
//!
//! A page is hot by its access interval, and idle by its own accessed bit: cleared, and found clear since. Estimates do not count for
//! either. Only private memory without a file: of other memory, a page that another process maps does not move.

use super::MIGRATE;
use crate::facts::private_pages;
use crate::queue::{Hint, Level, Origin};
use isotherm_heat::{Interval, Mapping, Mask, Ns, Target, TargetId};
use isotherm_units::PmdNo;
use std::ops::Range;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Pages that are accessed at least once in this time are hot, and move up. `None`: none do.
    pub hot_ns: Option<Ns>,
    /// Pages that have been idle for this long may move down. `None`: none do.
    pub idle_ns: Option<Ns>,
    /// They do while less than this share of fast memory is free.
    pub keep_free_pct: f64,
}

/// What is wanted of one huge range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wanted {
    /// The huge range.
    pub pmd: PmdNo,
    /// Its pages that are hot.
    pub hot: Mask,
    /// Its pages that are idle.
    pub idle: Mask,
    /// Accesses a second of its hot pages together.
    pub hz: f64,
}

/// What is wanted in some huge ranges of a target that is watched page by page: those with hot or with idle pages, in address order.
/// Costs the same as [`Target::for_pmds_in`].
pub fn wanted_in(limits: Limits, target: &Target, mappings: &[Mapping], pmds: Range<PmdNo>, now: Ns) -> Vec<Wanted> {
    let (hot, idle) = (limits.hot_ns.map(Interval::from_ns), limits.idle_ns.map(Interval::from_ns));
    let mut found = Vec::new();
    target.for_pmds_in(pmds, now, |pmd, view| {
        let mut wanted = Wanted { pmd, hot: Mask::NONE, idle: Mask::NONE, hz: 0.0 };
        for run in view.runs.iter().filter(|run| !run.estimated) {
            let pages: Mask = run.indices().collect();
            let is_known = run.interval.is_measured() && !run.is_extrapolated();
            if is_known && hot.is_some_and(|hot| run.interval <= hot) {
                wanted.hot = wanted.hot | pages;
                wanted.hz += f64::from(run.pages) * run.interval.rate_hz();
            } else if run.cleared && !view.unclearable && idle.is_some_and(|idle| run.idle >= idle) {
                wanted.idle = wanted.idle | pages;
            }
        }
        if !(wanted.hot | wanted.idle).is_empty() {
            found.push(wanted);
        }
    });
    let own = |wanted: Wanted| {
        let own = private_pages(mappings, wanted.pmd);
        Wanted { hot: wanted.hot & own, idle: wanted.idle & own, ..wanted }
    };
    found.into_iter().map(own).filter(|wanted| !(wanted.hot | wanted.idle).is_empty()).collect()
}

/// Above the levels of memory that pages out, and below most that is worth a collapse.
const HOT_LEVEL: u8 = 11;
const HIGHEST_LEVEL: u8 = 20;

/// While fast memory is full, most huge ranges of which nothing can go down that are hinted: each is refused until there is room.
const MAX_WAITING: usize = 64;

/// A hint for each: what is hot first, by its rate, and then what is idle. While fast memory `is_full` it is the other way round, and only
/// the hottest wait for room.
pub fn hints(process: TargetId, wanted: &[Wanted], is_full: bool, now: Ns) -> Vec<Hint> {
    let hint = |wanted: &Wanted| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a logarithm of at most 2^40")]
        let octaves = wanted.hz.max(1.0).log2() as u8;
        let level = match (wanted.idle.is_empty(), wanted.hot.is_empty()) {
            (false, _) if is_full => HIGHEST_LEVEL + 1,
            (_, true) => 0,
            (_, false) => HOT_LEVEL.saturating_add(octaves).min(HIGHEST_LEVEL),
        };
        Hint { process, pmd: wanted.pmd, action: MIGRATE, level: Level::new(level), origin: Origin::Heat, since: now }
    };
    let (mut waiting, rest): (Vec<&Wanted>, Vec<&Wanted>) = wanted.iter().partition(|w| is_full && w.idle.is_empty());
    waiting.sort_by(|a, b| b.hz.total_cmp(&a.hz));
    waiting.truncate(MAX_WAITING);
    rest.into_iter().chain(waiting).map(hint).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_heat::{PmdBits, Watch};
    use isotherm_units::{AddrRange, PageNo};

    const S: Ns = 1_000_000_000;

    fn mapping(pages: Range<u64>, perms: &str) -> Mapping {
        let range = AddrRange::new(PageNo(pages.start).addr(), PageNo(pages.end).addr());
        Mapping { range, name: String::new(), perms: perms.parse().unwrap() }
    }

    #[test]
    fn hot_is_by_interval_idle_by_bit_and_files_stay() {
        let mut target = Target::new(0, Watch { max_slowdown_pct: 1000.0, scan_period_ns: S }, 1);
        let pmds = [PmdNo(1), PmdNo(2)];
        target.refit(&pmds);
        let accessed: Mask = (5..10).collect();
        for second in 0..30 {
            for pmd in pmds {
                let young = if second == 0 { Mask::NONE } else { accessed };
                target.read(second * S, pmd, PmdBits::Pages { young, present: Mask::ALL });
                target.cleared(second * S, pmd, Mask::NONE);
            }
        }
        let mappings = [mapping(512..1000, "rw-p"), mapping(1024..1536, "rw-s")];
        let all = PmdNo(0)..PmdNo(9);
        let limits = Limits { hot_ns: Some(2 * S), idle_ns: Some(20 * S), keep_free_pct: 10.0 };
        let found = wanted_in(limits, &target, &mappings, all.clone(), 29 * S);
        let idle: Mask = (0..488).filter(|page| !accessed.has(*page)).collect();
        assert_eq!(found.len(), 1, "the other is shared: {found:?}");
        assert_eq!((found[0].pmd, found[0].hot, found[0].idle), (PmdNo(1), accessed, idle));
        assert!(found[0].hz >= 2.5, "{found:?}");
        let none = Limits { hot_ns: None, idle_ns: Some(60 * S), ..limits };
        assert_eq!(wanted_in(none, &target, &mappings, all, 29 * S), []);
    }

    #[test]
    fn an_accessed_bit_that_was_set_before_the_first_clear_says_nothing() {
        let mut target = Target::new(0, Watch { max_slowdown_pct: 1000.0, scan_period_ns: S }, 1);
        target.refit(&[PmdNo(1)]);
        let limits = Limits { hot_ns: Some(4 * S), idle_ns: Some(20 * S), keep_free_pct: 10.0 };
        let mappings = [mapping(512..1024, "rw-p")];
        let mut found = |at, young: Mask, clears: bool| {
            target.read(at, PmdNo(1), PmdBits::Pages { young, present: Mask::ALL });
            if clears {
                target.cleared(at, PmdNo(1), Mask::NONE);
            }
            wanted_in(limits, &target, &mappings, PmdNo(0)..PmdNo(9), at + S / 10)
        };
        assert_eq!(found(S, Mask::ALL, true), []);
        assert_eq!(found(2 * S, Mask::NONE, false), [], "one second is too short to be idle");
        let accessed: Mask = (0..7).collect();
        let hot = found(3 * S, accessed, true);
        assert_eq!(hot.iter().map(|wanted| wanted.hot).collect::<Vec<_>>(), [accessed]);
    }

    #[test]
    fn what_is_hot_comes_first_by_its_rate() {
        let of = |hot: Mask, hz| Wanted { pmd: PmdNo(1), hot, idle: Mask::ALL, hz };
        let wanted = [of(Mask::NONE, 0.0), of(Mask::ALL, 3.0), of(Mask::ALL, 4096.0), of(Mask::ALL, 1e9)];
        let id = TargetId { pid: 1, start_ticks: 1 };
        let levels = |wanted: &[Wanted], is_full| -> Vec<u8> {
            hints(id, wanted, is_full, 7).iter().map(|hint| hint.level.get()).collect()
        };
        assert_eq!(levels(&wanted, false), [0, 12, 20, 20]);
        assert_eq!(levels(&wanted, true), [21, 21, 21, 21], "what can make room");
        let hot = Wanted { idle: Mask::NONE, ..wanted[1] };
        assert_eq!(levels(&[hot, wanted[0]], true), [21, 12]);
        assert_eq!((levels(&[hot; 100], true).len(), levels(&[hot; 100], false).len()), (MAX_WAITING, 100));
    }
}
