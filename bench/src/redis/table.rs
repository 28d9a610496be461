//! The results, as lines and as figures of RESULT.

use super::hints::Hints;
use super::server::{Server, resident};
use super::slice::{Slice, milliseconds};
use anyhow::{Context, Result};
use isotherm_bench::{Log, median, spread};
use isotherm_sys::proc::Proc;
use isotherm_units::{Bytes, PAGE_SIZE};
use std::time::Duration;

pub fn report_pairs(log: &mut Log, equal: &[[Slice; 2]], pairs: &[[Slice; 2]]) {
    // A server that is neither busy nor waiting for a core waits for the generator. If it waits for a core, other
    // programs use the cores.
    log.line(format!(
        "\nmedians of slices; busy, waiting for a core, generator busy: % of the time; CPU of the server in ns an operation\n\
         {:>6} {:>9} {:>6} {:>8} {:>10} {:>8} {:>8} {:>8}  batch ms: {:>6} {:>6} {:>6}",
        "server", "op/s", "busy", "waiting", "generator", "user", "system", "total", "p50", "p99", "p99.9"
    ));
    for (index, name) in ["A", "B"].into_iter().enumerate() {
        let of = |f: &dyn Fn(&Slice) -> f64| median(&pairs.iter().map(|p| f(&p[index])).collect::<Vec<_>>());
        log.line(format!(
            "{name:>6} {:>9.0} {:>6.1} {:>8.1} {:>10.1} {:>8.0} {:>8.0} {:>8.0}            {:>6.2} {:>6.2} {:>6.2}",
            of(&Slice::operations_a_second),
            of(&|s| s.percent(s.cpu.total_ns)),
            of(&|s| s.percent(s.cpu.waited_ns)),
            of(&|s| s.percent(s.generator_ns)),
            of(&Slice::user),
            of(&Slice::system),
            of(&Slice::total),
            of(&|s| milliseconds(&s.batch_ns, 500)),
            of(&Slice::p99),
            of(&|s| milliseconds(&s.batch_ns, 999))
        ));
    }
    log.line(
        "saved by B, % of A, median over pairs (smallest to largest), middle half of the pairs, all slices together:",
    );
    let before = saved(log, "CPU before", equal, Slice::total, |s| s.cpu.total_ns);
    let total = saved(log, "CPU", pairs, Slice::total, |s| s.cpu.total_ns);
    let user = saved(log, "user CPU", pairs, Slice::user, |s| s.cpu.user_ns);
    saved(log, "system CPU", pairs, Slice::system, |s| s.cpu.system_ns);
    let since = 100.0 * (1.0 - (100.0 - total) / (100.0 - before));
    log.line(format!("  CPU, relative to before: {since:.2}"));
    let p99: Vec<f64> = pairs.iter().map(|[a, b]| b.p99() / a.p99()).collect();
    log.line(format!("p99 of batches, B / A: {}", spread(&p99)));
    log.result("cpu_saved_pct", total);
    log.result("user_cpu_saved_pct", user);
    log.result("cpu_saved_before_pct", before);
    log.result("cpu_saved_since_pct", since);
    log.result("p99_ratio", median(&p99));
}

/// Percent of A's cost per operation that B saves. Returns the median over pairs. Also prints the saving of the sums.
/// Outliers affect it more, and the kernel's sampling of user and system time affects it less.
fn saved(log: &mut Log, what: &str, pairs: &[[Slice; 2]], cost: fn(&Slice) -> f64, ns: fn(&Slice) -> f64) -> f64 {
    let percent = |[a, b]: &[Slice; 2]| 100.0 * (1.0 - cost(b) / cost(a));
    let each: Vec<f64> = pairs.iter().map(percent).collect();
    let sum = |i: usize, f: fn(&Slice) -> f64| pairs.iter().map(|p| f(&p[i])).sum::<f64>();
    let mean = |i: usize| sum(i, ns) / sum(i, |s| s.operations);
    let (low, high) = middle_half(&each);
    let all = 100.0 * (1.0 - mean(1) / mean(0));
    log.line(format!("  {what:<11} {:<28} {low:>6.2} to {high:>6.2} {all:>8.2}", spread(&each)));
    median(&each)
}

/// The range of the middle half of the values: the spread without the few pairs that another program has disturbed.
fn middle_half(values: &[f64]) -> (f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |quarters: usize| sorted.get(sorted.len().saturating_sub(1) * quarters / 4).copied().unwrap_or(f64::NAN);
    (at(1), at(3))
}

/// The daemon's own CPU time in the same period, next to the server's.
pub fn report_daemon(
    log: &mut Log,
    hints: Option<&Hints>,
    ns: f64,
    time: Duration,
    pairs: &[[Slice; 2]],
) -> Result<()> {
    let Some(hints) = hints else { return Ok(()) };
    let core_pct = 100.0 * ns / time.as_nanos() as f64;
    let of_server_pct = 100.0 * ns / pairs.iter().map(|[_, b]| b.cpu.total_ns).sum::<f64>();
    let status = hints.status()?;
    log.line(format!(
        "daemon: {core_pct:.2}% of a core, {of_server_pct:.2}% of what server B used; {} huge ranges collapsed{}",
        status.collapsed,
        status.heat_on_huge.map(|s| format!("; of the heat on huge pages: {s:.2}")).unwrap_or_default()
    ));
    log.result("daemon_cpu_pct", core_pct);
    Ok(())
}

pub fn report_memory(log: &mut Log, servers: &[Server; 2], before: [u64; 2]) -> Result<()> {
    let after = resident(servers)?;
    let [a, b] = [0, 1].map(|i| 100.0 * (after[i] as f64 / before[i] as f64 - 1.0));
    let usage = Proc::default().smaps_rollup(servers[1].pid()).context("read the huge pages of server B")?;
    let huge_share = usage.anon_huge.0 as f64 / (usage.rss.0 as f64).max(PAGE_SIZE as f64);
    log.line(format!(
        "resident: A {} {a:+.2}%, B {} {b:+.2}% since before the hints; in huge pages of B: {:.1}%",
        Bytes(after[0]),
        Bytes(after[1]),
        100.0 * huge_share
    ));
    log.result("rss_growth_pct", b - a);
    log.result("huge_share", huge_share);
    Ok(())
}
