//! What the demo prints: accuracy, cost, and how soon the picture was good.

use super::{Truth, Watched};
use isotherm_heat::{Granularity, RunInfo};
use isotherm_units::Bytes;
use isotherm_view::human;
use isotherm_workload::Child;
use serde::Serialize;
use std::io::{self, Write};

/// What `--json` prints.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// `page`: compared page by page. `amount`: by the size of the hot set, for a source that does not report single pages.
    scored_by: &'static str,
    /// The share of the pages reported as hot that are hot. With `--busy`, precision and recall are of pages that are clearly hot
    /// or not.
    precision: f64,
    /// The share of the hot pages that are reported as hot.
    recall: f64,
    /// The error of the reported size of the hot set.
    hot_bytes_error_pct: f64,
    /// With `--busy`: memory accessed about as often as the threshold of once a second, 0.5 to 2 times as often. It counts
    /// neither way in precision and recall.
    #[serde(skip_serializing_if = "Option::is_none")]
    near_bytes: Option<u64>,
    /// Pages about which nothing is known yet.
    unmeasured_pages: u64,
    /// Seconds until precision and recall were 0.95 or better and stayed so. `None` if they were not, or were not compared
    /// page by page.
    good_s: Option<f64>,
    /// The same for 0.99, with nothing unmeasured or estimated.
    exact_s: Option<f64>,
    /// CPU of the monitor while watching, percent of one core.
    monitor_cpu_pct: f64,
    /// Measured on the child: CPU time per access while watched, compared with unwatched. Noise can make it negative.
    slowdown_pct: f64,
    /// Estimated from the pages that were accessed again after a clear. The budget limits this figure.
    slowdown_estimated_pct: f64,
    /// The longest time that 1,024 accesses of the child took, watched and unwatched. Not with `--busy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    stall_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stall_unwatched_ms: Option<f64>,
    #[serde(flatten)]
    load: Option<Load>,
    /// The longest time for which the child's memory map was locked.
    longest_hold_ms: f64,
    read_errors: u64,
    source: String,
    source_note: String,
    granularity: Granularity,
    memory_bytes: u64,
    /// Memory that is hot.
    hot_bytes: u64,
    /// Memory that is reported as hot.
    reported_hot_bytes: u64,
    seconds: f64,
}

/// What a busy workload did while it was watched.
#[derive(Clone, Copy, Debug, Serialize)]
struct Load {
    threads: usize,
    /// How many CPUs these used.
    cpus: f64,
    operations_per_s: f64,
}

impl Load {
    fn of(truth: &dyn Truth, watched: &Watched) -> Option<Load> {
        let threads = truth.threads()?;
        let (cpus, operations_per_s) = truth.child().speed(watched.began, watched.ended)?;
        Some(Load { threads, cpus, operations_per_s })
    }
}

/// CPU time per access while watched, compared with unwatched, in percent.
fn slowdown_pct(child: &Child, watched: &Watched) -> f64 {
    let cost_of = |from, to| child.cpu_ns_per_access(from, to);
    let during = cost_of(watched.began, watched.ended).unwrap_or(f64::NAN);
    let unwatched = match (cost_of(0, watched.began), cost_of(watched.ended, u64::MAX)) {
        (Some(a), Some(b)) => f64::midpoint(a, b),
        (a, b) => a.or(b).unwrap_or(f64::NAN),
    };
    100.0 * (during / unwatched - 1.0)
}

