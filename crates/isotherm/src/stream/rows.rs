//! From a snapshot, and what is known of pages, to the rows that are sent.

use crate::output;
use isotherm_heat::{Histogram, Ns, RunInfo, Snapshot, Target, TargetHeat};
use isotherm_schemes::bring_back::BROUGHT_BACK;
use isotherm_schemes::collapse::COLLAPSED;
use isotherm_schemes::migrate::MIGRATED;
use isotherm_schemes::page_out::PAGED_OUT;
use isotherm_schemes::split::SPLIT_APART;
use isotherm_schemes::split::rejoin::REJOINED;
use isotherm_schemes::state::Status;
use isotherm_stream::{ActionRow, HostRow, ProcessRow, huge_by_regions, part_of};
use isotherm_units::{Bytes, PMD_SIZE};

/// The machine, the monitor and its cost.
pub fn host(run: &RunInfo, hostname: &str, snapshot: &Snapshot, (unchecked, all): (usize, usize)) -> HostRow {
    HostRow {
        hostname: hostname.to_owned(),
        unchecked_pmds: unchecked as u64,
        all_pmds: all as u64,
        ..HostRow::of(run, snapshot)
    }
}

/// One process; with what is known of each of its pages, and the time, and whether it is sampled.
pub fn process(target: &TargetHeat, (pages, is_sampled): (Option<(&Target, Ns)>, bool)) -> ProcessRow {
    let on_huge = pages.map_or_else(|| huge_by_regions(target), |(pages, now)| huge_by_pages(pages, now));
    let row = ProcessRow::of(target);
    ProcessRow { sampled: is_sampled || row.sampled, heat_huge: part_of(&row.heat, &on_huge), ..row }
}

fn huge_by_pages(pages: &Target, now: Ns) -> Histogram {
    let mut huge = Histogram::default();
    pages.for_each_pmd(now, |_, view| {
        for run in view.runs.iter().filter(|run| run.huge) {
            match view.behind {
                // As the sums of the target have it: small pages that a huge page has replaced count as they were.
                Some(behind) => {
                    behind
                        .estimated(now, run.interval)
                        .for_each(|(interval, pages)| huge.add(interval, u64::from(pages)));
                }
                None => huge.add(run.interval, u64::from(run.pages)),
            }
        }
    });
    huge
}

/// What was done to memory so far, and why it was not.
pub fn actions(status: &Status) -> Vec<ActionRow> {
    let counters = &status.counters;
    let collapsed = counters.all(COLLAPSED).saturating_mul(PMD_SIZE);
    let all = [
        ("collapse", COLLAPSED, collapsed),
        ("page-out", PAGED_OUT, Bytes::of_pages(counters.left_pages).0),
        ("migrate", MIGRATED, status.totals.moved_bytes),
        ("bring-back", BROUGHT_BACK, status.totals.asked_back_bytes),
        ("split", SPLIT_APART, status.totals.returned_bytes),
        ("rejoin", REJOINED, counters.all(REJOINED).saturating_mul(PMD_SIZE)),
    ];
    let is_there = |(_, name, _): &(&str, &str, u64)| counters.done.contains_key(*name);
    // A dry run counts what it would do.
    let result = if status.dry_run { "would" } else { "done" };
    let row = |action: &str, huge_ranges, bytes| ActionRow {
        action: action.to_owned(),
        result: result.to_owned(),
        huge_ranges,
        bytes,
    };
    let done = all.into_iter().filter(is_there).map(|(action, name, bytes)| row(action, counters.all(name), bytes));
    // Of cgroups, which have no huge ranges.
    let reclaimed = Some(status.totals.reclaimed_bytes).filter(|bytes| *bytes > 0);
    let done = done.chain(reclaimed.map(|bytes| row("reclaim", 0, bytes)));
    // Refusals are counted for all actions together.
    let refused = counters.refused.iter().map(|(refusal, huge_ranges)| ActionRow {
        action: "any".to_owned(),
        result: output::json_name(refusal),
        huge_ranges: *huge_ranges,
        bytes: 0,
    });
    done.chain(refused).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_have_what_was_done_and_why_not() {
        let text = r#"{"version": "1", "pid": 1, "targets": [], "totals": {"moved_bytes": 12288, "returned_bytes": 8192, "reclaimed_bytes": 40960},
            "counters": {"collapsed": {"heat": 3}, "migrated": {"heat": 2}, "split": {"heat": 5}, "collapsed_again": {"heat": 2}, "refused": {"no-charge": 4}, "left_pages": 9}}"#;
        let rows = actions(&serde_json::from_str(text).unwrap());
        let row = |action: &str, result: &str, huge_ranges, bytes| ActionRow {
            action: action.into(),
            result: result.into(),
            huge_ranges,
            bytes,
        };
        let done = [
            row("collapse", "done", 3, 6 << 20),
            row("migrate", "done", 2, 12_288),
            row("split", "done", 5, 8192),
            row("rejoin", "done", 2, 4 << 20),
            row("reclaim", "done", 0, 40_960),
            row("any", "no-charge", 4, 0),
        ];
        assert_eq!(rows, done);
        let dry = actions(&Status { dry_run: true, ..serde_json::from_str(text).unwrap() });
        assert!(dry.iter().all(|row| row.result == "would" || row.action == "any"), "{dry:?}");
    }
}
