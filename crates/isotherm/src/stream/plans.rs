//! What actions would do to the processes that are watched, for those who show it: a plan of `isotherm_schemes::preview`, made anew
//! every few seconds. It takes a pass over all that is known of pages, so it is not made for each window.

use crate::rounds::skipped;
use crate::swap;
use crate::watch::{idle_window_of, window_of};
use isotherm_heat::{Clock, Ns, Snapshot, TargetHeat};
use isotherm_monitor::Monitor;
use isotherm_schemes::collapse::{self, COLLAPSE};
use isotherm_schemes::page_out::{PAGE_OUT, Rules, idle_pages};
use isotherm_schemes::preview::{Preview, hidden_in, preview, refused};
use isotherm_schemes::split::SPLIT;
use isotherm_schemes::{ActionId, Refusal};
use isotherm_stream::PlanRow;

/// How long a plan is kept.
const PLAN_TTL: Ns = 10_000_000_000;
/// Memory counts as idle after this: as for `isotherm reclaim` and `isotherm split`.
const MIN_IDLE_NS: Ns = 60_000_000_000;
const ACTIONS: [(ActionId, &str); 3] = [(COLLAPSE, "collapse"), (PAGE_OUT, "page-out"), (SPLIT, "split")];

/// The last plan.
#[derive(Debug, Default)]
pub struct Plans {
    made_at: Option<Ns>,
    rows: Vec<PlanRow>,
}

impl Plans {
    /// The plan for the processes of a snapshot, as old as [`PLAN_TTL`] at most.
    pub fn of(&mut self, monitor: &Monitor<Box<dyn Clock>>, snapshot: &Snapshot) -> Vec<PlanRow> {
        let now = monitor.now();
        if self.made_at.is_none_or(|at| now.saturating_sub(at) >= PLAN_TTL) {
            self.made_at = Some(now);
            let has_swap = swap::is_there();
            self.rows = snapshot.alive().flat_map(|target| plan(monitor, target, has_swap)).collect();
        }
        self.rows.clone()
    }
}

fn plan(monitor: &Monitor<Box<dyn Clock>>, target: &TargetHeat, has_swap: bool) -> Vec<PlanRow> {
    let row = |preview: Preview| row(target, preview);
    if target.facts.runs_guest {
        return ACTIONS.map(|(action, _)| row(refused(action, Refusal::Guest))).to_vec();
    }
    let now = monitor.now();
    let pages = monitor.pages_of(target.id.pid);
    let others_clear = target.facts.cleared_by_others_pages > 0;
    let rules = Rules { min_idle_ns: MIN_IDLE_NS };
    let idle = pages.filter(|_| !others_clear).map(|pages| idle_pages(rules, pages, now)).unwrap_or_default();
    let hidden = pages.map(|pages| hidden_in(pages, MIN_IDLE_NS, now)).unwrap_or_default();
    let window = window_of(monitor, target, collapse::Rules::default().min_benefit_hz);
    let known = preview(&window, &idle_window_of(monitor, target, idle), &hidden, now);
    let mut rows: Vec<PlanRow> = known.into_iter().map(row).collect();
    let whole = |action, why_not: &str| PlanRow {
        why_not: why_not.to_owned(),
        ..self::row(target, refused(action, Refusal::Unmeasured))
    };
    if others_clear {
        rows.push(row(refused(PAGE_OUT, Refusal::ClearedByOthers)));
    }
    if let Some(sampled) = skipped(None, pages.is_none()) {
        rows.extend([PAGE_OUT, SPLIT].map(|action| whole(action, sampled)));
    }
    if !has_swap {
        rows.push(whole(PAGE_OUT, "no swap on this machine"));
    }
    rows
}

fn row(target: &TargetHeat, preview: Preview) -> PlanRow {
    let name = ACTIONS.into_iter().find(|(action, _)| *action == preview.action).map_or("", |(_, name)| name);
    PlanRow {
        pid: target.id.pid,
        start_ticks: target.id.start_ticks,
        action: name.to_owned(),
        mapping_start_addr: preview.mapping.map(|addr| addr.0),
        huge_ranges: preview.huge_ranges,
        bytes: preview.bytes.0,
        why_not: preview.why_not.map(|refusal| refusal.text().to_owned()).unwrap_or_default(),
    }
}