pub(super) fn report(truth: &dyn Truth, watched: &Watched, run: RunInfo) -> Report {
    let (child, found) = (truth.child(), &watched.found);
    let slowest = |from: u64, to: u64| {
        let heard = child.progress();
        let within = heard.iter().filter(|p| from < p.at && p.at <= to).map(|p| p.slowest_ns);
        truth.threads().is_none().then(|| within.max().unwrap_or(0) as f64 / 1e6)
    };
    let seconds = (watched.ended - watched.began) as f64 / 1e9;
    let granularity = child_granularity(watched);
    Report {
        scored_by: if granularity == Granularity::Page { "page" } else { "amount" },
        precision: found.score.precision(),
        recall: found.score.recall(),
        hot_bytes_error_pct: found.size_error_pct,
        near_bytes: found.near_pages.map(|pages| Bytes::of_pages(pages).0),
        unmeasured_pages: found.unmeasured_pages,
        good_s: watched.since.good_s,
        exact_s: watched.since.exact_s,
        monitor_cpu_pct: watched.cpu_ns as f64 / 1e7 / seconds,
        slowdown_pct: slowdown_pct(child, watched),
        slowdown_estimated_pct: watched.cost.slowdown_pct,
        stall_ms: slowest(watched.began, watched.ended),
        stall_unwatched_ms: slowest(0, watched.began),
        load: Load::of(truth, watched),
        longest_hold_ms: watched.cost.longest_hold_ns as f64 / 1e6,
        read_errors: watched.cost.read_errors,
        source: run.source,
        source_note: run.source_note,
        granularity,
        memory_bytes: child.memory().len().0,
        hot_bytes: Bytes::of_pages(found.hot_pages).0,
        reported_hot_bytes: Bytes::of_pages(found.reported_hot_pages).0,
        seconds,
    }
}

fn child_granularity(watched: &Watched) -> Granularity {
    watched.snapshots.last().and_then(|s| s.targets.first()).map_or(Granularity::Page, |t| t.granularity)
}

pub(super) fn write_text(r: &Report, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out)?;
    writeln!(
        out,
        "source      {}, {} of {} hot, watched for {:.0} s",
        r.source,
        Bytes(r.hot_bytes),
        Bytes(r.memory_bytes),
        r.seconds
    )?;
    write_accuracy(r, out)?;
    write_cost(r, out)
}

fn write_accuracy(r: &Report, out: &mut dyn Write) -> io::Result<()> {
    let unknown = if r.unmeasured_pages > 0 {
        format!(", {} not measured yet", Bytes::of_pages(r.unmeasured_pages))
    } else {
        String::new()
    };
    writeln!(
        out,
        "accuracy    precision {:.4}, recall {:.4} by {}, size of the hot set off by {:.1}%{unknown}",
        r.precision, r.recall, r.scored_by, r.hot_bytes_error_pct
    )?;
    match (r.good_s, r.exact_s) {
        (Some(good), Some(exact)) => writeln!(out, "            good after {good:.1} s, exact after {exact:.1} s")?,
        (Some(good), None) => writeln!(out, "            good after {good:.1} s")?,
        _ if r.granularity == Granularity::Page => {
            writeln!(
                out,
                "            not good at the end: a precision and recall of 0.95 was not reached, or not kept"
            )?;
        }
        _ => {}
    }
    if let Some(near) = r.near_bytes {
        let (reported, hot) = (Bytes(r.reported_hot_bytes), Bytes(r.hot_bytes));
        writeln!(out, "            working set {reported} as reported, {hot} by counted accesses")?;
        writeln!(
            out,
            "            {} near the threshold, accessed 0.5 to 2 times a second, count neither way in precision and recall",
            Bytes(near)
        )?;
    }
    if r.granularity != Granularity::Page {
        writeln!(
            out,
            "            this source reports how much of a mapping or region is hot, not which pages: see `isotherm doctor` for a better one"
        )?;
    }
    Ok(())
}

fn write_cost(r: &Report, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "cost        monitor {} of a core; workload slowed by {} (estimated {}); longest hold of its memory map {}",
        human::percent(r.monitor_cpu_pct) + "%",
        signed_percent(r.slowdown_pct),
        human::percent(r.slowdown_estimated_pct) + "%",
        milliseconds(r.longest_hold_ms)
    )?;
    if let (Some(watched), Some(unwatched)) = (r.stall_ms, r.stall_unwatched_ms) {
        let (watched, unwatched) = (milliseconds(watched), milliseconds(unwatched));
        writeln!(out, "            longest 1,024 accesses: {watched} watched, {unwatched} unwatched")?;
    }
    if let Some(Load { threads, cpus, operations_per_s }) = r.load {
        let thousands = operations_per_s / 1000.0;
        writeln!(
            out,
            "load        {threads} threads used {cpus:.2} CPUs for {thousands:.0} thousand operations a second"
        )?;
    }
    if r.read_errors > 0 {
        writeln!(out, "warning     {} reads of page tables failed: the result is suspect", r.read_errors)?;
    }
    Ok(())
}

fn milliseconds(ms: f64) -> String {
    format!("{ms:.1} ms")
}

fn signed_percent(percent: f64) -> String {
    format!("{percent:+.1}%")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy() -> Report {
        Report {
            scored_by: "page",
            precision: 0.99,
            recall: 0.9,
            hot_bytes_error_pct: 3.0,
            near_bytes: Some(5 << 20),
            unmeasured_pages: 512,
            good_s: None,
            exact_s: None,
            monitor_cpu_pct: 1.0,
            slowdown_pct: 0.2,
            slowdown_estimated_pct: 0.5,
            stall_ms: None,
            stall_unwatched_ms: None,
            load: Some(Load { threads: 4, cpus: 3.875, operations_per_s: 612_345.0 }),
            longest_hold_ms: 0.4,
            read_errors: 0,
            source: "page-table".to_owned(),
            source_note: String::new(),
            granularity: Granularity::Page,
            memory_bytes: 1 << 30,
            hot_bytes: 100 << 20,
            reported_hot_bytes: 97 << 20,
            seconds: 15.0,
        }
    }

    fn text(report: &Report) -> String {
        let mut out = Vec::new();
        write_text(report, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_busy_workload_has_two_working_sets_a_load_and_no_stall() {
        let text = text(&busy());
        for line in [
            "source      page-table, 100.0 MiB of 1.0 GiB hot, watched for 15 s\n",
            "recall 0.9000 by page, size of the hot set off by 3.0%, 2.0 MiB not measured yet\n",
            "            not good at the end",
            "            working set 97.0 MiB as reported, 100.0 MiB by counted accesses\n",
            "            5.0 MiB near the threshold, accessed 0.5 to 2 times a second,",
            "slowed by +0.2% (estimated 0.5",
            "load        4 threads used 3.88 CPUs for 612 thousand operations a second\n",
        ] {
            assert!(text.contains(line), "no {line:?} in:\n{text}");
        }
        assert!(!text.contains("longest 1,024"), "{text}");
        let json = serde_json::to_value(busy()).unwrap();
        assert!(json["threads"] == 4 && json["near_bytes"] == 5 << 20 && json.get("stall_ms").is_none(), "{json}");
    }

    #[test]
    fn a_known_workload_has_neither() {
        let (stall_ms, stall_unwatched_ms) = (Some(7.9), Some(0.4));
        let since = (Some(0.8), Some(1.5));
        let known = Report {
            near_bytes: None,
            load: None,
            stall_ms,
            stall_unwatched_ms,
            good_s: since.0,
            exact_s: since.1,
            ..busy()
        };
        let text = text(&known);
        assert!(text.contains("            good after 0.8 s, exact after 1.5 s\n"), "{text}");
        assert!(text.contains("longest 1,024 accesses: 7.9 ms watched, 0.4 ms unwatched\n"), "{text}");
        assert!(!text.contains("near the threshold") && !text.contains("threads used"), "{text}");
        let json = serde_json::to_value(&known).unwrap();
        assert!(json.get("near_bytes").is_none() && json.get("threads").is_none() && json["stall_ms"] == 7.9, "{json}");
    }
}
